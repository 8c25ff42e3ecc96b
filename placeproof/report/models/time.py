"""How long a step takes on a cluster, as text and as data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from placeproof.cost.model.time import EFFICIENCY, OVERLAP, ModelTime, StageTime, StepTime
from placeproof.report.text import table
from placeproof.report.units import bytes_text, figure

_UNITS = (("s", 1), ("ms", 10**3), ("us", 10**6))


def seconds_text(value: Fraction) -> str:
    """``1.25 s``, ``30.1 ms``, ``14 us``."""
    unit, scale = next(((u, n) for u, n in _UNITS if value * n >= 1), _UNITS[-1])
    return f"{float(value * scale):.4g} {unit}" if value else "0"


def time_text(form: ModelTime, step: StepTime) -> str:
    """The step in symbols, and what it comes to on the cluster."""
    cluster = step.price.cluster
    title = [f"a step on {cluster.name}: {cluster.title}"]
    blocks = [title, _mesh(step), _formula(form), _stages(step), _whole(step), _links(step), _memory(step), _assumed(step)]
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _mesh(step: StepTime) -> list[str]:
    cluster, mesh = step.price.cluster, step.price.mesh
    rows: list[tuple[str, ...]] = []
    for axis, degree in mesh.items():
        used = " and ".join(cluster.level(mesh, axis)) if degree > 1 else "no link"
        rows.append((axis, f"degree {degree}", used))
    return table(f"{step.devices} devices, from the innermost axis to the outermost", rows or [("one device",)])


def _formula(form: ModelTime) -> list[str]:
    rows = [
        ("schedule", str(form.shape)),
        ("T_F", "forward / (F_peak eta) + what is not hidden of exchanges; T_B and T_W as well"),
        ("T_send", "alpha + beta s"),
    ]
    return table("seconds of a step: the schedule, and what comes once a step", rows if form.d.linked.pipeline else rows[:2])


def _stages(step: StepTime) -> list[str]:
    """A row for each stage; neighbours that take equally long share one."""
    head = ("", "T_F", "T_B + T_W", "activations", "data", "not hidden", "data, once", "not hidden", "update")
    rows: list[tuple[str, ...]] = []
    for cost, one in zip(step.d.costs, step.stages, strict=True):
        cells = _cells(one)
        if rows and rows[-1][1:] == cells:
            rows[-1] = (f"{rows[-1][0].split(' to ')[0]} to {cost.stage.index}", *cells)
        else:
            rows.append((cost.stage.name, *cells))
    return [
        "one micro-batch, with its exchanges of activations and of data parallelism; and what comes once a step",
        *_columns([head, *rows]),
    ]


def _cells(one: StageTime) -> tuple[str, ...]:
    forward, backward, weights = one.passes
    each = (forward, backward + weights, sum(one.inside), sum(one.data), one.exposed[0] + one.exposed[1])
    return tuple(seconds_text(Fraction(n)) for n in (*each, sum(one.once), one.exposed[2], one.update))


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]) for r in rows]


def _whole(step: StepTime) -> list[str]:
    mfu, hfu = step.utilisation
    rows = [
        ("passes", seconds_text(step.passes), f"schedule {step.d.schedule}" if len(step.stages) > 1 else "one after the other"),
        ("once a step", seconds_text(step.seconds - step.passes), "exchanges that are not hidden, and the update"),
        ("step", seconds_text(step.seconds), f"{step.d.costs[step.slowest].stage.name} is the slowest" if len(step.stages) > 1 else ""),
        ("bubble", _percent(step.bubble), "of the passes' time, the slowest stage waits"),
        ("MFU", _percent(mfu), "of the peak of all devices, what the model asks for"),
        ("HFU", _percent(hfu), "with what is computed again"),
    ]
    return table("time", [row for row in rows if row[0] != "bubble" or len(step.stages) > 1])


def _percent(value: Fraction) -> str:
    return f"{float(100 * value):.4g} %"


def _links(step: StepTime) -> list[str]:
    levels = [level.name for level in step.price.cluster.levels]
    rows: list[tuple[str, ...]] = [("axes", *levels)]
    for axes, over in step.by_level(step.d.costs[0]).items():
        if any(over):
            rows.append((axes, *(bytes_text(n) if n else "0" for n in over)))
    title = f"bytes that a device of {step.d.costs[0].stage.name} sends in a step over each level of links"
    found = [f"  {kind} over {axes}: {', '.join(names)}" for (kind, axes), names in step.algorithms(step.d.costs[0]).items()]
    return [title, *_columns(rows), *dict.fromkeys(found)] if len(rows) > 1 else []


def _memory(step: StepTime) -> list[str]:
    memory = step.price.cluster.device.memory
    peaks = [(step.price.amount(cost.peak), cost.stage.name) for cost in step.d.costs]
    over = [name for peak, name in peaks if peak > memory]
    most, where = max(peaks, key=lambda row: row[0])
    first, name = peaks[0]
    fits = f"does not fit: {len(over)} of {len(peaks)} stages, {over[0]} among them" if over else "fits"
    rows = [("a device has", bytes_text(memory)), (f"peak of {name}", bytes_text(first))]
    rows += [] if where == name else [(f"largest peak, {where}", bytes_text(most))]
    return table(f"memory: {fits}", rows)


def _assumed(step: StepTime) -> list[str]:
    eta = step.price.values["eta"]
    reason = next((text for value, text in EFFICIENCY.values() if value == eta), "as it was set")
    lines = [
        f"overlap {step.overlap}: {OVERLAP[step.overlap]}",
        f"efficiency eta = {eta}: {reason}",
        f"peak of {step.format}: {figure(step.price.peak / 10**12)} TFLOP/s; memory: {figure(step.price.bandwidth / 10**9)} GB/s",
        "of algorithms, the fastest is taken" if not step.price.flat else "all algorithms are rings",
        "element-wise operations, copies to a host and loading data take no time",
    ]
    return ["assumptions", *(f"  - {line}" for line in lines)]


def time_data(form: ModelTime, step: StepTime) -> dict[str, Any]:
    """The same as data: seconds and bytes as floating-point numbers; the form as a text that ``sympy.sympify`` reads."""
    mfu, hfu = step.utilisation
    levels = [level.name for level in step.price.cluster.levels]
    return {
        "cluster": step.price.cluster.name,
        "devices": step.devices,
        "mesh": step.price.mesh,
        "overlap": step.overlap,
        "efficiency": float(step.price.values["eta"]),
        "format": step.format,
        "formula": str(form.form),
        "seconds": {"step": float(step.seconds), "passes": float(step.passes), "once": float(step.seconds - step.passes)},
        "bubble": float(step.bubble),
        "mfu": float(mfu),
        "hfu": float(hfu),
        "slowest": step.d.costs[step.slowest].stage.name,
        "memory": float(step.price.cluster.device.memory),
        "stages": [
            {
                "name": cost.stage.name,
                **{name: float(n) for name, n in zip(("T_F", "T_B", "T_W"), one.passes, strict=True)},
                "send": float(one.send),
                "once": float(one.tail),
                "peak": float(step.price.amount(cost.peak)),
                "fits": step.price.amount(cost.peak) <= step.price.cluster.device.memory,
                "links": {axes: dict(zip(levels, map(float, over), strict=True)) for axes, over in step.by_level(cost).items()},
            }
            for cost, one in zip(step.d.costs, step.stages, strict=True)
        ],
    }
