"""What collectives do: the whole meaning of each, on arrays over all devices of its groups.

==================  =====================================================================================================
``all_reduce``      the sum (mean, greatest) over the group, everywhere
``reduce_scatter``  the same, and each device keeps what it owns
``reduce``          the same, on the root alone
``all_gather``      each element (token) from its owner, everywhere
``broadcast``       what the root has (``root=owner``: what each owner has), everywhere
``tied_reduce``     the sum over the first and the last device of the axis, on these two; of tied groups alone
==================  =====================================================================================================
"""

from __future__ import annotations

from math import prod

import numpy as np

from placeproof.semantics.meaning.devices.exchange import Collective
from placeproof.semantics.meaning.devices.layers import taken
from placeproof.semantics.meaning.devices.mesh import Owners
from placeproof.semantics.meaning.numbers import Array


class OnArrays(Collective):
    """A collective on all devices of its groups."""

    def some(self, have: Array, along: tuple[str, ...]) -> Array:
        """Whether some device along some factors has it."""
        return np.broadcast_to(have.any(axis=self.world.dims(along), keepdims=True), have.shape)

    def combined(self, data: Array) -> Array:
        """The reduction over a group, everywhere in it."""
        op, dims, field = self.call.choice("op"), self.world.dims(self.factors), self.world.field
        reduced = (field.greatest if op == "max" else field.total)(data, dims, keepdims=True)
        if op == "mean":
            reduced = field.div(reduced, field.array([prod(data.shape[d] for d in dims)], (1,) * reduced.ndim))
        return np.broadcast_to(reduced, data.shape)

    def scattered(self, data: Array, _: Owners) -> Array:
        """The reduction, on the devices to which an element belongs."""
        return self.combined(data)

    def from_root(self, data: Array) -> Array:
        """What the root has."""
        rows = data
        for f, n in self.root.items():
            rows = rows.take([n], axis=self.world.dim[f])
        return np.broadcast_to(rows, data.shape)

    def gathered(self, data: Array, have: Array, given: Owners) -> tuple[Array, Array]:
        """What those have who give it to all."""
        for f, owner in given.items():
            data, have = taken(data, self.world.dim[f], owner[:, None]), taken(have, self.world.dim[f], owner)
        return data, have
