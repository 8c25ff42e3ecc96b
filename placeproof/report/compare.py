"""Comparisons as text and as JSON."""

from __future__ import annotations

from typing import Any

from placeproof.core.precision import OPEN
from placeproof.cost.closed import tidy
from placeproof.cost.compare import Comparison, Crossover, Pair, widths
from placeproof.cost.derive import evaluate
from placeproof.cost.values import Numbers
from placeproof.report.text import partly, table
from placeproof.report.units import bytes_text, figure, plain

LABELS = {
    "memory.model_states": "model states per device",
    "memory.peak": "peak memory per device",
    "memory.host": "host memory per device",
    "traffic.sent_per_device": "bytes sent per device and step",
    "traffic.host_link": "host link per device and step",
}


def text(c: Comparison, numbers: Numbers) -> str:
    """Strategies side by side, then each against the first."""
    first = c.members[0].name
    lines = [f"{len(c.members)} strategies at the same world size N, each against `{first}`"]
    for key in c.keys:
        rows = []
        for d, form in zip(c.members, c.forms, strict=True):
            value = evaluate(form[key], numbers.values) if numbers.asked else None
            rows.append((d.name, str(form[key]), bytes_text(value) if value is not None else ""))
        lines += ["", *table(LABELS[key], rows)]
    for d, pairs in c.pairs():
        lines += ["", f"`{d.name}` against `{first}`"]
        for p in pairs:
            lines += _pair(p, numbers)
    if numbers.precision != OPEN:
        lines += ["", f"ratios with numbers take the widths of {numbers.precision}; `--precision` changes them"]
    return "\n".join(lines) + "\n"


def _pair(p: Pair, numbers: Numbers) -> list[str]:
    lines = [f"  {LABELS[p.key]}"]
    if p.ratio is not None:
        lines.append(f"    ratio      {p.ratio}{_numeric(p.ratio, numbers)}")
    if p.limit is not None:
        lines.append(f"    N -> oo    {p.limit}{_numeric(p.limit, numbers)}")
    lines.append(f"    crossover  {p.crossover.verdict}")
    if p.numeric is not None and p.numeric.verdict != p.crossover.verdict:
        lines.append(f"               with numbers: {p.numeric.verdict}")
    return lines


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


def to_json(c: Comparison, numbers: Numbers) -> dict[str, Any]:
    """The comparison as JSON data, schema ``placeproof.compare/1``."""
    strategies = []
    for d, form in zip(c.members, c.forms, strict=True):
        values = {k: evaluate(e, numbers.values) for k, e in form.items()}
        strategies.append(
            {
                "strategy": d.name,
                "forms": {k: str(e) for k, e in form.items()},
                "values": {k: plain(v) for k, v in values.items() if v is not None} if numbers.asked else {},
            }
        )
    pairs = [{"strategy": d.name, "against": c.members[0].name, "figures": [_pair_json(p) for p in ps]} for d, ps in c.pairs()]
    return {"schema": "placeproof.compare/1", "strategies": strategies, "pairs": pairs}


def _pair_json(p: Pair) -> dict[str, Any]:
    return {
        "key": p.key,
        "ratio": str(p.ratio) if p.ratio is not None else None,
        "limit": str(p.limit) if p.limit is not None else None,
        "crossover": _crossover_json(p.crossover),
        "crossover_with_numbers": _crossover_json(p.numeric) if p.numeric is not None else None,
    }


def _crossover_json(c: Crossover) -> dict[str, Any]:
    return {"variable": c.variable, "at": [str(r) for r in c.at], "verdict": c.verdict}
