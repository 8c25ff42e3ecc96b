"""Comparisons as documents: the schema ``placeproof.compare/1``, and their text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from placeproof.core.precision import OPEN
from placeproof.cost.closed import tidy
from placeproof.cost.compare import Comparison, Crossover, Pair, widths
from placeproof.cost.derive import evaluate
from placeproof.cost.values import Numbers
from placeproof.report.derivation import partly
from placeproof.report.document import Document, Figure, Lines, Notes, Section, Table, section
from placeproof.report.units import figure, unused

LABELS = {
    "memory.model_states": "model states per device",
    "memory.peak": "peak memory per device",
    "memory.host": "host memory per device",
    "traffic.sent_per_device": "bytes sent per device and step",
    "traffic.host_link": "host link per device and step",
}


def document(c: Comparison, numbers: Numbers) -> Document:
    """Strategies side by side, then each against the first."""
    figures = [
        {key: Figure(form[key], evaluate(form[key], numbers.values) if numbers.asked else None) for key in c.keys} for form in c.forms
    ]
    return Document(
        name=", ".join(d.name for d in c.members), sections=lambda: _sections(c, numbers, figures), data=lambda: _data(c, numbers)
    )


def _sections(c: Comparison, numbers: Numbers, figures: list[dict[str, Figure]]) -> Iterator[Section]:
    first = c.members[0].name
    title = f"{len(c.members)} strategies at the same world size N, each against `{first}`"
    told = [_told(d.name, first, pairs, numbers) for d, pairs in c.pairs()]
    more = [f"and {len(told) - _MOST} more"] if len(told) > _MOST else []
    yield section(title, Lines([*told[:_MOST], *more]), detail="answer", brief="; ".join(told))
    for key in c.keys:
        yield section(LABELS[key], Table([(d.name, mine[key]) for d, mine in zip(c.members, figures, strict=True)]))
    for d, pairs in c.pairs():
        yield section(f"`{d.name}` against `{first}`", Notes([line for p in pairs for line in _pair(p, numbers)]))
    symbols = {str(s) for form in c.forms for expr in form.values() for s in expr.free_symbols}
    yield from (section(line) for line in unused(numbers.given, symbols))
    if numbers.precision != OPEN:
        yield section(f"ratios with numbers take the widths of {numbers.precision}; `--precision` changes them")


#: Of so many strategies the answer tells.
_MOST = 4
#: What the answer tells of each, with a ratio before it; a longer one is left to the tables.
_TOLD = {"memory.model_states": ("holds", "of its model states"), "traffic.sent_per_device": ("sends", "of what it sends")}
_LONGEST = 40


def _told(name: str, first: str, pairs: Sequence[Pair], numbers: Numbers) -> str:
    """How much of the first one's a strategy holds and sends."""
    told = []
    for p in (p for p in pairs if p.key in _TOLD and p.ratio is not None):
        ratio = _numeric(p.ratio, numbers).removeprefix(" = ") or str(p.ratio)
        verb, what = _TOLD[p.key]
        told += [f"{verb} {'all' if ratio == '1' else ratio} {what}"] if len(ratio) <= _LONGEST else []
    return f"`{name}` against `{first}`: {', '.join(told) or 'see below'}"


def _pair(p: Pair, numbers: Numbers) -> Iterator[str]:
    yield LABELS[p.key]
    if p.ratio is not None:
        yield f"  ratio      {p.ratio}{_numeric(p.ratio, numbers)}"
    if p.limit is not None:
        yield f"  N -> oo    {p.limit}{_numeric(p.limit, numbers)}"
    yield f"  crossover  {p.crossover.verdict}"
    if p.numeric is not None and p.numeric.verdict != p.crossover.verdict:
        yield f"             with numbers: {p.numeric.verdict}"


def _numeric(expr: Any, numbers: Numbers) -> str:
    """The formula with what is known put in, where that changes it."""
    if not expr.free_symbols or expr.is_infinite:
        return ""
    if not numbers.asked and not any(str(s) in widths(numbers) for s in expr.free_symbols):
        return ""
    value = partly(expr, numbers)
    if value == expr:
        return ""
    if value.free_symbols or not value.is_Rational or value.is_Integer:
        return f" = {tidy(value)}"
    exact = evaluate(value, {})
    assert exact is not None
    return f" = {value}" if exact.denominator < 1000 else f" = {figure(exact)}"


def _data(c: Comparison, numbers: Numbers) -> dict[str, Any]:
    strategies = []
    for d, form in zip(c.members, c.forms, strict=True):
        values = {k: evaluate(e, numbers.values) for k, e in form.items()} if numbers.asked else {}
        strategies.append({"strategy": d.name, "forms": form, "values": {k: v for k, v in values.items() if v is not None}})
    pairs = [{"strategy": d.name, "against": c.members[0].name, "figures": [_pair_data(p) for p in ps]} for d, ps in c.pairs()]
    return {"schema": "placeproof.compare/1", "strategies": strategies, "pairs": pairs}


def _pair_data(p: Pair) -> dict[str, Any]:
    crossovers = {"crossover": _crossover(p.crossover), "crossover_with_numbers": None if p.numeric is None else _crossover(p.numeric)}
    return {"key": p.key, "ratio": p.ratio, "limit": p.limit, **crossovers}


def _crossover(c: Crossover) -> dict[str, Any]:
    return {"variable": c.variable, "at": [str(r) for r in c.at], "verdict": c.verdict}
