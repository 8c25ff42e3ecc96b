"""Memory as frameworks' own formulas say it, worked out by hand for configurations: ours is equal, or each difference has a name.

Megatron-LM's `report_theoretical_memory` is of NVIDIA/Megatron-LM@d98e8a64ddf3:megatron/training/theoretical_memory_usage.py, DeepSpeed's
estimators of deepspeedai/DeepSpeed@edaa72212672:deepspeed/runtime/zero/stage3.py line 3744 and stage_1_and_2.py line 3081.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

import placeproof
from placeproof.core.precision import PRECISIONS
from placeproof.cost.derive import evaluate

MEGA = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """``theirs``: the value of their formula, by hand. ``ours``: how ours is asked for. ``named``: what ours has more, in bytes."""

    theirs: Fraction | int
    ours: tuple[Any, ...]
    named: dict[str, Fraction | int] = field(default_factory=dict)


# Megatron-LM, parameters, gradients and optimizer state: 18 bytes a parameter, or 6 and a share of 12 with the distributed optimizer.

#: A layer of Llama 3 8B: attention 2*4096*4096*(1 + 8/32), feed-forward 3*4096*14336; norms of a layer 2*4096.
LAYER_8B, NORMS_8B, TABLE_8B = 41_943_040 + 176_160_768, 8_192, 525_336_576
#: Of Llama 3 70B: 2*8192*8192*(1 + 8/64), 3*8192*28672.
LAYER_70B, NORMS_70B, TABLE_70B = 150_994_944 + 704_643_072, 16_384, 1_050_673_152
#: Of GPT-3 175B, which Megatron pads to 51200 tokens: 4*12288*12288, 8*12288*12288; norms with biases.
LAYER_175B, NORMS_175B, TABLE_175B = 603_979_776 + 1_207_959_552, 49_152, 629_145_600

STATES = {
    "llama3-8b, tp 8, dp 8, distributed optimizer": Row(
        theirs=(Fraction(LAYER_8B * 32 + 2 * TABLE_8B, 8) + NORMS_8B * 32 + 4_096) * Fraction(15, 2),
        ours=("llama3-8b", "zero1(8) * tp(8) * sp", 0),
    ),
    "llama3-8b, tp 2, dp 4": Row(
        theirs=(Fraction(LAYER_8B * 32 + 2 * TABLE_8B, 2) + NORMS_8B * 32 + 4_096) * 18,
        ours=("llama3-8b", "ddp(4) * tp(2) * sp", 0),
    ),
    "llama3-70b, tp 8, pp 4, dp 4, distributed optimizer": Row(
        theirs=(Fraction(LAYER_70B * 20 + TABLE_70B, 8) + Fraction(NORMS_70B * 80 + 8_192, 4)) * 9,
        ours=("llama3-70b", "zero1(4) * tp(8) * sp * pp(4, microbatches=8)", 0),
        named={"a share of the last norm, which lies on the last stage": -Fraction(8_192, 4) * 9},
    ),
    "the same, the last stage, of which theirs is told as of the first": Row(
        theirs=(Fraction(LAYER_70B * 20 + TABLE_70B, 8) + Fraction(NORMS_70B * 80 + 8_192, 4)) * 9,
        ours=("llama3-70b", "zero1(4) * tp(8) * sp * pp(4, microbatches=8)", -1),
        named={"the other shares of the last norm": Fraction(8_192 * 3, 4) * 9},
    ),
    "mixtral-8x7b, ep 8, 16 devices, distributed optimizer": Row(
        theirs=(41_943_040 * 32 + 2 * 131_072_000 + (NORMS_8B + 32_768) * 32 + 4_096) * Fraction(27, 4)  # 6 + 12/16, router and all
        + 176_160_768 * 32 * 12,  # an expert of each layer, 6 + 12/2
        ours=("mixtral-8x7b", "zero1(2) * zero1(dp=ep) * ep(8)", 0),
    ),
    "gpt3-175b, tp 8, dp 8, distributed optimizer": Row(
        theirs=(Fraction(LAYER_175B * 96 + TABLE_175B, 8) + NORMS_175B * 96 + 24_576) * Fraction(15, 2),
        ours=("gpt3-175b", "zero1(8) * tp(8) * sp", 0),
        named={
            "biases of matrices, seven of nine hidden widths split": 96 * 12_288 * (Fraction(7, 8) + 2) * Fraction(15, 2),
            "the table of positions": 2_048 * 12_288 * Fraction(15, 2),
        },
    ),
}

# Megatron-LM, activations with sequence parallelism and selective recomputation: s*b*h*(18 + 4*f/h) a layer, in bytes.

ACTIVATIONS = {
    "GPT of 22B, tp 8": Row(
        theirs=Fraction(2_048 * 6_144 * 34 * 48 + 8 * 2_048 + 2_048 * 6_144 + 4 * 2_048 * 6_144 + 4 * 2_048 * 51_200, 8),
        ours=("korthikanti-22b", "tp(8) * sp", 0),
        named={
            "probabilities of the loss in two bytes, and not in four": -Fraction(2 * 2_048 * 51_200, 8),
            "tokens and targets of eight bytes each on every device, and not tokens alone shared out": 16 * 2_048 - 2_048,
            "where a token lies in the vocabulary, of one byte, and the loss": 2_048 + 2,
        },
    ),
}

# DeepSpeed: bytes of a device, with 70,000 million parameters, the largest unit of 1,000 million, on 8 devices of one machine.

P, U = 70_000 * MEGA, 1_000 * MEGA
WIDTHS = {"b_theta": 2, "b_g": 6, "b_omega": 12}  # gradients in 16 bits, and added up in 32 bits
FP32 = {"b_theta": 2, "b_g": 4, "b_omega": 12}
PLAIN = {"b_theta": 2, "b_g": 2, "b_omega": 12}

ESTIMATES = {
    "stage 2": Row(theirs=2 * P + 18 * P // 8, ours=("zero2(8)", "model_states", WIDTHS)),
    "stage 2, as mixed-adam counts it": Row(
        theirs=2 * P + 18 * P // 8,
        ours=("zero2(8)", "model_states", PLAIN),
        named={"no second copy of gradients in 32 bits": -Fraction(4 * P, 8)},
    ),
    "stage 2, the optimizer on the host": Row(theirs=2 * P, ours=("zero_offload(8)", "model_states", PLAIN)),
    "stage 2, the optimizer on the host, what the host needs for 4 devices": Row(
        theirs=Fraction(P * 16 * 3, 2), ours=("zero_offload(4)", "host_asked", PLAIN, 4)
    ),
    "the same for 8 devices": Row(
        theirs=Fraction(P * 32 * 3, 2),
        ours=("zero_offload(8)", "host_asked", PLAIN, 8),
        named={"as each of more than four processes begins with all parameters in 32 bits": -Fraction(P * 16 * 3, 2)},
    ),
    "stage 3": Row(
        theirs=18 * P // 8 + 4 * U,
        ours=("zero3(8)", "states_and_transient", FP32),
        named={"the largest unit is gathered in 16 bits, and not in 32": -2 * U},
    ),
    "stage 3, as mixed-adam counts it": Row(
        theirs=18 * P // 8 + 4 * U,
        ours=("zero3(8)", "states_and_transient", PLAIN),
        named={"the largest unit is gathered in 16 bits, and not in 32": -2 * U, "gradients in 16 bits": -Fraction(2 * P, 8)},
    ),
    "stage 3, all on the host": Row(
        theirs=4 * U,
        ours=("zero_infinity(8)", "states_and_transient", PLAIN),
        named={"the largest unit is gathered in 16 bits, and not in 32": -2 * U},
    ),
    "stage 3, all on the host, what the host needs": Row(theirs=Fraction(P * 18 * 3, 2), ours=("zero_infinity(8)", "host_asked", PLAIN, 8)),
}


@cache
def model_memory(model: str, strategy: str, recompute: str | None) -> Any:
    return placeproof.model(strategy, model, recompute=recompute, precision="megatron-bf16", b=1)


def of_model(model: str, strategy: str, stage: int, states: tuple[str, ...], recompute: str | None = None) -> Fraction:
    """Bytes of the states of a device of a stage."""
    memory = model_memory(model, strategy, recompute).data["stages"][stage]["memory"]
    return sum((Fraction(memory[state]["value"]) for state in states), Fraction(0))


def of_strategy(strategy: str, key: str, widths: dict[str, int], devices: int = 1) -> Fraction:
    """Bytes of a device, or of so many."""
    memory = placeproof.derive(strategy).memory
    parts = ("model_states", "transient") if key == "states_and_transient" else (key,)
    values = {"P": Fraction(P), "U": Fraction(U), **{name: Fraction(width) for name, width in widths.items()}}
    found = [evaluate(memory[part], values) for part in parts]
    assert None not in found
    return devices * sum((one for one in found if one is not None), Fraction(0))


@pytest.mark.parametrize("name", STATES)
def test_states_are_those_of_megatron(name: str) -> None:
    row = STATES[name]
    model, strategy, stage = row.ours
    assert of_model(model, strategy, stage, ("parameters", "gradients", "optimizer")) == row.theirs + sum(row.named.values())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_megatron(name: str) -> None:
    row = ACTIVATIONS[name]
    assert of_model(*row.ours, ("activations",), recompute="selective") == row.theirs + sum(row.named.values())


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_are_those_of_deepspeed(name: str) -> None:
    row = ESTIMATES[name]
    assert of_strategy(*row.ours) == row.theirs + sum(row.named.values())


def test_rows_are_equal_or_differ_by_what_is_named() -> None:
    """A row without names is equal; a name stands for more than a thousandth, or for what a formula leaves out."""
    rows = {**STATES, **ACTIVATIONS, **ESTIMATES}
    assert sum(not row.named for row in rows.values()) >= 6
    assert all(amount for row in rows.values() for amount in row.named.values())


def test_widths_are_those_of_precisions() -> None:
    for widths, name in ((PLAIN, "mixed-adam"), (FP32, "megatron-bf16")):
        assert {key: PRECISIONS[name].values()[key] for key in widths} == widths
