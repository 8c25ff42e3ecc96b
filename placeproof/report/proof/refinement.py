"""What came out when a step was held against another one, as a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from placeproof.report.diagnostics import excerpt
from placeproof.report.document import Document, Lines, Notes, Section, section
from placeproof.report.proof.text import document as judgement
from placeproof.semantics.judge.refine import PARTS, Difference, Refinement


def document(subject: str, against: str, result: Refinement) -> Document:
    """The word, where the two differ, and the judgement of what is not proved."""
    return Document(name=subject, sections=lambda: _sections(subject, against, result), data=lambda: _data(subject, against, result))


def _sections(subject: str, against: str, result: Refinement) -> Iterator[Section]:
    yield _verdict(subject, against, result)
    if result.differences:
        first, *rest = result.differences
        lines: list[str] = []
        for name, value, place in ((subject, first.left, first.left_place), (against, first.right, first.right_place)):
            lines += [f"{name}: {value}", *(excerpt(place) if place is not None else [])]
        yield section(f"the first difference{_of(first)}: {PARTS[first.part]}", Notes(lines))
        yield from (
            [section("then also", Notes([f"{PARTS[d.part]}{_of(d)}: {d.left}; in {against}: {d.right}" for d in rest]))] if rest else []
        )
    for name, judged in ((subject, result.left), (against, result.right)):
        yield from [] if judged.word == "proved" else (replace(one, detail="usual") for one in judgement(name, judged).sections())


def _verdict(subject: str, against: str, result: Refinement) -> Section:
    if result.word == "refines":
        same = "Both are proved, and they do the same with every group of parameters: the same placements, gathers, reductions and scale."
        return section(f"{subject} refines {against}", Lines([same]), detail="answer")
    lines = []
    if result.word == "differs, and both are proved":
        other = any(d.part == "reference" for d in result.differences)
        said = "In both every device ends with what one device computes; but the two are not held against the same one."
        same = "The difference is harmless for what is trained: every device ends with what one device computes, in both."
        lines.append(said if other else same)
    if not result.differences:
        lines.append("No part of the flows differs: what is wrong is wrong on the way from one to the next.")
    return section(f"{subject}: {result.word} (against {against})", Lines(lines), detail="answer")


def _of(difference: Difference) -> str:
    return f" (group {difference.group})" if difference.group not in ("", "all") else ""


def _data(subject: str, against: str, result: Refinement) -> dict[str, Any]:
    return {
        "subject": subject,
        "against": against,
        "word": result.word,
        "verdicts": [result.left.word, result.right.word],
        "differences": [
            {
                "part": PARTS[d.part],
                "group": d.group,
                "here": {"value": d.left, "line": d.left_place.line if d.left_place else None},
                "there": {"value": d.right, "line": d.right_place.line if d.right_place else None},
            }
            for d in result.differences
        ],
    }
