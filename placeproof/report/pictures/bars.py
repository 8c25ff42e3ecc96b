"""Horizontal bars as SVG, with every number written beside its bar."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placeproof.report.pictures.svg import CHARACTER, MARGIN, axis, legend, picture, rect, round_step, round_up, upright, written

#: Pixels: of a bar, between rows, of a title with its space, of an axis with its numbers and name, of the bars' field, of a number.
_BAR, _GAP, _TITLE, _AXIS, _FIELD, _NUMBER = 14, 9, 30, 44, 440, 90
#: Least ratio of contrast to white and to the dark background: 3 to 1, as WCAG 2.1 asks of graphics.
_COLOURS = ("#808080", "#3a7bd5", "#c8641e", "#2e8b57")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """``value``: not negative, None for no bar. ``text``: the number as it is written. ``series``: which of the names it belongs to."""

    series: int
    value: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """Bars under one another that share a label."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Rows that share an axis. ``axis``: what its numbers count. ``log``: each step is a power of ten; zero has no bar."""

    title: str
    axis: str
    rows: tuple[BarRow, ...]
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


def _scale(panel: Panel) -> _Scale:
    values = [bar.value for row in panel.rows for bar in row.bars if bar.value]
    if panel.log:
        exponents = [math.log10(v) for v in values] or [0.0]
        return _Scale(math.floor(min(exponents)) - 1, math.ceil(max(exponents) + 1e-9), True)
    return _Scale(0.0, round_up(max(values, default=1.0)), False)


def svg(title: str, series: Sequence[str], panels: Sequence[Panel]) -> str:
    """The panels under one another, below the title and what the colours mean. A standalone file; it loads nothing."""
    left = MARGIN + max((len(row.label) for panel in panels for row in panel.rows), default=0) * CHARACTER + 10
    widest = max((len(panel.title) for panel in panels), default=0) * CHARACTER * 1.1
    width = max(left + _FIELD + _NUMBER + MARGIN, widest + 2 * MARGIN)
    parts = [written(MARGIN, MARGIN + 12, title, "title"), *legend(zip(series, _COLOURS, strict=False), MARGIN + 26)]
    top = float(MARGIN + 2 * _TITLE)
    for panel in panels:
        parts += _panel(panel, left, top)
        top += _height(panel)
    return picture(title, width, top, parts)


def _rows(panel: Panel) -> float:
    return sum(len(row.bars) * _BAR + _GAP for row in panel.rows)


def _height(panel: Panel) -> float:
    return _TITLE + _rows(panel) + _AXIS + MARGIN


def _panel(panel: Panel, left: float, top: float) -> Iterator[str]:
    scale = _scale(panel)
    yield written(MARGIN, top + 14, panel.title, "title")
    start, end = top + _TITLE, top + _TITLE + _rows(panel)
    yield from axis(scale.ticks(), panel.axis, left, _FIELD, start, end)
    y = start
    for row in panel.rows:
        yield from _row(row, scale, left, y)
        y += len(row.bars) * _BAR + _GAP
    yield upright("line", left, start, end)


def _row(row: BarRow, scale: _Scale, left: float, y: float) -> Iterator[str]:
    yield written(left - 8, y + len(row.bars) * _BAR / 2 + 5, row.label, anchor="end")
    for bar in row.bars:
        length = scale.at(bar.value) if bar.value is not None else 0.0
        yield rect(left, y, length, _BAR - 1, _COLOURS[bar.series])
        yield written(left + length + 4, y + _BAR - 3, bar.text)
        y += _BAR
