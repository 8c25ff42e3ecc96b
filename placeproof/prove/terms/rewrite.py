"""Replacing one index term by another, wherever it stands in a term."""

from __future__ import annotations

from fractions import Fraction

from placeproof.prove.terms.algebra import fresh, lam, mono_substituted, of_atom, opened_lam, power, product, same, sum_of, total
from placeproof.prove.terms.extrema import greatest, opened_greatest, ordered
from placeproof.prove.terms.nodes import App, Argument, Atom, Greatest, Index, Lam, Mono, Paren, Poly, Sum, Var, fn


def rewritten(poly: Poly, old: Index, new: Index) -> Poly:
    """A term with one index term replaced by another."""
    if old.key not in poly.key:
        return poly
    return sum_of((_mono_rewritten(m, old, new), c) for m, c in poly.terms)


def _mono_rewritten(mono: Mono, old: Index, new: Index) -> Poly:
    if old.key not in mono.key:
        return Poly({mono: Fraction(1)})
    result = product(*(same(_index_rewritten(a, old, new), _index_rewritten(b, old, new)) for a, b in mono.guards))
    for atom, exponent in mono.factors:
        result = product(result, power(_atom_rewritten(atom, old, new), exponent))
    return result


def _index_rewritten(index: Index, old: Index, new: Index) -> Index:
    if index.key == old.key:
        return new
    if isinstance(index, Var) or old.key not in index.key:
        return index
    return fn(index.name, (_index_rewritten(a, old, new) for a in index.args), index.sort)


def _atom_rewritten(atom: Atom, old: Index, new: Index) -> Poly:
    if old.key not in atom.key:
        return of_atom(atom)
    match atom:
        case App(name=name, args=args):
            return of_atom(App(name, tuple(_argument_rewritten(a, old, new) for a in args)))
        case Sum():
            variables = [fresh(b.sort) for b in atom.binders]
            names: dict[str, Index] = {b.name: v for b, v in zip(atom.binders, variables, strict=True)}
            return total(variables, rewritten(mono_substituted(atom.body, names), old, new))
        case Greatest():
            binders, guards, inside = opened_greatest(atom)
            pairs = ((_index_rewritten(a, old, new), _index_rewritten(b, old, new)) for a, b in guards)
            return greatest(binders, rewritten(inside, old, new), ordered(pairs))
        case Paren(inside=inside):
            return rewritten(inside, old, new)
    raise ValueError(f"no index term is replaced inside {atom}")


def _argument_rewritten(arg: Argument, old: Index, new: Index) -> Argument:
    if isinstance(arg, Poly):
        return rewritten(arg, old, new)
    if isinstance(arg, Lam):
        variables, body = opened_lam(arg, {})
        return lam(variables, rewritten(body, old, new))
    return _index_rewritten(arg, old, new)
