"""A measurement beside its prediction, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placeproof.core.exchange import tally
from placeproof.cost.exact.predict import Predicted

if TYPE_CHECKING:
    from placeproof.measure.measured import Measured
    from placeproof.measure.training.predicted import Differences

SCHEMA = "placeproof.measure/1"


def text(name: str, title: str, told: Predicted, measured: Measured, found: Differences) -> str:
    """Predicted and measured side by side, and whether they are equal."""
    world = 1
    for size in measured.mesh.values():
        world *= size
    lines = [
        f"{name}: {title}",
        f"{'' if ' ' in measured.torch else 'torch '}{measured.torch}, backend {measured.backend}, "
        f"rank {measured.rank} of {world}; {measured.shapes.name}, "
        f"{measured.shapes.elements:,} parameters; {measured.seconds:.1f} s",
        "",
    ]
    ours, theirs = tally(told.exchanges), tally(measured.exchanges)
    rows = [["calls in a step", "", "bytes", "predicted", "measured"]]
    for key in dict.fromkeys((*ours, *theirs)):
        kind, axes, size = key
        rows.append(
            [kind, ", ".join(axes), f"{size:,}", f"x {ours[key]}", f"x {theirs[key]}" + ("" if ours[key] == theirs[key] else "  <-")]
        )
    rows.append(["allocated, bytes" if told.held else "held, bytes", "", "", "predicted", "measured"])
    for state, ours_, theirs_ in _memory(told, measured):
        rows.append([state, "", "", f"{ours_:,}", f"{theirs_:,}" + ("" if ours_ == theirs_ else "  <-")])
    wide = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        aligned = [f"{row[0]:<{wide[0]}}", f"{row[1]:<{wide[1]}}", *(f"{c:>{w}}" for c, w in zip(row[2:], wide[2:], strict=True))]
        lines.append(("" if row[3] == "predicted" else "  ") + "  ".join(aligned).rstrip())
    lines += ["", "equal: every call and every byte was predicted" if not found else "different: see the lines marked <-"]
    return "\n".join(lines) + "\n"


def _memory(told: Predicted, measured: Measured) -> Iterator[tuple[str, int, int]]:
    """Rows of memory: what is allocated, and of what has padding on one side or the other, what is held."""
    for state, amount in told.memory.items():
        yield state, amount, measured.memory[state]
    for state, amount in told.held.items():
        found = measured.memory[f"{state}_held"]
        if state in told.padded or found != amount:
            yield f"{state}, held", amount, found


def as_data(name: str, told: Predicted, measured: Measured, found: Differences) -> dict[str, Any]:
    """The same for JSON."""
    ours, theirs = tally(told.exchanges), tally(measured.exchanges)
    calls = [
        {"kind": kind, "axes": list(axes), "bytes": size, "predicted": ours[kind, axes, size], "measured": theirs[kind, axes, size]}
        for kind, axes, size in dict.fromkeys((*ours, *theirs))
    ]
    memory = {k: {"predicted": v, "measured": measured.memory[k]} for k, v in told.memory.items()}
    held = {k: {"predicted": v, "measured": measured.memory[f"{k}_held"]} for k, v in told.held.items()}
    return {
        "schema": SCHEMA,
        "strategy": name,
        "implementation": measured.subject,
        "torch": measured.torch,
        "backend": measured.backend,
        "mesh": dict(measured.mesh),
        "rank": measured.rank,
        "calls": calls,
        "memory": memory,
        "held": held,
        "equal": not found,
    }
