"""Files of NeMo Automodel: what each setting makes of the strategy, and what is refused or named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.importers import Imported, read_config
from placeproof.importers.imported import Role

CONFIGS = Path(__file__).parents[1] / "configs" / "automodel"
QWEN = "model: {{pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B, backend: {{attn: {}}}}}\n"
MINIMAX, GLM, NEMOTRON = (
    ("Qwen/Qwen3-30B-A3B", name) for name in ("MiniMaxAI/MiniMax-M3", "zai-org/GLM-5.2", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
)
LEAST = "step_scheduler: {global_batch_size: 32, local_batch_size: 2}\noptimizer: {_target_: torch.optim.AdamW}\n"


def read(distributed: str = "", more: str = "", world: int | None = 16) -> Imported:
    return read_config(f"{LEAST}distributed: {{{distributed}}}\n{more}", system="automodel", world=world)


@pytest.mark.parametrize(
    ("distributed", "expression"),
    [
        ("", "fsdp(dp=16, prefetch=true) * clip"),
        ("tp_size: 16", "tp(tp=16) * accumulate(microbatches=16) * clip"),
        ("cp_size: 16", "fsdp(dp=cp, prefetch=true) * accumulate(microbatches=16) * cp(cp=16, attention=gather) * clip"),
        ("reshard_after_forward: false", "fsdp(dp=16, reshard_after_forward=false) * clip"),
        ("strategy: ddp", "ddp(dp=16) * clip"),
        ("strategy: mfsdp, zero_dp_strategy: 1", "zero1(dp=16) * clip"),
        ("strategy: megatron_fsdp, tp_size: 2", "zero3(dp=8) * tp(tp=2) * accumulate(microbatches=2) * clip"),
        ("pp_size: 2, pipeline: {}", "fsdp(dp=8, reshard_after_forward=false) * pp(pp=2) * clip"),
        ("pp_size: 2, pipeline: {pp_schedule: GPipe}", "fsdp(dp=8, reshard_after_forward=false) * pp(pp=2, schedule=gpipe) * clip"),
        ("pp_size: 2, reshard_after_forward: true, pipeline: {}", "fsdp(dp=8, prefetch=true) * pp(pp=2) * clip"),
        ("ep_size: 4", "fsdp(dp=4, reshard_after_forward=false) * fsdp(dp=ep, reshard_after_forward=false) * ep(ep=4) * clip"),
        ("ep_size: 16, moe: {reshard_after_forward: true}", "fsdp(dp=1) * fsdp(dp=ep) * ep(ep=16) * clip"),
        (
            "ep_size: 4, cp_size: 2",
            "fsdp(dp=2, reshard_after_forward=false) * fsdp(dp=ep, reshard_after_forward=false) * fsdp(dp=cp, reshard_after_forward=false) "
            "* accumulate(microbatches=2) * ep(ep=4) * cp(cp=2) * clip",
        ),
        ("dp_replicate_size: 2, offload_policy: {a: 1}", "hsdp(rep=2, shard=8, prefetch=true) * clip"),
    ],
)  # fmt: skip
def test_settings_decide_the_strategy(distributed: str, expression: str) -> None:
    found = read(distributed)
    assert found.expression == expression
    found.strategy()


@pytest.mark.parametrize(
    ("distributed", "more", "code", "message"),
    [
        ("tp: 2", "", "PP502", "`tp` is no setting"),
        ("strategy: fsdp", "", "PP503", "`fsdp2`"),
        ("tp_size: 3", "", "PP504", "is not 16, the number of devices"),
        ("dp_size: 4", "", "PP504", "is not 16, the number of devices"),
        ("dp_replicate_size: 16", "", "PP504", "16 copies of shards"),
        ("strategy: ddp, cp_size: 2", "", "PP504", "no such degree beside `ddp`"),
        ("strategy: megatron_fsdp, pp_size: 2, pipeline: {}", "", "PP504", "no such degree beside `megatron_fsdp`"),
        ("pp_size: 2", "", "PP504", "no table `pipeline`"),
        ("pp_size: 4, pipeline: {}", "", "PP504", "2 micro-batches are fewer than 4 stages"),
        ("pp_size: 2, pipeline: {pp_schedule: 1f2b}", "", "PP503", "`1f2b` is no schedule"),
        ("pp_size: 2, pipeline: {pp_microbatch_size: 3}", "", "PP504", "cannot be cut into parts of 3"),
        ("ep_size: 8, tp_size: 4", "", "PP504", "no strategy says that"),
        ("ep_size: 2, dp_replicate_size: 2", "", "PP504", "beside copies of shards"),
        ("ep_size: 4, cp_size: 2", QWEN.format("sdpa"), "PP504", "stops at samples of a `qwen3_moe` that are split"),
        ("ep_size: 4, cp_size: 2", QWEN.format("te").replace(*GLM), "PP504", "stops at samples of a `glm_moe_dsa` that are split"),
        ("", "recipe: FinetuneRecipeForVLM\n", "PP504", "`FinetuneRecipeForVLM` is another program"),
        ("", "quantization: {load_in_4bit: true}\n", "PP504", "weights lie in few bits"),
        ("", "parallelizer: {_target_: a}\n", "PP504", "is how early versions say"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(distributed: str, more: str, code: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(distributed, more)
    assert any(d.code == code and message in d.message for d in refused.value.diagnostics), [d.message for d in refused.value.diagnostics]
    assert all(d.help for d in refused.value.diagnostics)


def test_what_makes_another_step_is_named() -> None:
    more = "qat: {enabled: true}\nneftune: {noise_alpha: 5}\nmodel: {backend: {fake_balanced_gate: true}}\nloss_fn: {_target_: a.KDLoss}\n"
    names = {reading.name for reading in read("ep_size: 2", more).another_step}
    assert names == {"qat.enabled", "neftune", "model.backend.fake_balanced_gate", "loss_fn._target_", "experts"}
    assert not read().another_step
    split = "ep_size: 4, cp_size: 2"
    owned = (QWEN.format(attention).replace(*model) for attention, model in (("sdpa", MINIMAX), ("tilelang", GLM), ("sdpa", NEMOTRON)))
    for others in ("", "model: {backend: {attn: sdpa}}\n", QWEN.format("magi"), *owned):
        assert {reading.name for reading in read(split, others).another_step} == {"distributed.cp_size", "experts"}
    for others in (QWEN.format("te"), QWEN.format("null"), QWEN.format("te").replace(*NEMOTRON)):
        assert {reading.name for reading in read(split, others).another_step} == {"experts"}


def test_keys_that_no_recipe_reads_are_of_no_matter() -> None:
    """Keys to which values refer, those that are switched off by an underscore, and `autocast`; others are no settings."""
    recipe = "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
    own = "_template: &template |-\n  {% x %}\ndataset: {chat_template: *template}\n_validation_dataset: {_target_: a.b, rows: [1]}\n"
    found = read("autocast_dtype: bfloat16", f"{recipe}{own}autocast: {{enabled: true, dtype: bfloat16}}\n")
    assert found.expression == read("", recipe).expression
    named = {"_template", "_validation_dataset", "autocast", "distributed.autocast_dtype"}
    (told,) = (r for r in found.readings if r.name in named and r.told)
    assert told.name == "autocast"
    assert {r.role for r in found.readings if r.name in named} == {Role.NO_MATTER}
    assert named <= {r.name for r in found.readings}
    (open_,) = (r for r in read("autocast_dtype: bfloat16").readings if r.name == "distributed.autocast_dtype")
    assert open_.role is Role.NOT_MODELLED
    with pytest.raises(InputError, match="`template` is no setting"):
        read("", own.replace("_template", "template"))


@pytest.mark.parametrize("empty", ["pipeline", "moe", "mp_policy"])
def test_a_table_of_which_nothing_is_said_is_none(empty: str) -> None:
    assert read(f"{empty}: null").expression == read().expression


@pytest.mark.parametrize("seed", range(6))
def test_corrupted_files_end_in_errors(seed: int, tmp_path: Path) -> None:
    """What is deleted or put in at random is read or refused: there is no other end."""
    rng = random.Random(seed)
    files = sorted(CONFIGS.rglob("*.yaml"))
    for _ in range(15):
        text = rng.choice(files).read_text(encoding="utf-8")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text = rng.choice((text[:at] + text[at + rng.randint(1, 30) :], text[:at] + rng.choice("0-:\n{[null.") + text[at:])) or "x"
        corrupted = tmp_path / "a.yaml"
        corrupted.write_text(text, encoding="utf-8")
        try:
            read_config(str(corrupted), system="automodel", world=rng.choice((None, 1, 8, 32)))
        except InputError as error:
            assert error.diagnostics
