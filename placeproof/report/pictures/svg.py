"""What pictures are made of: SVG without a library, legible on light and on dark. A file stands alone and loads nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

#: Pixels: of the margins, of a legend's squares, and what a character takes at most, on average.
MARGIN, _SQUARE, CHARACTER = 16, 14, 6.9
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1b1b; }
.title { font-weight: 600; }
.back { fill: #ffffff; }
.line { stroke: #808080; stroke-width: 1; }
.grid { stroke: #808080; stroke-opacity: 0.3; stroke-width: 1; }
@media (prefers-color-scheme: dark) { text { fill: #ececec; } .back { fill: #161616; } }
"""


def picture(title: str, width: float, height: float, parts: Iterable[str], style: str = "") -> str:
    """A file of these parts on a background. ``style``: rules of its own."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
    back = f'<rect class="back" {size}/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}{style}</style>", back, *parts, "</svg>"]) + "\n"


def rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A rectangle, by its upper left corner. ``colour``: ``#rrggbb``, or the name of a style."""
    filled = f'fill="{colour}"' if colour.startswith("#") else f'class="{colour}"'
    return f'<rect {filled} x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'


def upright(style: str, x: float, top: float, bottom: float) -> str:
    """A line from above to below."""
    return f'<line class="{style}" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"/>'


def written(x: float, y: float, text: str, style: str = "", *, anchor: str = "") -> str:
    """A line of text, by the place where it starts (or its ``middle``, or its ``end``) on its base line."""
    named = f' class="{style}"' if style else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{named} x="{x:.2f}" y="{y:.2f}"{anchored}>{escape(text)}</text>'


def legend(names: Iterable[tuple[str, str]], top: float) -> Iterator[str]:
    """What colours mean, in a row: each name with its colour, as of :func:`rect`."""
    x = float(MARGIN)
    for name, colour in names:
        yield rect(x, top, _SQUARE, _SQUARE, colour)
        yield written(x + _SQUARE + 5, top + 11, name)
        x += _wide(name)


def legend_width(names: Iterable[str]) -> float:
    """Pixels of a picture in which a legend of these names has room."""
    return 2 * MARGIN + sum(map(_wide, names))


def _wide(name: str) -> float:
    return _SQUARE + 23 + len(name) * CHARACTER


def axis(ticks: Iterable[tuple[float, str]], name: str, left: float, width: float, top: float, bottom: float) -> Iterator[str]:
    """A field's axis below it: a line at each number, by its distance from the left, and what the numbers count."""
    for x, number in ticks:
        yield upright("grid", left + x, top, bottom + 4)
        yield written(left + x, bottom + 18, number, anchor="middle")
    yield written(left + width / 2, bottom + 36, name, anchor="middle")


def round_step(least: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def round_up(most: float) -> float:
    """The end of an axis of some six round steps on which the number has room."""
    step = round_step(most / 6)
    return step * math.ceil(most / step - 1e-9)
