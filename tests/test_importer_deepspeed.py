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
from placeproof.importers.deepspeed_fields import FIELDS
from placeproof.importers.imported import Role
from placeproof.importers.systems import read_config
from placeproof.semantics.lower import lower

HERE = Path(__file__).parent / "configs" / "deepspeed"
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


def test_no_setting_is_in_the_table_twice() -> None:
    names = [f.name for f in FIELDS]
    assert sorted(names) == sorted(set(names))
    assert all(f.note and "—" not in f.note for f in FIELDS)


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
        ('{"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}}', None),
        ('{"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "auto"}}', None),
        ('{"fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "float32"}}', "fp16-fp32grad"),
        ('{"data_types": {"grad_accum_dtype": "bf16"}}', None),
        ('{"amp": {"enabled": true, "opt_level": "O1"}}', None),
        ('{"amp": {"enabled": false, "opt_level": "O1"}}', "fp32-adam"),
        ('{"bf16": {"enabled": false, "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 1}}', None),
    ],
)
def test_precision(text: str, precision: str | None) -> None:
    assert read_config(text, system="deepspeed").precision == precision


@pytest.mark.parametrize(
    ("text", "said"),
    [
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


def test_a_batch_that_counts_tensor_parallel_devices() -> None:
    said = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    (problem,) = refused(json.dumps({**said, "tensor_parallel": {"autotp_size": 4}}), 8).diagnostics
    assert "mpu" in str(problem.help)
