"""Records one training step of a script and writes it as a step program.

The script runs as it is; what it computes with the gradients of its parameters, and what it exchanges, is followed value by value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product
from math import prod
from pathlib import Path
from time import monotonic
from typing import ParamSpec, TypeVar

from placeproof.core.diagnostics import Diagnostic, InputError, Problems, refuse
from placeproof.core.files import read_text
from placeproof.core.mesh import SPLITS
from placeproof.measure.record.adapted import adapted, refuse_adapted
from placeproof.measure.record.agreeing import agree
from placeproof.measure.record.axes import Grid, grid, with_stages
from placeproof.measure.record.chain import BY_HAND, LossError, noted, refuse_lines
from placeproof.measure.record.checked import (
    as_one_process,
    copies_end_alike,
    differ_alike,
    in_numbers,
    in_parts,
    independent,
    unless_several,
)
from placeproof.measure.record.clips import clipped
from placeproof.measure.record.constant import Again, ByChanceError, Saying, numbers_alike, of_axes, of_samples, terms_alike, with_constant
from placeproof.measure.record.crossed import crossed
from placeproof.measure.record.dealt import dealt
from placeproof.measure.record.dropped import dropped
from placeproof.measure.record.experts import number_alike
from placeproof.measure.record.factor import SCALES, Answer, Asked, Reading, deciding, shown, written
from placeproof.measure.record.grouped import Groups
from placeproof.measure.record.handed import handed
from placeproof.measure.record.later import Later, Traced
from placeproof.measure.record.launch import (
    ALL_RANKS,
    SOON,
    TIMEOUT,
    EndedError,
    Launch,
    beyond_step,
    derivative_of,
    faked,
    forked,
    functions_of,
    numbers_of,
    received_once,
    scaled_twice,
    with_samples,
)
from placeproof.measure.record.losses import as_one
from placeproof.measure.record.lost import lost
from placeproof.measure.record.meant import remedy, with_multiple
from placeproof.measure.record.misplaced import misplaced
from placeproof.measure.record.overwritten import overwritten
from placeproof.measure.record.parted import parted
from placeproof.measure.record.pipeline import by_stages, joined
from placeproof.measure.record.plan import StepPlan, unlike_buffers
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.stages import read_stages
from placeproof.measure.record.strayed import strayed
from placeproof.measure.record.summed import summed
from placeproof.measure.record.together import Numbers, Samples, Together, Trial, UnlikeError, together
from placeproof.measure.record.untrained import untrained
from placeproof.measure.record.witness import Witness
from placeproof.measure.record.write import write
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

#: How factors are to be read, by where a program says them.
_P = ParamSpec("_P")
_T = TypeVar("_T")
Left = dict[str, frozenset[Reading]]
#: How many ways to read the factors of a step are judged, each by itself.
_WAYS = 32
#: How many times as long as ranks that were asked for others may take at most.
_OTHERS = 20


class RefutedError(InputError):
    """No program says a step, for these problems; and real processes refute it: they are a ``witness``."""

    def __init__(self, diagnostics: Iterable[Diagnostic], witness: Witness) -> None:
        super().__init__(diagnostics)
        self.witness = witness


def trace(
    script: Path,
    *,
    world: int | None = None,
    backend: str = "fake",
    step: int = 1,
    splits: Mapping[str, str] | None = None,
    constant: Fraction | None = None,
    arguments: Sequence[str] = (),
    timeout: float = TIMEOUT,
) -> Traced:
    """The step program of a script's step, from 1. ``constant``: the loss that is meant is a mean times that; by default it is read off the
    script. ``arguments``: of the script; ``timeout``: seconds that ranks may take.

    Real processes run in any case, up to eight, and where layers are split. Raises InputError for a script that cannot be run, ranks that
    do not agree, and a step that no program can say; RefutedError where real processes refute such a step.
    """
    own = read_text(script, code="PP110", help="give the path of a training script")
    said = _world(own) if world is None else world
    count = 2 if said is None else said
    _check(count, splits or {})
    launch = Launch(script=script, world=count, step=step, arguments=tuple(arguments), timeout=timeout)
    try:
        traced, first = _step(launch, backend, splits or {}, constant)
        if said is None and _right_elsewhere(traced):
            text = f"with {count} ranks, a number that nobody has said, this step is wrong: with others it may be right"
            refuse("PP603", text, help="say how many ranks it is for: `--world N`")
        unless_several(traced, first, constant, lambda number: _step(launch, backend, splits or {}, number)[0])
        later = Later(launch, lambda step: _step(replace(launch, step=step), backend, splits or {}, constant))
        traced = later.with_previous(later.with_others(traced, first) if first.idle else later.with_next(traced, first))
    except EndedError:
        raise
    except InputError as error:
        found = _refuting(launch)
        if found is None:
            raise in_numbers(launch, error) from None
        raise RefutedError(error.diagnostics, found) from error
    return as_one_process(launch, traced, first, given=constant is not None)


def _once(find: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function that is called once with the same arguments, also where it fails: ranks that wait for others do so for long."""
    known: dict[tuple[object, ...], tuple[_T] | InputError] = {}

    def found(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        key = (*args, *kwargs.items())
        if key not in known:
            try:
                known[key] = (find(*args, **kwargs),)
            except InputError as error:
                known[key] = error
        one = known[key]
        if isinstance(one, InputError):
            raise one
        return one[0]

    return found


def _refuting(launch: Launch) -> Witness | None:
    """What refutes a script that real processes run, on as many ranks as are run here in any case: the first witness of several kinds."""
    if not 1 < launch.world <= ALL_RANKS:
        return None
    again = _once(lambda world, twice: forked(launch.of(world), scaled_twice if twice else beyond_step))
    try:
        recordings = again(launch.world, False)
    except InputError:  # a script that cannot be followed, or fails, shows nothing
        return None
    if adapted(launch, recordings[0], refuted=True) is not None:
        return None
    kinds = (parted, lost, dropped, untrained, misplaced, crossed, handed, summed, strayed)
    found = (kind(recordings, launch.step) for kind in kinds)
    first = next((one for one in found if one is not None), None) or clipped(recordings, launch.step, again)
    first = first or overwritten(recordings, launch.step, lambda: forked(launch, received_once))
    return first or dealt(recordings, launch.step, lambda instead: forked(launch, with_samples(instead)))


def _step(launch: Launch, backend: str, splits: Mapping[str, str], constant: Fraction | None) -> tuple[Traced, Recording]:
    """One step of a script, and what rank 0 did; where its loss is not read off what ranks do, as it is seen to be that of all samples."""
    try:
        traced, first = _traced(launch, backend, splits, constant)
        refuse_adapted(launch, first, traced.text)
        return traced, first
    except LossError as error:
        if constant is not None or not 1 < launch.world <= ALL_RANKS:
            raise
        try:
            return _of_all(launch, splits)
        except (InputError, UnlikeError) as unlike:
            why = unlike.diagnostics[0].message if isinstance(unlike, InputError) else unlike
            raise noted(error, f"nor is it seen to be of all samples together: {why}") from None


def _of_all(launch: Launch, splits: Mapping[str, str]) -> tuple[Traced, Recording]:
    """One step of a script, of which the loss is of all samples together, and what rank 0 did. Raises UnlikeError where it is not."""
    recordings: dict[int, Recording] = forked(launch)
    first = recordings[0]
    if _named(launch, first):
        raise UnlikeError("the script has its number of ranks as one of its own, also as one process")

    def run(world: int, samples: Mapping[int, Samples], shift: float) -> Mapping[int, Numbers]:
        return forked(launch.of(world), numbers_of(samples, Trial(before=first.passed, shift=shift)))

    whole = together(recordings, launch.world, run)
    traced, first = _traced(launch, "gloo", splits, None, whole)
    wrong = judge(read(traced.text)).word == "refuted"
    if wrong == whole.alike:
        raise UnlikeError(f"parameters after the step are {'' if wrong else 'not '}those of one process")
    if wrong and not whole.mean:
        raise UnlikeError(f"{whole.text}; of a loss that is no mean, that may be meant")
    return replace(traced, sure=False), first


def _named(launch: Launch, first: Recording) -> bool:
    """Whether a script is told its number of ranks by a name that it reads, or by an argument."""
    given = re.findall(r"\d+", " ".join(launch.arguments))
    return str(launch.world) in given or re.search(r"\bWORLD\b(?!\s*=)", "\n".join(first.source)) is not None


def _with_ranks(launch: Launch, backend: str, splits: Mapping[str, str], constant: Fraction | None, whole: Together | None = None) -> Again:
    """The step with so many ranks, those of the launch first."""
    spent = list[float]()

    def planned(world: int) -> tuple[dict[int, Recording], StepPlan]:
        most = launch.timeout if world == launch.world else min(launch.timeout, max(SOON, _OTHERS * spent[0]))
        began = monotonic()
        try:
            recordings, plan = _planned(replace(launch.of(world), timeout=most), backend, splits, constant, whole)
            if world != launch.world:
                differ_alike(launch.of(world), recordings[0], plan)
            return recordings, plan
        finally:
            spent.append(monotonic() - began)

    return _once(planned)


def _traced(
    launch: Launch, backend: str, splits: Mapping[str, str], constant: Fraction | None, whole: Together | None = None
) -> tuple[Traced, Recording]:
    """One step of a script, and what rank 0 did. ``whole``: its loss is of all samples together."""
    count, again = launch.world, _with_ranks(launch, backend, splits, constant, whole)
    recordings, plan = again(count)
    first, groups = recordings[0], Groups(launch, recordings, plan)
    text, asked = _said(first, plan, again)
    if plan.turns > 1 and as_one(plan, recordings) is not None and judge(read(text)).word == "refuted":
        planned = again
        again = _once(lambda other: _as_one(*planned(other)))
        plan = again(count)[1]
        text, asked = _said(first, plan, again)
    saying = Saying(again, _worlds(first, plan), _said, _named(launch, first))
    terms_alike(plan, first, saying)
    numbers_alike(plan, first, saying)
    if "clipping" in plan.not_compared:
        text, asked = _said(first, plan, again)
    if constant is None:
        plan, (text, asked) = with_constant(plan, first, (text, asked), saying)
    of_samples(first, plan, asked, text, launch.arguments)
    if any(state.flat for state in first.states):  # real processes ran
        _unless_refuted(text, lambda: copies_end_alike(recordings, plan))
    elif plan.layers is not None or count <= ALL_RANKS:
        _unless_refuted(text, lambda: _really(launch, splits, asked, plan))
    if plan.experts or plan.stages:
        found = forked(launch, functions_of(first) if plan.experts else derivative_of(recordings))
        refuse_lines(first.script, first.source, list(dict.fromkeys(one for wrong in found.values() for one in wrong))[:8])
    if plan.divided:
        in_parts(launch, recordings, plan, wrong=judge(read(text)).word == "refuted")
    _unless_refuted(text, groups.refuse)
    if whole is None:
        independent(launch, recordings, plan)
    if plan.unlike and judge(read(text)).word != "refuted":
        refuse_lines(first.script, first.source, [("parameters are treated in 3 ways: two groups can be said", 0)])
    return _found(first, plan, asked, text, tuple(sorted(recordings))), first


def _found(first: Recording, plan: StepPlan, asked: Asked, text: str, ranks: tuple[int, ...]) -> Traced:
    """A step as a program, with what is known of how it came about."""
    single = [a.values[0] for a in asked.answers.values() if asked.fixed or (first.own and not a.found)]
    written_out = set(map(int, re.findall(r"\b\d+\b", "\n".join(first.source))))
    return Traced(
        text=text,
        ranks=ranks,
        world=first.world,
        notes=(*plan.notes, *plan.not_compared.values(), *plan.of),
        divisors=tuple(n.denominator for n in single if n.numerator == 1 < n.denominator and n.denominator in written_out),
        split=plan.layers is not None,
        apart=_apart(first, plan),
        doubts=(*plan.differences, *plan.doubts),
        differ=bool(plan.differences),
    )


def _apart(first: Recording, plan: StepPlan) -> str:
    """Why a step cannot be compared with one process, as far as that is seen in it."""
    if first.world > ALL_RANKS:
        return f"there are more than {ALL_RANKS} ranks"
    if first.statistics:
        return "it normalises by statistics of a batch"
    return "ranks split sequences" if "sequence" in plan.splits.values() else ""


def _right_elsewhere(traced: Traced) -> bool:
    """Whether a step that is refuted with these ranks is right with a number of ranks that stands in the script."""
    program = read(traced.text)
    if not traced.divisors or judge(program, shortest=False).word != "refuted":
        return False
    others = (replace(program, axes=tuple(replace(axis, degree=n) for axis in program.axes)) for n in traced.divisors)
    return len(program.axes) > 1 or any(judge(other, shortest=False).word == "proved" for other in others)


def _as_one(
    recordings: dict[int, Recording], plan: StepPlan, text: str = "the step has other backward passes"
) -> tuple[dict[int, Recording], StepPlan]:
    """A step of which all backward passes are of one loss. Raises InputError for another one, with this text."""
    one = plan if plan.one else as_one(plan, recordings)
    if one is None:
        refuse_lines(recordings[0].script, recordings[0].source, [(text, recordings[0].turns[-1].line)])
    assert one is not None
    return recordings, one


def _planned(
    launch: Launch, backend: str, splits: Mapping[str, str], constant: Fraction | None, whole: Together | None
) -> tuple[dict[int, Recording], StepPlan]:
    """What ranks did, and the step that this is, of a loss with a given constant, or of all samples together."""
    recordings, plan = _run(launch, backend, splits) if whole is None else _plan(forked(launch), splits, whole)
    if constant is None:
        return recordings, plan
    recordings[0].constants = tuple(range(len(plan.turn.numbers))) if constant != 1 else ()
    note = f"That its loss is {written(constant)} times a mean was given: `--loss-constant`."
    return recordings, replace(with_multiple(plan, constant), notes=[*plan.notes, note])


def _run(launch: Launch, backend: str, splits: Mapping[str, str]) -> tuple[dict[int, Recording], StepPlan]:
    """What ranks did, and the step that this is. Where a loss may hang on what ranks exchange, or parameters are sent after the update,
    real processes run in any case."""
    if backend == "gloo":
        return _plan(forked(launch), splits)
    try:
        alone = _faked(launch)
    except InputError:  # it may need what other ranks send
        if launch.world > ALL_RANKS:
            raise
        return _plan(forked(launch), splits)
    comes = any(e.kind in ("all_to_all", "recv") for r in alone.values() for e in r.events)  # what, the fake backend does not know
    late = any(r.by_others or any(state.late for state in r.states) for r in alone.values())
    if comes or late or unlike_buffers(alone.values()):  # which may be sent before the step
        return _plan(forked(launch), splits)
    exchanged = any(r.exchanges for r in alone.values())
    try:
        recordings, plan = _plan(alone, splits)
        sent = any(part.final.kind != "updated" for part in plan.parts)
        if not sent and not plan.divided and (plan.layers is not None or not exchanged):  # layers exchange activations
            return recordings, plan
    except InputError:
        if not exchanged:
            raise
    return _plan(forked(launch), splits)


def _plan(
    recordings: dict[int, Recording], splits: Mapping[str, str], whole: Together | None = None
) -> tuple[dict[int, Recording], StepPlan]:
    """The step that was seen, if the ranks agree on it."""
    if whole is not None:
        whole.shares(recordings)
    recordings, lines = joined(recordings)
    number_alike(recordings)
    shape = _shape(recordings[0], lines)
    for stage in by_stages(recordings, shape):
        agree(stage)
    problems = Problems()
    for axis in sorted(set(splits) - set(shape.sizes)):
        problems.add("PP603", f"the script has no mesh axis `{axis}`", help=f"its axes are {', '.join(shape.sizes)}")
    problems.raise_if_any()
    left_out = [name for name in recordings[0].mesh if not shape.made and name not in shape.sizes]
    plan = read_stages(recordings, shape, splits)
    if any(t.scale != plan.turn.scale for t in recordings[0].turns):
        plan = _as_one(recordings, plan, "the losses of the micro-batches are scaled differently")[1]
    if whole is not None:
        plan.not_compared["loss"] = whole.text
    if len(recordings) < recordings[0].world and plan.layers is None:  # where layers are split, real processes run as all of them
        plan.not_compared["ranks"] = f"of {recordings[0].world} ranks these were run, each alone: {', '.join(map(str, sorted(recordings)))}"
    plan.notes += [f"The axis {name} has one rank, and nothing is exchanged over it: of more ranks nothing is said." for name in left_out]
    if shape.made:
        names = list(plan.grid.sizes)
        plan.notes.append(f"The script names no axes: {', '.join(names)} {'is' if len(names) == 1 else 'are'} ours.")
    return recordings, plan


def _said(first: Recording, plan: StepPlan, again: Again) -> tuple[str, Asked]:
    """The program of a step, with its factors as they are to be read."""
    text, asked = write(plan, first)
    found = [answer.found for answer in asked.answers.values()]
    own = first.own or any(of_axes(n, plan) for n in plan.turn.numbers if n not in first.scales)
    if any(len(one) > 1 for one in found) or (own and not all(map(_of_batches, found))):
        try:
            left = _settled(first, plan, asked, again)
        except InputError:
            wrong = _wrong_as_recorded(first, plan, asked)
            if wrong is None:
                raise
            asked.fixed = True
            return wrong, asked
        text, _ = write(plan, first, left)
        _not_by_chance(first, plan, asked, left, text)
    return text, asked


def _wrong_as_recorded(first: Recording, plan: StepPlan, asked: Asked) -> str | None:
    """The step with the numbers with which it was recorded, if it is refuted so, however factors are read: all products that a
    factor may be have one value there. A sum may be divided by elements or by samples, or by neither."""
    note = "A factor can be read in several ways. With these numbers all have one value, and the step is wrong with it."
    fixed = replace(plan, fixed=True, notes=[*plan.notes, note])
    ways = {
        where: [
            *(frozenset(r for r in answer.found if r[0] == i) for i in sorted({i for i, _ in answer.found})),
            *([] if where.startswith(SCALES) else [frozenset[Reading]()]),
        ]
        for where, answer in asked.answers.items()
        if answer.found
    }
    if prod(map(len, ways.values())) > _WAYS:
        return None
    text = write(fixed, first, {where: frozenset() for where in ways if where.startswith(SCALES)})[0]
    texts = {text, *(write(fixed, first, dict(zip(ways, way, strict=True)))[0] for way in product(*ways.values()))}
    return text if all(judge(read(one), shortest=False).word == "refuted" for one in texts) else None


def _not_by_chance(first: Recording, plan: StepPlan, asked: Asked, left: Left, text: str) -> None:
    """Raise ByChanceError for a factor that stays the same with other numbers of ranks, and may be a number: read as what it then is of
    micro-batches, the step is wrong, and with the numbers of the recording it is right."""
    answers = asked.answers
    alike = [w for w, found in left.items() if found and _of_batches(found) and w in answers and not _of_batches(answers[w].found)]
    if not alike or judge(read(text), shortest=False).word != "refuted":
        return
    for way in product(*(sorted(answers[w].found) for w in alike)):
        other, _ = write(plan, first, {**left, **{w: frozenset({one}) for w, one in zip(alike, way, strict=True)}})
        if judge(read(other), shortest=False).word == "proved":
            said = "the factor {} is right with these numbers of ranks and micro-batches, and stays the same with other numbers of ranks"
            values = {w: answers[w].values[min(answers[w].found)[0]] for w in alike}
            texts = [(said.format(written(values[w])), answers[w].line) for w in alike if values[w] != 1 or len(alike) == 1]
            try:
                refuse_lines(first.script, first.source, texts[:8], help="make it of the numbers of ranks and micro-batches")
            except InputError as error:
                raise ByChanceError(error.diagnostics) from error


def _worlds(first: Recording, plan: StepPlan) -> list[int]:
    """Other numbers of ranks with which a script may run: fewer first, for which it has samples enough."""
    few = {first.world * (n - 1) // n for n in plan.grid.sizes.values() if n > 1}
    return sorted({*few, first.world + 1, 2 * first.world, *(first.world * (n + 1) // n for n in plan.grid.sizes.values())})


def _settled(first: Recording, plan: StepPlan, asked: Asked, planned: Again) -> Left:
    """How each factor is to be read: as the product that it is with other numbers of ranks, too. Raises InputError where two are left."""
    left: Left = {where: answer.found for where, answer in asked.answers.items()}
    tried = list[str]()
    worlds, stages = _worlds(first, plan), {plan.grid.sizes.get(plan.stages, 1)}
    for number, world in enumerate(worlds):
        if len(tried) < number and not any(len(found) > 1 for found in left.values()):
            break
        try:
            recordings, other = planned(world)
            _, answers = write(other, recordings[0])
        except InputError as error:
            tried.append(f"with {world} ranks: {error.diagnostics[0].message}")
            continue
        kept = answers.kept(left) if len(other.parts) == len(plan.parts) else None  # of one rank, experts are like all others
        if kept is None:
            tried.append(f"with {world} ranks the step is another one")
            continue
        left = kept
        stages.add(other.grid.sizes.get(other.stages, 1))
    if len(stages) == 1:
        left = _without_stages(plan, left)
    unclear = [w for w, found in left.items() if len(found) > 1 or (asked.answers[w].found and not found)]
    if len(tried) == len(worlds) and all(_of_axes(left[w]) for w in unclear):
        plan.not_compared["factors"] = (
            "the same step was seen with this number of ranks alone: factors are the simplest products of degrees"
        )
        return left
    ways = [left[w] or asked.answers[w].found for w in unclear]
    ranks = {n for found in ways if (n := deciding(found, plan.grid.sizes, plan.turns, worlds if tried else ())) is not None}
    if unclear and (way := _one_right(first, plan, left, unclear)) is not None:
        said = ", ".join(sorted({written(asked.answers[w].values[0]) for w in unclear}))
        told = f" (`--world {max(ranks)}` would)" if ranks else ""
        text = f"{said} can be read in several ways, which no other number of ranks told apart{told}: taken is one that is right"
        plan.not_compared["factors"] = text
        return way
    _refuse_unclear(first, plan, asked, left, unclear, tried, ranks)
    return left


def _refuse_unclear(
    first: Recording, plan: StepPlan, asked: Asked, left: Left, unclear: Sequence[str], tried: list[str], ranks: Collection[int]
) -> None:
    """Raise InputError for factors of which several products, or none, are left. ``ranks``: numbers of ranks that would tell them apart."""
    texts = [(_unclear(asked.answers[w], left[w], tried), asked.answers[w].line) for w in unclear]
    help = f"record it with another number of ranks, with which these differ: `--world {max(ranks)}`" if ranks else BY_HAND
    if ranks and not all(left[w] for w in unclear):
        help += ", and give the script samples enough for so many micro-batches on each"
    numbers = [n for n in plan.turn.numbers if n not in first.scales]
    if numbers and plan.constant == 1 and f"{SCALES}loss" in unclear:
        help += f"; or {remedy(prod(numbers, start=Fraction(1)))}"
    refuse_lines(first.script, first.source, texts[:8], help=help)


def _one_right(first: Recording, plan: StepPlan, left: Left, unclear: Sequence[str]) -> Left | None:
    """Of products that are alike with all numbers of ranks that a script takes, those with which the step is proved: so it is with these
    numbers, whichever are meant. None where there are none."""
    if not all(len({i for i, _ in left[w]}) == 1 for w in unclear):  # a sum over other things is not the same
        return None
    choices = (sorted(left[w], key=lambda r: (sum(abs(p) for _, p in r[1]), r)) for w in unclear)
    for way in islice(product(*choices), _WAYS):
        one = {**left, **{w: frozenset({reading}) for w, reading in zip(unclear, way, strict=True)}}
        if judge(read(write(plan, first, one)[0]), shortest=False).word == "proved":
            return one
    return None


def _without_stages(plan: StepPlan, left: Left) -> Left:
    """Products without the number of stages, where there are some: for a script that has always as many, it is a number like any other."""
    made = {w: frozenset((i, powers) for i, powers in found if plan.stages not in dict(powers)) or found for w, found in left.items()}
    if made != left:
        plan.notes.append("The script was seen with this number of stages alone: no factor is taken to be made of it.")
    return made


def _of_batches(found: Collection[Reading]) -> bool:
    """Whether a number is no product with the degree of an axis."""
    return all(name == "microbatches" for _, powers in found for name, _ in powers)


def _of_axes(found: Collection[Reading]) -> bool:
    """Whether products differ in degrees of axes alone."""
    return len({(i, dict(powers).get("microbatches", 0)) for i, powers in found}) == 1


def _unclear(answer: Answer, left: Collection[Reading], tried: list[str]) -> str:
    """Why it is not known of which counts a factor is made."""
    values = answer.values
    ways = " or ".join(sorted({f"`{shown(powers)}`" for _, powers in left or answer.found}))
    if not left:
        return f"the factor {written(values[0])} is {ways} as it is recorded, and not with another number of ranks"
    return f"the factor {written(values[0])} can be read as {ways}: record with other numbers of ranks or micro-batches" + "".join(
        f" ({text})" for text in tried
    )


def _unless_refuted(text: str, check: Callable[[], None]) -> None:
    """Raise InputError where a check of numbers does, unless the program is wrong already, and says why."""
    try:
        check()
    except InputError:
        if judge(read(text)).word != "refuted":
            raise


def _really(launch: Launch, splits: Mapping[str, str], asked: Asked, plan: StepPlan) -> None:
    """Run a script by real processes: only numbers show that blocks exchange all that they have to, and that copies stay copies. Raises
    InputError where they do not, or where the step is another one."""
    recordings, found = _plan(forked(launch), splits)
    copies_end_alike(recordings, found)
    if plan.one:
        found = _as_one(recordings, found)[1]
    if write(with_multiple(found, plan.constant), recordings[0])[1].answers != asked.answers:
        help = "record it with `--backend gloo`"
        refuse("PP603", "real processes scale losses or gradients otherwise than those of the fake backend", help=help)


def _shape(recording: Recording, lines: Sequence[tuple[int, ...]] = ()) -> Grid:
    ends = {(line[0], line[-1]) for line in lines if len(line) > 2}
    groups = {e.group for e in recording.events if e.group and e.kind not in ("send", "recv")} | {tuple(sorted(line)) for line in lines}
    groups -= ends
    return with_stages(grid(recording.mesh, groups, recording.world), lines)


def _world(text: str) -> int | None:
    """The script's own ``WORLD``. Raises InputError for one that has to be worked out."""
    match = re.search(r"^WORLD\s*=\s*(.*?)\s*(?:#.*)?$", text, re.MULTILINE)
    if match and not re.fullmatch(r"\d{1,9}", match[1]):
        refuse("PP603", f"the script's `WORLD` is `{match[1]}`: no number that can be read", help="say how many ranks it has: `--world N`")
    return int(match[1]) if match else None


def _check(world: int, splits: Mapping[str, str]) -> None:
    problems = Problems()
    if world < 1:
        problems.add("PP603", f"{world} ranks cannot be recorded", help="give at least one")
    for axis, what in splits.items():
        if what not in ("batch", "sequence", "hidden"):
            known = ", ".join(n for n in SPLITS if n in ("batch", "sequence", "hidden"))
            problems.add("PP603", f"`{axis}` cannot be said to split `{what}` here", help=f"one of {known}")
    problems.raise_if_any()


def _faked(launch: Launch) -> dict[int, Recording]:
    recordings: dict[int, Recording] = {0: faked(launch, 0)}
    if any(e.kind == "recv" for e in recordings[0].events):
        return recordings
    shape, world = _shape(recordings[0]), launch.world
    others = range(1, world) if world <= ALL_RANKS else sorted({shape.neighbour(a) for a, n in shape.sizes.items() if n > 1})
    return recordings | {rank: faked(launch, rank) for rank in others}
