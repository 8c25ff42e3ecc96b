"""The order of what a binder binds, where there are too many orders to try each: by where the variables stand.

Variables are told apart by what the parts of the body look like that speak of them, until nothing new is seen. Of those that still look
alike one is put first, and it is looked again; two that may be exchanged need no two attempts. Which order is found depends on the body up
to the names of the variables: equal sums get equal names. That is all that is asked of it; any order is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from placeproof.prove.terms.nodes import Index, Poly, Var

_Colours = dict[Var, int]
_Substitute = Callable[[Poly, Mapping[str, Index]], Poly]


def placed(binders: Sequence[Var], parts: Sequence[Poly], substitute: _Substitute) -> tuple[Var, ...]:
    """The variables in an order that their names do not matter for. ``parts``: what the body consists of, in any order."""
    sorts = sorted({v.sort.name for v in binders})
    return _Search(binders, parts, substitute).best({v: sorts.index(v.sort.name) for v in binders})[1]


class _Search:
    def __init__(self, binders: Sequence[Var], parts: Sequence[Poly], substitute: _Substitute) -> None:
        self.parts = parts
        self.substitute = substitute
        self.about = {v: [p for p in parts if v.name in p.free] for v in binders}

    def best(self, colours: _Colours, quick: bool = False) -> tuple[tuple[str, ...], tuple[Var, ...]]:
        """What the body looks like in the order that is found, and the order; ``quick``: the first that comes."""
        colours = self._told_apart(colours)
        classes: dict[int, list[Var]] = {}
        for v, colour in colours.items():
            classes.setdefault(colour, []).append(v)
        alike = min((c for c in classes.values() if len(c) > 1), key=lambda c: (len(c), colours[c[0]]), default=None)
        if alike is None:
            order = tuple(sorted(colours, key=lambda v: colours[v]))
            return self._seen(self.parts, {v.name: Var(f"?{n}", v.sort) for n, v in enumerate(order)}), order
        first, *rest = alike
        if all(self._exchanged(first, v) for v in rest):
            return self.best({v: (c + 1) * len(alike) - (alike.index(v) if v in alike else 0) for v, c in colours.items()}, quick)
        tried = [{u: 2 * c - (u is v) for u, c in colours.items()} for v in alike]
        if quick:
            return self.best(tried[0], quick)
        found = {self.best(one, quick=True)[0]: one for one in tried}
        return min(self.best(one) for one in found.values())

    def _told_apart(self, colours: _Colours) -> _Colours:
        """Variables of one colour look alike from now on."""
        while True:
            names: dict[str, Index] = {v.name: Var(f"?{c}.", v.sort) for v, c in colours.items()}
            looks = {v: (c, self._seen(self.about[v], {**names, v.name: Var("?", v.sort)})) for v, c in colours.items()}
            places = {look: n for n, look in enumerate(sorted(set(looks.values())))}
            if len(places) == len(set(colours.values())):
                return colours
            colours = {v: places[look] for v, look in looks.items()}

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
