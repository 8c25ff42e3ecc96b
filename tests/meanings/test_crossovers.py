"""What `compare` says in words holds in numbers: who costs less, and from where on."""

from __future__ import annotations

import itertools
import re
from functools import cache

import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

import placeproof
from placeproof.core.symbols import symbol
from placeproof.cost.closed import limit, tidy
from placeproof.cost.compare import Comparison, crossover
from placeproof.cost.values import read_numbers

NAMES = ("one", "two")
VALUES = {"P": 10**6, "b_theta": 2, "b_g": 3, "b_omega": 12, "A": 10**5, "U": 10**3, "b_a": 2, "N_shard": 4, "A_seq": 10, "m": 3}


@cache
def of_devices(expr: sympy.Expr) -> sympy.Expr:
    return expr.xreplace({symbol(name): sympy.Rational(value) for name, value in VALUES.items()})


def cost(expr: sympy.Expr, n: sympy.Rational) -> sympy.Rational:
    return sympy.Rational(of_devices(expr).xreplace({symbol("N"): sympy.sympify(n)}))


def holds(verdict: str, one: sympy.Expr, two: sympy.Expr) -> str:
    """Check a sentence at many numbers of devices; which kind of sentence it was."""
    by_name = dict(zip(NAMES, (one, two), strict=True))
    if verdict == "equal for all values":
        assert all(cost(one, n) == cost(two, n) for n in range(1, 40))
        return "equal"
    if found := re.fullmatch(r"`(\w+)` never costs more than `(\w+)`", verdict):
        assert all(cost(by_name[found[1]], n) <= cost(by_name[found[2]], n) for n in range(1, 200))
        return "never"
    if found := re.fullmatch(r"`(\w+)` costs less beyond N = 1", verdict):
        (other,) = set(NAMES) - {found[1]}
        assert all(cost(by_name[found[1]], n) < cost(by_name[other], n) for n in range(2, 200))
        return "beyond one"
    if found := re.fullmatch(r"beyond N = (\S+) `(\w+)` costs less", verdict):
        (other,) = set(NAMES) - {found[2]}
        root = sympy.nsimplify(cost(sympy.sympify(found[1], locals={n: symbol(n) for n in (*VALUES, "N")}), sympy.Integer(1)))
        for step in (sympy.Rational(1, 1000), 1, 50, 10**4):
            assert cost(by_name[found[2]], root + step) < cost(by_name[other], root + step)
        below = root - sympy.Rational(1, 1000)
        if below > 1:
            assert cost(by_name[found[2]], below) > cost(by_name[other], below)
        return "beyond"
    return "other"


@given(st.lists(st.integers(-6, 6), min_size=6, max_size=6))
def test_sentences_of_polynomials_hold(coefficients: list[int]) -> None:
    n = symbol("N")
    a, b, c, d, e, f = coefficients
    one, two = 100 + a * n + b + c / n, 100 + d * n + e + f / n
    found = crossover(one, two, NAMES)
    assert holds(found.verdict, one, two) in ("equal", "never", "beyond one", "beyond", "other")
    for root in found.at:
        assert abs((one - two).subs(n, root).evalf(30)) < 10**-20


EXAMPLES = [
    ("2*P", "2*P", "equal for all values"),
    ("P", "2*P", "`one` never costs more than `two`"),
    ("2*P", "P", "`two` never costs more than `one`"),
    ("P/N", "P", "`one` never costs more than `two`"),
    ("2*P*(N - 1)/N", "3*P*(N - 1)/N", "`one` never costs more than `two`"),
    ("P + 10*P/N", "2*P", "beyond N = 10 `one` costs less"),
    ("2*P", "P + 10*P/N", "beyond N = 10 `two` costs less"),
    ("Max(P, A)", "P/N", "not solved: a maximum or minimum is involved"),
    ("P", "A", "which one costs less depends on more than a degree"),
]


@pytest.mark.parametrize(("one", "two", "verdict"), EXAMPLES)
def test_sentences(one: str, two: str, verdict: str) -> None:
    names = {n: symbol(n) for n in (*VALUES, "N")}
    first, second = (sympy.sympify(text, locals=names) for text in (one, two))
    assert crossover(first, second, NAMES).verdict == verdict
    holds(verdict, first, second)


def test_sentences_of_strategies_hold() -> None:
    strategies = ("ddp", "zero1", "zero2", "zero3", "zero_offload")
    kinds = set()
    for first, second in itertools.permutations(strategies, 2):
        numbers = read_numbers([], None)
        compared = Comparison((placeproof.derive(first), placeproof.derive(second)), {})
        assert numbers.precision
        ((_, pairs),) = compared.pairs()
        for pair in pairs:
            verdict = pair.crossover.verdict.replace(f"`{first}`", "`one`").replace(f"`{second}`", "`two`")
            kinds.add(holds(verdict, pair.first, pair.second))
    assert {"equal", "never"} <= kinds


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-2, 3)), min_size=1, max_size=4))
def test_a_limit_is_what_large_numbers_approach(terms: list[tuple[int, int]]) -> None:
    n = symbol("N")
    expr = sum((c * n**k for c, k in terms), sympy.Integer(0))
    assume(all(sum(c for c, k in terms if k == power) >= 0 for power in range(1, 4)))
    far = limit(expr, "N")
    assert far == sympy.limit(expr, n, sympy.oo)
    greatest = limit(sympy.Max(expr, 5 + 1 / n), "N")
    assert greatest == sympy.Max(far, 5)
    assert limit(2 + sympy.Max(1, 1 / n), "N") == 3


@given(st.lists(st.integers(1, 6), min_size=4, max_size=4))
def test_a_tidy_formula_is_the_same_formula(numbers: list[int]) -> None:
    n, p, b = symbol("N"), symbol("P"), symbol("b_g")
    a, c, d, e = numbers
    expr = a * p * b / n + sympy.Max(c * p / n - d * p / n**2, e * p * b) + d * p * (n - 1) / n
    for one in (expr, expr * p, sympy.expand(expr)):
        for at in (1, 2, 7):
            assert cost(tidy(one), at) == cost(one, at)
