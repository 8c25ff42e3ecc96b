"""A model under several strategies, side by side, as a document: the schema ``placeproof.compare-models/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from placeproof.core.precision import OPEN
from placeproof.core.symbols import info
from placeproof.cost.model.comparison import Member, ModelComparison
from placeproof.cost.values import Numbers
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.models.derivation import conventions, sizes_of
from placeproof.report.models.time import FITS, fits_all
from placeproof.report.units import bytes_text, figure, percent, seconds_text

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
_UNITS = {"devices": "", "sequences": "", "parameters": ", elements", "flops": ""}


def document(c: ModelComparison, numbers: Numbers) -> Document:
    """A table of numbers, if there are any, and the formulas behind them."""
    return Document(name=c.members[0].d.linked.model, sections=lambda: _sections(c, numbers), data=lambda: _data(c))


def _sections(c: ModelComparison, numbers: Numbers) -> Iterator[Section]:
    linked = c.members[0].d.linked
    title = f"{linked.model} under {len(c.members)} strategies, each against `{linked.name}`"
    yield section(title, Lines([linked.title, *_sizes(c)]))
    yield from _side_by_side(c)
    for key in c.keys:
        rows = [(m.d.linked.name, str(m.figures.get(key, 0))) for m in c.members]
        yield section(f"{label(key)}{_UNITS.get(key, ', bytes')}", Table(rows))
    missing = _missing(c)
    yield from [section("", Lines(missing))] if missing else []
    yield section("where", Table(list(_symbols(c).items())))
    yield section("conventions", Notes(list(_conventions(c, numbers)), items=True))


def _sizes(c: ModelComparison) -> list[str]:
    """The sizes of the model; those of each strategy where they differ, as configurations may say them."""
    each = {m.d.linked.name: sizes_of(m.d) for m in c.members}
    first, *others = each.values()
    if all(lines == first for lines in others):
        return first
    return [f"{name}, {line}" for name, lines in each.items() for line in lines]


def _side_by_side(c: ModelComparison) -> Iterator[Section]:
    """A column for each strategy: numbers, with ratios to the first."""
    if not any(m.values for m in c.members):
        return
    rows = [("fullest stage", *(m.fullest.stage.name for m in c.members))]
    rows += [(label(key), *(_cell(c, m, key) for m in c.members)) for key in c.keys]
    table = Table([*rows, *_times(c)], ("", *(m.d.linked.name for m in c.members)))
    yield section("numbers of a device of the fullest stage, and their ratio to the first", table)


def label(key: str) -> str:
    """What a figure is called."""
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


def _times(c: ModelComparison) -> list[tuple[str, ...]]:
    """Rows that only a cluster gives."""
    steps = [m.step for m in c.members if m.step is not None]
    if len(steps) < len(c.members):
        return []

    def against(i: int, value: Fraction, first: Fraction | None) -> str:
        return f"  x {figure(value / first, 4)}" if i and first else ""

    base = c.members[0].tokens
    tokens = [("?" if (n := m.tokens) is None else f"{float(n):.4g}{against(i, n, base)}") for i, m in enumerate(c.members)]
    return [
        (f"memory of {steps[0].price.cluster.name}", *(FITS[fits_all(step)] for step in steps)),
        ("step", *(seconds_text(s.seconds) + against(i, s.seconds, steps[0].seconds) for i, s in enumerate(steps))),
        ("tokens a second and device", *tokens),
        ("MFU", *(percent(s.utilisation[0]) for s in steps)),
        ("HFU", *(percent(s.utilisation[1]) for s in steps)),
    ]


def _missing(c: ModelComparison) -> list[str]:
    """Symbols without which a number is not known, where numbers were asked for."""
    names: dict[str, None] = {}
    for m in c.members:
        used = {str(s) for e in m.figures.values() for s in e.free_symbols} if m.values else set()
        names |= dict.fromkeys(sorted(used - set(m.values) - set(m.d.values)))
    return [f"not set: {name} ({info(name).meaning})" for name in names]


def _symbols(c: ModelComparison) -> dict[str, str]:
    names = sorted({str(s) for m in c.members for e in m.figures.values() for s in e.free_symbols})
    return {name: info(name).meaning for name in names}


def _conventions(c: ModelComparison, numbers: Numbers) -> Iterator[str]:
    if not all(m.values for m in c.members):
        yield "of pipelines, the first stage is compared: which one is the fullest shows with numbers"
    if c.differs("devices"):
        yield "the strategies use different numbers of devices; `--set N=64` decides the degree that each leaves open"
    if c.differs("sequences"):
        yield "a step is of different numbers of sequences; tokens a second, and not steps, can be compared"
    if any(m.values for m in c.members):
        whose = "each configuration, where it says them" if numbers.precision == OPEN else numbers.precision
        yield f"bytes of elements are those of {whose}; `--precision` changes them"
    yield from dict.fromkeys(line for m in c.members for line in conventions(m.d))
    if (step := c.members[0].step) is not None:
        yield f"times: overlap {step.overlap}, eta = {step.price.values['eta']}, of {step.price.cluster.title}"


def _data(c: ModelComparison) -> dict[str, Any]:
    d = c.members[0].d
    return {
        "schema": "placeproof.compare-models/1",
        "model": d.linked.model,
        "recompute": d.recompute,
        "sizes": {n: int(v) for n, v in d.linked.values.items()},
        "strategies": [_member(c, m) for m in c.members],
        "symbols": _symbols(c),
    }


def _member(c: ModelComparison, member: Member) -> dict[str, Any]:
    figures = {}
    for key in c.keys:
        value, ratio = (member.value(key), c.ratio(member, key)) if member.values else (None, None)
        figures[key] = {"formula": str(member.figures.get(key, 0)), "value": value, "ratio": ratio}
    strategy = {"strategy": member.d.linked.name, "recompute": member.d.recompute, "stage": member.fullest.stage.name, "figures": figures}
    return strategy if member.step is None else strategy | {"time": _time(member)}


def _time(member: Member) -> dict[str, Any]:
    step = member.step
    assert step is not None
    mfu, hfu = (float(n) for n in step.utilisation)
    return {
        "cluster": step.price.cluster.name,
        "overlap": step.overlap,
        "efficiency": float(step.price.values["eta"]),
        "seconds": float(step.seconds),
        "tokens_per_second_and_device": None if member.tokens is None else float(member.tokens),
        "mfu": mfu,
        "hfu": hfu,
        "fits": fits_all(step),
    }
