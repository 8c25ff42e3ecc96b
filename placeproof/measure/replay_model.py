"""The model and the mesh of a replay as one process knows them: who has which element, and the numbers that the run begins with.

Elements are numbered in the order of the file. Which elements a device holds follows from the program's placement and from the owners
that the file names; nothing here computes an owner.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from placeproof.core.program import Assign, Call, Program, Ref, calls, expressions, own_expressions, statements
from placeproof.measure.replay_file import Coordinates, Counterexample

#: Channels of the network's streams.
CHANNELS = 2
_NAME = re.compile(r"(\w+)\[(\d+), (\d+)\](?: of block (\d+))?")


class MissingNumberError(Exception):
    """The run needs a number that the file does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One number of the parameters. ``block`` is -1 where it lies in none, as a tied weight does."""

    name: str
    group: str
    block: int
    part: str
    row: int
    column: int

    @property
    def key(self) -> tuple[int, str, int, int]:
        """What names what a device reads where it does not have this element."""
        return self.block, self.part, self.row, self.column

    @property
    def tied(self) -> bool:
        """Whether copies of it lie on the first and on the last stage."""
        return self.block < 0


def _element(name: str, group: str) -> Element:
    found = _NAME.fullmatch(name)
    assert found is not None
    part, row, column, block = found.groups()
    return Element(name=name, group=group, block=-1 if block is None else int(block), part=part, row=int(row), column=int(column))


def nothing(*key: object) -> Fraction:
    """What is read where there is nothing: a number that no computation meets by chance."""
    return Fraction(random.Random(f"garbage {key}").getrandbits(61) + 3, 2**31 - 1)


def roots_are_clipped(program: Program) -> bool:
    """Whether square roots are taken of what is clipped alone, without a limit: of a root a replay knows its square."""
    every = [e for s in statements(program.body) for own in own_expressions(s) for e in expressions(own)]
    clipped = [e.args for e in every if isinstance(e, Call) and e.op == "clip_factor"]
    named = {a[0].name for a in clipped if isinstance(a[0], Ref)}
    bound = [s for s in statements(program.body) if isinstance(s, Assign) and any(t.name in named for t in s.targets)]
    values = [a[0] for a in clipped if not isinstance(a[0], Ref)] + [s.value for s in bound]
    inside = sum(isinstance(v, Call) and v.op == "sqrt" for v in values)
    used = sum(isinstance(e, Ref) and e.name in named for e in every)
    roots = sum(isinstance(e, Call) and e.op == "sqrt" for e in every)
    return all(len(a) == 1 for a in clipped) and inside == len(values) == roots and used == sum(isinstance(a[0], Ref) for a in clipped)


def not_replayed(program: Program) -> str | None:
    """What a program does that processes do not replay: the simulator alone gives it its meaning."""
    if not roots_are_clipped(program):
        return "a square root that is not clipped, or a norm that is no square root"
    if program.kept_by_batch:
        return "a buffer that is kept for each micro-batch"
    return None


class Model:
    """The elements of a step's model and the mesh's coordinates. A mask is a bool tensor with one entry for each element."""

    def __init__(self, found: Counterexample) -> None:
        self.found, self.program, self.sizes = found, found.program, found.factors
        self.elements = [_element(name, group) for name, group in found.elements.items()]
        self._owners = {(o.along, o.order, o.stage): torch.tensor(o.of, dtype=torch.int64) for o in found.owners}
        self.network = any(c.op == "forward" for s in statements(self.program.body) for c in calls(s))
        self.hidden = next((a.name for a in self.program.axes if a.splits.name == "hidden"), None)
        self.experts = next((g.experts for g in self.program.groups if g.experts), None)
        self.stages = next((a.name for a in self.program.axes if a.splits.name == "layers"), None)
        self.sample_factors = tuple(f for a in self.program.axes if a.splits.samples for f in self.factors((a.name,)))
        self.tensors = list(dict.fromkeys((e.block, e.group) for e in self.elements))
        self.tensor_of = torch.tensor([self.tensors.index((e.block, e.group)) for e in self.elements])
        self.number_of = {(e.block, e.part, e.row, e.column): n for n, e in enumerate(self.elements)}

    # The mesh.

    def factors(self, axes: Sequence[str]) -> tuple[str, ...]:
        """The factors of the mesh that names of axes stand for."""
        found: list[str] = []
        for name in axes:
            axis = self.program.axis(name)
            whole = axis is not None and axis.inner is not None and name == axis.name
            found += [axis.outer_name, axis.inner_name] if whole and axis is not None else [name]
        return tuple(found)

    def degree(self, axes: Sequence[str]) -> int:
        """How many devices there are along some axes."""
        return math.prod(self.sizes[f] for f in self.factors(axes))

    def place(self, at: Coordinates, axes: Sequence[str]) -> int:
        """A device's number within its group over some axes."""
        number = 0
        for factor in self.factors(axes):
            number = number * self.sizes[factor] + at[factor]
        return number

    def stage(self, at: Coordinates) -> int:
        """A device's pipeline stage."""
        return at[self.stages] if self.stages else 0

    @property
    def last_stage(self) -> int:
        """The last pipeline stage."""
        return self.sizes[self.stages] - 1 if self.stages else 0

    def stage_blocks(self, at: Coordinates) -> tuple[int, ...]:
        """The blocks of a device's stage; a layer has two in the network, and one in the flat model."""
        per = self.blocks_per_layer * self.found.sizes["layers per stage"]
        return tuple(range(self.stage(at) * per, (self.stage(at) + 1) * per))

    @property
    def blocks_per_layer(self) -> int:
        """Two in the network, one in the flat model."""
        return 2 if self.network else 1

    @property
    def blocks(self) -> tuple[int, ...]:
        """All blocks of the model."""
        return tuple(sorted({e.block for e in self.elements if not e.tied}))

    # Who has what.

    def mask(self, chosen: Sequence[bool]) -> Tensor:
        """A mask from its entries."""
        return torch.tensor(chosen, dtype=torch.bool)

    def split_axes(self, state: str, group: str) -> tuple[str, ...]:
        """The axes along which the placement leaves each device a part of a state."""
        modes = {axis: mode for p in self.program.placed if p.state == state and p.group in (None, group) for axis, mode in p.modes}
        return tuple(axis for axis, mode in modes.items() if mode.split)

    def slice_axes(self, group: str) -> tuple[str, ...]:
        """The axes along which a group's slices or experts are spread, that of the experts first."""
        experts = next((g.experts for g in self.program.groups if g.name == group), None)
        kinds = {a.name: a.splits.name for a in self.program.axes}
        split = [a for a in self.split_axes("parameters", group) if kinds.get(a) in ("hidden", "experts") and a != experts]
        return (*((experts,) if experts else ()), *split)

    @cached_property
    def of_experts(self) -> Tensor:
        """The elements of experts."""
        groups = {g.name for g in self.program.groups if g.experts}
        return self.mask([e.group in groups for e in self.elements])

    @property
    def keys(self) -> list[tuple[int, str, int, int]]:
        """What names each element to :func:`nothing`."""
        return [e.key for e in self.elements]

    def blocks_in(self, extent: Tensor) -> tuple[int, ...]:
        """The blocks of which there are elements."""
        return tuple(sorted({e.block for e, there in zip(self.elements, extent.tolist(), strict=True) if there and not e.tied}))

    def owns(self, at: Coordinates, axes: Sequence[str], order: str = "blocked") -> Tensor:
        """The elements that a device owns along some axes; both ends of the stages own a tied one."""
        found = torch.ones(len(self.elements), dtype=torch.bool)
        stage = self.stage(at) if bool(self._tied.any()) else 0
        for factor in self.factors(axes):
            mine = self._owners[(factor, order, stage)] == at[factor]
            found &= (mine | self._tied) if factor == self.stages else mine
        return found

    @cached_property
    def _tied(self) -> Tensor:
        return self.mask([e.tied for e in self.elements])

    def extent(self, at: Coordinates, state: str) -> Tensor:
        """The elements that a device computes with: of its stage, and of its own slices where a state's slices are spread."""
        blocks, ends = self.stage_blocks(at), self.stage(at) in (0, self.last_stage)
        found = self.mask([ends if e.tied else e.block in blocks for e in self.elements])
        for group in {e.group for e in self.elements if not e.tied}:
            split = self.split_axes(state, group)
            for axis in (a for a in self.slice_axes(group) if a in split and not (self.network and group == "norm")):
                found &= self.owns(at, (axis,)) | ~self.of_group(group)
        return found

    def of_group(self, group: str) -> Tensor:
        """The elements of a group."""
        return self.mask([e.group == group for e in self.elements])

    def placed(self, at: Coordinates, state: str) -> Tensor:
        """The elements of a state that the placement gives a device between steps."""
        found = self.extent(at, state)
        norms = self.mask([self.network and e.part == "n" for e in self.elements])
        for group in {e.group for e in self.elements}:
            axes = [a for a in self.split_axes(state, group) if a != self.stages and a not in self.slice_axes(group)]
            mine = self.owns(at, axes)
            if self.hidden in axes:
                mine &= ~norms
            found &= mine | ~self.of_group(group)
        return found

    # What the run begins with.

    def number(self, name: str) -> Fraction:
        """A number of the file; raises MissingNumberError."""
        try:
            return self.found.numbers[name]
        except KeyError:
            raise MissingNumberError(f"the file has no number `{name}`") from None

    def initial(self, e: Element, at: Coordinates | None = None) -> Fraction:
        """An element before the first step, in the copy of a device, or in that of the first one."""
        where = ""
        if at is not None and "equal-initial-states" in self.found.without:
            split = self.factors(self.split_axes("parameters", e.group))
            copy = {f: 0 if f in split else n for f, n in at.items()}
            where = _on(copy) if any(copy.values()) else ""
        return self.number(f"parameter {e.name}{where}")

    def words(self, sample: Sequence[int], step: int) -> str:
        """A sample's name: who has it, its micro-batch, and the step, counted from 0."""
        at = [f"{f} = {n}" for f, n in zip(self.sample_factors, sample, strict=False)]
        return ", ".join([*at, f"micro-batch {sample[-1]}", f"step {step + 1}"])

    def sample(self, at: Coordinates, batch: int) -> tuple[int, ...]:
        """A device's samples of one micro-batch."""
        return (*(at[f] for f in self.sample_factors), batch)

    @property
    def tokens_of_a_sample(self) -> int:
        """One token for each device that may hold some."""
        return self.sizes[self.hidden] if self.hidden else 1

    def own_tokens(self, at: Coordinates) -> Tensor:
        """The tokens that are a device's own, where the sequence is split over the axis of the hidden dimension."""
        return self.mask([self.hidden is None or at[self.hidden] == t for t in range(self.tokens_of_a_sample)])

    def tokens(self, sample: Sequence[int], step: int) -> Fraction:
        """How many tokens of a sample count."""
        if "equal-token-counts" not in self.found.without:
            return Fraction(1)
        return self.number(f"tokens of {self.words(sample, step)}")

    @property
    def coupled(self) -> bool:
        """Whether layers use a statistic of the whole batch."""
        return "separable-loss" in self.found.without or self.reference("statistics") == "batch"

    def statistic(self, sample: Sequence[int], step: int) -> Fraction:
        """What a sample adds to a statistic of the batch."""
        return self.number(f"statistic of {self.words(sample, step)}")

    def key(self, at: Coordinates) -> Fraction:
        """A random key, folded with coordinates."""
        return self.number(f"random key{_on(at)}")

    def overflows(self, e: Element, step: int) -> bool:
        """Whether the gradient of an element is not finite in a step."""
        return self.number(f"overflow of {e.name}, step {step + 1}") != 0

    def own_gradient(self, e: Element, sample: Sequence[int], step: int, share: str) -> Fraction:
        """What a sample alone gives to an element's gradient in the flat model. ``share``: of which part, where it is shared out."""
        return self.number(f"own gradient of {e.name}, {self.words(sample, step)}{f', share {share}' if share else ''}")

    def reference(self, name: str) -> str:
        """What the program says of the single device's step."""
        return dict(self.program.reference).get(name, "")


def _on(at: Coordinates) -> str:
    return "".join(f", on {f} = {n}" for f, n in at.items())
