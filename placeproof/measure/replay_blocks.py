"""A block of a model on processes: the runner of :mod:`placeproof.semantics.tensors`, one device a process, and real exchanges on gloo."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from placeproof.core.program import Call, Do, calls, statements
from placeproof.core.program.ir import Tensor
from placeproof.core.program.ops import OPS
from placeproof.measure.replay import DERIVATIVE, Table
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Group, Mesh
from placeproof.measure.replay_numbers import Numbers
from placeproof.measure.replay_numbers import Residues as ManyPrimes
from placeproof.measure.replay_values import NothingThereError, NotHomeError, NotReplayedError
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.tensors.arrays import Arrays, Held
from placeproof.semantics.tensors.groups import Groups
from placeproof.semantics.tensors.machine import Machine
from placeproof.semantics.tensors.numbers import Fractions, Residues, Tensors
from placeproof.semantics.tensors.setup import FaultError, NotComputedError
from placeproof.semantics.tensors.simulate import spot

#: What :meth:`placeproof.measure.replay_mesh.Mesh.meet` is told of an array.
ARRAY = 6


@dataclass(frozen=True)
class Many(Residues):
    """Residues modulo many primes: where a power or an order needs the numbers themselves, they are found from their residues."""

    of_numbers: Any = None
    nested: ClassVar[bool] = True

    @property
    def moduli(self) -> tuple[int, ...]:
        """The primes."""
        return tuple(self.of_numbers.primes)

    def _found(self, x: Array) -> Array:
        return Fractions().array(self.of_numbers.decode(torch.from_numpy(np.ascontiguousarray(x))), x.shape[:-1])

    def exp(self, x: Array) -> Array:
        """A power of two, of whole numbers."""
        return self.array(Fractions(fine=self.fine).exp(self._found(x)).reshape(-1).tolist(), x.shape[:-1])

    def log(self, x: Array) -> Array:
        """Of the numbers."""
        return self.array(Fractions(fine=self.fine).log(self._found(x)).reshape(-1).tolist(), x.shape[:-1])

    def not_less(self, x: Array, y: Array) -> Array:
        """By the numbers."""
        return Fractions().not_less(self._found(x), self._found(y))

    def same(self, x: Array, y: Array) -> Array:
        """Modulo all primes."""
        return np.asarray((x == y).all(-1))

    def plain(self, one: Any) -> Any:
        """The number itself."""
        return self.of_numbers.decode(torch.from_numpy(np.ascontiguousarray(one))[None])[0]


class OnGloo(Groups):
    """Collectives of one process with the others of its groups."""

    def __init__(self, arrays: Arrays, mesh: Mesh, of: ManyPrimes) -> None:
        super().__init__(arrays)
        self.mesh, self.of = mesh, of
        self._told: list[dict[str, list[int]]] = []

    def _group(self, call: Call) -> Group:
        return self.mesh.group(call.axes)

    def _met(self, call: Call, x: Held) -> Held:
        """All devices of the group are here, and know of one another which places they have. Dimensions in an order that they agree on."""
        self.mesh.meet(self._group(call), call, ARRAY)
        dims = sorted(x.dims)
        described = json.dumps({d: x.places[d].of.reshape(-1).tolist() for d in dims})
        self._told = [json.loads(text) for text in self.mesh.told(self._group(call), described, call)]
        return replace(x, data=self.arrays.ordered(x, dims), places={d: x.places[d] for d in dims})

    def alike(self, call: Call, x: Held, active: Array, apart: str | None = None) -> Held:
        """The tensor, if all devices of a group have as much of each dimension, save one; raises FaultError."""
        if self.size(call) == 1:
            return super().alike(call, x, active, apart)
        x = self._met(call, x)
        lengths = [{d: len(p) for d, p in told.items() if d != apart} for told in self._told]
        if any(one != lengths[0] for one in lengths):
            raise FaultError(f"shapes do not fit: the devices of a group have others for `{call.op}`")
        first = {d: x.places[d] if d == apart else self._places(p) for d, p in self._told[0].items()}
        return replace(x, places=first if call.op in ("all_gather", "all_to_all") else x.places)

    def _places(self, of: Sequence[int]) -> Any:
        return self.arrays.places(np.array(of, dtype=np.int64).reshape(*self.arrays.shape, -1))

    def _numbers(self, data: Array) -> Numbers:
        return Numbers(self.of, torch.from_numpy(np.ascontiguousarray(data)))

    def _rank(self, call: Call, root: Mapping[str, int]) -> int:
        group = self._group(call)
        return next(rank for rank, at in zip(group.ranks, group.at, strict=True) if all(at[a] == n for a, n in root.items()))

    def combined(self, call: Call, x: Held, root: Mapping[str, int] | None) -> Held:
        """An all-reduce, or a reduce."""
        if self.size(call) == 1:
            return super().combined(call, x, root)
        at = None if root is None else self._rank(call, root)
        data = self.mesh.reduced(self._group(call), self._numbers(x.data), call.option("op", "sum") or "sum", call, at).data.numpy()
        return replace(x, data=data if at in (None, self.mesh.rank) else self.arrays.garbage(data))

    def sent(self, call: Call, x: Held, root: Mapping[str, int]) -> Held:
        """A broadcast."""
        if self.size(call) == 1:
            return super().sent(call, x, root)
        return replace(x, data=self.mesh.spread(self._group(call), self._numbers(x.data).data, self._rank(call, root), call).numpy())

    def scattered(self, call: Call, x: Held, dim: str) -> Held:
        """A reduce-scatter of rows that are filled up to the same length."""
        if self.size(call) == 1:
            return super().scattered(call, x, dim)
        group = self._group(call)
        parts = [self.arrays.part(x, dim, call.axes, at) for at in group.at]
        rows = np.stack([_filled(p, {dim: max(p.places[dim].longest for p in parts)}) for p in parts])
        got = self.mesh.scattered(group, self._numbers(rows), call.option("op", "sum") or "sum", call).data.numpy()
        own = parts[group.me]
        return replace(own, data=_first(got, own.axis(dim), own.places[dim].longest))

    def gathered(self, call: Call, x: Held, dim: str) -> Held:
        """An all-gather of parts that are filled up to the same length."""
        if self.size(call) == 1:
            return super().gathered(call, x, dim)
        lengths = [len(told[dim]) for told in self._told]
        mine = self._numbers(_filled(x, {dim: max(lengths)}))
        got = self.mesh.collect(self._group(call), mine.data, call)
        return self._joined(x, dim, [_first(g.numpy(), x.axis(dim), n) for g, n in zip(got, lengths, strict=True)])

    def _joined(self, x: Held, dim: str, parts: Sequence[Array]) -> Held:
        places = self._places([p for told in self._told for p in told[dim]])
        return replace(x, data=np.concatenate(parts, axis=x.axis(dim)), places={**x.places, dim: places})

    def swapped(self, call: Call, x: Held, old: str, new: str) -> Held:
        """An all-to-all of pieces that are filled up to the same shape."""
        if self.size(call) == 1:
            return super().swapped(call, x, old, new)
        group, lengths = self._group(call), [len(told[old]) for told in self._told]
        pieces = [self.arrays.part(self.uncut(x, old), new, call.axes, at) for at in group.at]
        wide = {old: max(lengths), new: max(p.places[new].longest for p in pieces)}
        got = self.mesh.exchanged(group, self._numbers(np.stack([_filled(p, wide) for p in pieces])), call).data.numpy()
        own = pieces[group.me]
        rows = [_first(g, own.axis(new), own.places[new].longest) for g in got]
        return self._joined(own, old, [_first(g, own.axis(old), n) for g, n in zip(rows, lengths, strict=True)])

    def shifted(self, call: Call, x: Held, by: int) -> Held:
        """A message to the one device and from the other."""
        if self.size(call) == 1:
            return super().shifted(call, x, by)
        x, group = self._met(call, x), self._group(call)
        theirs = self._told[(group.me - by) % group.size]
        ones = x.data.shape[: 1 + len(self.arrays.axes)]
        mine = self._numbers(x.data).data
        got = self.mesh.passed(group, mine, [*ones, *map(len, theirs.values()), *mine.shape[len(ones) + len(theirs) :]], by, call)
        return replace(x, data=got.numpy(), places={d: self._places(p) for d, p in theirs.items()})


def _filled(x: Held, lengths: Mapping[str, int]) -> Array:
    """The numbers with dimensions filled up by zeros."""
    data = x.data
    for dim, length in lengths.items():
        shape = list(data.shape)
        shape[x.axis(dim)] = length - shape[x.axis(dim)]
        data = np.concatenate([data, np.zeros(shape, dtype=data.dtype)], axis=x.axis(dim))
    return data


def _first(data: Array, axis: int, length: int) -> Array:
    return data.take(range(length), axis=axis)


# A run.


def groups_of(found: Counterexample) -> list[frozenset[str]]:
    """The sets of axes along which the program exchanges; gathers go axis by axis."""
    every = [c for stmt in statements(found.program.body) for c in calls(stmt) if OPS[c.op].collective]
    sets = [[frozenset((a,)) for a in c.axes] if c.op == "all_gather" else [frozenset(c.axes)] for c in every]
    return list(dict.fromkeys(one for of in sets for one in of))


def returned(found: Counterexample, mesh: Mesh | None, of: ManyPrimes) -> dict[str, Table]:
    """What this device returns; without a mesh what one device does, and the derivative that a gradient should have been."""
    wanted = found.reference.get(DERIVATIVE, {}) if mesh is None else {}
    number = int(found.shown.table.removeprefix("result ")) - 1 if wanted and found.shown.table is not None else None
    with _as_replayed():
        outputs = _machine(found, mesh, of, number).run()
    tables = {f"result {n + 1}": _table(found, o.value) for n, o in enumerate(outputs)}
    if number is None:
        return tables
    derivative = outputs[number].derivative
    assert derivative is not None
    every = _table(found, derivative)
    rows: Any = every.data  # a tensor
    return tables | {DERIVATIVE: Table(list(wanted), rows[[every.names.index(name) for name in wanted]])}


def _machine(found: Counterexample, mesh: Mesh | None, of: ManyPrimes, number: int | None) -> Machine:
    f = Many(fine=found.flags.get("fine", False), of_numbers=of)
    degrees = found.factors if mesh is not None else dict.fromkeys(found.factors, 1)
    arrays = Arrays(f, degrees, found.seed, None if mesh is None else mesh.at)
    exchange = None if mesh is None else OnGloo(arrays, mesh, of)
    tops = [s.call for s in found.program.body if isinstance(s, Do) and s.call.op == "returns"]
    follow = () if number is None else tops[number : number + 1]
    return Machine(found.program, arrays, found.sizes, partial(_begin, found, f), seed=found.seed, follow=follow, groups=exchange)


def _begin(found: Counterexample, f: Tensors, tensor: Tensor) -> Array:
    """The numbers of an input."""
    shape = tuple(found.sizes[d] for d in tensor.dims)
    names = [f"{tensor.name}{spot(dict(zip(tensor.dims, at, strict=True)))}" for at in np.ndindex(*shape)]
    if any(n not in found.numbers for n in names):
        raise NotReplayedError(f"the file does not hold all numbers of `{tensor.name}`")
    return f.array([found.numbers[n] for n in names], shape)


def _table(found: Counterexample, value: Held) -> Table:
    every = list(value.by_place((0,) * len(found.factors)))
    return Table([spot(place) for place, _ in every], torch.from_numpy(np.array([n for _, n in every])))


@contextmanager
def _as_replayed() -> Iterator[None]:
    """A replay's own errors."""
    try:
        yield
    except FaultError as fault:
        raise (NotHomeError if "not home" in str(fault) else NothingThereError)(str(fault)) from fault
    except NotComputedError as error:
        raise NotReplayedError(str(error)) from error
