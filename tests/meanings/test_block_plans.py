"""Lowering statement by statement, and what of plans and programs is refused."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read, render
from placeproof.semantics.blocks import (
    Plan,
    PlanAxis,
    combined,
    context_parallel,
    data_parallel,
    expert_parallel,
    lower_block,
    tensor_parallel,
)
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.resolve import resolve

TP, SP, CP = tensor_parallel(), tensor_parallel(sequence=True), context_parallel()


def block(name: str) -> Program:
    path = files("placeproof") / "models" / "blocks" / f"{name}.step"
    return read(path.read_text(encoding="utf-8"), source=path.name)


# What is said of single statements.

HEAD = """\
tensor(x, batch, tokens, hidden)
tensor(a, batch, tokens, ffn)
tensor(w1, hidden, ffn)
tensor(w2, ffn, hidden)
tensor(same, keys, picks=tokens)
tensor(ids, batch, tokens, picks=vocab)
tensor(dy, batch, tokens, hidden)
"""


def body(text: str, plan: Plan) -> list[str]:
    """The lowered statements; what they compute is what one device does."""
    program = lower_block(read(HEAD + text, source="it"), plan)
    assert judge_tensors(resolve(program)).word == "proved"
    return render(program).splitlines()[len(HEAD.splitlines()) + 2 :]


def test_sums_that_are_added_up_are_reduced_together() -> None:
    lines = body("u = contract(a, w2, over=ffn)\nv = contract(a, w2, over=ffn)\ny = x + 2 * (u - v / 3)\nreturns(y)\n", TP)
    assert lines[2] == "y = x + all_reduce(2 * (u - v / 3), tp)"


def test_a_sum_is_reduced_where_it_is_made_for_the_first_that_needs_it_whole() -> None:
    """Even if that stands beside it in one expression."""
    lines = body(
        "u = contract(a, w2, over=ffn)\ny = u + contract(elementwise(gelu, contract(u, w1, over=hidden)), w2, over=ffn)\nreturns(y)\n", TP
    )
    assert lines[0] == "u = all_reduce(contract(a, w2, over=ffn), tp)"
    assert lines[1] == "y = u + all_reduce(contract(elementwise(gelu, contract(u, w1, over=hidden)), w2, over=ffn), tp)"


def test_a_sum_whose_summands_were_read_is_reduced_apart() -> None:
    lines = body("u = contract(a, w2, over=ffn)\nt = total(u, over=hidden)\nv = elementwise(gelu, u)\nreturns(t)\nreturns(v)\n", TP)
    assert lines == [
        "u = contract(a, w2, over=ffn)",
        "t = all_reduce(total(u, over=hidden), tp)",
        "u_sum = all_reduce(u, tp)",
        "v = elementwise(gelu, u_sum)",
        "returns(t)",
        "returns(v)",
    ]


def test_a_gathered_tensor_is_gathered_once_in_each_phase() -> None:
    text = (
        "u = contract(x, w1, over=hidden)\nreturns(u)\nv = contract(x * dy, w1, over=hidden) + contract(x, w1, over=hidden)\nreturns(v)\n"
    )
    text += "returns(dy, gradient_of=x, by=x, at=dy)\n"
    for regather, names in ((True, ["x_full", "x_full_2"]), (False, ["x_full"])):
        gathers = [line for line in body(text, replace(SP, regather=regather)) if "= all_gather(x, " in line]
        assert gathers == [f"{name} = all_gather(x, tp)" for name in names]


@pytest.mark.parametrize(("change", "again"), [("", True), ("v = v * x\n", False), ("free(v)\n", False)])
def test_what_is_made_of_gathered_tokens_is_made_again_while_they_can_be(change: str, again: bool) -> None:
    """Not when what it was made of is another by then, or freed."""
    text = "v = x * 3\nkk = contract(hot(same), v, over=tokens)\ny = contract(x, kk, over=hidden)\n" + change + "returns(y)\n"
    text += "returns(contract(contract(dy, kk, over=hidden), kk, over=keys))\nreturns(dy, gradient_of=x, by=x, at=dy)\n"
    assert ("kk_again = contract(hot(same), v_full_2, over=tokens)" in body(text, CP)) is again


def test_a_greatest_value_is_reduced_at_once() -> None:
    lines = body("m = largest(contract(x, w1, over=hidden), over=ffn)\nreturns(m)\n", TP)
    assert lines[0] == "m = all_reduce(largest(contract(x, w1, over=hidden), over=ffn), tp, op=max)"


def test_buffers_are_added_to_freed_and_named_anew() -> None:
    """A buffer with the name of an axis gets another one, and what was made of a buffer goes with it."""
    text = "tp = x * x\ntp += contract(contract(x, w1, over=hidden), w2, over=ffn)\nfree(tp)\nx_full = x * 3\nreturns(x_full)\n"
    lines = body(text, SP)
    assert lines == [
        "tp_here = x * x",
        "x_full_2 = all_gather(x, tp)",
        "tp_here = tp_here + reduce_scatter(contract(contract(x_full_2, w1, over=hidden), w2, over=ffn), tp, dim=tokens)",
        "free(tp_here)",
        "x_full = x * 3",
        "returns(x_full)",
    ]


def test_masks_and_larger_values_are_lowered() -> None:
    lines = body("u = dropout(contract(a, w2, over=ffn), random())\nreturns(max(u, scale(x, 2)))\n", combined(SP, CP))
    assert lines == [
        "u = dropout(reduce_scatter(contract(a, w2, over=ffn), tp, dim=tokens), random())",
        "returns(max(u, scale(x, 2)))",
    ]


def test_a_gradient_by_summands_is_reduced() -> None:
    text = "u = contract(a, w2, over=ffn)\nt = total(u, over=hidden)\nreturns(t)\ny = 3 * u\nreturns(y)\n"
    text += "returns(3 * dy, gradient_of=y, by=u, at=dy)\n"
    lines = body(text, TP)
    assert lines[1] == "t = all_reduce(total(u, over=hidden), tp)"
    assert lines[-1] == "returns(3 * dy, at=dy, by=u, gradient_of=y)"


def test_without_axes_a_block_is_lowered_to_itself() -> None:
    assert lower_block(block("swiglu"), Plan(())) == block("swiglu")


@pytest.mark.parametrize(
    "plan", [combined(tensor_parallel("t1"), tensor_parallel("t2", 2)), combined(SP, tensor_parallel("t2", sequence=True))]
)
def test_two_axes_may_split_the_same_dimensions(plan: Plan) -> None:
    program = lower_block(block("swiglu"), plan)
    names = tuple(a.name for a in program.axes)
    assert {t.name: t.split for t in program.tensors}["w1"] == tuple((name, "ffn") for name in names)
    assert judge_tensors(program).word == "proved"


@pytest.mark.parametrize("turned", [False, True])
def test_who_splits_a_dimension_for_a_while_splits_it_last(turned: bool) -> None:
    """So that it comes and goes with one call of its own axis, and the others stay as they are, however the plan lists them."""
    sender = PlanAxis("sender", positions=("batch",), moves={"batch": ("tokens",)})
    sitter = PlanAxis("sitter", positions=("tokens",))
    axes = (sitter, sender) if turned else (sender, sitter)
    program = lower_block(read(HEAD + "returns(x - largest(x, over=batch))\n", source="it"), Plan(axes))
    assert {t.name: t.split for t in program.tensors}["x"] == (("sitter", "tokens"), ("sender", "tokens"))
    assert "returns(all_to_all(x - largest(x, over=batch), sender, dim=batch))" in render(program).splitlines()
    assert judge_tensors(program).word == "proved"


# What is not lowered.

#: A statement, and what is said of it.
REFUSED = {
    "y = all_reduce(x, tp)": "`all_reduce` is nothing that one device does in a block",
    "y = part(x, tp, dim=tokens)": "`part` is nothing that one device does in a block",
    "y = x\nfor r in units:\n    y = x": "only assignments to plain names, `returns` and `free` are lowered",
    "y = contract(x, w1, over=tokens)": "`contract` sums over a dimension of both operands, and `tokens` is not",
    "y = total(x, over=ffn)": "there is no dimension `ffn` to reduce",
    "y = largest(x, over=ffn)": "there is no dimension `ffn` to reduce",
    "y = hot(x)": "`hot` takes positions",
    "y = x + ids": "positions are no numbers",
    "y = total(same, over=keys)": "positions are no numbers",
    "y = parameters * x": "`parameters` is no whole tensor here",
    "y = random(tp)": "`random` is nothing that one device does in a block",
    "y = square_norm(x)": "`square_norm` is nothing that one device does in a block",
    "y = total(x, over=hidden)\nreturns(x, gradient_of=y, by=x, at=x)": "`y` has the dimensions `batch`, `tokens`, and `x` has",
    "y = x * 1\nreturns(y, gradient_of=y, by=w1, at=x)": "the gradient by `w1` has the dimensions `batch`, `hidden`, `tokens`, and",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_lowered_is_refused_at_its_place(text: str) -> None:
    whole = HEAD + text + "\nreturns(y)\n"
    program = parse_anyhow(whole)
    with pytest.raises(InputError) as caught:
        lower_block(program, TP)
    (problem,) = caught.value.diagnostics
    assert problem.code == "PP122"
    assert problem.message.startswith(REFUSED[text])
    assert problem.help
    assert problem.place is not None
    assert problem.place.line > HEAD.count("\n")


def parse_anyhow(text: str) -> Program:
    """On one device there is no axis to name; the text is read with one, which is taken away."""
    return replace(read("mesh(tp)\n" + text, source="it.step"), axes=())


#: What is wrong as a whole.
WHOLE = {
    "a mesh": ("mesh(tp)\n" + HEAD + "returns(x)\n", TP, "this program has a mesh already, with axis `tp`"),
    "no tensors": (
        "x = backward(parameters)\nparameters, optimizer = update(parameters, optimizer, x)\n",
        TP,
        "this program declares no tensor",
    ),
    "an axis named like a tensor": (HEAD + "returns(x)\n", tensor_parallel("w1"), "an axis of the plan has the name of tensor `w1`"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_block_on_one_device(name: str) -> None:
    text, plan, message = WHOLE[name]
    with pytest.raises(InputError) as caught:
        lower_block(read(text, source="it.step"), plan)
    (problem,) = caught.value.diagnostics
    assert (problem.code, bool(problem.help)) == ("PP122", True)
    assert problem.message.startswith(message)


def test_plans_say_all_that_is_wrong_with_them() -> None:
    with pytest.raises(InputError) as caught:
        Plan((PlanAxis("tp"), PlanAxis("tp"), PlanAxis("mesh", 0), PlanAxis("picks", -1)))
    assert [d.code for d in caught.value.diagnostics] == ["PP106", "PP306", "PP306", "PP103", "PP103"]
    with pytest.raises(InputError) as caught:
        combined(TP, replace(CP, regather=False))
    assert caught.value.diagnostics[0].code == "PP106"
    assert combined(TP, replace(CP, regather=False), regather=True).regather
    assert not combined(replace(TP, regather=False), replace(CP, regather=False)).regather


def test_degrees_and_what_axes_split_are_in_the_mesh() -> None:
    plan = combined(data_parallel("replicas", 2), context_parallel("ring", 3), expert_parallel("owners", 4), tensor_parallel("tp", 5))
    axes = lower_block(block("moe"), plan).axes
    assert [(a.name, a.degree, a.splits.name) for a in axes] == [
        ("replicas", 2, "batch"),
        ("ring", 3, "sequence"),
        ("owners", 4, "experts"),
        ("tp", 5, "hidden"),
    ]


def test_a_key_that_does_not_fit_is_refused() -> None:
    """What is dropped has all of a dimension, and what should be its key, a number, only a part."""
    text = "tensor(r, tokens, choices, picks=ffn)\ntensor(k, ffn)\ny = dropout(total(hot(r), over=choices), k)\nreturns(y)\n"
    with pytest.raises(InputError) as caught:
        lower_block(read(text), tensor_parallel())
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.place and problem.place.line) == ("PP122", 3)
    assert problem.message == "one operand has all of `ffn` and the other a part of it: their shapes do not fit"
