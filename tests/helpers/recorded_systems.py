"""Recorded measurements of DeepSpeed and Megatron-core, for machines without them. `nightly/systems.py` records them again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from placeproof.measure.systems.cases import SystemCase, SystemMeasured, deepspeed_case, megatron_case

PATH = Path(__file__).parents[1] / "data" / "measured_systems.json"
CASES: Mapping[str, Callable[[int], SystemCase]] = {"deepspeed": deepspeed_case, "megatron": megatron_case}
#: The last two of DeepSpeed show that modules without weights count where few parameters may be live.
SEEDS = {"deepspeed": (*range(96), 10_061, 10_095), "megatron": tuple(range(60))}


def about(case: SystemCase) -> dict[str, Any]:
    """Which case it is: enough to notice that a seed gives another one."""
    return {"mesh": dict(case.mesh), "options": dict(case.options), "parameters": case.shapes.elements}


def row(seed: int, case: SystemCase, measured: SystemMeasured) -> dict[str, Any]:
    counts = Counter(measured.exchanges)
    calls = sorted([e.kind, list(e.axes), e.bytes, e.op, e.phase, count] for e, count in counts.items())
    found = {"system": case.system, "seed": seed, **about(case), "version": measured.version, "calls": calls}
    return found | {"memory": dict(measured.memory)}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found
