"""Branches on a device's rank: their condition as a term, and what buffers hold after them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from placeproof.core.program import If
from placeproof.prove.terms import ONE, ZERO, Fn, Index, Poly, Sort, choose, same
from placeproof.semantics.encode.context import Context, NoMeaningError
from placeproof.semantics.encode.values import Piece, Saved, Scalar, Stream, Tensor, Value
from placeproof.semantics.encode.world import World

#: Two index terms, and whether the branch is taken where they are equal.
Condition: TypeAlias = tuple[Index, Index, bool]


def condition(world: World, stmt: If, bound: Poly) -> Condition:
    """A branch's condition as an equation between index terms, and whether it or its opposite is meant."""
    (factor,) = world.factors((stmt.axis,)) if len(world.factors((stmt.axis,))) == 1 else (None,)
    if factor is None:
        raise NoMeaningError(f"a condition on `{stmt.axis}`, which has sub-groups", stmt.place)
    here = world.here[factor]
    first, last = world.rank(factor, 0), world.rank(factor, -1)
    degree = world.size(factor)
    edges = {
        ("==", ZERO): (first, True),
        ("!=", ZERO): (first, False),
        (">", ZERO): (first, False),
        ("<=", ZERO): (first, True),
        ("<", ONE): (first, True),
        (">=", ONE): (first, False),
        ("==", degree - ONE): (last, True),
        ("!=", degree - ONE): (last, False),
        ("<", degree - ONE): (last, False),
        (">=", degree - ONE): (last, True),
    }
    found = edges.get((stmt.op, bound))
    if found is not None:
        return here, *found
    if stmt.op in ("==", "!=") and bound.number is not None and bound.number.denominator == 1:
        return here, world.rank(factor, int(bound.number)), stmt.op == "=="
    truth = Sort("truth", "truths")
    return Fn(f"rank {stmt.op} {bound.key}", (here,), truth), Fn("true", (), truth), True


def joined(ctx: Context, where: Condition, then: Value, other: Value) -> Value:
    """What a buffer holds after a branch: one value where the condition holds, the other elsewhere."""
    left, right, positive = where
    guard = same(left, right)
    if not positive:
        then, other = other, then
    match then, other:
        case Tensor(), Tensor() if then.region == other.region and set(then.pieces) == set(other.pieces):
            pieces = {
                g: Piece(body=choose(guard, p.body, other.pieces[g].body), held=p.held | other.pieces[g].held)
                for g, p in then.pieces.items()
            }
            return replace(then, pieces=pieces)
        case Stream(), Stream() if then.held == other.held:
            return Stream(body=choose(guard, then.body, other.body), held=then.held)
        case Scalar(), Scalar():
            return Scalar(body=choose(guard, then.body, other.body))
        case Saved(), Saved() if then == other:
            return then
    return ctx.unknown_stream()
