"""What operations on a device's own tensors compute, and how adjoints pass through them.

The exponential is known to turn sums into products, and that its values are positive; so a softmax does not depend on what is
subtracted from its exponents. Functions of other names are arbitrary, each with an arbitrary derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from placeproof.core.diagnostics import Place
from placeproof.prove.terms import ONE, ZERO, Poly, Sum, Sym, app, by_cases, constant, greatest, inverse, power, product, same
from placeproof.prove.terms.nodes import App, Atom, Mono, Paren
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.tensors.values import Edge, Picks, Space, Value, dimension, fitting, over


class Local:
    """Operations without messages, on one mesh. ``divisors``: what was divided by; ``logs``: what a logarithm was taken of."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.divisors: list[Poly] = []
        self.logs: list[Poly] = []

    # Arithmetic, aligned by the names of dimensions.

    def binary(self, op: str, a: Value, b: Value, place: Place | None) -> Value:
        """``a op b``, where an operation is one of arithmetic or the greater of two numbers."""
        split, turns, fit = fitting((a, b), place)
        dims = a.dims | b.dims
        loose = frozenset(d for d in dims if all(d in v.loose for v in (a, b) if d in v.dims))
        body, slopes = self._arithmetic(op, a.body, b.body, place)

        def edge(side: Value, slope: Poly | None) -> Edge:
            if slope is None:
                return Edge(side, lambda adjoint: no_slope(adjoint, op, place))
            return Edge(side, lambda adjoint: over(dims - side.dims, product(adjoint, slope)))

        if not fit:  # of parts of different devices, which may be of different sizes, comes nothing that is known
            self.space.misfits.append(place)
            body = self.space.unknown(dims)
        return Value(body=body, dims=dims, split=split, loose=loose, edges=tuple(map(edge, (a, b), slopes)), turns=turns)

    def _arithmetic(self, op: str, x: Poly, y: Poly, place: Place | None) -> tuple[Poly, tuple[Poly | None, Poly | None]]:
        """The result, and its derivatives by both operands; None where they are not said."""
        match op:
            case "+":
                return x + y, (ONE, ONE)
            case "-":
                return x - y, (ONE, -ONE)
            case "*":
                return product(x, y), (y, x)
            case "/":
                over_y = self.inverse(y, place)
                return product(x, over_y), (over_y, -product(x, over_y, over_y))
            case "max":
                return by_cases(lambda *sides: app("larger", *sorted(sides)), x, y), (None, None)
        n = y.number
        if n is None or n.denominator != 1:
            raise NoMeaningError("a power needs a whole number as its exponent", place)
        base = x if n >= 0 else self.inverse(x, place)
        by_x = ZERO if n == 0 else product(constant(n), power(base, int(n) - 1) if n > 0 else power(base, 1 - int(n)))
        return power(base, abs(int(n))), (by_x, ZERO)

    def inverse(self, y: Poly, place: Place | None) -> Poly:
        """One over a term, which is noted as a divisor."""
        try:
            result = by_cases(inverse, y)
        except ZeroDivisionError:
            raise NoMeaningError("division by zero", place) from None
        if y.number is None:
            self.divisors.append(y)
        return result

    def scale(self, x: Value, factor: Value, place: Place | None) -> Value:
        """A tensor times a number."""
        if factor.dims:
            raise NoMeaningError("`scale` multiplies by a number", place)
        return self.binary("*", x, factor, place)

    # Sums over a dimension: over what the device holds of it.

    def contract(self, a: Value, b: Value, dim: str, place: Place | None) -> Value:
        """The sum of products over a dimension of both."""
        if dim not in a.dims or dim not in b.dims:
            raise NoMeaningError(f"`contract` sums over a dimension of both operands, and `{dim}` is not", place)
        return self.total(self.binary("*", a, b, place), dim, place)

    def total(self, x: Value, dim: str, place: Place | None) -> Value:
        """The sum over a dimension."""
        where = self._held(x, dim, place)
        body = _summed(dim, product(ONE, *where), x.body) if where else over((dim,), x.body)
        return self._without(x, dim, body, (Edge(x, lambda adjoint: adjoint),))

    def largest(self, x: Value, dim: str, place: Place | None) -> Value:
        """The greatest value over a dimension."""
        guards = frozenset(g for where in self._held(x, dim, place) for mono, _ in where.terms for g in mono.guards)
        body = greatest([dimension(dim)], x.body, guards)
        return self._without(x, dim, body, (Edge(x, lambda adjoint: no_slope(adjoint, "largest", place)),))

    def _held(self, x: Value, dim: str, place: Place | None) -> list[Poly]:
        if dim not in x.dims:
            raise NoMeaningError(f"there is no dimension `{dim}` to reduce", place)
        return [same(whose, owner) for whose, owner in self.space.holds(x, dim).values()]

    @staticmethod
    def _without(x: Value, dim: str, body: Poly, edges: tuple[Edge, ...]) -> Value:
        split = {d: axes for d, axes in x.split.items() if d != dim}
        turns = {key: at for key, at in x.turns.items() if key[0] != dim}
        return Value(body=body, dims=x.dims - {dim}, split=split, loose=x.loose - {dim}, edges=edges, turns=turns)

    # Functions of each element.

    def elementwise(self, name: str, x: Value, place: Place | None) -> Value:
        """A function of each element."""
        if name == "stop":
            return replace(x, edges=())
        if name == "reciprocal":
            return self.binary("/", Value(body=ONE), x, place)
        if name == "log" and not positive(x.body):
            self.logs.append(x.body)
        edge = Edge(x, lambda adjoint: product(adjoint, self._derivative(name, x.body, place)))
        return replace(x, body=by_cases(lambda p: applied(name, p), x.body), edges=(edge,))

    def slope(self, name: str, x: Value, place: Place | None) -> Value:
        """The derivative of a function at each element."""
        edge = Edge(x, lambda adjoint: no_slope(adjoint, "slope", place))
        return replace(x, body=self._derivative(name, x.body, place), edges=(edge,))

    def _derivative(self, name: str, x: Poly, place: Place | None) -> Poly:
        if name == "stop":
            return ZERO
        if name == "log":
            return self.inverse(x, place)
        if name == "reciprocal":
            over_x = self.inverse(x, place)
            return -product(over_x, over_x)
        return by_cases(lambda p: derived(name, p), x)

    def hot(self, picks: Picks) -> Value:
        """1 at the position that is picked."""
        body, along = same(dimension(picks.picks), picks.index), frozenset({picks.picks})
        return Value(body=body, dims=picks.dims | along, split=picks.split, loose=along)

    def dropout(self, x: Value, key: Value, place: Place | None) -> Value:
        """A mask that depends on the key and on the element's place in the whole tensor."""
        if key.dims:
            raise NoMeaningError("a key is a number", place)
        dims = sorted(x.dims)
        at = [dimension(d) for d in dims]
        mask = by_cases(lambda k: app(f"mask.{'.'.join(dims)}", k, *at), key.body)
        return self.binary("*", x, replace(x, body=mask, edges=()), place)


def _summed(dim: str, region: Poly, body: Poly) -> Poly:
    """The sum over what is held of a dimension. What does not depend on the position stays before the sum, as long as nothing says yet
    that the device is the one that owns the position."""
    at = dimension(dim).name
    result = ZERO
    for mono, coefficient in body.terms:
        outside = {a: n for a, n in mono.factors if at not in a.free}
        inside = Mono({a: n for a, n in mono.factors if a not in outside}, mono.guards)
        before = Poly({Mono(outside, frozenset()): coefficient})
        result = result + product(before, over((dim,), product(region, Poly({inside: Fraction(1)}))))
    return result


def no_slope(adjoint: Poly, op: str, place: Place | None) -> Poly:
    """The adjoint of an operand whose derivative is not said: none, where nothing asks for it. Raises NoMeaningError."""
    if not adjoint.terms:  # as in a softmax, which does not depend on what is subtracted
        return ZERO
    raise NoMeaningError(f"the derivative of `{op}`; `elementwise(stop, ...)` says that it counts as a constant", place)


# Functions of one element: those about which something is known, and all others.


def _exponential(x: Poly) -> Poly:
    """One factor for each monomial, to the power that its numerator says."""
    result = ONE
    for mono, coefficient in x.terms:
        unit = Poly({mono: coefficient / coefficient.numerator})
        result = product(result, power(app("f.exp", unit), coefficient.numerator))
    return result


#: The value and the derivative of functions that are known.
_KNOWN: dict[str, tuple[Callable[[Poly], Poly], Callable[[Poly], Poly]]] = {
    "exp": (_exponential, _exponential),
    "square": (lambda x: product(x, x), lambda x: product(constant(2), x)),
}


def applied(name: str, x: Poly) -> Poly:
    """The function's value at a term without guards."""
    return _KNOWN[name][0](x) if name in _KNOWN else app(f"f.{name}", x)


def derived(name: str, x: Poly) -> Poly:
    """The function's derivative at a term without guards."""
    return _KNOWN[name][1](x) if name in _KNOWN else app(f"slope.{name}", x)


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
