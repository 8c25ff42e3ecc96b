"""Where the elements of a small model lie on a small mesh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

from placeproof.core.program import Resolved
from placeproof.core.program.facts import ProgramFacts
from placeproof.core.strategy import NORM
from placeproof.semantics.meaning.remembered import remembered

#: (block, part, row, column): an element of the parameters. The part is a matrix of the network, or a group.
Element: TypeAlias = tuple[int, str, int, int]
Coordinates: TypeAlias = dict[str, int]

#: The block that tied weights are said to be in: none.
TIED = -1
CHANNELS = 2


def _column(element: Element) -> int:
    """The inner column of an element of the network's matrices."""
    return element[3] if element[1] == "W1" else element[2]


def in_words(element: Element) -> str:
    """An element's name for people."""
    block, part, row, column = element
    return f"{part}[{row}, {column}]" + ("" if block < 0 else f" of block {block}")


@dataclass(frozen=True)
class Sizes:
    """How large the mesh and the model are."""

    factors: dict[str, int]
    layers_per_stage: int
    units_per_stage: int
    microbatches: int
    entries: int = 2


@dataclass(frozen=True)
class Layout(ProgramFacts):
    """The mesh's factors, and which element lies where.

    A program that calls ``forward`` trains a network of two blocks a layer; any other trains a flat model, whose gradient is a
    short formula.
    """

    program: Resolved
    sizes: Sizes

    @cached_property
    def experts(self) -> str | None:
        """The axis over which experts are spread. In the network, an expert is a column of a block's matrices, and every token is sent
        to all of them; where blocks are not computed group by group, only the norms are no experts."""
        return next((g.experts for g in self.program.groups if g.experts), None)

    # The model's elements.

    @property
    def blocks_per_layer(self) -> int:
        """Two in the network, one in the flat model."""
        return 2 if self.network else 1

    def stage_blocks(self, stage: int) -> tuple[int, ...]:
        """The blocks of a pipeline stage."""
        per = self.blocks_per_layer * self.sizes.layers_per_stage
        return tuple(range(stage * per, (stage + 1) * per))

    @cached_property
    def stage_count(self) -> int:
        """The number of pipeline stages."""
        return self.sizes.factors[self.stages] if self.stages else 1

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """All blocks."""
        return tuple(k for stage in range(self.stage_count) for k in self.stage_blocks(stage))

    @remembered
    def slice_axes(self, group: str) -> tuple[str, ...]:
        """The axes along which a group's slices (or experts) are spread, that of the experts first."""
        experts = self.group(group).experts
        kinds = {a.name: a.splits.name for a in self.program.axes}
        spread = [a for a in self.split_axes("parameters", group) if kinds.get(a) in ("hidden", "experts") and a != experts]
        return (*([experts] if experts else []), *spread)

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
        names = [g.name for g in self.program.groups if not g.tied]
        dense = [name for name in names if name not in self.expert_groups]
        return NORM if NORM in dense else next(iter(dense or names), "")

    @cached_property
    def columns(self) -> dict[str, range]:
        """The inner columns of the network's matrices that each group has: all groups but that of the norms, unless it is the only one."""
        names = [g.name for g in self.program.groups if not g.tied]
        columns, end, hidden = dict[str, range](), 0, (self.hidden,) if self.hidden else ()
        for name in [n for n in names if n != self.normed] or names:
            if name in self.expert_groups:
                count = self._uneven(self.slice_axes(name), 2)
            elif len(names) > 2 or self.experts is not None:
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

    def group_of(self, element: Element) -> str:
        """The parameter group of an element."""
        if not self.network or element[0] == TIED:
            return element[1]
        if element[1] == "n":
            return self.normed
        return next(name for name, columns in self.columns.items() if _column(element) in columns)

    def _block_elements(self, block: int) -> list[Element]:
        if self.network:
            found: list[Element] = [(block, "n", i, 0) for i in range(CHANNELS)]
            for j in range(self.width):
                found += [(block, "W1", i, j) for i in range(CHANNELS)]
                found += [(block, "W2", j, i) for i in range(CHANNELS)]
            return found
        found = []
        for group in (g.name for g in self.program.groups if not g.tied):
            entries = 1 if self.slice_axes(group) else self.sizes.entries
            found += [(block, group, j, i) for j in range(self.slices(group)) for i in range(entries)]
        return found

    @cached_property
    def tied_elements(self) -> list[Element]:
        """Elements of tied groups."""
        return [(TIED, g.name, 0, i) for g in self.program.groups if g.tied for i in range(2)]

    @cached_property
    def elements(self) -> list[Element]:
        """All elements of the model."""
        return [*self.tied_elements, *(e for k in self.blocks for e in self._block_elements(k))]

    def shares(self, element: Element) -> list[tuple[object, ...]]:
        """The shares in which devices compute an element's gradient in the flat model."""
        group = next((g for g in self.program.groups if g.name == self.group_of(element)), None)
        if group is not None and group.tied:
            return [("first",), ("last",)]
        if group is not None and group.partial:
            return [(i,) for i in range(self._degree(group.partial))]
        return [()]

    # Who has what.

    @remembered
    def split_axes(self, state: str, group: str) -> tuple[str, ...]:
        """The axes along which a state of a group lies in parts."""
        found = {axis: mode for p in self.program.placed if p.state == state and p.group in (None, group) for axis, mode in p.modes}
        return tuple(axis for axis, mode in found.items() if mode.split)

    def owner(self, element: Element, factor: str, stage: int = 0, order: str = "blocked") -> int:
        """The coordinate that owns an element along a factor; -1: all do. Slices go in ranges; other elements one by one, so that shares
        are uneven where degrees do not divide. Copies of tied weights lie in partitions of their own."""
        size, group = self.sizes.factors[factor], self.group_of(element)
        axis = self.program.axis(factor)
        assert axis is not None
        if axis.splits.name == "layers":
            return element[0] // (self.blocks_per_layer * self.sizes.layers_per_stage)
        if axis.name in self.slice_axes(group) and not (self.network and element[1] == "n"):
            place = self._slice_owner(element, group, axis.name, order)
            for other in reversed(self.factors((axis.name,))):
                if other == factor:
                    return place % self.sizes.factors[other]
                place //= self.sizes.factors[other]
        if self.network and factor == self.hidden:  # norms are copied there, whatever group they are in
            return -1 if axis.name in self.slice_axes(group) else 0
        number = self._number(element) + (stage if element[0] == TIED else 0) + (0 if order == "blocked" else 1)
        for other, count in self.sizes.factors.items():
            if other == factor:
                return number % size
            number //= count if other != self.hidden else 1
        raise AssertionError(factor)

    def _slice_owner(self, element: Element, group: str, axis: str, order: str) -> int:
        """The number along an axis of the device that owns an element's slice: ranges of slices, along a second axis one by one."""
        degree, count = self._degree(axis), self.slices(group)
        slice_ = element[2]
        if self.network:
            columns = self.columns[group]
            slice_, count = _column(element) - columns.start, len(columns)
        if order != "blocked":
            return (slice_ + 1) % degree
        return slice_ * degree // count if self.slice_axes(group)[0] == axis else slice_ % degree

    def _degree(self, axis: str) -> int:
        return prod(self.sizes.factors[factor] for factor in self.factors((axis,)))

    def _number(self, element: Element) -> int:
        block, part, row, column = element
        if self.network:
            return ((block * 3 + ("n", "W1", "W2").index(part)) * 4 + row) * 4 + column
        names = [g.name for g in self.program.groups]
        return (((block + 1) * len(names) + names.index(part)) * 2 + row) * self.sizes.entries + column
