"""What came of recording a step as a document: the schema ``placeproof.trace/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placeproof.core.diagnostics import Place
from placeproof.report.diagnostics import excerpt
from placeproof.report.document import Code, Document, Lines, Section, section

if TYPE_CHECKING:
    from placeproof.measure.record.parted import Parted
    from placeproof.measure.record.record import RefutedError, Traced

SCHEMA = "placeproof.trace/1"
_BROKEN = "state consistency"


def recorded(subject: str, traced: Traced) -> Document:
    """A step that a program says."""
    data = {"schema": SCHEMA, "subject": subject, "program": traced.text, "world": traced.world, "ranks": [*traced.ranks]}
    return Document(
        name=subject, sections=lambda: [section("", Code(traced.text.splitlines()))], data=lambda: {**data, "notes": [*traced.notes]}
    )


def refuted(subject: str, found: RefutedError) -> Document:
    """A step in which copies part."""
    return Document(name=subject, sections=lambda: _sections(subject, found), data=lambda: _data(subject, found))


def _sections(subject: str, found: RefutedError) -> Iterator[Section]:
    one = found.parted
    a, b = one.ranks
    when = "when the script ends" if one.ends else "when the next forward reads them"
    what = f"`{one.name}`[{', '.join(map(str, one.element))}]"
    before, first, second = _shown(one.before, *one.values)
    lines = ["", f"error: {_BROKEN} is broken"]
    lines += excerpt(place) if (place := _place(one)) is not None else []
    lines += [
        f"   = it does not hold that ranks {a} and {b} have the same `{one.name}` {when}",
        f"   = counterexample: {one.world} ranks, step {one.step} (run as real processes)",
        f"   = {what}: {before} before the step on both, then {first} on rank {a} and {second} on rank {b}",
        "   = the losses of both ranks depend on it, and they exchange its gradient",
        *(f"   = {reason}" for reason in _reasons(found)),
    ]
    yield section(f"{subject}: refuted", Code(lines))
    yield section(
        "refuted: one device has one value of each parameter, and these ranks have two",
        Lines(["Ranks that train apart on purpose, and average parameters now and then, do not train what one device trains either."]),
    )


def _shown(*numbers: float) -> list[str]:
    """Numbers with as few digits as tell the last two apart."""
    texts = [[f"{n:.{digits}g}" for n in numbers] for digits in (6, 9, 17)]
    return next((t for t in texts if t[-1] != t[-2]), texts[-1])


def _reasons(found: RefutedError) -> tuple[str, ...]:
    return found.parted.reasons or (f"no program says this step: {found.diagnostics[0].message}",)


def _place(one: Parted) -> Place | None:
    """The line that updates the parameter."""
    line = max(one.lines)
    if not 0 < line <= len(one.source):
        return None
    text = one.source[line - 1]
    column = len(text) - len(text.lstrip()) + 1
    return Place(source=one.script, line=line, column=column, text=text, length=len(text.strip()))


def _data(subject: str, found: RefutedError) -> dict[str, Any]:
    one = found.parted
    return {
        "schema": SCHEMA,
        "subject": subject,
        "verdict": "refuted",
        "condition": _BROKEN,
        "counterexample": {
            "world": one.world,
            "step": one.step,
            "parameter": one.name,
            "element": [*one.element],
            "before": one.before,
            "after": {str(rank): value for rank, value in zip(one.ranks, one.values, strict=True)},
            "read": "end" if one.ends else "forward",
            "updated": {str(rank): line or None for rank, line in zip(one.ranks, one.lines, strict=True)},
        },
        "reasons": [*_reasons(found)],
    }
