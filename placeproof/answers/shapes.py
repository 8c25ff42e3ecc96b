"""What exact bytes are asked with, read from text: sizes of a transformer, options, and degrees."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from placeproof.answers.numbers import degrees
from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.core.formula import repeated
from placeproof.core.mesh import degree_symbol
from placeproof.cost.values import read_numbers

if TYPE_CHECKING:
    from placeproof.core.shapes import Shapes
    from placeproof.core.strategy import Strategy
    from placeproof.cost.exact.options import Value

_SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "batch", "tokens")
_EXAMPLE = "write `transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)`"


def transformer_of(text: str) -> Shapes:
    """The shapes of ``transformer(...)`` with its sizes. Raises InputError."""
    from placeproof.core.shapes import MOST_LAYERS, transformer

    sizes: dict[str, int] = {}
    try:
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        if (twice := next(repeated(call), None)) is not None:
            raise ValueError(f"`{twice.arg}` is said twice")
        sizes = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        for name, size in sizes.items():
            if not is_count(size) or (name == "layers" and size > MOST_LAYERS):
                raise ValueError(f"`{name}` is {A_COUNT}{f', of layers {MOST_LAYERS:,}' if name == 'layers' else ''}, not {size!r}")
    except (SyntaxError, AssertionError, ValueError, TypeError, RecursionError, MemoryError) as error:
        refuse("PP102", f"`{text}` cannot be read: {error or 'sizes are given by name'}", help=_EXAMPLE)
    unknown, missing = set(sizes) - set(_SIZES), set(_SIZES) - set(sizes) - {"kv_heads"}
    if unknown or missing:
        wrong = [f"no size `{n}`" for n in sorted(unknown)] + [f"`{n}` is missing" for n in sorted(missing)]
        refuse("PP104", f"a transformer has other sizes: {', '.join(wrong)}", help=_EXAMPLE)
    try:
        return transformer(**sizes)
    except ValueError as error:
        refuse("PP104", str(error), help="give sizes that divide one another")


def options_of(texts: Iterable[str]) -> dict[str, Value]:
    """``NAME=VALUE`` texts as options. Raises InputError with every problem."""
    from placeproof.cost.exact.options import OPTIONS

    problems = Problems()
    options: dict[str, Value] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in OPTIONS:
            problems.add("PP104", f"there is no option `{name}`", help=suggestion(name, OPTIONS) or "options: " + ", ".join(OPTIONS))
            continue
        try:
            options[name] = OPTIONS[name].read(value)
        except ValueError:
            problems.add("PP104", f"option `{name}` cannot be `{value}`", help=f"give {OPTIONS[name].expects()}")
    problems.raise_if_any()
    return options


def mesh_of(strategy: Strategy, given: Iterable[str], *, command: str = "", others: bool = False) -> dict[str, int]:
    """The degree of every axis, from the strategy or from ``N=8`` and ``N_dp=8``; the slowest axis first. ``others``: whether symbols may
    be set that are no degrees, for formulas beside the bytes.

    Raises InputError, which names a ``command`` with all degrees that are missing, if it is told one.
    """
    known = degrees(strategy.axes, strategy.schedule.microbatches)
    numbers = read_numbers(given, None, degrees=known)
    problems, mesh = Problems(), {}
    for name in numbers.given:
        if name not in known and not others:
            problems.add("PP201", f"exact bytes do not depend on `{name}`", help="leave it out: shapes say how large everything is")
    symbols = {axis.name: degree_symbol(axis.name, only=len(strategy.axes) == 1) for axis in strategy.axes}
    missing = [name for name in symbols.values() if known[name] is None and name not in numbers.given]
    for axis in sorted(strategy.axes, key=lambda a: (not a.splits.stages, a.splits.order)):
        name = symbols[axis.name]
        if name in missing:
            help_ = f"`{' '.join((command, *(f'--set {n}=2' for n in missing)))}`" if command else f"`--set {name}=8`"
            problems.add("PP203", f"exact bytes need the degree of axis `{axis.name}`", help=help_)
        else:
            mesh[axis.name] = known[name] or int(numbers.values[name])
    problems.raise_if_any()
    return mesh
