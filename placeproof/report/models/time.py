"""How long a step takes on a cluster as a document: field ``time`` of ``placeproof.derive-model/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from typing import Any

from placeproof.cost.model.passes import StageTime
from placeproof.cost.model.process import Range, process_memory
from placeproof.cost.model.time import EFFICIENCY, OVERLAP, ModelTime, StepTime
from placeproof.report.document import Cell, Document, Notes, Section, Table, section
from placeproof.report.models.derivation import stages
from placeproof.report.models.fit import FITS, fits_all
from placeproof.report.renderers import as_data
from placeproof.report.units import bytes_text, figure, giga, percent, seconds_text


def document(form: ModelTime, step: StepTime) -> Document:
    """The step in symbols, and what it comes to on the cluster. In data, seconds and bytes are floating-point numbers."""
    cluster = step.price.cluster
    return Document(
        name=f"{step.d.linked.model} under {step.d.linked.name} on {cluster.name}",
        sections=lambda: _sections(form, step),
        data=lambda: as_data(_data(form, step), float),
    )


def _data(form: ModelTime, step: StepTime) -> dict[str, Any]:
    price = step.price
    levels = [level.name for level in price.cluster.levels]
    mfu, hfu = step.utilisation
    return {
        "cluster": price.cluster.name,
        "devices": step.devices,
        "mesh": price.mesh,
        "overlap": step.overlap,
        "efficiency": Fraction(price.values["eta"]),
        "format": step.format,
        "formula": None if form.form is None else str(form.form),
        "seconds": {"step": step.seconds, "passes": step.passes, "once": step.seconds - step.passes},
        "terms": step.terms,
        "bubble": Fraction(step.bubble),
        "mfu": mfu,
        "hfu": hfu,
        "slowest": step.d.costs[step.slowest].stage.name,
        "memory": Fraction(price.cluster.device.capacity),
        "stages": [
            {
                "name": cost.stage.name,
                **dict(zip(("T_F", "T_B", "T_W"), map(Fraction, one.passes), strict=True)),
                "send": Fraction(one.send),
                "once": Fraction(one.tail),
                "idle": step.idle(one),
                "peak": price.amount(cost.peak),
                "fits": memory.fits,
                "process": {
                    "error": memory.error,
                    "reserved": _ends(memory.allocator),
                    "libraries": _ends(memory.libraries),
                    "all": _ends(memory.process),
                },
                "links": {axes: dict(zip(levels, map(Fraction, over), strict=True)) for axes, over in step.by_level(cost).items()},
            }
            for cost, one in zip(step.d.costs, step.stages, strict=True)
            for memory in [process_memory(step, cost)]
        ],
    }


def _ends(amount: Range | None) -> list[Fraction] | None:
    return None if amount is None else [amount.least, amount.most]


def _sections(form: ModelTime, step: StepTime) -> Iterator[Section]:
    cluster = step.price.cluster
    yield section(f"a step on {cluster.name}: {cluster.title}")
    yield _mesh(step)
    yield _memory(step)
    yield _whole(step)
    yield _stages(step)
    yield from _links(step)
    yield _symbols(form)
    yield section("assumptions", Notes(_assumed(step), items=True), detail="full")


def _symbols(form: ModelTime) -> Section:
    rows = [
        ("schedule", "as its order of passes runs: its file has no closed form of that" if form.shape is None else str(form.shape)),
        *([("where", f"{' and '.join(form.conditions)}: elsewhere the order of passes decides")] if form.conditions else []),
        ("T_F", f"{_computing(form)} + what is not hidden of exchanges; T_B and T_W as well"),
        ("T_send", "alpha + beta s + t_k" if form.by_kernels else "alpha + beta s"),
    ]
    title = "seconds of a step: the schedule, and what comes once a step"
    return section(title, Table(rows if form.d.linked.pipeline else rows[:-1]), detail="formulas")


def _computing(form: ModelTime) -> str:
    computing = "forward / (F_peak eta)" + (", in fp8 / F_fp8" if form.d.at.fp8 else "")
    return f"{computing} + bytes / B_mem + t_k of each kernel" if form.by_kernels else computing


def _mesh(step: StepTime) -> Section:
    cluster, mesh = step.price.cluster, step.price.mesh
    rows: list[tuple[str, ...]] = []
    for axis, degree in mesh.items():
        used = " and ".join(cluster.level(mesh, axis)) if degree > 1 else "no link"
        rows.append((axis, f"degree {degree}", used))
    return section(f"{step.devices} devices, from the innermost axis to the outermost", Table(rows or [("one device",)]))


def _stages(step: StepTime) -> Section:
    """A row for each stage; neighbours that take equally long share one."""
    head = ("", "T_F", "T_B + T_W", "activations", "data", "not hidden", "data, once", "not hidden", "update")
    each = zip(step.d.costs, step.stages, strict=True)
    runs = groupby(((cost.stage, _cells(time)) for cost, time in each), key=lambda pair: pair[1])
    rows = [(stages([stage for stage, _ in run]), *cells) for cells, run in runs]
    title = "one micro-batch, with its exchanges of activations and of data parallelism; and what comes once a step"
    return section(title, Table(rows, head, range(1, len(head))))


def _cells(stage_time: StageTime) -> tuple[str, ...]:
    forward, backward, weights = stage_time.passes
    each = (forward, backward + weights, sum(stage_time.inside), sum(stage_time.data), stage_time.exposed[0] + stage_time.exposed[1])
    return tuple(seconds_text(Fraction(n)) for n in (*each, sum(stage_time.once), stage_time.exposed[2], stage_time.update))


def _whole(step: StepTime) -> Section:
    mfu, hfu = step.utilisation
    several = len(step.stages) > 1
    rows = [
        ("passes", seconds_text(step.passes), f"schedule {step.d.schedule}" if several else "one after the other"),
        ("once a step", seconds_text(step.seconds - step.passes), "exchanges that are not hidden, and the update"),
        ("step", seconds_text(step.seconds), f"{step.d.costs[step.slowest].stage.name} is the slowest" if several else ""),
        *([("bubble", percent(step.bubble), "of the passes' time, the slowest stage waits")] if several else []),
        (
            "MFU",
            percent(mfu),
            f"operations of the model, of what all devices could do{'; masked ones count' if step.price.by_kernels else ''}",
        ),
        ("HFU", percent(hfu), "the same, with what is computed again"),
    ]
    return section("time", Table(rows))


def _links(step: StepTime) -> Iterator[Section]:
    first = step.d.costs[0]
    rows: list[tuple[Cell, ...]] = []
    for axes, over in step.by_level(first).items():
        if any(over):
            rows.append((axes, *(bytes_text(n) if n else "0" for n in over)))
    notes = [f"{kind} over {axes}: {', '.join(names)}" for (kind, axes), names in step.algorithms(first).items()]
    if rows:
        head = ("axes", *(level.name for level in step.price.cluster.levels))
        title = f"bytes that a device with {first.stage.name} sends in a step over each level of links"
        yield section(title, Table(rows, head, range(1, len(head))), Notes(list(dict.fromkeys(notes))))


def _memory(step: StepTime) -> Section:
    each = [(process_memory(step, cost), cost.stage.name) for cost in step.d.costs]
    verdict = FITS[fits_all(step)]
    some = [name for memory, name in each if memory.fits is fits_all(step)]
    if fits_all(step) is not True and len(each) > 1:
        verdict += f": {len(some)} of {len(each)} stages, {some[0]} among them"
    fullest, name = max(each, key=lambda pair: pair[0].tensors)
    device, first = step.price.cluster.device, each[0][0]
    rows: list[tuple[Cell, ...]] = [("a device has", bytes_text(fullest.capacity), "as a driver shows it" if device.driver_memory else "")]
    rows += [] if first is fullest else [(f"peak of {each[0][1]}", bytes_text(first.tensors))]
    rows.append(
        (
            f"peak of {name}" if first is fullest else f"largest peak, {name}",
            bytes_text(fullest.tensors),
            f"tensors, within {percent(fullest.error)}",
        )
    )
    if fullest.kept_free is not None:
        rows.append(("for all else", bytes_text(fullest.kept_free), "as it was set"))
    elif fullest.allocator is not None and fullest.libraries is not None:
        rows.append(("reserved", _between(fullest.allocator), fullest.allocator.source))
        rows.append(
            (
                "libraries",
                _between(fullest.libraries),
                f"a context, and {fullest.communicators} communicator{'' if fullest.communicators == 1 else 's'}",
            )
        )
    rows.append(("in all", _between(fullest.process), "" if device.architecture or fullest.kept_free is not None else "tensors alone"))
    return section(f"memory: {verdict}", Table(rows))


def _between(amount: Range) -> str:
    return f"{giga(amount.least)} to {giga(amount.most)} GB"


def _assumed(step: StepTime) -> list[str]:
    return [
        f"overlap {step.overlap}: {OVERLAP[step.overlap]}",
        *_efficiency(step),
        f"peak of {step.format}: {figure(step.price.peak / 10**12)} TFLOP/s; memory: {figure(step.price.bandwidth / 10**9)} GB/s",
        *([f"products with layers' matrices in fp8: {figure(step.price.values['F_fp8'] / 10**12)} TFLOP/s"] if step.d.at.fp8 else []),
        "of algorithms, the fastest is taken" if not step.price.flat else "all algorithms are rings",
        f"{'' if step.price.by_kernels else 'element-wise operations, '}copies to a host and loading data take no time",
        *([f"each of a device's {step.d.chunks} runs of layers takes equally long"] if step.d.chunks > 1 and not step.runs else []),
        *_of_memory(step),
    ]


def _of_memory(step: StepTime) -> list[str]:
    if step.reserve is not None:
        return []
    libraries = process_memory(step, step.d.costs[0]).libraries
    return [] if libraries is None else [f"libraries: {libraries.source}; `--reserve` says it otherwise"]


def _efficiency(step: StepTime) -> Iterator[str]:
    eta, reached = step.price.values["eta"], step.price.cluster.device.reached
    if not step.price.by_kernels or reached is None:
        reason = next((text for value, text in EFFICIENCY.values() if value == eta), "as it was set")
        yield f"efficiency eta = {eta}: {reason}"
        return
    yield f"efficiency eta = {figure(eta)}: what products of matrices reach on this device ({reached.of_products(step.format)})"
    each = seconds_text(step.price.values["t_k"])
    yield f"a kernel without a product of matrices takes {each} beside what it moves, and so does an exchange"
    for level in step.price.cluster.levels:
        if level.reached is not None:
            yield f"exchanges over {level.name} reach {figure(level.reached / 10**9)} GB/s ({level.origin('reached')})"
    yield "attention that is one kernel skips the half that a causal mask leaves out"
    yield "a pass takes no less than launching its kernels one after the other"
