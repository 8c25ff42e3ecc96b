"""What collectives make of tensors: a reduction is a sum over coordinates, a gather reads what the owner holds, an all-to-all does so
and keeps another part."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from placeproof.core.diagnostics import Place
from placeproof.core.program import Call
from placeproof.prove.terms import Index, Poly, Var, choose, greatest, inverse, product, same, substitute, total
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.tensors.around import shifted, shifted_index
from placeproof.semantics.tensors.values import Space, Value

Rule = Callable[["Exchange", Call, Value], Value]


class Exchange:
    """Collectives on one mesh."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._names = itertools.count()

    def __call__(self, call: Call, value: Value) -> Value:
        """The result of a collective on the device that is spoken of."""
        if call.op not in _RULES:
            raise NoMeaningError(f"`{call.op}` in a program over tensors", call.place)
        if call.op != "shift" and any(axis in call.axes for _, axis in value.turns):
            raise NoMeaningError(f"`{call.op}` of parts that are not home from their ring", call.place)
        return _RULES[call.op](self, call, value)

    def combined(self, call: Call, body: Poly) -> Poly:
        """A reduction of one number of each device of the group."""
        variables = [v for a in call.axes for v in self.space.coordinate(a)]
        op = call.option("op", "sum")
        if op == "max":
            return greatest(variables, body)
        summed = total(variables, body)
        return product(summed, *(inverse(self.space.world.size(a)) for a in call.axes)) if op == "mean" else summed


def _same_elements(call: Call, value: Value) -> None:
    """Devices that hold parts of different elements have nothing to combine."""
    for axis in call.axes:
        if dims := value.cut_by(axis):
            raise NoMeaningError(f"`{call.op}` over `{axis}` of parts: each device has other elements along `{dims[0]}`", call.place)


def _dim(call: Call, value: Value) -> str:
    dim = call.option("dim")
    if dim is None or dim not in value.dims:
        raise NoMeaningError(f"`{call.op}` needs `dim=`, a dimension of its operand", call.place)
    return dim


def _all_reduce(exchange: Exchange, call: Call, value: Value) -> Value:
    _same_elements(call, value)
    return value.moved(exchange.combined(call, value.body))


def _reduce_scatter(exchange: Exchange, call: Call, value: Value) -> Value:
    return _part(exchange, call, _all_reduce(exchange, call, value))


def _part(exchange: Exchange, call: Call, value: Value) -> Value:
    dim = _dim(call, value)
    if call.option("order", "blocked") != "blocked":
        raise NoMeaningError("parts of a tensor in another order than blocked", call.place)
    _not_cut_twice(call.axes, dim, value, call.place)
    cuts = {**value.cuts, dim: (*value.cuts.get(dim, ()), *call.axes)}
    return value.moved(value.body, cuts=cuts, loose=value.loose - {dim})


def _not_cut_twice(axes: tuple[str, ...], dim: str, value: Value, place: Place | None) -> None:
    for axis in axes:
        if axis in value.cuts.get(dim, ()):
            raise NoMeaningError(f"`{dim}` is cut along `{axis}` already", place)


def _all_gather(exchange: Exchange, call: Call, value: Value) -> Value:
    body, cuts = value.body, dict(value.cuts)
    for axis in reversed(call.axes):
        dims = [d for d, axes in cuts.items() if axis in axes]
        if len(dims) != 1 or cuts[dims[0]][-1] != axis:
            raise NoMeaningError(f"`{call.op}` over `{axis}` of what is not cut along it (last)", call.place)
        dim = dims[0]
        for here in exchange.space.coordinate(axis):
            body = substitute(body, {here.name: exchange.space.owner(dim, cuts[dim], axis)})
        cuts[dim] = cuts[dim][:-1]
    return value.moved(body, cuts={d: c for d, c in cuts.items() if c})


def _all_to_all(exchange: Exchange, call: Call, value: Value) -> Value:
    """Each device sends every other its part along another dimension: the first dimension is whole then, and the other one is cut."""
    dim = _dim(call, value)
    if len(call.axes) != 1:
        raise NoMeaningError("`all_to_all` of a tensor is over one axis", call.place)
    _not_cut_twice(call.axes, dim, value, call.place)
    return _part(exchange, call, _all_gather(exchange, call, value))


def _root(call: Call) -> None:
    if call.option("root", "0") != "0":
        raise NoMeaningError("a root other than 0", call.place)


def _broadcast(exchange: Exchange, call: Call, value: Value) -> Value:
    _root(call)
    _same_elements(call, value)
    at = {v.name: exchange.space.rank_zero(a) for a in call.axes for v in exchange.space.coordinate(a)}
    return value.moved(substitute(value.body, at))


def _reduce(exchange: Exchange, call: Call, value: Value) -> Value:
    _root(call)
    _same_elements(call, value)
    there = product(*(same(v, exchange.space.rank_zero(a)) for a in call.axes for v in exchange.space.coordinate(a)))
    return value.moved(choose(there, exchange.combined(call, value.body), exchange.space.unknown(value.dims)))


def _shift(exchange: Exchange, call: Call, value: Value) -> Value:
    (axis,), by = call.axes, call.option("by", "1") or "1"
    sort, here = exchange.space.world.sorts[axis], exchange.space.here(axis)
    if not isinstance(here, Var):  # one device passes on to itself
        return value.moved(value.body)
    turns: dict[tuple[str, str], Index] = {}
    for dim in value.cut_by(axis):
        turns[dim, axis] = shifted_index(value.turns.get((dim, axis), here), sort, here, by)
    kept = {key: at for key, at in {**value.turns, **turns}.items() if at.key != here.key}
    return value.moved(shifted(value.body, sort, here, by), turns=kept)


_RULES: dict[str, Rule] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "part": _part,
    "shift": _shift,
}
#: The operations that this module gives a meaning.
EXCHANGES = frozenset(_RULES)
