"""Constants of a loss: numbers that stand in it, and are the same however many ranks there are. What one device trains has them, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import isfinite, prod

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.chain import refuse_lines, refuse_loss
from placeproof.measure.record.factor import SCALES, TOTAL, Answer, Asked, Divisor, readings, shown, written
from placeproof.measure.record.meant import only_a_mean, remedy, with_multiple
from placeproof.measure.record.plan import StepPlan
from placeproof.measure.record.recording import Recording
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge


class ByChanceError(InputError):
    """A factor that is right with the numbers of the recording alone: it may be a number, and the script right with these."""


#: The step with another number of ranks: what these did, and the step.
Again = Callable[[int], tuple[dict[int, Recording], StepPlan]]
#: A step as a program, and how its factors were read.
Program = tuple[str, Asked]


@dataclass(frozen=True, slots=True)
class Saying:
    """How a step is said. ``again``: it is recorded with another number of ranks, any of ``worlds``; ``said``: the program of a step;
    ``named``: the script is told its number of ranks by a name that it reads, or an argument."""

    again: Again
    worlds: Sequence[int]
    said: Callable[[Recording, StepPlan, Again], Program]
    named: bool


def with_constant(plan: StepPlan, first: Recording, program: Program, saying: Saying) -> tuple[StepPlan, Program]:
    """A step, and its program, of which the loss may be a multiple of a mean: of the mean, if that is not refuted, or of the multiple.

    Raises InputError where a number may be a constant of the loss, with which the step is right, and may be something else, and where a
    sum is divided by what nobody knows.
    """
    numbers = [n for n in plan.turn.numbers if n not in first.scales]
    if not (numbers or plan.turn.summed):
        return plan, program
    if judge(read(program[0])).word != "refuted":
        return plan, _as_batches(plan, first, program, saying)
    for places in _choices(plan.turn.numbers, first.scales):
        found = _proved(plan, first, places, saying)
        if found is not None:
            if not _constant(plan, first, places, saying):
                break
            first.constants = places
            return found
    _known(plan, first)
    _folded(plan, first, saying)
    only_a_mean(
        plan, first, numbers, lambda: None if program[1].fixed or saying.named else _elsewhere(plan, saying, len(plan.turn.numbers))[0]
    )
    return plan, program


def _as_batches(plan: StepPlan, first: Recording, program: Program, saying: Saying) -> Program:
    """The program of a step that is right if a number is of micro-batches. It says so of one that the script multiplies a loss by as it
    stands there: that may be a constant."""
    literals = {node.value for node in ast.walk(ast.parse("\n".join(first.source))) if isinstance(node, ast.Constant)}
    known = {Fraction(str(value)) for value in literals if isinstance(value, float) and isfinite(value)}
    unclear = next((n for n in plan.turn.numbers if not isinstance(n, Divisor) and abs(n) in known and _of_batches(n, plan)), None)
    if unclear is None:
        return program
    text = "{} stands in the script, and is taken to be of micro-batches: of a constant, `--loss-constant {}` says that it is one"
    plan.not_compared["factors"] = text.format(written(unclear), unclear)
    return saying.said(first, plan, saying.again)


def of_axes(number: Fraction, plan: StepPlan) -> bool:
    """Whether a number in a loss is a product of degrees as it is recorded, and none of micro-batches."""
    batches = readings(abs(number), {"microbatches": plan.turns})
    return abs(number) != 1 and not batches and bool(readings(abs(number), plan.grid.sizes))


def _choices(numbers: Sequence[Fraction], scales: set[Fraction]) -> Iterator[tuple[int, ...]]:
    """Which of the numbers may be constants of the loss, fewest first; the scale of a GradScaler is none."""
    own = [i for i, n in enumerate(numbers) if n not in scales]
    for count in range(1, len(own) + 1):
        yield from combinations(own, count)


def _proved(plan: StepPlan, first: Recording, places: Sequence[int], saying: Saying) -> tuple[StepPlan, Program] | None:
    """The program in which these numbers are a constant of the loss, if it is proved."""

    def again(world: int) -> tuple[dict[int, Recording], StepPlan]:
        recordings, other = saying.again(world)
        if len(other.turn.numbers) != len(plan.turn.numbers):
            refuse_lines(first.script, first.source, [("the loss has other numbers", other.turn.line)])
        return recordings, with_multiple(other, multiple.constant)

    multiple = with_multiple(plan, prod((plan.turn.numbers[i] for i in places), start=Fraction(1)))
    try:
        program = saying.said(first, multiple, again)
        return (multiple, program) if judge(read(program[0])).word == "proved" else None
    except ByChanceError:
        raise
    except InputError:
        return None


def _known(plan: StepPlan, first: Recording) -> None:
    """Raise InputError where a sum is multiplied or divided by numbers of which one is no count of ranks, micro-batches or elements."""
    turn, sizes = plan.turn, plan.grid.sizes if plan.turns == 1 else {**plan.grid.sizes, "microbatches": plan.turns}
    counts = (1, turn.count, turn.rows, *plan.total)
    lost = [n for n in turn.numbers if abs(n) != 1 and not any(readings(abs(n) * count, sizes) for count in counts)]
    text = "this loss is a sum, multiplied by {}: that is no count of its elements, of samples, of ranks or of micro-batches"
    refuse_loss(first.script, first.source, [(text.format(written(n)), turn.line) for n in lost[:1] if turn.summed])


def _folded(plan: StepPlan, first: Recording, saying: Saying) -> None:
    """Raise InputError where a number is no product of ranks, micro-batches and samples, and another one with other ranks."""
    sizes = plan.grid.sizes if plan.turns == 1 else {**plan.grid.sizes, "microbatches": plan.turns}
    counts = (1, plan.turn.count, plan.turn.rows)
    known = {n for n in plan.turn.numbers if any(readings(abs(n) * count, sizes) for count in counts)}
    odd = [(i, n) for i, n in enumerate(plan.turn.numbers) if n not in first.scales | known]
    if plan.turn.summed or not odd or (other := _elsewhere(plan, saying, len(plan.turn.numbers))[0]) is None:
        return
    lost = [n for i, n in odd if other.turn.numbers[i] != n]
    text = "the loss is multiplied by {}, another number with other numbers of ranks: multiply by a constant and by ranks apart"
    refuse_lines(first.script, first.source, [(text.format(written(n)), plan.turn.line) for n in lost[:1]])


def _constant(plan: StepPlan, first: Recording, places: Sequence[int], saying: Saying) -> bool:
    """Whether numbers are the same with another number of ranks. Raises InputError where they may be something else, all the same."""
    numbers = [plan.turn.numbers[i] for i in places if plan.turn.numbers[i] != -1]
    if not numbers:
        return True
    other, tried = _elsewhere(plan, saying, len(plan.turn.numbers))
    if other is not None and any(other.turn.numbers[i] != plan.turn.numbers[i] for i in places):
        return False
    common = len(plan.turn.common) if plan.turn.beside else len(plan.turn.numbers)
    named = saying.named or other is None
    found = [(plan.turn.numbers[i], i < common) for i in places if plan.turn.numbers[i] != -1]
    same = {*plan.grid.sizes} if named else {*_same(plan, other)}
    ways = [(n, way) for n, around in found for way in _ways(n, plan, same, around=around)]
    if other is None and not ways:
        ways = [(numbers[0], f"a product of the number of ranks ({tried})")]
    text = "the loss is multiplied by {}, which may be a constant, or {}: a script with which the two differ can be recorded"
    constant = prod(numbers, start=Fraction(1))
    help = remedy(constant, *(constant / n for n, _ in ways[:1]))
    refuse_lines(first.script, first.source, [(text.format(written(n), way), plan.turn.line) for n, way in ways[:1]], help=help)
    return True


def _elsewhere(plan: StepPlan, saying: Saying, count: int | None = None) -> tuple[StepPlan | None, str]:
    """The step with another number of ranks, and of every axis if there is one, and why there is none. ``count``: of the numbers around its
    loss, which are compared one by one; a division by a single rank is none."""
    tried, found = "", None
    for world in saying.worlds:
        try:
            other = saying.again(world)[1]
        except InputError as error:
            tried = f"with {world} ranks: {error.diagnostics[0].message}"
            continue
        if count is not None and len(other.turn.numbers) != count:
            tried = f"with {world} ranks: the loss has other numbers"
        elif not _same(plan, other):
            return other, ""
        else:
            found = found or other
    return found, "" if found is not None else tried


def _same(plan: StepPlan, other: StepPlan | None) -> dict[str, int]:
    """The degrees that are the same in another recording: a number that is made of these does not change, as a constant does not."""
    return {axis: n for axis, n in plan.grid.sizes.items() if n > 1 and (other is None or other.grid.sizes.get(axis) == n)}


def _ways(number: Fraction, plan: StepPlan, same: Collection[str], *, around: bool) -> Iterator[str]:
    """What else a number that is the same with other numbers of ranks may be: what does not change with these, as the degrees of the
    ``same`` axes. ``around``: it is around all that the loss adds up."""
    sizes = plan.grid.sizes if plan.turns == 1 else {**plan.grid.sizes, "microbatches": plan.turns}
    counts = {"elements": plan.turn.count, "samples": plan.turn.rows}
    for powers in sorted(readings(number, sizes)):
        if any(n == "microbatches" for n, _ in powers) or all(n in same for n, _ in powers):
            yield f"`{shown(powers)}`"
    for name, count in counts.items():
        if count > 1 and number in (count, Fraction(1, count)):
            yield f"the number of {name} of a micro-batch, or one divided by it"
    if around and number.denominator == 1 and number > 1 and number.numerator & (number.numerator - 1) == 0:
        yield "a scale by which gradients are to be divided"


def terms_alike(plan: StepPlan, first: Recording, saying: Saying) -> None:
    """Raise InputError where the terms of a loss have other weights with another number of ranks, or nobody can see that they have not."""
    own = plan.turn.scale[2]
    if not own:
        return
    lost = [] if any(_of_batches(n, plan) for n in plan.turn.common) else [n for n in plan.turn.apart if _of_batches(n, plan)]
    text = "some terms of this loss are multiplied by {}, and others not: of micro-batches, or a weight? Multiply their sum by it"
    refuse_lines(first.script, first.source, [(text.format(written(n)), plan.turn.line) for n in lost[:1]])
    other, tried = _elsewhere(plan, saying)
    if other is not None and other.turn.scale[2] != own:
        refuse_lines(
            first.script, first.source, [("with another number of ranks the terms of this loss have other weights", plan.turn.line)]
        )
    unclear = [f for f, _, _ in plan.turn.beside if abs(f) != 1 and readings(abs(f), _same(plan, other))]
    text = "a term of this loss is multiplied by {}, which may be a constant, or a product of the number of ranks{}"
    refuse_lines(
        first.script, first.source, [(text.format(written(f), f" ({tried})" if tried else ""), plan.turn.line) for f in unclear[:1]]
    )


def _of_batches(number: Fraction, plan: StepPlan) -> bool:
    """Whether a number may be of the number of micro-batches."""
    sizes = {**plan.grid.sizes, "microbatches": plan.turns}
    return plan.turns > 1 and any("microbatches" in dict(powers) for powers in readings(abs(number), sizes))


def numbers_alike(plan: StepPlan, first: Recording, saying: Saying) -> None:
    """Raise InputError where gradients are clipped, or bounded, with another number where there is another number of ranks, or with what
    may be one."""
    numbers = _numbers(plan)
    if all(abs(n) in (0, 1) for n, _ in numbers):
        return
    other, tried = _elsewhere(plan, saying)
    unclear = [n for n, given in numbers if not given and abs(n) != 1 and readings(abs(n), plan.grid.sizes)]
    text = ""
    if other is not None and _numbers(other) != numbers:
        unclear = [n for n, _ in sorted(numbers - _numbers(other))] or unclear
        text = "another number with another number of ranks: take a norm that has each element once, and constants"
    elif other is None and unclear:
        text = f"which may be a constant, or a product of the number of ranks ({tried})"
    elif other is None:
        plan.not_compared["clipping"] = "the script runs with this number of ranks alone: with what it clips is taken for constant"
    said = f"gradients are clipped, or bounded, with {', '.join(map(written, unclear))}, {text}"
    refuse_lines(first.script, first.source, [(said, _line(plan))] if text else [])


def _numbers(plan: StepPlan) -> frozenset[tuple[Fraction, bool]]:
    return frozenset().union(*(part.numbers for part in plan.parts))


def _line(plan: StepPlan) -> int:
    """The line of the script at which gradients are clipped or bounded."""
    chains = [part.chain for part in plan.parts]
    lines = [chain.clip.line for chain in chains if chain.clip] + [e.line for chain in chains for e in chain.by_element]
    return next(iter(lines), 0)


def of_samples(first: Recording, plan: StepPlan, asked: Asked, text: str, arguments: Sequence[str]) -> None:
    """Raise InputError for a number by which gradients are multiplied and that no count of the step makes, where the step would be refuted:
    it may be made of samples, as the sum of their weights is. A number that stands in the script is one, unless a sum has to be divided."""
    scales = {where.removeprefix(SCALES): a for where, a in asked.answers.items() if where.startswith(SCALES)}

    def counted(answer: Answer | None) -> bool:
        return answer is not None and (bool(answer.found) or any(readings(-value, asked.quantities) for value in answer.values))

    unread = [a for where, a in scales.items() if not counted(a) and not counted(asked.answers.get(TOTAL + where))]
    literals = {Fraction(n) for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", "\n".join((*first.source, *arguments)))}
    ways = {times for n in literals - {Fraction(0)} for times in (n, 1 / n)}

    def stands(value: Fraction) -> bool:
        return not plan.turn.summed and any(readings(value * times, asked.quantities) for times in ways)

    made = [a for a in unread if a.line and abs(a.values[0]) != 1 and not stands(a.values[0])]
    if made and not asked.fixed and judge(read(text), shortest=False).word == "refuted":
        said = "gradients are multiplied by {}, which is no product of counts of the step: it may be made of samples"
        refuse_lines(first.script, first.source, [(said.format(written(a.values[0])), a.line) for a in made[:8]])
