"""The encoding of a program against its run, line by line: what each buffer holds after a statement, as a term and as numbers.

A proof speaks of terms, a confirming run of numbers, and both could end alike by chance of two mistakes. Here the terms of every buffer are
evaluated on a small mesh, with the run's own parameters, samples and owners for the functions that the encoding leaves open, and have to be
the numbers that the devices hold. Nothing is said of a term that has no number (activations, layer by layer), nor of what nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from placeproof.programs.losses import UNITS
from placeproof.prove.claims import Equal, Equation
from placeproof.prove.terms import App, Fn, Greatest, Index, Lam, Paren, Poly, Sum, Sym, Var
from placeproof.prove.terms.nodes import Argument, Atom, Mono
from placeproof.semantics.encode import Line, Obligation
from placeproof.semantics.encode.values import Scalar, Tensor, Value
from placeproof.semantics.encode.world import ELEMENT
from placeproof.semantics.meaning import optimizer
from placeproof.semantics.meaning.devices.place import Place
from placeproof.semantics.meaning.layout import CHANNELS, TIED, Element, in_words
from placeproof.semantics.meaning.losses import sequences
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.meaning.values import Part
from placeproof.semantics.meaning.world import Columns

Array: TypeAlias = Any
#: Index variables -> the points that they stand for: ``[bound variables..., coordinates..., element, 2]``.
Points: TypeAlias = dict[str, Array]
#: The multipliers of a mixing function (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014, section 5).
_MIX = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)
_ELEMENT = tuple(v.name for v in ELEMENT)


@dataclass(frozen=True, slots=True)
class Differs:
    """A buffer whose term is not what devices hold after a line."""

    line: int | None
    name: str
    device: dict[str, int]
    element: Element | None

    @property
    def why(self) -> str:
        """In words."""
        where = f"in line {self.line}" if self.line else "on the way"
        what = f"{in_words(self.element)} of `{self.name}`" if self.element else f"`{self.name}`"
        return f"{where}, {what} on {self._where} is not what the proof takes it to be"

    @property
    def sides(self) -> str:
        """In words, of an obligation."""
        of = f" for {in_words(self.element)}" if self.element else ""
        return f"it does not hold{of} on {self._where} that {self.name}"

    @property
    def _where(self) -> str:
        return ", ".join(f"{f} = {n}" for f, n in self.device.items()) or "the device"


class _NoNumberError(Exception):
    """A term speaks of something for which a run has no number."""


def compared(run: Run, lines: tuple[Line, ...]) -> Differs | int:
    """The first buffer that differs after a line that wrote it, or how many numbers were compared.

    ``run``: after its first step, watched (:meth:`Run.watched`). ``lines``: of the program's encoding, all obligations of which are proved.
    """
    count, numbers = 0, _Numbers(run)
    before: Mapping[str, Value] = {}
    for number, line in enumerate(lines):
        for name, value in line.after.items():
            if value is before.get(name) or not isinstance(value, Tensor | Scalar):
                continue
            for place in run.places:
                assert place.seen is not None
                result = numbers.compare(place, value, place.seen[number].get(name))
                if isinstance(result, tuple):
                    return Differs(line.stmt.place.line if line.stmt.place else None, name, *result)
                count += result
        before = line.after
    return count


def sides(run: Run, obligation: Obligation) -> Differs | int:
    """Where the two sides of an obligation are different numbers, or how many were compared: none where a side has no number.

    ``run``: after its first step. What nobody knows may be any number; so a side that depends on it is not the other one.
    """
    count, numbers = 0, _Numbers(run)
    group = next((g for g in numbers.groups if f"({g})" in obligation.name), "all")
    if group not in numbers.groups:
        return 0
    for place in run.places:
        result = numbers.sides(place, obligation.claim, group)
        if isinstance(result, tuple):
            return Differs(obligation.place.line if obligation.place else None, obligation.name, *result)
        count += result
    return count


def _state(master: Array) -> Array:
    """The optimizer state before the first step, of its copy of the parameters."""
    return np.stack([master, np.zeros_like(master)], axis=-1)


class _Numbers:
    """What the functions of an encoding are in a run."""

    def __init__(self, run: Run) -> None:
        self.run, self.place = run, run.places[0]
        self.world, self.layout, self.f = self.place.world, self.place.layout, self.place.world.field
        self.named = np.array([self._named(e) for e in self.world.elements])
        self.group: str | None = None  # of the elements at hand
        self.known: dict[str, Array] = {}  # what factors are, on the devices and for the elements at hand
        self.known_of: dict[tuple[int, Columns | None], dict[str, Array]] = {}

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose elements the run numbers."""
        return tuple(self._numbers)

    # Comparing.

    def sides(self, place: Place, claim: Equation, group: str) -> int | tuple[dict[str, int], Element | None]:
        """How many numbers of a group's elements were compared, or a device, and an element, at which the two sides differ."""
        self.place, self.group = place, group
        columns = self.world.columns(tuple(n for n, e in enumerate(self.world.elements) if self.layout.group_of(e) == group))
        points = {f"d.{f}": n[..., None, None] for f, n in place.mesh.at.items()}
        points |= dict(zip(_ELEMENT, self.named[columns.index].T[..., None], strict=True))
        self.known = self.known_of.setdefault((id(place), columns), {})
        try:
            left, right = self.poly(claim.left, points), self.poly(claim.right, points)
            there = [self.index(g.left, points) == self.index(g.right, points) for g in claim.given if isinstance(g, Equal)]
        except (_NoNumberError, ZeroDivisionError):
            return 0
        shape = (*place.mesh.shape, len(columns), 2)
        known = np.broadcast_to(reduce(np.logical_and, there, np.array(True)), (*shape[:-1], 1))[..., 0]
        wrong = np.argwhere(known & np.broadcast_to(left != right, shape).any(axis=-1))
        return (self._device(wrong[0]), columns.elements[int(wrong[0][-1])]) if len(wrong) else int(known.sum())

    def compare(self, place: Place, value: Tensor | Scalar, buffer: Any) -> int | tuple[dict[str, int], Element | None]:
        """How many numbers were compared, or a device, and an element, at which they differ."""
        self.place = place
        if isinstance(value, Scalar):
            if value.of_tensors or not isinstance(buffer, np.ndarray):
                return 0
            there: Array = np.ones((*place.mesh.shape, 1), dtype=bool)
            wrong, count = self._wrong(value.body, buffer[..., None], (there, there), None)
            return (self._device(wrong[0]), None) if len(wrong) else count
        if not isinstance(buffer, Part) or buffer.data.shape[-1] != 1:
            return 0
        total = 0
        for group, piece in value.pieces.items():
            part, self.group = buffer.only(None, group), group
            if not len(part.columns):
                continue
            there = part.have if piece.body.number is not None else part.extent
            wrong, count = self._wrong(piece.body, part.data[..., 0], (there, part.have), part.columns)
            if len(wrong):
                return self._device(wrong[0]), part.columns.elements[int(wrong[0][-1])]
            total += count
        return total

    def _wrong(self, body: Poly, data: Array, there: tuple[Array, Array], columns: Columns | None) -> tuple[Array, int]:
        """Where what a term is differs from what is held, and how many numbers were compared: none where a term has none. ``there``: where
        it may be, and where it is; nothing less nothing is zero for the term, and nothing for a run."""
        points = {f"d.{f}": n[..., None, None] for f, n in self.place.mesh.at.items()}
        if columns is not None:
            points |= dict(zip(_ELEMENT, self.named[columns.index].T[..., None], strict=True))
        self.known = self.known_of.setdefault((id(self.place), columns), {})
        try:
            sides = self.poly(body, points)
        except (_NoNumberError, ZeroDivisionError):
            return np.zeros((0, 0)), 0
        first, second = sides[..., 0], sides[..., -1]  # what nobody knows is two numbers
        decided = (first == second) & there[0] & (there[1] | (first != 0))
        return np.argwhere(decided & (first != data)), int(decided.sum())

    def _device(self, wrong: Array) -> dict[str, int]:
        return {f: self.place.here.get(f, int(n)) for f, n in zip(self.world.factors, wrong, strict=False)}

    def _named(self, element: Element) -> tuple[int, int, int]:
        """An element by its block, slice and place there: a number for each matrix, row and column."""
        block, part, row, column = element
        if not self.layout.network:
            return block, row, column
        inner, other = (column, row) if part == "W1" else (row, column)
        number = ("n", "W1", "W2").index(part) * CHANNELS + other
        if part != "n" and self.layout.slice_axes(self.layout.group_of(element)):
            return block, inner, number
        return block, 0, number * (self.layout.width + CHANNELS) + inner

    @cached_property
    def _numbers(self) -> dict[str, Array]:
        """Of each group, ``[block, slice, entry]`` -> the number of the element; -1 where there is none."""
        numbers: dict[str, Array] = {}
        for number, (at, element) in enumerate(zip(self.named, self.world.elements, strict=True)):
            numbers.setdefault(self.layout.group_of(element), np.full(self.named.max(axis=0) + 1, -1))[tuple(at)] = number
        return numbers

    # Index terms.

    def index(self, term: Index, points: Points) -> Array:
        """The points that an index term stands for: a coordinate's number, a block's, a micro-batch's."""
        if isinstance(term, Var):
            if term.name not in points:  # of an iteration of a loop that is over
                raise _NoNumberError(term.name)
            return points[term.name]
        args = [self.index(a, points) for a in term.args]
        name, _, of = term.name.partition(".")
        size, stages = self._size(term.sort.name), self.layout.stage_count
        if name == "owner":
            return self._owner(of, term, args)
        if not args and name in ("first", "last") and (stages == 1 or term.sort.name not in ("block", "units")):  # else of which stage?
            return np.array(0 if name == "first" else size - 1)
        if not args and name.removeprefix("rank").isdecimal():
            return np.array(int(name.removeprefix("rank")))
        if not args and name in ("first block", "last block"):
            return np.array(0 if name == "first block" else len(self.layout.blocks) - 1)
        if name == "stage" and len(args) == 1:
            return args[0] * stages // len(self.layout.blocks)
        if term.sort.name == "units" and len(args) == 1:
            return self._unit(name, args[0])
        raise _NoNumberError(term.name)

    def _unit(self, name: str, numbers: Array) -> Array:
        """The number of a unit among those of all stages: that of a block, or one of a stage by its place there."""
        each = self.layout.setup.units_per_stage
        if name == "units of":
            return numbers * each * self.layout.stage_count // len(self.layout.blocks)
        place = {"first part of": "0", "last part of": "-1"}.get(name) or name.removeprefix("part ").removesuffix(" of")
        if not place.removeprefix("-").isdecimal():
            raise _NoNumberError(name)
        if not -each <= int(place) < each:
            return np.full_like(numbers, -1)  # a unit that there is not
        return numbers * each + int(place) % each

    def _owner(self, of: str, term: Fn, args: list[Array]) -> Array:
        factor, _, rest = of.partition(".")
        order = rest.removeprefix(self.group or "").removeprefix(".")  # of a group that has slices of its own
        if factor not in self.world.sizes or order not in ("", "interleaved") or any(e[0] == TIED for e in self.world.elements):
            raise _NoNumberError(term.name)
        sorts = [a.sort.name for a in term.args]
        blocks, slices = (args[sorts.index(sort)] if sort in sorts else np.array(0) for sort in ("block", "slice"))
        owner = self.world.layout.owners(factor, self.place.mesh.stage, order or "blocked")
        owners = []
        for group, table in self._numbers.items():
            if group == self.group or not all(a in ELEMENT for a in term.args):  # else it may be of any group
                numbers = table[blocks, slices, args[-1]] if "entry" in sorts else table.max(axis=-1)[blocks, slices]
                owners.append(owner[numbers])
        if not owners or any((o < 0).any() or (o != owners[0]).any() for o in owners):
            raise _NoNumberError(term.name)
        return owners[0]

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """How many points the sorts have that a run numbers."""
        layout, stages = self.layout, self.layout.stage_count
        sizes = {"microbatch": self.place.batches, "block": len(layout.blocks), "stage": stages}
        sizes["units"] = layout.setup.units_per_stage * stages
        if not layout.network and not any(layout.slice_axes(g) for g in self._numbers):
            sizes["entry"] = layout.setup.entries
        return {**sizes, **self.world.sizes}

    def _size(self, sort: str) -> int:
        if sort not in self._sizes:
            raise _NoNumberError(sort)
        return self._sizes[sort]

    # Real terms.

    @cached_property
    def _here(self) -> frozenset[str]:
        return frozenset((*_ELEMENT, *(f"d.{f}" for f in self.world.factors)))

    def poly(self, body: Poly, points: Points) -> Array:
        """The residues that a term stands for."""
        total: Array = np.zeros((1, 1), dtype=np.int64)
        for mono, coefficient in body.terms:
            total = self.f.add(total, self.f.mul(self.mono(mono, points), np.array(self.f.of(coefficient))))
        return total

    def mono(self, mono: Mono, points: Points) -> Array:
        """A product where its guards hold, zero elsewhere."""
        factor = np.array(1)
        for left, right in mono.guards:
            factor = factor * (self.index(left, points) == self.index(right, points))
        for atom, exponent in mono.factors:
            factor = self.f.mul(factor, self.f.power(self.atom(atom, points), exponent))
        return factor

    def atom(self, atom: Atom, points: Points) -> Array:
        """One factor."""
        if not atom.free <= self._here:
            return self._atom(atom, points)
        if atom.key not in self.known:
            self.known[atom.key] = self._atom(atom, points)
        return self.known[atom.key]

    def _atom(self, atom: Atom, points: Points) -> Array:
        match atom:
            case Sym():
                known = {"tokens each": 1, "number of units": self.layout.setup.units_per_stage}
                return np.array(self.f.of(known[atom.name] if atom.name in known else self.world.symbol(atom.name)))
            case Paren():
                return self.poly(atom.inside, points)
            case Sum():
                inner, depth = dict(points), max((np.ndim(p) for p in points.values()), default=0)
                for n, binder in enumerate(atom.binders):
                    size = self._size(binder.sort.name)
                    inner[binder.name] = np.arange(size).reshape((size,) + (1,) * (depth + n))
                body = self.mono(atom.body, inner)
                shape = [*(self._size(b.sort.name) for b in reversed(atom.binders)), *(1,) * depth]
                body = np.broadcast_to(body, np.broadcast_shapes(np.shape(body), tuple(shape)))
                return self.f.total(body, tuple(range(len(atom.binders))))
            case App():
                return self._app(atom, points)
            case Greatest():
                raise _NoNumberError(atom.key)

    def _app(self, atom: App, points: Points) -> Array:
        if any(isinstance(a, Lam) for a in atom.args):
            raise _NoNumberError(atom.name)
        args = [self.poly(a, points) if isinstance(a, Poly) else self.index(a, points) for a in atom.args if not isinstance(a, Lam)]
        name, _, group = atom.name.partition(".")
        if name.startswith("unknown") or name == "before":
            return self._any(atom.name, args)
        if name in ("theta", "omega", "g") and group in self._numbers:
            return self._of_element(name, group, atom.args, args)
        if name in UNITS and self.world.program.loss:
            return self._count(name, args)
        if name in ("tokens", "statistic"):
            return self.world.scalars(name, 0)[self._sample(args)]
        if name in ("new parameters", "new optimizer") and len(args) == 3:
            theta, omega, gradient = np.broadcast_arrays(*args)
            return optimizer.elementwise(self.f, (theta, _state(omega), gradient))
        if name == "momentum":
            omega, gradient = np.broadcast_arrays(*args)
            return optimizer.momentum(self.f, _state(omega), gradient)
        if name == "sqrt":
            return self.f.sqrt(args[0])
        if name == "clip":
            limit = args[1] if len(args) > 1 else np.array(self.f.of(self.world.program.clip_limit or 1))
            return optimizer.clip(self.f, args[0], limit)
        raise _NoNumberError(atom.name)

    def _count(self, unit: str, args: list[Array]) -> Array:
        """How many of a unit some samples have, which are the same wherever their tokens are shared out."""
        number = sequences(self.world, 0).number(unit)
        own = [f for f in self.layout.sample_factors if unit == "tokens" or not self.layout.axis_of(f).splits.tokens]
        at = dict(zip(own, args, strict=False))
        return number[(*(at.get(f, np.array(0)) for f in self.world.factors), args[-1])]

    def _of_element(self, name: str, group: str, terms: tuple[Argument, ...], args: list[Array]) -> Array:
        declared = self.layout.group(group)
        if self.layout.tied(group) or declared.partial or (name == "g" and self.world.problem.coupled):
            raise _NoNumberError(name)
        more = len(terms) - 1 if name == "g" and isinstance(terms[-1], Poly) else len(terms)
        samples = len(self.layout.sample_factors) + 1 if name == "g" else 0
        element = args[samples:more]
        slices = element[1] if len(element) == 3 else np.array(0)
        number = self._numbers[group][element[0], slices, element[-1]]
        if name != "g":
            return self.world.first[number]  # of an optimizer state the master copy; its momentum is zero in the first step
        sample = np.ravel_multi_index(np.broadcast_arrays(*args[:samples]), self._samples)
        if more == len(terms):
            return self.run.truth.by_sample[sample, number]
        raise _NoNumberError(name)

    @cached_property
    def _samples(self) -> tuple[int, ...]:
        return (*(self.world.sizes[f] for f in self.layout.sample_factors), self.place.batches)

    def _sample(self, args: list[Array]) -> tuple[Array, ...]:
        """Where the number of a sample stands among those of all: ``[coordinates..., micro-batch]``."""
        at = dict(zip(self.layout.sample_factors, args, strict=False))
        return (*(at.get(f, np.array(0)) for f in self.world.factors), args[-1])

    def _any(self, name: str, args: list[Array]) -> Array:
        """A number that nobody knows: another one for each place that it is at, and two of them."""
        mixed = np.uint64(crc32(name.encode()))
        with np.errstate(over="ignore"):
            for array in (*args, np.arange(2)):
                mixed = (mixed ^ np.asarray(array).astype(np.uint64)) * _MIX[0]
                mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[1]
                mixed = mixed ^ (mixed >> np.uint64(27))
        return (mixed % np.uint64(self.f.modulus - 1)).astype(np.int64) + 1
