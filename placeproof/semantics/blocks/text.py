"""The text of a block's program: the names in it, and where its statements stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placeproof.core.diagnostics import Place
from placeproof.core.program import Assign, Binary, Call, Do, Expr, Program, Ref, Stmt, expressions, own_expressions, render

#: Operations whose first operand is a function's name.
_OF_FUNCTIONS = ("elementwise", "slope")
#: Options that name buffers.
_NAMING = ("gradient_of", "by", "at")


def names(program: Program) -> set[str]:
    """Every name that the program uses for a buffer or for a function."""
    found = {t.name for t in program.tensors}
    for stmt in program.body:
        found |= read_names(stmt) | written_names(stmt)
    return found


def read_names(stmt: Stmt) -> set[str]:
    """The names in the expressions of a statement."""
    return {e.name for own in own_expressions(stmt) for e in expressions(own) if isinstance(e, Ref)}


def written_names(stmt: Stmt) -> set[str]:
    """What a statement assigns to."""
    return {t.name for t in stmt.targets} if isinstance(stmt, Assign) else set()


def renamed(program: Program, new: Mapping[str, str]) -> Program:
    """Buffers by other names."""
    if not new:
        return program
    return replace(program, body=tuple(_stmt(s, new) for s in program.body))


def _stmt(stmt: Stmt, new: Mapping[str, str]) -> Stmt:
    match stmt:
        case Assign():
            targets = tuple(replace(t, name=new.get(t.name, t.name)) for t in stmt.targets)
            return replace(stmt, targets=targets, value=_expr(stmt.value, new))
        case Do(call=call):
            options = tuple((o, new.get(v, v) if o in _NAMING else v) for o, v in call.options)
            return replace(stmt, call=replace(call, args=tuple(_expr(a, new) for a in call.args), options=options))
    return stmt


def _expr(expr: Expr, new: Mapping[str, str]) -> Expr:
    match expr:
        case Ref(name=name) if name in new:
            return replace(expr, name=new[name])
        case Binary(left=left, right=right):
            return replace(expr, left=_expr(left, new), right=_expr(right, new))
        case Call(args=args):
            function = args[:1] if expr.op in _OF_FUNCTIONS else ()
            return replace(expr, args=(*function, *(_expr(a, new) for a in args[len(function) :])))
    return expr


def placed(program: Program) -> Program:
    """The same program with the lines of its own text as places. It has no loops and no branches."""
    source, text = f"{program.name}.step", render(program).splitlines()
    first = len(text) - len(program.body)
    body: list[Stmt] = []
    for number, stmt in enumerate(program.body, first):
        place = Place(source=source, line=number + 1, column=1, length=len(text[number]), text=text[number])
        match stmt:
            case Assign(targets=targets, value=value, accumulate=accumulate):
                body.append(Assign(targets=targets, value=_at(value, place), accumulate=accumulate, place=place))
            case Do(call=call):
                moved = _at(call, place)
                assert isinstance(moved, Call)
                body.append(Do(call=moved, place=place))
    return replace(program, body=tuple(body))


def _at(expr: Expr, place: Place) -> Expr:
    match expr:
        case Call(op=op, args=args, axes=axes, options=options):
            return Call(op=op, args=tuple(_at(a, place) for a in args), axes=axes, options=options, place=place)
        case Binary(op=op, left=left, right=right):
            return Binary(op=op, left=_at(left, place), right=_at(right, place), place=place)
        case Ref(name=name):
            return Ref(name=name, place=place)
    return expr
