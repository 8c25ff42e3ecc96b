"""What was proved is run: small meshes and long thin ones, on which the arrays of :mod:`placeproof.semantics.meaning` have to agree.

A proof rests on what the encoding says that operations do. A run asks a second meaning, which shares nothing with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

from placeproof.core.mesh import Axis
from placeproof.programs import Number, Resolved, statements
from placeproof.programs.ir import evaluated
from placeproof.programs.ranks import least_degrees
from placeproof.semantics.encode import Line
from placeproof.semantics.encode.world import Range
from placeproof.semantics.judge.linewise import compared
from placeproof.semantics.judge.search import (
    MOST_PASSES,
    RefutingRun,
    allowed,
    batches_of,
    degrees_by,
    degrees_of,
    describe,
    entries_of,
    shapes_of,
)
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.run import NoMeaningError, Run
from placeproof.semantics.meaning.script import what_differs
from placeproof.semantics.meaning.setup import Fault, Setup, one_size_each
from placeproof.semantics.meaning.world import apart_axes

#: How many devices a confirming run may have, and how many that run one by one since they exchange messages or do different things.
MOST_DEVICES, MOST_APART = 8192, 64
#: How many devices a run has in which there are several along many axes, unless more are given.
SEVERAL = 27
#: On which of :func:`meshes` an encoding is compared line by line: that of two of everything.
BY_LINE = 1
#: On how many axes, or their factors, an encoding is compared line by line: arrays have a dimension for each, and for each sum over one.
MOST_BY_LINE = 13
#: A long thin mesh has at least so many devices, and at most so many.
LONG, LONGEST = 5, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Runs that ended as the proof says: a mesh each, in words. ``fewer``: of what they have fewer than is given, since that is too many to
    run: devices, micro-batches."""

    runs: tuple[str, ...]
    fewer: tuple[str, ...] = ()

    @property
    def smaller(self) -> bool:
        """Whether what is given is too much to run."""
        return bool(self.fewer)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """Why no run was possible."""

    why: str


class DisagreementError(Exception):
    """A run of a program ends otherwise than its proof says. One of the two is wrong, and so is placeproof."""

    def __init__(self, program: str, where: str, what: str) -> None:
        super().__init__(program, where, what)  # so that it can be sent from one process to another

    def __str__(self) -> str:
        program, where, what = self.args
        return f"every obligation of `{program}` is proved, and a run with {where} denies it: {what}; do not trust the proof"


def denied(program: Resolved, counterexample: RefutingRun) -> DisagreementError:
    """The error of a run that denies a proof."""
    what = counterexample.what.why if isinstance(counterexample.what, Fault) else what_differs(counterexample.what)
    return DisagreementError(program.name, describe(counterexample.setup), what)


Result: TypeAlias = Confirmed | RefutingRun | NotRun


def confirm_by_runs(
    program: Resolved, without: frozenset[str] = frozenset(), ranges: tuple[Range, ...] = (), lines: tuple[Line, ...] = ()
) -> Result:
    """Run a proved program on :func:`meshes`; on one of them what the encoding says that each of its ``lines`` leaves is compared, too.

    All states must be placed by the program. Where given degrees, or micro-batches, are too many, smaller ones are run; if these differ,
    nothing is learnt. Raises DisagreementError where a line leaves something else than the encoding says.
    """
    every = list(meshes(program, without, ranges))
    small = [s for s in every if _fits(program, s)]
    if small or not every:
        return _ran(program, small, lines) if small else NotRun(why="no degrees are allowed that could be run")
    for fewer in (("micro-batches",), ("devices",), ("devices", "micro-batches")):
        small = [s for s in meshes(_freed(program, fewer), without, ()) if _fits(program, s)]
        if small:
            break
    outcome = _ran(program, small)
    if isinstance(outcome, Confirmed):
        return Confirmed(runs=outcome.runs, fewer=fewer)
    if isinstance(outcome, NotRun):
        return outcome
    many = " and ".join(fewer)
    return NotRun(why=f"the {many} that are given are too many to run, and with fewer it is another program")


def _freed(program: Resolved, what: tuple[str, ...]) -> Resolved:
    """The program for any number of devices, or of micro-batches."""
    axes = tuple(replace(axis, degree=None) for axis in program.axes) if "devices" in what else program.axes
    counts = tuple(row for row in program.counts if row[0] != "microbatches" or "micro-batches" not in what)
    return replace(program, axes=axes, counts=counts)


def _ran(program: Resolved, setups: list[Setup], lines: tuple[Line, ...] = ()) -> Result:
    done = []
    by_line = bool(lines) and sum(len(axis.factors) for axis in program.axes) <= MOST_BY_LINE
    for number, setup in enumerate(setups):
        looked = by_line and number == min(BY_LINE, len(setups) - 1)
        try:
            both = Run(program, setup).watched() if looked else Run(program, setup)
            what = both.compare(1)
            if what is None and looked and not isinstance(difference := compared(both, lines), int):
                raise DisagreementError(program.name, describe(setup), difference.why)
            what = what or both.compare(setup.steps, began=1)
        except ZeroDivisionError:  # undefined for the numbers drawn
            continue
        except NoMeaningError as why:
            return NotRun(why=str(why))
        if what is not None:
            return RefutingRun(setup=setup, what=what)
        done.append(describe(setup))
    return Confirmed(runs=tuple(done)) if done else NotRun(why="every run divides by zero")


def meshes(program: Resolved, without: frozenset[str] = frozenset(), ranges: tuple[Range, ...] = ()) -> Iterator[Setup]:
    """One of everything; two of everything; three, with most micro-batches and parts of the model; on each axis a long thin mesh, longer
    than any number in the program. Within the ranges that a claim is restricted to."""
    least = least_degrees(program)
    allowed_ = [_allowed_degrees(program, axis, least.get(axis.name, 1), ranges) for axis in program.axes]
    choices = [small for small, _ in allowed_]
    if not all(choices):
        return
    batches, shapes = batches_of(program, ranges), shapes_of(program)
    if not batches:
        return
    rows: list[tuple[list[dict[str, int]], int, tuple[int, int]]] = []
    for n in range(max(3, len(shapes))):
        degrees = _of_everything(n, choices)
        rows.append((degrees, batches[min(n, len(batches) - 1)], shapes[min(n, len(shapes) - 1)]))
    for number, (_, long) in enumerate(allowed_):
        rows += [([end if n == number else c[0] for n, c in enumerate(choices)], batches[0], shapes[0]) for end in long]
    seen = set()
    for number, (chosen, m, (layers, units)) in enumerate(rows):
        mesh = dict(itertools.chain.from_iterable(d.items() for d in chosen))
        key = (*mesh.items(), m, layers, units)
        if key not in seen and one_size_each(program, mesh):
            seen.add(key)
            steps = 2 if number in (1, 2) or len(rows) == 1 else 1  # what is left for the next step shows on any mesh of several devices
            yield Setup(mesh, m, layers, units, steps=steps, exact=False, without=without, entries=entries_of(least))


def _of_everything(n: int, choices: list[list[dict[str, int]]]) -> list[dict[str, int]]:
    """The n-th degree of each axis, as long as there are not too many devices; of the rest, the first. Each time another axis begins."""
    degrees, devices = [c[0] for c in choices], prod(prod(c[0].values()) for c in choices)
    for at in range(len(choices)):
        number = (at + n) % len(choices)
        wanted = choices[number][min(n, len(choices[number]) - 1)]
        more = devices // prod(degrees[number].values()) * prod(wanted.values())
        if more <= SEVERAL:
            degrees[number], devices = wanted, more
    return degrees


def _allowed_degrees(
    program: Resolved, axis: Axis, least: int, ranges: tuple[Range, ...]
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Up to three degrees of an axis, the smallest first, and long ones: of each of its factors. One alone where it is given."""
    if axis.degree is not None and axis.inner is None:
        return [{axis.name: axis.degree}], []
    choices: list[dict[str, int]] = []
    long = max(LONG, least + 2, *(n + 2 for n in _numbers(program)))
    for start in range(least, LONGEST):
        choices = [d for d in degrees_of(axis, start) if allowed(program, Setup(degrees=d), ranges)]
        if choices:
            break
    choices.sort(key=lambda d: prod(d.values()))
    if not choices or axis.degree is not None:
        return choices[:3], []
    if isinstance(axis.inner, int):
        shapes = [[(n, axis.inner) for n in range(long, LONGEST)]]
    else:
        shapes = [[(n, 1) for n in range(long, LONGEST)], *([[(1, n) for n in range(long, LONGEST)]] if axis.inner is not None else [])]
        inside = [d for d in choices if 1 < d.get(axis.inner_name, 1) < d[axis.name]]  # several groups of several devices
        choices = [choices[0], *inside[:1], *inside[2:3]] if inside else choices
    ends = [[d for d in itertools.starmap(partial(degrees_by, axis), s) if allowed(program, Setup(degrees=d), ranges)] for s in shapes]
    return choices[:3], [d for end in ends for d in end[:1]]


def _numbers(program: Resolved) -> list[int]:
    """Whole numbers that the program names, as far as a mesh may be as long."""
    every = [e for s in statements(program.body) for e in evaluated(s)]
    return [0, *(int(e.value) for e in every if isinstance(e, Number) and e.value.denominator == 1 and 0 < e.value < LONGEST - 2)]


def _fits(program: Resolved, setup: Setup) -> bool:
    """Whether a mesh is small enough to be run, and so are the micro-batches on it."""
    layout = Layout(program, setup)
    sizes = layout.sizes
    devices, apart = prod(sizes.values()), prod(sizes[f] for f in layout.factors(apart_axes(program, layout)))
    return devices <= MOST_DEVICES and apart <= MOST_APART and apart * setup.microbatches <= MOST_PASSES
