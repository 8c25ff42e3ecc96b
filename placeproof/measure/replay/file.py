"""A counterexample as ``placeproof prove --json`` writes it, read as data, with everything checked that a replay relies on."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from placeproof.core.diagnostics import InputError, Problems, refuse
from placeproof.core.files import read_standard_input, read_text
from placeproof.programs import Resolved
from placeproof.programs import parse as parse_program
from placeproof.programs.wellformed import check_into
from placeproof.semantics.meaning.layout import TIED, Element
from placeproof.semantics.resolve import resolve

SCHEMA = "placeproof.prove/1"
OF_MODEL = "placeproof.prove-model/1"
#: The error code of everything here.
CODE = "PP602"
AGAIN = "write it anew: `placeproof prove SUBJECT --json > FILE`"
_HELP = "give a file with the output of `placeproof prove SUBJECT --json`"

Coordinates = Mapping[str, int]
Named = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The number that the counterexample shows: in which table it differs and where, what one device has, and what this one has.
    ``why``: what happens instead in a run that does not end."""

    table: str | None = None
    device: Coordinates | None = None
    element: str | None = None
    expected: Fraction | None = None
    actual: Fraction | None = None
    why: str | None = None

    def agrees(self, counterexample: Counterexample) -> bool:
        """Whether what is shown once more, without its table, is what the file shows."""
        return self == replace(counterexample.shown, table=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What a device ends with: a table of numbers for each state, or for each tensor that is returned, save those that it computes from
    what it does not hold."""

    device: Coordinates
    tables: Mapping[str, Named]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """A run that differs from one device's, or does not end.

    ``kind``: "step" or "block". ``sizes``: layers and units a stage and the number of steps; or the sizes of dimensions. ``numbers``:
    all that the run begins with. ``owners``: along a factor of the mesh, in an order of parts, of a stage, a coordinate for each element.
    ``ends``: by device, None where the run does not end; then ``stuck`` are the devices that it names. ``one_device``: the program that
    one device runs, if it is another text.
    """

    subject: str
    kind: str
    program: Resolved
    one_device: Resolved | None
    degrees: Mapping[str, int]
    microbatches: int
    sizes: Mapping[str, int]
    seed: int
    flags: Mapping[str, bool]
    without: frozenset[str]
    elements: Mapping[Element, str]
    owners: Mapping[tuple[str, str, int], tuple[int, ...]]
    numbers: Named
    reference: Mapping[str, Named]
    ends: tuple[End, ...] | None
    stuck: tuple[Coordinates, ...]
    shown: Shown

    @property
    def factors(self) -> dict[str, int]:
        """The mesh: each axis, or its outer and inner factor, and how many devices are along it."""
        factors: dict[str, int] = {}
        for axis in self.program.axes:
            if axis.inner is None:
                factors[axis.name] = self.degrees[axis.name]
            else:
                inner = axis.inner if isinstance(axis.inner, int) else self.degrees[axis.inner_name]
                factors |= {axis.outer_name: self.degrees[axis.name] // inner, axis.inner_name: inner}
        return factors

    @property
    def places(self) -> list[tuple[int, ...]]:
        """The coordinates of each device, by rank."""
        return list(itertools.product(*map(range, self.factors.values())))

    @property
    def world(self) -> int:
        """The number of devices."""
        return math.prod(self.factors.values())


def load(path: Path) -> Counterexample:
    """Read a file. Raises InputError for one that cannot be read, is not such JSON, or holds no counterexample."""
    return parse(read_text(path, code=CODE, help=_HELP), str(path))


def load_standard_input() -> Counterexample:
    """Read what is piped in, as :func:`load` reads a file."""
    return parse(read_standard_input(code=CODE, help=_HELP), "standard input")


def parse(text: str, source: str = "<json>") -> Counterexample:
    """Read the text of such a file; raises InputError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse(f"`{source}` is not whole JSON: {error}", AGAIN)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == OF_MODEL:
        data, schema = _part(data, source), SCHEMA
    if schema != SCHEMA:
        reason = f"its schema is `{schema}`" if schema else "it names no schema"
        _refuse(
            f"`{source}` is not the JSON of a proof: {reason}", f"what `placeproof prove SUBJECT --json` prints has the schema `{SCHEMA}`"
        )
    verdict = data.get("verdict")
    if verdict != "refuted" or data.get("counterexample") is None:
        _refuse(f"`{source}` has no counterexample: its verdict is `{verdict}`", "only what is refuted can be replayed")
    if not isinstance(data["counterexample"], dict) or "run" not in data["counterexample"]:
        _refuse(
            f"`{source}` does not hold the run of its counterexample", "write it anew with this version: `placeproof prove SUBJECT --json`"
        )
    try:
        return _counterexample(data)
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        what = f"nothing at {error}" if isinstance(error, KeyError) else str(error)
        _refuse(f"the counterexample in `{source}` is not whole: {what}", AGAIN)


def _part(data: Mapping[str, Any], source: str) -> Any:
    """The first part of a model's proof that devices refute: a block, or the step."""
    blocks, step = data.get("blocks"), data.get("step")
    parts = [*(blocks.values() if isinstance(blocks, dict) else ()), step]
    refuted = (p for p in parts if isinstance(p, dict) and p.get("verdict") == "refuted" and p.get("counterexample") is not None)
    part = next(refuted, None)
    if part is None:
        breaches = data.get("breaches")
        texts = [str(b.get("text")) for b in breaches if isinstance(b, dict)] if isinstance(breaches, list) else []
        why = f"what breaks a contract is on one device, or in the text: {texts[0]}" if texts else f"its verdict is `{data.get('verdict')}`"
        _refuse(f"`{source}` has no counterexample of several devices: {why}", "only what devices refute can be replayed")
    return part


def _refuse(what: str, remedy: str) -> NoReturn:
    refuse(CODE, what, help=remedy)


def _counterexample(data: Mapping[str, Any]) -> Counterexample:
    table = data["counterexample"]
    run = table["run"]
    kind = run["kind"]
    if kind not in ("step", "block"):
        raise ValueError(f"a run of kind `{kind}`")
    step = kind == "step"
    ends = None if run["ends"] is None else tuple(_end(e) for e in run["ends"])
    counterexample = Counterexample(
        subject=str(data["subject"]),
        kind=kind,
        program=_program(_text(run["program"])),
        one_device=_program(_text(run["one_device"])) if "one_device" in run else None,
        degrees={str(a): _whole(n, least=1) for a, n in table["degrees"].items()},
        microbatches=_whole(table["microbatches"], least=1),
        sizes={str(k): _whole(n) for k, n in run["sizes"].items()},
        seed=_whole(run["seed"]),
        flags={k: bool(run[k]) for k in ("small", "fine") if k in run},
        without=frozenset(run["without"]) if step else frozenset(),
        elements={_element(e): _text(g) for e, g in run["elements"].items()} if step else {},
        owners=dict(_owners(o, len(run["elements"])) for o in run["owners"]) if step else {},
        numbers=_numbers(run["numbers"]),
        reference=_tables(run["reference"]),
        ends=ends,
        stuck=tuple(_coordinates(s) for s in run["stuck"] or ()),
        shown=_shown(table, ends is None),
    )
    _fits(counterexample)
    return counterexample


def _end(data: Mapping[str, Any]) -> End:
    every = {k: table for k, table in data.items() if k != "returns"}
    every |= {f"result {n + 1}": table for n, table in enumerate(data.get("returns", ()))}
    kept = {k: {e: v for e, v in table.items() if v is not None} for k, table in every.items()}
    return End(device=_coordinates(data["device"]), tables=_tables(kept))


def _program(text: str) -> Resolved:
    """The program of a run. One whose devices part ways before a collective is refused everywhere else; here it may show what it does."""
    source = "the counterexample's program"
    program, problems = parse_program(text, source=source), Problems()
    check_into(program, problems)
    problems.found = [p for p in problems.found if p.code != "PP308"]
    problems.raise_if_any()
    return resolve(program)


def _fits(counterexample: Counterexample) -> None:
    """The mesh, and what is said of each of its devices."""
    for name, size in counterexample.factors.items():
        if not size:
            raise ValueError(f"axis `{name}` has no devices")
    places = [dict(e.device) for e in counterexample.ends or ()] + [dict(s) for s in counterexample.stuck]
    for at in places:
        if list(at) != list(counterexample.factors) or any(not 0 <= n < counterexample.factors[f] for f, n in at.items()):
            raise ValueError(f"there is no device {at}")
    if counterexample.ends is not None and len(counterexample.ends) != counterexample.world:
        raise ValueError(f"{len(counterexample.ends)} of {counterexample.world} devices have an end")
    programs = (counterexample.program, counterexample.one_device) if counterexample.kind == "block" else ()
    for dim in sorted(
        {d for one in programs if one is not None for tensor in one.tensors for d in tensor.dims} - counterexample.sizes.keys()
    ):
        raise ValueError(f"no size of `{dim}` is said")
    if counterexample.kind == "step" and min(counterexample.sizes[k] for k in ("layers per stage", "units per stage", "steps")) < 1:
        raise ValueError("a size below 1")


_ELEMENT = re.compile(r"(\w+)\[(\d+), (\d+)\](?: of block (\d+))?")


def _element(name: str) -> Element:
    match = _ELEMENT.fullmatch(name)
    if match is None:
        raise ValueError(f"`{name}` is no element's name")
    part, row, column, block = match.groups()
    return TIED if block is None else int(block), part, int(row), int(column)


def _owners(data: Mapping[str, Any], count: int) -> tuple[tuple[str, str, int], tuple[int, ...]]:
    of = tuple(int(n) for n in _text(data["of"]).split())
    if len(of) != count:
        raise ValueError(f"owners of {len(of)} elements where there are {count}")
    return (_text(data["along"]), _text(data["order"]), _whole(data["stage"])), of


def _shown(row: Mapping[str, Any], stuck: bool) -> Shown:
    if stuck:
        return Shown(why=_text(row["actual"]))
    expected, actual = (None if row[k] is None else _number(row[k]) for k in ("expected", "actual"))
    element = None if row["element"] is None else _text(row["element"])
    table = _text(row["run"]["shown"])
    return Shown(table=table, device=_coordinates(row["device"]), element=element, expected=expected, actual=actual)


def _tables(data: Mapping[str, Any]) -> dict[str, Named]:
    """Tables by state; the optimizer's two numbers and what is returned become tables of their own."""
    tables: dict[str, Named] = {}
    for name, table in data.items():
        if name == "optimizer":
            tables["optimizer, master copy"] = _numbers({e: pair[0] for e, pair in table.items()})
            tables["optimizer, momentum"] = _numbers({e: pair[1] for e, pair in table.items()})
        elif name == "returns":
            tables |= {f"result {n + 1}": _numbers(row) for n, row in enumerate(table)}
        elif name != "device":
            tables[name] = _numbers(table)
    return tables


def _numbers(data: Mapping[str, Any]) -> dict[str, Fraction]:
    return {_text(name): _number(value) for name, value in data.items()}


#: A longer number is written in hexadecimal: Python refuses to write one of 4300 decimal digits.
LONG = 10_000


def bits(value: Fraction) -> int:
    """The length of the longer of a fraction's two numbers."""
    return max(abs(value.numerator), value.denominator).bit_length()


def number(value: Fraction | int) -> str:
    """A fraction as text, ``3/4``; in hexadecimal, ``0x3/0x4``, where it has more than 10000 bits."""
    exact = Fraction(value)
    write = hex if bits(exact) > LONG else str
    return write(exact.numerator) + ("" if exact.denominator == 1 else f"/{write(exact.denominator)}")


_NUMBER = re.compile(r"(-?)(0x[0-9a-f]+|\d+)(?:/(0x[0-9a-f]+|\d+))?")


def _number(value: object) -> Fraction:
    """A whole number or a fraction, in decimal or (if it is very long) in hexadecimal."""
    match = _NUMBER.fullmatch(_text(value))
    if match is None:
        raise ValueError(f"`{value}` where a fraction is expected")
    sign, numerator, denominator = match.groups()
    size = Fraction(
        int(numerator, 16 if "x" in numerator else 10), int(denominator, 16 if "x" in denominator else 10) if denominator else 1
    )
    return -size if sign else size


def _coordinates(data: Mapping[str, Any]) -> dict[str, int]:
    return {_text(axis): _whole(n) for axis, n in data.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"`{value}` where a text is expected")
    return value


def _whole(value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TypeError(f"`{value}` where a whole number of at least {least} is expected")
    return value
