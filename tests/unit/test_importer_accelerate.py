"""Accelerate's files: real ones are read as a person reads them, and wrong ones are refused at their lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from placeproof.core.diagnostics import InputError
from placeproof.core.precision import PRECISIONS
from placeproof.importers.imported import Imported, Role
from placeproof.importers.systems import read_config
from placeproof.importers.writing import Asked, write
from placeproof.models import load
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.linked import link
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

HERE = Path(__file__).parents[1] / "configs" / "accelerate"
GOOD: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text())
BAD: dict[str, dict[str, Any]] = json.loads((HERE / "bad" / "expected.json").read_text())


def imported(name: str) -> Imported:
    return read_config(str(HERE / name), world=GOOD[name]["world"])


def settings(table: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from settings(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def written(text: str, world: int | None = None) -> Imported:
    return read_config("distributed_type: FSDP\n" + text, system="accelerate", world=world)


def test_every_file_is_expected():
    assert sorted(p.name for p in HERE.glob("*.yaml")) == sorted(GOOD)
    assert sorted(p.name for p in (HERE / "bad").glob("*.yaml")) == sorted(BAD)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_is_read(name: str):
    found, expected = imported(name), GOOD[name]
    assert found.expression == expected["expression"]
    assert found.precision == expected["precision"]
    assert {k: str(v) for k, v in found.numbers.items()} == expected["numbers"]
    assert list(found.without) == expected["without"]
    assert [r.name for r in found.of(Role.NOT_MODELLED)] == expected["not_modelled"]
    assert [r.name for r in found.another_step] == expected["another_step"]


@pytest.mark.parametrize("name", GOOD)
def test_its_strategy_is_lowered(name: str):
    found = imported(name)
    lower(found.strategy())
    assert found.precision is None or found.precision in PRECISIONS
    assert set(found.without) <= set(ASSUMPTIONS)


@pytest.mark.parametrize("name", GOOD)
def test_each_setting_has_one_reading_in_order(name: str):
    text = (HERE / name).read_text()
    readings = [r for r in imported(name).readings if r.place is not None and r.place.source == str(HERE / name)]
    assert [r.name for r in readings] == list(settings(yaml.safe_load(text)))
    assert all(r.note and r.told for r in imported(name).readings if r.place is None)
    for reading in readings:
        assert reading.note
        assert reading.place is not None
        assert text.splitlines()[reading.place.line - 1].lstrip().startswith(reading.name.split(".")[-1] + ":")


@pytest.mark.parametrize("name", GOOD)
def test_a_file_names_its_source(name: str):
    assert (HERE / name).read_text().startswith("# " + GOOD[name]["source"])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_at_its_lines(name: str):
    with pytest.raises(InputError) as refused:
        read_config(str(HERE / "bad" / name), system="accelerate", world=BAD[name]["world"])
    found = [[d.code, d.place.line if d.place else None] for d in refused.value.diagnostics]
    assert found == BAD[name]["problems"]
    assert all(d.help for d in refused.value.diagnostics)


@pytest.mark.parametrize(
    ("strategy", "expression"),
    [
        ("1", "fsdp(dp=8)"),
        ("FULL_SHARD", "fsdp(dp=8)"),
        ("2", "fsdp(dp=8, reshard_after_forward=false)"),
        ("shard_grad_op", "fsdp(dp=8, reshard_after_forward=false)"),
        ("NO_SHARD", "ddp(dp=8)"),
        ("3", "ddp(dp=8)"),
        ("HYBRID_SHARD", "hsdp(rep=2, shard=4)"),
        ("4", "hsdp(rep=2, shard=4)"),
        ("'5'", "hsdp(rep=2, shard=4, reshard_after_forward=false)"),
    ],
)
def test_sharding_strategies(strategy: str, expression: str):
    text = f"fsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_sharding_strategy: {strategy}\nnum_machines: 2\n"
    assert written(text, 8).expression == expression


@pytest.mark.parametrize(
    ("said", "prefetches"),
    [("BACKWARD_PRE", True), ("backward_pre", True), ("1", True), ("BACKWARD_POST", False), ("no_prefetch", False), ("2", False)],
)
def test_a_prefetch_is_said_in_capitals_in_small_letters_or_by_number(said: str, prefetches: bool):
    text = f"fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: {said}\n"
    assert written(text, 8).expression == ("fsdp(dp=8, prefetch=true)" if prefetches else "fsdp(dp=8)")


@pytest.mark.parametrize(
    ("more", "expression"),
    [
        ("", "zero_infinity(dp=8)"),
        ("  fsdp_reshard_after_forward: false\n", "fsdp(dp=8, reshard_after_forward=false, prefetch=true)"),
        ("parallelism_config:\n  parallelism_config_dp_shard_size: 4\n  parallelism_config_dp_replicate_size: 2\n", "hsdp(rep=2, shard=4"),
        ("parallelism_config:\n  parallelism_config_dp_shard_size: 4\n  parallelism_config_cp_size: 2\n", "zero_infinity(dp=4) * zero_inf"),
    ],
)
def test_offloading_of_fsdp_is_read_as_that_of_torchtitan(more: str, expression: str):
    table = "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: true\n"
    found = written(table + more, 8)
    assert found.expression.startswith(expression)
    (role,) = (r.role for r in found.readings if r.name == "fsdp_config.fsdp_offload_params")
    assert role is (Role.READ if expression.startswith("zero_infinity") else Role.NOT_MODELLED)
    lower(found.strategy())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fsdp_config:\n  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "fsdp_config.fsdp_sharding_strategy"),
        ("fsdp_config:\n  fsdp_version: 1\n  fsdp_reshard_after_forward: false\n", "fsdp_config.fsdp_reshard_after_forward"),
    ],
)
def test_what_accelerate_ignores_is_told(text: str, name: str):
    assert name in [r.name for r in written(text, 8).readings if r.told and r.role is Role.NO_MATTER]


def test_parameters_below_stage_3_stay_and_that_is_told():
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  offload_param_device: cpu\n"
    found = read_config(text, system="accelerate", world=8)
    assert "deepspeed_config.offload_param_device" in [r.name for r in found.readings if r.told and r.role is Role.NO_MATTER]


def test_a_choice_is_listed_once():
    with pytest.raises(InputError) as refused:
        read_config("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 5\n", system="accelerate", world=8)
    assert [d.message.count("`2`") for d in refused.value.diagnostics] == [1]


@pytest.mark.parametrize(("offload", "kept"), [("false", "checkpoint"), ("true", "checkpoint(checkpoints=host)")])
def test_checkpoints_are_offloaded_where_it_is_said(offload: str, kept: str):
    text = f"fsdp_config:\n  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n  fsdp_activation_checkpointing_offload: {offload}\n"
    assert written(text, 8).expression.partition(") * ")[2] == kept


@pytest.mark.parametrize(
    ("settings", "expression", "role"),
    [
        ("tp_degree: 1, use_distributed_optimizer: true", "zero1(dp=4) * zero1(dp=ep) * ep(ep=4)", Role.READ),
        ("tp_degree: 4", "ddp(dp=4) * tp(tp=4) * sp(tp=4) * ep(ep=tp)", Role.READ),
        (
            "tp_degree: 2, use_distributed_optimizer: true",
            "zero1(dp=4) * zero1(dp=ep) * tp(tp=2) * sp(tp=2) * ep(ep=2) * ep(ep=tp)",
            Role.READ,
        ),
        (
            "tp_degree: 8, use_distributed_optimizer: true, expert_model_parallel_size: 2",
            "zero1(dp=ep) * tp(tp=8) * sp(tp=8) * ep(ep=2, experts=whole)",
            Role.NOT_MODELLED,
        ),
    ],
)
def test_experts_of_megatron(settings: str, expression: str, role: Role):
    size = "" if "expert_model_parallel_size" in settings else "expert_model_parallel_size: 4, "
    table = f"sequence_parallelism: true, context_parallel_size: 1, {size}{settings}"
    table = ", ".join(f"megatron_lm_{setting}" for setting in table.split(", "))
    found = read_config(f"distributed_type: MEGATRON_LM\nmegatron_lm_config: {{{table}}}\n", system="accelerate", world=16)
    checked, ep, rest = expression.partition(" * ep(")
    assert found.expression == f"{checked} * checkpoint{ep}{rest} * clip"
    assert judge(lower(found.strategy())).word == "proved"
    (reading,) = (r for r in found.readings if r.name.endswith("expert_model_parallel_size"))
    assert reading.role is role


SLICES = (
    "distributed_type: MEGATRON_LM\nmegatron_lm_config: {{megatron_lm_tp_degree: 4, megatron_lm_sequence_parallelism: true, "
    "megatron_lm_context_parallel_size: 1, megatron_lm_use_distributed_optimizer: true, "
    "megatron_lm_expert_model_parallel_size: {}, megatron_lm_expert_tensor_parallel_size: {}}}\n"
).format


def test_experts_that_are_split_by_another_degree_are_refused():
    with pytest.raises(InputError) as refused:
        read_config(SLICES(2, 8), system="accelerate", world=16)
    (problem,) = refused.value.diagnostics
    assert "over 8 devices, which are no equal part of the 4 of other matrices" in problem.message


@pytest.mark.parametrize(
    ("experts", "tensor", "shared", "role"),
    [
        (4, ("(2, tp=etp)", "(tp=2)"), "ep(ep=2) * ep(ep=tp)", Role.READ),
        (3, ("(2, tp=dtp)", "(2, tp=etp)"), "ep(ep=3, experts=etp)", Role.NOT_MODELLED),
    ],
)
def test_experts_that_are_split_over_a_part_of_tensor_parallelism(experts: int, tensor: tuple[str, str], shared: str, role: Role):
    found = read_config(SLICES(experts, 2), system="accelerate", world=16 * experts)
    over = " * ".join(f"{name}{axis}" for name in ("tp", "sp") for axis in tensor)
    copies = {4: 8, 3: 4}[experts]
    assert found.expression == f"zero1(dp={copies}) * zero1(dp=ep) * {over} * checkpoint * {shared} * clip"
    assert next(r for r in found.readings if r.name.endswith("expert_model_parallel_size")).role is role
    link(load("mixtral-8x7b"), found.strategy())


MEGATRON = "distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"


@pytest.mark.parametrize("said", ["", "  megatron_lm_context_parallel_size: null\n  megatron_lm_recompute_granularity: null\n"])
def test_what_a_file_does_not_say_of_megatron_is_as_accelerate_has_it(said: str):
    """huggingface/accelerate@16cb6eb8:src/accelerate/utils/dataclasses.py, MegatronLMPlugin.__post_init__."""
    found = read_config(MEGATRON + said, system="accelerate")
    assert found.expression == "ddp(dp=2) * tp(tp=2) * checkpoint * cp(cp=2) * clip"
    told = {r.name.rpartition("megatron_lm_")[2]: r.value for r in found.readings if r.told}
    assert told == {"context_parallel_size": 2, "recompute_granularity": "full", "calculate_per_token_loss": True, "gradient_clipping": 1.0}
    assert [r.name for r in found.another_step] == ["megatron_lm_config.megatron_lm_calculate_per_token_loss"]


def test_what_a_file_says_of_megatron_is_read():
    said = "  megatron_lm_context_parallel_size: 1\n  megatron_lm_calculate_per_token_loss: {}\n  megatron_lm_recompute_activations: true\n"
    found = read_config(MEGATRON + said.format("false"), system="accelerate")
    assert found.expression == "ddp(dp=4) * tp(tp=2) * checkpoint * clip"
    assert not found.another_step
    assert [r.role for r in found.readings if r.name.endswith("recompute_activations")] == [Role.NO_MATTER]
    assert len(read_config(MEGATRON + said.format("true"), system="accelerate").another_step) == 1
    alone = read_config((MEGATRON + said.format("true")).replace("processes: 8", "processes: 2"), system="accelerate")
    assert not alone.another_step  # one device's sum is its mean


@pytest.mark.parametrize("name", ["tp_degree", "pp_degree", "gradient_clipping", "use_custom_fsdp"])
def test_null_that_accelerate_hands_on_as_a_text_is_refused(name: str):
    table = f"megatron_lm_config:\n  megatron_lm_{name}: null\n"
    with pytest.raises(InputError) as refused:
        read_config(f"distributed_type: MEGATRON_LM\nnum_processes: 8\n{table}", system="accelerate")
    (problem,) = refused.value.diagnostics
    assert "the text `None`" in problem.message
    assert problem.place is not None
    assert problem.place.line == 4
    assert read_config(f"distributed_type: MULTI_GPU\nnum_processes: 8\n{table}", system="accelerate").expression == "ddp(dp=8)"


def test_selective_recomputation_is_refused_as_megatron_does():
    with pytest.raises(InputError) as refused:
        read_config(MEGATRON + "  megatron_lm_recompute_granularity: selective\n", system="accelerate")
    assert [d.notes for d in refused.value.diagnostics] == [("`placeproof explain megatron-68`",)]


def test_megatron_is_written_with_all_that_accelerate_would_fill_in():
    wanted = parse_strategy("zero1(4) * tp(2) * pp(2, microbatches=8) * checkpoint * clip")
    read = write(wanted, "accelerate", Asked()).read
    assert not read.another_step
    assert all(r.value == 1 for r in read.readings if r.name.endswith("context_parallel_size"))
    with pytest.raises(InputError) as refused:
        write(parse_strategy("zero1(4) * tp(2) * pp(2, microbatches=8) * clip"), "accelerate", Asked())
    (problem,) = refused.value.diagnostics
    assert (problem.code, problem.notes) == ("PP506", ("recomputation: false wanted, true read back",))


def test_hybrid_sharding_on_one_machine_makes_no_copies():
    text = "fsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    assert written(text, 8).expression == "fsdp(dp=8)"
    assert written(text + "num_machines: 8\n", 8).expression == "ddp(dp=8)"
    assert written(text + "num_machines: 2\n").expression == "hsdp(rep=2)"


def test_fsdp_1_does_not_read_what_fsdp_2_does():
    text = "fsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_reshard_after_forward: SHARD_GRAD_OP\n"
    found = written(text, 8)
    assert found.expression == "fsdp(dp=8)"
    (reading,) = (r for r in found.readings if r.name.endswith("reshard_after_forward"))
    assert reading.role is Role.NO_MATTER
    assert "FULL_SHARD" in reading.note


@pytest.mark.parametrize(
    ("stage", "optimizer", "params", "expression", "left"),
    [
        (0, "none", "none", "ddp(dp=4)", []),
        (0, "cpu", "none", "ddp(dp=4)", []),
        (1, "cpu", "none", "zero1(dp=4)", ["offload_optimizer_device"]),
        (2, "nvme", "cpu", "zero_offload(dp=4)", []),
        (2, "none", "cpu", "zero2(dp=4)", []),
        (3, "none", "cpu", "zero3(dp=4)", ["offload_param_device"]),
        (3, "cpu", "none", "zero3(dp=4)", ["offload_optimizer_device"]),
        (3, "nvme", "nvme", "zero_infinity(dp=4)", []),
    ],
)
def test_stages_and_offload(stage: int, optimizer: str, params: str, expression: str, left: list[str]):
    text = f"""
distributed_type: DEEPSPEED
num_processes: 4
deepspeed_config:
  zero_stage: {stage}
  offload_optimizer_device: {optimizer}
  offload_param_device: {params}
"""
    found = read_config(text, system="accelerate")
    assert found.expression == f"{expression} * clip"  # a limit that is not said is filled in
    assert [r.name.split(".")[-1] for r in found.of(Role.NOT_MODELLED)] == left


def both(tmp_path: Path, inner: dict[str, Any] | str, folder: str = "", **more: Any) -> str:
    """A file of Accelerate that names one of DeepSpeed."""
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "ds.json").write_text(inner if isinstance(inner, str) else json.dumps(inner, indent=1))
    said = {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": {"deepspeed_config_file": f"{folder}ds.json"}, **more}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
    return str(tmp_path / "mine.yaml")


@pytest.mark.parametrize("name", ["x" * 300 + ".json", "../" * 2000 + "x.json", "no\0where.json", "nowhere/x.json", ".", "/"])
def test_a_file_that_cannot_be_is_named(name: str, tmp_path: Path) -> None:
    path = both(tmp_path, {})
    Path(path).write_text(Path(path).read_text().replace("ds.json", json.dumps(name)))
    with pytest.raises(InputError):
        read_config(path, world=8)


@pytest.mark.parametrize(
    ("inner", "more", "expression", "precision"),
    [
        ({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}, {}, "zero3(dp=8)", "mixed-adam"),
        # what Accelerate puts in the place of `auto`, or of nothing
        (
            {"zero_optimization": {"stage": "auto"}, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}},
            {},
            "zero2(dp=8)",
            "fp32-twice",
        ),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}}, {}, "zero2(dp=8)", "fp32-twice"),
        ({"zero_optimization": {"stage": 0}, "gradient_accumulation_steps": "auto"}, {}, "ddp(dp=8) * accumulate", "fp32-adam"),
        ({"zero_optimization": {"stage": 0}, "gradient_accumulation_steps": 3}, {}, "ddp(dp=8) * accumulate(microbatches=3)", "fp32-adam"),
        (
            {"zero_optimization": {"stage": 3}},
            {"parallelism_config": {"parallelism_config_sp_size": 4}},
            "zero3(dp=2) * zero3(dp=cp) * cp(cp=4, attention=ulysses)",
            "fp32-twice",
        ),
    ],
)
@pytest.mark.parametrize("folder", ["", "configs/"])
def test_a_file_of_deepspeed_is_followed(
    inner: dict[str, Any], more: dict[str, Any], expression: str, precision: str | None, folder: str, tmp_path: Path
):
    found = read_config(both(tmp_path, inner, folder, **more))
    assert (found.system, found.expression, found.precision) == ("accelerate", expression, precision)
    stage = next(r for r in found.readings if r.name.endswith(": zero_optimization.stage"))
    assert stage.place is not None
    assert stage.place.source.endswith(f"{folder}ds.json")


@pytest.mark.parametrize("size", ["dp_replicate", "dp_shard", "cp", "sp", "tp"])
def test_each_size_by_itself_needs_a_system_that_reads_it(size: str) -> None:
    """FSDP 1 reads none of them."""
    text = f"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\nparallelism_config:\n  parallelism_config_{size}_size: 4\n"
    with pytest.raises(InputError) as caught:
        read_config(text, system="accelerate", world=8)
    shown = "context parallelism needs FSDP 2" if size == "cp" else "sizes of parallelism_config need FSDP 2"
    assert shown in "".join(d.message for d in caught.value.diagnostics)


def test_a_file_of_deepspeed_is_looked_for_from_here_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As Accelerate does, which opens it in the folder where it is started."""
    path = both(tmp_path, {"zero_optimization": {"stage": 3}})
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    monkeypatch.chdir(tmp_path / "here")
    assert read_config(path).expression == "zero1(dp=8)"
    monkeypatch.chdir(tmp_path)
    assert read_config("mine.yaml").expression == "zero3(dp=8)"


@pytest.mark.parametrize(
    ("inner", "code", "line", "words"),
    [
        ('{"zero_optimization": {\n"stage": 7}}', "PP504", 2, "there is no ZeRO stage 7"),
        ('{"zero_optimization": {\n"stag": 3}}', "PP502", 2, "`stag` is no setting"),
        ('{"bf16": {"enabled": true}}', "PP504", 4, "has no `zero_optimization`"),
        ('{"zero_optimization": {}, // none\n}', "PP501", 1, "this is not JSON"),
        ("", "PP501", 1, "there is nothing in it"),
    ],
)
def test_problems_of_a_file_that_is_followed_have_their_places(inner: str, code: str, line: int, words: str, tmp_path: Path):
    with pytest.raises(InputError) as refused:
        read_config(both(tmp_path, inner))
    (problem,) = refused.value.diagnostics
    assert (problem.code, problem.place.line if problem.place else None) == (code, line)
    assert words in problem.message
    assert problem.help


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("said", ["", "  fsdp_auto_wrap_policy: NO_WRAP\n"])
def test_without_a_policy_the_model_is_one_unit_and_that_is_told(version: int, said: str):
    found = written(f"fsdp_config:\n  fsdp_version: {version}\n{said}", 8)
    assert found.expression.startswith("fsdp(dp=8, reshard_after_forward=false, unit=model")
    (told,) = (r for r in found.readings if r.told)
    assert "all of them are gathered at once" in told.note
    assert ("not said" in told.note) == (not said)


@pytest.mark.parametrize(
    ("kind", "precision", "named"),
    [
        ("MULTI_GPU", "no", "fp32-adam"),
        ("MULTI_GPU", "bf16", "fp32-adam"),
        ("MULTI_GPU", "fp8", None),
        ("FSDP", "no", "fp32-adam"),
        ("FSDP", "fp16", None),
        ("DEEPSPEED", "fp16", "mixed-adam"),
        ("DEEPSPEED", "no", "fp32-twice"),
        ("MEGATRON_LM", "bf16", "megatron-bf16"),
        ("MEGATRON_LM", "fp16", "megatron-fp16"),
        ("MEGATRON_LM", "no", "fp32-adam"),
        ("XLA", "bf16", None),
    ],
)
def test_precisions(kind: str, precision: str, named: str | None):
    found = read_config(f"distributed_type: {kind}\nnum_processes: 2\nmixed_precision: '{precision}'\n", system="accelerate")
    assert found.precision == named


def test_settings_of_another_kind_are_of_no_matter():
    found = read_config("distributed_type: MULTI_GPU\nnum_processes: 2\nfsdp_config:\n  fsdp_offload_params: true\n", system="accelerate")
    assert found.expression == "ddp(dp=2)"
    assert not found.of(Role.NOT_MODELLED)


def test_sizes_give_the_number_of_processes_where_nothing_else_does():
    text = "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\nparallelism_config:\n"
    text += "  parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 8\n"
    assert written(text).expression == "hsdp(rep=4, shard=8, prefetch=true)"
    with pytest.raises(InputError, match="4 \\* 8 \\* 1 \\* 1 is not 64"):
        written(text, 64)


@pytest.mark.parametrize(
    ("kind", "said", "expression"),
    [
        (
            "FSDP",
            {"fsdp_config": {"fsdp_version": 2}, "parallelism_config": {"cp_size": 4, "cp_comm_strategy": "alltoall"}},
            "fsdp(dp=cp, reshard_after_forward=false, unit=model, prefetch=true) * cp(cp=4)",
        ),
        (
            "DEEPSPEED",
            {"num_processes": 8, "deepspeed_config": {"zero_stage": 3}, "parallelism_config": {"sp_size": 4}},
            "zero3(dp=2) * zero3(dp=cp) * cp(cp=4, attention=ulysses) * clip",
        ),
        (
            "MEGATRON_LM",
            {"num_processes": 4, "megatron_lm_config": {"context_parallel_size": 4, "use_distributed_optimizer": True}},
            "zero1(dp=cp) * checkpoint * cp(cp=4) * clip",
        ),
    ],
)
def test_split_sequences_are_an_axis(kind: str, said: dict[str, Any], expression: str):
    prefixes = {"parallelism_config": "parallelism_config_", "megatron_lm_config": "megatron_lm_"}
    named = {
        key: {f"{prefixes.get(key, '')}{name}": one for name, one in value.items()} if isinstance(value, dict) else value
        for key, value in said.items()
    }
    found = read_config(yaml.safe_dump({"distributed_type": kind, **named}, sort_keys=False), system="accelerate")
    assert found.expression == expression
    assert not [r for r in found.of(Role.NOT_MODELLED) if "_size" in r.name]
    lower(found.strategy())
