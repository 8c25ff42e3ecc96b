"""The programs that many tests are about: every composition of the catalogue, and each with something taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Program, Stmt, calls, statements
from placeproof.programs.ops import OPS
from placeproof.semantics import catalogue
from placeproof.semantics.lower import lower
from placeproof.strategies import names, parse_strategy

#: Options beside one another, and one that takes a number. Every option by itself is a variant of the catalogue.
OPTIONS = [
    "fsdp(reshard_after_forward=2)",
    "fsdp(reshard_after_forward=false, prefetch=true)",
    "fsdp(root=keep, reshard_after_forward=2)",
    "zero3(root=keep, bucket=unit)",
]


@lru_cache(maxsize=1)
def compositions() -> list[str]:
    """Every composition of up to three strategies that the rules allow, and every option of the catalogue."""
    found = [text for text, program in (*catalogue.compositions(), *catalogue.variants()) if isinstance(program, Program)]
    return found + OPTIONS + [f"tp * sp * pp * {o}" for o in OPTIONS]


def without(expr: Expr, victim: Call) -> Expr:
    """The expression with one call replaced by its first operand."""
    if expr is victim:
        return victim.args[0]
    if isinstance(expr, Call):
        return replace(expr, args=tuple(without(a, victim) for a in expr.args))
    if isinstance(expr, Binary):
        return replace(expr, left=without(expr.left, victim), right=without(expr.right, victim))
    return expr


def body_without(body: tuple[Stmt, ...], victim: Call) -> tuple[Stmt, ...]:
    changed: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Assign):
            changed.append(replace(stmt, value=without(stmt.value, victim)))
        elif isinstance(stmt, Do):
            changed.append(stmt)
        elif isinstance(stmt, For):
            changed.append(replace(stmt, body=body_without(stmt.body, victim)))
        elif isinstance(stmt, If):
            changed.append(replace(stmt, then=body_without(stmt.then, victim), orelse=body_without(stmt.orelse, victim)))
    return tuple(changed)


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """The program with each of its collectives (or its scale) taken away, one at a time."""
    for stmt in statements(program.body):
        for call in calls(stmt):
            if (OPS[call.op].collective and call.op not in ("send", "recv")) or call.op == "scale":
                started = isinstance(stmt, Assign) and isinstance(stmt.value, Call) and stmt.value.op == "start"
                if not started:
                    yield (
                        f"{call.op} in line {stmt.place.line if stmt.place else 0}",
                        replace(program, body=body_without(program.body, call)),
                    )


def mutated() -> list[tuple[str, str]]:
    subjects = [n if n not in ("sp", "zero_r") else f"tp * {n}" for n in names()]
    subjects += [
        "zero1 * tp * pp",
        "zero3 * tp * sp * pp",
        "hsdp * accumulate",
        "fsdp(reshard_after_forward=2) * tp",
        "zero2(bucket=unit) * pp",
    ]
    return [(s, name) for s in subjects for name, _ in mutants(lower(parse_strategy(s)))]
