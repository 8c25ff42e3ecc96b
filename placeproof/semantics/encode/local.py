"""The operations that need no other device: a table from operation to rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from placeproof.core.program import Call, Ref
from placeproof.prove.terms import App, Index, Poly, Var, app, fn, greatest, product, same, substitute, substitute_index, total
from placeproof.semantics.encode import compute
from placeproof.semantics.encode.context import CONSISTENCY, NoMeaningError
from placeproof.semantics.encode.exchange import own_part
from placeproof.semantics.encode.update import tensor_norms, update
from placeproof.semantics.encode.values import Batch, Pair, Piece, Saved, Scalar, Stream, Tensor, Value, Whole
from placeproof.semantics.encode.world import CHANNEL_AT, E_BLOCK, TOKEN_AT

if TYPE_CHECKING:
    from placeproof.semantics.encode.execute import Walk


Rule = Callable[["Walk", Call, list[Whole], int], "Value | Pair"]


def _kind(value: Whole, kind: type, call: Call) -> None:
    if not isinstance(value, kind):
        raise NoMeaningError(f"`{call.op}` gets a value of another kind", call.place)


def _batch(walk: Walk, operands: list[Whole]) -> Index | None:
    if operands and isinstance(operands[-1], Batch):
        return operands[-1].index
    if operands and isinstance(operands[-1], Scalar):
        number = operands[-1].body.number
        if number != 0:
            raise NoMeaningError("a micro-batch is named by a loop's variable, or is the first: 0", walk.ctx.place)
    return None


def _data(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    world = walk.world
    stage: Index = world.stage if world.stages is None else world.rank(world.stages, 0)
    return Stream(body=world.x(world.sample(_batch(walk, operands)), world.start("stage", stage)))


def _tokens(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    return Scalar(body=walk.world.tokens(walk.world.sample(_batch(walk, operands))))


def _forward(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value | Pair:
    w = operands[0]
    x = operands[1] if len(operands) > 1 else _data(walk, call, [], 1)
    if not isinstance(w, Tensor) or not isinstance(x, Stream):
        raise NoMeaningError("`forward` takes parameters and a stream", call.place)
    out, saved = compute.forward(walk.ctx, w, x)
    return Pair(out, saved) if results > 1 else out


def _backward(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value | Pair:
    w = operands[0]
    assert isinstance(w, Tensor)
    if len(operands) < 3:
        if w.region != walk.whole:
            raise NoMeaningError("a whole pass reads all of a stage's parameters", call.place)
        like = {g: _computed(walk, g) for g in w.pieces}
        sample = walk.world.sample(_batch(walk, operands[1:]))
        gradients = compute.whole_pass(walk.ctx, w, sample, like, walk.world.statistic(sample) if walk.world.coupled else None)
        return Pair(gradients, walk.ctx.unknown_stream()) if results > 1 else gradients
    saved, dx = _saved_and_gradient(call, operands)
    gradients = compute.gradient_of(walk.ctx, w, saved, dx)
    return Pair(gradients, compute.input_gradient(walk.ctx, w, saved, dx)) if results > 1 else gradients


def _backward_with(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    w, batch, statistic = operands
    if not isinstance(w, Tensor) or not isinstance(statistic, Scalar) or w.region != walk.whole:
        raise NoMeaningError("`backward_with` takes all parameters, a micro-batch and a statistic", call.place)
    like = {g: _computed(walk, g) for g in w.pieces}
    return compute.whole_pass(walk.ctx, w, walk.world.sample(_batch(walk, [batch])), like, statistic.body)


def _computed(walk: Walk, group: str) -> frozenset[tuple[str, str]]:
    """The axis factors along which a device computes its own part of a group's gradient: those that split the computation."""
    held = set()
    for factor, order in walk.placed("parameters", group):
        axis = walk.program.axis(factor)
        assert axis is not None
        if axis.splits.compute or walk.world.is_expert_axis(group, axis.name):
            held.add((factor, order))
    return frozenset(held)


def _saved_and_gradient(call: Call, operands: list[Whole]) -> tuple[Saved, Stream]:
    saved, dx = operands[1], operands[2]
    if not isinstance(saved, Saved) or not isinstance(dx, Stream):
        raise NoMeaningError(f"`{call.op}` takes what a forward kept, and the gradient of its output", call.place)
    return saved, dx


def _backward_weight(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    w = operands[0]
    assert isinstance(w, Tensor)
    saved, dx = _saved_and_gradient(call, operands)
    whole = operands[3] if len(operands) > 3 else None
    return compute.gradient_of(walk.ctx, w, saved, dx, whole if isinstance(whole, Stream) else None)


def _backward_input(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    w = operands[0]
    assert isinstance(w, Tensor)
    return compute.input_gradient(walk.ctx, w, *_saved_and_gradient(call, operands))


def _loss(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    """The gradient of the loss with respect to the model's output, which the last stage has."""
    ctx, world, x = walk.ctx, walk.world, operands[0]
    if not isinstance(x, Stream):
        raise NoMeaningError("`loss` takes a stream", call.place)
    at = world.dropped or world.output
    sample = compute.sample_read(ctx, x, "x", (at,))
    if sample is None or sample != tuple(substitute_index(s, ctx.path) for s in world.sample(ctx.batch)):
        return ctx.unknown_stream(x.held)
    body = world.dx(sample, at)
    return compute.held_stream(ctx, product(world.statistic(sample), body) if world.coupled else body, x.held)


def _dropout(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    """A mask by a random key. Of the model's output, it is the reference's where the key is."""
    ctx, world = walk.ctx, walk.world
    x, key = operands
    if not isinstance(x, Stream) or not isinstance(key, Scalar):
        raise NoMeaningError("`dropout` takes a stream and a key", call.place)
    if world.dropped is None:
        return x.map(lambda body: product(app("mask", key.body, TOKEN_AT, CHANNEL_AT), body))
    wanted = world.sample_key(world.sample(ctx.batch))
    ctx.require("the dropout's key is that of the sample", CONSISTENCY, key.body, wanted)
    if ctx.here(key.body) != ctx.here(wanted):
        return ctx.unknown_stream(x.held)
    sample = compute.sample_read(ctx, x, "x", (world.output,))
    if sample is not None:
        return compute.held_stream(ctx, world.x(sample, world.dropped), x.held)
    factor = compute.coefficient(ctx, x, world.sample(ctx.batch), world.dropped)
    if factor is None:
        return ctx.unknown_stream(x.held)
    return compute.held_stream(ctx, product(factor, world.dx(world.sample(ctx.batch), world.output)), x.held)


def _statistics(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    w = operands[0]
    if not isinstance(w, Tensor):
        raise NoMeaningError("`statistics` takes parameters", call.place)
    fine = compute.reads_parameters(walk.ctx, w, "a statistic", gathered=True)
    return Scalar(body=walk.world.statistic(walk.world.sample(_batch(walk, operands[1:]))) if fine else walk.ctx.unknown())


def _output(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    saved = operands[0]
    if not isinstance(saved, Saved):
        raise NoMeaningError("`output` takes what a forward kept", call.place)
    return saved.output


def _same(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    return operands[0]


def _scale(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    value, factor = operands
    if not isinstance(factor, Scalar) or not isinstance(value, Tensor | Stream | Scalar):
        raise NoMeaningError("`scale` takes a tensor or a stream, and a number", call.place)
    return value.map(lambda body: product(body, factor.body))


def _part(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    return own_part(walk.ctx, call, operands[0])


def _rounded(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    value = operands[0]
    if "exact-quantizers" not in walk.world.options.without or not isinstance(value, Tensor | Stream | Scalar):
        return value
    return value.map(lambda body: compute.elementwise("rounded", body))


def _elementwise(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    name = call.args[0].name if isinstance(call.args[0], Ref) else "function"
    value = operands[0]
    if not isinstance(value, Tensor | Stream | Scalar):
        raise NoMeaningError("`elementwise` takes a tensor or a stream", call.place)
    return value.map(lambda body: compute.elementwise(f"elementwise {name}", body))


def _function(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    """A function of numbers; min and max do not care for the order of their operands."""
    bodies = [o.body for o in operands if isinstance(o, Scalar)]
    if len(bodies) != len(operands):
        raise NoMeaningError(f"`{call.op}` takes numbers", call.place)
    name = {"clip_factor": "clip"}.get(call.op, call.op)
    return Scalar(body=compute.elementwise(name, *(sorted(bodies) if name in ("min", "max") else bodies)))


def _square_norm(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    value = operands[0]
    if isinstance(value, Stream):
        return Scalar(body=total([TOKEN_AT, CHANNEL_AT], product(value.body, value.body)))
    if not isinstance(value, Tensor):
        raise NoMeaningError("`square_norm` takes a tensor", call.place)
    parts = [_over_held(walk, value, g, product(p.body, p.body)) for g, p in value.pieces.items()]
    return Scalar(body=sum(parts[1:], parts[0]))


def held_elements(walk: Walk, value: Tensor, group: str) -> Poly:
    """1 for the elements of a group that the device has in a buffer."""
    where = walk.ctx.where(group, value.pieces[group].held)
    region = value.region
    if region.domain == "stage":
        return where
    part: Index = E_BLOCK if region.domain == "blocks" else fn(f"{region.domain} of", (E_BLOCK,), region.index.sort)
    return product(where, same(part, region.index))


def _over_held(walk: Walk, value: Tensor, group: str, body: Poly) -> Poly:
    return total(walk.world.element(group), product(held_elements(walk, value, group), body))


def _found_inf(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    value = operands[0]
    if not isinstance(value, Tensor):
        raise NoMeaningError("`found_inf` takes a tensor", call.place)
    flags = []
    for group, piece in value.pieces.items():
        held = held_elements(walk, value, group)
        guards = held.terms[0][0].guards
        inside = compute.elementwise("not finite", _where(piece.body, held))
        flags.append(greatest(walk.world.element(group), inside, guards))
    return Scalar(body=flags[0] if len(flags) == 1 else app("max", *sorted(flags)))


def _where(body: Poly, held: Poly) -> Poly:
    """A body as it is where guards hold."""
    for left, right in sorted(held.terms[0][0].guards, key=lambda g: g[0].key):
        if isinstance(left, Var):
            body = substitute(body, {left.name: right})
    return body


def _random(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    factors = walk.world.factors(call.axes)
    return Scalar(body=app("random", *(walk.world.here[f] if f in factors else walk.world.rank(f, 0) for f in walk.world.sorts)))


def _master(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    """The full-precision copy in the optimizer state: of the reference's state, the reference's parameters."""
    state = operands[0]
    if not isinstance(state, Tensor):
        raise NoMeaningError("`master` takes optimizer state", call.place)
    pieces = {g: replace(p, body=_by_atom(p.body, f"omega.{g}", lambda a, g=g: _moved(walk, g, a))) for g, p in state.pieces.items()}  # type: ignore[misc]
    return replace(state, pieces=pieces)


def _moved(walk: Walk, group: str, atom: App) -> Poly:
    element = walk.world.element(group)
    at = {v.name: a for v, a in zip(element, atom.args, strict=True) if not isinstance(a, Poly)}
    return substitute(walk.world.theta(group), at)  # type: ignore[arg-type]


def _by_atom(body: Poly, name: str, make: Callable[[App], Poly]) -> Poly:
    """A function of a term that is known for one uninterpreted function, and arbitrary for every other."""

    def one(plain: Poly) -> Poly:
        single = plain.alone
        if single is not None and single[1] == 1 and len(single[0].factors) == 1:
            atom, exponent = single[0].factors[0]
            if isinstance(atom, App) and exponent == 1 and atom.name == name:
                return make(atom)
        return app(f"master of {name}", plain)

    from placeproof.prove.terms.cases import by_cases as told_apart

    return told_apart(one, body)


def _stale(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    value, steps = operands
    if not isinstance(value, Tensor) or not isinstance(steps, Scalar):
        raise NoMeaningError("`stale` takes a state and a number of steps", call.place)
    if steps.body.number is None or steps.body.number.denominator != 1 or steps.body.number < 0:
        raise NoMeaningError("`stale` takes a whole number of steps", call.place)
    if steps.body.number == 0:
        return value
    pieces = {}
    for group, piece in value.pieces.items():
        old = app(f"theta.{group} before", steps.body, *walk.world.element(group))
        pieces[group] = Piece(body=walk.ctx.owned(group, old, piece.held), held=piece.held)
    return replace(value, pieces=pieces)


LOCAL: dict[str, Rule] = {
    **dict.fromkeys(("copy", "cast", "dequantize", "to_host", "to_device"), _same),
    **dict.fromkeys(("sqrt", "clip_factor", "min", "max", "rescale"), _function),
    "data": _data,
    "tokens": _tokens,
    "forward": _forward,
    "backward": _backward,
    "backward_weight": _backward_weight,
    "backward_input": _backward_input,
    "loss": _loss,
    "output": _output,
    "scale": _scale,
    "part": _part,
    "quantize": _rounded,
    "elementwise": _elementwise,
    "square_norm": _square_norm,
    "found_inf": _found_inf,
    "random": _random,
    "master": _master,
    "stale": _stale,
    "update": update,
    "update_with": update,
    "tensor_norms": tensor_norms,
    "dropout": _dropout,
    "statistics": _statistics,
    "backward_with": _backward_with,
}
