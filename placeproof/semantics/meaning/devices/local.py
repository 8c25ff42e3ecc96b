"""What the devices of a place compute by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from placeproof.programs import Call
from placeproof.programs.losses import counted, reduction, target_of
from placeproof.semantics.meaning import optimizer
from placeproof.semantics.meaning.devices.layers import Layers
from placeproof.semantics.meaning.losses import by_token, sequences
from placeproof.semantics.meaning.numbers import GREATER, SMALLER, Array
from placeproof.semantics.meaning.recorded import root
from placeproof.semantics.meaning.setup import NoMeaningError
from placeproof.semantics.meaning.values import MisfitError, Norms, Part, Saved, Stream, arithmetic, expect, numeric

if TYPE_CHECKING:
    from placeproof.semantics.meaning.devices.place import Place

Rule = Callable[["Place", Call, list[Any]], Any]


def compute(place: Place, call: Call, operands: list[Any], results: int) -> Any:
    """An operation that needs no other device: the first of its results where one is taken."""
    value = operands[0] if call.op in _IDENTITY else _RULES[call.op](place, call, operands)
    return value[0] if results == 1 and isinstance(value, tuple) else value


def of_sample(place: Place, what: str, batch: int) -> Array:
    """A number of each device's sample of a micro-batch."""
    return np.broadcast_to(place.mesh.mine(place.world.scalars(what, place.number))[..., batch], place.mesh.shape)


def batch_of(place: Place, operands: list[Any]) -> int:
    """The micro-batch that the last operand names, the first where there is none. Raises MisfitError for what is no micro-batch."""
    number = operands[-1] if operands else Fraction(0)
    if not isinstance(number, Fraction) or number.denominator != 1 or not 0 <= number < place.batches:
        raise MisfitError("a micro-batch is named that there is not")
    return int(number)


def _stream(place: Place, what: str, batch: int) -> Stream:
    drawn = place.mesh.mine(place.world.stream(what, place.number))[..., batch, :, :]
    data = np.broadcast_to(drawn, (*place.mesh.shape, *drawn.shape[-2:]))
    return Stream(data, np.ones(data.shape[:-1], dtype=bool))


def _loss_of(place: Place, x: Stream, batch: int, call: Call) -> Stream:
    loss, unit, summed = reduction(call)
    target = _stream(place, target_of(loss), batch)
    difference = Stream(place.world.field.sub(expect(Stream, x).data, target.data), x.have)
    if place.world.program.loss:
        weights = by_token(place.world, sequences(place.world, place.number).of_pass(unit, mean=not summed))
        own = place.mesh.mine(weights)[..., batch, :, None]
        return Stream(place.world.field.mul(difference.data, own), x.have)
    if not place.world.problem.coupled:
        return difference
    weight = of_sample(place, "statistic", batch)
    return Stream(place.world.field.mul(difference.data, weight[..., None, None]), x.have)


def _backward(place: Place, call: Call, operands: list[Any]) -> Any:
    layers = Layers(place.world, operands[0])
    if len(operands) >= 3:
        return layers.trained(*operands[1:])
    batch = batch_of(place, operands[1:])
    out, saved = layers.forward(_stream(place, "input", batch))
    return layers.trained(saved, _loss_of(place, out, batch, call))


def _update(place: Place, call: Call, operands: list[Any]) -> tuple[Part, Part]:
    """New values where parameter, optimizer state and gradient are all there; the others stay as they are."""
    parameters, state, gradients = (expect(Part, o) for o in operands[:3])
    rest = operands[3:]
    columns, place.read = parameters.columns, gradients
    omega, g = state.on(columns), gradients.on(columns)
    there = parameters.have & omega.have & g.have
    given: optimizer.Given = None
    if call.op == "update_with":
        directed = isinstance(rest[0], Part)
        given = rest[0].on(columns).data[..., 0] if directed else tuple(expect(Norms, n) for n in rest)
    theta, new = optimizer.step(place.world, columns, (parameters.data[..., 0], omega.data, g.data[..., 0]), there, g.have, given)
    if call.op == "update" and rest:
        there = there & ~np.asarray(numeric(place.world, rest[0]) != place.world.field.of(0))[..., None]
    kept = np.where(there[..., None], new, omega.data)
    back = kept if state.columns is columns else omega.with_(kept, omega.have).on(state.columns).data
    return replace(parameters, data=np.where(there, theta, parameters.data[..., 0])[..., None]), replace(state, data=back)


def _tensor_norms(place: Place, call: Call, operands: list[Any]) -> Norms:
    theta, omega, g = (expect(Part, o) for o in operands[:3])
    theta, omega = theta.on(g.columns), omega.on(g.columns)
    there = g.have & theta.have & omega.have
    states = theta.data[..., 0], omega.data, g.data[..., 0]
    return optimizer.norms(place.world, g.columns, states, there, g.extent, *(expect(Norms, n) for n in operands[3:]))


def _line_sums(place: Place, call: Call, operands: list[Any]) -> Norms:
    g = expect(Part, operands[0])
    return optimizer.line_sums(place.world, g.columns, g.data[..., 0], g.have, g.extent)


def _momentum(place: Place, call: Call, operands: list[Any]) -> Part:
    """Where optimizer state and gradient are both there."""
    g = expect(Part, operands[1])
    omega = expect(Part, operands[0]).on(g.columns)
    data = optimizer.momentum(place.world.field, omega.data, g.data[..., 0])
    return replace(g, extent=g.extent & omega.extent).with_(data[..., None], g.have & omega.have)


def _orthogonalize(place: Place, call: Call, operands: list[Any]) -> Part:
    x = expect(Part, operands[0])
    return x.with_(optimizer.orthogonalized(place.world, x.columns, x.data[..., 0], x.have)[..., None], x.have)


def _own_part(place: Place, call: Call, operands: list[Any]) -> Any:
    value = operands[0]
    if isinstance(value, Part):
        order = call.choice("order")
        return value.with_(value.data, value.have & place.mesh.owns(value.columns, place.layout.factors(call.axes), order))
    return expect(Stream, value).kept(place.world, value.have & place.mesh.tokens())


def _quantize(place: Place, call: Call, operands: list[Any]) -> Any:
    value, f = operands[0], place.world.field
    if "exact-quantizers" not in place.world.problem.without:
        return value
    return replace(value, data=f.add(f.mul(value.data, f.of(Fraction(3, 4))), f.of(Fraction(1, 8))))  # anything but the value


def _square_norm(place: Place, call: Call, operands: list[Any]) -> Any:
    value, f = operands[0], place.world.field
    if not isinstance(value, Part | Stream):
        return f.mul(numeric(place.world, value), numeric(place.world, value))
    have = value.have
    if isinstance(value, Part) and call.choice("shared") == "first":
        have = have & ~place.layout.repeated(place.mesh.stage)[value.columns.index]
    own = np.where(have[..., None], value.data, f.of(0))
    return f.total(f.mul(own, own), (-2, -1))


def _clip(place: Place, call: Call, operands: list[Any]) -> Any:
    f, world = place.world.field, place.world
    limit = numeric(world, operands[1]) if len(operands) > 1 else f.of(1)
    return optimizer.clip(f, numeric(world, operands[0]), limit)


def _sqrt(place: Place, call: Call, operands: list[Any]) -> Any:
    whole = root(operands[0]) if isinstance(operands[0], Fraction) and operands[0] >= 0 else None
    if isinstance(whole, Fraction):
        return whole
    return place.world.field.sqrt(np.asarray(numeric(place.world, operands[0]), dtype=object if place.world.field.exact else np.int64))


def _stale(place: Place, call: Call, operands: list[Any]) -> Part:
    value, steps = expect(Part, operands[0]), operands[1]
    if not isinstance(steps, Fraction) or steps.denominator != 1 or steps < 0:
        raise NoMeaningError("`stale` takes a whole number of steps")
    past = place.past(call, value)
    return past[max(0, len(past) - 1 - int(steps))]


def _random(place: Place, call: Call, operands: list[Any]) -> Array:
    named = place.layout.factors(call.axes)
    at = place.mesh.at
    keys = place.world.keys(call.choice("draw"), place.within, place.number)
    numbers: Array = keys[tuple(np.broadcast_to(at[f] if f in named else 0, place.mesh.shape) for f in place.world.factors)]
    return numbers


def _counted(place: Place, call: Call, operands: list[Any]) -> Array:
    batch = batch_of(place, operands)
    if not place.world.program.loss:
        return of_sample(place, "tokens", batch)
    number = sequences(place.world, place.number).number(counted(call))
    return np.broadcast_to(place.mesh.mine(number)[..., batch], place.mesh.shape)


def _found_inf(place: Place, call: Call, operands: list[Any]) -> Array:
    value = expect(Part, operands[0])
    over = place.world.overflows(place.number)[value.columns.index]
    f = place.world.field
    return np.where((value.have & over).any(axis=-1), f.of(1), f.of(0))


def _extreme(place: Place, call: Call, operands: list[Any]) -> Any:
    if all(isinstance(o, Fraction) for o in operands):
        return (min if call.op == "min" else max)(operands)
    exact, plain = (SMALLER, np.minimum) if call.op == "min" else (GREATER, np.maximum)
    return (exact if place.world.field.exact else plain)(*(numeric(place.world, o) for o in operands))


_IDENTITY = ("copy", "cast", "dequantize", "to_host", "to_device")
_RULES: dict[str, Rule] = {
    "data": lambda place, _call, operands: _stream(place, "input", batch_of(place, operands)),
    "loss": lambda place, call, operands: _loss_of(place, operands[0], place.batch, call),
    "forward": lambda place, _call, operands: Layers(place.world, operands[0]).forward(*operands[1:]),
    "backward": _backward,
    "backward_weight": lambda place, _call, operands: Layers(place.world, operands[0]).trained(*operands[1:])[0],
    "backward_input": lambda place, _call, operands: Layers(place.world, operands[0]).backward(*operands[1:])[1],
    "output": lambda _place, _call, operands: expect(Saved, operands[0]).output,
    **dict.fromkeys(("update", "update_with"), _update),
    "master": lambda _place, _call, operands: replace(expect(Part, operands[0]), data=operands[0].data[..., :1]),
    **dict.fromkeys(("scale", "dropout"), lambda place, _call, operands: arithmetic(place.world, "*", *operands)),
    "part": _own_part,
    "quantize": _quantize,
    "square_norm": _square_norm,
    "clip_factor": _clip,
    "sqrt": _sqrt,
    "stale": _stale,
    "random": _random,
    "elementwise": lambda place, _call, operands: arithmetic(place.world, "**", operands[0], Fraction(2)),
    **dict.fromkeys(("tokens", "count"), _counted),
    "found_inf": _found_inf,
    "statistics": lambda place, _call, operands: of_sample(place, "statistic", batch_of(place, operands[1:])),
    "tensor_norms": _tensor_norms,
    "line_sums": _line_sums,
    "momentum": _momentum,
    "orthogonalize": _orthogonalize,
    "rescale": lambda place, _call, operands: arithmetic(
        place.world, "/", operands[0], arithmetic(place.world, "+", Fraction(1), operands[1])
    ),
    **dict.fromkeys(("min", "max"), _extreme),
}
