"""Terms as a certificate means them: arithmetic, guards, one index for another, and the sums that steps have shown."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

#: A term is a sum of monomials: {(guards, factors): coefficient}, guards being pairs of indices, factors pairs of an atom and its exponent.
Poly = dict[tuple[Any, ...], Fraction]
ONE: Poly = {((), ()): Fraction(1)}
_MOST = 5_000


class RejectedError(Exception):
    """The certificate does not show what it claims; the message names the place."""


@lru_cache(maxsize=200_000)
def free(x: Any) -> frozenset[Any]:
    """The variables that are free in an index, an atom, a monomial or a frozen term: ("var", name, sort)."""
    if not isinstance(x, tuple):
        return frozenset()
    if len(x) == 3 and x[0] == "var":
        return frozenset((x,))
    found = frozenset().union(*(free(part) for part in x)) if x else frozenset()
    return found - frozenset(x[1]) if x and x[0] in ("sum", "max", "function") else found


@lru_cache(maxsize=200_000)
def height(x: Any) -> int:
    """How deep sums, maxima and functions are nested."""
    inside = max((height(part) for part in x), default=0) if isinstance(x, tuple) else 0
    return inside + (isinstance(x, tuple) and bool(x) and x[0] in ("sum", "max", "function"))


def _seen_from(x: Any, v: Any, others: frozenset[Any]) -> str:
    """What a term looks like from one variable, whatever it and others are called."""
    inside = free(x)
    return _seen(x, v if v in inside else None, others & inside)


@lru_cache(maxsize=200_000)
def _seen(x: Any, v: Any, others: frozenset[Any]) -> str:
    """The same of what a term speaks of."""
    if not isinstance(x, tuple):
        return repr(x)
    if x and x[0] == "var":
        return "*" if x == v else f"?{x[2]}" if x in others else repr(x)
    if x and x[0] in ("apply", "of"):
        return f"{x[1]}({','.join(_seen_from(a, v, others) for a in x[2])})"
    return "{" + ",".join(sorted(_seen_from(part, v, others) for part in x)) + "}"


def in_order(parts: Iterable[Any]) -> tuple[Any, ...]:
    """Parts of a term by what they say."""
    several = tuple(parts)
    return several if len(several) < 2 else tuple(sorted(several, key=repr))


def frozen(poly: Poly) -> tuple[Any, ...]:
    """A term as it stands in an atom."""
    return in_order(poly.items())


def plus(*polys: Poly) -> Poly:
    """The sum of terms."""
    total: Poly = {}
    for poly in polys:
        for mono, c in poly.items():
            total[mono] = total.get(mono, Fraction(0)) + c
    return {m: c for m, c in total.items() if c}


def scaled(poly: Poly, factor: Fraction) -> Poly:
    """A rational multiple."""
    return poly if factor == 1 else {m: c * factor for m, c in poly.items() if factor}


def atom(one: tuple[Any, ...]) -> Poly:
    """An atom as a term."""
    return {((), ((one, 1),)): Fraction(1)}


def swapped(index: Any, swap: dict[Any, Any]) -> Any:
    """An index with indices replaced by others, wherever they stand."""
    if index in swap or index[0] == "var":
        return swap.get(index, index)
    return ("of", index[1], tuple(swapped(a, swap) for a in index[2]), index[3])


def ordered(pairs: Iterable[Any], swap: dict[Any, Any]) -> tuple[Any, ...]:
    """Guards with indices replaced, without those that always hold."""
    moved = ((swapped(a, swap), swapped(b, swap)) for a, b in pairs)
    return in_order({in_order(g) for g in moved if g[0] != g[1]})


class Terms:
    """The sorts of a certificate, and the sums that its steps have shown so far."""

    def __init__(self, sorts: dict[str, str | int]) -> None:
        self.sorts = sorts
        self.known: dict[Any, tuple[int, Poly]] = {}
        self.used: set[int] = set()
        self.fresh = itertools.count()
        #: Sums by what they bind and say, and terms by what they say, under names that depend on that alone.
        self._sums: dict[Any, Any] = {}
        self._schemas: dict[Any, Any] = {}

    # Products, guards, powers, functions.

    def times(self, *polys: Poly) -> Poly:
        """The product of terms."""
        result = ONE
        for poly in polys:
            if ONE in (result, poly):
                result = poly if result == ONE else result
                continue
            parts = [scaled(self._both(a, b), x * y) for (a, x), (b, y) in itertools.product(result.items(), poly.items())]
            result = parts[0] if len(parts) == 1 else plus(*parts)
        return result

    def _both(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> Poly:
        """The product of two monomials."""
        powers = dict(a[1])
        for one, n in b[1]:
            powers[one] = powers.get(one, 0) + n
        factors = in_order((one, n) for one, n in powers.items() if n)
        return self._settled((in_order({*a[0], *b[0]}), factors))

    def _settled(self, mono: tuple[Any, ...]) -> Poly:
        """Where two indices are equal, the rest of a monomial speaks of one of them."""
        guards, factors = mono
        for guard in guards:
            rest = (tuple(g for g in guards if g != guard), factors)
            for old, new in (guard, guard[::-1]):
                if (old[0] == "var" and new[0] != "var" and old in free(new)) or (old[0] != "var" and new[0] == "var"):
                    continue
                if (old[0] == new[0] and repr(old) < repr(new)) or (old[0] != "var" and repr(old) in repr(new)):
                    continue
                if repr(old) in repr(rest) and (old[0] != "var" or old in free(rest)):
                    return self.times({((guard,), ()): Fraction(1)}, self.moved({rest: Fraction(1)}, old, new))
        return {mono: Fraction(1)}

    def same(self, a: Any, b: Any) -> Poly:
        """1 where two indices are equal, 0 elsewhere."""
        if a[-1] != b[-1]:
            raise RejectedError("indices of two sorts are compared")
        return ONE if a == b else {((in_order((a, b)),), ()): Fraction(1)}

    def _under(self, poly: Poly, guard: Any, holds: bool) -> Poly:
        """A term where a guard holds, or where it does not."""
        if not holds:
            return {m: c for m, c in poly.items() if guard not in m[0]}
        return plus(*({(tuple(g for g in m[0] if g != guard), m[1]): c} for m, c in poly.items()))

    def by_cases(self, make: Callable[[list[Any]], Poly], polys: list[Any]) -> Poly:
        """A function of terms with guards: its value where a guard holds, and its value elsewhere."""
        found = sorted((g for p in polys if isinstance(p, dict) for m in p for g in m[0]), key=repr)
        if not found:
            return make(polys)
        where: Poly = {((found[0],), ()): Fraction(1)}
        yes, no = ([self._under(p, found[0], holds) if isinstance(p, dict) else p for p in polys] for holds in (True, False))
        there = self.times(where, self.by_cases(make, yes))
        elsewhere = self.by_cases(make, no)
        return plus(there, elsewhere, scaled(self.times(where, elsewhere), Fraction(-1)))

    def apply(self, name: str, args: list[Any]) -> Poly:
        """A function of indices, terms and functions; nothing is known of it."""

        def made(ps: list[Any]) -> Poly:
            return atom(("apply", name, tuple(("term", frozen(p)) if isinstance(p, dict) else p for p in ps)))

        return self.by_cases(made, args)

    def power(self, poly: Poly, n: int) -> Poly:
        """A whole power; of several monomials, one over them is one atom."""
        if n >= 0:
            return self.times(*([poly] * n)) if n != 1 else poly
        return self.by_cases(lambda ps: self.times(*([self._inverse(ps[0])] * -n)), [poly])

    def _inverse(self, poly: Poly) -> Poly:
        if not poly:
            raise RejectedError("something is divided by zero")
        if len(poly) == 1:
            (((_, factors), c),) = poly.items()
            return {((), tuple((a, -k) for a, k in factors)): 1 / c}
        scale = sum(poly.values(), Fraction(0)) or max(abs(c) for c in poly.values())  # whatever the variables are called
        return scaled(atom(("one over", frozen(scaled(poly, 1 / scale)))), 1 / scale)

    # Sums and maxima.

    def sum(self, over: tuple[Any, ...], poly: Poly) -> Poly:
        """A sum over variables: by linearity, what steps have shown of each monomial's; else it stays a sum."""
        for v in over:
            if self.sorts[v[2]] == 1:
                poly = self.moved(poly, v, self.only(v[2]))
        over = tuple(v for v in over if self.sorts[v[2]] != 1)
        return plus(*(scaled(self._look(over, mono), c) for mono, c in poly.items())) if over else poly

    def only(self, sort: str) -> Any:
        """The one point of a sort that has one."""
        return ("of", f"first.{sort}", (), sort)

    def _look(self, over: tuple[Any, ...], mono: Any) -> Poly:
        key, names = self._schema(over, mono)
        if key not in self.known:
            return atom(self.the_sum(over, mono))
        number, found = self.known[key]
        self.used.add(number)
        return dict(self.renamed_terms(found.items(), names))

    def learn(self, number: int, over: tuple[Any, ...], mono: Any, found: Poly) -> None:
        """What a step has shown of a sum."""
        if found == atom(self.the_sum(over, mono)):
            raise RejectedError("a sum is said to be itself")
        if free(frozen(found)) - free(mono) or free(frozen(found)) & set(over):
            raise RejectedError("what a sum is speaks of another variable")
        key, names = self._schema(over, mono)
        there = {here: name for name, here in names.items()}
        self.known.setdefault(key, (number, dict(self.renamed_terms(found.items(), there))))

    def _schema(self, over: tuple[Any, ...], mono: Any) -> tuple[Any, dict[Any, Any]]:
        """A sum up to the names of its free variables, and what these are called here."""
        best: tuple[Any, dict[Any, Any]] | None = None
        for order in self._orders(free(mono) - set(over), mono):
            names = self._named(order, "?")
            key = self.the_sum(over, self.renamed(mono, names))
            if best is None or repr(key) < repr(best[0]):
                best = key, {new: old for old, new in names.items()}
        assert best is not None
        return best

    def schema(self, poly: Poly) -> Any:
        """A term up to the names of its free variables."""
        body = frozen(poly)
        if body not in self._schemas:
            orders = self._orders(free(body), body)
            self._schemas[body] = min((self.renamed_terms(body, self._named(order, "?")) for order in orders), key=repr)
        return self._schemas[body]

    def _orders(self, variables: Iterable[Any], body: Any) -> Iterator[tuple[Any, ...]]:
        """The orders of the variables of each sort, by where they stand in a body; those that stand alike in every order."""
        found = frozenset(variables)
        several = Counter(v[2] for v in found)
        marks = {v: (v[2], _seen_from(body, v, found) if several[v[2]] > 1 else "") for v in found}
        groups = [tuple(sorted(v for v in found if marks[v] == m)) for m in sorted(set(marks.values()))]
        if math.prod(math.factorial(len(g)) for g in groups) > _MOST:
            raise RejectedError("a sum over too many variables of one sort")
        return (tuple(itertools.chain(*o)) for o in itertools.product(*(itertools.permutations(g) for g in groups)))

    def _named(self, variables: Iterable[Any], mark: str) -> dict[Any, Any]:
        """Names for variables: a mark, the sort, the place among those of the sort."""
        seen: Counter[str] = Counter()
        names = {}
        for v in variables:
            names[v] = ("var", f"{mark}{v[2]}.{seen[v[2]]}", v[2])
            seen[v[2]] += 1
        return names

    def the_sum(self, over: Iterable[Any], mono: Any) -> tuple[Any, ...]:
        """A sum as an atom, with names for what it binds that depend on what it says alone."""
        key = frozenset(over), mono
        if key not in self._sums:
            named = (self._named(order, f"#{height(mono)}.") for order in self._orders(key[0], mono))
            self._sums[key] = min((("sum", tuple(sorted(n.values())), self.renamed(mono, n)) for n in named), key=repr)
        found: tuple[Any, ...] = self._sums[key]
        return found

    def function(self, over: Iterable[Any], body: tuple[Any, ...]) -> tuple[Any, ...]:
        """A function of indices, likewise; the order of what it binds matters."""
        names = self._named(over, f"#{height(body)}.")
        return ("function", tuple(names.values()), self.renamed_terms(body, names))

    def the_max(self, over: Iterable[Any], guards: tuple[Any, ...], body: tuple[Any, ...]) -> tuple[Any, ...]:
        """A maximum, likewise."""
        named = (self._named(order, f"#{height((guards, body))}.") for order in self._orders(over, (guards, body)))
        found = (("max", tuple(sorted(n.values())), (ordered(guards, n), self.renamed_terms(body, n))) for n in named)
        return min(found, key=repr)

    def alone(self, poly: Poly) -> Any:
        """The monomial of a term that is one."""
        if len(poly) != 1 or next(iter(poly.values())) != 1:
            raise RejectedError("there is more than one monomial")
        return next(iter(poly))

    # Variables called otherwise, all at once. Nothing is looked up or worked out, so that it says the same of the other variables. No name
    # of a new variable is bound inside: those that bind have "#" and how deep they are nested, and what is read has neither.

    def renamed(self, mono: Any, names: dict[Any, Any]) -> Any:
        """A monomial with variables called otherwise."""
        if free(mono).isdisjoint(names):
            return mono
        guards = (in_order((swapped(a, names), swapped(b, names))) for a, b in mono[0])
        factors = ((self._renamed_atom(a, names), n) for a, n in mono[1])
        return in_order(guards), in_order(factors)

    def renamed_terms(self, poly: Iterable[Any], names: dict[Any, Any]) -> tuple[Any, ...]:
        """A frozen term, likewise."""
        return in_order((self.renamed(mono, names), c) for mono, c in poly)

    def _renamed_atom(self, one: tuple[Any, ...], names: dict[Any, Any]) -> tuple[Any, ...]:
        match one[0]:
            case "apply":
                return ("apply", one[1], tuple(self._renamed_argument(a, names) for a in one[2]))
            case "one over":
                return ("one over", self.renamed_terms(one[1], names))
            case "sum":
                return self.the_sum(one[1], self.renamed(one[2], names))
            case "max":
                guards = tuple((swapped(a, names), swapped(b, names)) for a, b in one[2][0])
                return self.the_max(one[1], guards, self.renamed_terms(one[2][1], names))
        return one

    def _renamed_argument(self, arg: tuple[Any, ...], names: dict[Any, Any]) -> tuple[Any, ...]:
        match arg[0]:
            case "term":
                return ("term", self.renamed_terms(arg[1], names))
            case "index":
                return ("index", swapped(arg[1], names))
        return self.function(arg[1], self.renamed_terms(arg[2], names))

    def max(self, over: list[Any], guards: tuple[Any, ...], body: Poly) -> Poly:
        """The greatest value of a term over variables, where guards hold."""
        guards = ordered(guards, {})
        for v in over:
            fixed = next((b for g in guards for a, b in (g, g[::-1]) if a == v and v not in free(b)), None)
            if self.sorts[v[2]] == 1 or v not in free((guards, frozen(body))):
                fixed = self.only(v[2])
            if fixed is not None:
                return self.max([w for w in over if w != v], ordered(guards, {v: fixed}), self.moved(body, v, fixed))
        inner = self._greatest(body)
        if over and inner is not None:
            more, (also, inside) = self.opened(inner)
            return self.max([*over, *more], (*guards, *also), inside)
        if not over and not guards:
            return body
        return atom(self.the_max(over, guards, frozen(body)))

    def _greatest(self, body: Poly) -> Any:
        """The maximum that a term is."""
        for (guards, factors), c in body.items():
            if len(body) == 1 and c == 1 and not guards and len(factors) == 1 and factors[0][1] == 1 and factors[0][0][0] == "max":
                return factors[0][0]
        return None

    def opened(self, binder: tuple[Any, ...]) -> tuple[list[Any], Any]:
        """What a binder binds under names that occur nowhere else, and its body in them."""
        names = {v: ("var", f"~~{next(self.fresh)}", v[2]) for v in binder[1]}
        over, inside = list(names.values()), binder[2]
        if binder[0] == "max":
            return over, (ordered(inside[0], names), dict(self.renamed_terms(inside[1], names)))
        return over, {self.renamed(inside, names): Fraction(1)} if binder[0] == "sum" else dict(self.renamed_terms(inside, names))

    # One index for another, wherever it stands.

    def moved(self, poly: Poly, old: Any, new: Any) -> Poly:
        """A term with one index replaced by another."""
        if old[-1] != new[-1]:
            raise RejectedError("an index is replaced by one of another sort")
        parts = []
        for mono, c in poly.items():
            if not occurs(old, mono):
                parts.append({mono: c})
                continue
            guards = [self.same(swapped(a, {old: new}), swapped(b, {old: new})) for a, b in mono[0]]
            stay = tuple((a, n) for a, n in mono[1] if not occurs(old, a))
            factors = [self.power(self._atom_moved(a, old, new), n) for a, n in mono[1] if (a, n) not in stay]
            parts.append(scaled(self.times({((), stay): Fraction(1)}, *factors, *guards), c))
        return plus(*parts)

    def _atom_moved(self, one: tuple[Any, ...], old: Any, new: Any) -> Poly:
        if not occurs(old, one):
            return atom(one)
        match one[0]:
            case "apply":
                return self.apply(one[1], [self._argument_moved(a, old, new) for a in one[2]])
            case "one over":
                return self.power(self.moved(dict(one[1]), old, new), -1)
            case "sum":
                over, body = self.opened(one)
                return self.sum(tuple(over), self.moved(body, old, new))
        over, (guards, body) = self.opened(one)
        return self.max(over, ordered(guards, {old: new}), self.moved(body, old, new))

    def _argument_moved(self, arg: tuple[Any, ...], old: Any, new: Any) -> Any:
        match arg[0]:
            case "term":
                return self.moved(dict(arg[1]), old, new)
            case "index":
                return ("index", swapped(arg[1], {old: new}))
        over, body = self.opened(arg)
        return self.function(over, frozen(self.moved(body, old, new)))


def occurs(old: Any, x: Any) -> bool:
    """Whether an index stands in a term."""
    return old in free(x) if old[0] == "var" else repr(old) in repr(x)
