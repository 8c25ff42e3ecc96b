"""Schedules that give a device several runs of layers: what each device has then, what it keeps, and how often it hands something on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.core.symbols import symbol
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.parts import Part
from placeproof.cost.model.stages import Stage, stages
from placeproof.programs import For
from placeproof.schedules import Layout, Schedule, formula, load
from placeproof.semantics.linked import Linked

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, kw_only=True)
class Flow:
    """How micro-batches flow through a pipeline of ``depth`` devices; None without one. ``batches``: micro-batches of a step."""

    linked: Linked
    depth: Amount | None

    @cached_property
    def schedule(self) -> Schedule:
        """The order of micro-batches; 1F1B where there is no pipeline."""
        return load(self.linked.schedule)

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.schedule.name

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
        said = self.linked.step.count("microbatches")
        return None if said is None else said * self.copies

    def stages(self, parts: Sequence[Part], times: Mapping[str, Amount], layers: Sequence[int] | None) -> tuple[Stage, ...]:
        """What each device has: several stages of the model, where the schedule gives it several.

        ``layers``: those of each stage of the model. Raises InputError as :func:`placeproof.cost.model.stages.stages`.
        """
        layout = self.schedule.layout
        if self.depth is None or self.depth == 1 or (layout is Layout.LOOP and self.chunks == 1):
            return stages(parts, times, self.depth, layers)
        if isinstance(self.depth, int):
            found = stages(parts, times, self.schedule.depth(self.depth, self.chunks), layers)
            devices = self.schedule.stages(self.depth, self.chunks)
            return tuple(_together(d, [found[i] for i in own], self.copies, d == self.depth - 1) for d, own in enumerate(devices))
        three = stages(parts, times, self.depth, layers)
        if layout is Layout.LOOP:
            return three
        first, between, last = three
        ends = replace(_together(0, [first, last], 2, end=False), name=first.name)
        if layout is Layout.BOTH:
            return ends, replace(between, copies=2), replace(ends, name=last.name, index=None, end=True)
        repeated = {part.name for part, _ in between.held}
        held = tuple((p, n if p.name in repeated else times[p.name]) for p, n in ends.held)
        return replace(ends, held=held, copies=1), between, replace(between, name=last.name, end=True)

    def in_flight(self, stage: Stage) -> tuple[Amount, Amount]:
        """Micro-batches of which a device keeps the activations of all that it has, and those of which it keeps only what gradients by
        weights need. Those of one of v runs of layers count as one v-th."""
        import sympy

        if self.depth is None:
            return 1, 0
        form = formula(self.schedule, "peak")
        assert form is not None
        put = {"p": self.depth, "m": self.batches, "v": self.chunks, "d": self._device(stage)}

        def at(kept: int, late: int) -> sympy.Expr:
            values = {**put, "M_B": kept, "M_W": late}
            return self._share(form.xreplace({sympy.Symbol(n): sympy.sympify(v) for n, v in values.items()}))

        return at(1, 0), at(0, 1) if form.has(sympy.Symbol("M_W")) else 0

    def _share(self, chunks: sympy.Expr) -> sympy.Expr:
        """Activations of so many runs of layers, in those of all that a device has of one copy."""
        return chunks * self.copies / self.chunks

    def _device(self, stage: Stage) -> Amount:
        """Its number. Of the devices between the ends, the one that keeps most stands for all."""
        if stage.index is not None:
            return stage.index
        assert self.depth is not None
        if stage.last or stage.end:
            return self.depth - 1
        return self.depth - 2 if self.schedule.layout is Layout.VEE else 1

    def hops(self, stage: Stage) -> tuple[Amount, Amount]:
        """How often a device hands a micro-batch on to another one, and its gradient back."""
        import sympy

        first, end = stage.index == 0, stage.last or stage.end
        if self.depth in (None, 1):
            return 0, 0
        if self.schedule.layout is Layout.LOOP:
            return self.chunks - end, self.chunks - first
        each = sympy.Rational(self.chunks, self.copies)
        return (each / 2, each / 2) if first or end else (each, each)


def _together(device: int, own: Sequence[Stage], copies: int, end: bool) -> Stage:
    """The stages of one device as one, each counted as one of so many copies."""
    import sympy

    counts: dict[str, tuple[Part, Amount]] = {}
    for part, times in (pair for stage in own for pair in stage.held):
        _, before = counts.get(part.name, (part, 0))
        counts[part.name] = (part, before + times)
    held = tuple((part, n if copies == 1 else sympy.sympify(n) / copies) for part, n in counts.values())
    first, last = any(s.first for s in own), any(s.last for s in own)
    return Stage(name=f"stage {device}", index=device, held=held, first=first, last=last, end=end, copies=copies)
