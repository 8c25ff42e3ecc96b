"""Fitting a few positive numbers: one after the other, each by a coarse search of its range and a golden section around the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import exp, log, sqrt

#: Values of a range that are tried first: more than one may be the best around it.
COARSE = 9
#: A value is looked for until its range is as narrow, as a share of it.
NARROW = 5e-4
#: Rounds, where there are several numbers; fewer if the last one brought less than a hundredth.
ROUNDS = 8
_GOLDEN = (sqrt(5) - 1) / 2


def fitted(
    loss: Callable[[Mapping[str, float]], float], start: Mapping[str, float], bounds: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """The values, within their bounds, at which a loss is the least that is found; never more than at the start.

    Deterministic. Each value is looked for on a logarithmic scale.
    """
    best, least = dict(start), loss(start)
    for _ in range(ROUNDS if len(start) > 1 else 1):
        before = least
        for name in start:
            found, its = _along(partial(_of_one, loss, best, name), *bounds[name])
            if its < least:
                best, least = {**best, name: found}, its
        if least > before * 0.99:
            break
    return best


def _of_one(loss: Callable[[Mapping[str, float]], float], others: Mapping[str, float], name: str, value: float) -> float:
    return loss({**others, name: value})


def _along(loss: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """The best value of a range, and its loss."""
    at = [exp(log(low) + (log(high) - log(low)) * i / (COARSE - 1)) for i in range(COARSE)]
    at[-1] = high  # exactly: nothing reaches more
    tried = [(loss(value), value) for value in at]
    place = min(range(COARSE), key=lambda i: tried[i][0])
    a, b = log(at[max(0, place - 1)]), log(at[min(COARSE - 1, place + 1)])
    c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    of_c, of_d = loss(exp(c)), loss(exp(d))
    while b - a > NARROW:
        if of_c < of_d:
            b, d, of_d = d, c, of_c
            c = b - _GOLDEN * (b - a)
            of_c = loss(exp(c))
        else:
            a, c, of_c = c, d, of_d
            d = a + _GOLDEN * (b - a)
            of_d = loss(exp(d))
    tried += [(of_c, exp(c)), (of_d, exp(d))]
    its, value = min(tried)
    return value, its
