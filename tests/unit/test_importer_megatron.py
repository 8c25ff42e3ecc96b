"""Arguments of Megatron-LM: real files, broken files, and single settings."""

from __future__ import annotations

import json
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.core.precision import PRECISIONS
from placeproof.importers import Imported, Role, read_config
from placeproof.models import load
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.linked import link
from placeproof.semantics.lower import lower

CONFIGS = Path(__file__).parents[1] / "configs" / "megatron"
GOOD: dict[str, Any] = json.loads((CONFIGS / "expected.json").read_text())
BAD: dict[str, Any] = json.loads((CONFIGS / "bad" / "expected.json").read_text())


def read(text: str, world: int | None = 8) -> Imported:
    return read_config(text, system="megatron", world=world)


def problems(text: str, world: int | None = 8) -> list[str]:
    with pytest.raises(InputError) as raised:
        read(text, world)
    return [d.message for d in raised.value.diagnostics]


def test_all_files_are_expected() -> None:
    assert {p.name for p in CONFIGS.glob("*.args")} == set(GOOD)
    assert {p.name for p in (CONFIGS / "bad").glob("*.args")} == set(BAD)


@pytest.mark.parametrize("name", GOOD)
def test_real_file(name: str) -> None:
    expected = GOOD[name]
    path = CONFIGS / name
    imported = read_config(str(path), world=expected["world"])
    assert imported.system == "megatron"
    assert imported.expression == expected["expression"]
    assert imported.precision == expected["precision"]
    assert imported.precision is None or imported.precision in PRECISIONS
    assert imported.numbers == {k: Fraction(v) for k, v in expected["numbers"].items()}
    assert list(imported.without) == expected["without"]
    assert [r.name for r in imported.of(Role.NOT_MODELLED)] == expected["not_modelled"]
    assert [r.name for r in imported.another_step] == expected["another_step"]
    assert path.read_text().startswith(f"# {expected['source']}")
    lower(imported.strategy())


@pytest.mark.parametrize("name", GOOD)
def test_every_setting_is_read_once(name: str) -> None:
    lines = [line.split(" #")[0] for line in (CONFIGS / name).read_text().splitlines() if not line.startswith("#")]
    said = [word[2:].replace("-", "_") for line in lines for word in line.split() if word.startswith("--")]
    readings = read_config(str(CONFIGS / name), world=GOOD[name]["world"]).readings
    assert [r.name for r in readings if r.place is not None] == said
    assert all(r.place is not None or r.note.startswith("not said; ") for r in readings)
    assert all(r.note for r in readings)


@pytest.mark.parametrize("name", BAD)
def test_broken_file(name: str) -> None:
    with pytest.raises(InputError) as raised:
        read_config(str(CONFIGS / "bad" / name), world=BAD[name]["world"])
    found = [[d.code, d.place.line if d.place else None] for d in raised.value.diagnostics]
    assert found == BAD[name]["problems"]
    assert all(d.help for d in raised.value.diagnostics)


STEP = "--micro-batch-size 1 --global-batch-size 8 "


@pytest.mark.parametrize(
    ("text", "world", "expression"),
    [
        ("--bf16", 1, "ddp(dp=1)"),
        ("--bf16", None, "ddp"),
        (STEP, 1, "ddp(dp=1) * accumulate(microbatches=8)"),
        (STEP, None, "ddp * accumulate"),
        ("--micro-batch-size 4 --global-batch-size 4", None, "ddp"),
        (STEP + "--use-distributed-optimizer", 4, "zero1(dp=4) * accumulate(microbatches=2)"),
        ("--micro-batch-size 1 --step-batch-size-schedule '0:768 250B:1536'", 4, "ddp(dp=4) * accumulate"),
        ("--micro-batch-size 3 --global-batch-size 16 --decrease-batch-size-if-needed", 2, "ddp(dp=2) * accumulate(microbatches=2)"),
        ("--use-megatron-fsdp", 8, "zero3(dp=8)"),
        ("--use-custom-fsdp", 8, "ddp(dp=8)"),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", 8, "zero2(dp=8)"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", 8, "zero1(dp=8)"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy no_shard", 8, "ddp(dp=8)"),
        ("--use-megatron-fsdp --num-distributed-optimizer-instances 2", 8, "hsdp(rep=2, shard=4)"),
        ("--use-megatron-fsdp --num-distributed-optimizer-instances 8", 8, "ddp(dp=8)"),
        ("--use-megatron-fsdp --num-distributed-optimizer-instances 2", None, "hsdp(rep=2)"),
        (
            "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward --untie-embeddings-and-output-weights "
            "--no-gradient-accumulation-fusion --tensor-model-parallel-size 2",
            8,
            "fsdp(dp=4, reshard_after_forward=false) * tp(tp=2)",
        ),
        (
            "--tensor-model-parallel-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
            "--distribute-saved-activations",
            8,
            "ddp(dp=4) * tp(tp=2) * checkpoint * zero_r(tp=2)",
        ),
        ("--recompute-granularity selective", 8, "ddp(dp=8)"),
        ("--recompute-activations", 8, "ddp(dp=8)"),
        ("--generalized-tensor-parallel-remat-size 2 --pipeline-model-parallel-size 2", 8, "ddp(dp=2) * pp(pp=2)"),
        ("--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 4", 8, "ddp(dp=2) * tp(tp=2)"),
        ("--context-parallel-size 2", 8, "ddp(dp=4) * cp(cp=2)"),
        ("--context-parallel-size 8", 8, "cp(cp=8)"),
        ("--context-parallel-size 8 --use-distributed-optimizer", 8, "zero1(dp=cp) * cp(cp=8)"),
        ("--context-parallel-size 2 --use-distributed-optimizer", 8, "zero1(dp=4) * zero1(dp=cp) * cp(cp=2)"),
        ("--context-parallel-size 2 --use-distributed-optimizer", None, "zero1 * zero1(dp=cp) * cp(cp=2)"),
        ("--context-parallel-size 4 --cp-comm-type all_gather", 4, "cp(cp=4, attention=gather)"),
        ("--context-parallel-size 4 --cp-comm-type a2a", 4, "cp(cp=4, attention=ulysses)"),
        (
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
            8,
            "ddp(dp=2) * pp(pp=4, schedule=interleaved, chunks=2)",
        ),
        (
            "--num-layers 24 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            8,
            "ddp(dp=2) * pp(pp=4, schedule=interleaved, chunks=3)",
        ),
        (
            f"--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 {STEP}"
            "--microbatch-group-size-per-virtual-pipeline-stage 8",
            4,
            "pp(pp=4, microbatches=8)",
        ),
    ],
)
def test_strategy(text: str, world: int | None, expression: str) -> None:
    imported = read(text, world)
    assert imported.expression == f"{expression} * clip"
    lower(imported.strategy())


MATRICES = "--optimizer muon --tensor-model-parallel-size 2 --muon-tp-mode "
EXPERTS = "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size "
TENSOR = "--tensor-model-parallel-size 2 --sequence-parallel --disable-bias-linear "
SHARDED = "--use-distributed-optimizer "
FOUR = TENSOR.replace("2", "4")


@pytest.mark.parametrize(
    ("text", "world", "expression"),
    [
        (EXPERTS + "4", 8, "ddp(dp=2) * ep(ep=4)"),
        (EXPERTS + "8", 8, "ep(ep=8)"),
        (EXPERTS + "1 --expert-tensor-parallel-size 1", 8, "ddp(dp=8)"),
        (SHARDED + EXPERTS + "8", 8, "zero1(dp=ep) * ep(ep=8)"),
        (SHARDED + EXPERTS + "4", None, "zero1 * zero1(dp=ep) * ep(ep=4)"),
        ("--use-megatron-fsdp " + EXPERTS + "4", 8, "zero3(dp=2) * zero3(dp=ep) * ep(ep=4)"),
        ("--use-megatron-fsdp " + EXPERTS + "8", 8, "zero3(dp=1) * zero3(dp=ep) * ep(ep=8)"),
        (
            "--use-megatron-fsdp --num-distributed-optimizer-instances 2 " + EXPERTS + "4",
            8,
            "hsdp(rep=2, shard=1) * fsdp(dp=ep) * ep(ep=4)",
        ),
        (SHARDED + TENSOR + EXPERTS + "4", 16, "zero1(dp=2) * zero1(dp=ep) * tp(tp=2) * sp(tp=2) * ep(ep=4)"),
        (SHARDED + TENSOR + EXPERTS + "4 --expert-tensor-parallel-size 2", 8, "zero1(dp=ep) * tp(tp=2) * sp(tp=2) * ep(ep=4)"),
        (TENSOR + EXPERTS + "4 --expert-tensor-parallel-size 1", 16, "ddp(dp=4) * tp(tp=2) * sp(tp=2) * ep(ep=2) * ep(ep=tp)"),
        (TENSOR + EXPERTS + "8 --expert-tensor-parallel-size 1", 8, "tp(tp=2) * sp(tp=2) * ep(ep=4) * ep(ep=tp)"),
        (SHARDED + TENSOR + EXPERTS + "2 --expert-tensor-parallel-size 1", 8, "zero1(dp=4) * tp(tp=2) * sp(tp=2) * ep(ep=tp)"),
        (
            SHARDED + TENSOR + EXPERTS + "8 --expert-tensor-parallel-size 1 --context-parallel-size 2",
            16,
            "zero1(dp=2) * zero1(dp=ep) * zero1(dp=cp) * tp(tp=2) * sp(tp=2) * ep(ep=2) * ep(ep=tp) * ep(ep=cp) * cp(cp=2)",
        ),
        (FOUR + EXPERTS + "2 --expert-tensor-parallel-size 1", 16, "ddp(dp=2) * tp(tp=4) * sp(tp=4) * ep(ep=2, experts=whole)"),
        (
            "--use-megatron-fsdp --context-parallel-size 2 " + EXPERTS + "2",
            2,
            "zero3(dp=1) * zero3(dp=cp) * ep(ep=cp) * cp(cp=2)",
        ),
        (TENSOR + EXPERTS + "2 --context-parallel-size 2", 8, "tp(tp=2) * sp(tp=2) * ep(ep=2) * cp(cp=2)"),
        (TENSOR + EXPERTS + "4 --context-parallel-size 2", 8, "tp(tp=2) * sp(tp=2) * ep(ep=2) * ep(ep=cp) * cp(cp=2)"),
        (TENSOR + "--num-experts 8 --expert-tensor-parallel-size 1", 4, "ddp(dp=2) * tp(tp=2) * sp(tp=2) * ep(ep=1, experts=whole)"),
        (TENSOR + "--num-experts 8", 4, "ddp(dp=2) * tp(tp=2) * sp(tp=2)"),
        (
            SHARDED + "--context-parallel-size 2 " + EXPERTS + "2",
            8,
            "zero1(dp=4) * zero1(dp=cp) * ep(ep=cp) * cp(cp=2)",
        ),
        (
            SHARDED + "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 " + EXPERTS + "2",
            8,
            "zero1(dp=2) * zero1(dp=ep) * pp(pp=2, schedule=interleaved, chunks=2) * ep(ep=2)",
        ),
    ],
)
def test_experts_are_an_axis_of_samples(text: str, world: int | None, expression: str) -> None:
    imported = read(text, world)
    assert imported.expression == f"{expression} * clip"
    assert judge(lower(imported.strategy())).word == "proved"
    assert imported.numbers["E"] == 8


SPLIT = "--expert-tensor-parallel-size "
SLICES = "tp(2, tp=etp) * tp(tp=2) * sp(2, tp=etp) * sp(tp=2) * "


@pytest.mark.parametrize(
    ("text", "world", "expression"),
    [
        (SHARDED + FOUR + EXPERTS + f"4 {SPLIT}2", 16, f"zero1(dp=2) * zero1(dp=ep) * {SLICES}ep(ep=2) * ep(ep=tp)"),
        (FOUR + EXPERTS + f"2 {SPLIT}2", None, f"ddp * {SLICES}ep(ep=tp)"),
        (FOUR + EXPERTS + f"4 {SPLIT}2 --context-parallel-size 2", 16, f"{SLICES}ep(ep=2) * ep(ep=tp) * cp(cp=2)"),
        (
            TENSOR.replace("2", "8") + EXPERTS + f"2 {SPLIT}2", 16,
            "ddp(dp=2) * tp(2, tp=dtp) * tp(2, tp=etp) * tp(tp=2) * sp(2, tp=dtp) * sp(2, tp=etp) * sp(tp=2) * ep(ep=tp, experts=etp)",
        ),
        (
            FOUR + EXPERTS + f"1 {SPLIT}2", 8,
            "ddp(dp=2) * tp(2, tp=dtp) * tp(2, tp=etp) * sp(2, tp=dtp) * sp(2, tp=etp) * ep(ep=1, experts=etp)",
        ),
        (TENSOR.replace("2", "8") + EXPERTS + f"2 {SPLIT}8", 16, "tp(tp=8) * sp(tp=8) * ep(ep=2)"),
        (FOUR + EXPERTS + f"2 {SPLIT}1", 4, "tp(2, tp=dtp) * tp(tp=2) * sp(2, tp=dtp) * sp(tp=2) * ep(ep=tp, experts=whole)"),
    ],
)  # fmt: skip
def test_experts_may_be_split_over_a_part_of_tensor_parallelism(text: str, world: int | None, expression: str) -> None:
    imported = read(text, world)
    assert imported.expression == f"{expression} * clip"
    link(load("mixtral-8x7b"), imported.strategy())


@pytest.mark.parametrize(
    ("tp", "etp", "ep", "world"),
    [(4, 2, 2, 8), (4, 2, 4, 16), (8, 2, 2, 16), (8, 2, 4, 16), (8, 4, 4, 32), (4, 2, 1, 8), (8, 2, 1, 8), (4, 1, 2, 4)],
)
def test_devices_that_share_slices_are_those_of_megatron(tp: int, etp: int, ep: int, world: int) -> None:
    """Megatron numbers the same devices twice, tensor parallelism first: by tp, dp, and by etp, ep, and the copies that are left. Devices
    that have the same slices of the same experts are copies there, and here those that differ along axes on which experts do not lie."""
    strategy = read(TENSOR.replace("2", str(tp)) + EXPERTS + f"{ep} {SPLIT}{etp}", world).strategy()
    inside_out = [a for name in ("etp", "tp", "dtp", "ep", "dp") for a in strategy.axes if a.name == name]
    assert prod(a.degree or 1 for a in strategy.axes) == world
    apart = {*strategy.experts, "etp"}
    own: dict[tuple[int, ...], set[int]] = {}
    theirs: dict[tuple[int, int], set[int]] = {}
    for rank in range(world):
        rest, at = rank, []
        for axis in inside_out:
            rest, place = divmod(rest, axis.degree or 1)
            at += [place] if axis.name in apart else []
        own.setdefault(tuple(at), set()).add(rank)
        theirs.setdefault((rank % etp, rank // etp % ep), set()).add(rank)
    assert sorted(map(sorted, own.values())) == sorted(map(sorted, theirs.values()))


def test_a_file_with_experts_is_proved_and_derived_for_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    """What a stage holds is worked out by hand: 8 layers over tp 2, a quarter of 8 experts in each, and what ZeRO leaves of 12 bytes."""
    path = str(CONFIGS / "made_mixtral_8x7b.args")
    assert run(["prove", path, "--world", "64"]) == 4
    assert "the step without them: proved for dp = 2, ep = 4" in capsys.readouterr().out
    assert run(["derive", path, "--world", "64", "--model", "mixtral-8x7b", "--set", "c=1", "--json"]) == 0
    stage = json.loads(capsys.readouterr().out)["stages"][1]
    h, ffn, layers = 4096, 14336, 8
    experts = layers * 3 * h * ffn * 8 // (4 * 2)
    attention = 2 * h * h + 2 * h * (h // 4)
    rest = layers * (attention // 2 + 2 * h + 8 * h)
    assert stage["memory"]["parameters"]["value"] == 2 * (experts + rest)
    assert stage["memory"]["optimizer"]["value"] == 12 * Fraction(experts, 2) + 12 * Fraction(rest, 8)


@pytest.mark.parametrize(
    ("text", "world", "message"),
    [
        (EXPERTS + "2 --context-parallel-size 4", 4, "do not divide 1 data-parallel ones: they are those of context parallelism too"),
        (FOUR + EXPERTS + "8 --expert-tensor-parallel-size 1 --context-parallel-size 4", 16, "those of tensor and context parallelism too"),
        (
            TENSOR + EXPERTS + "4 --expert-tensor-parallel-size 1 --context-parallel-size 4",
            8,
            "do not divide 1 data-parallel ones: they are those of tensor and context parallelism too",
        ),
        (EXPERTS + "2 --expert-tensor-parallel-size 2", 8, "over 2 devices, which are no equal part of the 1 of other"),
        (TENSOR + EXPERTS + "2 --expert-tensor-parallel-size 4", 16, "over 4 devices, which are no equal part of the 2 of other"),
        ("--tensor-model-parallel-size 2 --num-experts 8", 8, "need sequence parallelism"),
        (EXPERTS + "3", 6, "no multiple of 3"),
        (EXPERTS + "8", 12, "12 devices are no multiple of 1 * 8 * 1"),
        ("--use-megatron-fsdp --num-distributed-optimizer-instances 4 " + EXPERTS + "4", 8, "no multiple of 4 copies"),
    ],
)
def test_experts_elsewhere_are_refused(text: str, world: int, message: str) -> None:
    assert any(message in found for found in problems(text, world)), problems(text, world)


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("--bf16", "megatron-bf16"),
        ("--bf16 --accumulate-allreduce-grads-in-fp32", "megatron-bf16"),
        ("--bf16 --grad-reduce-in-bf16", "bf16-fp32copies"),
        ("--bf16 --use-precision-aware-optimizer --main-grads-dtype bf16", None),
        ("--bf16 --use-precision-aware-optimizer --use-distributed-optimizer --exp-avg-dtype bf16", None),
        ("--bf16 --optimizer sgd", None),
        ("--bf16 --fp8-format hybrid", None),
        ("--bf16 --use-megatron-fsdp", None),
        ("--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32", "megatron-bf16"),
        ("--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-main-params-dtype auto", None),
        ("--fp16", "megatron-fp16"),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", "fp16-fp32sums"),
        ("--lr 0.1", "fp32-adam"),
        ("--optimizer sgd", "sgd-momentum"),
        ("--optimizer sgd --sgd-momentum 0.0", "sgd"),
        ("--optimizer lion", None),
    ],
)
def test_precision(text: str, precision: str | None) -> None:
    imported = read(text)
    assert imported.precision == precision
    if precision is None:
        assert any("no name here" in r.note or "differs between versions" in r.note for r in imported.of(Role.READ))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("--optimizer muon", "ddp(dp=8) * muon"),
        ("--optimizer muon --pipeline-model-parallel-size 2", "ddp(dp=4) * pp(pp=2) * muon"),
        ("--optimizer muon --tensor-model-parallel-size 2", "ddp(dp=4) * tp(tp=2)"),
        (MATRICES + "blockwise", "ddp(dp=4) * tp(tp=2)"),
        (MATRICES + "duplicated", "ddp(dp=4) * tp(tp=2) * muon"),
        (MATRICES + "distributed", "ddp(dp=4) * tp(tp=2) * muon"),
        ("--optimizer muon --use-distributed-optimizer", "zero1(dp=8) * muon(matrices=owned)"),
        ("--optimizer dist_muon", "zero1(dp=8, reduce=all_reduce) * muon(matrices=owned)"),
        ("--optimizer dist_muon --tensor-model-parallel-size 2", "ddp(dp=4) * tp(tp=2)"),
        ("--optimizer muon --num-experts 8", "ddp(dp=8) * muon"),
        ("--optimizer muon --num-experts 8 --moe-grouped-gemm --transformer-impl local", "ddp(dp=8)"),
        ("--optimizer muon --num-experts 8 --moe-use-legacy-grouped-gemm", "ddp(dp=8)"),
        (EXPERTS + "4 --moe-token-dispatcher-type alltoall --optimizer muon", "ddp(dp=2) * muon * ep(ep=4)"),
        ("--optimizer adaptive_muon", "ddp(dp=8)"),
        ("--optimizer adam", "ddp(dp=8)"),
    ],
)
def test_muon_is_read_where_directions_are_of_whole_matrices(text: str, expression: str) -> None:
    assert read(f"{text} --clip-grad 0").expression == expression


def test_iterations_of_muon_are_told() -> None:
    assert read("--optimizer muon --muon-num-ns-steps 6").numbers["n_ns"] == 6
    assert "n_ns" not in read("--optimizer muon").numbers


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("--bf16", []),
        ("--optimizer lion", []),
        ("--optimizer muon", []),
        ("--optimizer muon --tensor-model-parallel-size 2", []),
        (MATRICES + "duplicated", []),
        (MATRICES + "blockwise", ["elementwise-optimizer"]),
        ("--optimizer dist_muon", []),
        ("--optimizer soap", ["elementwise-optimizer"]),
        ("--eod-mask-loss", ["equal-token-counts"]),
        ("--eod-mask-loss --calculate-per-token-loss", []),
        ("--num-experts 8", []),
        ("--num-experts 8 --moe-aux-loss-coeff 1e-2", []),
        ("--num-experts 8 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-2", []),
        ("--num-experts 8 --moe-expert-capacity-factor 1.5", []),
    ],
)
def test_assumptions(text: str, without: list[str]) -> None:
    assert list(read(text).without) == without
    assert set(without) <= {a.name for a in ASSUMPTIONS.values()}


@pytest.mark.parametrize(
    ("text", "name", "role", "note"),
    [
        ("--sequence-parallel", "sequence_parallel", Role.READ, "switched off"),
        ("--sequence-parallel --tensor-model-parallel-size 2", "sequence_parallel", Role.READ, "split"),
        ("--hidden-dropout 0.0", "hidden_dropout", Role.NO_MATTER, "switched off"),
        ("--data-parallel-sharding-strategy optim", "data_parallel_sharding_strategy", Role.NO_MATTER, "shards nothing here"),
        ("--use-precision-aware-optimizer", "use_precision_aware_optimizer", Role.READ, "0.16.1 refuses it"),
        ("--optimizer muon --use-distributed-optimizer", "use_distributed_optimizer", Role.READ, "0.16.1 refuses it"),
        ("--optimizer adaptive_muon --use-distributed-optimizer", "use_distributed_optimizer", Role.ANOTHER_STEP, "0.16.1 refuses it"),
        ("--optimizer muon --muon-tp-mode blockwise", "muon_tp_mode", Role.NO_MATTER, "no tensor parallelism"),
        (MATRICES + "duplicated", "muon_tp_mode", Role.READ, "make directions of"),
        (MATRICES + "distributed", "muon_tp_mode", Role.NOT_MODELLED, "sums of products"),
        (MATRICES + "blockwise", "muon_tp_mode", Role.ANOTHER_STEP, "its own part"),
        ("--hidden-dropout 0.1", "hidden_dropout", Role.ANOTHER_STEP, "random"),
        ("--clip-grad 0", "clip_grad", Role.NO_MATTER, "switched off"),
        ("--optimizer muon", "optimizer", Role.READ, "whole matrices"),
        ("--optimizer muon --tensor-model-parallel-size 2", "optimizer", Role.ANOTHER_STEP, "versions differ"),
        ("--optimizer muon --num-experts 8", "optimizer", Role.READ, "whole matrices"),
        ("--optimizer soap", "optimizer", Role.NOT_MODELLED, "whole matrices"),
        ("--optimizer dist_muon", "optimizer", Role.READ, "each with one owner"),
        ("--context-parallel-size 1", "context_parallel_size", Role.NO_MATTER, "the default"),
        ("--context-parallel-size 2", "context_parallel_size", Role.READ, "the axis cp"),
        (
            "--context-parallel-size 2 --hybrid-context-parallel --calculate-per-token-loss",
            "context_parallel_size", Role.ANOTHER_STEP, "dp is divided",
        ),
        ("--context-parallel-size 2 --cp-comm-type p2p a2a", "cp_comm_type", Role.NOT_MODELLED, "several ways"),
        ("--cp-comm-type a2a", "cp_comm_type", Role.NO_MATTER, "not split"),
        (
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
            "num_virtual_stages_per_pipeline_rank", Role.READ, "2 runs of layers",
        ),
        (
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
            "num_layers_per_virtual_pipeline_stage", Role.NOT_MODELLED, "more messages",
        ),
        (EXPERTS + "4", "expert_model_parallel_size", Role.READ, "gathers all tokens unless"),
        (EXPERTS + "4 --moe-token-dispatcher-type alltoall", "expert_model_parallel_size", Role.READ, "taken out of dp"),
        (EXPERTS + "4 --moe-token-dispatcher-type alltoall", "moe_token_dispatcher_type", Role.READ, "sent to its experts"),
        (EXPERTS + "4 --moe-token-dispatcher-type flex", "moe_token_dispatcher_type", Role.NOT_MODELLED, "goes once"),
        ("--num-experts 8 --moe-token-dispatcher-type flex", "moe_token_dispatcher_type", Role.NO_MATTER, "not split"),
        (EXPERTS + "2 --context-parallel-size 2", "expert_model_parallel_size", Role.READ, "those of cp"),
        (TENSOR + EXPERTS + "2 --context-parallel-size 2", "expert_model_parallel_size", Role.READ, "between other devices"),
        (
            FOUR + SHARDED + EXPERTS + "2 --expert-tensor-parallel-size 1",
            "expert_tensor_parallel_size", Role.NOT_MODELLED, "1/4 of what is counted",
        ),
        (FOUR + EXPERTS + "2 --expert-tensor-parallel-size 1", "expert_tensor_parallel_size", Role.READ, "holds as much"),
        (TENSOR + SHARDED + EXPERTS + "4 --expert-tensor-parallel-size 1", "expert_tensor_parallel_size", Role.READ, "have different ones"),
        (TENSOR + EXPERTS + "4 --expert-tensor-parallel-size 1", "expert_model_parallel_size", Role.READ, "those of tp, and the axis ep"),
        (TENSOR + EXPERTS + "4 --expert-tensor-parallel-size 2", "expert_tensor_parallel_size", Role.READ, "as other matrices"),
        (FOUR + EXPERTS + "4 --expert-tensor-parallel-size 2", "expert_tensor_parallel_size", Role.READ, "the others have other experts"),
        (FOUR + EXPERTS + "1 --expert-tensor-parallel-size 2", "expert_tensor_parallel_size", Role.READ, "2 have the same slices"),
        (
            FOUR + SHARDED + EXPERTS + "2 --context-parallel-size 2 --expert-tensor-parallel-size 1",
            "expert_tensor_parallel_size", Role.NOT_MODELLED, "the axis dtp, and Megatron shards over them",
        ),
        (
            FOUR + EXPERTS + "2 --context-parallel-size 2 --expert-tensor-parallel-size 1",
            "expert_tensor_parallel_size", Role.READ, "have the same ones, the axis dtp",
        ),
        (
            FOUR + SHARDED + EXPERTS + "1 --expert-tensor-parallel-size 2",
            "expert_tensor_parallel_size", Role.NOT_MODELLED, "1/2 of what is counted",
        ),
        ("--expert-tensor-parallel-size 1", "expert_tensor_parallel_size", Role.NO_MATTER, "no experts"),
        ("--num-experts 8 --moe-expert-capacity-factor 1.5", "moe_expert_capacity_factor", Role.ANOTHER_STEP, "the symbol c"),
        ("--recompute-granularity selective", "recompute_granularity", Role.NOT_MODELLED, "parts of a layer"),
        ("--use-megatron-fsdp --num-distributed-optimizer-instances 2", "num_distributed_optimizer_instances", Role.READ, "rep"),
        (
            "--use-distributed-optimizer --num-distributed-optimizer-instances 2",
            "num_distributed_optimizer_instances", Role.ANOTHER_STEP, "copies",
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
            "recompute_num_layers", Role.READ, "4 layers",
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 4 --num-layers 24",
            "recompute_num_layers", Role.READ, "the rest keep all",
        ),
        # on both sides of each limit
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "recompute_num_layers", Role.READ, "between two",
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
            "recompute_num_layers", Role.READ, "2 layers",
        ),
        *(
            (
                f"--recompute-granularity full --recompute-method block --recompute-num-layers {layers} --num-layers 24 "
                f"--pipeline-model-parallel-size 4 {more}", "recompute_num_layers", role, note,
            )
            for layers, more, role, note in (
                (5, "", Role.READ, "the rest keep all"),
                (6, "", Role.READ, "between two"),
                (2, "--num-virtual-stages-per-pipeline-rank 2", Role.READ, "the rest keep all"),
                (3, "--num-virtual-stages-per-pipeline-rank 2", Role.READ, "between two"),
            )
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 0",
            "recompute_num_layers", Role.READ, "no layer is recomputed",
        ),
        ("--recompute-num-layers 0", "recompute_num_layers", Role.READ, "between two"),
        ("--recompute-method block --recompute-num-layers 0", "recompute_num_layers", Role.READ, "between two"),
    ],
)  # fmt: skip
def test_note(text: str, name: str, role: Role, note: str) -> None:
    (reading,) = (r for r in read(text).readings if r.name == name)
    assert reading.role is role
    assert note in reading.note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--tp-comm-overlap", "needs tensor and sequence parallelism"),
        ("--tp-comm-overlap --sequence-parallel", "needs tensor and sequence parallelism"),
        ("--tensor-model-parallel-size 4 --tensor-parallel-num-weight-shards 6", "6 shards of a weight"),
        ("--fp8-format hybrid --fp4-format e2m1", "exclude each other"),
        ("--multi-latent-attention --group-query-attention", "no query groups"),
        ("--num-layers 24 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5", "no multiple of 5"),
        ("--num-layers 8 --num-layers-per-virtual-pipeline-stage 2", "interleaved stages need a pipeline"),
        ("--num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 2 --no-overlap-p2p-communication", "needs overlapped"),
        (
            "--num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 4 " + STEP.replace("8", "10"),
            "each group, the last one too",
        ),
        ("--num-layers 24 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 4", "20 layers are no multiple of 3"),
        ("--defer-embedding-wgrad-compute", "needs a pipeline"),
        ("--enable-mhc-connections --pipeline-model-parallel-size 2", "excludes pipeline"),
        ("--cp-comm-type a2a+p2p --context-parallel-size 4", "two levels"),
        ("--hybrid-context-parallel --use-megatron-fsdp --calculate-per-token-loss", "excludes Megatron's own FSDP"),
        ("--expert-model-parallel-size 2", "needs experts"),
        ("--use-distributed-optimizer --overlap-param-gather", "together with reducing"),
        ("--optimizer-cpu-offload", "precision-aware"),
        ("--main-grads-dtype bf16", "fp32 without the precision-aware optimizer"),
        ("--exp-avg-sq-dtype fp8", "fp32 without the precision-aware optimizer"),
        ("--train-iters 10 --train-samples 640", "not both"),
        ("--use-megatron-fsdp --ckpt-format torch_dist", "does not save as torch_dist"),
        ("--ckpt-format fsdp_dtensor", "what Megatron's own FSDP saves"),
        ("--cpu-offloading-num-layers 4 --pipeline-model-parallel-size 2", "exclude a pipeline"),
        ("--recompute-granularity selective --recompute-modules core_attn moe_act", "`moe_act` needs"),
        ("--num-experts 8 --moe-router-topk 9", "goes to 9 experts, and there are 8"),
        ("--micro-batch-size --bf16", "`micro_batch_size` has no value: it is a whole number"),
        ("--bf16 --accumulate-allreduce-grads-in-fp32 --main-grads-dtype bf16", "summed in fp32 and held in bf16"),
        ("--recompute-granularity selective --recompute-method block", "has no method"),
        ("--step-batch-size-schedule 0:768 " + STEP, "both set the batch"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 0", "never come to an end"),
        ("--recompute-granularity full --recompute-method uniform", "says of how many layers"),
        ("--recompute-granularity selective --recompute-num-layers 1", "takes no number of layers"),
        ("--calculate-per-token-loss --ddp-average-in-collective", "and by the tokens of all devices after it"),
        ("--num-experts 8 --tensor-model-parallel-size 2 --sequence-parallel", "split over 2 devices"),
        ("--seq-length 1024 --max-position-embeddings 1023", "positions for 1023"),
        ("--num-experts 8 --moe-router-topk 1", "top-1 routing"),
        ("--moe-router-enable-expert-bias", "sigmoid"),
        ("--num-experts 8 --moe-pad-expert-input-to-capacity", "needs a capacity"),
        ("--moe-enable-deepep", "flex dispatcher"),
        ("--fp8-param-gather --use-distributed-optimizer", "requires fp8"),
        ("--defer-embedding-wgrad-compute --pipeline-model-parallel-size 2 --no-gradient-accumulation-fusion", "fused"),
        ("--overlap-param-gather-with-optimizer-step --use-distributed-optimizer", "interleaved stages"),
    ],
)
def test_refused(text: str, message: str) -> None:
    assert any(message in found for found in problems(text)), problems(text)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_layers_that_stages_do_not_divide_are_refused(stages: int) -> None:
    text = f"--pipeline-model-parallel-size {stages} --num-layers "
    read(text + "12", 12)
    if stages == 1:
        read(text + "13", 12)
    else:
        assert problems(text + "13", 12) == [f"13 layers are no multiple of {stages} pipeline stages"]


@pytest.mark.parametrize(
    "text",
    [
        "--use-megatron-fsdp --ckpt-format fsdp_dtensor",
        "--use-custom-fsdp --ckpt-format torch_dist",
        "--use-precision-aware-optimizer --use-distributed-optimizer --main-grads-dtype bf16",
        "--train-iters 0 --train-samples 640",
        "--recompute-modules moe_act",
        "--recompute-granularity selective --recompute-modules moe_act --num-experts 8 --moe-grouped-gemm",
        "--num-experts 8 --moe-router-topk 8",
        "--moe-router-topk 9",
        "--cpu-offloading-num-layers 4",
    ],
)
def test_what_is_near_a_refusal_is_taken(text: str) -> None:
    lower(read(text).strategy())


@pytest.mark.parametrize("name", ["sequence_paralel", "no_sequence_parallel", "no-sequence-parallel"])
def test_the_nearest_argument_is_named_first(name: str) -> None:
    with pytest.raises(InputError) as raised:
        read_config(f"--{name}", system="megatron")
    (problem,) = raised.value.diagnostics
    assert str(problem.help).split("`")[1] == "sequence_parallel"


@pytest.mark.parametrize(
    ("text", "vocabulary"),
    [
        ("--tokenizer-type TikTokenizer --vocab-size 100", 128),
        ("--tokenizer-type TikTokenizer --vocab-size 100 --tensor-model-parallel-size 2", 256),
        ("--tokenizer-type TikTokenizer --vocab-size 100 --make-vocab-size-divisible-by 16", 112),
        ("--tokenizer-type TikTokenizer --vocab-size 100 --padded-vocab-size 320", 320),
        ("--tokenizer-type TikTokenizer --vocab-size 100 --no-pad-vocab-size", None),
        ("--tokenizer-type NullTokenizer --vocab-size 100", 128),
        ("--tokenizer-type NullTokenizer --vocab-size 128", None),
        ("--tokenizer-type HuggingFaceTokenizer --vocab-size 100", None),
        ("--vocab-size 100", None),
    ],
)
def test_the_vocabulary_is_filled_up(text: str, vocabulary: int | None) -> None:
    assert read(text).numbers.get("V") == vocabulary


FOUR = "--pipeline-model-parallel-size 4 "
UNEVEN = [
    ("--num-layers 23 --decoder-first-pipeline-num-layers 5", (5, 6, 6, 6), 1),
    ("--num-layers 20 --decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 3", (5, 6, 6, 3), 1),
    ("--num-layers 7 --account-for-embedding-in-pipeline-split", (1, 2, 2, 2), 1),
    ("--num-layers 22 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", (5, 6, 6, 5), 1),
    (
        "--num-layers 22 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
        " --num-virtual-stages-per-pipeline-rank 2", (2, 3, 3, 3, 3, 3, 3, 2), 2,
    ),
    ("--num-layers 32 --decoder-first-pipeline-num-layers 2 --num-virtual-stages-per-pipeline-rank 2", (1, 5, 5, 5, 1, 5, 5, 5), 2),
    ("--num-layers 10 --pipeline-model-parallel-layout Et*3|(tt|)*3tL", (3, 2, 2, 2, 1), None),
    ("--num-layers 10 --pipeline-model-parallel-layout Ett|(tt,|)*2tt,t*2,L", (2, 2, 2, 4), 1),
    ("--num-layers 14 --pipeline-model-parallel-layout E|(tt|)*6t*2|L", (0, 2, 2, 2, 2, 2, 2, 2, 0), None),
    ("--num-layers 14 --pipeline-model-parallel-layout E|(tt|)*5t*3|tL", (0, 2, 2, 2, 2, 2, 3, 1), 2),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "runs"), [("Etttt|ttttL", 1), ("Ett|tt|tt|ttL", 2)])
def test_a_layout_says_whether_a_device_has_several_runs_of_layers(layout: str, runs: int) -> None:
    """megatron/training/arguments.py, validate_args: two devices with several runs each cannot do without overlapped exchanges."""
    text = f"--pipeline-model-parallel-size 2 --num-layers 8 --pipeline-model-parallel-layout {layout} --no-overlap-p2p-communication"
    text += " --micro-batch-size 1 --global-batch-size 16"
    if runs == 1:
        assert "interleaved" not in read(text).expression
    else:
        assert any("needs overlapped messages" in message for message in problems(text))


@pytest.mark.parametrize(("text", "stages", "runs"), UNEVEN)
def test_uneven_stages_are_read(text: str, stages: tuple[int, ...], runs: int | None) -> None:
    """As megatron/core/transformer/transformer_block.py, get_num_layers_to_build, counts them, by hand; of several runs on a device each.
    A layout whose stages no number of devices has is refused."""
    if runs is None:
        assert any("no multiple of 4 devices" in message for message in problems(FOUR + text))
        return
    found = read(f"{FOUR}{text} --micro-batch-size 1 --global-batch-size 16")
    assert found.stages == stages
    more = ", schedule=interleaved, chunks=2" if runs == 2 else ""
    assert found.expression == f"ddp(dp=2) * pp(pp=4, microbatches=8{more}) * clip"
    assert not [one for one in found.of(Role.NOT_MODELLED) if "stages" in one.note]
    told = [one for one in found.readings if one.told and ", ".join(map(str, stages)) in one.note]
    assert [one.role for one in told] == [Role.READ] * len(told) != []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--num-layers 9 --pipeline-model-parallel-layout Ett|tt|tt|tL", "it has 7 layers, and the model 9"),
        ("--num-layers 8 --pipeline-model-parallel-layout Ett|tt|tx|ttL", "its parts are E, t, m, L"),
        ("--num-layers 8 --pipeline-model-parallel-layout ttE|tt|tt|ttL", "it begins with the embedding"),
    ],
)
def test_a_layout_that_is_none_is_refused(text: str, says: str) -> None:
    assert any(says in message for message in problems(FOUR + text))


@pytest.mark.parametrize(
    "text",
    [
        "--decoder-first-pipeline-num-layers 5",  # of nobody knows how many layers
        "--num-layers 8 --mtp-num-layers 1 --pipeline-model-parallel-layout Ett|tt|tt|ttmL",
        "--num-layers 9 --standalone-embedding-stage",
        "--num-layers 22 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
        " --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 1 --global-batch-size 12",  # no groups of four micro-batches
    ],
)
def test_stages_that_are_not_known_are_told(text: str) -> None:
    try:
        found = read(FOUR + text)
    except InputError as refused:  # by a rule of Megatron's
        assert "each group" in str(refused)
        return
    assert found.stages is None
    assert [one for one in found.of(Role.NOT_MODELLED) if "stages of unequal size" in one.note]


def test_uneven_stages_are_counted_with_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.args"
    path.write_text(f"{FOUR}--num-layers 32 --decoder-first-pipeline-num-layers 5 --micro-batch-size 1 --global-batch-size 16\n")
    asked = ["derive", str(path), "--from", "megatron", "--world", "8", "--model", "llama3-8b", "--json"]
    assert run(asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert run(["derive", "ddp(dp=2) * pp(pp=4, microbatches=8) * clip", "--model", "llama3-8b", "--stages", "5,9,9,9", "--json"]) == 0
    by_hand = json.loads(capsys.readouterr().out)
    matrices = [[stage["parameters"]["matrix"]["formula"] for stage in one["stages"]] for one in (said, by_hand)]
    assert matrices[0] == matrices[1]
    assert matrices[0][0].startswith("5*h*")
    assert run([*asked, "--stages", "8,8,8,8"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"] != said["stages"]


def test_a_wrong_degree_hides_what_would_follow_from_it() -> None:
    assert len(problems("--tensor-model-parallel-size two --num-attention-heads 3 --tp-comm-overlap")) == 1
    assert len(problems("--tensor-model-parallel-size two --micro-batch-size 1 --global-batch-size 4")) == 1
