"""A rational number as a product of what a step can count: degrees of axes, micro-batches, elements of a batch."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import isfinite, prod

#: A power of each quantity that takes part in a product.
Powers = tuple[tuple[str, int], ...]
#: Of several numbers, which one is a product, and of what.
Reading = tuple[int, Powers]


class Divisor(Fraction):
    """One over the number by which something was divided."""


def readings(factor: Fraction, quantities: Mapping[str, int]) -> set[Powers]:
    """All products of powers, up to squares, of quantities that have this value."""
    names = [n for n in quantities if quantities[n] > 1]
    found = set()
    for powers in product((0, -1, 1, -2, 2), repeat=len(names)):
        value = Fraction(1)
        for name, power in zip(names, powers, strict=True):
            value *= Fraction(quantities[name]) ** power
        if value == factor:
            found.add(tuple((n, p) for n, p in zip(names, powers, strict=True) if p))
    return found


def simplest(found: set[Powers], quantities: Sequence[str], prefer: Sequence[str]) -> Powers | None:
    """The shortest product; of equal quantities the preferred ones, in their order, and powers only where nothing else will do."""
    names = [*prefer, *(q for q in quantities if q not in prefer)]

    def cost(powers: Powers) -> tuple[int, str]:
        return sum(abs(p) ** 3 * (10 + names.index(n) + (5 if n not in prefer else 0)) for n, p in powers), shown(powers)

    return min(found, key=cost, default=None)


def recognise(factor: Fraction, quantities: Mapping[str, int], prefer: tuple[str, ...]) -> str | None:
    """The simplest product that has this value, as an expression of a step program; None if there is none."""
    found = simplest(readings(factor, quantities), list(quantities), prefer)
    return None if found is None else shown(found)


def written(factor: Fraction) -> str:
    """A rational number as a step program writes it."""
    return str(factor.numerator) if factor.denominator == 1 else f"{factor.numerator} / {factor.denominator}"


def _value(powers: Powers, quantities: Mapping[str, int]) -> Fraction:
    return prod((Fraction(quantities.get(name, 1)) ** power for name, power in powers), start=Fraction(1))


def shown(powers: Powers) -> str:
    """A product as an expression of a step program."""
    above = [n for n, p in powers for _ in range(p)]
    below = [n for n, p in powers for _ in range(-p)]
    over = " * ".join(above) or "1"
    if not below:
        return over
    return f"{over} / {below[0]}" if len(below) == 1 else f"{over} / ({' * '.join(below)})"


#: Up to which degree of an axis is looked for.
_MOST = 16


def deciding(found: Collection[Reading], degrees: Mapping[str, int], microbatches: int, without: Collection[int]) -> int | None:
    """The least number of ranks with which products differ that are equal now: with another degree of one axis, and ``without`` some."""

    def differ(counts: Mapping[str, int]) -> bool:
        values = [_value(powers, counts) for _, powers in found]
        return len(set(values)) == len(values)

    changed = [{**degrees, axis: n} for axis in degrees for n in range(2, _MOST + 1)]
    worlds = (prod(d.values()) for d in changed if differ({"microbatches": microbatches, **d}))
    return min((world for world in worlds if world not in without), default=None)


#: How places of factors begin: of what scales, and where nothing does, is 1; and of what divides by elements or samples of all ranks.
SCALES, TOTAL = "scales ", "total "


@dataclass(frozen=True, slots=True)
class Answer:
    """How numbers, of which one is a factor, can be read; ``line``: of the script."""

    found: frozenset[Reading]
    values: tuple[Fraction, ...]
    line: int


@dataclass(slots=True)
class Asked:
    """Numbers that were read as products, by where a program says them. ``settled``: how each is to be read, where another recording of the
    step with other numbers has decided it. ``fixed``: nothing has, and the step is said with the numbers with which it was recorded."""

    quantities: Mapping[str, int]
    settled: Mapping[str, frozenset[Reading]] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    fixed: bool = False

    def read(
        self, where: str, values: Sequence[Fraction], prefer: Sequence[str] = (), *, most: Fraction | None = None, line: int = 0
    ) -> Reading | None:
        """Which of some numbers, none larger than ``most``, is a product, and of what; of several the largest. None if none is."""
        fits = [(i, v) for i, v in enumerate(values) if v not in values[:i] and (most is None or v <= most)]
        found = frozenset((i, powers) for i, v in fits for powers in readings(v, self.quantities))
        self.answers[where] = Answer(found, tuple(values), line)
        found &= self.settled.get(where, found)
        if not found:
            return None
        chosen = max({i for i, _ in found}, key=lambda i: values[i])
        powers = simplest({p for i, p in found if i == chosen}, list(self.quantities), [p for p in prefer if p in self.quantities])
        assert powers is not None
        return chosen, powers

    def kept(self, left: Mapping[str, frozenset[Reading]]) -> dict[str, frozenset[Reading]] | None:
        """Those of some products, by where they are said, that are what was read here; None where this step says others. What only scales
        and is not said here is 1."""
        theirs = {where for where in self.answers if where not in left}
        plain = {where for where in left if where.startswith(SCALES) and TOTAL + where.removeprefix(SCALES) not in self.answers}
        if theirs or {*left} - plain - {*self.answers}:
            return None
        one = Answer(frozenset(), (Fraction(1),), 0)
        values = {where: self.answers.get(where, one).values for where in left}
        return {w: frozenset((i, p) for i, p in left[w] if values[w][i : i + 1] == (_value(p, self.quantities),)) for w in left}


def rational(value: float) -> Fraction | None:
    """A floating-point number as the simple fraction that it stands for; None for one that stands for none."""
    if not isfinite(value):
        return None
    near = Fraction(value).limit_denominator(1 << 20)
    close = near != 0 and abs(float(near) - value) <= 1e-12 * abs(value)
    single = 0 < abs(near) < 1 << 127 and struct.unpack("f", struct.pack("f", float(near)))[0] == value
    return near if close or single else None
