"""DeepSpeed's files: what they say as a strategy, and every problem of those that say nothing usable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.core.precision import PRECISIONS
from placeproof.core.symbols import symbol
from placeproof.importers.imported import Role
from placeproof.importers.settings import settings
from placeproof.importers.systems import read_config
from placeproof.semantics.lower import lower

HERE = Path(__file__).parents[1] / "configs" / "deepspeed"
GOOD: dict[str, Any] = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
BAD: dict[str, Any] = json.loads((HERE / "bad" / "expected.json").read_text(encoding="utf-8"))


def leaves(value: object, name: str = "") -> Iterator[str]:
    """The names of all settings, with dots."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else key)
    elif name:
        yield name


def refused(text: str, world: int | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        read_config(text, system="deepspeed", world=world)
    return caught.value


@pytest.mark.parametrize("name", GOOD)
def test_what_a_file_says(name: str) -> None:
    expected = GOOD[name]
    found = read_config(str(HERE / name), system="deepspeed", world=expected["world"])
    assert {
        "source": expected["source"],
        "world": expected["world"],
        "expression": found.expression,
        "precision": found.precision,
        "numbers": {k: str(v) for k, v in found.numbers.items()},
        "without": list(found.without),
        "not_modelled": [r.name for r in found.of(Role.NOT_MODELLED)],
        "another_step": [r.name for r in found.another_step],
    } == expected
    assert found.precision is None or found.precision in PRECISIONS
    for number in found.numbers:
        assert symbol(number)
    lower(found.strategy())


@pytest.mark.parametrize("name", GOOD)
def test_every_setting_has_one_reading(name: str) -> None:
    found = read_config(str(HERE / name), system="deepspeed", world=GOOD[name]["world"])
    names = [r.name for r in found.readings]
    assert len(names) == len(set(names))
    for leaf in leaves(json.loads((HERE / name).read_text(encoding="utf-8"))):
        assert [n for n in names if leaf == n or leaf.startswith(n + ".")], leaf
    for reading in found.readings:
        assert reading.place is not None
        assert reading.note


@pytest.mark.parametrize("name", BAD)
def test_every_problem_of_a_bad_file_is_named(name: str) -> None:
    problems = refused(str(HERE / "bad" / name), BAD[name]["world"]).diagnostics
    assert [[p.code, p.place.line if p.place else None] for p in problems] == BAD[name]["problems"]
    assert all(p.help for p in problems)


def test_all_files_are_in_the_tables() -> None:
    assert {p.name for p in HERE.glob("*.json")} == {*GOOD, "expected.json"}
    assert {p.name for p in (HERE / "bad").glob("*.json")} == {*BAD, "expected.json"}


#: What DeepSpeed takes where nothing is said: deepspeedai/DeepSpeed@088be892c749:deepspeed/runtime/constants.py and
#: deepspeedai/DeepSpeed@1b88ac366fc9:deepspeed/runtime/zero/config.py.
DEFAULTS = {
    "zero_allow_untested_optimizer": False,
    "zero_force_ds_cpu_optimizer": True,
    "prescale_gradients": False,
    "gradient_predivide_factor": 1.0,
    "disable_allgather": False,
    "use_data_before_expert_parallelism": False,
    **{
        f"zero_optimization.{name}": default
        for name, default in {
            "stage": 0,
            "reduce_scatter": True,
            "reduce_bucket_size": 500_000_000,
            "allgather_partitions": True,
            "allgather_bucket_size": 500_000_000,
            "sub_group_size": 1_000_000_000,
            "legacy_stage1": False,
            "zero_hpz_partition_size": 1,
            "zero_quantized_weights": False,
            "zero_quantized_nontrainable_weights": False,
            "zero_quantized_gradients": False,
            "save_muon_momentum_buffer_in_memory": False,
        }.items()
    },
    **{
        f"zero_optimization.{prefix}{name}": default
        for name, default in {
            "prefetch_bucket_size": 50_000_000,
            "param_persistence_threshold": 100_000,
            "model_persistence_threshold": 2**63 - 1,
            "max_live_parameters": 1_000_000_000,
            "max_reuse_distance": 1_000_000_000,
            "module_granularity_threshold": 0,
            "use_all_reduce_for_fetch_params": False,
        }.items()
        for prefix in ("", "stage3_")
    },
}


def test_defaults_are_those_of_deepspeed() -> None:
    ours = {f.name: f.default for f in settings("deepspeed")}
    assert {name: ours[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("{}", "ddp"),
        ('{"zero_optimization": false}', "ddp"),
        ('{"zero_optimization": {"stage": 3}, "tensor_parallel": {"autotp_size": "auto"}}', "zero3 * tp"),
        ('{"zero_optimization": {"stage": 3}, "pipeline": {"stages": 1}}', "zero3"),
        ('{"sequence_parallel_size": 4}', "ddp * cp(cp=4, attention=ulysses)"),
        (
            '{"zero_optimization": {"stage": 3}, "sequence_parallel_size": 4, "data_parallel_size": 2}',
            "zero3(dp=2) * zero3(dp=cp) * cp(cp=4, attention=ulysses)",
        ),
        (
            '{"zero_optimization": {"stage": 2}, "sequence_parallel_size": 4, "data_parallel_size": 1}',
            "zero2(dp=cp) * cp(cp=4, attention=ulysses)",
        ),
        (
            '{"zero_optimization": {"stage": 3, "zero_quantized_weights": true}, "sequence_parallel_size": 4}',
            "zeropp(node=true, qwz=b_qw, qgz=b_g)",
        ),
        ('{"expert_parallel": {"enabled": true, "autoep_size": 4}, "data_parallel_size": 4}', "ep(ep=4)"),
        ('{"expert_parallel": {"enabled": false, "autoep_size": 4}, "data_parallel_size": 4}', "ddp(dp=4)"),
        (
            '{"zero_optimization": {"stage": 3}, "expert_parallel": {"enabled": true, "autoep_size": 4}, "data_parallel_size": 4}',
            "zero3(dp=1) * zero3(dp=ep) * ep(ep=4)",
        ),
        (
            '{"zero_optimization": {"stage": 2}, "expert_parallel": {"enabled": true, "autoep_size": "auto"}}',
            "zero2 * zero2(dp=ep) * ep",
        ),
        (
            '{"zero_optimization": {"stage": 1}, "expert_parallel": {"enabled": true, "autoep_size": 2}, "data_parallel_size": 4,'
            ' "tensor_parallel": {"autotp_size": 2}}',
            "zero1(dp=2) * zero1(dp=ep) * tp(tp=2) * ep(ep=2, experts=whole)",
        ),
        ('{"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}}', "zero1"),
        ('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}', "zero_offload"),
        ('{"zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_params": true}}', "zero_infinity"),
        ('{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}', "zero2"),
        ('{"zero_optimization": {"stage": 2, "zero_quantized_weights": true}}', "zero2"),
        ('{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}', "zeropp(node=4, qwz=b_theta, qgz=b_g)"),
        (
            '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}',
            "ddp(dp=4) * accumulate(microbatches=4)",
        ),
        (
            '{"train_batch_size": 64, "data_parallel_size": 4, "gradient_accumulation_steps": 4}',
            "ddp(dp=4) * accumulate(microbatches=4)",
        ),
        (
            '{"activation_checkpointing": {"cpu_checkpointing": true}, "pipeline": {"activation_checkpoint_interval": 1}}',
            "ddp * checkpoint(checkpoints=host)",
        ),
    ],
)
def test_without_a_number_of_devices(text: str, expression: str) -> None:
    found = read_config(text, system="deepspeed")
    assert found.expression == expression
    lower(found.strategy())


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("{}", "fp32-adam"),
        ('{"optimizer": {"type": "SGD", "params": {"lr": 1}}}', "sgd"),
        ('{"optimizer": {"type": "SGD", "params": {"lr": 1}}, "fp16": {"enabled": true}}', None),
        ('{"fp16": {"enabled": true}, "bf16": {"enabled": false}}', "mixed-adam"),
        ('{"fp16": {"enabled": "auto"}, "bf16": {"enabled": false}}', None),
        ('{"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "bf16"}}', None),
        ('{"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "auto"}}', None),
        ('{"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "float32"}}', "fp16-fp32sums"),
        ('{"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "bf16"}}', None),
        ('{"bf16": {"bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 1, "cpu_offload": true}}', "fp32-twice"),
    ],
)
def test_precision(text: str, precision: str | None) -> None:
    assert read_config(text, system="deepspeed").precision == precision


@pytest.mark.parametrize(
    ("stage", "pipeline", "sums", "more", "expression", "precision"),
    [
        # what BF16_Optimizer runs
        (0, True, None, "", "zero1(dp=4, reduce=all_reduce) * pp(pp=2)", "bf16-bf16grad"),
        (0, True, "bf16", "", "zero1(dp=4, reduce=all_reduce) * pp(pp=2)", "bf16-bf16grad"),
        (0, True, None, "immediate", "zero1(dp=4, reduce=all_reduce) * pp(pp=2)", "mixed-adam"),
        (1, False, "fp32", "", "zero1(dp=8, reduce=all_reduce)", "fp16-fp32grad"),
        (1, True, "fp32", "", "zero1(dp=4, reduce=all_reduce) * pp(pp=2)", "fp16-fp32grad"),
        (1, False, "fp32", "immediate", "zero1(dp=8, reduce=all_reduce)", "megatron-bf16"),
        # and what others do
        (0, False, None, "", "ddp(dp=8)", "mixed-adam"),
        (1, False, None, "", "zero1(dp=8)", "mixed-adam"),
        (1, True, None, "", "zero1(dp=4) * pp(pp=2)", "mixed-adam"),
        (1, False, "fp32", "offload", "zero1(dp=8)", "megatron-bf16"),
        (2, False, "fp32", "", "zero2(dp=8)", "megatron-bf16"),
        (3, False, "fp32", "", "zero3(dp=8)", "megatron-bf16"),
        # and what none does
        (0, False, "fp32", "", "", None),
        (0, True, "fp32", "", "", None),
    ],
)
def test_bf16(stage: int, pipeline: bool, sums: str | None, more: str, expression: str, precision: str | None) -> None:
    """As deepspeed==0.19.8:runtime/engine.py `_do_optimizer_sanity_check` chooses, and runtime/bf16_optimizer.py holds."""
    data = {
        "bf16": {"enabled": True, "immediate_grad_update": more == "immediate"},
        "zero_optimization": {"stage": stage} | ({"offload_optimizer": {"device": "cpu"}} if more == "offload" else {}),
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
    }
    data |= {"pipeline": {"stages": 2}} if pipeline else {}
    data |= {"data_types": {"grad_accum_dtype": sums}} if sums else {}
    if not expression:
        (problem,) = refused(json.dumps(data), 8).diagnostics
        assert problem.notes == ("`placeproof explain deepspeed-31`",)
        return
    found = read_config(json.dumps(data), system="deepspeed", world=8)
    assert (found.expression.replace(", microbatches=1", ""), found.precision) == (expression, precision)
    told = " ".join(r.note for r in found.readings if r.told)
    assert ("in parts over dp" in told) == ("all_reduce)" in expression)


def test_bf16_at_stage_0_tells_what_a_pipeline_and_older_versions_do() -> None:
    (told,) = (r for r in read_config('{"bf16": {"enabled": true}}', system="deepspeed").readings if r.told)
    assert "PipelineModule" in told.note
    assert "before 0.17.6" in told.note


@pytest.mark.parametrize(
    ("text", "name", "near"),
    [
        ('{"zero_optimisation": {"stage": 3}}', "zero_optimisation", "did you mean `zero_optimization`?"),
        ('{"pipeline": {"stage": 2}}', "pipeline.stage", "did you mean `stages`?"),
        ('{"xyzzy": 1}', "xyzzy", "check its spelling"),
    ],
)
def test_what_deepspeed_passes_over_is_listed_as_unknown(text: str, name: str, near: str) -> None:
    found = read_config(text, system="deepspeed")
    assert found.expression == "ddp"
    ((unknown, note),) = [(r.name, r.note) for r in found.of(Role.UNKNOWN)]
    assert unknown == name
    assert near in note


@pytest.mark.parametrize("table", ["zero_optimization", "bf16", "fp16", "tensor_parallel", "compile", "flops_profiler"])
def test_what_deepspeed_refuses_to_pass_over_is_a_problem(table: str) -> None:
    assert [d.code for d in refused(json.dumps({table: {"xyzzy": 1}})).diagnostics] == ["PP502"]


@pytest.mark.parametrize("said", [1, 2, 3, 4, 5])
def test_the_data_parallel_degree_is_that_of_the_world(said: int) -> None:
    text = json.dumps({"data_parallel_size": said, "tensor_parallel": {"autotp_size": 2}})
    if said == 4:
        assert read_config(text, system="deepspeed", world=8).expression == "ddp(dp=4) * tp(tp=2)"
    else:
        assert f"{said} data-parallel devices here, and 8 devices leave 4" in str(refused(text, 8))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"zero_optimization": {"stage": 3}, "prescale_gradients": true}', "`reduce_scatter` to false"),
        ('{"zero_optimization": {"stage": 3}, "gradient_predivide_factor": 2}', "`reduce_scatter` to false"),
        ('{"zero_optimization": {"stage": 3}, "expert_parallel": {"enabled": true}, "sequence_parallel_size": 2}', "change one of"),
        ('{"zero_optimization": {"stage": 2}, "pipeline": {"stages": 2}}', "the step itself would be right"),
        ('{"managed_gradient_accumulation": false, "pipeline": {"stages": 2}}', "leave it true"),
        ('{"zero_optimization": {"stage": 3}, "gradient_allreduce_op": "sum"}', "take `mean`"),
        ('{"compile": {"deepcompile": true}, "gradient_allreduce_op": "sum"}', "take `mean`"),
        ('{"zero_optimization": {"stage": 2}, "prescale_gradients": true}', "leave it false"),
        ('{"zero_optimization": {"stage": 2}, "gradient_predivide_factor": 2.0}', "leave it out"),
        ('{"zero_optimization": {"stage": 3, "compute_grad_norm": false}}', "leave it true"),
        ('{"zero_optimization": {"stage": 1, "allgather_bucket_size": 5}}', "even"),
        ('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}', "leave it at 1"),
        ('{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}, "expert_parallel": {"enabled": true}}', "leave it at 1"),
        (
            '{"zero_optimization": {"stage": 3, "zero_quantized_weights": true}, "expert_parallel": {"enabled": true, "autoep_size": 2}}',
            "drop one of the two",
        ),
        ('{"zero_optimization": {"stage": 1}, "optimizer": {"type": "SGD"}}', "zero_allow_untested_optimizer"),
        ('{"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}}', "take stage 1, 2 or 3"),
        ('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true, "bf16_optimizer_states": true}}', "bf16_master_weights_and_grads"),
        ('{"gradient_allreduce_op": "sum"}', "take `mean`"),
        ('{"zero_optimization": {"stage": 2}, "gradient_allreduce_op": "sum"}', "prove that"),
        (
            '{"zero_optimization": {"stage": 2}, "gradient_allreduce_op": "sum", "data_parallel_size": 1, "sequence_parallel_size": 2}',
            "mean",
        ),
        ('{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "fp16_master_weights_and_grads": true}}', "offload_optimizer"),
        ('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}}', "offload_optimizer"),
        ('{"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}', "take stage 1, 2 or 3"),
        ('{"zero_optimization": {"cpu_offload": true}, "optimizer": {"type": "Adam"}}', "take stage 1, 2 or 3"),
        ('{"zero_optimization": {"stage": "auto"}}', "write 0, 1, 2 or 3"),
        ('{"zero_optimization": {"stage": 3, "offload_param": {"device": "auto"}}}', "write `none`"),
        ('{"zero_optimization": {"stage": 3, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}}}', "keep `offload_optimizer`"),
        ('{"tensor_parallel": {"autotp_size": 4, "tp": {"tp_size": 2}}}', "the same degree"),
        ('{"fp16": {"enabled": true}, "data_types": {"param_dtype": "bf16"}}', "leave it out"),
    ],
)
def test_options_that_exclude_each_other(text: str, said: str) -> None:
    (problem,) = refused(text).diagnostics
    assert problem.code == "PP504"
    assert problem.place is not None
    assert said in str(problem.help)


@pytest.mark.parametrize("name", [known.name for known in settings("deepspeed") if known.note == "gone from DeepSpeed"])
@pytest.mark.parametrize("value", [True, False, None, "auto", 4, {"enabled": False}])
def test_what_deepspeed_has_removed_is_refused_whatever_it_says(name: str, value: object) -> None:
    for part in reversed(name.split(".")):
        value = {part: value}
    (problem,) = refused(json.dumps(value)).diagnostics
    assert problem.code == "PP504"
    assert problem.place is not None
    assert "0.19.8" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        '{"communication_data_type": "float32"}',
        '{"fp16": {"loss_scale": -1}}',
        '{"fp16": {"loss_scale": true}}',
        '{"zero_optimization": null}',
        '{"fp16": null}',
        '{"train_batch_size": "64"}',
        '{"gradient_accumulation_steps": "4"}',
        '{"gradient_clipping": "1.0"}',
        '{"prescale_gradients": "false"}',
    ],
)
def test_values_that_deepspeed_does_not_take(text: str) -> None:
    assert [d.code for d in refused(text).diagnostics] == ["PP503"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}', "zero_optimization.offload_param.device"),
        ('{"zero_optimization": {"stage": 2, "zero_quantized_weights": true}}', "zero_optimization.zero_quantized_weights"),
    ],
)
def test_what_deepspeed_ignores_is_told(text: str, name: str) -> None:
    assert name in [r.name for r in read_config(text, system="deepspeed").readings if r.told and r.role is Role.NO_MATTER]


def test_a_null_table_leaves_the_older_name_of_bf16() -> None:
    assert read_config('{"bf16": null, "bfloat16": {"enabled": true}}', system="deepspeed").precision == "mixed-adam"


def test_a_batch_that_counts_tensor_parallel_devices() -> None:
    said = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    (problem,) = refused(json.dumps({**said, "tensor_parallel": {"autotp_size": 4}}), 8).diagnostics
    assert "mpu" in str(problem.help)


@pytest.mark.parametrize("prefix", ["", "stage3_"])
@pytest.mark.parametrize(("name", "usual"), [
    ("prefetch_bucket_size", 50_000_000), ("param_persistence_threshold", 100_000), ("model_persistence_threshold", 2**63 - 1),
    ("max_live_parameters", 10**9), ("max_reuse_distance", 10**9), ("module_granularity_threshold", 0),
])  # fmt: skip
def test_what_is_usual_in_stage_3_is_of_no_matter(prefix: str, name: str, usual: int) -> None:
    """As DeepSpeed has it (deepspeed==0.19.8:runtime/zero/config.py)."""
    for value in (usual, usual - 1 if usual else 1):
        text = json.dumps({"zero_optimization": {"stage": 3, f"{prefix}{name}": value}})
        (role,) = (r.role for r in read_config(text, system="deepspeed", world=8).readings if r.name.endswith(name))
        assert (role is Role.NO_MATTER) == (value == usual)


@pytest.mark.parametrize(
    ("text", "at"),
    [('{"pipeline": {"stages": 2}}', '"stages"'), ('{"sequence_parallel_size": 2, "pipeline": {"stages": 1}}', '"sequence_parallel_size"')],
)
def test_degrees_divide_the_devices(text: str, at: str) -> None:
    (problem,) = refused(text, 3).diagnostics
    assert problem.message == "2 does not divide 3 devices"
    assert problem.place is not None
    assert problem.place.text[problem.place.column - 1 :].startswith(at)
