"""Exact bytes of one device as a document: the schema ``placeproof.exact/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from placeproof.cost.exact.bytes import ExactBytes
from placeproof.cost.exact.choose import Change
from placeproof.profiles.profile import Implementation
from placeproof.report.document import Document, Lines, Notes, Section, SectionPart, Table, section


def document(b: ExactBytes) -> Document:
    """What a device exchanges and holds. In data, bytes are whole numbers; ``sent`` is a fraction as a text."""
    return Document(name=b.strategy.name, sections=lambda: _sections(b), data=lambda: data(b, b.programs))


def data(b: ExactBytes, programs: Sequence[str]) -> dict[str, Any]:
    """The values. ``programs``: what is said to be run."""
    return {
        "schema": "placeproof.exact/1",
        "strategy": b.strategy.name,
        "program": "; ".join(programs),
        "implementations": [one.name for one in b.implementations],
        "model": {"name": b.shapes.name, "parameters": b.shapes.elements, "units": len(b.shapes.units)},
        "mesh": b.mesh,
        "rank": b.rank,
        "calls": [
            {"kind": kind, "axes": axes, "phase": phase, "bytes": size, "count": count}
            for (kind, axes, phase, size), count in b.calls.items()
        ],
        "sent": str(b.sent),
        "memory": b.predicted.memory,
        "held": b.predicted.held,
        "differences": [{"name": c.name, "text": c.text, "bytes": c.bytes, "calls": c.calls, "memory": c.memory} for c in b.changes],
        "assumes": b.assumed,
    }


def _sections(b: ExactBytes) -> Iterator[Section]:
    if len(b.programs) == 1:
        (one,) = b.programs
        proved = f'its step program: `placeproof prove "{one}"` proves it, `placeproof derive "{one}" --program` shows it'
    else:
        proved = f"its step programs, each for some of the weights, and each proved by `placeproof prove`: {'; '.join(b.programs)}"
    model = f"model: {b.shapes.name}; {b.shapes.elements:,} parameters in {len(b.shapes.units)} units"
    kept = ", ".join(f"{state} {amount:,}" for state, amount in b.predicted.memory.items())
    told = f"{b.where} sends {_number(b.sent)} bytes in a step; bytes of {kept}"
    title = f"{b.strategy.name}: {b.title}"
    yield section(title, Lines([told, model, proved]), detail="answer", brief=f"{title}: {told}")
    calls = [(kind, ", ".join(axes), phase, f"{size:,}", f"x {n}") for (kind, axes, phase, size), n in b.calls.items()]
    sent = [f"sent by this device, ring algorithms: {_number(b.sent)}"] if calls else ["nothing"]
    title = f"what {b.where} exchanges in a step: bytes of the tensor that a call is about"
    yield section(title, Table(calls, right=(3,)), Notes(sent))
    beside = {state: f"of which held {amount:,}; the rest is padding" for state, amount in b.predicted.padded.items()}
    states = [(state, f"{amount:,}", beside.get(state, "")) for state, amount in b.predicted.memory.items()]
    yield section(f"what {b.where} {'allocates' if b.predicted.held else 'holds'}, bytes", Table(states, right=(1,)))
    yield section("unlike the ideal", _differences(b.changes))
    yield section("taken for granted", Notes(b.assumed))


def _differences(changes: Sequence[Change]) -> SectionPart:
    """What is unlike the ideal, and what that makes."""
    lines = []
    for one in changes:
        made = [f"{kind} {amount:+,} B" for kind, amount in one.bytes.items()]
        made += [f"{kind} {count:+,} calls" for kind, count in one.calls.items() if kind not in one.bytes]
        made += [f"{state} {amount:+,} B" for state, amount in one.memory.items()]
        names, texts = one.name.split(", "), one.text.split("\n")
        pairs = zip(names, texts, strict=True) if len(names) == len(texts) else [(one.name, one.text)]
        lines += [*(f"{name}: {text}" for name, text in pairs), f"  here: {', '.join(made) or 'nothing'}"]
    return Notes(lines or ["nothing"])


#: Of so many profiles the answer tells.
_MOST = 5


def comparison(every: Mapping[str, ExactBytes], programs: Mapping[str, str]) -> Document:
    """Profiles side by side: bytes and calls of each kind of exchange, what is sent, what is allocated, and why they differ.

    ``programs``: the strategy as each profile lowers it.
    """
    profiles = {profile: data(b, (programs[profile],)) for profile, b in every.items()}
    return Document(
        name=next(iter(every.values())).strategy.name,
        sections=lambda: _side_by_side(every, programs),
        data=lambda: {"schema": "placeproof.exact-comparison/1", "profiles": profiles},
    )


def _side_by_side(every: Mapping[str, ExactBytes], programs: Mapping[str, str]) -> Iterator[Section]:
    first = next(iter(every.values()))
    shapes = first.shapes
    title = f"{first.strategy.name} on {shapes.name}, {shapes.elements:,} parameters in {len(shapes.units)} units; {first.where}"
    told = [f"{profile} sends {_number(b.sent)} bytes and holds {sum(b.predicted.memory.values()):,}" for profile, b in every.items()]
    yield section(title, Lines(told[:_MOST]), detail="answer", brief=f"{title}: {'; '.join(told)}")
    yield section("", Lines([f"{profile}: {every[profile].title}: `{program}`" for profile, program in programs.items()]))
    yield section("", Table(_rows(list(every.values())), ("bytes", *every), range(1, len(every) + 1)))
    for profile, b in every.items():
        yield from [section(f"{profile}, unlike the ideal", _differences(b.changes))] if b.changes else []
    for profile, b in every.items():
        yield section(f"{profile}, taken for granted", Notes(b.assumed))


def _rows(every: Sequence[ExactBytes]) -> list[list[str]]:
    predicted = [b.predicted for b in every]
    rows = []
    for kind, axes in dict.fromkeys((e.kind, e.axes) for p in predicted for e in p.exchanges):
        calls = [[e for e in p.exchanges if (e.kind, e.axes) == (kind, axes)] for p in predicted]
        rows.append([f"{kind} over {', '.join(axes)}", *(f"{sum(e.bytes for e in some):,} in {len(some)}" for some in calls)])
    rows.append(["sent, ring algorithms", *(_number(b.sent) for b in every)])
    states = [("", p.memory, p.memory) for p in predicted], [(", held", p.padded, p.held) for p in predicted]
    for kinds in states:
        for state in dict.fromkeys(s for _, named, _ in kinds for s in named):
            rows.append([f"{state}{kinds[0][0]}", *(f"{amounts[state]:,}" if state in amounts else "" for _, _, amounts in kinds)])
    return rows


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.1f}"


def named(every: Mapping[str, tuple[Implementation, ...]]) -> Iterator[Section]:
    """What profiles make otherwise, in words alone."""
    for profile, implementations in every.items():
        differences = {name: why for one in implementations for name, why in one.differences.items()}
        if differences:
            yield section(f"{profile}, unlike the ideal", Notes([f"{name}: {why}" for name, why in differences.items()]))
