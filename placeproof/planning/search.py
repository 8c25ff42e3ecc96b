"""The best points of a grid: bounds first, and then exact answers for those that may be among the best, until no other can be.

Points are bounded in rounds: first those of which blocks alone take hardly longer than those of any point, then others, until what is left
takes longer than the plans that were found.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from math import inf

from placeproof.core.diagnostics import InputError
from placeproof.planning.bounding import NEAREST, ROUNDING, Asked, Bounding, Found
from placeproof.planning.crew import ALONE, Crew, Running
from placeproof.planning.exact import Plan, worked_out
from placeproof.planning.objective import OBJECTIVES, Objective
from placeproof.planning.pool import Bounded, Piece, Queue, share, units_of
from placeproof.planning.space import AXES, Point, Space
from placeproof.planning.structures import Derived, Structures
from placeproof.planning.task import Task

#: What of the least seconds of any point is looked at first, and then, as long as there are not enough plans.
ROUNDS = (1.05, 1.12, 1.25, 2, inf)


@dataclass(kw_only=True)
class Outcome:
    """``plans``: the best ones, in order. ``cut``: points that were left out, by rule; ``bounded``: those that are worse than the last
    plan by the ``objective``; ``derived``: those that were worked out exactly, with what came of it; ``unproved``: plans of them that are
    not proved. ``least``: where nothing fits, a point that needs the least memory beyond what there is, and ``least_of_all``: whether no
    other needs less, which is open where more than :data:`NEAREST` points have bounds below it. ``complete``: False where the
    search was interrupted: then the plans are the best that were worked out, and no other number says anything."""

    objective: Objective = OBJECTIVES["time"]
    plans: list[Plan] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    bounded: int = 0
    derived: list[tuple[Point, Plan | str]] = field(default_factory=list)
    unproved: list[Plan] = field(default_factory=list)
    least: Plan | None = None
    least_of_all: bool = True
    complete: bool = True

    @property
    def asked(self) -> int:
        """How many points were worked out exactly."""
        return len(self.derived)

    @contextmanager
    def interruptible(self, running: Running) -> Iterator[None]:
        """Work that an interrupt ends, with what is there so far, if it may be partial."""
        try:
            yield
        except KeyboardInterrupt:
            if not running.partial:
                raise
            self.complete = False


class Search:
    """A search for the best points of a space. ``known``: what another search derived of the same model on the same cluster. ``unfit``:
    as of :class:`placeproof.planning.bounding.Bounding`. ``limit``: the seconds up to which points are bounded, of which blocks alone take
    no longer; infinite where all are."""

    def __init__(self, task: Task, space: Space, known: Derived | None = None, *, unfit: bool = False) -> None:
        self.task, self.space = task, space
        self.structures = Structures(task, space, known or Derived())
        self.bounding = Bounding(self.structures, unfit=unfit)
        self.found = Found()
        self.limit, self._begun = -inf, False

    @property
    def known(self) -> Derived:
        """What was derived."""
        return self.structures.known

    @property
    def pool(self) -> list[Bounded]:
        """Points that may fit."""
        return self.found.pool

    def run(
        self,
        count: int,
        verdict: Callable[[Point], str] = lambda _: "proved",
        objective: Objective = OBJECTIVES["time"],
        running: Running = ALONE,
        crew: Crew | None = None,
    ) -> Outcome:
        """The best points, so many at most. ``verdict``: whether one trains what one device trains; those that are not `proved` are cut.
        ``crew``: processes that know how to `bound`, by :attr:`bounding`."""
        outcome = Outcome(objective=objective, cut=self.found.cut)
        with outcome.interruptible(running):
            if not self._begun:
                self.widen(inf if objective is not OBJECTIVES["time"] else -inf, running, crew)
            self._choose(outcome, count, verdict, running, crew)
        del outcome.plans[count:]
        return outcome

    def widen(self, limit: float, running: Running = ALONE, crew: Crew | None = None) -> list[Bounded]:
        """Bounds on the points of which blocks alone take no more seconds than this limit; those of them that may fit, but for those
        that were bounded before. ``crew``: as of :meth:`run`."""
        units, first, done = self.units(), not self._begun, 0
        every: dict[int, Found] = {}
        asked = [Asked(unit, None if first else self.limit, limit) for unit in units]
        for place, (own, derived) in (crew or Crew(1, {"bound": self.bounding.of_unit})).each("bound", asked):
            every |= own
            self.known.blocks |= derived.blocks
            self.known.states |= derived.states
            done += sum(share(piece, self.space) for piece in units[place])
            running.tell(f"bounds on {done:,} of {self.space.size:,} points" if first else f"bounds on points of {limit:.4g} s at most")
        new = Found()
        for number in sorted(every):
            new.add(every[number])
        self.found.add(new)
        for name, of in (("slower", sum), ("larger", sum), ("least", min)):
            setattr(self.found, name, of(getattr(one, name) for one in every.values()))
        self.limit, self._begun = limit, True
        return new.pool

    def bound(self) -> None:
        """Bounds on every point that no rule cuts."""
        self.widen(inf)

    def units(self) -> list[list[Piece]]:
        """All points in parts, the largest first; what is derived for one part is for no other."""
        return units_of(self.space, by_stages=not self.structures.alike)

    def _choose(self, outcome: Outcome, count: int, verdict: Callable[[Point], str], running: Running, crew: Crew | None) -> None:
        """Work out points until no other can be among the plans, and all of these are proved."""
        objective, queue = outcome.objective, Queue(self.pool, outcome.objective)
        first, rounds = self.found.least, iter(ROUNDS)
        while True:
            last = objective.value(outcome.plans[count - 1]) if len(outcome.plans) >= count else None
            most = inf if last is None else float(last) * (1 + ROUNDING)
            if queue and queue.least <= min(most, self.limit):
                running.tell(f"{outcome.asked + 1:,} placements derived, of {self.size:,} that may fit")
                point = queue.pop()
                found = self.asked(point)
                outcome.derived.append((point, found))
                if isinstance(found, str):
                    self.found.leave_out(found, 1)
                    continue
                insort(outcome.plans, found, key=objective.key)
                if found in outcome.plans[:count]:
                    running.ahead(point)
            elif self.limit < most:
                queue.add(self.widen(next(rounds) * first if last is None else most, running, crew))
            elif self._proved(outcome, count, verdict, running):
                break
        if not outcome.plans and self.found.nearest:
            outcome.least = self.least()
            outcome.least_of_all = self.none_needs_less(outcome.least)
        self.found.leave_out("does not fit", self.found.larger)
        outcome.bounded = self.found.slower + len(queue) + max(0, len(outcome.plans) - count)

    def _proved(self, outcome: Outcome, count: int, verdict: Callable[[Point], str], running: Running) -> bool:
        """Whether all plans are proved; those that are not are left out."""
        running.tell(f"proving {min(count, len(outcome.plans))} plans")
        words = [verdict(plan.point) for plan in outcome.plans[:count]]
        for word in words:
            self.found.leave_out(f"{word}, not proved", int(word != "proved"))
        outcome.unproved += [plan for plan, word in zip(outcome.plans, words, strict=False) if word != "proved"]
        kept = [plan for plan, word in zip(outcome.plans, words, strict=False) if word == "proved"]
        outcome.plans = [*kept, *outcome.plans[count:]]
        return len(kept) == len(words)

    def asked(self, point: Point) -> Plan | str:
        """A point worked out, or the rule that cuts it."""
        try:
            plan = self.exact(point)
        except InputError as error:
            return f"refused: {error.diagnostics[0].message}"
        return plan if plan.fits else "does not fit"

    def exact(self, point: Point) -> Plan:
        """A point worked out; points with the same blocks on the same axes have the same segments."""
        key = (point.option.key, tuple(getattr(point.mesh, axis) > 1 for axis in AXES))
        known, words = self.known.segments.get(key), point.option.recompute
        task = self.structures.tasks[point.option.fp8]
        placed = worked_out(task, point.expression, recompute=words, b=point.b, m=point.m, segments=known, order=point.order)
        plan = Plan(**{f.name: getattr(placed, f.name) for f in fields(placed)}, point=point)
        self.known.segments[key] = plan.step.d.parts
        return plan

    def near(self) -> Iterator[Plan]:
        """The points nearest to fitting that can be derived, worked out."""
        for _, point in self.found.nearest:
            with suppress(InputError):
                yield self.exact(point)

    def fitting(self) -> Plan | None:
        """A point that fits, None where none does."""
        queue = Queue(self.pool, OBJECTIVES["memory"])
        while queue:
            if isinstance(found := self.asked(queue.pop()), Plan):
                return found
        return None

    def least(self) -> Plan | None:
        """The point that needs the least memory beyond what there is, or fits; None where no point keeps all rules.

        It is the one of all points if :meth:`none_needs_less` says so.
        """
        found: Plan | None = None
        for beyond, point in self.found.nearest:
            if found is not None and (found.fits or beyond > float(found.peak - found.room)):
                break
            try:
                plan = self.exact(point)
            except InputError:
                continue
            found = plan if found is None or plan.peak - plan.room < found.peak - found.room else found
        return found

    def none_needs_less(self, least: Plan | None) -> bool:
        """Whether points beyond the :data:`NEAREST` ones cannot need less memory than the least of these."""
        return len(self.found.nearest) < NEAREST or (least is not None and self.found.nearest[-1][0] > float(least.peak - least.room))

    @property
    def size(self) -> int:
        """Points that fit by their bounds."""
        return sum(len(one.rows) for one in self.pool)
