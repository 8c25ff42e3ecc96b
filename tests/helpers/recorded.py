"""Recorded measurements: what real PyTorch did in random cases, for machines without it.

`python tests/helpers/recorded.py` records them again. A case follows from its seed; the row says which case it was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from random_cases import Case, random_case

from placeproof.core.exchange import tally
from placeproof.measure.measured import Measured

PATH = Path(__file__).parents[1] / "data" / "measured.json"
SEEDS = range(10_000, 10_150)


def row(seed: int, case: Case, measured: Measured) -> dict[str, Any]:
    calls = sorted([kind, list(axes), size, count] for (kind, axes, size), count in tally(measured.exchanges).items())
    return {"seed": seed, **about(case), "torch": measured.torch, "calls": calls, "memory": dict(measured.memory)}


def about(case: Case) -> dict[str, Any]:
    """Which case it is: enough to notice that a seed gives another one."""
    return {"subject": case.subject, "mesh": dict(case.mesh), "rank": case.rank, "parameters": case.shapes.elements}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def main() -> None:
    from placeproof.measure.training.run import measure

    recorded = []
    for seed in SEEDS:
        case = random_case(seed)
        recorded.append(row(seed, case, measure(case.subject, case.shapes, case.mesh, rank=case.rank, options=case.options)))
    PATH.write_text("[\n" + ",\n".join(json.dumps(r) for r in recorded) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
