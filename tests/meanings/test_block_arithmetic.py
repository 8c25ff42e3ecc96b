"""Arithmetic in programs over tensors: powers, quotients and named functions with their derivatives, each beside a wrong one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from placeproof.blocks import text
from placeproof.programs import Call, read
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.searched import Searched
from placeproof.semantics.tensors import RefutingBlockRun, search
from placeproof.semantics.tensors.arrays import Arrays
from placeproof.semantics.tensors.groups import Groups
from placeproof.semantics.tensors.numbers import Fractions
from placeproof.semantics.tensors.setup import FaultError
from placeproof.semantics.tensors.simulate import _cut

HEAD = "mesh(tp)\ntensor(x, tokens, hidden)\ntensor(b, hidden)\ntensor(dy, tokens, hidden)\n"
#: What is computed, its derivative at `dy`, by what, and a wrong derivative.
RIGHT = {
    "a square": ("x ** 2", "2 * dy * x", "x", "dy * x"),
    "a first power": ("x ** 1", "dy", "x", "dy * x"),
    "a cube": ("x ** 3", "3 * dy * x ** 2", "x", "3 * dy * x"),
    "no power": ("x ** 0 * b", "total(dy, over=tokens)", "b", "total(dy * x, over=tokens)"),
    "by what no power depends on": ("x ** 0 * b", "0 * dy", "x", "dy * b"),
    "a reciprocal as a power": ("elementwise(exp, x) ** -1", "-1 * dy * y", "x", "dy * y"),
    "the reciprocal of a square": ("elementwise(exp, x) ** -2", "-2 * dy * y", "x", "2 * dy * y"),
    "a quotient, by the dividend": ("x / elementwise(exp, b)", "dy / elementwise(exp, b)", "x", "dy * elementwise(exp, b)"),
    "a quotient, by the divisor": ("b / elementwise(exp, x)", "-1 * dy * y", "x", "-1 * dy"),
    "a reciprocal by name": ("elementwise(reciprocal, elementwise(exp, x))", "-1 * dy * y", "x", "-1 * dy * y * y"),
    "a square by name": ("elementwise(square, x)", "2 * dy * x", "x", "2 * dy"),
    "an exponential of a double": (
        "elementwise(exp, x + x)",
        "2 * dy * elementwise(exp, x) * elementwise(exp, x)",
        "x",
        "2 * dy * elementwise(exp, x)",
    ),
    "a multiple": ("scale(x, 3)", "3 * dy", "x", "dy"),
    "a difference": ("b - x", "-1 * dy", "x", "dy"),
    "a product": ("x * b", "total(dy * x, over=tokens)", "b", "total(dy, over=tokens)"),
}


def program(name: str, *, wrong: bool) -> str:
    value, right, by, other = RIGHT[name]
    return f"{HEAD}y = {value}\nreturns({other if wrong else right}, gradient_of=y, by={by}, at=dy)\n"


@pytest.mark.parametrize("name", RIGHT)
def test_a_derivative_is_proved_and_a_wrong_one_refuted(name: str) -> None:
    right, wrong = read(program(name, wrong=False)), read(program(name, wrong=True))
    assert judge_tensors(right).word == "proved"
    ran = search(right)
    assert isinstance(ran, Searched)
    assert ran.runs == 12
    assert judge_tensors(wrong).word == "refuted"
    assert isinstance(search(wrong), RefutingBlockRun)


REFUSED = {
    "y = x ** (1 / 2)": "a power needs a whole number as its exponent, line 5",
    "y = x / (tp - tp)": "division by zero, line 5",
    "y = scale(x, b)": "`scale` multiplies by a number, line 5",
    "y = contract(x, b, over=tokens)": "`contract` sums over a dimension of both operands, and `tokens` is not, line 5",
    "y = total(b, over=tokens)": "there is no dimension `tokens` to reduce, line 5",
    "y = reduce_scatter(x, tp)": "`reduce_scatter` needs `dim=`, a dimension of its operand, line 5",
    "y = part(x, tp, dim=ffn)": "`part` needs `dim=`, a dimension of its operand, line 5",
    "y = part(part(x, tp, dim=tokens), tp, dim=tokens)": "`tokens` is cut along `tp` already, line 5",
    "y = broadcast(x, tp, root=1)": "a root other than 0, line 5",
    "y = dropout(x, x)": "a key is a number, line 5",
    "y = parameters": "`parameters` is no tensor here, line 5",
    "y = x\nif rank(tp) == x:\n    y = b": "a condition compares a rank with a number, line 6",
    "y = x\nif rank(tp) == 0:\n    returns(x)": "`returns` under a condition, line 7",
    "y = x\nreturns(x, gradient_of=y, by=b, at=x)": "the gradient by `b` has the dimensions `hidden`, `tokens`, "
    "and `b` has the dimensions `hidden`, line 6",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_has_no_meaning_is_unknown_and_says_why(written: str) -> None:
    judged = judge_tensors(read(f"{HEAD}{written}\nreturns(y)\n"))
    assert judged.word == "unknown"
    assert judged.why.startswith(f"the proof cannot speak of this step: {REFUSED[written]};"), judged.why


def test_every_device_has_an_element_of_what_is_cut() -> None:
    """Dimensions that a tensor's declaration or a collective cuts have at least as many elements as there are devices."""
    norm = read(text("norm"))
    cut = _cut(norm, {"tp": 3})
    assert cut["tokens"] == 3
    assert cut["hidden"] == 1
    assert _cut(read(text("mlp")), {"tp": 3})["ffn"] == 3
    by_a_collective = read("mesh(tp)\ntensor(x, tokens, hidden)\ny = all_gather(part(x, tp, dim=tokens), tp)\nreturns(y)\n")
    assert _cut(by_a_collective, {"tp": 3}) == {"tokens": 3, "hidden": 1}


def test_arrays_of_one_group_may_hold_their_dimensions_in_another_order() -> None:
    arrays = Arrays(Fractions(), {"tp": 2}, 1)
    numbers = np.array([[Fraction(10 * i + j) for j in range(3)] for i in range(2)], dtype=object)
    one, other = arrays.whole(numbers, {"a": 2, "b": 3}, None), arrays.whole(numbers.T, {"b": 3, "a": 2}, None)
    everyone, first = np.array([True, True]), np.array([True, False])
    assert (arrays.ordered(other, one.dims) == one.data).all()
    nothing = arrays.binary("-", one, other, everyone)
    assert not nothing.data.any()
    assert (arrays.merged(first, one, other).data == one.data).all()
    short = arrays.whole(numbers[:, :2], {"a": 2, "b": 2}, None)
    with pytest.raises(FaultError):
        arrays.binary("+", short, other, first)
    with pytest.raises(FaultError):  # the devices of a group have parts of different lengths
        Groups(arrays)(Call(op="all_reduce", axes=("tp",)), arrays.part(one, "b", ("tp",)), everyone)


def test_a_sum_over_devices_that_hold_their_dimensions_in_another_order() -> None:
    """After a branch a device may hold the same tensor turned round; what it gets of a sum is turned round, too."""
    program = read(
        "mesh(tp)\ntensor(x, tokens, hidden)\ntensor(w, hidden, ffn, tp=ffn)\ntensor(v, ffn, hidden, tp=ffn)\n"
        "h = contract(x, w, over=hidden)\np = contract(v, h, over=ffn)\n"
        "if rank(tp) != 0:\n    p = x + p - x\n"
        "y = all_reduce(p, tp)\nreturns(y)\n"
    )
    found = search(program, most=3)
    assert isinstance(found, Searched), found
    assert found.runs
