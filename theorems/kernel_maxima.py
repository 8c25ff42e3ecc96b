"""The rules for maxima that the prover trusts.

A sort with n points is the numbers 0 to n - 1, and a term over it is an arbitrary function of them. A maximum needs a point: sorts have
one or more. ``placeproof/prove/terms/algebra.py`` uses the rules without asking a solver.
"""

from __future__ import annotations

from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    Proved,
    Real,
    Refuted,
    absolute,
    by_induction,
    data,
    indicator,
    maximum,
    recursive,
    theorem,
)

f = data("f")
g = data("g")


@recursive(on="n", start=1)
def top(n):
    return f(0), maximum(top(n - 1), f(n - 1))


@recursive(on="m", start=1)
def top_from(a, m):
    return f(a), maximum(top_from(a, m - 1), f(a + m - 1))


@recursive(on="n", start=1)
def top_of_rows(n, m):
    return top_from(0, m), maximum(top_of_rows(n - 1, m), top_from((n - 1) * m, m))


@recursive(on="n", start=1, reals=("k",))
def top_of_copies(n, k):
    return k, maximum(top_of_copies(n - 1, k), k)


@recursive(on="n", start=1, reals=("k",))
def top_of_multiples(n, k):
    return k * f(0), maximum(top_of_multiples(n - 1, k), k * f(n - 1))


@recursive(on="n", start=1)
def top_of_g(n):
    return g(0), maximum(top_of_g(n - 1), g(n - 1))


@recursive(on="n", start=1)
def top_of_both(n):
    return f(0) + g(0), maximum(top_of_both(n - 1), f(n - 1) + g(n - 1))


@recursive(on="n", reals=("low",))
def top_at(n, t, low):
    return low, maximum(top_at(n - 1, t, low), low + indicator(n - 1, t) * (f(n - 1) - low))


@recursive(on="n")
def top_begun_at_zero(n):
    return 0, maximum(top_begun_at_zero(n - 1), f(n - 1))


@recursive(on="n", start=1)
def top_absolute(n):
    return absolute(f(0)), maximum(top_absolute(n - 1), absolute(f(n - 1)))


@recursive(on="n")
def top_absolute_begun_at_zero(n):
    return 0, maximum(top_absolute_begun_at_zero(n - 1), absolute(f(n - 1)))


@theorem(expect=Proved(), cite="baccelli1992synchronization")
def maximum_of_constant_is_it(n: Degree, k: Real):
    """The greatest of what does not depend on the point is that itself, however many points there are."""
    return by_induction(top_of_copies(n, k) == k, on=n, start=1)


maximum_of_constant_is_it.control(
    "it counts the points, as a sum does", lambda n, k: top_of_copies(n, k) == n * k, refuted_at={"n": 2, "k": 1}
)


@theorem(expect=Proved(), cite="baccelli1992synchronization")
def maximum_continues_with_later_points(a: Integer, n: Degree, m: Degree):
    """The greatest of n + m values is the greater of the greatest of the first n and the greatest of the last m."""
    goal = top_from(a, n + m) == maximum(top_from(a, n), top_from(a + n, m))
    return by_induction(goal, on=m, start=1)


maximum_continues_with_later_points.control(
    "a point is left out",
    lambda a, n, m: top_from(a, n + m) == maximum(top_from(a, n), top_from(a + n + 1, m)),
    refuted_at={"n": 1, "m": 1},
)


@theorem(expect=Proved(), cite="baccelli1992synchronization")
def nested_maxima_are_one_maximum(n: Degree, m: Degree):
    """The greatest, over n rows, of the greatest of each row of m values is the greatest of all n m values."""
    lemmas = [maximum_continues_with_later_points.at(a=0, n=(n - 1) * m, m=m)]
    return by_induction(top_of_rows(n, m) == top_from(0, n * m), on=n, start=1, lemmas=lemmas)


nested_maxima_are_one_maximum.control("rows overlap", lambda n, m: top_of_rows(n, m) == top_from(0, n * m - 1), refuted_at={"n": 2, "m": 2})


@theorem(expect=Proved(), cite="baccelli1992synchronization")
def maximum_over_nothing_is_low_of_n_at_most_t(n: Natural, t: Integer, low: Real):
    """Among points of which none is t, the greatest value where x = t is that of an empty maximum."""
    return by_induction(top_at(n, t, low) == low, on=n, given=[n <= t])


maximum_over_nothing_is_low_of_n_at_most_t.control("t among them", lambda n, t, low: top_at(n, t, low) == low, refuted_at={"n": 2, "t": 1})


@theorem(expect=Proved(), cite="baccelli1992synchronization")
def maximum_at_one_point_is_the_value_there(t: Natural, more: Natural, low: Real):
    """The greatest f(x) among the points where x = t is f(t), if t is a point and an empty maximum is not above f(t).

    The prover's rule for an index that a condition fixes. It takes an empty maximum to be below everything.
    """
    lemmas = [maximum_over_nothing_is_low_of_n_at_most_t.at(n=t, t=t, low=low)]
    return by_induction(top_at(t + 1 + more, t, low) == f(t), on=more, given=[low <= f(t)], lemmas=lemmas)


maximum_at_one_point_is_the_value_there.control(
    "whatever an empty maximum is", lambda t, more, low: top_at(t + 1 + more, t, low) == f(t), refuted_at={"t": 1, "more": 1, "low": 20}
)


@theorem(
    expect=Refuted(witness={"n": 2}, because="0 is above values that are all negative; an empty maximum has to be below everything"),
    cite="micikevicius2022fp8",
)
def maximum_may_begin_at_zero(n: Degree):
    """A running maximum that begins at 0 is the maximum.

    For absolute values it is, as for those that set the scale of an FP8 tensor. For the logits of a softmax it is not, on a device
    that holds none of them.
    """
    return top_begun_at_zero(n) == top(n)


maximum_may_begin_at_zero.control(
    "of absolute values", lambda n: by_induction(top_absolute_begun_at_zero(n) == top_absolute(n), on=n, start=1), proved=True
)


@theorem(
    expect=Refuted(witness={"n": 2, "k": -1}, because="a negative factor turns the greatest value into the least"),
    cite="baccelli1992synchronization",
)
def factor_stands_before_maximum(n: Degree, k: Real):
    """A factor that does not depend on the point stands before a maximum, as before a sum.

    The prover pulls nothing out of a maximum.
    """
    return top_of_multiples(n, k) == k * top(n)


factor_stands_before_maximum.control(
    "a factor that is not negative",
    lambda n, k: by_induction(top_of_multiples(n, k) == k * top(n), on=n, start=1, given=[k >= 0]),
    proved=True,
)


@theorem(expect=Refuted(witness={"n": 2}, because="the two maxima may lie at different points"), cite="baccelli1992synchronization")
def maximum_of_sums_is_sum_of_maxima(n: Degree):
    """The greatest of f(x) + g(x) is the greatest f(x) plus the greatest g(x).

    Times are an example: if devices wait for one another after each of two phases, a step may take longer than if they wait once.
    """
    return top(n) + top_of_g(n) == top_of_both(n)


maximum_of_sums_is_sum_of_maxima.control(
    "it is not above it", lambda n: by_induction(top_of_both(n) <= top(n) + top_of_g(n), on=n, start=1), proved=True
)
