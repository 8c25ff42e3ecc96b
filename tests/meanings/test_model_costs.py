"""What a model costs under a strategy: closed forms against counts, against the step programs, and against what papers print."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import prod

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import placeproof
from placeproof.collectives import COLLECTIVES
from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.layer import layer
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.checks import require_fit
from placeproof.cost.model.derivation import WIDTHS as WIDTHS_OF_VALUES
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.step import GroupCosts
from placeproof.models import load
from placeproof.programs import read
from placeproof.strategies import parse_strategy

WIDTHS = {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}


@lru_cache(maxsize=64)
def derived(
    model: str, strategy: str, recompute: str | None = None, layers: tuple[int, ...] | None = None, *, fp8: bool = False
) -> ModelDerivation:
    return derive_model(load(model), parse_strategy(strategy), recompute=recompute, layers=layers, fp8=fp8)


def numbers(**values: int) -> dict[str, Fraction]:
    return {name: Fraction(n) for name, n in {**WIDTHS, **values}.items()}


def per_layer(d: ModelDerivation, cost: int = 0) -> sympy.Expr:
    """Bytes that one layer keeps of one micro-batch."""
    return sum(h.row.bytes for h in d.costs[cost].held if h.part == "layers")


# Korthikanti et al. 2022, table 2: not typed in, but what the blocks' backward reads.

S, B, H, A, T = (symbol(n) for n in ("s", "b", "h", "a", "N_tp"))
N = symbol("N")
TABLE_2 = {
    ("ddp", "none"): S * B * H * (34 + 5 * A * S / H),
    ("tp", "none"): S * B * H * (10 + 24 / N + 5 * A * S / (H * N)),
    ("tp * sp", "none"): S * B * H * (34 / N + 5 * A * S / (H * N)),
    ("tp", "selective"): S * B * H * (10 + 24 / N),
    ("tp * sp", "selective"): S * B * H * 34 / N,
    ("tp", "full"): 2 * S * B * H,
}


@pytest.mark.parametrize(("strategy", "recompute"), TABLE_2)
def test_activations_of_a_layer_are_those_of_the_paper(strategy: str, recompute: str) -> None:
    found = per_layer(derived("korthikanti-175b", strategy, recompute)).subs({symbol("b_a"): 2, symbol("f"): 4 * H, symbol("d"): H / A})
    assert sympy.simplify(found - TABLE_2[strategy, recompute]) == 0


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "gpt3-175b", "bloom-176b", "deepseek-v3"])
@pytest.mark.parametrize("stages", [1, 2])
def test_stages_have_all_parameters(model: str, stages: int) -> None:
    """Every parameter is on some stage; a table that is tied is on the first and on the last one."""
    shape = load(model)
    number = shape.sizes["L"]
    d = derived(model, f"pp({stages})", layers=(number // stages,) * (stages - 1) + (number - (stages - 1) * (number // stages),))
    held = sum(d.value(sum(c.parameters.values()), numbers(b=1)) for c in d.costs)
    tied = shape.sizes["V"] * shape.sizes["h"] if shape.options.get("tied") == "yes" and stages > 1 else 0
    assert held == shape.parameters().total + tied


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 6))
def test_symbols_and_numbers_agree(tp: int, pp: int, cp: int, b: int, m: int) -> None:
    """The closed form at some degrees is what is derived when they are numbers from the beginning."""
    open_ = derived("llama3-8b", "zero1 * tp * sp * cp * pp")
    fixed = derived("llama3-8b", f"zero1 * tp({tp}) * sp * cp({cp}) * pp({pp})")
    values = numbers(b=b, m=m, N_tp=tp, N_pp=pp, N_cp=cp, N_dp=4)
    for cost in fixed.costs:
        first, last = cost.stage.first, cost.stage.last
        if first and last:
            continue
        like = open_.costs[0 if first else 2 if last else 1]
        keys = ["model_states", "activations", "transient", "working", "peak"]
        if not (first or last):
            keys = ["model_states", "transient"]  # the stage between stands for the one with most in flight
        for key in keys:
            assert fixed.value(getattr(cost, key), values) == open_.value(getattr(like, key), values), key
        for axes, sent in cost.traffic().items():
            assert fixed.value(sent, values) == open_.value(like.traffic()[axes], values), axes


def test_model_states_are_those_of_the_step_program() -> None:
    """With equal stages and everything split, states are P / (tp pp) of what the strategy says of P parameters."""
    d = derived("llama3-8b", "fsdp * tp(2) * pp(4)")
    step = placeproof.derive("fsdp(8)")
    for cost in d.costs:
        mine = d.value(sum(cost.parameters.values()), numbers(b=1))
        for state in ("parameters", "gradients", "optimizer"):
            values = numbers(N_dp=8, b=1, m=4)
            assert mine is not None
            assert d.value(cost.states[state], values) == step.value(f"memory.{state}", {**numbers(), "P": mine, "N": Fraction(8)})


def test_traffic_of_tensor_parallelism_is_that_of_the_step_program() -> None:
    """Four all-reduces of b s h a layer, or as many gathers and scatters and one gather more in backward."""
    for strategy, passes in (("tp", 8), ("tp * sp", 10)):
        d = derived("llama3-8b", strategy)
        layers = sum(s.total for s in d.costs[0].sent if s.about == "activations of `layers`")
        step = placeproof.derive(strategy).by_axis["tp"]
        assert sympy.simplify(layers - step) == 0
        assert sympy.simplify(layers - passes * symbol("L") * symbol("b") * symbol("b_a") * S * H * (N - 1) / N) == 0


def test_a_ring_sends_what_a_gather_sends_and_gradients_one_step_more() -> None:
    ring, gather = (derived("llama3-8b", f"cp(4, attention={how})").costs[0].traffic()["cp"] for how in ("ring", "gather"))
    more = derived("llama3-8b", "cp(4)").value(ring - gather, numbers(b=1))
    kv = 2 * 8 * 128 * 8192 // 4 * 32 * 2  # keys and values: heads, width, tokens of one device, layers, bytes
    assert more == kv


def test_ulysses_sends_four_tensors_of_the_stream() -> None:
    """4 N h / P elements forward in a layer, the factor (P - 1) / P left out: Jacobs et al. 2023, section 3.2."""
    d = derived("gpt3-175b", "cp(8, attention=ulysses)")
    sent = [s for s in d.costs[0].sent if s.kind == "all_to_all" and s.phase == "forward"]
    elements = sum(d.value(s.size * s.times, numbers(b=1)) for s in sent) / 2 / 96
    assert elements == Fraction(4 * 2048 * 12288, 8)


def test_micro_batches_in_flight_follow_the_schedule() -> None:
    d = derived("llama3-8b", "pp(4)")
    assert [d.value(c.in_flight, numbers(m=8)) for c in d.costs] == [4, 3, 2, 1]
    assert [d.value(c.in_flight, numbers(m=2)) for c in d.costs] == [2, 2, 2, 1]
    every = derived("llama3-8b", "pp(4, schedule=gpipe)")
    assert [every.value(c.in_flight, numbers(m=8)) for c in every.costs] == [8] * 4


def test_full_recomputation_keeps_inputs_and_computes_forward_again() -> None:
    d = derived("llama3-8b", "ddp", "full")
    work = d.costs[0].flops
    plain = derived("llama3-8b", "ddp").costs[0].flops
    values = numbers(b=1)
    forward = d.value(work.forward, values)
    again = d.value(work.again, values)
    assert forward == plain_value(plain.forward, values)
    head = 2 * 8192 * 4096 * 128256  # the loss is not computed again
    assert again is not None
    assert forward is not None
    core = 32 * 2 * 8192 * 8192 * 4096  # the scores, which flash attention computes once more anyway
    assert again == forward - head + core


# Recomputation in words.


@pytest.mark.parametrize("strategy", ["ddp", "tp(2) * sp"])
def test_norms_that_are_computed_again_are_not_kept_and_multiply_nothing(strategy: str) -> None:
    """Two tensors of the stream fewer in a layer, those of the head's norm left; as many floating-point operations and bytes sent."""
    for more, less in (("none", "norms"), ("selective", "selective+norms")):
        before, after = (derived("gpt3-175b", strategy, words).costs[0] for words in (more, less))
        of_norms = {h.row.stored.number: h.bytes for h in before.held if h.part == "layers" and h.row.stored.block == "layer_norm"}
        assert set(of_norms) == {1, 3}
        assert sympy.simplify(before.kept - after.kept - sum(of_norms.values())) == 0
        assert sympy.simplify(after.working - before.working - sum(of_norms.values()) / symbol("L")) == 0
        assert (after.flops, after.traffic()) == (before.flops, before.traffic())


def test_a_feed_forward_block_computed_again_keeps_what_it_reads() -> None:
    values = numbers(b=1, N=1)
    plain, again = (derived("llama3-8b", "ddp", words) for words in ("none", "mlp"))
    kept = {f"{h.row.stored.number}.{h.row.stored.name}" for h in plain.costs[0].held if h.part == "layers"}
    left = {f"{h.row.stored.number}.{h.row.stored.name}" for h in again.costs[0].held if h.part == "layers"}
    assert kept - left == {"4.g", "4.u", "4.s", "4.a"}
    assert left < kept
    products = 3 * 2 * 8192 * 4096 * 14336 * 32
    work = [d.value(d.costs[0].flops.again, values) for d in (again, plain)]
    assert work[0] is not None
    assert work[0] - products == work[1]
    assert again.value(again.costs[0].working, values) == 4 * 8192 * 14336 * 2
    experts = derived("mixtral-8x7b", "fsdp * ep(8)", "mlp")
    assert {h.row.stored.name for h in experts.costs[0].held if h.row.stored.block == "moe"} == {"route"}


def test_words_of_a_recomputation_have_one_order() -> None:
    assert derived("llama3-8b", "ddp", "mlp + norms+selective").recompute == "selective+norms+mlp"


#: What a layer no longer keeps, by hand: of experts what is made element by element of their first products, biases included, for the last
#: one; of latent attention what its second products make. And, of the latter, the elements of their matrices.
LESS = [
    ("mixtral-8x7b", "ddp", "moe-act", {"4.s", "4.a"}, 0),
    ("mixtral-8x7b", "ep(4) * tp(2) * sp", "moe-act", {"4.s", "4.a"}, 0),
    ("gpt-oss-20b", "ep(4)", "moe-act", {"4.s", "4.t", "4.a"}, 0),
    ("deepseek-v3", "ddp", "moe-act", {"4.s", "4.a"}, 0),
    ("deepseek-v3", "ep(4)", "mla-up", {"2.q", "2.qr", "2.k", "2.v"}, 128 * (192 * 1536 + 256 * 512)),
    ("deepseek-v3", "tp(2) * sp", "mla-up+moe-act", {"2.q", "2.qr", "2.k", "2.v", "4.s", "4.a"}, 128 * (192 * 1536 + 256 * 512)),
]


@pytest.mark.parametrize(("model", "strategy", "words", "less", "matrices"), LESS)
def test_parts_of_layers_that_are_computed_again(model: str, strategy: str, words: str, less: set[str], matrices: int) -> None:
    plain, again = (derived(model, strategy, said).costs[0] for said in ("none", words))
    sparse = {h.part for h in plain.held if h.row.stored.block.startswith("moe")}
    kept, left = (
        {f"{h.row.stored.number}.{h.row.stored.name}" for h in cost.held if h.part in sparse and h.row.stored.block != "input"}
        for cost in (plain, again)
    )
    assert kept - left == less
    assert left < kept
    put = {**numbers(b=1, N=1, c=1, N_ep=4, N_tp=2), "s": Fraction(4096)}
    work = derived(model, strategy, words).value(again.flops.again - plain.flops.again, put)
    assert work == 2 * 4096 * load(model).sizes["L"] * matrices / (2 if "tp(2)" in strategy else 1)
    gathered = bool(matrices) and "sp" in strategy  # what was compressed of a device's own tokens
    assert (again.traffic() == plain.traffic()) == (not gathered)


@pytest.mark.parametrize(("model", "word"), [("llama3-8b", "moe-act"), ("mixtral-8x7b", "mla-up"), ("gpt3-125m", "moe-act")])
def test_a_recomputation_of_nothing_is_refused(model: str, word: str) -> None:
    with pytest.raises(InputError, match=f"recomputation `{word}` is of nothing in the model's layers"):
        derived(model, "ddp", f"norms+{word}")


def test_a_strategy_that_keeps_inputs_alone_says_how_a_model_is_run() -> None:
    """Checkpoints as with `full`, and as many bytes as the strategy's own program says; another recomputation contradicts it."""
    own, asked = derived("llama3-8b", "ddp * checkpoint"), derived("llama3-8b", "ddp", "full")
    assert (own.recompute, own.costs[0].peak) == ("full", asked.costs[0].peak)
    assert sympy.simplify(layers_of(own) - placeproof.derive("ddp * checkpoint").memory["activations"]) == 0
    for words in ("none", "norms", "selective"):
        with pytest.raises(InputError, match="was asked for"):
            derived("llama3-8b", "ddp * checkpoint", words)


def layers_of(d: ModelDerivation) -> sympy.Expr:
    return sum(h.bytes for h in d.costs[0].held if h.part == "layers")


# On the host.


@pytest.mark.parametrize("strategy", ["zero_offload", "zero_infinity", "zero_offload(8)", "zero2", "ddp * accumulate"])
def test_states_on_the_host_are_those_of_the_step_program(strategy: str) -> None:
    d, step = derived("llama3-8b", strategy), placeproof.derive(strategy)
    (cost,) = d.costs
    values = numbers(b=1, N=8, m=4)
    mine = {**values, "P": d.value(sum(cost.parameters.values()), values)}
    assert d.value(cost.host, values) == step.value("memory.host", mine)
    for state in ("parameters", "gradients", "optimizer"):
        assert d.value(cost.states[state], values) == step.value(f"memory.{state}", mine)
    assert (cost.host == 0) == (not strategy.startswith("zero_"))


@pytest.mark.parametrize("strategy", ["ddp * checkpoint(checkpoints=host)", "zero1 * tp(2) * zero_r(checkpoints=host)"])
def test_checkpoints_on_the_host_are_those_of_the_step_program(strategy: str) -> None:
    d, step = derived("llama3-8b", strategy), placeproof.derive(strategy)
    assert sympy.simplify(d.costs[0].host - step.memory["host"]) == 0
    assert sympy.simplify(layers_of(d) - step.memory["host"]) == 0
    assert step.memory["activations"] == 0
    near = derived("llama3-8b", strategy.replace("host", "device")).costs[0]
    assert near.host == 0
    assert sympy.simplify(near.activations - d.costs[0].activations - d.costs[0].host) == 0


def test_a_checkpoint_that_lies_elsewhere_is_there_while_its_layer_is_computed_again() -> None:
    here, host = (derived("llama3-8b", f"ddp * checkpoint(checkpoints={place})").costs[0] for place in ("device", "host"))
    assert sympy.simplify(host.working - here.working - symbol("b") * symbol("b_a") * S * H) == 0


def test_checkpoints_in_parts_are_gathered_once() -> None:
    """ZeRO-R keeps 1 / N of a checkpoint, and gathers it in backward: as its step program sends."""
    d, step = derived("llama3-8b", "zero1 * tp * zero_r"), placeproof.derive("zero1 * tp * zero_r")
    assert sympy.simplify(layers_of(d) - step.memory["activations"]) == 0
    assert sympy.simplify(sum(s.total for s in d.costs[0].sent if s.about == "activations of `layers`") - step.by_axis["tp"]) == 0
    cp = derived("llama3-8b", "tp(2) * cp(4) * zero_r")
    assert layers_of(cp).subs(symbol("L"), 1) == symbol("b") * symbol("b_a") * S * H / 8


def test_stages_hold_checkpoints_on_the_host_of_all_micro_batches_in_flight() -> None:
    d = derived("llama3-8b", "zero_offload(8) * pp(4) * checkpoint(checkpoints=host)")
    values = numbers(b=1, m=8)
    for cost, flight in zip(d.costs, (4, 3, 2, 1), strict=True):
        held = d.value(sum(cost.parameters.values()), values)
        assert held is not None
        assert d.value(cost.host, values) == flight * 8 * 8192 * 4096 * 2 + held * (2 + 12) / 8
        head = sum(h.bytes for h in cost.held if h.part == "after")
        more = sympy.Max(0, cost.working - head) if head else cost.working
        assert cost.peak == cost.model_states + cost.activations + cost.transient + more


def test_two_copies_add_gradients_wherever_these_lie() -> None:
    near, host = (derived("llama3-8b", f"{zero}(8) * pp(4, schedule=dualpipe)") for zero in ("zero2", "zero_offload"))
    sent = [sum(s.total for s in d.costs[1].sent if s.about == "gradients of the two copies") for d in (near, host)]
    # What lies on the host is added up before it goes there, in each micro-batch: each copy has half of them.
    assert sympy.expand(symbol("m") * sent[0] - 2 * sent[1]) == 0 != sent[1]


# Operands in fp8.

#: Tensors of a layer that only a product for a weight's gradient reads, by hand: what goes into each linear layer, unless something else
#: reads it as well (attention's output in a fused kernel, what a router reads).
NARROW = {
    "llama3-8b": {"1.n", "3.n", "4.a"},
    "gpt3-175b": {"1.n", "2.o", "3.n", "4.a"},
    "mixtral-8x7b": {"1.n", "4.sent", "4.a"},
    "deepseek-v3": {"1.n", "2.nq", "2.nkv", "4.sent", "4.a", "4.va"},
}


@pytest.mark.parametrize(("model", "strategy"), [*((model, "ddp") for model in NARROW), ("llama3-8b", "tp(2) * sp")])
def test_operands_for_gradients_by_weights_take_one_byte(model: str, strategy: str) -> None:
    """Also those that are gathered before they are multiplied."""
    wide, narrow = (derived(model, strategy, fp8=fp8).costs[0] for fp8 in (False, True))
    halved = set()
    for before, after in zip(wide.held, narrow.held, strict=True):
        if before.bytes != after.bytes:
            assert after.bytes == after.times * after.row.elements
            halved.add((before.part, f"{before.row.stored.number}.{before.row.stored.name}"))
    (part,) = {p for p, _ in halved} - {"dense"}
    assert {name for p, name in halved if p == part} == NARROW[model]
    assert "1.n" not in {name for p, name in halved if p == "after"}


def test_bytes_of_fp8_operands_by_hand() -> None:
    """Of a Llama layer 2 n and a take half; of a GPT layer 2 n, o and a: 7 b s h bytes of the 34 (Korthikanti et al. 2022, table 2)."""
    stream, f = S * B * H, symbol("f")
    put = {symbol("b_a"): 2, symbol("d"): H / A}
    llama = per_layer(derived("llama3-8b", "ddp")) - per_layer(derived("llama3-8b", "ddp", fp8=True))
    assert sympy.simplify(llama.subs(put) - 2 * stream - S * B * f) == 0
    gpt = per_layer(derived("korthikanti-175b", "ddp", fp8=True)).subs({**put, f: 4 * H})
    assert sympy.simplify(gpt - stream * (34 - 7 + 5 * A * S / H)) == 0


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(["llama3-8b", "gpt3-175b", "mixtral-8x7b"]),
    st.sampled_from(["ddp", "fsdp * tp(2)", "fsdp * tp(2) * sp", "tp(4) * sp * cp(2)", "zero1(2) * pp(4, schedule=zb-h1)"]),
    st.sampled_from(["none", "norms", "selective+norms", "mlp", "full"]),
)
def test_fp8_takes_half_of_the_operands_and_of_nothing_else(model: str, strategy: str, recompute: str) -> None:
    """Sizing two bytes an element. What is computed again stays wide; what layers send and compute stays as it is."""
    wide, narrow = (derived(model, strategy, recompute, fp8=fp8) for fp8 in (False, True))
    values = numbers(b=1, m=4, N_dp=2, N=2, c=1)
    operands = {(p.name, number, name) for p in narrow.parts for number, name in p.narrow}
    for before, after in zip(wide.costs, narrow.costs, strict=True):
        mine = [h for h in before.held if (h.part, h.row.stored.number, h.row.stored.name) in operands]
        less = sum(h.bytes for h in mine) / 2
        late = sum(late_operands(p, wide) * n for p, n in before.stage.held) / 2
        ((run,), moments) = before.runs, [moment for (moment,) in before.at_once]
        want = max(wide.value(n * (run.kept - less) + w * (run.late - late), values) for n, w in moments)
        assert wide.value(after.activations, values) == want
        assert bool(mine) == (recompute != "full")
        assert (after.working, after.flops, after.traffic()) == (before.working, before.flops, before.traffic())


def late_operands(part: DeviceSegment, d: ModelDerivation) -> sympy.Expr:
    """Bytes of what one repetition still needs for gradients by weights, and would keep in fp8."""
    late = part.layer.kept_for_weights()
    return sum(r.bytes for r in part.bytes(late, d.at) if (r.stored.number, r.stored.name) in part.narrow)


LINEAR = """\
tensor(x, batch, tokens, hidden)
tensor(n, batch, tokens, hidden)
tensor(same, keys, picks=tokens)
tensor(w1, hidden, ffn)
tensor(w2, ffn, hidden)
tensor(dy, batch, tokens, hidden)
u = contract(n, w1, over=hidden)
y = x + contract(u, w2, over=ffn)
returns(y)
returns(dy, gradient_of=y, by=x, at=dy)
uu = contract(hot(same), u, over=tokens)
dz = dy * x
returns(total(contract(uu, contract(hot(same), dz, over=tokens), over=keys), over=batch), gradient_of=y, by=w2, at=dy)
du = contract(dy, w2, over=hidden)
returns(total(contract(n, du, over=tokens), over=batch), gradient_of=y, by=w1, at=dy)
returns(contract(du, w1, over=ffn), gradient_of=y, by=n, at=dy)
"""


def test_what_computes_something_again_reads_it_at_full_width() -> None:
    """A second name of an operand is no other read; a product that runs again is, though only gradients by weights need its result."""
    chain = layer([read(LINEAR, source="linear.step")])
    assert chain.operands() == {(0, "n"), (1, "u")}
    assert chain.operands({(1, "w1")}) == {(1, "u")}
    assert chain.recomputed("linear.u").operands() == frozenset()


def test_widths_are_of_one_value_or_of_all_of_a_name() -> None:
    """`block.value` goes before `value`, and what is said goes before fp8."""
    widths = {**WIDTHS_OF_VALUES, "n": 7, "rms_norm.n": 3, "lse": 8}
    (cost,) = derive_model(load("llama3-8b"), parse_strategy("ddp"), widths=widths, fp8=True).costs
    each = {f"{h.row.stored.block}.{h.row.stored.name}": h.row.bytes / h.row.elements for h in cost.held if h.part == "layers"}
    assert [each[name] for name in ("rms_norm.n", "attention_flash.lse", "swiglu.a", "swiglu.u")] == [3, 8, 1, symbol("b_a")]


def plain_value(expr: sympy.Expr, values: dict[str, Fraction]) -> Fraction | None:
    return derived("llama3-8b", "ddp").value(expr, values)


# What does not fit.


def test_every_size_that_does_not_fit_is_named_at_once() -> None:
    d = derived("llama3-8b", "tp(3) * sp * cp(5)")
    with pytest.raises(InputError) as refused:
        require_fit(d, numbers(b=1))
    texts = "\n".join(f"{one.message} {one.notes}" for one in refused.value.diagnostics)
    for word in ("kv_heads", "ffn", "tokens", "two for each device", "megatron-78", "pytorch-15"):
        assert word in texts
    assert len(refused.value.diagnostics) >= 4


def test_tokens_that_are_exchanged_for_heads_are_cut_into_one_piece_a_device() -> None:
    """DeepSpeed asks for as many equal pieces as devices (deepspeed-27); who attends in parts, for twice as many."""
    require_fit(derived("llama3-8b", "cp(2, attention=ulysses)"), numbers(b=1, s=4098))
    for attention in ("ring", "gather"):
        with pytest.raises(InputError, match="two for each device"):
            require_fit(derived("llama3-8b", f"cp(2, attention={attention})"), numbers(b=1, s=4098))
    with pytest.raises(InputError, match="does not divide"):
        require_fit(derived("llama3-8b", "cp(2, attention=ulysses)"), numbers(b=1, s=4097))


def test_a_rule_that_allows_copies_of_heads_is_not_named_where_they_could_be_copied() -> None:
    for degree, named in ((16, set()), (12, {"megatron-78"})):
        with pytest.raises(InputError) as refused:
            require_fit(derived("llama3-405b", f"tp({degree})"), numbers(b=1))
        (problem,) = (one for one in refused.value.diagnostics if "kv_heads" in one.message)
        assert {rule for rule in ("megatron-78",) if rule in "".join(problem.notes)} == named
        assert "colossalai-13" in "".join(problem.notes)
        assert ("copies of heads" in str(problem.help)) is (not named)


@pytest.mark.parametrize("stages", [(16, 16, 1), (33, -1), (33,), (16, 17)])
def test_stages_that_cannot_be_are_refused(stages: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        derived("llama3-8b", "pp(2)", layers=stages)


def test_layers_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(InputError, match="126 layers cannot be shared out evenly over 16 stages"):
        derived("llama3-405b", "pp(16)")
    with pytest.raises(InputError, match="layers differ"):
        derived("deepseek-v3", "pp")


def test_stages_have_layers_in_turn() -> None:
    """Of two kinds that come in turn, every stage has those that come then, not all of the first kind before all of the second."""
    model = load("llama4-maverick-400b").resized({"L": 12})
    d = derive_model(model, parse_strategy("pp(3)"), layers=(3, 4, 5))
    held = [{part.name: times for part, times in cost.stage.held if part.repeats} for cost in d.costs]
    assert held == [
        {"first": 1, "second": 1, "third": 1},
        {"first": 1, "second": 1, "third": 1, "fourth": 1},
        {"first": 1, "second": 1, "third": 1, "fourth": 2},
    ]
    assert sum(d.value(sum(c.parameters.values()), numbers(b=1)) for c in d.costs) == model.parameters().total


def test_uneven_stages_add_up() -> None:
    d = derived("llama3-405b", "pp(16)", layers=(7, *[8] * 14, 7))
    assert sum(d.value(c.parameters["matrix"], numbers(b=1)) for c in d.costs) == load("llama3-405b").parameters().groups["matrix"]
    assert prod(1 for _ in d.costs) == 1
    assert len(d.costs) == 16


# Gradients that the devices of tensor parallelism have in parts, against the step program.


@pytest.mark.parametrize(
    "strategy",
    [
        "ddp(4) * tp(8) * sp",
        "zero1(4) * tp(8) * sp * accumulate(3)",
        "fsdp(4) * tp(8) * sp",
        "zero2(4) * tp(8) * sp(norms=each) * accumulate(3)",
        "zero1(2) * zero1(dp=ep) * ep(4) * tp(8) * sp",
        "zero1(2) * zero1(dp=ep) * ep(4, experts=whole) * tp(8) * sp",
    ],
)
def test_gradients_summed_over_tensor_parallel_devices_are_those_of_the_step_program(strategy: str) -> None:
    """Of Llama the norms; of Mixtral the routers, too, and experts that are whole."""
    name = "mixtral-8x7b" if "ep" in strategy else "llama3-8b"
    d = derived(name, strategy)
    groups = load(name).parameters().groups
    copied = Fraction(groups["norm"] + groups.get("router", 0))
    (one,) = (s for s in d.costs[0].sent if s.about.startswith("gradients of norms"))
    step = placeproof.derive(parse_strategy(strategy), groups=True)
    messages = [m for m in step.messages.messages if m.state == "gradients" and m.axes == ("tp",)]
    asked = numbers(P=sum(groups.values()), P_norm=int(copied), P_expert=groups.get("expert", 0), m=1, L=32)
    told = {symbol(n): sympy.Rational(v.numerator, v.denominator) for n, v in asked.items()}
    want = sum(sympy.nsimplify((m.bytes * m.count).subs(told)) for m in messages)
    # Norms that are summed as they are produced come once for each block in the step program, all alike.
    assert d.value(one.total, numbers()) == Fraction(str(want))
    assert one.each == ("norms=each" in strategy)


def test_gains_that_heads_share_are_summed_in_blocks_with_a_norm_behind_them_too() -> None:
    for name in ("qwen3-8b", "gemma3-4b"):
        sums = [s.total for s in derived(name, "tp(2)").costs[0].sent if s.about == "gradients of norms"]
        assert sums == [2 * symbol("L") * symbol("b_g") * symbol("d")]
        (adapters,) = (s for s in derived(name, "tp(2) * sp * lora(rank=8)").costs[0].sent if s.about == "gradients of adapters")
        assert adapters.total == 7 * symbol("L") * symbol("b_g") * symbol("h") * symbol("r")
    (sums,) = (s for s in derived("gemma3-4b", "tp(2) * sp").costs[0].sent if s.about == "gradients of norms")
    assert sympy.expand(sums.total - symbol("b_g") * (symbol("L") * (2 * symbol("d") + 4 * symbol("h")) + symbol("h"))) == 0


def test_without_sequence_parallelism_nothing_is_summed_over_tensor_parallel_devices() -> None:
    assert not [s for s in derived("llama3-8b", "fsdp(4) * tp(8)").costs[0].sent if s.about.startswith("gradients of norms")]
    assert not [s for s in derived("mixtral-8x7b", "ddp(4) * ep(2) * tp(2)").costs[0].sent if s.about.startswith("gradients of norms")]


def step_of(strategy: str) -> tuple[GroupCosts, ...]:
    """The formulas that a strategy's step has for a model with experts."""
    found = derived("mixtral-8x7b", strategy)
    return found.step.at(found.costs[0].stage)


@pytest.mark.parametrize(
    ("strategy", "alone"),
    [
        ("fsdp(8, prefetch=true) * ep(2)", "fsdp(8, prefetch=true)"),
        ("fsdp(8, root=keep) * ep(2)", "fsdp(8, root=keep)"),
        ("fsdp(8) * fsdp(dp=ep) * ep(2)", "fsdp(8)"),
        ("zero1(8) * zero1(dp=ep) * ep(2)", "zero1(8)"),
    ],
)
def test_formulas_of_experts_are_those_of_the_strategy_without_their_axis(strategy: str, alone: str) -> None:
    (_, found), (expected,) = step_of(strategy), step_of(alone)
    assert found.experts
    named = symbol("U") * symbol("b_g") if "fsdp(dp=ep)" in strategy else 0  # `g`, which is reduced group by group
    assert sympy.expand(found.memory["transient"] - named - expected.memory["transient"]) == 0
    assert {**found.memory, "transient": expected.memory["transient"]} == expected.memory
    assert [(m.kind, m.axes, m.bytes, m.count) for m in found.messages] == [(m.kind, m.axes, m.bytes, m.count) for m in expected.messages]


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "fsdp", "zero_infinity"])
def test_the_bytes_of_a_message_are_what_a_ring_sends_of_its_size(name: str, degree: int) -> None:
    (costs,) = step_of(f"{name}({degree})")
    assert costs.messages
    for message in costs.messages:
        sent = COLLECTIVES[message.kind].sent(sympy.Integer(degree), message.size)
        assert sympy.expand(sent - message.bytes) == 0


def test_what_is_summed_in_parts_is_as_large_as_a_part() -> None:
    """Of two collectives in one line each has the size of its own tensor."""
    (costs,) = step_of("zero_infinity(4) * cp(2)")
    whole, part = (next(m for m in costs.messages if m.kind == kind) for kind in ("reduce_scatter", "all_reduce"))
    assert whole.stmt is part.stmt
    assert whole.size == 4 * part.size
