"""Schedules that give a device several runs of layers: what each device has then, what it keeps, and how often it hands something on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import ge
from typing import TYPE_CHECKING, TypeAlias

from placeproof.core.diagnostics import refuse
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.recomputation import extent
from placeproof.cost.model.stages import Stage, stages
from placeproof.programs import For
from placeproof.schedules import Kept, Profile, Schedule, StageLayout, forms, formulas, is_own, kept_together, load, slots
from placeproof.semantics.linked import Linked

if TYPE_CHECKING:
    import sympy


#: Of each run of layers: micro-batches of which a device keeps what backward needs, and only what gradients by weights need.
Moment: TypeAlias = tuple[tuple[Amount, Amount], ...]

#: The same in numbers.
Counts: TypeAlias = list[tuple[int, int]]

#: Where the number of micro-batches is open, the order is that of so many for each device; and the most passes that are looked at.
MANY, MOST = 4, 40_000


@lru_cache(maxsize=64)
def kept_in_order(schedule: Schedule, devices: int, batches: int, chunks: int) -> tuple[tuple[Kept, ...], ...]:
    """What each device keeps at once."""
    return tuple(map(kept_together, slots(schedule, devices, batches, chunks)))


@dataclass(frozen=True, kw_only=True)
class PipelineFlow:
    """How micro-batches flow through a pipeline of ``depth`` devices; None without one. ``batches``: micro-batches of a step.

    ``profile``: what an order that is searched for is searched for, of the model; None for what its file says.
    """

    linked: Linked
    depth: Amount | None
    profile: Profile | None = None

    @cached_property
    def schedule(self) -> Schedule:
        """The order of micro-batches; 1F1B where there is no pipeline."""
        schedule = load(self.linked.schedule)
        return schedule if self.profile is None else schedule.searched_for(self.profile)

    @property
    def name(self) -> str:
        """The schedule's name, or the path of its file."""
        return self.linked.schedule

    @property
    def chunks(self) -> int:
        """Runs of layers on a device."""
        return 1 if self.depth is None else self.linked.chunks

    @property
    def copies(self) -> int:
        """How often the model's parameters are held. A device's work and activations are then those of one copy, on average."""
        return 1 if self.depth is None else self.schedule.copies

    @property
    def batches(self) -> Amount:
        """Micro-batches of a step."""
        if self.fixed:
            return self.fixed
        return symbol("m") if any(isinstance(s, For) and s.domain == "microbatches" for s in self.linked.step.body) else 1

    @property
    def fixed(self) -> int | None:
        """Micro-batches of a step, where it says how many. Each copy has its part of them."""
        count = self.linked.step.count("microbatches")
        return None if count is None else count * self.copies

    def stages(self, parts: Sequence[DeviceSegment], times: Mapping[str, Amount], layers: Sequence[int] | None) -> tuple[Stage, ...]:
        """What each device has: several stages of the model, where the schedule gives it several.

        ``layers``: those of each stage of the model. Raises InputError as :func:`placeproof.cost.model.stages.stages`.
        """
        found = self._stages(parts, times, layers)
        return tuple(replace(stage, several=True) for stage in found) if self.chunks > 1 else found

    def _stages(self, parts: Sequence[DeviceSegment], times: Mapping[str, Amount], layers: Sequence[int] | None) -> tuple[Stage, ...]:
        layout, of = self.schedule.layout, extent(self.linked.recompute)
        alone = self.depth == 1 and (of is None or self.chunks == 1)
        if self.depth is None or alone or (layout is StageLayout.LOOP and self.chunks == 1):
            return stages(parts, times, self.depth, layers, extent=of)
        if isinstance(self.depth, int):
            by_depth = stages(parts, times, self.schedule.depth(self.depth, self.chunks), layers, extent=of)
            devices = self.schedule.stages(self.depth, self.chunks)
            together = (_together(d, {i: by_depth[i] for i in own}, self.copies, d == self.depth - 1) for d, own in enumerate(devices))
            few = self.depth * self._ordered * self.chunks <= MOST and (self.fixed is not None or not is_own(self.name))
            return tuple(stage if few else replace(stage, runs={}) for stage in together)
        three = stages(parts, times, self.depth, layers, extent=of, runs=self.chunks // self.copies)
        if layout is StageLayout.LOOP:
            return three
        first, between, last = three
        ends = replace(_together(0, {0: first, 1: last}, 2, end=False), name=first.name, runs={})
        if layout is StageLayout.BOTH:
            return ends, replace(between, copies=2), replace(ends, name=last.name, index=None, end=True)
        repeated = {part.name for part, _ in between.held}
        members = tuple((p, n if p.name in repeated else times[p.name]) for p, n in ends.held)
        return replace(ends, held=members, copies=1), between, replace(between, name=last.name, end=True)

    def at_once(self, stage: Stage, alike: Sequence[int]) -> tuple[Moment, ...]:
        """What a device keeps at the moments at which it can be most: of each of its runs of layers, the micro-batches of which it keeps
        what backward needs, and those of which it keeps only what gradients by weights need.

        ``alike``: for each of its runs, the first one that keeps as much. Runs that are not known one by one count as alike, and as one.
        """
        if self.depth is None:
            return (((1, 0),),)
        alone = is_own(self.name) or self.schedule.search is not None  # an order that no closed form has to be known of
        by_order = bool(stage.runs) or (alone and self.fixed is not None and isinstance(self.depth, int))
        if by_order and stage.index is not None:
            moments = [[moment[run] for run in stage.runs or (stage.index,)] for moment in self._orders[stage.index]]
            return tuple(tuple(map(self._bounded, moment)) for moment in self._decisive(moments, alike))
        put = {"p": self.depth, "m": self.batches, "v": self.chunks, "d": self._device(stage)}
        if not (peaks := formulas(self.schedule, "peak")):
            message = f"`{self.name}` says no closed form of its peak, and the number of stages or micro-batches is open"
            more = ", or add a form to the file" if is_own(self.name) else ""
            refuse("PP203", message, help=f"say both, `pp(4, microbatches=8, schedule={self.name})`{more}")
        counts = (tuple(self._share(term, put)) for form in peaks for term in _greatest(form))
        if any("m" in relation.names for form in forms(self.schedule, "peak") for relation in form.when):
            counts = (capped for kept, late in counts for capped in self._among_all(kept, late))
        return tuple(dict.fromkeys(((kept, late),) for kept, late in counts))

    def _among_all(self, kept: Amount, late: Amount) -> tuple[tuple[Amount, Amount], ...]:
        """No more than all micro-batches of a step, of which each is kept for one or the other: as many as can be for either."""
        import sympy

        def least(count: Amount, most: Amount) -> Amount:
            return count if count == 0 else sympy.Min(count, most)

        first, last = least(kept, self.batches), least(late, self.batches)
        if late == 0:
            return ((first, late),)
        return (first, least(late, self.batches - first)), (least(kept, self.batches - last), last)

    def _decisive(self, moments: Sequence[Counts], alike: Sequence[int]) -> list[Counts]:
        """Without the moments at which another one keeps no less of each kind of run, whatever the number of micro-batches."""
        most = max(n for moment in moments for counts in moment for n in counts)
        batches = [self.fixed] if self.fixed else range(1, most + 1)
        amounts = [
            [sum(min(counts[late], m) for counts, own in zip(moment, alike, strict=True) if own == kind)
             for kind in dict.fromkeys(alike) for late in (0, 1) for m in batches]
            for moment in moments
        ]  # fmt: skip
        kept: list[int] = []
        for new, amount in enumerate(amounts):
            if not any(all(map(ge, amounts[old], amount)) for old in kept):
                kept = [old for old in kept if not all(map(ge, amount, amounts[old]))] + [new]
        return [moments[i] for i in kept]

    @cached_property
    def _orders(self) -> tuple[tuple[Kept, ...], ...]:
        """What each device keeps by the order of its passes."""
        assert isinstance(self.depth, int)
        return kept_in_order(self.schedule, self.depth, self._ordered, self.chunks)

    @property
    def _ordered(self) -> int:
        """The micro-batches whose order is looked at: many, where their number is open."""
        assert isinstance(self.depth, int)
        return self.fixed or MANY * self.depth

    def _bounded(self, counts: tuple[int, int]) -> tuple[Amount, Amount]:
        """No run keeps more micro-batches than there are, and a step has one at least."""
        kept, late = (n if self.fixed or n < 2 else _least(n, self.batches) for n in counts)
        return kept, late

    def _share(self, form: sympy.Expr, put: Mapping[str, Amount]) -> Iterator[Amount]:
        """How often a form of a peak has M_B, and M_W. Activations of so many runs of layers, in those of all that a device has of one
        copy: those of one of v runs count as one v-th."""
        for kept, late in ((1, 0), (0, 1)):
            yield _counted(form, (*put.items(), ("M_B", kept), ("M_W", late)), self.depth) * self.copies / self.chunks

    def _device(self, stage: Stage) -> Amount:
        """Its number. Of the devices between the ends, the one that keeps most stands for all."""
        if stage.index is not None:
            return stage.index
        assert self.depth is not None
        if stage.last or stage.end:
            return self.depth - 1
        return self.depth - 2 if self.schedule.layout is StageLayout.VEE else 1

    def hops(self, stage: Stage) -> tuple[Amount, Amount]:
        """How often a device hands a micro-batch on to another one, and its gradient back."""
        import sympy

        first, end = stage.index == 0, stage.last or stage.end
        if self.depth in (None, 1):
            return 0, 0
        if self.schedule.layout is StageLayout.LOOP:
            return self.chunks - end, self.chunks - first
        each = sympy.Rational(self.chunks, self.copies)
        return (each / 2, each / 2) if first or end else (each, each)


@lru_cache(maxsize=4096)
def _least(n: int, batches: Amount) -> sympy.Expr:
    import sympy

    return sympy.Min(n, batches)


@lru_cache(maxsize=4096)
def _counted(form: sympy.Expr, put: tuple[tuple[str, Amount], ...], depth: Amount | None) -> sympy.Expr:
    """A form with these values, where there are one micro-batch and one device at least."""
    import sympy

    counted = form.xreplace({sympy.Symbol(n): sympy.sympify(v) for n, v in put})
    if depth is None:
        return counted
    return counted.xreplace({sympy.Min(1, symbol("m")): sympy.Integer(1), sympy.Min(0, depth - 1): sympy.Integer(0)})


def _greatest(form: sympy.Expr) -> tuple[sympy.Expr, ...]:
    """What a form is the maximum of: each is linear in M_B and M_W."""
    import sympy

    return form.args if isinstance(form, sympy.Max) else (form,)


def _together(device: int, own: Mapping[int, Stage], copies: int, end: bool) -> Stage:
    """The stages of one device as one, each counted as one of so many copies."""
    import sympy

    counts: dict[str, tuple[DeviceSegment, Amount]] = {}
    for part, times in (pair for stage in own.values() for pair in stage.held):
        _, before = counts.get(part.name, (part, 0))
        counts[part.name] = (part, before + times)
    members = tuple((part, n if copies == 1 else sympy.sympify(n) / copies) for part, n in counts.values())
    first, last = any(s.first for s in own.values()), any(s.last for s in own.values())
    replays = tuple(r for stage in own.values() for r in stage.replays)
    return Stage(
        name=f"stage {device}", index=device, held=members, first=first, last=last, end=end, copies=copies, runs=own, replays=replays
    )
