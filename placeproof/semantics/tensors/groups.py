"""What collectives do to tensors: the whole meaning of each, on arrays over all devices of its groups.

==================  ====================================================================================================
``all_reduce``      the sum (mean, greatest) over the group, everywhere
``reduce_scatter``  the same, and each device keeps its part of a dimension
``reduce``          the same, on the root alone
``broadcast``       what the root has, everywhere
``all_gather``      the parts of all devices along an axis, one after the other
``all_to_all``      the same, of which each device keeps its part along another dimension
``shift``           what the device before has, wherever that lies in the whole
==================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from placeproof.programs import Call
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.tensors.arrays import Arrays, Held
from placeproof.semantics.tensors.setup import FaultError, NotComputedError


class Groups:
    """The collectives of one run."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def __call__(self, call: Call, x: Held, active: Array) -> Held:
        """The result on every device. Raises FaultError, NotComputedError."""
        match call.op:
            case "part":
                return self._cut(call, x)
            case "all_gather":
                return self._whole_over_all(call, x, active)
            case "all_to_all" if len(call.axes) > 1:
                return self._other_parts(call, x, active)
            case "all_to_all":
                return self._other_part(call, x, active)
            case "shift":
                if len(call.axes) != 1:
                    raise NotComputedError("a shift along several axes")
                return self.shifted(call, x, int(call.choice("by")))
            case "all_reduce" | "reduce" | "broadcast" | "reduce_scatter":
                x = self.alike(call, x, active)
                root = self._root(call)
                if call.op == "reduce_scatter":
                    return self.scattered(call, x, self._dim(call, x))
                return self.sent(call, x, root or {}) if call.op == "broadcast" else self.combined(call, x, root)
        raise NotComputedError(f"`{call.op}` of a tensor")

    def size(self, call: Call) -> int:
        """How many devices there are in a group."""
        return prod(self.arrays.degrees[a] for a in call.axes)

    @staticmethod
    def _dim(call: Call, x: Held) -> str:
        """The dimension of which a device takes its part."""
        dim = call.option("dim")
        if dim is None or dim not in x.dims or call.choice("order") != "blocked":
            raise NotComputedError("this part")
        return dim

    def _root(self, call: Call) -> dict[str, int] | None:
        """The coordinates of the device whose value counts; None where all do."""
        if call.op not in ("reduce", "broadcast"):
            return None
        root = call.choice("root")
        if self.size(call) == 1:  # where collectives do nothing
            return dict.fromkeys(call.axes, 0)
        if root == "owner":
            raise NotComputedError("a root for each part")
        number, coordinates = int(root), {}
        if number >= self.size(call):
            raise FaultError(f"no device is number {number}")
        for axis in reversed(call.axes):
            number, coordinates[axis] = divmod(number, self.arrays.degrees[axis])
        return coordinates

    def _whole_over_all(self, call: Call, x: Held, active: Array) -> Held:
        """What all devices of the group have, along the dimensions that are cut there."""
        for axis in reversed(call.axes):
            x = self._whole(call, x, axis, active)
        return x

    def _whole(self, call: Call, x: Held, axis: str, active: Array) -> Held:
        """What all devices along an axis have, along the one dimension that is cut there."""
        cut = x.split_by(axis)
        if len(cut) != 1:
            if self.arrays.degrees[axis] > 1:
                raise FaultError(f"nothing to gather over {axis}")
            if not cut:
                return x
        if x.split[cut[0]][-1] != axis:
            raise NotComputedError("a gather of an outer part")
        along = replace(call, axes=(axis,))
        return self.uncut(self.gathered(along, self.alike(along, x, active, apart=cut[0]), cut[0]), cut[0])

    def uncut(self, x: Held, dim: str) -> Held:
        """What a dimension is no longer cut along, and stored."""
        split = {d: axes if d != dim else axes[:-1] for d, axes in x.split.items()}
        return replace(x, split={d: axes for d, axes in split.items() if axes}, picks=None)

    def _cut(self, call: Call, x: Held) -> Held:
        """A device's part along each axis, of the dimension that is said for it."""
        if not call.cuts or any(dim not in x.dims for _, dim in call.cuts) or call.choice("order") != "blocked":
            raise NotComputedError("this part")
        for axis, dim in call.cuts:
            x = self.arrays.part(x, dim, (axis,))
        return x

    def _other_parts(self, call: Call, x: Held, active: Array) -> Held:
        """Whole along the dimensions that are cut along several axes, and cut along others: each device of the group has sent all."""
        if any(self.arrays.degrees[axis] > 1 and axis in x.split.get(dim, ()) for axis, dim in call.cuts):
            raise NotComputedError("this all-to-all")
        return self._cut(call, self._whole_over_all(call, x, active))

    def _other_part(self, call: Call, x: Held, active: Array) -> Held:
        """Whole along the dimension that is cut along the axis, and cut along another one."""
        cut = x.split_by(call.axes[0])
        several, dim = self.size(call) > 1, self._dim(call, x)
        if several and len(cut) != 1:
            raise FaultError(f"nothing to gather over {call.axes[0]}")
        if several and (cut[0] == dim or x.split[cut[0]][-1] != call.axes[0]):
            raise NotComputedError("this all-to-all")
        if not cut:
            return self.arrays.part(x, dim, call.axes)
        return self.swapped(call, self.alike(call, x, active, apart=cut[0]), cut[0], dim)

    # What devices do together.

    def alike(self, call: Call, x: Held, active: Array, apart: str | None = None) -> Held:
        """The tensor, if all devices of a group have as much of each dimension, save one; raises FaultError."""
        for dim in (d for d in x.dims if d != apart and not x.places[d].full):
            lengths = x.places[dim].lengths
            wrong = (lengths != lengths.max(self._dims(call.axes), keepdims=True)) & active
            if wrong.any():
                raise FaultError("shapes do not fit", wrong)
        return x

    def combined(self, call: Call, x: Held, root: Mapping[str, int] | None) -> Held:
        """The reduction over a group: everywhere, or on its root alone."""
        arrays, op = self.arrays, call.choice("op")
        data, f = self._over(x.data, call.axes, 1), self.arrays.field
        dims = self._dims(call.axes, 1)
        if op == "max":
            for d in dims:
                data = np.expand_dims(arrays.greatest(data, d), d)
        else:
            data = f.total(data, dims, keepdims=True)
            data = f.div(data, f.of(self.size(call))) if op == "mean" else data
        if root is not None:
            at: Array = np.ones((1,) * len(arrays.axes), dtype=bool)
            for axis, n in root.items():
                at = at & (arrays.at[axis] == n)
            wide = arrays.beside(at, x)
            data = np.where(wide, data, arrays.garbage(np.broadcast_to(data, np.broadcast_shapes(data.shape, wide.shape))))
        return replace(x, data=data)

    def scattered(self, call: Call, x: Held, dim: str) -> Held:
        """A device's part of the reduction."""
        return self.arrays.part(self.combined(call, x, None), dim, call.axes)

    def sent(self, _: Call, x: Held, root: Mapping[str, int]) -> Held:
        """What the root has."""
        data = x.data
        for axis, n in root.items():
            (d,) = self._dims((axis,), 1)
            data = data.take([n if data.shape[d] > 1 else 0], axis=d)
        return replace(x, data=data)

    def gathered(self, call: Call, x: Held, dim: str) -> Held:
        """Parts of a dimension one after the other, as long as a device has them."""
        (along,) = self._dims(call.axes)
        data = _joined(self._over(x.data, call.axes, 1), along + 1, x.axis(dim))
        joined = _joined(self._over(x.places[dim].of, call.axes), along, len(self.arrays.axes))
        places = {d: self.arrays.places(joined if d == dim else p.of.take([0], axis=along)) for d, p in x.places.items()}
        return self.arrays.compact(replace(x, data=data, places=places), dim)

    def swapped(self, call: Call, x: Held, old: str, new: str) -> Held:
        """The parts of a dimension joined, of which each device keeps its own part along another one."""
        return self.arrays.part(self.uncut(self.gathered(call, x, old), old), new, call.axes)

    def shifted(self, call: Call, x: Held, by: int) -> Held:
        """What the device so many steps before has; the first one's comes from the end."""
        (along,) = self._dims(call.axes)
        places = {d: self.arrays.places(np.roll(self._over(p.of, call.axes), by, along)) for d, p in x.places.items()}
        return replace(x, data=np.roll(self._over(x.data, call.axes, 1), by, along + 1), places=places)

    def _dims(self, axes: Sequence[str], before: int = 0) -> tuple[int, ...]:
        return tuple(before + self.arrays.axes.index(a) for a in axes)

    def _over(self, array: Array, axes: Sequence[str], before: int = 0) -> Array:
        """An array with a row for each device along some axes."""
        shape = list(array.shape)
        for d, axis in zip(self._dims(axes, before), axes, strict=True):
            shape[d] = self.arrays.degrees[axis]
        return np.broadcast_to(array, shape)


def _joined(array: Array, devices: int, positions: int) -> Array:
    """The rows of all devices one after the other in one dimension; the devices' own has length 1 then."""
    moved = np.moveaxis(array, devices, positions - 1)
    shape = (*moved.shape[: positions - 1], moved.shape[positions - 1] * moved.shape[positions], *moved.shape[positions + 1 :])
    return np.expand_dims(moved.reshape(shape), devices)
