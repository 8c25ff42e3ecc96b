"""Documents as text, JSON, Markdown, LaTeX, and as a Python module; ``hypertext.py`` makes HTML of them."""

from __future__ import annotations

import json as notation
import keyword
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.report.document import (
    Code,
    Document,
    Figure,
    Lines,
    Notes,
    Reasons,
    SectionPart,
    Table,
)
from placeproof.report.grid import grid
from placeproof.report.units import plain

if TYPE_CHECKING:
    import sympy


# JSON.


def json(document: Document, *, ascii: bool = False) -> str:
    """As its JSON Schema says. ``ascii``: other letters as escapes."""
    return notation.dumps(as_data(document.data()), indent=2, ensure_ascii=ascii) + "\n"


def as_data(value: Any, number: Callable[[Fraction], Any] = plain) -> Any:
    """Values as JSON has them: formulas are texts that ``sympy.sympify`` reads with the symbols as names.

    ``number``: what fractions become.
    """
    match value:
        case Figure():
            return {"formula": str(value.formula), "value": None if value.value is None else number(value.value)}
        case Mapping():
            return {name: as_data(v, number) for name, v in value.items()}
        case list() | tuple():
            return [as_data(v, number) for v in value]
        case Fraction():
            return number(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


# Markdown.


def markdown(document: Document) -> str:
    """Tables, lists and paragraphs."""
    blocks: list[str] = []
    for one in document.sections():
        heads = [part for part in one.parts[:1] if isinstance(part, Table) and part.rows and not part.head]  # its title is its head
        if one.title and not heads:
            blocks.append(f"{'##' if blocks else '#'} {_word(one.title)}")
        blocks += [_marked(part, _word(one.title) if part in heads else "") for part in one.parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _marked(part: SectionPart, title: str) -> str:
    match part:
        case Lines(lines):
            return "  \n".join(map(_word, lines))
        case Code(lines):
            return "\n".join(["```text", *lines, "```"]) if lines else ""
        case Notes(lines, _):
            return "\n".join(f"- {_word(line.strip())}" for line in lines)
        case Reasons(steps):
            return "\n".join(f"{n}. {_word(s.rule)}: `{s.expression}`, because {_word(s.why)}" for n, s in enumerate(steps, start=1))
        case Table():
            rows = grid(part.rows, lambda formula: f"`{formula}`", _word)
            width = max(map(len, [part.head, *rows]), default=0)
            head = [*part.head] if part.head else [title]
            table = [head, ["---:" if i in set(part.right) else "---" for i in range(width)], *rows]
            return "\n".join("| " + " | ".join([*cells, *[""] * (width - len(cells))]) + " |" for cells in table) if rows else title


def _word(text: str) -> str:
    """Text in which nothing but what stands between backticks means anything to Markdown."""
    parts = text.split("`")
    return "`".join(part if i % 2 else re.sub(r"([\\*|<\[\]]|\b_|_\b)", r"\\\1", part) for i, part in enumerate(parts))


# LaTeX.

_GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "lambda", "mu", "omega", "phi", "psi", "sigma", "tau")


def latex(document: Document) -> str:
    """The closed forms as one ``align*`` environment."""
    rows = [(r"\quad" * form.part + rf"\text{{{_escape(form.label)}}}", form.formula) for form in document.forms() if form.shown]
    body = " \\\\\n".join(f"  {label} &= {expression_latex(formula)}" for label, formula in rows)
    return f"% {document.name}, {document.measure}\n\\begin{{align*}}\n{body}\n\\end{{align*}}\n"


def expression_latex(expr: sympy.Expr) -> str:
    """An expression in LaTeX, with the notation table's names; symbols of a statement's own keep theirs."""
    import sympy

    names = {s: _symbol_latex(str(s)) for s in expr.free_symbols}
    text: str = sympy.latex(expr, symbol_names=names)
    return text


def _symbol_latex(name: str) -> str:
    from placeproof.cost.uneven import described

    try:
        return described(name).latex
    except KeyError:
        if "(" in name:  # a derived quantity: sent(zero1 * tp)
            key, _, what = name.partition("(")
            return f"\\mathrm{{{_escape(key)}}}(\\mathrm{{{_spaced(what.removesuffix(')'))}}})" if what.endswith(")") else _spaced(name)
        head, _, tail = name.partition("_")
        shown = head if len(head) == 1 else f"\\{head}" if head in _GREEK else f"\\mathrm{{{head}}}"
        return f"{shown}_{{\\mathrm{{{_escape(tail)}}}}}" if tail else shown


def _spaced(text: str) -> str:
    return f"\\mathrm{{{text}}}".replace("_", "\\_").replace("*", "\\times ").replace(" ", "\\ ")


def _escape(text: str) -> str:
    return text.replace("_", "\\_").replace("*", "$\\times$")


# Python.


def python(document: Document) -> str:
    """A module of plain functions, one a closed form; it needs nothing but the standard library."""
    from placeproof.cost.derive import ranked

    lines = [f'"""{document.name}: closed forms in {document.measure}, derived by placeproof."""', "", "from __future__ import annotations"]
    for form in document.forms():
        names = ranked({str(s) for s in form.formula.free_symbols})
        lines += ["", "", f"def {_identifier(form.name)}({_parameters(names)}) -> float:"]
        lines += [f'    """{form.key} of {document.name}."""', f"    return {_code(form.formula)}"]
    return "\n".join(lines) + "\n"


def _parameters(names: list[str]) -> str:
    return "*, " + ", ".join(f"{n}: float" for n in names) if names else ""


def _identifier(key: str) -> str:
    name = re.sub(r"\W", "_", key)
    return f"{name}_" if keyword.iskeyword(name) else name


def _code(expr: sympy.Expr) -> str:
    from sympy.printing.pycode import pycode

    text: str = pycode(expr, fully_qualified_modules=False)
    return text
