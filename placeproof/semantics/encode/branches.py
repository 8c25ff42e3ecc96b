"""Branches on a device's rank: their condition as a term, and what buffers hold after them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from placeproof.programs import If
from placeproof.programs.ranks import rank_bound
from placeproof.prove.terms import ONE, ZERO, Fn, Index, Poly, Sort, choose, same
from placeproof.semantics.encode.context import Context
from placeproof.semantics.encode.values import Batched, Saved, Value, Whole, both
from placeproof.semantics.encode.world import World

#: Two index terms, and whether the branch is taken where they are equal.
Condition: TypeAlias = tuple[Index, Index, bool]


def condition(world: World, stmt: If, bound: Poly) -> Condition | bool:
    """A branch's condition as an equation between index terms, and whether it or its opposite is meant; or whether all devices take it.

    Of two devices, that it is the last is said as that it is not the first, but of stages, whose messages speak of the last. Ranks below
    a number that is neither the first, the last nor beyond are those for which an uninterpreted predicate holds: one for each number, so
    that a condition and its opposite cover each device once.
    """
    factors = world.factors((stmt.axis,))
    if len(factors) > 1:
        return _by_predicate(world, stmt, bound)
    (factor,) = factors
    claim = _condition(world, stmt, factor, bound)
    if not isinstance(claim, bool) and world.sorts[factor].size == 2 and factor != world.stages and claim[1] == world.rank(factor, -1):
        return claim[0], world.rank(factor, 0), not claim[2]
    return claim


def _condition(world: World, stmt: If, factor: str, bound: Poly) -> Condition | bool:
    rank, degree = world.here[factor], world.size(factor)
    if stmt.op in ("==", "!="):
        equal = stmt.op == "=="
        if bound in (ZERO, degree - ONE):
            return rank, world.rank(factor, 0 if bound == ZERO else -1), equal
        if bound.number is not None and bound.number.denominator == 1 and bound.number > 0:
            return rank, world.rank(factor, int(bound.number)), equal
        return *_predicate("==", bound, rank), equal
    below = stmt.op in ("<", "<=")
    if rank_bound(stmt, world.program) is None:  # perhaps no whole number
        return *_predicate(stmt.op, bound, rank), True
    return _below(world, stmt, factor, bound + ONE if stmt.op in ("<=", ">") else bound, below)


def _below(world: World, stmt: If, factor: str, bound: Poly, below: bool) -> Condition | bool:
    """Ranks below a bound, or those that are not."""
    rank, degree = world.here[factor], world.size(factor)
    beyond = (bound - degree).number
    if (bound.number is not None and bound.number <= 0) or (beyond is not None and beyond >= 0):
        return (beyond is not None and beyond >= 0) is below
    first, last = (rank, world.rank(factor, 0), below), (rank, world.rank(factor, -1), not below)
    ends = [(ONE, first), (degree - ONE, last)]
    for end, claim in ends if stmt.op in ("<=", ">") else reversed(ends):  # of two devices, the one that is written
        if bound == end:
            return claim
    return *_predicate("<", bound, rank), below


def _by_predicate(world: World, stmt: If, bound: Poly) -> Condition:
    """Of an axis with sub-groups no rank has a name of its own."""
    ranks, op = (world.here[f] for f in world.factors((stmt.axis,))), stmt.op
    if rank_bound(stmt, world.program) is not None and op in ("<=", ">"):
        bound, op = bound + ONE, "<" if op == "<=" else ">="
    positive = {"!=": "==", ">=": "<"}.get(op, op)
    return *_predicate(positive, bound, *ranks), positive == op


def _predicate(op: str, bound: Poly, *ranks: Index) -> tuple[Index, Index]:
    truth = Sort("truth", "truths")
    return Fn(f"rank {op} {bound.key}", ranks, truth), Fn("true", (), truth)


def joined(ctx: Context, where: Condition, then: Value, other: Value) -> Value:
    """What a buffer holds after a branch: one value where the condition holds, the other elsewhere."""
    left, right, positive = where
    guard = same(left, right)
    if not positive:
        then, other = other, then
    if isinstance(then, Saved) and then == other:
        return then
    if isinstance(then, Batched) and isinstance(other, Batched) and (then.loop, then.variable) == (other.loop, other.variable):
        each = joined(ctx, where, *((then.value, other.value) if positive else (other.value, then.value)))
        return replace(then, value=each) if isinstance(each, Whole) else ctx.unknown_stream()
    return both(then, other, lambda a, b: choose(guard, a, b)) or ctx.unknown_stream()
