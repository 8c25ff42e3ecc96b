"""A model under several strategies, side by side, as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from placeproof.core.precision import OPEN
from placeproof.core.symbols import info
from placeproof.cost.model.comparison import Member, ModelComparison
from placeproof.cost.values import Numbers
from placeproof.report.models.text import conventions, sizes_of
from placeproof.report.models.time import seconds_text
from placeproof.report.text import table
from placeproof.report.units import bytes_text, figure, plain

_LABELS = {
    "devices": "devices",
    "sequences": "sequences of a step",
    "parameters": "parameters",
    "model_states": "model states",
    "activations": "activations",
    "peak": "peak",
    "host": "on the host",
    "flops": "FLOPs of a step",
}
_COUNTS = ("devices", "sequences", "parameters", "flops")


def comparison_text(c: ModelComparison, numbers: Numbers) -> str:
    """A table of numbers, if there are any, and the formulas behind them."""
    linked = c.members[0].d.linked
    names = [m.d.linked.name for m in c.members]
    title = [f"{linked.model} under {len(names)} strategies, each against `{names[0]}`", linked.title, *_sizes(c)]
    blocks = [title, _side_by_side(c), *_formulas(c), _missing(c), _where(c), _conventions(c, numbers)]
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _sizes(c: ModelComparison) -> list[str]:
    """The sizes of the model; those of each strategy where they differ, as configurations may say them."""
    each = {m.d.linked.name: sizes_of(m.d) for m in c.members}
    first, *others = each.values()
    if all(lines == first for lines in others):
        return first
    return [f"{name}, {line}" for name, lines in each.items() for line in lines]


def _side_by_side(c: ModelComparison) -> list[str]:
    """A column for each strategy: numbers, with ratios to the first."""
    if not any(m.values for m in c.members):
        return []
    rows = [("", *(m.d.linked.name for m in c.members))]
    rows.append(("fullest stage", *(m.fullest.stage.name for m in c.members)))
    for key in c.keys:
        rows.append((label(key), *(_cell(c, m, key) for m in c.members)))
    rows += _times(c)
    return ["numbers of a device of the fullest stage, and their ratio to the first", *_columns(rows)]


def label(key: str) -> str:
    """A figure's name as it is told."""
    return _LABELS[key] if key in _LABELS else f"sent over {key.partition('.')[2]}"


def _cell(c: ModelComparison, member: Member, key: str) -> str:
    value = member.value(key)
    if value is None:
        return "?"
    number = f"{float(value):.4g}" if key == "flops" else figure(value, 4) if key in _COUNTS else _short(value)
    ratio = c.ratio(member, key)
    return number if ratio is None or member is c.members[0] else f"{number}  x {figure(ratio, 4)}"


def _short(value: Fraction) -> str:
    """Bytes in decimal units alone."""
    return "0" if value == 0 else bytes_text(value).partition(" (")[0]


def _percent(value: Fraction) -> str:
    return f"{float(100 * value):.4g} %"


def _times(c: ModelComparison) -> list[tuple[str, ...]]:
    """Rows that only a cluster gives."""
    steps = [m.step for m in c.members if m.step is not None]
    if len(steps) < len(c.members):
        return []
    first = steps[0].seconds
    seconds = [seconds_text(s.seconds) + (f"  x {figure(s.seconds / first, 4)}" if i and first else "") for i, s in enumerate(steps)]
    base = c.members[0].tokens
    tokens = []
    for i, m in enumerate(c.members):
        own = m.tokens
        ratio = f"  x {figure(own / base, 4)}" if i and own is not None and base else ""
        tokens.append("?" if own is None else f"{float(own):.4g}{ratio}")
    fits = ["fits" if fit(m) else "does not fit" for m in c.members]
    return [
        (f"memory of {steps[0].price.cluster.name}", *fits),
        ("step", *seconds),
        ("tokens a second and device", *tokens),
        ("MFU", *(_percent(s.utilisation[0]) for s in steps)),
        ("HFU", *(_percent(s.utilisation[1]) for s in steps)),
    ]


def fit(member: Member) -> bool | None:
    """Whether every stage's peak is within a device's memory; None without a cluster."""
    step = member.step
    return None if step is None else all(step.price.amount(cost.peak) <= step.price.cluster.device.memory for cost in step.d.costs)


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return [("  " + "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True))).rstrip() for r in rows]


def _formulas(c: ModelComparison) -> list[list[str]]:
    units = {"devices": "", "sequences": "", "parameters": ", elements", "flops": ""}
    blocks = []
    for key in c.keys:
        rows = [(m.d.linked.name, str(m.figures.get(key, 0))) for m in c.members]
        blocks.append(table(f"{label(key)}{units.get(key, ', bytes')}", rows))
    return blocks


def _missing(c: ModelComparison) -> list[str]:
    """Symbols without which a number is not known, where numbers were asked for."""
    found: dict[str, None] = {}
    for m in c.members:
        used = {str(s) for e in m.figures.values() for s in e.free_symbols} if m.values else set()
        found |= dict.fromkeys(sorted(used - set(m.values) - set(m.d.values)))
    return [f"not set: {name} ({info(name).meaning})" for name in found]


def _where(c: ModelComparison) -> list[str]:
    return table("where", [(name, info(name).meaning) for name in _symbols(c)])


def _symbols(c: ModelComparison) -> list[str]:
    return sorted({str(s) for m in c.members for e in m.figures.values() for s in e.free_symbols})


def _conventions(c: ModelComparison, numbers: Numbers) -> list[str]:
    lines = (
        []
        if all(m.values for m in c.members)
        else ["of pipelines, the first stage is compared: which one is the fullest shows with numbers"]
    )
    if c.differs("devices"):
        lines.append("the strategies use different numbers of devices; `--set N=64` decides the degree that each leaves open")
    if c.differs("sequences"):
        lines.append("a step is of different numbers of sequences; tokens a second, and not steps, can be compared")
    if any(m.values for m in c.members):
        whose = "each configuration, where it says them" if numbers.precision == OPEN else numbers.precision
        lines.append(f"bytes of elements are those of {whose}; `--precision` changes them")
    lines += list(dict.fromkeys(line for m in c.members for line in conventions(m.d)))
    step = c.members[0].step
    lines += [] if step is None else [f"times: overlap {step.overlap}, eta = {step.price.values['eta']}, of {step.price.cluster.title}"]
    return ["conventions", *(f"  - {line}" for line in lines)]


def comparison_data(c: ModelComparison) -> dict[str, Any]:
    """The same as data, schema ``placeproof.compare-models/1``; expressions as texts that ``sympy.sympify`` reads."""
    d = c.members[0].d
    return {
        "schema": "placeproof.compare-models/1",
        "model": d.linked.model,
        "recompute": d.recompute,
        "sizes": {n: int(v) for n, v in d.linked.values.items()},
        "strategies": [_member_data(c, m) for m in c.members],
        "symbols": {name: info(name).meaning for name in _symbols(c)},
    }


def _member_data(c: ModelComparison, member: Member) -> dict[str, Any]:
    figures = {}
    for key in c.keys:
        value, ratio = member.value(key), c.ratio(member, key)
        known = bool(member.values)
        figures[key] = {
            "formula": str(member.figures.get(key, 0)),
            "value": plain(value) if known and value is not None else None,
            "ratio": plain(ratio) if known and ratio is not None else None,
        }
    found: dict[str, Any] = {
        "strategy": member.d.linked.name,
        "recompute": member.d.recompute,
        "stage": member.fullest.stage.name,
        "figures": figures,
    }
    step = member.step
    if step is not None:
        mfu, hfu = (float(n) for n in step.utilisation)
        tokens = member.tokens
        found["time"] = {
            "cluster": step.price.cluster.name,
            "overlap": step.overlap,
            "efficiency": float(step.price.values["eta"]),
            "seconds": float(step.seconds),
            "tokens_per_second_and_device": None if tokens is None else float(tokens),
            "mfu": mfu,
            "hfu": hfu,
            "fits": fit(member),
        }
    return found
