"""Values of expressions at points, against SymPy's own arithmetic: it substitutes and evaluates, term by term."""

from fractions import Fraction

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.prove.exact import Point, UndefinedError

NAMES = ("x", "y", "z")
NUMBERS = st.fractions(min_value=-9, max_value=9, max_denominator=4)


def combined(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    """Sums, products, quotients, powers and functions of smaller expressions."""
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: p[0] / p[1]).filter(lambda e: e.is_finite is not False),
        pairs.map(lambda p: sympy.Max(*p)),
        pairs.map(lambda p: sympy.Min(*p)),
        st.tuples(inner, st.integers(-2, 3)).map(lambda p: p[0] ** p[1]).filter(lambda e: e.is_finite is not False),
        inner.map(sympy.floor),
        inner.map(sympy.ceiling),
        inner.map(sympy.Abs),
        inner.map(sympy.sign),
    )


REAL = {name: sympy.Symbol(name) for name in NAMES}
EXPRESSIONS = st.recursive(
    st.one_of(st.sampled_from([*REAL.values()]), NUMBERS.map(lambda n: sympy.Rational(n.numerator, n.denominator))), combined, max_leaves=8
)


@settings(max_examples=150, deadline=None)
@given(expr=EXPRESSIONS, numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS))
def test_an_expression_is_what_sympy_makes_of_it(expr: sympy.Expr, numbers: tuple[Fraction, ...]) -> None:
    values = dict(zip(NAMES, numbers, strict=True))
    put = {REAL[name]: sympy.Rational(value.numerator, value.denominator) for name, value in values.items()}
    try:
        own = Point(values).value(expr)
    except UndefinedError:
        return  # SymPy may cancel what is not defined
    theirs = expr.subs(put)
    assert theirs.is_Rational
    assert own == Fraction(int(theirs.p), int(theirs.q))


@pytest.mark.parametrize("text", ["1 / x", "x**-2 + 1", "0 * y + y / x", "zoo", "oo"])
def test_what_divides_by_zero_is_undefined(text: str) -> None:
    with pytest.raises(UndefinedError):
        Point({"x": Fraction(0), "y": Fraction(1)}).value(sympy.sympify(text, locals=REAL))


def test_a_point_does_not_remember_another() -> None:
    expr = REAL["x"] ** 2 - REAL["x"] / 3
    assert [Point({"x": Fraction(n)}).value(expr) for n in (1, 2, 3)] == [Fraction(2, 3), Fraction(10, 3), 8]
