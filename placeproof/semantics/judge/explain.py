"""What is wrong with a gradient, in words: the factor that it has too much, or the samples that alone are in it; and after which line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from placeproof.programs import Assign, Ref, Resolved, Stmt, calls, statements
from placeproof.programs.ir import expressions, references
from placeproof.programs.ranks import least_degrees
from placeproof.semantics.judge.forgotten import forgotten
from placeproof.semantics.judge.search import batches_of, degrees_of, shapes_of
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.meaning.run import NoMeaningError, Run
from placeproof.semantics.meaning.setup import Setup
from placeproof.semantics.meaning.values import Part

#: Degrees that tell factors apart: no product of some is a product of others.
_APART = (3, 5, 7, 11, 13)
#: The most devices of the run that is explained, and the highest power of a degree in a factor.
MOST, POWERS = 250, (0, -1, 1, -2, 2)
_RIGHT = "what is expected"
#: Of a buffer that was cleared, and of what has no short name.
ZERO, SOMETHING = "zero", "something else"


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


@dataclass(frozen=True, slots=True)
class _Words:
    """What a gradient is: ``what``, times a factor of this ``value``, which may be written as each of ``ways``; ``around``: a sentence."""

    what: str = ""
    value: Fraction = Fraction(1)
    ways: tuple[str, ...] = ("",)
    around: str = "{}"

    @property
    def doubtful(self) -> bool:
        """Whether there is a factor, and which one may be said in several ways."""
        return len(self.ways) > 1 and self.value != 1

    def text(self, elsewhere: _Words | None) -> str:
        """In words. Of several ways to write a factor one is taken that says what it is with other degrees, ``elsewhere``; else it is a
        number."""
        way = self.ways[0]
        if self.doubtful:
            same = elsewhere is not None and (elsewhere.what, elsewhere.around) == (self.what, self.around)
            way = elsewhere.ways[0] if elsewhere is not None and same and elsewhere.ways[0] in self.ways else str(self.value)
        return self.around.format(_in_words(self.what, way))


#: What lines leave, in the order in which it changes: by line and buffer.
_Lines = dict[tuple[int, str], _Words]


def explain(program: Resolved, without: frozenset[str] = frozenset()) -> tuple[str | None, list[Left]]:
    """What the gradient is that a refuted program's update reads, where that can be said in a few words: by what factor it is too large, on
    all devices, for degrees that tell factors apart; or of which samples it is alone. None where it is something else, or right.

    And what each line leaves of it, on the same mesh; each change once. Nothing of either where the program does not run there. With
    degrees that the program fixes, 1/8 may be of an axis of eight or of two others: what it is where none is fixed tells.
    """
    update, lines = _explained(program, without)
    doubtful = any(words is not None and words.doubtful for words in (update, *lines.values()))
    opened = _opened(program)
    above, others = _explained(opened, without) if doubtful and opened != program else (None, _Lines())
    shown, words = list[Left](), dict[str, str]()
    for (line, name), own in lines.items():
        holds = own.text(others.get((line, name)))
        if words.get(name) != holds:
            words[name] = holds
            shown.append(Left(line, name, holds))
    said = None if update is None else update.text(above)
    return said, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is wrong with a refuted step: ``explained`` in a few words, or a ``repair``, the line with which it is proved; and what
    ``lines`` leave of the gradient."""

    explained: str | None
    repair: str | None
    lines: tuple[Left, ...]

    @property
    def sentence(self) -> str | None:
        """The one or the other; None where neither is known."""
        return self.explained if self.repair is None else f"{self.repair} the step is proved"


@lru_cache(maxsize=1)
def told(judged: Judged) -> Told:
    """What is wrong with a refuted step: asked for by each form of an answer, and worked out once."""
    words, left = explain(judged.program, judged.options.without)
    repair = forgotten(judged.program, judged.options.without) if words is None else None
    return Told(explained=words, repair=repair, lines=tuple(left))


def _opened(program: Resolved) -> Resolved:
    """The same step on a mesh of any size."""
    axes = tuple(axis if axis.inner is not None else replace(axis, degree=None) for axis in program.axes)
    return replace(program, axes=axes, counts=tuple((name, n) for name, n in program.counts if name != "microbatches"))


def _explained(program: Resolved, without: frozenset[str]) -> tuple[_Words | None, _Lines]:
    setup = None if program.loss else _setup(program, without)  # what is looked for is a mean over devices that all count alike
    both = None if setup is None else _ran(program, setup)
    if setup is None or both is None:
        return None, {}
    lines, update = _by_line(program, both, setup), _of_update(both, setup)
    return update or _of_next(both, setup), lines


def _of_update(both: Run, setup: Setup) -> _Words | None:
    read = [place.read for place in both.places]
    if any(part is None for part in read):
        return None
    wrong, of = _wrong(_gradient(both, read))
    words = _said(wrong, setup) if wrong.right.size else None
    return None if words is None or words == _Words() else replace(words, around=f"the gradient{of} is {{}}")


def _of_next(both: Run, setup: Setup) -> _Words | None:
    """What is wrong in the second step of a program whose first one is right: what the first has left is added up with it."""
    reads = [place.read for place in both.places]
    before = None if any(part is None for part in reads) else _gradient(both, reads)
    if before is None or ((before.read != before.right[None, :]) & (before.read != -1)).any() or not _goes_on(both):
        return None
    after = _gradient(both, [place.read for place in both.places])
    f = both.truth.world.field
    more = replace(after, read=np.where(after.read == -1, -1, f.sub(after.read, after.right[None, :])))
    ways = _factor(more, before.right[None, :], setup)[1]
    said = "the gradient is what is expected in the first step; in the second one, it has what the first has left, too: nothing clears it"
    return _Words("", around=said) if ways else None


def _goes_on(both: Run) -> bool:
    """Run another step; False where that has no meaning."""
    try:
        return both.step(1) is None and all(place.read is not None for place in both.places)
    except (ZeroDivisionError, NoMeaningError):
        return False


def _by_line(program: Resolved, both: Run, setup: Setup) -> _Lines:
    names, found = _of_gradients(program), _Lines()
    for number, stmt in enumerate(program.body):
        for name in names:
            parts = [place.seen[number].get(name) for place in both.places if place.seen is not None]
            if stmt.place is not None and all(_is_gradient(part) for part in parts):
                found[stmt.place.line, name] = _holds(_gradient(both, parts), setup)
    return found


def _holds(gradient: _Gradient, setup: Setup) -> _Words:
    if (gradient.read == -1).all(axis=0).any():
        return _Words("on no device for some elements")
    if ((gradient.read == 0) | (gradient.read == -1)).all():
        return _Words(ZERO)
    words = _said(gradient, setup)
    if words is None:
        wrong, of = _wrong(gradient)
        words = _said(wrong, setup) if of else None
        words = None if words is None else replace(words, around=f"{{}}{of}, elsewhere {_RIGHT}")
    if words is None:
        return _Words(SOMETHING)
    present = gradient.read != -1
    rooted = (present.all(axis=1) | ~present.any(axis=1)).all() and not present.all()  # as after a `reduce`: here all of it, there nothing
    return replace(words, around=f"{words.around}, on some devices alone") if rooted else words


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


def _said(gradient: _Gradient, setup: Setup) -> _Words | None:
    """What a gradient is, in a few words; None where there are none."""
    for what, expected in _expected(gradient):
        value, ways = _factor(gradient, expected, setup)
        if ways:
            return _Words(what, value, ways)
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


def _factor(gradient: _Gradient, expected: Any, setup: Setup) -> tuple[Fraction, tuple[str, ...]]:
    """By how much all devices' gradients are larger, and as which products of degrees that can be written, the shortest first; an empty
    text for none. No ways where there is no such product."""
    f, present = gradient.run.truth.world.field, gradient.read != -1
    names = {name: n for name, n in setup.degrees.items() if n > 1}
    names |= {"microbatches": setup.microbatches} if setup.microbatches > 1 else {}
    ways: dict[Fraction, list[str]] = {}
    for powers in sorted(itertools.product(POWERS, repeat=len(names)), key=lambda p: sum(map(abs, p))):
        value = prod((Fraction(n) ** e for n, e in zip(names.values(), powers, strict=True)), start=Fraction(1))
        for constant in (Fraction(1), Fraction(2), Fraction(1, 2)):
            way = _product({"2": {1: 0, 2: 1}.get(int(constant), -1), **dict(zip(names, powers, strict=True))})
            ways.setdefault(value * constant, []).append(way)
    for value, texts in ways.items():
        if not (present & (gradient.read != f.mul(expected, f.of(value)))).any():
            return value, tuple(texts)
    return Fraction(0), ()


def _product(powers: dict[str, int]) -> str:
    over = [name if e == 1 else f"{name}**{e}" for name, e in powers.items() if e > 0]
    under = [name if e == -1 else f"{name}**{-e}" for name, e in powers.items() if e < 0]
    if not over and not under:
        return ""
    below = "" if not under else f"/{under[0]}" if len(under) == 1 else f"/({' * '.join(under)})"
    return f"{' * '.join(over) or '1'}{below}"
