"""A counterexample replayed on real processes: each device of the mesh is one, its collectives are those of ``torch.distributed`` on gloo.

The arithmetic is exact: what a process ends with has to be what the proof's simulator said, number by number. A training step is run by
the simulator's runner, in fractions, each process for its own device; where float64 can hold the numbers of the single device, these are
computed a second time, with gradients by ``torch.autograd``. A block is run by its simulator's runner in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

from placeproof.measure.processes import Outcome, message, run
from placeproof.measure.replay.ended import Ended, Tables
from placeproof.measure.replay.file import Counterexample, bits

Word = Literal["reproduced", "differs", "crashed", "timed out", "not replayed"]
#: Seconds that a collective waits: where the proof says that the run does not end, and elsewhere.
WAITS_IN_VAIN = 5.0
WAITS = 20.0
#: What processes say of a program, or a file, that has no meaning here.
_NOT_REPLAYED = ("NotReplayedError", "MissingNumberError", "NoMeaningError")
#: The arithmetic of a replay.
EXACT = "fractions"
#: What the single device of a step is computed in a second time; and by how much of the largest number a rounded one may be off.
BY_AUTOGRAD = "float64 (one device, by torch.autograd)"
_OFF = Fraction(1, 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A number that differs from what was predicted. ``rank`` is None for the reference's; None for a number that is not there."""

    arithmetic: str
    rank: int | None
    table: str
    element: str
    predicted: Fraction | None
    got: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay. ``compared``: how many numbers were compared, over all processes. ``rounds``: why there is no run in
    float64, or that it rounded; else empty. ``why``: what happened, rank by rank, or why there is no replay."""

    word: Word
    found: Counterexample
    outcomes: tuple[Outcome[Ended], ...]
    compared: int = 0
    wrong: tuple[Wrong, ...] = ()
    arithmetics: tuple[str, ...] = ()
    rounds: str = ""
    why: str = ""


def replay(counterexample: Counterexample, *, timeout: float = 120, waits: float | None = None) -> Replayed:
    """Run a counterexample on as many processes as it has devices, and compare. ``timeout``: seconds for the whole run; ``waits``: for
    one collective. Raises InputError for a mesh that one machine cannot run."""
    from placeproof.measure.replay import process

    waits = waits if waits is not None else WAITS if counterexample.ends is not None else WAITS_IN_VAIN
    rounds = _rounds(counterexample)

    def job(rank: int, world: int, folder: Path) -> Ended:
        return process.ended(counterexample, rank, not rounds, waits)

    return _judged(counterexample, run(counterexample.world, job, timeout=timeout, collective_timeout=waits), rounds)


def _of_reference(counterexample: Counterexample) -> Iterator[Fraction]:
    yield from (n for table in counterexample.reference.values() for n in table.values())


def _rounds(counterexample: Counterexample) -> str:
    """Why float64 cannot hold the numbers that are computed in it; empty if it can hold those that were predicted."""
    if counterexample.ends is None:
        return "the run does not end"
    if counterexample.kind == "block":
        return "a block is run in fractions alone"
    for number in _of_reference(counterexample):
        try:
            exact = Fraction(float(number)) == number
        except OverflowError:
            exact = False
        if not exact:
            return f"float64 cannot hold {number if bits(number) < 200 else f'a number of {bits(number)} bits'}"
    return ""


# The verdict.


def _judged(counterexample: Counterexample, outcomes: list[Outcome[Ended]], rounds: str) -> Replayed:
    replayed = Replayed(word="reproduced", found=counterexample, outcomes=tuple(outcomes), rounds=rounds)
    failed = [o for o in outcomes if o.kind != "ok"]
    if any(name in (o.error or "") for o in failed for name in _NOT_REPLAYED):
        return replace(replayed, word="not replayed", why=message(outcomes))
    if counterexample.ends is None:
        return replace(
            replayed, word="reproduced" if failed and _as_predicted(counterexample, outcomes) else "differs", why=message(outcomes)
        )
    if failed:
        return replace(replayed, word="crashed" if any(o.kind != "timeout" for o in failed) else "timed out", why=message(outcomes))
    values = [o.value for o in outcomes if o.value is not None]
    pairs: list[tuple[int | None, Tables, Tables]]
    pairs = [(rank, end.tables, value.tables) for rank, (end, value) in enumerate(zip(counterexample.ends, values, strict=True))]
    pairs.insert(1, (None, counterexample.reference, values[0].reference))
    replayed = replace(
        replayed, compared=sum(len(table) for _, predicted, _ in pairs for table in predicted.values()), arithmetics=(EXACT,)
    )
    wrong = [w for pair in pairs for w in _differences(EXACT, *pair)]
    if not wrong and not rounds:
        rounded = list(_differences(BY_AUTOGRAD, None, counterexample.reference, values[0].by_autograd))
        wrong = [w for w in rounded if _is_off(counterexample, w)]
        if not rounded:
            return replace(replayed, arithmetics=(EXACT, BY_AUTOGRAD))
        replayed = replayed if wrong else replace(replayed, rounds=f"float64 rounds {len(rounded)} of the numbers on the way")
    return replace(replayed, word="differs", wrong=tuple(wrong)) if wrong else replayed


def _is_off(counterexample: Counterexample, wrong: Wrong) -> bool:
    """Whether a number of the single device is farther off than rounding explains: it has another gradient."""
    if wrong.got is None or wrong.predicted is None:
        return False
    return abs(wrong.got - wrong.predicted) > _OFF * max(map(abs, _of_reference(counterexample)))


def _as_predicted(counterexample: Counterexample, outcomes: list[Outcome[Ended]]) -> bool:
    """Whether the run failed in the way that was predicted: devices wait for ever, meet in different collectives, lack
    something, or hold what is not theirs."""
    why = counterexample.shown.why or ""
    errors = " ".join(o.error or "" for o in outcomes)
    if "different collectives" in why:
        return "DifferentCollectivesError" in errors
    if "shapes do not fit" in why or "nothing to gather" in why:
        return "NothingThereError" in errors
    if "not home" in why:
        return "NotHomeError" in errors
    stuck = {tuple(at.values()) for at in counterexample.stuck}
    left = {place for place, o in zip(counterexample.places, outcomes, strict=True) if o.kind != "ok"}
    return stuck == left and any(o.kind == "timeout" for o in outcomes)


def _differences(arithmetic: str, rank: int | None, predicted: Tables, got: Tables) -> Iterator[Wrong]:
    for table in dict.fromkeys((*predicted, *got)):
        wanted, there = predicted.get(table, {}), got.get(table, {})
        for element in dict.fromkeys((*wanted, *there)):
            pair = wanted.get(element), there.get(element)
            if pair[0] != pair[1]:
                yield Wrong(arithmetic=arithmetic, rank=rank, table=table, element=element, predicted=pair[0], got=pair[1])
