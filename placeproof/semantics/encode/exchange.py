"""What collectives do, as terms: a reduction is a sum over coordinates, a gather reads the owner's coordinate."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from placeproof.programs import Call
from placeproof.prove.terms import (
    ZERO,
    Index,
    Poly,
    Var,
    choose,
    constant,
    greatest,
    inverse,
    product,
    same,
    substitute,
    substitute_index,
    total,
)
from placeproof.semantics.encode.compute import application, largest
from placeproof.semantics.encode.context import Context, NoMeaningError
from placeproof.semantics.encode.values import Piece, Scalar, Stream, Tensor, Whole
from placeproof.semantics.encode.world import E_BLOCK, World


def exchange(ctx: Context, call: Call, value: Whole) -> Whole:
    """The result of a collective on the device that is spoken of."""
    if not isinstance(value, Tensor | Stream | Scalar):
        raise NoMeaningError(f"`{call.op}` of what a forward kept", call.place)
    if call.op != "tied_reduce" and isinstance(value, Tensor) and any(ctx.world.shared(g) in call.axes for g in value.pieces):
        raise NoMeaningError(f"`{call.op}` of weights that stages share, over these stages", call.place)
    if isinstance(value, Scalar) and value.of_tensors is not None:
        _require_same_tensors(ctx.world, call, value.of_tensors)
    root = call.option("root")
    op = {"broadcast": "all_gather", "reduce": "reduce_scatter"}.get(call.op, call.op) if root == "owner" else call.op
    match op:
        case "all_reduce" | "reduce_scatter":
            whole = value.map(lambda body: combined(ctx.world, call, body))
            return own_part(ctx, call, whole) if op == "reduce_scatter" else whole
        case "all_gather":
            return _all_gather(ctx, call, value)
        case "broadcast":
            at = _root(ctx, call)
            return value.map(lambda body: substitute(body, at))
        case "reduce":
            return _reduce(ctx, call, value, _root(ctx, call))
        case "tied_reduce":
            return _tied_reduce(ctx, call, value)
        case "all_to_all" if call.option("order") and isinstance(value, Tensor):
            return own_part(ctx, call, _all_gather(ctx, call, value, "matrices" if call.option("order") == "blocked" else "blocked"))
    raise NoMeaningError(f"`{call.op}`: which dimensions it exchanges is not said", call.place)


def _require_same_tensors(world: World, call: Call, group: str) -> None:
    """Numbers of tensors are those of the tensors that a device has: of other layers, or other experts, they are other numbers."""
    for axis in call.axes:
        if world.axis_of(axis).splits.stages or world.is_expert_axis(group, axis):
            message = f"`{call.op}` over `{axis}` of numbers of tensors of which its devices have different ones"
            raise NoMeaningError(message, call.place)


def coordinates(world: World, call: Call) -> list[Var]:
    """The device's coordinates along the collective's axes, as far as they have more than one value."""
    coordinates = (world.here[f] for f in world.factors(call.axes))
    return [v for v in coordinates if isinstance(v, Var)]


def combined(world: World, call: Call, body: Poly) -> Poly:
    """A reduction of one number of each device of the group."""
    op = call.choice("op")
    variables = coordinates(world, call)
    if op == "max":
        several = application(body, "max")
        return largest(*(greatest(variables, p) for p in (several.args if several is not None else (body,)) if isinstance(p, Poly)))
    summed = total(variables, body)
    if op == "mean":
        return product(summed, *(inverse(world.size(f)) for f in world.factors(call.axes)))
    return summed


def own_part(ctx: Context, call: Call, value: Whole) -> Whole:
    """The device's own part of a full copy; garbage elsewhere."""
    factors = ctx.world.factors(call.axes)
    order = call.choice("order")
    if isinstance(value, Tensor):
        held = frozenset((f, order) for f in factors)
        return replace(value, pieces={g: Piece(body=ctx.owned(g, p.body, held), held=p.held | held) for g, p in value.pieces.items()})
    if isinstance(value, Stream) and len(factors) == 1 and value.held in (None, factors[0]):
        return ctx.held_stream(value.body, factors[0])
    if isinstance(value, Stream):
        return ctx.unknown_stream(value.held)
    raise NoMeaningError(f"`{call.op}` of a number", call.place)


def _all_gather(ctx: Context, call: Call, value: Whole, order: str = "blocked") -> Whole:
    """``order``: in which owners have what is gathered."""
    factors = ctx.world.factors(call.axes)
    if isinstance(value, Tensor):
        return replace(value, pieces={g: _gathered(ctx, g, p, factors, order) for g, p in value.pieces.items()})
    if not isinstance(value, Stream):
        return value
    if len(factors) > 1:
        return ctx.unknown_stream(value.held)
    coordinate = ctx.world.here[factors[0]]
    body = substitute(value.body, {coordinate.name: ctx.world.token_owner(factors[0])}) if isinstance(coordinate, Var) else value.body
    return Stream(body=body, held=None if value.held == factors[0] else value.held)


def _gathered(ctx: Context, group: str, piece: Piece, factors: tuple[str, ...], order: str) -> Piece:
    body = piece.body
    for factor in factors:
        coordinate = ctx.world.here[factor]
        if isinstance(coordinate, Var):
            body = substitute(body, {coordinate.name: ctx.world.owner(group, factor, order)})
    return Piece(body=body, held=frozenset(h for h in piece.held if h[0] not in factors))


def _root(ctx: Context, call: Call) -> dict[str, Index]:
    """The coordinates of the root: of a group over several axes, only the first device has a name."""
    factors, number = ctx.world.factors(call.axes), int(call.choice("root"))
    if number and len(factors) > 1:
        raise NoMeaningError("a root other than 0 of a group over several axes", call.place)
    return ctx.world.at_rank(number, factors)


def _reduce(ctx: Context, call: Call, value: Tensor | Stream | Scalar, root: dict[str, Index]) -> Whole:
    where = product(*(same(v, root[v.name]) for v in coordinates(ctx.world, call)))
    if isinstance(value, Scalar):
        return value.map(lambda body: choose(where, combined(ctx.world, call, body), ctx.unknown()))
    return ctx.termwise(value, lambda body, _, at: choose(where, combined(ctx.world, call, body), ctx.unknown(*at)))


def _tied_reduce(ctx: Context, call: Call, value: Whole) -> Whole:
    """The copies of a tied weight, on the first and the last stage, added up."""
    (factor,) = ctx.world.factors(call.axes)
    rank = ctx.world.here[factor]
    first, last = ctx.world.rank(factor, 0), ctx.world.rank(factor, -1)
    if not isinstance(rank, Var):
        return value
    apart, op = constant(1) - same(first, last), call.choice("op")
    if op == "max":
        raise NoMeaningError("`tied_reduce` that takes the greatest", call.place)
    share = constant(1) if op == "sum" else constant(1) - product(constant(Fraction(1, 2)), apart)

    def both(body: Poly) -> Poly:
        return product(share, substitute(body, {rank.name: first}) + product(apart, substitute(body, {rank.name: last})))

    def added(group: str, piece: Piece) -> Poly:
        if ctx.world.shared(group) != factor:
            return both(piece.body) if ctx.world.tied(group) == factor else piece.body
        own = ctx.world.owner(group, factor)  # the stage of a block: of the first one the first, of the last one the last

        def other(_: Index, block: Index) -> Poly:
            at = {rank.name: substitute_index(own, {E_BLOCK.name: block}), E_BLOCK.name: block}
            return product(same(rank, own), substitute(piece.body, at))

        summed = ctx.world.with_shared(group, piece.body, other)
        if op == "sum":
            return summed
        at_end = sum((product(same(rank, stage), same(E_BLOCK, block)) for stage, block in ctx.world.ends), ZERO)
        return product(constant(1) - product(constant(Fraction(1, 2)), apart, at_end), summed)

    if not isinstance(value, Tensor):
        raise NoMeaningError("`tied_reduce` of something other than gradients", call.place)
    return value.by_group(added)
