"""What measured runs are derived as: each run's derivation, and its steps on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from placeproof.answers import subject as subjects
from placeproof.answers.models import Clock, ModelRun, derived, sized, timed
from placeproof.answers.numbers import Settings, degrees
from placeproof.core.mesh import Axis, degree_symbol
from placeproof.cost.model.rates import measured

if TYPE_CHECKING:
    from collections.abc import Collection

    from placeproof.clusters import Cluster
    from placeproof.core.strategy import Strategy
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.model.time import StepTime
    from placeproof.cost.values import Numbers
    from placeproof.implementations import BlockImplementation
    from placeproof.runs import MeasuredRun


@dataclass(frozen=True, kw_only=True)
class DerivedRun:
    """A measured run and its derivation. ``numbers``: of what is no size of the model."""

    run: MeasuredRun
    strategy: Strategy
    d: ModelDerivation
    numbers: Numbers
    _steps: dict[tuple[int, bool], tuple[Cluster, StepTime]] = field(default_factory=dict, repr=False)

    def step(self, m: int, cluster: Cluster, without: Collection[str] = ()) -> StepTime:
        """A step of so many micro-batches, without some terms of its time. What does not depend on the cluster's figures is worked out
        once. Raises InputError as :func:`placeproof.answers.models.timed` does."""
        key = m, measured(cluster, self.numbers.values, fp8=self.d.at.fp8) is not None  # elsewhere time is not counted by kernels
        if key not in self._steps:
            numbers = replace(self.numbers, values={**self.numbers.values, "m": Fraction(m)})
            _, step = timed(self.d, numbers, Clock(cluster=cluster, overlap=self.run.run_as.overlap))  # type: ignore[arg-type]
            assert step is not None
            self._steps[key] = cluster, step
        known, step = self._steps[key]
        return step.again(cluster, without) if without or known != cluster else step

    @property
    def devices(self) -> int:
        """All of the mesh."""
        return prod(self._degree(axis) for axis in self.strategy.axes)

    @property
    def samples(self) -> int:
        """Of one micro-batch on all devices."""
        return int(self.numbers.values["b"]) * prod(self._degree(axis) for axis in self.strategy.axes if axis.splits.batch)

    @property
    def tokens(self) -> int:
        """Of one micro-batch on all devices."""
        return self.samples * int(self.d.linked.values["s"])

    def _degree(self, axis: Axis) -> int:
        return axis.degree or int(self.numbers.values[degree_symbol(axis.name, only=len(self.strategy.axes) == 1)])


@dataclass(frozen=True, kw_only=True)
class Derivations:
    """Derives measured runs. Degrees that no stages depend on are left open, so that plans of one shape share a derivation."""

    _known: dict[tuple[object, ...], ModelDerivation] = field(default_factory=dict, repr=False)

    def __call__(self, run: MeasuredRun, run_by: BlockImplementation | None = None) -> DerivedRun:
        """The derivation of a run, with the implementation that runs its blocks. Raises InputError where there is none."""
        strategy = subjects.strategy(subjects.read(run.strategy))
        given = degrees(strategy.axes, strategy.schedule.microbatches)
        numbers = Settings(given=run.settings, precision=run.run_as.precision or None).numbers(degrees=given)
        shape, told = _shape(strategy)
        numbers = replace(numbers, values={**numbers.values, **told})
        model, rest = sized(subjects.model(run.run_as.model), shape, None, numbers)
        known = tuple(rest.values.items()) if run_by is not None and run_by.modules else ()
        key = (shape, replace(run.run_as, cluster=""), run.stages, run_by, tuple(model.sizes.items()), known)
        if key not in self._known:
            how = ModelRun(run_by=run_by, recompute=run.run_as.recompute or None, layers=run.stages or None, fp8=bool(run.run_as.fp8))
            self._known[key], _ = derived(model, shape, how, rest)
        return DerivedRun(run=run, strategy=strategy, d=self._known[key], numbers=rest)


def _shape(strategy: Strategy) -> tuple[Strategy, dict[str, Fraction]]:
    """The strategy with degrees left open, and the degrees."""
    told = {
        degree_symbol(a.name, only=len(strategy.axes) == 1): Fraction(a.degree)
        for a in strategy.axes
        if a.degree is not None and a.inner is None and (a.splits.batch or a.splits.matrices)
    }
    axes = tuple(replace(a, degree=None) if degree_symbol(a.name, only=len(strategy.axes) == 1) in told else a for a in strategy.axes)
    return replace(strategy, axes=axes), told
