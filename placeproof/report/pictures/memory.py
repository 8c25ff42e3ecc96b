"""What each pipeline stage holds, and who does what when, as one SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from placeproof.core.diagnostics import Problems
from placeproof.core.symbols import info
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model import ModelDerivation, StageCost
from placeproof.report.pictures.svg import CHARACTER, MARGIN, axis, legend, picture, rect, round_step, round_up, upright, written
from placeproof.schedules import PassKind, TimedSlot, Timetable

#: What a device holds -> its colour. Contrast to either background is 3 to 1 at least, as WCAG 2.1 asks of graphics.
SERIES: Mapping[str, str] = {
    "parameters": "#3a7bd5",
    "gradients": "#c8641e",
    "optimizer": "#808080",
    "activations": "#2e8b57",
    "gathered": "#a55bd0",
    "computed again": "#b07d12",
}
#: Passes -> their names and colours.
PASSES: Mapping[PassKind, tuple[str, str]] = {
    PassKind.F: ("forward", "#3a7bd5"),
    PassKind.B: ("backward, inputs", "#2e8b57"),
    PassKind.W: ("backward, weights", "#c8641e"),
    PassKind.BW: ("backward", "#2e8b57"),
}
_BAR, _ROW, _FIELD, _NUMBER = 15, 21, 620, 70
#: More passes than these are too narrow to be seen.
MOST_PASSES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A device of one stage: bytes by what they are for, in the order of :data:`SERIES`."""

    label: str
    parts: tuple[Fraction, ...]


def stacks(d: ModelDerivation, values: Mapping[str, Fraction]) -> tuple[Stack, ...]:
    """What a device of each stage holds at its peak, in bytes. Raises InputError with every symbol that is not set."""
    problems = Problems()
    open_ = {str(s) for c in d.costs for s in c.peak.free_symbols} - set(values) - set(d.values)
    for name in sorted(open_):
        problems.add("PP203", f"a picture needs numbers, and `{name}` is not set ({info(name).meaning})", help=f"--set {name}=8")
    problems.raise_if_any()
    return tuple(Stack(label=c.stage.name, parts=_parts(c, lambda e: d.value(e, values) or Fraction(0))) for c in d.costs)


def _parts(cost: StageCost, value: Callable[[Amount], Fraction]) -> tuple[Fraction, ...]:
    """Where the peak is behind the layers, nothing is computed again; else what is computed again has the place of what was kept there."""
    states = (value(cost.states[s]) for s in ("parameters", "gradients", "optimizer"))
    beyond = value(cost.beyond)
    again = value(cost.working) if beyond > 0 else beyond
    return (*states, value(cost.activations) + beyond - again, value(cost.transient), again)


def memory_picture(
    title: str, bars: Sequence[Stack], memory: Fraction | None = None, table: Timetable | None = None, unit: str = ""
) -> str:
    """The stages' memory as stacked bars, a line where a device's memory ends, and the schedule below. A standalone file.

    ``unit``: what the schedule's times count.
    """
    left = MARGIN + max(len(b.label) for b in bars) * CHARACTER + 10
    parts, top = [written(MARGIN, MARGIN + 12, title, "title")], MARGIN + 26.0
    parts += legend([(n, c) for i, (n, c) in enumerate(SERIES.items()) if any(b.parts[i] for b in bars)], top)
    parts += _bars(bars, memory, left, top + 40)
    top += 40 + len(bars) * _ROW + 60
    if table is not None and sum(map(len, table.runs)) <= MOST_PASSES:
        parts += _schedule(table, unit, left, top)
        top += 52 + table.p * _ROW + 50
    width = left + _FIELD + _NUMBER + MARGIN
    return picture(title, width, top, parts, ".memory { stroke: #d0342c; stroke-width: 2; }\n")


def _bars(bars: Sequence[Stack], memory: Fraction | None, left: float, top: float) -> Iterator[str]:
    most = max(float(sum(b.parts)) for b in bars)
    scale = _FIELD / round_up(max(most, float(memory or 0)) or 1.0)
    bottom = top + len(bars) * _ROW
    yield from _axis(_FIELD / scale / 1e9, "GB a device", left, top, bottom)
    for i, bar in enumerate(bars):
        x, y = left, top + i * _ROW
        yield written(left - 8, y + 12, bar.label, anchor="end")
        for size, colour in zip(bar.parts, SERIES.values(), strict=True):
            if size:
                yield rect(x, y, float(size) * scale, _BAR, colour)
                x += float(size) * scale
        yield written(x + 4, y + 12, f"{float(sum(bar.parts)) / 1e9:.4g}")
    if memory is not None:
        end = left + float(memory) * scale
        yield upright("memory", end, top - 6, bottom)
        yield written(end, top - 9, f"a device has {float(memory) / 1e9:g} GB", anchor="end")


def _axis(most: float, name: str, left: float, top: float, bottom: float) -> Iterator[str]:
    step = round_step(most / 6)
    numbers = [i * step for i in range(int(most / step + 1e-9) + 1)]
    return axis([(n / most * _FIELD, f"{n:g}") for n in numbers], name, left, _FIELD, top, bottom)


def _schedule(table: Timetable, unit: str, left: float, top: float) -> Iterator[str]:
    """A row for each stage's devices, a rectangle for each pass, with its micro-batch where there is room."""
    kinds = [k for k in PASSES if any(one.kind is k for runs in table.runs for run in runs for one in run.slot)]
    yield written(MARGIN, top, f"{table.schedule.title}: {table.m} micro-batches on {table.p} stages", "title")
    yield from legend([PASSES[k] for k in kinds], top + 10)
    top += 42
    yield from _axis(float(table.step), unit, left, top, top + table.p * _ROW)
    for d, runs in enumerate(table.runs):
        yield written(left - 8, top + d * _ROW + 12, f"stage {d}", anchor="end")
        for run in runs:
            yield from _pass(run, float(table.step), left, top + d * _ROW)


def _pass(run: TimedSlot, step: float, left: float, y: float) -> Iterator[str]:
    x, width = left + float(run.start) / step * _FIELD, float(run.end - run.start) / step * _FIELD
    high = _BAR / len(run.slot)
    for i, one in enumerate(run.slot):
        yield rect(x, y + i * high, max(width - 0.4, 0.2), high, PASSES[one.kind][1])
    label = "+".join(str(one.microbatch) for one in run.slot)
    if width > (len(label) + 1) * CHARACTER:
        yield written(x + width / 2, y + 11.5, label, anchor="middle")
