"""Proving the whole catalogue: one line for each kind of result, and a last sentence of counts."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from placeproof.core.diagnostics import InputError
from placeproof.report.document import Document, Lines, section
from placeproof.semantics.catalogue import BLOCKS, about, compositions, not_equivalent, read_block, read_not_equivalent, variants
from placeproof.semantics.judge.verdict import Judged, judge


def judged() -> tuple[list[dict[str, Any]], dict[str, int]]:
    """A verdict on everything, as data; and how many compositions the rules do not allow, by code."""
    rows: list[dict[str, Any]] = []
    refused: Counter[str] = Counter()
    for text, program in itertools.chain(compositions(), variants()):
        if isinstance(program, InputError):
            refused[program.diagnostics[0].code] += 1
        else:
            rows.append(_row(text, "proved", partial(judge, program)))
    rows += [_row(name, "proved", lambda n=name: judge(read_block(n))) for name in BLOCKS]  # type: ignore[misc]
    rows += [_row(name, "refuted", lambda n=name: judge(read_not_equivalent(n))) for name in not_equivalent()]  # type: ignore[misc]
    return rows, dict(refused)


def document(rows: list[dict[str, Any]], refused: dict[str, int]) -> Document:
    """Everything that is not as expected, everything that is refuted, and counts."""
    return Document(
        name="catalogue",
        sections=lambda: [section(_counts(rows), detail="answer"), section("", Lines([*_lines(rows, refused)]))],
        data=lambda: {"schema": "placeproof.prove-catalogue/1", "results": rows, "refused": refused},
    )


def _row(subject: str, expected: str, judging: Callable[[], Judged]) -> dict[str, Any]:
    began = time.perf_counter()
    judged = judging()
    seconds = time.perf_counter() - began
    condition = judged.about.condition if judged.about is not None else None
    return {
        "subject": subject,
        "expected": expected,
        "verdict": judged.word,
        "condition": condition,
        "obligations": len(judged.settled),
        "seconds": round(seconds, 4),
    }


def _lines(rows: list[dict[str, Any]], refused: dict[str, int]) -> Iterator[str]:
    proofs = [r for r in rows if r["expected"] == "proved"]
    for row in proofs:
        if row["verdict"] != "proved":
            yield f"{row['verdict']}: {row['subject']}"
    rejected = [r for r in rows if r["expected"] == "refuted"]
    yield "not equivalent" + (", as they should be:" if all(r["verdict"] == "refuted" for r in rejected) else ":")
    for row in rejected:
        yield f"  {row['verdict']}: {row['subject']} ({row['condition']}): {about(row['subject'])}"
    times = [1e3 * float(r["seconds"]) for r in proofs]
    not_allowed = sum(refused.values())
    why = ", ".join(f"{n} by {code}" for code, n in sorted(refused.items()))
    yield f"compositions that the rules do not allow: {not_allowed} ({why})"
    yield f"milliseconds for a proof: median {statistics.median(times):.0f}, worst {max(times):.0f}"


def _counts(rows: list[dict[str, Any]]) -> str:
    """How many things have which verdict."""
    proofs, rejected = ([r for r in rows if r["expected"] == word] for word in ("proved", "refuted"))
    count = {word: sum(1 for r in proofs if r["verdict"] == word) for word in ("proved", "refuted", "unknown")}
    what = f"{len(proofs) - len(BLOCKS)} strategies and compositions and {len(BLOCKS)} blocks"
    verdicts = f"{count['proved']} proved, {count['refuted']} refuted, {count['unknown']} unknown"
    refuted = sum(1 for r in rejected if r["verdict"] == "refuted")
    return f"{what}: {verdicts}; {len(rejected)} that are not equivalent: {refuted} refuted."
