"""Building real terms: ring arithmetic, guards, division, substitution, and the rules for sums.

The rules for sums are what the kernel trusts beside the ring laws. Each is a statement about finite sums:

- *linearity*: the sum of a polynomial is the sum of the sums of its monomials, with their coefficients;
- *homogeneity*: a factor that does not depend on a summed index stands before the sum;
- *exchange*: nested sums are one sum over all their indices, in any order; and a sum of products of factors that share no
  summed index is the product of the sums;
- *constant*: the sum of what does not depend on the index is as many times it as the sort has points;
- *one point*: the sum over x of what is guarded by x = t is the value at t. With *exchange* this is the partition of an index
  by its owners.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction

from placeproof.prove.terms import recording
from placeproof.prove.terms.nodes import App, Argument, Atom, Greatest, Index, Lam, Mono, Node, Paren, Poly, Sort, Sum, Sym, Var, fn, point

_EMPTY = Mono({}, frozenset())
ZERO = Poly({})
ONE = Poly({_EMPTY: Fraction(1)})
_fresh: Iterator[int] = itertools.count()


def constant(value: Fraction | int) -> Poly:
    """A rational number."""
    return Poly({_EMPTY: Fraction(value)})


def of_atom(atom: Atom, exponent: int = 1) -> Poly:
    """An atom (to a power) as a term."""
    return Poly({Mono({atom: exponent}, frozenset()): Fraction(1)})


def symbol(name: str) -> Poly:
    """A real constant."""
    return of_atom(Sym(name))


def size(sort: Sort) -> Poly:
    """The number of points of a sort."""
    return constant(sort.size) if isinstance(sort.size, int) else symbol(sort.size)


# Guards.


def _oriented(a: Index, b: Index) -> tuple[Index, Index]:
    """A variable first, so that the guard can replace it; of two alike, the greater first."""
    if isinstance(a, Var) is not isinstance(b, Var):
        return (a, b) if isinstance(a, Var) else (b, a)
    return (a, b) if a.key > b.key else (b, a)


def same(a: Index, b: Index) -> Poly:
    """1 where two index terms are equal, 0 elsewhere."""
    if a.key == b.key:
        return ONE
    return Poly({Mono({}, frozenset((_oriented(a, b),))): Fraction(1)})


# Products and powers.


def product(*polys: Poly) -> Poly:
    """The product of terms."""
    result = ONE
    for poly in polys:
        if not poly.terms:
            return ZERO
        pairs = itertools.product(result.terms, poly.terms)
        result = poly if result is ONE else sum_of((_times(a, b), x * y) for (a, x), (b, y) in pairs)
    return result


def _times(a: Mono, b: Mono) -> Poly:
    if not a.factors and not a.guards:
        return Poly({b: Fraction(1)})
    if not b.factors and not b.guards:
        return Poly({a: Fraction(1)})
    factors = dict(a.factors)
    for atom, exponent in b.factors:
        factors[atom] = factors.get(atom, 0) + exponent
    return _settled(Mono(factors, a.guards | b.guards))


def _settled(mono: Mono) -> Poly:
    """Where a guard says that two index terms are equal, the rest of the monomial speaks of the second."""
    for guard in sorted(mono.guards, key=lambda g: (g[0].key, g[1].key)):
        left, right = guard
        others = Mono(dict(mono.factors), mono.guards - {guard})
        if _apart(right, (left.key,)) and not _apart(others, (left.key,)):
            rest = mono_substituted(others, {left.key: right})
            if rest == Poly({others: Fraction(1)}):  # another function whose name ends so
                continue
            return sum_of((_settled(Mono(dict(m.factors), m.guards | {guard})), c) for m, c in rest.terms)
    return Poly({mono: Fraction(1)})


def sum_of(parts: Iterable[tuple[Poly, Fraction]]) -> Poly:
    """The sum of terms with rational factors."""
    terms: dict[Mono, Fraction] = {}
    for poly, factor in parts:
        for mono, coefficient in poly.terms:
            more = coefficient if factor == 1 else coefficient * factor
            terms[mono] = terms[mono] + more if mono in terms else more
    return Poly(terms)


def scaled(poly: Poly, factor: Fraction) -> Poly:
    """A rational multiple."""
    return Poly({m: c * factor for m, c in poly.terms})


def power(poly: Poly, exponent: int) -> Poly:
    """A whole power."""
    if exponent < 0:
        return power(inverse(poly), -exponent)
    return product(*([poly] * exponent))


def inverse(poly: Poly) -> Poly:
    """One over a term. That it is not zero is for the caller to show. Raises ZeroDivisionError for zero itself."""
    if not poly.terms:
        raise ZeroDivisionError
    single = poly.alone
    if single is not None and not single[0].guards:
        mono, coefficient = single
        return Poly({Mono({a: -n for a, n in mono.factors}, frozenset()): 1 / coefficient})
    leading = poly.terms[0][1]
    return scaled(of_atom(Paren(scaled(poly, 1 / leading)), -1), 1 / leading)


# Binders.


def fresh(binders: Sequence[Var]) -> tuple[list[Var], dict[str, Index]]:
    """For each variable one that occurs nowhere else, and what they take the place of."""
    variables = [Var(f"~{next(_fresh)}.{b.sort.name}", b.sort) for b in binders]
    return variables, {b.name: v for b, v in zip(binders, variables, strict=True)}


def at_points(binders: Iterable[Var], body: Poly) -> Poly:
    """A term at the only points of the sorts that have one."""
    return substitute(body, {b.name: point(b.sort) for b in binders if b.sort.single})


def _canonical_names(binders: Sequence[Var], height: int) -> list[Var]:
    """Names for bound variables that depend on the term alone: its height, the sort, the place among those of the sort."""
    places: dict[str, Iterator[int]] = defaultdict(itertools.count)
    return [Var(f"%{height}.{b.sort.name}.{next(places[b.sort.name])}", b.sort) for b in binders]


def lam(binders: Sequence[Var], body: Poly) -> Lam:
    """A function of index variables."""
    body = at_points(binders, body)
    names = _canonical_names(binders, body.height)
    return Lam(tuple(names), substitute(body, {b.name: n for b, n in zip(binders, names, strict=True)}))


def total(binders: Iterable[Var], body: Poly) -> Poly:
    """The sum of a term over index variables, by the rules for sums."""
    chosen = tuple(binders)
    body, free = at_points(chosen, body), tuple(b for b in chosen if not b.sort.single)
    return sum_of((_total_of(free, mono), c) for mono, c in body.terms) if free else body


def _total_of(binders: tuple[Var, ...], mono: Mono) -> Poly:
    names = {b.name for b in binders}
    inner = next((a for a, n in mono.factors if isinstance(a, Sum) and n > 0 and a.free & names), None)
    if inner is not None:  # its indices join those summed
        variables, opened = fresh(inner.binders)
        others = Mono({a: n - (a == inner) for a, n in mono.factors}, mono.guards)
        rest = product(Poly({others: Fraction(1)}), mono_substituted(inner.body, opened))
        return _noted("nested", binders, mono, total([*binders, *variables], rest), lambda r: r.literal(of_atom(inner)))
    for guard in sorted(mono.guards, key=lambda g: (g[0].key, g[1].key)):
        for variable, meant in (guard, guard[::-1]):
            if isinstance(variable, Var) and variable.name in names and variable.name not in meant.free:
                rest = mono_substituted(Mono(dict(mono.factors), mono.guards - {guard}), {variable.name: meant})
                found = total([b for b in binders if b.name != variable.name], rest)
                return _noted("one point", binders, mono, found, lambda r, x=variable, t=meant: (r.index(x), r.index(t)))  # type: ignore[misc]
    return _split(binders, mono)


def _noted(rule: str, binders: Sequence[Var], mono: Mono, result: Poly, at: Callable[[recording.Record], object]) -> Poly:
    """The result of a rule, which a record is told."""
    if recording.active is not None:
        recording.active.step(rule, binders, mono, at(recording.active), result)
    return result


def _split(binders: tuple[Var, ...], mono: Mono) -> Poly:
    """Factors before the sum, and one sum for each set of factors that share summed indices. Each rule is noted by itself."""
    names = {b.name for b in binders}
    before = _part(mono, names, speaks=False)
    merged = [([b for b in binders if b.name in own], _part(mono, own, speaks=True)) for own in _components(mono, names)]
    bound = [b for own, _ in merged for b in own]
    free = [b for b in binders if b not in bound]
    sums = product(*(_canonical_sum(own, body) for own, body in merged))
    result = product(Poly({before: Fraction(1)}), sums)
    counted = product(result, *(size(b.sort) for b in free))
    if recording.active is not None:
        inside = _part(mono, names, speaks=True)
        if len(merged) > 1:
            _noted("exchange", bound, inside, sums, lambda r: tuple((r.vars(own), r.mono(m)) for own, m in merged))
        if bound and before.key:
            _noted("homogeneity", bound, mono, result, lambda r: (r.mono(before), r.mono(inside)))
        if free:
            _noted("constant", binders, mono, counted, lambda r: r.vars(free))
    return counted


def _part(mono: Mono, names: Set[str], *, speaks: bool) -> Mono:
    """What of a monomial speaks of some of the variables, or of none."""
    factors = {a: n for a, n in mono.factors if a.free.isdisjoint(names) is not speaks}
    return Mono(factors, frozenset((a, b) for a, b in mono.guards if (a.free | b.free).isdisjoint(names) is not speaks))


def _components(mono: Mono, names: Set[str]) -> list[Set[str]]:
    """The variables that share no factor and no guard with others of them, each with those that it shares one with."""
    merged: list[Set[str]] = []
    for free in (*(a.free for a, _ in mono.factors), *(a.free | b.free for a, b in mono.guards)):
        if used := free & names:
            touching = [m for m in merged if m & used]
            merged = [*(m for m in merged if not m & used), used.union(*touching)]
    return merged


def _canonical_sum(binders: list[Var], body: Mono) -> Poly:
    """The sum with canonical names; of several indices of one sort, in the order whose text is least. A factor stands before it where what
    is divided by begins otherwise in the new names."""
    found: list[tuple[Sum, Fraction]] = []
    parts = itertools.chain((of_atom(*f) for f in body.factors), (same(*g) for g in body.guards))
    for names, meant in renamings(binders, parts, body.height):
        ((renamed, factor),) = mono_substituted(body, meant).terms
        found.append((Sum(names, renamed), factor))
    best, factor = min(found)
    return scaled(of_atom(best), factor)


def renamings(binders: Sequence[Var], parts: Iterable[Poly], height: int) -> Iterator[tuple[tuple[Var, ...], dict[str, Index]]]:
    """Canonical names for what is bound, in each order that matters, and what they take the place of. ``parts``: of the body."""
    for order in _orders(binders, parts):
        names = _canonical_names(order, height)
        yield tuple(sorted(names)), {b.name: n for b, n in zip(order, names, strict=True)}


#: How many orders are tried.
_MOST_ORDERS = 24


def _orders(binders: Sequence[Var], parts: Iterable[Poly]) -> Iterable[tuple[Var, ...]]:
    """Every order of the binders that matters: permutations within each sort; of many only one, by where they stand in the parts."""
    groups: dict[str, list[Var]] = {}
    for binder in sorted(binders):
        groups.setdefault(binder.sort.name, []).append(binder)
    if math.prod(math.factorial(len(g)) for g in groups.values()) > _MOST_ORDERS:
        from placeproof.prove.terms.order import placed

        yield placed(binders, tuple(parts))
        return
    for choice in itertools.product(*(itertools.permutations(g) for g in groups.values())):
        yield tuple(itertools.chain.from_iterable(choice))


# Substitution. What is replaced is named by its key: a variable's is its name, that of a function's value ends with a bracket.


def rewritten(poly: Poly, old: Index, new: Index) -> Poly:
    """A term with one index term replaced by another, wherever it stands.

    This is sound where both name one point: with a variable at each place of the old one the term is a function, whose value at that point
    is the same whichever of the two names it. What a sum, a maximum or a function binds gets fresh names before anything inside is
    replaced. So an index term that speaks of what is bound there is not the old one, though it had the same key; and nothing in the new
    one gets bound.
    """
    return substitute(poly, {old.key: new})


def _is_value(name: str) -> bool:
    """Whether a key is that of a function's value."""
    return name.endswith(")")


def _apart(node: Node, names: Collection[str]) -> bool:
    """Whether nothing that is replaced stands in a node."""
    return node.free.isdisjoint(names) and not [name for name in names if name.endswith(")") and name in node.key]


def substitute_index(index: Index, meant: Mapping[str, Index]) -> Index:
    """An index term with index terms replaced."""
    if (new := meant.get(index.key)) is not None:
        return new
    if isinstance(index, Var) or _apart(index, meant):
        return index
    return fn(index.name, (substitute_index(a, meant) for a in index.args), index.sort)


def substitute(poly: Poly, meant: Mapping[str, Index]) -> Poly:
    """A term with index variables replaced by index terms."""
    if _apart(poly, meant):
        return poly
    return sum_of((mono_substituted(m, meant), c) for m, c in poly.terms)


def mono_substituted(mono: Mono, meant: Mapping[str, Index]) -> Poly:
    """A monomial with index variables replaced."""
    if _apart(mono, meant):
        return Poly({mono: Fraction(1)})
    factors: dict[Atom, int] = {}
    coefficient, others = Fraction(1), [same(substitute_index(a, meant), substitute_index(b, meant)) for a, b in mono.guards]
    for atom, exponent in mono.factors:
        if _apart(atom, meant):
            factors[atom] = factors.get(atom, 0) + exponent
            continue
        replaced = _atom_substituted(atom, meant)
        replaced = replaced if exponent == 1 else power(replaced, exponent)
        if replaced.alone is None or replaced.alone[0].guards:
            others.append(replaced)
            continue
        alone, own = replaced.alone
        coefficient = coefficient if own == 1 else coefficient * own
        for one, times in alone.factors:
            factors[one] = factors.get(one, 0) + times
    return product(*others, Poly({Mono(factors, frozenset()): coefficient}))


def substitute_argument(arg: Argument, meant: Mapping[str, Index]) -> Argument:
    """An argument of a function with variables replaced."""
    if _apart(arg, meant):
        return arg
    if isinstance(arg, Lam):
        variables, names = fresh(arg.binders)
        return lam(variables, substitute(substitute(arg.body, names), meant))
    if isinstance(arg, Poly):
        return substitute(arg, meant)
    return substitute_index(arg, meant)


#: What substitutions into an atom gave, by the atom and what was replaced in it: blocks' programs ask the same again and again.
_SUBSTITUTED: dict[tuple[str, tuple[tuple[str, str], ...]], Poly] = {}
_MOST = 100_000


def forget(names: Iterator[int] | None = None) -> Iterator[int]:
    """Forget what substitutions gave, and number fresh variables from the beginning, or as ``names`` goes on; where they are now."""
    global _fresh
    _SUBSTITUTED.clear()
    before, _fresh = _fresh, itertools.count() if names is None else names
    return before


def _atom_substituted(atom: Atom, meant: Mapping[str, Index]) -> Poly:
    if any(map(_is_value, meant)):  # these are asked once
        return _with_replaced(atom, meant)
    used = {name: new for name, new in meant.items() if name in atom.free}
    key = (atom.key, tuple((name, new.key) for name, new in used.items()))
    if (known := _SUBSTITUTED.get(key)) is None:
        if len(_SUBSTITUTED) >= _MOST:
            _SUBSTITUTED.clear()
        known = _SUBSTITUTED[key] = _with_replaced(atom, used)
    return known


def _with_replaced(atom: Atom, meant: Mapping[str, Index]) -> Poly:
    match atom:
        case Sym():
            return of_atom(atom)
        case App(name=name, args=args):
            return of_atom(App(name, tuple(substitute_argument(a, meant) for a in args)))
        case Sum() if not any(_is_value(x) or b.name in new.free for x, new in meant.items() for b in atom.binders):
            return total(atom.binders, mono_substituted(atom.body, meant))  # nothing would be bound
        case Sum():
            variables, names = fresh(atom.binders)
            return total(variables, substitute(mono_substituted(atom.body, names), meant))
        case Greatest():
            from placeproof.prove.terms.extrema import substituted_greatest

            return substituted_greatest(atom, meant)
        case Paren(inside=inside):
            return substitute(inside, meant)
