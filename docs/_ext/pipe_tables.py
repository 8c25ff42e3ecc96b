"""Markdown of tables and code, and formulas as LaTeX between dollars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sympy


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A pipe table."""
    lines = [_row(head), _row(["---"] * len(head)), *(_row(cells) for cells in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def code(text: str) -> str:
    """Text set as code in a line; nothing for nothing."""
    return f"`{text}`" if text else ""


def value(given: object) -> str:
    """A value of an option as it is written: true and false in lower case."""
    return code(str(given).lower() if isinstance(given, bool) else str(given))


def block(text: str, language: str = "text") -> str:
    """Text set as a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def formula(expr: sympy.Expr) -> str:
    """A formula in a line, with the notation table's symbols."""
    from placeproof.report.renderers import expression_latex

    return f"${expression_latex(expr)}$"


def plain(text: str) -> str:
    """Text in which ``*`` and ``_`` and ``<`` mean themselves, outside code."""
    parts = text.split("`")
    outside = [p.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;") if i % 2 == 0 else p for i, p in enumerate(parts)]
    return "`".join(outside)
