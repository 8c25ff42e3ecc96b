"""The operations that need no other device: a table from operation to rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from placeproof.programs import Call, Ref
from placeproof.programs.losses import counted, reduction
from placeproof.prove.terms import ZERO, Index, Poly, Var, app, by_cases, choose, each_case, greatest, product, same, substitute, total
from placeproof.semantics.encode import compute
from placeproof.semantics.encode.causes import of_gradient
from placeproof.semantics.encode.context import CONSISTENCY, GRADIENT, NoMeaningError
from placeproof.semantics.encode.exchange import own_part
from placeproof.semantics.encode.reference import line_sums, momentum, of_lines, orthogonalized, tensor_norm, update_value
from placeproof.semantics.encode.scope import domain_of
from placeproof.semantics.encode.values import Batch, Pair, Piece, Saved, Scalar, Stream, Tensor, Value, Whole
from placeproof.semantics.encode.world import CHANNEL_AT, TOKEN_AT, part_of_element

if TYPE_CHECKING:
    from placeproof.semantics.encode.execute import Walk


Rule = Callable[["Walk", Call, list[Any], int], "Value | Pair"]
_Kinds = tuple[tuple[type, ...], ...]


def compute_here(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value | Pair:
    """What an operation of the table gives. Raises NoMeaningError for operands of other kinds than it takes."""
    whole_pass = call.op == "backward" and len(operands) < 3
    kinds, wanted = (((Tensor,),), "parameters") if whole_pass else _TAKES.get(call.op, ((), ""))
    if not all(isinstance(operand, kind) for operand, kind in zip(operands, kinds, strict=False)):
        raise NoMeaningError(f"`{call.op}` takes {wanted}", call.place)
    walk.ctx.call = call
    return LOCAL[call.op](walk, call, operands, results)


def _batch(walk: Walk, operands: list[Whole]) -> Index | None:
    if operands and isinstance(operands[-1], Batch):
        return operands[-1].index
    if operands and isinstance(operands[-1], Scalar):
        number = operands[-1].body.number
        if number != 0:
            raise NoMeaningError("a micro-batch is named by a loop's variable, or is the first: 0", walk.ctx.place)
    return None


def _data(walk: Walk, call: Call, operands: list[Any], results: int) -> Stream:
    world = walk.world
    stage: Index = world.stage if world.stages is None else world.rank(world.stages, 0)
    return Stream(body=world.x(world.sample(_batch(walk, operands)), world.start("stage", stage)))


def _forward(walk: Walk, call: Call, operands: list[Any], results: int) -> Value | Pair:
    outcome = compute.forward(walk.ctx, *operands)
    return outcome if results > 1 else outcome[0]


def _backward(walk: Walk, call: Call, operands: list[Any], results: int) -> Value | Pair:
    ctx, world, w = walk.ctx, walk.world, operands[0]
    if len(operands) > 2:
        gradients = _trained(walk, compute.gradient_of(ctx, *operands))
        return (gradients, compute.input_gradient(ctx, *operands)) if results > 1 else gradients
    if w.region != walk.whole:
        raise NoMeaningError("a whole pass reads all of a stage's parameters", call.place)
    sample = world.sample(_batch(walk, operands[1:]))
    statistic = world.statistic(sample) if world.coupled else None
    return _trained(walk, compute.whole_pass(ctx, w, sample, _computed(walk, w), statistic, _reduced(walk, call)))


def _reduced(walk: Walk, call: Call) -> compute.Reduced:
    """Of which loss a pass, or its beginning, is, and over what."""
    loss, unit, summed = reduction(call)
    reduced = compute.Reduced(loss=loss, unit=unit, summed=summed)
    if walk.world.coupled and reduced != compute.Reduced():
        raise NoMeaningError("a loss over something else than tokens, with layers that use statistics of the batch", call.place)
    return reduced


def _trained(walk: Walk, gradients: Tensor) -> Tensor:
    """Gradients of the groups that have some."""
    return replace(gradients, pieces={g: p for g, p in gradients.pieces.items() if g in walk.program.trained})


def _backward_with(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    w, batch, statistic = operands
    if w.region != walk.whole:
        raise NoMeaningError(f"`{call.op}` takes {_TAKES[call.op][1]}", call.place)
    return _trained(walk, compute.whole_pass(walk.ctx, w, walk.world.sample(_batch(walk, [batch])), _computed(walk, w), statistic.body))


def _computed(walk: Walk, w: Tensor) -> dict[str, frozenset[tuple[str, str]]]:
    """The axis factors along which a device computes its own part of each group's gradient: those that split the computation."""
    return {g: frozenset(h for h in walk.placed("parameters", g) if walk.world.computes_part(g, h[0])) for g in w.pieces}


def _loss(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """The gradient of the loss with respect to the model's output, which the last stage has."""
    ctx, world, x = walk.ctx, walk.world, operands[0]
    at = world.dropped or world.output
    for where in (at, *(world.end(domain_of(v), v) for v in ctx.loops if v.sort != world.batch)):
        sample = compute.sample_read(ctx, x, "x", (where,))
        if sample is not None and sample == ctx.own_sample():
            of = _reduced(walk, call)
            body = choose(same(where, at), world.dx(sample, at, of.of), ctx.unknown(TOKEN_AT, CHANNEL_AT))  # elsewhere no loss is known
            body = product(world.counted(of.unit, sample), body) if of.summed else body
            return ctx.held_stream(product(world.statistic(sample), body) if world.coupled else body, x.held)
    return ctx.unknown_stream(x.held)


def _dropout(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """A mask by a random key. Of the model's output, it is the reference's where the key is."""
    ctx, world = walk.ctx, walk.world
    x, key = operands
    if world.dropped is None:
        return Stream(body=product(app("mask", key.body, TOKEN_AT, CHANNEL_AT), x.body), held=x.held)
    *own, batch = world.sample(ctx.batch)
    wanted = world.key(world.masked_by, dict(zip(world.sample_factors, own, strict=True)), batch)  # what tells samples apart
    ctx.require("the dropout's key is that of the sample", CONSISTENCY, key.body, wanted)
    if ctx.here(key.body) != ctx.here(wanted):
        return ctx.unknown_stream(x.held)
    sample = compute.sample_read(ctx, x, "x", (world.output,))
    if sample is not None:
        return ctx.held_stream(world.x(sample, world.dropped), x.held)
    factor = compute.coefficient(ctx, x, world.sample(ctx.batch), world.dropped)
    if factor is None:
        return ctx.unknown_stream(x.held)
    return ctx.held_stream(product(factor, world.dx(world.sample(ctx.batch), world.output)), x.held)


def _statistics(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    fine = compute.reads_parameters(walk.ctx, operands[0], "a statistic", gathered=True)
    return Scalar(body=walk.world.statistic(walk.world.sample(_batch(walk, operands[1:]))) if fine else walk.ctx.unknown())


def _counted(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    return Scalar(body=walk.world.counted(counted(call), walk.world.sample(_batch(walk, operands))))


def _rounded(walk: Walk, call: Call, operands: list[Whole], results: int) -> Value:
    value = operands[0]
    if "exact-quantizers" not in walk.world.options.without or not isinstance(value, Tensor | Stream | Scalar):
        return value
    return value.map(lambda body: compute.elementwise("rounded", body))


def _elementwise(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    name = call.args[0].name if isinstance(call.args[0], Ref) else "function"
    value: Value = operands[0].map(lambda body: compute.elementwise(f"elementwise {name}", body))
    return value


def _function(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """A function of numbers; min and max do not care for the order of their operands."""
    bodies = [o.body for o in operands]
    if call.op == "max":
        return Scalar(body=by_cases(compute.largest, *sorted(bodies)))
    name = {"clip_factor": "clip"}.get(call.op, call.op)
    return Scalar(body=compute.elementwise(name, *(sorted(bodies) if name == "min" else bodies)))


def _square_norm(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    value: Tensor | Stream = operands[0]
    if isinstance(value, Stream):
        return Scalar(body=total([TOKEN_AT, CHANNEL_AT], product(value.body, value.body)))
    squares = {g: product(_held_elements(walk, value, g), product(p.body, p.body)) for g, p in value.pieces.items()}
    if call.choice("shared") == "first":
        squares = {g: square - product(walk.world.repeated(g), square) for g, square in squares.items()}
    return Scalar(body=sum((total(walk.world.element(g), square) for g, square in squares.items()), ZERO))


def _held_elements(walk: Walk, value: Tensor, group: str) -> Poly:
    """1 for the elements of a group that the device has in a buffer."""
    where = walk.ctx.where(group, value.pieces[group].held)
    region = value.region
    if region.domain == "stage":
        return where
    return product(where, same(part_of_element(region.domain, region.index.sort), region.index))


def _found_inf(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    flags = []
    for group, piece in operands[0].pieces.items():
        held = _held_elements(walk, operands[0], group)
        guards = held.terms[0][0].guards
        inside = compute.not_finite(_where(piece.body, held))
        flags.append(greatest(walk.world.element(group), inside, guards))
    return Scalar(body=compute.largest(*flags))


def _where(body: Poly, held: Poly) -> Poly:
    """A body as it is where guards hold."""
    for left, right in sorted(held.terms[0][0].guards, key=lambda g: g[0].key):
        if isinstance(left, Var):
            body = substitute(body, {left.name: right})
    return body


def _random(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    factors = walk.world.factors(call.axes)
    return Scalar(body=walk.world.key(call.choice("draw"), {f: walk.world.here[f] for f in factors}, walk.ctx.batch))


def _master(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """The full-precision copy in the optimizer state: of the reference's state, the reference's parameters."""
    state: Tensor = operands[0]
    return state.by_group(lambda group, piece: each_case(partial(_copied, walk, group), piece.body))


def _copied(walk: Walk, group: str, plain: Poly) -> Poly:
    """The copy in a number of the optimizer state: known of the reference's, and arbitrary of every other."""
    for kind in ("", " of a matrix"):  # what an update has written, it has written to both
        if (new := compute.application(plain, f"new optimizer{kind}")) is not None:
            return app(f"new parameters{kind}", *new.args)
    if (skipped := compute.application(plain, "unless")) is not None:
        flag, *either = (p for p in skipped.args if isinstance(p, Poly))
        return app("unless", flag, *(_copied(walk, group, p) for p in either))
    atom = compute.application(plain, f"omega.{group}")
    if atom is None:
        return app(f"master of omega.{group}", plain)
    element = walk.world.element(group)
    at = {v.name: a for v, a in zip(element, atom.args, strict=True) if not isinstance(a, Poly)}
    return substitute(walk.world.theta(group), at)  # type: ignore[arg-type]


def _stale(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    value: Tensor = operands[0]
    steps = operands[1].body
    if steps.number is None or steps.number.denominator != 1 or steps.number < 0:
        raise NoMeaningError("`stale` takes a whole number of steps", call.place)
    if steps.number == 0:
        return value

    def old(group: str, piece: Piece) -> Poly:  # what is equal in every step was equal then; nothing else is known of it
        return walk.ctx.owned(group, app(f"before.{group}", steps, *walk.world.element(group), piece.body), piece.held)

    return value.by_group(old)


# The optimizer's step: what it has to read, and what it writes.


def _update(walk: Walk, call: Call, operands: list[Any], results: int) -> Pair:
    """New parameters and optimizer state, on the elements whose state and gradient the device has."""
    ctx = walk.ctx
    parameters, optimizer, gradients = operands[:3]
    skip = compute.raised(operands[3].body) if call.op == "update" and len(operands) > 3 else None
    directions: Tensor | None = next((o for o in operands[3:] if isinstance(o, Tensor)), None)
    if not parameters.region == optimizer.region == gradients.region == (directions or gradients).region:
        return ctx.unknown_tensor(parameters), ctx.unknown_tensor(optimizer)
    if skip is not None:
        of_first = substitute(skip, walk.world.at_rank(0, walk.world.here))
        ctx.require("all devices agree whether to skip the step", CONSISTENCY, skip, of_first)
    new: dict[str, dict[str, Piece]] = {"parameters": {}, "optimizer": {}}
    for group in gradients.pieces:
        if group not in parameters.pieces or group not in optimizer.pieces or group not in (directions or gradients).pieces:
            raise NoMeaningError(f"`{call.op}` gets no parameters, no optimizer state or no direction of group `{group}`", call.place)
        theta, omega, g = (t.pieces[group] for t in (parameters, optimizer, gradients))
        held = omega.held | g.held
        _require_inputs(walk, call, group, (theta, omega, g))
        where = ctx.where(group, held)
        given = tuple(_read_beside(walk, group, o) for o in operands[3:]) if call.op == "update_with" else ()
        for state, old in (("parameters", theta), ("optimizer", omega)):
            value = update_value(walk.world, state, group, (theta.body, omega.body, g.body), where, given)
            value = value if skip is None else compute.elementwise("unless", skip, old.body, value)
            new[state][group] = replace(old, body=choose(where, value, old.body))
            if state == "parameters":
                ctx.written.setdefault(group, (value, held | theta.held))
    new_parameters = replace(parameters, pieces={**parameters.pieces, **new["parameters"]})
    return new_parameters, replace(optimizer, pieces={**optimizer.pieces, **new["optimizer"]})


def _require_inputs(walk: Walk, call: Call, group: str, pieces: tuple[Piece, Piece, Piece]) -> None:
    """The claims of an update: the gradient is the reference's, the states are those of this step."""
    ctx, world = walk.ctx, walk.world
    theta, omega, g = pieces
    of = "" if world.groups == ("all",) else f" ({group})"
    for at in ctx.owner_of(group, theta.held | omega.held | g.held):
        end = _which_end(walk, group, at)
        ctx.require(f"update reads the parameters of this step{of}{end}", CONSISTENCY, theta.body, world.theta(group), at)
        ctx.require(f"update reads the optimizer state of this step{of}{end}", CONSISTENCY, omega.body, world.omega(group), at)
        expected = walk.reference.gradient(group)
        ctx.require(
            f"update reads the gradient of the global batch{of}{end}",
            GRADIENT,
            g.body,
            expected,
            at,
            of_gradient(world, group, substitute(ctx.here(g.body), at), call),
        )


def _which_end(walk: Walk, group: str, at: dict[str, Index]) -> str:
    tied = walk.world.tied(group)
    if tied is None:
        return ""
    stage = at.get(f"d.{tied}")
    return "" if stage is None else ", first stage" if stage == walk.world.rank(tied, 0) else ", last stage"


def _norms_of_tensors(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """Of each tensor, the sum over the elements that the device has of what a layer-wise optimizer needs."""
    theta, omega, g, *sums = operands
    group = _one_group(call, g)
    held = walk.ctx.where(group, omega.pieces[group].held | g.pieces[group].held)
    own = (theta.pieces[group].body, omega.pieces[group].body, g.pieces[group].body)
    read = tuple(_read_beside(walk, group, n) for n in sums)
    return Scalar(body=tensor_norm(walk.world, group, (*own, *read), held), of_tensors=group)


def _sums_along_lines(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """Of each row and each column of a matrix, the sum over the elements that the device has of it."""
    (g,) = operands
    group = _one_group(call, g)
    body = line_sums(walk.world, group, g.pieces[group].body, walk.ctx.where(group, g.pieces[group].held))
    return Scalar(body=body, of_tensors=group, of_lines=True)


def _one_group(call: Call, value: Tensor) -> str:
    if len(value.pieces) != 1:
        raise NoMeaningError(f"`{call.op}` of one group at a time", call.place)
    (group,) = value.pieces
    return group


def _read_beside(walk: Walk, group: str, given: Tensor | Scalar) -> Poly:
    """What is read for an element of what is given beside states: its direction, or numbers of its tensor."""
    if isinstance(given, Tensor):
        return given.pieces[group].body
    return of_lines(walk.world, group, given.body) if given.of_lines else given.body


def _momentum(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    """What is made of each element's state and gradient, on the elements that the device has of both."""
    optimizer: Tensor = operands[0]
    gradients: Tensor = operands[1]
    if optimizer.region != gradients.region:
        return walk.ctx.unknown_tensor(gradients)
    pieces = {}
    for group, g in gradients.pieces.items():
        if group not in optimizer.pieces:
            raise NoMeaningError(f"`momentum` gets no optimizer state of group `{group}`", call.place)
        held = optimizer.pieces[group].held | g.held
        pieces[group] = Piece(body=walk.ctx.owned(group, momentum(optimizer.pieces[group].body, g.body), held), held=held)
    return replace(gradients, pieces=pieces)


def _orthogonalize(walk: Walk, call: Call, operands: list[Any], results: int) -> Value:
    momenta: Tensor = operands[0]
    return momenta.by_group(lambda group, piece: orthogonalized(walk.world, group, piece.body))


_WHOLE = (Tensor, Stream, Scalar)
_STATES = ((Tensor,), (Tensor,), (Tensor,)), "parameters, optimizer state and gradients"
_KEPT = ((Tensor,), (Saved,), (Stream,), (Stream,)), "what a forward kept, and the gradient of its output"
#: The kinds of values that operations take, and how that is said.
_TAKES: dict[str, tuple[_Kinds, str]] = {
    **dict.fromkeys(("sqrt", "clip_factor", "min", "max", "rescale"), (((Scalar,), (Scalar,)), "numbers")),
    **dict.fromkeys(("update", "update_with", "tensor_norms"), _STATES),
    "line_sums": (((Tensor,),), "gradients"),
    "momentum": (_STATES[0][1:], "optimizer state and gradients"),
    "orthogonalize": (((Tensor,),), "a momentum"),
    "forward": (((Tensor,), (Stream,)), "parameters and a stream"),
    **dict.fromkeys(("backward", "backward_weight", "backward_input"), _KEPT),
    "backward_with": (((Tensor,), (object,), (Scalar,)), "all parameters, a micro-batch and a statistic"),
    "loss": (((Stream,),), "a stream"),
    "dropout": (((Stream,), (Scalar,)), "a stream and a key"),
    "statistics": (((Tensor,),), "parameters"),
    "output": (((Saved,),), "what a forward kept"),
    "scale": ((_WHOLE, (Scalar,)), "a tensor or a stream, and a number"),
    "elementwise": ((_WHOLE,), "a tensor or a stream"),
    "square_norm": (((Tensor, Stream),), "a tensor"),
    "found_inf": (((Tensor,),), "a tensor"),
    "master": (((Tensor,),), "optimizer state"),
    "stale": (((Tensor,), (Scalar,)), "a state and a number of steps"),
}
LOCAL: dict[str, Rule] = {
    **dict.fromkeys(("copy", "cast", "dequantize", "to_host", "to_device"), lambda _walk, _call, operands, _results: operands[0]),
    **dict.fromkeys(("sqrt", "clip_factor", "min", "max", "rescale"), _function),
    "data": _data,
    **dict.fromkeys(("tokens", "count"), _counted),
    "forward": _forward,
    "backward": _backward,
    "backward_weight": lambda walk, _call, operands, _results: _trained(walk, compute.gradient_of(walk.ctx, *operands)),
    "backward_input": lambda walk, _call, operands, _results: compute.input_gradient(walk.ctx, *operands),
    "loss": _loss,
    "output": lambda _walk, _call, operands, _results: operands[0].output,
    "scale": lambda _walk, _call, operands, _results: operands[0].map(lambda body: product(body, operands[1].body)),
    "part": lambda walk, call, operands, _results: own_part(walk.ctx, call, operands[0]),
    "quantize": _rounded,
    "elementwise": _elementwise,
    "square_norm": _square_norm,
    "found_inf": _found_inf,
    "random": _random,
    "master": _master,
    "stale": _stale,
    **dict.fromkeys(("update", "update_with"), _update),
    "tensor_norms": _norms_of_tensors,
    "line_sums": _sums_along_lines,
    "momentum": _momentum,
    "orthogonalize": _orthogonalize,
    "dropout": _dropout,
    "statistics": _statistics,
    "backward_with": _backward_with,
}
