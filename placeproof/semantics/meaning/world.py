"""The mesh, the model and the numbers of a run as arrays.

Every axis factor of the mesh is a dimension. Along factors on which devices may do different things at a time (messages, branches, pipeline
stages) they are *apart*: each coordinate runs by itself, and its arrays have length 1 there. Along all others devices go in step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from random import Random
from typing import Any

import numpy as np

from placeproof.core.remembered import remembered
from placeproof.programs import If, Resolved, calls, statements
from placeproof.semantics.meaning.layout import CHANNELS, TIED, Element, Layout
from placeproof.semantics.meaning.numbers import Array, Field, residues
from placeproof.semantics.meaning.problem import Problem

#: Operations between single devices of an axis.
_PAIRS = ("send", "recv", "tied_reduce")


@dataclass(frozen=True, eq=False)
class Columns:
    """Some elements of the model, in order: the last dimension but one of an array of parameters. One object for the same elements."""

    world: World
    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def index(self) -> Array:
        """The numbers of the elements."""
        return np.array(self.numbers, dtype=np.int64)

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """The elements."""
        return tuple(self.world.elements[n] for n in self.numbers)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose elements these are."""
        return tuple(sorted({e[0] for e in self.elements if e[0] != TIED}))

    @remembered
    def only(self, blocks: tuple[int, ...] | None, group: str | None) -> Columns:
        """The elements of some blocks and of a group."""
        every, of = zip(self.numbers, self.elements, strict=True), self.world.layout.group_of
        return self.world.columns(tuple(n for n, e in every if (blocks is None or e[0] in blocks) and group in (None, of(e))))

    @cached_property
    def trained(self) -> Columns:
        """Those of groups that are not frozen."""
        frozen = self.world.frozen
        return self.world.columns(tuple(n for n in self.numbers if not frozen[n]))

    @remembered
    def and_(self, other: Columns) -> Columns:
        """These and others."""
        return self if other is self else self.world.columns(tuple(sorted({*self.numbers, *other.numbers})))

    @remembered
    def within(self, other: Columns) -> Array:
        """Where each element stands among others; -1 where it does not."""
        where = {n: at for at, n in enumerate(other.numbers)}
        return np.array([where.get(n, -1) for n in self.numbers], dtype=np.int64)

    @remembered
    def matrices(self, block: int) -> tuple[Array, Array, Array]:
        """Where a block's norm, first and second matrix stand: ``[channels]``, ``[channels, width]``, ``[width, channels]``; -1 where
        they are not."""
        where = {e: at for at, e in enumerate(self.elements)}
        channels, width = range(CHANNELS), range(self.world.layout.width)
        first = np.array([[where.get((block, "W1", i, j), -1) for j in width] for i in channels], dtype=np.int64)
        second = np.array([[where.get((block, "W2", j, i), -1) for i in channels] for j in width], dtype=np.int64)
        norm = np.array([where.get((block, "n", i, 0), -1) for i in channels], dtype=np.int64)
        return norm, first.reshape(CHANNELS, len(width)), second.reshape(len(width), CHANNELS)


def apart_axes(program: Resolved, layout: Layout) -> tuple[str, ...]:
    """Axes (or factors) along which devices exchange messages, take different branches, or have different layers."""
    every = list(statements(program.body))
    named = {a for s in every for c in calls(s) if c.op in _PAIRS for a in c.axes} | {s.axis for s in every if isinstance(s, If)}
    return tuple(sorted(named | ({layout.stages} if layout.stages else set())))


class World:
    """What is the same for all devices."""

    def __init__(self, program: Resolved, problem: Problem, field: Field, seed: int) -> None:
        self.program, self.problem, self.field = program, problem, field
        self.layout: Layout = problem.layout
        self.by_batch = program.kept_by_batch
        self.random = Random(seed)
        self.sizes = self.layout.sizes
        self.factors = tuple(self.sizes)
        self.dim = {f: n for n, f in enumerate(self.factors)}
        self.elements: list[Element] = self.layout.elements
        self._drawn: dict[Any, Array] = {}

    @cached_property
    def apart(self) -> tuple[str, ...]:
        """Factors along which devices run by themselves; among fractions all, so that one sees which device computes what."""
        if self.field.exact:
            return self.factors
        names = self.layout.factors(apart_axes(self.program, self.layout))
        return tuple(f for f in self.factors if f in names)  # in the mesh's order, whatever that of a set is

    def dims(self, factors: Iterable[str]) -> tuple[int, ...]:
        """The dimensions of some factors."""
        return tuple(self.dim[f] for f in factors)

    def places(self, factors: tuple[str, ...] | None = None) -> list[dict[str, int]]:
        """All coordinates along some factors; along those that are apart, unless others are named."""
        factors = self.apart if factors is None else factors
        return [dict(zip(factors, at, strict=True)) for at in itertools.product(*(range(self.sizes[f]) for f in factors))]

    @remembered
    def columns(self, numbers: tuple[int, ...]) -> Columns:
        """Some elements."""
        return Columns(self, numbers)

    def garbage(self, shape: tuple[int, ...]) -> Array:
        """What is read where nothing is held."""
        return self.field.garbage(self.random, shape)

    # Who owns what.

    def _of_group(self, fact: Callable[[str], bool]) -> Array:
        """A fact about each element's group."""
        of = self.layout.table
        return np.array([fact(name) for name in of.names], dtype=bool)[of.group]

    @cached_property
    def frozen(self) -> Array:
        """Which elements are not trained."""
        return self._of_group(lambda g: self.layout.group(g).frozen)

    @remembered
    def sliced(self, factor: str) -> Array:
        """Which elements are slices (or experts) that are spread along a factor, or in parts that blocks compute with as they are."""
        layout = self.layout
        slices = self._of_group(lambda g: factor in layout.factors(layout.slice_axes(g))) & ~layout.table.norm
        return slices | self._of_group(lambda g: layout.calls_part(g, factor))

    @remembered
    def split(self, state: str, factor: str, *, slices: bool) -> Array:
        """Which elements of a state lie in parts along a factor; ``slices``: those that are slices there, or those that are not."""
        return self._split(state, factor) & (self.sliced(factor) == slices)

    def _split(self, state: str, factor: str) -> Array:
        return self._of_group(lambda group: factor in self.layout.factors(self.layout.split_axes(state, group)))

    def _any(self, values: Iterable[Any], shape: tuple[int, ...]) -> Array:
        """What is drawn: the problem's fractions, or residues of which each is as likely as another."""
        return self.field.array(list(values), shape) if self.field.exact else residues(self.random, shape)

    def drawn(self, name: Any, one: Callable[[tuple[int, ...]], list[Any]], shape: tuple[int, ...]) -> Array:
        """Numbers of each sample: ``[coordinates..., micro-batch, *shape]``, of length 1 along factors whose devices share samples."""
        if name not in self._drawn:
            own, batches = self.layout.sample_factors, self.layout.setup.microbatches
            lengths = tuple(self.sizes[f] if f in own else 1 for f in self.factors)
            values = (v for at in np.ndindex(*lengths) for i in range(batches) for v in one((*(at[self.dim[f]] for f in own), i)))
            self._drawn[name] = self._any(values, (*lengths, batches, *shape))
        return self._drawn[name]

    def stream(self, what: str, step: int) -> Array:
        """Inputs or targets of the network: ``[..., micro-batch, token, channel]``."""
        tokens = self.problem.tokens_of_a_sample

        def one(sample: tuple[int, ...]) -> list[Any]:
            drawn = self.problem.sample(sample, step, what)
            return [drawn[t, i] for t in range(tokens) for i in range(CHANNELS)]

        return self.drawn((what, step), one, (tokens, CHANNELS))

    def token_owners(self) -> Array:
        """The coordinate of the device to which each token belongs that lies in parts: ``[token]``."""
        count, along = self.problem.tokens_of_a_sample, self.layout.tokens
        return np.arange(count) // (count // (self.sizes[along] if along else 1))

    def scalars(self, what: str, step: int) -> Array:
        """Token counts, statistics or masks: ``[..., micro-batch]``."""
        if what == "mask":  # the key of the sample's coordinates
            at = tuple(slice(None) if f in self.layout.sample_factors else slice(0, 1) for f in self.factors)
            batches = range(self.layout.setup.microbatches)
            return np.stack([self.keys(self.layout.masked_by, i, step)[at] for i in batches], axis=-1)
        rule = self.problem.tokens if what == "tokens" else self.problem.statistic
        numbers = self.drawn((what, step), lambda sample: [rule(sample, step)], ())
        equal = what == "tokens" and "equal-token-counts" not in self.problem.without
        return np.full_like(numbers, self.field.of(1)) if equal else numbers

    def symbol(self, name: str) -> Fraction:
        """The value of a symbol of the notation: of a degree, or any number."""
        known = {"N": prod(self.sizes.values()), "m": self.layout.setup.microbatches, **{f"N_{f}": n for f, n in self.sizes.items()}}
        known |= {f"N_{a.name}": prod(self.sizes[f] for f in self.layout.factors((a.name,))) for a in self.program.axes}
        known |= {a.inner: self.sizes[a.inner_name] for a in self.program.axes if isinstance(a.inner, str)}
        if name in known:
            return Fraction(known[name])
        return Fraction(2 + int.from_bytes(name.encode(), "big") % 9973)

    def keys(self, draw: str, batch: int | None, step: int) -> Array:
        """A random key for each device. ``batch``: the micro-batch in which it is drawn; None outside of all, where there are several."""
        batch = 0 if self.layout.setup.microbatches == 1 else batch
        name = (draw, batch, step)
        if name not in self._drawn:
            self._drawn[name] = self._any((self.problem.key(*name, at) for at in self.places(self.factors)), tuple(self.sizes.values()))
        return self._drawn[name]

    def overflows(self, step: int) -> Array:
        """Whether the gradient of each element is not finite in a step."""
        return np.array([self.problem.overflows(e, step) for e in self.elements], dtype=bool)

    @cached_property
    def portions(self) -> Array:
        """Which portion of an element's gradient each device finds that computes a block together with others: ``[number, element]``. Those
        of all devices add up to 1."""
        counts = np.array([len(self.layout.shares(e)) for e in self.elements])
        numbers = range(1, max(counts))
        drawn = self._any((self.problem.portion(e, n) for n in numbers for e in self.elements), (len(numbers), len(counts)))
        drawn = np.where(np.array(numbers, dtype=int)[:, None] < counts, drawn, self.field.of(0))
        return np.concatenate([self.field.sub(self.field.of(1), self.field.total(drawn, 0))[None], drawn])

    @cached_property
    def first(self) -> Array:
        """The parameters before the first step: ``[element]``."""
        return self._any((self.problem.initial(e) for e in self.elements), (len(self.elements),))

    @cached_property
    def _copies(self) -> Array:
        """The parameters that each device begins with, where they may differ: ``[coordinates..., element]``."""
        shape = (*self.sizes.values(), len(self.elements))
        parameters = self._any((self.problem.initial(e, at) for at in self.places(self.factors) for e in self.elements), shape)
        parameters[(0,) * len(self.factors)] = self.first
        return parameters

    def initial(self, columns: Columns, at: tuple[dict[str, Array], tuple[int, ...]], *, copies: bool) -> Array:
        """The parameters before the first step: ``[..., element, 1]``. ``copies``: those of each device, where they may differ."""
        shape = (*at[1], len(columns))
        if not copies or "equal-initial-states" not in self.problem.without:
            return np.broadcast_to(self.first[columns.index], shape)[..., None]
        where = []
        for f in self.factors:
            split = self._split("parameters", f)[columns.index]
            where.append(np.broadcast_to(np.where(split, 0, at[0][f][..., None]), shape))
        return self._copies[(*where, np.broadcast_to(columns.index, shape))][..., None]
