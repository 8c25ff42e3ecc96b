"""Cells of tables, as each form of output writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from placeproof.report.document import Cell, Figure
from placeproof.report.units import bytes_text


def grid(rows: Sequence[Sequence[Cell]], formula: Callable[[Any], str], word: Callable[[str], str] = str) -> list[list[str]]:
    """The cells of rows as text; of a figure two, but where no value of a figure is known."""
    valued = any(isinstance(cell, Figure) and cell.value is not None for row in rows for cell in row)

    def cells(cell: Cell) -> list[str]:
        if isinstance(cell, Figure):
            value = "" if cell.value is None else bytes_text(cell.value)
            return [formula(cell.formula), *([word(value)] if valued else [])]
        return [word(cell) if isinstance(cell, str) else formula(cell)]

    return [[text for cell in row for text in cells(cell)] for row in rows]
