"""What fits, as a document: the schema ``placeproof.fit/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placeproof.cost.model.comparison import Member
from placeproof.cost.model.process import process_memory
from placeproof.cost.model.time import StepTime
from placeproof.planning.fitting import Change, Fits, Fitting, Limit
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.models.answer import FITS, assumed, held
from placeproof.report.renderers import as_data
from placeproof.report.units import giga, percent, seconds_text, whole

_SAID = {"b": "sequences in a micro-batch", "s": "tokens in a sequence", "N": "devices"}
#: Whether something fits, in a column.
_COLUMN = {True: "yes", None: "?", False: "no"}


#: What is said of a change where it does not surely fit without.
_THEN = {True: ", and then it fits", None: ", and then it may fit", False: ", which is not enough"}


def document(f: Fitting) -> Document:
    """The answer, the sizes, and the changes that save memory."""
    return Document(name=_step(f.member).d.linked.model, sections=lambda: _sections(f), data=lambda: as_data(_data(f), float))


def _step(member: Member) -> StepTime:
    assert member.step is not None
    return member.step


def _sections(f: Fitting) -> Iterator[Section]:
    step = _step(f.member)
    where = f"{step.devices:,} device{'' if step.devices == 1 else 's'} of {step.price.cluster.name}"
    title = f"{step.d.linked.model} under {step.d.linked.name} on {where}: {FITS[f.fits]}"
    lines = [_asked(f), *(_limit(f, limit) for limit in (f.microbatch, f.sequence, f.devices)), _change(f), *assumed(f.numbers)]
    yield section(title, Lines(lines), detail="answer")
    if f.changes:
        head = ("", "change", "peak, GB", "saves, GB", "step", "tok/s", "fits")
        rows = [(str(n), change.text, *_cells(change)) for n, change in enumerate(f.changes, 1)]
        yield section("what saves memory, the best first", Table(rows, head, (0, 2, 3, 4, 5)), Notes(_notes(f)))
    notes = ["each size is tried with the others as they were asked about", "a value fits, and the next one that can be does not surely"]
    yield section("how it is found", Notes(notes, items=True), detail="full")


def _notes(f: Fitting) -> list[str]:
    notes = [
        "peak: GB of tensors on a device of the fullest stage; tok/s: tokens a second and device; fits: `?` where the model cannot tell"
    ]
    if f.pairs or f.untried:
        left = f", {f.untried} more were not, for lack of time" if f.untried else ""
        notes.append(f"no single change makes it surely fit; pairs of changes that were tried: {f.pairs}{left}")
    return notes


def _asked(f: Fitting) -> str:
    step = _step(f.member)
    fullest = max((process_memory(step, cost) for cost in step.d.costs), key=lambda memory: memory.tensors)
    sizes = ", ".join(f"{name} = {value}" for name in ("b", "s") if (value := _value(f, name)) is not None)
    need = f"{giga(fullest.process.least)} to {giga(fullest.process.most)} of {giga(fullest.capacity)} GB"
    return f"{sizes or 'as asked'}: needs {need} a device"


def _value(f: Fitting, name: str) -> Any:
    """What a symbol is in the step that was asked about."""
    value = f.member.values.get(name)
    return _step(f.member).d.values.get(name) if value is None else value


def _limit(f: Fitting, limit: Limit) -> str:
    """How far a size can go, in a line."""
    least = limit is f.devices
    what = _SAID[limit.symbol[0]]
    if limit.why:
        return f"{what}: {limit.why}"
    times = f.others if least else 1

    def said(value: int) -> str:
        return f"{value * times:,}" + (f" ({limit.symbol} = {value:,})" if least and times > 1 else "")

    if limit.best is None and limit.possible is None:
        return f"{what}: no number that was tried fits"
    if limit.best is None:
        return f"{what}: none surely fits, {said(limit.possible or 0)} may"
    lines = f"{what}: at {'least' if least else 'most'} {said(limit.best)}"
    lines += f", in multiples of {limit.multiple}" if limit.multiple > 1 else ""
    return lines + (f"; {said(limit.possible)} may fit" if limit.possible not in (None, limit.best) else "")


def _change(f: Fitting) -> str:
    parts = held(f.member)
    name, amount = max(parts.items(), key=lambda part: part[1])
    share = f"{name} are {percent(amount / sum(parts.values()))} of the memory" if sum(parts.values()) else "nothing is held"
    if not f.changes:
        return f"{share}; no change that is known saves memory"
    first = f.changes[0]
    so = "" if f.fits else _THEN[first.fits]
    alone = "; no single change does that" if f.pairs and first.fits else ""
    verb = "save" if " and " in first.text else "saves"
    return f"{share}: {_quoted(first.text)} {verb} {giga(first.saves)} GB{so}{alone}"


def _quoted(text: str) -> str:
    return " and ".join(f"`{one}`" if one.startswith("--") else one for one in text.split(" and "))


def _cells(change: Change) -> tuple[str, ...]:
    tokens = "?" if change.member.tokens is None else whole(change.member.tokens)
    peak, step = giga(change.member.value("peak")), seconds_text(_step(change.member).seconds)
    return peak, giga(change.saves), step, tokens, _COLUMN[change.fits]


def _data(f: Fitting) -> dict[str, Any]:
    step = _step(f.member)
    return {
        "schema": "placeproof.fit/1",
        "model": step.d.linked.model,
        "strategy": step.d.linked.name,
        "cluster": step.price.cluster.name,
        **_of(f.member, f.fits),
        "held": held(f.member),
        "largest": {"micro_batch": _limits(f.microbatch), "sequence": _limits(f.sequence)},
        "fewest": {"axis": f.axis, "degree": _limits(f.devices), "devices": None if f.devices.best is None else f.devices.best * f.others},
        "changes": [{"change": c.text, **_of(c.member, c.fits), "saves": c.saves} for c in f.changes],
        "pairs": {"tried": f.pairs, "untried": f.untried},
        "assumed": [*f.numbers.assumed],
    }


def _of(member: Member, fits: Fits) -> dict[str, Any]:
    step = _step(member)
    return {
        "devices": step.devices,
        "mesh": step.price.mesh,
        "fits": fits,
        "peak": member.value("peak"),
        "seconds": step.seconds,
        "tokens_per_second_and_device": member.tokens,
    }


def _limits(limit: Limit) -> dict[str, Any]:
    return {"fits": limit.best, "next": limit.beside, "may_fit": limit.possible, "multiple": limit.multiple, "why": limit.why or None}
