"""Measured runs beside what is derived for them as a document: the schema ``placeproof.accuracy/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from placeproof.cost.accuracy import Prediction
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.units import seconds_text
from placeproof.runs import UNITS, RunSet

SCHEMA = "placeproof.accuracy/1"


def document(of: RunSet, predictions: Sequence[Prediction], without: Sequence[str]) -> Document:
    """Every run, also those that are far off. ``without``: differences of the implementation that were left out."""
    return Document(name=of.name, sections=lambda: _sections(of, predictions, without), data=lambda: _data(of, predictions, without))


def _sections(of: RunSet, predictions: Sequence[Prediction], without: Sequence[str]) -> Iterator[Section]:
    left = f", without {', '.join(without)}" if without else ""
    how = f", as {of.implementation} runs them{left}" if of.implementation else ""
    yield section(f"{of.name}: {of.title}{how}", Lines([f"source: {of.source}"]))
    process = any(one.run.process is not None for one in predictions)
    of_what = "process" if process else "tensors"
    settings = _settings(predictions)
    more = [share for one in predictions if (share := _more(one)) is not None]
    rows = [
        (
            one.run.strategy or one.run.name,
            *(values[number] for values in settings.values()),
            _amount(getattr(one.run, of_what), of),
            _amount(getattr(one, of_what), of),
            _share(one.process_error if process else one.error),
            *([_share(_more(one))] if more else []),
        )
        for number, one in enumerate(predictions)
    ]
    head = ("strategy", *settings, "measured", "derived", "error", *(["reserved"] if more else []))
    notes = [f"{of.unit}: {_MEASURE[of_what]}"]
    if errors := [abs(e) for one in predictions if (e := one.process_error if process else one.error) is not None]:
        notes.append(_errors(errors))
    if more:
        notes.append(f"reserved, what the allocator had beyond the measured tensors: from {_share(min(more))} to {_share(max(more))}")
    title = "what a driver shows at most" if process else "the most that tensors take"
    yield section(title, Table(rows, head, range(1, len(head))), Notes(notes))
    yield from _steps(of, predictions, settings)
    moments = dict.fromkeys(one.moment for one in predictions if one.moment)
    yield from [section("where that is", Lines(list(moments)))] if moments else []


#: What rows are about -> what their numbers are.
_MEASURE = {
    "tensors": "tensors of a device of the fullest stage",
    "process": "all of the fullest stage; derived: tensors, the median of what allocators reserved, a context, communicators",
}


def _steps(of: RunSet, predictions: Sequence[Prediction], settings: Mapping[str, Sequence[str]]) -> Iterator[Section]:
    """Steps by their number of micro-batches, where they were measured."""
    errors = [abs(error) for one in predictions for error in one.step_errors.values()]
    if not errors:
        return
    rows = [
        (
            one.run.strategy,
            *(values[number] for values in settings.values()),
            str(m),
            seconds_text(one.run.steps[m]),
            seconds_text(seconds),
            _share(one.step_errors[m]),
        )
        for number, one in enumerate(predictions)
        for m, seconds in one.steps.items()
    ]
    head = ("strategy", *settings, "m", "measured", "derived", "error")
    notes = [f"on {of.cluster}, nothing overlapped; m: micro-batches of a step", _errors(errors)]
    yield section("how long a step takes", Table(rows, head, range(1, len(head))), Notes(notes))


def _errors(errors: Sequence[Fraction]) -> str:
    return f"errors: {_share(sum(errors, Fraction(0)) / len(errors))} on average, at most {_share(max(errors))}"


def _settings(predictions: Sequence[Prediction]) -> dict[str, list[str]]:
    """The sizes in which runs differ, by their symbols."""
    each = [dict(text.split("=", 1) for text in one.run.settings) for one in predictions]
    values = {name: [one.get(name, "") for one in each] for name in ("s", "h", "b")}
    return {name: found for name, found in values.items() if len(set(found)) > 1}


def _more(one: Prediction) -> Fraction | None:
    return None if one.run.reserved is None or one.run.tensors is None else one.run.reserved / one.run.tensors - 1


def _amount(amount: Fraction | None, of: RunSet) -> str:
    return "?" if amount is None else f"{float(amount / UNITS[of.unit]):.2f}"


def _share(value: Fraction | None) -> str:
    return "?" if value is None else f"{float(100 * value):.2f} %"


def _data(of: RunSet, predictions: Sequence[Prediction], without: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": of.name,
        "source": of.source,
        "implementation": of.implementation or None,
        "without": list(without),
        "rows": [
            {
                "name": one.run.name,
                "strategy": one.run.strategy or None,
                "settings": list(one.run.settings),
                "process": {"measured": one.run.process, "derived": one.process, "error": one.process_error},
                "tensors": {"measured": one.run.tensors, "derived": one.tensors, "error": one.error},
                "reserved": one.run.reserved,
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
