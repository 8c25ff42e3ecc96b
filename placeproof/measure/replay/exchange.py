"""What a process's exchanges are on gloo. What they ought to be is said in :mod:`placeproof.semantics.meaning.devices.collectives`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from placeproof.measure.replay.mesh import Mesh
from placeproof.measure.replay.wire import Wire, packed, unpacked
from placeproof.semantics.meaning.devices.exchange import Collective
from placeproof.semantics.meaning.devices.layers import Experts
from placeproof.semantics.meaning.devices.mesh import Owners, of_tensors, owned
from placeproof.semantics.meaning.devices.network import Gradients, Weights
from placeproof.semantics.meaning.devices.place import Meeting, Place
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.run import met
from placeproof.semantics.meaning.values import MisfitError, Norms, Part, expect, numeric


class Exchange(Collective):
    """One exchange of this process with the others of a group. What rows there are (elements, tokens, tensors), all devices agree on."""

    def __init__(self, mesh: Mesh, place: Place, request: Meeting) -> None:
        super().__init__(request.call, place.mesh)
        self.place, self.request = place, request
        self.group = mesh.ends(self.call.axes[0]) if self.call.op == "tied_reduce" else mesh.group(request.apart)
        self.wire = Wire(mesh, self.group, self.call)

    def exchanged(self) -> Any:
        """What this device has afterwards. Raises NoMeaningError, MisfitError, or the errors of exchanges."""
        value = self.request.value
        if self.request.size == 1:
            return met(self.place, [self.place.here], [self.request])[0]
        # The kind of value is told apart from the rest: devices that bring different ones do meet in one collective.
        self.wire.mesh.meet(self.group, self.call, zlib.crc32(repr(self.request.what).encode()))
        number = isinstance(value, np.ndarray | np.generic | Fraction)
        if len(set(self.wire.collected("number" if number else type(value).__name__))) > 1:
            raise MisfitError("devices of one group bring different kinds of values")
        return self._together(value) if isinstance(value, list) else self.result(numeric(self.world, value) if number else value)

    def _together(self, value: list[Any]) -> Any:
        """What devices compute together: a layer with experts, to whom tokens are sent; or a pass of the flat model, or a block that is
        called whole, which sees the parameters of all devices: what they have is told, and it is computed as it is defined."""
        if self.world.layout.called or not self.world.layout.network:
            requests = [replace(self.request, value=unpacked(self.world, part)) for part in self.wire.collected(packed(value))]
            return met(self.place, self.group.at, requests)[self.group.me]
        w, *rest = value
        return SentExperts(self.place, self.wire, w).results(self.call.op, *rest)

    def part(self, value: Part) -> Part:
        """Over all elements of the model, since devices may bring different ones."""
        return super().part(value.on(self.world.columns(tuple(range(len(self.world.elements)))))).on(value.columns)

    def norms(self, value: Norms) -> Norms:
        """Of all tensors of the model, or of all lines of its matrices."""
        layout = self.world.layout
        tensors = tuple(sorted({t for e in self.world.elements for t in (layout.lines_of(e) if value.lines else [layout.tensor_of(e)])}))
        return super().norms(of_tensors(self.mesh, tensors, value))

    # What devices do together.

    def some(self, have: Array, _: tuple[str, ...]) -> Array:
        """Whether some device of the group has it."""
        return self.wire.some(have)

    def combined(self, data: Array) -> Array:
        """An all-reduce, or a reduce."""
        return self.wire.combined(data, self.call.choice("op"), self.group.rank_at(self.root) if self.op == "reduce" else None)

    def from_root(self, data: Array) -> Array:
        """A broadcast."""
        rows: Array = self.wire.spread(data, self.group.rank_at(self.root))
        return rows

    def scattered(self, data: Array, owners: Owners) -> Array:
        """Each device's own rows, combined: filled up to the longest share, since gloo's shares are of one size."""
        rows, op = data.reshape(-1, data.shape[-1]), self.call.choice("op")
        shares = _shares(np.stack([np.broadcast_to(owned(owners, at), len(rows)) for at in self.group.at]))
        share = shares[self.group.me]
        if self.call.op == "reduce":  # one for each owner
            mine = [self.wire.combined(rows[s], op, rank) for s, rank in zip(shares, self.group.ranks, strict=True)][self.group.me]
        elif self.call.choice("via") == "all_to_all":
            f, each = self.world.field, np.stack(self.wire.swapped([rows[s] for s in shares]))
            mine = f.greatest(each, 0) if op == "max" else f.div(f.total(each, 0), f.of(self.group.size if op == "mean" else 1))
        else:
            mine = self.wire.scattered(np.stack([rows[s] for s in shares]), op)
        combined = rows.copy()
        combined[share[share >= 0]] = mine[share >= 0]
        return combined.reshape(data.shape)

    def gathered(self, data: Array, have: Array, given: Owners) -> tuple[Array, Array]:
        """Each row from the device whose copy this one takes."""
        rows, there = data.reshape(-1, data.shape[-1]).copy(), have.reshape(-1).copy()
        gives = [owned(given, at) for at in self.group.at]
        own = [(rows[mine], there[mine]) for mine in gives]
        if self.call.op == "broadcast":  # one from each owner
            parts = [self.wire.spread(part, rank) for part, rank in zip(own, self.group.ranks, strict=True)]
        else:
            parts = self.wire.collected(own[self.group.me])
        for theirs, part in zip(gives, parts, strict=True):
            rows[theirs], there[theirs] = part
        return rows.reshape(data.shape), there.reshape(have.shape)


def _shares(own: Array) -> list[Array]:
    """The numbers of each device's rows, filled up to the longest share with -1."""
    longest = max(1, int(own.sum(axis=1).max()))
    return [np.pad(np.flatnonzero(row), (0, longest - int(row.sum())), constant_values=-1) for row in own]


# Layers whose experts lie on several devices.


class SentExperts(Experts):
    """A layer with experts on several devices, as one of them computes it with its own alone.

    Each gives its tokens to every device of its group, and takes back what their experts make of them. In backward the gradients of the
    outputs go the way of the tokens (Lepikhin et al. 2021, section 2.2). No weight leaves its device.
    """

    def __init__(self, place: Place, wire: Wire, w: Part) -> None:
        world, self.wire, self.stage = place.world, wire, place.mesh.stage
        numbers = wire.collected(expect(Part, w).columns.numbers)
        every = w.on(world.columns(tuple(sorted(set().union(*numbers)))))
        self.make = partial(_Sent, layer=self)
        super().__init__(world, every, world.layout.factors(wire.call.axes), place.mesh.at, place.mesh.stage)

    def any(self, have: Array) -> Array:
        """Whether some device of the group has it."""
        return self.wire.some(have)

    def from_owners(self, _: dict[str, Array]) -> Array:
        """The device's own numbers: tokens go to the owners of all others."""
        return self.w.data

    def from_samples(self, gradient: Array) -> Array:
        """Added up already, over the tokens that came."""
        return gradient

    def of_sender(self, columns: Array, sender: int) -> Array:
        """The columns with which this device computes for another one: its experts; for itself, also those that are no experts."""
        layout = self.world.layout
        expert = np.isin(np.arange(columns.shape[-1]), [n for g in layout.expert_groups for n in layout.columns[g]])
        return columns & (self._own | ~expert if sender == self.wire.group.me else self._own & expert)

    @cached_property
    def _own(self) -> Array:
        """The columns that this device owns, whether or not it was given their weights."""
        world, me = self.world, self.wire.group.at[self.wire.group.me]
        every = world.columns(tuple(range(len(world.elements))))
        first = every.matrices(world.layout.blocks[0])[1][0]
        return owned({f: world.layout.owners(f, self.stage)[first] for f in self.along}, me)

    def counted(self) -> list[int]:
        """The devices whose tokens count for this one's gradients: those that give tokens of their own, and itself."""
        same = [f for f in self.along if f not in self.giving]
        at = self.wire.group.at
        return [n for n, other in enumerate(at) if all(other[f] == at[self.wire.group.me][f] for f in same)]


@dataclass(frozen=True, eq=False)
class _Sent(Weights):
    """A block's weights, where tokens are sent to the experts."""

    layer: SentExperts

    def _for(self, sender: int) -> Weights:
        return Weights(self.field, self.norm, self.first, self.second, self.layer.of_sender(self.columns, sender))

    def _sum(self, parts: Sequence[Array]) -> Array:
        return reduce(self.field.add, parts)

    def matrix(self, y: Array) -> Array:
        """The sum of what all experts make of this device's tokens."""
        given = self.layer.wire.collected(y)
        return self._sum(self.layer.wire.swapped([self._for(n).matrix(part) for n, part in enumerate(given)]))

    def matrix_back(self, y: Array, dz: Array) -> tuple[Array, Gradients]:
        """The gradients of this device's tokens, and of its own weights."""
        wire = self.layer.wire
        pairs = zip(wire.collected(y), wire.collected(dz), strict=True)
        backs = [self._for(n).matrix_back(*pair) for n, pair in enumerate(pairs)]
        back = self._sum(wire.swapped([dy for dy, _ in backs]))
        _, first, second = zip(*(backs[n][1] for n in self.layer.counted()), strict=True)
        return back, Gradients(first=self._sum(first), second=self._sum(second))
