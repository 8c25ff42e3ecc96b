"""What a process of a replay computes by itself: the operations of a training step that need no other device."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import torch

from placeproof.core.program import Call
from placeproof.measure import replay_network as network
from placeproof.measure import replay_optimizer as optimizer
from placeproof.measure.replay_model import Model, nothing
from placeproof.measure.replay_numbers import Numbers, zeros
from placeproof.measure.replay_optimizer import States
from placeproof.measure.replay_reference import stream
from placeproof.measure.replay_values import Here, Norms, NothingThereError, NotReplayedError, Part, Saved, Stream, Value, mapped

T = TypeVar("T")
Result = Value | tuple[Value, Value]
Rule = Callable[[Here, Call, list[Value]], Result]

_OPERATORS: dict[str, Callable[[Numbers, Numbers | Fraction], Numbers]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}

_EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def local(here: Here, call: Call, operands: list[Value], results: int) -> Result:
    """The value of an operation, or the values for ``results`` targets."""
    if call.op in _SAME:
        return operands[0]
    if call.op not in _RULES:
        raise NotReplayedError(f"`{call.op}`")
    found = _RULES[call.op](here, call, operands)
    return found[0] if isinstance(found, tuple) and results == 1 else found


def a(kind: type[T], value: Value, call: Call) -> T:
    """The value, which has to be of a kind."""
    if not isinstance(value, kind):
        raise NotReplayedError(f"`{call.op}` of a {type(value).__name__.lower()}")
    return value


def plain(value: Value) -> Fraction:
    """The fraction that a scalar is."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, Numbers) and not value.shape:
        return value.fractions()[0]
    raise NotReplayedError(f"a {type(value).__name__.lower()} where a number belongs")


def arithmetic(model: Model, op: str, left: Value, right: Value) -> Value:
    """Arithmetic on scalars, and element by element on everything else, where a scalar meets each element."""
    if op == "**":
        power = plain(right)
        if power.denominator != 1:
            raise NotReplayedError(f"the power {power}")
        return left**power.numerator if isinstance(left, Fraction) else _mapped(left, lambda n: n**power.numerator)
    apply = _OPERATORS[op]
    match left, right:
        case Fraction(), Fraction():
            if op == "/" and not right:
                raise NotReplayedError("a division by zero")
            return _EXACT[op](left, right)
        case Fraction(), Numbers():
            return apply(left, right)  # type: ignore[arg-type]
        case Part(), Part():
            lost = [nothing(key) if gap else 0 for gap, key in zip((left.held & ~right.held).tolist(), model.keys, strict=True)]
            other = right.numbers.where(right.held, right.numbers.like(lost, len(lost)))
            return left.with_numbers(apply(left.numbers, other))
        case Stream(), Stream():
            right.needs(left.there, "arithmetic")
            return replace(left, numbers=apply(left.numbers, right.numbers))
        case (_, Fraction() | Numbers()):
            return _mapped(left, lambda n: apply(n, right))
        case (Fraction() | Numbers(), _):
            return _mapped(right, lambda n: apply(left, n))  # type: ignore[arg-type]
    raise NotReplayedError(f"a {type(left).__name__.lower()} {op} a {type(right).__name__.lower()}")


def _mapped(value: Value, change: Callable[[Numbers], Numbers]) -> Value:
    """Every number of a value changed alike, of whatever kind the value is."""
    return change(value) if isinstance(value, Numbers) else mapped(value, change)


# Samples and passes through the network.


def _batch(operands: list[Value]) -> int:
    return operands[0].numerator if operands and isinstance(operands[0], Fraction) else 0


def _sample(here: Here, operands: list[Value]) -> tuple[int, ...]:
    return here.model.sample(here.at, _batch(operands))


def _data(here: Here, call: Call, operands: list[Value]) -> Stream:
    return stream(here.model, here.of, "input", _sample(here, operands), here.number)


def _loss(here: Here, call: Call, operands: list[Value]) -> Stream:
    x = a(Stream, operands[0], call)
    sample = here.model.sample(here.at, here.batch)
    apart = x.numbers - stream(here.model, here.of, "target", sample, here.number).numbers
    return replace(x, numbers=apart * here.model.statistic(sample, here.number) if here.model.coupled else apart)


def _forward(here: Here, call: Call, operands: list[Value]) -> Result:
    w, x = a(Part, operands[0], call), a(Stream, operands[1], call)
    out, saved = network.forward(network.Weights.of(here, w), here.model.blocks_in(w.extent), w.group, x)
    return out, saved


def _through(here: Here, w: Part, saved: Saved, dx: Stream, whole: Stream | None = None) -> tuple[Part, Stream]:
    """The gradients of the parameters of a part, and of its input."""
    weights = network.Weights.of(here, w)
    grads, through = network.backward(weights, here.model.blocks_in(w.extent), w.group, saved, dx, whole)
    return w.with_numbers(grads.numbers, grads.held), through


def _backward(here: Here, call: Call, operands: list[Value]) -> Result:
    w = a(Part, operands[0], call)
    if len(operands) < 3:
        x = stream(here.model, here.of, "input", _sample(here, operands[1:]), here.number)
        out, saved = network.forward(network.Weights.of(here, w), here.model.blocks_in(w.extent), w.group, x)
        target = stream(here.model, here.of, "target", _sample(here, operands[1:]), here.number)
        return _through(here, w, saved, replace(out, numbers=out.numbers - target.numbers))
    return _through(here, w, a(Saved, operands[1], call), a(Stream, operands[2], call))


def _half(which: int) -> Rule:
    def rule(here: Here, call: Call, operands: list[Value]) -> Value:
        w, saved, dx, *rest = operands
        whole = a(Stream, rest[0], call) if rest else None
        return _through(here, a(Part, w, call), a(Saved, saved, call), a(Stream, dx, call), whole)[which]

    return rule


def _output(here: Here, call: Call, operands: list[Value]) -> Stream:
    kept = a(Saved, operands[0], call).outputs
    if not kept:
        raise NothingThereError("the output of a forward through no block")
    return kept[max(kept)]


# The update.


def _update(here: Here, call: Call, operands: list[Value]) -> Result:
    """New values where parameter, optimizer state and gradient are all there; the others stay as they are."""
    parameters, states, gradients = (a(Part, o, call) for o in operands[:3])
    here.read = gradients
    if call.op == "update" and len(operands) > 3 and plain(operands[3]) != 0:
        return parameters, states
    there = gradients.held & parameters.held & states.held
    before = States(parameters.numbers, states.numbers)
    if call.op == "update_with":
        norms = a(Norms, operands[3], call)
        if not bool(norms.there[here.model.tensor_of[there]].all()):
            raise NothingThereError("the norm of a tensor, which is not on this device")
        after = optimizer.with_norm(before, gradients.numbers, norms.numbers[here.model.tensor_of])
    else:
        after = optimizer.updated(here.model, before, gradients.numbers, gradients.held, there)
    return parameters.with_numbers(after.theta.where(there, before.theta)), states.with_numbers(after.omega.where(there, before.omega))


def _tensor_norms(here: Here, call: Call, operands: list[Value]) -> Norms:
    parameters, states, g = (a(Part, o, call) for o in operands)
    held = parameters.held & states.held & g.held
    found = optimizer.by_tensor(here.model, optimizer.norm_terms(parameters.numbers, g.numbers), held)
    there = torch.zeros(len(here.model.tensors), dtype=torch.bool)
    there[here.model.tensor_of[held | g.extent]] = True
    return Norms(there=there, numbers=found)


def _master(here: Here, call: Call, operands: list[Value]) -> Part:
    states = a(Part, operands[0], call)
    return states.with_numbers(states.numbers[:, 0])


# Everything else.


def _scale(here: Here, call: Call, operands: list[Value]) -> Value:
    return arithmetic(here.model, "*", operands[0], operands[1])


def _part(here: Here, call: Call, operands: list[Value]) -> Value:
    match operands[0]:
        case Part() as part:
            mine = here.model.owns(here.at, call.axes, call.option("order", "blocked") or "blocked")
            return part.with_numbers(part.numbers, part.held & mine)
        case Stream() as x:
            return replace(x, there=x.there & here.model.own_tokens(here.at))
    raise NotReplayedError(f"`part` of a {type(operands[0]).__name__.lower()}")


def _quantize(here: Here, call: Call, operands: list[Value]) -> Value:
    if "exact-quantizers" not in here.model.found.without:
        return operands[0]
    return mapped(a(Part, operands[0], call), lambda n: n * Fraction(3, 4) + Fraction(1, 8))


def _square_norm(here: Here, call: Call, operands: list[Value]) -> Numbers:
    match operands[0]:
        case Part() as part:
            found = part.numbers.where(part.held, zeros(here.of, *part.numbers.shape))
        case Stream() | Norms() as other:
            found = other.numbers.where(other.there, zeros(here.of, *other.numbers.shape))
        case _:
            raise NotReplayedError("`square_norm` of this")
    squares = found * found
    while squares.shape:
        squares = squares.sum()
    return squares


def _stale(here: Here, call: Call, operands: list[Value]) -> Part:
    now = a(Part, operands[0], call)
    past = here.past[max(0, len(here.past) - 1 - int(plain(operands[1])))]
    return past.only(now.extent, now.group)


def _random(here: Here, call: Call, operands: list[Value]) -> Fraction:
    named = here.model.factors(call.axes)
    return here.model.key({f: n if f in named else 0 for f, n in here.at.items()})


def _found_inf(here: Here, call: Call, operands: list[Value]) -> Fraction:
    held = a(Part, operands[0], call).held.tolist()
    flags = [here.model.overflows(e, here.number) for e, there in zip(here.model.elements, held, strict=True) if there]
    return Fraction(any(flags))


def _rescale(here: Here, call: Call, operands: list[Value]) -> Value:
    return arithmetic(here.model, "/", operands[0], arithmetic(here.model, "+", Fraction(1), operands[1]))


def _least(here: Here, call: Call, operands: list[Value]) -> Fraction:
    return min(plain(o) for o in operands)


def _greatest(here: Here, call: Call, operands: list[Value]) -> Fraction:
    return max(plain(o) for o in operands)


def _clip_factor(here: Here, call: Call, operands: list[Value]) -> Numbers:
    return optimizer.clip(scalar(here, operands[0]))


def _elementwise(here: Here, call: Call, operands: list[Value]) -> Value:
    """The stand-in for a function of each element: its square."""
    return mapped(operands[0], lambda n: n * n)


def _tokens(here: Here, call: Call, operands: list[Value]) -> Fraction:
    return here.model.tokens(_sample(here, operands), here.number)


def _statistics(here: Here, call: Call, operands: list[Value]) -> Fraction:
    return here.model.statistic(_sample(here, operands[1:]), here.number)


_SAME = ("copy", "cast", "dequantize", "to_host", "to_device", "sqrt")  # the stand-in for a root: any function shows a wrong operand
_RULES: dict[str, Rule] = {
    "data": _data,
    "loss": _loss,
    "forward": _forward,
    "backward": _backward,
    "backward_weight": _half(0),
    "backward_input": _half(1),
    "output": _output,
    "update": _update,
    "update_with": _update,
    "tensor_norms": _tensor_norms,
    "master": _master,
    "scale": _scale,
    "part": _part,
    "quantize": _quantize,
    "square_norm": _square_norm,
    "clip_factor": _clip_factor,
    "stale": _stale,
    "random": _random,
    "dropout": _scale,
    "elementwise": _elementwise,
    "tokens": _tokens,
    "found_inf": _found_inf,
    "statistics": _statistics,
    "rescale": _rescale,
    "min": _least,
    "max": _greatest,
}


def scalar(here: Here, value: Value) -> Numbers:
    """A scalar as a number of the run's arithmetic."""
    return value if isinstance(value, Numbers) else Numbers.make(here.of, [plain(value)])[0]


__all__ = ["a", "arithmetic", "local", "plain", "scalar"]
