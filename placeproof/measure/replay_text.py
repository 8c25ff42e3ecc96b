"""A replay as text for people, and as JSON data (schema ``placeproof.replay/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from placeproof.measure.replay import DERIVATIVE, Replayed, Wrong, got_by
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_simulator import Again

SCHEMA = "placeproof.replay/1"
#: The most wrong numbers that are shown as text, and the most digits of one.
_MOST_WRONG = 8
_MOST_DIGITS = 44
_BUG = "help: the proof and this run cannot both be right: this is a bug of placeproof; please report it with the file"


def text(one: Replayed) -> str:
    """What was predicted beside what each process got, and the verdict."""
    found = one.found
    lines = [_head(found, processes(found.world))]
    if found.ends is None:
        lines += [f"predicted: the run does not end ({found.shown.why})", *_said(one)]
    elif one.word in ("reproduced", "differs"):
        lines += [*_shown(one), *_arithmetics(one)]
    else:
        lines += _said(one)
    lines += [f"  {_in_words(wrong)}" for wrong in one.wrong[:_MOST_WRONG]]
    return "\n".join([*lines, *_verdict(one)]) + "\n"


def processes(count: int) -> str:
    """A number of processes in words."""
    return f"{count} process" if count == 1 else f"{count} processes"


def _head(found: Counterexample, where: str) -> str:
    mesh = ", ".join(f"{axis} = {n}" for axis, n in found.degrees.items())
    sizes = f"micro-batches = {found.microbatches}" if found.kind == "step" else ", ".join(f"{d} = {n}" for d, n in found.sizes.items())
    return f"{found.subject} on {where}: {', '.join(part for part in (mesh, sizes) if part)}"


def _said(one: Replayed) -> list[str]:
    return [f"  {line}" for line in one.why.splitlines()]


def _shown(one: Replayed) -> Iterator[str]:
    """The number that the counterexample shows, on every device."""
    found, (table, element) = one.found, shown_number(one.found)
    reference = found.reference.get(DERIVATIVE, found.reference.get(table, {})).get(element)
    yield f"{table}, {element}: one device computes {_told(reference)}"
    rows = [("rank", "device", "predicted", "got"), *_rows(one)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        yield "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
    if len({row[3] for row in rows[1:] if row[3] != "nothing"}) > 1:
        yield "  the processes do not agree"


def shown_number(found: Counterexample) -> tuple[str, str]:
    """The table and the element that the counterexample shows, as the tables of the run name them."""
    element = found.shown.element or ""
    if found.kind == "block":
        element = "[" + ", ".join(sorted(element.split(", "))) + "]" if element else "[]"
    return found.shown.table or "", element


def _rows(one: Replayed) -> Iterator[tuple[str, str, str, str]]:
    table, element = shown_number(one.found)
    for end, outcome in zip(one.found.ends or (), one.outcomes, strict=True):
        device = ", ".join(f"{axis} = {n}" for axis, n in end.device.items())
        yield str(outcome.rank), device, _told(end.tables.get(table, {}).get(element)), _told(got_by(one, outcome.rank, table, element))


def _told(value: Fraction | str | None) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Fraction) and max(abs(value.numerator), value.denominator).bit_length() > 10_000:
        return f"a number of {abs(value.numerator).bit_length()} bits over one of {value.denominator.bit_length()}"
    shown = str(value)
    return shown if len(shown) <= _MOST_DIGITS or not isinstance(value, Fraction) else f"{shown[:20]}... ({len(shown)} characters)"


def _arithmetics(one: Replayed) -> list[str]:
    said = f"computed in {' and in '.join(one.arithmetics)}"
    return [f"{said}; {one.rounds}" if one.rounds else said]


def _in_words(wrong: Wrong) -> str:
    who = "one device" if wrong.rank is None else f"rank {wrong.rank}"
    return f"{who}: {wrong.table}, {wrong.element}: predicted {_told(wrong.predicted)}, got {_told(wrong.got)}"


def _verdict(one: Replayed) -> list[str]:
    on = f"on {processes(one.found.world)}"
    match one.word:
        case "reproduced":
            if one.found.ends is None:
                return [f"reproduced {on}: the run does not end"]
            return [f"reproduced bit for bit {on}: {one.compared} numbers"]
        case "differs":
            if one.found.ends is None:
                return [f"differs {on}: the run ends otherwise than was predicted", _BUG]
            return [f"differs {on}: {len(one.wrong)} of {one.compared} numbers", _BUG]
        case "crashed":
            return [f"crashed {on}: a process ended before the step did", _BUG]
        case "timed out":
            return [f"timed out {on}: an exchange did not come about, and the proof says that it does", _BUG]
    return [f"not replayed {on}: this program does what a replay gives no meaning"]


# As data.


def data(one: Replayed) -> dict[str, Any]:
    """The replay on processes as JSON data."""
    found = one.found
    return {
        "schema": SCHEMA,
        "subject": found.subject,
        "backend": "gloo",
        "verdict": one.word,
        "degrees": dict(found.degrees),
        "processes": found.world,
        "numbers": one.compared,
        "arithmetics": list(one.arithmetics),
        "rounds": one.rounds,
        "shown": _shown_data(one),
        "ranks": [{"rank": o.rank, "ended": o.kind, "error": o.error} for o in one.outcomes],
        "wrong": [
            {"rank": w.rank, "table": w.table, "element": w.element, "predicted": _text(w.predicted), "got": _text(w.got)}
            for w in one.wrong
        ],
        "why": one.why,
    }


def _shown_data(one: Replayed) -> dict[str, Any] | None:
    found = one.found
    if found.ends is None or one.word not in ("reproduced", "differs"):
        return None
    table, element = shown_number(found)
    values = [
        {
            "device": dict(end.device),
            "predicted": _text(end.tables.get(table, {}).get(element)),
            "got": _text(got_by(one, outcome.rank, table, element)),
        }
        for end, outcome in zip(found.ends, one.outcomes, strict=True)
    ]
    return {"table": table, "element": element, "expected": _text(found.shown.expected), "devices": values}


def _text(value: Fraction | str | None) -> str | None:
    if isinstance(value, Fraction) and max(abs(value.numerator), value.denominator).bit_length() > 10_000:
        return hex(value.numerator) + ("" if value.denominator == 1 else "/" + hex(value.denominator))
    return None if value is None else str(value)


# By the simulator.


def text_of_simulation(found: Counterexample, again: Again) -> str:
    """What the simulator says, beside what the file does."""
    lines = [_head(found, "the simulator")]
    rows = [("", "the file", "the simulator")]
    for name, before, now in _pairs(found, again):
        rows.append((name, before, now))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines += ["  " + "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2]]).rstrip() for row in rows]
    lines += ["reproduced by the simulator"] if again.agrees(found) else ["differs: the simulator says something else", _BUG]
    return "\n".join(lines) + "\n"


def _pairs(found: Counterexample, again: Again) -> list[tuple[str, str, str]]:
    if found.shown.why is not None:
        return [("what happens", found.shown.why, again.why or "it ends")]
    shown = found.shown
    return [
        ("device", _device(shown.device), _device(again.device)),
        ("element", shown.element or "the number", again.element or "the number"),
        ("expected", _told(shown.expected), _told(again.expected)),
        ("actual", _told(shown.actual), _told(again.actual)),
    ]


def _device(at: Mapping[str, int] | None) -> str:
    return ", ".join(f"{axis} = {n}" for axis, n in (at or {}).items()) or "the device"


def data_of_simulation(found: Counterexample, again: Again) -> dict[str, Any]:
    """The simulator's replay as JSON data."""
    return {
        "schema": SCHEMA,
        "subject": found.subject,
        "backend": "simulator",
        "verdict": "reproduced" if again.agrees(found) else "differs",
        "degrees": dict(found.degrees),
        "file": {name: before for name, before, _ in _pairs(found, again)},
        "simulator": {name: now for name, _, now in _pairs(found, again)},
    }
