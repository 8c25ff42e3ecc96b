"""Forward and backward of the network's layers on the devices of a place, whole passes of the flat model, and experts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from placeproof.semantics.meaning.devices.mesh import Mesh, owned, size
from placeproof.semantics.meaning.devices.network import Weights
from placeproof.semantics.meaning.layout import SEQUENCES
from placeproof.semantics.meaning.losses import sequences, weighted
from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.setup import NoMeaningError
from placeproof.semantics.meaning.values import MisfitError, Part, Saved, Stream, expect
from placeproof.semantics.meaning.world import World

Make = Callable[[Field, Array, Array, Array, Array], Weights]


class Layers:
    """The layers of one computation: whose weights, which columns; ``make``: what computes with a block's weights."""

    def __init__(self, world: World, w: Part, columns: Array | None = None, kind: str | None = None, make: Make = Weights) -> None:
        self.world, self.w, self.kind, self.make = world, expect(Part, w), world.layout.role(w.group) if kind is None else kind, make
        self.columns = self._columns() if columns is None else columns

    def _columns(self) -> Array:
        """The inner columns of the matrices that a device has, of any of the blocks."""
        columns = np.zeros((*self.w.extent.shape[:-1], self.world.layout.width), dtype=bool)
        for block in self.w.columns.blocks:
            first = self.w.columns.matrices(block)[1][0]
            columns |= self.w.extent[..., first] & (first >= 0)
        return columns

    def weights(self, block: int) -> Weights:
        """A block's weights as each device reads them: garbage where nothing is."""
        norm, first, second = (self._read(at) for at in self.w.columns.matrices(block))
        return self.make(self.world.field, norm, first, second, self.columns)

    def _read(self, at: Array) -> Array:
        weights = self.w.data[..., at, 0]
        there = at >= 0
        return weights if there.all() else np.where(there, weights, self.world.garbage(weights.shape))

    def forward(self, x: Stream) -> tuple[Stream, Saved]:
        """The output, and what backward needs."""
        expect(Stream, x)
        inputs, outputs = {}, {}
        for block in self.w.columns.blocks:
            inputs[block] = x
            x = Stream(self.weights(block).forward(self.kind, x.data), x.have)
            outputs[block] = x
        return x, Saved(inputs, outputs, self.w.group)

    def backward(self, saved: Saved | None, dx: Stream, whole: Stream | None = None) -> tuple[Part, Stream]:
        """The gradients of the weights and of the input. ``whole``: the input, where forward did not keep it whole."""
        for value, kind in ((saved, Saved), (dx, Stream), (whole, Stream)):
            if value is not None:
                expect(kind, value)
        if saved is not None and saved.group != self.w.group:
            raise NoMeaningError("a backward of another part of a block than the forward that kept its input")
        f, data = self.world.field, self.world.field.zeros((*self.w.extent.shape, 1))
        made = np.zeros_like(self.w.extent)
        for block in reversed(self.w.columns.blocks):
            x = whole if whole is not None else saved.inputs[block] if saved is not None else dx
            if (x.have != dx.have).any():
                raise MisfitError("the gradient of an output has other tokens than the input")
            own = (x.data, dx.data) if dx.have.all() else (np.where(dx.have[..., None], v.data, f.of(0)) for v in (x, dx))
            back, gradients = self.weights(block).backward(self.kind, *own)
            dx = Stream(back, dx.have).kept(self.world, dx.have)
            for at, gradient in zip(self.w.columns.matrices(block), gradients, strict=True):
                self._put(data, made, at, gradient)
        return self.w.with_(data, made & self.w.extent), dx

    def trained(self, saved: Saved | None, dx: Stream, whole: Stream | None = None) -> tuple[Part, Stream]:
        """The same, of the weights that are trained."""
        gradient, back = self.backward(saved, dx, whole)
        return gradient.on(gradient.columns.trained), back

    @staticmethod
    def _put(data: Array, made: Array, at: Array, gradient: Array | None) -> None:
        if gradient is None:
            return
        there = at >= 0
        if not there.all():
            at, gradient = at[there], gradient[..., there]
        data[..., at, 0] = gradient
        made[..., at] = True


class Experts:
    """A layer whose experts lie on several devices: every token meets each expert with the weights of the expert's owner.

    What needs all devices of the group is in methods, for who has another way to it than an array over them. ``make``: what computes with a
    block's weights; ``in_parts``: whether some device lacks tokens of the samples that it computes with.
    """

    make: Make = Weights
    in_parts = False

    def __init__(self, world: World, w: Part, along: tuple[str, ...], at: dict[str, Array], stage: int) -> None:
        self.world, self.along, self.w = world, along, w
        layout, columns = world.layout, w.columns
        self.expert = np.array([layout.group_of(e) in layout.expert_groups for e in columns.elements], dtype=bool)
        owners = {f: layout.owners(f, stage)[columns.index] for f in along}
        if (w.extent & self.expert & ~owned(owners, at)).any():
            raise MisfitError("a layer that sends tokens to their experts is given another device's experts as well")
        alone = w.group in layout.expert_groups
        met = self.any(Layers(world, w).columns) if alone else np.ones((*w.extent.shape[:-1], layout.width), dtype=bool)
        self.layers = Layers(world, replace(w, data=self.from_owners(owners)), met, "matrix" if alone else "", self.make)

    @cached_property
    def giving(self) -> tuple[str, ...]:
        """The factors whose devices give tokens of their own: other samples, or parts of the tokens. What all have is sent once."""
        own = (*self.world.layout.sample_factors, *([self.world.layout.hidden] if self.in_parts else []))
        return tuple(f for f in self.along if f in own)

    def any(self, have: Array) -> Array:
        """Whether some device of the group has it."""
        return have.any(axis=self.world.dims(self.along), keepdims=True)

    def from_owners(self, owners: dict[str, Array]) -> Array:
        """Each expert's numbers from its owner."""
        data = self.w.data
        for f, owner in owners.items():
            data = np.where(self.expert[:, None], taken(data, self.world.dim[f], owner[:, None]), data)
        return data

    def from_samples(self, gradient: Array) -> Array:
        """The gradients of experts added up over all devices that give tokens of their own."""
        dims = self.world.dims(self.giving)
        summed = self.world.field.total(gradient, dims, keepdims=True) if dims else gradient
        return np.where(self.expert[:, None], summed, gradient)

    def results(self, op: str, x: Any, dx: Any, whole: Stream | None) -> tuple[Any, Any]:
        """Of a forward or a backward: first what it gives where one result is taken."""
        if op == "forward":
            return self.layers.forward(x)
        if dx is None:
            raise NoMeaningError(f"`{op}` of a layer with experts, of other operands than parameters, what forward kept and a gradient")
        gradient, back = self._backward(x, dx, whole)
        gradient = gradient.on(gradient.columns.trained)
        return (back, gradient) if op == "backward_input" else (gradient, back)

    def _backward(self, saved: Saved | None, dx: Stream, whole: Stream | None) -> tuple[Part, Stream]:
        """The gradients; of experts, from all tokens that were sent to them."""
        self.in_parts = bool(self.any(~expect(Stream, dx).have).any())
        whole_w = replace(self.layers.w, extent=np.ones_like(self.w.extent))
        gradient, back = Layers(self.world, whole_w, self.layers.columns, self.layers.kind, self.make).backward(saved, dx, whole)
        return self.w.with_(self.from_samples(gradient.data), gradient.have & self.w.extent), back


class Called(Experts):
    """A block that a step calls whole: the devices along some axes compute it together, each with what it has of the weights that lie in
    parts there, and exchange by themselves. Of a gradient that is shared out each finds a portion."""

    def __init__(self, world: World, w: Part, along: tuple[str, ...], mesh: Mesh) -> None:
        if expect(Part, w).group is not None:
            raise NoMeaningError("a part of a block that is called whole")
        self.world, self.along, self.w, self.mesh = world, along, w, mesh
        parts = {f: np.where(world.sliced(f), world.layout.owners(f, mesh.stage), -1)[w.columns.index] for f in along}
        if (w.extent & ~owned(parts, mesh.at)).any():
            raise MisfitError("a block is given another device's part as well")
        data = w.data
        for f, owner in parts.items():
            data = np.where((owner >= 0)[:, None], taken(data, world.dim[f], np.maximum(owner, 0)[:, None]), data)
        every = np.ones((*w.extent.shape[:-1], world.layout.width), dtype=bool)
        self.layers = Layers(world, replace(w, data=data), every, "", self.make)

    def from_samples(self, gradient: Array) -> Array:
        """The portions that the devices find."""
        world, layout = self.world, self.world.layout
        names = [layout.group_of(e) for e in self.w.columns.elements]
        number = np.stack([np.broadcast_to(self.mesh.place(layout.partial(g)), self.mesh.shape) for g in names], axis=-1)
        portions = world.portions[number, self.w.columns.index]
        return world.field.mul(gradient, portions[..., None])


def taken(data: Array, dim: int, index: Array) -> Array:
    """What stands at some coordinate along a dimension, everywhere along it; ``index``: of what follows the mesh's dimensions."""
    where = np.broadcast_to(index, data.shape)
    where = where.take([0], axis=dim)
    return np.broadcast_to(np.take_along_axis(data, where, dim), data.shape)


def flat_pass(mesh: Mesh, w: Part, batch: int, statistic: Array, step: int, of: tuple[str, str, bool] | None = None) -> Part:
    """The gradient that each device finds in a whole pass of the flat model: what its sample gives, plus the sum of all parameters as it
    sees them, so that a wrong one shows. It sees its own copy of what it has room for, and for the rest that of the owner along the axes
    that split the computation. ``of``: which loss, over which unit, and whether summed, where a step says."""
    world, f = mesh.world, mesh.world.field
    whole = w.on(world.columns(tuple(range(len(world.elements)))))
    parts = {x: np.where(world.sliced(x), world.layout.owners(x, mesh.stage), -1) for x in world.factors}
    whole = replace(whole, extent=whole.extent & owned(parts, mesh.at))  # whatever other slices it was given
    own, shares, many = mesh.mine(own_gradients(world, step)), _shares(mesh), None
    if of is not None:
        own, many = _of_loss(mesh, of, step)
    own = np.where(shares, own[..., batch, :, :], f.of(0))
    gradient = f.mul(f.total(own, -1), statistic[..., None])
    seen = np.where(shares[..., 0], f.total(_seen(mesh, whole), -1)[..., None], f.of(0))
    gradient = f.add(gradient, seen if many is None else f.mul(seen, many[..., batch, None]))
    for axis in {axis for g in world.program.groups for axis in g.experts}:
        factors = world.layout.factors((axis,))
        dims = world.dims(x for x in factors if x in world.layout.sample_factors)
        sent = np.array([world.layout.group(world.layout.group_of(e)).experts.count(axis) for e in world.elements], dtype=bool)
        gradient = np.where(sent, f.total(gradient, dims, keepdims=True), gradient) if dims else gradient
    gradient = np.broadcast_to(gradient, whole.extent.shape)
    return replace(whole, group=w.group).with_(gradient[..., None], whole.extent).on(w.columns.trained)


def _of_loss(mesh: Mesh, of: tuple[str, str, bool], step: int) -> tuple[Array, Array]:
    """What the sequences of each device give, each token as often as it counts; and how often all of them count."""
    loss, unit, summed = of
    weights = sequences(mesh.world, step).of_pass(unit, mean=not summed)
    own = weighted(mesh.world, weights, own_gradients(mesh.world, step, loss))
    return mesh.mine(own), mesh.mine(mesh.world.field.total(weights, -1))


def _seen(mesh: Mesh, whole: Part) -> Array:
    """Each parameter as each device's pass sees it."""
    world, data = mesh.world, whole.data[..., 0]
    near = data
    for factor in (f for f in world.factors if f not in mesh.here):
        moved = world.sliced(factor)
        index = np.where(moved, world.layout.owners(factor, 0), -1)
        if factor == world.layout.stages:
            index = np.maximum(world.layout.owners(factor, 0), 0)
        own = np.broadcast_to(mesh.at[factor][..., None], data.shape)
        index = np.where(index >= 0, index, own)
        near = np.take_along_axis(near, index, world.dim[factor])
    return np.where(whole.extent, data, near)


def own_gradients(world: World, step: int, loss: str | None = None) -> Array:
    """What each sample gives, by element and share: ``[..., micro-batch, element, share]``; 0 where an element has fewer shares. Of a
    ``loss`` that is named, what a token of each sequence gives: ``[..., micro-batch, sequence, element, share]``."""
    of = [world.layout.shares(e) for e in world.elements]
    most = max(map(len, of))
    parts = [""] if loss is None else [f"{loss} loss of sequence {q}, " for q in range(SEQUENCES)]

    def one(sample: tuple[int, ...]) -> list[Any]:
        values: list[Any] = []
        for part, (element, shares) in itertools.product(parts, zip(world.elements, of, strict=True)):
            gradients = [world.problem.own_gradient(element, sample, step, s, part) for s in shares]
            values += [*gradients, *([0] * (most - len(gradients)))]
        return values

    there = np.array([[n < len(shares) for n in range(most)] for shares in of])
    shape = (len(world.elements), most) if loss is None else (len(parts), len(world.elements), most)
    return np.where(there, world.drawn(("own", step, loss), one, shape), world.field.of(0))


def _shares(mesh: Mesh) -> Array:
    """Which shares of an element's gradient each device computes, in the order of the layout: ``[..., element, share]``."""
    world, at, shape = mesh.world, mesh.at, mesh.shape
    shares = []
    for element in world.elements:
        group = world.layout.group_of(element)
        tied, along = world.layout.tied(group), world.layout.partial(group)
        ends = [at[tied] == stage for stage in (0, world.sizes[tied] - 1)] if tied else [np.array(True)]
        parts = [mesh.place(along) == n for n in range(size(world, along))] if along else [np.array(True)]
        shares.append([np.broadcast_to(end & part, shape) for end in ends for part in parts])
    most = max(map(len, shares))
    none: Array = np.zeros(shape, dtype=bool)
    return np.stack([np.stack([*f, *([none] * (most - len(f)))], axis=-1) for f in shares], axis=-2)
