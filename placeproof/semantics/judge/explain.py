"""What is wrong with a gradient, in words: the factor that it has too much, or the samples that alone are in it; and after which line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from placeproof.programs import Assign, Ref, Resolved, Stmt, calls, statements
from placeproof.programs.ir import expressions, references
from placeproof.programs.ranks import least_degrees
from placeproof.semantics.judge.search import batches_of, degrees_of, shapes_of
from placeproof.semantics.meaning.run import NoMeaningError, Run
from placeproof.semantics.meaning.setup import Setup
from placeproof.semantics.meaning.values import Part

#: Degrees that tell factors apart: no product of some is a product of others.
_APART = (3, 5, 7, 11, 13)
#: The most devices of the run that is explained, and the highest power of a degree in a factor.
MOST, POWERS = 250, (0, -1, 1, -2, 2)
_RIGHT = "what is expected"


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The gradient that each device's update read, ``read[device, element]``, -1 where it has none; ``right[element]``, and that of each
    sample, ``samples[sample, element]``. ``own``: the coordinates of each device's samples."""

    run: Run
    read: Any
    samples: Any
    right: Any
    own: Any


@dataclass(frozen=True, slots=True)
class Left:
    """What a statement that is in no loop leaves in a buffer of gradients, in words. ``line``: where it begins."""

    line: int
    name: str
    holds: str


def explain(program: Resolved, without: frozenset[str] = frozenset()) -> tuple[str | None, list[Left]]:
    """What the gradient is that a refuted program's update reads, where that can be said in a few words: by what factor it is too large, on
    all devices, for degrees that tell factors apart; or of which samples it is alone. None where it is something else, or right.

    And what each line leaves of it, on the same mesh; each change once. Nothing of either where the program does not run there.
    """
    setup = None if program.loss else _setup(program, without)  # what is looked for is a mean over devices that all count alike
    both = None if setup is None else _ran(program, setup)
    return (None, []) if setup is None or both is None else (_of_update(both, setup), list(_by_line(program, both, setup)))


def _of_update(both: Run, setup: Setup) -> str | None:
    read = [place.read for place in both.places]
    if any(part is None for part in read):
        return None
    wrong, of = _wrong(_gradient(both, read))
    words = _said(wrong, setup) if wrong.right.size else None
    return None if words in (None, _RIGHT) else f"the gradient{of} is {words}"


def _by_line(program: Resolved, both: Run, setup: Setup) -> Iterator[Left]:
    names, words = _of_gradients(program), dict[str, str]()
    for number, stmt in enumerate(program.body):
        for name in names:
            parts = [place.seen[number].get(name) for place in both.places if place.seen is not None]
            if stmt.place is None or not all(_is_gradient(part) for part in parts):
                continue
            holds = _holds(_gradient(both, parts), setup)
            if words.get(name) != holds:
                words[name] = holds
                yield Left(stmt.place.line, name, holds)


def _holds(gradient: _Gradient, setup: Setup) -> str:
    if (gradient.read == -1).all(axis=0).any():
        return "on no device for some elements"
    words = _said(gradient, setup)
    if words is None:
        wrong, of = _wrong(gradient)
        words = _said(wrong, setup) if of else None
        words = None if words is None else f"{words}{of}, elsewhere {_RIGHT}"
    if words is None:
        return "something else"
    present = gradient.read != -1
    rooted = (present.all(axis=1) | ~present.any(axis=1)).all() and not present.all()  # as after a `reduce`: here all of it, there nothing
    return f"{words}, on some devices alone" if rooted else words


def _is_gradient(part: Any) -> bool:
    return isinstance(part, Part) and part.data.shape[-1] == 1 and bool(part.have.any())


def _of_gradients(program: Resolved) -> list[str]:
    """The buffers from which the update's gradient comes, as far as the passes, in the order in which they are written."""
    every = list(statements(program.body))
    updates = [c for s in every for c in calls(s) if c.op in ("update", "update_with") and len(c.args) > 2]
    known = {r.name for c in updates for r in expressions(c.args[2]) if isinstance(r, Ref)}
    targets = [(t.name, s) for s in every if isinstance(s, Assign) for t in s.targets]
    while True:
        more = {r.name for name, s in targets if name in known and not _passes(s) for r in references(s)} - {"parameters", "optimizer"}
        if more <= known:
            return list(dict.fromkeys(name for name, _ in targets if name in known))
        known |= more


def _passes(stmt: Stmt) -> bool:
    return any(c.op.startswith(("forward", "backward", "update")) for c in calls(stmt))


def _said(gradient: _Gradient, setup: Setup) -> str | None:
    """What a gradient is, in a few words; None where there are none."""
    for what, expected in _expected(gradient):
        factor = _factor(gradient, expected, setup)
        if factor is not None:
            return _in_words(what, factor)
    return None


def _in_words(what: str, factor: str) -> str:
    part = factor.startswith("1/")
    if (what, factor) == ("", ""):
        return _RIGHT
    if not what:
        return f"{factor} of what is expected" if part else f"{factor} times what is expected"
    return what if not factor else f"{what}, {factor} of it" if part else f"{what}, {factor} times"


def _wrong(gradient: _Gradient) -> tuple[_Gradient, str]:
    """The elements of the groups, and of the units, whose gradient is wrong somewhere, and their names where others are right."""
    layout, elements = gradient.run.truth.world.layout, gradient.run.truth.world.elements
    wrong = ((gradient.read != -1) & (gradient.read != gradient.run.truth.gradient)).any(axis=0)
    groups = np.array([layout.group_of(e) for e in elements])
    names = list(dict.fromkeys(groups[wrong]))
    of = "" if len(names) == len(set(groups)) else " of " + " and ".join(f"`{n}`" for n in names)
    at = np.isin(groups, names)
    each = layout.blocks_per_layer * layout.setup.layers_per_stage // layout.setup.units_per_stage
    units, count = np.array([e[0] // each for e in elements]), len(layout.blocks) // each
    bad = frozenset(units[wrong])
    named = {frozenset(range(1, count)): " in all units but the first", frozenset(range(count - 1)): " in all units but the last"}
    named |= {frozenset((count - 1,)): " in the last unit", frozenset((0,)): " in the first unit"}
    if layout.stage_count == 1 and count > 1 and bad in named:
        at, of = at & np.isin(units, list(bad)), of + named[bad]
    return replace(gradient, read=gradient.read[:, at], samples=gradient.samples[:, at], right=gradient.run.truth.gradient[at]), of


def _setup(program: Resolved, without: frozenset[str]) -> Setup | None:
    """A mesh whose degrees, and number of micro-batches, tell factors apart."""
    least, free = least_degrees(program), iter(_APART)
    degrees: dict[str, int] = {}
    for axis in program.axes:
        if axis.degree is not None or axis.inner is not None:
            degrees |= degrees_of(axis, least.get(axis.name, 1))[-1]
        else:
            degrees[axis.name] = next((n for n in free if n >= least.get(axis.name, 1)), 0)
    batches = batches_of(program)
    m = batches[0] if len(batches) == 1 else next(free, 0)
    units = shapes_of(program)[-1][1]
    if not all(degrees.values()) or not m or prod(degrees[a.name] for a in program.axes) > MOST:
        return None
    return Setup(degrees=degrees, microbatches=m, layers_per_stage=units, units_per_stage=units, exact=False, without=without)


def _ran(program: Resolved, setup: Setup) -> Run | None:
    """One step of a program that ends there."""
    both = Run(program, setup).watched()
    try:
        return both if both.step(0) is None and program.axes else None
    except (ZeroDivisionError, NoMeaningError):
        return None


def _gradient(both: Run, parts: list[Any]) -> _Gradient:
    """What a buffer holds on all devices; ``parts``: on those of each place."""
    rows, own = [], []
    for place, buffer in zip(both.places, parts, strict=True):
        part = buffer.on(both.truth.columns)
        if not part.have.all():  # of parts, each device has its own
            part = part.with_(np.where(part.have[..., None], part.data, -1), part.extent | True)
        rows.append(part.data[..., 0].reshape(-1, len(both.truth.columns)))
        coordinates = [np.broadcast_to(place.mesh.at[f], place.mesh.shape).reshape(-1) for f in place.world.layout.sample_factors]
        own.append(np.stack(coordinates, axis=-1) if coordinates else np.zeros((len(rows[-1]), 0), dtype=np.int64))
    samples, right = both.truth.by_sample, both.truth.gradient
    return _Gradient(both, np.concatenate(rows), samples, right, np.concatenate(own))


def _expected(gradient: _Gradient) -> Iterator[tuple[str, Any]]:
    """What a gradient may be, in words, and as ``[device, element]``: the mean over some of the samples, or what they add to it."""
    f, layout, m = gradient.run.truth.world.field, gradient.run.truth.world.layout, gradient.run.places[0].batches
    count = len(gradient.samples)
    yield "", gradient.right[None, :]
    for number, name in ((m - 1, "last"), (0, "first")) if m > 1 else ():
        only = np.arange(count) % m == number
        yield f"that of the {name} micro-batch alone", f.div(f.total(gradient.samples[only], 0), f.of(count // m))[None, :]
        yield f"without the {name} micro-batch", f.div(f.total(gradient.samples[~only], 0), f.of(count))[None, :]
    sizes = [gradient.run.truth.world.sizes[x] for x in layout.sample_factors]
    if prod(sizes) > 1:
        at = np.stack(np.unravel_index(np.arange(count) // m, sizes), axis=-1)
        rows = [f.div(f.total(gradient.samples[(at == place).all(axis=-1)], 0), f.of(m)) for place in gradient.own]
        yield "that of the device's own samples alone", np.stack(rows)


def _factor(gradient: _Gradient, expected: Any, setup: Setup) -> str | None:
    """By which product of degrees all devices' gradients are larger; an empty text for none, None where there is no such."""
    f, present = gradient.run.truth.world.field, gradient.read != -1
    names = {name: n for name, n in setup.degrees.items() if n > 1}
    names |= {"microbatches": setup.microbatches} if setup.microbatches > 1 else {}
    for powers in sorted(itertools.product(POWERS, repeat=len(names)), key=lambda p: sum(map(abs, p))):
        value = prod((Fraction(n) ** e for n, e in zip(names.values(), powers, strict=True)), start=Fraction(1))
        for constant in (Fraction(1), Fraction(2), Fraction(1, 2)):
            if not (present & (gradient.read != f.mul(expected, f.of(value * constant)))).any():
                return _product({"2": {1: 0, 2: 1}.get(int(constant), -1), **dict(zip(names, powers, strict=True))})
    return None


def _product(powers: dict[str, int]) -> str:
    over = [name if e == 1 else f"{name}**{e}" for name, e in powers.items() if e > 0]
    under = [name if e == -1 else f"{name}**{-e}" for name, e in powers.items() if e < 0]
    if not over and not under:
        return ""
    below = "" if not under else f"/{under[0]}" if len(under) == 1 else f"/({' * '.join(under)})"
    return f"{' * '.join(over) or '1'}{below}"
