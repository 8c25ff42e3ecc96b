"""What moves in a page: sliders, and formulas as JavaScript."""

from __future__ import annotations

import json
from collections.abc import Collection
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placeproof.report.document import Live, Slider
from placeproof.report.hypertext import said
from placeproof.report.page.charts import Amount, Bars, Chart
from placeproof.report.units import plain

if TYPE_CHECKING:
    import sympy

_SCRIPT = Path(__file__).parent / "sliders.js"
_CAPACITY = "capacity"


def script(live: Live, shown: Collection[str]) -> str:
    """JavaScript that works out the figures in these places; without a document, it offers its formulas."""
    each = {at: code for at, expr in live.formulas.items() if at in shown and (code := javascript(expr)) is not None}
    rows = ",\n".join(f"{_quoted(at)}: (v) => {code}" for at, code in each.items())
    return f"const formulas = {{\n{rows}\n}};\n{_SCRIPT.read_text(encoding='utf-8')}"


def javascript(expression: sympy.Expr) -> str | None:
    """A formula of symbols that are fields of ``v``; None of what JavaScript has no word for."""
    from sympy.printing.jscode import JavascriptCodePrinter

    class Printer(JavascriptCodePrinter):  # type: ignore[misc]
        def _print_Symbol(self, symbol: sympy.Symbol) -> str:  # noqa: N802
            return f"v[{_quoted(str(symbol))}]"

    try:
        code: str = Printer({"strict": True}).doprint(expression)
    except NotImplementedError:
        return None
    return code


def panel(live: Live, charts: list[Chart]) -> str:
    """The sliders and what they begin with; hidden until the script runs."""
    limit = next((chart.limit[1] for chart in charts if isinstance(chart, Bars) and chart.limit is not None), None)
    sliders = [*live.sliders, *([] if limit is None else [_capacity(limit)])]
    start = {**live.values, **({} if limit is None or limit.value is None else {_CAPACITY: Fraction(limit.value)})}
    told = {
        "values": {name: plain(n) for name, n in start.items()},
        "sliders": {one.symbol: [plain(n) for n in one.positions] for one in sliders},
        "refused": [[[name, plain(n)] for name, n in pair] for pair in live.refused],
        "capacity": None if limit is None else limit.at,
    }
    rows = "".join(_row(one, start[one.symbol]) for one in sliders)
    return (
        f'<section class="sliders" hidden><h2>what if</h2>{rows}<p id="moved" role="status"></p>'
        f'<button type="button" id="back">as it was</button></section>'
        f'<script type="application/json" id="live">{_quoted(told)}</script>'
    )


def _capacity(limit: Amount) -> Slider:
    now = Fraction(limit.value or 0)
    positions = tuple(sorted({now, *(Fraction(n * 10**9) for n in (16, 24, 32, 40, 48, 64, 80, 96, 120, 141, 192, 288))}))
    return Slider(_CAPACITY, "memory of a device", positions)


def _row(slider: Slider, now: Fraction) -> str:
    name, at = said(slider.symbol), slider.positions.index(now)
    place = f'min="0" max="{len(slider.positions) - 1}" step="1" value="{at}" data-start="{at}" data-symbol="{name}"'
    label = f'<label for="move-{name}">{name}: {said(slider.meaning)}</label>'
    return f'<div>{label}<input type="range" id="move-{name}" {place}><output for="move-{name}"></output></div>'


def places(charts: list[Chart]) -> set[str]:
    """The places of all figures of charts."""
    amounts: list[Any] = []
    for chart in charts:
        if isinstance(chart, Bars):
            amounts += [cell for row in chart.rows for cell in row.cells if isinstance(cell, Amount)]
    return {amount.at for amount in amounts}


def _quoted(value: object) -> str:
    """JSON that ends no element of HTML."""
    return json.dumps(value).replace("<", "\\u003c")
