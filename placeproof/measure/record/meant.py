"""Whether a step that is wrong for a mean is right for another loss that its author may mean, with the numbers of the recording.

One device trains a loss of one constant, whatever it is. So a step is wrong only if it is wrong for each constant that may be meant: a
product of numbers that stand in the loss, or of such and of what is counted, where these are folded into one number; and for a sum over
samples, of which there may always be as many. What is another number with other ranks is no constant; a mean without numbers has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import prod

from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.factor import Divisor, readings, written
from placeproof.measure.record.plan import StepPlan
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.write import write
from placeproof.programs import read
from placeproof.semantics.judge.verdict import all_obligations_hold

#: Numbers of a loss, by their places, and powers of what is counted, of which a constant is made.
_Way = tuple[tuple[int, ...], dict[str, int]]


def only_a_mean(plan: StepPlan, first: Recording, numbers: Sequence[Fraction], elsewhere: Callable[[], StepPlan | None]) -> None:
    """Raise InputError where a step that is refuted is right for another loss. ``numbers``: those in the loss that may hold a constant;
    ``elsewhere``: the step with other ranks, if constants have to be the same there."""
    turn = plan.turn
    for constant, ways in _constants(plan, numbers).items():
        for whole in (1, *(_sums(plan) if turn.summed else ())):
            if constant == whole == 1:
                continue
            step = replace(plan, turn=replace(turn, factor=turn.factor / whole), fixed=True)
            if all_obligations_hold(read(write(with_multiple(step, constant), first)[0])) and _stays(plan, elsewhere(), constant, ways):
                text = _said(numbers, constant, summed=whole > 1)
                refuse_lines(first.script, first.source, [(text, turn.line)], help=remedy(1 if whole > 1 else constant, 1))


def _sums(plan: StepPlan) -> set[int]:
    """Over how many elements, or samples, a sum may be meant: of all ranks, or, where all have as many, of a rank or of a micro-batch."""
    own = (plan.turn.count, plan.turn.rows)
    return {n for n in (*plan.total, *(() if plan.uneven else (n * turns for n in own for turns in (1, plan.turns)))) if n > 1}


def remedy(*constants: Fraction | int) -> str:
    """How to say which of these constants the loss has that is meant."""
    ways = dict.fromkeys(f"`--loss-constant {written(Fraction(c)).replace(' ', '')}`" for c in constants)
    return f"say by which constant the loss that is meant is a multiple of a mean: {' or '.join(ways)}"


def with_multiple(plan: StepPlan, constant: Fraction) -> StepPlan:
    """The step of which the loss is a multiple of a mean."""
    return replace(plan, turn=replace(plan.turn, factor=plan.turn.factor / constant), constant=constant)


def _constants(plan: StepPlan, numbers: Sequence[Fraction]) -> dict[Fraction, list[_Way]]:
    """All constants that may be meant, and of which numbers and counts each is made. Who divides by one number divides by a count, and
    perhaps by a whole number in it. What counts the elements of a sum is no constant."""
    if plan.turn.summed:
        per = (Fraction(1), *(Fraction(1, n) for n in plan.grid.sizes.values()))
        wholes = {size * one for size in _sums(plan) for one in per}
        numbers = [n for n in numbers if 1 / n not in wholes]
    found: dict[Fraction, list[_Way]] = {Fraction(1): []}
    places = [i for i, n in enumerate(plan.turn.numbers) if any(n is one for one in numbers)]
    for own in (own for n in range(1, len(places) + 1) for own in combinations(places, n)):
        for powers in _powers(_counts(plan)):
            found.setdefault(_product(plan, own, powers), []).append((own, powers))
    divided = all(isinstance(n, Divisor) and n.numerator == 1 for n in numbers)
    return {c: ways for c, ways in found.items() if not divided or c.numerator == 1}


def _stays(plan: StepPlan, other: StepPlan | None, constant: Fraction, ways: Sequence[_Way]) -> bool:
    """Whether a constant is the same with other ranks, or a number that is the same may be of ranks."""
    if other is None or not ways:
        return True
    alike = [i for i, (n, there) in enumerate(zip(plan.turn.numbers, other.turn.numbers, strict=True)) if n == there]
    of_ranks = [
        i
        for i in alike
        if not readings(plan.turn.numbers[i], {"microbatches": plan.turns}) and readings(plan.turn.numbers[i], _counts(plan))
    ]
    return any(_product(other, own, powers) == constant or {*own} <= {*of_ranks} for own, powers in ways)


def _counts(plan: StepPlan) -> dict[str, int]:
    return {"microbatches": plan.turns, **plan.grid.sizes}


def _product(plan: StepPlan, own: Sequence[int], powers: Mapping[str, int]) -> Fraction:
    counts = _counts(plan)
    above = prod((Fraction(counts.get(name, 1)) ** power for name, power in powers.items()), start=Fraction(1))
    return prod((plan.turn.numbers[i] for i in own), start=above)


def _powers(counts: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """By what a number is multiplied to leave a constant: losses are divided by micro-batches, and divided or multiplied by degrees."""
    for powers in product(*((0, 1) if name == "microbatches" else (0, 1, -1) for name in counts)):
        yield dict(zip(counts, powers, strict=True))


def _said(numbers: Collection[Fraction], constant: Fraction, *, summed: bool) -> str:
    if summed:
        times = "" if constant == 1 else f"{written(constant)} times "
        return f"this step trains {times}a sum over samples, and no mean: that may be meant, or a count of them is left out"
    within = "" if constant in numbers else f", which may be within {' and '.join(map(written, numbers))}"
    return f"this step is right if {written(constant)} is a constant of its loss{within}"
