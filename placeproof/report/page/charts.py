"""What a page shows of a result besides its sections: tables whose rows are drawn, programs with marked lines, grids of devices.

They are made of a result as ``--json`` prints it, so that no figure can be another one: each is fetched by its place there, a JSON pointer
(RFC 6901), which the page names beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from placeproof.report.document import pointer
from placeproof.report.models.answer import FITS

#: How a figure is written: gigabytes, seconds, a share in percent, a number.
Written: TypeAlias = Literal["giga", "seconds", "percent", "number"]


@dataclass(frozen=True, slots=True)
class Amount:
    """A figure. ``at``: where it stands in the data; ``value``: what stands there, None where nothing is known."""

    at: str
    value: int | float | None
    written: Written = "giga"


Cell: TypeAlias = "str | Amount"
#: What is found to be false, and what is neither shown nor refuted.
Look: TypeAlias = Literal["wrong", "doubt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``bar``: what is drawn, an amount or None for each series, and what a last part fills up to ``whole``. ``limit``: what this bar
    should not go beyond, where each row has its own.
    """

    label: str
    cells: tuple[Cell, ...]
    bar: tuple[Amount | None, ...] = ()
    whole: Amount | None = None
    limit: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A table, with a bar in each row. ``head``: names of its columns, the first that of the rows; ``series``: what is drawn.

    ``limit``: what no bar should go beyond, with its name. ``looks``: of series, of columns of numbers that are not 0, and of words in
    cells, those that tell of something wrong or open.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    series: tuple[str, ...] = ()
    limit: tuple[str, Amount] | None = None
    note: str = ""
    looks: Mapping[str, Look] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said of a line. ``look``: whether it fails there, or may fail; None of what is in order."""

    text: str
    look: Look | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Lines of a program by their numbers. ``marks``: what is said of some."""

    title: str
    lines: Mapping[int, str]
    marks: Mapping[int, Sequence[Mark]]


@dataclass(frozen=True, slots=True)
class Element:
    """What a device has of an element, None where it has none of it. ``expected``: what one device has, where that is something else."""

    text: str | None
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What devices hold of one state at the end: a row for each element, a column for each device."""

    title: str
    devices: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Element, ...]], ...]


Chart: TypeAlias = Bars | Listing | Grid
_Programs: TypeAlias = Mapping[str, Mapping[int, str]]


#: The time of a step by itself has no schema: it is a part of one.
_STEP = "time"


def charts(data: Any, lines: Mapping[str, Mapping[int, str]]) -> list[Chart]:
    """What is shown of a result, by its schema; nothing of what has none. ``lines``: of its programs, by their subjects."""
    found = _OF.get(data.get("schema", _STEP if "terms" in data else "")) if isinstance(data, Mapping) else None
    return [] if found is None else list(found(data, lines))


class _Reader:
    """Fetches amounts of data, or of what stands ``below`` a place in it."""

    def __init__(self, data: Mapping[str, Any], below: tuple[str, ...] = ()) -> None:
        self.data, self.below = data, below

    def __call__(self, *path: str | int, written: Written = "giga") -> Amount | None:
        """The number at a place; None where there is no such place, or nothing is known of it."""
        value: Any = self.data
        for step in path:
            if isinstance(value, Mapping) and step not in value:
                return None
            value = value[step]
        return None if value is None else Amount(pointer(*self.below, *path), value, written)


def _cells(amounts: Iterable[Amount | None]) -> tuple[Cell, ...]:
    return tuple("?" if amount is None else amount for amount in amounts)


# Costs of a strategy.

_MEMORY = {"parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer", "activations": "activations"}
_BESIDE = {"working": "computed again", "beside": "beside", "transient": "gathered", "updating": "in the update"}
_HOST = {"host": "on the host", "host_asked": "host, asked for"}


def _of_strategy(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    at = _Reader(data)
    names = {**_MEMORY, "transient": "gathered"}
    amounts = {name: at("values", "memory", key) for key, name in names.items()}
    known = {name: amount for name, amount in amounts.items() if amount is not None}
    if known:
        peak = at("values", "memory", "peak")
        row = Row(label="a device", cells=_cells([*known.values(), peak]), bar=tuple(known.values()))
        yield Bars(title="memory of a device, GB", head=("", *known, "peak"), rows=(row,), series=tuple(known))
    sent = {axes: at("values", "traffic", "by_axis", axes) for axes in data["traffic"]["by_axis"]}
    if rows := tuple(Row(label=f"over {axes}", cells=(a,), bar=(a,)) for axes, a in sent.items() if a is not None):
        yield Bars(title="what a device sends in a step, GB", head=("", "sent"), rows=rows, series=("sent",))
    yield _program_of_costs(data, lines)


def _program_of_costs(data: Mapping[str, Any], lines: _Programs) -> Listing:
    marks: dict[int, list[Mark]] = {}
    for event in (*data["traffic"]["events"], *data["traffic"]["host_events"]):
        text = (
            f"sends {event['bytes']}" + (f" x {event['count']}" if event["count"] != "1" else "") + f" bytes over {'*'.join(event['axes'])}"
        )
        if event.get("line") is not None:
            marks.setdefault(event["line"], []).append(Mark(text))
    for moment in data["peak_at"]:
        if moment["line"] is not None:
            marks.setdefault(moment["line"], []).append(Mark("the peak of memory lies here"))
    return Listing(title="the program that every device runs", lines=lines.get(data["strategy"], {}), marks=marks)


def _of_model(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    at = _Reader(data)
    yield from _memory_by_stage(data, at)
    yield from _sent_by_stage(data, at)
    if "time" in data:
        yield from _of_time(data["time"], _Reader(data["time"], ("time",)))


def _memory_by_stage(data: Mapping[str, Any], at: _Reader) -> Iterator[Chart]:
    stages = range(len(data["stages"]))
    if any(at("stages", i, "memory", "peak", "value") is None for i in stages):
        return

    def amount(i: int, key: str) -> Amount | None:
        return at("stages", i, "memory", key, "value") if key in data["stages"][i]["memory"] else None

    def used(names: Mapping[str, str]) -> dict[str, str]:
        return {k: n for k, n in names.items() if any((a := amount(i, k)) is not None and a.value for i in stages)}

    beside, host = used(_BESIDE | ({"working": "in a pass"} if "implementation" in data else {})), used(_HOST)
    keys, rows = [*_MEMORY, *beside, "peak", *host], []
    for i in stages:
        bar = tuple(amount(i, key) for key in ("parameters", "gradients", "optimizer"))
        rows.append(Row(label=data["stages"][i]["name"], cells=_cells(amount(i, k) for k in keys), bar=bar, whole=amount(i, "peak")))
    capacity = at("time", "memory") if "time" in data else None
    yield Bars(
        title="memory of a device by stage, GB",
        head=("", *_MEMORY.values(), *beside.values(), "peak", *host.values()),
        rows=tuple(rows),
        series=("parameters", "gradients", "optimizer", "activations, and what is there at the peak alone"),
        limit=None if capacity is None else ("what a device has", capacity),
    )


def _sent_by_stage(data: Mapping[str, Any], at: _Reader) -> Iterator[Chart]:
    axes = list(dict.fromkeys(name for stage in data["stages"] for name in stage["traffic"]))
    rows = []
    for i, stage in enumerate(data["stages"]):
        sent = tuple(at("stages", i, "traffic", name, "value") if name in stage["traffic"] else None for name in axes)
        rows.append(
            Row(
                label=stage["name"],
                cells=tuple("" if n not in stage["traffic"] else a or "?" for n, a in zip(axes, sent, strict=True)),
                bar=sent,
            )
        )
    if axes and any(amount is not None for row in rows for amount in row.bar):
        heads = tuple(f"over {name}" for name in axes)
        yield Bars(title="what a device sends in a step, by axes, GB", head=("", *heads), rows=tuple(rows), series=heads)


def _of_time(data: Mapping[str, Any], at: _Reader) -> Iterator[Chart]:
    yield from _links(data, at)
    yield from _seconds(data, at)


def _of_step(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    yield from _of_time(data, _Reader(data))


def _links(data: Mapping[str, Any], at: _Reader) -> Iterator[Chart]:
    stages = data["stages"]
    levels = list(dict.fromkeys(level for stage in stages for over in stage["links"].values() for level in over))
    rows = []
    for i, stage in enumerate(stages):
        for axes, over in stage["links"].items():
            sent = tuple(at("stages", i, "links", axes, level) for level in levels)
            if any(over.values()):
                rows.append(Row(label=f"{stage['name']}, {axes}", cells=_cells(sent), bar=sent))
    if rows:
        title = "what a device sends in a step over each level of links, GB"
        yield Bars(title=title, head=("", *levels), rows=tuple(rows), series=tuple(levels))


def _seconds(data: Mapping[str, Any], at: _Reader) -> Iterator[Chart]:
    terms = data["terms"]
    amounts = tuple(at("terms", name, written="seconds") for name in terms)
    step = at("seconds", "step", written="seconds")
    row = Row(label="a step", cells=_cells([*amounts, step]), bar=amounts)
    yield Bars(title="what a step takes", head=("", *terms, "in all"), rows=(row,), series=tuple(terms))
    stages = data["stages"]
    rows = [
        Row(
            label=stage["name"],
            cells=_cells(
                [
                    *(at("stages", i, key, written="seconds") for key in ("T_F", "T_B", "T_W", "send", "once")),
                    idle := at("stages", i, "idle", written="percent"),
                ]
            ),
            bar=(idle,),
        )
        for i, stage in enumerate(stages)
    ]
    head = ("", "T_F", "T_B", "T_W", "sending", "once a step", "idle")
    yield Bars(
        title="stages: passes of a micro-batch, and the share of time in which a device waits",
        head=head,
        rows=tuple(rows),
        series=("idle",),
    )


# Comparisons and plans.


def _of_comparison(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    at = _Reader(data)
    for key, title in (
        ("memory.model_states", "model states of a device, GB"),
        ("memory.peak", "peak of a device, GB"),
        ("traffic.sent_per_device", "what a device sends in a step, GB"),
    ):
        values = [at("strategies", i, "values", key) for i in range(len(data["strategies"]))]
        rows = tuple(
            Row(label=s["strategy"], cells=(v,), bar=(v,)) for s, v in zip(data["strategies"], values, strict=True) if v is not None
        )
        if rows:
            yield Bars(title=title, head=("strategy", title.rpartition(",")[0]), rows=rows, series=("",))


def _of_models(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    at, each = _Reader(data), data["strategies"]

    def figure(i: int, key: str) -> Amount | None:
        return at("strategies", i, "figures", key, "value") if key in each[i]["figures"] else None

    rows = []
    for i, strategy in enumerate(each):
        peak = figure(i, "peak")
        states = figure(i, "model_states")
        if peak is not None:
            rows.append(Row(label=strategy["strategy"], cells=_cells([states, figure(i, "activations"), peak]), bar=(states,), whole=peak))
    if rows:
        head = ("strategy", "model states", "activations", "peak")
        series = ("model states", "activations, and what is there at the peak alone")
        capacity = next((at("strategies", i, "time", "memory") for i, strategy in enumerate(each) if "time" in strategy), None)
        limit = None if capacity is None else ("what a device has", capacity)
        yield Bars(title="memory of a device of the fullest stage, GB", head=head, rows=tuple(rows), series=series, limit=limit)
    timed = [i for i, strategy in enumerate(each) if "time" in strategy]
    rows = []
    for i in timed:
        seconds = at("strategies", i, "time", "seconds", written="seconds")
        tokens = at("strategies", i, "time", "tokens_per_second_and_device", written="number")
        mfu = at("strategies", i, "time", "mfu", written="percent")
        cells = (*_cells([tokens, mfu, seconds]), FITS[each[i]["time"]["fits"]])
        rows.append(Row(label=each[i]["strategy"], cells=cells, bar=(tokens,)))
    if rows:
        heads = ("strategy", "tokens a second and device", "MFU", "step", "memory")
        yield Bars(title="speed", head=heads, rows=tuple(rows), series=("tokens a second and device",))


def _of_plan(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    yield from _times(data)
    yield from _memory_of_plans(data)


def _memory_of_plans(data: Mapping[str, Any]) -> Iterator[Chart]:
    """Tensors of the fullest device beside the room for them, which is another one where a device has other groups to exchange with."""
    at, rows = _Reader(data), []
    for i, plan in enumerate(data["plans"]):
        tensors, room = at("plans", i, "peak"), at("plans", i, "room")
        cells = (*_cells([tensors, room]), FITS[plan["fits"]])
        rows.append(Row(label=f"{i + 1}. {plan['strategy']}", cells=cells, bar=(tensors,), limit=room))
    if rows:
        yield Bars(
            title="memory of a device of the fullest stage, GB",
            head=("plan", "tensors", "room", ""),
            rows=tuple(rows),
            series=("tensors",),
            note="a line: the room for tensors of that plan, beside libraries and what is reserved",
        )


def _times(data: Mapping[str, Any]) -> Iterator[Chart]:
    at, rows = _Reader(data), []
    for i, plan in enumerate(data["plans"]):
        seconds, most = at("plans", i, "seconds", written="seconds"), at("plans", i, "most")
        bar = tuple(at("plans", i, "time", name, written="seconds") for name in plan["time"])
        mfu = at("plans", i, "mfu", written="percent")
        sizes = f"b = {plan['b']}, m = {plan['m']}, recompute {plan['recompute']}"
        rows.append(Row(label=f"{i + 1}. {plan['strategy']}", cells=(*_cells([seconds, mfu, most]), sizes, str(plan["verdict"])), bar=bar))
    if rows:
        head = ("plan", "step", "MFU", "tensors, GB", "run with", "verdict")
        yield Bars(title="the best plans, and what their steps take", head=head, rows=tuple(rows), series=tuple(data["plans"][0]["time"]))


# Proofs.

_VERDICTS: Mapping[str, Look] = {"refuted": "wrong", "unknown": "doubt"}


def _of_proof(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    yield from _proof(data, lines)


def _of_model_proof(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    judged = [*data["blocks"].values(), data["step"]]
    rows = tuple(
        Row(
            label=one["subject"],
            cells=(one["verdict"], str(sum(o["verdict"] == "proved" for o in one["obligations"])), str(len(one["obligations"]))),
        )
        for one in judged
    )
    yield Bars(title="blocks, and the step", head=("", "verdict", "proved", "obligations"), rows=rows, looks=_VERDICTS)
    for one in judged:
        yield from _proof(one, lines, f"{one['subject']}: ") if one["counterexample"] else ()


def _proof(data: Mapping[str, Any], lines: _Programs, of: str = "") -> Iterator[Chart]:
    refuting = data["counterexample"]
    if not refuting:
        return
    run = refuting["run"]
    marks: dict[int, list[Mark]] = {}
    for one in data["obligations"]:
        if one["line"] is not None:
            word = "suspected" if one["suspected"] else one["verdict"]
            why = "".join(f"; {cause['words']}" for cause in one["causes"])
            marks.setdefault(one["line"], []).append(Mark(f"{word}: {one['name']}{why}", _VERDICTS.get(one["verdict"])))
    for left in refuting["lines"]:
        marks.setdefault(left["line"], []).append(Mark(f"{left['buffer']} holds {left['holds']}", "wrong"))
    if refuting["line"] is not None and not any(m.look == "wrong" for m in marks.get(refuting["line"], ())):
        marks.setdefault(refuting["line"], []).append(Mark("it fails here", "wrong"))
    program = lines.get(data["subject"], {})
    yield Listing(title=f"{of}the program, with what has to hold of its lines", lines=program, marks=marks)
    if run["ends"]:
        yield from _grids(run, of)


def _grids(run: Mapping[str, Any], of: str) -> Iterator[Grid]:
    """What each device has at the end, beside what one device has."""
    devices = tuple(", ".join(f"{axis} = {n}" for axis, n in end["device"].items()) or "one device" for end in run["ends"])
    for name, expected in _states(run["reference"]).items():
        each = [_states(end).get(name, {}) for end in run["ends"]]
        rows = []
        for element, wanted in expected.items():
            row = tuple(Element(h, wanted if h is not None and h != wanted else None) for h in (held.get(element) for held in each))
            rows.append((element, row))
        if any(element.expected is not None for _, row in rows for element in row):
            yield Grid(title=f"{of}{name} at the end, beside what one device has", devices=devices, rows=tuple(rows))


def _states(tables: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """The tables of a run by name, each by element; of the optimizer's several numbers, each is a table."""
    found: dict[str, dict[str, str | None]] = {}
    returned = tables.get("returns")
    for number, values in enumerate(returned or (), start=1):
        found[f"result {number}"] = dict(values)
    for name in ("parameters", "gradients", "optimizer"):
        for element, value in tables.get(name, {}).items():
            for part, one in zip(
                ("", ", momentum") if name == "optimizer" else ("",), value if isinstance(value, list) else [value], strict=False
            ):
                found.setdefault(name + part, {})[element] = one
    return found


# Theorems.

_STANDINGS = {
    "proved": "proved",
    "refuted_as_expected": "refuted as expected",
    "open": "open",
    "unexpected": "unexpected",
    "undecided": "undecided",
}
_FALLEN: Mapping[str, Look] = {"unexpected": "wrong", "undecided": "doubt"}


def _of_check(data: Mapping[str, Any], lines: _Programs) -> Iterator[Chart]:
    at = _Reader(data)
    counts = tuple(at(key, written="number") for key in _STANDINGS)
    whole = Row(label="theorems", cells=_cells(counts), bar=counts)
    names = tuple(_STANDINGS.values())
    yield Bars(title="how theorems stand", head=("", *names), rows=(whole,), series=names, looks=_FALLEN)
    rows = tuple(Row(label=one["id"], cells=(one["says"], one["expected"], one["verdict"], one["standing"])) for one in data["results"])
    yield Bars(title="theorems", head=("theorem", "says", "expected", "found", "stands"), rows=rows, looks=_FALLEN)


_OF: Mapping[str, Callable[[Mapping[str, Any], _Programs], Iterator[Chart]]] = {
    "placeproof.derive/1": _of_strategy,
    "placeproof.derive-model/1": _of_model,
    _STEP: _of_step,
    "placeproof.compare/1": _of_comparison,
    "placeproof.compare-models/1": _of_models,
    "placeproof.plan/1": _of_plan,
    "placeproof.prove/1": _of_proof,
    "placeproof.prove-model/1": _of_model_proof,
    "placeproof.check/1": _of_check,
}
