"""An all-to-all of a tensor: whole along the dimension that an axis splits, and split along another. Its four meanings agree."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.tensors import exchanges, kept
from placeproof.programs import Program, read, render
from placeproof.report.proof.data import judgement
from placeproof.semantics.judge.verdict import judge, judge_tensors
from placeproof.semantics.tensors import Setup
from placeproof.semantics.tensors.simulate import machine

HEAD = """\
mesh(cp, tp)
tensor(q, tokens, heads, width, cp=tokens, tp=heads)
tensor(k, tokens, heads, width, cp=tokens, tp=heads)
tensor(wo, heads, width, hidden, tp=heads)
tensor(same, keys, picks=tokens)
tensor(dy, tokens, hidden, cp=tokens)
"""
#: Attention that exchanges tokens for heads, and back (Jacobs et al. 2023, section 3.1), beside heads that tensor parallelism splits.
ULYSSES = """\
q2 = all_to_all(q, cp, dim=heads)
k2 = all_to_all(k, cp, dim=heads)
kk = contract(hot(same), k2, over=tokens)
e = elementwise(exp, contract(q2, kk, over=width))
p = e / total(e, over=keys)
o = all_to_all(contract(p, kk, over=keys), cp, dim=tokens)
y = all_reduce(total(contract(o, wo, over=width), over=heads), tp)
returns(y)
dwo = all_reduce(contract(o, dy, over=tokens), cp)
returns(dwo, gradient_of=y, by=wo, at=dy)
do = all_to_all(contract(dy, wo, over=hidden), cp, dim=heads)
dp = contract(do, kk, over=width)
ds = p * (dp - contract(p, dp, over=keys))
dq = all_to_all(contract(ds, kk, over=keys), cp, dim=tokens)
returns(dq, gradient_of=y, by=q, at=dy)
"""


def program(text: str) -> Program:
    return read(HEAD + text, source="it.step")


def test_tokens_for_heads_and_back_is_proved() -> None:
    judged = judge_tensors(program(ULYSSES))
    assert judged.word == "proved", judged.why
    assert {"N_cp >= 1", "N_tp >= 1"} <= set(judged.for_all)


def test_it_prints_and_reads_back() -> None:
    assert read(render(program(ULYSSES))) == program(ULYSSES)


#: What is changed in the program, and what is wrong then.
WRONG = {
    "queries stay split by tokens": ("q2 = all_to_all(q, cp, dim=heads)", "q2 = q"),
    "keys stay split by tokens": ("k2 = all_to_all(k, cp, dim=heads)", "k2 = k"),
    "queries are split by another dimension": ("q2 = all_to_all(q, cp, dim=heads)", "q2 = all_to_all(q, cp, dim=width)"),
    "over the wrong axis": ("q2 = all_to_all(q, cp, dim=heads)", "q2 = all_to_all(q, tp, dim=tokens)"),
    "the output comes back by width": ("over=keys), cp, dim=tokens)\ny =", "over=keys), cp, dim=width)\ny ="),
    "the output stays split by heads": ("o = all_to_all(contract(p, kk, over=keys), cp, dim=tokens)", "o = contract(p, kk, over=keys)"),
    "parts of copies": ("q2 = all_to_all(q, cp, dim=heads)", "q2 = part(q, cp, dim=heads)"),
    "summed before": ("q2 = all_to_all(q, cp, dim=heads)", "q2 = all_to_all(q + q, cp, dim=heads)"),
    "no sum over the other axis": ("over=heads), tp)", "over=heads), tp, op=max)"),
    "no sum over tokens": ("dwo = all_reduce(contract(o, dy, over=tokens), cp)", "dwo = contract(o, dy, over=tokens)"),
    "the gradient of other queries": ("do = all_to_all(contract(dy, wo, over=hidden), cp, dim=heads)", "do = o"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_exchanges_are_refuted(name: str) -> None:
    old, new = WRONG[name]
    assert ULYSSES.count(old) == 1
    judged = judge_tensors(program(ULYSSES.replace(old, new)))
    assert judged.word == "refuted", judged.why


#: What the encoding does not speak of, and no run on several devices computes.
NO_MEANING = {
    "several axes with one dimension too few": ("all_to_all(q, cp, tp, dim='width heads width')", "needs `dim=`"),
    "several axes, one of which stays": ("all_to_all(q, cp, tp, dim='width heads')", "is cut along `tp` already"),
    "no dimension": ("all_to_all(q, cp)", "needs `dim=`"),
    "a dimension that is not there": ("all_to_all(q, cp, dim=hidden)", "needs `dim=`"),
    "the same dimension": ("all_to_all(q, cp, dim=tokens)", "is cut along `cp` already"),
    "what is not split": ("all_to_all(wo, cp, dim=width)", "of what is not cut along it (last)"),
    "an outer part": ("all_to_all(part(dy, tp, dim=tokens), cp, dim=hidden)", "of what is not cut along it (last)"),
}


@pytest.mark.parametrize("name", NO_MEANING)
def test_what_is_no_exchange_is_never_proved_and_has_no_costs(name: str) -> None:
    text, why = NO_MEANING[name]
    wrong = program(f"y = {text}\nreturns(y)\n")
    judged = judge_tensors(wrong)
    assert judged.word != "proved"
    assert why in judged.why
    for ask in (exchanges, kept):
        with pytest.raises(InputError) as caught:
            ask(wrong)
        (problem,) = caught.value.diagnostics
        assert problem.code == "PP309"
        assert problem.message.startswith("`all_to_all`")
        assert problem.place is not None
        assert problem.place.line == HEAD.count("\n") + 1


@settings(max_examples=40)
@given(cp=st.integers(1, 3), tp=st.integers(1, 2), tokens=st.integers(1, 5), heads=st.integers(1, 5), seed=st.integers(1, 9))
def test_pieces_one_after_the_other_are_what_a_gather_and_a_cut_leave(cp: int, tp: int, tokens: int, heads: int, seed: int) -> None:
    """On every device, the same numbers in the same places, whatever the parts' sizes: some are empty."""
    sizes = {"tokens": tokens, "heads": heads, "width": 2, "keys": 1, "hidden": 1}
    setup = Setup(degrees={"cp": cp, "tp": tp}, sizes=sizes, seed=seed)
    direct, apart = (
        machine(program(f"y = {text}\nreturns(y)\n"), setup).run()[0].value
        for text in ("all_to_all(q, cp, dim=heads)", "part(all_gather(q, cp), cp, dim=heads)")
    )
    assert dict(direct.split) == dict(apart.split)
    for device in itertools.product(range(cp), range(tp)):
        assert list(direct.by_place(device)) == list(apart.by_place(device))


# What is sent.


def test_it_is_about_what_a_device_has_before() -> None:
    sent = [e for e in exchanges(program(ULYSSES)) if e.kind == "all_to_all"]
    assert [e.phase for e in sent] == ["forward"] * 3 + ["backward"] * 2
    sizes, degrees = {"tokens": 12, "heads": 8, "width": 3, "hidden": 5, "keys": 12}, {"cp": 2, "tp": 4}
    assert {e.elements(sizes, degrees) for e in sent} == {12 * 8 * 3 // 8}
    first, *_, last = sent
    assert dict(first.split) == {"tokens": ("cp",), "heads": ("tp",)}
    assert dict(last.split) == {"heads": ("tp", "cp")}


def test_nothing_is_sent_along_what_is_not_stored() -> None:
    """Tokens go to the experts that they are routed to, and to no other: the dimension of experts is in the text, and not on the wire."""
    text = """\
mesh(ep)
tensor(n, batch, hidden, ep=batch)
tensor(route, batch, picks=experts, ep=batch)
tensor(w, experts, hidden, ffn, ep=experts)
sent = all_to_all(hot(route) * n, ep, dim=experts)
out = all_to_all(contract(sent, w, over=hidden), ep, dim=batch)
y = contract(hot(route), out, over=experts)
returns(y)
"""
    assert judge_tensors(read(text)).word == "proved"
    there, back = exchanges(read(text))
    assert (there.dims, dict(there.split)) == (("batch", "hidden"), {"batch": ("ep",)})
    assert (back.dims, dict(back.split)) == (("batch", "experts", "ffn"), {"experts": ("ep",)})
    assert judge_tensors(read(text.replace("dim=experts", "dim=hidden"))).word == "refuted"


#: Experts over two axes: one splits the batch, the other one tokens.
EXPERTS = """\
mesh(ep, tp)
splits(ep=batch)
tensor(n, batch, tokens, hidden, ep=batch, tp=tokens)
tensor(route, batch, tokens, picks=experts, ep=batch, tp=tokens)
tensor(w, experts, hidden, ffn, ep=experts, tp=experts)
tensor(dy, batch, tokens, ffn, ep=batch, tp=tokens)
sent = all_to_all(hot(route) * n, ep, tp, dim=experts)
out = all_to_all(contract(sent, w, over=hidden), ep, tp, dim="batch tokens")
y = contract(hot(route), out, over=experts)
returns(y)
dout = all_to_all(hot(route) * dy, ep, tp, dim=experts)
returns(total(contract(sent, dout, over=tokens), over=batch), at=dy, by=w, gradient_of=y)
"""
WRONG_EXPERTS = {
    "over one axis alone": ("hot(route) * n, ep, tp, dim=experts", "hot(route) * n, ep, dim=experts"),
    "tokens come back as samples": ('dim="batch tokens"', 'dim="tokens batch"'),
    "all come back along one dimension": ('dim="batch tokens"', "dim=batch"),
    "gradients go to other experts": (
        "all_to_all(hot(route) * dy, ep, tp, dim=experts)",
        "all_to_all(hot(route) * dy, tp, ep, dim=experts)",
    ),
    "gradients do not go": ("all_to_all(hot(route) * dy, ep, tp, dim=experts)", "hot(route) * dy"),
}


def test_experts_over_two_axes_get_the_tokens_of_both() -> None:
    assert judge_tensors(read(EXPERTS)).word == "proved"
    assert read(render(read(EXPERTS))) == read(EXPERTS)
    there, back, gradients = exchanges(read(EXPERTS))
    sizes, degrees = {"batch": 6, "tokens": 4, "hidden": 5, "ffn": 7, "experts": 12}, {"ep": 3, "tp": 2}
    assert there.elements(sizes, degrees) == 6 * 4 * 5 // 6
    assert gradients.elements(sizes, degrees) == 6 * 4 * 7 // 6
    assert (dict(there.split), dict(back.split)) == ({"batch": ("ep",), "tokens": ("tp",)}, {"experts": ("ep", "tp")})


@pytest.mark.parametrize("name", WRONG_EXPERTS)
def test_wrong_exchanges_over_two_axes_are_refuted(name: str) -> None:
    old, new = WRONG_EXPERTS[name]
    assert EXPERTS.count(old) == 1
    assert judge_tensors(read(EXPERTS.replace(old, new))).word == "refuted"


@settings(max_examples=40)
@given(ep=st.integers(1, 3), tp=st.integers(1, 2), tokens=st.integers(1, 5), experts=st.integers(1, 7), seed=st.integers(1, 9))
def test_pieces_over_two_axes_are_what_gathers_and_cuts_leave(ep: int, tp: int, tokens: int, experts: int, seed: int) -> None:
    sizes = {"batch": 3, "tokens": tokens, "hidden": 2, "experts": experts, "ffn": 1}
    setup = Setup(degrees={"ep": ep, "tp": tp}, sizes=sizes, seed=seed)
    head = "".join(f"{line}\n" for line in EXPERTS.splitlines()[:6]) + "sent = hot(route) * n * w\n"
    head = head.replace(", ep=experts, tp=experts", "")
    there = "part(part(all_gather(all_gather(sent, tp), ep), ep, dim=experts), tp, dim=experts)"
    back = "part(part(all_gather(all_gather(moved, tp), ep), ep, dim=batch), tp, dim=tokens)"
    pairs = [("all_to_all(sent, ep, tp, dim=experts)", there), ("all_to_all(moved, ep, tp, dim='batch tokens')", back)]
    for direct, apart in pairs:
        one, other = (machine(read(f"{head}moved = {there}\ny = {text}\nreturns(y)\n"), setup).run()[0].value for text in (direct, apart))
        assert dict(one.split) == dict(other.split)
        for device in itertools.product(range(ep), range(tp)):
            assert list(one.by_place(device)) == list(other.by_place(device))


def test_what_was_added_up_is_sent_whole() -> None:
    """The gradient of keys by their tokens: a sum over look-ups takes room along every dimension."""
    text = """\
mesh(cp)
tensor(g, keys, heads, cp=heads)
tensor(same, keys, picks=tokens)
y = all_to_all(contract(hot(same), g, over=keys), cp, dim=tokens)
returns(y)
"""
    assert judge_tensors(read(text)).word == "proved"
    (only,) = exchanges(read(text))
    assert (only.dims, dict(only.split)) == (("heads", "tokens"), {"heads": ("cp",)})


# On real processes.


def replayed(text: str) -> Any:
    from placeproof.measure.replay.file import parse
    from placeproof.measure.replay.launch import replay

    judged = judge(program(text))
    assert judged.word == "refuted"
    return replay(parse(json.dumps(judgement("it", judged))))


#: Wrong only at the end, so that what was exchanged is what is compared.
REPLAYED = {
    "there": "returns(all_to_all(q, cp, dim=width) * cp)",
    "there and back": "returns(all_to_all(all_to_all(q, cp, dim=width), cp, dim=tokens) * cp)",
    "to a dimension that another axis splits": "returns(all_to_all(q, cp, dim=heads) * cp)",
    "over two axes": "returns(all_to_all(all_to_all(q, cp, tp, dim=width), cp, tp, dim='tokens heads') * cp)",
    "after a sum": "returns(all_to_all(contract(q, wo, over=width), cp, dim=hidden) * cp)",
}


@pytest.mark.parametrize("name", REPLAYED)
def test_processes_exchange_the_same_numbers(name: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed: nothing is exchanged between processes")
    one = replayed(REPLAYED[name])
    assert one.word == "reproduced", (one.why, one.wrong[:3], [o.error for o in one.outcomes])
    assert one.compared >= 8


def test_processes_find_nothing_to_exchange() -> None:
    pytest.importorskip("torch", reason="torch is not installed: nothing is exchanged between processes")
    one = replayed("returns(all_to_all(wo, cp, dim=width))")
    assert one.word == "reproduced"
    assert "nothing to gather over cp" in one.why
