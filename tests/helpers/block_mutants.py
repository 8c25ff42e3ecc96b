"""Edits of programs over tensors: such as a person makes by mistake, and such as leave a program right.

An edit changes one place. `mutants` draws the place and the edit; what comes out is a text, which need not be well-formed.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from manual_block_interpreter import Run
from manual_tensors import UndecidedError, WrongError, draw_mesh

from placeproof.programs import Program, read, render
from placeproof.programs.ir import Assign, Binary, Call, Do, Expr, For, Number, Ref, Stmt, expressions, own_expressions, statements

Change = Callable[[random.Random, Program, Expr], "Expr | None"]
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "shift", "broadcast", "part")


def option(call: Call, name: str, value: str | None) -> Call:
    others = tuple((k, v) for k, v in call.options if k != name)
    return replace(call, options=(*others, (name, value)) if value is not None else others)


def dims_of(program: Program) -> dict[str, frozenset[str]]:
    """The dimensions of every buffer at the end, by a run on one device."""
    degrees = {a.name: 1 for a in program.axes}
    run = Run(program, draw_mesh(program, degrees, np.random.default_rng(0)), 0)
    with contextlib.suppress(UndecidedError, WrongError):
        run.run()
    return {name: frozenset(x.dims) for name, value in run.env.items() for x in value.values() if x is not None}


def dimensions(program: Program) -> list[str]:
    return sorted({d for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))})


def axes(program: Program) -> list[str]:
    return [a.name for a in program.axes]


# Edits of an expression that a person makes by mistake.


def dropped(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Call) and e.op in COLLECTIVES and e.args:
        return e.args[0]
    return None


def twice(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    return replace(e, args=(e,)) if isinstance(e, Call) and e.op in COLLECTIVES else None


def other_reduction(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Call) and e.op in ("all_reduce", "reduce_scatter"):
        now = e.choice("op")
        return option(e, "op", rng.choice([o for o in ("sum", "mean", "max") if o != now]))
    return None


def other_axis(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Call) and e.op in COLLECTIVES and len(program.axes) > 1:
        others = [a for a in axes(program) if a not in e.axes]
        return replace(e, axes=rng.choice([(rng.choice(others),), (*e.axes, others[0])] if others else [e.axes[:1]]))
    return None


def other_dimension(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    for name in ("dim", "over"):
        if isinstance(e, Call) and (now := e.option(name)) is not None:
            return option(e, name, rng.choice([d for d in dimensions(program) if d != now] or [now]))
    return None


def other_collective(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if not isinstance(e, Call) or e.op not in COLLECTIVES:
        return None
    op = rng.choice([o for o in COLLECTIVES if o != e.op and (o != "shift" or len(e.axes) == 1)])
    plain = replace(e, op=op, options=())
    if op in ("reduce_scatter", "part", "all_to_all"):
        return option(plain, "dim", e.option("dim") or rng.choice(dimensions(program)))
    return plain


def other_way(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Call) and e.op == "shift":
        return option(e, "by", None if e.option("by") == "-1" else "-1")
    return None


def swapped(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    return replace(e, left=e.right, right=e.left) if isinstance(e, Binary) and e.op in "-/" else None


def one_operand(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Binary):
        return rng.choice([e.left, e.right]) if e.op != "**" else e.left
    if isinstance(e, Call) and e.op in ("contract", "max", "scale"):
        return e.args[rng.randrange(1 if e.op == "scale" else 2)]
    if isinstance(e, Call) and e.op in ("elementwise", "slope"):
        return e.args[1]
    return e.args[0] if isinstance(e, Call) and e.op in ("total", "largest") else None


def other_operator(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Binary) and e.op in "+-*/":
        return replace(e, op={"+": "-", "-": "+", "*": rng.choice("/+"), "/": "*"}[e.op])
    return None


def other_number(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    return replace(e, value=rng.choice([e.value + 1, e.value - 1, e.value * 2, Fraction(1)])) if isinstance(e, Number) else None


def other_buffer(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if not isinstance(e, Ref):
        return None
    known = dims_of(program)
    like = [n for n, d in known.items() if n != e.name and d == known.get(e.name)]
    return replace(e, name=rng.choice(like)) if like else None


def other_function(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if not isinstance(e, Call) or e.op not in ("elementwise", "slope", "total", "largest"):
        return None
    if e.op in ("total", "largest"):
        return replace(e, op="largest" if e.op == "total" else "total")
    if rng.random() < 0.4:
        return replace(e, op="slope" if e.op == "elementwise" else "elementwise")
    return replace(e, args=(Ref(name=rng.choice(["gelu", "silu", "exp", "stop", "rsqrt", "reciprocal", "log"])), e.args[1]))


def inserted(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Number) or not program.axes:
        return None
    op = rng.choice(COLLECTIVES)
    call = Call(op=op, args=(e,), axes=(rng.choice(axes(program)),))
    if op == "all_reduce":
        return option(call, "op", rng.choice([None, "mean", "max"]))
    return option(call, "dim", rng.choice(dimensions(program))) if op in ("reduce_scatter", "part", "all_to_all") else call


def scaled(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Number):
        return None
    factor: Expr = Ref(name=rng.choice(axes(program))) if program.axes and rng.random() < 0.6 else Number(value=Fraction(2))
    return Binary(op=rng.choice("*/"), left=e, right=factor)


# Edits of an expression that leave it what it was.


def commuted(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Binary) and e.op in "+*":
        return replace(e, left=e.right, right=e.left)
    return replace(e, args=e.args[::-1]) if isinstance(e, Call) and e.op in ("contract", "max") else None


def there_and_back(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    if isinstance(e, Number) or (isinstance(e, Ref) and e.name in axes(program)):
        return None
    two, quarter = Number(value=Fraction(2)), Number(value=Fraction(1, 4))
    ways: list[Expr] = [
        Binary(op="*", left=Binary(op="/", left=e, right=two), right=two),
        Binary(op="-", left=Binary(op="+", left=e, right=e), right=e),
        Binary(op="+", left=Call(op="scale", args=(e, quarter)), right=Call(op="scale", args=(e, Number(value=Fraction(3, 4))))),
        Call(op="max", args=(e, e)),
    ]
    if program.axes:
        axis = rng.choice(axes(program))
        ways += [
            option(Call(op="shift", args=(Call(op="shift", args=(e,), axes=(axis,)),), axes=(axis,)), "by", "-1"),
            Binary(op="/", left=Binary(op="*", left=e, right=Ref(name=axis)), right=Ref(name=axis)),
        ]
    return rng.choice(ways)


def distributed(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    """A sum, a product or a collective of a sum as the sum of two; two sums in the other order."""
    if not isinstance(e, Call) or not e.args:
        return None
    first = e.args[0]
    if e.op in ("all_reduce", "reduce_scatter", "total", "shift", "all_gather", "all_to_all", "part", "contract") and e.option("op") in (
        None,
        "sum",
        "mean",
    ):
        if isinstance(first, Binary) and first.op in "+-":
            return replace(first, left=replace(e, args=(first.left, *e.args[1:])), right=replace(e, args=(first.right, *e.args[1:])))
        if isinstance(first, Call) and first.op == "total" == e.op:
            return replace(first, args=(replace(e, args=first.args),))
    return None


def spelt_otherwise(rng: random.Random, program: Program, e: Expr) -> Expr | None:
    """The same by other operations."""
    if isinstance(e, Call) and e.op == "all_reduce" and len(e.axes) == 1 and e.choice("op") == "sum":
        scattered = Call(op="reduce_scatter", args=e.args, axes=e.axes, options=(("dim", rng.choice(dimensions(program))),))
        mean = Binary(op="*", left=option(e, "op", "mean"), right=Ref(name=e.axes[0]))
        return rng.choice([mean, Call(op="all_gather", args=(scattered,), axes=e.axes)])
    if isinstance(e, Call) and e.op == "reduce_scatter":
        return option(replace(e, op="part", args=(Call(op="all_reduce", args=e.args, axes=e.axes),), options=()), "dim", e.option("dim"))
    if isinstance(e, Call) and e.op == "all_to_all":
        return replace(e, op="part", args=(Call(op="all_gather", args=e.args, axes=e.axes),))
    if isinstance(e, Call) and e.op == "contract":
        return Call(op="total", args=(Binary(op="*", left=e.args[0], right=e.args[1]),), options=e.options)
    if isinstance(e, Binary) and e.op == "/":
        return replace(e, op="*", right=Call(op="elementwise", args=(Ref(name="reciprocal"), e.right)))
    if isinstance(e, Call) and e.op == "elementwise" and e.args[0] == Ref(name="exp"):
        inner, whole = e.args[1], e
        if isinstance(inner, Binary) and inner.op in "+-":
            left, right = (replace(whole, args=(whole.args[0], x)) for x in (inner.left, inner.right))
            return Binary(op={"+": "*", "-": "/"}[inner.op], left=left, right=right)
    return None


WRONG_EDITS: tuple[Change, ...] = (
    dropped, dropped, twice, other_reduction, other_axis, other_dimension, other_collective, other_way, swapped, one_operand,
    other_operator, other_number, other_buffer, other_function, inserted, inserted, scaled,
)  # fmt: skip
RIGHT_EDITS: tuple[Change, ...] = (commuted, there_and_back, distributed, spelt_otherwise)


# One place of a program.


def rewritten(e: Expr, old: Expr, new: Expr) -> Expr:
    """An expression with one of its parts, the very object, replaced."""
    if e is old:
        return new
    if isinstance(e, Call):
        return replace(e, args=tuple(rewritten(a, old, new) for a in e.args))
    return replace(e, left=rewritten(e.left, old, new), right=rewritten(e.right, old, new)) if isinstance(e, Binary) else e


def mapped(body: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """Every statement replaced by others, those of loops as well."""
    found: list[Stmt] = []
    for stmt in body:
        for new in change(stmt):
            found.append(replace(new, body=mapped(new.body, change)) if isinstance(new, For) and new is stmt else new)
    return tuple(found)


def readable(program: Program) -> list[Expr]:
    """The parts of expressions that may be changed; the name of a function is none."""
    found = [e for s in statements(program.body) for own in own_expressions(s) for e in expressions(own)]
    names = {id(e.args[0]) for e in found if isinstance(e, Call) and e.op in ("elementwise", "slope")}
    return [e for e in found if id(e) not in names and not (isinstance(e, Call) and e.op == "returns")]


def in_expression(rng: random.Random, program: Program, changes: tuple[Change, ...]) -> Program | None:
    change = rng.choice(changes)
    places = [e for e in readable(program) if change(rng, program, e) is not None] if change is not other_buffer else readable(program)
    if not places:
        return None
    old = rng.choice(places)
    new = change(rng, program, old)
    if new is None:
        return None

    def at(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Assign):
            return (replace(stmt, value=rewritten(stmt.value, old, new)),)
        return (replace(stmt, call=rewritten(stmt.call, old, new)),) if isinstance(stmt, Do) else (stmt,)  # type: ignore[arg-type]

    return replace(program, body=mapped(program.body, at))


# Statements.


def other_statement(rng: random.Random, program: Program) -> Program | None:
    """One dropped, doubled, moved; `+=` for `=`; another target; other words of `returns`."""
    every = [s for s in statements(program.body) if not isinstance(s, For)]
    one, known = rng.choice(every), dims_of(program)
    new: tuple[Stmt, ...] = rng.choice([(), (one, one)])
    if isinstance(one, Assign) and rng.random() < 0.6:
        like = [n for n, d in known.items() if d == known.get(one.targets[0].name)] or [one.targets[0].name]
        new = (rng.choice([replace(one, accumulate=not one.accumulate), replace(one, targets=(Ref(name=rng.choice(like)),))]),)
    elif isinstance(one, Do) and (words := [k for k, _ in one.call.options]) and rng.random() < 0.8:
        new = (replace(one, call=option(one.call, rng.choice(words), rng.choice(list(known)))),)
    return replace(program, body=mapped(program.body, lambda s: new if s is one else (s,)))


def moved(rng: random.Random, program: Program) -> Program | None:
    """Two neighbours change places."""
    bodies = [program.body, *(s.body for s in statements(program.body) if isinstance(s, For))]
    body = rng.choice(bodies)
    if len(body) < 2:
        return None
    n = rng.randrange(len(body) - 1)
    a, b = body[n], body[n + 1]
    return replace(program, body=mapped(program.body, lambda s: (b,) if s is a else (a,) if s is b else (s,)))


def out_of_loop(rng: random.Random, program: Program) -> Program | None:
    """A statement of a loop stands before or behind it instead."""
    loops = [s for s in program.body if isinstance(s, For) and len(s.body) > 1]
    if not loops:
        return None
    loop = rng.choice(loops)
    one = rng.choice(loop.body)
    rest = replace(loop, body=tuple(s for s in loop.body if s is not one))
    pair: tuple[Stmt, ...] = rng.choice([(one, rest), (rest, one)])
    return replace(program, body=tuple(t for s in program.body for t in (pair if s is loop else (s,))))


def other_header(rng: random.Random, program: Program) -> Program | None:
    """A tensor is split otherwise."""
    if not program.axes:
        return None
    t = rng.choice(program.tensors)
    axis = rng.choice(axes(program))
    splits = [(axis, d) for d in t.dims] + [()]  # type: ignore[list-item]
    split = rng.choice([s for s in splits if (s,) != t.split])
    new = replace(t, split=(split,) if split else ())  # type: ignore[arg-type]
    return replace(program, tensors=tuple(new if x is t else x for x in program.tensors))


def renamed(rng: random.Random, program: Program) -> Program | None:
    """A buffer has another name everywhere, or a value gets a name of its own."""
    every = [s for s in program.body if isinstance(s, Assign)]
    if not every:
        return None
    one = rng.choice(every)
    if rng.random() < 0.5:
        new: tuple[Stmt, ...] = (replace(one, targets=(Ref(name="fresh"),), accumulate=False), replace(one, value=Ref(name="fresh")))
        return replace(program, body=mapped(program.body, lambda s: new if s is one else (s,)))
    return read(re.sub(rf"\b{one.targets[0].name}\b(?!=)", "fresh", render(program)))


def edited(rng: random.Random, program: Program) -> Program | None:
    """A program with one edit of any kind, or None where the drawn one has no place."""
    chance = rng.random()
    if chance < 0.55:
        return in_expression(rng, program, WRONG_EDITS)
    if chance < 0.85:
        return in_expression(rng, program, RIGHT_EDITS) if chance < 0.77 else renamed(rng, program)
    return rng.choice([other_statement, moved, out_of_loop, other_header])(rng, program)


def mutants(rng: random.Random, programs: list[Program]) -> Iterator[tuple[Program, str]]:
    """Programs and texts of their mutants, without end: one edit mostly, or two. Short programs come up more often."""
    weights = [len(list(statements(p.body))) ** -1.5 for p in programs]
    while True:
        (before,) = rng.choices(programs, weights)
        program: Program | None = before
        for _ in range(rng.choice((1, 1, 1, 2))):
            program = edited(rng, program) if program is not None else None
        if program is not None:
            yield before, render(program)
