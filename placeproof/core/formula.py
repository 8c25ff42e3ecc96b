"""Formulas in files: subsets of Python's expressions, read with ``ast`` and never executed.

A :class:`Language` says what its formulas may use and what that does to values; names, messages and results are its owner's affair.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: What joins the parts of an expression: the class of an operator or of an expression, or the name of a function.
Sign: TypeAlias = type[ast.AST] | str
Table: TypeAlias = Mapping[Sign, Callable[..., Any]]
#: What an expression comes to, as a function of the values of its names. Raises KeyError for a name without a value.
Meaning: TypeAlias = Callable[[Mapping[str, Any]], Any]

#: Longer and deeper texts are refused: no formula is so long, and a reader must not run out of stack.
MOST_CHARACTERS, MOST_LEVELS = 2000, 120

ARITHMETIC: Table = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
NUMBERS: Table = {**ARITHMETIC, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg}
RELATIONS: Table = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class ForeignError(ValueError):
    """An expression uses what its language does not have. ``node``: the first that does, in the order of the text."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__(ast.unparse(node))
        self.node = node


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """``table``: what signs do to values. ``lazy``: what other signs do to the meanings of their parts, of which they may leave some
    uncomputed. ``constants``: their types. ``arguments``: how many a function takes, where not any number of them. ``lifted``: what is
    made of each constant and of each name's value before anything is computed of it.
    """

    table: Table
    lazy: Mapping[Sign, Callable[..., Meaning]] = field(default_factory=dict)
    constants: Container[type] = (int,)
    arguments: Mapping[Sign, Container[int]] = field(default_factory=dict)
    lifted: Callable[[Any], Any] | None = None

    def names(self, node: ast.expr, known: Callable[[str], bool] = lambda _: True) -> Iterator[str]:
        """The names of an expression in the order of the text. Raises ForeignError on reaching what is not in the language, or a name
        that is not known."""
        if isinstance(node, ast.Name) and known(node.id):
            yield node.id
        elif not self._has(node):
            raise ForeignError(node)
        for part in _parts(node):
            yield from self.names(part, known)

    def _has(self, node: ast.expr) -> bool:
        """Whether a constant, or what joins the parts of an expression, is in the language."""
        if isinstance(node, ast.Constant):
            return type(node.value) in self.constants
        count = len(_parts(node))
        return all((s in self.table or s in self.lazy) and count in self.arguments.get(s, (count,)) for s in _signs(node))

    def meaning(self, node: ast.expr) -> Meaning:
        """What an expression comes to; :meth:`names` has gone through it."""
        lifted, table = self.lifted, self.table
        match node:
            case ast.Name(id=name):
                return (lambda values: values[name]) if lifted is None else lambda values: lifted(values[name])
            case ast.Constant(value=value):
                constant = value if lifted is None else lifted(value)
                return lambda _: constant
        parts, signs = [self.meaning(part) for part in _parts(node)], _signs(node)
        if signs[0] in self.lazy:
            return self.lazy[signs[0]](*parts)
        makes = [table[sign] for sign in signs]
        return _chain(makes, parts) if len(makes) > 1 else _applied(makes[0], parts)


def parse(text: str) -> ast.expr:
    """The expression of a text. Raises ValueError that says why it is none, or which limit it exceeds."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None
    if is_too_deep(tree):
        raise ValueError(f"it has more than {MOST_LEVELS} levels")
    return tree


def repeated(tree: ast.AST) -> Iterator[ast.keyword]:
    """What calls say a second time by one name: Python refuses that when it compiles, and not when it reads."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        said = [keyword.arg for keyword in call.keywords]
        yield from (k for i, k in enumerate(call.keywords) if k.arg is not None and k.arg in said[:i])


def is_too_deep(tree: ast.AST) -> bool:
    """Whether the parts of a tree lie in more levels than are read."""
    level: list[Any] = [tree]
    for _ in range(MOST_LEVELS):
        fields = [value for node in level for value in vars(node).values()]
        level = [part for value in fields for part in (value if isinstance(value, list) else (value,)) if isinstance(part, ast.AST)]
        if not level:
            return False
    return True


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _signs(node: ast.expr) -> list[Sign]:
    match node:
        case ast.Compare(ops=relations):
            return [type(relation) for relation in relations]
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.BoolOp(op=op):
            return [type(op)]
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return [name]
    return [type(node)]


def _applied(make: Callable[..., Any], parts: list[Meaning]) -> Meaning:
    if len(parts) == 2:  # by far the most, and others cost twice the time
        left, right = parts
        return lambda values: make(left(values), right(values))
    return lambda values: make(*(part(values) for part in parts))


def _chain(makes: list[Callable[..., Any]], parts: list[Meaning]) -> Meaning:
    """``a < b < c``: all parts are computed, and then compared."""

    def compared(values: Mapping[str, Any]) -> bool:
        results = [part(values) for part in parts]
        return all(make(a, b) for make, a, b in zip(makes, results, results[1:], strict=False))

    return compared
