"""Whether one step program does what another does: the same reductions of the same states, the same scale, gathers where they are used.

Both are brought to the same form first. What a lowering may choose is not part of it: an all-reduce or a reduce-scatter for a gradient (the
placement says which part is needed), an all-gather or a broadcast by each owner after the update, how many units or buckets there are,
whether a gradient is reduced once for each micro-batch or once for all of them. What remains is compared group by group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from placeproof.core.diagnostics import Place
from placeproof.core.program import Program
from placeproof.prove import Budget
from placeproof.semantics.refine_flows import Flow, Flows, flows
from placeproof.semantics.verdict import Judged, judge

Word = Literal["refines", "differs, and both are proved", "differs, and the recorded step is refuted", "unknown"]

#: What the parts of a flow are called, in the order in which a step comes to them.
PARTS = {
    "without": "what is not assumed",
    "reference": "what one device does besides",
    "parameters": "the parameters lie",
    "optimizer": "the optimizer state lies",
    "sent": "before forward, parameters are sent to all over",
    "same": "samples are sent to all over",
    "forward": "forward gathers parameters over",
    "block forward": "blocks exchange activations in forward over",
    "backward": "backward gathers parameters over",
    "block backward": "blocks exchange gradients of activations in backward over",
    "statistics": "statistics of the batch are reduced over",
    "reduced": "gradients are reduced over",
    "scale": "gradients of the mean loss are scaled by",
    "norm": "the norm that clips sums squares over",
    "refreshed": "after the update, parameters are made whole over",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A part of the flow of a group that two programs do not share: what each does, and where (None: nowhere)."""

    part: str
    group: str
    left: str
    right: str
    left_place: Place | None
    right_place: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """What came out. ``left``: the step that is asked about, ``right``: the one that it is held against."""

    word: Word
    differences: tuple[Difference, ...]
    left: Judged
    right: Judged


def refine(left: Program, right: Program, *, budget: Budget | None = None) -> Refinement:
    """Compare two programs of training steps, and prove both. Raises InputError for a program that is no well-formed training step."""
    judged, against = judge(left, budget=budget), judge(right, budget=budget)
    found = differences(judged.program, against.program)
    return Refinement(word=_word(judged, against, bool(found)), differences=found, left=judged, right=against)


def _word(left: Judged, right: Judged, differ: bool) -> Word:
    """Two steps that do the same and are not judged the same: then one of the two forms says too little, and nothing is claimed."""
    if left.word == "refuted":
        return "differs, and the recorded step is refuted"
    if left.word == "unknown" or right.word != "proved":
        return "unknown"
    return "differs, and both are proved" if differ else "refines"


def differences(left: Program, right: Program) -> tuple[Difference, ...]:
    """Where two programs part ways, in the order in which a step comes to it. ``left``'s axes may have other names than ``right``'s."""
    one, other = flows(left), flows(right)
    names = _renamed(left, right)
    found = []
    for part, group in ((p, g) for p in PARTS for g in _groups(one, other)):
        a, b = _of(one, group).get(part), _of(other, group).get(part)
        mine, theirs = _shown(a, names), _shown(b, {})
        if mine != theirs:
            places = (a.place if a else None, b.place if b else None)
            found.append(Difference(part=part, group=group, left=mine, right=theirs, left_place=places[0], right_place=places[1]))
    return tuple(found)


def _groups(one: Flows, other: Flows) -> list[str]:
    """Groups by name; one that is all of the parameters is held against every group of the other side."""
    return sorted(set(one) | set(other)) if len(one) == len(other) else max((list(one), list(other)), key=len)


def _of(found: Flows, group: str) -> dict[str, Flow]:
    if group in found:
        return found[group]
    return next(iter(found.values())) if len(found) == 1 else {}


def _shown(flow: Flow | None, names: dict[str, str]) -> str:
    if flow is None:
        return "nothing"
    if isinstance(flow.value, frozenset):
        return ", ".join(sorted(names.get(a, a) for a in flow.value)) or "nothing"
    return flow.value.shown(names)


def _renamed(left: Program, right: Program) -> dict[str, str]:
    """Axes that split the same thing are the same axis, where there is one of each."""
    found = {}
    theirs = {a.name for a in right.axes}
    for axis in left.axes:
        alike = [b.name for b in right.axes if b.splits.name == axis.splits.name]
        own = [a for a in left.axes if a.splits.name == axis.splits.name]
        if axis.name not in theirs and len(alike) == len(own) == 1:
            found[axis.name] = alike[0]
    return found
