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
from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.checks import require_fit
from placeproof.models import load
from placeproof.strategies import parse_strategy

WIDTHS = {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}


@lru_cache(maxsize=64)
def derived(model: str, strategy: str, recompute: str = "none", layers: tuple[int, ...] | None = None) -> ModelDerivation:
    return derive_model(load(model), parse_strategy(strategy), recompute=recompute, layers=layers)  # type: ignore[arg-type]


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


def plain_value(expr: sympy.Expr, values: dict[str, Fraction]) -> Fraction | None:
    return derived("llama3-8b", "ddp").value(expr, values)


# What does not fit.


def test_every_size_that_does_not_fit_is_named_at_once() -> None:
    d = derived("llama3-8b", "tp(3) * sp * cp(5)")
    with pytest.raises(InputError) as refused:
        require_fit(d, numbers(b=1))
    texts = "\n".join(f"{one.message} {one.notes}" for one in refused.value.diagnostics)
    for word in ("kv_heads", "ffn", "tokens", "two for each device", "megatron-16", "pytorch-15"):
        assert word in texts
    assert len(refused.value.diagnostics) >= 4


@pytest.mark.parametrize("stages", [(16, 16, 1), (32, 0), (33,), (16, 17)])
def test_stages_that_cannot_be_are_refused(stages: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        derived("llama3-8b", "pp(2)", layers=stages)


def test_layers_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(InputError, match="126 layers cannot be shared out evenly over 16 stages"):
        derived("llama3-405b", "pp(16)")
    with pytest.raises(InputError, match="layers differ"):
        derived("deepseek-v3", "pp")


def test_uneven_stages_add_up() -> None:
    d = derived("llama3-405b", "pp(16)", layers=(7, *[8] * 14, 7))
    assert sum(d.value(c.parameters["matrix"], numbers(b=1)) for c in d.costs) == load("llama3-405b").parameters().groups["matrix"]
    assert prod(1 for _ in d.costs) == 1
    assert len(d.costs) == 16
