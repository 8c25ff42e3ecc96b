"""Plans that were run beside the best ones of a grid as a document: the schema ``placeproof.ran/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from placeproof.planning.exact import Placed
from placeproof.planning.ran import MOST_OF, NEAR, Ran
from placeproof.report.accuracy import share
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.models.fit import FITS
from placeproof.report.placed import fits, in_words
from placeproof.report.units import percent, seconds_text
from placeproof.runs import RunSet

SCHEMA = "placeproof.ran/1"


def document(of: RunSet, plans: Sequence[Ran], left: Mapping[str, int]) -> Document:
    """Every plan, also those that are better than ours. ``left``: rows that are not compared, by the reason."""
    return Document(name=of.name, sections=lambda: _sections(of, plans, left), data=lambda: _data(of, plans, left))


def _sections(of: RunSet, plans: Sequence[Ran], left: Mapping[str, int]) -> Iterator[Section]:
    told, *counted = _counts(plans, left)
    title = f"{of.name}: {of.title}"
    yield section(title, Lines([told, f"source: {of.source}"]), detail="answer", brief=f"{of.name}: {told}")
    rows = [
        (
            str(number),
            one.task.model.name,
            one.task.cluster.name,
            f"{one.task.devices:,}",
            f"{one.task.batch:,}",
            str(len(one.names)),
            seconds_text(one.theirs.seconds),
            "nothing fits" if one.ours is None else seconds_text(one.ours.seconds),
            "" if one.more is None else share(one.more),
            _why(one),
        )
        for number, one in enumerate(plans, 1)
    ]
    head = ("", "model", "cluster", "devices", "batch", "rows", "theirs", "ours", "more", "of that")
    notes = [
        "theirs: a step of the plan that was run, as it is derived; ours: of the best plan of the grid; more: what ours takes beyond theirs"
    ]
    notes.append(
        f"of that: the term that makes at least {percent(MOST_OF)} of it, where it is more than {percent(NEAR)}, as a share of theirs"
    )
    yield section("the best plan beside each that was run", Table(rows, head, (0, 3, 4, 5, 6, 7, 8)), Notes([*notes, *counted]))
    yield section("the plans", Table([row for number, one in enumerate(plans, 1) for row in _both(number, one)], ("", "", "plan"), (0,)))
    lacks = [(str(number), ", ".join(one.lacks)) for number, one in enumerate(plans, 1) if one.lacks]
    yield from [section("what of theirs the grid has not", Table(lacks, ("", "what"), (0,)))] if lacks else []


def _both(number: int, one: Ran) -> Iterator[tuple[str, str, str]]:
    yield str(number), "theirs", in_words(one.theirs)
    if one.ours is not None:
        yield "", "ours", in_words(one.ours)


def _why(one: Ran) -> str:
    return f"{one.cause} {share(one.differences[one.cause])}" if one.cause else ""


def _counts(plans: Sequence[Ran], left: Mapping[str, int]) -> Iterator[str]:
    """How many rows there are of which plans."""

    def rows(which: Sequence[Ran]) -> str:
        return str(sum(len(one.names) for one in which))

    compared = [one for one in plans if one.more is not None]
    more = {one.names: one.more or Fraction(0) for one in compared}
    slow = [one for one in compared if more[one.names] > 0]
    far = [one for one in compared if abs(more[one.names]) > NEAR]
    yield f"{rows(plans)} rows, {len(plans)} plans; ours takes no longer in {rows([one for one in compared if one not in slow])} rows"
    if slow:
        yield f"ours takes longer in {rows(slow)} rows, at most {share(max(more.values()))}"
    within = [one for one in compared if one not in far]
    explained = [one for one in far if one.cause]
    yield f"within {percent(NEAR)}: {rows(within)} rows; further off, and one term makes most of that: {rows(explained)} of {rows(far)}"
    said = {fit: [one for one in plans if fits(one.theirs) is fit] for fit in (True, None, False)}
    yield f"memory of theirs, rows: {', '.join(f'{rows(said[fit])} {words}' for fit, words in FITS.items())}"
    if beyond := [one for one in plans if one.beyond]:
        most = max(one.beyond / one.task.cluster.device.capacity for one in beyond)
        yield f"tensors of theirs are derived to be more than a device has in {rows(beyond)} rows, at most by {share(most)}"
    yield from (f"not compared: {number} rows: {why}" for why, number in left.items())


def _data(of: RunSet, plans: Sequence[Ran], left: Mapping[str, int]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": of.name,
        "source": of.source,
        "left": dict(left),
        "plans": [
            {
                "rows": list(one.names),
                "model": one.task.model.name,
                "cluster": one.task.cluster.name,
                "devices": one.task.devices,
                "batch": one.task.batch,
                "theirs": _plan(one.theirs),
                "ours": None if one.ours is None else _plan(one.ours),
                "more": one.more,
                "differences": one.differences,
                "cause": one.cause or None,
                "lacks": list(one.lacks),
            }
            for one in plans
        ],
    }


def _plan(plan: Placed) -> dict[str, Any]:
    names = ("b", "m", "recompute", "seconds", "peak", "room")
    return {"strategy": plan.expression, **{name: getattr(plan, name) for name in names}}
