"""What a program's meaning is made of: device coordinates, elements, samples, owners, and the single-device reference's atoms.

Coordinates, elements and samples lie in uninterpreted sorts, so nothing fixes how many devices, parameters, blocks or
micro-batches there are. Which device owns an element along an axis is an uninterpreted function: shards may be uneven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from placeproof.core.mesh import Axis, degree_symbol
from placeproof.programs import For, Resolved, statements
from placeproof.programs.facts import ProgramFacts
from placeproof.programs.ops import COMPARE
from placeproof.prove import Order
from placeproof.prove.terms import ZERO, Fn, Index, Poly, Sort, Var, app, constant, fn, point, product, same, size, symbol

BLOCK = Sort("block", "blocks")
SLICE = Sort("slice", "slices")
ENTRY = Sort("entry", "entries")
TOKEN = Sort("token", "tokens")
CHANNEL = Sort("channel", "channels")
POSITION = Sort("position", "positions")

#: Names of a stage's first and last part.
FIRST_PART, LAST_PART = "first part of", "last part of"
#: An element of a tensor: its block, the slice of the hidden dimension (or the expert), and its place there.
E_BLOCK, E_SLICE, E_ENTRY = Var("e.block", BLOCK), Var("e.slice", SLICE), Var("e.entry", ENTRY)
ELEMENT: tuple[Var, ...] = (E_BLOCK, E_SLICE, E_ENTRY)
#: A row or a column of a matrix.
E_LINE = Var("e.line", Sort("line", "lines"))
#: An element of a stream of activations.
TOKEN_AT, CHANNEL_AT = Var("x.token", TOKEN), Var("x.channel", CHANNEL)


def part_of_element(domain: str, sort: Sort) -> Index:
    """The part of the model, of those that a loop goes over, in which an element lies."""
    return E_BLOCK if domain == "blocks" else fn(f"{domain} of", (E_BLOCK,), sort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """``name relation bound``: the name of a degree or of the number of micro-batches, and a whole number."""

    name: str
    relation: str
    bound: int

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.bound}"

    @property
    def given(self) -> Order:
        """The range as a hypothesis."""
        relation = "=" if self.relation == "==" else self.relation
        return Order(name=str(self), left=symbol(self.name), relation=relation, right=constant(self.bound))

    def allows(self, value: int) -> bool:
        """Whether a number lies in the range."""
        return bool(COMPARE[self.relation](value, self.bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which assumptions are dropped, and to which ranges of degrees the claims are restricted."""

    without: frozenset[str] = frozenset()
    ranges: tuple[Range, ...] = ()


@dataclass
class World(ProgramFacts):
    """The sorts, coordinates and functions that speak of one program."""

    program: Resolved
    options: Options = field(default_factory=Options)
    least: dict[str, int] = field(default_factory=dict)

    # Sorts and coordinates.

    @cached_property
    def sorts(self) -> dict[str, Sort]:
        """The sort of each axis factor."""
        return {name: Sort(name, size) for axis in self.program.axes for name, size in self._factor_sizes(axis)}

    def _factor_sizes(self, axis: Axis) -> list[tuple[str, str | int]]:
        whole: str | int = axis.degree if axis.degree is not None else degree_symbol(axis.name, only=len(self.program.axes) == 1)
        if axis.inner is None:
            return [(axis.name, whole)]
        outer: str | int = f"N_{axis.outer_name}"
        if isinstance(axis.inner, int) and axis.degree is not None:
            outer = axis.degree // axis.inner
        return [(axis.outer_name, outer), (axis.inner_name, axis.inner)]

    @cached_property
    def batch(self) -> Sort:
        """The sort of micro-batches: of one point in a program without a loop over them."""
        loops = any(isinstance(s, For) and s.domain == "microbatches" for s in statements(self.program.body))
        count = self.program.count("microbatches")
        return Sort("microbatch", (count if count is not None else "m") if loops else 1)

    def batch_at(self, number: int) -> Index:
        """The first micro-batch (0), or the last one (-1)."""
        return point(self.batch) if number == 0 else fn(f"last.{self.batch.name}", (), self.batch)

    def loop_sort(self, domain: str) -> Sort:
        """The sort of a loop variable."""
        if domain == "microbatches":
            return self.batch
        return BLOCK if domain == "blocks" else Sort(domain, f"number of {domain}")

    @cached_property
    def here(self) -> dict[str, Index]:
        """The coordinates of the device that is spoken of, by axis factor."""
        return {name: point(sort) if sort.single else Var(f"d.{name}", sort) for name, sort in self.sorts.items()}

    @cached_property
    def coordinates(self) -> tuple[Index, ...]:
        """All coordinates of the device."""
        return tuple(self.here.values())

    def degree(self, axis: str) -> Poly:
        """The degree of an axis, or of one of its factors."""
        return product(*(self.size(f) for f in self.factors((axis,))))

    def size(self, factor: str) -> Poly:
        """The degree of one axis factor."""
        return size(self.sorts[factor])

    def rank(self, factor: str, number: int) -> Index:
        """The device with a number along an axis factor; -1 is the last."""
        sort = self.sorts[factor]
        if isinstance(sort.size, int) and number in (-1, sort.size - 1):  # a device of a known number has one name
            number = -1 if sort.size > 1 else 0
        if number > 0:
            self.least[factor] = max(self.least.get(factor, 1), number + 1)
        return point(sort) if number == 0 else fn(f"last.{sort.name}" if number == -1 else f"rank{number}.{sort.name}", (), sort)

    def at_rank(self, number: int, factors: Iterable[str]) -> dict[str, Index]:
        """The coordinates of the device with a number along some axis factors, for those of the device that is spoken of."""
        return {v.name: self.rank(f, number) for f in factors if isinstance(v := self.here[f], Var)}

    # What axes split.

    @cached_property
    def stage(self) -> Index:
        """The pipeline stage of the device; of the only one where there is no pipeline."""
        return self.here[self.stages] if self.stages is not None else point(Sort("stage", 1))

    @property
    def ends(self) -> tuple[tuple[Index, Index], ...]:
        """The first and the last stage, each with the block that shares weights with the other."""
        assert self.stages is not None
        first, last = (self.rank(self.stages, number) for number in (0, -1))
        return (first, fn("first block", (), BLOCK)), (last, fn("last block", (), BLOCK))

    def with_shared(self, group: str, body: Poly, other: Callable[[Index, Index], Poly]) -> Poly:
        """A term about an element, and where its weight is shared by the ends of a pipeline, what there is of the ``other`` one, by stage
        and block, added to it."""
        if self.shared(group) is None or self.stages is None:
            return body
        (first, one), (last, two) = self.ends
        others = product(same(E_BLOCK, one), other(last, two)) + product(same(E_BLOCK, two), other(first, one))
        return body + product(constant(1) - same(first, last), others)

    def repeated(self, group: str) -> Poly:
        """1 for what the last stage has of a weight that the first one has, too: for an element, or for all that the device has."""
        if self.stages is None or (self.shared(group) is None and self.tied(group) is None):
            return ZERO
        (first, _), (last, block) = self.ends
        apart = constant(1) - same(first, last)
        return product(apart, same(E_BLOCK, block) if self.shared(group) is not None else same(self.stage, last))

    # Elements and owners.

    def sliced(self, group: str) -> bool:
        """Whether a group's elements belong to slices of the hidden dimension, or to experts."""
        if group in self.expert_groups:
            return True
        return any(self.axis_of(a).splits.partial for a in self.split_axes("parameters", group))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The names of the parameter groups."""
        return tuple(g.name for g in self.program.groups)

    def element(self, group: str) -> tuple[Var, ...]:
        """The variables that name an element of a group."""
        block = (E_BLOCK,) if self.tied(group) is None else ()
        return (*block, E_SLICE, E_ENTRY) if self.sliced(group) else (*block, E_ENTRY)

    def within(self, group: str) -> tuple[Var, ...]:
        """Of these variables those that name an element within its matrix: an expert is a matrix of its own."""
        experts = (E_SLICE,) if group in self.expert_groups else ()
        return tuple(v for v in self.element(group) if v not in (E_BLOCK, *experts))

    def owner(self, group: str, factor: str, order: str = "blocked") -> Index:
        """The coordinate that owns an element of a group along an axis factor; by ``order`` "matrices", that of its matrix."""
        sort, axis = self.sorts[factor], self.axis_of(factor)
        if order == "matrices":
            return fn(f"owner.{factor}.matrices", tuple(v for v in self.element(group) if v not in self.within(group)), sort)
        suffix = "" if order == "blocked" else f".{order}"
        if axis.splits.called and self.shared(group) is not None:  # both ends compute with the same part
            return fn(f"owner.{factor}{suffix}", (E_ENTRY,), sort)
        if axis.splits.stages:  # of tied copies, the first stage's
            return fn("stage", (E_BLOCK,), sort) if self.tied(group) is None else self.rank(factor, 0)
        if self.sliced(group) and (axis.splits.partial or self.is_expert_axis(group, axis.name)):
            own = f".{group}" if self.by_groups else ""  # each group has slices of its own
            slices = tuple(v for v in self.element(group) if v != E_ENTRY)
            return fn(f"owner.{factor}{own}{suffix}", slices, sort)
        copy = () if self.tied(group) is None else (self.stage,)  # tied copies lie in partitions of their own
        element = self.element(group)
        if factor in self.factors(self.group(group).whole):  # an owner of each matrix
            element = tuple(v for v in element if v not in self.within(group))
        return fn(f"owner.{factor}{suffix}", (*element, *copy), sort)

    def is_expert_axis(self, group: str, axis: str) -> bool:
        """Whether an axis splits the experts of a group, its tokens being sent to them."""
        return axis in self.group(group).experts

    def computes_part(self, group: str, factor: str) -> bool:
        """Whether devices along an axis factor compute with parts of a group: those of the computation, or of the group's experts."""
        axis = self.axis_of(factor)
        if axis.splits.called:
            return self.calls_part(group, factor)
        return axis.splits.compute or self.is_expert_axis(group, axis.name)

    def token_owner(self, factor: str) -> Index:
        """The coordinate that holds a token where the sequence is split over an axis factor."""
        return fn(f"holder.{factor}", (TOKEN_AT,), self.sorts[factor])

    def owns(self, group: str, factor: str, order: str = "blocked") -> Poly:
        """1 where the device owns the element of a group along an axis factor."""
        axis = self.tied(group)
        if axis is not None and factor == axis:
            first, last = same(self.here[factor], self.rank(factor, 0)), same(self.here[factor], self.rank(factor, -1))
            return first + last - product(first, last)
        return same(self.here[factor], self.owner(group, factor, order))

    # Samples and the reference's atoms.

    def sample(self, batch: Index | None = None) -> tuple[Index, ...]:
        """The device's own samples (of one micro-batch)."""
        return (*(self.here[f] for f in self.sample_factors), batch if batch is not None else self.batch_at(0))

    @cached_property
    def any_sample(self) -> tuple[Var, ...]:
        """Variables for any sample of the global batch."""
        return (*(Var(f"s.{f}", self.sorts[f]) for f in self.sample_factors), Var("s.microbatch", self.batch))

    def theta(self, group: str) -> Poly:
        """The reference's parameters before the step."""
        if "equal-initial-states" in self.options.without:
            return self.initial(group, {f: self.rank(f, 0) for f in self.sorts})
        return app(f"theta.{group}", *self.element(group))

    def initial(self, group: str, at: dict[str, Index]) -> Poly:
        """The parameters that one device begins with, where devices may begin with different ones."""
        return app(f"initial.{group}", *at.values(), *self.element(group))

    def omega(self, group: str) -> Poly:
        """The reference's optimizer state before the step."""
        return app(f"omega.{group}", *self.element(group))

    def x(self, sample: tuple[Index, ...], at: Index) -> Poly:
        """The reference's activations at a position of the model."""
        return app("x", *sample, at, TOKEN_AT, CHANNEL_AT)

    def dx(self, sample: tuple[Index, ...], at: Index, of: str = "") -> Poly:
        """The reference's gradient of a sample's loss with respect to the activations at a position. ``of``: another loss, or mean."""
        return app(f"dx{of}", *sample, at, TOKEN_AT, CHANNEL_AT)

    def tokens(self, sample: tuple[Index, ...]) -> Poly:
        """How many tokens of a sample count."""
        if self.program.loss or "equal-token-counts" in self.options.without:
            return app("tokens", *sample)
        return symbol("tokens each")

    def counted(self, unit: str, sample: tuple[Index, ...]) -> Poly:
        """How many of a unit a device's samples have; of all but tokens, those that are shared out over devices count on each."""
        return self.tokens(sample) if unit == "tokens" else app(unit, *self.shared_by_parts(sample))

    def shared_by_parts(self, sample: tuple[Index, ...]) -> tuple[Index, ...]:
        """What is the same on all devices among which tokens of these samples are shared out."""
        own = zip(self.sample_factors, sample, strict=False)
        return (*(at for f, at in own if not self.axis_of(f).splits.tokens), sample[-1])

    def statistic(self, sample: tuple[Index, ...]) -> Poly:
        """What a sample adds to a statistic of the batch that layers use."""
        return app("statistic", *sample)

    @cached_property
    def coupled(self) -> bool:
        """Whether layers use a statistic of the whole batch."""
        return "separable-loss" in self.options.without or dict(self.program.reference).get("statistics") == "batch"

    def key(self, draw: str, at: Mapping[str, Index], batch: Index | None) -> Poly:
        """A random key, folded with some coordinates. ``batch``: the micro-batch in which it is drawn; None outside of all."""
        folded = [at.get(f, self.rank(f, 0)) for f in self.sorts]
        if batch is None and not self.batch.single:
            return app(f"random.{draw} of all", *folded)
        return app(f"random.{draw}", *folded, self.batch_at(0) if batch is None or self.batch.single else batch)

    @property
    def dropped(self) -> Index | None:
        """The position after the dropout of the model's output, where the reference has one."""
        return Fn("after dropout", (), POSITION) if dict(self.program.reference).get("dropout") == "output" else None

    @property
    def output(self) -> Index:
        """The position of the model's output."""
        return self.end("stage", self.stage if self.stages is None else self.rank(self.stages, -1))

    def start(self, domain: str, index: Index) -> Index:
        """The position at which a part of the model begins: a stage's first part begins where the stage does."""
        if isinstance(index, Fn) and index.name == FIRST_PART and index.args[0].sort == self.stage.sort:
            return self.start("stage", index.args[0])
        return Fn(f"start.{domain}", (index,), POSITION)

    def end(self, domain: str, index: Index) -> Index:
        """The position at which a part of the model ends: a stage's last part ends where the stage does."""
        if isinstance(index, Fn) and index.name == LAST_PART and index.args[0].sort == self.stage.sort:
            return self.end("stage", index.args[0])
        return Fn(f"end.{domain}", (index,), POSITION)
