"""What collectives make of tensors: a reduction is a sum over coordinates, a gather reads what the owner holds, an all-to-all does so
and keeps another part."""

from __future__ import annotations

from collections.abc import Callable

from placeproof.programs import Call
from placeproof.prove.terms import Index, Poly, Var, choose, fn, point, product, rewritten, same, substitute, substitute_index
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.exchange import combined, coordinates
from placeproof.semantics.tensors.values import Space, Value

Rule = Callable[[Space, Call, Value], Value]


def exchange(space: Space, call: Call, value: Value) -> Value:
    """The result of a collective on the device that is spoken of."""
    if call.op != "shift" and any(axis in call.axes for _, axis in value.turns):
        raise NoMeaningError(f"`{call.op}` of parts that are not home from their ring", call.place)
    return EXCHANGES[call.op](space, call, value)


def _combined(space: Space, call: Call, value: Value) -> Poly:
    """A reduction of one number of each device of the group. Devices that hold parts of different elements have nothing to combine."""
    _same_elements(call, value)
    return combined(space.world, call, value.body)


def _same_elements(call: Call, value: Value) -> None:
    for axis in call.axes:
        if dims := value.split_by(axis):
            raise NoMeaningError(f"`{call.op}` over `{axis}` of parts: each device has other elements along `{dims[0]}`", call.place)


def _cuts(call: Call, value: Value) -> tuple[tuple[str, str], ...]:
    if not call.cuts or any(dim not in value.dims for _, dim in call.cuts):
        raise NoMeaningError(f"`{call.op}` needs `dim=`, a dimension of its operand", call.place)
    return call.cuts


def _all_reduce(space: Space, call: Call, value: Value) -> Value:
    return value.moved(_combined(space, call, value))


def _part(space: Space, call: Call, value: Value) -> Value:
    if call.choice("order") != "blocked":
        raise NoMeaningError("parts of a tensor in another order than blocked", call.place)
    _not_cut_twice(call, value)
    split = dict(value.split)
    for axis, dim in call.cuts:
        split[dim] = (*split.get(dim, ()), axis)
    return value.moved(value.body, split=split, loose=value.loose - {dim for _, dim in call.cuts})


def _not_cut_twice(call: Call, value: Value) -> None:
    for axis, dim in _cuts(call, value):
        if axis in value.split.get(dim, ()):
            raise NoMeaningError(f"`{dim}` is cut along `{axis}` already", call.place)


def _all_gather(space: Space, call: Call, value: Value) -> Value:
    body, split = value.body, dict(value.split)
    for axis in reversed(call.axes):
        dims = [d for d, axes in split.items() if axis in axes]
        if len(dims) != 1 or split[dims[0]][-1] != axis:
            raise NoMeaningError(f"`{call.op}` over `{axis}` of what is not cut along it (last)", call.place)
        dim = dims[0]
        if isinstance(coordinate := space.world.here[axis], Var):
            body = substitute(body, {coordinate.name: space.owner(dim, split[dim], axis)})
        split[dim] = split[dim][:-1]
    return value.moved(body, split={d: axes for d, axes in split.items() if axes})


def _all_to_all(space: Space, call: Call, value: Value) -> Value:
    """Each device sends every other its part along another dimension: the first dimension is whole then, and the other one is cut."""
    _not_cut_twice(call, value)
    return _part(space, call, _all_gather(space, call, value))


def _root(space: Space, call: Call) -> dict[Var, Index]:
    """The coordinates of the root."""
    if call.choice("root") != "0":
        raise NoMeaningError("a root other than 0", call.place)
    return {v: point(v.sort) for v in coordinates(space.world, call)}


def _broadcast(space: Space, call: Call, value: Value) -> Value:
    at = {v.name: root for v, root in _root(space, call).items()}
    _same_elements(call, value)
    return value.moved(substitute(value.body, at))


def _reduce(space: Space, call: Call, value: Value) -> Value:
    there = product(*(same(v, root) for v, root in _root(space, call).items()))
    return value.moved(choose(there, _combined(space, call, value), space.unknown(value.dims)))


def neighbour(coordinate: Index, by: str, *, other: bool = False) -> Index:
    """The device on a ring whose part a shift brings here; ``other``: the one that a shift sends it to."""
    return fn(f"{'after' if (by == '-1') != other else 'before'}.{coordinate.sort.name}", (coordinate,), coordinate.sort)


def _shift(space: Space, call: Call, value: Value) -> Value:
    """What the neighbour had. The neighbour's neighbour on the other side is the device itself."""
    (axis,), by = call.axes, call.choice("by")
    coordinate = space.world.here[axis]
    if not isinstance(coordinate, Var):  # one device passes on to itself
        return value.moved(value.body)
    there = neighbour(coordinate, by)
    back, turns = neighbour(there, by, other=True), dict(value.turns)
    for dim in value.split_by(axis):
        turns[dim, axis] = substitute_index(turns.get((dim, axis), coordinate), {coordinate.name: there})
        if turns[dim, axis].key == back.key:  # its own again
            del turns[dim, axis]
    return value.moved(rewritten(substitute(value.body, {coordinate.name: there}), back, coordinate), turns=turns)


#: The operations that this module gives a meaning.
EXCHANGES: dict[str, Rule] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": lambda space, call, value: _part(space, call, _all_reduce(space, call, value)),
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "part": _part,
    "shift": _shift,
}
