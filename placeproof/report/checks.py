"""Outcomes of theorems as a document: the schema ``placeproof.check/1`` (``docs/reference/check.schema.json``), and its text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from placeproof.prove.solvers.scripts import available, version
from placeproof.report.document import Code, Document, Notes, Section, section
from placeproof.theory.suite.outcome import SUBJECTS, Check, Outcome


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
    from placeproof.theory.suite.load import suite

    if Path(outcome.path).parent == suite().resolve():
        return outcome.id
    return f"{_relative(outcome.path)}::{outcome.id.rpartition('.')[2]}"


def _whole(outcome: Outcome) -> str:
    """A theorem with everything that was checked, for a single one that was asked for."""
    lines = [f"{outcome.id}: {outcome.standing}", "", outcome.says, "", *(f"{name:<8}  {text}" for name, text in _rows(outcome))]
    return "\n".join([*lines, "", "checks", *map(_check, outcome.checks), "controls", *map(_check, outcome.controls)])


def _check(check: Check) -> str:
    return f"  {check.standing:<14}  {check.name}" + (f": {check.detail}" if check.detail else "")


#: How theorems stand that do not hold; and of how many of them the answer gives names.
_FALLEN = ("unexpected", "undecided")
_MOST = 3


def _shown(outcomes: Sequence[Outcome]) -> list[str]:
    """Those that do not stand, by name."""
    fallen = [f"{o.standing}: {o.id}" for o in outcomes if o.standing in _FALLEN]
    more = [f"and {len(fallen) - _MOST} more"] if len(fallen) > _MOST else []
    return ["; ".join([*fallen[:_MOST], *more])] if fallen else []


def _summary(outcomes: Sequence[Outcome], unreadable: int, changed: Sequence[str] | None) -> list[str]:
    """How many stand how, which do not, and what else is to be known of a run."""
    again, controls = sum(o.cached for o in outcomes), sum(len(o.controls) for o in outcomes)
    what = f"{len(outcomes)} theorem{_s(len(outcomes))} with {controls} control{_s(controls)}"
    names = sum(not line.startswith("    ") for line in changed or ())
    locked = "no lock file" if changed is None else f"{names} differ from the lock file" if names else "as in the lock file"
    unread = [f"{unreadable} could not be read"] if unreadable else []
    lines = ["; ".join([f"{what}: " + ", ".join(f"{n} {word}" for word, n in counts(outcomes).items()), *unread, locked])]
    lines += _shown(outcomes)
    lines += [_about(outcomes)] if outcomes else []
    if any(opinions := _opinions(outcomes).values()):
        agree, disagree, silent = opinions
        lines.append(f"second solver: {agree} agree, {disagree} disagree, {silent} silent")
    earlier = [f"{again} of {len(outcomes)} from earlier runs"] if again else []
    return [*lines, "; ".join([f"by {', '.join(version(name) for name in available())}", *earlier])]


def about(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many theorems are about what: the product's programs, derivations, forms and tables, or mathematics alone."""
    return {word: sum(1 for o in outcomes if o.about == word) for word in SUBJECTS}


def _about(outcomes: Sequence[Outcome]) -> str:
    numbers = about(outcomes)
    alone = numbers.pop("mathematics")
    of = ", ".join(f"{n} {word}" for word, n in numbers.items() if n)
    return f"{sum(numbers.values())} about what placeproof computes{f' ({of})' if of else ''}, {alone} about mathematics alone"


def _opinions(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return {word: sum(o.opinion == word for o in outcomes) for word in ("agree", "disagree", "silent")}


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def document(
    outcomes: Sequence[Outcome], unreadable: Sequence[str], changed: Sequence[str] | None, seconds: float, *, single: bool
) -> Document:
    """What a run found: what does not stand, or a ``single`` theorem with all that was checked; what differs from the lock file; counts.

    ``unreadable``: problems of what could not be read; ``changed``: lines about the lock file, None where there is none.
    """
    return Document(
        name="theorems",
        sections=lambda: _sections(outcomes, len(unreadable), changed, single=single),
        data=lambda: _data(outcomes, unreadable, changed, seconds),
    )


def _sections(outcomes: Sequence[Outcome], unreadable: int, changed: Sequence[str] | None, *, single: bool) -> Iterator[Section]:
    title, *more = _summary(outcomes, unreadable, changed)
    yield section(title, Notes(more), detail="answer", brief=f"{title}; {more[0]}" if _shown(outcomes) else title)
    for outcome in outcomes:
        if single or outcome.standing in _FALLEN:
            yield section("", Code([_whole(outcome) if single else failure(outcome)]))
    if changed:
        yield section("verdicts differ from the lock file (`--update` accepts them):", Code(changed))


def _data(outcomes: Sequence[Outcome], unreadable: Sequence[str], changed: Sequence[str] | None, seconds: float) -> dict[str, Any]:
    return {
        "schema": "placeproof.check/1",
        "theorems": len(outcomes),
        **{word.replace(" ", "_"): number for word, number in counts(outcomes).items()},
        "malformed": unreadable,
        "about": about(outcomes),
        "second_opinion": _opinions(outcomes),
        "lock": [line.strip() for line in changed or ()],
        "solvers": [version(name) for name in available()],
        "seconds": round(seconds, 3),
        "results": [_result(o) for o in outcomes],
    }


def _result(outcome: Outcome) -> dict[str, Any]:
    whole = outcome.data()
    whole["standing"] = outcome.standing
    whole["path"] = _relative(outcome.path)
    whole["seconds"] = round(outcome.seconds, 3)
    return whole
