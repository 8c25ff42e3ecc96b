"""A cluster whose constants are fitted to measured steps, and how good it is on those that were not used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

from placeproof.answers.accuracy import step_prediction
from placeproof.answers.answer import Answer
from placeproof.answers.runs import Derivations, DerivedRun
from placeproof.clusters import Cluster
from placeproof.clusters import find as find_cluster
from placeproof.clusters.constants import bounds, require_constants, unsaid, value, with_values
from placeproof.clusters.writing import text as cluster_text
from placeproof.core import files
from placeproof.core.diagnostics import InputError, Problems, refuse
from placeproof.cost.accuracy import Prediction
from placeproof.cost.calibration import Calibrated, FittedConstant
from placeproof.cost.fit import fitted
from placeproof.cost.model.time import DEFAULT_OVERLAP
from placeproof.implementations import find as find_implementation
from placeproof.report import calibration as documents
from placeproof.runs import MeasuredRun, PlanRow, RunAs, named, read_plans

if TYPE_CHECKING:
    from placeproof.report.document import Document

#: The constant that is fitted where none is named: with more of them, rows that were not used are further off.
DEFAULT = ("products",)
#: Which steps are not used, by name.
HALVES = {"half": "every second plan", "groups": "every second group of plans of one model, number of devices and global batch"}
_ROWS = re.compile(r"[1-9][0-9]{0,5}(?:-[1-9][0-9]{0,5})?(?:,[1-9][0-9]{0,5}(?:-[1-9][0-9]{0,5})?)*")


@dataclass(frozen=True, repr=False, kw_only=True)
class Calibration(Calibrated, Answer):
    """A cluster whose constants were fitted to measured steps, as :class:`placeproof.cost.calibration.Calibrated` has it."""

    @property
    def document(self) -> Document:
        """What it says."""
        return documents.document(self)

    @property
    def text(self) -> str:
        """The file of the calibrated cluster."""
        return cluster_text(self.calibrated)

    def write(self, path: str | Path) -> None:
        """Write that file. Raises InputError where that cannot be done."""
        files.write_text(files.expanded(path), self.text)


def calibrate(cluster: str | Cluster, steps: str | Path, constants: Sequence[str] | None = None, held_out: str = "half") -> Calibration:
    """Fit constants of a cluster to measured steps that are not held out: to the least mean square of the logarithm of predicted over
    measured time.

    ``steps``: a table of steps, whose name ends in .csv, or a set of measured runs. ``constants``: their names, and what the cluster does
    not say besides; products of matrices alone where none are given. ``held_out``: one of :data:`HALVES`, or numbers of steps from 1,
    ``2,5-8``. Raises InputError with all that is wrong with the table, for constants that there are not or that no step depends on, and
    where too few steps are left.
    """
    on, asked = find_cluster(cluster) if isinstance(cluster, str) else cluster, DEFAULT if constants is None else constants
    require_constants(on, asked)
    problems = Problems()
    each, before, number_format = _timed(_steps(str(steps), on, problems), on, problems)
    names = tuple(dict.fromkeys([*asked, *unsaid(on, number_format)]))
    held, how = _held_out(held_out, before)
    used = [one for number, one in enumerate(each, 1) if number not in held]
    if len(used) <= len(names) or not held:
        message = f"{len(used)} of {len(each)} steps are left to fit {len(names)} constant{'s' if len(names) > 1 else ''} to"
        refuse("PP104", message, help="more steps than constants are fitted to, and others are held out: give more steps, or other numbers")
    made = _fit(used, on, names, number_format)
    values = {one.name: one.fitted for one in made}
    after = tuple(step_prediction(one, with_values(on, values, number_format)) for one in each)
    result = Calibration(cluster=on, calibrated=on, source=str(steps), constants=made, held_out=held, how=how, before=before, after=after)
    called = replace(on, name=f"{on.name}-calibrated", title=f"{on.title}, calibrated")
    return replace(result, calibrated=with_values(called, values, number_format, documents.origin(result)))


def _steps(text: str, on: Cluster, problems: Problems) -> list[tuple[MeasuredRun, PlanRow | None]]:
    """The steps of a table or of a set, one by one, each with its row, where it has one; of a set that names clusters those on this one."""
    if text.endswith(".csv"):
        found = list(read_plans(text, RunAs(overlap=DEFAULT_OVERLAP), problems=problems))
        for run, row in found:
            if run.run_as.cluster:
                help = "leave the column out: these are steps of the cluster that is calibrated"
                problems.add("PP112", f"`{run.run_as.cluster}` is in a column of the table", place=row.place("cluster"), help=help)
        return [*found]
    runs = [run for run in named(text).runs if run.run_as.cluster in ("", on.name)]
    steps: list[tuple[MeasuredRun, PlanRow | None]] = [(replace(run, steps={m: s}), None) for run in runs for m, s in run.steps.items()]
    if not steps:
        help = "a table of steps ends in .csv; `placeproof list runs` has sets"
        refuse("PP104", f"no step of `{text}` was measured on {on.name}", help=help)
    return steps


def _timed(
    steps: Sequence[tuple[MeasuredRun, PlanRow | None]], on: Cluster, problems: Problems
) -> tuple[list[DerivedRun], tuple[Prediction, ...], str]:
    """Each step derived, and timed on a cluster as it is; and the number format of products. Raises InputError with every bad row, and
    with the problems that there were before."""
    derive, formats = Derivations(), set()
    each, before = [], []
    for run, row in steps:
        try:
            run_by = run.run_as.implementation
            one = derive(run, find_implementation(run_by).on(on.device.architecture) if run_by else None)
            before.append(step_prediction(one, on))
            formats |= {"fp8" if one.d.at.fp8 else one.step(m, on).format for m in run.steps}
            each.append(one)
        except InputError as error:
            for problem in error.diagnostics:
                own = problem if row is None else row.placed(problem)
                problems.add(own.code, own.message, place=own.place, help=own.help, notes=own.notes)
    problems.raise_if_any()
    if len(formats) > 1:
        listed = " and ".join(sorted(formats))
        refuse("PP104", f"products of matrices are in {listed} in these steps", help="calibrate with the steps of each by themselves")
    return each, tuple(before), formats.pop()


def _held_out(text: str, steps: Sequence[Prediction]) -> tuple[tuple[int, ...], str]:
    """Numbers of the steps that are not used, and how they were chosen."""
    if text in HALVES:
        key = _plan if text == "half" else _group
        places = {plan: place for place, plan in enumerate(dict.fromkeys(map(key, steps)))}
        return tuple(n for n, one in enumerate(steps, 1) if places[key(one)] % 2), HALVES[text]
    if not _ROWS.fullmatch(text):
        refuse("PP104", f"`--held-out {text}` names no steps", help=f"{', '.join(HALVES)}, or numbers of steps from 1: 2,5-8")
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen |= {*range(int(first), min(int(last or first), len(steps) + 1) + 1)}
        if int(last or first) > len(steps) or int(last or first) < int(first):
            help = "they are counted from 1, and the first of several comes first"
            refuse("PP104", f"`--held-out {text}` names steps that there are not: there are {len(steps)}", help=help)
    return tuple(sorted(chosen)), "as they were named"


def _plan(one: Prediction) -> tuple[object, ...]:
    """What was run: who measured it twice is not to fit to one and to be held against the other."""
    return one.run.strategy, tuple(sorted(one.run.settings)), one.run.run_as, tuple(one.run.steps)


def _group(one: Prediction) -> tuple[object, ...]:
    return one.alike(next(iter(one.run.steps)))


def _fit(used: Sequence[DerivedRun], on: Cluster, names: Sequence[str], number_format: str) -> tuple[FittedConstant, ...]:
    """Constants with the least mean square of the logarithm of predicted over measured time, which has no corners, and for which half and
    twice are as wrong. Raises InputError where no step depends on one of them."""
    start = {name: value(on, name, number_format) for name in names}
    ranges = {name: bounds(on, name, number_format) for name in names}
    took = [float(seconds) for one in used for seconds in one.run.steps.values()]

    def times(values: Mapping[str, Fraction]) -> list[float]:
        cluster = with_values(on, values, number_format)
        return [float(one.step(m, cluster).seconds) for one in used for m in one.run.steps]

    def short(values: Mapping[str, float]) -> dict[str, Fraction]:
        """With four digits, within their bounds."""
        return {name: min(max(Fraction(f"{n:.3e}"), ranges[name][0]), ranges[name][1]) for name, n in values.items()}

    def loss(values: Mapping[str, float]) -> float:
        return sum(log(a / b) ** 2 for a, b in zip(times(short(values)), took, strict=True)) / len(took)

    problems = Problems()
    for name, ends in ranges.items():
        if times({**start, name: ends[0]}) == times({**start, name: ends[1]}):
            problems.add("PP104", f"none of these steps depends on `{name}`", help="leave it out of `--constants`")
    problems.raise_if_any()
    limits = {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
    best = short(fitted(loss, {name: float(begin) for name, begin in start.items()}, limits))
    missing = unsaid(on, number_format)
    return tuple(
        FittedConstant(name=name, before=None if name in missing else start[name], fitted=best[name], edge=best[name] in ranges[name])
        for name in names
    )
