"""The parts that loops walk over, few enough to be written out: the first ones and the last ones one by one, and one for all in between.

Of a number of parts that is open, those near the ends stand for themselves, and one in the middle stands for all others, which are
alike: what is counted then comes out as a polynomial in that number. Where a program fixes a small number, each part stands for itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from placeproof.programs import For, Index, Program, statements
from placeproof.programs.ir import FIRST_UNIT, references

#: Exponents of the number of micro-batches, of units, and of layers (or blocks) in a unit.
Powers = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Count:
    """A number of things: a polynomial."""

    terms: tuple[tuple[Powers, int], ...] = ()

    def __add__(self, other: Count) -> Count:
        return _count((*self.terms, *other.terms))

    @lru_cache(maxsize=4096)  # noqa: B019 -- they are few, and equal ones are the same
    def __mul__(self, other: Count) -> Count:
        return _count(tuple(((a + d, b + e, c + f), n * k) for (a, b, c), n in self.terms for (d, e, f), k in other.terms))

    def by_batches(self) -> tuple[Count, Count]:
        """Two factors, of which the first one alone tells of micro-batches, where it can be said so."""
        on, off = ({p[1:]: n for p, n in self.terms if p[0] == power} for power in (1, 0))
        if on and off.keys() <= on.keys():
            ratio = {Fraction(off.get(p, 0), n) for p, n in on.items()}
            if len(ratio) == 1 and (more := ratio.pop()).denominator == 1:
                outer = _count((((1, 0, 0), 1), ((0, 0, 0), int(more))))
                return outer, _count(tuple(((0, *p), n) for p, n in on.items()))
        return ONE, self

    def at(self, numbers: Powers) -> int:
        """The value."""
        return sum(n * int(numbers[0] ** a * numbers[1] ** b * numbers[2] ** c) for (a, b, c), n in self.terms)


def total(counts: Iterable[Count]) -> Count:
    """The sum."""
    return _count(term for count in counts for term in count.terms)


def _count(terms: Iterable[tuple[Powers, int]]) -> Count:
    counts: dict[Powers, int] = {}
    for powers, n in terms:
        counts[powers] = counts.get(powers, 0) + n
    return Count(tuple(sorted((powers, n) for powers, n in counts.items() if n)))


NONE, ONE = Count(), Count((((0, 0, 0), 1),))
_VARIABLES: dict[str, Powers] = {"microbatches": (1, 0, 0), "units": (0, 1, 0), "inner": (0, 0, 1)}


@dataclass(frozen=True, slots=True)
class Level:
    """Positions of one kind: for how many each stands, and which one stands for those in between (None: none)."""

    weights: tuple[Count, ...]
    middle: int | None

    def between(self, position: int | None) -> bool:
        """Whether a statement there may speak of the position that stands for others."""
        return position is not None and self.middle is not None and 2 <= position < len(self.weights) - 2


def _level(variable: str, reach: int, fixed: int | None) -> Level:
    """Positions of which programs name others ``reach`` further on."""
    near = 2 + reach
    if fixed is not None and fixed <= 2 * near:
        return Level((ONE,) * fixed, None)
    between = _count(((_VARIABLES[variable], 1), ((0, 0, 0), -2 * near)))
    return Level((*(ONE,) * near, between, *(ONE,) * near), near)


@dataclass(frozen=True, slots=True)
class Portion:
    """One part: its unit, its layer (or block, where layers are not spoken of) in it, and its block in that; None: all."""

    unit: int | None = None
    inner: int | None = None
    block: int | None = None


class Parts:
    """The parts of a program, and sets of its smallest ones as bits of an integer."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kept = program.kept_by_batch
        named = {loop.var: loop.domain for loop in self._loops}
        indices = [(r.name, r.index) for s in statements(program.body) for r in references(s) if r.index is not None]
        used = {loop.domain for loop in self._loops} | {"units" for _, i in indices if i.var is None}
        used |= {"units" for loop in self._loops if loop.start or loop.within == FIRST_UNIT}
        self.finest = next((d for d in ("blocks", "layers", "units") if d in used), None)
        self.layered = {"layers", "blocks"} <= used
        self.units_used = "units" in used
        self.inner_domain = "layers" if "layers" in used else "blocks" if "blocks" in used else None
        reach = dict.fromkeys(("microbatches", "units", "layers", "blocks"), 0)
        for name, index in indices:
            domain = named.get(index.var or "", "microbatches" if name in self.kept else "units")
            reach[domain] = max(reach[domain], _reach(index))
        self.units = _level("units", reach["units"], program.count("units") if self.units_used else 1)
        self.inner = _level("inner", max(reach["layers"], reach["blocks"]), None if self.inner_domain else 1)
        self.batches = _level("microbatches", reach["microbatches"] if self.kept else -1, program.count("microbatches"))
        self.sub = 2 if self.layered else 1
        self._bits: dict[Portion, int] = {}
        self._counts: dict[int, Count] = {}
        self._extents: dict[tuple[int, int], Count] = {}
        self._walks: dict[tuple[str, Portion], list[Portion]] = {}

    @cached_property
    def _loops(self) -> tuple[For, ...]:
        return tuple(s for s in statements(self.program.body) if isinstance(s, For))

    @cached_property
    def everything(self) -> int:
        """All parts."""
        return (1 << (len(self.units.weights) * len(self.inner.weights) * self.sub)) - 1

    @cached_property
    def first_unit(self) -> int:
        """The parts of the first unit."""
        return self.bits(Portion(unit=0))

    def bits(self, part: Portion) -> int:
        """The smallest parts of a part."""
        if part not in self._bits:
            self._bits[part] = sum(
                1 << n
                for n, (u, i, b) in enumerate(self._smallest)
                if part.unit in (None, u) and part.inner in (None, i) and part.block in (None, b)
            )
        return self._bits[part]

    @cached_property
    def _smallest(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(itertools.product(range(len(self.units.weights)), range(len(self.inner.weights)), range(self.sub)))

    @cached_property
    def in_order(self) -> dict[str, tuple[tuple[Portion, int], ...]]:
        """By domain, its parts in order, each with its smallest parts."""
        units, inner = range(len(self.units.weights)), range(len(self.inner.weights))
        layers = [Portion(u, i) for u in units for i in inner]
        blocks = [Portion(p.unit, p.inner, b) for p in layers for b in range(self.sub)] if self.layered else layers
        of = {"units": [Portion(u) for u in units], "layers": layers, "blocks": blocks}
        return {domain: tuple((part, self.bits(part)) for part in parts) for domain, parts in of.items()}

    def every(self, domain: str, around: Portion = Portion()) -> list[Portion]:
        """The parts of a domain within another part, in order."""
        if (domain, around) not in self._walks:
            bits = self.bits(around)
            self._walks[domain, around] = [part for part, own in self.in_order[domain] if own & bits]
        return self._walks[domain, around]

    def times(self, part: Portion, around: Portion) -> Count:
        """For how many parts within the part ``around`` it one stands."""
        product = ONE
        if around.unit is None and part.unit is not None:
            product = product * self.units.weights[part.unit]
        if around.inner is None and part.inner is not None:
            product = product * self.inner.weights[part.inner]
        return product

    def between(self, part: Portion) -> bool:
        """Whether it is not near an end, so that what is alive there is between what is alive near the ends."""
        return self.units.between(part.unit) or self.inner.between(part.inner)

    def count(self, bits: int) -> Count:
        """How many smallest parts these are."""
        if bits not in self._counts:
            self._counts[bits] = self._within(bits, Portion())
        return self._counts[bits]

    def extent(self, bits: int, written: int) -> Count:
        """How many smallest parts these are of one such part as was written: of a unit that stands for others, of one of them."""
        if (bits, written) not in self._extents:
            around = Portion()
            for domain in ("units", "layers"):
                around = next((part for part, own in self.in_order[domain] if not written & ~own), around)
            self._extents[bits, written] = self._within(bits, around)
        return self._extents[bits, written]

    def _within(self, bits: int, around: Portion) -> Count:
        return total(self.times(Portion(u, i), around) for n, (u, i, _) in enumerate(self._smallest) if bits >> n & 1)


def _reach(index: Index) -> int:
    return abs(index.offset) if index.var is not None else max(0, abs(index.offset) - 1)
