"""Exact bytes on the command line: what `derive --shapes`, `compare` of profiles and `measure` share."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.diagnostics import Problems, suggestion

if TYPE_CHECKING:
    from placeproof.core.shapes import Shapes
    from placeproof.core.strategy import Strategy
    from placeproof.cost.exact.options import Value
    from placeproof.profiles.profile import Implementation

ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="As a system runs it: `placeproof list profiles`. [default: ideal]")
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME", help="Another implementation of the profile than the usual one; may be repeated."),
]
ShapesOption = Annotated[
    str | None,
    typer.Option(
        "--shapes", metavar="FILE", help="Exact bytes for a model: a file of shapes, a config.json, or `transformer(layers=2, ...)`."
    ),
]
RankOption = Annotated[int, typer.Option("--rank", min=0, help="Of which device exact bytes are told.")]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="For exact bytes: dtype=bfloat16, optimizer=sgd, ...: `how-to/exact-bytes` lists them."
    ),
]

_TRANSFORMER = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "batch", "tokens")


def shapes_of(text: str) -> Shapes:
    """A file of shapes, or ``transformer(...)`` with its sizes. Raises InputError."""
    if re.match(r"\s*transformer\s*\(", text) is None:
        from placeproof.importers.shapes import read_shapes

        return read_shapes(text)
    from placeproof.core.shapes import MOST_LAYERS, transformer

    problems = Problems()
    sizes: dict[str, int] = {}
    try:
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        sizes = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        for name, size in sizes.items():
            if not is_count(size) or (name == "layers" and size > MOST_LAYERS):
                raise ValueError(f"`{name}` is {A_COUNT}{f', of layers {MOST_LAYERS:,}' if name == 'layers' else ''}, not {size!r}")
    except (SyntaxError, AssertionError, ValueError, TypeError, RecursionError, MemoryError) as error:
        problems.add("PP102", f"`{text}` cannot be read: {error or 'sizes are given by name'}", help=f"write {_example()}")
    problems.raise_if_any()
    unknown, missing = set(sizes) - set(_TRANSFORMER), set(_TRANSFORMER) - set(sizes) - {"kv_heads"}
    if unknown or missing:
        said = [f"no size `{n}`" for n in sorted(unknown)] + [f"`{n}` is missing" for n in sorted(missing)]
        problems.add("PP104", f"a transformer has other sizes: {', '.join(said)}", help=f"write {_example()}")
    problems.raise_if_any()
    try:
        return transformer(**sizes)
    except ValueError as error:
        problems.add("PP104", str(error), help="give sizes that divide one another")
        problems.raise_if_any()
        raise


def _example() -> str:
    return "`transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)`"


def options_of(texts: list[str]) -> dict[str, Value]:
    """``NAME=VALUE`` texts as options. Raises InputError with every problem."""
    from placeproof.cost.exact.options import OPTIONS

    problems = Problems()
    found: dict[str, Value] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in OPTIONS:
            problems.add("PP104", f"there is no option `{name}`", help=suggestion(name, OPTIONS) or "options: " + ", ".join(OPTIONS))
            continue
        try:
            found[name] = OPTIONS[name].read(value)
        except ValueError:
            problems.add("PP104", f"option `{name}` cannot be `{value}`", help=f"give {OPTIONS[name].expects()}")
    problems.raise_if_any()
    return found


def mesh_of(strategy: Strategy, given: list[str], *, command: str = "") -> dict[str, int]:
    """The degree of every axis, from the strategy or from ``N=8`` and ``N_dp=8``; the slowest axis first. Raises InputError, which names
    a ``command`` with all degrees that are missing, if it is told one."""
    from placeproof.core.mesh import degree_symbol

    values = {text.partition("=")[0].strip(): text.partition("=")[2].strip() for text in given}
    problems, mesh = Problems(), {}
    missing = [
        f"--set {name}={8 if not command else 2}"
        for axis in strategy.axes
        if axis.degree is None and (name := degree_symbol(axis.name, only=len(strategy.axes) == 1)) not in values
    ]
    for axis in sorted(strategy.axes, key=lambda a: (a.splits.name != "layers", a.splits.order)):
        name = degree_symbol(axis.name, only=len(strategy.axes) == 1)
        text = str(axis.degree) if axis.degree is not None else values.get(name)
        if text is None:
            help_ = f"`{' '.join((command, *missing))}`" if command else f"`--set {name}=8`"
            problems.add("PP203", f"exact bytes need the degree of axis `{axis.name}`", help=help_)
        elif not re.fullmatch(r"[1-9][0-9]{0,6}", text):
            problems.add("PP103", f"axis `{axis.name}` cannot have `{text}` devices", help=f"`--set {name}=8`")
        else:
            mesh[axis.name] = int(text)
    problems.raise_if_any()
    return mesh


def where(mesh: Mapping[str, int], rank: int) -> str:
    """A device in words; raises InputError where the mesh has no such rank."""
    from math import prod

    devices = prod(mesh.values())
    if rank >= devices:
        problems = Problems()
        problems.add("PP103", f"there is no rank {rank} among {devices} devices", help="ranks count from 0")
        problems.raise_if_any()
    return f"rank {rank} of {devices}"


def exact(
    expression: str,
    shapes: str,
    *,
    profile: str | None,
    wanted: list[str],
    given: list[str],
    rank: int,
    options: list[str],
    json_: bool,
) -> str:
    """The answer of `derive --shapes`. Raises InputError with every problem that is found before anything is computed."""
    from placeproof.cost.exact.choose import chosen, explained, realised_text
    from placeproof.cost.exact.setting import degrees
    from placeproof.profiles.profile import profile as read_profile
    from placeproof.report.models import exact as report
    from placeproof.semantics.lower import lower
    from placeproof.strategies import parse_strategy

    strategy = parse_strategy(expression)
    problems = Problems()
    with problems.collecting():
        implementations = chosen(read_profile(profile or "ideal"), strategy, tuple(wanted))
    with problems.collecting():
        model = shapes_of(shapes)
    with problems.collecting():
        settled = options_of(options)
    with problems.collecting():
        mesh = mesh_of(strategy, given)
        at = where(mesh, rank)
    problems.raise_if_any()
    _, changes, told = explained(strategy, implementations, model, mesh, rank=rank, options=settled)
    lowered, degree = realised_text(strategy, implementations), degrees(strategy, mesh)
    programs = tuple(dict.fromkeys(p.name for p in told.programs))  # a system's own rules say which programs it runs
    if [p.body for p in told.programs] == [lower(parse_strategy(lowered)).body]:
        programs = (lowered,)
    if json_:
        import json

        data = report.as_data(strategy.name, implementations, model, programs, mesh, rank, told, changes, degree)
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    return report.prediction(strategy.name, implementations, model, programs, at, told, changes, degree)


def realised(expression: str, profile: str | None, wanted: list[str]) -> str:
    """The strategy as a profile lowers it; without a profile, as it is. Raises InputError."""
    if profile is None:
        return expression
    from placeproof.cost.exact.choose import chosen, realised_text
    from placeproof.profiles.profile import profile as read_profile
    from placeproof.strategies import parse_strategy

    strategy = parse_strategy(expression)
    return realised_text(strategy, chosen(read_profile(profile), strategy, tuple(wanted)))


def require_profile(
    profile: str | None, wanted: list[str] | None, shapes: str | None, rank: int, options: list[str] | None, *, exclusive: list[str]
) -> None:
    """Raise InputError for options that have nothing to act on."""
    problems = Problems()
    if wanted and profile is None:
        problems.add("PP104", "`--with` names an implementation of a profile", help="add `--profile torch-2.13`")
    if shapes is None and (rank or options):
        said = "--rank" if rank else "--option"
        problems.add("PP104", f"`{said}` is about exact bytes", help="add `--shapes FILE`")
    if shapes is not None and exclusive:
        problems.add("PP104", f"exact bytes are no formulas: `{exclusive[0]}` does not go with `--shapes`", help="leave one of the two out")
    problems.raise_if_any()


def compare_profiles(
    profiles: list[str],
    of: str,
    shapes: str | None,
    *,
    given: list[str],
    precision: str | None,
    rank: int,
    options: list[str],
    imports: tuple[str | None, int | None],
    json_: bool,
) -> str:
    """The answer of `compare PROFILE ... --of STRATEGY`: exact bytes for a model, closed forms without one. Raises InputError."""
    from placeproof.cost.exact.choose import chosen, explained, realised_text
    from placeproof.cost.exact.options import check_options, taken
    from placeproof.cost.exact.setting import degrees
    from placeproof.profiles.profile import profile as read_profile
    from placeproof.report.models import exact as report
    from placeproof.strategies import parse_strategy

    problems = Problems()
    if len(profiles) < 2:
        problems.add("PP102", "a comparison needs two profiles", help="for example `placeproof compare ideal torch-2.13 --of fsdp`")
    for name, value in zip(("--from", "--world"), imports, strict=True):
        if value is not None:
            problems.add("PP505", f"`{name}` goes with a configuration", help="`--of` takes a strategy")
    with problems.collecting():
        require_profile(None, None, shapes, rank, options, exclusive=["--precision"] if precision else [])
    strategy = parse_strategy(of)
    every = {}
    for name in dict.fromkeys(profiles):
        with problems.collecting():
            every[name] = chosen(read_profile(name), strategy)
    problems.raise_if_any()
    texts = {name: realised_text(strategy, one) for name, one in every.items()}
    if shapes is None:
        return _closed_forms(texts, every, given, precision, json_=json_)
    model, settled, mesh = shapes_of(shapes), options_of(options), mesh_of(strategy, given)
    at, degree = where(mesh, rank), degrees(strategy, mesh)
    check_options(tuple(i for one in every.values() for i in one), settled)
    theirs = {name: {k: v for k, v in settled.items() if k in taken(one)} for name, one in every.items()}
    told = {name: explained(strategy, one, model, mesh, rank=rank, options=theirs[name]) for name, one in every.items()}
    if json_:
        import json

        data = {
            name: report.as_data(strategy.name, every[name], model, (texts[name],), mesh, rank, after, changes, degree)
            for name, (_, changes, after) in told.items()
        }
        return json.dumps({"schema": "placeproof.exact-comparison/1", "profiles": data}, indent=2, ensure_ascii=False) + "\n"
    return report.comparison(strategy.name, every, model, texts, at, told, degree)


def _closed_forms(
    texts: Mapping[str, str], every: Mapping[str, tuple[Implementation, ...]], given: list[str], precision: str | None, *, json_: bool
) -> str:
    from placeproof.cli.common import derive_all
    from placeproof.cost.compare import Comparison, known
    from placeproof.cost.values import read_numbers
    from placeproof.report import compare as report
    from placeproof.report.models.exact import named

    numbers = read_numbers(given, precision)
    comparison = Comparison(tuple(derive_all(list(dict.fromkeys(texts.values())))), known(numbers))
    if json_:
        import json

        return json.dumps(report.to_json(comparison, numbers), indent=2, ensure_ascii=False) + "\n"
    who = "".join(f"{name}: {text}\n" for name, text in texts.items())
    return who + "\n" + report.text(comparison, numbers) + named(every)
