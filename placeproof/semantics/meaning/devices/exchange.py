"""A device's own half of a collective: what it brings, and what of its elements, tokens and numbers there is afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from placeproof.programs import Call
from placeproof.semantics.meaning.devices.mesh import Mesh, Owners, owned
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.setup import NoMeaningError
from placeproof.semantics.meaning.values import Norms, Part, Saved, Stream

#: What goes from each part's owner, or to it, instead of from one root.
_BY_OWNERS = {"broadcast": "all_gather", "reduce": "reduce_scatter"}


class Collective:
    """A collective of the devices of a mesh, of which each knows its own numbers.

    What they do together is left to a subclass: whether ``some`` device along factors has something; what is ``combined``, on the root at
    least; what is ``scattered`` to the devices to which it belongs, at least on these; what comes ``from_root``; what is ``gathered``, each
    element from who gives it.
    """

    some: Callable[[Array, tuple[str, ...]], Array]
    combined: Callable[[Array], Array]
    scattered: Callable[[Array, Owners], Array]
    from_root: Callable[[Array], Array]
    gathered: Callable[[Array, Array, Owners], tuple[Array, Array]]

    def __init__(self, call: Call, mesh: Mesh) -> None:
        self.call, self.mesh, self.world = call, mesh, mesh.world
        self.factors = mesh.world.layout.factors(call.axes)
        by_owners = call.op in _BY_OWNERS and call.choice("root") == "owner"
        self.op = _BY_OWNERS[call.op] if by_owners else call.op

    def result(self, value: Any) -> Any:
        """Of what devices bring. Raises NoMeaningError."""
        match value:
            case Saved():
                raise NoMeaningError(f"`{self.op}` of what a forward kept")
            case Part():
                return self.part(value)
            case Stream():
                return self._stream(value)
            case Norms():
                return self.norms(value)
            case np.ndarray():
                return self._numbers(np.broadcast_to(value, self.mesh.shape))
        number = self.world.field.array([value], (1,) * len(self.mesh.shape))
        return self._numbers(np.broadcast_to(number, self.mesh.shape))

    def part(self, value: Part) -> Part:
        """Of parts of the parameters."""
        world, extent = self.world, value.extent
        if self.op == "tied_reduce":
            return self._tied(value)
        if any(world.layout.shared(world.layout.group_of(e)) in self.call.axes for e in value.columns.elements):
            raise NoMeaningError(f"`{self.op}` of weights that stages share, over these stages")
        stage = self.mesh.joined(self.factors).stage
        after = self.call.option("order") if self.op == "all_to_all" else None
        before = "matrices" if after == "blocked" else "blocked"
        owners = {f: world.layout.owners(f, stage, before)[value.columns.index] for f in self.factors}
        given = {f: np.maximum(owner, 0) for f, owner in owners.items()}  # of copies of tied weights, the first stage's
        data, have = self.gathered(value.data, value.have, given) if after else self._moved("parameters", value, owners, given)
        apart = tuple(f for f in self.factors if world.sliced(f).any())
        if after:
            have = have & self.mesh.owns(value.columns, self.factors, after)
        if (self.op == "all_gather" or after) and apart:  # a layer computes with the slices, and experts, that it is given
            extent = self.some(extent, apart)
        return replace(value, extent=extent).with_(data, have & extent)

    def _tied(self, value: Part) -> Part:
        """Over the first and the last device, which alone are in the group (the axis is one of those that are apart)."""
        layout = self.world.layout
        if any(layout.shared(g.name) == self.call.axes[0] for g in layout.program.groups):
            return self._shared(value)
        tied = np.array([layout.tied(layout.group_of(e)) == self.call.axes[0] for e in value.columns.elements], dtype=bool)
        return value.with_(np.where((tied & value.have)[..., None], self.combined(value.data), value.data), value.have)

    def _shared(self, value: Part) -> Part:
        """Of weights that the blocks at both ends share: each has them as elements of its own."""
        if self.call.choice("op") == "max":
            raise NoMeaningError("`tied_reduce` of shared weights that takes the greatest")
        where = {e: n for n, e in enumerate(value.columns.elements)}
        pairs = [(where[one], where[two]) for one, two in self.world.layout.shared_elements if one in where and two in where]
        data = value.data.copy()
        for ends in zip(*pairs, strict=True):
            own, other = np.array(ends), np.array([sum(pair) - n for pair, n in zip(pairs, ends, strict=True)])
            mine = value.have[..., own] & value.extent[..., own]
            summed = self.combined(np.where(value.extent[..., own, None], value.data[..., own, :], value.data[..., other, :]))
            data[..., own, :] = np.where(mine[..., None], summed, value.data[..., own, :])
        return value.with_(data, value.have)

    def _stream(self, value: Stream) -> Stream:
        along, every = self.world.layout.tokens, self.world.token_owners()
        given = {f: every if f == along else np.full_like(every, self.world.sizes[f] - 1) for f in self.factors}
        moved = Stream(*self._moved("activations", value, {} if along is None else {along: every}, given))
        return moved if self.op in ("broadcast", "all_reduce") else moved.kept(self.world, moved.have)

    def _moved(self, what: str, value: Part | Stream, owners: Owners, given: Owners) -> tuple[Array, Array]:
        """What there is of each element, or token, afterwards, and where. ``given``: who gives each to all others."""
        match self.op:
            case "all_gather":
                return self.gathered(value.data, value.have, given)
            case "broadcast":
                return self.from_root(value.data), self.from_root(value.have)
            case "all_reduce":
                return self.combined(value.data), self.some(value.have, self.factors)
            case "reduce":
                return self.combined(value.data), self.some(value.have, self.factors) & self._at_root[..., None]
            case "reduce_scatter":
                return self.scattered(value.data, owners), self.some(value.have, self.factors) & owned(owners, self.mesh.at)
        raise NoMeaningError(f"`{self.op}` of {what}")

    def norms(self, value: Norms) -> Norms:
        """Of a number for each tensor, which is zero where a device has nothing of it. Of those of other layers, or other experts, a device
        has no numbers: the sum of what is there is of nothing."""
        layout = self.world.layout
        for group in {tensor[1] for tensor in value.tensors}:
            if {layout.stages, *layout.factors(layout.group(group).experts)} & set(self.factors):
                raise NoMeaningError(f"`{self.op}` of numbers of tensors of which devices have different ones")
        numbers = self._numbers(np.where(value.have, value.data, self.world.field.of(0)))
        return replace(value, data=numbers, have=self.some(value.have, self.factors))

    def _numbers(self, data: Array) -> Array:
        if self.op not in ("all_reduce", "reduce", "broadcast"):
            raise NoMeaningError(f"`{self.op}` of a number")
        numbers = self.from_root(data) if self.op == "broadcast" else self.combined(data)
        if self.op != "reduce":
            return numbers
        root = self._at_root.reshape(self._at_root.shape + (1,) * (data.ndim - self._at_root.ndim))
        return np.where(root, numbers, self.world.garbage(numbers.shape))

    @cached_property
    def root(self) -> dict[str, int]:
        """The coordinates of the root that is named, counted around."""
        number, coordinates = int(self.call.choice("root")), {}
        for f in reversed(self.factors):
            number, coordinates[f] = divmod(number, self.world.sizes[f])
        return coordinates

    @cached_property
    def _at_root(self) -> Array:
        roots: Array = np.ones(self.mesh.shape, dtype=bool)
        for f, n in self.root.items():
            roots &= self.mesh.at[f] == n
        return roots
