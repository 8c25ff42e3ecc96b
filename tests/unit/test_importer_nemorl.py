"""Files of NeMo RL: what each setting makes of the policy's step, the files that they are laid over, and what is refused or named."""

from __future__ import annotations

import random
from operator import add, mul, truediv
from pathlib import Path
from typing import Any

import pytest
import yaml

from placeproof.core.diagnostics import InputError, Problems
from placeproof.importers import Imported, Role, read_config
from placeproof.importers.document import read_document
from placeproof.importers.omegaconf import followed

CONFIGS = Path(__file__).parents[1] / "configs" / "nemorl"
FSDP, MEGATRON, APART = "policy.dtensor_cfg.", "policy.megatron_cfg.", "policy.generation.colocated."
#: Megatron-LM in the place of FSDP 2.
BY_MEGATRON = {FSDP + "enabled": False, MEGATRON + "enabled": True}
PLAIN = {FSDP + "tensor_parallel_size": 1, FSDP + "sequence_parallel": False, FSDP + "activation_checkpointing": False}
SPREAD = {**PLAIN, FSDP + "expert_parallel_size": 2, FSDP + "context_parallel_size": 2}
ON_HOST = {
    **BY_MEGATRON,
    MEGATRON + "optimizer.use_precision_aware_optimizer": True,
    MEGATRON + "optimizer.optimizer_cpu_offload": True,
    MEGATRON + "optimizer.optimizer_offload_fraction": 0.5,
}
EXPERTS = {**BY_MEGATRON, MEGATRON + "pipeline_model_parallel_size": 1, MEGATRON + "expert_model_parallel_size": 4}


def text(said: dict[str, Any], base: str = "made_grpo", without: tuple[str, ...] = ()) -> str:
    """A file with some settings said otherwise, or taken away."""
    data = yaml.safe_load((CONFIGS / f"{base}.yaml").read_text(encoding="utf-8"))
    for name in (*said, *without):
        *tables, last = name.split(".")
        table = data
        for one in tables:
            table = table.setdefault(one, {})
        if name in without:
            del table[last]
        else:
            table[last] = said[name]
    return yaml.safe_dump(data, sort_keys=False)


def read(said: dict[str, Any], world: int | None = None, base: str = "made_grpo") -> Imported:
    return read_config(text(said, base), system="nemorl", world=world)


def refused(said: dict[str, Any], world: int | None = None, base: str = "made_grpo", without: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(InputError) as error:
        read_config(text(said, base, without), system="nemorl", world=world)
    assert all(problem.help and problem.place for problem in error.value.diagnostics)
    return [problem.message for problem in error.value.diagnostics]


@pytest.mark.parametrize(
    ("said", "world", "expression"),
    [
        ({}, 32, "fsdp(dp=16, prefetch=true) * tp(tp=2) * sp(tp=2) * checkpoint * accumulate(microbatches=2) * clip"),
        ({}, 2, "tp(tp=2) * sp(tp=2) * checkpoint * accumulate(microbatches=32) * clip"),
        (PLAIN, 1, "ddp(dp=1) * accumulate(microbatches=32) * clip"),
        ({**PLAIN, "policy.max_grad_norm": None}, 32, "fsdp(dp=32, prefetch=true)"),
        ({**PLAIN, "policy.max_grad_norm": 0}, 32, "fsdp(dp=32, prefetch=true) * clip"),
        ({**PLAIN, FSDP + "cpu_offload": True}, 32, "zero_infinity(dp=32) * clip"),
        ({**PLAIN, FSDP + "dp_replicate_size": 4}, 32, "hsdp(rep=4, shard=8, prefetch=true) * clip"),
        ({**PLAIN, FSDP + "dp_replicate_size": 4, FSDP + "cpu_offload": True}, 32, "hsdp(rep=4, shard=8, prefetch=true) * clip"),
        ({**PLAIN, FSDP + "context_parallel_size": 32}, 32,
         "fsdp(dp=cp, prefetch=true) * accumulate(microbatches=32) * cp(cp=32, attention=gather) * clip"),
        ({**PLAIN, "policy.sequence_packing.enabled": True}, 32, "fsdp(dp=32, prefetch=true) * accumulate * clip"),
        ({**PLAIN, FSDP + "expert_parallel_size": 8}, 32,
         "fsdp(dp=4, reshard_after_forward=false) * fsdp(dp=ep, reshard_after_forward=false) * ep(ep=8) * clip"),
        ({**PLAIN, FSDP + "expert_parallel_size": 8, FSDP + "_v2": False}, 32, "fsdp(dp=32, prefetch=true) * clip"),
        ({**PLAIN, FSDP + "lora_cfg.enabled": True}, 32, "fsdp(dp=32, prefetch=true) * lora(rank=8) * clip"),
        (BY_MEGATRON, 32, "zero1(dp=8) * tp(tp=2) * sp(tp=2) * pp(pp=2, microbatches=4) * clip"),
        ({**BY_MEGATRON, MEGATRON + "optimizer.clip_grad": 0.0}, 32, "zero1(dp=8) * tp(tp=2) * sp(tp=2) * pp(pp=2, microbatches=4)"),
        ({**BY_MEGATRON, MEGATRON + "optimizer.use_distributed_optimizer": False}, 4,
         "tp(tp=2) * sp(tp=2) * pp(pp=2, microbatches=32) * clip"),
        ({**BY_MEGATRON, "policy.sequence_packing.enabled": True}, 32, "zero1(dp=8) * tp(tp=2) * sp(tp=2) * pp(pp=2) * clip"),
        ({**BY_MEGATRON, MEGATRON + "peft": {"enabled": True, "dim": 8, "target_modules": ["linear_qkv", "linear_proj"]}}, 32,
         "zero1(dp=8) * tp(tp=2) * sp(tp=2) * pp(pp=2, microbatches=4) * clip * lora(rank=8, targets=attention)"),
        ({**BY_MEGATRON, MEGATRON + "tensor_model_parallel_size": 1}, 32, "zero1(dp=16) * pp(pp=2, microbatches=2) * clip"),
        (EXPERTS, 32,
         "zero1(dp=8) * zero1(dp=ep) * tp(tp=2) * sp(tp=2) * accumulate(microbatches=2) * ep(ep=2) * ep(ep=tp) * clip"),
        ({**EXPERTS, MEGATRON + "expert_tensor_parallel_size": 2}, 32,
         "zero1(dp=4) * zero1(dp=ep) * tp(tp=2) * sp(tp=2) * accumulate(microbatches=2) * ep(ep=4) * clip"),
        ({**EXPERTS, MEGATRON + "tensor_model_parallel_size": 4, MEGATRON + "expert_tensor_parallel_size": 2}, 32,
         "zero1(dp=4) * zero1(dp=ep) * tp(2, tp=etp) * tp(tp=2) * sp(2, tp=etp) * sp(tp=2) * accumulate(microbatches=4) * ep(ep=2) * "
         "ep(ep=tp) * clip"),
    ],
)  # fmt: skip
def test_settings_decide_the_strategy(said: dict[str, Any], world: int, expression: str) -> None:
    found = read(said, world)
    assert found.expression == expression
    found.strategy()


@pytest.mark.parametrize(
    ("said", "world", "message"),
    [
        ({MEGATRON + "enabled": True}, None, "Megatron-LM and FSDP 2 are both said"),
        ({FSDP + "enabled": False}, None, "nothing is said to run the model"),
        ({FSDP + "tensor_parallel_size": 3}, None, "16 devices that train are no multiple of 3 * 1"),
        ({}, 5, "5 devices that train are no multiple of 2 * 1"),
        ({"policy.train_global_batch_size": 12, "grpo.num_prompts_per_step": 12}, None, "12 samples of a step are no multiple of 8"),
        ({"policy.train_micro_batch_size": 3}, None, "8 samples of a device cannot be cut into micro-batches of 3"),
        ({"policy.train_global_batch_size": 256}, None, "128 samples of a batch"),
        ({"loss_fn.force_on_policy_ratio": True}, None, "steps of all 128 samples"),
        ({"policy.sequence_packing.enabled": True, "policy.dynamic_batching.enabled": True}, None, "packed and batched by their length"),
        ({FSDP + "context_parallel_size": 2}, None, "stops at `sequence_parallel` beside samples"),
        ({**PLAIN, FSDP + "context_parallel_size": 2, "policy.sequence_packing.enabled": True}, None, "stops at packed samples"),
        ({**PLAIN, FSDP + "_v2": False, FSDP + "dp_replicate_size": 2}, None, "NeMo Automodel's"),
        ({**PLAIN, FSDP + "_v2": False, FSDP + "lora_cfg.enabled": True}, None, "NeMo Automodel's"),
        ({FSDP + "lora_cfg.enabled": True}, None, "adapters beside matrices"),
        ({FSDP + "lora_cfg.enabled": True, FSDP + "lora_cfg.use_triton": True}, None, "these kernels where matrices are split"),
        ({**PLAIN, FSDP + "dp_replicate_size": 16}, None, "16 copies of shards over 16"),
        ({**PLAIN, FSDP + "dp_replicate_size": 2, FSDP + "expert_parallel_size": 2}, None, "beside copies of shards"),
        ({**PLAIN, FSDP + "expert_parallel_size": 3}, None, "3 devices that share experts do not divide 16"),
        ({FSDP + "expert_parallel_size": 2}, None, "beside tensor parallelism"),
        ({**SPREAD, FSDP + "automodel_kwargs.backend.attn": "sdpa"}, None, "another attention than Transformer Engine's is said"),
        ({**PLAIN, FSDP + "context_parallel_size": 2, "policy.model_name": "google/gemma-3-4b-it"}, None, "samples of a `gemma3`"),
        ({"policy": None}, None, "`policy` says nothing"),
        ({"cluster": None}, None, "`cluster` says nothing"),
        ({**PLAIN, FSDP + "cpu_offload": True}, 1, "host memory on one device"),
        ({FSDP + "automodel_kwargs.freeze_config.freeze_vision_tower": True}, None, "`freeze_vision_tower`: a part of the model"),
        ({"policy.hf_config_overrides.rope_scaling": {"rope_type": "yarn"}}, None, "stops at YaRN"),
        ({"policy.draft.enabled": True}, None, "drafts under Megatron-LM alone"),
        ({**BY_MEGATRON, MEGATRON + "peft.enabled": True}, None, "asks for the rank of adapters"),
        ({**EXPERTS, MEGATRON + "peft": {"enabled": True, "dim": 8}}, 32, "experts of a device share an adapter"),
        ({**BY_MEGATRON, MEGATRON + "freeze_config.freeze_vision_model": True}, None, "`freeze_config`: a part of the model"),
        ({**BY_MEGATRON, MEGATRON + "freeze_sound_encoder": True}, None, "`freeze_sound_encoder`: a part of the model"),
        ({**BY_MEGATRON, MEGATRON + "context_parallel_size": 2}, None, "have to be packed"),
        ({**BY_MEGATRON, "policy.dynamic_batching.enabled": True}, None, "stages beside batches by length"),
        ({**BY_MEGATRON, MEGATRON + "use_fused_linear_logprobs": True}, None, "are gathered beside the computation"),
        ({**BY_MEGATRON, "policy.logprob_chunk_size": 64}, None, "only where logits become 32 bits wide late"),
        ({**BY_MEGATRON, MEGATRON + "optimizer.clip_grad": None}, None, "no limit of the norm"),
        ({**ON_HOST, MEGATRON + "optimizer.optimizer_offload_fraction": 0.0}, None, "a part of the weights above 0"),
        ({**ON_HOST, MEGATRON + "optimizer.use_distributed_optimizer": False}, None, "whose state is whole on each device"),
        ({**ON_HOST, MEGATRON + "optimizer.optimizer": "muon"}, None, "has no such update on the host"),
        ({**BY_MEGATRON, MEGATRON + "optimizer.overlap_cpu_optimizer_d2h_h2d": True}, None, "where no update is there"),
        ({**BY_MEGATRON, "policy.precision": "float32"}, None, "the update is told that weights have 16 bits"),
        ({**BY_MEGATRON, MEGATRON + "optimizer.use_precision_aware_optimizer": True, MEGATRON + "optimizer.bf16": False}, None, "not told"),
        ({**BY_MEGATRON, MEGATRON + "optimizer.momentun": 1}, None, "`momentun` is no setting of Megatron-LM"),
        ({**BY_MEGATRON, MEGATRON + "model_overrides": {"a": 1}}, None, "`a` is no setting of Megatron-LM"),
        ({**BY_MEGATRON, MEGATRON + "model_overrides": {"sequence_parallel": True}}, None, "`sequence_parallel` has a place of its own"),
        ({**EXPERTS, MEGATRON + "expert_tensor_parallel_size": 4}, 32, "experts are split over 4 devices"),
        ({"teachers": [{}]}, None, "from other tokenizers"),
        ({"on_policy_distillation": {"enabled": True, "non_colocated_teachers": {"enabled": True}}}, None, "teachers have devices"),
        ({APART + "enabled": False}, None, "NeMo RL asks for the machines that generate"),
        ({APART + "enabled": False, "cluster.num_nodes": 1}, None, "the devices of it that generate"),
        ({APART + "enabled": False, APART + "resources.num_nodes": 2, APART + "resources.gpus_per_node": 8}, None, "no devices are left"),
        ({"sft.max_num_steps": 1}, None, "`grpo` and `sft`: which program"),
        ({"grpo": None}, None, "none of `grpo`, "),
    ],
)  # fmt: skip
def test_what_nemo_rl_or_no_strategy_runs_is_refused(said: dict[str, Any], world: int | None, message: str) -> None:
    found = refused(said, world)
    assert any(message in one for one in found), found


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({APART + "resources.num_nodes": 1, APART + "resources.gpus_per_node": 8, "cluster.num_nodes": 3}, 16),
        ({APART + "resources.gpus_per_node": 4, "cluster.num_nodes": 1}, 4),
        ({APART + "enabled": True, "data.default.env_name": "reward_model", "cluster.num_nodes": 1}, 6),
        ({APART + "enabled": True, "data.default.env_name": "reward_model", "cluster.num_nodes": 3}, 16),
        ({APART + "enabled": True, "data.default.env_name": "math", "cluster.num_nodes": 3}, 24),
        ({APART + "enabled": True, "on_policy_distillation": {"enabled": True}, "env.nemo_gym.num_gpu_nodes": 5}, 16),
        ({APART + "resources.gpus_per_node": 8, APART + "resources.num_nodes": 2, "cluster.num_nodes": 4, "data.train": [
            {"env_name": "reward_model"}]}, 8),
    ],
)  # fmt: skip
def test_devices_that_generate_or_reward_do_not_train(said: dict[str, Any], size: int) -> None:
    more = {APART + "enabled": False, "env.reward_model.resources.num_nodes": 1, "env.reward_model.resources.gpus_per_node": 2}
    fits = {"policy.train_global_batch_size": 24 * 8, "policy.train_micro_batch_size": 1, "grpo.num_prompts_per_step": 24}
    found = read({**PLAIN, **more, **fits, **said})
    assert found.expression.startswith(f"fsdp(dp={size}, ")


def test_samples_of_pairs_count_twice() -> None:
    plain = read({}, base="made_sft")
    pairs = read_config(text({"dpo": {"seed": 1}}, "made_sft", ("sft",)), system="nemorl")
    assert (plain.numbers["b"], pairs.numbers["b"]) == (1, 2)
    assert plain.expression == pairs.expression
    assert refused({"dpo": {"seed": 1}, "policy.sequence_packing.enabled": True}, None, "made_sft", ("sft",))


def test_what_makes_another_step_is_named() -> None:
    """Of a model that is known to have no experts nothing is named for them."""
    more = {"policy.quant_cfg": "NVFP4", "async_rl": {}, "policy.optimizer.name": "a.b.Muon", "loss_fn.positive_example_nll_weight": 0.1}
    assert {one.name for one in read(more).another_step} == set(more)
    masks = {"policy.hf_config_overrides": {"text_config": {"attention_dropout": 0.1, "router_aux_loss_coef": 0.0}}}
    assert {one.name for one in read(masks).another_step} == {"policy.hf_config_overrides.text_config.attention_dropout"}
    experts = {**BY_MEGATRON, MEGATRON + "moe_router_load_balancing_type": "aux_loss", MEGATRON + "moe_router_bias_update_rate": 0.1}
    names = {MEGATRON + name for name in ("freeze_moe_router", "moe_router_load_balancing_type", "moe_router_bias_update_rate")}
    for model in ("a/b", "/models/Qwen3-8B"):
        assert {one.name for one in read({**experts, "policy.model_name": model}).another_step} == names
    for model in ("Qwen/Qwen3-8B", "Qwen/Qwen2.5-VL-7B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"):
        assert not read({**experts, "policy.model_name": model}).another_step
    whole = {MEGATRON + "tensor_model_parallel_size": 1}
    for said in ({"policy.model_name": "a/b", MEGATRON + "expert_model_parallel_size": 2}, {"policy.model_name": "Qwen/Qwen3.5-35B-A3B"}):
        assert {one.name for one in read({**experts, **said}).another_step} == names
        more = {**whole, **said}
        routed = read({**experts, **more})
        assert routed.expression.endswith(" * freeze(parts=router)")
        assert {one.name for one in routed.another_step} == names - {MEGATRON + "freeze_moe_router"}
        assert "freeze" not in read({**experts, **more, MEGATRON + "freeze_moe_router": False}).expression
    assert {one.name for one in read({**PLAIN, FSDP + "expert_parallel_size": 2}).another_step} == {"experts"}
    frozen = {**BY_MEGATRON, "policy.model_name": "a/b", MEGATRON + "peft": {"enabled": True, "dim": 8, "dropout": 0.1}}
    assert {one.name for one in read(frozen).another_step} == {MEGATRON + "peft.dropout"}
    attention, mamba = FSDP + "automodel_kwargs.backend.attn", {"policy.model_name": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"}
    for said in ({"policy.model_name": "a/b"}, mamba, {**mamba, attention: "sdpa"}):
        assert {one.name for one in read({**SPREAD, **said}).another_step} == {FSDP + "context_parallel_size", "experts"}
    for said in ({"policy.model_name": "Qwen/Qwen3-30B-A3B"}, {**mamba, attention: "te"}, {"policy.model_name": "a/b", attention: "te"}):
        assert {one.name for one in read({**SPREAD, **said}).another_step} == {"experts"}
    assert refused({**SPREAD, **mamba, attention: "flex"})


def test_what_it_does_not_know_is_passed_over_and_named() -> None:
    found = read({"policy.activation_checkpointing_enabled": True, FSDP + "fsdp_size": 1, "policy.train_global_batch_size": "64"})
    assert {one.name for one in found.of(Role.UNKNOWN)} == {"policy.activation_checkpointing_enabled", FSDP + "fsdp_size"}
    assert found.numbers["m"] == 4


@pytest.mark.parametrize(
    ("said", "table", "why"), [({}, MEGATRON, "FSDP 2 runs the model"), (BY_MEGATRON, FSDP, "Megatron-LM runs the model")]
)
def test_what_does_not_run_the_model_is_not_judged(said: dict[str, Any], table: str, why: str) -> None:
    """Whatever its settings are, each is told to be of no matter; where it runs the model, they are judged."""
    wrong = {table + "tensor_parallel_size": "x", table + "tensor_model_parallel_size": -1, table + "lora_cfg": 3, table + "mine": {"a": 1}}
    found = read({**said, **wrong})
    assert found.expression == read(said).expression
    named = {one.name: one.note for one in found.of(Role.NO_MATTER) if one.name.startswith(table)}
    assert {named[name] for name in (*wrong, table + "mine.a") if name != table + "mine"} == {why}
    assert not [one for one in found.of(Role.UNKNOWN) if one.name.startswith(table)]
    assert refused({**(BY_MEGATRON if table == MEGATRON else {}), **wrong})


def test_own_settings_that_others_refer_to_are_known() -> None:
    own = {"degrees": {"tp": 4, "more": 1}, "mine": 2, "typo": 3, FSDP + "tensor_parallel_size": "${degrees.tp}"}
    found = read({**own, "policy.train_micro_batch_size": "${add:${mine},2}"})
    assert ("tp(tp=4)" in found.expression, found.numbers["b"]) == (True, 4)
    assert {one.name for one in found.of(Role.UNKNOWN)} == {"typo"}


def test_what_megatron_reads_is_told_by_its_own_name_and_value() -> None:
    """Also why the widths are open, where an update keeps less than any named precision."""
    said = {
        **BY_MEGATRON,
        MEGATRON + "activation_checkpointing": True,
        MEGATRON + "recompute_granularity": "selective",
        MEGATRON + "recompute_modules": ["core_attn"],
    }
    values = {one.name: one.value for one in read(said).readings}
    assert (values[MEGATRON + "activation_checkpointing"], values[MEGATRON + "recompute_granularity"]) == (True, "selective")
    assert values[MEGATRON + "distributed_data_parallel_config.grad_reduce_in_fp32"] is False
    aware = read({**BY_MEGATRON, MEGATRON + "optimizer.use_precision_aware_optimizer": True})
    assert aware.precision is None
    assert [one.name for one in aware.readings if one.told and "has no name here" in one.note] == [
        MEGATRON + "optimizer.use_precision_aware_optimizer"
    ]
    assert not [one for one in read(BY_MEGATRON).readings if "has no name here" in one.note]


def test_the_limit_of_megatron_is_told_where_it_is_not_said() -> None:
    found = read_config(text(BY_MEGATRON, without=(MEGATRON + "optimizer.clip_grad",)), system="nemorl")
    assert found.expression == read(BY_MEGATRON).expression
    assert [one.note for one in found.readings if one.name == MEGATRON + "optimizer.clip_grad"] == ["not said; the default"]


def test_a_batch_that_is_not_said_has_32_prompts_of_16_samples() -> None:
    least = {"grpo": {"seed": 1}, "policy.train_global_batch_size": 512}
    assert read(least).numbers["m"] == 32
    assert any("512 samples of a batch" in one for one in refused({**least, "policy.train_global_batch_size": 384}))


@pytest.mark.parametrize("name", ["policy.precision", FSDP + "cpu_offload", APART + "enabled", "cluster.num_nodes", "policy.optimizer"])
def test_what_it_asks_for_and_is_not_said_is_refused(name: str) -> None:
    (message,) = refused({}, without=(name,))
    assert name in message


def laid(tmp_path: Path, **files: str) -> Imported:
    for name, body in files.items():
        (tmp_path / f"{name}.yaml").write_text(body, encoding="utf-8")
    return read_config(str(tmp_path / "mine.yaml"), system="nemorl")


def test_a_file_is_laid_over_those_that_it_names(tmp_path: Path) -> None:
    """What is said last holds; an outermost table can stand alone; a place is that of the file that says it."""
    base = text({"policy.dtensor_cfg.tensor_parallel_size": 4})
    second = "policy: {train_micro_batch_size: 4, dtensor_cfg: {tensor_parallel_size: 8}}\n"
    found = laid(tmp_path, base=base, second=second, mine="defaults: [base.yaml, second.yaml]\npolicy: {train_micro_batch_size: '???'}\n")
    assert "tp(tp=8)" in found.expression
    assert found.numbers["b"] == 4
    places = {one.name: one.place.source.rpartition("/")[2] for one in found.readings if one.place is not None}
    assert places["defaults"] == "mine.yaml"
    assert (places["policy.train_micro_batch_size"], places["policy.train_global_batch_size"]) == ("mine.yaml", "base.yaml")
    with pytest.raises(InputError, match="nothing of that is said"):
        laid(
            tmp_path,
            base=base,
            mine="defaults: base.yaml\npolicy: {_override_: true, train_micro_batch_size: 1, dtensor_cfg: {enabled: true}}\n",
        )
    with pytest.raises(InputError) as error:
        laid(tmp_path, base=base.replace(" cpu_offload: false", " cpu_offload: 7"), mine="defaults: base.yaml\n")
    (problem,) = error.value.diagnostics
    assert problem.place is not None
    assert problem.place.source == str(tmp_path / "base.yaml")
    assert "cpu_offload: 7" in problem.place.text


@pytest.mark.parametrize(("said", "known"), [("base.yaml", True), ("[base.yaml]", True), ("[base, _self_]", False), ("3", False)])
def test_a_file_of_little_but_its_bases_is_recognised(said: str, known: bool, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(text({}), encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(f"defaults: {said}\ncluster: {{num_nodes: 4}}\n", encoding="utf-8")
    if known:
        assert read_config(str(tmp_path / "mine.yaml")).expression.startswith("fsdp(dp=16, ")
    else:
        with pytest.raises(InputError, match="no system is recognised"):
            read_config(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("defaults: away.yaml\n", "it is not at hand"),
        ("defaults: mine.yaml\n", "is laid over itself"),
        (f"defaults: {'a' * 300}.yaml\n", "it is not at hand"),
        ("defaults: circle.yaml\n", "it is not at hand"),
        ("defaults: 3\n", "is a path or a list of paths"),
        ("defaults: null\n", "is a path or a list of paths"),
        ("policy: {model_name: a, model_name: b}\n", "`policy.model_name` is said twice"),
    ],
)
def test_files_that_cannot_be_laid_over_one_another_are_refused(said: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    with pytest.raises(InputError, match=message):
        laid(tmp_path, mine=said)


def test_a_text_lies_in_no_folder() -> None:
    with pytest.raises(InputError, match="this text lies in no folder"):
        read_config("defaults: made_sft.yaml\npolicy: {}\n", system="nemorl")


REFERENCES = """
a: {b: 2, c: "${.b}", d: "${..e}", f: "${mul:${a.b}, ${add:1, ${e}}}", g: "x-${a.b}-${e}", h: "${a.c}", i: {j: "${..b}"}}
e: 3
k: "${l}"
l: {m: "${div:1,4}", n: "${max:1,2}"}
"""


def test_references_are_followed_as_omegaconf_follows_them() -> None:
    """The values are those that omegaconf 2.3 has for this text."""
    found = followed(read_document(REFERENCES, "mine", "yaml", Problems()), {"add": add, "mul": mul, "div": truediv, "max": max})
    table = {"b": 2, "c": 2, "d": 3, "f": 8, "g": "x-2-3", "h": 2, "i": {"j": 2}}
    inner = {"m": 0.25, "n": 2}
    assert found.data == {"a": table, "e": 3, "k": inner, "l": inner}
    assert not found.open


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("${nowhere}", "${nowhere}, which is not followed"),
        ("${oc.env:HOME}", "${oc.env:HOME}, which is not followed"),
        ("${add:1,x}", "${add:1,x}, which has no value"),
        ("${a}", "refers to it"),
        ("${b}", "refers to it"),
        ("${", "is not followed"),
        ("???", "nothing is said"),
    ],
)
def test_what_cannot_be_followed_is_left_open(value: str, why: str) -> None:
    found = followed(read_document(yaml.safe_dump({"a": value, "b": "${a}"}), "mine", "yaml", Problems()), {"add": add})
    assert found.data["a"] == value
    assert why in found.open["a"]
    assert "b" in found.open


@pytest.mark.parametrize("seed", range(6))
def test_corrupted_files_end_in_errors(seed: int, tmp_path: Path) -> None:
    """What is deleted or put in at random is read or refused: there is no other end."""
    rng = random.Random(seed)
    files = sorted(CONFIGS.rglob("*.yaml"))
    for path in files:
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(12):
        body = rng.choice(files).read_text(encoding="utf-8").replace("../", "")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(body))
            body = rng.choice((body[:at] + body[at + rng.randint(1, 30) :], body[:at] + rng.choice("0-:\n{[null.$") + body[at:])) or "x"
        (tmp_path / "a.yaml").write_text(body, encoding="utf-8")
        try:
            read_config(str(tmp_path / "a.yaml"), system="nemorl", world=rng.choice((None, 1, 8, 32)))
        except InputError as error:
            assert error.diagnostics


def test_the_settings_of_fsdp_may_be_turned_off_and_not_be_nothing() -> None:
    data = yaml.safe_load(text(BY_MEGATRON))
    data["policy"]["dtensor_cfg"] = None
    with pytest.raises(InputError, match="dtensor_cfg"):
        read_config(yaml.safe_dump(data, sort_keys=False), system="nemorl")
    assert read(ON_HOST).expression == read(BY_MEGATRON).expression
