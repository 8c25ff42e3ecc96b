"""Layers with experts on several devices, as real processes compute them together.

Each device gives its tokens to every device of its group, and takes back what their experts make of them. In backward the gradients of the
outputs go the way of the tokens (Lepikhin et al. 2021, section 2.2). No weight leaves its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from placeproof.measure.replay_wire import Wire
from placeproof.semantics.meaning.layers import Experts
from placeproof.semantics.meaning.network import Gradients, Weights
from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.place import Place
from placeproof.semantics.meaning.values import Part, expect


class SentExperts(Experts):
    """A layer as one device computes it, with its own experts alone."""

    def __init__(self, place: Place, wire: Wire, w: Part) -> None:
        world, self.wire, self.stage = place.world, wire, place.mesh.stage
        told = wire.collected(expect(Part, w).columns.numbers)
        every = w.on(world.columns(tuple(sorted(set().union(*told)))))
        super().__init__(world, every, world.layout.factors(wire.call.axes), place.mesh.at, place.mesh.stage)

    def make(self, field: Field, norm: Array, first: Array, second: Array, columns: Array) -> Weights:
        """What computes with a block's weights."""
        return _Sent(field, norm, first, second, columns, self)

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
        counted = [found[n][1] for n in self.layer.counted()]
        first, second = ([g for g in of if g is not None] for of in zip(*((g.first, g.second) for g in counted), strict=True))
        return back, Gradients(first=self._sum(first), second=self._sum(second))
