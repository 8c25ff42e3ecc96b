"""Who does what when in a step of a pipeline, as SVG without a library: legible on light and on dark, the same text for the same step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from xml.sax.saxutils import escape

from placeproof.schedules import Kind, Layout, Run, Timetable, kept_at_most
from placeproof.schedules.order import Pass

#: Pixels: of a device's row, between rows, of a line of text, of the margins, of the time field at least and at most, of a short pass.
_ROW, _GAP, _LINE, _MARGIN, _NARROW, _WIDE, _PASS = 22, 4, 20, 16, 640.0, 1400.0, 16.0
#: Pixels of a character of a label, of a number in a box and of one in half a box, at most on average.
_CHARACTER, _DIGIT, _SMALL = 6.9, 6.4, 5.4
#: A pass's colour in the first chunk; those of later chunks are lighter.
_COLOURS = {Kind.F: "#2a62b0", Kind.B: "#1f6e45", Kind.W: "#9c4a0d", Kind.BW: "#6b3fa0"}
_NAMES = {
    Kind.F: "F: forward",
    Kind.B: "B: gradient of the input",
    Kind.W: "W: gradient of the weights",
    Kind.BW: "backward: both gradients",
}
#: How much of white is mixed into the colour of the last chunk.
_LIGHTEST = Fraction(3, 5)
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1b1b; }
.title { font-weight: 600; }
.back { fill: #ffffff; }
.idle { fill: #808080; fill-opacity: 0.25; }
.n { font-size: 11px; text-anchor: middle; }
.s { font-size: 9px; text-anchor: middle; }
@media (prefers-color-scheme: dark) { text { fill: #ececec; } .back { fill: #161616; } }
.onto { fill: #ffffff; }
.under { fill: #000000; }
"""


def svg(table: Timetable) -> str:
    """The step: a row for each device, a box for each pass with the number of its micro-batch, grey where a device waits.

    Two passes that overlap stand above one another. On the right: the most activations of a chunk, for one micro-batch, that the device
    keeps until B and W. A standalone file; it loads nothing.
    """
    field = _field(table)
    left = _MARGIN + len(f"device {table.p - 1}") * _CHARACTER + 8
    right = left + field + 10
    heads = _heads(table)
    width = max(right + 9 * _CHARACTER + _MARGIN, max(len(line) for line in heads) * _CHARACTER + 2 * _MARGIN, _legend_width(table))
    top = float(_MARGIN + _LINE * len(heads) + 2 * _LINE)
    end = top + table.p * (_ROW + _GAP)
    height = end + _LINE + _MARGIN
    parts = [_text(_MARGIN, _MARGIN + 12 + i * _LINE, line, "title" if i == 0 else "") for i, line in enumerate(heads)]
    parts += _legend(table, _MARGIN + len(heads) * _LINE + 4)
    for d, device in enumerate(table.runs):
        y = top + d * (_ROW + _GAP)
        parts += [_text(left - 8, y + 15, f"device {d}", anchor="end"), _rect("idle", left, y, field, _ROW)]
        for run in device:
            parts += _boxes(table, run, d, left, y, field)
        kept = kept_at_most(tuple(run.slot for run in device))
        parts.append(_text(right, y + 15, f"keeps {_number(kept)}"))
    parts += [_text(left, end + 14, "0"), _text(left + field, end + 14, _number(table.step), anchor="end")]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    back = f'<rect class="back" width="{width:.0f}" height="{height:.0f}"/>'
    style = f"<style>{_STYLE}{''.join(_tones(table))}</style>"
    return "\n".join([head, f"<title>{escape(heads[0])}</title>", style, back, *parts, "</svg>"]) + "\n"


def _field(table: Timetable) -> float:
    """Pixels of the step: enough for the number of a micro-batch in the shortest pass, within bounds."""
    shortest = min((run.end - run.start for device in table.runs for run in device if run.end > run.start), default=Fraction(1))
    asked = float(table.step / shortest) * max(_PASS, len(str(table.m - 1)) * _DIGIT + 3)
    return min(max(asked, _NARROW), _WIDE)


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


def _kinds(table: Timetable) -> list[Kind]:
    """The kinds of passes that occur, in their usual order."""
    found = {one.kind for device in table.runs for run in device for one in run.slot}
    return [kind for kind in Kind if kind in found]


def _entries(table: Timetable) -> list[tuple[str, str]]:
    """What the colours mean: a class and its name."""
    entries = [(f"{kind.value}0", _NAMES[kind]) for kind in _kinds(table)]
    if table.v > 1:
        other = "the second half of the copies' stages" if table.schedule.layout is Layout.BOTH else "later chunks"
        entries.append((f"F{table.v - 1}", f"lighter: {other}"))
    return [*entries, ("idle", "idle")]


def _legend(table: Timetable, y: float) -> Iterator[str]:
    x = float(_MARGIN)
    for name, says in _entries(table):
        yield _rect(name, x, y, 14, 14)
        yield _text(x + 19, y + 11, says)
        x += 37 + len(says) * _CHARACTER


def _legend_width(table: Timetable) -> float:
    return 2 * _MARGIN + sum(37 + len(says) * _CHARACTER for _, says in _entries(table))


def _tones(table: Timetable) -> Iterator[str]:
    for kind in _kinds(table):
        for chunk in range(table.v):
            yield f".{kind.value}{chunk} {{ fill: {_tone(kind, chunk, table.v)}; }}\n"


def _tone(kind: Kind, chunk: int, chunks: int) -> str:
    """A pass's colour: the later its chunk, the more white is in it."""
    white = _LIGHTEST * chunk / max(1, chunks - 1)
    parts = [int(_COLOURS[kind][i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


def _light(tone: str) -> bool:
    """Whether black is easier to read on a colour than white: by its relative luminance, as WCAG 2.1 defines it."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (int(tone[i : i + 2], 16) / 255 for i in (1, 3, 5))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179


def _boxes(table: Timetable, run: Run, d: int, left: float, y: float, field: float) -> Iterator[str]:
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
        yield _rect(f"{one.kind.value}{chunk}", x, y + row * height, width - gap, height - (0.6 if len(run.slot) > 1 else 0))
        if width - gap >= len(str(table.m - 1)) * digit + 1:
            on = "under" if _light(_tone(one.kind, chunk, table.v)) else "onto"
            yield _text(x + (width - gap) / 2, y + row * height + rise, str(one.microbatch), f"{style} {on}")


def _chunk(table: Timetable, one: Pass, d: int) -> int:
    return next(c for c in range(table.v) if table.schedule.stage(c, d, table.p) == one.stage)


def _rect(style: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{style}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'


def _text(x: float, y: float, said: str, style: str = "", *, anchor: str = "") -> str:
    named = f' class="{style}"' if style else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{named} x="{x:.2f}" y="{y:.2f}"{anchored}>{escape(said)}</text>'
