"""Predicates about configurations, as text: a subset of Python's expressions that is read with ``ast`` and never executed.

``implies(cp > 1, seq % (2*cp) == 0)``: names are facts of a configuration, functions come from a table that the caller gives.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import prod
from typing import Any, TypeAlias

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.formula import NUMBERS, RELATIONS, ForeignError, Language, Meaning, Sign, Table, parse

#: What a fact may be: a number, a switch, a word, nothing, a list of these, or a mesh as (axis, degree) pairs, innermost first.
Fact: TypeAlias = int | bool | str | tuple[Any, ...] | None
Facts: TypeAlias = Mapping[str, Fact]
Function: TypeAlias = Callable[..., Any]

_SIGNS: Table = {
    **NUMBERS,
    **RELATIONS,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Not: operator.not_,
    ast.Tuple: lambda *parts: parts,
    ast.List: lambda *parts: parts,
}
#: A conclusion is not computed where its premise does not hold: it may divide by what only the premise makes positive.
_LAZY: dict[Sign, Callable[..., Meaning]] = {
    ast.And: lambda *parts: reduce(lambda a, b: lambda facts: b(facts) if (first := a(facts)) else first, parts),
    ast.Or: lambda *parts: reduce(lambda a, b: lambda facts: first if (first := a(facts)) else b(facts), parts),
    ast.IfExp: lambda test, body, other: lambda facts: body(facts) if test(facts) else other(facts),
    "implies": lambda premise, conclusion: lambda facts: bool(conclusion(facts)) if premise(facts) else True,
}


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
    language: Language = field(repr=False, compare=False)
    _meaning: Meaning = field(repr=False, compare=False)

    def value(self, facts: Facts) -> Any:
        """What it comes to for a configuration. Raises InputError for facts that are missing or that it cannot be computed of."""
        problems = Problems()
        for name in self.names:
            if name not in facts:
                problems.add("PP503", f"`{self.text}` asks for `{name}`, and it is not given", help=f"give a value of `{name}`")
        problems.raise_if_any()
        try:
            return self._meaning(facts)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            shown = ", ".join(f"{name} = {facts[name]!r}" for name in self.names)
            refuse("PP503", f"`{self.text}` cannot be computed for {shown}: {error}", help="degrees and sizes are at least 1")

    def holds(self, facts: Facts) -> bool:
        """Whether a configuration is allowed."""
        return bool(self.value(facts))

    def sides(self, facts: Facts) -> tuple[Any, str, Any] | None:
        """The two sides of a comparison with their relation; None of a formula that is no single comparison."""
        match self.tree:
            case ast.Compare(left=left, ops=[relation], comparators=[right]):
                shown = ast.unparse(ast.Compare(ast.Name("l"), [relation], [ast.Name("r")]))[2:-2]
                return self.language.meaning(left)(facts), shown, self.language.meaning(right)(facts)
        return None


class _Dotted(ast.NodeTransformer):
    """Takes names with dots for single names."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.copy_location(ast.Name(ast.unparse(node)), node)


def read_formula(text: str, functions: Mapping[str, Function] = FUNCTIONS, *, dotted: bool = False) -> Formula:
    """Read a formula; ``dotted``: a name may have dots in it. Raises FormulaError for anything that is not in the subset."""
    table: Table = {**_SIGNS, **dict(functions.items())}
    language = Language(table=table, lazy=_LAZY, constants=(bool, int, str, type(None)), arguments={"implies": range(2, 3)})
    try:
        tree = _Dotted().visit(parse(text)) if dotted else parse(text)
        names = tuple(dict.fromkeys(language.names(tree, lambda name: name not in table and name not in _LAZY)))
    except ForeignError as error:
        wrong = "is a function" if isinstance(error.node, ast.Name) else "is not in the language of formulas"
        raise FormulaError(f"column {error.node.col_offset + 1}: `{error}` {wrong}") from None
    except ValueError as error:
        raise FormulaError(f"`{text}` is no expression: {error}") from None
    return Formula(text.strip(), names, tree, language, language.meaning(tree))
