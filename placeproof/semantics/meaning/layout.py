"""Where the elements of a small model lie on a small mesh."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np

from placeproof.core.remembered import remembered
from placeproof.core.strategy import NORM
from placeproof.programs import Resolved
from placeproof.programs.facts import ProgramFacts
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.setup import NoMeaningError, Setup, factors_of

#: (block, part, row, column): an element of the parameters. The part is a matrix of the network, or a group.
Element: TypeAlias = tuple[int, str, int, int]
Coordinates: TypeAlias = dict[str, int]
#: (block, group, expert): a tensor, or a matrix, of the model. Of what is no expert the last is 0. With (part, direction, number) behind
#: them: a row or a column of it.
TensorId: TypeAlias = tuple[int, str, int] | tuple[int, str, int, str, int, int]

#: The block that tied weights are said to be in: none.
TIED = -1
CHANNELS = 2
#: The most sequences that a micro-batch has, where their number matters.
SEQUENCES = 3


def _column(element: Element) -> int:
    """The inner column of an element of the network's matrices."""
    return element[3] if element[1] == "W1" else element[2]


def in_words(element: Element) -> str:
    """An element's name for people."""
    block, part, row, column = element
    return f"{part}[{row}, {column}]" + ("" if block < 0 else f" of block {block}")


@dataclass(frozen=True, kw_only=True)
class Table:
    """All elements: an array each of their blocks, groups (as places in ``names``), slices within the group and numbers, and whether
    they are a block's norm."""

    names: list[str]
    block: Array
    group: Array
    slice: Array
    number: Array
    norm: Array


@dataclass(frozen=True)
class Layout(ProgramFacts):
    """The mesh's factors, and which element lies where.

    A program that calls ``forward`` trains a network of two blocks a layer; any other trains a flat model, whose gradient is a
    short formula.
    """

    program: Resolved
    setup: Setup

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many devices there are along each axis factor."""
        return {f: n for axis in self.program.axes for f, n in factors_of(axis, self.setup).items()}

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """The axes over which experts are spread. In the network, an expert is a column of a block's matrices, and every token is sent
        to all of them; where blocks are not computed group by group, only the norms are no experts. Raises NoMeaningError of groups that
        are spread over different axes."""
        every = dict.fromkeys(g.experts for g in self.program.groups if g.experts)
        if self.network and len(every) > 1:
            raise NoMeaningError("layers with groups of experts over different axes")
        return next(iter(every), ())

    @cached_property
    def tokens(self) -> str | None:
        """The axis factor over which tokens of a sample may lie in parts: a program says so within blocks, or between calls of them."""
        every = (f for c in self.program.calls if c.op in ("part", "all_gather") for f in self.factors(c.axes))
        return self.hidden or next((f for f in every if f in self.called), None)

    # The model's elements.

    @property
    def blocks_per_layer(self) -> int:
        """Two in the network, one in the flat model."""
        return 2 if self.network else 1

    def stage_blocks(self, stage: int) -> tuple[int, ...]:
        """The blocks of a pipeline stage."""
        per = self.blocks_per_layer * self.setup.layers_per_stage
        return tuple(range(stage * per, (stage + 1) * per))

    @cached_property
    def stage_count(self) -> int:
        """The number of pipeline stages."""
        return self.sizes[self.stages] if self.stages else 1

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """All blocks."""
        return tuple(k for stage in range(self.stage_count) for k in self.stage_blocks(stage))

    @remembered
    def slice_axes(self, group: str) -> tuple[str, ...]:
        """The axes along which a group's slices (or experts) are spread, those of the experts first."""
        experts = self.group(group).experts
        parts = {a.name for a in self.program.axes if a.splits.partial}
        spread = [a for a in self.split_axes("parameters", group) if a in parts and a not in experts]
        return (*experts, *spread)

    def slices(self, group: str) -> int:
        """How many slices a group of the flat model has: more than devices, so that shares are uneven."""
        return self._uneven(self.slice_axes(group), 1)

    def _uneven(self, axes: tuple[str, ...], alone: int) -> int:
        """One more than there are devices along axes; ``alone`` where there is one."""
        count = prod(self._degree(axis) for axis in axes)
        return count + 1 if count > 1 else alone

    @cached_property
    def normed(self) -> str:
        """The group of the network's norms."""
        names = [g.name for g in self.program.groups if not self.tied(g.name)]
        dense = [name for name in names if name not in self.expert_groups]
        return NORM if NORM in dense else next(iter(dense or names), "")

    @cached_property
    def columns(self) -> dict[str, range]:
        """The inner columns of the network's matrices that each group has: all groups but that of the norms, unless it is the only one."""
        names = [g.name for g in self.program.groups if not self.tied(g.name)]
        columns, end, hidden = dict[str, range](), 0, (self.hidden,) if self.hidden else ()
        for name in [n for n in names if n != self.normed] or names:
            if name in self.expert_groups:
                count = self._uneven(self.slice_axes(name), 2)
            elif len(names) > 2 or self.experts:
                count = self._uneven(hidden, 1)
            else:
                count = 2 * (self._degree(self.hidden) if self.hidden else 1)
            columns[name] = range(end, end := end + count)
        return columns

    def role(self, group: str | None) -> str:
        """What a group is to a block that is computed group by group; an empty text for a whole block."""
        if group is None or len(self.program.groups) == 1:
            return ""
        return "norm" if group == self.normed else "matrix"

    @cached_property
    def width(self) -> int:
        """The number of inner columns."""
        return sum(len(columns) for columns in self.columns.values())

    def tensor_of(self, element: Element) -> TensorId:
        """The tensor in which an element lies: all of a group in a block, of experts each by itself. Raises NoMeaningError of experts whose
        parts over a second axis are no tensors either."""
        group = self.group_of(element)
        if group not in self.expert_groups:
            return element[0], group, 0
        if self.slice_axes(group) != self.group(group).experts:
            raise NoMeaningError(f"which parts of experts of group `{group}` belong to one matrix is not said")
        return element[0], group, self._slice(element)

    def lines_of(self, element: Element) -> tuple[TensorId, TensorId]:
        """The row and the column of a matrix in which an element lies."""
        block, group, expert, *_ = self.tensor_of(element)
        _, part, row, column = element
        return (block, group, expert, part, 0, row), (block, group, expert, part, 1, column)

    def group_of(self, element: Element) -> str:
        """The parameter group of an element."""
        if not self.network or element[0] == TIED:
            return element[1]
        if element[1] == "n":
            return self.normed
        return self._by_column[_column(element)]

    @cached_property
    def _by_column(self) -> tuple[str, ...]:
        """The group of each inner column."""
        return tuple(name for name, columns in self.columns.items() for _ in columns)

    def _block_elements(self, block: int) -> list[Element]:
        if self.network:
            elements: list[Element] = [(block, "n", i, 0) for i in range(CHANNELS)]
            for j in range(self.width):
                elements += [(block, "W1", i, j) for i in range(CHANNELS)]
                elements += [(block, "W2", j, i) for i in range(CHANNELS)]
            return elements
        elements = []
        for group in (g.name for g in self.program.groups if not self.tied(g.name)):
            entries = self.setup.entries if self.slice_axes(group) == self.group(group).experts else 1
            elements += [(block, group, j, i) for j in range(self.slices(group)) for i in range(entries)]
        return elements

    @cached_property
    def tied_elements(self) -> list[Element]:
        """Elements of tied groups."""
        tied = [g.name for g in self.program.groups if self.tied(g.name)]
        return [(TIED, name, j, i) for name in tied for j in range(self.slices(name)) for i in range(2)]

    @cached_property
    def elements(self) -> list[Element]:
        """All elements of the model."""
        return [*self.tied_elements, *(e for k in self.blocks for e in self._block_elements(k))]

    @cached_property
    def shared_elements(self) -> list[tuple[Element, Element]]:
        """Pairs of elements that are one weight: of the first block of the first stage, and of the last block of the last one."""
        if self.stage_count == 1:
            return []
        first, last = (self._block_elements(block) for block in (self.blocks[0], self.blocks[-1]))
        return [(one, two) for one, two in zip(first, last, strict=True) if self.shared(self.group_of(one))]

    @cached_property
    def _at_end(self) -> Array:
        """1 for the second of each pair: the two lie in partitions of their own."""
        second = {two for _, two in self.shared_elements}
        return np.array([e in second for e in self.elements], dtype=np.int64)

    def repeated(self, stage: int = 0) -> Array:
        """Which elements, as a stage has them, are copies of a weight that the first stage has, too."""
        return np.array([bool(end) or (e[0] == TIED and stage > 0) for e, end in zip(self.elements, self._at_end, strict=True)], dtype=bool)

    def shares(self, element: Element) -> list[tuple[object, ...]]:
        """The shares in which devices compute an element's gradient in the flat model."""
        group = self.group_of(element)
        ends: list[tuple[object, ...]] = [("first",), ("last",)] if self.tied(group) else [()]
        along = self.partial(group)
        return [(*end, i) for end in ends for i in range(prod(self.sizes[f] for f in along))] if along else ends

    # Who has what.

    @cached_property
    def table(self) -> Table:
        """The elements as arrays."""
        names = list(dict.fromkeys(map(self.group_of, self.elements)))
        rows = [(e[0], names.index(self.group_of(e)), self._slice(e), self._number(e)) for e in self.elements]
        block, group, slices, number = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
        norm = np.array([self.network and e[1] == "n" for e in self.elements], dtype=bool)
        return Table(block=block, names=names, group=group, slice=slices, norm=norm, number=number)

    @remembered
    def owners(self, factor: str, stage: int = 0, order: str = "blocked") -> Array:
        """The coordinate that owns each element along a factor, as a device of a stage sees it; -1: all own it. Slices go in ranges, other
        elements one by one, so that shares are uneven where degrees do not divide. Copies of tied weights lie in partitions of their own.
        """
        axis, of, size = self.axis_of(factor), self.table, self.sizes[factor]
        if axis.splits.stages:
            return of.block // (self.blocks_per_layer * self.setup.layers_per_stage)
        before = [*itertools.takewhile(lambda f: f != factor, self.sizes)]
        if order == "matrices":
            return self._matrix // prod(self.sizes[f] for f in before) % size
        row = prod(self.sizes[f] for f in before if f != self.hidden)
        alike = np.array([bool(self.shared(name)) for name in of.names])[of.group] & axis.splits.called
        number = np.where(alike, of.slice, of.number + self._at_end) + stage * (of.block == TIED) + (order != "blocked")
        if (whole := self._in_whole_matrices(factor)).any():
            number = np.where(whole, self._matrix + (order != "blocked"), number)
        copied = self.network and factor == self.hidden
        owner = np.zeros_like(number) if copied else number // row % size
        inner = prod(self.sizes[f] for f in axis.factors[axis.factors.index(factor) + 1 :])
        for at, name in enumerate(of.names):
            if axis.name in self.slice_axes(name):
                mine = of.group == at
                own = mine & ~of.norm
                owner[own] = self._slice_owners(name, axis.name, of.slice[own], order) // inner % size
                owner[mine & of.norm & copied] = -1
        return owner

    def _in_whole_matrices(self, factor: str) -> Array:
        """Which elements lie in parts along a factor that are whole matrices."""
        return np.array([factor in self.factors(self.group(name).whole) for name in self.table.names])[self.table.group]

    @cached_property
    def _matrix(self) -> Array:
        """The number of each element's matrix."""
        numbers: dict[TensorId, int] = {}
        return np.array([numbers.setdefault(self.tensor_of(e), len(numbers)) for e in self.elements], dtype=np.int64)

    def _slice_owners(self, group: str, axis: str, slices: Array, order: str) -> Array:
        """The numbers along an axis of the devices that own slices: ranges of slices, along further axes one by one."""
        degree, count = self._degree(axis), len(self.columns[group]) if self.network else self.slices(group)
        if order != "blocked":
            return (slices + 1) % degree
        first, *others = self.slice_axes(group)
        before = prod(self._degree(other) for other in itertools.takewhile(lambda other: other != axis, others))
        return slices * degree // count if first == axis else slices // before % degree

    def _slice(self, element: Element) -> int:
        """The number of an element's slice among those of its group."""
        if not self.network or element[1] == "n" or element[0] == TIED:
            return element[2]
        return _column(element) - self.columns[self.group_of(element)].start

    def _degree(self, axis: str) -> int:
        return prod(self.sizes[factor] for factor in self.factors((axis,)))

    def _number(self, element: Element) -> int:
        block, part, row, column = element
        if self.network and block != TIED:
            return ((block * 3 + ("n", "W1", "W2").index(part)) * 4 + row) * 4 + column
        names = [g.name for g in self.program.groups]
        return (((block + 1) * len(names) + names.index(part)) * 2 + row) * self.setup.entries + column
