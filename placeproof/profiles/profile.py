"""Profiles: how implementations realise a strategy. Read from TOML files beside this module.

An implementation takes one of the lowerings that its strategy allows (``sets``: fields of the schedule), and rounds: how states are cut
into parts, how a collective of the program becomes calls, what stays beside the states. Nothing here is a number of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.bounds import is_count
from placeproof.core.diagnostics import unknown_name
from placeproof.core.strategy import NEUTRAL, SCHEDULE_FIELDS, Realisation, Strategy
from placeproof.core.tables import FileKind, Reader, Table

_FOLDER = Path(__file__).parent
_KIND = FileKind(noun="a profile", manual="see the other files of profiles, and CONTRIBUTING.md")

#: How a state's parts are cut: single elements; each tensor by its first dimension, padded to equal parts; each unit as one flat tensor,
#: padded; whole tensors, each to the device that has least so far; each tensor as a flat one, padded; all tensors as one flat one, padded;
#: each bucket as one buffer, in which tensors begin at aligned places, padded.
CUTS = ("elements", "rows", "flat", "weights", "each", "whole", "buffer")
#: What one call of a collective is about. A "bucket" is closed once it has its limit, a "filled" one before it would pass it; "owners":
#: the parts of a filled bucket, each to its owner alone; "module": what a module holds itself, and what is fetched ahead with it.
CALLS = ("whole", "unit", "weight", "bucket", "owner", "filled", "owners", "module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One implementation of a strategy.

    ``of``: the strategies of the catalogue that it implements; ``when``: the value that fields of their schedule have then, or its kind
    ("true", "false", "number"), where another implementation takes the others. ``sets``: fields of their schedule. ``cut``: see
    :data:`CUTS`. ``parameters``, ``gradients``: what one call is about, see :data:`CALLS`. ``buckets``: bytes at which the first and every
    other bucket is full. ``plan``: the ending of the names of the block programs that it runs, after their folder where that is not
    ``torch``. ``reads``: how often each optimizer reads a gradient that is still a partial sum, each read being a call.
    ``whole_gradients``: split weights whose gradients are kept whole. ``kept``: the least bytes an element of values that are kept for
    backward, by their name in the blocks' programs. ``order``: which stages a device of a pipeline has: "loop" or "fold". ``differences``:
    what is otherwise than in the ideal, by name. ``system``: whose own rules say which calls it makes, see
    :mod:`placeproof.cost.exact.systems`; empty where the fields above say it all. ``beside``: the other implementations with which it was
    measured, so that the exact bytes of both together are known. ``extras``: whether it sends the model's buffers, and what was used,
    beside the states. ``options``: names of the options of exact bytes that it takes. ``assumes``: what its exact bytes take for granted.
    ``clips``: what clipping by the norm of all gradients adds to them, in words; empty where that is not known.
    """

    name: str
    title: str
    of: tuple[str, ...]
    source: str = ""
    sets: Mapping[str, Any] = field(default_factory=dict)
    when: Mapping[str, str] = field(default_factory=dict)
    cut: str = "elements"
    parameters: str = "unit"
    gradients: str = "unit"
    buckets: tuple[int, int] = (0, 0)
    plan: str = ""
    reads: Mapping[str, int] = field(default_factory=dict)
    whole_gradients: tuple[str, ...] = ()
    order: str = "loop"
    system: str = ""
    beside: tuple[str, ...] = ()
    extras: bool = False
    options: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    clips: str = ""
    kept: Mapping[str, int] = field(default_factory=dict)
    differences: Mapping[str, str] = field(default_factory=dict)

    def suits(self, schedule: Realisation) -> bool:
        """Whether it implements strategies with this schedule; a field that nobody sets has its neutral value."""
        found = {name: getattr(schedule, name) for name in self.when}
        return all(wants in _words(NEUTRAL.get(name) if found[name] is None else found[name]) for name, wants in self.when.items())

    def realise(self, strategy: Strategy) -> Strategy:
        """The strategy with the lowering that this implementation takes."""
        return replace(strategy, schedule=replace(strategy.schedule, **self.sets))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A system's implementations; the first one of a strategy is its usual one."""

    name: str
    title: str
    source: str
    implementations: tuple[Implementation, ...]

    def find(self, name: str) -> Implementation:
        """The implementation of that name. Raises InputError that lists all of them."""
        for one in self.implementations:
            if one.name == name:
                return one
        known = [one.name for one in self.implementations]
        message, listed = f"profile `{self.name}` has no implementation `{name}`", "its implementations: " + ", ".join(known)
        raise unknown_name(message, name, known, listed)

    def usual(self, part: str, schedule: Realisation) -> Implementation | None:
        """The usual implementation of a strategy of the catalogue (its name) with a schedule, or None."""
        return next((one for one in self.implementations if part in one.of and one.suits(schedule)), None)


def _words(value: object) -> tuple[str, str]:
    """The value of a field of the schedule, and its kind."""
    said = str(value).lower()
    return said, "number" if isinstance(value, int | str) and not isinstance(value, bool) else said


def names() -> tuple[str, ...]:
    """The names of all profiles."""
    return files.stems(_FOLDER)


@cache
def profile(name: str) -> Profile:
    """The profile of that name. Raises InputError that lists all of them."""
    if name not in names():
        raise unknown_name(f"there is no profile `{name}`", name, names(), f"the profiles are {', '.join(names())}")
    return read_profile(Table.open(_FOLDER / f"{name}.toml", kind=_KIND))


def read_profile(table: Table) -> Profile:
    """The profile of a file. What it says for all implementations is added to their lists, and else holds where they say nothing. Raises
    InputError with all that is wrong."""
    said = table.fields(
        **dict.fromkeys(("name", "title", "source"), Table.required),
        **dict.fromkeys(("options", "assumes"), Table.texts),
        **dict.fromkeys(("system", "clips"), Table.text),
        kept=Table.counts,
        implementation=lambda table, key: tuple(map(_implementation, table.tables(key))),
    )
    implementations = tuple(
        replace(
            one,
            system=one.system or said["system"],
            clips=one.clips or said["clips"],
            kept=one.kept or said["kept"],
            options=said["options"] + one.options,
            assumes=said["assumes"] + one.assumes,
        )
        for one in said["implementation"]
    )
    return table.sound(Profile(name=said["name"], title=said["title"], source=said["source"], implementations=implementations))


def _implementation(table: Table) -> Implementation:
    calls = partial(Table.choice, names=CALLS, noun="subject of a call")
    cut, order = partial(Table.choice, names=CUTS), partial(Table.choice, names=("loop", "fold"))
    readers: dict[str, Reader] = {"cut": cut, "parameters": calls, "gradients": calls, "order": order, "sets": _sets, "buckets": _buckets}
    table.table("when").known(SCHEDULE_FIELDS)
    return table.record(Implementation, {"name": table.name}, **readers)


def _sets(table: Table, key: str) -> dict[str, Any]:
    inner = table.table(key)
    inner.known(SCHEDULE_FIELDS)
    return dict(inner.data)


def _buckets(table: Table, key: str) -> tuple[int, ...]:
    return tuple(table.value(key, _are_two, "the bytes of the first bucket and of every other") or (0, 0))


def _are_two(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))
