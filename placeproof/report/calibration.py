"""A calibrated cluster as a document: the schema ``placeproof.calibration/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from placeproof.clusters.constants import constants
from placeproof.cost.calibration import Calibrated
from placeproof.report.accuracy import accuracy_data, own_settings, share, shares
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.units import figure, seconds_text

SCHEMA = "placeproof.calibration/1"


def document(of: Calibrated) -> Document:
    """Constants, how good times are with them, and each step that was not used."""
    return Document(name=of.cluster.name, sections=lambda: _sections(of), data=lambda: _data(of))


def origin(of: Calibrated) -> str:
    """What constants were fitted to, as a cluster's file says it."""
    before, after = (of.accuracy(each, held_out=True) for each in (of.before, of.after))
    used = len(of.before) - before.steps
    return (
        f"{used} of {len(of.before)} steps of {of.source}; on the {before.steps} others {share(after.error)} off on average, "
        f"{share(before.error)} before"
    )


def _sections(of: Calibrated) -> Iterator[Section]:
    used = len(of.before) - len(of.held_out)
    before, after = (of.accuracy(each, held_out=True) for each in (of.before, of.after))
    told = f"on steps that were not used {share(after.error)} off on average, before {share(before.error)}"
    lines = [told, f"source: {of.source}", f"held out: steps {_listed(of.held_out)}, {of.how}"]
    title = f"{of.cluster.name}, calibrated with {used} of {len(of.before)} steps"
    yield section(title, Lines(lines), detail="answer", brief=f"{title}: {told}")
    yield _constants(of)
    yield _how_good(of)
    settings = own_settings(of.before)
    rows = [
        (
            str(number),
            old.run.strategy,
            *(values[number - 1] for values in settings.values()),
            str(m),
            seconds_text(old.run.steps[m]),
            seconds_text(old.steps[m]),
            share(old.step_errors[m]),
            seconds_text(new.steps[m]),
            share(new.step_errors[m]),
        )
        for number, (old, new) in enumerate(zip(of.before, of.after, strict=True), 1)
        if number in of.held_out
        for m in old.steps
    ]
    head = ("step", "strategy", *settings, "m", "measured", "before", "error", "calibrated", "error")
    yield section("steps that were not used", Table(rows, head, (0, *range(2, len(head)))))


def _constants(of: Calibrated) -> Section:
    known = constants(of.cluster)
    rows = [
        (one.name, "not said" if one.before is None else figure(one.before, 4), figure(one.fitted, 4), known[one.name])
        for one in of.constants
    ]
    edges = [f"`{one.name}` is at the edge of what it can be: these steps are not explained by it" for one in of.constants if one.edge]
    return section("constants", Table(rows, ("constant", "before", "fitted", "what it is"), (1, 2)), Notes(edges))


def _how_good(of: Calibrated) -> Section:
    """On the steps that were used and on those that were not, before and after."""
    found = {
        (what, when): of.accuracy(each, held_out=held)
        for what, held in (("used", False), ("not used", True))
        for when, each in (("before", of.before), ("calibrated", of.after))
    }
    ranked = any(one.plans for one in found.values())
    head = ("steps", "with", "number", "error", "bias", "at most", *(("Spearman", "at least", "regret", "at most") if ranked else ()))
    rows = [(what, when, str(one.steps), *_padded(shares(one), len(head) - 3)) for (what, when), one in found.items()]
    notes = ["error, bias: on average, whatever the sign of an error and with it"]
    notes += ["Spearman, regret: on average over groups of plans, and in the worst one"] if ranked else []
    if found["not used", "calibrated"].error >= found["not used", "before"].error:
        notes.append("steps that were not used are predicted no better than before: the fitted constants describe the others alone")
    return section("how good times are", Table(rows, head, range(2, len(head))), Notes(notes))


def _padded(cells: Sequence[str], width: int) -> tuple[str, ...]:
    return (*cells, *("?" for _ in range(width - len(cells))))


def _listed(numbers: Sequence[int]) -> str:
    """Numbers in order, runs of them by their ends."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _data(of: Calibrated) -> dict[str, Any]:
    def both(held_out: bool) -> dict[str, Any]:
        return {
            "before": accuracy_data(of.accuracy(of.before, held_out=held_out)),
            "calibrated": accuracy_data(of.accuracy(of.after, held_out=held_out)),
        }

    return {
        "schema": SCHEMA,
        "cluster": of.cluster.name,
        "source": of.source,
        "held_out": {"steps": list(of.held_out), "how": of.how},
        "constants": [{"name": one.name, "before": one.before, "fitted": one.fitted, "edge": one.edge} for one in of.constants],
        "used": both(False),
        "not_used": both(True),
        "rows": [
            {
                "step": number,
                "name": old.run.name,
                "strategy": old.run.strategy,
                "settings": list(old.run.settings),
                "m": m,
                "held_out": number in of.held_out,
                "measured": old.run.steps[m],
                "before": {"derived": old.steps[m], "error": old.step_errors[m]},
                "calibrated": {"derived": new.steps[m], "error": new.step_errors[m]},
            }
            for number, (old, new) in enumerate(zip(of.before, of.after, strict=True), 1)
            for m in old.steps
        ],
    }
