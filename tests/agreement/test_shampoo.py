"""Shampoo is right where each matrix has one owner, and wrong on parts of matrices; what it keeps and computes is counted by blocks."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import pytest
import sympy
from manual_truth import at_the_witness, right
from matrix_steps import WRITTEN

from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.cost.model.derivation import derive_model
from placeproof.models import load
from placeproof.programs import Program, read, render
from placeproof.semantics.catalogue import read_not_equivalent
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy


def stepped(text: str) -> Program:
    return lower(parse_strategy(f"{text} * shampoo"))


@pytest.mark.parametrize("text", ["zero1", "zero1(reduce=all_reduce)", "fsdp * pp"])
def test_owners_of_matrices_train_and_owners_of_parts_do_not(text: str) -> None:
    program = stepped(text)
    assert dict(program.reference)["optimizer"] == "preconditioned"
    assert judge(resolve(program)).word == "proved"
    assert right(program) in (True, None)
    if text in ("zero1", "fsdp * pp"):
        parts = judge(resolve(read(re.sub(r", whole=(\w+|\"[^\"]*\")", "", render(program)), source="parts")))
        assert parts.word == "refuted"
        assert right(parts.program) is None or at_the_witness(parts)


@pytest.mark.parametrize(("norm", "word"), [(", whole=dp", "proved"), ("", "refuted"), (", update=elementwise", "proved")])
def test_parts_of_gains_are_no_vectors(norm: str, word: str) -> None:
    """Each device preconditions whole gains, not parts of them; who updates them element by element has another optimizer."""
    step = "parameters, optimizer = update(parameters, optimizer, g)"
    program = read(WRITTEN.format(options=", whole=dp", norm=norm, optimizer="preconditioned", step=step), source="written")
    assert judge(resolve(program), shortest=False).word == word
    assert right(program) == (word == "proved")


def test_no_group_that_is_trained_is_updated_otherwise() -> None:
    for text in ("zero1", "zero1 * lora", "zero1 * freeze", "fsdp * ep"):
        groups = [g for g in stepped(text).groups if not g.frozen]
        assert all(g.update is None and "dp" in g.whole for g in groups), text


def test_preconditioning_of_each_device_s_own_rows_is_another_step() -> None:
    """Under FSDP; it is right where whole gradients are gathered for a whole state."""
    assert judge(resolve(read_not_equivalent("shampoo_on_shards")), shortest=False).word == "refuted"
    assert judge(resolve(stepped("(S*, R, S, R, dp)"))).word == "proved"


@pytest.mark.parametrize("text", ["tp", "zero1 * tp * sp"])
def test_parts_over_the_hidden_axis_are_not_gathered(text: str) -> None:
    with pytest.raises(InputError, match="not lowered") as refused:
        stepped(text)
    assert refused.value.diagnostics[0].code == "PP122"


def test_owners_have_their_own_preconditioners_and_send_what_zero_sends() -> None:
    own, plain = (derive(lower(parse_strategy(text)), groups=True) for text in ("zero1 * shampoo", "zero1"))
    p, n, moments, wide, ratio = sympy.symbols("P N b_omega b_pre sigma")
    assert sympy.simplify(own.memory["optimizer"] - p * (moments + ratio * wide) / n) == 0
    assert sympy.simplify(own.sent - plain.sent) == 0


LLAMA = {"h": 8, "a": 4, "a_kv": 2, "f": 12, "V": 16, "L": 4, "s": 4}
GPT = {"h": 8, "a": 2, "V": 16, "L": 4, "s": 4, "n_pos": 6}
#: Tensors of a model, gains and biases among them; its heads' biases of queries, keys and values are one tensor each.
TENSORS: dict[str, list[tuple[int, ...]]] = {
    "llama3-8b": [(16, 8), (8,), (8, 16), *[(8,), (8, 8), (8, 4), (8, 4), (8, 8), (8,), (8, 12), (8, 12), (12, 8)] * 4],
    "gpt3-125m": [(16, 8), (6, 8), (8,), (8,), *[*[(8, 8), (8,)] * 4, (8, 32), (32,), (32, 8), (8,), *[(8,)] * 4] * 4],
}
NUMBERS = {n: Fraction(v) for n, v in {"b_omega": 5, "b_pre": 7, "n_root": 3, "T_root": 10, "b_theta": 2, "b_g": 2, "b": 1}.items()}


def counted(tensors: list[tuple[int, ...]], side: int) -> tuple[int, Fraction]:
    """Elements of preconditioners, and operations of a step, of blocks one by one: a vector has one side."""
    elements, operations = 0, Fraction(0)
    for tensor in tensors:
        for block in itertools.product(*([min(side, n - i) for i in range(0, n, side)] for n in tensor)):
            for n in block:
                elements += n * n
                operations += 2 * 2 * n * math.prod(block) + Fraction(3 * 2 * n**3, 10)
    return elements, operations


@pytest.mark.parametrize(("model", "sizes", "side"), [("llama3-8b", LLAMA, 1024), ("llama3-8b", LLAMA, 4), ("gpt3-125m", GPT, 2)])
@pytest.mark.parametrize(("text", "owners"), [("shampoo", 1), ("zero1(2) * shampoo", 2)])
def test_preconditioners_are_of_blocks_of_all_tensors(model: str, sizes: dict[str, int], side: int, text: str, owners: int) -> None:
    found = derive_model(load(model).resized(sizes), parse_strategy(text))
    (cost,), (elements, operations) = found.costs, counted(TENSORS[model], side)
    numbers = NUMBERS | {"d_pre": Fraction(side)}
    held = found.value(cost.states["optimizer"], numbers)
    every = sum(map(math.prod, TENSORS[model]))
    assert held == Fraction(5 * every + 7 * elements, owners)
    assert found.value(cost.iterated, numbers) == operations / owners
