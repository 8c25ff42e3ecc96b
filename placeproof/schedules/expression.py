"""Numbers of a schedule as text, ``(p - 1) * (T_F + T_B)``: a subset of Python's expressions that is read with ``ast``, never executed.

One text has two meanings: an exact number where its names have values, and a SymPy expression. Both know ``+ - * / // %``, ``min``,
``max`` and one comparison.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from placeproof.core.diagnostics import refuse, suggestion
from placeproof.core.formula import MOST_CHARACTERS, NUMBERS, RELATIONS, ForeignError, Language, Meaning, Table, parse

if TYPE_CHECKING:
    import sympy

Number: TypeAlias = int | Fraction

_NUMBERS: Table = {**NUMBERS, ast.Div: lambda a, b: Fraction(a) / b, "min": min, "max": max}
_AT_LEAST_TWO = range(2, MOST_CHARACTERS)
#: The parts of a comparison, of which there is one at most, are of the first language.
_NUMBER = Language(table=_NUMBERS, arguments={"min": _AT_LEAST_TWO, "max": _AT_LEAST_TWO})
_RELATION = Language(table={**_NUMBERS, **RELATIONS})


class ExpressionError(ValueError):
    """A text is no expression of the language. The message says what in it."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read. ``names``: what it speaks of, sorted."""

    text: str
    names: tuple[str, ...]
    tree: ast.expr = field(repr=False, compare=False)
    _meaning: Meaning = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, tuple[str, tuple[str, ...]]]:
        return read, (self.text, self.names)  # its meaning is made of functions that are sent to no other process

    @property
    def relation(self) -> bool:
        """Whether it compares two numbers."""
        return isinstance(self.tree, ast.Compare)

    def value(self, values: Mapping[str, Number]) -> Any:
        """Its exact value: an int or a Fraction, and of a comparison a bool.

        Raises KeyError for a name without a value, InputError (PP112) where it divides by zero.
        """
        try:
            return self._meaning(values)
        except ZeroDivisionError:
            shown = ", ".join(f"{name} = {values[name]}" for name in self.names)
            refuse("PP112", f"`{self.text}` divides by zero at {shown}", help="write what is meant there: max(1, p - 1)")

    def holds(self, values: Mapping[str, Number]) -> bool:
        """Whether a comparison holds. Raises as :meth:`value`."""
        return bool(self.value(values))

    def sympy(self) -> sympy.Basic:
        """The same as a SymPy expression; its symbols have no assumptions."""
        import sympy

        table: Table = {
            **_RELATION.table,
            ast.Div: operator.truediv,
            ast.FloorDiv: lambda a, b: sympy.floor(a / b),
            ast.Mod: lambda a, b: a - b * sympy.floor(a / b),  # the prover knows floors
            ast.Eq: sympy.Eq,
            ast.NotEq: sympy.Ne,
            "min": sympy.Min,
            "max": sympy.Max,
        }
        made = Language(table=table, lifted=sympy.sympify).meaning(self.tree)
        return made({name: sympy.Symbol(name) for name in self.names})


def read(text: str, names: Iterable[str]) -> Expression:
    """Read an expression about some names. Raises ExpressionError for other names, and for anything that is not in the language."""
    known = frozenset(names)
    try:
        parts = [tree := parse(text)]
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and type(tree.ops[0]) in RELATIONS:
            parts = [tree.left, *tree.comparators]
        used = {name for part in parts for name in _NUMBER.names(part, known.__contains__)}
    except ForeignError as error:
        if isinstance(error.node, ast.Name):
            hint = suggestion(error.node.id, known) or f"known are {', '.join(sorted(known))}"
            raise ExpressionError(f"`{error}` is no number of a schedule here; {hint}") from None
        raise ExpressionError(f"`{error}` is not in the language: whole numbers, names, + - * / // %, min and max") from None
    except ValueError as error:
        raise ExpressionError(f"`{text}` is no expression") from error
    return Expression(text.strip(), tuple(sorted(used)), tree, _RELATION.meaning(tree))
