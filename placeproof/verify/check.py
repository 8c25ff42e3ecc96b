"""A certificate's steps and claims, each looked at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any

from .read import Reader
from .terms import ONE, Poly, RejectedError, Terms, atom, free, frozen, in_order, occurs, plus, scaled

SCHEMA = "placeproof.certificate/1"
_Over = tuple[Any, ...]


def _constant(terms: Terms, read: Reader, over: _Over, mono: Any, at: Any) -> Poly:
    """The sum of what does not depend on an index is as many times it as there are points."""
    idle = read.variables(at)
    if not idle or set(idle) & free(mono) or not set(idle) <= set(over):
        raise RejectedError("what is summed depends on the index")
    sizes = [terms.sorts[v[2]] for v in idle]
    counts = [{((), ()): Fraction(n)} if isinstance(n, int) else atom(("symbol", n)) for n in sizes]
    return terms.times(*counts, terms.sum(tuple(v for v in over if v not in idle), {mono: Fraction(1)}))


def _homogeneity(terms: Terms, read: Reader, over: _Over, mono: Any, at: Any) -> Poly:
    """A factor that does not depend on the indices stands before the sum."""
    outside, inside = map(read.term, at)
    if set(over) & free(frozen(outside)) or outside == ONE or terms.times(outside, inside) != {mono: Fraction(1)}:
        raise RejectedError("no factor of the sum is independent of the indices")
    return terms.times(outside, terms.sum(over, inside))


def _exchange(terms: Terms, read: Reader, over: _Over, mono: Any, at: Any) -> Poly:
    """Factors that share no index part."""
    parts = [(read.variables(vs), read.term(t)) for vs, t in at]
    if len(parts) < 2 or sorted(v for vs, _ in parts for v in vs) != sorted(over):
        raise RejectedError("the indices are not parted")
    if any(set(over) & free(frozen(t)) - set(vs) for vs, t in parts) or terms.times(*(t for _, t in parts)) != {mono: Fraction(1)}:
        raise RejectedError("the factors share an index, or are others")
    return terms.times(*(terms.sum(vs, t) for vs, t in parts))


def _nested(terms: Terms, read: Reader, over: _Over, mono: Any, at: Any) -> Poly:
    """Exchange of a sum and a sum within: they are one over all indices."""
    guards, factors = terms.alone(read.term(at))
    if guards or len(factors) != 1 or factors[0][1] != 1 or factors[0][0][0] != "sum":
        raise RejectedError("there is no such sum within")
    inner, powers = factors[0][0], dict(mono[1])
    if powers.get(inner, 0) < 1:
        raise RejectedError("there is no such sum within")
    more, body = terms.opened(inner)
    powers[inner] -= 1
    rest: Poly = {(mono[0], tuple((a, n) for a, n in powers.items() if n)): Fraction(1)}
    return terms.sum((*over, *more), terms.times(rest, body))


def _one_point(terms: Terms, read: Reader, over: _Over, mono: Any, at: Any) -> Poly:
    """The sum over x of what is guarded by x = t is the value at t."""
    x, t = map(read.index, at)
    guard = in_order((x, t))
    if x not in over or x in free(t) or guard not in mono[0]:
        raise RejectedError("no guard fixes the index")
    rest = {(tuple(g for g in mono[0] if g != guard), mono[1]): Fraction(1)}
    return terms.sum(tuple(v for v in over if v != x), terms.moved(rest, x, t))


RULES: dict[str, Callable[[Terms, Reader, _Over, Any, Any], Poly]] = {
    "constant": _constant,
    "homogeneity": _homogeneity,
    "exchange": _exchange,
    "nested": _nested,
    "one point": _one_point,
}


def check_step(terms: Terms, read: Reader, number: int, step: dict[str, Any]) -> None:
    """One rule, applied once: what it gives is worked out, and has to be what the step says. From then on it is known."""
    over, mono = read.variables(step["over"]), terms.alone(read.term(step["of"]))
    found = RULES[step["rule"]](terms, read, over, mono, step["at"])
    if found != read.term(step["is"]):
        raise RejectedError(f"by {step['rule']} the sum is something else")
    terms.learn(number, over, mono, found)


def inverses(read: Reader, steps: list[dict[str, Any]]) -> set[int]:
    """The lines that are divided by in steps."""
    lines = {line for s in steps for line in (s["of"], s["is"], *_lines(s))}
    return {one for line in lines for one in read.inverted(line, set())}


def _lines(step: dict[str, Any]) -> list[int]:
    """The terms at which a rule is applied."""
    match step["rule"]:
        case "homogeneity":
            return list(step["at"])
        case "exchange":
            return [line for _, line in step["at"]]
        case "nested":
            return [step["at"]]
    return []


def check_claim(terms: Terms, read: Reader, claim: dict[str, Any], point: dict[str, str], inverses: set[int]) -> None:
    """Both sides are the same, where the hypotheses give indices their values; and what is divided by, here or in steps, is positive."""
    equal = [(read.index(g[2]), read.index(g[3])) for g in claim["given"] if g[0] == "equal"]
    orders = [(read.term(g[2]), str(g[3]), read.term(g[4])) for g in claim["given"] if g[0] == "order"]
    if len(equal) + len(orders) != len(claim["given"]):
        raise RejectedError("a hypothesis cannot be read")
    equal = _apart({(a, b) for a, b in equal if a != b})
    if not all(_RELATIONS[op](_value(terms, a, point), _value(terms, b, point)) for a, op, b in orders):
        raise RejectedError("the hypotheses do not hold at the point")

    def here(line: int) -> Poly:
        poly = read.term(line)
        for old, new in equal:
            poly = terms.moved(poly, old, new)
        return _congruent(terms, poly, equal)

    if here(claim["left"]) != here(claim["right"]):
        raise RejectedError("the two sides differ")
    lines = {claim["left"], claim["right"], *claim["divisors"], *(x for g in claim["given"] if g[0] == "order" for x in (g[2], g[4]))}
    inverted = sorted({one for line in lines for one in read.inverted(line, set())} | inverses)
    above = [a for a, op, b in orders if (op == ">" and not b) or (op in (">", ">=", "=") and set(b) == set(ONE) and b[((), ())] > 0)]
    known = {terms.schema(a) for a in above}
    for divisor in map(here, [*claim["divisors"], *inverted]):
        if not _positive(terms, divisor, known) and not _apart_from_zero(terms, divisor, above, known):
            raise RejectedError("something that is divided by is not seen to be positive")


def _apart(equal: set[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Hypotheses about indices in the order in which they are put in: those about variables first. Each is about a variable, or about a
    function at a point, and none says what that is by what another is about: then there are indices for which all hold."""
    fixed = [a for a, _ in equal]
    points = [c for a in fixed if a[0] != "var" for c in a[2]]
    if any(a[0] != "var" and (not a[2] or free(a)) for a in fixed) or len(set(fixed)) != len(fixed):
        raise RejectedError("hypotheses about indices may contradict each other")
    if any(occurs(a, b) for a in fixed for b in (*(new for _, new in equal), *points)):
        raise RejectedError("hypotheses about indices may contradict each other")
    return sorted(equal, key=lambda pair: (pair[0][0] != "var", pair))


def _congruent(terms: Terms, poly: Poly, equal: list[tuple[Any, Any]]) -> Poly:
    """A term with what hypotheses about a function say of its guards: where two points of it are one, its values there are."""
    for (a, left), (b, right) in combinations([pair for pair in equal if pair[0][0] != "var"], 2):
        if a[1] == b[1]:
            alike = {in_order(pair) for pair in zip(a[2], b[2], strict=True) if pair[0] != pair[1]}
            also = terms.same(left, right)
            poly = plus(*(scaled(terms.times({m: Fraction(1)}, also if alike <= {*m[0]} else ONE), c) for m, c in poly.items()))
    return poly


_RELATIONS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "=": lambda a, b: a == b,
}


def _positive(terms: Terms, poly: Poly, known: set[Any]) -> bool:
    """Whether a term is: by a hypothesis, whatever its variables are called; or as a sum of products of what is."""
    if terms.schema(poly) in known:
        return True
    return bool(poly) and all(c > 0 and not m[0] and all(_atom_positive(terms, a, known) for a, _ in m[1]) for m, c in poly.items())


def _apart_from_zero(terms: Terms, poly: Poly, above: list[Poly], known: set[Any]) -> bool:
    """Whether a term's square is positive by a hypothesis, or each of its factors is one of a product that is."""
    factors = {terms.schema(atom(a)) for product in above if len(product) == 1 for _, atoms in product for a, _ in atoms}
    single = len(poly) == 1 and all(not guards and all(terms.schema(atom(a)) in factors for a, _ in atoms) for guards, atoms in poly)
    return single or terms.schema(terms.times(poly, poly)) in known


def _atom_positive(terms: Terms, one: Any, known: set[Any]) -> bool:
    """Whether an atom is: an exponential, the sum of something positive, one over it, or what a hypothesis is about."""
    match one[0]:
        case "apply":
            return one[1] == "f.exp" or terms.schema(atom(one)) in known
        case "sum":
            return terms.schema(atom(one)) in known or _positive(terms, {one[2]: Fraction(1)}, known)
        case "one over":
            return _positive(terms, dict(one[1]), known)
    return terms.schema(atom(one)) in known


def _value(terms: Terms, poly: Poly, point: dict[str, str]) -> Fraction:
    """A term where symbols are what the point says, and every function is 1 everywhere."""
    values = []
    for (guards, factors), c in poly.items():
        if guards:
            raise RejectedError("a hypothesis speaks of guards")
        values.append(c * math.prod(_value_of(terms, a, point) ** n for a, n in factors))
    return sum(values, Fraction(0))


def _value_of(terms: Terms, one: Any, point: dict[str, str]) -> Fraction:
    match one[0]:
        case "symbol":
            return Fraction(point[one[1]])
        case "apply":
            return Fraction(1)
        case "sum":
            sizes = [terms.sorts[v[2]] for v in one[1]]
            count = math.prod(Fraction(point[n]) if isinstance(n, str) else Fraction(n) for n in sizes)
            return count * _value(terms, {one[2]: Fraction(1)}, point)
    raise RejectedError("a hypothesis speaks of what has no value at the point")


def left_open(document: dict[str, Any]) -> bool:
    """Whether something is not shown that matters: of a step what is about the states after it, for its other claims say where a wrong one
    goes wrong; of anything else all."""
    about = [c["condition"] == "step invariant" for c in (*document["claims"], *document["unshown"])]
    return any(c["condition"] == "step invariant" or not any(about) for c in document["unshown"])


def verify(document: dict[str, Any]) -> Counter[str]:
    """How often each rule is used by the claims. Raises RejectedError if anything in a certificate does not hold."""
    where = "the certificate"
    try:
        if document["schema"] != SCHEMA:
            raise RejectedError(f"it is not of the schema {SCHEMA}")
        if not all((type(n) is str and n and not n[0].isdigit()) or (type(n) is int and n >= 1) for n in document["sorts"].values()):
            raise RejectedError("a sort has at least one point")
        if not all(Fraction(n).denominator == 1 and Fraction(n) >= 1 for n in document["point"].values()):
            raise RejectedError("there is a whole number of points, and one at least")
        terms = Terms(document["sorts"])
        read = Reader(document["terms"], terms)
        for number, step in enumerate(document["steps"]):
            where = f"step {number}"
            check_step(terms, read, number, step)
        divided = inverses(read, document["steps"])
        for number, claim in enumerate(document["claims"]):
            where = f"claim {number}"
            check_claim(terms, read, claim, document["point"], divided)
    except RejectedError as rejected:
        raise RejectedError(f"{where}: {rejected}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError) as error:
        raise RejectedError(f"{where}: it cannot be read ({type(error).__name__}: {error})") from error
    return Counter(document["steps"][n]["rule"] for n in terms.used)
