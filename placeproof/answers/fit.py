"""What fits: the largest micro-batch, the longest sequence, the fewest devices, and the first change to make.

Each is asked of the derivation that ``placeproof derive --model --cluster`` prints, with one size set otherwise. Memory grows with a
micro-batch and with a sequence, and gets no larger with more devices along the axis that splits samples, so that there is a last value
that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import prod
from time import process_time
from typing import Any

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, Asked, Setting, asked, texts
from placeproof.answers.models import Clock, ModelRun, clock_of, derived, timed
from placeproof.answers.numbers import Settings
from placeproof.clusters import Cluster
from placeproof.core.diagnostics import InputError
from placeproof.core.mesh import Axis, degree_symbol
from placeproof.core.strategy import Strategy
from placeproof.cost.model.comparison import Member
from placeproof.cost.model.time import DEFAULT_OVERLAP, Overlap, StepTime
from placeproof.cost.values import Numbers
from placeproof.implementations import find
from placeproof.importers import Imported
from placeproof.models import Model
from placeproof.planning.fitting import Change, Fits, Fitting, Limit
from placeproof.planning.limits import PATIENCE, Boundary, boundary
from placeproof.report.document import Document
from placeproof.report.models import fitting
from placeproof.report.models.fit import fits_all
from placeproof.strategies import parse_strategy

#: The most that is tried of each.
MOST = {"b": 1 << 24, "s": 1 << 30, "devices": 1 << 20}
#: Seconds of the processor until which pairs of changes are tried.
PATIENT = 4.0
#: Data parallelism, from what takes most memory to what takes least.
_DATA = ("ddp", "zero1", "zero2", "zero3")
_RECOMPUTED = ("selective", "full")


@dataclass(frozen=True, repr=False, kw_only=True)
class FitAnswer(Answer, Fitting):
    """What fits, as an answer."""

    @property
    def document(self) -> Document:
        """What it says."""
        return fitting.document(self)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A model under a strategy on a cluster. ``world``, ``batch``: as of :meth:`placeproof.answers.numbers.Settings.of_model`; ``read``:
    the configuration that the strategy is of."""

    model: Model
    strategy: Strategy
    run: ModelRun
    clock: Clock
    settings: Settings
    world: int | None = None
    batch: int | None = None
    read: Sequence[Imported] = ()

    def numbers(self) -> Numbers:
        """Those of the step. Raises InputError."""
        return self.settings.of_model(self.strategy.axes, self.strategy.schedule.microbatches, self.world, self.batch)

    def step(self) -> StepTime:
        """The step. Raises InputError where it cannot be, or is not known."""
        d, rest = derived(self.model, self.strategy, self.run, self.numbers(), self.read)
        _, step = timed(d, rest, self.clock)
        assert step is not None
        return step

    def member(self) -> Member:
        """The step, with its figures."""
        step = self.step()
        return Member(d=step.d, values=step.price.values, step=step)

    def fits(self) -> Fits:
        """Whether it fits. Raises InputError."""
        return fits_all(self.step())

    def with_(self, name: str, value: int) -> Question:
        """With a symbol set otherwise."""
        return replace(self, settings=replace(self.settings, given=[*self._without({name}), f"{name}={value}"]))

    def on(self, degrees: dict[str, int]) -> Question:
        """With these degrees, whatever was said of them and of all devices."""
        axes = tuple(replace(axis, degree=degrees.get(axis.name, axis.degree)) for axis in self.strategy.axes)
        said = {"N", *(degree_symbol(axis.name, only=False) for axis in axes)}
        settings = replace(self.settings, given=self._without(said))
        return replace(self, strategy=replace(self.strategy, axes=axes), settings=settings, world=None)

    def _without(self, names: set[str]) -> list[str]:
        return [text for text in self.settings.given if text.partition("=")[0].strip() not in names]

    def under(self, name: str) -> Question | None:
        """Under a strategy with the same axes and degrees; None where it is none, or has others."""
        try:
            other = parse_strategy(name)
        except InputError:
            return None
        degrees = {axis.name: axis.degree for axis in self.strategy.axes if axis.degree is not None}
        return replace(self, strategy=other).on(degrees) if {axis.name for axis in other.axes} == {*degrees} else None

    def axis(self) -> Axis | None:
        """The axis along which devices are added: the first that splits samples."""
        return next((axis for axis in self.strategy.axes if axis.splits.batch), None)

    def open(self) -> Axis | None:
        """That axis, where nobody says how many devices it has."""
        axis = self.axis()
        said = {text.partition("=")[0].strip() for text in self.settings.texts()}
        free = self.world is None and axis is not None and axis.degree is None
        return axis if axis is not None and free and not said & {"N", degree_symbol(axis.name, only=False)} else None


def fit(question: Question) -> FitAnswer:
    """What fits. Raises InputError where the step cannot be, whatever fits."""
    began, least = process_time(), None
    if (open_ := question.open()) is not None:
        least = _devices(question, open_)
        question = question.on({open_.name: least.best or least.possible or question.clock.cluster.levels[0].joins or 1})
    member = question.member()
    assert member.step is not None
    fits = fits_all(member.step)
    degrees = {axis.name: int(member.step.price.mesh[axis.name]) for axis in question.strategy.axes}
    whole, axis = question.on(degrees), question.axis()
    return FitAnswer(
        member=member,
        numbers=question.numbers(),
        fits=fits,
        microbatch=_microbatch(whole, degrees),
        sequence=_sequence(whole, degrees),
        devices=least or _devices(whole, axis),
        axis=None if axis is None else axis.name,
        others=prod(n for name, n in degrees.items() if axis is None or name != axis.name),
        **_changes(whole, member, fits, began + PATIENT),
    )


def _tried(of: Callable[[int], Question]) -> Callable[[int], tuple[Fits] | None]:
    """Whether it fits with a value, each asked once; None where it cannot be."""

    @cache
    def tried(value: int) -> tuple[Fits] | None:
        try:
            return (of(value).fits(),)
        except InputError:
            return None

    return tried


def _largest(symbol: str, of: Callable[[int], Question], values: Sequence[int], multiple: int = 1) -> Limit:
    tried = _tried(of)

    def holds(*words: Fits) -> Callable[[int], bool | None]:
        return lambda value: None if (found := tried(value)) is None else found[0] in words

    surely, maybe = boundary(holds(True), values), boundary(holds(True, None), values)
    return Limit(symbol=symbol, best=surely.last, beside=surely.next, possible=maybe.last, multiple=multiple)


def _microbatch(question: Question, degrees: dict[str, int]) -> Limit:
    """The largest micro-batch. Of a step with so many sequences, fewer and larger ones need not take more memory: all are tried."""
    if question.batch is None:
        return _largest("b", lambda b: question.with_("b", b), range(1, MOST["b"] + 1))
    replicas = prod(degrees[axis.name] for axis in question.strategy.axes if axis.splits.batch)
    shared = [b for b in _divisors(question.batch // replicas) if question.batch % replicas == 0]
    tried = _tried(lambda b: question.with_("b", b))
    each = {b: found[0] for b in shared if (found := tried(b)) is not None}
    best = max((b for b, word in each.items() if word), default=None)
    possible = max((b for b, word in each.items() if word is not False), default=None)
    return Limit(symbol="b", best=best, possible=possible, beside=min((b for b in each if b > (best or 0)), default=None))


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _sequence(question: Question, degrees: dict[str, int]) -> Limit:
    """The longest sequence: a multiple of what the axes divide it by, which is the smallest length that can be."""
    if "s" not in question.model.symbols():
        return Limit(symbol="s", why=f"{question.model.name} has no symbol `s`")

    def of(length: int) -> Question:
        return question.with_("s", length)

    tried = _tried(of)
    divided = _divisors(2 * prod(degrees.values()))
    multiple = next((length for length in divided if tried(length) is not None), None)
    if multiple is None:
        return Limit(symbol="s", why="no length that the degrees divide can be")
    return _largest("s", of, range(multiple, MOST["s"] + 1, multiple), multiple)


def _devices(question: Question, axis: Axis | None) -> Limit:
    """The fewest devices along an axis. Sequences of a step that are said are shared out evenly."""
    if axis is None:
        return Limit(symbol="N", why="no axis splits samples, along which there could be others")
    tried = _tried(lambda degree: question.on({axis.name: degree}))
    others = prod(other.degree or 1 for other in question.strategy.axes if other.name != axis.name)
    joined = max(1, (question.clock.cluster.levels[-1].joins or MOST["devices"]) // others)
    values = range(1, joined + 1) if question.batch is None else [n for n in _divisors(question.batch) if n <= joined]

    alone = next((n for n in values[:PATIENCE] if tried(n) is not None), None)

    def fewest(*words: Fits) -> Boundary:
        """The last number that does not fit, and the next. What a single device exchanges with nobody is not there: it is asked first."""
        if alone is not None and (found := tried(alone)) is not None and found[0] in words:
            return Boundary(last=None, next=alone)
        return boundary(lambda n: None if (found := tried(n)) is None else found[0] not in words, values)

    surely, maybe = fewest(True), fewest(True, None)
    return Limit(symbol=degree_symbol(axis.name, only=False), best=surely.next, beside=surely.last, possible=maybe.next)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """The question with a change: its text, its place among the kinds of changes, and the question."""

    text: str
    kind: int
    question: Question


#: Kinds of changes in the order in which two are made; only of the strategy there are two at once.
_RUN, _STRATEGY, _AXES, _SIZE = range(4)


def _changes(question: Question, member: Member, fits: Fits, deadline: float) -> dict[str, Any]:
    """The changes that save memory, those that save most first; before them, where it does not fit, those with which it does: on the fewest
    devices first, and of these the fastest. Where no single one is enough, pairs of them are tried until the process's ``deadline``."""
    before = member.value("peak")
    assert before is not None
    single = [(other, change) for other in _others(question) if (change := _changed(other.text, other.question, before)) is not None]
    found = [change for _, change in single]
    pairs = [] if fits or any(change.fits for change in found) else _pairs(single)
    tried = 0
    for text, other in pairs:
        if process_time() > deadline:
            break
        tried += 1
        if (change := _changed(text, other, before)) is not None and change.fits:
            found.append(change)
    enough = [] if fits else sorted((c for c in found if c.fits), key=_first)
    changes = (*enough, *sorted((c for c in found if c not in enough), key=lambda c: -c.saves))
    return {"changes": changes, "pairs": tried, "untried": len(pairs) - tried}


def _changed(text: str, other: Question, before: Fraction) -> Change | None:
    """A change with its step; None where it does not go with this strategy, this model, or these sizes, or saves nothing."""
    try:
        changed = other.member()
    except InputError:
        return None
    peak = changed.value("peak")
    if peak is None or peak >= before or changed.step is None:
        return None
    return Change(text=text, member=changed, saves=before - peak, fits=fits_all(changed.step))


def _pairs(single: Sequence[tuple[_Other, Change]]) -> list[tuple[str, Question]]:
    """Two changes at once, of those that save something alone; the pairs first whose two save most."""
    saves = {other.text: change.saves for other, change in single}
    most = {kind: max(change.saves for other, change in single if other.kind == kind) for kind in {other.kind for other, _ in single}}
    pairs: dict[str, tuple[Fraction, Question]] = {}
    for first, change in single:
        for second in _others(first.question):
            both = second.kind == first.kind
            if second.kind in most and (second.kind > first.kind or (both and second.kind == _STRATEGY)):
                text = second.text if both else f"{first.text} and {second.text}"
                pairs.setdefault(text, (change.saves + saves.get(second.text, most[second.kind]), second.question))
    return [(text, other) for text, (_, other) in sorted(pairs.items(), key=lambda pair: -pair[1][0])]


def _first(change: Change) -> tuple[int, Fraction]:
    step = change.member.step
    assert step is not None
    return step.devices, -(change.member.tokens or Fraction(0))


def _others(question: Question) -> Iterator[_Other]:
    """Changes of how a model is run, of the strategy, and of sizes, each as it is said."""
    for word in _RECOMPUTED:
        yield _Other(text=f"--recompute {word}", kind=_RUN, question=replace(question, run=replace(question.run, recompute=word)))
    smaller = [_accumulating(question.strategy)] if question.batch is not None else []
    for name in (*_strategies(question.strategy), *smaller):
        if (other := question.under(name)) is not None:
            yield _Other(text=f"`{name}`", kind=_STRATEGY, question=other)
    if (axis := question.axis()) is not None and axis.degree is not None:
        text = f"twice the devices, N_{axis.name} = {2 * axis.degree}"
        yield _Other(text=text, kind=_AXES, question=question.on({axis.name: 2 * axis.degree}))
    if (b := question.numbers().values.get("b")) is not None and b > 1:
        yield _Other(text=f"--set b={int(b) // 2}", kind=_SIZE, question=question.with_("b", int(b) // 2))


def _accumulating(strategy: Strategy) -> str:
    return f"{strategy.name} * accumulate"


def accumulated(question: Question, step: StepTime) -> Member | None:
    """Of a step that does not fit: the same sequences with gradients accumulated over the largest micro-batches that fit, or may; None
    where none does, where nobody says how many sequences there are, or where the strategy says its micro-batches."""
    if question.batch is None or question.strategy.schedule.microbatches is not None or fits_all(step) is not False:
        return None
    degrees = {axis.name: int(step.price.mesh[axis.name]) for axis in question.strategy.axes}
    if (other := question.on(degrees).under(_accumulating(question.strategy))) is None:
        return None
    found = _microbatch(other, degrees)
    b = found.best or found.possible
    return None if b is None else other.with_("b", b).member()


def _strategies(strategy: Strategy) -> Iterator[str]:
    """The strategy with more of the model states in parts, and with activations in parts."""
    for number, part in enumerate(strategy.parts):
        name, *rest = part.partition("(")
        for other in _DATA[_DATA.index(name) + 1 :] if name in _DATA else ():
            yield " * ".join([*strategy.parts[:number], other + "".join(rest), *strategy.parts[number + 1 :]])
    yield f"{strategy.name} * sp"


def fitted(
    subject: Asked,
    model: str | Model,
    cluster: str | Cluster,
    *,
    recompute: str | None = None,
    stages: Sequence[int] | None = None,
    widths: Mapping[str, int] | None = None,
    fp8: bool = False,
    vocab_padding: int | None = None,
    implementation: str | None = None,
    world: int | None = None,
    global_batch: int | None = None,
    precision: str | None = None,
    efficiency: Setting | None = None,
    overlap: Overlap = DEFAULT_OVERLAP,
    order: Sequence[str] | None = None,
    reserve: Setting | None = None,
    **numbers: Setting,
) -> FitAnswer:
    """What fits: :func:`placeproof.fit`."""
    target, imported = asked(subject)
    strategy = target if isinstance(target, Strategy) else subjects.refuse_program(target.name)
    read = subjects.model(model) if isinstance(model, str) else model
    run_by = None if implementation is None else find(implementation)
    run = ModelRun(recompute=recompute, layers=stages, widths=widths or {}, fp8=fp8, padding=vocab_padding, run_by=run_by)
    clock = clock_of(cluster, efficiency=efficiency, overlap=overlap, order=order, reserve=reserve)
    settings = Settings(given=texts(numbers), precision=precision, imported=imported)
    return fit(
        Question(model=read, strategy=strategy, run=run, clock=clock, settings=settings, world=world, batch=global_batch, read=imported)
    )
