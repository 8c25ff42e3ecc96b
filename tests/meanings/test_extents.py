"""Recomputation of some layers of a run, and of several from one input: against a walk over the layers of a run, one by one.

The walk is that of Megatron-LM's methods block and uniform (megatron/core/recompute.py): it keeps a list of what each layer has, and knows
nothing of formulas. What a layer keeps, and the input of one, are those of `none` and `full`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

import placeproof
from placeproof.core.diagnostics import InputError
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.derivation import derive_linked
from placeproof.importers import read_config
from placeproof.models import load
from placeproof.report.pictures.memory import stacks
from placeproof.semantics.linked import read_linked, render_linked
from placeproof.strategies import parse_strategy
from tests.helpers.samples import sample

VALUES = {name: Fraction(n) for name, n in {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2, "b": 1, "m": 8, "N": 4, "c": 1}.items()}


@lru_cache(maxsize=64)
def derived(model: str, strategy: str, recompute: str, layers: tuple[int, ...] | None = None) -> ModelDerivation:
    return derive_model(load(model), parse_strategy(strategy), recompute=recompute, layers=layers)


def number(d: ModelDerivation, amount: object) -> int:
    value = d.value(amount, VALUES)  # type: ignore[arg-type]
    assert value is not None
    assert value.denominator == 1
    return int(value)


class Layer(NamedTuple):
    """Bytes: all that backward reads, the input, and what the input alone does not give again (which experts a token took)."""

    whole: int
    input: int
    rest: int


def walked(layers: list[Layer], number: int, grouped: bool) -> tuple[int, int]:
    """What a run keeps until backward, and the most that backward has beyond that."""
    size = number if grouped else 1
    again = layers if grouped else layers[:number]
    groups = [again[i : i + size] for i in range(0, len(again), size)]
    plain = [] if grouped else layers[number:]
    alive = [group[0].input + sum(layer.rest for layer in group) for group in groups] + [layer.whole for layer in plain]
    kept = most = sum(alive)
    for _ in plain:
        alive.pop()
    for group in reversed(groups):
        alive[-1] = sum(layer.whole for layer in group)
        most = max(most, sum(alive))
        alive.pop()
    assert not alive
    return kept, most - kept


@lru_cache(maxsize=8)
def each_layer(model: str) -> dict[str, Layer]:
    """A layer of each kind, in the order of the model."""
    none, full = derived(model, "ddp", "none"), derived(model, "ddp", "full")
    layers = {}
    for kind in (p.name for p in full.parts if p.repeats):
        whole = sum(number(none, h.row.bytes) for h in none.costs[0].held if h.part == kind)
        kept = {h.row.stored.block == "input": number(full, h.row.bytes) for h in full.costs[0].held if h.part == kind}
        layers[kind] = Layer(whole=whole, input=kept[True], rest=kept.get(False, 0))
    return layers


CASES = [
    (number, grouped, pp, layers)
    for number in (1, 2, 3, 5, 8, 40)
    for grouped in (False, True)
    for pp, layers in ((4, None), (4, (9, 8, 8, 7)), (2, (32, 0)))
    if not (grouped and number == 1)
]


@pytest.mark.parametrize(("layers", "grouped", "pp", "stages"), sample(CASES, lambda case: {case[:2], case[3]}))
def test_a_run_keeps_and_replays_what_a_walk_over_its_layers_does(
    layers: int, grouped: bool, pp: int, stages: tuple[int, ...] | None
) -> None:
    ((kind, each),) = each_layer("llama3-8b").items()
    d, none = (derived("llama3-8b", f"pp({pp})", how, stages) for how in (f"full{'/' if grouped else ':'}{layers}", "none"))
    full = derived("llama3-8b", f"pp({pp})", "full", stages)
    for i, (cost, whole, again) in enumerate(zip(d.costs, none.costs, full.costs, strict=True)):
        count = (stages or (8,) * 4)[i]
        kept, beyond = walked([each] * count, layers, grouped)
        ends = number(none, whole.kept) - count * each.whole
        assert number(d, cost.kept) == kept + ends
        assert number(d, cost.activations) == number(none, whole.in_flight) * (kept + ends)
        assert number(d, cost.working) == beyond
        through = ends if i == pp - 1 else 0  # the head is through before a layer is computed again, the embedding comes last
        assert number(d, cost.peak) == number(none, whole.model_states) + number(d, cost.activations) + max(0, beyond - through)
        done, kernels = number(full, again.flops.again), number(none, whole.flops.again)  # fused attention computes scores again anyway
        recomputed = count if grouped else min(count, layers)
        assert number(d, cost.flops.again) * (count or 1) == done * recomputed + kernels * (count - recomputed)
        assert {t: number(d, n) for t, n in cost.parameters.items()} == {t: number(none, n) for t, n in whole.parameters.items()}
        assert kind == "layers"


@pytest.mark.parametrize(
    ("recompute", "numbers", "strategy", "stages"),
    [
        ("full:3,9x2,0", (3, 8, 8, 0), "pp(4)", (9, 8, 8, 7)),
        ("full:0,2x2,5", (0, 2, 2, 5), "pp(2, schedule=interleaved, chunks=2)", (8, 8, 8, 8)),
    ],
)
def test_each_stage_has_a_number_of_its_own(recompute: str, numbers: tuple[int, ...], strategy: str, stages: tuple[int, ...]) -> None:
    """By a walk over the layers of each stage. A device with two runs of layers has two stages of the model."""
    ((_, each),) = each_layer("llama3-8b").items()
    d, none, full = (derived("llama3-8b", strategy, how, stages) for how in (recompute, "none", "full"))
    devices = len(d.costs)
    for i, (cost, whole, again) in enumerate(zip(d.costs, none.costs, full.costs, strict=True)):
        own = range(i, 4, devices)
        kept = sum(walked([each] * stages[n], numbers[n], False)[0] for n in own)
        count, computed = sum(stages[n] for n in own), sum(numbers[n] for n in own)
        assert number(d, cost.kept) - kept == number(none, whole.kept) - count * each.whole
        done, kernels = number(full, again.flops.again), number(none, whole.flops.again)
        assert number(d, cost.flops.again) * count == done * computed + kernels * (count - computed)
        assert number(d, cost.working) == max(walked([each] * stages[n], numbers[n], False)[1] for n in own)
    text = render_linked(d.linked)
    assert f'recompute("{recompute}")' in text
    assert derive_linked(read_linked(text)).forms == d.forms


@pytest.mark.parametrize("strategy", ["ddp", "pp", "pp(2)"])
def test_numbers_of_other_stages_are_refused(strategy: str) -> None:
    with pytest.raises(InputError, match="each of 4 stages computes again are given"):
        derived("llama3-8b", strategy, "full:3,1,1,0")


@pytest.mark.parametrize("recompute", ["full:4", "full/4", "full/3"])
def test_layers_of_several_kinds_are_recomputed_in_their_order(recompute: str) -> None:
    """DeepSeek-V3 has dense layers before those with experts."""
    model, (number_of, grouped) = "deepseek-v3", (int(recompute[5:]), recompute[4] == "/")
    shape = load(model)
    layers = [each for name, each in each_layer(model).items() for _ in range(shape.times(shape.sizes)[name])]
    cost = derived(model, "ddp", recompute).costs[0]
    whole = derived(model, "ddp", "none").costs[0]
    kept, beyond = walked(layers, number_of, grouped)
    assert (
        number(derived(model, "ddp", "none"), whole.kept) - sum(layer.whole for layer in layers)
        == number(derived(model, "ddp", recompute), cost.kept) - kept
    )
    assert number(derived(model, "ddp", recompute), cost.working) == beyond


@pytest.mark.parametrize("recompute", ["full:3", "full:9", "full/4", "full/9"])
@pytest.mark.parametrize(("open_", "fixed"), [("pp", "pp(4)"), ("pp(schedule=zb-v)", "pp(4, schedule=zb-v)")])
def test_symbols_and_numbers_agree(open_: str, fixed: str, recompute: str) -> None:
    some, told = derived("llama3-8b", open_, recompute), derived("llama3-8b", fixed, recompute)
    for key in ("kept", "working"):
        assert number(some, getattr(some.costs[0], key)) == number(told, getattr(told.costs[0], key)), key
    assert number(some, some.costs[0].flops.again) == number(told, told.costs[0].flops.again)


def test_each_run_of_a_device_has_its_own_first_layers() -> None:
    """With two runs of 4 layers on each of 4 devices, the first 3 of each are recomputed: 6 of 8."""
    strategy = "pp(4, schedule=interleaved, chunks=2)"
    some, full, none = (derived("llama3-8b", strategy, how) for how in ("full:3", "full", "none"))
    for mine, every, kernels in zip(some.costs, full.costs, none.costs, strict=True):
        assert number(some, mine.flops.again) * 4 == number(full, every.flops.again) * 3 + number(none, kernels.flops.again)
        assert number(some, mine.working) == 0


def test_a_program_says_it() -> None:
    d = derived("llama3-8b", "checkpoint * pp(4)", "full/3")
    text = render_linked(d.linked)
    assert 'recompute("full/3")' in text
    assert derive_linked(read_linked(text)).forms == d.forms
    for wrong in ('"full/0"', '"some"', "full / 3"):
        with pytest.raises(InputError):
            derive_linked(read_linked(text.replace('"full/3"', wrong)))


@pytest.mark.parametrize(
    ("recompute", "message"),
    [
        ("full:0", "no number of layers"),
        ("full:0,0", "no number of layers"),
        ("full:1,", "no number"),
        ("full/3,1", "no recomputation"),
        ("full:", "no recomputation"),
        ("full:2+full/3", "twice"),
        ("full:2+norms", "cannot go with it"),
    ],
)
def test_what_cannot_be_is_refused(recompute: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        derived("llama3-8b", "ddp", recompute)


@pytest.mark.parametrize("strategy", ["checkpoint(checkpoints=host)", "tp * zero_r"])
def test_inputs_that_lie_elsewhere_are_refused(strategy: str) -> None:
    with pytest.raises(InputError, match="puts the input of each layer elsewhere"):
        derived("llama3-8b", strategy, "full:3")
    derived("llama3-8b", strategy, "full/1")


@pytest.mark.parametrize(
    ("arguments", "recompute"),
    [
        ("--recompute-method block --recompute-num-layers 3", "full:3"),
        ("--recompute-method block --recompute-num-layers 8", None),
        ("--recompute-method uniform --recompute-num-layers 2", "full/2"),
        ("--recompute-method uniform --recompute-num-layers 1", None),
        ("--recompute-method uniform --recompute-num-layers 2 --tensor-model-parallel-size 2 --distribute-saved-activations", None),
    ],
)
def test_megatron_says_which_layers(arguments: str, recompute: str | None) -> None:
    sizes = "--num-layers 32 --pipeline-model-parallel-size 4 --recompute-granularity full"
    read = read_config(f"{sizes} {arguments}", system="megatron", world=8)
    assert read.recompute == recompute
    assert "checkpoint" in read.expression or "zero_r" in read.expression


@pytest.mark.parametrize(
    ("method", "number", "recompute"), [("uniform", 1, None), ("uniform", 3, "full/3"), ("block", 1, "full:1"), ("block", 2, "full:2")]
)
def test_accelerate_says_which_layers(method: str, number: int, recompute: str | None) -> None:
    text = (Path(__file__).parents[1] / "configs" / "accelerate" / "made_megatron_full.yaml").read_text(encoding="utf-8")
    said = text.replace("recompute_method: uniform", f"recompute_method: {method}")
    read = read_config(said.replace("recompute_num_layers: 1", f"recompute_num_layers: {number}"), system="accelerate")
    assert read.recompute == recompute
    assert "checkpoint" in read.expression
    assert any(r.told and "with a model" in r.note for r in read.readings) == (recompute is not None)


def test_what_a_configuration_says_is_used_unless_something_else_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    recompute = "--recompute-granularity full --recompute-method block --recompute-num-layers 3"
    sizes = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 8192 --max-position-embeddings 8192"
    batch = "--micro-batch-size 1 --global-batch-size 8 --pipeline-model-parallel-size 4"
    script.write_text(f"torchrun --nproc_per_node 4 pretrain_gpt.py {sizes} {batch} {recompute}\n", encoding="utf-8")
    assert placeproof.model(str(script), "llama3-8b").recompute == "full:3"
    assert placeproof.model(str(script), "llama3-8b", recompute="full").recompute == "full"


#: Vocabularies of llama3-8b with which a layer that is computed again decides, and with which the head does.
VOCABULARIES = (32_000, 256_000)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(("strategy", "late"), [("ddp", False), ("pp(4)", False), ("pp(4, schedule=zb-h1)", True)])
def test_the_head_is_gone_before_a_layer_is_computed_again(strategy: str, late: bool, vocabulary: int) -> None:
    """By hand, of one micro-batch of 8192 tokens: the head keeps its logits, the stream before and behind its norm, the targets of 8 bytes
    and how many there are. Where gradients of weights come later, what the norm gave and the logits stay for these."""
    model = load("llama3-8b").resized({"V": vocabulary})
    d = derive_model(model, parse_strategy(strategy), recompute="full")
    cost = d.costs[-1]
    logits, stream = 8192 * vocabulary * 2, 8192 * 4096 * 2
    gone = logits + 2 * stream + 8 * 8192 + 2 - (logits + stream if late else 0)
    again, states = number(d, cost.working), number(d, cost.model_states)
    assert again > 2 * stream
    assert number(d, cost.peak) - states == number(d, cost.activations) + max(0, again - gone)
    assert late or (gone > again) == (vocabulary == VOCABULARIES[1])
    for other in d.costs[:-1]:  # no head there
        assert number(d, other.peak) == number(d, other.model_states) + number(d, other.activations) + number(d, other.working)
    bars = stacks(d, VALUES)
    assert [sum(bar.parts) for bar in bars] == [number(d, one.peak) for one in d.costs]
    assert (bars[-1].parts[-1] > 0) == (again > gone)


@pytest.mark.parametrize("strategy", ["pp(4, schedule=interleaved, chunks=2)", "pp(schedule=zb-v)", "pp(schedule=interleaved, chunks=2)"])
def test_of_several_runs_nothing_is_gone(strategy: str) -> None:
    """A layer of another run may be computed again while the head's activations of a micro-batch are there."""
    d = derived("llama3-8b", strategy, "full")
    for cost in d.costs:
        assert number(d, cost.working) > 0
        assert cost.peak == cost.model_states + cost.activations + cost.transient + cost.working
