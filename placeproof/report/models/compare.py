"""A model under several strategies, side by side, as a document: the schema ``placeproof.compare-models/1``, and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

from placeproof.core.precision import OPEN
from placeproof.core.symbols import info
from placeproof.cost.model.comparison import Member, ModelComparison
from placeproof.cost.model.time import StepTime
from placeproof.cost.values import Numbers
from placeproof.report.document import Detail, Document, Lines, Notes, Section, Table, section
from placeproof.report.models.answer import FITS, accumulating, assumed, first_two, held
from placeproof.report.models.derivation import conventions, sizes_of
from placeproof.report.models.fit import fits_all, fullest, in_all
from placeproof.report.units import figure, giga, percent, seconds_text, whole

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

#: What stands in columns, where that is shorter; counts that are told once where all have them alike; and what has its own table.
_HEADS = {"devices": "devices", "sequences": "sequences", "model_states": "states", "activations": "activations", "flops": "FLOPs"}
_WHOLE = ("devices", "sequences")
_APART = ("parameters", "flops")
#: Whether a strategy fits, in a column, and its place among others.
_FITS = {True: ("yes", 0), None: ("?", 1), False: ("no", 2)}

_Column: TypeAlias = "tuple[str, Callable[[Member], str]]"


def document(c: ModelComparison, numbers: Numbers) -> Document:
    """A table of numbers, if there are any, and the formulas behind them."""
    return Document(name=c.members[0].d.linked.model, sections=lambda: _sections(c, numbers), data=lambda: _data(c, numbers))


def _sections(c: ModelComparison, numbers: Numbers) -> Iterator[Section]:
    linked = c.members[0].d.linked
    answered = [*_answer(c, numbers)]
    yield from answered
    title = "" if answered else f"{linked.model} under {len(c.members)} strategies, each against `{linked.name}`"
    yield section(title, Lines([linked.title, *_sizes(c)]))
    yield from _rows(c) if any(m.values for m in c.members) else ()
    missing = _missing(c)
    yield from [section("", Lines(missing))] if missing else []
    detail: Detail = "formulas" if answered else "usual"
    for key in c.keys:
        rows = [(m.d.linked.name, str(m.figures.get(key, 0))) for m in c.members]
        yield section(f"{label(key)}{_UNITS.get(key, ', bytes')}", Table(rows), detail=detail)
    yield section("where", Table(list(_symbols(c).items())), detail=detail)
    yield section("conventions", Notes(list(_conventions(c, numbers)), items=True), detail="full")


def _sizes(c: ModelComparison) -> list[str]:
    """The sizes of the model; those of each strategy where they differ, as configurations may say them."""
    each = {m.d.linked.name: sizes_of(m.d) for m in c.members}
    first, *others = each.values()
    if all(lines == first for lines in others):
        return first
    return [f"{name}, {line}" for name, lines in each.items() for line in lines]


def _fits(member: Member) -> bool | None:
    return None if member.step is None else fits_all(member.step)


def ranked(c: ModelComparison) -> list[Member]:
    """Those that fit before those that do not, the fastest first; without a cluster, those that take the least memory first."""
    if any(m.tokens is None for m in c.members):
        peaks = {id(m): m.value("peak") for m in c.members}
        return sorted(c.members, key=lambda m: (peaks[id(m)] is None, peaks[id(m)] or 0))
    return sorted(c.members, key=lambda m: (_FITS[_fits(m)][1], -(m.tokens or 0)))


def _answer(c: ModelComparison, numbers: Numbers) -> Iterator[Section]:
    """Which is the best; nothing while the peak of one of them is not known."""
    if any(not m.values or m.value("peak") is None for m in c.members):
        return
    order = ranked(c)
    first, linked = order[0], order[0].d.linked
    subject = f"{linked.model} under {len(order)} strategies"
    if first.step is None or first.tokens is None:
        lines = [f"{giga(first.value('peak'))} GB on a device of its fullest stage", *assumed(numbers)]
        yield section(f"{subject}: `{linked.name}` takes the least memory", Lines(lines), detail="answer")
        return
    faster = [m for m in order[1:] if (m.tokens or 0) > first.tokens and _fits(m) is None]
    words = {True: f"is the fastest that {'surely ' if faster else ''}fits", None: "is the fastest that may fit", False: "is the fastest"}
    none = "" if _fits(first) is not False else "none fits, "
    title = f"{subject} on {first.step.price.cluster.name}: {none}`{linked.name}` {words[_fits(first)]}"
    lines = [f"{whole(first.tokens)} tokens a second and device, MFU {percent(first.step.utilisation[0])}, {_tensors(first)}"]
    if faster:
        lines.append(f"faster, and may not fit (`?`): {first_two([f'`{m.d.linked.name}`, {_times(m, first)}' for m in faster])}")
    elif order[1].tokens and _fits(order[1]) is not False:
        lines.append(f"next: `{order[1].d.linked.name}`, {_times(order[1], first)}, {FITS[_fits(order[1])]}")
    if cannot := [f"`{m.d.linked.name}`, {_tensors(m)}" for m in order[1:] if _fits(m) is False]:
        lines.append(f"does not fit{' either' if none else ''}: {first_two(cannot)}")
    yield section(title, Lines([*lines, *accumulating(order), *assumed(numbers)]), detail="answer")


def _times(member: Member, first: Member) -> str:
    """Its tokens against those of the first."""
    assert member.tokens is not None
    assert first.tokens is not None
    return f"{float(member.tokens / first.tokens):.3g} times as many"


def _tensors(member: Member) -> str:
    assert member.step is not None
    return f"tensors {giga(member.value('peak'))} of {giga(member.step.price.cluster.device.capacity)} GB"


def _rows(c: ModelComparison) -> Iterator[Section]:
    """A row for each strategy, the best one first: its numbers, what it sends, and its ratios to the one that was named first."""
    order = ranked(c)
    timed = all(m.step is not None for m in order)
    columns: list[_Column] = [("step", lambda m: seconds_text(_step(m).seconds)), ("tok/s", _tokens), ("MFU %", _utilisation)]
    columns = [*(columns if timed else []), *((name, partial(_size, name)) for name in ("b", "m") if _unlike(c, name))]
    shown = [key for key in c.keys if key not in _APART and (key not in _WHOLE or c.differs(key)) and not key.startswith("traffic.")]
    columns += [(_HEADS.get(key, label(key)), partial(_number, key)) for key in shown]
    columns += [("fits", lambda m: _FITS[_fits(m)][0])] if timed else []
    notes = [*_alike(c), "states, activations, peak: GB of tensors on a device of the fullest stage"]
    notes += ["tok/s: tokens a second and device; fits: `?` where the model cannot tell"] if timed else []
    yield section("strategies, the best first", _table(order, columns), Notes(notes))
    yield section("", _fullest(order))
    keys = [key for key in c.keys if key.startswith("traffic.")]
    columns = [*((key.partition(".")[2], partial(_number, key)) for key in keys), ("FLOPs", partial(_number, "flops"))]
    yield section("GB that a device sends in a step, by axes; and floating-point operations", _table(order, columns))
    keys = [key for key in c.keys if key not in ("devices", "sequences", "parameters")]
    columns = [(_HEADS.get(key, key.partition(".")[2] or label(key)), lambda m, key=key: _ratio(c.ratio(m, key))) for key in keys]  # type: ignore[misc]
    columns += [("step", lambda m: _against(m, c.members[0])[0]), ("tok/s", lambda m: _against(m, c.members[0])[1])] if timed else []
    yield section(f"ratios to `{c.members[0].d.linked.name}`", _table(order, columns))


def _fullest(order: Sequence[Member]) -> Table:
    """Each strategy with its fullest stage, where one has several, and why it fits or does not, where a cluster says what there is."""
    staged, timed = any(len(m.d.costs) > 1 for m in order), all(m.step is not None for m in order)
    head = (
        "",
        "strategy",
        *(["fullest stage"] if staged else []),
        *(["memory of a device there" if staged else "memory of a device"] if timed else []),
    )
    rows = [
        (str(n), m.d.linked.name, *([m.fullest.stage.name] if staged else []), *([_why(m)] if timed else []))
        for n, m in enumerate(order, 1)
    ]
    return Table(rows, head, (0,))


def _why(member: Member) -> str:
    """Whether it fits, and what it takes; where it does not surely fit, what of that is the most."""
    memory, word = fullest(_step(member)), FITS[_fits(member)]
    text, most = max(held(member).items(), key=lambda one: one[1])
    what = "" if _fits(member) else f", {text} {giga(most)}"
    return f"{word}: {in_all(memory)} GB of {giga(memory.capacity)}{what}"


def _table(order: Sequence[Member], columns: Sequence[_Column]) -> Table:
    """A row for each strategy, with its place; columns of numbers, but for whether it fits."""
    head = ("", *(name for name, _ in columns))
    rows = [(str(n), *(cell(m) for _, cell in columns)) for n, m in enumerate(order, 1)]
    return Table(rows, head, [i for i, name in enumerate(head) if name != "fits"])


def _unlike(c: ModelComparison, name: str) -> bool:
    """Whether strategies have other values of a symbol."""
    return len({_size(name, m) for m in c.members}) > 1


def _size(name: str, member: Member) -> str:
    value = member.d.value(member.d.batches, member.values) if name == "m" else member.values.get(name)
    return "?" if value is None else str(value)


def _tokens(member: Member) -> str:
    return "?" if member.tokens is None else whole(member.tokens)


def _utilisation(member: Member) -> str:
    return f"{float(100 * _step(member).utilisation[0]):.3g}"


def _step(member: Member) -> StepTime:
    assert member.step is not None
    return member.step


def _number(key: str, member: Member) -> str:
    value = member.value(key)
    if value is None:
        return "?"
    return f"{float(value):.4g}" if key == "flops" else figure(value, 4) if key in _COUNTS else giga(value)


def _ratio(value: Fraction | None) -> str:
    return "" if value is None else figure(value, 4)


def _against(member: Member, first: Member) -> tuple[str, str]:
    """How its step and its tokens stand to those of the first."""
    own, others = member.tokens, first.tokens
    return _ratio(_step(member).seconds / _step(first).seconds), _ratio(own / others if own and others else None)


def _alike(c: ModelComparison) -> list[str]:
    """Counts that all strategies have alike."""
    texts = {"devices": "devices", "sequences": "sequences in a step"}
    same = [
        f"{figure(value)} {text}" for key, text in texts.items() if not c.differs(key) and (value := c.members[0].value(key)) is not None
    ]
    same += [f"{name} = {_size(name, c.members[0])}" for name in ("b", "m") if not _unlike(c, name)]
    return [f"each: {', '.join(same)}"]


def label(key: str) -> str:
    """What a figure is called."""
    return _LABELS[key] if key in _LABELS else f"sent over {key.partition('.')[2]}"


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


def _data(c: ModelComparison, numbers: Numbers) -> dict[str, Any]:
    d = c.members[0].d
    return {
        "schema": "placeproof.compare-models/1",
        "model": d.linked.model,
        "recompute": d.recompute,
        "sizes": {n: int(v) for n, v in d.linked.values.items()},
        "strategies": [_member(c, m) for m in c.members],
        "symbols": _symbols(c),
        "assumed": [*numbers.assumed],
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
        "memory": step.price.cluster.device.capacity,
    }
