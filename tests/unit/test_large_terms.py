"""High powers of long sums and products: a sum over many variables has one name for each, and what is too large to write out is unknown."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import pytest

from placeproof.programs import read
from placeproof.prove.terms import Poly, Sort, Var, algebra, app, greatest, inverse, limit, product, same, total
from placeproof.semantics.judge.verdict import Judged, judge

POINTS = Sort("a", "N_a")
Edges = list[tuple[int, int]]
PRISM: Edges = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]
UTILITIES: Edges = list(itertools.product((0, 1, 2), (3, 4, 5)))
WHEEL: Edges = [(n, n % 5 + 1) for n in range(1, 6)] + [(0, n) for n in range(1, 6)]
TREE: Edges = [(n, 3 * n + k) for n in range(4) for k in (1, 2, 3)]


def _sum(edges: Edges, names: list[int]) -> Poly:
    """A product for each edge, summed over the points at its ends."""
    at = [Var(f"x{n}", POINTS) for n in names]
    return total(at, product(*(app("e", at[a], at[b]) for a, b in edges)))


def _greatest(edges: Edges, names: list[int]) -> Poly:
    at = [Var(f"x{n}", POINTS) for n in names]
    return greatest(at, sum((app("e", at[a], at[b]) for a, b in edges), Poly({})))


def _quotients(edges: Edges, names: list[int]) -> Poly:
    """What is divided by is zero if two points are taken for one."""
    at = [Var(f"x{n}", POINTS) for n in names]
    return total(at, product(*(inverse(app("f", at[a]) - app("f", at[b])) for a, b in [*edges, *edges])))


def _guarded(edges: Edges, names: list[int]) -> Poly:
    at = [Var(f"x{n}", POINTS) for n in names]
    guards = frozenset(g for a, b in edges for mono, _ in same(at[a], at[b]).terms for g in mono.guards)
    return greatest(at, product(*(app("f", v) for v in at)), guards)


def _renamed(make: Callable[[Edges, list[int]], Poly], edges: Edges, seed: int) -> Poly:
    rng = random.Random(seed)
    count = 1 + max(max(e) for e in edges)
    return make(rng.sample(edges, len(edges)), rng.sample(range(count), count))


@pytest.mark.parametrize("make", [_sum, _greatest, _quotients, _guarded])
@pytest.mark.parametrize("edges", [PRISM, UTILITIES, WHEEL, TREE], ids=["prism", "utilities", "wheel", "tree"])
def test_a_sum_over_many_variables_is_the_same_whatever_they_are_called(make: Callable[[Edges, list[int]], Poly], edges: Edges) -> None:
    assert len({_renamed(make, edges, seed).key for seed in range(6)}) == 1


def test_sums_that_look_alike_from_each_variable_are_told_apart() -> None:
    """Both graphs have six points with three neighbours each."""
    both = [[*g, *((b, a) for a, b in g)] for g in (PRISM, UTILITIES)]
    assert _renamed(_sum, both[0], 1) != _renamed(_sum, both[1], 1)
    assert len({_renamed(_sum, g, seed).key for g in both for seed in range(5)}) == 2


@pytest.mark.parametrize("seed", range(12))
def test_the_order_that_is_found_tells_apart_what_all_orders_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    graphs: list[Edges] = []
    for _ in range(4):
        path = [(n, n + 1) for n in range(4)]  # so that the sum is not a product of sums
        graphs.append(path + [(rng.randrange(5), rng.randrange(5)) for _ in range(rng.randint(1, 4))])
    many = [(g, s) for g in graphs for s in range(3)]
    found = [_renamed(_sum, g, s).key for g, s in many]
    monkeypatch.setattr(algebra, "_MOST_ORDERS", 10**6)
    tried = [_renamed(_sum, g, s).key for g, s in many]
    for (a, b), (c, d) in itertools.combinations(zip(found, tried, strict=True), 2):
        assert (a == c) == (b == d)


HEAD = """\
mesh(tp)
tensor(x, tokens, hidden, tp=hidden)
tensor(w, hidden, ffn, tp=hidden)
tensor(a, ffn)
tensor(b, ffn)
"""
MATRIX, ALONE = "m = all_reduce(contract(x, w, over=hidden), tp)\n", "m = contract(x, w, over=hidden)\n"
#: Norms of products, and norms of these.
POWERS = {
    "a high power": "returns(total(m ** 12, over=ffn))\n",
    "a power of sums of powers": "s = total(m ** 4, over=ffn)\nreturns(total(s ** 4, over=tokens))\n",
    "a power of a sum": "returns(total((m * a + b) ** 4, over=ffn))\n",
    "a greatest power": "returns(largest(elementwise(gelu, m ** 6), over=ffn))\n",
    "a square of squares": "m = m * m\n" * 10 + "returns(m)\n",
}
#: What cannot be written out, and the line where it is not.
LARGE = {
    "a norm of norms": ("v = m * a + b + m + 1\ns = total(v ** 4, over=ffn)\nreturns(total(s ** 4, over=tokens))\n", 9),
    "a function of itself": (f"m = m + {' + '.join(f'elementwise(gelu, m + {n})' for n in '012')}\n" * 8 + "returns(m)\n", "1[0-9]"),
    "more sums within a sum than can be opened": ("m = m * m\n" * 9 + "returns(total(m, over=ffn))\n", 16),
    "a derivative": (
        "v = m * a + b + 1\nu = elementwise(gelu, v ** 8)\ny = total(elementwise(gelu, u ** 8), over=ffn)\n"
        "returns(total(y, over=tokens) * b, gradient_of=y, by=b, at=y)\n",
        10,
    ),
}


def judged(text: str) -> Judged:
    return judge(read(text))


@pytest.mark.parametrize("name", POWERS)
def test_high_powers_are_proved_and_refuted(name: str) -> None:
    assert judged(HEAD + MATRIX + POWERS[name]).word == "proved"
    assert judged(HEAD + ALONE + POWERS[name]).word == "refuted"


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_large_to_write_out_is_unknown_and_refuted_by_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "MOST", 30_000_000)
    text, line = LARGE[name]
    for begin, word in ((MATRIX, "unknown"), (ALONE, "refuted")):
        found = judged(HEAD + begin + text)
        assert found.word == ("refuted" if name == "a derivative" else word)  # that of the last one is wrong in any case
        assert re.search(rf"too large once it is written out as a sum of products, line {line}\b", found.why)
