"""Results as frames of pandas: what pages draw, and closed forms. pandas is imported here alone, when frames are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placeproof.report.document import Document
from placeproof.report.page.charts import Amount, Bars, Cell, charts
from placeproof.report.renderers import as_data

if TYPE_CHECKING:
    import pandas as pd


def frames(document: Document) -> dict[str, pd.DataFrame]:
    """Tables by their titles, numbers as JSON has them: bytes, seconds, shares. Raises ImportError without pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("frames need pandas: pip install 'placeproof[notebook]'") from error
    found: dict[str, pd.DataFrame] = {}
    for chart in charts(as_data(document.data()), document.lines()):
        if isinstance(chart, Bars):
            index = pd.Index([row.label for row in chart.rows], name=chart.head[0] or None)
            rows = [[_plain(cell) for cell in row.cells] for row in chart.rows]
            found[chart.title.removesuffix(", GB")] = pd.DataFrame(rows, index=index, columns=list(chart.head[1:]))
    if forms := document.forms():
        index = pd.Index([form.key for form in forms], name="closed form")
        found["closed forms"] = pd.DataFrame({"formula": [form.formula for form in forms]}, index=index)
    return found


def _plain(cell: Cell) -> Any:
    """The number that a cell shows; None where none is known."""
    return cell.value if isinstance(cell, Amount) else None if cell == "?" else cell
