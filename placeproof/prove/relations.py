"""Claims of arithmetic: relations between expressions over real symbols, arbitrary functions, and functions defined by recursion.

Expressions are SymPy's, over symbols without assumptions: a domain is a hypothesis like any other. A relation holds only where
everything that it divides by differs from zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import sympy

#: Relations. ``>=`` and ``>`` are written with their sides exchanged.
OPERATORS = ("==", "!=", "<=", "<")


@dataclass(frozen=True, slots=True)
class Relation:
    """``left <op> right``. ``divisors``: what was divided by when it was written; SymPy forgets some of it (``x/x`` is 1)."""

    left: sympy.Expr
    op: str
    right: sympy.Expr
    divisors: tuple[sympy.Expr, ...] = ()

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise ValueError(f"no relation: {self.op}")

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"

    def at(self, values: Mapping[str, sympy.Expr]) -> Relation:
        """The relation with symbols replaced, by their names, all at once."""
        return Relation(put(self.left, values), self.op, put(self.right, values), tuple(put(d, values) for d in self.divisors))

    def names(self) -> set[str]:
        """The names of its symbols."""
        return _names(self.left, self.right, *self.divisors)

    def all_divisors(self) -> tuple[sympy.Expr, ...]:
        """What was divided by, with what SymPy still divides by."""
        import sympy

        seen = [p.base for e in (self.left, self.right) for p in sorted(e.atoms(sympy.Pow), key=str) if p.exp.is_negative]
        return tuple(d for d in dict.fromkeys((*self.divisors, *seen)) if not (d.is_Number and d != 0))


@dataclass(frozen=True, slots=True)
class Implication:
    """All of ``then`` wherever all of ``given`` hold: an instance of a lemma or of an induction hypothesis."""

    given: tuple[Relation, ...]
    then: tuple[Relation, ...]

    def __str__(self) -> str:
        before = f"{' and '.join(map(str, self.given))} implies " if self.given else ""
        return before + " and ".join(map(str, self.then))

    def at(self, values: Mapping[str, sympy.Expr]) -> Implication:
        """The implication with symbols replaced."""
        return Implication(tuple(r.at(values) for r in self.given), tuple(r.at(values) for r in self.then))


Fact: TypeAlias = Relation | Implication


@dataclass(frozen=True, slots=True)
class Cases:
    """Several implications, all of which hold. ``what``: what they say together, in words."""

    what: str
    of: tuple[Implication, ...]

    def __str__(self) -> str:
        return self.what

    def at(self, values: Mapping[str, sympy.Expr]) -> Cases:
        """All of them with symbols replaced."""
        return Cases(self.what, tuple(one.at(values) for one in self.of))

    def relations(self) -> Iterator[Relation]:
        """Every relation that they speak of."""
        for one in self.of:
            yield from (*one.given, *one.then)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function of integers, defined by recursion on one parameter from a start; before it, it is arbitrary.

    At ``on == start`` it is ``base``; later it is ``step``, which may speak of the function one earlier (with other arguments
    elsewhere, if the start does not depend on these). This makes the recursion well-founded, so that a definition contradicts nothing.

    Raises ValueError for any other recursion.
    """

    name: str
    params: tuple[str, ...]
    on: str
    start: sympy.Expr
    base: sympy.Expr
    step: sympy.Expr
    divisors_of_base: tuple[sympy.Expr, ...] = ()
    divisors_of_step: tuple[sympy.Expr, ...] = ()

    def __post_init__(self) -> None:
        import sympy

        if strange := _names(self.start, self.base, self.step) - set(self.params):
            raise ValueError(f"{self.name} speaks of `{min(strange)}`, which is no parameter of it")
        if self.on in _names(self.start):
            raise ValueError(f"{self.name}: where it starts depends on `{self.on}` itself")
        if self.applications(self.base):
            raise ValueError(f"{self.name}: its first value speaks of itself")
        for call in self.applications(self.step):
            values = self.bound(call)
            if (values[self.on] - sympy.Symbol(self.on) + 1).expand() != 0 or put(self.start, values) != self.start:
                raise ValueError(f"{self.name}: a step may use the value at `{self.on} - 1` only, not {call}")

    def applications(self, expr: sympy.Expr) -> list[sympy.Expr]:
        """Where an expression applies this function."""
        return [c for c in applied(expr) if c.func.__name__ == self.name]

    def bound(self, call: sympy.Expr) -> dict[str, sympy.Expr]:
        """The parameters' values in an application. Raises ValueError if their number is wrong."""
        if len(call.args) != len(self.params):
            raise ValueError(f"{self.name} takes {len(self.params)} arguments, not {len(call.args)}")
        return dict(zip(self.params, call.args, strict=True))

    def distance(self, call: sympy.Expr) -> sympy.Expr:
        """How far from the start an application is."""
        values = self.bound(call)
        return (values[self.on] - put(self.start, values)).expand()

    def instances(self, call: sympy.Expr) -> Iterator[tuple[Relation, sympy.Expr, tuple[sympy.Expr, ...]]]:
        """What the definition says of an application: (where, value there, what that divides by), twice."""
        values = self.bound(call)
        at, start = values[self.on], put(self.start, values)
        yield Relation(at, "==", start), put(self.base, values), tuple(put(d, values) for d in self.divisors_of_base)
        yield Relation(start + 1, "<=", at), put(self.step, values), tuple(put(d, values) for d in self.divisors_of_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A hypothesis with a name."""

    name: str
    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A relation, or all of several cases, for all real values of its symbols, and all functions, that satisfy the hypotheses.

    ``definitions``: of the functions defined by recursion, each after those that it speaks of. All other functions are arbitrary.
    ``integers``: symbols of which a solver is told that they are integers. Without them a claim is stronger, and often easier.
    """

    name: str
    goal: Relation | Cases
    given: tuple[Named, ...] = ()
    definitions: tuple[Definition, ...] = ()
    integers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        later = {d.name for d in self.definitions}
        if len(later) != len(self.definitions):
            raise ValueError(f"{self.name}: a function is defined twice")
        for definition in self.definitions:
            used = {c.func.__name__ for e in (definition.base, definition.step, definition.start) for c in applied(e)}
            if used & later - {definition.name}:
                raise ValueError(f"{self.name}: {definition.name} speaks of a function that is defined after it")
            later.discard(definition.name)

    def relations(self) -> Iterator[Relation]:
        """The goal and every relation of the hypotheses."""
        yield from (self.goal,) if isinstance(self.goal, Relation) else self.goal.relations()
        for named in self.given:
            yield from (named.fact,) if isinstance(named.fact, Relation) else (*named.fact.given, *named.fact.then)


@dataclass(frozen=True, slots=True, kw_only=True)
class Induction:
    """A claim for every integer ``on`` from ``start``, by induction.

    ``claim`` is what holds at ``on``, with its hypotheses. ``instances``: which values other symbols have where the induction
    hypothesis is used; it is used with all as they are, if none is given.
    """

    claim: Claim
    on: str
    start: sympy.Expr
    instances: tuple[Mapping[str, sympy.Expr], ...] = ()

    def __post_init__(self) -> None:
        if self.on in _names(self.start):
            raise ValueError(f"{self.claim.name}: where the induction starts depends on `{self.on}` itself")
        if not isinstance(self.claim.goal, Relation):
            raise ValueError(f"{self.claim.name}: an induction is of one relation")
        touched = {name for instance in self.instances for name in instance}
        if touched & {self.on, *_names(self.start)}:
            raise ValueError(f"{self.claim.name}: an instance may not change `{self.on}`, nor where the induction starts")

    def base(self) -> Claim:
        """The claim at the start."""
        return _moved(self.claim, f"{self.claim.name}: base", {self.on: self.start})

    def step(self) -> Claim:
        """The claim at ``on + 1``, if it holds at ``on``, for ``on`` from the start."""
        import sympy

        on = sympy.Symbol(self.on)
        hypotheses = tuple(n.fact for n in self.claim.given if isinstance(n.fact, Relation))
        earlier = []
        assert isinstance(self.claim.goal, Relation)
        for instance in self.instances or ({},):
            made = Implication(tuple(h.at(instance) for h in hypotheses), (self.claim.goal.at(instance),))
            earlier.append(Named(name=f"induction hypothesis {dict(instance) or ''}".strip(), fact=made))
        moved = _moved(self.claim, f"{self.claim.name}: step", {self.on: on + 1})
        begun = Named(name=f"{self.on} >= {self.start}", fact=Relation(self.start, "<=", on))
        return replace(moved, given=(*moved.given, begun, *earlier))


def _moved(claim: Claim, name: str, values: Mapping[str, sympy.Expr]) -> Claim:
    given = tuple(Named(name=n.name, fact=n.fact.at(values)) for n in claim.given)
    return replace(claim, name=name, goal=claim.goal.at(values), given=given)


def put(expr: sympy.Expr, values: Mapping[str, sympy.Expr]) -> sympy.Expr:
    """An expression with symbols replaced, by their names, all at once."""
    return _put(expr, tuple(values.items()))


@lru_cache(maxsize=20_000)
def _put(expr: sympy.Expr, values: tuple[tuple[str, sympy.Expr], ...]) -> sympy.Expr:
    """The checks of a theorem ask of the same definitions again and again; where maxima are put together, that takes long."""
    import sympy

    return expr.xreplace({sympy.Symbol(name): value for name, value in values})


def _names(*exprs: sympy.Expr) -> set[str]:
    """The names of the symbols in expressions."""
    return {str(s) for e in exprs for s in e.free_symbols}


def applied(expr: sympy.Expr) -> list[sympy.Expr]:
    """The applications of undefined functions in an expression, in a fixed order."""
    from sympy.core.function import AppliedUndef

    return sorted(expr.atoms(AppliedUndef), key=str)
