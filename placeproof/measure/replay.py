"""A counterexample replayed on real processes: each device of the mesh is one, its collectives are those of ``torch.distributed`` on gloo.

The arithmetic is exact: what a process ends with has to be what the proof's simulator said, number by number. A training step is run by
the simulator's runner, in fractions, each process for its own device; where float64 can hold the numbers of the single device, these are
computed a second time, with gradients by ``torch.autograd``. A block is run in residues, and in float64 where that can hold all numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from placeproof.measure.processes import Outcome, message, run
from placeproof.measure.replay_file import Counterexample, Named

if TYPE_CHECKING:
    from torch import Tensor

    from placeproof.measure.replay_numbers import Residues

Word = Literal["reproduced", "differs", "crashed", "timed out", "not replayed"]
#: Seconds that a collective waits: where the proof says that the run does not end, and elsewhere.
WAITS_IN_VAIN = 5.0
WAITS = 20.0
#: The least number of bits that a fraction may have.
LEAST_BITS = 128
#: The most bits of a number: the primes that longer ones need take gigabytes.
MOST_BITS = 100_000
#: What processes say of a program, or a file, that has no meaning here.
_NOT_REPLAYED = ("NotReplayedError", "MissingNumberError", "NoMeaningError")
#: The table of the reference's derivative, where that is what a block should have returned.
DERIVATIVE = "derivative"
#: What the single device of a step is computed in a second time; and by how much of the largest number a rounded one may be off.
BY_AUTOGRAD = "float64 (one device, by torch.autograd)"
_OFF = Fraction(1, 2**20)


class Table(NamedTuple):
    """Numbers by name, as the arithmetic of the run holds them."""

    names: list[str]
    data: Tensor | list[Fraction]


@dataclass(frozen=True, slots=True)
class Plain:
    """An arithmetic whose numbers a process says as fractions."""

    name: str

    @staticmethod
    def holds(number: Fraction, value: Fraction) -> bool:
        """Whether one number is this fraction."""
        return number == value


Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process ends with: its tables by the name of the arithmetic. ``reference``: what one device ends with, computed by the first
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
    exact: Residues | Plain | None = None


def replay(found: Counterexample, *, timeout: float = 120, waits: float | None = None) -> Replayed:
    """Run a counterexample on as many processes as it has devices, and compare. ``timeout``: seconds for the whole run; ``waits``: for
    one collective. Raises InputError for a mesh that one machine cannot run."""
    from placeproof.measure import replay_run

    waits = waits if waits is not None else WAITS if found.ends is not None else WAITS_IN_VAIN
    rounds = _rounds(found)
    longest = max([LEAST_BITS, *(_bits(n) for n in _predicted(found))])
    if longest > MOST_BITS:
        why = f"the run has numbers of {longest} bits, and at most {MOST_BITS} are computed"
        return Replayed(word="not replayed", found=found, outcomes=(), why=why)
    for arithmetics in _arithmetics(found, longest, also_rounded=not rounds):

        def job(rank: int, world: int, folder: Path, of: list[Residues | Plain] = arithmetics) -> Held:
            return replay_run.held(found, rank, of, waits)

        outcomes = run(found.world, job, timeout=timeout, collective_timeout=waits)
        if not any("TooLongError" in (o.error or "") for o in outcomes):
            break
    return _judged(found, outcomes, arithmetics, rounds)


def _arithmetics(found: Counterexample, longest: int, *, also_rounded: bool) -> Iterator[list[Residues | Plain]]:
    """The exact arithmetic and, if asked for, the one that may round. Of a block, also what to try where numbers get longer on the way."""
    from placeproof.measure.replay_numbers import Residues

    if found.kind == "step":
        yield [Plain("fractions"), *([Plain(BY_AUTOGRAD)] if also_rounded else [])]
        return
    for bits in (longest, min(16 * longest, MOST_BITS)):
        yield [Residues.for_numbers(bits)]


def _bits(number: Fraction) -> int:
    return max(abs(number.numerator).bit_length(), number.denominator.bit_length())


def _predicted(found: Counterexample) -> Iterator[Fraction]:
    yield from _of_reference(found)
    yield from (n for end in found.ends or () for table in end.tables.values() for n in table.values())


def _of_reference(found: Counterexample) -> Iterator[Fraction]:
    yield from (n for table in found.reference.values() for n in table.values())


def _rounds(found: Counterexample) -> str:
    """Why float64 cannot hold the numbers that are computed in it; empty if it can hold those that were predicted."""
    if found.ends is None:
        return "the run does not end"
    if found.kind == "block":
        return "a block is run in residues alone"
    for number in _of_reference(found):
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


def _judged(found: Counterexample, outcomes: list[Outcome[Held]], arithmetics: list[Residues | Plain], rounds: str) -> Replayed:
    one = Replayed(word="reproduced", found=found, outcomes=tuple(outcomes), rounds=rounds, exact=arithmetics[0])
    failed = [o for o in outcomes if o.kind != "ok"]
    if any(name in (o.error or "") for o in failed for name in _NOT_REPLAYED):
        return replace(one, word="not replayed", why=message(outcomes))
    if found.ends is None:
        return replace(one, word="reproduced" if failed and _as_predicted(found, outcomes) else "differs", why=message(outcomes))
    if failed:
        return replace(one, word="crashed" if any(o.kind != "timeout" for o in failed) else "timed out", why=message(outcomes))
    exact, *others = (_compared(found, outcomes, of) for of in arithmetics)
    if exact.wrong:
        return replace(one, word="differs", compared=exact.numbers, wrong=tuple(exact.wrong), arithmetics=(arithmetics[0].name,))
    for of, other in zip(arithmetics[1:], others, strict=True):
        far = [w for w in other.wrong if isinstance(of, Plain) and _is_off(found, w)]
        if far:
            return replace(one, word="differs", compared=exact.numbers, wrong=tuple(far), arithmetics=(arithmetics[0].name,))
        if other.wrong:
            rounds = f"float64 rounds {len(other.wrong)} of the numbers on the way"
    right = [of.name for of, compared in zip(arithmetics, (exact, *others), strict=True) if not compared.wrong]
    return replace(one, compared=exact.numbers, arithmetics=tuple(right), rounds=rounds)


def _is_off(found: Counterexample, wrong: Wrong) -> bool:
    """Whether a number of the single device is farther off than rounding explains: it has another gradient."""
    if not isinstance(wrong.got, Fraction) or wrong.predicted is None:
        return False
    return abs(wrong.got - wrong.predicted) > _OFF * max(map(abs, _of_reference(found)))


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


def _compared(found: Counterexample, outcomes: list[Outcome[Held]], of: Residues | Plain) -> _Compared:
    """The numbers of all processes, and those of the single device, as far as they are computed in one arithmetic."""
    assert found.ends is not None
    pairs: list[tuple[int | None, Mapping[str, Named], Tables]] = []
    for outcome, end in zip(outcomes, found.ends, strict=True):
        assert outcome.value is not None
        if of.name in outcome.value.tables:
            pairs.append((outcome.rank, end.tables, outcome.value.tables[of.name]))
        if of.name in outcome.value.reference:
            pairs.append((None, found.reference, outcome.value.reference[of.name]))
    count = sum(len(table) for _, predicted, _ in pairs for table in predicted.values())
    differ = [wrong for rank, predicted, got in pairs for wrong in _differences(of, rank, predicted, got)]
    unsaid = {outcome.rank: end.unsaid for outcome, end in zip(outcomes, found.ends, strict=True)}
    return _Compared(count, [w for w in differ if w.rank is None or w.element not in unsaid[w.rank].get(w.table, ())])


def _differences(of: Any, rank: int | None, predicted: Mapping[str, Named], got: Tables) -> Iterator[Wrong]:
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


def _told(of: Any, row: Tensor | Fraction) -> Fraction | str:
    """The number itself; in words where it is too long to be told."""
    if isinstance(row, Fraction):
        return row
    from placeproof.measure.replay_numbers import TooLongError

    try:
        return of.decode(row[None])[0]  # type: ignore[no-any-return]
    except TooLongError as error:
        return str(error)
