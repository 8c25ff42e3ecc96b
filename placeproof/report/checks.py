"""Outcomes of theorems, as text and as JSON data (``placeproof.check/1``, ``docs/reference/check.schema.json``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from placeproof.prove.solvers.scripts import available, version
from placeproof.theory.outcome import Check, Outcome


def _relative(path: str) -> str:
    try:
        return os.path.relpath(path)
    except ValueError:
        return path


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many theorems stand how."""
    words = ("proved", "refuted as expected", "open", "unexpected", "undecided")
    return {word: sum(1 for o in outcomes if o.standing == word) for word in words}


def _rows(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """What is said of every outcome: statement, hypotheses, expected, found, witness."""
    yield "states", outcome.statement
    if outcome.cached:
        yield "checked", "in an earlier run; `--no-cache` checks it anew"
    if outcome.hypotheses:
        yield "given", ", ".join(outcome.hypotheses)
    yield "expected", outcome.expected + (f": {outcome.because}" if outcome.because else "")
    yield "found", outcome.verdict + (f", by {outcome.evidence}" if outcome.evidence else "")
    if outcome.witness:
        yield "witness", ", ".join(f"{name} = {value}" for name, value in outcome.witness.items())


def failure(outcome: Outcome) -> str:
    """A theorem that does not stand, for a reader who has not seen it: statement, expected, found, witness, how to see it alone."""
    rows = [("says", outcome.says), *(row for row in _rows(outcome) if row[0] != "checked")]
    rows += [("failed", f"{check.name}: {check.detail}") for check in outcome.checks if check.standing == "failed"]
    rows += [("failed", f"control `{check.name}`: {check.detail}") for check in outcome.controls if check.standing == "failed"]
    rows.append(("alone", f"placeproof check {_alone(outcome)}"))
    lines = [f"{outcome.id}: {outcome.standing}", f"  --> {_relative(outcome.path)}:{outcome.line}"]
    return "\n".join([*lines, *(f"   {name:<8}  {text}" for name, text in rows)])


def _alone(outcome: Outcome) -> str:
    from placeproof.theory.load import suite

    if Path(outcome.path).parent == suite().resolve():
        return outcome.id
    return f"{_relative(outcome.path)}::{outcome.id.rpartition('.')[2]}"


def one(outcome: Outcome) -> str:
    """A theorem with everything that was checked, for a single one that was asked for."""
    lines = [f"{outcome.id}: {outcome.standing}", "", outcome.says, "", *(f"{name:<8}  {text}" for name, text in _rows(outcome))]
    return "\n".join([*lines, "", "checks", *map(_check, outcome.checks), "controls", *map(_check, outcome.controls)])


def _check(one: Check) -> str:
    return f"  {one.standing:<14}  {one.name}" + (f": {one.detail}" if one.detail else "")


def summary(outcomes: Sequence[Outcome], malformed: int, changed: int | None) -> str:
    """The last line of a run. ``changed``: how many differ from the lock file, None where there is none."""
    standings = counts(outcomes)
    again = sum(1 for o in outcomes if o.cached)
    controls = sum(len(o.controls) for o in outcomes)
    silent = sum(1 for o in outcomes if o.opinion == "silent")
    asked = [o for o in outcomes if o.opinion != "not asked"]
    what = f"{len(outcomes)} theorem{_s(len(outcomes))} with {controls} control{_s(controls)}"
    parts = [f"{what}: " + ", ".join(f"{n} {word}" for word, n in standings.items())]
    if malformed:
        parts.append(f"{malformed} could not be read")
    if asked:
        agree = sum(1 for o in asked if o.opinion == "agree")
        parts.append(f"second solver: {agree} agree, {len(asked) - agree - silent} disagree, {silent} silent")
    parts.append("no lock file" if changed is None else f"{changed} differ from the lock file" if changed else "as locked")
    if again:
        parts.append(f"{again} of {len(outcomes)} from earlier runs")
    return "; ".join(parts) + f" ({', '.join(version(name) for name in available())})."


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def data(outcomes: Iterable[Outcome], malformed: list[str], changed: list[str], seconds: float) -> dict[str, Any]:
    """Everything that was found, as JSON data."""
    listed = list(outcomes)
    standings = counts(listed)
    return {
        "schema": "placeproof.check/1",
        "theorems": len(listed),
        "proved": standings["proved"],
        "refuted_as_expected": standings["refuted as expected"],
        "open": standings["open"],
        "unexpected": standings["unexpected"],
        "undecided": standings["undecided"],
        "malformed": malformed,
        "second_opinion": {word: sum(1 for o in listed if o.opinion == word) for word in ("agree", "disagree", "silent")},
        "lock": changed,
        "solvers": [version(name) for name in available()],
        "seconds": round(seconds, 3),
        "results": [_result(o) for o in listed],
    }


def _result(outcome: Outcome) -> dict[str, Any]:
    whole = outcome.data()
    whole["standing"] = outcome.standing
    whole["path"] = _relative(outcome.path)
    whole["seconds"] = round(outcome.seconds, 3)
    return whole
