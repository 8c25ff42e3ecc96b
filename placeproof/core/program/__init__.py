"""Step programs: the intermediate representation, its text form, and its well-formedness."""

from placeproof.core.program.ir import (
    DEFAULT_GROUP,
    FIRST_UNIT,
    POSITIONS,
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    Group,
    If,
    Index,
    Number,
    Placed,
    Program,
    Ref,
    Stmt,
    calls,
    expressions,
    own_expressions,
    statements,
    walked,
)
from placeproof.core.program.parse import parse, read
from placeproof.core.program.printer import expression as render_expression
from placeproof.core.program.printer import head as render_head
from placeproof.core.program.printer import render
from placeproof.core.program.wellformed import check

__all__ = [
    "DEFAULT_GROUP",
    "FIRST_UNIT",
    "POSITIONS",
    "Assign",
    "Binary",
    "Call",
    "Do",
    "Expr",
    "For",
    "Group",
    "If",
    "Index",
    "Number",
    "Placed",
    "Program",
    "Ref",
    "Stmt",
    "calls",
    "check",
    "expressions",
    "own_expressions",
    "parse",
    "read",
    "render",
    "render_expression",
    "render_head",
    "statements",
    "walked",
]
