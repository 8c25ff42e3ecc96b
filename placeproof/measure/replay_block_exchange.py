"""What collectives do to the arrays of a block's process: real exchanges of the parts that it holds.

On one device they leave things as they are, and derivatives are followed there alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from placeproof.core.program import Call
from placeproof.measure.replay_arrays import Array, value_of
from placeproof.measure.replay_mesh import Group, Mesh
from placeproof.measure.replay_numbers import Arithmetic, Numbers, stacked
from placeproof.measure.replay_values import NothingThereError, NotReplayedError

#: What :meth:`placeproof.measure.replay_mesh.Mesh.meet` is told of an array.
ARRAY = 6


@dataclass(frozen=True, slots=True, eq=False)
class Exchanges:
    """The exchanges of one process. ``lengths``: of each dimension, of the whole tensors."""

    lengths: Mapping[str, int]
    mesh: Mesh
    of: Arithmetic

    def __call__(self, call: Call, x: Array) -> Array:
        """The result of an exchange on this device. Raises NothingThereError, NotReplayedError, or the errors of exchanges."""
        match call.op:
            case "all_gather":
                for axis in reversed(call.axes):
                    x = self._gathered(axis, x, call)
                return x
            case "all_to_all":
                return self._swapped(call, x)
            case "shift":
                return self._shifted(call, x)
            case "part":
                return self._own(call, x)
            case "all_reduce" | "reduce" | "broadcast" | "reduce_scatter":
                return self._combined(call, x)
        raise NotReplayedError(f"`{call.op}` of a tensor")

    def _own(self, call: Call, x: Array, at: Mapping[str, int] | None = None) -> Array:
        """A device's part along a dimension."""
        dim = call.option("dim")
        if dim is None or dim not in x.places or call.option("order", "blocked") != "blocked":
            raise NotReplayedError("this part of a tensor")
        for axis in call.axes:
            x = x.cut(dim, axis, (at or self.mesh.at)[axis], self.mesh.sizes[axis])
        return x

    def _shifted(self, call: Call, x: Array) -> Array:
        """What the device before this one has, wherever that lies in the whole; the device after it gets what this one has."""
        group = self.mesh.group(call.axes)
        if group.size == 1:
            return x
        self.mesh.meet(group, call, ARRAY)
        by = int(call.option("by", "1") or "1")
        described = json.dumps({"places": dict(x.places), "cuts": dict(x.cuts), "loose": sorted(x.loose), "picks": x.picks})
        theirs = json.loads(self.mesh.told(group, described, call)[(group.me - by) % group.size])
        mine = value_of(x.content).data
        lengths = [len(p) for p in theirs["places"].values()]
        got = self.mesh.passed(group, mine, [*lengths, *mine.shape[len(x.places) :]], by, call)
        return Array(
            places={d: tuple(p) for d, p in theirs["places"].items()},
            content=Numbers(self.of, got),
            cuts={d: tuple(c) for d, c in theirs["cuts"].items()},
            loose=frozenset(theirs["loose"]),
            picks=theirs["picks"],
        )

    def _combined(self, call: Call, x: Array) -> Array:
        group = self.mesh.group(call.axes)
        if group.size == 1:
            return self._own(call, x) if call.op == "reduce_scatter" else x
        mine = value_of(x.content)
        dims = self._alike(call, group, x)
        mine = mine.permuted([x.dims.index(d) for d in dims])
        root = self._first(call, group)
        op = call.option("op", "sum") or "sum"
        if call.op == "reduce_scatter":
            return self._scattered(call, group, x, mine, dims)
        if call.op == "broadcast":
            got = Numbers(self.of, self.mesh.spread(group, mine.data, root, call))
        elif call.op == "reduce":
            got = self.mesh.reduced(group, mine, op, call, root)
            got = got if self.mesh.rank == root else mine
        else:
            got = self.mesh.reduced(group, mine, op, call)
        return x.with_content(got.permuted([dims.index(d) for d in x.dims]))

    def _first(self, call: Call, group: Group) -> int:
        """The rank of the first device along the axes."""
        return min(zip(group.at, group.ranks, strict=True), key=lambda one: [one[0][a] for a in call.axes])[1]

    def _alike(self, call: Call, group: Group, x: Array, apart: str | None = None) -> list[str]:
        """The dimensions in an order that all devices of the group agree on; raises NothingThereError unless their shapes fit."""
        self.mesh.meet(group, call, ARRAY)
        known = list(self.lengths)
        mine = torch.tensor([len(x.places[d]) if d in x.places and d != apart else -1 for d in known])
        if any(not torch.equal(mine, other) for other in self.mesh.collect(group, mine, call)):
            raise NothingThereError(f"shapes do not fit: the devices of a group have others for `{call.op}`")
        return [d for d in known if d in x.places]

    def _scattered(self, call: Call, group: Group, x: Array, mine: Numbers, dims: list[str]) -> Array:
        """Each device's rows, filled up to the same length, in gloo's reduce-scatter."""
        whole = Array(places={d: x.places[d] for d in dims}, content=mine, cuts=x.cuts)
        parts = [self._own(call, whole, at) for at in group.at]
        dim = call.option("dim") or ""
        longest = max(len(p.places[dim]) for p in parts)
        rows = stacked([_filled(p, dim, longest) for p in parts])
        own = self._own(call, whole)
        got = Array(places={**own.places, dim: tuple(range(longest))}, content=self.mesh.scattered(group, rows, _op(call), call))
        got = got.kept(dim, range(len(own.places[dim])))
        back = self._own(call, x)
        return back.with_content(got.content.permuted([dims.index(d) for d in back.dims]))

    def _gathered(self, axis: str, x: Array, call: Call) -> Array:
        """The parts of all devices along an axis, one after the other."""
        group = self.mesh.group((axis,))
        cut = [d for d, cuts in x.cuts.items() if axis in cuts]
        if group.size > 1 and len(cut) != 1:
            raise NothingThereError(f"nothing to gather over {axis}")
        if not cut:
            return x
        dim = cut[0]
        if x.cuts[dim][-1] != axis:
            raise NotReplayedError("a gather of an outer part")
        cuts = {d: c[:-1] if d == dim else c for d, c in x.cuts.items()}
        cuts = {d: c for d, c in cuts.items() if c}
        if group.size == 1:
            return Array(places=x.places, content=x.content, cuts=cuts)
        dims = self._alike(call, group, x, apart=dim)
        places = self._all_places(group, x.places[dim], self.lengths[dim], call)
        ordered = Array(places={d: x.places[d] for d in dims}, content=value_of(x.content).permuted([x.dims.index(d) for d in dims]))
        longest = max(map(len, places))
        got = self.mesh.collected(group, _filled(ordered, dim, longest), call)
        which = dims.index(dim)
        parts = [g[(*[slice(None)] * which, slice(len(p)))].data for g, p in zip(got, places, strict=True)]
        joined = {**ordered.places, dim: tuple(p for part in places for p in part)}
        whole = Array(places=joined, content=Numbers(self.of, torch.cat(parts, dim=which)))
        content = whole.content.permuted([dims.index(d) for d in x.dims])
        return Array(places={d: joined[d] for d in x.dims}, content=content, cuts=cuts)

    def _swapped(self, call: Call, x: Array) -> Array:
        """Each device's piece along a new dimension, in gloo's all-to-all; the pieces that came, one after the other along the old one."""
        group = self.mesh.group(call.axes)
        cut = [d for d, cuts in x.cuts.items() if call.axes[0] in cuts]
        if group.size > 1 and len(cut) != 1:
            raise NothingThereError(f"nothing to gather over {call.axes[0]}")
        apart = group.size > 1 and (cut[0] == call.option("dim") or x.cuts[cut[0]][-1] != call.axes[0])
        if len(call.axes) != 1 or apart:
            raise NotReplayedError("this all-to-all of a tensor")
        mine = self._own(call, x)
        if not cut:
            return mine
        cuts = {d: c[:-1] if d == cut[0] else c for d, c in mine.cuts.items()}
        cuts = {d: c for d, c in cuts.items() if c}
        if group.size == 1:
            return Array(places=mine.places, content=mine.content, cuts=cuts)
        joined = self._pieces(call, group, x, cut[0])
        content = joined.content.permuted([joined.dims.index(d) for d in x.dims])
        return Array(places={d: joined.places[d] for d in x.dims}, content=content, cuts=cuts)

    def _pieces(self, call: Call, group: Group, x: Array, old: str) -> Array:
        """What the devices of the group have for this one, joined along the old dimension. Pieces travel filled up to the same shape."""
        dims, new = self._alike(call, group, x, apart=old), call.option("dim") or ""
        places = self._all_places(group, x.places[old], self.lengths[old], call)
        whole = Array(places={d: x.places[d] for d in dims}, content=value_of(x.content).permuted([x.dims.index(d) for d in dims]))
        pieces = [self._own(call, whole, at) for at in group.at]
        long, wide = max(map(len, places)), max(len(p.places[new]) for p in pieces)
        rows = stacked([_filled(p.with_content(_filled(p, old, long)), new, wide) for p in pieces])
        own, got = pieces[group.me], self.mesh.exchanged(group, rows, call)
        for_me = {new: slice(len(own.places[new]))}
        parts = [got[(j, *(slice(len(p)) if d == old else for_me.get(d, slice(None)) for d in dims))].data for j, p in enumerate(places)]
        joined = {**own.places, old: tuple(p for part in places for p in part)}
        return Array(places=joined, content=Numbers(self.of, torch.cat(parts, dim=dims.index(old))))

    def _all_places(self, group: Group, mine: Sequence[int], size: int, call: Call) -> list[tuple[int, ...]]:
        """Which places of a dimension each device of the group has; a part may be gathered twice, and be longer than the whole."""
        lengths = self.mesh.collect(group, torch.tensor([len(mine)]), call)
        longest = max(size, *(int(n) for n in lengths))
        row = torch.full((longest,), -1)
        row[: len(mine)] = torch.tensor(mine, dtype=torch.int64)
        return [tuple(p for p in other.tolist() if p >= 0) for other in self.mesh.collect(group, row, call)]


def _op(call: Call) -> str:
    return call.option("op", "sum") or "sum"


def _filled(array: Array, dim: str, length: int) -> Numbers:
    """The numbers with one dimension filled up by zeros."""
    data = value_of(array.content).data
    shape = list(data.shape)
    shape[array.dims.index(dim)] = length - len(array.places[dim])
    return Numbers(array.content.of, torch.cat([data, data.new_zeros(shape)], dim=array.dims.index(dim)))
