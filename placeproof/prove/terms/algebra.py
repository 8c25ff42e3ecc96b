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
from typing import TYPE_CHECKING

from placeproof.prove.terms import remembered
from placeproof.prove.terms.addition import ONE, ZERO, of_atom, same, scaled, size, sum_of
from placeproof.prove.terms.nodes import App, Argument, Atom, Greatest, Guard, Index, Lam, Mono, Node, Paren, Poly, Sum, Sym, Var, fn, point
from placeproof.prove.terms.order import placed

if TYPE_CHECKING:
    from placeproof.prove.terms.recording import Record

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
    variables = [Var(f"~{next(remembered.numbers)}.{b.sort.name}", b.sort) for b in binders]
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


def _noted(rule: str, binders: Sequence[Var], mono: Mono, result: Poly, at: Callable[[Record], object]) -> Poly:
    """The result of a rule, which a record is told."""
    if (record := remembered.record) is not None:
        record.step(rule, binders, mono, at(record), result)
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
    if remembered.record is not None:
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
        yield tuple(sorted(names)), {b.name: n for b, n in zip(order, names, strict=True) if b.name != n.name}


#: How many orders are tried.
_MOST_ORDERS = 24


def _orders(binders: Sequence[Var], parts: Iterable[Poly]) -> Iterable[tuple[Var, ...]]:
    """Every order of the binders that matters: permutations within each sort; of many only one, by where they stand in the parts."""
    groups: dict[str, list[Var]] = {}
    for binder in sorted(binders):
        groups.setdefault(binder.sort.name, []).append(binder)
    if math.prod(math.factorial(len(g)) for g in groups.values()) > _MOST_ORDERS:
        yield placed(binders, tuple(parts), substitute)
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


def _atom_substituted(atom: Atom, meant: Mapping[str, Index]) -> Poly:
    if any(map(_is_value, meant)):  # these are asked once
        return _with_replaced(atom, meant)
    used = {name: new for name, new in meant.items() if name in atom.free}
    key = (atom.key, tuple((name, new.key) for name, new in used.items()))
    known = remembered.substituted.get(key)
    return remembered.remember(key, _with_replaced(atom, used)) if known is None else known


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
            return substituted_greatest(atom, meant)
        case Paren(inside=inside):
            return substitute(inside, meant)


# Greatest values: nested ones are one, and a guard on an index that it fixes is the value there.


def greatest(binders: Sequence[Var], body: Poly, guards: frozenset[Guard] = frozenset()) -> Poly:
    """The greatest value of a term over index variables, among the points where the guards hold.

    Rules: over no index it is the term; the greatest over x of the greatest over y is the greatest over both; an index
    that a guard fixes takes that value. Nothing is pulled out of a maximum.
    """
    body, guards = at_points(binders, body), _replaced(guards, {b.name: point(b.sort) for b in binders if b.sort.single})
    used = body.free.union(*(s.free for g in guards for s in g))
    chosen = [b for b in binders if b.name in used and not b.sort.single]
    nested = next((a for m, _ in body.terms for a, _ in m.factors if isinstance(a, Greatest)), None)
    if chosen and nested is not None and body == of_atom(nested):
        variables, inner, inside = opened_greatest(nested)
        return greatest([*chosen, *variables], inside, guards | inner)
    for guard in sorted(guards, key=lambda g: (g[0].key, g[1].key)):
        for variable, meant in (guard, guard[::-1]):
            if isinstance(variable, Var) and variable in chosen and variable.name not in meant.free:
                one: dict[str, Index] = {variable.name: meant}
                rest = [b for b in chosen if b != variable]
                return greatest(rest, substitute(body, one), _replaced(guards - {guard}, one))
    return _canonical_greatest(chosen, body, guards) if chosen or guards else body


def _replaced(guards: frozenset[Guard], meant: Mapping[str, Index]) -> frozenset[Guard]:
    return ordered((substitute_index(a, meant), substitute_index(b, meant)) for a, b in guards)


def ordered(pairs: Iterable[tuple[Index, Index]]) -> frozenset[Guard]:
    """Guards in the order of their sides that normal forms have, without those that always hold."""
    return frozenset((a, b) if a.key > b.key else (b, a) for a, b in pairs if a.key != b.key)


def opened_greatest(atom: Greatest) -> tuple[list[Var], frozenset[Guard], Poly]:
    """A maximum's variables under new names, with its guards and its body in them."""
    variables, names = fresh(atom.binders)
    return variables, _replaced(atom.guards, names), substitute(atom.body, names)


def _canonical_greatest(binders: Sequence[Var], body: Poly, guards: frozenset[Guard]) -> Poly:
    parts = itertools.chain((Poly({m: c}) for m, c in body.terms), (same(*g) for g in guards))
    named = renamings(binders, parts, max([body.height, *(s.height for g in guards for s in g)]))
    return of_atom(min(Greatest(names, _replaced(guards, meant), substitute(body, meant)) for names, meant in named))


def substituted_greatest(atom: Greatest, meant: Mapping[str, Index]) -> Poly:
    """A maximum with free variables replaced."""
    variables, guards, inside = opened_greatest(atom)
    return greatest(variables, substitute(inside, meant), _replaced(guards, meant))
