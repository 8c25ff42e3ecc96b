"""Horizontal bars as SVG, without a library: legible on light and on dark, with every number written beside its bar."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

#: Pixels: of a bar, between rows, of a title with its space, of an axis with its numbers and name, of the bars' field, of the margins.
_BAR, _GAP, _TITLE, _AXIS, _FIELD, MARGIN = 14, 9, 30, 44, 440, 16
#: Pixels that a character takes at most, on average, and that the number beside a bar takes.
CHARACTER, _NUMBER = 6.9, 90
#: Least ratio of contrast to white and to the dark background: 3 to 1, as WCAG 2.1 asks of graphics.
_COLOURS = ("#808080", "#3a7bd5", "#c8641e", "#2e8b57")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1b1b; }
.title { font-weight: 600; }
.back { fill: #ffffff; }
.line { stroke: #808080; stroke-width: 1; }
.grid { stroke: #808080; stroke-opacity: 0.3; stroke-width: 1; }
@media (prefers-color-scheme: dark) { text { fill: #ececec; } .back { fill: #161616; } }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """``value``: not negative, None for no bar. ``text``: the number as it is written. ``series``: which of the names it belongs to."""

    series: int
    value: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Bars under one another that share a label."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Rows that share an axis. ``axis``: what its numbers count. ``log``: each step is a power of ten; zero has no bar."""

    title: str
    axis: str
    rows: tuple[Row, ...]
    log: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    """From numbers to pixels: from ``low`` at the left of the field to ``high`` at its right, both as they are or as powers of ten."""

    low: float
    high: float
    log: bool

    def at(self, value: float) -> float:
        """Pixels from the left of the field."""
        if self.log and value <= 0:
            return 0.0
        number = math.log10(value) if self.log else value
        return max(0.0, (number - self.low) / (self.high - self.low) * _FIELD)

    def ticks(self) -> list[tuple[float, str]]:
        """Where numbers stand on the axis, in pixels, and which."""
        step = 1.0 if self.log else round_step((self.high - self.low) / 6)
        count = round((self.high - self.low) / step)
        numbers = [self.low + i * step for i in range(count + 1)]
        return [((n - self.low) / (self.high - self.low) * _FIELD, f"1e{n:.0f}" if self.log else f"{n:g}") for n in numbers]


def round_step(least: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def _scale(panel: Panel) -> _Scale:
    values = [bar.value for row in panel.rows for bar in row.bars if bar.value]
    if panel.log:
        exponents = [math.log10(v) for v in values] or [0.0]
        return _Scale(math.floor(min(exponents)) - 1, math.ceil(max(exponents) + 1e-9), True)
    most = max(values, default=1.0)
    step = round_step(most / 6)
    return _Scale(0.0, step * math.ceil(most / step - 1e-9), False)


def svg(title: str, series: Sequence[str], panels: Sequence[Panel]) -> str:
    """The panels under one another, below the title and what the colours mean. A standalone file; it loads nothing."""
    left = MARGIN + max((len(row.label) for panel in panels for row in panel.rows), default=0) * CHARACTER + 10
    widest = max((len(panel.title) for panel in panels), default=0) * CHARACTER * 1.1
    width = max(left + _FIELD + _NUMBER + MARGIN, widest + 2 * MARGIN)
    parts = [*_legend(title, series)]
    top = float(MARGIN + 2 * _TITLE)
    for panel in panels:
        parts += _panel(panel, left, top)
        top += _height(panel)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" viewBox="0 0 {width:.0f} {top:.0f}" role="img">'
    back = f'<rect class="back" width="{width:.0f}" height="{top:.0f}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", back, *parts, "</svg>"]) + "\n"


def _legend(title: str, series: Sequence[str]) -> Iterator[str]:
    yield written(MARGIN, MARGIN + 12, title, "title")
    x = float(MARGIN)
    for number, name in enumerate(series):
        yield rect(x, MARGIN + 26, _BAR, _BAR, _COLOURS[number])
        yield written(x + _BAR + 5, MARGIN + 36, name)
        x += _BAR + 25 + len(name) * CHARACTER


def _rows(panel: Panel) -> float:
    return sum(len(row.bars) * _BAR + _GAP for row in panel.rows)


def _height(panel: Panel) -> float:
    return _TITLE + _rows(panel) + _AXIS + MARGIN


def _panel(panel: Panel, left: float, top: float) -> Iterator[str]:
    scale = _scale(panel)
    yield written(MARGIN, top + 14, panel.title, "title")
    start, end = top + _TITLE, top + _TITLE + _rows(panel)
    for x, number in scale.ticks():
        yield f'<line class="grid" x1="{left + x:.1f}" y1="{start:.1f}" x2="{left + x:.1f}" y2="{end + 4:.1f}"/>'
        yield written(left + x, end + 18, number, anchor="middle")
    y = start
    for row in panel.rows:
        yield from _row(row, scale, left, y)
        y += len(row.bars) * _BAR + _GAP
    yield f'<line class="line" x1="{left:.1f}" y1="{start:.1f}" x2="{left:.1f}" y2="{end:.1f}"/>'
    yield written(left + _FIELD / 2, end + 36, panel.axis, anchor="middle")


def _row(row: Row, scale: _Scale, left: float, y: float) -> Iterator[str]:
    yield written(left - 8, y + len(row.bars) * _BAR / 2 + 5, row.label, anchor="end")
    for bar in row.bars:
        length = scale.at(bar.value) if bar.value is not None else 0.0
        yield rect(left, y, length, _BAR - 1, _COLOURS[bar.series])
        yield written(left + length + 4, y + _BAR - 3, bar.text)
        y += _BAR


def rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A rectangle, by its upper left corner."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def written(x: float, y: float, said: str, style: str = "", *, anchor: str = "start") -> str:
    """A line of text, by the place where it starts (or its middle, or its end) on its base line."""
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'
