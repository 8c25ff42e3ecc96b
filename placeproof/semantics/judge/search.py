"""Looking for a counterexample: the program run on small meshes, smallest first, against one device."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from placeproof.core.mesh import Axis
from placeproof.programs import FIRST_UNIT, For, Resolved, assigned, reads, statements
from placeproof.programs.ranks import least_degrees
from placeproof.semantics.encode.world import Range, World
from placeproof.semantics.meaning.recorded import IrrationalError
from placeproof.semantics.meaning.run import NoMeaningError, run
from placeproof.semantics.meaning.setup import Difference, Fault, Setup, factors_of, one_size_each
from placeproof.semantics.searched import Searched, in_words

#: The most devices of a mesh that is tried, and of one where the program fixes degrees, so that there is no smaller one; and the most
#: seconds that a search takes.
MOST_DEVICES, MOST_FIXED = 12, 64
SECONDS = 20.0
SEEDS = (1, 2, 3)
#: The most passes of a micro-batch that a run has, over the devices that run one by one: some ten seconds.
MOST_PASSES = 4096
#: The most digits of the numbers of a counterexample, together; and how long those of a first step are that are short enough.
LONGEST = 12_000
SHORT = 100 + 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RefutingRun:
    """A run that ends with other numbers than one device's, or does not end."""

    setup: Setup
    what: Difference | Fault


def search(
    program: Resolved, *, without: frozenset[str] = frozenset(), ranges: tuple[Range, ...] = (), seconds: float = SECONDS
) -> RefutingRun | Searched:
    """The smallest run that differs from the reference, or how far was looked."""
    began, runs, last = time.monotonic(), 0, ""
    for setup in setups(program, without):
        if not allowed(program, setup, ranges):
            continue
        if time.monotonic() - began > seconds:
            break
        last = describe(setup)
        for seed in SEEDS:
            drawn = replace(setup, seed=seed)
            try:
                difference = run(program, drawn)
            except ZeroDivisionError:  # undefined for these numbers; others may tell
                continue
            except NoMeaningError:
                return Searched(runs=0, largest=last)
            runs += 1
            if difference is not None:
                return RefutingRun(setup=drawn, what=difference)
    return Searched(runs=runs, largest=last)


def stuck(program: Resolved, *, without: frozenset[str] = frozenset(), ranges: tuple[Range, ...] = ()) -> RefutingRun | None:
    """A small run of a program with messages that does not end; the proof follows values, not who waits for whom.

    Only axes of messages have more than one device, so that this takes milliseconds.
    """
    messages = {a for c in program.calls if c.op in ("send", "recv") for a in c.axes}
    if not messages:
        return None
    for setup in setups(program, without):
        apart = [n for axis, n in setup.degrees.items() if axis not in messages and program.count(axis) is None]
        if setup.layers_per_stage > 1 or any(n > 1 for n in apart) or not allowed(program, setup, ranges):
            continue
        try:
            fault = run(program, replace(setup, seed=SEEDS[0], steps=1))
        except (ZeroDivisionError, NoMeaningError):
            continue
        if isinstance(fault, Fault):
            return RefutingRun(setup=replace(setup, seed=SEEDS[0]), what=fault)
    return None


def allowed(program: Resolved, setup: Setup, ranges: tuple[Range, ...]) -> bool:
    """Whether a mesh lies within the ranges that the claim is restricted to; axes without a degree in the setup are not asked."""
    if not ranges:
        return True
    world = World(program)
    sizes = {"m": setup.microbatches}
    for axis in (a for a in program.axes if a.name in setup.degrees):
        for factor, size in factors_of(axis, setup).items():
            name = world.sorts[factor].size
            if isinstance(name, str):
                sizes[name] = size
    return all(r.allows(sizes[r.name]) for r in ranges if r.name in sizes)


def describe(setup: Setup) -> str:
    """A mesh and its micro-batches in words."""
    return ", ".join(filter(None, (in_words(setup.degrees), f"m = {setup.microbatches}")))


def setups(program: Resolved, without: frozenset[str] = frozenset()) -> Iterator[Setup]:
    """Small meshes, smallest first; of each, few micro-batches and parts of the model before many."""
    batches, shapes, least = batches_of(program), shapes_of(program), least_degrees(program)
    degrees = [degrees_of(axis, least.get(axis.name, 1)) for axis in program.axes]
    meshes = [dict(itertools.chain.from_iterable(d.items() for d in chosen)) for chosen in itertools.product(*degrees)]
    sized = [(prod(mesh[a.name] for a in program.axes), mesh) for mesh in meshes]
    most, every = max(MOST_DEVICES, min([MOST_FIXED, *(devices for devices, _ in sized)])), []
    for (index, (devices, mesh)), m, (layers, units) in itertools.product(enumerate(sized), batches, shapes):
        if devices <= most and devices * m <= MOST_PASSES and one_size_each(program, mesh):
            setup = Setup(mesh, m, layers, units, exact=False, without=without, entries=entries_of(least))
            every.append((devices * m * layers, devices, index, setup))
    for *_, setup in sorted(every, key=lambda e: e[:3]):
        yield setup


def entries_of(least: Mapping[str, int]) -> int:
    """How many elements a block has: so many that each device that is named has one of its own where states are split.

    ``least``: the degrees that the names ask for.
    """
    return max([2, *least.values()])


def batches_of(program: Resolved, ranges: tuple[Range, ...] = ()) -> list[int]:
    """How many micro-batches a run has: up to three numbers."""
    if not any(isinstance(s, For) and s.domain == "microbatches" for s in statements(program.body)):
        return [1]
    count = program.count("microbatches")
    if count is not None:
        return [count]
    return [m for m in range(1, 40) if all(r.allows(m) for r in ranges if r.name == "m")][:3]


def shapes_of(program: Resolved) -> list[tuple[int, int]]:
    """How many layers and units a stage has."""
    if (fixed := program.count("units")) is not None:
        return [(fixed * each, fixed) for each in (1, 2)]
    loops = [s for s in statements(program.body) if isinstance(s, For)]
    several = any(s.domain in ("units", "layers") or s.within == FIRST_UNIT for s in loops)
    shapes = [(1, 1), (2, 1), (2, 2)] if several else [(1, 1)]
    return [*shapes, (3, 3)] if _names_units(program) else shapes


def _names_units(program: Resolved) -> bool:
    """Whether a unit is named otherwise than as that of an iteration: with two units, the next one is always the last one."""
    if any(isinstance(s, For) and s.start for s in statements(program.body)):
        return True
    read = (r for s in statements(program.body) for r in reads(s))
    return any(r.index is not None and (r.index.var is None or r.index.offset) for r in (*assigned(program.body), *read))


def degrees_of(axis: Axis, least: int) -> list[dict[str, int]]:
    """Small degrees of an axis that has at least so many devices; with sub-groups, of some that divide it."""
    if axis.inner is None:
        return [degrees_by(axis, n) for n in ((axis.degree,) if axis.degree is not None else range(least, least + 3))]
    inner = (axis.inner,) if isinstance(axis.inner, int) else (2, 1, 3)
    whole = [(i, axis.degree or i * outer) for i in inner for outer in (1, 2, 3)]
    return [degrees_by(axis, n // i, i) for i, n in dict.fromkeys(whole) if n % i == 0]


def degrees_by(axis: Axis, outer: int, inner: int = 1) -> dict[str, int]:
    """The degrees of an axis of so many devices, or groups of so many."""
    return {axis.name: outer} if axis.inner is None else {axis.name: outer * inner, axis.inner_name: inner}


def legible(program: Resolved, counterexample: RefutingRun, *, shortest: bool = True) -> RefutingRun | None:
    """A run of the same size in fractions whose numbers are short, if those of several are to be compared (``shortest``); None where no run
    in fractions differs in numbers that can be shown."""
    for small in (True, False):
        best = None
        for seed in range(1, 11):
            setup = replace(counterexample.setup, exact=True, seed=seed, small=small)
            try:
                what = run(program, setup)
            except (ZeroDivisionError, IrrationalError):
                continue
            if what is not None and _length(what) < (LONGEST if best is None else _length(best.what)):
                best = RefutingRun(setup=setup, what=what)
            if best is not None and (_length(best.what) <= SHORT or not shortest):
                break
        if best is not None:
            return best
    return None


def _length(what: Difference | Fault) -> int:
    """How long the numbers are to read, about as many digits; a missing one counts as very long."""
    if isinstance(what, Fault):
        return 0
    if what.actual is None:
        return 10_000 + what.step
    shown = [what.actual, what.expected, *(n for n in what.gradient if n is not None)]
    return sum(map(_digits, shown)) + 100 * what.step


def _digits(number: Any) -> int:
    """How long a number is as text; of one that Python would not write out, about."""
    bits = max(getattr(number, part, 0).bit_length() for part in ("numerator", "denominator"))
    return len(str(number)) if bits < LONGEST else int(bits * 0.3)
