"""Measured runs beside what is derived for them as a document: the schema ``placeproof.accuracy/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from placeproof.cost.accuracy import FEWEST, Prediction, StepAccuracy, step_accuracy
from placeproof.cost.model.terms import TERMS
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.models.fit import FITS
from placeproof.report.units import seconds_text
from placeproof.runs import UNITS, RunSet

SCHEMA = "placeproof.accuracy/1"


#: Rows that are shown without being asked for, at most.
MOST_ROWS = 100


def document(of: RunSet, predictions: Sequence[Prediction], without: Sequence[str], *, rows: bool = False) -> Document:
    """Every run, also those that are far off. ``without``: what was left out, of the implementation or of a step's time; ``rows``: all of
    them, however many there are."""
    return Document(
        name=of.name, sections=lambda: _sections(of, predictions, without, rows=rows), data=lambda: _data(of, predictions, without)
    )


def terms_document(of: RunSet, accuracies: Mapping[str, StepAccuracy]) -> Document:
    """How good times are without each term. ``accuracies``: by the name of what was left out, "" for nothing."""
    return Document(name=of.name, sections=lambda: _terms_sections(of, accuracies), data=lambda: _terms_data(of, accuracies))


def _heading(of: RunSet, told: Sequence[str], without: Sequence[str] = ()) -> Section:
    """The answer; ``told``: how good what is derived is."""
    left = f", without {', '.join(without)}" if without else ""
    how = f", as {of.implementation} runs them{left}" if of.implementation else left
    brief = f"{of.name}{left}: {'; '.join(told)}"
    return section(f"{of.name}: {of.title}{how}", Lines([*told, f"source: {of.source}"]), detail="answer", brief=brief)


def _told(predictions: Sequence[Prediction]) -> Iterator[str]:
    """How far memory and times are off."""
    for what, errors in (
        ("memory of a process", [one.process_error for one in predictions]),
        ("memory of tensors", [one.error for one in predictions]),
    ):
        if sizes := [abs(e) for e in errors if e is not None]:
            yield f"{what}: {_off(sum(sizes, Fraction(0)) / len(sizes), max(sizes))}"
    if (found := step_accuracy(predictions)) is not None:
        yield f"times of {found.steps} step{'' if found.steps == 1 else 's'}: {_off(found.error, found.worst)}"


def _off(mean: Fraction, most: Fraction) -> str:
    return f"{share(mean)} off on average, {share(most)} at most"


def _sections(of: RunSet, predictions: Sequence[Prediction], without: Sequence[str], *, rows: bool) -> Iterator[Section]:
    yield _heading(of, [*_told(predictions)], without)
    settings = own_settings(predictions)
    if any(one.run.tensors is not None or one.run.process is not None for one in predictions):
        yield _memory(of, predictions, settings)
    yield from _steps(of, predictions, settings, rows=rows or len(predictions) <= MOST_ROWS)
    moments = dict.fromkeys(one.moment for one in predictions if one.moment)
    yield from [section("where that is", Lines(list(moments)))] if moments else []


def _memory(of: RunSet, predictions: Sequence[Prediction], settings: Mapping[str, Sequence[str]]) -> Section:
    process = any(one.run.process is not None for one in predictions)
    of_what = "process" if process else "tensors"
    more = [beyond for one in predictions if (beyond := _more(one)) is not None]
    rows = [
        (
            one.run.strategy or one.run.name,
            *(values[number] for values in settings.values()),
            _amount(getattr(one.run, of_what), of),
            _amount(getattr(one, of_what), of),
            share(one.process_error if process else one.error),
            *([share(_more(one))] if more else []),
        )
        for number, one in enumerate(predictions)
    ]
    head = ("strategy", *settings, "measured", "derived", "error", *(["reserved"] if more else []))
    notes = [f"{of.unit}: {_MEASURE[of_what]}"]
    if errors := [abs(e) for one in predictions if (e := one.process_error if process else one.error) is not None]:
        notes.append(_errors(sum(errors, Fraction(0)) / len(errors), max(errors)))
    if more:
        notes.append(f"reserved, what the allocator had beyond the measured tensors: from {share(min(more))} to {share(max(more))}")
    title = "what a driver shows at most" if process else "the most that tensors take"
    return section(title, Table(rows, head, range(1, len(head))), Notes(notes))


#: What rows are about -> what their numbers are.
_MEASURE = {
    "tensors": "tensors of a device of the fullest stage",
    "process": "all of the fullest stage; derived: tensors, the median of what allocators reserved, a context, communicators",
}


def _steps(of: RunSet, predictions: Sequence[Prediction], settings: Mapping[str, Sequence[str]], *, rows: bool) -> Iterator[Section]:
    """Steps by their number of micro-batches, where they were measured; and plans that differ in nothing else, as they are ranked."""
    found = step_accuracy(predictions)
    if found is None:
        return
    judged = [one.room for one in predictions if one.room is not None]
    notes = [f"{_where(of, predictions)}; m: micro-batches of a step"] if rows else [f"{found.steps} steps; `--rows` shows them"]
    notes.append(_errors(found.error, found.worst))
    if judged:
        counts = ", ".join(f"{sum(room.fits is fits for room in judged)} {words}" for fits, words in FITS.items())
        notes.append(f"memory, as all of them ran: {counts}")
    if of.unsaid:
        left = ", ".join(f"{what}: {number}" for what, number in of.unsaid.items())
        notes.append(f"{sum(of.unsaid.values())} more were published that cannot be said: {left}")
    head = (*STEPS[:1], *settings, *STEPS[1:], *(["memory"] if judged else []))
    table = Table(list(step_rows(predictions, settings)), head, range(1, len(settings) + len(STEPS)))
    yield section("how long a step takes", *([table] if rows else []), Notes(notes))
    yield from ranked_plans(found)
    yield from _ranked_rates(found)


def _where(of: RunSet, predictions: Sequence[Prediction]) -> str:
    """On what steps are timed, and what is hidden there."""
    overlaps = dict.fromkeys(one.run.run_as.overlap for one in predictions if one.steps)
    hidden = " or ".join("nothing overlapped" if name == "none" else f"overlap {name}" for name in overlaps)
    return f"on {of.cluster}, {hidden}" if of.cluster else hidden


#: Columns of a table of steps; what is set stands behind the first.
STEPS = ("strategy", "m", "measured", "derived", "error")


def step_rows(predictions: Sequence[Prediction], settings: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The rows of a table of steps."""
    for number, one in enumerate(predictions):
        for m, seconds in one.steps.items():
            own = (values[number] for values in settings.values())
            fits = [] if one.room is None else [FITS[one.room.fits]]
            took = seconds_text(one.run.steps[m]), seconds_text(seconds)
            yield one.run.strategy, *own, str(m), *took, share(one.step_errors[m]), *fits


def ranked_plans(found: StepAccuracy) -> Iterator[Section]:
    """Plans of one model on as many devices with as large a global batch; nothing where there are none."""
    if found.rank_correlations is None or found.regrets is None:
        return
    told = _apart([dict(text.split("=", 1) for text in one.settings) for one in found.plans])
    rows = [
        (
            *(values[number] for values in told.values()),
            str(one.devices),
            str(one.samples),
            str(len(one.measured)),
            share(one.error),
            f"{one.rank_correlation:.3f}",
            share(one.regret),
        )
        for number, one in enumerate(found.plans)
    ]
    head = (*told, "devices", "samples", "plans", "error", "Spearman", "regret")
    ranks, regrets = found.rank_correlations, found.regrets
    notes = [
        "samples: of a step; Spearman: how far the order of predicted times is that of measured ones",
        "regret: what the plan that is predicted to be the fastest took beyond the one that was",
        f"Spearman: {ranks[0]:.3f} on average, {ranks[1]:.3f} median, {ranks[2]:.3f} at least",
        f"regret: {share(regrets[0])} on average, {share(regrets[1])} median, {share(regrets[2])} at most",
    ]
    title = f"how plans are ranked, at least {FEWEST} of one model, number of devices and global batch"
    yield section(title, Table(rows, head, range(len(head))), Notes(notes))


def _ranked_rates(found: StepAccuracy) -> Iterator[Section]:
    """Models on several kinds of devices, by tokens a second and device; nothing where there is one kind."""
    if not found.rates:
        return
    rows = [(one.model or "all", str(len(one.measured)), share(one.error), f"{one.rank_correlation:.3f}") for one in found.rates]
    notes = ["of tokens a second and device; error: in the middle, whatever the sign"]
    title = "how models, devices and plans are ranked"
    yield section(title, Table(rows, ("model", "steps", "error", "Spearman"), range(1, 4)), Notes(notes))


def _errors(mean: Fraction, most: Fraction) -> str:
    return f"errors: {share(mean)} on average, at most {share(most)}"


def _terms_sections(of: RunSet, accuracies: Mapping[str, StepAccuracy]) -> Iterator[Section]:
    whole = accuracies[""]
    yield _heading(of, [f"times of {whole.steps} steps with all terms: {_off(whole.error, whole.worst)}"])
    ranked = bool(whole.plans)
    head = ("left out", "error", "bias", "at most", *(("Spearman", "at least", "regret", "at most") if ranked else ()))
    rows = [(name or "nothing", *shares(one)) for name, one in accuracies.items()]
    notes = [f"{whole.steps} steps; error, bias: on average, whatever the sign of an error and with it"]
    notes += ["Spearman, regret: on average over groups of plans, and in the worst one"] if ranked else []
    yield section("how good times are without one term", Table(rows, head, range(1, len(head))), Notes(notes))
    yield section("what the terms are", Table([(one.name, one.text, f"left out: {one.left_out}") for one in TERMS.values()]))


def shares(one: StepAccuracy) -> tuple[str, ...]:
    """Errors, and, where plans are ranked, how well."""
    own = share(one.error), share(one.bias), share(one.worst)
    if one.rank_correlations is None or one.regrets is None:
        return own
    (mean, _, least), (regret, _, most) = one.rank_correlations, one.regrets
    return (*own, f"{mean:.3f}", f"{least:.3f}", share(regret), share(most))


def own_settings(predictions: Sequence[Prediction]) -> dict[str, list[str]]:
    """The sizes in which runs differ, by their symbols."""
    names = ("model", "cluster", "fp8")
    said = [{name: getattr(one.run.run_as, name) for name in names} for one in predictions]
    told = {name: [one[name] for one in said] for name in names}
    sizes = _apart([dict(text.split("=", 1) for text in one.run.settings) for one in predictions])
    return {name: found for name, found in told.items() if len(set(found)) > 1} | sizes


def _apart(each: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    values = {name: [one.get(name, "") for one in each] for name in ("s", "h", "L", "b")}
    return {name: found for name, found in values.items() if len(set(found)) > 1}


def _more(one: Prediction) -> Fraction | None:
    return None if one.run.reserved is None or one.run.tensors is None else one.run.reserved / one.run.tensors - 1


def _amount(amount: Fraction | None, of: RunSet) -> str:
    return "?" if amount is None else f"{float(amount / UNITS[of.unit]):.2f}"


def share(value: Fraction | None) -> str:
    """A share in per cent; ``?`` where it is not known."""
    return "?" if value is None else f"{float(100 * value):.2f} %"


def accuracy_data(one: StepAccuracy) -> dict[str, Any]:
    """How good times are, for programs."""
    return {
        "steps": one.steps,
        "error": {"mean": one.error, "bias": one.bias, "worst": one.worst},
        "rank_correlation": _three(one.rank_correlations),
        "regret": _three(one.regrets),
        "groups": [
            {
                "model": plans.model,
                "settings": list(plans.settings),
                "devices": plans.devices,
                "samples": plans.samples,
                "plans": len(plans.measured),
                "error": plans.error,
                "rank_correlation": plans.rank_correlation,
                "regret": plans.regret,
            }
            for plans in one.plans
        ],
        "rates": [
            {"model": rates.model or None, "steps": len(rates.measured), "error": rates.error, "rank_correlation": rates.rank_correlation}
            for rates in one.rates
        ],
    }


def _three(values: Sequence[Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(zip(("mean", "median", "worst"), values, strict=True))


def _terms_data(of: RunSet, accuracies: Mapping[str, StepAccuracy]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": of.name,
        "source": of.source,
        "implementation": of.implementation or None,
        "times": [{"without": [name] if name else [], **accuracy_data(one)} for name, one in accuracies.items()],
    }


def _data(of: RunSet, predictions: Sequence[Prediction], without: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": of.name,
        "source": of.source,
        "implementation": of.implementation or None,
        "without": list(without),
        "times": None if (times := step_accuracy(predictions)) is None else accuracy_data(times),
        "rows": [
            {
                "name": one.run.name,
                "strategy": one.run.strategy or None,
                "settings": list(one.run.settings),
                "process": {"measured": one.run.process, "derived": one.process, "error": one.process_error},
                "tensors": {"measured": one.run.tensors, "derived": one.tensors, "error": one.error},
                "reserved": one.run.reserved,
                "fits": None if one.room is None else FITS[one.room.fits],
                "steps": [
                    {"m": m, "measured": one.run.steps[m], "derived": seconds, "error": one.step_errors[m]}
                    for m, seconds in one.steps.items()
                ],
                "stage": one.stage or None,
                "moment": one.moment or None,
            }
            for one in predictions
        ],
    }
