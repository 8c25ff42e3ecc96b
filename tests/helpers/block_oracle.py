"""Small edits of tensor programs, for the tests that compare proofs with brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from placeproof.blocks import text
from placeproof.core.diagnostics import InputError
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, Program, Stmt, check, read
from placeproof.programs.ir import Ref, calls, expressions, own_expressions, statements
from placeproof.programs.ops import OPS
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.tensors.execute import SymbolicRun
from placeproof.semantics.tensors.values import Space, Value


def block(name: str) -> Program:
    return read(text(name), source=f"{name}.step")


def in_expression(expr: Expr, old: Expr, new: Expr) -> Expr:
    """One node of an expression, known by identity, replaced."""
    if expr is old:
        return new
    if isinstance(expr, Call):
        return replace(expr, args=tuple(in_expression(a, old, new) for a in expr.args))
    if isinstance(expr, Binary):
        return replace(expr, left=in_expression(expr.left, old, new), right=in_expression(expr.right, old, new))
    return expr


def swapped(program: Program, old: Expr, new: Expr) -> Program:
    def inside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_with(stmt, old, new, inside) for stmt in body)

    return replace(program, body=inside(program.body))


def _with(stmt: Stmt, old: Expr, new: Expr, inside: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    match stmt:
        case Assign(value=value):
            return replace(stmt, value=in_expression(value, old, new))
        case For(body=body):
            return replace(stmt, body=inside(body))
        case Do(call=call):
            changed = in_expression(call, old, new)
            assert isinstance(changed, Call)
            return replace(stmt, call=changed)
    raise AssertionError(stmt)


def collectives(program: Program) -> Iterator[Call]:
    for stmt in statements(program.body):
        yield from (c for c in calls(stmt) if OPS[c.op].collective)


def collectives_taken_away(program: Program) -> list[tuple[str, Program]]:
    """The program without one collective, for each; named by the buffer that it was for."""
    found = []
    for stmt in statements(program.body):
        target = stmt.targets[0].name if isinstance(stmt, Assign) else "returns"
        for call in calls(stmt):
            if OPS[call.op].collective:
                found.append((f"{call.op} of {target}", swapped(program, call, call.args[0])))
    return found


_REDUCTIONS = ("sum", "mean", "max")


def edits(program: Program) -> list[tuple[str, Callable[[], Program]]]:
    """Every small edit of a program: a collective dropped, doubled or changed, operands exchanged or replaced, a line dropped."""
    shapes = _shapes(program)
    written = [t.name for t in program.tensors]
    found: list[tuple[str, Callable[[], Program]]] = []
    for stmt in statements(program.body):
        line = stmt.place.line if stmt.place else 0
        for own in own_expressions(stmt):
            for expr in expressions(own):
                like = [n for n in written if isinstance(expr, Ref) and n in shapes and shapes[n] == shapes.get(expr.name)]
                found += [(f"line {line}: {n}", m) for n, m in _edits_of(program, expr, like)]
        if isinstance(stmt, Assign):
            written.append(stmt.targets[0].name)
    return found


def _shapes(program: Program) -> dict[str, frozenset[str]]:
    """The dimensions of every buffer of numbers."""
    run = SymbolicRun(Space.of(program, one_device=True))
    run.all()
    return {n: v.dims for n, v in run.env.items() if isinstance(v, Value)}


def _axes(program: Program) -> tuple[str, ...]:
    return tuple(a.name for a in program.axes)


def _edits_of(program: Program, expr: Expr, names: list[str]) -> list[tuple[str, Callable[[], Program]]]:
    found: list[tuple[str, Expr]] = []
    match expr:
        case Call(op="returns"):
            return []
        case Call(op="shift"):
            found += [("shift dropped", expr.args[0]), ("shift doubled", replace(expr, args=(expr,)))]
            found.append(("shift the other way", replace(expr, options=(("by", "-1" if expr.option("by") in (None, "1") else "1"),))))
        case Call() if OPS[expr.op].collective:
            found.append((f"{expr.op} dropped", expr.args[0]))
            found.append((f"{expr.op} doubled", replace(expr, args=(expr,))))
            found.append((f"{expr.op} then summed", Call(op="all_reduce", args=(expr,), axes=expr.axes, place=expr.place)))
            if expr.op in ("all_reduce", "reduce_scatter"):
                kept = tuple(o for o in expr.options if o[0] != "op")
                found += [(f"{expr.op} by {op}", replace(expr, options=(*kept, ("op", op)))) for op in _REDUCTIONS]
        case Call(op="part"):
            found.append(("part dropped", expr.args[0]))
        case Call(op="elementwise" | "slope"):
            other = "slope" if expr.op == "elementwise" else "elementwise"
            found += [(f"{expr.op} dropped", expr.args[1]), (f"{other} for {expr.op}", replace(expr, op=other))]
        case Call(op="contract" | "total" | "largest"):
            summed = Call(op="all_reduce", args=(expr,), axes=_axes(program), place=expr.place)
            found.append(("summed once more", summed))
            if expr.op != "contract":
                found.append(("largest for total", replace(expr, op="largest" if expr.op == "total" else "total")))
        case Binary():
            found.append(("operands exchanged", replace(expr, left=expr.right, right=expr.left)))
            found += [(f"`{op}` for `{expr.op}`", replace(expr, op=op)) for op in "+-*/" if op != expr.op]
            found += [("left operand alone", expr.left), ("right operand alone", expr.right)]
        case Ref(name=name) if name in names:
            found += [(f"`{other}` for `{name}`", replace(expr, name=other)) for other in names if other != name]
            found.append((f"`{name}` summed", Call(op="all_reduce", args=(expr,), axes=_axes(program), place=expr.place)))
            found.append((f"`{name}` doubled", Binary(op="+", left=expr, right=expr, place=expr.place)))
    return [(name, lambda new=new: swapped(program, expr, new)) for name, new in found]  # type: ignore[misc]


def sensible(program: Program) -> bool:
    """Whether the program is well formed and one device could run it: an edit that is nonsense says nothing about proofs."""
    try:
        check(program)
        SymbolicRun(Space.of(program, one_device=True)).all()
    except (InputError, NoMeaningError):
        return False
    return True
