"""The nodes of terms: data, without rules.

An index term names a point of a finite, non-empty sort: a coordinate of a mesh axis, an element of a tensor, a sample. A real
term is a polynomial (:class:`Poly`) over atoms: symbols, applications of uninterpreted functions, sums and maxima over
index sorts. A monomial may carry guards, equations between index terms: it stands for the monomial where they hold and for
zero elsewhere.

Every node has a ``key``, a text that is equal for equal nodes; bound variables have canonical names, so that terms that differ
by the names of bound variables are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from placeproof.prove.terms import remembered
from placeproof.prove.terms.limit import spend


@dataclass(frozen=True, slots=True)
class Sort:
    """A finite sort with at least one point. ``size``: the name of the symbol of its size, or the number itself."""

    name: str
    size: str | int

    @property
    def single(self) -> bool:
        """Whether it has exactly one point."""
        return self.size == 1


class Node:
    """What all nodes have. ``free``: names of free index variables. ``height``: one more than any binder inside, for canonical names."""

    __slots__ = ("free", "height", "key")
    key: str
    free: frozenset[str]
    height: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Node) -> bool:
        return self.key < other.key

    def __repr__(self) -> str:
        return self.key


_NOTHING: frozenset[str] = frozenset()


def _join(nodes: Iterable[Node]) -> tuple[frozenset[str], int]:
    free, height = _NOTHING, 0
    for node in nodes:
        if node.free:
            free = free | node.free if free else node.free
        height = max(height, node.height)
    return free, height


class Var(Node):
    """An index variable."""

    __slots__ = ("name", "sort")

    def __init__(self, name: str, sort: Sort) -> None:
        self.name, self.sort = name, sort
        self.key, self.free, self.height = name, frozenset((name,)), 0


class Fn(Node):
    """An uninterpreted function of index terms, with values in a sort; a constant without arguments."""

    __slots__ = ("args", "name", "sort")

    def __init__(self, name: str, args: tuple[Index, ...], sort: Sort) -> None:
        self.name, self.args, self.sort = name, args, sort
        self.key = f"{name}({','.join(a.key for a in args)})" if args else f"{name}()"
        self.free, self.height = _join(args)


Index: TypeAlias = Var | Fn


def point(sort: Sort) -> Fn:
    """The only point of a sort of size 1 (the first point of any other)."""
    return Fn(f"first.{sort.name}", (), sort)


def fn(name: str, args: Iterable[Index], sort: Sort) -> Index:
    """A function's value; in a sort of one point there is only one."""
    return point(sort) if sort.single else Fn(name, tuple(args), sort)


class Sym(Node):
    """A real constant."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        self.key, self.free, self.height = name, _NOTHING, 0


class Lam(Node):
    """A function of index variables with real values: what a computation sees of a tensor."""

    __slots__ = ("binders", "body")

    def __init__(self, binders: tuple[Var, ...], body: Poly) -> None:
        self.binders, self.body = binders, body
        self.key = f"[{','.join(f'{b.name}' for b in binders)}: {body.key}]"
        self.free = body.free - {b.name for b in binders}
        self.height = body.height + 1


class App(Node):
    """An uninterpreted real-valued function of index terms, real terms and functions."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: tuple[Argument, ...]) -> None:
        self.name, self.args = name, args
        self.key = f"{name}({', '.join(a.key for a in args)})"
        self.free, self.height = _join(args)


class Sum(Node):
    """The sum of one monomial (with coefficient one) over index variables. Only :mod:`.algebra` builds it."""

    __slots__ = ("binders", "body")

    def __init__(self, binders: tuple[Var, ...], body: Mono) -> None:
        self.binders, self.body = binders, body
        self.key = f"sum[{','.join(b.name for b in binders)}]({body.key})"
        self.free = body.free - {b.name for b in binders}
        self.height = body.height + 1


class Greatest(Node):
    """The greatest value over index variables, where the guards hold."""

    __slots__ = ("binders", "body", "guards")

    def __init__(self, binders: tuple[Var, ...], guards: frozenset[Guard], body: Poly) -> None:
        self.binders, self.guards, self.body = binders, guards, body
        self.key = f"max[{','.join(b.name for b in binders)}|{_guards_key(guards)}]({body.key})"
        free, height = _join([body, *(side for guard in guards for side in guard)])
        self.free, self.height = free - {b.name for b in binders}, height + 1


class Paren(Node):
    """A polynomial of several monomials taken as one atom, so that it can be divided by."""

    __slots__ = ("inside",)

    def __init__(self, inside: Poly) -> None:
        self.inside = inside
        self.key, self.free, self.height = f"({inside.key})", inside.free, inside.height


Atom: TypeAlias = Sym | App | Sum | Greatest | Paren
Guard: TypeAlias = tuple[Index, Index]


def _guards_key(guards: frozenset[Guard]) -> str:
    return " ".join(sorted(f"[{a.key}={b.key}]" for a, b in guards))


class Mono(Node):
    """A product of powers of atoms, where the guards hold; zero elsewhere."""

    __slots__ = ("factors", "guards")

    def __init__(self, factors: dict[Atom, int], guards: frozenset[Guard]) -> None:
        kept = [(a, n) for a, n in factors.items() if n]
        self.factors = tuple(sorted(kept, key=lambda item: item[0].key)) if len(kept) > 1 else tuple(kept)
        self.guards = guards
        powers = "*".join(a.key if n == 1 else f"{a.key}^{n}" for a, n in self.factors)
        self.key = f"{_guards_key(guards)}{powers}" if guards else powers
        spend(len(self.key))
        self.free, self.height = _join([*(a for a, _ in self.factors), *(side for guard in guards for side in guard)])


class Poly(Node):
    """A sum of monomials with rational coefficients: the normal form of a real term."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Mono, Fraction]) -> None:
        kept = [(m, c) for m, c in terms.items() if c]
        self.terms = tuple(sorted(kept, key=lambda item: item[0].key)) if len(kept) > 1 else tuple(kept)
        self.key = " + ".join(f"{c}*{m.key}" if m.key else str(c) for m, c in self.terms) or "0"
        spend(len(self.key))
        self.free, self.height = _join(m for m, _ in self.terms)

    @property
    def number(self) -> Fraction | None:
        """Its value where it is a number."""
        if not self.terms:
            return Fraction(0)
        mono, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not mono.key else None

    @property
    def alone(self) -> tuple[Mono, Fraction] | None:
        """Its monomial and coefficient where there is exactly one."""
        return self.terms[0] if len(self.terms) == 1 else None

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for mono, coefficient in other.terms:
            terms[mono] = terms.get(mono, Fraction(0)) + coefficient
        r = remembered.record
        return Poly(terms) if r is None else r.note(Poly(terms), "plus", r.said(self), r.said(other))

    def __neg__(self) -> Poly:
        result, r = Poly({m: -c for m, c in self.terms}), remembered.record
        return result if r is None else r.note(result, "times", r.line("number", "-1"), r.said(self))

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)


Argument: TypeAlias = Index | Poly | Lam
