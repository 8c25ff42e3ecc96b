"""Proving the whole catalogue: one line for each kind of result, and a last sentence of counts."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from placeproof.core.diagnostics import InputError
from placeproof.semantics.catalogue import BLOCKS, about, compositions, not_equivalent, read_block, read_not_equivalent, variants
from placeproof.semantics.judge.verdict import Judged, judge

Echo = Callable[[str], Any]


def run(echo: Echo, *, json_: bool = False) -> int:
    """Judge everything; the exit code is 0 if all verdicts are as expected, else 1 (3 where one is unknown)."""
    rows: list[dict[str, Any]] = []
    refused: dict[str, int] = {}
    for text, program in itertools.chain(compositions(), variants()):
        if isinstance(program, InputError):
            code = program.diagnostics[0].code
            refused[code] = refused.get(code, 0) + 1
        else:
            rows.append(_row(text, "proved", lambda p=program: judge(p)))  # type: ignore[misc]
    blocks = [_row(name, "proved", lambda n=name: judge(read_block(n))) for name in BLOCKS]  # type: ignore[misc]
    rows += blocks
    for name in not_equivalent():
        rows.append(_row(name, "refuted", lambda n=name: judge(read_not_equivalent(n))))  # type: ignore[misc]
    if json_:
        echo(json.dumps({"schema": "placeproof.prove-catalogue/1", "results": rows, "refused": refused}, indent=2))
    else:
        _text(echo, rows, refused)
    surprises = [r for r in rows if r["verdict"] != r["expected"]]
    return 0 if not surprises else 3 if any(r["verdict"] == "unknown" for r in surprises) else 1


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


def _text(echo: Echo, rows: list[dict[str, Any]], refused: dict[str, int]) -> None:
    proofs = [r for r in rows if r["expected"] == "proved"]
    for row in proofs:
        if row["verdict"] != "proved":
            echo(f"{row['verdict']}: {row['subject']}")
    rejected = [r for r in rows if r["expected"] == "refuted"]
    echo("not equivalent" + (", as they should be:" if all(r["verdict"] == "refuted" for r in rejected) else ":"))
    for row in rejected:
        echo(f"  {row['verdict']}: {row['subject']} ({row['condition']}): {about(row['subject'])}")
    times = [1e3 * float(r["seconds"]) for r in proofs]
    count = {word: sum(1 for r in proofs if r["verdict"] == word) for word in ("proved", "refuted", "unknown")}
    not_allowed = sum(refused.values())
    why = ", ".join(f"{n} by {code}" for code, n in sorted(refused.items()))
    echo(f"compositions that the rules do not allow: {not_allowed} ({why})")
    echo(f"milliseconds for a proof: median {statistics.median(times):.0f}, worst {max(times):.0f}")
    what = f"{len(proofs) - len(BLOCKS)} strategies and compositions and {len(BLOCKS)} blocks"
    verdicts = f"{count['proved']} proved, {count['refuted']} refuted, {count['unknown']} unknown"
    refuted = sum(1 for r in rejected if r["verdict"] == "refuted")
    echo(f"{what}: {verdicts}; {len(rejected)} that are not equivalent: {refuted} refuted.")
