"""A replay as text for people, and as JSON data (schema ``placeproof.replay/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from placeproof.measure.replay.ended import DERIVATIVE
from placeproof.measure.replay.file import LONG, Counterexample, Shown, bits, number
from placeproof.measure.replay.launch import Replayed, Wrong

SCHEMA = "placeproof.replay/1"
#: The most wrong numbers that are shown as text, and the most digits of one.
_MOST_WRONG = 8
_MOST_DIGITS = 44
_BUG = "help: the proof and this run cannot both be right: this is a bug of placeproof; please report it with the file"


def text(replayed: Replayed) -> str:
    """The verdict, and what was predicted beside what each process got."""
    counterexample = replayed.found
    lines = [*_verdict(replayed), _head(counterexample, processes(counterexample.world))]
    if counterexample.ends is None:
        lines += [f"predicted: the run does not end ({counterexample.shown.why})", *_said(replayed)]
    elif replayed.word in ("reproduced", "differs"):
        lines += [*_shown(replayed), *_arithmetics(replayed)]
    else:
        lines += _said(replayed)
    lines += [f"  {_in_words(wrong)}" for wrong in replayed.wrong[:_MOST_WRONG]]
    return "\n".join(lines) + "\n"


def processes(count: int) -> str:
    """A number of processes in words."""
    return f"{count} process" if count == 1 else f"{count} processes"


def _head(counterexample: Counterexample, where: str) -> str:
    sizes = {"micro-batches": counterexample.microbatches} if counterexample.kind == "step" else counterexample.sizes
    return f"{counterexample.subject} on {where}: {', '.join(part for part in (_numbers(counterexample.degrees), _numbers(sizes)) if part)}"


def _numbers(numbers: Mapping[str, int]) -> str:
    """Degrees, coordinates, or sizes in words."""
    return ", ".join(f"{name} = {n}" for name, n in numbers.items())


def _said(replayed: Replayed) -> list[str]:
    return [f"  {line}" for line in replayed.why.splitlines()]


def _shown(replayed: Replayed) -> Iterator[str]:
    """The number that the counterexample shows, on every device."""
    counterexample, (table, element) = replayed.found, _shown_number(replayed.found)
    reference = counterexample.reference.get(DERIVATIVE, counterexample.reference.get(table, {})).get(element)
    yield f"{table}, {element}: one device computes {_told(reference)}"
    rows = [("rank", "device", "predicted", "got")]
    rows += [(str(rank), _numbers(at), _told(predicted), _told(got)) for rank, (at, predicted, got) in enumerate(_devices(replayed))]
    yield from _aligned(rows)
    if len({row[3] for row in rows[1:] if row[3] != "nothing"}) > 1:
        yield "  the processes do not agree"


def _shown_number(counterexample: Counterexample) -> tuple[str, str]:
    """The table and the element that the counterexample shows, as the tables of the run name them."""
    element = counterexample.shown.element or ""
    if counterexample.kind == "block":
        element = "[" + ", ".join(sorted(element.split(", "))) + "]" if element else "[]"
    return counterexample.shown.table or "", element


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _devices(replayed: Replayed) -> Iterator[tuple[Mapping[str, int], Fraction | None, Fraction | None]]:
    """Each device, by rank, with what was predicted of the number that is shown, and what it got."""
    table, element = _shown_number(replayed.found)
    for end, outcome in zip(replayed.found.ends or (), replayed.outcomes, strict=True):
        got = {} if outcome.value is None else outcome.value.tables.get(table, {})
        yield end.device, end.tables.get(table, {}).get(element), got.get(element)


def _told(value: Fraction | None) -> str:
    if value is None:
        return "nothing"
    if bits(value) > LONG:
        return f"a number of {abs(value.numerator).bit_length()} bits over one of {value.denominator.bit_length()}"
    shown = str(value)
    return shown if len(shown) <= _MOST_DIGITS else f"{shown[:20]}... ({len(shown)} characters)"


def _arithmetics(replayed: Replayed) -> list[str]:
    text = f"computed in {' and in '.join(replayed.arithmetics)}"
    return [f"{text}; {replayed.rounds}" if replayed.rounds else text]


def _in_words(wrong: Wrong) -> str:
    who = "one device" if wrong.rank is None else f"rank {wrong.rank}"
    return f"{who}: {wrong.table}, {wrong.element}: predicted {_told(wrong.predicted)}, got {_told(wrong.got)}"


def _verdict(replayed: Replayed) -> list[str]:
    on = f"on {processes(replayed.found.world)}"
    match replayed.word:
        case "reproduced":
            if replayed.found.ends is None:
                return [f"reproduced {on}: the run does not end"]
            return [f"reproduced bit for bit {on}: {replayed.compared} numbers"]
        case "differs":
            if replayed.found.ends is None:
                return [f"differs {on}: the run ends otherwise than was predicted", _BUG]
            return [f"differs {on}: {len(replayed.wrong)} of {replayed.compared} numbers", _BUG]
        case "crashed":
            return [f"crashed {on}: a process ended before the step did", _BUG]
        case "timed out":
            return [f"timed out {on}: an exchange did not come about, and the proof says that it does", _BUG]
    return [f"not replayed {on}: this program does what a replay gives no meaning"]


# As data.


def data(replayed: Replayed) -> dict[str, Any]:
    """The replay on processes as JSON data."""
    counterexample = replayed.found
    return {
        "schema": SCHEMA,
        "subject": counterexample.subject,
        "backend": "gloo",
        "verdict": replayed.word,
        "degrees": dict(counterexample.degrees),
        "processes": counterexample.world,
        "numbers": replayed.compared,
        "arithmetics": list(replayed.arithmetics),
        "rounds": replayed.rounds,
        "shown": _shown_data(replayed),
        "ranks": [{"rank": o.rank, "ended": o.kind, "error": o.error} for o in replayed.outcomes],
        "wrong": [
            {"rank": w.rank, "table": w.table, "element": w.element, "predicted": _text(w.predicted), "got": _text(w.got)}
            for w in replayed.wrong
        ],
        "why": replayed.why,
    }


def _shown_data(replayed: Replayed) -> dict[str, Any] | None:
    counterexample = replayed.found
    if counterexample.ends is None or replayed.word not in ("reproduced", "differs"):
        return None
    table, element = _shown_number(counterexample)
    values = [{"device": dict(at), "predicted": _text(predicted), "got": _text(got)} for at, predicted, got in _devices(replayed)]
    return {"table": table, "element": element, "expected": _text(counterexample.shown.expected), "devices": values}


def _text(value: Fraction | None) -> str | None:
    return None if value is None else number(value)


# By the simulator.


def text_of_simulation(counterexample: Counterexample, again: Shown) -> str:
    """What the simulator says, beside what the file does."""
    lines = ["reproduced by the simulator"] if again.agrees(counterexample) else ["differs: the simulator says something else", _BUG]
    lines += [_head(counterexample, "the simulator")]
    lines += _aligned([("", "the file", "the simulator"), *_pairs(counterexample, again)])
    return "\n".join(lines) + "\n"


def _pairs(counterexample: Counterexample, again: Shown) -> list[tuple[str, str, str]]:
    if counterexample.shown.why is not None:
        return [("what happens", counterexample.shown.why, again.why or "it ends")]
    shown = counterexample.shown
    return [
        ("device", _numbers(shown.device or {}) or "the device", _numbers(again.device or {}) or "the device"),
        ("element", shown.element or "the number", again.element or "the number"),
        ("expected", _told(shown.expected), _told(again.expected)),
        ("actual", _told(shown.actual), _told(again.actual)),
    ]


def data_of_simulation(counterexample: Counterexample, again: Shown) -> dict[str, Any]:
    """The simulator's replay as JSON data."""
    return {
        "schema": SCHEMA,
        "subject": counterexample.subject,
        "backend": "simulator",
        "verdict": "reproduced" if again.agrees(counterexample) else "differs",
        "degrees": dict(counterexample.degrees),
        "file": {name: before for name, before, _ in _pairs(counterexample, again)},
        "simulator": {name: now for name, _, now in _pairs(counterexample, again)},
    }
