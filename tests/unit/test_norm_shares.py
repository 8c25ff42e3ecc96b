"""Norms of copies of which each rank adds a share of the squares: what a norm is of is read off terms, with the shares."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placeproof.measure.record.chain import UnreadableError, read_chain
from placeproof.measure.record.nodes import Node, Nodes

SQUARE = Fraction(2)


def _norm(nodes: Nodes, index: int = 0) -> tuple[int, int]:
    """A gradient of three elements, and its norm."""
    gradient = nodes.add(Node(kind="pass", index=index, turn=0))
    return gradient, nodes.norm({gradient: 3}, 1)


def _times(nodes: Nodes, number: int, factor: float, text: str = "times") -> int:
    return nodes.add(Node(kind="clip", of=(number,), factor=Fraction(factor), text=text))


@given(st.lists(st.integers(1, 64), min_size=1, max_size=3))
def test_the_square_of_a_norm_by_roots_is_a_share(parts: list[int]) -> None:
    """By the root of each number; of all one there is none."""
    nodes = Nodes()
    _, norm = _norm(nodes)
    number, count = norm, 1
    for part in parts:
        number, count = _times(nodes, number, 1 / part**0.5), count * part
    square = nodes[nodes.power(number, SQUARE, 1)]
    assert (square.kind == "share") == (count > 1)
    assert square.kind != "share" or (square.count, square.of) == (count, nodes[norm].of)


@pytest.mark.parametrize("factor", [0.5**0.5 * (1 + 1e-6), 1.5, 2.0, 0.7])
def test_another_number_makes_no_share(factor: float) -> None:
    nodes = Nodes()
    assert nodes[nodes.power(_times(nodes, _norm(nodes)[1], factor), SQUARE, 1)].kind == "unknown"


def test_what_is_no_product_makes_no_share() -> None:
    """As a norm with something added to it, or the inverse of one, times a number."""
    nodes = Nodes()
    moved = _times(nodes, _norm(nodes)[1], 0.5**0.5, text="")
    for number in (moved, _times(nodes, moved, 0.5**0.5)):
        assert nodes[nodes.power(number, SQUARE, 1)].kind == "unknown"


def _clipped(nodes: Nodes, share: float, axes: tuple[str, ...]) -> int:
    """A gradient that is clipped by a norm of which ranks add squares, each times a share."""
    gradient, norm = _norm(nodes)
    total = nodes.power(_times(nodes, norm, share**0.5), SQUARE, 1)
    total = nodes.add(Node(kind="all_reduce", op="sum", of=(total,), axes=axes, turn=0))
    bound = nodes.add(Node(kind="clip", of=(nodes.power(total, Fraction(1, 2), 1),)))
    number = nodes.add(Node(kind="clipped", of=(gradient, bound)))
    nodes.clipped[number] = 3
    return number


def test_a_clipped_gradient_says_its_share() -> None:
    nodes = Nodes()
    clip = read_chain(nodes, _clipped(nodes, 1 / 2, ("dp", "tp")), lambda key: (key,)).clip
    assert clip is not None
    assert clip.over == ((0, ("dp", "tp")),)
    assert clip.shares == ((0, 2),)


def test_a_gradient_with_two_shares_is_not_read() -> None:
    nodes = Nodes()
    gradient, norm = _norm(nodes)
    other = nodes.norm({gradient: 2}, 1)
    half = nodes.power(_times(nodes, norm, 0.5**0.5), SQUARE, 1)
    both = nodes.power(nodes.sum_squares({half: 1, nodes.power(other, SQUARE, 1): 1}, 1), Fraction(1, 2), 1)
    number = nodes.add(Node(kind="clipped", of=(gradient, nodes.add(Node(kind="clip", of=(both,))))))
    with pytest.raises(UnreadableError, match="over other ranks"):
        read_chain(nodes, number, lambda key: (key,))
