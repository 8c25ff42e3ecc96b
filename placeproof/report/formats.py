"""A derivation as LaTeX, as Markdown, and as a Python module."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

from placeproof.cost.conventions import conventions
from placeproof.cost.derive import Derivation
from placeproof.cost.uneven import NOTES, named
from placeproof.report.text import LABELS

if TYPE_CHECKING:
    import sympy


_GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "lambda", "mu", "omega", "phi", "psi", "sigma", "tau")


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
            key, _, of = name.partition("(")
            return f"\\mathrm{{{_escape(key)}}}(\\mathrm{{{_spaced(of.removesuffix(')'))}}})" if of.endswith(")") else _spaced(name)
        head, _, tail = name.partition("_")
        shown = head if len(head) == 1 else f"\\{head}" if head in _GREEK else f"\\mathrm{{{head}}}"
        return f"{shown}_{{\\mathrm{{{_escape(tail)}}}}}" if tail else shown


def latex(d: Derivation) -> str:
    """The closed forms as one ``align*`` environment."""
    rows = [(f"\\text{{{LABELS[key]}}}", expr) for key, expr in d.memory.items()]
    rows += [("\\text{sent per device}", d.sent)]
    rows += [(f"\\quad\\text{{over {_escape(axis)}}}", expr) for axis, expr in d.by_axis.items() if len(d.by_axis) > 1]
    rows += [("\\text{host link}", d.host_link)] if d.host_link != 0 else []
    body = " \\\\\n".join(f"  {label} &= {expression_latex(expr)}" for label, expr in rows)
    return f"% {d.name}, bytes per device\n\\begin{{align*}}\n{body}\n\\end{{align*}}\n"


def _spaced(text: str) -> str:
    return f"\\mathrm{{{text}}}".replace("_", "\\_").replace("*", "\\times ").replace(" ", "\\ ")


def _escape(text: str) -> str:
    return text.replace("_", "\\_").replace("*", "$\\times$")


def markdown(d: Derivation) -> str:
    """The closed forms as Markdown tables."""
    lines = [f"# {d.name}", "", "| memory per device | bytes |", "|---|---|"]
    lines += [f"| {LABELS[key]} | `{expr}` |" for key, expr in d.memory.items()]
    lines += ["", "| collective | state | axes | phase | bytes | times |", "|---|---|---|---|---|---|"]
    for m in (*d.messages.messages, *d.messages.host):
        cells = (m.collective, m.state, ", ".join(m.axes), m.phase, f"`{m.bytes}`", f"`{m.count}`")
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"| **sent per device** | | | | `{d.sent}` | |", "", "| symbol | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {row.meaning} |" for name, row in d.symbols.items()]
    lines += ["", *(f"- {text}" for text in (*conventions(d), *(NOTES if d.amounts.uneven else ())))]
    return "\n".join(lines) + "\n"


def python(d: Derivation) -> str:
    """A module of plain functions, one a closed form; it needs nothing but the standard library."""
    lines = [f'"""{d.name}: closed forms in bytes per device, derived by placeproof."""', "", "from __future__ import annotations"]
    for key, expr in d.forms.items():
        names = [n for n in d.symbols if expr.has(named(n))]
        lines += ["", "", f"def {_identifier(key)}({_parameters(names)}) -> float:"]
        lines += [f'    """{key} of {d.name}."""', f"    return {_code(expr)}"]
    return "\n".join(lines) + "\n"


def _parameters(names: list[str]) -> str:
    return "*, " + ", ".join(f"{n}: float" for n in names) if names else ""


def _identifier(key: str) -> str:
    name = re.sub(r"\W", "_", key.split(".", 1)[1])
    return f"{name}_" if keyword.iskeyword(name) else name


def _code(expr: sympy.Expr) -> str:
    from sympy.printing.pycode import pycode

    text: str = pycode(expr, fully_qualified_modules=False)
    return text
