"""What came out when a step was held against another one, as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placeproof.report.diagnostics import excerpt
from placeproof.report.document import Document, Lines, Notes, Section, section
from placeproof.report.proof.text import document as judgement
from placeproof.semantics.judge.refine import PARTS, Difference, Refinement


def document(subject: str, against: str, found: Refinement) -> Document:
    """The word, where the two differ, and the judgement of what is not proved."""
    return Document(name=subject, sections=lambda: _sections(subject, against, found), data=lambda: _data(subject, against, found))


def _sections(subject: str, against: str, found: Refinement) -> Iterator[Section]:
    yield _verdict(subject, against, found)
    if found.differences:
        first, *rest = found.differences
        lines: list[str] = []
        for name, value, place in ((subject, first.left, first.left_place), (against, first.right, first.right_place)):
            lines += [f"{name}: {value}", *(excerpt(place) if place is not None else [])]
        yield section(f"the first difference{_of(first)}: {PARTS[first.part]}", Notes(lines))
        yield from [section("then also", Notes([f"{PARTS[d.part]}{_of(d)}: {d.left}; there: {d.right}" for d in rest]))] if rest else []
    for name, judged in ((subject, found.left), (against, found.right)):
        yield from [] if judged.word == "proved" else judgement(name, judged).sections()


def _verdict(subject: str, against: str, found: Refinement) -> Section:
    if found.word == "refines":
        same = "Both are proved, and they do the same with every group of parameters: the same placements, gathers, reductions and scale."
        return section(f"{subject} refines {against}", Lines([same]))
    lines = []
    if found.word == "differs, and both are proved":
        lines.append("The difference is harmless for what is trained: every device ends with what one device computes, in both.")
    if not found.differences:
        lines.append("No part of the flows differs: what is wrong is wrong on the way from one to the next.")
    return section(f"{subject}: {found.word} (against {against})", Lines(lines))


def _of(difference: Difference) -> str:
    return f" (group {difference.group})" if difference.group not in ("", "all") else ""


def _data(subject: str, against: str, found: Refinement) -> dict[str, Any]:
    return {
        "subject": subject,
        "against": against,
        "word": found.word,
        "verdicts": [found.left.word, found.right.word],
        "differences": [
            {
                "part": PARTS[d.part],
                "group": d.group,
                "here": {"value": d.left, "line": d.left_place.line if d.left_place else None},
                "there": {"value": d.right, "line": d.right_place.line if d.right_place else None},
            }
            for d in found.differences
        ],
    }
