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

from placeproof.clusters import Device, find
from placeproof.core import files
from placeproof.core.diagnostics import unknown_name
from placeproof.core.tables import FileKind, Table
from placeproof.runs.measured import MeasuredRun, RunAs
from placeproof.runs.plans import read_plans

_FOLDER = Path(__file__).parent
_KIND = FileKind(noun="a file of measured runs", manual="see the other files of measured runs")
#: Units that memory is measured in, in bytes.
UNITS = {"GiB": 2**30, "GB": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTimes:
    """How good times are that are derived for the measured ``steps`` on a cluster, rounded; tests hold them.

    ``error``: the mean, whatever the sign, as a share of what was measured. ``rank_correlation``, ``regret``: of plans that differ in
    nothing else, on average; both 0 where there are none.
    """

    cluster: str
    steps: int
    error: Fraction
    rank_correlation: Fraction
    regret: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSet:
    """Runs of one publication, of one implementation and kind of device; empty where these are not told.

    ``fits``: whether memory is held against what a device has, as all of them ran; ``unsaid``: how many more were published, by what of
    them cannot be said. ``unit``: that of what was measured, a key of :data:`UNITS`. ``within``: the largest error of what is derived for
    tensors, rounded up; a test holds it, and likewise ``process_within``. 0 where nothing is derived. ``cluster``: that of the devices, for
    what a driver shows; and how long a step takes there. ``times``: how good that is, by clusters.
    """

    name: str
    title: str
    source: str
    device: str
    implementation: str
    unit: str
    within: Fraction
    process_within: Fraction
    cluster: str
    runs: tuple[MeasuredRun, ...]
    fits: bool = False
    times: tuple[KnownTimes, ...] = ()
    unsaid: Mapping[str, int] = field(default_factory=dict, hash=False)


@cache
def run_sets(*, tables: bool = True) -> tuple[RunSet, ...]:
    """All of them, by name. ``tables``: with the steps that stand in tables, of which memory is not known."""
    return tuple(_read(Table.open(_FOLDER / f"{name}.toml", kind=_KIND), tables=tables) for name in files.stems(_FOLDER))


@cache
def reserved() -> tuple[Fraction, Fraction, Fraction, int]:
    """What an allocator had reserved beyond tensors, as a share of them: the least, the median and the most of all runs, and how many these
    are."""
    shares = [
        r.reserved / r.tensors - 1 for one in run_sets(tables=False) for r in one.runs if r.reserved is not None and r.tensors is not None
    ]
    return min(shares), median(shares), max(shares), len(shares)


def like(implementation: str) -> tuple[RunSet, ...]:
    """The sets of an implementation."""
    return tuple(one for one in run_sets(tables=False) if one.implementation == implementation)


def timed_on(device: Device) -> tuple[tuple[RunSet, KnownTimes], ...]:
    """How good times are on the clusters that have the same devices, of which the same is known."""
    return tuple((one, known) for one in run_sets(tables=False) for known in one.times if find(known.cluster).device == device)


def named(name: str) -> RunSet:
    """The set of that name. Raises InputError that lists all of them."""
    every = {one.name: one for one in run_sets()}
    if name not in every:
        raise unknown_name(f"there are no measured runs `{name}`", name, tuple(every), f"there are {', '.join(every)}")
    return every[name]


def _read(table: Table, *, tables: bool) -> RunSet:
    words = dict.fromkeys(("model", "precision", "recompute", "implementation"), Table.text)
    said = table.fields(
        **dict.fromkeys(("name", "title", "source", "device"), Table.required),
        **words,
        cluster=Table.text,
        settings=Table.texts,
        unit=lambda table, key: table.choice(key, UNITS, "GiB"),
        within=_share,
        process_within=_share,
        run=lambda table, key: table.rows(key),
        plans=Table.text,
        overlap=lambda table, key: table.text(key) or "none",
        fits=Table.flag,
        times=lambda table, key: tuple(_times(inner) for inner in table.tables(key)),
        unsaid=lambda table, key: (inner := table.table(key)).fields(**dict.fromkeys(inner.data, Table.count)),
    )
    run_as = RunAs(overlap=said.pop("overlap"), **{name: said[name] if name == "implementation" else said.pop(name) for name in words})
    settings, unit, plans = said.pop("settings"), UNITS[said["unit"]], said.pop("plans")
    runs = tuple(_run(row, run_as, settings, unit) for row in said.pop("run"))
    steps = read_plans(_FOLDER / plans, run_as, settings, problems=table.problems) if plans and tables else ()
    return table.sound(RunSet(**said, runs=runs + tuple(run for run, _ in steps)))


def _times(table: Table) -> KnownTimes:
    said = table.fields(steps=Table.count, **dict.fromkeys(("error", "rank_correlation", "regret"), _share))
    return KnownTimes(cluster=str(table.path[-1]), **said)


def _run(row: Table, run_as: RunAs, settings: tuple[str, ...], unit: int) -> MeasuredRun:
    measured = dict.fromkeys(("tensors", "reserved", "process"), partial(_amount, unit=unit))
    said = row.fields(name=Table.required, strategy=Table.text, settings=Table.texts, stages=_layers, steps=_steps, **measured)
    return MeasuredRun(**{**said, "settings": settings + said["settings"], "run_as": run_as})


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
