"""Functions of one element: those about which something is known, and all others.

The exponential is known to turn sums into products, and that its values are positive; so a softmax does not depend on what is
subtracted from its exponents. Functions of other names are arbitrary, each with an arbitrary derivative.
"""

from __future__ import annotations

from placeproof.prove.terms import ONE, Poly, Sum, Sym, app, constant, power, product
from placeproof.prove.terms.nodes import App, Atom, Mono, Paren


def applied(name: str, x: Poly) -> Poly:
    """The function's value at a term without guards."""
    if name == "exp":
        return _exponential(x)
    if name == "square":
        return product(x, x)
    return app(f"f.{name}", x)


def derived(name: str, x: Poly) -> Poly:
    """The function's derivative at a term without guards."""
    if name == "exp":
        return _exponential(x)
    if name == "square":
        return product(constant(2), x)
    return app(f"slope.{name}", x)


def _exponential(x: Poly) -> Poly:
    """One factor for each monomial, to the power that its numerator says."""
    result = ONE
    for mono, coefficient in x.terms:
        unit = Poly({mono: coefficient / coefficient.numerator})
        result = product(result, power(app("f.exp", unit), coefficient.numerator))
    return result


def positive(x: Poly) -> bool:
    """Whether a term is positive whatever its atoms mean: sums and products of exponentials, sizes and positive numbers."""
    return bool(x.terms) and all(c > 0 and _positive_mono(m) for m, c in x.terms)


def _positive_mono(mono: Mono) -> bool:
    return not mono.guards and all(_positive_atom(a) for a, _ in mono.factors)


def _positive_atom(atom: Atom) -> bool:
    match atom:
        case App(name="f.exp"):
            return True
        case Sym(name=name):
            return name == "N" or name.startswith(("N_", "size."))
        case Sum(body=body):
            return _positive_mono(body)
        case Paren(inside=inside):
            return positive(inside)
    return False
