"""What a model costs, beside a second opinion: an oracle walks the printed program, and shares nothing with what derives formulas."""

from __future__ import annotations

import os
from fractions import Fraction

import pytest
from linked_orders import Order
from linked_pairs import MEMORY, NUMBERS, SCHEDULES, STRATEGIES, linked_of, outcome
from linked_walk import Costs, Model

from placeproof import schedules
from placeproof.models import presets
from placeproof.semantics.linked import render_linked

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
#: Sizes that stages and runs of layers divide.
SMALL = {"L": 8, "s": 16}
#: Pairs that differ in what the oracle has to know. `nightly/linked.py` tries all.
SAMPLE = (
    ("llama3-8b", "fsdp(4, prefetch=true) * accumulate"),
    ("gpt3-125m", "fsdp(2, root=keep) * accumulate"),
    ("gpt3-125m", "zeropp(4, node=2) * accumulate"),
    ("llama3-8b", "fsdp(2) * tp(2) * sp(norms=each) * accumulate"),
    ("gpt3-125m", "hsdp(2, 2) * tp(2) * sp * pp(2)"),
    ("llama3-8b", "zero2(2) * cp(4) * tp(2) * sp"),
    ("bloom-176b", "zero1(2) * cp(2, attention=ulysses) * tp(2) * sp * pp(2)"),
    ("gpt3-125m", "pp(4, schedule=gpipe) * tp(2) * sp | selective"),
    ("gpt3-125m", "tp(2) * zero_r(checkpoints=host) * checkpoint"),
    ("llama3-8b", "zero_offload(2) * checkpoint(checkpoints=host)"),
    ("llama3-8b", "zero1(2) * tp(2) * sp * pp(4, schedule=zb-h2) | selective+mlp"),
    ("gpt3-125m", "fsdp(2, unit=model) * pp(2, schedule=dualpipe) | norms"),
    ("gpt3-125m", "pp(2, schedule=dualpipe-v) | full"),
    ("gpt3-125m", "zero1(2) * tp(2) * sp * pp(2, schedule=dualpipe)"),
    ("mixtral-8x7b", "fsdp(2) * fsdp(dp=ep) * ep(2) * pp(2)"),
    ("deepseek-v3", "zero1(4) * ep(2, experts=whole) * tp(2) * sp * cp(2)"),
    ("mixtral-8x7b", "zero1(2) * zero1(cp) * cp(2) * tp(2) * sp * ep(cp) * ep(tp) | full"),
    ("deepseek-v3", "fsdp(2) * cp(2, attention=ulysses) * tp(2) * ep(cp) * pp(2)"),
    ("gpt3-125m", "zero_offload(2) * tp(2) * muon"),
    ("gpt3-125m", "zero1(2) * tp(2) * sp * pp(2, schedule=dualpipe) * muon"),
    ("mixtral-8x7b", "zero1(2) * ep(2) * tp(2) * sp * muon(owned)"),
)
FAMILIES = ("llama3-8b", "gpt3-125m", "bloom-176b", "mixtral-8x7b", "deepseek-v3")


@pytest.mark.parametrize(("model", "strategy"), [(m, s) for s in STRATEGIES for m in FAMILIES] if NIGHTLY else SAMPLE)
def test_costs_are_those_of_a_walk(model: str, strategy: str) -> None:
    """Of each stage, to the byte: what goes over every axis, and what is held for what."""
    found = outcome(model, strategy, SMALL)
    if found.word == "refused":
        assert "ep" in strategy
        assert "has none" in found.why[0]
        return
    assert not found.why


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("mixtral-8x7b", "zero_infinity(2) * zero1(dp=ep) * ep(4)"),
        ("mixtral-8x7b", "zero_offload(2) * zero1(dp=ep) * ep(4) * accumulate"),
        ("gpt3-125m", "zero_infinity(2) * zero1(dp=cp) * cp(2) * pp(2)"),
        ("gpt3-125m", "zero_offload(2) * zero1(dp=cp, reduce=all_reduce) * cp(2)"),
    ],
)
def test_gradients_come_to_the_host_as_the_update_reads_them(model: str, strategy: str) -> None:
    """Whole along an axis where they are placed whole, unless the update reads a part."""
    assert outcome(model, strategy, SMALL).word == "equal"


def test_the_sample_is_of_these() -> None:
    assert len(set(STRATEGIES)) == 52
    assert {strategy for _, strategy in SAMPLE} <= set(STRATEGIES)
    assert {model for model, _ in SAMPLE} == set(FAMILIES) <= set(presets())


def walked(model: str, strategy: str, old: str = "", new: str = "") -> list[Costs]:
    """Every device's, after an edit of the text."""
    text = render_linked(linked_of(model, strategy, SMALL))
    assert old in text
    edited = Model(text.replace(old, new) if old else text, NUMBERS, SCHEDULES)
    return [edited.costs(d) for d in range(edited.devices)]


#: A line of a program, what stands there instead, and what is another amount then.
EDITS = (
    ("fsdp(2) * tp(2) * sp * pp(2)", "free(w)", "twin = copy(w)", {"transient"}),
    ("fsdp(2) * tp(2) * sp * pp(2)", "    w = all_gather(parameters[u], dp)\n", "    w = all_gather(all_gather(parameters[u], dp), tp)\n",
     {"sent", "transient", "gradients"}),
    ("fsdp(2) * tp(2) * sp * pp(2)", "    dn = reduce_scatter(", "    dn = all_reduce(", {"sent"}),
    ("fsdp(2) * tp(2) * sp * pp(2)", "    s = elementwise(silu, g)\n    a = s * u\n", "    a = elementwise(silu, g) * u\n    s = g\n",
     {"activations"}),
    ("zero1(2) * pp(2)", 'place(optimizer, dp="S")', 'place(optimizer, dp="R")', {"sent", "optimizer", "parameters"}),
    ("zero1(2) * pp(2)", "send(dx, pp, to=-1)", "pass", {"sent"}),
    ("zero1(2) * pp(2)", 'schedule="1f1b"', 'schedule="gpipe"', {"activations"}),
    ("zero1(2) * pp(2)", "pipeline(", "recompute(full)\npipeline(", {"activations", "working"}),
)  # fmt: skip


@pytest.mark.parametrize(("strategy", "old", "new", "moved"), EDITS)
def test_a_walk_sees_what_the_text_says(strategy: str, old: str, new: str, moved: set[str]) -> None:
    """An edit moves the amounts that it is about, and no others."""
    before, after = walked("llama3-8b", strategy), walked("llama3-8b", strategy, old, new)
    kinds = {kind for kind in MEMORY if any(a.memory[kind] != b.memory[kind] for a, b in zip(before, after, strict=True))}
    sent = {"sent"} if any(a.sent != b.sent for a, b in zip(before, after, strict=True)) else set()
    assert kinds | sent == moved


@pytest.mark.parametrize("name", [name for name in schedules.names() if schedules.load(name).search is None])
def test_orders_keep_and_hand_on_what_closed_forms_say(name: str) -> None:
    """Of the oracle's reading of a schedule: for every device, where all runs of layers are alike."""
    chunks = {"loop": 3 if name == "interleaved" else 1}.get(schedules.load(name).layout.value, 2)
    cases = [(p, m) for p in (2, 4) for m in (3, 8, 12) if not (name == "interleaved" and m % p)]
    for p, m in [(p, m) for p, m in cases if not name.startswith("dualpipe") or (m % 2 == 0 and m >= 2 * p)]:
        order = Order.read(SCHEDULES, name, p, chunks)
        of_loop, v = m // order.copies, chunks if name == "interleaved" else None
        for d in range(p):
            passes = list(order.passes(d, m))
            assert sorted((i, c) for kind, i, c in passes if kind == "F") == [(i, c) for i in range(of_loop) for c in range(chunks)]
            kept = order.most(d, m, [Fraction(1)] * chunks, [Fraction(1, 2)] * chunks)
            assert kept == schedules.peak(name, p=p, m=m, v=v, d=d, M_B=1, M_W=Fraction(1, 2))
        assert sum(sum(order.messages(d)) for d in range(p)) * of_loop == schedules.messages(name, p=p, m=m, v=v)
