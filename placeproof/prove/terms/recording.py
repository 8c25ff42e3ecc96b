"""A record of how terms were said and of every rule for sums that was applied, for certificates.

While a record is open (:func:`recording`), the functions of :mod:`placeproof.prove.terms` note how each
term was said, and the rules for sums note what they did. The form is what :mod:`placeproof.verify` reads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, TypeVar

from placeproof.prove.terms import nodes, remembered

_Term = TypeVar("_Term", "nodes.Poly", "nodes.Lam")


@contextmanager
def recording() -> Iterator[Record]:
    """Open a record. Nothing that was remembered of earlier terms is used, so that every step is seen,
    and that the same terms are always called the same."""
    before, names, remembered.record = remembered.record, remembered.forget(), (record := Record())
    try:
        yield record
    finally:
        remembered.record = before
        remembered.forget(names)


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

    def note(self, result: _Term, *parts: Any) -> _Term:
        """A term or a function of indices made of others, with how it was said; a copy, because they are shared."""
        noted = copy.copy(result)
        self._said[id(noted)] = noted, parts if isinstance(noted, nodes.Lam) else self.line(*parts)
        return noted

    def said(self, part: nodes.Argument) -> Any:
        """The line of a term, a function or an index, as it was said; what was put together by hand is taken as it stands."""
        found = self._said.get(id(part))
        return self._standing(part) if found is None else found[1]

    def pairs(self, meant: Mapping[str, nodes.Index]) -> tuple[Any, ...]:
        """What variables are replaced by."""
        return tuple((("var", name, self.sort(new.sort)), self.index(new)) for name, new in meant.items())

    # Terms as they stand.

    def _standing(self, part: nodes.Argument) -> Any:
        if isinstance(part, nodes.Poly):
            return self.literal(part)
        if isinstance(part, nodes.Lam):
            return ("function", self.vars(part.binders), self.literal(part.body))
        return ("index", self.index(part))

    def sort(self, sort: nodes.Sort) -> str:
        """The name of a sort, whose size is noted."""
        self.sorts[sort.name] = sort.size
        return sort.name

    def index(self, index: nodes.Index) -> tuple[Any, ...]:
        """An index as data."""
        if isinstance(index, nodes.Var):
            return ("var", index.name, self.sort(index.sort))
        return ("of", index.name, tuple(self.index(a) for a in index.args), self.sort(index.sort))

    def vars(self, binders: Sequence[nodes.Var]) -> tuple[Any, ...]:
        """What a binder binds."""
        return tuple(self.index(b) for b in binders)

    def guards(self, guards: frozenset[nodes.Guard]) -> tuple[Any, ...]:
        """Pairs of indices that are equal."""
        return tuple(sorted((self.index(a), self.index(b)) for a, b in guards))

    def literal(self, poly: nodes.Poly) -> int:
        """The line of a term in normal form."""
        found = [self.mono(m, c) for m, c in poly.terms]
        return self.line("number", "0") if not found else found[0] if len(found) == 1 else self.line("plus", *found)

    def mono(self, mono: nodes.Mono, c: Fraction = Fraction(1)) -> int:
        """The line of a monomial with its coefficient."""
        parts = [self.line("number", str(c))] if c != 1 or not (mono.factors or mono.guards) else []
        parts += [self.line("equal", a, b) for a, b in self.guards(mono.guards)]
        parts += [self._atom(a) if n == 1 else self.line("power", self._atom(a), n) for a, n in mono.factors]
        return parts[0] if len(parts) == 1 else self.line("times", *parts)

    def _atom(self, atom: nodes.Atom) -> int:
        match atom:
            case nodes.Sym(name=name):
                return self.line("symbol", name)
            case nodes.Sum():
                return self.line("the sum", self.vars(atom.binders), self.mono(atom.body))
            case nodes.Greatest():
                return self.line("max", self.vars(atom.binders), self.guards(atom.guards), self.literal(atom.body))
            case nodes.Paren(inside=inside):
                return self.literal(inside)
            case nodes.App(name=name, args=args):
                return self.line("apply", name, tuple(self._standing(a) for a in args))

    # Steps.

    def step(self, rule: str, over: Sequence[nodes.Var], mono: nodes.Mono, at: Any, result: nodes.Poly) -> None:
        """What a rule makes of a sum."""
        self.steps.append({"rule": rule, "over": self.vars(over), "of": self.mono(mono), "at": at, "is": self.literal(result)})
