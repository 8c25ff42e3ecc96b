"""torchtitan's files, read: real ones against what their settings mean, bad ones against their problems."""

import json
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.core.precision import PRECISIONS
from placeproof.importers.imported import Imported, Role
from placeproof.importers.systems import read_config
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower

FOLDER = Path(__file__).parents[1] / "configs" / "torchtitan"
GOOD = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
BAD = json.loads((FOLDER / "bad" / "expected.json").read_text(encoding="utf-8"))


def imported(text, world=None) -> Imported:
    return read_config(text, system="torchtitan", world=world)


def leaves(table, path=()):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key))


def reading(found, name):
    (one,) = (r for r in found.readings if r.name == name)
    return one


def test_every_file_is_in_its_table():
    assert {p.name for p in FOLDER.glob("*.toml")} == set(GOOD)
    assert {p.name for p in (FOLDER / "bad").glob("*.toml")} == set(BAD)


@pytest.mark.parametrize("name", GOOD)
def test_real_files_are_read(name):
    wanted, path = GOOD[name], FOLDER / name
    found = read_config(str(path), world=wanted["world"])
    assert found.system == "torchtitan"
    assert found.expression == wanted["expression"]
    assert found.precision == wanted["precision"]
    assert found.numbers == {symbol: Fraction(value) for symbol, value in wanted["numbers"].items()}
    assert list(found.without) == wanted["without"]
    assert [r.name for r in found.of(Role.NOT_MODELLED)] == wanted["not_modelled"]
    assert [r.name for r in found.another_step] == wanted["another_step"]
    lower(found.strategy())
    said = sorted(leaves(tomllib.loads(path.read_text(encoding="utf-8"))))
    assert sorted(r.name for r in found.readings if r.place is not None) == said
    assert len({r.name for r in found.readings}) == len(found.readings)


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_every_problem(name):
    with pytest.raises(InputError) as caught:
        read_config(str(FOLDER / "bad" / name), world=BAD[name]["world"])
    found = [[d.code, d.place.line if d.place else None] for d in caught.value.diagnostics]
    assert found == BAD[name]["problems"]
    assert all(d.help for d in caught.value.diagnostics)


def test_an_empty_text_is_no_configuration_even_if_the_system_is_named():
    with pytest.raises(InputError) as caught:
        imported(str(FOLDER / "bad" / "empty.toml"))
    assert [d.code for d in caught.value.diagnostics] == ["PP501"]


@pytest.mark.parametrize(
    ("settings", "world", "expression"),
    [
        ("[parallelism]\ntensor_parallel_degree = 1\n", 1, "ddp(dp=1)"),
        ("[parallelism]\ndata_parallel_shard_degree = 1\ntensor_parallel_degree = 4\n", 4, "tp(tp=4) * sp(tp=4)"),
        ("[parallelism]\ndata_parallel_replicate_degree = 4\n", None, "hsdp(rep=4, prefetch=true)"),
        ("[parallelism]\ndata_parallel_replicate_degree = 4\n", 4, "ddp(dp=4)"),
        ('[parallelism]\nfsdp_reshard_after_forward = "never"\n', 4, "fsdp(dp=4, reshard_after_forward=false)"),
        (
            '[parallelism]\npipeline_parallel_degree = 2\nfsdp_reshard_after_forward = "always"\npipeline_parallel_schedule = "GPipe"\n',
            8,
            "fsdp(dp=4, prefetch=true) * pp(pp=2, schedule=gpipe)",
        ),
        (
            "[parallelism]\ncontext_parallel_degree = 4\n[training]\nglobal_batch_size = 16\n",
            4,
            "fsdp(dp=cp, prefetch=true) * accumulate * cp(cp=4, attention=gather)",
        ),
        (
            "[training]\nenable_cpu_offload = true\n[parallelism]\ndata_parallel_replicate_degree = 2\n",
            8,
            "hsdp(rep=2, shard=4, prefetch=true)",
        ),
        ("[training]\nlocal_batch_size = 4\nglobal_batch_size = 32\n", 8, "fsdp(dp=8, prefetch=true)"),
        (
            '[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = "alltoall"\n',
            8,
            "fsdp(dp=4, prefetch=true) * fsdp(dp=cp, prefetch=true) * cp(cp=2)",
        ),
        (
            "[parallelism]\ncontext_parallel_degree = 2\ndata_parallel_replicate_degree = 2\n",
            8,
            "hsdp(rep=2, shard=2, prefetch=true) * fsdp(dp=cp, prefetch=true) * cp(cp=2, attention=gather)",
        ),
    ],
)
def test_degrees_decide_the_strategy(settings, world, expression):
    found = imported(settings, world)
    assert found.expression == f"{expression} * clip"
    lower(found.strategy())


@pytest.mark.parametrize(
    ("degrees", "world", "expression"),
    [
        ("expert_parallel_degree = 4", 8, "fsdp(dp=2) * fsdp(dp=ep) * ep(ep=4)"),
        ("expert_parallel_degree = 8", 8, "fsdp(dp=1) * fsdp(dp=ep) * ep(ep=8)"),
        ("expert_parallel_degree = 4", None, "fsdp * fsdp(dp=ep) * ep(ep=4)"),
        ("expert_parallel_degree = 2\ndata_parallel_replicate_degree = 2", 8, "hsdp(rep=2, shard=2) * fsdp(dp=ep) * ep(ep=2)"),
        (
            "expert_parallel_degree = 2\ncontext_parallel_degree = 2",
            8,
            "fsdp(dp=4) * fsdp(dp=cp) * ep(ep=cp) * cp(cp=2, attention=gather)",
        ),
        (
            "expert_parallel_degree = 4\ntensor_parallel_degree = 2",
            16,
            "fsdp(dp=4) * fsdp(dp=ep) * tp(tp=2) * sp(tp=2) * ep(ep=2) * ep(ep=tp)",
        ),
        (
            "expert_parallel_degree = 4\ntensor_parallel_degree = 2\nexpert_tensor_parallel_degree = 2",
            16,
            "fsdp(dp=2) * fsdp(dp=ep) * tp(tp=2) * sp(tp=2) * ep(ep=4)",
        ),
    ],
)
def test_experts_are_an_axis_of_samples(degrees, world, expression):
    found = imported(f"[parallelism]\n{degrees}\n", world)
    assert found.expression == f"{expression} * clip"
    assert judge(lower(found.strategy())).word == "proved"


def test_experts_that_are_sharded_further_than_the_strategy_says_are_not_modelled():
    text = "[parallelism]\nexpert_parallel_degree = 4\ntensor_parallel_degree = 2\n"
    whole = reading(imported(text.replace("degree = 2", "degree = 8"), 32), "parallelism.expert_parallel_degree")
    assert whole.role is Role.NOT_MODELLED
    assert "1/8 of what is counted" in whole.note
    apart = reading(imported(text, 16), "parallelism.expert_parallel_degree")
    assert apart.role is Role.NOT_MODELLED
    assert "those of tp, and the axis ep, taken out of the shards; torchtitan gathers tokens" in apart.note
    assert reading(imported(text + "expert_tensor_parallel_degree = 2\n", 16), "parallelism.expert_parallel_degree").role is Role.READ
    split = "parallelism.expert_tensor_parallel_degree"
    assert reading(imported(text + "expert_tensor_parallel_degree = 1\n", 16), split).note == "each expert is whole"
    assert reading(imported(text + "expert_tensor_parallel_degree = 2\n", 16), split).note == "experts are split as other matrices are"


@pytest.mark.parametrize(
    ("degrees", "why"),
    [
        (
            "expert_parallel_degree = 4\ncontext_parallel_degree = 8",
            "do not divide 1 data-parallel ones: they are those of context parallelism",
        ),
        ("expert_parallel_degree = 4\ntensor_parallel_degree = 8", "those of tensor parallelism too"),
        ("expert_parallel_degree = 8\ntensor_parallel_degree = 2\nexpert_tensor_parallel_degree = 2", "over 4 devices"),
        ("expert_parallel_degree = 2\ntensor_parallel_degree = 4\nexpert_tensor_parallel_degree = 2", "split 2 ways and the rest 4 ways"),
    ],
)
def test_experts_elsewhere_are_refused(degrees, why):
    with pytest.raises(InputError) as caught:
        imported(f"[parallelism]\n{degrees}\n", 8)
    assert any(why in d.message for d in caught.value.diagnostics), caught.value.diagnostics


@pytest.mark.parametrize(
    ("training", "parallelism", "precision"),
    [
        ("", "", None),
        ('mixed_precision_param = "float32"', "", "fp32-adam"),
        ('dtype = "bfloat16"', "", None),
        ("", "data_parallel_shard_degree = 1\ntensor_parallel_degree = 8", "fp32-adam"),
        ("", "data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 8", None),
        ('dtype = "bfloat16"', "data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 8", "bf16-adam"),
    ],
)
def test_a_precision_is_named_only_where_all_its_widths_are_right(training, parallelism, precision):
    found = imported(f"[training]\n{training}\n[parallelism]\n{parallelism}\n", 8)
    assert found.precision == precision
    assert precision is None or precision in PRECISIONS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training.mixed_precision_reduce", "bfloat16"),
        ("optimizer.implementation", "fuse"),
        ("lr_scheduler.decay_type", "cos"),
        ("checkpoint.export_dtype", "fp16"),
        ("checkpoint.async_mode", "sync"),
    ],
)
def test_a_word_that_torchtitan_does_not_have_is_refused(name: str, value: str):
    """Those of its job configuration (torchtitan/config/job_config.py)."""
    table, _, key = name.partition(".")
    with pytest.raises(InputError) as caught:
        imported(f'[{table}]\n{key} = "{value}"\n', 8)
    assert [d.code for d in caught.value.diagnostics] == ["PP503"]


def test_a_missing_named_precision_is_explained():
    note = reading(imported("[training]\nsteps = 1\n", 8), "training.mixed_precision_param").note
    assert "4 bytes" in note
    assert "gathers weights in 2" in note
    assert "reduces gradients in 4" in note


def test_another_optimizer_is_not_taken_for_elementwise():
    found = imported('[training]\nmixed_precision_param = "float32"\n[optimizer]\nname = "Muon"\n', 8)
    assert found.without == ("elementwise-optimizer",)
    assert found.precision is None
    assert reading(found, "optimizer.name").role is Role.NOT_MODELLED


def test_settings_without_effect_are_no_matter():
    text = '[parallelism]\npipeline_parallel_schedule = "ZBVZeroBubble"\nexpert_tensor_parallel_degree = 4\n'
    text += '[float8]\nfilter_fqns = ["output"]\n'
    assert {r.role for r in imported(text, 8).readings if r.place is not None} == {Role.NO_MATTER}


def test_offload_that_the_strategy_cannot_say_is_not_modelled():
    text = '[training]\nenable_cpu_offload = true\n[parallelism]\nfsdp_reshard_after_forward = "never"\n'
    assert reading(imported(text, 8), "training.enable_cpu_offload").role is Role.NOT_MODELLED
    assert reading(imported("[training]\nenable_cpu_offload = true\n", 1), "training.enable_cpu_offload").role is Role.NO_MATTER


def test_a_pipeline_that_runs_twice_in_a_step_counts_all_micro_batches():
    text = "[training]\nlocal_batch_size = 8\nglobal_batch_size = 64\n[parallelism]\npipeline_parallel_degree = 2\n"
    found = imported(text, 8)
    assert found.expression == "fsdp(dp=4, reshard_after_forward=false) * pp(pp=2) * clip"
    assert found.numbers == {"b": 1, "m": 16}
    assert reading(found, "training.global_batch_size").role is Role.NOT_MODELLED


@pytest.mark.parametrize(
    ("schedule", "more", "pp"),
    [
        ("Interleaved1F1B", "", "pp(pp=2, schedule=interleaved, chunks=2)"),
        (
            "Interleaved1F1B",
            'module_fqns_per_model_part = [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]\n',
            "pp(pp=2, schedule=interleaved, chunks=3)",
        ),
        ("ZBVZeroBubble", "", "pp(pp=2, schedule=zb-v)"),
        ("DualPipeV", "", "pp(pp=2, schedule=dualpipe-v)"),
        ("GPipe", "", "pp(pp=2, schedule=gpipe)"),
        ("1F1B", "", "pp(pp=2)"),
    ],
)
def test_schedules_are_those_of_the_catalogue(schedule, more, pp):
    text = "[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 2\n"
    found = imported(f'{text}pipeline_parallel_schedule = "{schedule}"\n{more}', 2)
    assert found.expression == f"{pp} * clip"
    assert reading(found, "parallelism.pipeline_parallel_schedule").role is Role.READ
    lower(found.strategy())


@pytest.mark.parametrize(
    ("schedule", "size", "more"),
    [
        ("InterleavedZeroBubble", 8, ""),
        ("LoopedBFS", 8, ""),
        ("Interleaved1F1B", 3, ""),
        ("Interleaved1F1B", 8, "pipeline_parallel_layers_per_stage = 2\n"),
    ],
)
def test_other_orders_are_not_modelled(schedule, size, more):
    text = f"[training]\nlocal_batch_size = {size}\n[parallelism]\npipeline_parallel_degree = 2\n"
    found = imported(f'{text}pipeline_parallel_schedule = "{schedule}"\n{more}', 2)
    assert found.expression == "pp(pp=2) * clip"
    assert reading(found, "parallelism.pipeline_parallel_schedule").role is Role.NOT_MODELLED


def test_copies_that_reduce_after_each_pass_are_not_modelled():
    text = "[training]\nlocal_batch_size = 8\nglobal_batch_size = 128\n[parallelism]\ndata_parallel_replicate_degree = 2\n"
    found = imported(text, 8)
    assert found.expression == "hsdp(rep=2, shard=4, prefetch=true) * accumulate * clip"
    assert reading(found, "training.global_batch_size").role is Role.NOT_MODELLED
    alone = imported(text.replace("degree = 2", "degree = 1"), 8)
    assert reading(alone, "training.global_batch_size").role is Role.READ


def test_older_names_are_read():
    text = "[training]\nbatch_size = 8\n[experimental]\npipeline_parallel_degree = 2\npipeline_parallel_microbatches = 4\n"
    found = imported(text, 2)
    assert found.expression == "pp(pp=2) * clip"
    assert found.numbers == {"b": 2, "m": 4}


@pytest.mark.parametrize(
    ("text", "name", "opened"),
    [
        ("batch_size = 8\n[experimental]\npipeline_parallel_degree = 2\n", "batch_size", True),
        ("batch_size = 8\n[experimental]\npipeline_parallel_degree = 1\n", "batch_size", False),
        ("batch_size = 8\n[experimental]\npipeline_parallel_degree = 2\npipeline_parallel_microbatches = 4\n", "batch_size", False),
        ("local_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 2\n", "local_batch_size", False),
    ],
)
def test_micro_batches_that_are_left_open_are_told_and_no_others(text, name, opened):
    found = imported("[training]\n" + text, 2)
    one = reading(found, f"training.{name}")
    assert ("b" not in found.numbers) is ("left open" in one.note) is one.told is opened


@pytest.mark.parametrize(("schedule", "whole"), [("Interleaved1F1B", True), ("1F1B", False)])
def test_stages_that_go_round_are_equally_many_on_each_device(schedule: str, whole: bool):
    parts = ", ".join(f'["{name}"]' for name in "abcde")
    text = f'[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "{schedule}"\n'
    with pytest.raises(InputError) as caught:
        imported(text + f"module_fqns_per_model_part = [{parts}]\n", 2)
    said = "Interleaved1F1B has as many stages on each device: 5 stages, 2 devices"
    assert (said in [d.message for d in caught.value.diagnostics]) is whole
