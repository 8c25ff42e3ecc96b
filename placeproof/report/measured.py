"""A measurement beside its prediction as a document: the schema ``placeproof.measure/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

from placeproof.core.exchange import tally
from placeproof.cost.exact.predict import Predicted
from placeproof.report.document import Code, Document, Lines, Section, section
from placeproof.report.text import columns

if TYPE_CHECKING:
    from placeproof.measure.measured import Measured
    from placeproof.measure.training.predicted import Differences

SCHEMA = "placeproof.measure/1"


def document(name: str, title: str, prediction: Predicted, measured: Measured, differences: Differences) -> Document:
    """Predicted and measured side by side, and whether they are equal."""
    return Document(
        name=name,
        sections=lambda: _sections(f"{name}: {title}", prediction, measured, equal=not differences),
        data=lambda: _data(name, prediction, measured, equal=not differences),
    )


def _sections(title: str, prediction: Predicted, measured: Measured, *, equal: bool) -> Iterator[Section]:
    system = f"{'' if ' ' in measured.torch else 'torch '}{measured.torch}, backend {measured.backend}"
    shapes = f"{measured.shapes.name}, {measured.shapes.elements:,} parameters"
    where = f"rank {measured.rank} of {prod(measured.mesh.values())}"
    verdict = "equal: every call and every byte was predicted" if equal else "different: see the lines marked <-"
    about = f"{system}, {where}; {shapes}; {measured.seconds:.1f} s"
    yield section(title, Lines([verdict, about]), detail="answer", brief=f"{title}: {verdict.partition(': see')[0]}")
    ours, theirs = tally(prediction.exchanges), tally(measured.exchanges)
    rows = [("calls in a step", "", "bytes", "predicted", "measured")]
    for key in dict.fromkeys((*ours, *theirs)):
        kind, axes, size = key
        rows.append((kind, ", ".join(axes), f"{size:,}", f"x {ours[key]}", f"x {theirs[key]}{_mark(ours[key], theirs[key])}"))
    rows.append(("allocated, bytes" if prediction.held else "held, bytes", "", "", "predicted", "measured"))
    for state, amount, other in _memory(prediction, measured):
        rows.append((state, "", "", f"{amount:,}", f"{other:,}{_mark(amount, other)}"))
    heads = [row[3] == "predicted" for row in rows]
    lines = columns(rows, (2, 3, 4), "")
    yield section("", Code([line if head else f"  {line}" for head, line in zip(heads, lines, strict=True)]))


def _mark(ours: int, theirs: int) -> str:
    return "" if ours == theirs else "  <-"


def _memory(prediction: Predicted, measured: Measured) -> Iterator[tuple[str, int, int]]:
    """Rows of memory: what is allocated, and of what has padding on one side or the other, what is held."""
    for state, amount in prediction.memory.items():
        yield state, amount, measured.memory[state]
    for state, amount in prediction.held.items():
        held = measured.memory[f"{state}_held"]
        if state in prediction.padded or held != amount:
            yield f"{state}, held", amount, held


def _data(name: str, prediction: Predicted, measured: Measured, *, equal: bool) -> dict[str, Any]:
    ours, theirs = tally(prediction.exchanges), tally(measured.exchanges)
    calls = [
        {"kind": kind, "axes": list(axes), "bytes": size, "predicted": ours[kind, axes, size], "measured": theirs[kind, axes, size]}
        for kind, axes, size in dict.fromkeys((*ours, *theirs))
    ]
    memory = {k: {"predicted": v, "measured": measured.memory[k]} for k, v in prediction.memory.items()}
    held = {k: {"predicted": v, "measured": measured.memory[f"{k}_held"]} for k, v in prediction.held.items()}
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
        "equal": equal,
    }
