"""What the product ships in closed form, as terms of theorems: schedules of pipelines, and algorithms and amounts of collectives.

Terms are in the symbols of the product's own texts: of a schedule p, m, v, d, T_F, T_B, T_W, T_FB, T_send, M_B, M_W; of an algorithm n, k,
s, alpha, beta, gamma. Each remembers of which form it is (``Origin.about``), so that a theorem can be asked which forms it is about.

A form can also be held against what it sums up: the order of a schedule's passes, run by the simulation, or an algorithm's rounds.
``off(...)`` is by how much they differ, added up over finitely many points, and says nothing of others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from placeproof.clusters import Group
from placeproof.clusters.groups import groups
from placeproof.collectives import COLLECTIVES
from placeproof.collectives import algorithms as rows
from placeproof.collectives.passes import Terms
from placeproof.collectives.rounds import Link, Plan
from placeproof.collectives.time import traffic
from placeproof.prove.exact import Point
from placeproof.schedules import Schedule, forms, kept_at_most, load, names, simulate, slots
from placeproof.schedules.expression import Expression
from placeproof.schedules.expression import read as read_expression
from placeproof.schedules.points import admitted, points, simulated
from placeproof.schedules.schedule import QUANTITIES, Form, PassKind
from placeproof.theory.language import Goal, Number, Origin, StatementError, Term, taken, term
from placeproof.theory.timetables import Begins, Proposed, lasts

if TYPE_CHECKING:
    pass

#: What relations of a form may speak of; and whether one is missed by one, if its left side is so much more than its right side.
_NAMES = ("p", "m", "v", "d", "T_F", "T_B", "T_W", "T_FB", "T_send", "M_B", "M_W")
_MISSED_BY_ONE: Mapping[type[ast.cmpop], Callable[[Fraction | int], bool]] = {
    ast.LtE: lambda more: more == 1, ast.GtE: lambda more: more == -1, ast.Eq: lambda more: abs(more) == 1,
    ast.Lt: lambda more: more == 0, ast.Gt: lambda more: more == 0,
}  # fmt: skip
#: What an algorithm counts.
COUNTED = ("messages", "sent", "added")
_RELATIONS: Mapping[str, Callable[[Term, Term], Goal]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<=": lambda a, b: a <= b, "<": lambda a, b: a < b,
}  # fmt: skip


def shipped() -> tuple[str, ...]:
    """The names of all closed forms of schedules and algorithms that the product ships, as ``Origin.about`` says them."""
    of_schedules = (
        _named(name, what, number) for name in names() for what in QUANTITIES for number, _ in enumerate(forms(name, what), start=1)
    )
    of_algorithms = (_counted(kind, name, what) for kind, named in rows.ALGORITHMS.items() for name in named for what in COUNTED)
    return (*of_schedules, *of_algorithms)


def name_of(schedule: Schedule, form: Form) -> str:
    """The name of a schedule's closed form."""
    return _named(schedule.name, form.what, forms(schedule, form.what).index(form) + 1)


def _named(schedule: str, what: str, number: int) -> str:
    return f"form {what} of {schedule}" + (f", {number}" if number > 1 else "")


def _counted(kind: str, name: str, what: str) -> str:
    return f"form {what} of {kind} by {name}"


# Schedules.


class ScheduleForms:
    """The closed forms of a schedule, and its order."""

    def __init__(self, name: str) -> None:
        self._schedule = load(name)

    @property
    def idle(self) -> Term:
        """The longest time for which a device computes nothing in a step."""
        return self.form("idle")

    @property
    def wait(self) -> Term:
        """The longest time for which a device computes nothing between its first pass and its last."""
        return self.form("wait")

    @property
    def peak(self) -> Term:
        """The most that device d keeps of its chunks' activations, by the first of the forms."""
        return self.form("peak")

    @property
    def messages(self) -> Term:
        """Messages that all devices send in a step."""
        return self.form("messages")

    @property
    def busy(self) -> Term:
        """The time for which the device that idles longest computes."""
        return self.form("busy")

    def form(self, what: str, number: int = 1) -> Term:
        """The ``number``-th closed form of a quantity. Raises StatementError where there is none, InputError for another quantity."""
        return self._term(self._form(what, number), _named(self._schedule.name, what, number))

    def when(self, what: str, number: int = 1) -> tuple[Goal, ...]:
        """Under which relations the form speaks. Raises as :meth:`form`."""
        return tuple(self._relations(self._form(what, number)))

    def printed(self, what: str) -> Term:
        """What the first of the sources prints for a quantity. Raises StatementError where none prints it."""
        return self._term(self._printed(what), f"{_named(self._schedule.name, what, 1)}, as printed")

    def printed_when(self, what: str) -> tuple[Goal, ...]:
        """Where what is printed is said to hold. Raises as :meth:`printed`."""
        return tuple(self._relations(self._printed(what)))

    def times(self, phase: int) -> Term:
        """How often a device runs the pattern of its ``phase``-th phase, in p, m, v and d. Raises StatementError where there is no such."""
        import sympy

        phases = self._schedule.phases
        if not 1 <= phase <= len(phases):
            raise StatementError(f"`{self._schedule.name}` has {len(phases)} phases, and no number {phase}")
        expr = phases[phase - 1].times.sympy()
        for name, value in reversed(self._schedule.let):
            expr = expr.subs(sympy.Symbol(name), value.sympy())
        about = f"order {self._schedule.name}"
        return taken(self._of_chunks(expr), f"times of phase {phase}({self._schedule.name})", f"phase {phase}: {expr} of {about}", about)

    def timetable(self, begins: Begins, *, at: Iterable[Mapping[str, Number]]) -> Proposed:
        """Its phases with a timetable, ``begins(phase, r, d)``, at some times and all sums of multiples of them: see
        :mod:`placeproof.theory.timetables`. Raises StatementError where it is not understood."""
        return Proposed(self._schedule, begins, self.times, at)

    def work(self, *phases: int) -> Term:
        """How long a device is busy with what it runs in some phases. Raises StatementError where there is no such."""
        made = sum((self.times(k) * Term(sum(map(lasts, self._schedule.phases[k - 1].run))) for k in phases), term(0))
        made.origins |= {Origin(f"work of phases {phases}", made.expr, f"work of phases {phases}", f"order {self._schedule.name}")}
        return made

    def unreceived(self, *, p: Iterable[int] = range(1, 5), m: Iterable[int] = range(1, 10)) -> Term:
        """By how many messages what a device receives differs from what it sends: the sum over the devices of p, for m micro-batches and
        whatever chunks are at hand. What it sends is asked of the simulation; what it receives is counted by what its passes need."""
        total = 0
        for devices, batches, chunks in admitted(self._schedule, p, m):
            table = simulate(self._schedule, p=devices, m=batches, v=chunks)
            needed = _needed(self._schedule, devices, batches, chunks)
            total += sum(abs(table.messages(d) - needed[d]) for d in range(devices))
        about = f"order {self._schedule.name}"
        return taken(term(total).expr, f"messages that are not received of {about}", f"messages of {about}", about)

    def known(self) -> tuple[tuple[str, int], ...]:
        """The quantities of which there is a closed form, each with the form's number."""
        return tuple((what, n) for what in QUANTITIES for n in range(1, len(forms(self._schedule, what)) + 1))

    def off(
        self,
        what: str,
        number: int = 1,
        *,
        by: Number = 0,
        anywhere: bool = False,
        p: Iterable[int] = range(1, 5),
        m: Iterable[int] = range(1, 10),
    ) -> Term:
        """By how much a form, and ``by`` more, differs from its order's simulation: the sum over p devices and m micro-batches, whatever
        chunks, times and sizes are at hand, where the form speaks (``anywhere``: also elsewhere).

        Raises StatementError where it speaks of none of these points.
        """
        return self._off(what, self._form(what, number), self.form(what, number), by, anywhere, tuple(p), tuple(m))

    def printed_off(self, what: str, *, anywhere: bool = False, p: Iterable[int] = range(1, 5), m: Iterable[int] = range(1, 10)) -> Term:
        """The same of what a source prints. Raises as :meth:`off` and :meth:`printed`."""
        return self._off(what, self._printed(what), self.printed(what), 0, anywhere, tuple(p), tuple(m))

    def needless(self, what: str, number: int = 1, *, also: str = "", p: int = 4, m: Iterable[int] = range(1, 11)) -> Term:
        """How many of the relations under which a form speaks, and of one ``also``, are not needed: where they are missed by one unit and
        all others hold, the form gives what the order does, for p devices, m micro-batches and whatever chunks, times and sizes are at
        hand. Raises as :meth:`form`."""
        form = self._form(what, number)
        every = (*form.when, *([read_expression(also, _NAMES)] if also else []))
        idle = [one for one in every if not self._needed(form, one, [other for other in every if other is not one], p, tuple(m))]
        about = _named(self._schedule.name, what, number)
        label = f"relations that {about.removeprefix('form ')} does not need"
        return taken(term(len(idle)).expr, label, f"{label}: {[one.text for one in idle]}", about)

    def _needed(self, form: Form, relation: Expression, others: list[Expression], p: int, batches: tuple[int, ...]) -> bool:
        assert isinstance(relation.tree, ast.Compare)
        left, right = (read_expression(ast.unparse(side), relation.names) for side in (relation.tree.left, *relation.tree.comparators))
        missed = _MISSED_BY_ONE[type(relation.tree.ops[0])]
        for values, exact in _with_many_times(self._schedule, form.what, p, batches):
            if (
                missed(left.value(values) - right.value(values))
                and all(other.holds(values) for other in others)
                and form.form.value(values) != exact()
            ):
                return True
        return False

    def prints(self) -> tuple[str, ...]:
        """The quantities that a source prints."""
        return tuple(dict.fromkeys(one.form.what for one in self._schedule.printed))

    def _off(
        self, what: str, form: Form, own: Term, by: Number, anywhere: bool, devices: tuple[int, ...], batches: tuple[int, ...]
    ) -> Term:
        claimed, total, tried = own + by, Fraction(0), 0
        for values, exact in _points(self._schedule, what, devices, batches):
            if anywhere or form.holds(values):
                total += abs(Point({k: Fraction(v) for k, v in values.items()}).value(claimed.expr) - exact)
                tried += 1
        if not tried:
            raise StatementError(f"the {what} of `{self._schedule.name}` speaks of none of these points")
        label = f"difference of {own} and its order at {tried} points"
        about = f"order {self._schedule.name}"
        made = taken(term(total).expr, label, f"{label}, {claimed.expr}", about)
        made.origins |= own.origins
        return made

    def _form(self, what: str, number: int) -> Form:
        known = forms(self._schedule, what)
        if not 1 <= number <= len(known):
            raise StatementError(f"`{self._schedule.name}` has {len(known)} closed forms of `{what}`, and no number {number}")
        return known[number - 1]

    def _printed(self, what: str) -> Form:
        for printed in self._schedule.printed:
            if printed.form.what == what:
                return printed.form
        raise StatementError(f"no source prints the {what} of `{self._schedule.name}`")

    def _term(self, form: Form, about: str) -> Term:
        return taken(self._of_chunks(form.form.sympy()), about.removeprefix("form "), f"{about}: {form.form.text}", about)

    def _of_chunks(self, expr: Any) -> Any:
        import sympy

        return expr if self._schedule.chunks is None else expr.subs(sympy.Symbol("v"), self._schedule.chunks)

    def _relations(self, form: Form) -> Iterator[Goal]:
        import sympy

        for condition in form.when:
            relation = condition.sympy()
            assert isinstance(relation, sympy.core.relational.Relational)
            left, op, right = (self._of_chunks(relation.lhs), relation.rel_op, self._of_chunks(relation.rhs))
            yield Goal(term(left), op, term(right)) if op in _RELATIONS else Goal(term(right), {">=": "<=", ">": "<"}[op], term(left))


def schedule(name: str) -> ScheduleForms:
    """The closed forms of a schedule of the catalogue, or of a file. Raises InputError for another name."""
    return ScheduleForms(name)


def _points(
    schedule: Schedule, what: str, devices: tuple[int, ...], batches: tuple[int, ...]
) -> Iterator[tuple[dict[str, int | Fraction], Fraction]]:
    """What a form speaks of at single points, and what the order gives there."""
    for p, m, v in admitted(schedule, devices, batches):
        yield from points(schedule, what, p, m, v)


def _needed(schedule: Schedule, p: int, m: int, v: int) -> list[int]:
    """How many results of other devices the passes of each device need."""
    depth, needed = schedule.depth(p, v), [0] * p
    for d, order in enumerate(slots(schedule, p, m, v)):
        for one in (one for slot in order for one in slot if one.kind is not PassKind.W):
            source = one.stage + (-1 if one.kind is PassKind.F else 1)
            needed[d] += 0 <= source < depth and schedule.device(source, one.microbatch, p, m) != d
    return needed


def _with_many_times(
    schedule: Schedule, what: str, p: int, batches: tuple[int, ...]
) -> Iterator[tuple[dict[str, int | Fraction], Callable[[], Fraction]]]:
    """Single points, and what gives the order's value there: times and sizes that miss any relation by one, too."""
    for _, m, v in admitted(schedule, (p,), batches):
        counts: dict[str, int | Fraction] = {"p": p, "m": m, "v": v}
        if what == "peak":
            for (d, order), size, later in product(enumerate(slots(schedule, p, m, v)), (1, 2), range(5)):
                yield {**counts, "d": d, "M_B": size, "M_W": later}, partial(kept_at_most, order, size, later)
            continue
        for forward, backward, weight, send in product((1, 2), (1, 2), (1, 2), (0, 1, 2)):
            least, most = max(forward, backward + weight), forward + backward + weight
            for pair in (least, most, least - 1, most + 1):
                times = (forward, backward, weight, send, pair)
                values = {**counts, **dict(zip(("T_F", "T_B", "T_W", "T_send", "T_FB"), times, strict=True))}
                yield values, partial(simulated, schedule, what, p, m, v, times)


# Collectives.


class AlgorithmForms:
    """The closed form of an algorithm of a collective, and its rounds. ``segments``: of a chain."""

    def __init__(self, kind: str, name: str, segments: int | None) -> None:
        known = rows.ALGORITHMS.get(kind, {})
        if name not in known:
            raise StatementError(f"{kind} has no algorithm `{name}`" + (f"; there are {', '.join(known)}" if known else ""))
        self._row = known[name] if segments is None else rows.pipelined(kind, segments)
        self._name = _counted(kind, name, "{}")
        self._of = f"{kind} by {self._row.name}"

    @property
    def messages(self) -> Term:
        """Messages one after the other, on links that are all alike."""
        return self._counted("messages")

    @property
    def sent(self) -> Term:
        """Bytes sent one after the other."""
        return self._counted("sent")

    @property
    def added(self) -> Term:
        """Bytes added one after the other."""
        return self._counted("added")

    def seconds(self, **values: Number) -> Term:
        """Seconds in alpha, beta and gamma, with values in place of symbols: ``seconds(n=8)``."""
        import sympy

        parts = zip((self.messages, self.sent, self.added), ("alpha", "beta", "gamma"), strict=True)
        expr, label = sympy.Add(*(part.expr * sympy.Symbol(unit) for part, unit in parts)), f"seconds({self._of})"
        made = taken(expr, label, label, label)
        made.origins = frozenset(Origin(label, expr, f"{label}, {what}", self._name.format(what)) for what in COUNTED)
        return made.where(**values) if values else made

    def level(self, number: int, of: int = 2) -> tuple[Term, Term, Term]:
        """Messages, bytes sent and bytes added over one of several levels of links, numbered from the inside out, in n_0, n_1, k_0, k_1
        and s. Raises StatementError for an algorithm that has no such form."""
        import sympy

        levels = self._row.by_level(*_symbols(of), sympy.Symbol("s"))
        if levels is None:
            raise StatementError(f"{self._of} has no closed form over {of} levels")
        return tuple(self._term(what, getattr(levels[number], what), f" over level {number}") for what in COUNTED)  # type: ignore[return-value]

    def off(self, sizes: Iterable[int | tuple[int, ...]] = range(1, 18), *, by: Number = 0) -> Term:
        """By how much the three closed forms, and messages by ``by`` more, differ from the rounds: the sum over groups of these sizes, of
        which those count that the algorithm is for; a tuple has the sizes of levels from the inside out.

        Raises StatementError where it is for none of them.
        """
        total, tried, extra = Fraction(0), 0, Fraction(str(term(by).expr))
        for size in sizes:
            levels = size if isinstance(size, tuple) else (size,)
            if self._row.admits(levels):
                tried += 1
                total += _difference(self._row, levels, extra)
        if not tried:
            raise StatementError(f"{self._of} is for none of these groups")
        label = f"difference of {self._of} and its rounds in {tried} groups"
        made = taken(term(total).expr, label, f"{label}, {by} more", f"rounds {self._of}")
        made.origins |= {Origin(f"{what}({self._of})", made.expr, self._name.format(what), self._name.format(what)) for what in COUNTED}
        return made

    def known_over(self, sizes: Iterable[tuple[int, ...]]) -> Term:
        """In how many groups of these sizes, of levels from the inside out, it has a closed form; in the others its rounds are summed
        up."""
        fit = [levels for levels in sizes if self._row.admits(levels) and _by_level(self._row, levels, Fraction(1)) is not None]
        return self._of_rounds(Fraction(len(fit)), f"groups with a closed form, {fit},")

    def in_symbols(self, of: int = 2) -> Term:
        """1 if it has a closed form over so many levels in symbols, 0 otherwise."""
        import sympy

        known = self._row.by_level(*_symbols(of), sympy.Symbol("s")) is not None
        return self._of_rounds(Fraction(int(known)), f"a form over {of} levels in symbols")

    def carried_off(self, *joins: int, sizes: Iterable[int] = range(2, 13), by: Number = 0) -> Term:
        """By how many bytes, of 7 in all, what a device is said to send over each level of links, and ``by`` more, differs from what its
        rounds send, as the mean over the devices: the sum over groups of these sizes, where levels of links join so many devices each, and
        an outermost all.

        Raises StatementError where the algorithm is for none of them.
        """
        every = [groups({"dp": n}, ["dp"], joins)[0] for n in sizes]
        if not (fit := [one for one in every if (levels := self._levels_of(one)) and self._row.admits(levels)]):
            raise StatementError(f"{self._of} is for none of these groups")
        total, s, extra = Fraction(0), Fraction(7), Fraction(str(term(by).expr))
        for one in fit:
            by_rounds = (sum(sent) / one.degree for sent in zip(*traffic(self._row, one, s), strict=True))
            total += sum(abs(a + extra - b) for a, b in zip(self._row.carried(one, s), by_rounds, strict=True))
        return self._of_rounds(total, f"difference of what is carried over links that join {joins} in {len(fit)} groups")

    def unbalanced(self, sizes: Iterable[int | tuple[int, ...]] = range(1, 18)) -> Term:
        """By how many bytes, of 7 in all, what a device receives in the rounds differs from what it sends: the sum over the devices of
        groups of these sizes, as those of :meth:`off`."""
        total = Fraction(0)
        for plan in self._plans(sizes):
            received = _received(plan, Fraction(7))
            total += sum(abs(a - b) for a, b in zip(plan.sent(Fraction(7)), received, strict=True))
        return self._of_rounds(total, "what devices receive and do not send")

    def astray(self, sizes: Iterable[int | tuple[int, ...]] = range(1, 18)) -> Term:
        """How many messages of the rounds come from, or go to, what is no device of the group, or go to their own sender. ``sizes``: as
        those of :meth:`off`."""
        sends = ((send, plan.devices) for plan in self._plans(sizes) for one in plan.rounds for send in one)
        wrong = sum(not (0 <= a.source < n and 0 <= a.target < n and a.source != a.target) for a, n in sends)
        return self._of_rounds(Fraction(wrong), "messages astray")

    def in_all(self, *size: int) -> Term:
        """Bytes that all devices of a group together send in the rounds; of several levels, its sizes from the inside out.

        Raises StatementError where the algorithm is not for such a group.
        """
        (plan,) = self._plans([size])
        return self._of_rounds(sum(plan.sent(Fraction(1)), Fraction(0)), f"sent in all by {plan.devices} devices", "s")

    def _levels_of(self, group: Group) -> tuple[int, ...] | None:
        """The sizes of a group's levels; where its blocks differ, its degree, with which a flat algorithm can do."""
        return group.sizes or ((group.degree,) if isinstance(self._row, rows.Algorithm) else None)

    def _plans(self, sizes: Iterable[int | tuple[int, ...]]) -> list[Plan]:
        groups = [size if isinstance(size, tuple) else (size,) for size in sizes]
        if not (fit := [levels for levels in groups if self._row.admits(levels)]):
            raise StatementError(f"{self._of} is for none of these groups")
        return [self._row.plan(levels) for levels in fit]

    def _of_rounds(self, number: Fraction, what: str, times: str | None = None) -> Term:
        import sympy

        expr = term(number).expr * (1 if times is None else sympy.Symbol(times))
        about = f"rounds {self._of}"
        return taken(expr, f"{what} of {self._of}", f"{what} in {about}", about)

    def _counted(self, what: str) -> Term:
        import sympy

        if isinstance(self._row, rows.Levelled):
            raise StatementError(f"{self._of} is for several levels; ask for each: level(0)")
        terms = self._row.terms(*(sympy.Symbol(name) for name in "nks"))
        return self._term(what, getattr(terms, what))

    def _term(self, what: str, expr: Any, where: str = "") -> Term:
        import sympy

        return taken(sympy.sympify(expr), f"{what}({self._of}){where}", f"{self._name.format(what)}{where}", self._name.format(what))


def algorithm(kind: str, name: str, *, segments: int | None = None) -> AlgorithmForms:
    """An algorithm of a collective: ``algorithm("all_reduce", "ring")``. Raises StatementError for another name."""
    return AlgorithmForms(kind, name, segments)


def crossover(kind: str, name: str, other: str) -> Term:
    """The bytes for which two algorithms take equally long, as the product says it. Raises StatementError for another name."""
    import sympy

    one, two = (algorithm(kind, known)._row for known in (name, other))
    if not isinstance(one, rows.Algorithm) or not isinstance(two, rows.Algorithm):
        raise StatementError("algorithms over several levels have no one size at which they take equally long")
    expr = rows.crossover(one, two, *(sympy.Symbol(symbol) for symbol in ("n", "k", "alpha", "beta", "gamma")))
    about = f"form crossover of {kind} by {name} and {other}"
    return taken(sympy.sympify(expr), about.removeprefix("form "), about, about)


def _received(plan: Plan, s: Fraction) -> list[Fraction]:
    """Bytes that each device receives."""
    counts = [0] * plan.devices
    for send in (send for one in plan.rounds for send in one):
        counts[send.target] += len(send.chunks)
    return [s / plan.parts * count for count in counts]


def _difference(row: rows.Algorithm | rows.Levelled, levels: tuple[int, ...], extra: Fraction) -> Fraction:
    """The sum of what the closed form, with numbers and with symbols, and the rounds differ by, for links that take time for one thing
    alone, and for all."""
    plan, s, total = row.plan(levels), Fraction(7), Fraction(0)
    forms = [_levels(row, levels, s), *_with_symbols(row, levels, s)]
    for alpha, beta, gamma in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (5, 3, 2)):
        links = [Link(alpha=Fraction(alpha * (i + 1)), beta=Fraction(beta * (i + 1)), ports=2) for i in range(len(levels))]
        exact = plan.seconds(s, links, Fraction(gamma), _between(levels))
        for form in forms:
            claimed = sum((t.seconds(one.alpha, one.beta, Fraction(gamma)) for t, one in zip(form, links, strict=True)), extra * alpha)
            total += abs(claimed - exact)
    return total


def _levels(row: rows.Algorithm | rows.Levelled, levels: tuple[int, ...], s: Fraction) -> Sequence[Terms[Fraction]]:
    if isinstance(row, rows.Algorithm) and len(levels) == 1:
        return (row.at(levels[0], s),)
    terms = _by_level(row, levels, s)
    if terms is None:
        raise StatementError(f"{row.kind} by {row.name} has no closed form over these levels")
    return terms


def _by_level(row: rows.Algorithm | rows.Levelled, levels: tuple[int, ...], s: Fraction) -> Sequence[Terms[Fraction]] | None:
    return row.by_level([Fraction(size) for size in levels], [Fraction(_steps(size)) for size in levels], s)


def _steps(size: int) -> int:
    return (size - 1).bit_length()


def _symbols(of: int) -> tuple[list[Any], list[Any]]:
    """Sizes of levels, and their logarithms."""
    import sympy

    sizes, exponents = ([sympy.Symbol(f"{name}_{i}") for i in range(of)] for name in "nk")
    return sizes, exponents


def _with_symbols(row: rows.Algorithm | rows.Levelled, levels: tuple[int, ...], s: Fraction) -> Iterator[Sequence[Terms[Fraction]]]:
    """The form over several levels that is printed, at these: for powers of two, as which symbols are taken."""
    import sympy

    sizes, exponents = _symbols(len(levels))
    terms = row.by_level(sizes, exponents, sympy.Symbol("s")) if len(levels) > 1 else None
    if terms is not None and all(size > 1 and size & (size - 1) == 0 for size in levels):
        numbers = {**dict(zip(map(str, sizes), map(Fraction, levels), strict=True)), "s": s}
        at = Point(numbers | dict(zip(map(str, exponents), (Fraction(_steps(size)) for size in levels), strict=True)))
        yield [Terms(*(at.value(sympy.sympify(part)) for part in (one.messages, one.sent, one.added))) for one in terms]


def _between(levels: tuple[int, ...]) -> Callable[[int, int], int]:
    """Over which level two devices send: the innermost whose block holds both."""

    def between(a: int, b: int) -> int:
        for level, size in enumerate(levels):
            a, b = a // size, b // size
            if a == b:
                return level
        return len(levels) - 1

    return between


class Amount:
    """What one device sends in a collective, by the table."""

    def __init__(self, name: str) -> None:
        if name not in COLLECTIVES:
            raise StatementError(f"there is no collective `{name}`; there are {', '.join(COLLECTIVES)}")
        self._name = name

    def sent(self, n: Number, s: Number) -> Term:
        """Bytes that one device sends for a tensor of s bytes over n devices."""
        made = term(COLLECTIVES[self._name].sent(term(n), term(s)))
        made.origins |= {Origin(f"sent({self._name})", made.expr, f"table {self._name}", f"table {self._name}")}
        return made


def collective(name: str) -> Amount:
    """The row of a collective in the table. Raises StatementError for another name."""
    return Amount(name)
