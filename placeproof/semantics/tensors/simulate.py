"""Running a tensor program on every device of a small mesh, and on one device: the two must agree.

Runs in residues look for a difference, with inputs of which each number is as likely as another; runs in fractions show it, with small
inputs. Gradients are compared with derivatives that come with the numbers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from placeproof.programs import POSITIONS, Call, Resolved, calls, statements
from placeproof.programs.ir import Tensor
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.recorded import Recorded, known, unheld
from placeproof.semantics.meaning.script import begun, written
from placeproof.semantics.searched import Searched
from placeproof.semantics.tensors.arrays import Arrays
from placeproof.semantics.tensors.machine import Machine, Output, in_order
from placeproof.semantics.tensors.numbers import SHOWN, Fractions, Residues, require_short
from placeproof.semantics.tensors.setup import Difference, FaultError, NotComputedError, RefutingBlockRun, Setup

#: The runs of one size that are completed, and the most that are tried.
RUNS = 2
SEEDS = (1, 2, 3, 4)
#: Operations that depend on which of two numbers is greater.
_ORDERS = ("largest", "max")


def simulate(program: Resolved, setup: Setup, *, slopes: bool = True) -> Difference | Fault | None:
    """The first result that differs from one device's. Raises NotComputedError for a run that says nothing.

    ``slopes``: whether one device's gradients are compared with derivatives, too.
    """
    try:
        difference = compared(program, setup, slopes=slopes)
    except ZeroDivisionError as error:
        raise NotComputedError("division by zero") from error
    if difference is None or isinstance(difference, Fault):
        return difference
    output, derivative, at, index, numbers, f = difference
    expected, actual = (None if n is None else f.plain(n) for n in numbers)
    require_short(f, (expected, actual), SHOWN)
    where, number = dict(zip(setup.degrees, at, strict=True)), known(actual)
    return Difference(
        line=output.line,
        device=where,
        name=output.name,
        index=index,
        expected=expected,
        actual=number,
        unheld=unheld(actual),
        derivative=derivative,
    )


def compared(program: Resolved, setup: Setup, *, slopes: bool = True) -> Any:
    """What :func:`simulate` finds; a difference as the result, whether it is one from the derivative, where it is, the two numbers as the
    run holds them, and its arithmetic.

    Raises NotComputedError, ZeroDivisionError.
    """
    f, begin = arithmetic(setup)
    alone, many = (machine(program, setup, f, begin, alone=single) for single in (True, False))
    try:
        truth = in_order(program, alone.run())
    except FaultError as fault:
        raise NotComputedError(f"one device cannot compute this: {fault}") from fault
    try:
        every = [(o, False, many.arrays.differs(o.value, t.value)) for o, t in zip(many.run(), truth, strict=True)]
    except FaultError as fault:
        return Fault(str(fault), tuple(many.arrays.coordinates(fault.where)), fault.line)
    gradients = {id(t.call): o for (o, *_), t in zip(every, truth, strict=True) if t.call.option("gradient_of") is not None}
    claimed = [t.call for t in truth if id(t.call) in gradients] if slopes else []
    for some in [[c] for c in claimed] if setup.exact else [claimed]:  # of fractions a run has no more than it needs
        if some and not any(found for *_, found in every):
            derived = _gradients(machine(program, setup, f, begin, alone=True, follow=some), some)
            every += [(gradients[id(output.call)], True, found) for output, found in derived]
    return next(((output, derivative, *found, f) for output, derivative, found in every if found is not None), None)


def _gradients(alone: Machine, calls: Sequence[Call]) -> list[tuple[Output, Any]]:
    """Some gradients of one device against the derivative of its own forward pass."""
    compared = []
    for output in (o for o in alone.run() if any(o.call is c for c in calls)):
        if output.derivative is None or not alone.arrays.known(output.derivative):
            raise NotComputedError("this derivative")
        compared.append((output, alone.arrays.differs(output.value, output.derivative)))
    return compared


def script(program: Resolved, counterexample: RefutingBlockRun, title: str) -> str | None:
    """A counterexample as a Python file (:mod:`placeproof.semantics.meaning.script`); None where no two numbers differ."""
    pair = _recorded(program, counterexample.setup)
    return None if pair is None else written(title, pair, counterexample.words)


def inputs(program: Resolved, setup: Setup) -> dict[str, Fraction]:
    """The numbers that a run begins with and that matter for what differs, by name."""
    pair = _recorded(program, setup)
    return {} if pair is None else begun(pair)


def _recorded(program: Resolved, setup: Setup) -> tuple[Any, Any] | None:
    """The two numbers that differ, with how they came to be."""
    difference = compared(program, replace(setup, record=True))
    expected, actual = difference[4] if isinstance(difference, tuple) else (None, None)
    return None if known(expected) is None or known(actual) is None else (expected, actual)


def machine(
    program: Resolved, setup: Setup, f: Any = None, begin: Any = None, *, alone: bool = False, follow: Sequence[Call] = ()
) -> Machine:
    """A run on the mesh, or on one device."""
    if f is None:
        f, begin = arithmetic(setup)
    arrays = Arrays(f, dict.fromkeys(setup.degrees, 1) if alone else setup.degrees, setup.seed)
    text, name = (setup.reference or program, "one device") if alone else (program, "all devices")
    return Machine(text, arrays, setup.sizes, begin, seed=setup.seed, follow=follow, name=name)


def arithmetic(setup: Setup) -> tuple[Any, Any]:
    """The numbers of a run, and those that it begins with: the same on the mesh and on one device."""
    f = Fractions(fine=setup.fine) if setup.exact else Residues(fine=setup.fine)
    recorded: dict[str, Recorded] = {}

    def number(tensor: Tensor, at: tuple[int, ...]) -> Any:
        if tensor.picks is not None:
            return _drawn(setup.seed, "pick", tensor.name, at) * 7 % setup.sizes[tensor.picks]
        value = _drawn(setup.seed, tensor.name, at)
        name = f"{tensor.name}{spot(dict(zip(tensor.dims, at, strict=True)))}"
        return recorded.setdefault(name, Recorded(value, name=name)) if setup.record else value

    def begin(tensor: Tensor) -> Any:
        shape = tuple(setup.sizes[d] for d in tensor.dims)
        if tensor.picks is None and not setup.exact:
            return f.garbage(Random(f"{setup.seed} {tensor.name}"), shape)
        return f.array([number(tensor, at) for at in itertools.product(*map(range, shape))], shape)

    return f, begin


def _drawn(*what: object) -> Fraction:
    """A small whole number that depends on what is named."""
    return Fraction(Random(repr(what)).choice((-2, -1, 1, 2, 3)))


def spot(index: Mapping[str, int]) -> str:
    """A place in a tensor, dimensions by name: ``[ffn 1, tokens 0]``."""
    return "[" + ", ".join(f"{dim} {n}" for dim, n in sorted(index.items())) + "]"


# Looking for a difference.


def search(program: Resolved, most: int = 3, seconds: float = math.inf, reference: Resolved | None = None) -> RefutingBlockRun | Searched:
    """The smallest run that differs from one device in fractions, or how far was looked. ``reference``: what one device runs.

    One device's gradients do not depend on the mesh: they are compared with derivatives for the sizes of the first one alone.
    """
    runs, last, first, began = 0, "", None, time.monotonic()
    for setup in setups(program, most, reference):
        first = first or setup.degrees
        if runs and time.monotonic() - began > seconds:
            break
        outcome = ran(program, setup, slopes=setup.degrees == first, runs=RUNS)
        if isinstance(outcome, RefutingBlockRun) and outcome.setup.exact:
            return outcome
        if isinstance(outcome, int):
            runs, last = runs + outcome, setup.mesh
    return Searched(runs=runs, largest=last)


def ran(program: Resolved, setup: Setup, *, slopes: bool, runs: int = 1) -> RefutingBlockRun | int | str:
    """Some runs of one size: what differs, how many agree, or why none says anything.

    What differs in residues is looked for in fractions. If fractions that can be computed show no difference, what is found is that of the
    residues; unless the program asks which of two numbers is greater, which residues cannot tell: then fractions are run in any case.
    """
    orders, difference, agreed = _orders(program), None, 0
    try:
        for seed in SEEDS[:runs]:
            difference = difference or _one(program, replace(setup, seed=seed, exact=False), slopes)
        agreed = 0 if difference else runs
    except NotComputedError:
        difference = None
    if agreed and not orders:
        return agreed
    done, why, most = 0, "", 2 * len(SEEDS) if difference else runs
    for fine, seed in itertools.product((False, True), SEEDS):
        if done == most:
            break
        try:
            shown = _one(program, replace(setup, seed=seed, fine=fine), slopes and not agreed)
        except NotComputedError as error:
            why = str(error)
            continue
        if shown is not None:
            return shown
        done += 1
    return difference if difference is not None and done and not orders else done or agreed or why


def _one(program: Resolved, setup: Setup, slopes: bool) -> RefutingBlockRun | None:
    what = simulate(program, setup, slopes=slopes)
    return None if what is None else RefutingBlockRun(setup=setup, what=what)


def _orders(program: Resolved) -> bool:
    return any(c.op in _ORDERS or c.option("op") in _ORDERS for c in program.calls)


def smaller(program: Resolved, setup: Setup) -> Setup:
    """The same mesh with dimensions of one element where its parts allow it, save positions: numbers stay small in exponents."""
    cut = _cut(program, setup.degrees)
    return replace(setup, sizes={d: max(n, 2 if d in POSITIONS - {"batch"} else 1) for d, n in cut.items()})


def setups(program: Resolved, most: int = 3, reference: Resolved | None = None) -> Iterator[Setup]:
    """Small meshes, smallest first; of each, dimensions that its degrees divide and dimensions that they do not."""
    choices = [((a.degree,) if a.degree is not None else range(1, most + 1)) for a in program.axes]
    meshes = [dict(zip((a.name for a in program.axes), chosen, strict=True)) for chosen in itertools.product(*choices)]
    for mesh in sorted(meshes, key=lambda m: (math.prod(m.values()), tuple(m.values()))):
        cut = _cut(program, mesh)
        for extra in (0, 1):
            yield Setup(degrees=mesh, sizes={d: max(n, 2) + extra * (n > 1) for d, n in cut.items()}, reference=reference)


def _cut(program: Resolved, mesh: Mapping[str, int]) -> dict[str, int]:
    """How many parts a dimension may be cut into: its least size, so that every device has an element."""
    dims = {d: set[str]() for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))}
    for tensor in program.tensors:
        for axis, dim in tensor.split:
            dims[dim].add(axis)
    for stmt in statements(program.body):
        for call in calls(stmt):
            for axis, dim in call.cuts:
                if dim in dims:
                    dims[dim].add(axis)
    return {d: math.prod(mesh.get(a, 1) for a in axes) for d, axes in dims.items()}
