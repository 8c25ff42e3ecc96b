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

from dataclasses import replace
from typing import Any

import numpy as np

from placeproof.core.program import Call
from placeproof.semantics.meaning.layers import taken
from placeproof.semantics.meaning.mesh import Mesh, size
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.values import NoMeaningError, Norms, Part, Saved, Stream

#: What goes from each part's owner, or to it, instead of from one root.
_BY_OWNERS = {"broadcast": "all_gather", "reduce": "reduce_scatter"}


def exchange(call: Call, mesh: Mesh, value: Any) -> Any:
    """The result on every device. Raises NoMeaningError."""
    factors = mesh.world.layout.factors(call.axes)
    op = call.op
    if op in _BY_OWNERS and call.choice("root") == "owner":
        op = _BY_OWNERS[op]
    if isinstance(value, Saved):
        raise NoMeaningError(f"`{op}` of what a forward kept")
    if not isinstance(value, Part | Stream):
        return _number(op, call, mesh, factors, value)
    if op == "all_gather":
        return _gathered(mesh, factors, value) if isinstance(value, Part) else _gathered_tokens(mesh, factors, value)
    if op == "tied_reduce" and isinstance(value, Part):
        return _tied(call, mesh, factors, value)
    if op == "broadcast":
        data, have = (_from_root(call, mesh, factors, x) for x in (value.data, value.have))
    elif op in ("all_reduce", "reduce_scatter", "reduce"):
        data, have = _combined(call, mesh, factors, value.data), _some(mesh, factors, value.have)
    else:
        raise NoMeaningError(f"`{op}` of {'parameters' if isinstance(value, Part) else 'activations'}")
    if op == "reduce":
        have = have & _at_root(call, mesh, factors)[..., None]
    if op == "reduce_scatter":
        have = have & (mesh.owns(value.columns, factors) if isinstance(value, Part) else mesh.tokens())
    if isinstance(value, Part):
        return value.with_(data, have & value.extent)
    return Stream(data, have) if op in ("broadcast", "all_reduce") else Stream(data, have).kept(mesh.world, have)


def _dims(mesh: Mesh, factors: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(mesh.world.dim[f] for f in factors)


def _combined(call: Call, mesh: Mesh, factors: tuple[str, ...], data: Array, count: int | None = None) -> Array:
    """The reduction over a group, everywhere in it. ``count``: how many devices it has, if not all along the factors."""
    op, dims = call.choice("op"), _dims(mesh, factors)
    if op == "max":
        return np.broadcast_to(mesh.world.field.greatest(data, dims, keepdims=True), data.shape)
    found = mesh.world.field.total(data, dims, keepdims=True)
    if op == "mean":
        found = mesh.world.field.div(found, mesh.world.field.array([count or size(mesh.world, factors)], (1,) * found.ndim))
    return np.broadcast_to(found, data.shape)


def _some(mesh: Mesh, factors: tuple[str, ...], have: Array) -> Array:
    return np.broadcast_to(have.any(axis=_dims(mesh, factors), keepdims=True), have.shape)


def _root(call: Call, mesh: Mesh, factors: tuple[str, ...]) -> dict[str, int]:
    number = int(call.choice("root")) % size(mesh.world, factors)
    found = {}
    for f in reversed(factors):
        found[f], number = number % mesh.world.sizes[f], number // mesh.world.sizes[f]
    return found


def _at_root(call: Call, mesh: Mesh, factors: tuple[str, ...]) -> Array:
    found: Array = np.ones(mesh.shape, dtype=bool)
    for f, n in _root(call, mesh, factors).items():
        found &= mesh.at[f] == n
    return found


def _from_root(call: Call, mesh: Mesh, factors: tuple[str, ...], data: Array) -> Array:
    found = data
    for f, n in _root(call, mesh, factors).items():
        found = found.take([n], axis=mesh.world.dim[f])
    return np.broadcast_to(found, data.shape)


def _gathered(mesh: Mesh, factors: tuple[str, ...], value: Part) -> Part:
    world, data, have, extent = mesh.world, value.data, value.have, value.extent
    for f in factors:
        owner = np.maximum(world.layout.owners(f, mesh.stage)[value.columns.index], 0)  # of copies of tied weights, the first stage's
        data, have = taken(data, world.dim[f], owner[..., None]), taken(have, world.dim[f], owner)
    apart = tuple(f for f in factors if world.sliced(f).any())
    if world.layout.network and apart:  # a layer computes with the slices, and the experts, that it is given
        extent = _some(mesh, apart, extent)
    return replace(value, extent=extent).with_(data, have & extent)


def _tied(call: Call, mesh: Mesh, factors: tuple[str, ...], value: Part) -> Part:
    """Over the first and the last device, which alone are in the group (the axis is one of those that are apart)."""
    world, dim = mesh.world, mesh.world.dim[factors[0]]
    total = _combined(call, mesh, factors, value.data, value.extent.shape[dim])
    tied = np.array([world.layout.tied(world.layout.group_of(e)) == call.axes[0] for e in value.columns.elements], dtype=bool)
    return value.with_(np.where((tied & value.have)[..., None], total, value.data), value.have)


def _gathered_tokens(mesh: Mesh, factors: tuple[str, ...], value: Stream) -> Stream:
    world, data, have = mesh.world, value.data, value.have
    tokens = value.have.shape[-1]
    for f in factors:
        owner = np.arange(tokens) if f == world.layout.hidden else np.full(tokens, world.sizes[f] - 1)
        data, have = taken(data, world.dim[f], owner[:, None]), taken(have, world.dim[f], owner)
    return Stream(data, have).kept(world, have)


def _number(op: str, call: Call, mesh: Mesh, factors: tuple[str, ...], value: Any) -> Any:
    """Of one number of each device, or of one for each tensor, which is zero where a device has nothing of it."""
    if isinstance(value, Norms):
        found = _of_numbers(op, call, mesh, factors, np.where(value.have, value.data, mesh.world.field.of(0)))
        return Norms(value.tensors, found, _some(mesh, factors, value.have))
    whole = value if isinstance(value, np.ndarray) else mesh.world.field.array([value], (1,) * len(mesh.shape))
    return _of_numbers(op, call, mesh, factors, np.broadcast_to(whole, mesh.shape))


def _of_numbers(op: str, call: Call, mesh: Mesh, factors: tuple[str, ...], data: Array) -> Array:
    if op == "broadcast":
        return _from_root(call, mesh, factors, data)
    found = _combined(call, mesh, factors, data)
    if op == "all_reduce":
        return found
    if op == "reduce":
        root = _at_root(call, mesh, factors)
        return np.where(root.reshape(root.shape + (1,) * (data.ndim - root.ndim)), found, mesh.world.garbage(found.shape))
    raise NoMeaningError(f"`{op}` of a number")
