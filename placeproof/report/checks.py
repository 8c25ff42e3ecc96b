"""Outcomes of theorems, as text and as JSON data (``placeproof.check/1``, ``docs/reference/check.schema.json``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
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


def failure(outcome: Outcome, locked: bool = False) -> str:
    """A theorem that does not stand, for a reader who has not seen it: statement, expected, found, witness, how to see it alone."""
    lines = [f"{outcome.id}: {outcome.standing}", f"  --> {_relative(outcome.path)}:{outcome.line}", f"   says      {outcome.says}"]
    lines += [f"   states    {outcome.statement}"]
    if outcome.hypotheses:
        lines.append(f"   given     {', '.join(outcome.hypotheses)}")
    lines.append(f"   expected  {outcome.expected}" + (f": {outcome.because}" if outcome.because else ""))
    lines.append(f"   found     {outcome.verdict}" + (f", by {outcome.evidence}" if outcome.evidence else ""))
    if outcome.witness:
        lines.append(f"   witness   {', '.join(f'{k} = {v}' for k, v in outcome.witness.items())}")
    for one in outcome.checks:
        if one.standing == "failed":
            lines.append(f"   failed    {one.name}: {one.detail}")
    for one in outcome.controls:
        if one.standing == "failed":
            lines.append(f"   failed    control `{one.name}`: {one.detail}")
    return "\n".join([*lines, f"   alone     placeproof check {_alone(outcome)}"])


def _alone(outcome: Outcome) -> str:
    from placeproof.theory.load import suite

    if Path(outcome.path).parent == suite().resolve():
        return outcome.id
    return f"{_relative(outcome.path)}::{outcome.id.rpartition('.')[2]}"


def one(outcome: Outcome) -> str:
    """A theorem with everything that was checked, for a single one that was asked for."""
    lines = [f"{outcome.id}: {outcome.standing}", "", outcome.says, "", f"states    {outcome.statement}"]
    if outcome.cached:
        lines.append("checked   in an earlier run; `--no-cache` checks it anew")
    if outcome.hypotheses:
        lines.append(f"given     {', '.join(outcome.hypotheses)}")
    lines.append(f"expected  {outcome.expected}" + (f": {outcome.because}" if outcome.because else ""))
    lines.append(f"found     {outcome.verdict}" + (f", by {outcome.evidence}" if outcome.evidence else ""))
    if outcome.witness:
        lines.append(f"witness   {', '.join(f'{k} = {v}' for k, v in outcome.witness.items())}")
    lines += ["", "checks", *(_check(c) for c in outcome.checks), "controls", *(_check(c) for c in outcome.controls)]
    return "\n".join(lines)


def _check(one: Check) -> str:
    return f"  {one.standing:<14}  {one.name}" + (f": {one.detail}" if one.detail else "")


def summary(outcomes: Sequence[Outcome], malformed: int, changed: int | None) -> str:
    """The last line of a run. ``changed``: how many differ from the lock file, None where there is none."""
    found = counts(outcomes)
    again = sum(1 for o in outcomes if o.cached)
    controls = sum(len(o.controls) for o in outcomes)
    silent = sum(1 for o in outcomes if o.opinion == "silent")
    asked = [o for o in outcomes if o.opinion != "not asked"]
    what = f"{len(outcomes)} theorem{_s(len(outcomes))} with {controls} control{_s(controls)}"
    parts = [f"{what}: " + ", ".join(f"{n} {word}" for word, n in found.items())]
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
    found = counts(listed)
    return {
        "schema": "placeproof.check/1",
        "theorems": len(listed),
        "proved": found["proved"],
        "refuted_as_expected": found["refuted as expected"],
        "open": found["open"],
        "unexpected": found["unexpected"],
        "undecided": found["undecided"],
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
