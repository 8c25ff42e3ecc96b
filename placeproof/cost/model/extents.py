"""Which layers of a run are computed again, and from whose input: a run's layers by what each of them keeps, and what backward has of
those that it computes again at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from placeproof.core.diagnostics import refuse
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.recomputation import Extent
from placeproof.models import turns

#: Parts of a model, each with how often it is repeated.
Members: TypeAlias = tuple[tuple[DeviceSegment, Amount], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What backward computes again at once (``members``), when it is through with the layers of the run behind them (``freed``)."""

    members: Members
    freed: Members = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The layers of one run, or of several that are alike, by what they keep; and what backward computes again at once."""

    held: Members
    replays: tuple[Replay, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The kinds of layers that a model has, and of which of a run's layers recomputation is. ``extent`` None: of all alike."""

    kinds: Sequence[DeviceSegment]
    extent: Extent | None = None

    @cached_property
    def _again(self) -> dict[str, DeviceSegment]:
        """Those that keep their input alone, by kind."""
        return {p.name: replace(p, name=f"{p.name} (recomputed)") for p in self.kinds}

    @cached_property
    def _inner(self) -> dict[str, DeviceSegment]:
        """Those whose input is computed again, too."""
        return {p.name: replace(p, name=f"{p.name} (recomputed, input too)", inner=True) for p in self.kinds}

    @cached_property
    def _whole(self) -> dict[str, DeviceSegment]:
        """Those that keep all."""
        return {p.name: replace(p, layer=p.plain, drawn=()) for p in self.kinds}

    def of(self, names: Sequence[str], stage: int = 0) -> Run:
        """A run of these layers, in their order: that of a stage of the model."""
        if self.extent is None:
            return Run(held=tuple((p, names.count(p.name)) for p in self.kinds if p.name in names))
        extent = self.extent.of_stage(stage)
        number = extent.layers
        if extent.grouped:
            groups = [names[i : i + number] for i in range(0, len(names), number)]
            every = [[self._again[group[0]], *(self._inner[name] for name in group[1:])] for group in groups]
            behind: list[DeviceSegment] = []
        else:
            every = [[self._again[name]] for name in names[:number]]
            behind = [self._whole[name] for name in names[number:]]
        replays: dict[tuple[str, ...], Replay] = {}  # of groups that are alike, the last one comes when least is freed
        for group in reversed(every):
            replays.setdefault(tuple(p.name for p in group), Replay(members=self._counts(group), freed=self._counts(behind)))
            behind = [*group, *behind]
        return Run(held=self._counts(behind), replays=tuple(replays.values()))

    def alike(self, number: Amount, runs: Amount) -> Run:
        """So many runs, which have so many layers together, all of one kind; both may be open.

        Where layers that share an input do not divide those of a run, what is computed again at once is counted beside all inputs: at most
        one of them is gone by then.
        """
        import sympy

        (kind,) = self.kinds
        if self.extent is None:
            return Run(held=((kind, number),))
        again, inner, whole = (variants[kind.name] for variants in (self._again, self._inner, self._whole))
        each = sympy.sympify(number) / runs
        most = sympy.Min(self.extent.layers, each)
        if self.extent.grouped:
            firsts = runs * sympy.ceiling(each / self.extent.layers)
            return Run(held=((again, firsts), (inner, number - firsts)), replays=(Replay(members=((again, 1), (inner, most - 1))),))
        replay = Replay(members=((again, 1),), freed=((whole, each - most),))
        return Run(held=((again, runs * most), (whole, number - runs * most)), replays=(replay,))

    def all(self, times: Mapping[str, Amount]) -> Run:
        """That of a device that has all of them. Raises InputError where layers differ, and it is open how many there are."""
        if self.extent is None or not self.kinds:
            return Run(held=tuple((p, times[p.name]) for p in self.kinds))
        counts = {p.name: n for p in self.kinds if isinstance(n := times[p.name], int)}
        if len(counts) == len(self.kinds):
            return self.of(self.in_order(counts))
        if len(self.kinds) > 1:
            message = "layers differ, and their number is open, so that it is not known which of them are computed again"
            refuse("PP203", message, "give it: `--set L=32`")
        return self.alike(times[self.kinds[0].name], 1)

    def in_order(self, counts: Mapping[str, int]) -> list[str]:
        """The layers of the model, one after the other."""
        return [p.name for turn in turns(self.kinds) for _ in range(counts[turn[0].name]) for p in turn]

    def _counts(self, layers: Sequence[DeviceSegment]) -> Members:
        names = [p.name for p in layers]
        variants = (v[p.name] for p in self.kinds for v in (self._again, self._inner, self._whole))
        return tuple((v, names.count(v.name)) for v in variants if v.name in names)
