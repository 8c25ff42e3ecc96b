"""The order of what a binder binds, where there are too many orders to try each: by where the variables stand.

Variables are told apart by what the parts of the body look like that speak of them, until nothing new is seen: first by the structure of
the parts alone, which is quick, then by their normal forms. Of those that still look alike one is put first, and it is looked again; two
that may be exchanged need no two attempts. Which order is found depends on the body up to the names of the variables: equal sums get equal
names. That is all that is asked of it; any order is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from placeproof.prove.terms.nodes import App, Fn, Greatest, Guard, Index, Lam, Mono, Node, Paren, Poly, Sum, Var

_Colours = dict[Var, int]
_Look = Callable[[Var, _Colours], tuple[str, ...]]
_Substitute = Callable[[Poly, Mapping[str, Index]], Poly]


def placed(binders: Sequence[Var], parts: Sequence[Poly], substitute: _Substitute) -> tuple[Var, ...]:
    """The variables in an order that their names do not matter for. ``parts``: what the body consists of, in any order."""
    sorts = sorted({v.sort.name for v in binders})
    return _Search(binders, parts, substitute).best({v: sorts.index(v.sort.name) for v in binders})


class _Search:
    def __init__(self, binders: Sequence[Var], parts: Sequence[Poly], substitute: _Substitute) -> None:
        self.parts = parts
        self.substitute = substitute
        self.about = {v: [p for p in parts if v.name in p.free] for v in binders}

    def best(self, colours: _Colours, quick: bool = False) -> tuple[Var, ...]:
        """The order that is found; ``quick``: the first that comes."""
        colours = self._told_apart(colours, self._structure)
        if len(set(colours.values())) < len(colours):
            colours = self._told_apart(colours, self._form)
        classes: dict[int, list[Var]] = {}
        for v, colour in colours.items():
            classes.setdefault(colour, []).append(v)
        alike = min((c for c in classes.values() if len(c) > 1), key=lambda c: (len(c), colours[c[0]]), default=None)
        if alike is None:
            return tuple(sorted(colours, key=lambda v: colours[v]))
        first, *rest = alike
        if all(self._exchanged(first, v) for v in rest):
            return self.best({v: (c + 1) * len(alike) - (alike.index(v) if v in alike else 0) for v, c in colours.items()}, quick)
        tried = [{u: 2 * c - (u is v) for u, c in colours.items()} for v in alike]
        if quick:
            return self.best(tried[0], quick)
        found = {self._body(self.best(one, quick=True)): one for one in tried}
        return min((self.best(one) for one in found.values()), key=self._body)

    def _body(self, order: tuple[Var, ...]) -> tuple[str, ...]:
        """What the body looks like in an order."""
        return self._seen(self.parts, {v.name: Var(f"?{n}", v.sort) for n, v in enumerate(order)})

    def _told_apart(self, colours: _Colours, look: _Look) -> _Colours:
        """Variables of one colour look alike from now on."""
        while True:
            looks = {v: (c, look(v, colours)) for v, c in colours.items()}
            places = {look: n for n, look in enumerate(sorted(set(looks.values())))}
            if len(places) == len(set(colours.values())):
                return colours
            colours = {v: places[look] for v, look in looks.items()}

    def _structure(self, v: Var, colours: _Colours) -> tuple[str, ...]:
        """The structure of the parts that speak of a variable."""
        called = {u.name: f"?{c}" for u, c in colours.items()} | {v.name: "?"}
        known: dict[int, str] = {}
        return tuple(sorted(_structure(part, called, known) for part in self.about[v]))

    def _form(self, v: Var, colours: _Colours) -> tuple[str, ...]:
        """The normal forms of the parts that speak of a variable."""
        names: dict[str, Index] = {u.name: Var(f"?{c}.", u.sort) for u, c in colours.items()}
        return self._seen(self.about[v], {**names, v.name: Var("?", v.sort)})

    def _exchanged(self, a: Var, b: Var) -> bool:
        """Whether the body stays as it is if two variables change places."""
        both = {*self.about[a], *self.about[b]}
        return self._seen(both, {a.name: b, b.name: a}) == self._seen(both, {})

    def _seen(self, parts: Iterable[Poly], names: Mapping[str, Index]) -> tuple[str, ...]:
        return tuple(sorted(self._key(part, names) for part in parts))

    def _key(self, part: Poly, names: Mapping[str, Index]) -> str:
        try:
            return self.substitute(part, names).key
        except ZeroDivisionError:  # two that are called alike for now
            return ""


def _structure(node: Node, called: Mapping[str, str], known: dict[int, str]) -> str:
    """A digest of a term in which variables are called by colours. It does not depend on what a normal form owes to the names of
    variables: the order of factors and of terms, which of the variables of one sort an inner binder has first, and by what number a
    divisor was divided, so that numbers do not count. ``known``: digests of nodes that were met with these colours."""
    if (digest := known.get(id(node))) is None:
        text = node.key if node.free.isdisjoint(called) else _structured(node, called, known)
        digest = known[id(node)] = blake2b(text.encode(), digest_size=12).hexdigest()
    return digest


def _structured(node: Node, called: Mapping[str, str], known: dict[int, str]) -> str:
    def each(nodes: Iterable[Node]) -> list[str]:
        return [_structure(one, called, known) for one in nodes]

    def guards(pairs: Iterable[Guard]) -> str:
        return " ".join(sorted("=".join(sorted(each(pair))) for pair in pairs))

    match node:
        case Var(name=name):
            return called[name]
        case Fn(name=name, args=args) | App(name=name, args=args):
            return f"{name}({','.join(each(args))})"
        case Mono():
            factors = sorted(f"{_structure(atom, called, known)}^{n}" for atom, n in node.factors)
            return f"{guards(node.guards)}|{'*'.join(factors)}"
        case Poly():
            return "+".join(sorted(each(mono for mono, _ in node.terms)))
        case Paren():
            return f"({_structure(node.inside, called, known)})"
        case Sum() | Lam() | Greatest():
            ordered = isinstance(node, Lam)  # arguments have places
            called = {**called, **{b.name: b.name if ordered else f"%{node.height}.{b.sort.name}" for b in node.binders}}
            known = {}  # another binder with names of these may bind something else
            bound = ",".join(sorted(b.sort.name for b in node.binders))
            more = f"|{guards(node.guards)}" if isinstance(node, Greatest) else ""
            return f"{type(node).__name__}[{bound}{more}]({_structure(node.body, called, known)})"
    raise AssertionError(node)
