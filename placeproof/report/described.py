"""Models, families, schedules and clusters in words, as ``placeproof explain`` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.clusters import Cluster
    from placeproof.models import Count, Model
    from placeproof.models.family import Family
    from placeproof.schedules import PassKind, Schedule, Timetable
    from placeproof.schedules.order import Pass
    from placeproof.schedules.schedule import Form

#: Devices, micro-batches and, where they are open, chunks of the timetable that explains a schedule.
SHOWN = {"p": 4, "m": 8, "v": 2}


def model(model: Model) -> Iterator[str]:
    """A model with its sizes, and its parameters counted."""
    yield f"model {model.name}: {model.title}"
    yield ""
    yield f"family: {model.family}" + "".join(f", {name} {value}" for name, value in model.options.items())
    yield f"source: {model.source}"
    yield from ([model.note] if model.note else [])
    yield from _sizes(model)
    yield from _stack(model)
    yield from _count(model.parameters())
    yield ""
    yield f"`placeproof derive STRATEGY --model {model.name}` derives what each stage of it holds, computes and sends"


def _sizes(model: Model) -> Iterator[str]:
    from placeproof.core.symbols import SYMBOLS

    yield from ("", "sizes")
    for name, value in sorted(model.sizes.items(), key=lambda size: list(SYMBOLS).index(size[0])):
        follows = "" if name in model.given else f" (follows: {model.defaults[name]})" if name in model.defaults else ""
        yield f"  {name:<5} {value:<8} {SYMBOLS[name].meaning}{follows}".rstrip()


def _stack(model: Model) -> Iterator[str]:
    yield from ("", "blocks, in the order of forward")
    for segment in model.segments:
        times = "" if str(segment.times) == "1" else f", {segment.times} times" + ", in turn with what is before it" * segment.in_turn
        yield f"  {segment.name}{times}: {', '.join(block.name for block in segment.blocks)}"


def _count(count: Count) -> Iterator[str]:
    yield from ("", "parameters by group")
    rows = {**count.groups, "all": count.total, "active": count.active}
    for name, number in rows.items():
        note = "  what one token meets" if name == "active" else ""
        yield f"  {name:<10} {number:,}{note}" if isinstance(number, int) else f"  {name:<10} {number}{note}"


def family(family: Family, open_: Model) -> Iterator[str]:
    """A family: its symbols, options and blocks, and its parameters as formulas. ``open_``: the model of it without sizes."""
    yield f"family {family.name}: {family.title}"
    yield ""
    yield f"source: {family.source}"
    yield from ([family.note] if family.note else [])
    yield f"symbols: {', '.join(family.symbols)}"
    yield from (f"  {name} = {default} unless it is given" for name, default in family.defaults.items())
    for option in family.options.values():
        yield f"option {option.name}: {', '.join(option.choices)}; default {option.default}"
    yield from _stack(open_)
    yield from _count(open_.parameters())
    yield ""
    yield f"`placeproof derive STRATEGY --model {family.name}` derives formulas in these symbols"


def schedule(schedule: Schedule, file: str | None = None) -> Iterator[str]:
    """A schedule: what it needs, its closed forms with what stands behind each, and a step of it. ``file``: that which it is of, if it is
    none of the catalogue's."""
    from placeproof.schedules import checked_at

    chunks = "any number of" if schedule.chunks is None else schedule.chunks
    yield f"schedule {schedule.name}" + (f": {schedule.title}" if schedule.title else "")
    yield ""
    yield from [schedule.summary] if schedule.summary else []
    yield from [f"source: {schedule.source}"] if schedule.source else []
    twice = ", the model twice" if schedule.copies > 1 else ""
    yield f"on each device: {chunks} run{'' if schedule.chunks == 1 else 's'} of layers{twice}"
    yield from (f"needs {need.rule.text}: {need.because} ({need.source})" for need in schedule.needs)
    if file is not None:
        yield f"run at {len(checked_at(schedule))} small sizes: each pass once, no device waits for ever, closed forms as its order gives"
    if schedule.search is not None:
        told = schedule.search.profile
        sizes = f"M_B = {told.kept}, M_W = {told.late}"
        times = f"T_F = {told.forward}, T_B = {told.backward}, T_W = {told.weight}, T_send = {told.send}"
        yield f"order: searched for under {schedule.search.most.text}, with {times}, {sizes}; of a model with its own"
    yield from _forms(schedule) if schedule.closed else []
    yield from _timetable(schedule)
    yield ""
    options = f"schedule={file or schedule.name}" + (", chunks=2" if schedule.chunks is None else "")
    options = options if schedule.search is None else f"4, microbatches=8, {options}"
    yield f'`placeproof derive "pp({options})" --model llama3-8b` derives what it costs'


def _forms(schedule: Schedule) -> Iterator[str]:
    from placeproof.schedules.schedule import QUANTITIES

    yield from ("", "closed forms, of p devices, m micro-batches, v runs of layers on a device; times and sizes are those of one run")
    for form in schedule.closed:
        yield f"  {form.what}: {QUANTITIES[form.what]}"
        yield f"    {form.form.text}"
        yield from ([f"    if {', '.join(c.text for c in form.when)}"] if form.when else [])
        yield from (f"    {line}" for line in _behind(schedule, form))


def _behind(schedule: Schedule, form: Form) -> Iterator[str]:
    """The theorems behind a form: those that are about this very form, and hold of it."""
    from placeproof.theory.forms import name_of
    from placeproof.theory.suite.bound import behind

    listed = {text.partition(": ")[0]: text.partition(": ")[2] for text in (*form.proved, *form.computed)}
    general = {text.partition(": ")[0] for text in form.proved}
    fit = behind(name_of(schedule, form), listed)
    for theorem, holds in fit.items():
        if not holds:
            yield f"it is not what theorem {theorem} says: `placeproof check {theorem}`"
        elif theorem in general:
            yield f"theorem {theorem}, for all p and m" + (f"; {listed[theorem]}" if listed[theorem] else "")
        else:
            yield f"theorem {theorem}, computed" + (f" for {listed[theorem]}" if listed[theorem] else "")
    if not general & {theorem for theorem, holds in fit.items() if holds}:
        yield "not proved for all p and m"


def _timetable(schedule: Schedule) -> Iterator[str]:
    from placeproof.schedules import checked_at, simulate
    from placeproof.schedules.points import admitted

    usual = [(p, m, v) for p, m, v in admitted(schedule, [SHOWN["p"]], [SHOWN["m"]]) if v in (schedule.chunks, SHOWN["v"])]
    p, m, v = (usual or checked_at(schedule)[-1:])[0]
    table = simulate(schedule, p=p, m=m, v=v)
    yield ""
    yield f"a step of p = {table.p}, m = {table.m}" + (f", v = {v}" if v > 1 else "") + ", if every pass takes one unit of time"
    yield from (f"  {line}".rstrip() for line in timetable(table))
    yield "  F: forward, B: gradient of the input, W: gradient of the weights, each with its micro-batch" + _legend(schedule.kinds, v)


def _legend(kinds: frozenset[PassKind], v: int) -> str:
    whole = "; a full backward is B and W in one" if any(k.value == "BW" for k in kinds) else ""
    return whole + ("; small letters: the device's second run of layers" if v > 1 else "")


def timetable(table: Timetable) -> Iterator[str]:
    """A step as text: a row for each device, a column for each unit of time. Every pass takes one unit, and a full backward two."""
    units = int(table.step)
    width = 1 + len(str(table.m - 1))
    for d, device in enumerate(table.runs):
        cells = ["." * width] * units
        for run in device:
            labels = [cell for one in run.slot for cell in _cells(one, table, d)]
            cells[int(run.start) : int(run.end)] = [cell.ljust(width) for cell in labels]
        yield f"device {d}  {' '.join(cells)}"


def _cells(pass_: Pass, table: Timetable, d: int) -> Iterator[str]:
    own = table.schedule.stages(table.p, table.v)[d]
    for kind in pass_.kind.value:
        yield (kind if own.index(pass_.stage) == 0 else kind.lower()) + str(pass_.microbatch)


def cluster(cluster: Cluster) -> Iterator[str]:
    """A cluster with all its figures and where each is from; nothing where it is the same as for the figure above."""
    yield f"cluster {cluster.name}: {cluster.title}"
    yield ""
    yield f"device {cluster.device.name}, {cluster.node} of them share a host"
    for level in cluster.levels:
        joined = "all devices" if level.joins is None else f"{level.joins} devices"
        links = f", {level.ports} links a device" if level.ports > 1 else ""
        yield f"level {level.name} joins {joined}{links}{', in rings' if level.ring else ''}"
    yield ""
    rows, before = list(figures(cluster)), ""
    width = max(len(what) for what, _, _ in rows)
    for what, number, origin in rows:
        yield f"  {what:<{width}}  {number:<14}  {origin if origin != before else ''}".rstrip()
        before = origin
    yield ""
    yield f"`placeproof derive STRATEGY --model MODEL --cluster {cluster.name}` times a step on it"


def figures(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """What is said of a cluster in numbers: what it is about, the number, and where it is from."""
    device = cluster.device
    yield "memory", _unit(device.memory, "B"), device.origin("memory")
    if device.driver_memory is not None:
        yield "memory, as a driver shows it", _unit(device.driver_memory, "B"), device.origin("driver_memory")
    yield "memory bandwidth", _unit(device.memory_bandwidth, "B/s"), device.origin("memory_bandwidth")
    for name, peak in device.peak.items():
        yield f"peak {name}", _unit(peak, "FLOP/s"), device.origin(name)
    if (reached := device.reached) is not None:
        for name, rate in reached.products.items():
            yield f"products {name} reach", _unit(rate, "FLOP/s"), reached.of_products(name)
        yield "memory reaches", _unit(reached.memory_bandwidth, "B/s"), reached.origin("memory_bandwidth")
        yield "a kernel takes", _unit(reached.kernel, "s"), reached.origin("kernel")
    links = [(level.name, level.bandwidth, level.latency, level) for level in cluster.levels]
    host = [("host", cluster.host.bandwidth, cluster.host.latency, cluster.host)] if cluster.host else []
    for name, bandwidth, latency, holder in (*links, *host):
        yield f"{name} bandwidth", _unit(bandwidth, "B/s"), holder.origin("bandwidth")
        yield f"{name} latency", _unit(latency, "s"), holder.origin("latency")
    for level in cluster.levels:
        if level.reached is not None:
            yield f"{level.name} reaches", _unit(level.reached, "B/s"), level.origin("reached")


_PREFIXES = {Fraction(10) ** 12: "T", Fraction(10) ** 9: "G", Fraction(10) ** 6: "M", Fraction(1): "", Fraction(1, 10**3): "m"}


def _unit(number: Fraction, unit: str) -> str:
    """A figure with the prefix that makes it a short number."""
    scale, prefix = next(((s, p) for s, p in _PREFIXES.items() if number >= s), (Fraction(1, 10**6), "u"))
    return f"{float(number / scale):.6g} {prefix}{unit}"
