"""The answer to what a model costs under a strategy: whether it fits, what a step takes, and of what both are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from placeproof.cost.model import ModelDerivation
from placeproof.cost.model.comparison import Member
from placeproof.cost.model.time import StepTime
from placeproof.cost.values import Numbers
from placeproof.report.document import Lines, Section, section
from placeproof.report.models.fit import fits_all, fullest, in_all
from placeproof.report.units import figure, giga, percent, seconds_text, whole

#: Whether a model fits, in a sentence.
FITS = {True: "fits", False: "does not fit", None: "may not fit"}
#: Parts of a step's time below this share are left out.
_SMALL = Fraction(1, 100)
_STATES = {"model_states": "model states", "activations": "activations", "working": "computed again", "transient": "gathered"}


def answer(d: ModelDerivation, numbers: Numbers, step: StepTime | None, less: Member | None = None) -> Iterator[Section]:
    """The answer in numbers; nothing while a symbol is not set. ``less``: as ``accumulated`` of a member."""
    member = Member(d=d if step is None else step.d, values=numbers.values, step=step, accumulated=less)
    peak = member.value("peak")
    if not numbers.asked or peak is None:
        return
    subject = f"{d.linked.model} under {d.linked.name}"
    if step is None:
        lines = [_made_of(member), *_sent(member)]
        yield section(f"{subject}: {giga(peak)} GB on a device", Lines([*lines, *assumed(numbers)]), detail="answer")
        return
    where = f"{step.devices} device{'' if step.devices == 1 else 's'} of {step.price.cluster.name}"
    lines = [_memory(step), _made_of(member), _step(member, step), _time(step), *accumulating([member])]
    title = f"{subject} on {where}: {FITS[fits_all(step)]}, {seconds_text(step.seconds)} a step"
    yield section(title, Lines([*lines, *assumed(numbers)]), detail="answer")


def accumulating(members: Sequence[Member]) -> Iterator[str]:
    """What fits with gradients accumulated, of those that do not fit without."""
    texts = []
    for member in (member.accumulated for member in members if member.accumulated is not None):
        m, step = member.d.value(member.d.batches, member.values), member.step
        assert step is not None
        said = "fits" if fits_all(step) else "may fit"
        texts.append(f"`{member.d.linked.name}` {said} with `--set b={member.values['b']}` (m = {m}), {seconds_text(step.seconds)} a step")
    if texts:
        yield f"accumulating gradients: {first_two(texts)}"


def first_two(texts: Sequence[str]) -> str:
    """What a line has room for."""
    return "; ".join([*texts[:2], *(["..."] if len(texts) > 2 else [])])


def assumed(numbers: Numbers) -> list[str]:
    """What stands for what nobody set."""
    listed = " and ".join(_ASSUMED[name] for name in numbers.assumed)
    otherwise = "`--set` and `--global-batch` say it" if len(numbers.assumed) > 1 else f"`--set {''.join(numbers.assumed)}=N` says it"
    return [f"assumed: {listed}; {otherwise} otherwise"] if listed else []


#: What is assumed of a symbol that nobody sets.
_ASSUMED = {"b": "b = 1", "m": "a micro-batch for each stage"}


def _made_of(member: Member) -> str:
    """What the fullest device holds, by its parts."""
    parts = ", ".join(f"{text} {giga(n)}" for text, n in held(member).items() if n)
    whose = f" of {member.fullest.stage.name}" if len(member.d.costs) > 1 else ""
    return f"GB of a device{whose}: {parts}"


def held(member: Member) -> dict[str, Fraction]:
    """Bytes of what the fullest device holds, by what it is."""
    return {text: member.d.value(getattr(member.fullest, key), member.values) or Fraction(0) for key, text in _STATES.items()}


def _sent(member: Member) -> Iterator[str]:
    sent = {key.partition(".")[2]: member.value(key) for key in member.figures if key.startswith("traffic.")}
    if listed := " and ".join(f"{giga(n)} GB over {axes}" for axes, n in sent.items() if n):
        yield f"it sends {listed} in a step"


def _memory(step: StepTime) -> str:
    memory = fullest(step)
    tensors = f"tensors take {giga(memory.tensors)} GB, within {percent(memory.error)}"
    return f"{tensors}; {in_all(memory)} with all else, of {giga(memory.capacity)}"


def _step(member: Member, step: StepTime) -> str:
    count, speed = member.value("sequences"), member.tokens
    times = member.d.value(member.d.batches, member.values)
    sizes = f" (b = {member.values['b']}, m = {times})" if "b" in member.values and times is not None else ""
    of = "" if count is None else f"{figure(count)} sequence{'' if count == 1 else 's'} a step{sizes}, "
    tokens = "" if speed is None else f"{whole(speed)} tokens a second and device, "
    return f"{of}{tokens}MFU {percent(step.utilisation[0])}"


def _time(step: StepTime) -> str:
    shares = {name: seconds / step.seconds for name, seconds in step.terms.items()}
    return "of that " + ", ".join(f"{name} {float(100 * n):.3g} %" for name, n in shares.items() if n >= _SMALL)
