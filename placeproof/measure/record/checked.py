"""What numbers say of a step that was read: copies end alike, parts are parts, and samples do not depend on one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.chain import BY_HAND, refuse_lines, refuse_loss
from placeproof.measure.record.later import Traced, without
from placeproof.measure.record.launch import ALL_RANKS, Launch, faked, forked, numbers_of, others_of, parts_of
from placeproof.measure.record.plan import StepPlan, unlike_ends
from placeproof.measure.record.recording import UNCHANGED, UNSEEN, Recording
from placeproof.measure.record.single import Single, single
from placeproof.measure.record.together import Numbers, Samples, Settings, Trial, UnlikeError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

#: After how many steps ranks are compared with one process, if not after one, and by how much at most parameters of split layers are moved
#: before.
_STEPS, _ASIDE = 16, 0.05
#: What optimizers add to roots of squares where ranks are compared with one process: with little, Adam hides how large gradients are.
_EPS = 1.0
#: What is said of an optimizer that makes up for wrong gradients, and of a constant that may be that of one term, with what is to be done.
_RATES = (
    "gradients are refuted, and ranks end with what one process ends with: the settings that they update with make up for it",
    "multiply gradients, and leave the settings as they are",
)
_BLIND = (
    "gradients are refuted, and ranks end with exactly what one process ends with: the optimizer makes up for it",
    "make gradients those of the mean, which is right with any optimizer",
)
_SETTINGS = (
    "gradients are refuted, with settings of updates that change with the number of ranks, and may make up for it: it cannot be compared",
    _RATES[1],
)
_UPDATES = (
    "gradients are refuted, for an optimizer that does not see how large they are, and may make up for it: it cannot be compared",
    _BLIND[1],
)
_TERMS = (
    "gradients are refuted for the constant that was given, and ranks make those of one process: the loss adds up several terms",
    "say of which multiple of its first term the loss is",
)
#: Optimizers that see how large gradients are, if only beside their ``eps``.
_SEEING = ("Adagrad ", "Adam ", "Adamax ", "AdamW ", "NAdam ", "RAdam ", "RMSprop ", "SGD ")
#: Elements of parameters up to which that takes little beside the recording.
_LARGE = 1 << 20


def copies_end_alike(recordings: Mapping[int, Recording], plan: StepPlan) -> None:
    """Raise InputError where ranks that begin with copies of a parameter do not end with copies."""
    first = recordings[0]
    split = {i: part.split for part in plan.parts for i in part.states}
    lost = [] if plan.experts or plan.stages or (plan.unequal and plan.sent is None) else unlike_ends(recordings, split, plan.grid)
    text = "after the step ranks have something else of `{}`, of which they have copies: what makes it so is not seen"
    refuse_lines(first.script, first.source, [(text.format(name), 0) for name in lost[:8]])


def differ_alike(launch: Launch, first: Recording, plan: StepPlan) -> None:
    """Raise InputError for what ranks compute otherwise than rank 0, where they are not seen to end with what one process ends with."""
    try:
        alike = not plan.differences or not beside_one(launch, first, split=plan.layers is not None, differ=True).apart
    except UnlikeError:
        alike = False
    refuse_lines(first.script, first.source, [] if alike else plan.differences[:8])


def in_parts(launch: Launch, recordings: Mapping[int, Recording], plan: StepPlan, *, wrong: bool) -> None:
    """Raise InputError where numbers do not show that parts that each rank has made are parts, unless a step is ``wrong`` as they say."""
    first, axis = recordings[0], next(a for a, what in plan.splits.items() if what == "hidden")
    size, stride = plan.grid.sizes[axis], plan.grid.stride(axis)
    lines = [[r + k * stride for k in range(size)] for r in range(first.world) if plan.grid.place(r, axis) == 0]
    texts = [("each rank has made its own parts of layers: whether they are parts is seen on up to eight ranks", first.turns[0].line)]
    if len(recordings) == first.world:
        found = forked(launch, parts_of(recordings, plan.divided, lines))
        texts = list(dict.fromkeys(one for wrong in found.values() for one in wrong))
        if wrong and texts:
            return
    if not texts and (plan.layers is None or not plan.layers.backward):
        text = "each rank has made its own parts of layers, and what is exchanged does not show that they are parts"
        texts.append((text, first.turns[0].line))
    refuse_lines(first.script, first.source, texts[:8])


def unless_several(traced: Traced, first: Recording, constant: Fraction | None, of: Callable[[Fraction], Traced]) -> None:
    """Raise InputError for a step that is refuted, and would not be if its passes were of several losses, whose means are added up, and
    that are written in several lines, where no ``constant`` was given. ``of``: the step of a loss that is so many times a mean."""
    lines = sorted({turn.line for turn in first.turns})
    if constant is not None or len(lines) < 2 or judge(read(traced.text), shortest=False).word != "refuted":
        return
    number = Fraction(len(first.turns))
    try:
        word = judge(read(of(number).text), shortest=False).word
    except InputError:
        return
    text = f"gradients of losses in lines {', '.join(map(str, lines))} are added up: of several losses, or of micro-batches of one?"
    help = f"of several: `--loss-constant {number}`; of micro-batches: write their loss in one line, and divide it by their number"
    refuse_lines(first.script, first.source, [] if word == "refuted" else [(text, lines[0])], help=help)


def as_one_process(launch: Launch, traced: Traced, first: Recording, *, given: bool = False) -> Traced:
    """Raise InputError for a step that is proved, and in numbers ends with other parameters than the script does as one process, with the
    samples of all ranks; or one that is refuted, of split layers or of ranks that differ, and ends with the same. Where these cannot be
    compared, the program says so; ranks that differ are not understood then. A step that is refuted is refused where the optimizer makes up
    for that, or a constant that was ``given`` may be that of one term of the loss."""
    word = judge(read(traced.text), shortest=False).word
    if word == "refuted" and not (traced.split or traced.apart):
        _unless_alike(launch, first, rates=True)
        if given and any(turn.beside for turn in first.turns):
            _unless_alike(launch, first, rates=False)
    if word not in (("proved", "refuted") if traced.differ or (traced.split and not traced.apart) else ("proved",)):
        return traced
    doubts = [*traced.doubts[:8]] if word == "proved" or traced.differ else []
    try:
        found = beside_one(launch, first, split=traced.split, apart=traced.apart, differ=traced.differ)
    except UnlikeError as why:
        refuse_lines(first.script, first.source, doubts, help=f"it cannot be compared with the script as one process: {why}")
        return without(traced, "process", f"ranks beside the script as one process: {why}") if word == "proved" else traced
    if word == "proved" and not found.apart and found.blind:
        other = f"{found.blind} would change alike with other gradients, and these are not seen to be those of one process"
        refuse_lines(first.script, first.source, doubts if traced.differ else [], help=f"in numbers {other}")
        traced = without(traced, "process", f"ranks beside the script as one process: {other}")
    if word == "proved" and found.apart:
        ends = f"in numbers they end with other values than the script does as one process: {found.apart}"
        refuse_lines(first.script, first.source, doubts if traced.differ else [], help=ends)
        text = f"what ranks do is proved, and {ends}"
        help = "something that the script reads, or decides, is not what one process has: a sample, a number of one rank, a part of a layer"
        refuse_lines(first.script, first.source, [(text, 0)], help=help)
    if word == "refuted" and found.alike:
        text = (
            "what is read of this step is wrong, and in numbers it ends with what the script ends with as one process: it is not understood"
        )
        refuse_lines(first.script, first.source, [(text, first.turns[0].line)])
    return _beside(traced, found, launch.step) if word == "proved" else traced


def _beside(traced: Traced, found: Single, step: int) -> Traced:
    """A proved step with what one process does otherwise: settings, up to the step or later, and averages of some ranks."""
    if found.lent is not None:
        number, other = found.lent
        text = f"one process would update with {other}: it was given the settings of ranks"
        later = replace(traced, notes=(*traced.notes, f"Later, {text}."))
        traced = without(traced, "settings", text) if number <= step else later
    if found.made is not None:
        text = "ranks compute `{}` of their samples with other numbers, in line {}: one process was given the results"
        traced = without(traced, "samples", text.format(*found.made))
    if traced.differ:
        note = f"Compared in numbers with the script as one process: {traced.doubts[0][0]}."
        traced = replace(traced, notes=(*traced.notes, note))
    if found.kept:
        traced = without(traced, "averages", f"a rank keeps another average of {found.kept} than one process")
    return traced


def _unless_alike(launch: Launch, first: Recording, *, rates: bool) -> None:
    """Raise InputError where ranks end with what one process ends with, which updates with other settings (``rates``), or makes up for
    gradients in another way; or where they make its gradients, of a loss that adds up several terms. What cannot be compared may be so,
    where settings change with the number of ranks, or updates do not show how large gradients are."""
    blind = rates and _same_settings(launch, first)
    if blind and first.groups and all(text.startswith(_SEEING) for texts in first.groups.values() for text in texts):
        return
    try:
        found = beside_one(launch, replace(first, passed=0) if rates else first, split=False, rates=rates)
        if rates and found.multiple and found.scaled and not blind:
            raise UnlikeError("ranks change parameters by a multiple of what it does")
    except (InputError, UnlikeError) as why:
        if rates and not (blind and _sees(launch, first)):
            text, help = _UPDATES if blind else _SETTINGS
            reason = why.diagnostics[0].message if isinstance(why, InputError) else why
            refuse_lines(first.script, first.source, [(text, first.turns[0].line)], help=f"{help}; the script as one process: {reason}")
        return
    if found.apart or not (found.hidden or not _sees(launch, first) if blind else rates or found.alike):
        return
    text, help = _BLIND if blind else _RATES if rates else _TERMS
    refuse_lines(first.script, first.source, [(text, first.turns[0].line)], help=help)


def _same_settings(launch: Launch, first: Recording) -> bool:
    """Whether updates have the same settings with another number of ranks, if it makes any by itself with one."""
    for world in (1, launch.world + 1, 2 * launch.world):
        with suppress(InputError):
            other: Recording = faked(launch.of(world), 0)
            if other.settings:
                return other.settings == first.settings
    return True


def _sees(launch: Launch, first: Recording) -> bool:
    """Whether parameters change otherwise where all gradients are twice as large."""
    passes = first.passed + len(first.turns)
    try:
        one, two = (forked(launch, numbers_of({}, Trial(passes=passes, mean=True, times=times)))[0].moved for times in (1.0, 2.0))
    except InputError:  # not in double precision
        return True
    return any(not np.allclose(moved, two[name], rtol=1e-4, atol=0) for name, moved in one.items() if name in two)


def in_numbers(launch: Launch, error: InputError) -> InputError:
    """A step that cannot be said, with a note of what it comes to beside one process, where these can be compared."""
    try:
        found = beside_one(launch, forked(launch)[0], split=False) if 1 < launch.world <= ALL_RANKS else None
    except (InputError, UnlikeError):  # it does not run, as is said already, or cannot be compared
        found = None
    if found is None:
        return error
    ends = f"other values than the script does as one process with the samples of all: {found.apart}" if found.apart else ""
    note = f"in numbers, ranks end with {ends or 'what the script ends with as one process with the samples of all (no proof)'}"
    first, *others = error.diagnostics
    return type(error)([replace(first, notes=(*first.notes, note)), *others])


def beside_one(launch: Launch, first: Recording, *, split: bool, rates: bool = False, apart: str = "", differ: bool = False) -> Single:
    """Ranks beside one process, after some steps or one; with ``rates`` of their own or not. Raises UnlikeError where they cannot be
    compared, as is seen before (``apart``) or here, or one trains a multiple of the other: of factors the program speaks."""
    if apart:
        raise UnlikeError(apart)
    if sum(state.numel for state in first.states) > _LARGE:
        raise UnlikeError(f"it has more than {_LARGE:,} parameters")

    def after(steps: int) -> Single | UnlikeError:
        passes, aside = first.passed + steps * len(first.turns), _ASIDE if split else 0.0
        trial = Trial(passes=passes, aside=aside, mean=True, eps=None if rates else _EPS, python=rates)

        def run(world: int, samples: Mapping[int, Samples], settings: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
            return forked(launch.of(world), numbers_of(samples, replace(trial, settings=settings, noise=noise)))

        try:
            return single(first.world, run, split=split, rates=rates, differ=differ)
        except UnlikeError as why:
            return why

    found = after(_STEPS)
    if isinstance(found, Single) and not found.apart:
        return found
    if isinstance(found, UnlikeError) and differ:  # ranks may differ in a later step
        raise found
    one = after(1)
    if isinstance(one, Single) and one.multiple:
        if rates or not (first.own or first.scales or any(turn.numbers for turn in first.turns)):  # no number of the script makes it
            return one
        raise UnlikeError("ranks train a multiple of what one process does")
    found = one if isinstance(found, UnlikeError) else found
    if isinstance(found, UnlikeError):
        raise found
    return found


def independent(launch: Launch, recordings: Mapping[int, Recording], plan: StepPlan) -> None:
    """Raise LossError where the losses of samples depend on one another, or nobody can see. Statistics of a batch are said already."""
    first = recordings[0]
    if plan.statistics or max(first.rows.values(), default=0) == 1 or first.world * plan.turns == 1:
        return
    wrong = list[tuple[str, int]]()
    same = {rank: replace(recording, constants=first.constants) for rank, recording in recordings.items()}
    for way in range(2):
        if first.real or plan.layers is not None or plan.experts or plan.stages:  # without the others, what layers compute is no number
            really = {rank: replace(same.get(rank, first), real=True) for rank in range(first.world)}
            apart = plan.layers is None and not (plan.experts or plan.stages or plan.same)
            found = forked(launch, others_of(really, way, apart=apart))
        else:
            found = {rank: faked(launch, rank, others_of(same, way)) for rank in same}
        wrong = list(dict.fromkeys(one for own in found.values() for one in own))
        if {text for text, _ in wrong} != {UNCHANGED}:
            break
    unseen = not first.real and all(text.startswith(UNSEEN) for text, _ in wrong)
    help = "the fake backend hands out data that nobody sent: `--backend gloo` runs real processes" if unseen else BY_HAND
    refuse_loss(first.script, first.source, wrong[:8], help=help)
