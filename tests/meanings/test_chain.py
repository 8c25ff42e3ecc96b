"""Blocks put together: the chain rule, what is passed on, and what is refused."""

from __future__ import annotations

import pytest
from gpt_blocks import LAYER, block, differs

from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.chain import chained
from placeproof.cost.blocks.layer import Layer, layer
from placeproof.cost.blocks.recompute import between
from placeproof.cost.blocks.tensors import kept
from placeproof.programs import read, render
from placeproof.semantics.judge.verdict import judge_tensors

PLANS = ("", "tp", "sp")


def test_a_chain_of_one_block_is_the_block() -> None:
    for name in set(LAYER):
        program, origins = chained([block(name)])
        assert [origins[k.name].name for k in kept(program)] == [k.name for k in kept(block(name))]
        assert origins["x"].block == "input"
        assert name == "attention_gpt" or judge_tensors(program).word == "proved"


@pytest.mark.parametrize("plan", PLANS)
def test_a_chain_is_text_and_proved(plan: str) -> None:
    program = layer([block(n, plan) for n in ("layer_norm", "mlp_gpt")]).program
    assert read(render(program), source=program.name) == program
    assert judge_tensors(program).word == "proved"


def test_a_whole_layer_agrees_with_derivatives_in_fractions() -> None:
    """A proof of a whole layer takes minutes; a run in exact numbers takes a moment."""
    core = between(block("attention_gpt"), ("q", "k", "v"), ("o",))
    whole = layer([block(n) for n in LAYER])
    again = whole.recomputed(*(f"attention_gpt.{n}" for n in core), "layer_norm.n", rerun=["attention_gpt.o"]).program
    assert not differs(again, 1)
    shown = render(again)
    for old, new in (("dy_2 = dy + back_3", "dy_2 = back_3"), ("pd_2_again = p_2_again * drop_2", "pd_2_again = p_2_again")):
        assert shown.count(old) == 1
        assert differs(read(shown.replace(old, new)), 1)


PLAIN = "tensor(x, tokens, hidden)\ntensor(dy, tokens, hidden)\ny = x * x\nreturns(y)\nreturns(2 * dy * x, gradient_of=y, by=x, at=dy)\n"
FORWARD = "tensor(x, tokens, hidden)\ny = x * x\nreturns(y)\n"
SPLIT = "mesh(tp)\n" + PLAIN.replace("hidden)", "hidden, tp=tokens)")
#: Backward begins with a line that a chain leaves out: the gradient by the stream.
BESIDE = """\
tensor(x, tokens, hidden)
tensor(n, tokens, hidden)
tensor(w, hidden)
tensor(by_x, hidden)
tensor(dy, tokens, hidden)
a = n * w * by_x
y = x + a * a
returns(y)
returns(dy, gradient_of=y, by=x, at=dy)
b = n * w * by_x
g = 2 * dy * b * by_x
returns(g * w, gradient_of=y, by=n, at=dy)
returns(total(g * n, over=tokens), gradient_of=y, by=w, at=dy)
"""


def of_texts(*texts: str) -> Layer:
    return layer([read(text, source=f"part{i}.step") for i, text in enumerate(texts)])


def test_backward_of_a_chain_begins_with_that_of_its_last_block() -> None:
    for texts in ((BESIDE,), (PLAIN, BESIDE)):
        found = of_texts(*texts)
        assert [k.name for k in found.kept() if k.block != "input" or k.name == "n"] == ["n"]
        assert [k.name for k in found.kept() if k.block == "input" and k.name == "x"] == ["x"] * (len(texts) - 1)
        assert judge_tensors(found.program).word == "proved"
    assert "dy_0 = dy\n" in render(of_texts(BESIDE).program)
    assert "dy_0" not in render(of_texts(PLAIN).program)


def test_what_is_read_twice_has_the_sum_of_both_gradients() -> None:
    found = of_texts(PLAIN, PLAIN, BESIDE, BESIDE)
    shown = render(found.program)
    assert shown.count("returns(by_n_4 + by_n_3, at=dy, by=n, gradient_of=y_4)") == 1
    assert judge_tensors(found.program).word == "proved"
    assert judge_tensors(read(shown.replace("by_n_4 + by_n_3", "by_n_3"))).word == "refuted"
    assert found.named(["part3.by_x"]) == ("by_x_4",)
    assert found.named(["part0.by_x"]) == ("by_x_1",)


def test_of_blocks_without_a_backward_nothing_is_kept() -> None:
    """As of those before which nothing is trained; what the block behind them reads is kept for its own gradient."""
    weighed = "tensor(w, hidden)\n" + PLAIN + "returns(total(dy * w, over=tokens), gradient_of=y, by=w, at=dy)\n"
    assert [(s.block, s.name) for s in of_texts(FORWARD, FORWARD, weighed).kept()] == [("part1", "y")]
    assert [(s.block, s.name) for s in of_texts(PLAIN, PLAIN, weighed).kept()] == [("input", "x"), ("part0", "y"), ("part1", "y")]
    alone = of_texts(FORWARD, FORWARD)
    assert not alone.trained
    assert alone.kept() == ()


def refused(*texts: str) -> str:
    with pytest.raises(InputError) as error:
        of_texts(*texts)
    return str(error.value)


def test_what_cannot_be_chained_is_refused() -> None:
    assert "at least one block" in refused()
    assert "overwrites `x`" in refused(PLAIN.replace("y = x * x", "x = x * x\ny = x"))
    assert "rounds of a ring" in refused("mesh(tp)\n" + PLAIN.replace("y = x", "for r in rounds[tp]:\n    x = shift(x, tp)\ny = x"))
    assert "gives 2 results" in refused(PLAIN + "returns(y)\n")
    assert "gives 0 results" in refused(PLAIN.replace("returns(y)\n", ""))
    assert "neither `y` nor `n`" in refused(PLAIN.replace("y = ", "z = ").replace("(y)", "(z)").replace("of=y", "of=z"))
    assert "is one of `y`" in refused(PLAIN + "z = x\nreturns(dy, gradient_of=z, by=x, at=dy)\n")
    another = "tensor(dz, tokens, hidden)\n" + PLAIN + "returns(2 * dz * x, gradient_of=y, by=x, at=dz)\n"
    assert "does not begin with one tensor" in refused(another)
    assert "no block of the chain reads what block 1" in refused(PLAIN, FORWARD)
    assert "no block of the chain reads" in refused(PLAIN.replace("y = ", "n = ").replace("(y)", "(n)").replace("of=y", "of=n"), PLAIN)
    assert "`x` of block 2, `part1` is given with `tokens` split over `tp`, `hidden` and taken with" in refused(SPLIT, PLAIN)
    assert "and taken with `tokens` split over `tp`, `hidden`" in refused(PLAIN, SPLIT)
    assert "not that of the blocks before" in refused(SPLIT, SPLIT.replace("mesh(tp)", "mesh(tp=2)"))
    mixed = "mesh(tp)\n" + PLAIN.replace("dy, tokens, hidden", "dy, tokens, hidden, tp=tokens")
    mixed = mixed.replace("2 * dy * x", "2 * all_gather(dy, tp) * x").replace("returns(y)", "y = part(y, tp, dim=tokens)\nreturns(y)")
    assert "the gradient by `x` of block 2, `part1` is given with `tokens`, `hidden`" in refused(
        mixed, SPLIT.replace("returns(2 * dy * x", "returns(all_gather(2 * dy * x, tp)")
    )
