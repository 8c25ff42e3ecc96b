"""A record of how terms were said and of every rule for sums that was applied, for certificates.

While a record is open (:func:`recording`), the functions of :mod:`placeproof.prove.terms` note how each
term was said, and the rules for sums note what they did. The form is what :mod:`placeproof.verify` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placeproof.prove.terms.nodes import Atom, Guard, Index, Lam, Mono, Poly, Sort, Var

#: The record that is open.
active: Record | None = None


@contextmanager
def recording() -> Iterator[Record]:
    """Open a record. Nothing that was remembered of earlier terms is used, so that every step is seen,
    and that the same terms are always called the same."""
    global active  # noqa: PLW0603
    from placeproof.prove.terms import algebra

    before, names, active = active, algebra.forget(), Record()
    try:
        yield active
    finally:
        active = before
        algebra.forget(names)


class Record:
    """Lines of terms, each once, and steps in the order in which they were done."""

    def __init__(self) -> None:
        self.sorts: dict[str, str | int] = {}
        self.lines: list[tuple[Any, ...]] = []
        self.steps: list[dict[str, Any]] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._said: dict[int, tuple[object, Any]] = {}

    def line(self, *parts: Any) -> int:
        """The number of a line."""
        if parts not in self._numbers:
            self._numbers[parts] = len(self.lines)
            self.lines.append(parts)
        return self._numbers[parts]

    # Terms as they were said.

    def note(self, result: Poly, *parts: Any) -> Poly:
        """A term made of others, with how it was said; a copy, because terms are shared."""
        from placeproof.prove.terms.nodes import Poly

        copy = Poly(dict(result.terms))
        self._said[id(copy)] = copy, self.line(*parts)
        return copy

    def note_function(self, result: Lam, binders: Sequence[Var], body: Poly) -> Lam:
        """A function of indices, with how it was said."""
        from placeproof.prove.terms.nodes import Lam

        copy = Lam(result.binders, result.body)
        self._said[id(copy)] = copy, ("function", self.vars(binders), self.said(body))
        return copy

    def said(self, poly: Poly) -> int:
        """The line of a term as it was said; what was put together by hand is taken as it stands."""
        found = self._said.get(id(poly))
        return self.literal(poly) if found is None else found[1]

    def argument(self, arg: Any) -> Any:
        """An argument of a function."""
        from placeproof.prove.terms.nodes import Lam, Poly

        if isinstance(arg, Poly):
            return self.said(arg)
        if isinstance(arg, Lam):
            found = self._said.get(id(arg))
            return found[1] if found else ("function", self.vars(arg.binders), self.literal(arg.body))
        return ("index", self.index(arg))

    def chosen(self, result: Poly, where: Poly, then: Poly, otherwise: Poly) -> Poly:
        """One term where a guard holds, another elsewhere."""
        guard, other = self.said(where), self.said(otherwise)
        less = self.line("times", self.line("number", "-1"), guard, other)
        return self.note(result, "plus", self.line("times", guard, self.said(then)), other, less)

    def pairs(self, meant: Mapping[str, Index]) -> tuple[Any, ...]:
        """What variables are replaced by."""
        return tuple((("var", name, self.sort(new.sort)), self.index(new)) for name, new in meant.items())

    # Terms as they stand.

    def sort(self, sort: Sort) -> str:
        """The name of a sort, whose size is noted."""
        self.sorts[sort.name] = sort.size
        return sort.name

    def index(self, index: Index) -> tuple[Any, ...]:
        """An index as data."""
        from placeproof.prove.terms.nodes import Var

        if isinstance(index, Var):
            return ("var", index.name, self.sort(index.sort))
        return ("of", index.name, tuple(self.index(a) for a in index.args), self.sort(index.sort))

    def vars(self, binders: Sequence[Var]) -> tuple[Any, ...]:
        """What a binder binds."""
        return tuple(self.index(b) for b in binders)

    def guards(self, guards: frozenset[Guard]) -> tuple[Any, ...]:
        """Pairs of indices that are equal."""
        return tuple(sorted((self.index(a), self.index(b)) for a, b in guards))

    def literal(self, poly: Poly) -> int:
        """The line of a term in normal form."""
        found = [self._monomial(m, c) for m, c in poly.terms]
        return self.line("number", "0") if not found else found[0] if len(found) == 1 else self.line("plus", *found)

    def mono(self, mono: Mono) -> int:
        """The line of a monomial."""
        return self._monomial(mono, Fraction(1))

    def _monomial(self, mono: Mono, c: Fraction) -> int:
        parts = [self.line("number", str(c))] if c != 1 or not (mono.factors or mono.guards) else []
        parts += [self.line("equal", a, b) for a, b in self.guards(mono.guards)]
        parts += [self._atom(a) if n == 1 else self.line("power", self._atom(a), n) for a, n in mono.factors]
        return parts[0] if len(parts) == 1 else self.line("times", *parts)

    def _atom(self, atom: Atom) -> int:
        from placeproof.prove.terms.nodes import App, Greatest, Lam, Paren, Poly, Sum, Sym

        match atom:
            case Sym(name=name):
                return self.line("symbol", name)
            case Sum():
                return self.line("the sum", self.vars(atom.binders), self.mono(atom.body))
            case Greatest():
                return self.line("max", self.vars(atom.binders), self.guards(atom.guards), self.literal(atom.body))
            case Paren(inside=inside):
                return self.literal(inside)
            case App(name=name, args=args):
                written: list[Any] = []
                for a in args:
                    if isinstance(a, Poly):
                        written.append(self.literal(a))
                    elif isinstance(a, Lam):
                        written.append(("function", self.vars(a.binders), self.literal(a.body)))
                    else:
                        written.append(("index", self.index(a)))
                return self.line("apply", name, tuple(written))

    # Steps.

    def step(self, rule: str, over: Sequence[Var], mono: Mono, at: Any, result: Poly) -> None:
        """What a rule makes of a sum."""
        self.steps.append({"rule": rule, "over": self.vars(over), "of": self.mono(mono), "at": at, "is": self.literal(result)})
