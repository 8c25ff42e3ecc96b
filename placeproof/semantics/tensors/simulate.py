"""Running a tensor program in fractions on every device of a small mesh, and on one device: the two must agree.

Each statement is evaluated on all devices before the next. A device's tensor is an array of its own: the program's wrong sums,
parts and gathers act on what is really there. Gradients are compared with derivatives that come with the numbers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from placeproof.core.program import Program, statements
from placeproof.core.program.ir import POSITIONS, calls
from placeproof.semantics.tensors.arrays import FaultError, Local
from placeproof.semantics.tensors.machine import Machine, Output
from placeproof.semantics.tensors.numbers import NotComputedError

#: The runs of one size that are completed, and the most that are tried.
RUNS = 2
SEEDS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A mesh, the sizes of the dimensions, and what the inputs are drawn from. ``fine``: exponentials of fractions are computed too."""

    degrees: dict[str, int]
    sizes: dict[str, int]
    seed: int = 1
    fine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A result that differs on a device. ``actual`` is None, and ``name`` says why, where the run does not end."""

    line: int
    device: dict[str, int]
    name: str
    index: dict[str, int]
    expected: Fraction | None
    actual: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A run that ends with other numbers than one device's, or does not end."""

    setup: Setup
    what: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How far a search without a result went: runs that were completed, and the last mesh."""

    runs: int
    largest: str


def simulate(program: Program, setup: Setup, *, slopes: bool = True) -> Difference | None:
    """The first result that differs from one device's. Raises NotComputedError for a run that says nothing.

    ``slopes``: whether one device's gradients are compared with derivatives, too.
    """
    one = replace(setup, degrees=dict.fromkeys(setup.degrees, 1))
    alone = Machine(program, one.degrees, setup.sizes, setup.seed, fine=setup.fine).run()
    try:
        many = Machine(program, setup.degrees, setup.sizes, setup.seed, fine=setup.fine).run()
    except FaultError as fault:
        line = fault.place.line if fault.place else 0
        return Difference(line=line, device={}, name=str(fault), index={}, expected=None, actual=None)
    for there, here in zip(many, alone, strict=True):
        (expected,) = here.locals.values()
        for device, actual in there.locals.items():
            found = _compare(there, dict(zip(setup.degrees, device, strict=True)), actual, expected)
            if found is not None:
                return found
    return _gradients(program, one, alone) if slopes else None


def _compare(output: Output, device: dict[str, int], actual: Local, expected: Local) -> Difference | None:
    """A device's elements against those of the same places."""
    truth = expected.by_place()
    for place, number in actual.by_place().items():
        wanted = truth.get(place)
        if wanted is None or wanted.value != number.value:
            value = wanted.value if wanted is not None else None
            return Difference(line=output.line, device=device, name=output.name, index=dict(place), expected=value, actual=number.value)
    return None


def _gradients(program: Program, one: Setup, outputs: list[Output]) -> Difference | None:
    """Each gradient of one device against the derivative of its own forward pass."""
    for number, output in enumerate(outputs):
        named = dict(output.call.options)
        if "gradient_of" not in named:
            continue
        followed = Machine(program, one.degrees, one.sizes, one.seed, fine=one.fine, follow=(number, named["by"])).run()[number]
        assert followed.of is not None
        assert followed.at is not None
        slopes: dict[object, Fraction] = {}
        for place, y in followed.of.by_place().items():
            seed = followed.at.by_place()[place].value
            if any(isinstance(key, tuple) and key[:1] == ("slope of",) for key in y.by):
                raise NotComputedError("the derivative of a slope")
            for key, slope in y.by.items():
                slopes[key] = slopes.get(key, Fraction(0)) + seed * slope
        (actual,) = output.locals.values()
        for place, g in actual.by_place().items():
            expected = slopes.get(place, Fraction(0))
            if g.value != expected:
                where = dict.fromkeys(one.degrees, 0)
                return Difference(line=output.line, device=where, name=output.name, index=dict(place), expected=expected, actual=g.value)
    return None


def search(program: Program, most: int = 3, seconds: float = math.inf) -> Found | Searched:
    """The smallest run that differs from one device, or how far was looked.

    One device's gradients do not depend on the mesh: they are compared with derivatives for the sizes of the first one alone.
    """
    runs, last, first, began = 0, "", None, time.monotonic()
    for setup in setups(program, most):
        first = first or setup.degrees
        if runs and time.monotonic() - began > seconds:
            break
        done = 0
        for fine, seed in itertools.product((False, True), SEEDS):
            if done == RUNS:
                break
            chosen = replace(setup, seed=seed, fine=fine)
            try:
                what = simulate(program, chosen, slopes=setup.degrees == first)
            except NotComputedError:
                continue
            done, runs, last = done + 1, runs + 1, ", ".join(f"N_{a} = {n}" for a, n in setup.degrees.items())
            if what is not None:
                return Found(setup=chosen, what=what)
    return Searched(runs=runs, largest=last)


def ran(program: Program, setup: Setup, *, slopes: bool) -> Found | str | None:
    """One run: what differs, None, or why it says nothing."""
    why = ""
    for fine, seed in itertools.product((False, True), SEEDS):
        chosen = replace(setup, seed=seed, fine=fine)
        try:
            what = simulate(program, chosen, slopes=slopes)
        except NotComputedError as error:
            why = str(error)
            continue
        return None if what is None else Found(setup=chosen, what=what)
    return why


def smaller(program: Program, setup: Setup) -> Setup:
    """The same mesh with dimensions of one element where its parts allow it, save positions: numbers stay small in exponents."""
    cut = _cut(program, setup.degrees)
    return replace(setup, sizes={d: max(n, 2 if d in POSITIONS - {"batch"} else 1) for d, n in cut.items()})


def setups(program: Program, most: int = 3) -> Iterator[Setup]:
    """Small meshes, smallest first; of each, dimensions that its degrees divide and dimensions that they do not."""
    choices = [((a.degree,) if a.degree is not None else range(1, most + 1)) for a in program.axes]
    meshes = [dict(zip((a.name for a in program.axes), chosen, strict=True)) for chosen in itertools.product(*choices)]
    for mesh in sorted(meshes, key=lambda m: (math.prod(m.values()), tuple(m.values()))):
        cut = _cut(program, mesh)
        for extra in (0, 1):
            yield Setup(degrees=mesh, sizes={d: max(n, 2) + extra * (n > 1) for d, n in cut.items()})


def _cut(program: Program, mesh: Mapping[str, int]) -> dict[str, int]:
    """How many parts a dimension may be cut into: its least size, so that every device has an element."""
    dims = {d: set[str]() for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))}
    for tensor in program.tensors:
        for axis, dim in tensor.split:
            dims[dim].add(axis)
    for stmt in statements(program.body):
        for call in calls(stmt):
            dim = call.option("dim") or ""
            if dim in dims:
                dims[dim].update(call.axes)
    return {d: math.prod(mesh.get(a, 1) for a in axes) for d, axes in dims.items()}
