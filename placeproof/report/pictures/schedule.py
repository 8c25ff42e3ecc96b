"""Who does what when in a step of a pipeline, as SVG: the same text for the same step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from placeproof.report.pictures.svg import CHARACTER, MARGIN, legend, legend_width, picture, rect, written
from placeproof.schedules import PassKind, StageLayout, TimedSlot, Timetable, kept_at_most
from placeproof.schedules.order import Pass

#: Pixels: of a device's row, between rows, of a line of text, of the time field at least and at most, of a short pass.
_ROW, _GAP, _LINE, _NARROW, _WIDE, _PASS = 22, 4, 20, 640.0, 1400.0, 16.0
#: Pixels of a character of a number in a box and of one in half a box, at most on average.
_DIGIT, _SMALL = 6.4, 5.4
#: A pass's colour in the first chunk; those of later chunks are lighter.
_COLOURS = {PassKind.F: "#2a62b0", PassKind.B: "#1f6e45", PassKind.W: "#9c4a0d", PassKind.BW: "#6b3fa0"}
_NAMES = {
    PassKind.F: "F: forward",
    PassKind.B: "B: gradient of the input",
    PassKind.W: "W: gradient of the weights",
    PassKind.BW: "backward: both gradients",
}
#: How much of white is mixed into the colour of the last chunk.
_LIGHTEST = Fraction(3, 5)
_STYLE = """
.idle { fill: #808080; fill-opacity: 0.25; }
.n { font-size: 11px; text-anchor: middle; }
.s { font-size: 9px; text-anchor: middle; }
.onto { fill: #ffffff; }
.under { fill: #000000; }
"""


def svg(table: Timetable) -> str:
    """The step: a row for each device, a box for each pass with the number of its micro-batch, grey where a device waits.

    Two passes that overlap stand above one another. On the right: the most activations of a chunk, for one micro-batch, that the device
    keeps until B and W.
    """
    field = _field(table)
    left = MARGIN + len(f"device {table.p - 1}") * CHARACTER + 8
    right = left + field + 10
    heads, entries = _heads(table), _entries(table)
    widest = max(len(line) for line in heads) * CHARACTER + 2 * MARGIN
    width = max(right + 9 * CHARACTER + MARGIN, widest, legend_width(name for name, _ in entries))
    top = float(MARGIN + _LINE * len(heads) + 2 * _LINE)
    end = top + table.p * (_ROW + _GAP)
    height = end + _LINE + MARGIN
    parts = [written(MARGIN, MARGIN + 12 + i * _LINE, line, "title" if i == 0 else "") for i, line in enumerate(heads)]
    parts += legend(entries, MARGIN + len(heads) * _LINE + 4)
    for d, device in enumerate(table.runs):
        y = top + d * (_ROW + _GAP)
        parts += [written(left - 8, y + 15, f"device {d}", anchor="end"), rect(left, y, field, _ROW, "idle")]
        for run in device:
            parts += _boxes(table, run, d, left, y, field)
        kept = kept_at_most(tuple(run.slot for run in device))
        parts.append(written(right, y + 15, f"keeps {_number(kept)}"))
    parts += [written(left, end + 14, "0"), written(left + field, end + 14, _number(table.step), anchor="end")]
    return picture(heads[0], width, height, parts, _STYLE + "".join(_tones(table)))


def _field(table: Timetable) -> float:
    """Pixels of the step: enough for the number of a micro-batch in the shortest pass, within bounds."""
    shortest = min((run.end - run.start for device in table.runs for run in device if run.end > run.start), default=Fraction(1))
    pixels = float(table.step / shortest) * max(_PASS, len(str(table.m - 1)) * _DIGIT + 3)
    return min(max(pixels, _NARROW), _WIDE)


def _heads(table: Timetable) -> tuple[str, ...]:
    """What stands above the picture."""
    chunks = f", {table.v} chunks on each" if table.v > 1 else ""
    bubble, peak = table.bubble(), max(kept_at_most(tuple(run.slot for run in device)) for device in table.runs)
    return (
        f"{table.schedule.name}: p = {table.p} devices{chunks}, m = {table.m} micro-batches",
        f"step {_number(table.step)}, bubble {_number(bubble.time)}: {_percent(bubble.of_ideal)} of the time for which a device computes, "
        f"{_percent(bubble.of_total)} of the step; a device keeps activations of at most {_number(peak)} forwards",
    )


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.4g}"


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"


def _kinds(table: Timetable) -> list[PassKind]:
    """The kinds of passes that occur, in their usual order."""
    occurring = {one.kind for device in table.runs for run in device for one in run.slot}
    return [kind for kind in PassKind if kind in occurring]


def _entries(table: Timetable) -> list[tuple[str, str]]:
    """What the colours mean: a name and its style."""
    entries = [(_NAMES[kind], f"{kind.value}0") for kind in _kinds(table)]
    if table.v > 1:
        other = "the second half of the copies' stages" if table.schedule.layout is StageLayout.BOTH else "later chunks"
        entries.append((f"lighter: {other}", f"F{table.v - 1}"))
    return [*entries, ("idle", "idle")]


def _tones(table: Timetable) -> Iterator[str]:
    for kind in _kinds(table):
        for chunk in range(table.v):
            yield f".{kind.value}{chunk} {{ fill: {_tone(kind, chunk, table.v)}; }}\n"


def _tone(kind: PassKind, chunk: int, chunks: int) -> str:
    """A pass's colour: the later its chunk, the more white is in it."""
    white = _LIGHTEST * chunk / max(1, chunks - 1)
    parts = [int(_COLOURS[kind][i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


def _light(tone: str) -> bool:
    """Whether black is easier to read on a colour than white: by its relative luminance, as WCAG 2.1 defines it."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (int(tone[i : i + 2], 16) / 255 for i in (1, 3, 5))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179


def _boxes(table: Timetable, run: TimedSlot, d: int, left: float, y: float, field: float) -> Iterator[str]:
    """The passes of a slot, above one another if they overlap; the number of the micro-batch where it fits."""
    if run.end == run.start:
        return
    scale = Fraction(field) / table.step
    x, width = left + float(run.start * scale), float((run.end - run.start) * scale)
    height = _ROW / len(run.slot)
    digit, style, rise = (_DIGIT, "n", 15.0) if len(run.slot) == 1 else (_SMALL, "s", 8.5)
    gap = 0.6 if width > 4 else 0.0
    for row, one in enumerate(run.slot):
        chunk = _chunk(table, one, d)
        yield rect(x, y + row * height, width - gap, height - (0.6 if len(run.slot) > 1 else 0), f"{one.kind.value}{chunk}")
        if width - gap >= len(str(table.m - 1)) * digit + 1:
            on = "under" if _light(_tone(one.kind, chunk, table.v)) else "onto"
            yield written(x + (width - gap) / 2, y + row * height + rise, str(one.microbatch), f"{style} {on}")


def _chunk(table: Timetable, pass_: Pass, d: int) -> int:
    return next(c for c in range(table.v) if table.schedule.stage(c, d, table.p) == pass_.stage)
