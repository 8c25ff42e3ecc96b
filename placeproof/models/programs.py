"""The programs of blocks: read by name or from a file, with their weights, and without the masks of dropout."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from placeproof.core import files as texts
from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.remembered import remembered
from placeproof.programs import POSITIONS, Assign, Binary, Call, Do, Expr, Program, Ref, Stmt, parse, read, reads
from placeproof.programs.ir import Tensor, calls, evaluated, references, with_buffers

#: What a block gives, the new stream, what a norm gives, or what is added to the stream behind a norm, -> what the next ones read it as.
WIRES = {"y": "x", "n": "n", "branch": "branch"}
#: How a stack names a block without its residual, and what that reads: what a norm gives, or the stream.
_BRANCH = re.compile(r"branch = (?P<block>.+)\((?P<of>n|x)\)")


@cache
def blocks() -> tuple[str, ...]:
    """The names of all blocks that come with this package."""
    return tuple(sorted(f.name.removesuffix(".step") for f in (files(__package__) / "blocks").iterdir() if f.name.endswith(".step")))


@cache
def block_program(name: str) -> Program:
    """The program of a block that comes with this package. Raises KeyError where there is none of that name.

    That these are well formed is left to the tests, which prove them: checking takes as long as reading.
    """
    if name not in blocks():
        raise KeyError(name)
    return parse(block_text(name), source=f"{name}.step")


def block_text(name: str) -> str:
    """What the file of such a block says, its comment included."""
    return (files(__package__) / "blocks" / f"{name}.step").read_text(encoding="utf-8")


@cache
def update_program(name: str) -> Program:
    """The program of what an update computes of a whole matrix, which comes with this package. Raises KeyError where there is none."""
    file = files(__package__) / "updates" / f"{name}.step"
    if not file.is_file():
        raise KeyError(name)
    return parse(file.read_text(encoding="utf-8"), source=file.name)


def block_file(path: Path) -> Program:
    """The program of a block in a file. Raises InputError where it cannot be read, or is no block."""
    text = texts.read_text(path, code="PP501", help="give the path of a readable program over tensors")
    program = read(text, source=str(path))
    if program.axes:
        message = "a block of a model is written for one device, and this one has a mesh"
        raise _unusable(path, message, "leave `mesh(...)` out: a strategy splits the block")
    if output(program) is None:
        message = "a block gives the new stream, `returns(y)`, or what the next block reads, `returns(n)`; this one gives neither"
        raise _unusable(path, message, "call what it gives `y` or `n`, and return it without `gradient_of`")
    return program


def _unusable(path: Path, message: str, help: str) -> InputError:
    return InputError([Diagnostic(code="PP504", message=f"{path}: {message}", help=help)])


def branch_of(name: str) -> tuple[str, str | None]:
    """The block that a stack names, and what its branch reads, `n` or `x`; None where the block stands as it is."""
    match = _BRANCH.fullmatch(name)
    return (match["block"], match["of"]) if match else (name, None)


def branch(program: Program, of: str) -> Program:
    """What a block adds to the stream, as a block of its own: without its residual, so that a norm can stand behind it.

    ``of``: what it reads, `n`, or `x` where no norm stands before it. Raises ValueError for a block that is no sum of the stream and
    of something that does not read it.
    """
    called = {"y": "branch", "dy": "dbranch"} | ({"n": "x"} if of == "x" else {})
    body = tuple(_without_stream(s) for s in program.body if not (isinstance(s, Do) and s.call.option("by") == "x"))
    if body == program.body or any(r.name == "x" for s in body for r in reads(s)):
        raise ValueError(f"`{program.name}` is no sum of the stream `x` and of what it computes from `n`")
    tensors = tuple(replace(t, name=called.get(t.name, t.name)) for t in program.tensors if t.name != "x")
    return replace(with_buffers(replace(program, body=body), called), tensors=tensors)


def _without_stream(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Assign) and stmt.targets[0].name == "y":
        return replace(stmt, value=_rest(stmt.value) or stmt.value)
    return stmt


def _rest(expr: Expr) -> Expr | None:
    """What stands behind `x +`; None where that is not how a sum begins."""
    match expr:
        case Binary(op="+", left=Ref(name="x"), right=right):
            return right
        case Binary(op="+", left=left) if (rest := _rest(left)) is not None:
            return replace(expr, left=rest)
    return None


def output(program: Program) -> str | None:
    """What a block gives, ``y``, ``n`` or ``branch``: its first `returns` that claims no gradient. None where it gives none of them."""
    for stmt in program.body:
        match stmt:
            case Do(call=Call(op="returns", args=(Ref(name=name),)) as call) if call.option("gradient_of") is None:
                return name if name in WIRES else None
    return None


@remembered
def weights(program: Program) -> tuple[Tensor, ...]:
    """The tensors of the header that belong to the model: without a dimension of positions, and no gradient that comes in."""
    incoming = {c.option("at") for stmt in program.body for c in calls(stmt) if c.op == "returns"}
    return tuple(t for t in program.tensors if POSITIONS.isdisjoint(t.dims) and t.name not in incoming)


def factors(program: Program) -> frozenset[str]:
    """The weights that are factors of products, which gains and biases are not."""
    every = (e for s in program.body for e in evaluated(s))
    found = {e.args[1].name for e in every if isinstance(e, Call) and e.op == "contract" and isinstance(e.args[1], Ref)}
    return frozenset(w.name for w in weights(program) if w.name in found)


def rows_reached(program: Program) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Weights of which one token reaches only some rows -> the dimension of these rows, and the dimensions that count them.

    They are picked: in forward, such a weight stands only beside what is computed from positions along one of its dimensions. Of a table
    that is looked up in, ``contract(hot(ids), table, over=vocab)``, a token reaches one row, so that there is nothing to count; of
    experts' weights as many as it has ``choices``. A router, or a head, is reached whole.
    """
    rows: dict[str, tuple[str, tuple[str, ...]]] = {}
    for pick in (t for t in program.tensors if t.picks is not None):
        beside = _beside(program, pick.name)
        for weight in weights(program):
            if pick.picks in weight.dims and beside.get(weight.name, False):
                rows[weight.name] = (pick.picks, tuple(d for d in pick.dims if d not in POSITIONS))
    return rows


def _beside(program: Program, pick: str) -> dict[str, bool]:
    """Every name that forward reads -> whether each of its statements reads something that is computed from the picks, too."""
    first = next((i for i, s in enumerate(program.body) if isinstance(s, Do)), len(program.body))
    computed, found = {pick}, dict[str, bool]()
    for stmt in program.body[:first]:
        names = {r.name for r in reads(stmt)}
        picked = not names.isdisjoint(computed)
        found.update({name: picked and found.get(name, True) for name in names})
        if picked and isinstance(stmt, Assign):
            computed.add(stmt.targets[0].name)
    return found


def without(program: Program, masks: Collection[str]) -> Program:
    """The program with these tensors of the header gone, as if all their elements were 1: a step without dropout.

    Each stands as a factor; raises ValueError where one is used otherwise.
    """
    gone = {t.name for t in program.tensors if t.name in masks}
    if not gone:
        return program
    body = tuple(_stmt_without(stmt, gone) for stmt in program.body)
    left = {r.name for stmt in body for r in reads(stmt)} & gone
    if left:
        raise ValueError(f"`{min(left)}` of `{program.name}` is no mere factor, so that it cannot be left out")
    return replace(program, tensors=tuple(t for t in program.tensors if t.name not in gone), body=body)


def without_gradients(program: Program, by: Collection[str]) -> Program:
    """The program that claims no gradient by these tensors of its header, and computes nothing that nothing else needs. They stay."""
    kept: list[Stmt] = []
    needed: set[str] = set()
    for stmt in reversed(program.body):
        if isinstance(stmt, Do) and stmt.call.option("by") in by:
            continue
        if isinstance(stmt, Assign) and needed.isdisjoint(t.name for t in stmt.targets):
            continue
        needed |= {r.name for r in reads(stmt)}
        kept.append(stmt)
    body = tuple(reversed(kept))
    used = {r.name for s in body for r in references(s)} | frozenset(by)
    used |= {value for s in body if isinstance(s, Do) for _, value in s.call.options}
    return replace(program, body=body, tensors=tuple(t for t in program.tensors if t.name in used))


def _stmt_without(stmt: Stmt, gone: Collection[str]) -> Stmt:
    if isinstance(stmt, Assign):
        return replace(stmt, value=_expr_without(stmt.value, gone))
    if isinstance(stmt, Do):
        call = _expr_without(stmt.call, gone)
        assert isinstance(call, Call)
        return replace(stmt, call=call)
    return stmt


def _expr_without(expr: Expr, gone: Collection[str]) -> Expr:
    match expr:
        case Binary(op="*", left=left, right=Ref(name=name)) if name in gone:
            return _expr_without(left, gone)
        case Binary(op="*", left=Ref(name=name), right=right) if name in gone:
            return _expr_without(right, gone)
        case Binary(left=left, right=right):
            return replace(expr, left=_expr_without(left, gone), right=_expr_without(right, gone))
        case Call(args=args):
            return replace(expr, args=tuple(_expr_without(a, gone) for a in args))
    return expr
