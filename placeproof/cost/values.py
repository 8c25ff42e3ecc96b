"""The numbers that formulas are evaluated at: read from ``NAME=VALUE``, checked against each symbol's domain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placeproof.core.bounds import A_COUNT, MOST_COUNT, within
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.precision import DEFAULT_PRECISION, OPEN, PRECISIONS
from placeproof.core.spelling import read_as
from placeproof.core.symbols import SYMBOLS, Domain, SymbolInfo, info, named

_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d{1,3})?(?:/\d{1,12})?")
_SUFFIX = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Values of symbols. ``given``: those that the user set; ``asked``: numbers are wanted; ``assumed``: those that stand for what nobody
    set."""

    values: Mapping[str, Fraction]
    given: tuple[str, ...]
    precision: str
    asked: bool
    assumed: tuple[str, ...] = ()


def read_numbers(settings: Iterable[str], precision: str | None, *, degrees: Mapping[str, int | None] | None = None) -> Numbers:
    """Read ``NAME=VALUE`` settings and a precision's name. ``degrees``: the
    strategy's degrees by symbol, None where open; a fixed one can only be set to what it is.

    Raises :class:`InputError` with every setting that is malformed, unknown, out of its domain, or contradicts another.
    """
    problems = Problems()
    chosen = precision or DEFAULT_PRECISION
    if chosen not in (*PRECISIONS, OPEN):
        hint = suggestion(chosen, PRECISIONS) or "one of " + ", ".join(PRECISIONS)
        problems.add("PP204", f"there is no precision `{chosen}`", help=hint)
    values = {} if chosen == OPEN else dict(PRECISIONS.get(chosen, PRECISIONS[DEFAULT_PRECISION]).values())
    values |= {row.name: Fraction(row.default) for row in SYMBOLS.values() if row.default is not None}
    given: dict[str, Fraction] = {}
    for setting in map(spelled, settings):
        _read_one(setting, given, degrees, problems)
    values |= given
    _consistent(values, given, problems)
    problems.raise_if_any()
    return Numbers(values=values, given=tuple(given), precision=chosen, asked=bool(given) or precision not in (None, OPEN))


#: Tokens of a sequence are said in thousands that are powers of two.
_TOKENS = re.compile(r"([0-9]{1,6})[kK]")


def spelled(setting: str) -> str:
    """``NAME=VALUE`` with the name of the symbol that is meant, and ``s=4k`` with its number of tokens; anything else as it is."""
    name, equals, text = (part.strip() for part in setting.partition("="))
    if not equals:
        return setting
    symbol = named(name)
    found = _TOKENS.fullmatch(text) if symbol == "s" else None
    value = text if found is None else read_as(text, str(int(found[1]) * 1024))
    return setting if (symbol, value) == (name, text) else f"{symbol}={value}"


def _read_one(setting: str, given: dict[str, Fraction], degrees: Mapping[str, int | None] | None, problems: Problems) -> None:
    name, equals, text = (part.strip() for part in setting.partition("="))
    place = Place(source="--set", line=1, column=1, length=max(1, len(setting)), text=setting)
    if not equals or not name or not text:
        problems.add("PP202", f"`{setting}` is not NAME=VALUE", place=place, help="for example `--set P=70e9`")
        return
    row = _row(name)
    if row is None:
        hint = _BATCH if name.lower() in ("batch", "batch_size", "bs") else suggestion(name, set(SYMBOLS) | set(degrees or ()))
        hint = hint or "`placeproof list symbols`"
        problems.add("PP201", f"there is no symbol `{name}`", place=place, help=hint)
        return
    if degrees is not None and _is_degree(name) and name not in degrees:
        shown = "its degrees: " + (", ".join(sorted(degrees)) or "none")
        problems.add("PP201", f"`{name}` is no degree of this strategy", place=place, help=shown)
        return
    if name in given:
        problems.add("PP202", f"`{name}` is set twice", place=place)
    value = _value(text, row)
    if value is None:
        help = "write 64, 70e9, 1/2 or 70B; no number is greater than 1e100, or less than 1e-100"
        problems.add("PP202", f"`{text}` is no number that `{name}` can have", place=place, help=help)
    elif row.domain is Domain.COUNT and value > MOST_COUNT:
        problems.add("PP202", f"`{name}` is {A_COUNT} ({row.meaning}), not {text}", place=place)
    elif not admissible(row, value):
        problems.add("PP202", f"`{name}` is {row.domain.value} ({row.meaning}), not {text}", place=place)
    elif degrees is not None and degrees.get(name) not in (None, value):
        message = f"`{name}` is {degrees[name]} in the strategy, and {text} here"
        problems.add("PP205", message, place=place, help="say it once")
    else:
        given[name] = value


_BATCH = "`b` is what a micro-batch has, in sequences; `--global-batch` says what a step has"


def how_to_set(name: str) -> str:
    """How a symbol is given a value, with one that is usual. Parameters and activations of a model are counted instead."""
    row = info(name)
    if name in PRECISIONS[DEFAULT_PRECISION].values():
        return f"`--precision {DEFAULT_PRECISION}`, or another of `placeproof list precisions`; or `--set {name}=2`"
    example = row.example or ("8" if _is_degree(name) else "VALUE")
    counted = "parameter" in row.dimension or row.dimension == {"element": 1}
    return f"`--set {name}={example}`" + (", or a model, of which it is counted: `--model llama3-8b`" if counted else "")


def _is_degree(name: str) -> bool:
    return name == "N" or name.startswith("N_")


def _row(name: str) -> SymbolInfo | None:
    try:
        return info(name)
    except KeyError:
        return None


def _value(text: str, row: SymbolInfo) -> Fraction | None:
    scale = 1
    if text[-1:].upper() in _SUFFIX and (row.dimension or {}).keys() & {"parameter", "element"} and "byte" not in row.dimension:
        text, scale = text[:-1], _SUFFIX[text[-1].upper()]
    if len(text) > 60 or not _NUMBER.fullmatch(text):
        return None
    number, _, below = text.replace("_", "").partition("/")
    if below and int(below) == 0:
        return None
    value = Fraction(number) * scale / (int(below) if below else 1)
    return value if within(value) else None


def admissible(row: SymbolInfo, value: Fraction) -> bool:
    """Whether a symbol may have the value."""
    if row.domain is Domain.COUNT:
        return value >= 1 and value.denominator == 1
    return value > 0 or (value == 0 and row.domain is Domain.NONNEGATIVE)


def _consistent(values: Mapping[str, Fraction], given: Mapping[str, Fraction], problems: Problems) -> None:
    for name in given:
        row = info(name)
        bound = row.at_most
        if bound is not None and bound in values and values[name] > values[bound]:
            problems.add(
                "PP205",
                f"`{name}` = {float(values[name]):g} exceeds `{bound}` = {float(values[bound]):g}, of which it is a part",
                help=f"`{name}` is {row.meaning}",
            )
