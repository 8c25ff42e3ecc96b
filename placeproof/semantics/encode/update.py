"""The optimizer's step: what it has to read, and what it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placeproof.core.program import Call
from placeproof.prove.terms import Index, Poly, Var, product, substitute
from placeproof.semantics.encode import compute
from placeproof.semantics.encode.context import CONSISTENCY, GRADIENT, NoMeaningError
from placeproof.semantics.encode.reference import tensor_norm, update_value, with_norms
from placeproof.semantics.encode.values import Pair, Piece, Scalar, Tensor, Value, Whole

if TYPE_CHECKING:
    from placeproof.semantics.encode.execute import Walk


def update(walk: Walk, call: Call, operands: list[Whole], results: int) -> Pair:
    """New parameters and optimizer state, on the elements whose state and gradient the device has."""
    ctx = walk.ctx
    parameters, optimizer, gradients = operands[:3]
    if not (isinstance(parameters, Tensor) and isinstance(optimizer, Tensor) and isinstance(gradients, Tensor)):
        raise NoMeaningError("`update` takes parameters, optimizer state and gradients", call.place)
    rest = operands[3:]
    if not parameters.region == optimizer.region == gradients.region:
        return Pair(ctx.unknown_tensor(parameters), ctx.unknown_tensor(optimizer))
    _require_one_flag(walk, call, rest)
    new: dict[str, dict[str, Piece]] = {"parameters": {}, "optimizer": {}}
    for group in gradients.pieces:
        if group not in parameters.pieces or group not in optimizer.pieces:
            raise NoMeaningError(f"`update` gets no parameters or no optimizer state of group `{group}`", call.place)
        theta, omega, g = (t.pieces[group] for t in (parameters, optimizer, gradients))
        held = omega.held | g.held
        _require_inputs(walk, group, (theta, omega, g), held | theta.held)
        where = ctx.where(group, held)
        for state, old in (("parameters", theta), ("optimizer", omega)):
            value = _new_value(walk, call, state, group, (theta.body, omega.body, g.body), where, rest)
            body = product(where, value) + old.body - product(where, old.body)
            new[state][group] = Piece(body=body, held=old.held)
            if state == "parameters":
                ctx.written.setdefault(group, (value, held | theta.held))
    return Pair(
        replace(parameters, pieces={**parameters.pieces, **new["parameters"]}),
        replace(optimizer, pieces={**optimizer.pieces, **new["optimizer"]}),
    )


def _require_one_flag(walk: Walk, call: Call, rest: list[Whole]) -> None:
    """All devices agree whether the step is skipped."""
    flag = next((o for o in rest if isinstance(o, Scalar) and call.op == "update"), None)
    if flag is not None:
        first = {c.name: walk.world.rank(f, 0) for f, c in walk.world.here.items() if isinstance(c, Var)}
        walk.ctx.require("all devices agree whether to skip the step", CONSISTENCY, flag.body, substitute(flag.body, first))


def _new_value(walk: Walk, call: Call, state: str, group: str, operands: tuple[Poly, Poly, Poly], where: Poly, rest: list[Whole]) -> Poly:
    norms = next((o for o in rest if isinstance(o, Scalar) and call.op == "update_with"), None)
    if norms is not None:
        value = with_norms(walk.world, state, operands, norms.body)
    else:
        value = update_value(walk.world, state, group, operands, where)
    flag = next((o for o in rest if isinstance(o, Scalar) and call.op == "update"), None)
    if flag is None:
        return value
    return compute.elementwise("unless", flag.body, operands[0] if state == "parameters" else operands[1], value)


def _require_inputs(walk: Walk, group: str, pieces: tuple[Piece, Piece, Piece], held: frozenset[tuple[str, str]]) -> None:
    """The claims of an update: the gradient is the reference's, the states are those of this step."""
    ctx, world = walk.ctx, walk.world
    theta, omega, g = pieces
    of = "" if world.groups == ("all",) else f" ({group})"
    for at in ctx.owner_of(group, held):
        end = _which_end(walk, group, at)
        ctx.require(f"update reads the parameters of this step{of}{end}", CONSISTENCY, theta.body, world.theta(group), at)
        ctx.require(f"update reads the optimizer state of this step{of}{end}", CONSISTENCY, omega.body, world.omega(group), at)
        expected = walk.reference.gradient(group)
        ctx.require(f"update reads the gradient of the global batch{of}{end}", GRADIENT, g.body, expected, at)


def _which_end(walk: Walk, group: str, at: dict[str, Index]) -> str:
    tied = walk.world.tied(group)
    if tied is None:
        return ""
    found = at.get(f"d.{tied}")
    return "" if found is None else ", first stage" if found == walk.world.rank(tied, 0) else ", last stage"


def tensor_norms(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    """Of each tensor, the sum over the elements that the device has of what a layer-wise optimizer needs."""
    theta, omega, g = operands
    if not (isinstance(theta, Tensor) and isinstance(omega, Tensor) and isinstance(g, Tensor)):
        raise NoMeaningError("`tensor_norms` takes parameters, optimizer state and gradients", call.place)
    if len(g.pieces) != 1:
        raise NoMeaningError("`tensor_norms` of one group at a time", call.place)
    (group,) = g.pieces
    held = walk.ctx.where(group, omega.pieces[group].held | g.pieces[group].held)
    body = tensor_norm(walk.world, group, (theta.pieces[group].body, omega.pieces[group].body, g.pieces[group].body), held)
    return Scalar(body=body, of_tensors=True)
