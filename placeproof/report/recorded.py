"""What came of recording a step as a document: the schema ``placeproof.trace/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placeproof.core.diagnostics import Place
from placeproof.report.diagnostics import excerpt
from placeproof.report.document import Code, Document, Lines, Section, section

if TYPE_CHECKING:
    from placeproof.measure.record.later import Traced
    from placeproof.measure.record.record import RefutedError
    from placeproof.measure.record.witness import Witness

SCHEMA = "placeproof.trace/1"


def recorded(subject: str, traced: Traced) -> Document:
    """A step that a program says."""
    data = {"schema": SCHEMA, "subject": subject, "program": traced.text, "world": traced.world, "ranks": [*traced.ranks]}
    return Document(
        name=subject, sections=lambda: [section("", Code(traced.text.splitlines()))], data=lambda: {**data, "notes": [*traced.notes]}
    )


def refuted(subject: str, found: RefutedError) -> Document:
    """A step that real processes refute."""
    return Document(name=subject, sections=lambda: _sections(subject, found), data=lambda: _data(subject, found))


def _sections(subject: str, found: RefutedError) -> Iterator[Section]:
    one = found.witness
    lines = ["", f"error: {one.condition} is broken"]
    lines += excerpt(place) if (place := _place(one)) is not None else []
    lines += [
        f"   = it does not hold that {one.claim}",
        f"   = counterexample: {one.world} ranks, step {one.step} (run as real processes)",
        *(f"   = {text}" for text in (*one.seen, *_reasons(found))),
    ]
    yield section(f"{subject}: refuted", Code(lines))
    yield section(f"refuted: {one.summary}", Lines([one.remark]))


def _reasons(found: RefutedError) -> tuple[str, ...]:
    return found.witness.reasons or (f"no program says this step: {found.diagnostics[0].message}",)


def _place(one: Witness) -> Place | None:
    """The line of the script."""
    if not 0 < one.line <= len(one.source):
        return None
    text = one.source[one.line - 1]
    column = len(text) - len(text.lstrip()) + 1
    return Place(source=one.script, line=one.line, column=column, text=text, length=len(text.strip()))


def _data(subject: str, found: RefutedError) -> dict[str, Any]:
    one = found.witness
    return {
        "schema": SCHEMA,
        "subject": subject,
        "verdict": "refuted",
        "condition": one.condition,
        "counterexample": {"world": one.world, "step": one.step, **one.numbers},
        "reasons": [*_reasons(found)],
    }
