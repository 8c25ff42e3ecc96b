"""Exact bytes of one device as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.collectives import COLLECTIVES
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes
from placeproof.cost.exact.choose import Change
from placeproof.cost.exact.predict import Predicted
from placeproof.profiles.profile import Implementation

SCHEMA = "placeproof.exact/1"
Row = tuple[str, tuple[str, ...], str, int]


def grouped(exchanges: tuple[Exchange, ...]) -> Counter[Row]:
    """Equal calls of one phase together, in the order of their first."""
    return Counter((e.kind, e.axes, e.phase, e.bytes) for e in exchanges)


def sent(exchanges: tuple[Exchange, ...], degree: Mapping[str, int]) -> Fraction:
    """Bytes that one device sends, by ring algorithms."""
    total = Fraction(0)
    for one in exchanges:
        devices = prod(degree.get(a, 1) for a in one.axes)
        total += COLLECTIVES[one.kind].sent(Fraction(devices), Fraction(one.bytes))
    return total


def header(name: str, implementations: tuple[Implementation, ...], shapes: Shapes, programs: tuple[str, ...]) -> str:
    """What is told of: the strategy, who runs it how, the model, and the strategies whose step programs are run."""
    if len(programs) == 1:
        one = programs[0]
        proved = f'its step program: `placeproof prove "{one}"` proves it, `placeproof derive "{one}" --program` shows it'
    else:
        proved = f"its step programs, each for some of the weights, and each proved by `placeproof prove`: {'; '.join(programs)}"
    return (
        f"{name}: {'; '.join(dict.fromkeys(one.title for one in implementations))}\n"
        f"model: {shapes.name}; {shapes.elements:,} parameters in {len(shapes.units)} units\n"
        f"{proved}\n"
    )


def exchanged(exchanges: tuple[Exchange, ...], degree: Mapping[str, int]) -> str:
    """A table of calls, and what one device sends."""
    rows = [(kind, ", ".join(axes), phase, f"{size:,}", f"x {n}") for (kind, axes, phase, size), n in grouped(exchanges).items()]
    if not rows:
        return "  nothing\n"
    wide = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = [f"  {a:<{wide[0]}}  {b:<{wide[1]}}  {c:<{wide[2]}}  {d:>{wide[3]}}  {e}" for a, b, c, d, e in rows]
    return "\n".join(lines) + f"\n  sent by this device, ring algorithms: {_number(sent(exchanges, degree))}\n"


def memory(told: Predicted) -> str:
    """A table of what a device allocates, and what of it holds elements, where the rest is padding."""
    wide = max(len(k) for k in told.memory)
    number = max(len(f"{v:,}") for v in told.memory.values())
    beside = {state: f"  of which held {amount:,}; the rest is padding" for state, amount in told.padded.items()}
    return "".join(f"  {k:<{wide}}  {v:>{number},}{beside.get(k, '')}\n" for k, v in told.memory.items())


def differences(changes: tuple[Change, ...]) -> str:
    """What is otherwise than in the ideal, and what that makes."""
    lines = []
    for one in changes:
        made = [f"{kind} {amount:+,} B" for kind, amount in one.bytes.items()]
        made += [f"{kind} {count:+,} calls" for kind, count in one.calls.items() if kind not in one.bytes]
        made += [f"{state} {amount:+,} B" for state, amount in one.memory.items()]
        names, texts = one.name.split(", "), one.text.split("\n")
        told = zip(names, texts, strict=True) if len(names) == len(texts) else [(one.name, one.text)]
        lines += [*(f"  {name}: {text}" for name, text in told), f"    here: {', '.join(made) or 'nothing'}"]
    return "\n".join(lines) + "\n" if lines else "  nothing\n"


def assumed(implementations: Iterable[Implementation]) -> list[str]:
    """What exact bytes take for granted, each once."""
    return list(dict.fromkeys(text for one in implementations for text in one.assumes))


def prediction(
    name: str,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    programs: tuple[str, ...],
    where: str,
    told: Predicted,
    changes: tuple[Change, ...],
    degree: Mapping[str, int],
) -> str:
    """The whole text."""
    return (
        header(name, implementations, shapes, programs)
        + f"\nwhat {where} exchanges in a step: bytes of the tensor that a call is about\n"
        + exchanged(told.exchanges, degree)
        + f"\nwhat {where} {'allocates' if told.held else 'holds'}, bytes\n"
        + memory(told)
        + "\notherwise than in the ideal\n"
        + differences(changes)
        + "\ntaken for granted\n"
        + "".join(f"  {text}\n" for text in assumed(implementations))
    )


Told = tuple[Predicted, tuple[Change, ...], Predicted]


def comparison(
    name: str,
    every: Mapping[str, tuple[Implementation, ...]],
    shapes: Shapes,
    programs: Mapping[str, str],
    where: str,
    told: Mapping[str, Told],
    degree: Mapping[str, int],
) -> str:
    """Profiles side by side: bytes and calls of each kind of exchange, what is sent, what is allocated, and why they differ."""
    lines = [f"{name} on {shapes.name}, {shapes.elements:,} parameters in {len(shapes.units)} units; {where}", ""]
    for profile, program in programs.items():
        lines.append(f"{profile}: {'; '.join(dict.fromkeys(i.title for i in every[profile]))}: `{program}`")
    after = {profile: one[2] for profile, one in told.items()}
    kinds = dict.fromkeys((e.kind, e.axes) for one in after.values() for e in one.exchanges)
    rows = [["bytes", *after]]
    for kind, axes in kinds:
        of = [[e for e in one.exchanges if (e.kind, e.axes) == (kind, axes)] for one in after.values()]
        rows.append([f"{kind} over {', '.join(axes)}", *(f"{sum(e.bytes for e in some):,} in {len(some)}" for some in of)])
    rows.append(["sent, ring algorithms", *(_number(sent(one.exchanges, degree)) for one in after.values())])
    for state in dict.fromkeys(s for one in after.values() for s in one.memory):
        rows.append([state, *(f"{one.memory[state]:,}" if state in one.memory else "" for one in after.values())])
    for state in dict.fromkeys(s for one in after.values() for s in one.padded):
        rows.append([f"{state}, held", *(f"{one.held[state]:,}" if state in one.held else "" for one in after.values())])
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines.append("")
    lines += ["  ".join([f"  {row[0]:<{wide[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], wide[1:], strict=True))]) for row in rows]
    text = "\n".join(lines) + "\n"
    for profile, (_, changes, _) in told.items():
        if changes:
            text += f"\n{profile}, otherwise than in the ideal\n" + differences(changes)
    for profile, implementations in every.items():
        text += f"\n{profile}, taken for granted\n" + "".join(f"  {one}\n" for one in assumed(implementations))
    return text


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.1f}"


def named(every: Mapping[str, tuple[Implementation, ...]]) -> str:
    """What profiles make otherwise, in words alone."""
    text = ""
    for profile, implementations in every.items():
        told = {name: why for one in implementations for name, why in one.differences.items()}
        if told:
            text += f"\n{profile}, otherwise than in the ideal\n" + "".join(f"  {name}: {why}\n" for name, why in told.items())
    return text


def as_data(
    name: str,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    programs: tuple[str, ...],
    mesh: Mapping[str, int],
    rank: int,
    told: Predicted,
    changes: tuple[Change, ...],
    degree: Mapping[str, int],
) -> dict[str, Any]:
    """The same for JSON. Bytes are whole numbers; ``sent`` is a fraction as a text."""
    calls = [
        {"kind": kind, "axes": list(axes), "phase": phase, "bytes": size, "count": count}
        for (kind, axes, phase, size), count in grouped(told.exchanges).items()
    ]
    return {
        "schema": SCHEMA,
        "strategy": name,
        "program": "; ".join(programs),
        "implementations": [one.name for one in implementations],
        "model": {"name": shapes.name, "parameters": shapes.elements, "units": len(shapes.units)},
        "mesh": dict(mesh),
        "rank": rank,
        "calls": calls,
        "sent": str(sent(told.exchanges, degree)),
        "memory": dict(told.memory),
        "held": dict(told.held),
        "differences": [
            {"name": c.name, "text": c.text, "bytes": dict(c.bytes), "calls": dict(c.calls), "memory": dict(c.memory)} for c in changes
        ],
        "assumes": assumed(implementations),
    }
