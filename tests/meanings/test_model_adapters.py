"""Models with adapters: what they have, keep, compute, hold and send, by hand; their steps are proved, and wrong ones are not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from samples import NIGHTLY

from placeproof.core.diagnostics import InputError
from placeproof.cost.model.derivation import ModelDerivation, derive_linked, derive_model
from placeproof.models import load
from placeproof.models.adapters import adapted, adapters, targets
from placeproof.programs import Assign, Call, Do, Program, Ref, read, render
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.linked import Linked, read_linked, render_linked
from placeproof.semantics.linked.link import as_linked, link
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors.setup import RefutingBlockRun
from placeproof.semantics.tensors.simulate import search
from placeproof.strategies import parse_strategy

#: Llama 3 8B: layers, hidden size, inner width, width of keys and values, vocabulary. One sample of 512 tokens, adapters of rank 16.
L, H, F, KV, V, S, R = 32, 4096, 14336, 1024, 128256, 512, 16
#: Of each target the sizes of what it reads and of what it gives.
LINEAR = {"wq": (H, H), "wk": (H, KV), "wv": (H, KV), "wo": (H, H), "w1": (H, F), "w3": (H, F), "w2": (F, H)}
WORDS = {"linear": tuple(LINEAR), "attention": ("wq", "wk", "wv", "wo"), "qv": ("wq", "wv")}
#: Bytes of an element, no two alike.
WIDTHS = {"b_theta": 2, "b_g": 3, "b_omega": 11, "b_frozen": Fraction(1, 2), "b_a": 1, "b": 1, "s": S, "b_s": 4}


def linked(text: str, model: str = "llama3-8b") -> Linked:
    return link(load(model), parse_strategy(text))


def derived(text: str, **degrees: int) -> ModelDerivation:
    return derive_linked(linked(text).with_degrees(degrees))


def number(d: ModelDerivation, expr: object, **more: int) -> Fraction:
    value = d.value(expr, {**{k: Fraction(n) for k, n in WIDTHS.items()}, **{k: Fraction(n) for k, n in more.items()}})
    assert value is not None
    return value


def in_adapters(word: str, rank: int = R) -> int:
    return L * sum(rank * sum(LINEAR[w]) for w in WORDS[word])


BASE = L * (2 * H * H + 2 * H * KV + 3 * H * F + 2 * H) + 2 * V * H + H


@pytest.mark.parametrize("word", WORDS)
def test_adapters_are_counted(word: str) -> None:
    model = adapted(load("llama3-8b"), targets(load("llama3-8b"), word), R)
    counted = model.parameters()
    assert counted.groups["adapter"] == in_adapters(word)
    assert counted.total == BASE + in_adapters(word)
    assert adapters(tuple(b for s in model.segments for b in s.blocks)) == set(WORDS[word])


def test_known_numbers_of_adapters() -> None:
    """As peft prints them of Llama 3 8B: 41,943,040 of rank 16 beside all linear layers, 3,407,872 of rank 8 beside queries and values."""
    assert in_adapters("linear", 16) == 41_943_040
    assert in_adapters("qv", 8) == 3_407_872


def test_a_step_of_fully_sharded_data_parallelism() -> None:
    """States, what is gathered at once, traffic, activations and operations, each worked out here."""
    d = derived("fsdp(8) * lora(rank=16)")
    (cost,), own = d.costs, in_adapters("linear")
    assert number(d, cost.states["parameters"]) == (Fraction(BASE, 2) + 2 * own) / 8
    assert number(d, cost.states["gradients"]) == Fraction(3 * own, 8)
    assert number(d, cost.states["optimizer"]) == Fraction(11 * own, 8)
    assert number(d, cost.transient) == max(Fraction(V * H + H, 2), Fraction(BASE - 2 * V * H - H, 2 * L) + Fraction(2 * own, L))
    weights = Fraction(BASE, 2) + 2 * own
    assert sum(number(d, t.total) for t in cost.sent) == Fraction(7, 8) * (2 * weights + 3 * own)
    z = R * len(LINEAR)  # what goes between the two matrices of each adapter
    a_layer = 6 * H + 2 * KV + 4 * F + z  # x, both n, q, o, y; k, v; g, u, s, a; z
    assert number(d, cost.kept) == L * (S * a_layer + 4 * S * 32) + S * H + S * V + 8 * S + 1
    pairs = L * sum(a * b for a, b in LINEAR.values()) + H * V
    small = L * sum(R * (a + b) for a, b in LINEAR.values())
    scores = L * 2 * S * H  # products with keys and with values, of each token with S others
    assert number(d, cost.flops.forward) == 2 * S * (pairs + small + scores)
    assert number(d, cost.flops.inputs) == 2 * S * (pairs + small + 2 * scores)
    assert number(d, cost.flops.weights) == 2 * S * small


def test_what_is_computed_without_adapters() -> None:
    """Gradients by weights of all matrices, which adapters leave out: nothing else of the forward changes but the adapters' own."""
    full, own = derived("fsdp(8)"), derived("fsdp(8) * lora(rank=16)")
    small = 2 * S * in_adapters("linear")
    pairs = 2 * S * (L * sum(a * b for a, b in LINEAR.values()) + H * V)
    assert number(full, full.costs[0].flops.weights) == pairs
    assert number(own, own.costs[0].flops.forward) - number(full, full.costs[0].flops.forward) == small
    assert number(own, own.costs[0].flops.inputs) - number(full, full.costs[0].flops.inputs) == small


def test_a_device_of_tensor_parallelism_has_parts() -> None:
    """Of a matrix that is split by what it gives, the second adapter is split; by what it reads, the first. The other one is whole."""
    d, n = derived("fsdp * tp * lora(rank=16)", dp=4, tp=2), 2
    by_output = ("wq", "wk", "wv", "w1", "w3")
    own = L * sum(R * (a + Fraction(b, n)) if w in by_output else R * (Fraction(a, n) + b) for w, (a, b) in LINEAR.items())
    assert number(d, d.costs[0].parameters["adapter"]) == own
    assert number(d, d.costs[0].states["optimizer"]) == 11 * own / 4
    over_tp = sum(number(d, t.total) for t in d.costs[0].sent if t.axes == ("tp",))
    full = derived("fsdp * tp", dp=4, tp=2)
    before = sum(number(full, t.total) for t in full.costs[0].sent if t.axes == ("tp",))
    assert over_tp - before == L * S * R * len(LINEAR)  # z, or its gradient, of each adapter: an all-reduce on 2 devices sends all of it


#: By day those that differ most in blocks: each of the targets, with and without tensor parallelism.
PROVED = (
    "ddp * lora(rank=8, targets=qv)", "fsdp * tp * sp * lora", "zero1 * tp * pp * lora(targets=attention)", "cp * tp * lora",
    *(("fsdp * lora", "fsdp * clip * lora") if NIGHTLY else ()),
)  # fmt: skip


@pytest.mark.parametrize("text", PROVED)
def test_steps_of_models_are_proved(text: str) -> None:
    program = linked(text)
    judged = judge_linked(program, load("llama3-8b"))
    assert judged.word == "proved", judged.breaches
    again = read_linked(render_linked(program))
    assert render_linked(again) == render_linked(program)
    assert adapters(tuple(as_linked(load("llama3-8b"), again).segments[1].blocks)) == set(WORDS[_word(text)])


def _word(text: str) -> str:
    return next((word for word in WORDS if word in text), "linear")


@pytest.mark.parametrize("model", ["gpt3-125m", "mixtral-8x7b", "qwen3-8b", "deepseek-v3"])
def test_gradients_of_other_blocks_are_derivatives(model: str) -> None:
    """Of attention in its other forms, as runs on one device find."""
    for block in linked("fsdp * lora(targets=attention)", model).blocks.values():
        if adapters((block,)):
            assert not isinstance(search(resolve(block.program), most=2), RefutingBlockRun), block.name


def edited(block: str, old: str, new: str) -> Program:
    text = render(linked("fsdp * lora(rank=16)").blocks[block].program)
    assert old in text
    return read(text.replace(old, new, 1), source=block)


WRONG = {
    "the adapter's way back is left out": ("swiglu", " + contract(w1_dz, w1_a, over=rank)", ""),
    "it reads another gradient": ("swiglu", "contract(w1_z, dg, over=tokens)", "contract(w1_z, du, over=tokens)"),
    "it reads what another adapter gives": ("attention_flash", "contract(wq_z, dq, over=tokens)", "contract(wk_z, dq, over=tokens)"),
    "it is added in forward alone": ("swiglu", "over=hidden) + contract(w2_dz, w2_a, over=rank)", "over=hidden)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_blocks_with_a_mistake_are_refuted(name: str) -> None:
    block, old, new = WRONG[name]
    assert isinstance(search(resolve(edited(block, old, new)), most=2), RefutingBlockRun)
    assert not isinstance(search(resolve(edited(block, old, old)), most=2), RefutingBlockRun)


def test_a_gradient_of_what_is_frozen_or_none_of_an_adapter_breaks_the_contract() -> None:
    program = linked("fsdp * lora(rank=16)")
    block = program.blocks["swiglu"]
    claim = next(s for s in block.program.body if isinstance(s, Do) and s.call.option("by") == "w2_b")
    lost = replace(block.program, body=tuple(s for s in block.program.body if s is not claim))
    of_frozen = replace(
        claim,
        call=replace(claim.call, args=(_gradient("a", "dy"),), options=(*claim.call.options[:1], ("by", "w2"), *claim.call.options[2:])),
    )
    more = replace(block.program, body=(*block.program.body, of_frozen))
    for wrong, text in ((lost, "no gradient by `w2_b`"), (more, "1 times a gradient by `w2`")):
        stack = tuple(
            replace(s, blocks=tuple(replace(b, program=wrong) if b.name == "swiglu" else b for b in s.blocks)) for s in program.stack
        )
        judged = judge_linked(replace(program, stack=stack), load("llama3-8b"))
        assert judged.word == "refuted"
        assert any(text in breach.text for breach in judged.breaches), judged.breaches


def _gradient(x: str, dy: str) -> Call:
    inner = Call(op="contract", args=(Ref(name=x), Ref(name=dy)), options=(("over", "tokens"),))
    return Call(op="total", args=(inner,), options=(("over", "batch"),))


def test_a_step_that_does_not_reduce_adapters_is_refuted() -> None:
    program = linked("fsdp * lora(rank=16)")
    text = render_linked(program)
    assert "reduce_scatter(backward_weight(w, activations[u], dx), dp)" in text
    wrong = read_linked(
        text.replace("reduce_scatter(backward_weight(w, activations[u], dx), dp)", "part(backward_weight(w, activations[u], dx), dp)")
    )
    assert judge_linked(wrong, load("llama3-8b")).word == "refuted"


def test_what_is_not_derived_is_refused() -> None:
    for text, model, message in (
        ("fsdp * lora", "mixtral-8x7b", "expert"),
        ("fsdp * tp * clip * lora", "llama3-8b", "norm of adapters"),
    ):
        with pytest.raises(InputError, match=message):
            linked(text, model)
    assert "returns" in render(adapted(load("llama3-8b"), {"wq"}).segments[1].blocks[1].program)
    assert derive_model(load("llama3-8b"), parse_strategy("fsdp * lora")).costs


def test_the_lines_of_a_block_without_adapters_stay() -> None:
    """What is added stands beside what was there."""
    own = {s.targets[0].name for s in linked("ddp * lora").blocks["swiglu"].program.body if isinstance(s, Assign)}
    before = {s.targets[0].name for s in linked("ddp").blocks["swiglu"].program.body if isinstance(s, Assign)}
    assert own - before == {f"{w}_{end}" for w in ("w1", "w2", "w3") for end in ("z", "dz")}
    assert before <= own
