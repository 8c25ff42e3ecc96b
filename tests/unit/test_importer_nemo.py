"""Recipes of Megatron-Bridge and NeMo 2: what each makes of the strategy, what is refused, and that nothing of a file is run."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.importers import systems
from placeproof.importers.imported import Imported, Role
from placeproof.importers.systems import read_config
from placeproof.strategies import parse_strategy

RECORD: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "recipes.json").read_text(encoding="utf-8"))

BRIDGE = """
import torch
from megatron.bridge import AutoBridge
from megatron.bridge.peft.lora import LoRA
from megatron.bridge.recipes.common import _peft_common, _pretrain_common, _sft_common
from megatron.bridge.recipes.utils.dataset_utils import default_peft_config
from megatron.bridge.recipes.utils.optimizer_utils import distributed_fused_adam_with_cosine_annealing
from megatron.bridge.training.flex_dispatcher_backend import apply_flex_dispatcher_backend
from megatron.bridge.training.mixed_precision import bf16_mixed, bf16_with_fp8_current_scaling_mixed, get_mixed_precision_config

def recipe():
    cfg = {base}()
    cfg.model = AutoBridge.from_hf_pretrained("a/b").to_megatron_provider(load_weights=False)
    cfg.model.seq_length = cfg.dataset.seq_length = 4096
{body}    return cfg
"""
NEMO = """
import nemo_run as run
import torch
from nemo import lightning as nl
from nemo.collections.llm.api import pretrain
from nemo.collections.llm.gpt.model.llama import Llama3Config8B, LlamaModel
from nemo.collections.llm.recipes.optim.adam import distributed_fused_adam_with_cosine_annealing
from nemo.collections.llm.recipes.precision.mixed_precision import bf16_mixed

@run.cli.factory(name="model")
def model():
    return run.Config(LlamaModel, config=run.Config(Llama3Config8B))

def trainer(tp: int = 1, nodes: int = 1, callbacks=None):
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tp{strategy})
    return run.Config(
        nl.Trainer, accumulate_grad_batches=1, callbacks=callbacks, devices=8, num_nodes=nodes, plugins=bf16_mixed(), strategy=strategy
    )

@run.cli.factory(target=pretrain, name="recipe")
def recipe(fast: bool = False, fn=pretrain):
    recipe = run.Partial(
        fn,
        model=model(),
        trainer=trainer({trainer}),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
    if fast:
        recipe = faster(recipe)
{body}    return recipe
"""


@pytest.fixture
def bridge(tmp_path: Path):
    def reading(*body: str, base: str = "_pretrain_common", world: int | None = 16) -> Imported:
        path = tmp_path / "mine.py"
        path.write_text(BRIDGE.format(base=base, body="".join(f"    {line}\n" for line in body)), encoding="utf-8")
        return read_config(f"{path}:recipe", world=world)

    return reading


@pytest.fixture
def nemo(tmp_path: Path):
    def reading(*body: str, strategy: str = "", trainer: str = "", world: int | None = None) -> Imported:
        path = tmp_path / "mine.py"
        lines = "".join(f"    {line}\n" for line in body)
        path.write_text(NEMO.format(strategy=strategy, trainer=trainer, body=lines), encoding="utf-8")
        return read_config(f"{path}:recipe", world=world)

    return reading


@pytest.mark.parametrize("row", RECORD, ids=lambda row: f"{row['path'].rpartition('/')[2]}:{row.get('function', '')}")
def test_public_recipes_are_read_as_people_read_them(row: dict[str, Any]) -> None:
    """The record is made by `nightly/recipes.py`, which has the files."""
    if "refused" in row["expected"]:
        assert row["read"]["refused"]
    else:
        assert row["read"] == row["expected"]
        parse_strategy(row["read"]["expression"])
    assert row["blob"]


def test_the_record_has_each_framework() -> None:
    for name, least in (("NVIDIA-NeMo/Megatron-Bridge", 15), ("NVIDIA/NeMo", 15), ("NVIDIA-NeMo/RL", 20)):
        rows = [row for row in RECORD if row["repo"] == name]
        assert len(rows) >= least
        assert len({row["path"] for row in rows if "expression" in row["read"]}) >= 8


@pytest.mark.parametrize(
    ("body", "expression", "m"),
    [
        ((), "zero1(dp=16) * accumulate * clip", None),
        (("cfg.train.global_batch_size = 64", "cfg.train.micro_batch_size = 1"), "zero1(dp=16) * accumulate(microbatches=4) * clip", 4),
        (
            ("cfg.model.tensor_model_parallel_size = 4", "cfg.model.sequence_parallel = True"),
            "zero1(dp=4) * tp(tp=4) * sp(tp=4) * accumulate(microbatches=4) * clip",
            4,
        ),
        (
            ("cfg.model.pipeline_model_parallel_size = 2", "cfg.model.virtual_pipeline_model_parallel_size = 2"),
            "zero1(dp=8) * pp(pp=2, microbatches=2, schedule=interleaved, chunks=2) * clip",
            2,
        ),
        (("cfg.model.context_parallel_size = 2",), "zero1(dp=8) * zero1(dp=cp) * accumulate(microbatches=2) * cp(cp=2) * clip", 2),
        (("cfg.model.expert_model_parallel_size = 4",), "zero1(dp=4) * zero1(dp=ep) * ep(ep=4) * clip", 1),
        (
            (
                "cfg.model.tensor_model_parallel_size = 4",
                "cfg.model.sequence_parallel = True",
                "cfg.model.expert_tensor_parallel_size = 2",
                "cfg.model.expert_model_parallel_size = 2",
            ),
            "zero1(dp=4) * tp(2, tp=etp) * tp(tp=2) * sp(2, tp=etp) * sp(tp=2) * accumulate(microbatches=4) * ep(ep=tp) * clip",
            4,
        ),
        (("cfg.optimizer.clip_grad = 0.0",), "zero1(dp=16)", 1),
        (
            ("cfg.optimizer.use_distributed_optimizer = False", "cfg.ddp.use_distributed_optimizer = False"),
            "ddp(dp=16) * clip",
            1,
        ),
        (("cfg.ddp.use_distributed_optimizer = False",), "zero1(dp=16) * clip", 1),
        (("cfg.ddp.use_megatron_fsdp = True",), "zero3(dp=16) * clip", 1),
        (
            (
                "cfg.ddp.use_megatron_fsdp = True",
                "cfg.ddp.megatron_fsdp_version = 2",
                "cfg.ddp.data_parallel_sharding_strategy = 'optim'",
                "cfg.optimizer.clip_grad = 0.0",
            ),
            "zero3(dp=16)",
            1,
        ),
        (
            (
                "cfg.ddp.use_megatron_fsdp = True",
                "cfg.ddp.megatron_fsdp_version = 1",
                "cfg.ddp.data_parallel_sharding_strategy = 'optim'",
            ),
            "zero1(dp=16) * clip",
            1,
        ),
        (
            ("cfg.model.recompute_granularity = 'full'", "cfg.model.recompute_method = 'uniform'", "cfg.model.recompute_num_layers = 1"),
            "zero1(dp=16) * checkpoint * clip",
            1,
        ),
        (
            ("cfg.optimizer, cfg.scheduler = distributed_fused_adam_with_cosine_annealing(max_lr=1e-4, clip_grad=0.0)",),
            "zero1(dp=16)",
            1,
        ),
    ],
)
def test_settings_of_megatron_bridge_decide_the_strategy(bridge, body: tuple[str, ...], expression: str, m: int | None) -> None:
    if m is None:
        with pytest.raises(InputError, match="no whole number of micro-batches"):
            bridge(world=48)
        return
    found = bridge(*body)
    assert found.system == "nemo"
    assert found.expression == expression
    assert (found.numbers["m"], found.numbers["s"]) == (m, 4096)


def test_what_a_recipe_begins_with(bridge) -> None:
    found = bridge()
    assert (found.numbers["b"], found.numbers["m"], found.precision, found.without) == (2, 1, "megatron-bf16", ())
    tuned = bridge(base="_sft_common")
    assert (tuned.numbers["b"], tuned.numbers["m"], tuned.without) == (1, 8, ("equal-token-counts",))
    assert bridge("cfg.model.calculate_per_token_loss = True", base="_sft_common").without == ()
    adapted = bridge(base="_peft_common")
    assert adapted.expression.endswith(" * lora(rank=32)")
    assert [r.name for r in adapted.of(Role.NOT_MODELLED)] == ["peft.target_modules"]
    assert bridge("cfg.peft = None", base="_peft_common").expression == tuned.expression


@pytest.mark.parametrize(
    ("said", "without"),
    [
        ((), ()),
        (("cfg.dataset.eod_mask_loss = False",), ()),
        (("cfg.dataset.eod_mask_loss = True",), ("equal-token-counts",)),
        (("cfg.dataset.eod_mask_loss = True", "cfg.model.calculate_per_token_loss = True"), ()),
    ],
)
def test_ends_of_documents_that_do_not_count_are_of_unequal_number(bridge, said: tuple[str, ...], without: tuple[str, ...]) -> None:
    off = "cfg.ddp.average_in_collective = False"
    assert bridge(off, *said).without == without
    tuned = bridge(off, *said, base="_sft_common")
    assert tuned.without == (() if len(said) == 2 else ("equal-token-counts",))


@pytest.mark.parametrize(
    ("said", "factor", "another"),
    [
        ("LoRA(dim=8, alpha=16)", "lora(rank=8)", []),
        ("LoRA(dim=8, dropout=0.1)", "lora(rank=8)", ["peft.dropout"]),
        ("DoRA(dim=8)", "lora(rank=8)", ["peft"]),
        ("default_peft_config('lora', dim=4)", "lora(rank=4)", []),
        ("default_peft_config('dora')", "lora(rank=32)", ["peft"]),
        ("default_peft_config(None)", "clip", []),
    ],
)
def test_adapters_are_read(bridge, said: str, factor: str, another: list[str]) -> None:
    found = bridge(f"cfg.peft = {said}")
    assert found.expression.split(" * ")[-1] == factor
    assert [r.name for r in found.another_step] == another


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        ("cfg.mixed_precision = bf16_mixed()", "megatron-bf16"),
        ("cfg.mixed_precision = 'bf16-mixed'", "megatron-bf16"),
        ("cfg.mixed_precision = get_mixed_precision_config('bf16_mixed')", "megatron-bf16"),
        ("cfg.mixed_precision = 'fp16_mixed'", "megatron-fp16"),
        ("cfg.mixed_precision.grad_reduce_in_fp32 = False", "bf16-fp32copies"),
        ("cfg.ddp.grad_reduce_in_fp32 = False", "megatron-bf16"),  # what the precision says is set last
        ("cfg.mixed_precision = None", None),
        ("cfg.mixed_precision = TYPES", None),
        ("cfg.mixed_precision = bf16_with_fp8_current_scaling_mixed()", None),
        ("cfg.optimizer.use_precision_aware_optimizer = True", None),
    ],
)
def test_types_are_those_of_the_precision(bridge, said: str, precision: str | None) -> None:
    assert bridge(said).precision == precision


def test_experts_are_the_model_s(bridge) -> None:
    found = bridge("cfg.model.expert_model_parallel_size = 4", "cfg.model.moe_flex_dispatcher_backend = 'deepep'")
    assert [r.name for r in found.another_step] == ["experts"]
    assert "E" not in found.numbers
    sent = bridge("cfg.model.expert_model_parallel_size = 4", "apply_flex_dispatcher_backend(cfg.model, 'deepep')")
    assert "model.moe_token_dispatcher_type" in {r.name for r in sent.of(Role.NOT_MODELLED)}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("cfg.model.strange = 3", "model.strange"),
        ("cfg.ddp.strange = 3", "ddp.strange"),
        ("cfg.train.strange = 3", "train.strange"),
        ("cfg.optimizer.strange = 3", "optimizer.strange"),
        ("cfg.mixed_precision.strange = 3", "mixed_precision.strange"),
        ("cfg.strange = 3", "strange"),
        ("cfg.trainer.tp = 2", "trainer"),
        ("cfg.model.attention_dropout = 0.1", "model.attention_dropout"),
        ("cfg.model = MyProvider()", "model"),
    ],
)
def test_what_is_not_known_is_another_step(bridge, said: str, name: str) -> None:
    assert [r.name for r in bridge(said).another_step] == [name]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("cfg.model.tensor_model_parallel_size = TP", "`model.tensor_model_parallel_size` is left open: it is `TP`"),
        ("cfg.train.global_batch_size = 16 * NODES", "`train.global_batch_size` is left open"),
        ("cfg.model.tensor_model_parallel_size = 'two'", "is a whole number of at least 1"),
        ("change(cfg)", "`change(cfg)`, which may change"),
        ("cfg.apply()", "`cfg.apply()`, which may change"),
        ("x = cfg.apply()", "`cfg.apply()`, which may change"),
        ("if NODES > 1: cfg.train.micro_batch_size = 1", "which known values do not decide"),
        ("for one in (1, 2): cfg.train.micro_batch_size = one", "this is not followed: `for one in"),
        ("cfg.model.freeze_vision_model = True", "a part of the model is not trained"),
        ("cfg.optimizer = Muon()", "`optimizer` is made by `Muon`"),
        ("cfg.peft = Canonical()", "`Canonical`: what is trained"),
        ("cfg.model.tensor_model_parallel_size = 5", "no multiple of"),
        ("cfg.mixed_precision.fp32 = True", "the types that all is held in are not read"),
        ("cfg.model.seq_length = 8192", "samples have 4096 tokens, and the model is made for 8192"),
        ("cfg.train = 'abc'", "`train` is no object whose settings are followed"),
        ("cfg.ddp.use_megatron_fsdp = True; cfg.ddp.megatron_fsdp_version = 2", "clips no gradients"),
        (
            "cfg.dist.use_megatron_fsdp = True; cfg.ddp.megatron_fsdp_version = 2; cfg.optimizer.clip_grad = 0.0; "
            "cfg.model.tensor_model_parallel_size = 2",
            "goes with data parallelism alone",
        ),
    ],
)
def test_what_a_recipe_leaves_open_or_does_otherwise_is_refused(bridge, said: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        bridge(said)
    assert any(message in d.message for d in refused.value.diagnostics), [d.message for d in refused.value.diagnostics]
    assert all(d.help for d in refused.value.diagnostics)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("cfg.model.calculate_per_token_loss = True", ""),
        ("cfg.model.calculate_per_token_loss = False", "parts of a sequence may have no answers"),
        ("cfg.model.calculate_per_token_loss = True; cfg.ddp.average_in_collective = True", "gradients are divided in the collective"),
    ],
)
def test_answers_that_are_split_over_devices(bridge, said: str, message: str) -> None:
    body = ("cfg.model.context_parallel_size = 2", *said.split("; "))
    if not message:
        assert "cp(cp=2)" in bridge(*body, base="_sft_common").expression
        assert "cp(cp=2)" in bridge(body[0]).expression  # where every token counts
        return
    with pytest.raises(InputError, match=message):
        bridge(*body, base="_sft_common")


def test_a_mark_of_utf_8_is_python_s(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BRIDGE.format(base="_pretrain_common", body=""), encoding="utf-8-sig")
    assert read_config(str(path), world=16).expression == "zero1(dp=16) * clip"


def test_a_file_without_recipes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from megatron.bridge import AutoBridge\n")
    with pytest.raises(InputError, match=r"the file has no recipes$"):
        read_config(str(path))


def test_what_another_file_makes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from megatron.bridge.recipes.llama import llama3_8b\ndef mine():\n    return llama3_8b()\n")
    with pytest.raises(InputError, match=r"it returns `llama3_8b\(\.\.\.\)`"):
        read_config(str(path))


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        ({}, "zero1(dp=8) * accumulate(microbatches=64) * clip"),
        ({"trainer": "nodes=2"}, "zero1(dp=16) * accumulate(microbatches=32) * clip"),
        ({"world": 4}, "zero1(dp=4) * accumulate(microbatches=128) * clip"),
        (
            {"trainer": "tp=2", "strategy": ", sequence_parallel=True"},
            "zero1(dp=4) * tp(tp=2) * sp(tp=2) * accumulate(microbatches=128) * clip",
        ),
        ({"strategy": ", context_parallel_size=2"}, "zero1(dp=4) * zero1(dp=cp) * accumulate(microbatches=128) * cp(cp=2) * clip"),
        ({"strategy": ", fsdp='pytorch'"}, None),
    ],
)
def test_settings_of_nemo_decide_the_strategy(nemo, said: dict[str, Any], expression: str | None) -> None:
    if expression is None:
        with pytest.raises(InputError, match="fsdp2"):
            nemo(**said)
        return
    found = nemo(**said)
    assert found.expression == expression
    assert found.numbers["b"] == Fraction(1)
    assert found.numbers["s"] == Fraction(8192)
    assert found.precision == "megatron-bf16"
    assert not found.another_step


def test_an_update_of_nemo_says_whether_its_state_is_sharded(nemo) -> None:
    assert nemo("recipe.optim.config.use_distributed_optimizer = False").expression.startswith("ddp(dp=8)")
    own = "recipe.trainer.strategy.ddp = run.Config(DistributedDataParallelConfig, use_distributed_optimizer={})"
    assert nemo(own.format(False)).expression.startswith("zero1(dp=8)")
    assert nemo(own.format(True), "recipe.optim.config.use_distributed_optimizer = False").expression.startswith("ddp(dp=8)")
    unsaid = "recipe.optim = run.Config(nl.MegatronOptimizerModule, config=run.Config(OptimizerConfig, lr=1e-4))"
    assert nemo(unsaid, own.format(True)).expression.startswith("ddp(dp=8)")
    assert nemo("recipe.trainer.plugins.grad_reduce_in_fp32 = False").precision == "bf16-fp32copies"


def test_what_a_recipe_of_nemo_leaves_to_the_model(nemo) -> None:
    assert nemo("recipe.optim = None").expression == nemo().expression  # an update whose state is sharded, and gradients are clipped
    found = nemo("recipe.trainer.plugins = None")
    assert found.precision is None
    assert "trainer.plugins" in {r.name for r in found.of(Role.READ)}


def test_tokens_that_nemo_leaves_out(nemo) -> None:
    data = "recipe.data = run.Config(PreTrainingDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1, eod_mask_loss={})"
    assert nemo(data.format(False)).without == ()
    assert nemo(data.format(True)).without == ("equal-token-counts",)


@pytest.mark.parametrize(
    ("callbacks", "another"),
    [("[run.Config(TimingCallback)]", []), ("[run.Config(TimingCallback), run.Config(MegatronTokenDropCallback)]", ["trainer.callbacks"])],
)
def test_callbacks_that_are_not_known_take_part_in_the_step(nemo, callbacks: str, another: list[str]) -> None:
    assert [r.name for r in nemo(trainer=f"callbacks={callbacks}").another_step] == another


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("recipe.trainer.accumulate_grad_batches = 2", "whose batches say how many passes"),
        ("recipe.trainer.strategy = run.Config(nl.FSDPStrategy)", "`trainer.strategy` is made by `FSDPStrategy`"),
        ("recipe.optim = pytorch_adam()", "`optim` is made by `pytorch_adam`"),
        ("recipe.optim = 'adam'", "`optim` is no object whose settings are followed"),
        ("recipe.trainer = 'x'", "`trainer` is no object whose settings are followed"),
        ("recipe.trainer.strategy = 'ddp'", "`trainer.strategy` is no object whose settings are followed"),
        ("recipe.trainer.strategy.ddp = 'pytorch'", "`trainer.strategy.ddp` is `megatron`, not 'pytorch'"),
        ("recipe = run.Partial(llm.validate, model=model(), trainer=trainer())", "it returns `llm.validate(...)`"),
        ("recipe = faster(recipe)", "`faster(recipe)`, which may change"),
    ],
)
def test_what_nemo_does_otherwise_is_refused(nemo, said: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        nemo(said)
    assert any(message in d.message for d in refused.value.diagnostics), [d.message for d in refused.value.diagnostics]


def test_nothing_of_a_file_is_run(bridge, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = bridge(f"cfg.tokenizer.tokenizer_model = open({str(mark)!r}, 'w')")
    assert found.expression == "zero1(dp=16) * clip"
    assert not mark.exists()


@pytest.mark.parametrize(
    ("file", "world", "expression", "another"),
    [
        (
            *("made_bridge.txt", 16),
            "zero1(dp=4) * zero1(dp=ep) * tp(tp=2) * sp(tp=2) * accumulate(microbatches=32) * ep(ep=2) * ep(ep=tp) * clip * lora(rank=16)",
            ["experts"],
        ),
        ("made_nemo.txt", None, "zero1(dp=2) * zero1(dp=ep) * pp(pp=4, microbatches=32) * ep(ep=8) * clip", ["experts"]),
    ],
)
def test_what_python_makes_is_followed(tmp_path: Path, file: str, world: int | None, expression: str, another: list[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes((Path(__file__).parents[1] / "configs" / "nemo" / file).read_bytes())
    found = read_config(f"{path}:recipe", world=world)
    assert found.expression == expression
    assert [r.name for r in found.another_step] == another


@pytest.mark.parametrize("line", ["from nemo.collections.llm.api import pretrain", "  import nemo_run as run", "import megatron.bridge"])
def test_a_recipe_is_told_by_what_it_imports(line: str) -> None:
    system = systems._of_python(f"x = 1\n{line}\n").name
    assert system != "torchtitan"
    assert systems._of_python(f"x = 1\n{line.replace('nemo', 'emo').replace('bridge', 'bridges')}\n").name == "torchtitan"
    assert systems._of_python("\n" * 200_000 + line).name == system
