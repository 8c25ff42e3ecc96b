"""Program points and what is alive at them: which buffers, and how much of those that loops fill or empty.

A step is written out for each kind of device (:mod:`placeproof.cost.step.unrolled`). A buffer that a loop writes part by part grows with
each iteration, and one that a loop reads part by part shrinks: what is alive is linear between the first and the last iterations, which
decide.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from placeproof.cost.step.amounts import Amounts
from placeproof.cost.step.parts import NONE, ONE, Count
from placeproof.cost.step.unrolled import Life, Unrolled, settled
from placeproof.programs import Stmt, render_head, statements
from placeproof.semantics.values import Access, Kind, Trace, Value

if TYPE_CHECKING:
    import sympy

ACTIVATIONS = "activations"

#: What is counted together: a buffer, its name with its group, a value, and whether it is of the first unit.
Key: TypeAlias = tuple[str, str, Value, bool]
#: How much there is of each, by micro-batch.
Amount: TypeAlias = dict[Key, dict[int | None, Count]]
#: The same by the key's number, at each sample.
_Vector: TypeAlias = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A buffer at one point: its name, with its group where groups are written apart, and its bytes there."""

    name: str
    bytes: sympy.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One program point: what is alive there beyond the model states, by buffer."""

    stmt: Stmt
    phase: str
    alive: tuple[Alive, ...]

    @property
    def line(self) -> int | None:
        """The line of the program."""
        return self.stmt.place.line if self.stmt.place else None

    def text(self) -> str:
        """The statement."""
        return render_head(self.stmt)

    def total(self) -> sympy.Expr:
        """Bytes of all that is alive."""
        import sympy

        return sympy.Add(*(buffer.bytes for buffer in self.alive))


@dataclass(frozen=True, slots=True)
class Moments:
    """The points at which most can be alive of some buffers, and the most that there ever is of each buffer."""

    points: tuple[Moment, ...]
    most: Mapping[str, sympy.Expr]


def moments_of(
    runs: Iterable[Unrolled], trace: Trace, amounts: Amounts, chosen: Callable[[Life], bool], *, lasting: bool = False
) -> Moments:
    """Where most can be alive; a point with no more of any buffer than another, or than a mean of two others, decides nothing.

    ``lasting``: they live until they are overwritten.
    """
    sizes = _Sizes(amounts)
    first: dict[frozenset[tuple[int, int]], tuple[int, Stmt]] = {}
    for run in runs:
        for alive, place, stmt in _stretches(run, chosen, lasting, sizes):
            if alive not in first or place < first[alive][0]:
                first.pop(alive, None)
                first[alive] = place, stmt
    kept: list[tuple[Stmt, list[Life], _Vector]] = []
    for alive, (_, stmt) in sorted(first.items(), key=lambda one: one[1][0]):
        own = sizes.of(alive)
        if not any(_within(own, other) for *_, other in kept):
            kept = [point for point in kept if not _within(point[2], own)] + [(stmt, sizes.lives(alive), own)]
    kept = [
        point
        for point in kept
        if not any(_between(point[2], a[2], b[2]) for a, b in itertools.combinations(kept, 2) if point not in (a, b))
    ]
    return _described(kept, trace, amounts, sizes)


def _described(kept: list[tuple[Stmt, list[Life], _Vector]], trace: Trace, amounts: Amounts, sizes: _Sizes) -> Moments:
    """The points with bytes: those of other micro-batches in flight are added, each with all that it ever has of a buffer."""
    phases = _phases(trace)
    totals = [_totals(_amount(alive, amounts), amounts) for _, alive, _ in kept]
    written = [(a.name, a.name if a.group is None else f"{a.name}.{a.group}") for a in trace.accesses]
    labels = list(dict.fromkeys(key for key in (*written, *(key for total in totals for key in total))))
    copies = {name: in_flight(name, trace, amounts) for name in dict.fromkeys(name for total in totals for name, _ in total)}
    most: dict[str, tuple[int, sympy.Expr]] = {}
    for (*_, vector), total in zip(kept, totals, strict=True):
        for (_, label), amount in total.items():
            size = sum(own[-1] for key, own in vector.items() if sizes.keys[key] == label)
            most[label] = max(most.get(label, (-1, amount)), (size, amount), key=lambda one: one[0])
    moments = []
    for (stmt, *_), total in zip(kept, totals, strict=True):
        alive = []
        for name, label in labels:
            if (name, label) in total:
                own, every = total[name, label], most[label][1]
                alive.append(Alive(name=label, bytes=every * copies[name] if own == every else every * (copies[name] - 1) + own))
        moments.append(Moment(stmt=stmt, phase=phases[id(stmt)], alive=tuple(alive)))
    ever: dict[str, sympy.Expr] = {}
    for name, label in dict.fromkeys(key for total in totals for key in total):
        ever[name] = ever.get(name, amounts.one * 0) + most[label][1] * copies[name]
    return Moments(tuple(moments), ever)


class _Sizes:
    """Amounts at some numbers of micro-batches, units and layers, in smallest parts: they are linear in each.

    Lives that are counted alike have one number, and what is alive at a point is how many there are of each.
    """

    def __init__(self, amounts: Amounts) -> None:
        self.amounts = amounts
        few = amounts.parts.program.count("microbatches") or 20
        self.samples = tuple(itertools.product((few, 400) if amounts.parts.kept else (few,), (20, 400), (20, 400)))
        self.numbers: dict[tuple[object, ...], int] = {}
        self.known: list[tuple[Life, _Vector]] = []
        self.keys: list[str] = []  # the name that each has with its group
        self._keys: dict[Key, int] = {}
        self._samples: dict[tuple[int | None, Count], tuple[int, ...]] = {}

    def number(self, alike: tuple[object, ...], life: Life) -> int:
        """The number of a life, by what is counted of it."""
        if alike not in self.numbers:
            self.numbers[alike] = len(self.known)
            self.known.append((life, {self._key(key): self._sampled(life.batch, count) for key, count in _parts(life, self.amounts)}))
        return self.numbers[alike]

    def _key(self, key: Key) -> int:
        if key not in self._keys:
            self._keys[key] = len(self.keys)
            self.keys.append(key[1])
        return self._keys[key]

    def _sampled(self, batch: int | None, count: Count) -> tuple[int, ...]:
        if (batch, count) not in self._samples:
            self._samples[batch, count] = tuple(map(_total({batch: count}, self.amounts).at, self.samples))
        return self._samples[batch, count]

    def counts(self, number: int) -> bool:
        """Whether such a life is more than nothing."""
        return any(map(all, self.known[number][1].values()))

    def lives(self, alive: Iterable[tuple[int, int]]) -> list[Life]:
        """Lives of which so many are alive."""
        return [self.known[number][0] for number, times in sorted(alive) for _ in range(times)]

    def of(self, alive: Iterable[tuple[int, int]]) -> _Vector:
        """How much there is of each."""
        totals: _Vector = {}
        for number, times in sorted(alive):
            for key, sizes in self.known[number][1].items():
                more = sizes if times == 1 else tuple(size * times for size in sizes)
                totals[key] = tuple(map(operator.add, totals[key], more)) if key in totals else more
        return totals


def _within(own: _Vector, other: _Vector) -> bool:
    return all(key in other and all(map(operator.le, size, other[key])) for key, size in own.items())


def _between(own: _Vector, vector: _Vector, other: _Vector) -> bool:
    """Whether something is a mean of two others, or less, so that it never decides: at each sample."""
    none = (0,) * len(next(iter({**own, **vector, **other}.values()), ()))
    for sample in range(len(none)):
        low, high = Fraction(0), Fraction(1)  # how much of the one
        for key in {**own, **vector, **other}:
            size, a, b = (v.get(key, none)[sample] for v in (own, vector, other))
            if a == b and size > a:
                return False
            if a > b:
                low = max(low, Fraction(size - b, a - b))
            elif a < b:
                high = min(high, Fraction(size - b, a - b))
        if low > high:
            return False
    return True


def _total(own: Mapping[int | None, Count], amounts: Amounts) -> Count:
    total = NONE
    for batch, count in own.items():
        total = total + (count if batch is None else count * amounts.parts.batches.weights[batch])
    return total


def _stretches(
    run: Unrolled, chosen: Callable[[Life], bool], lasting: bool, sizes: _Sizes
) -> Iterator[tuple[frozenset[tuple[int, int]], int, Stmt]]:
    """What is alive at the points of a run, without those next to which there is more: how many lives of each number.

    Of points with the same alive, one: that of the first statement of the program, by its place there.
    """
    times = [time for _, time in run.points]
    begun: dict[int, list[int]] = {}
    ended: dict[int, list[int]] = {}
    for alike, (one, lives) in run.alike.items():
        if chosen(one):
            number = sizes.number(alike, one)
            for life in lives:
                begin, end = bisect_left(times, life.start), bisect_right(times, life.closed if lasting else life.end)
                if begin < end:
                    begun.setdefault(begin, []).append(number)
                    ended.setdefault(end, []).append(number)
    alive: Counter[int] = Counter()
    for at, until in itertools.pairwise(sorted({0, len(times), *begun, *ended})):
        alive.update(begun.get(at, ()))
        alive.subtract(ended.get(at, ()))
        more_before = at not in begun and any(map(sizes.counts, ended.get(at, ())))
        more_after = until not in ended and any(map(sizes.counts, begun.get(until, ())))
        if not more_before and not more_after:
            point = min(range(at, until), key=run.places.__getitem__)
            yield frozenset((+alive).items()), run.places[point], run.points[point][0]


def _parts(life: Life, amounts: Amounts) -> Iterator[tuple[tuple[str, str, Value, bool], Count]]:
    """What a life is counted as."""
    label = life.name if life.group is None else f"{life.name}.{life.group}"
    value = settled(life.value)
    first = amounts.parts.first_unit if amounts.root_apart else 0
    for bits in dict.fromkeys((life.bits & first, life.bits & ~first)) if life.bits else (0,):
        if bits or not life.bits:
            count = amounts.parts.count(bits) if life.by_parts else amounts.parts.extent(bits, life.written)
            count = life.stands if value.kind is Kind.STREAM else count
            yield (life.name, label, value, bool(bits & first)), count


def _amount(alive: Iterable[Life], amounts: Amounts) -> Amount:
    amounts_by_buffer: Amount = {}
    for life in alive:
        for key, count in _parts(life, amounts):
            own = amounts_by_buffer.setdefault(key, {})
            own[life.batch] = own.get(life.batch, NONE) + count
    return amounts_by_buffer


def _totals(amount: Amount, amounts: Amounts) -> dict[tuple[str, str], sympy.Expr]:
    """Bytes, by buffer and name."""
    totals: dict[tuple[str, str], sympy.Expr] = {}
    for (name, label, value, first), own in amount.items():
        totals[name, label] = totals.get((name, label), amounts.one * 0) + _bytes(value, first, own, amounts)
    return totals


def _bytes(value: Value, first: bool, own: Mapping[int | None, Count], amounts: Amounts) -> sympy.Expr:
    batches: dict[Count, Count] = {}
    for batch, count in own.items():
        batches[count] = batches.get(count, NONE) + (ONE if batch is None else amounts.parts.batches.weights[batch])
    total = amounts.one * 0
    for count, number in batches.items():
        if value.kind is Kind.STREAM:
            each = amounts.times(count) * amounts.bytes(value)
        else:
            spread = amounts.spread(count, lambda part, index: amounts.bytes(replace(value, part=part, index=index)), first=first)
            assert spread is not None
            each = spread
        total = total + each * amounts.batches(number)
    return total


def _phases(trace: Trace) -> dict[int, str]:
    """The phase of each statement, by its ``id``: that of its operations, or of those before it."""
    own = {id(e.stmt): e.phase for e in trace.events}
    phases, phase = {}, "forward"
    for stmt in statements(trace.program.body):
        phase = phases[id(stmt)] = own.get(id(stmt), phase)
    return phases


def in_flight(name: str, trace: Trace, amounts: Amounts) -> sympy.Expr:
    """How many micro-batches have such a buffer at once: what is kept from forward to backward, while in flight."""
    accesses = [a for a in trace.accesses if a.name == name]
    turn = next((e for e in trace.events if e.phase == "backward"), None)
    written = next((a.value.kind for a in accesses if a.write), None)
    per_batch = written in (Kind.SAVED, Kind.STREAM) and name not in amounts.parts.kept
    spans = turn is not None and bool(accesses) and accesses[0].at < _at(trace, turn.stmt) < accesses[-1].at + 1
    loop = next((lp for a in accesses[:1] for lp in a.loops if lp.in_flight is not None), None)
    if not (per_batch and spans and loop is not None and loop.in_flight is not None):
        return amounts.one
    return amounts.scalar(loop.in_flight)


def _at(trace: Trace, stmt: Stmt) -> int:
    return next((n for n, other in enumerate(statements(trace.program.body), start=1) if other is stmt), 0)


def passing(accesses: list[Access]) -> bool:
    """Whether a buffer never leaves a loop over parts of the model."""
    common = accesses[0].loops
    for access in accesses[1:]:
        common = tuple(a for a, b in zip(common, access.loops, strict=False) if a is b)
    return accesses[0].write and any(loop.domain != "microbatches" for loop in common)
