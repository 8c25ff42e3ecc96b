"""Numbers of a schedule as text, ``(p - 1) * (T_F + T_B)``: a subset of Python's expressions that is read with ``ast``, never executed.

One text has two meanings: an exact number where its names have values, and a SymPy expression. Both know ``+ - * / // %``, ``min``,
``max`` and one comparison.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from placeproof.core.diagnostics import InputError, Problems, suggestion

if TYPE_CHECKING:
    import sympy

Number: TypeAlias = int | Fraction
Meaning: TypeAlias = Callable[[Mapping[str, Number]], Any]


def _quotient(a: Number, b: Number) -> Number:
    return Fraction(a) / b


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SYMPY_COMPARE = {"==": "Eq", "!=": "Ne", "<": "Lt", "<=": "Le", ">": "Gt", ">=": "Ge"}
_EXTREMES: dict[str, Callable[..., Any]] = {"min": min, "max": max}


class ExpressionError(ValueError):
    """A text is no expression of the language. The message says what in it."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read. ``names``: what it speaks of, sorted."""

    text: str
    names: tuple[str, ...]
    tree: ast.expr = field(repr=False, compare=False)
    _meaning: Meaning = field(repr=False, compare=False)

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
        except ZeroDivisionError as error:
            problems = Problems()
            shown = ", ".join(f"{name} = {values[name]}" for name in self.names)
            problems.add("PP112", f"`{self.text}` divides by zero at {shown}", help="write what is meant there: max(1, p - 1)")
            raise InputError(problems.found) from error

    def holds(self, values: Mapping[str, Number]) -> bool:
        """Whether a comparison holds. Raises as :meth:`value`."""
        return bool(self.value(values))

    def sympy(self) -> sympy.Basic:
        """The same as a SymPy expression; its symbols have no assumptions."""
        return _sympy(self.tree)


def read(text: str, names: Iterable[str]) -> Expression:
    """Read an expression about some names. Raises ExpressionError for other names, and for anything that is not in the language."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"`{text}` is no expression") from error
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and type(tree.ops[0]) in _COMPARE:
        parts = [tree.left, *tree.comparators]
    else:
        parts = [tree]
    found = {name for part in parts for name in _names(part, frozenset(names))}
    return Expression(text=text.strip(), names=tuple(sorted(found)), tree=tree, _meaning=_meaning(tree))


def _names(node: ast.expr, known: frozenset[str]) -> Iterator[str]:
    """The names of an expression; every node is of a kind that is known."""
    match node:
        case ast.Name(id=name):
            if name not in known:
                hint = suggestion(name, known) or f"known are {', '.join(sorted(known))}"
                raise ExpressionError(f"`{name}` is no number of a schedule here; {hint}")
            yield name
            return
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            parts: list[ast.expr] = []
        case ast.UnaryOp(op=ast.USub(), operand=one):
            parts = [one]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            parts = [left, right]
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as parts, keywords=[]):
            pass
        case _:
            raise ExpressionError(f"`{ast.unparse(node)}` is not in the language: whole numbers, names, + - * / // %, min and max")
    for part in parts:
        yield from _names(part, known)


def _meaning(node: ast.expr) -> Meaning:
    """What an expression comes to, as a function of the values of its names."""
    match node:
        case ast.Constant(value=constant):
            return lambda _: constant
        case ast.Name(id=name):
            return lambda values: values[name]
        case ast.UnaryOp(operand=one):
            inner = _meaning(one)
            return lambda values: -inner(values)
        case ast.BinOp(left=left, op=op, right=right):
            return _joined(_BINARY[type(op)], left, right)
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            return _joined(_COMPARE[type(relation)], left, right)
        case ast.Call(func=ast.Name(id=called), args=arguments):
            extreme, made = _EXTREMES[called], [_meaning(a) for a in arguments]
            return lambda values: extreme(one(values) for one in made)
    raise AssertionError(ast.dump(node))


def _joined(make: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr) -> Meaning:
    a, b = _meaning(left), _meaning(right)
    return lambda values: make(a(values), b(values))


def _sympy(node: ast.expr) -> Any:
    import sympy

    match node:
        case ast.Constant(value=constant):
            return sympy.Integer(constant)
        case ast.Name(id=name):
            return sympy.Symbol(name)
        case ast.UnaryOp(operand=one):
            return -_sympy(one)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return sympy.floor(_sympy(left) / _sympy(right))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _sympy(left) / _sympy(right)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return sympy.Mod(_sympy(left), _sympy(right))
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_sympy(left), _sympy(right))
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            word = ast.unparse(ast.Compare(ast.Name("a"), [relation], [ast.Name("b")])).split()[1]
            return getattr(sympy, _SYMPY_COMPARE[word])(_sympy(left), _sympy(right))
        case ast.Call(func=ast.Name(id=called), args=arguments):
            return getattr(sympy, called.capitalize())(*map(_sympy, arguments))
    raise AssertionError(ast.dump(node))
