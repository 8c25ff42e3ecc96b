"""verl's overrides: what each makes of the actor's step, and what is refused by name."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError, Problems
from placeproof.importers import Imported, Role, read_config
from placeproof.importers.document import read_document
from placeproof.importers.hydra import value

CONFIGS = Path(__file__).parents[1] / "configs" / "verl"
ACTOR = "actor_rollout_ref.actor."
ROUTERS = "actor_rollout_ref.model.override_config.moe_config.freeze_moe_router"
MEGATRON = f"{ACTOR}megatron."
LEAST = f"data.train_batch_size=256 {ACTOR}ppo_mini_batch_size=64 {ACTOR}ppo_micro_batch_size_per_gpu=2 algorithm.adv_estimator=grpo"


def read(more: str = "", world: int | None = None) -> Imported:
    return read_config(f"{LEAST} {more}", system="verl", world=world)


@pytest.mark.parametrize(
    ("more", "expression"),
    [
        ("", "fsdp(dp=8, prefetch=true) * checkpoint * accumulate(microbatches=4) * clip"),
        ("trainer.nnodes=2", "fsdp(dp=16, prefetch=true) * checkpoint * accumulate(microbatches=2) * clip"),
        ("actor_rollout_ref.rollout.n=2", "fsdp(dp=8, prefetch=true) * checkpoint * accumulate(microbatches=8) * clip"),
        ("trainer.n_gpus_per_node=1", "ddp(dp=1) * checkpoint * accumulate(microbatches=32) * clip"),
        (f"+{ACTOR}fsdp_config.wrap_policy.disable=true", "fsdp(dp=8, prefetch=true, reshard_after_forward=false, unit=model) * "),
        (f"{ACTOR}strategy=fsdp2 ++{ACTOR}fsdp_config.wrap_policy.disable=true", "fsdp(dp=8, prefetch=true) * "),
        (f"{ACTOR}fsdp_config.offload_policy=true", "fsdp(dp=8, prefetch=true) * "),
        (f"{ACTOR}strategy=fsdp2 {ACTOR}fsdp_config.offload_policy=true", "zero_infinity(dp=8) * "),
        (f"{ACTOR}fsdp_config.fsdp_size=1", "ddp(dp=8) * "),
        (f"{ACTOR}fsdp_config.fsdp_size=4", "hsdp(rep=2, shard=4, prefetch=true) * "),
        (f"{ACTOR}ulysses_sequence_parallel_size=8", "fsdp(dp=cp, prefetch=true) * checkpoint * accumulate(microbatches=32) * cp(cp=8"),
        ("actor_rollout_ref.model.enable_activation_offload=True", "fsdp(dp=8, prefetch=true) * checkpoint(checkpoints=host) * "),
        (
            "actor_rollout_ref.model.lora_rank=32",
            "fsdp(dp=8, prefetch=true) * checkpoint * accumulate(microbatches=4) * lora(rank=32) * clip",
        ),
        (
            "actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.model.target_modules=[q_proj,v_proj]",
            "fsdp(dp=8, prefetch=true) * checkpoint * accumulate(microbatches=4) * lora(rank=8, targets=qv) * clip",
        ),
        (f"model_engine=megatron {ACTOR}megatron.tensor_model_parallel_size=8", "tp(tp=8) * sp(tp=8) * accumulate(microbatches=32) * clip"),
        (f"{ACTOR}strategy=megatron {ACTOR}optim.clip_grad=0", "zero1(dp=8) * accumulate(microbatches=4)"),
        (
            f"{ACTOR}strategy=megatron {MEGATRON}tensor_model_parallel_size=4 {MEGATRON}expert_tensor_parallel_size=2 "
            f"{MEGATRON}expert_model_parallel_size=2",
            "zero1(dp=2) * tp(2, tp=etp) * tp(tp=2) * sp(2, tp=etp) * sp(tp=2) * accumulate(microbatches=16) * ep(ep=tp) * clip",
        ),
        (f"{ACTOR}strategy=megatron +{ROUTERS}=True", "zero1(dp=8) * accumulate(microbatches=4) * clip * freeze(parts=router)"),
        (f"{ACTOR}strategy=megatron +{ROUTERS}=False", "zero1(dp=8) * accumulate(microbatches=4) * clip"),
        (
            f"{ACTOR}strategy=megatron actor_rollout_ref.model.lora.rank=32 +{ROUTERS}=True",
            "zero1(dp=8) * accumulate(microbatches=4) * clip * lora(rank=32)",
        ),
        ("--config-name=ppo_megatron_trainer.yaml", "zero1(dp=8) * accumulate(microbatches=4) * clip"),
    ],
)
def test_settings_decide_the_strategy(more: str, expression: str) -> None:
    found = read(more).expression
    assert found.startswith(expression) if expression.endswith("* ") or "cp(cp=8" in expression else found == expression
    read(more).strategy()


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ("actor_rollout_ref.actr.strategy=fsdp", "PP502", "`actr` is no setting"),
        (f"+{ACTOR}new=1", "PP502", "`new` is no setting"),
        (f"{ACTOR}ppo_micro_batch_size_per_gpu=3", "PP504", "cannot be cut into micro-batches of 3"),
        (f"{ACTOR}ppo_micro_batch_size_per_gpu=null", "PP504", "asks for the size of a micro-batch"),
        (f"{ACTOR}fsdp_config.mixed_precision.param_dtype=fp32", "PP504", "Hydra refuses to override"),
        (f"{ACTOR}fsdp_config.wrap_policy.disable=true", "PP504", "Hydra refuses to override"),
        ("actor_rollout_ref.model.lora.rank=32", "PP504", "FSDP does not read them"),
        ("model_engine=megatron actor_rollout_ref.model.lora.rank=32 actor_rollout_ref.model.lora.type=vlm_lora", "PP504", "is frozen"),
        (
            f"model_engine=megatron actor_rollout_ref.model.lora.rank=32 {ACTOR}megatron.expert_model_parallel_size=2",
            "PP504",
            "experts of a device share an adapter",
        ),
        (f"+{ROUTERS}=True", "PP504", "freezes routers under Megatron-LM alone"),
        (f"{ACTOR}freeze_vision_tower=True", "PP504", "no model here has one"),
        (f"{ACTOR}freeze_vision_tower=True actor_rollout_ref.model.path=Qwen/Qwen2.5-VL-7B-Instruct", "PP504", "no model here has one"),
        ("actor_rollout_ref.model.lora_adapter_path=a", "PP504", "their own file says their rank"),
        (f"{ACTOR}strategy=megatron actor_rollout_ref.model.lora_rank=32", "PP504", "adapters under Megatron-LM"),
        (f"{ACTOR}ppo_mini_batch_size=512", "PP504", "is larger than the batch of 256"),
        ("data.train_batch_size=252", "PP504", "are no multiple of 8 devices"),
        (f"{ACTOR}fsdp_config.fsdp_size=3", "PP504", "8 devices are no multiple of 3"),
        (f"{ACTOR}fsdp_config.fsdp_size=2 {ACTOR}ulysses_sequence_parallel_size=4", "PP504", "no strategy says such groups"),
        (
            f"{ACTOR}ulysses_sequence_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False",
            "PP504",
            "have to be packed",
        ),
        ("--config-name=mine", "PP504", "`mine` is a file of settings of the program's own"),
        (f"{ACTOR}strategy=veomni", "PP504", "`veomni` runs the model"),
        ("~trainer.nnodes", "PP501", "no setting with a value"),
        ("actor@actor_rollout_ref.actor=mine", "PP501", "chooses a group"),
        ("trainer.nnodes=${nodes}", "PP504", "is left open: it refers to ${nodes}"),
        ("trainer.nnodes.x=1 trainer.nnodes=2", "PP502", "`trainer.nnodes` has a value and is a table, too"),
        (
            f"{ACTOR}strategy=megatron {ACTOR}megatron.override_transformer_config.recompute_granularty=full",
            "PP502",
            "no setting of Megatron-LM",
        ),
        (f"{ACTOR}strategy=megatron {ACTOR}megatron.tensor_model_parallel_size=3", "PP504", "8 devices are no multiple of 3 * 1 * 1"),
    ],
)
def test_what_is_refused_is_named(more: str, code: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(more)
    assert any(d.code == code and message in d.message for d in refused.value.diagnostics), [d.message for d in refused.value.diagnostics]
    assert all(d.help and d.place for d in refused.value.diagnostics)


def test_a_model_of_text_has_no_tower_that_is_frozen_and_one_without_experts_no_router() -> None:
    model = "actor_rollout_ref.model.path=Qwen/Qwen3-8B"
    found = read(f"{ACTOR}freeze_vision_tower=True {model}")
    assert found.expression == read(model).expression
    assert [r.role for r in found.readings if r.name == ACTOR + "freeze_vision_tower"] == [Role.NO_MATTER]
    dense = read(f"{ACTOR}strategy=megatron +{ROUTERS}=True {model}")
    assert "freeze" not in dense.expression
    assert [r.role for r in dense.readings if r.name == ROUTERS] == [Role.NO_MATTER]


def test_frozen_routers_beside_tensor_parallelism_make_another_step() -> None:
    found = read(f"{ACTOR}strategy=megatron {ACTOR}megatron.tensor_model_parallel_size=2 +{ROUTERS}=True")
    assert "freeze" not in found.expression
    assert {one.name for one in found.another_step} == {ROUTERS}


def test_what_makes_another_step_is_named() -> None:
    more = (
        f"{ACTOR}policy_loss.loss_mode=clip_cov +trainer.mine=3 {ACTOR}optim.optimizer_impl=bitsandbytes.optim "
        f"actor_rollout_ref.model.external_lib=mine {ACTOR}fsdp_config.qat.enable=true"
    )
    names = {reading.name for reading in read(more).another_step}
    added = {f"{ACTOR}policy_loss.loss_mode", "trainer.mine", f"{ACTOR}optim.optimizer_impl", "actor_rollout_ref.model.external_lib"}
    assert names == {*added, f"{ACTOR}fsdp_config.qat.enable"}
    assert not read().another_step
    replayed = f"{ACTOR}router_replay.mode=R2 actor_rollout_ref.model.path="
    assert len(read(f"{replayed}someone/else").another_step) == 1
    assert not read(f"{replayed}Qwen/Qwen2.5-7B-Instruct").another_step


@pytest.mark.parametrize(("model", "frozen"), [("someone/else", True), ("Qwen/Qwen3-30B-A3B", True), ("Qwen/Qwen2.5-7B", False)])
def test_routers_are_frozen_unless_the_model_is_known_to_have_none(model: str, frozen: bool) -> None:
    found = read(f"{ACTOR}strategy=megatron +{ROUTERS}=True actor_rollout_ref.model.path={model}")
    assert (found.expression.endswith(" * freeze(parts=router)"), found.another_step) == (frozen, ())


def test_the_number_of_devices_is_told_where_it_is_another_one() -> None:
    told = {reading.name: reading for reading in read("trainer.nnodes=2", world=8).readings if reading.told}
    assert "8 devices are taken" in told["trainer.nnodes"].note
    assert read("trainer.nnodes=2", world=8).expression.startswith("fsdp(dp=8")
    assert not any(reading.told and reading.name == "trainer.nnodes" for reading in read("trainer.nnodes=2").readings)


def test_a_critic_is_listed() -> None:
    names = [reading.name for reading in read("algorithm.adv_estimator=gae").of(Role.NOT_MODELLED)]
    assert names == ["algorithm.adv_estimator"]
    assert not read("algorithm.adv_estimator=gae critic.enable=false").of(Role.NOT_MODELLED)


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("true", True), ("False", False), ("null", None), ("8", "8"), ("1e-6", "1e-6"), ("'8'", "8"), ('"a b"', "a b"), ("", ""),
        ("[a,'b,c',[1,2]]", ["a", "b,c", ["1", "2"]]), ("{a:1,b:{c:true}}", {"a": "1", "b": {"c": True}}), ("[]", []), ("a=b", "a=b"),
    ],
)  # fmt: skip
def test_values_are_those_of_hydra(text: str, read_as: object) -> None:
    assert value(text) == read_as


def test_of_overrides_that_come_twice_the_last_counts() -> None:
    found = read_document("a.b=1 \\\n  +a.c='x y' # a.c=3\n a.b=2", "mine", "overrides", Problems())
    assert (found.data, found.again, found.added) == ({"a": {"b": "2", "c": "x y"}}, {"a.b"}, {"a.c"})
    place = found.place("a", "b")
    assert place is not None
    assert (place.line, place.text) == (3, " a.b=2")


@pytest.mark.parametrize(
    ("name", "env", "expression"),
    [
        ("tiny_zero.sh", ("N_GPUS=2",), "fsdp(dp=2, prefetch=true) * checkpoint * accumulate * clip"),
        ("qwen3_4b_device.sh", ("DEVICE=gpu",), "fsdp(dp=8, prefetch=true) * checkpoint * accumulate * clip"),
        ("qwen3_4b_device.sh", ("DEVICE=npu",), "fsdp(dp=16, prefetch=true) * checkpoint * accumulate * clip"),
        (
            "qwen3_30b_folded.sh",
            ("NNODES=2",),
            "zero1(dp=ep) * tp(tp=4) * sp(tp=4) * pp(pp=2, schedule=interleaved, chunks=2) * checkpoint * ep(ep=2) * clip",
        ),
    ],
)
def test_public_scripts_are_read_once_their_environment_is_said(name: str, env: tuple[str, ...], expression: str) -> None:
    """Worked out from the scripts as the files beside them are: those refuse for what `--env` says here."""
    found = read_config(str(CONFIGS / "bad" / name), env=env)
    assert found.expression == expression
    found.strategy()


MARKS = ("=", "'", '"', "${", "[", "{", "null", "-1", "1e999", "\\", "$@", " ", "\n", "+", "~", "*", ":", "/")


@pytest.mark.parametrize("seed", range(8))
def test_corrupted_files_end_in_errors(seed: int, tmp_path: Path) -> None:
    """What is deleted, put in or moved at random is read or refused: there is no other end."""
    rng = random.Random(seed)
    files = sorted(path for path in CONFIGS.rglob("*") if path.suffix in (".sh", ".yaml"))
    for _ in range(12):
        path = rng.choice(files)
        text = path.read_text(encoding="utf-8")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            values = list(re.finditer(r"=([^\s=]+)", text))
            one = rng.choice(values) if values else None
            text = rng.choice((
                text[:at] + text[at + rng.randint(1, 40) :],
                text[:at] + rng.choice(MARKS) + text[at:],
                text[: one.start(1)] + rng.choice(("0", "null", "[]", "{}", "-3", "1.5", "$X")) + text[one.end(1) :] if one else text,
            )) or "x"  # fmt: skip
        corrupted = tmp_path / f"a{path.suffix}"
        corrupted.write_text(text, encoding="utf-8")
        try:
            read_config(str(corrupted), system="verl", world=rng.choice((None, 1, 8)))
        except InputError as error:
            assert error.diagnostics


@pytest.mark.parametrize("more", ["+{}.param_dtype=fp32", "++{}.param_dtype=fp32", "+{}={{param_dtype:fp32}} {}.param_dtype=fp32"])
def test_an_override_adds_what_there_is_not(more: str) -> None:
    table = f"{ACTOR}fsdp_config.mixed_precision"
    assert read(more.format(table, table)).precision == "fp32-adam"


def test_micro_batches_of_all_devices_are_those_of_early_versions() -> None:
    least = LEAST.replace("micro_batch_size_per_gpu=2", "micro_batch_size=16")
    found = read_config(least, system="verl", world=8)
    assert found.numbers == read(world=8).numbers
    (told,) = (one for one in found.readings if one.name == f"{ACTOR}ppo_micro_batch_size")
    assert told.told
    assert "stops without it" in told.note
    assert not any("stops without it" in one.note for one in read().readings)


@pytest.mark.parametrize(
    ("more", "adapters", "listed", "other"),
    [
        ("", "lora(rank=32)", True, set()),
        ("target_modules=[linear_fc2,linear_proj,linear_qkv,linear_fc1]", "lora(rank=32)", True, set()),
        ("target_modules=[linear_qkv,linear_proj]", "lora(rank=32, targets=attention)", True, set()),
        ("target_modules=[linear_qkv]", "lora(rank=32)", True, set()),
        ("type=canonical_lora LORA.target_modules=[linear_q,linear_v]", "lora(rank=32, targets=qv)", False, set()),
        ("type=canonical_lora", "lora(rank=32)", True, set()),
        ("type=dora LORA.dropout=0.1", "lora(rank=32)", True, {"type", "dropout"}),
    ],
)
def test_adapters_of_megatron_bridge_are_read(more: str, adapters: str, listed: bool, other: set[str]) -> None:
    lora = "actor_rollout_ref.model.lora."
    found = read(f"model_engine=megatron {lora}rank=32 {f'{lora}{more}'.replace('LORA.', lora) if more else ''}")
    assert found.expression == f"zero1(dp=8) * accumulate(microbatches=4) * clip * {adapters}"
    assert [one.name for one in found.of(Role.NOT_MODELLED)] == [f"{lora}target_modules"] * listed
    assert {one.name for one in found.another_step} == {f"{lora}{name}" for name in other}
    assert found.precision is None
    found.strategy()


def test_what_is_said_of_adapters_without_a_rank_is_of_no_matter() -> None:
    lora = "actor_rollout_ref.model.lora."
    found = read(f"model_engine=megatron {lora}dropout=0.1 {lora}type=dora")
    assert found.expression == read("model_engine=megatron").expression
    assert not found.another_step


@pytest.mark.parametrize("name", ["target_modules=[q_proj]", "exclude_modules=.*visual.*", "target_parameters=[mlp.experts.down_proj]"])
def test_adapters_beside_what_the_strategy_cannot_say_are_listed(name: str) -> None:
    found = read(f"actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.{name}")
    assert "lora(rank=32) " in found.expression
    assert [r.name for r in found.of(Role.NOT_MODELLED)] == [f"actor_rollout_ref.model.{name.partition('=')[0]}"]
    assert found.precision is None


TWO = (
    f"{ACTOR}strategy=megatron {ACTOR}optim.optimizer=muon {MEGATRON}use_distributed_optimizer=False {MEGATRON}tensor_model_parallel_size="
)


@pytest.mark.parametrize(
    ("more", "muon"),
    [
        (f"{TWO}1", True),
        (f"{TWO}2", False),
        (f"{TWO}2 {ACTOR}optim.muon_tp_mode=duplicated", True),
        (f"{TWO}2 {ACTOR}optim.muon_tp_mode=blockwise", False),
        (f"{ACTOR}strategy=megatron {ACTOR}optim.optimizer=muon", False),  # nobody deals whole matrices out for it
    ],
)
def test_muon_is_handed_over(more: str, muon: bool) -> None:
    assert ("muon" in read(more, 8).expression.split(" * ")) is muon
