"""What came out when a step was held against another one, as text and as data."""

from __future__ import annotations

from typing import Any

from placeproof.core.diagnostics import Place
from placeproof.report.diagnostics import excerpt
from placeproof.report.proof.text import judgement
from placeproof.semantics.judge.refine import PARTS, Difference, Refinement


def refinement(subject: str, against: str, found: Refinement) -> str:
    """The word, where the two differ, and the judgement of what is not proved."""
    blocks = [_said(subject, against, found)]
    if found.differences:
        blocks.append([line for d in found.differences[:1] for line in _first(subject, against, d)])
        rest = found.differences[1:]
        blocks += [["then also", *(_line(d) for d in rest)]] if rest else []
    text = "\n\n".join("\n".join(b) for b in blocks) + "\n"
    for name, judged in ((subject, found.left), (against, found.right)):
        text += "" if judged.word == "proved" else "\n" + judgement(name, judged)
    return text


def _said(subject: str, against: str, found: Refinement) -> list[str]:
    if found.word == "refines":
        return [
            f"{subject} refines {against}",
            "Both are proved, and they do the same with every group of parameters: the same placements, gathers, reductions and scale.",
        ]
    lines = [f"{subject}: {found.word} (against {against})"]
    if found.word == "differs, and both are proved":
        lines.append("The difference is harmless for what is trained: every device ends with what one device computes, in both.")
    if not found.differences:
        lines.append("No part of the flows differs: what is wrong is wrong on the way from one to the next.")
    return lines


def _first(subject: str, against: str, one: Difference) -> list[str]:
    lines = [f"the first difference{_of(one)}: {PARTS[one.part]}"]
    for name, value, place in ((subject, one.left, one.left_place), (against, one.right, one.right_place)):
        lines.append(f"  {name}: {value}")
        lines += [f"  {line}" for line in _shown(place)]
    return lines


def _shown(place: Place | None) -> list[str]:
    return excerpt(place) if place is not None else []


def _of(one: Difference) -> str:
    return f" (group {one.group})" if one.group not in ("", "all") else ""


def _line(one: Difference) -> str:
    return f"  {PARTS[one.part]}{_of(one)}: {one.left}; there: {one.right}"


def data(subject: str, against: str, found: Refinement) -> dict[str, Any]:
    """The same as an object."""
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
