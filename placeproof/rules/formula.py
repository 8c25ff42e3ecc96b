"""Predicates about configurations, as text: a subset of Python's expressions that is read with ``ast`` and never executed.

``implies(cp > 1, seq % (2*cp) == 0)``: names are facts of a configuration, functions come from a table that the caller gives.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeAlias

from placeproof.core.diagnostics import Problems

#: What a fact may be: a number, a switch, a word, nothing, a list of these, or a mesh as (axis, degree) pairs, innermost first.
Fact: TypeAlias = int | bool | str | tuple[Any, ...] | None
Facts: TypeAlias = Mapping[str, Fact]
Function: TypeAlias = Callable[..., Any]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
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
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
#: Its conclusion is not computed where its premise does not hold: it may divide by what only the premise makes positive.
_IMPLIES = "implies"


def n_set(*facts: Fact) -> int:
    """How many of the settings are set."""
    return sum(fact is not None for fact in facts)


def pp_groups(mesh: tuple[tuple[str, int], ...]) -> frozenset[tuple[int, ...]]:
    """The groups of ranks along axis ``pp`` of a mesh that is given by its axes with their degrees, innermost first."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, outer_first in enumerate(product(*(range(degree) for _, degree in reversed(mesh)))):
        place = dict(zip((axis for axis, _ in reversed(mesh)), outer_first, strict=True))
        groups.setdefault(tuple(n for axis, n in place.items() if axis != "pp"), []).append(rank)
    return frozenset(map(tuple, groups.values()))


#: The functions that a rule's formula may use, beside ``implies``.
FUNCTIONS: dict[str, Function] = {"prod": prod, "min": min, "max": max, "len": len, "n_set": n_set, "pp_groups": pp_groups}


class FormulaError(ValueError):
    """A text is no formula. The message says what in it, and at which column from 1."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula that was read. ``names``: the facts that it speaks of, in the order in which they come."""

    text: str
    names: tuple[str, ...]
    tree: ast.expr = field(repr=False, compare=False)
    functions: Mapping[str, Function] = field(repr=False, compare=False)

    def value(self, facts: Facts) -> Any:
        """What it comes to for a configuration. Raises InputError for facts that are missing or that it cannot be computed of."""
        problems = Problems()
        for name in self.names:
            if name not in facts:
                problems.add("PP503", f"`{self.text}` asks for `{name}`, and it is not given", help=f"give a value of `{name}`")
        problems.raise_if_any()
        try:
            return _value(self.tree, facts, self.functions)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            shown = ", ".join(f"{name} = {facts[name]!r}" for name in self.names)
            problems.add("PP503", f"`{self.text}` cannot be computed for {shown}: {error}", help="degrees and sizes are at least 1")
            problems.raise_if_any()
            raise AssertionError("unreachable") from error

    def holds(self, facts: Facts) -> bool:
        """Whether a configuration is allowed."""
        return bool(self.value(facts))

    def sides(self, facts: Facts) -> tuple[Any, str, Any] | None:
        """The two sides of a comparison with their relation; None of a formula that is no single comparison."""
        match self.tree:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                shown = ast.unparse(ast.Compare(ast.Name("l"), [op], [ast.Name("r")]))[2:-2]
                return _value(left, facts, self.functions), shown, _value(right, facts, self.functions)
        return None


def read_formula(text: str, functions: Mapping[str, Function] = FUNCTIONS) -> Formula:
    """Read a formula. Raises FormulaError for anything that is not in the subset."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormulaError(f"`{text}` is no expression: {error}") from None
    names = tuple(dict.fromkeys(_names(tree, functions)))
    return Formula(text=text.strip(), names=names, tree=tree, functions=functions)


def _names(node: ast.expr, functions: Mapping[str, Function]) -> Iterator[str]:
    """The facts of an expression; every node is of a kind that is known."""
    match node:
        case ast.Name(id=name):
            if name in functions or name == _IMPLIES:
                raise _wrong(node, f"`{name}` is a function")
            yield name
            return
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in functions:
            pass
        case ast.Call(func=ast.Name(id="implies"), args=[_, _] as parts, keywords=[]):
            pass
        case ast.Constant(value=bool() | int() | str() | None):
            parts = []
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=one):
            parts = [one]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            parts = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(o) in _COMPARE for o in ops):
            parts = [left, *others]
        case ast.IfExp(test=test, body=body, orelse=other):
            parts = [test, body, other]
        case _:
            raise _wrong(node, f"`{ast.unparse(node)}` is not in the language of formulas")
    for part in parts:
        yield from _names(part, functions)


def _wrong(node: ast.expr, message: str) -> FormulaError:
    return FormulaError(f"column {node.col_offset + 1}: {message}")


def _value(node: ast.expr, facts: Facts, functions: Mapping[str, Function]) -> Any:
    def of(one: ast.expr) -> Any:
        return _value(one, facts, functions)

    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name):
            return facts[name]
        case ast.BoolOp(op=op, values=parts):
            decides = isinstance(op, ast.Or)
            found = ((p, of(p)) for p in parts)
            return next(value for p, value in found if bool(value) is decides or p is parts[-1])
        case ast.UnaryOp(op=ast.Not(), operand=one):
            return not of(one)
        case ast.UnaryOp(operand=one):
            return -of(one)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](of(left), of(right))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [of(left), *map(of, others)]
            return all(_COMPARE[type(o)](a, b) for o, a, b in zip(ops, values, values[1:], strict=False))
        case ast.IfExp(test=test, body=body, orelse=other):
            return of(body) if of(test) else of(other)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(map(of, parts))
        case ast.Call(func=ast.Name(id="implies"), args=[premise, conclusion]):
            return bool(of(conclusion)) if of(premise) else True
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return functions[name](*map(of, arguments))
    raise AssertionError(ast.dump(node))
