"""Measured runs, from the TOML files beside this module: what was run, what was measured, where that was published.

No figure of a prediction may be fitted to them. What is predicted is not written down here: it is derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from placeproof.core import files
from placeproof.core.diagnostics import unknown_name
from placeproof.core.tables import FileKind, Table

_FOLDER = Path(__file__).parent
_KIND = FileKind(noun="a file of measured runs", manual="see the other files of measured runs")
#: Units that memory is measured in, in bytes.
UNITS = {"GiB": 2**30, "GB": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run: its strategy, empty where nobody says, ``settings`` as ``--set`` takes them, and layers of each of its ``stages``, where they
    are not as many.

    What was measured: ``tensors``, the most bytes of tensors of a device, ``reserved``, what the allocator had then, and ``process``, what
    a driver shows. None where nobody says. ``steps``: seconds of a step by its number of micro-batches.
    """

    name: str
    strategy: str
    settings: tuple[str, ...]
    tensors: Fraction | None
    reserved: Fraction | None
    process: Fraction | None = None
    stages: tuple[int, ...] = ()
    steps: Mapping[int, Fraction] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSet:
    """Runs of one publication, of one model, implementation and kind of device; empty where these are not told.

    ``unit``: that of what was measured, a key of :data:`UNITS`. ``within``: the largest error of what is derived for tensors, rounded up; a
    test holds it, and likewise ``process_within``. 0 where nothing is derived. ``cluster``: that of the devices, for what a driver shows;
    and how long a step takes there, nothing overlapped; ``recompute``: what was computed again.
    """

    name: str
    title: str
    source: str
    device: str
    model: str
    implementation: str
    precision: str
    unit: str
    within: Fraction
    process_within: Fraction
    cluster: str
    recompute: str
    runs: tuple[MeasuredRun, ...]


@cache
def run_sets() -> tuple[RunSet, ...]:
    """All of them, by name."""
    return tuple(_read(Table.open(_FOLDER / f"{name}.toml", kind=_KIND)) for name in files.stems(_FOLDER))


@cache
def reserved() -> tuple[Fraction, Fraction, Fraction, int]:
    """What an allocator had reserved beyond tensors, as a share of them: the least, the median and the most of all runs, and how many these
    are."""
    shares = [r.reserved / r.tensors - 1 for one in run_sets() for r in one.runs if r.reserved is not None and r.tensors is not None]
    return min(shares), median(shares), max(shares), len(shares)


def like(implementation: str) -> tuple[RunSet, ...]:
    """The sets of an implementation."""
    return tuple(one for one in run_sets() if one.implementation == implementation)


def named(name: str) -> RunSet:
    """The set of that name. Raises InputError that lists all of them."""
    every = {one.name: one for one in run_sets()}
    if name not in every:
        raise unknown_name(f"there are no measured runs `{name}`", name, tuple(every), f"there are {', '.join(every)}")
    return every[name]


def _read(table: Table) -> RunSet:
    said = table.fields(
        **dict.fromkeys(("name", "title", "source", "device"), Table.required),
        **dict.fromkeys(("model", "implementation", "precision", "cluster", "recompute"), Table.text),
        settings=Table.texts,
        unit=lambda table, key: table.choice(key, UNITS, "GiB"),
        within=_share,
        process_within=_share,
        run=lambda table, key: table.rows(key),
    )
    settings = said.pop("settings")
    unit = UNITS[said["unit"]]
    runs = tuple(_run(row, settings, unit) for row in said.pop("run"))
    return table.sound(RunSet(**said, runs=runs))


def _run(row: Table, settings: tuple[str, ...], unit: int) -> MeasuredRun:
    measured = dict.fromkeys(("tensors", "reserved", "process"), partial(_amount, unit=unit))
    said = row.fields(name=Table.required, strategy=Table.text, settings=Table.texts, stages=_layers, steps=_steps, **measured)
    return MeasuredRun(**{**said, "settings": settings + said["settings"]})


def _amount(table: Table, key: str, unit: int) -> Fraction | None:
    """An amount, as it is printed, in bytes."""
    value: Any = table.value(key, lambda value: isinstance(value, Decimal | int) and value > 0, "an amount above 0")
    return None if value is None else Fraction(value) * unit


def _steps(table: Table, key: str) -> dict[int, Fraction]:
    """Milliseconds by the number of micro-batches, in seconds."""
    inner, found = table.table(key), {}
    for name in inner.data:
        value: Any = inner.value(name, lambda value: isinstance(value, Decimal | int) and value > 0, "a number of milliseconds above 0")
        if value is not None and name.isdecimal():
            found[int(name)] = Fraction(value) / 1000
        elif not name.isdecimal():
            inner.refuse(f"`{name}` is no number of micro-batches", name)
    return found


def _layers(table: Table, key: str) -> tuple[int, ...]:
    every = table.value(key, lambda value: isinstance(value, list) and all(type(n) is int and n >= 0 for n in value), "numbers of layers")
    return tuple(every or ())


def _share(table: Table, key: str) -> Fraction:
    value: Any = table.value(key, lambda value: isinstance(value, Decimal) and 0 < value < 1, "a number between 0 and 1")
    return Fraction(value or 0)
