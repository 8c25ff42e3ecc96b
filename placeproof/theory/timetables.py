"""Timetables of schedules, for all devices and micro-batches at once: whether each pass can begin when a timetable says.

A schedule's order is a list of phases, each of which repeats a pattern of passes. A timetable says when a device begins the r-th
repetition of the pattern of a phase: ``begins(phase, r, d)``. Phases are numbered from 1, as in ``ScheduleForms.times``, repetitions and
devices from 0. The passes of a pattern follow one another without a pause. A pass has to begin after the one before it on its device has
ended, and after what it needs has been made: by the same pass of the stage before, or behind, and on its own stage by F for B, by B for W.
Which pass that is, and which is the one before, is read from the phases; with p and m as symbols it depends on which phases a device has,
so that there are many cases, of which a goal claims all.

Messages take no time. W come in the order of the B that they belong to. The slack of a pass, from the end of what it waits for until it
begins, is linear in the times of F, B and W, so that what holds at some times holds at all sums of multiples of them. It is claimed at such
times, as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from placeproof.prove import Implication, Relation
from placeproof.prove.relations import Cases
from placeproof.schedules import Schedule, StageLayout
from placeproof.theory.language import Goal, Number, Origin, StatementError, Term, term

if TYPE_CHECKING:
    import sympy

    from placeproof.schedules.schedule import Token

Begins: TypeAlias = Callable[[int, Term, Term], Number]
#: What the passes of a device take.
TIMES = ("T_F", "T_B", "T_W", "T_FB")
#: What has to be at least 0 in a case, and what is at least 0 then, whatever it is that passes take.
_Case: TypeAlias = "tuple[list[sympy.Expr], sympy.Expr]"


class AllOf(Goal):
    """A goal that claims many cases at once, under a name."""

    __slots__ = ("_cases",)

    def __init__(self, label: str, cases: Iterable[Implication], about: str) -> None:
        import sympy

        origin = Origin(about, sympy.Integer(0), label, about)
        super().__init__(term(0), "<=", Term(sympy.Symbol(label), origins=frozenset({origin})))
        self._cases = Cases(label, tuple(cases))

    def relations(self) -> tuple[Relation, ...]:
        """What all cases speak of."""
        return tuple(self._cases.relations())

    def fact(self) -> Cases:
        """All cases."""
        return self._cases


class Proposed:
    """A schedule's phases, with a timetable for them.

    ``at``: times at which it is claimed, each by name; those that are left out are 0. Raises StatementError for a schedule whose chunks
    take turns or lie in two copies.
    """

    def __init__(self, schedule: Schedule, begins: Begins, counts: Callable[[int], Term], at: Iterable[Mapping[str, Number]]) -> None:
        import sympy

        if schedule.turn is not None or schedule.layout is StageLayout.BOTH:
            raise StatementError(f"a timetable of `{schedule.name}` is not understood: its chunks take turns, or lie in two copies")
        self._schedule = schedule
        self._p, self._m, self._d, self._r = (sympy.Symbol(name) for name in "pmdr")
        self._counts = [counts(phase).expr for phase in range(1, len(schedule.phases) + 1)]
        self._runs = [phase.run for phase in schedule.phases]
        self._begins = [term(begins(k, Term(self._r), Term(self._d))).expr for k in range(1, len(self._runs) + 1)]
        self._about = f"order {schedule.name}"
        self._at = [{name: term(value).expr for name, value in times.items()} for times in at]

    def kept(self) -> tuple[Goal, ...]:
        """Each device runs each pass once, and each begins no earlier than it can, phase by phase. p, m, d and r are symbols: r is the
        repetition of the pass, which is at least 0."""
        made_for = [] if self._schedule.made_for is None else [self._schedule.made_for.sympy()]
        chunks = range(self._schedule.chunks or 1)
        counts = [self._before(part, chunk, len(self._runs), self._d) for part in "FBW" for chunk in chunks]
        whole = [Implication((), (Relation(count, "==", self._m),)) for count in (*counts, *made_for)]
        goals: list[Goal] = [AllOf(f"passes of {self._schedule.name}", whole, self._about)]
        for k in range(len(self._runs)):
            goals.append(self._claimed(f"phase {k + 1}", [*self._after_the_one_before(k), *self._after_its_input(k)]))
        return tuple(goals)

    def ended(self, by: Number) -> Goal:
        """Device d has ended its last pass by then."""
        cases = [([count - 1], term(by).expr - self._end(k, -1, count - 1)) for k, count in enumerate(self._counts)]
        return self._claimed("the end", cases)

    def _claimed(self, what: str, cases: Iterable[_Case]) -> Goal:
        import sympy

        zero, made = sympy.Integer(0), []
        for given, slack in cases:
            then = tuple(Relation(zero, "<=", value) for value in self._values(slack))
            made.append(Implication(tuple(Relation(zero, "<=", one) for one in given), then))
        return AllOf(f"slack of {what} of {self._schedule.name}", made, self._about)

    def _values(self, slack: sympy.Expr) -> Iterator[sympy.Expr]:
        """What is linear in the times, at each of the times. Raises StatementError for what is not."""
        import sympy

        parts = sympy.Poly(slack, *map(sympy.Symbol, TIMES)).as_dict()
        if any(sum(powers) != 1 for powers in parts):
            raise StatementError(f"a timetable of `{self._schedule.name}` is not linear in the times of its passes: {slack}")
        shares = {TIMES[powers.index(1)]: part for powers, part in parts.items()}
        for times in self._at:
            yield sympy.Add(*(part * times.get(name, 0) for name, part in shares.items()))

    def _begin(self, k: int, q: int, r: sympy.Expr, d: sympy.Expr | None = None) -> sympy.Expr:
        begins = self._begins[k].xreplace({self._r: r, self._d: self._d if d is None else d})
        return sum(map(lasts, self._runs[k][:q]), begins)

    def _end(self, k: int, q: int, r: sympy.Expr, d: sympy.Expr | None = None) -> sympy.Expr:
        q = q % len(self._runs[k])
        return self._begin(k, q + 1, r, d)

    def _after_the_one_before(self, k: int) -> Iterator[_Case]:
        """From one repetition to the next, from the last of the phases before that the device has, and from 0 if it has none."""
        count, first = self._counts[k], self._begin(k, 0, self._r - self._r)
        yield [count - 2 - self._r], self._begin(k, 0, self._r + 1) - self._end(k, -1, self._r)
        for j, before in enumerate(self._counts[:k]):
            yield [before - 1, count - 1, *(-c for c in self._counts[j + 1 : k])], first - self._end(j, -1, before - 1)
        yield [count - 1, *(-c for c in self._counts[:k])], first

    def _after_its_input(self, k: int) -> Iterator[_Case]:
        """After each pass that makes what it needs, in whatever phase and repetition that is run."""
        for q, slot in enumerate(self._runs[k]):
            for part, chunk in ((t.kind.value[0], t.chunk or 0) for t in slot):
                number = self._before(part, chunk, k, self._d) + self._r
                for where, by, of, d in self._needs(part, chunk):
                    for j, made in self._places(by, of):
                        again = number - self._before(by, of, j, d)
                        left = self._counts[j].subs(self._d, d) - 1 - again
                        given = [self._counts[k] - 1 - self._r, again, left, *where]
                        yield given, self._begin(k, q, self._r) - self._end(j, made, again, d)

    def _needs(self, part: str, chunk: int) -> Iterator[tuple[list[sympy.Expr], str, int, sympy.Expr]]:
        """What a pass of a micro-batch needs: where it does, which pass of it, of which chunk, on which device."""
        d = self._d
        if part != "F":
            yield [], "F" if part == "B" else "B", chunk, d
        if part == "W":
            return
        down = (part == "F") is (chunk == 0)
        yield [d - 1 if down else self._p - 2 - d], part, chunk, d - 1 if down else d + 1
        if self._schedule.layout is StageLayout.VEE and not down:
            yield [d + 1 - self._p], part, 1 - chunk, d

    def _places(self, part: str, chunk: int) -> Iterator[tuple[int, int]]:
        """In which phases a chunk's passes are, and at which place of the pattern."""
        for k, run in enumerate(self._runs):
            places = [q for q, slot in enumerate(run) for t in slot if part in t.kind.value and (t.chunk or 0) == chunk]
            if len(places) > 1:
                raise StatementError(f"phase {k + 1} of `{self._schedule.name}` has a pass twice in its pattern")
            yield from ((k, q) for q in places)

    def _before(self, part: str, chunk: int, k: int, d: sympy.Expr) -> sympy.Expr:
        """How many such passes a device runs before phase k."""
        counts = (self._counts[j] for j, _ in self._places(part, chunk) if j < k)
        return sum((count.subs(self._d, d) for count in counts), self._d - self._d)


def lasts(slot: tuple[Token, ...]) -> sympy.Expr:
    """How long a device is busy with what it runs at a time."""
    import sympy

    if len(slot) > 1:
        return sympy.Symbol("T_FB")
    return sympy.Add(*(sympy.Symbol(f"T_{part}") for part in slot[0].kind.value))
