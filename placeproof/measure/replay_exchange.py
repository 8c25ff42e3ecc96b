"""What a process's exchanges are on gloo. What they ought to be is said in :mod:`placeproof.semantics.meaning.collectives`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_wire import Wire, packed, unpacked
from placeproof.semantics.meaning.layers import Experts
from placeproof.semantics.meaning.mesh import of_tensors
from placeproof.semantics.meaning.network import Gradients, Weights
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.place import Meeting, Place
from placeproof.semantics.meaning.run import met
from placeproof.semantics.meaning.values import MisfitError, NoMeaningError, Norms, Part, Saved, Stream, expect, numeric

#: What there is on gloo, by kind of value; the name of the kind for messages.
_OF_PARTS = "parameters", ("all_reduce", "reduce_scatter", "reduce", "all_gather", "broadcast", "tied_reduce")
_OF_STREAMS = "activations", ("all_reduce", "reduce_scatter", "reduce", "all_gather", "broadcast")
_OF_NUMBERS = "a number", ("all_reduce", "reduce", "broadcast")


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What a device brings, by rows (elements, tokens, tensors): ``data[row, component]``, ``have[row]``.

    ``owned[device, row]``: which rows each device of the group owns; ``given``: which it gives to all others, each row one device. Without
    meaning where rows have no owners.
    """

    data: Array
    have: Array
    owned: Array = None
    given: Array = None


class Exchange:
    """One exchange of this process with the others of a group."""

    def __init__(self, mesh: Mesh, place: Place, request: Meeting) -> None:
        self.place, self.world, self.request, self.call = place, place.world, request, request.call
        self.group = mesh.ends(self.call.axes[0]) if self.call.op == "tied_reduce" else mesh.group(request.apart)
        self.wire = Wire(mesh, self.group, self.call)
        self.op, self.factors = self.call.choice("op"), place.layout.factors(self.call.axes)

    def result(self) -> Any:
        """What this device has afterwards. Raises NoMeaningError, MisfitError, or the errors of exchanges."""
        value = self.request.value
        if self.request.size == 1:
            return met(self.place, [self.place.here], [self.request])[0]
        # The kind of value is told apart from the rest: devices that bring different ones do meet in one collective.
        self.wire.mesh.meet(self.group, self.call, zlib.crc32(repr(self.request.what).encode()))
        if len(set(self.wire.collected(_kind(value)))) > 1:
            raise MisfitError("devices of one group bring different kinds of values")
        if isinstance(value, list):
            return self._together(value)
        if isinstance(value, Part):
            return self._part(value)
        if isinstance(value, Stream):
            return self._stream(value)
        if isinstance(value, Norms):
            return self._norms(value)
        if isinstance(value, Saved):
            raise NoMeaningError(f"`{self._collective}` of what a forward kept")
        return self._number(value)

    def _together(self, value: list[Any]) -> Any:
        """What devices compute together: a layer with experts, to whom tokens are sent; or a pass of the flat model, which sees the
        parameters of all devices: what they have is told, and the pass is computed as it is defined."""
        if self.call.op in ("backward", "backward_with") and not self.world.layout.network:
            requests = [replace(self.request, value=unpacked(self.world, one)) for one in self.wire.collected(packed(value))]
            return met(self.place, self.group.at, requests)[self.group.me]
        w, *rest = value
        return SentExperts(self.place, self.wire, w).results(self.call.op, *rest)

    # Parts of the parameters.

    def _part(self, own: Part) -> Part:
        """Over all elements of the model, since devices may bring different ones."""
        whole = own.on(self.world.columns(tuple(range(len(self.world.elements)))))
        if self.call.op == "tied_reduce":
            return self._tied(whole).on(own.columns)
        stage = self.place.mesh.joined(self.request.apart).stage
        owners = [self.world.layout.owners(f, stage) for f in self.factors]
        given = self._owned([np.maximum(owner, 0) for owner in owners])  # of copies of tied weights, the first stage's
        rows = _Rows(_flat(whole.data), whole.have.reshape(-1), self._owned(owners), given)
        data, have = self._moved(rows, _OF_PARTS)
        extent = whole.extent
        experts = self.world.layout.experts
        if self._collective == "all_gather" and self.world.layout.network and experts is not None:
            others = set(self.world.layout.factors((experts,))) & set(self.factors)
            extent = self.wire.some(extent) if others else extent  # also the experts of the devices that it gathers from
        found = replace(whole, extent=extent).with_(data.reshape(whole.data.shape), have.reshape(extent.shape) & extent)
        return found.on(own.columns)

    def _tied(self, own: Part) -> Part:
        """The copies of tied weights combined; everything else stays."""
        layout = self.world.layout
        tied = np.array([layout.tied(layout.group_of(e)) == self.call.axes[0] for e in own.columns.elements], dtype=bool)
        return own.with_(np.where((tied & own.have)[..., None], self.wire.combined(own.data, self.op), own.data), own.have)

    # Everything else.

    def _stream(self, own: Stream) -> Stream:
        tokens, hidden = own.have.shape[-1], self.world.layout.hidden
        owners = [np.arange(tokens) if f == hidden else np.full(tokens, self.world.sizes[f] - 1) for f in self.factors]
        mine = [[hidden is None or at[hidden] == t for t in range(tokens)] for at in self.group.at]
        rows = _Rows(_flat(own.data), own.have.reshape(-1), np.array(mine), self._owned(owners))
        data, have = self._moved(rows, _OF_STREAMS)
        found = Stream(data.reshape(own.data.shape), have.reshape(own.have.shape))
        return found if self._collective in ("all_reduce", "broadcast") else found.kept(self.world, found.have)

    def _norms(self, own: Norms) -> Norms:
        """Of all tensors of the model, zero where a device has nothing of one."""
        layout = self.world.layout
        tensors = tuple(sorted({(e[0], layout.group_of(e)) for e in self.world.elements}))
        own = of_tensors(self.place.mesh, tensors, own)
        data = np.where(own.have, own.data, self.world.field.of(0))
        found, _ = self._moved(_Rows(data.reshape(-1, 1), own.have.reshape(-1)), _OF_NUMBERS)
        elsewhere = self.call.op == "reduce" and self.group.me != self._root()
        return Norms(tensors, self.world.garbage(data.shape) if elsewhere else found.reshape(data.shape), self.wire.some(own.have))

    def _number(self, own: Any) -> Array:
        data = np.broadcast_to(np.asarray(numeric(self.world, own), dtype=object), self.place.mesh.shape)
        found, have = self._moved(_Rows(data.reshape(1, 1), np.ones(1, dtype=bool)), _OF_NUMBERS)
        return found.reshape(data.shape) if have.all() else self.world.garbage(data.shape)

    # Rows.

    @property
    def _collective(self) -> str:
        """What is done, where each part's owner is its root."""
        if self.call.option("root") != "owner":
            return self.call.op
        return {"broadcast": "all_gather", "reduce": "reduce_scatter"}.get(self.call.op, self.call.op)

    def _moved(self, rows: _Rows, there: tuple[str, Sequence[str]]) -> tuple[Array, Array]:
        """What a device has of each row afterwards, and of which it has something."""
        what, known = there
        op, wire, me = self._collective, self.wire, self.group.me
        if op not in known:
            raise NoMeaningError(f"`{op}` of {what}")
        if op == "all_gather":
            return self._gathered(rows)
        if op == "broadcast":
            found: tuple[Array, Array] = wire.spread((rows.data, rows.have), self.group.ranks[self._root()])
            return found
        some = wire.some(rows.have)
        if op == "all_reduce":
            return wire.combined(rows.data, self.op), some
        if op == "reduce":
            root = self._root()
            return wire.combined(rows.data, self.op, self.group.ranks[root]), some & (me == root)
        return self._scattered(rows), some & rows.owned[me]

    def _scattered(self, rows: _Rows) -> Array:
        """Each device's own rows, combined: filled up to the longest share, since gloo's shares are of one size."""
        shares = _shares(rows.owned)
        if self.call.op == "reduce":  # one for each owner
            own = [self.wire.combined(rows.data[share], self.op, rank) for share, rank in zip(shares, self.group.ranks, strict=True)]
            mine = own[self.group.me]
        elif self.call.choice("via") == "all_to_all":
            mine = self._combined(np.stack(self.wire.swapped([rows.data[share] for share in shares])))
        else:
            mine = self.wire.scattered(np.stack([rows.data[share] for share in shares]), self.op)
        found = rows.data.copy()
        share = shares[self.group.me]
        found[share[share >= 0]] = mine[share >= 0]
        return found

    def _combined(self, each: Array) -> Array:
        f = self.world.field
        if self.op == "max":
            return f.greatest(each, 0)
        return f.div(f.total(each, 0), f.of(self.group.size if self.op == "mean" else 1))

    def _gathered(self, rows: _Rows) -> tuple[Array, Array]:
        """Each row from the device whose copy this one takes."""
        own = [(rows.data[given], rows.have[given]) for given in rows.given]
        if self.call.op == "broadcast":  # one from each owner
            parts = [self.wire.spread(one, rank) for one, rank in zip(own, self.group.ranks, strict=True)]
        else:
            parts = self.wire.collected(own[self.group.me])
        data, have = rows.data.copy(), rows.have.copy()
        for given, part in zip(rows.given, parts, strict=True):
            data[given], have[given] = part
        return data, have

    # Who is who in the group.

    def _owned(self, owners: Sequence[Array]) -> Array:
        """The rows that each device owns along all factors; -1: all devices do."""
        found = [[(owner < 0) | (owner == at[f]) for f, owner in zip(self.factors, owners, strict=True)] for at in self.group.at]
        return np.array(found).all(axis=1)

    def _root(self) -> int:
        """The number in the group of the root that is named, counted around; without a name, the first."""
        number = int(self.call.choice("root")) % self.group.size
        return [self._number_of(at) for at in self.group.at].index(number)

    def _number_of(self, at: Any) -> int:
        number = 0
        for f in self.factors:
            number = number * self.world.sizes[f] + at[f]
        return number


def _kind(value: Any) -> str:
    return "number" if isinstance(value, np.ndarray | np.generic | Fraction) else type(value).__name__


def _flat(data: Array) -> Array:
    return data.reshape(-1, data.shape[-1])


def _shares(owned: Array) -> list[Array]:
    """The numbers of each device's rows, filled up to the longest share with -1."""
    longest = max(1, int(owned.sum(axis=1).max()))
    return [np.pad(np.flatnonzero(row), (0, longest - int(row.sum())), constant_values=-1) for row in owned]


# Layers whose experts lie on several devices.


class SentExperts(Experts):
    """A layer with experts on several devices, as one of them computes it with its own alone.

    Each gives its tokens to every device of its group, and takes back what their experts make of them. In backward the gradients of the
    outputs go the way of the tokens (Lepikhin et al. 2021, section 2.2). No weight leaves its device.
    """

    def __init__(self, place: Place, wire: Wire, w: Part) -> None:
        world, self.wire, self.stage = place.world, wire, place.mesh.stage
        told = wire.collected(expect(Part, w).columns.numbers)
        every = w.on(world.columns(tuple(sorted(set().union(*told)))))
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
        return np.all([world.layout.owners(f, self.stage)[first] == me[f] for f in self.along], axis=0)

    def counted(self) -> list[int]:
        """The devices whose tokens count for this one's gradients: those that have samples of their own, and itself."""
        same = [f for f in self.along if f not in self.world.layout.sample_factors]
        at = self.wire.group.at
        return [n for n, other in enumerate(at) if all(other[f] == at[self.wire.group.me][f] for f in same)]


@dataclass(frozen=True, eq=False)
class _Sent(Weights):
    """A block's weights, where tokens are sent to the experts."""

    layer: SentExperts

    def _for(self, sender: int) -> Weights:
        return Weights(self.field, self.norm, self.first, self.second, self.layer.of_sender(self.columns, sender))

    def _sum(self, found: Sequence[Array]) -> Array:
        return reduce(self.field.add, found)

    def matrix(self, y: Array) -> Array:
        """The sum of what all experts make of this device's tokens."""
        given = self.layer.wire.collected(y)
        return self._sum(self.layer.wire.swapped([self._for(n).matrix(one) for n, one in enumerate(given)]))

    def matrix_back(self, y: Array, dz: Array) -> tuple[Array, Gradients]:
        """The gradients of this device's tokens, and of its own weights."""
        wire = self.layer.wire
        pairs = zip(wire.collected(y), wire.collected(dz), strict=True)
        found = [self._for(n).matrix_back(*pair) for n, pair in enumerate(pairs)]
        back = self._sum(wire.swapped([dy for dy, _ in found]))
        _, first, second = zip(*(found[n][1] for n in self.layer.counted()), strict=True)
        return back, Gradients(first=self._sum(first), second=self._sum(second))
