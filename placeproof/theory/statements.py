"""Statements: what a theorem's function returns.

:func:`holds` is about arithmetic, :func:`by_induction` about every integer from a start, :func:`trains` about a step program,
:func:`keeps` about the conditions of one or of several.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from placeproof.core.bounds import brief
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.theory.clauses import Clauses
from placeproof.theory.language import Function, Goal, Number, StatementError, Term, integral, taken, term
from placeproof.theory.models import ModelCosts

if TYPE_CHECKING:
    import sympy

    from placeproof.core.strategy import Strategy
    from placeproof.models import Model
    from placeproof.programs import Program
    from placeproof.prove import Implication, Relation
    from placeproof.strategies import Template
    from placeproof.theory.theorem import Theorem


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemma:
    """An instance of another theorem, used as a hypothesis. It counts only if that theorem is proved.

    ``integers``: what stands in it for integers, and so has to be one.
    """

    theorem: Theorem
    fact: Implication
    functions: frozenset[Function]
    integers: tuple[sympy.Expr, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """All goals hold wherever the hypotheses do."""

    goals: tuple[Goal, ...]
    given: tuple[Goal, ...] = ()
    lemmas: tuple[Lemma, ...] = ()

    @property
    def what(self) -> Holds:
        """The relations themselves, as those of an induction."""
        return self

    @property
    def says(self) -> tuple[str, ...]:
        """The goals as text."""
        return tuple(map(str, self.goals))

    def functions(self) -> frozenset[Function]:
        """The functions that it speaks of."""
        goals = [g.functions() for g in (*self.goals, *self.given)]
        return frozenset().union(*goals, *(lemma.functions for lemma in self.lemmas))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByInduction:
    """A goal that holds for every integer ``over`` from ``start``. ``at``: values of other parameters in the induction hypothesis."""

    what: Holds
    over: Term
    start: Term
    at: tuple[Mapping[str, Term], ...] = ()

    @property
    def says(self) -> tuple[str, ...]:
        """The goal as text."""
        return self.what.says

    @property
    def on(self) -> str:
        """The parameter of the induction."""
        return str(self.over.expr)

    def begun(self) -> Relation:
        """That the induction has begun."""
        return (self.over >= self.start).relation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trains:
    """A step program trains what one device trains, under these assumptions and those that every proof makes.

    ``assuming``: None for as few of those that can be dropped as it needs.
    """

    subject: str
    program: Program
    assuming: tuple[str, ...] | None
    for_all: tuple[str, ...] = ()

    @property
    def says(self) -> tuple[str, ...]:
        """The claim as text."""
        return (f"{self.subject} trains what one device trains",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeps:
    """Each of some step programs that keeps the conditions ``given`` keeps ``conditions``, too. ``programs``: with their names."""

    programs: tuple[tuple[str, Program], ...]
    conditions: tuple[str, ...]
    given: tuple[str, ...]
    assuming: tuple[str, ...]

    @property
    def says(self) -> tuple[str, ...]:
        """The claim as text."""
        names = [name for name, _ in self.programs]
        each = names[0] if len(names) == 1 else f"each of {', '.join(names)}" if len(names) <= _NAMED else f"each of {len(names)} programs"
        where = f" that keeps {' and '.join(self.given)}" if self.given else ""
        return (f"{each}{where} keeps {' and '.join(self.conditions)}{', too' if self.given else ''}",)


#: As many programs are named in a statement.
_NAMED = 6

Statement: TypeAlias = Holds | ByInduction | Trains | Keeps | Clauses
#: Statements about programs, and what they are made of.
OF_PROGRAMS = (Trains, Keeps, Clauses)


def holds(*goals: Goal | Iterable[Goal], given: Iterable[Goal] = (), lemmas: Iterable[Lemma] = ()) -> Holds:
    """All of these relations, wherever the relations of ``given`` hold; the domains of the parameters are hypotheses too.

    ``lemmas``: instances of theorems (:meth:`Theorem.at`) that the solver may use.
    """
    used = tuple(lemmas)
    if strange := [one for one in used if not isinstance(one, Lemma)]:
        raise StatementError(f"a lemma is an instance of a theorem, `counts.at(n=2)`, not {brief(strange[0])}")
    made = Holds(goals=_flat(goals), given=_flat(given), lemmas=used)
    if any(len(g.relations()) != 1 for g in made.given):
        raise StatementError("what claims many cases at once is no hypothesis")
    return made


def by_induction(
    goal: Goal,
    *,
    on: Number,
    start: Number = 0,
    given: Iterable[Goal] = (),
    at: Iterable[Mapping[str, Number]] = (),
    lemmas: Iterable[Lemma] = (),
) -> ByInduction:
    """A relation for every integer ``on`` from ``start``: it holds at ``start``, and at ``on + 1`` wherever it holds at ``on``.

    ``at``: the induction hypothesis is used with these values of other parameters (``[{"d": d - 1}]``); add ``{}`` to use it with all
    as they are, too. ``given`` and ``lemmas`` are stated at ``on``.
    """
    over = term(on)  # a lemma is elaborated with values in place of parameters: there it is any integer
    if not integral(over.expr, {str(s) for s in over.expr.free_symbols}):
        raise StatementError(f"an induction is over a parameter, not over {over}")
    what = holds(goal, given=given, lemmas=lemmas)
    if any(len(one.relations()) != 1 for one in what.goals):
        raise StatementError("an induction is of one relation, or of several")
    instances = tuple({name: term(value) for name, value in one.items()} for one in at)
    return ByInduction(what=what, over=over, start=term(start), at=instances)


def trains(subject: str | Strategy | Template | Program, *, assuming: Iterable[str] | None = None, for_all: Iterable[str] = ()) -> Trains:
    """A strategy (``"zero3 * tp"``), a block (``"mlp"``), or the text of a step program trains what one device trains.

    ``assuming``: the assumptions that are made, of those that can be dropped; None makes those that it needs, and the outcome says which.
    ``for_all``: ranges such as ``"N_dp >= 2"``. Raises InputError for a subject that cannot be read, StatementError for an unknown
    assumption.
    """
    droppable = _droppable()
    chosen = None if assuming is None else tuple(assuming)
    unknown = [a for a in chosen or () if a not in droppable]
    if unknown:
        raise StatementError(f"`{unknown[0]}` is no assumption that can be dropped; these are: {', '.join(droppable)}")
    name, program = read_subject(subject)
    made = None if chosen is None else tuple(a for a in droppable if a in chosen)
    return Trains(subject=name, program=program, assuming=made, for_all=tuple(for_all))


def keeps(subjects: Any, *conditions: str, given: Iterable[str] = (), assuming: Iterable[str] | None = None) -> Keeps:
    """A step program, or each of several, keeps conditions of a right step: all that they ask of it is proved.

    ``subjects``: as those of :func:`trains`, or an iterable of them. ``conditions``: of ``gradient integrity``, ``state consistency`` and
    ``step invariant``. ``given``: conditions without which nothing is said of a program. ``assuming``: None makes all assumptions. Raises
    InputError for a subject that cannot be read, StatementError for a block, and for a name that is not known.
    """
    from placeproof.core.strategy import Strategy
    from placeproof.programs import Program
    from placeproof.semantics.encode import CONSISTENCY, GRADIENT, INVARIANT
    from placeproof.strategies import Template

    known = (GRADIENT, CONSISTENCY, INVARIANT)
    if unknown := [c for c in (*conditions, *given) if c not in known]:
        raise StatementError(f"`{unknown[0]}` is no condition; these are: {', '.join(known)}")
    several = () if isinstance(subjects, str | Program | Strategy | Template) else tuple(subjects)
    programs = tuple(read_subject(subject) for subject in several or (subjects,))
    if blocks := [name for name, program in programs if program.tensors]:
        raise StatementError(f"`{blocks[0]}` is a block, and these are conditions of a step")
    if not conditions:
        raise StatementError("name a condition: keeps(subject, 'gradient integrity')")
    made = trains(programs[0][1], assuming=_droppable() if assuming is None else assuming).assuming
    return Keeps(programs=programs, conditions=conditions, given=tuple(given), assuming=made or ())


def _droppable() -> tuple[str, ...]:
    return tuple(a.name for a in ASSUMPTIONS.values() if a.without is not None)


def read_subject(subject: Any) -> tuple[str, Program]:
    """A subject's name and its step program. Raises InputError; StatementError for what is neither, and for a recorded step of which
    something was not compared: no statement says that."""
    name, program = _named(subject)
    if program.not_compared:
        listed = " and ".join(f"`{what}`" for what, _ in program.not_compared)
        raise StatementError(f"{listed} of this recorded step was not compared; leave `not_compared(...)` out if that is of no matter")
    return name, program


def _named(subject: Any) -> tuple[str, Program]:
    from placeproof.core.strategy import Strategy
    from placeproof.programs import Program, read
    from placeproof.semantics.catalogue import BLOCKS, not_equivalent, read_block, read_not_equivalent
    from placeproof.semantics.lower import lower
    from placeproof.strategies import Template, parse_strategy

    if isinstance(subject, Program):
        return subject.name or "a program", subject
    if isinstance(subject, str) and "\n" in subject:
        program = read(subject.lstrip("\n"), source="<statement>")
        return "a program" if program.name in ("", "statement") else program.name, program
    if isinstance(subject, str) and subject in BLOCKS:
        return subject, read_block(subject)
    if isinstance(subject, str) and subject in not_equivalent():
        return subject, read_not_equivalent(subject)
    if isinstance(subject, str) and (subject.endswith(".step") or _is_other_file(subject)):
        raise StatementError(f'`{subject}` is a file, and a statement takes its text: `Path("{subject}").read_text()`')
    strategy = parse_strategy(subject) if isinstance(subject, str) else subject() if isinstance(subject, Template) else subject
    if not isinstance(strategy, Strategy):
        raise StatementError(f"{subject!r} is neither a strategy nor a step program")
    return strategy.name, lower(strategy)


def _is_other_file(text: str) -> bool:
    """Whether it is the path of a file, of no strategy. A name alone never is, whatever lies in the current folder."""
    return "/" in text and not text.endswith(".toml") and os.path.isfile(text)


def same_text(program: Program) -> str:
    """A program's text but for its name: two subjects that have it in common are one program."""
    from placeproof.programs import render

    return render(replace(program, name=""))


def without_call(subject: str | Strategy | Template | Program, op: str, number: int = 1) -> Program:
    """A subject's program with one operation taken away: the ``number``-th ``op(x, ...)`` becomes ``x``.

    Raises StatementError if there is no such operation.
    """
    import ast

    from placeproof.programs import read, render

    name, program = read_subject(subject)
    tree = ast.parse(render(program))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == op]
    calls.sort(key=lambda n: (n.lineno, n.col_offset))
    if not 1 <= number <= len(calls):
        raise StatementError(f"the program has {len(calls)} `{op}`, and no number {number}")
    target = calls[number - 1]

    class Drop(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            return node.args[0] if node is target else self.generic_visit(node)

    changed = read(ast.unparse(Drop().visit(tree)), source="<statement>")
    return replace(changed, name=f"{name} without {op}" + (f" {number}" if len(calls) > 1 else ""))


def edited(subject: str | Strategy | Template | Program, old: str, new: str, number: int = 1) -> Program:
    """A subject's program with the ``number``-th occurrence of a piece of its text replaced.

    Raises StatementError if the text does not occur as often, InputError if the result is no program.
    """
    from placeproof.programs import read, render

    name, program = read_subject(subject)
    parts = render(program).split(old)
    if not 1 <= number < len(parts):
        raise StatementError(f"`{old}` occurs {len(parts) - 1} times in the program, and number {number} was asked for")
    changed = read(old.join(parts[:number]) + new + old.join(parts[number:]), source="<statement>")
    named = " ".join(f"{name} with {new or 'nothing'} for {old}".replace('"', "'").split())
    return replace(changed, name=named)


class Costs:
    """What a strategy or a step program costs, as terms: the formulas that ``placeproof derive`` derives."""

    def __init__(self, subject: Any, groups: bool, uneven: tuple[str, ...]) -> None:
        from placeproof.cost.derive import derive, derive_shards
        from placeproof.cost.uneven import read_shards

        name, program = read_subject(subject)
        parts = f", uneven along {' and '.join(uneven)}" if uneven else ""
        self._name = name + parts
        self._text = same_text(program) + parts
        told = [text for text in uneven if "=" in text]
        self._shards = read_shards(told) if told else None
        if self._shards is None:
            self._found = derive(program, groups=groups, uneven=uneven)
        else:
            self._found = derive_shards(_strategy(subject) or program, self._shards, groups=groups)

    def memory(self, key: str = "model_states") -> Term:
        """Bytes on a device: ``parameters``, ``optimizer``, ``gradients``, ``activations``, ``model_states``, ``transient``, ``peak``,
        ``host``. Raises StatementError for another key."""
        return self._term(self._found.memory, key)

    @property
    def sent(self) -> Term:
        """Bytes that a device sends in a step."""
        return self._of(self._found.sent, "sent")

    @property
    def host_link(self) -> Term:
        """Bytes that cross a device's host link in a step."""
        return self._of(self._found.host_link, "host_link")

    def over(self, axis: str) -> Term:
        """Bytes that a device sends over an axis in a step. Raises StatementError for an axis that carries nothing."""
        return self._term(self._found.by_axis, axis, f"sent over {axis}")

    @property
    def undivided(self) -> Term:
        """Bytes of the model states if one device held everything."""
        return self._of(self._found.undivided, "undivided")

    def limit(self, key: str, degree: str = "N") -> Term:
        """What ``memory.model_states`` or ``traffic.sent_per_device`` tends to as a degree grows. Raises StatementError for another key,
        or degree, and where it grows without bound."""
        limits = self._found.limits().get(degree, {})
        if key not in limits or limits[key].is_infinite:
            raise StatementError(f"there is no limit of {key} in {degree}; there are {', '.join(limits)}")
        return self._of(limits[key], f"limit of {key} in {degree}")

    @property
    def parts(self) -> tuple[dict[str, Term], ...]:
        """The fractions of each device where ``uneven`` told them, for ``where``: one device after the other."""
        groups = () if self._shards is None else self._shards.devices()
        each = [(group, {name: self._of(term(value).expr, name) for name, value in group.values.items()}) for group in groups]
        return tuple(values for group, values in each for _ in range(group.count()))

    def _term(self, forms: Mapping[str, sympy.Expr], key: str, label: str | None = None) -> Term:
        if key not in forms:
            raise StatementError(f"there is no `{key}`; there are {', '.join(forms)}")
        return self._of(forms[key], label or key)

    def _of(self, expr: sympy.Expr, key: str) -> Term:
        return taken(expr, f"{key}({self._name})", f"{key} of\n{self._text}", "program")


@overload
def derived(subject: str | Strategy | Template | Program, *, groups: bool = False, uneven: Iterable[str] = ()) -> Costs: ...
@overload
def derived(subject: str | Strategy | Template, *, model: str | Model, recompute: str | None = None, **run: Any) -> ModelCosts: ...
def derived(
    subject: str | Strategy | Template | Program,
    *,
    groups: bool = False,
    uneven: Iterable[str] = (),
    model: str | Model | None = None,
    recompute: str | None = None,
    **run: Any,
) -> Costs | ModelCosts:
    """The costs that are derived from a subject's program. Its symbols are parameters of the theorem, by their names.

    ``groups``: norms and biases are counted apart. ``uneven``: axes along which a device holds a part of its own of what lies in parts,
    ``f_dp``, and the next device ``fnext_dp``; or the parts of all devices, ``dp=4:3:3``, as ``--shards`` takes them. ``model``: a preset,
    a file, or a model, whose sizes are put in; ``recompute``: what its backward computes again, as ``--recompute``; ``run``: ``layers`` of
    each stage, ``fp8``, and ``padding`` of the vocabulary. Raises InputError for what cannot be read or derived, StatementError for a
    program with a model."""
    if model is None:
        return Costs(subject, groups, tuple(uneven))
    strategy = _strategy(subject)
    if strategy is None:
        raise StatementError("a model is run under a strategy, and not under a step program")
    return ModelCosts(strategy, model, same_text(read_subject(strategy)[1]), recompute, **run)


def _strategy(subject: Any) -> Strategy | None:
    """The strategy that a subject is, if it is one."""
    from placeproof.core.strategy import Strategy
    from placeproof.strategies import Template, parse_strategy

    made = subject() if isinstance(subject, Template) else subject
    if isinstance(made, str) and "\n" not in made:
        made = parse_strategy(made)
    return made if isinstance(made, Strategy) else None


def _flat(goals: Iterable[Goal | Iterable[Goal]]) -> tuple[Goal, ...]:
    relations: list[Goal] = []
    for goal in goals:
        relations += [goal] if isinstance(goal, Goal) else list(goal)
    for goal in relations:
        if not isinstance(goal, Goal):
            raise StatementError(f"{goal!r} is no relation")
    return tuple(relations)
