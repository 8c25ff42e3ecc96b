"""A counterexample replayed on real processes: each device of the mesh is one, its collectives are those of ``torch.distributed`` on gloo.

The arithmetic is exact. Each process runs the program twice: in residues, which nothing rounds, and in float64 where float64 can hold every
number of the run. What a process ends with has to be what the proof's simulator said, number by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from placeproof.measure.processes import Outcome, message, run
from placeproof.measure.replay_file import Counterexample, Named

if TYPE_CHECKING:
    from torch import Tensor

    from placeproof.measure.replay_numbers import Arithmetic

Word = Literal["reproduced", "differs", "crashed", "timed out", "not replayed"]
#: Seconds that a collective waits: where the proof says that the run does not end, and elsewhere.
WAITS_IN_VAIN = 5.0
WAITS = 20.0
#: The least number of bits that a fraction may have.
LEAST_BITS = 128
#: The most bits of a number: the primes that longer ones need take gigabytes.
MOST_BITS = 100_000
#: The table of the reference's derivative, where that is what a block should have returned.
DERIVATIVE = "derivative"


class Table(NamedTuple):
    """Numbers by name, as the arithmetic of the run holds them."""

    names: list[str]
    data: Tensor


Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process ends with: its tables in each arithmetic, by name. ``reference``: what one device ends with, computed by the first
    process."""

    tables: Mapping[str, Tables]
    reference: Mapping[str, Tables] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A number that differs from what was predicted. ``rank`` is None for the reference's; None for a number that is not there."""

    arithmetic: str
    rank: int | None
    table: str
    element: str
    predicted: Fraction | None
    got: Fraction | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay. ``compared``: how many numbers were compared, over all processes. ``rounds``: why there is no run in
    float64, or that it rounded; else empty. ``why``: what happened, rank by rank, or why there is no replay. ``exact``: the arithmetic in
    which nothing is rounded."""

    word: Word
    found: Counterexample
    outcomes: tuple[Outcome[Held], ...]
    compared: int = 0
    wrong: tuple[Wrong, ...] = ()
    arithmetics: tuple[str, ...] = ()
    rounds: str = ""
    why: str = ""
    exact: Arithmetic | None = None


def replay(found: Counterexample, *, timeout: float = 120, waits: float | None = None) -> Replayed:
    """Run a counterexample on as many processes as it has devices, and compare. ``timeout``: seconds for the whole run; ``waits``: for
    one collective. Raises InputError for a mesh that one machine cannot run."""
    from placeproof.measure import replay_run
    from placeproof.measure.replay_numbers import Float64, Residues

    waits = waits if waits is not None else WAITS if found.ends is not None else WAITS_IN_VAIN
    rounds = _rounds(found)
    longest = max([LEAST_BITS, *(_bits(n) for n in _predicted(found))])
    if longest > MOST_BITS:
        why = f"the run has numbers of {longest} bits, and at most {MOST_BITS} are computed"
        return Replayed(word="not replayed", found=found, outcomes=(), why=why)
    for bits in (longest, min(16 * longest, MOST_BITS)):
        arithmetics: list[Arithmetic] = [Residues.for_numbers(bits), *([] if rounds else [Float64()])]

        def job(rank: int, world: int, folder: Path, of: list[Arithmetic] = arithmetics) -> Held:
            return replay_run.held(found, rank, of, waits)

        outcomes = run(found.world, job, timeout=timeout, collective_timeout=waits)
        if not any("TooLongError" in (o.error or "") for o in outcomes):
            break
    return _judged(found, outcomes, arithmetics, rounds)


def _bits(number: Fraction) -> int:
    return max(abs(number.numerator).bit_length(), number.denominator.bit_length())


def _predicted(found: Counterexample) -> Iterator[Fraction]:
    tables = [found.reference, *(end.tables for end in found.ends or ())]
    yield from (n for of in tables for table in of.values() for n in table.values())


def _rounds(found: Counterexample) -> str:
    """Why float64 cannot hold the numbers of the run; empty if it can hold those that were predicted."""
    if found.ends is None:
        return "the run does not end"
    if found.kind == "block":
        return "a block is run in residues alone"
    for number in _predicted(found):
        try:
            exact = Fraction(float(number)) == number
        except OverflowError:
            exact = False
        if not exact:
            return f"float64 cannot hold {_short(number)}"
    return ""


def _short(number: Fraction) -> str:
    return str(number) if _bits(number) < 200 else f"a number of {_bits(number)} bits"


# The verdict.


def _judged(found: Counterexample, outcomes: list[Outcome[Held]], arithmetics: list[Arithmetic], rounds: str) -> Replayed:
    one = Replayed(word="reproduced", found=found, outcomes=tuple(outcomes), rounds=rounds, exact=arithmetics[0])
    failed = [o for o in outcomes if o.kind != "ok"]
    if any(name in (o.error or "") for o in failed for name in ("NotReplayedError", "MissingNumberError")):
        return replace(one, word="not replayed", why=message(outcomes))
    if found.ends is None:
        return replace(one, word="reproduced" if failed and _as_predicted(found, outcomes) else "differs", why=message(outcomes))
    if failed:
        return replace(one, word="crashed" if any(o.kind != "timeout" for o in failed) else "timed out", why=message(outcomes))
    exact, *others = (_compared(found, outcomes, of) for of in arithmetics)
    if exact.wrong:
        return replace(one, word="differs", compared=exact.numbers, wrong=tuple(exact.wrong), arithmetics=(arithmetics[0].name,))
    for other in others:
        if other.wrong:
            rounds = f"float64 rounds {len(other.wrong)} of the numbers on the way"
    right = [of.name for of, compared in zip(arithmetics, (exact, *others), strict=True) if not compared.wrong]
    return replace(one, compared=exact.numbers, arithmetics=tuple(right), rounds=rounds)


def _as_predicted(found: Counterexample, outcomes: list[Outcome[Held]]) -> bool:
    """Whether the run failed in the way that was predicted: devices wait for ever, meet in different collectives, lack
    something, or hold what is not theirs."""
    why = found.shown.why or ""
    errors = " ".join(o.error or "" for o in outcomes)
    if "different collectives" in why:
        return "DifferentCollectivesError" in errors
    if "shapes do not fit" in why or "nothing to gather" in why:
        return "NothingThereError" in errors
    if "not home" in why:
        return "NotHomeError" in errors
    stuck = {tuple(at.values()) for at in found.stuck}
    left = {place for place, o in zip(found.places, outcomes, strict=True) if o.kind != "ok"}
    return stuck == left and any(o.kind == "timeout" for o in outcomes)


class _Compared(NamedTuple):
    """How many numbers were compared, and those that differ."""

    numbers: int
    wrong: list[Wrong]


def _compared(found: Counterexample, outcomes: list[Outcome[Held]], of: Arithmetic) -> _Compared:
    """The numbers of all processes, and those of the single device, in one arithmetic."""
    assert found.ends is not None
    pairs: list[tuple[int | None, Mapping[str, Named], Tables]] = []
    unsaid = {outcome.rank: end.unsaid for outcome, end in zip(outcomes, found.ends, strict=True)}
    for outcome, end in zip(outcomes, found.ends, strict=True):
        assert outcome.value is not None
        pairs.append((outcome.rank, end.tables, outcome.value.tables[of.name]))
        if of.name in outcome.value.reference:
            pairs.append((None, found.reference, outcome.value.reference[of.name]))
    count = sum(len(table) for _, predicted, _ in pairs for table in predicted.values())
    differ = [wrong for rank, predicted, got in pairs for wrong in _differences(of, rank, predicted, got)]
    return _Compared(count, [w for w in differ if w.rank is None or w.element not in unsaid[w.rank].get(w.table, ())])


def _differences(of: Arithmetic, rank: int | None, predicted: Mapping[str, Named], got: Tables) -> Iterator[Wrong]:
    for table in dict.fromkeys((*predicted, *got)):
        wanted = predicted.get(table, {})
        there = dict(zip(got[table].names, got[table].data, strict=True)) if table in got else {}
        for element in dict.fromkeys((*wanted, *there)):
            row, number = there.get(element), wanted.get(element)
            if row is None or number is None or not of.holds(row, number):
                told = None if row is None else _told(of, row)
                yield Wrong(arithmetic=of.name, rank=rank, table=table, element=element, predicted=number, got=told)


def got_by(one: Replayed, rank: int, table: str, element: str) -> Fraction | str | None:
    """A number that a process ended with; in words where it is too long, None where there is none."""
    value = one.outcomes[rank].value
    got = None if value is None or one.exact is None else value.tables[one.exact.name].get(table)
    if got is None or one.exact is None or element not in got.names:
        return None
    return _told(one.exact, got.data[got.names.index(element)])


def _told(of: Arithmetic, row: Tensor) -> Fraction | str:
    """The number itself; in words where it is too long to be told."""
    from placeproof.measure.replay_numbers import TooLongError

    try:
        return of.decode(row[None])[0]
    except TooLongError as error:
        return str(error)
