"""A block of a model on processes: the runner of :mod:`placeproof.semantics.tensors`, one device a process, and real exchanges on gloo."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from placeproof.measure.replay.ended import DERIVATIVE
from placeproof.measure.replay.file import Counterexample, Named
from placeproof.measure.replay.mesh import Mesh, NothingThereError, NotHomeError, NotReplayedError
from placeproof.measure.replay.wire import Wire
from placeproof.programs import Call, Resolved, calls, statements
from placeproof.programs.ir import Tensor
from placeproof.programs.ir import returned as program_returns
from placeproof.programs.ops import OPS
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import known
from placeproof.semantics.tensors.arrays import Arrays, Held
from placeproof.semantics.tensors.groups import Groups
from placeproof.semantics.tensors.machine import Machine, in_order, kind
from placeproof.semantics.tensors.numbers import Fractions
from placeproof.semantics.tensors.setup import FaultError, NotComputedError
from placeproof.semantics.tensors.simulate import spot


class OnGloo(Groups):
    """Collectives of one process with the others of its groups."""

    def __init__(self, arrays: Arrays, mesh: Mesh) -> None:
        super().__init__(arrays)
        self.mesh = mesh
        self._told: list[dict[str, list[int]]] = []

    def __call__(self, call: Call, x: Held, active: Array) -> Held:
        """The result on this device."""
        return super().__call__(call, x, active) if self.size(call) > 1 else Groups(self.arrays)(call, x, active)

    def _wire(self, call: Call) -> Wire:
        return Wire(self.mesh, self.mesh.group(call.axes), call)

    def _met(self, call: Call, x: Held) -> Held:
        """All devices of the group are here, and know of one another which places they have. Dimensions in an order that they agree on."""
        group, dims = self.mesh.group(call.axes), sorted(x.dims)
        self.mesh.meet(group, call)
        self._told = self._wire(call).collected({d: x.places[d].of.reshape(-1).tolist() for d in dims})
        return replace(x, data=self.arrays.ordered(x, dims), places={d: x.places[d] for d in dims})

    def alike(self, call: Call, x: Held, _active: Array, apart: str | None = None) -> Held:
        """The tensor, if all devices of a group have as much of each dimension, save one; raises FaultError."""
        x = self._met(call, x)
        lengths = [{d: len(p) for d, p in told.items() if d != apart} for told in self._told]
        if any(length != lengths[0] for length in lengths):
            raise FaultError(f"shapes do not fit: the devices of a group have others for `{call.op}`")
        first = {d: x.places[d] if d == apart else self._places(p) for d, p in self._told[0].items()}
        return replace(x, places=first if call.op in ("all_gather", "all_to_all") else x.places)

    def _places(self, of: Sequence[int]) -> Any:
        return self.arrays.places(np.array(of, dtype=np.int64).reshape(*self.arrays.shape, -1))

    def combined(self, call: Call, x: Held, root: Mapping[str, int] | None) -> Held:
        """An all-reduce, or a reduce."""
        wire = self._wire(call)
        at = None if root is None else wire.group.rank_at(root)
        data = wire.combined(x.data, call.choice("op"), at)
        return replace(x, data=data if at in (None, self.mesh.rank) else self.arrays.garbage(data))

    def sent(self, call: Call, x: Held, root: Mapping[str, int]) -> Held:
        """A broadcast."""
        wire = self._wire(call)
        return replace(x, data=wire.spread(x.data, wire.group.rank_at(root)))

    def scattered(self, call: Call, x: Held, dim: str) -> Held:
        """A reduce-scatter of rows that are filled up to the same length."""
        wire = self._wire(call)
        parts = [self.arrays.part(x, dim, call.axes, at) for at in wire.group.at]
        longest = max(p.places[dim].longest for p in parts)
        got, own = wire.scattered(np.stack([_filled(p, dim, longest) for p in parts]), call.choice("op")), parts[wire.group.me]
        return replace(own, data=got.take(range(own.places[dim].longest), axis=own.axis(dim)))

    def gathered(self, call: Call, x: Held, dim: str) -> Held:
        """An all-gather."""
        return self._joined(x, dim, self._wire(call).collected(x.data))

    def _joined(self, x: Held, dim: str, parts: Sequence[Array]) -> Held:
        places = self._places([p for told in self._told for p in told[dim]])
        return replace(x, data=np.concatenate(parts, axis=x.axis(dim)), places={**x.places, dim: places})

    def swapped(self, call: Call, x: Held, old: str, new: str) -> Held:
        """An all-to-all."""
        wire = self._wire(call)
        pieces = [self.arrays.part(self.uncut(x, old), new, call.axes, at) for at in wire.group.at]
        return self._joined(pieces[wire.group.me], old, wire.swapped([p.data for p in pieces]))

    def shifted(self, call: Call, x: Held, by: int) -> Held:
        """A message to the one device and from the other."""
        x, group = self._met(call, x), self.mesh.group(call.axes)
        to, source = ((group.me + steps) % group.size for steps in (by, -by))
        self.mesh.send(group.at[to], pickle.dumps(x.data), call)
        data = pickle.loads(self.mesh.receive(group.at[source], call))
        return replace(x, data=data, places={d: self._places(p) for d, p in self._told[source].items()})


def _filled(x: Held, dim: str, length: int) -> Array:
    """The numbers with a dimension filled up by zeros."""
    widths = [(0, length - n if d == x.axis(dim) else 0) for d, n in enumerate(x.data.shape)]
    return np.pad(x.data, widths, constant_values=Fraction(0))


# A run.


def groups_of(counterexample: Counterexample) -> list[frozenset[str]]:
    """The sets of axes along which the program exchanges; gathers go axis by axis, and so do exchanges over several."""
    every = [c for stmt in statements(counterexample.program.body) for c in calls(stmt) if OPS[c.op].collective]
    sets = [[frozenset((a,)) for a in c.axes] if c.op in ("all_gather", "all_to_all") else [frozenset(c.axes)] for c in every]
    return list(dict.fromkeys(axes for of in sets for axes in of))


def returned(counterexample: Counterexample, mesh: Mesh | None) -> dict[str, Named]:
    """What this device returns; without a mesh what one device does, and the derivative that a gradient should have been."""
    wanted = counterexample.reference.get(DERIVATIVE, {}) if mesh is None else {}
    number = int(counterexample.shown.table.removeprefix("result ")) - 1 if wanted and counterexample.shown.table is not None else None
    with _as_replayed():
        outputs = in_order(counterexample.program, _machine(counterexample, mesh, number).run())
    tables = {f"result {n + 1}": _table(counterexample, o.value) for n, o in enumerate(outputs)}
    if number is None:
        return tables
    derivative = outputs[number].derivative
    assert derivative is not None
    return tables | {DERIVATIVE: {name: n for name, n in _table(counterexample, derivative).items() if name in wanted}}


def _machine(counterexample: Counterexample, mesh: Mesh | None, number: int | None) -> Machine:
    f = Fractions(fine=counterexample.flags.get("fine", False))
    degrees = counterexample.factors if mesh is not None else dict.fromkeys(counterexample.factors, 1)
    arrays = Arrays(f, degrees, counterexample.seed, None if mesh is None else mesh.at)
    exchange = None if mesh is None else OnGloo(arrays, mesh)
    program = counterexample.one_device if mesh is None and counterexample.one_device is not None else counterexample.program
    follow = () if number is None else _claimed(program, counterexample.program, number)
    begin = partial(_begin, counterexample, f)
    return Machine(program, arrays, counterexample.sizes, begin, seed=counterexample.seed, follow=follow, groups=exchange)


def _claimed(program: Resolved, other: Resolved, number: int) -> list[Call]:
    """The gradient that is the result of this number of another program."""
    if program is other:
        return program_returns(program)[number : number + 1]
    wanted = kind(program_returns(other)[number])
    return [call for call in program_returns(program) if kind(call) == wanted][:1]


def _begin(counterexample: Counterexample, f: Fractions, tensor: Tensor) -> Array:
    """The numbers of an input."""
    shape = tuple(counterexample.sizes[d] for d in tensor.dims)
    names = [f"{tensor.name}{spot(dict(zip(tensor.dims, at, strict=True)))}" for at in np.ndindex(*shape)]
    if any(n not in counterexample.numbers for n in names):
        raise NotReplayedError(f"the file does not hold all numbers of `{tensor.name}`")
    return f.array([counterexample.numbers[n] for n in names], shape)


def _table(counterexample: Counterexample, value: Held) -> Named:
    """What a device has; what is computed from what is not held is no number."""
    return {spot(place): n for place, n in value.by_place((0,) * len(counterexample.factors)) if known(n) is not None}


@contextmanager
def _as_replayed() -> Iterator[None]:
    """A replay's own errors."""
    try:
        yield
    except FaultError as fault:
        raise (NotHomeError if "not home" in str(fault) else NothingThereError)(str(fault)) from fault
    except NotComputedError as error:
        raise NotReplayedError(str(error)) from error
