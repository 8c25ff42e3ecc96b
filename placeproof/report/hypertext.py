"""Documents as HTML: sections, with their formulas as mathematics that browsers know (MathML)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from placeproof.report.document import Code, Document, Lines, Notes, Reasons, Section, SectionPart, Table
from placeproof.report.grid import grid

if TYPE_CHECKING:
    import sympy

_CODE = re.compile(r"`([^`\n]+)`")


def fragment(document: Document) -> str:
    """What notebooks show: it needs no style sheet."""
    body = "".join(section(one, "h4") for one in document.sections())
    return f'<div class="placeproof">{body}</div>'


def section(one: Section, heading: str) -> str:
    """A section, its title as a heading of this kind."""
    title = f"<{heading}>{prose(one.title)}</{heading}>" if one.title else ""
    return title + "".join(_part(part, one.title) for part in one.parts)


def _part(part: SectionPart, title: str) -> str:
    match part:
        case Lines([]) | Code([]) | Notes([], _) | Table([], _, _):
            return ""
        case Lines(lines):
            return f"<p>{'<br>'.join(map(prose, lines))}</p>"
        case Code(lines):
            return wide("<pre>" + said("\n".join(lines)) + "</pre>", title or "lines")
        case Notes(lines, _):
            return "<ul>" + "".join(f"<li>{prose(line)}</li>" for line in lines) + "</ul>"
        case Reasons(steps):
            each = (f"{said(s.rule)}: {formula(s.expression)}, because {said(s.why)}" for s in steps)
            return "<details><summary>derivation</summary><ol>" + "".join(f"<li>{step}</li>" for step in each) + "</ol></details>"
        case Table():
            right = set(part.right)
            rows = ["".join(f"<td{_side(i in right)}>{c}</td>" for i, c in enumerate(row)) for row in grid(part.rows, formula, prose)]
            return wide(
                f"<table>{head(part.head, right)}<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>", title or "table"
            )


def head(names: Iterable[str], right: Container[int] = ()) -> str:
    """The first row of a table; nothing without names. A column without a name has no heading. ``right``: the columns of numbers."""
    cells = "".join(f'<th scope="col"{_side(i in right)}>{said(name)}</th>' if name else "<td></td>" for i, name in enumerate(names))
    return f"<thead><tr>{cells}</tr></thead>" if cells else ""


def _side(right: bool) -> str:
    return f' style="text-align: {"right" if right else "left"}"'


def wide(content: str, name: str) -> str:
    """What may be wider than the window: it is scrolled by itself, with the keyboard, too."""
    return f'<div class="wide" role="group" tabindex="0" aria-label="{said(name)}" style="overflow-x: auto">{content}</div>'


def said(value: object) -> str:
    """Text as HTML has it, also between quotes."""
    return escape(str(value))


def prose(value: object) -> str:
    """Text in which what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", said(value))


def formula(expression: sympy.Expr | Any) -> str:
    """A formula as MathML; ``alttext`` is the formula as text has it. What is no formula is code."""
    import sympy

    if not isinstance(expression, sympy.Expr):
        return f"<code>{said(expression)}</code>"
    from sympy.printing.mathml import mathml

    shown = mathml(expression, printer="presentation", mul_symbol="&#xB7;")
    return f'<math alttext="{said(expression)}">{_brackets(shown)}</math>'


def _brackets(shown: str) -> str:
    """SymPy before 1.14 writes brackets as an element that browsers no longer know."""
    return shown.replace("<mfenced>", "<mrow><mo>(</mo><mrow>").replace("</mfenced>", "</mrow><mo>)</mo></mrow>")
