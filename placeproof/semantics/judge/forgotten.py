"""The sum that layers which are split lack: each that a step may have forgotten is put in, and said only if the step with it is proved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from placeproof.core.diagnostics import InputError
from placeproof.programs import Assign, Call, Expr, Program, Ref, Stmt, calls, render_head, statements
from placeproof.programs.ir import expressions, rewritten, with_expressions
from placeproof.semantics.encode import Options
from placeproof.semantics.judge.verdict import all_obligations_hold, judge

#: The most programs that are tried.
MOST = 16


def forgotten(program: Program, without: frozenset[str] = frozenset()) -> str | None:
    """In words, the line with a sum over an axis that splits layers with which a step is proved; None where there is none."""
    for stmt, changed in itertools.islice(_near(program), MOST):
        try:
            holds = all_obligations_hold(changed, Options(without=without | frozenset(program.without)))
            if holds and judge(changed, without=without, shortest=False).word == "proved":
                line = stmt.place.line if stmt.place is not None else 0
                return f"with `{render_head(stmt)}` instead of line {line}"
        except InputError:  # a line that this step cannot have
            continue
    return None


def _near(program: Program) -> Iterator[tuple[Stmt, Program]]:
    """A line with another sum of what layers pass on, and the program that has it."""
    made = {t.name for s in statements(program.body) for t in _passed_on(s)}
    for stmt in statements(program.body):
        for axis in (a.name for a in program.axes if not a.splits.batch and a.degree != 1):
            for changed in _summed(stmt, axis, made):

                def put(body: tuple[Stmt, ...], old: Stmt = stmt, new: Stmt = changed) -> tuple[Stmt, ...]:
                    return tuple(new if s is old else with_expressions(s, lambda e: e, put) for s in body)

                yield changed, replace(program, body=put(program.body))


def _passed_on(stmt: Stmt) -> tuple[Ref, ...]:
    """What a statement makes of activations by layers."""
    return stmt.targets[:1] if isinstance(stmt, Assign) and any(c.op == "forward" for c in calls(stmt)) else ()


def _summed(stmt: Stmt, axis: str, made: set[str]) -> Iterator[Stmt]:
    """A statement with one of what layers make, or of their gradients, summed over an axis."""
    if not isinstance(stmt, Assign):
        return
    for one in expressions(stmt.value):
        if (isinstance(one, Ref) and one.name in made) or (isinstance(one, Call) and one.op == "backward_input"):

            def wrapped(expr: Expr, one: Expr = one) -> Expr:
                return Call(op="all_reduce", args=(expr,), axes=(axis,)) if expr == one else expr

            yield replace(stmt, value=rewritten(stmt.value, wrapped))
