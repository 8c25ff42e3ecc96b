"""What is derived for a measured run, beside it; and how well predicted times rank plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import correlation, median

from placeproof.cost.model.process import ProcessMemory
from placeproof.runs import MeasuredRun, RunAs

#: Plans that are ranked, at least: fewer are a matter of luck.
FEWEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is derived for a measured run: the most bytes of tensors of a device of its fullest ``stage``, with the ``moment`` of it, what a
    driver usually shows of the ``process``, and seconds of ``steps`` by their number of micro-batches. None, or nothing, where nobody says
    how it was run, or what is asked for.

    ``devices``: all of them; ``samples``, ``tokens``: of one micro-batch on all of them. ``room``: what memory a device needs, where it is
    asked whether it has it.
    """

    run: MeasuredRun
    tensors: Fraction | None = None
    process: Fraction | None = None
    steps: Mapping[int, Fraction] = field(default_factory=dict)
    stage: str = ""
    moment: str = ""
    devices: int = 0
    samples: int = 0
    tokens: int = 0
    room: ProcessMemory | None = None

    @property
    def rates(self) -> dict[int, tuple[Fraction, Fraction]]:
        """Tokens a second and device, measured and derived, by the number of micro-batches."""
        each = {m: Fraction(self.tokens * m, self.devices) for m in self.steps}
        return {m: (n / self.run.steps[m], n / self.steps[m]) for m, n in each.items()}

    @property
    def step_errors(self) -> dict[int, Fraction]:
        """Of steps, as shares of what was measured, by the number of micro-batches."""
        return {m: seconds / self.run.steps[m] - 1 for m, seconds in self.steps.items()}

    def alike(self, m: int) -> tuple[RunAs, tuple[str, ...], int, int]:
        """What plans have in common that are ranked: how they are run, the model's sizes, devices, and samples of a step."""
        sizes = tuple(sorted(text for text in self.run.settings if text.partition("=")[0] not in ("b", "m") and not text.startswith("N")))
        return self.run.run_as, sizes, self.devices, self.samples * m

    @property
    def process_error(self) -> Fraction | None:
        """Of what a driver shows, as a share of what was measured."""
        return None if self.run.process is None or self.process is None else self.process / self.run.process - 1

    @property
    def error(self) -> Fraction | None:
        """Of tensors, as a share of what was measured."""
        return None if self.run.tensors is None or self.tensors is None else self.tensors / self.run.tensors - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Steps of one model on as many devices with as large a global batch, which differ in the plan alone.

    ``settings``: what is set alike; ``samples``: of a step; ``measured``, ``derived``: seconds, in the same order.
    """

    model: str
    settings: tuple[str, ...]
    devices: int
    samples: int
    measured: tuple[Fraction, ...]
    derived: tuple[Fraction, ...]

    @property
    def rank_correlation(self) -> float:
        """Spearman's; 0 where all are predicted, or were measured, to take equally long."""
        return _rank_correlation(self.measured, self.derived)

    @property
    def regret(self) -> Fraction:
        """What the plan that is predicted to be the fastest took beyond the fastest one, as a share; of several such plans the slowest."""
        best = min(self.derived)
        picked = max(took for took, said in zip(self.measured, self.derived, strict=True) if said == best)
        return picked / min(self.measured) - 1

    @property
    def error(self) -> Fraction:
        """The mean of errors, whatever their sign."""
        errors = [abs(said / took - 1) for took, said in zip(self.measured, self.derived, strict=True)]
        return sum(errors, Fraction(0)) / len(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Tokens a second and device of the steps of a model, or of all, on several kinds of devices: ``measured`` and ``derived``, in the same
    order."""

    model: str
    measured: tuple[Fraction, ...]
    derived: tuple[Fraction, ...]

    @property
    def rank_correlation(self) -> float:
        """As :attr:`Plans.rank_correlation`."""
        return _rank_correlation(self.measured, self.derived)

    @property
    def error(self) -> Fraction:
        """The median of their errors, whatever the sign, as a share of what was measured."""
        return median(abs(said / took - 1) for took, said in zip(self.measured, self.derived, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccuracy:
    """How good times are. ``error``, ``bias``, ``worst``: the mean of errors, whatever their sign and with it, and the largest, as shares;
    ``plans``: groups of at least :data:`FEWEST`, which are ranked. ``rates``: where steps are
    of several kinds of devices, those of each model, and of all, which has no name."""

    steps: int
    error: Fraction
    bias: Fraction
    worst: Fraction
    plans: tuple[Plans, ...]
    rates: tuple[Rates, ...] = ()

    @property
    def rank_correlations(self) -> tuple[float, float, float] | None:
        """The mean, the median and the least over groups of plans; None where there are none."""
        each = [one.rank_correlation for one in self.plans]
        return (sum(each) / len(each), median(each), min(each)) if each else None

    @property
    def regrets(self) -> tuple[Fraction, Fraction, Fraction] | None:
        """The mean, the median and the most over groups of plans; None where there are none."""
        each = [one.regret for one in self.plans]
        return (sum(each, Fraction(0)) / len(each), median(each), max(each)) if each else None


def step_accuracy(predictions: Sequence[Prediction]) -> StepAccuracy | None:
    """How good the times among some predictions are; None where there are none."""
    errors = [error for one in predictions for error in one.step_errors.values()]
    if not errors:
        return None
    sizes = [abs(error) for error in errors]
    return StepAccuracy(
        steps=len(errors),
        error=sum(sizes, Fraction(0)) / len(sizes),
        bias=sum(errors, Fraction(0)) / len(errors),
        worst=max(sizes),
        plans=tuple(_grouped(predictions)),
        rates=tuple(_rates(predictions)),
    )


def _grouped(predictions: Iterable[Prediction]) -> Iterable[Plans]:
    groups: dict[tuple[RunAs, tuple[str, ...], int, int], list[tuple[Fraction, Fraction]]] = {}
    plans: dict[tuple[RunAs, tuple[str, ...], int, int], set[tuple[str, tuple[str, ...]]]] = {}
    for one in predictions:
        for m, seconds in one.steps.items():
            groups.setdefault(one.alike(m), []).append((one.run.steps[m], seconds))
            plans.setdefault(one.alike(m), set()).add((one.run.strategy, one.run.settings))
    for (run_as, settings, devices, samples), rows in sorted(groups.items(), key=lambda item: (str(item[0][0]), *item[0][1:])):
        if len(plans[run_as, settings, devices, samples]) < FEWEST:
            continue
        measured, derived = zip(*rows, strict=True)
        yield Plans(model=run_as.model, settings=settings, devices=devices, samples=samples, measured=measured, derived=derived)


def _rates(predictions: Sequence[Prediction]) -> Iterable[Rates]:
    """Of each model that was run on several kinds of devices, and of all."""
    timed = [one for one in predictions if one.steps]
    models = dict.fromkeys(one.run.run_as.model for one in timed)
    for names in (*([name] for name in models), [*models]):
        own = [one for one in timed if one.run.run_as.model in names]
        if len({one.run.run_as.cluster for one in own}) > 1 and (names != [*models] or len(models) > 1):
            measured, derived = zip(*(pair for one in own for pair in one.rates.values()), strict=True)
            yield Rates(model=names[0] if len(names) == 1 else "", measured=measured, derived=derived)


def _rank_correlation(measured: Sequence[Fraction], derived: Sequence[Fraction]) -> float:
    ranks = _ranks(measured), _ranks(derived)
    return correlation(*ranks) if all(len({*own}) > 1 for own in ranks) else 0.0


def _ranks(values: Sequence[Fraction]) -> list[float]:
    """Places in order; equal ones share the mean of theirs."""
    return [(sum(v < value for v in values) + sum(v <= value for v in values)) / 2 for value in values]
