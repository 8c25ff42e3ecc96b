"""torchtitan's functions of Python: what each makes of the strategy, what is refused, and that nothing of a file is run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.importers.imported import Imported, Role
from placeproof.importers.systems import read_config
from placeproof.semantics.lower import lower

MADE = (Path(__file__).parents[1] / "configs" / "torchtitan" / "registry" / "made.txt").read_text(encoding="utf-8")


@pytest.fixture
def read(tmp_path: Path):
    def reading(body: str, name: str = "", world: int | None = 16) -> Imported:
        path = tmp_path / "config_registry.py"
        path.write_text(body, encoding="utf-8")
        return read_config(f"{path}:{name}" if name else str(path), world=world)

    return reading


def config(*said: str, after: str = "", before: str = "", returns: str = "config") -> str:
    """A function that makes a configuration."""
    return f"{before}\ndef one():\n    config = Trainer.Config({', '.join(said)})\n{after}    return {returns}\n"


def training(micro: str = "2 * 4096", more: str = "") -> str:
    return f"training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank={micro}, max_context_length=4096{more})"


def lora(converters: str, before: str = "", inside: str = "pass") -> str:
    """A function that makes a configuration with converters."""
    said = f"model_spec=model_registry('8B', converters=[{converters}])"
    return f"{before}\ndef one():\n    {inside}\n    return Trainer.Config({said})\n"


SIZED = "pipeline_parallel_microbatch_size=4"
SAMPLES = "training=TrainingConfig(local_batch_size=4, seq_len=1024)"


@pytest.mark.parametrize(
    ("name", "world", "expression", "b", "s", "told"),
    [
        ("llama3_8b", 16, "fsdp(dp=4, prefetch=true) * tp(tp=4) * sp(tp=4) * clip", 2, 4096, ["activation_checkpoint.mode", "loss.name"]),
        ("qwen3_14b", 8, "hsdp(rep=2, shard=2, prefetch=true) * tp(tp=2) * sp(tp=2) * checkpoint * clip", 1, 8192, ["loss.name"]),
    ],
)  # fmt: skip
def test_functions_of_a_file_are_read(read, name: str, world: int, expression: str, b: int, s: int, told: list[str]) -> None:
    """Public files are recorded without their text: `test_importer_nemo.py`."""
    found = read(MADE, name, world)
    assert (found.system, found.expression, found.without) == ("torchtitan", expression, ())
    assert found.numbers == {"b": b, "s": s, "m": 1}
    assert sorted(r.name for r in found.of(Role.NOT_MODELLED)) == told
    lower(found.strategy())


@pytest.mark.parametrize(
    ("said", "expression", "b", "m"),
    [
        ("", "fsdp(dp=16, prefetch=true) * clip", 2, 1),
        ("tensor_parallel_degree=8", "fsdp(dp=2, prefetch=true) * tp(tp=8) * sp(tp=8) * clip", 2, 1),
        ("tensor_parallel_degree=8, enable_sequence_parallel=False", "fsdp(dp=2, prefetch=true) * tp(tp=8) * clip", 2, 1),
        ("data_parallel_replicate_degree=2", "hsdp(rep=2, shard=8, prefetch=true) * clip", 2, 1),
        ("data_parallel_replicate_degree=16, data_parallel_shard_degree=1", "hsdp(rep=16, shard=1, prefetch=true) * clip", 2, 1),
        ("fsdp_reshard_after_forward='never'", "fsdp(dp=16, reshard_after_forward=false) * clip", 2, 1),
        ("pipeline_parallel_degree=4, num_pp_microbatches=8", "fsdp(dp=4, reshard_after_forward=false) * pp(pp=4) * clip", 2, 8),
        ("expert_parallel_degree=4", "fsdp(dp=4) * fsdp(dp=ep) * ep(ep=4) * clip", 2, 1),
    ],
)  # fmt: skip
def test_settings_decide_the_strategy(read, said: str, expression: str, b: int, m: int) -> None:
    found = read(config(training(more=", disable_cuda_graphs=True"), f"parallelism=ParallelismConfig({said})"))
    assert found.expression == expression
    assert (found.numbers["b"], found.numbers["s"], found.numbers["m"]) == (b, 4096, m)
    found.strategy()


@pytest.mark.parametrize(
    ("said", "expression", "b", "m"),
    [
        ("", "fsdp(dp=16, prefetch=true) * clip", 4, 1),
        ("data_parallel_replicate_degree=16, data_parallel_shard_degree=1", "ddp(dp=16) * clip", 4, 1),
        ("pipeline_parallel_degree=2, " + SIZED, "fsdp(dp=8, reshard_after_forward=false) * pp(pp=2) * clip", 4, 1),
        ("pipeline_parallel_degree=4", "fsdp(dp=4, reshard_after_forward=false) * pp(pp=4) * clip", 1, 4),
    ],
)  # fmt: skip
def test_older_versions_count_samples(read, said: str, expression: str, b: int, m: int) -> None:
    found = read(config(SAMPLES, f"parallelism=ParallelismConfig({said})"))
    assert found.expression == expression
    assert (found.numbers["b"], found.numbers["s"], found.numbers["m"]) == (b, 1024, m)


def test_what_older_versions_name_otherwise_is_read(read) -> None:
    made = "ModelConvertersContainer.Config(converters=[Float8LinearConverter.Config()])"
    optimizer = "optimizer=OptimizersInBackwardContainer.Config(lr=1e-3)"
    checkpoint = "activation_checkpoint=ActivationCheckpointConfig(mode='none')"
    after = "    config.activation_checkpoint.mode = 'full'\n    config.loss = ChunkedCELoss.Config()\n"
    found = read(config(SAMPLES, f"model_converters={made}", optimizer, checkpoint, "profiling=ProfilingConfig()", after=after))
    assert found.expression == "fsdp(dp=16, prefetch=true) * checkpoint * clip"
    names = {r.name for r in found.of(Role.NOT_MODELLED)}
    assert names == {"model.converters", "optimizer.early_step_in_backward", "loss.name"}
    assert not found.another_step


def test_tokens_of_a_step_are_accumulated(read) -> None:
    found = read(config(training(more=", num_tokens_per_train_step=256 * 4096")))
    assert found.expression == "fsdp(dp=16, prefetch=true) * accumulate * clip"
    assert (found.numbers["b"], found.numbers["m"]) == (2, 8)


def test_imports_of_torchtitan_are_its_own(read) -> None:
    before = "from torchtitan.trainer import Trainer\nfrom torchtitan import default_adamw as default_adamw\nfrom .other import one_more"
    assert read(config(before=before)).expression == "fsdp(dp=16, prefetch=true) * clip"


def test_what_is_not_said_has_its_default(read) -> None:
    assert read(config()).numbers == {"b": 8, "s": 2048, "m": 1}


@pytest.mark.parametrize(
    "after",
    [
        "    config.parallelism.tensor_parallel_degree = 4\n",
        "    config.parallelism = ParallelismConfig(tensor_parallel_degree=2 * 2)\n",
        "    degree: int = 4\n    config.parallelism = config.ParallelismConfig(tensor_parallel_degree=degree)\n",
        "    config = dataclasses.replace(config, parallelism=ParallelismConfig(tensor_parallel_degree=DEGREE))\n",
        "    config.parallelism = dataclasses.replace(ParallelismConfig(), tensor_parallel_degree=make(2))\n",
        "    config.parallelism = ParallelismConfig(tensor_parallel_degree=make(degree=2))\n    assert True\n    pass\n",
    ],
)
def test_assignments_and_functions_are_followed(read, after: str) -> None:
    before = "DEGREE = 8 // 2\n\ndef make(degree, *, times=2):\n    'x'\n    return degree * times\n"
    assert (
        read(config(training(), after=after, before=before), "one").expression == "fsdp(dp=4, prefetch=true) * tp(tp=4) * sp(tp=4) * clip"
    )


@pytest.mark.parametrize(
    ("mode", "expression", "told"),
    [
        ("None", "fsdp(dp=16, prefetch=true) * clip", False),
        ("SelectiveAC.Config()", "fsdp(dp=16, prefetch=true) * clip", True),
        ("FullAC.Config(early_stop=True)", "fsdp(dp=16, prefetch=true) * checkpoint * clip", False),
        ("MemoryBudgetAC.Config(memory_budget=0.3)", "fsdp(dp=16, prefetch=true) * clip", True),
    ],
)  # fmt: skip
def test_what_is_computed_again_is_read(read, mode: str, expression: str, told: bool) -> None:
    found = read(config(f"activation_checkpoint={mode}"))
    assert found.expression == expression
    assert ("activation_checkpoint.mode" in [r.name for r in found.of(Role.NOT_MODELLED)]) is told


@pytest.mark.parametrize(("names", "without"), [("Adam AdamW", ()), ("AdamW", ()), ("AdamW Muon", ("elementwise-optimizer",))])
def test_optimizers_of_groups_are_read(read, names: str, without: tuple[str, ...]) -> None:
    groups = ", ".join(f"ParamGroupConfig(pattern='.*', optimizer_name='{name}')" for name in names.split())
    assert read(config(f"optimizer=OptimizersContainer.Config(param_groups=[{groups}])")).without == without


@pytest.mark.parametrize(
    ("said", "adapters", "told"),
    [
        ("", "lora(rank=8)", "the vocabulary and routers"),
        ("rank=16, alpha=32.0, target_modules=['wqkv', 'wo']", "lora(rank=16, targets=attention)", "one adapter stands beside matrices"),
        ("target_modules=['w1', 'w2', 'w3', 'wo', 'wqkv']", "lora(rank=8)", "one adapter stands beside matrices"),
        ("target_modules=['wq', 'wkv', 'wo']", "lora(rank=8)", "which modules have adapters is not read"),
    ],
)  # fmt: skip
def test_adapters_are_read(read, said: str, adapters: str, told: str) -> None:
    found = read(lora(f"LoRAConverter.Config({said})", inside="from torchtitan.components.lora import LoRAConverter"))
    assert found.expression == f"fsdp(dp=16, prefetch=true) * {adapters} * clip"
    (beside,) = (one for one in found.of(Role.NOT_MODELLED) if one.name == "lora.target_modules")
    assert told in beside.note
    assert not found.another_step
    found.strategy()


def test_adapters_beside_few_bits_and_of_versions_that_left_norms_trained(read) -> None:
    both = read(lora("Float8LinearConverter.Config(), LoRAConverter.Config()"))
    assert "model.converters" in {one.name for one in both.of(Role.NOT_MODELLED)}
    older = "model_converters=ModelConvertersContainer.Config(converters=[LoRAConverter.Config(rank=4)])"
    found = read(config(SAMPLES, older))
    assert found.expression == "fsdp(dp=16, prefetch=true) * lora(rank=4) * clip"
    assert {one.name for one in found.another_step} == {"model.converters"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (config(training("3000")), "3000 tokens of a micro-batch are no whole samples of 4096"),
        (config(training("0")), "a whole number of tokens above 0"),
        (config(training("size()")), "how many tokens a batch has is not followed"),
        (config(training(more=", num_tokens_per_train_step=100")), "100 tokens of a step"),
        (config(training(more=", **more")), "`TrainingConfig` takes its settings by name"),
        (config("parallelism=ParallelismConfig(4)"), "`ParallelismConfig` takes its settings by name"),
        (config("**more"), "`Trainer.Config` takes its settings by name"),
        (config("parallelism=degrees()"), "`parallelism` is `degrees(...)`"),
        (config("parallelism=ParallelismConfig(tensor_parallel_degree=N)"), "is left open: it is `N`"),
        (config("parallelism=ParallelismConfig(tensor_parallel=4)"), "`tensor_parallel` is no setting of `parallelism`"),
        (config("paralelism=ParallelismConfig()"), "`paralelism` is no setting"),
        (config("parallelism=ParallelismConfig(pipeline_parallel_degree=4)"), "versions of torchtitan cut a batch"),
        (config(training(more=", seq_len=4096")), "`seq_len` and `num_tokens_per_microbatch_per_dp_rank` are of different versions"),
        (config(SAMPLES, "parallelism=ParallelismConfig(num_pp_microbatches=2)"), "`local_batch_size` and `num_pp_microbatches`"),
        (config("optimizer=OptimizersContainer.Config(name=NAME)"), "the optimizer is"),
        (config("optimizer=default_adamw()", after="    config.optimizer.param_groups = []\n"), "the optimizer is"),
        (config(before="from .trainer import Trainer"), "`Trainer` is not torchtitan's own: it is from `.trainer`"),
        (config(before="from torchtitan.trainer import Mine as Trainer"), "it is from `torchtitan.trainer:Mine`"),
        (config(before="class TrainingConfig: pass"), "it is from `this file`"),
        (config("activation_checkpoint=MyAC.Config()"), "`activation_checkpoint` is `MyAC.Config(...)`"),
        (config("optimizer=muon()"), "the optimizer is `muon(...)`"),
        (config("optimizer=OptimizersContainer.Config(param_groups=groups)"), "the optimizer is"),
        (config("model_spec=make_model()"), "the model is not as `model_registry` makes it"),
        (lora("LoRAConverter.Config(rank=0)"), "`lora.rank` is a whole number of at least 1"),
        (lora("LoRAConverter.Config(rank='8')"), "`lora.rank` is a whole number of at least 1, not '8'"),
        (config("parallelism=ParallelismConfig(tensor_parallel_degree='2')"), "`parallelism.tensor_parallel_degree` is"),
        (lora("LoRAConverter.Config(rank=RANK)"), "is left open: it is `RANK`"),
        (lora("LoRAConverter.Config(8)"), "`LoRAConverter.Config` takes its settings by name"),
        (lora("LoRAConverter.Config(dropout=0.1)"), "`dropout` is no setting of `lora`"),
        (lora("LoRAConverter.Config(target_modules=[])"), "nothing is trained"),
        (lora("LoRAConverter.Config(), Float8LinearConverter.Config()"), "`Float8LinearConverter` follows adapters"),
        (lora("LoRAConverter.Config(), LoRAConverter.Config(rank=4)"), "`LoRAConverter` follows adapters"),
        (lora("LoRAConverter.Config()", before="from .mine import LoRAConverter"), "`LoRAConverter` is not torchtitan's own"),
        (lora("LoRAConverter.Config()", inside="from mine import LoRAConverter"), "`LoRAConverter` is not torchtitan's own"),
        (config("model_spec=model_registry('8B', converters=parts)"), "what changes the model is `parts`"),
        (config("model_converters=1"), "what changes the model is `1`"),
        (config("model_spec=model_registry('8B', converters=[Other.Config()])"), "`Other` changes the model"),
        (config("model_spec=model_registry('8B')", after="    config.model_spec.parallelize_fn = f\n"), "`parallelize_fn` of it is not"),
        (config(after="    patch(config)\n"), "this is not followed: `patch(config)`"),
        (config(after="    config = patch(config)\n"), "`patch(config)`, which may change what it is given"),
        (config(after="    if NODES > 1:\n        config.training.max_norm = 0\n"), "`if NODES > 1`, which known values do not decide"),
        (config(after="    def change():\n        config.steps = 1\n    change()\n"), "`change()`, which may change"),
        (config(after="    def change():\n        config.steps = 1\n    x = change()\n"), "`change()`, which may change"),
        (config(after="    x = config.change()\n"), "`config.change()`, which may change"),
        (config(after="    x = patch([config])\n"), "`patch([config])`, which may change"),
        (config(after="    x = config.steps.bit_length() if NODES else 1\n    if x:\n        pass\n"), "which known values do not decide"),
        (config(after="    for config.x in (1, 2): pass\n"), "this is not followed: `for config.x in (1, 2):"),
        (config(after="    config.steps += 1\n"), "this is not followed: `config.steps += 1`"),
        (config(after="    config.parts[0] = 1\n"), "this is not followed: `config.parts[0] = 1`"),
        (config(returns="to_other(1)"), "it returns `to_other(...)`"),
        (config(returns="None"), "it returns `None`"),
        ("def one():\n    return one()\n", "without end"),
        ("def one():\n    return two(**x)\ndef two(x):\n    return x\n", "this is not followed: `two(**x)`"),
        ("def one():\n    return two(1, y=2)\ndef two(x):\n    return x\n", "`two` does not take these arguments"),
        ("def one():\n    return two()\ndef two(*x):\n    return x\n", "arguments of any name"),
        ("@wrapped\ndef one():\n    return Trainer.Config()\n", "decorated"),
        ("def one(:\n", "this is no Python"),
        ("x = 1\n", "the file has no configurations"),
        ("def one(): pass\ndef two(): pass\n", "the file has 2 configurations: one, two"),
        ("def one():\n    return " + "-" * 300 + "1\n", "it returns"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_refused(read, body: str, message: str) -> None:
    name = "one" if "def two(x" in body or "def two(*" in body else ""
    with pytest.raises(InputError) as refused:
        read(body, name)
    assert any(message in d.message for d in refused.value.diagnostics), [d.message for d in refused.value.diagnostics]
    assert all(d.help for d in refused.value.diagnostics)


def test_names_that_are_bound_in_other_ways_are_not_known(read) -> None:
    said = config("parallelism=ParallelismConfig(tensor_parallel_degree=N)", before="N = 2\nif True:\n    N = 4\n")
    with pytest.raises(InputError, match="is left open: it is `N`"):
        read(said)


def test_nothing_of_a_file_is_run(read, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    before = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nX = pathlib.Path({str(mark)!r}).touch()\nopen.y = 1\n"
    assert read(config(training(), before=before)).expression == "fsdp(dp=16, prefetch=true) * clip"
    assert not mark.exists()


@pytest.mark.parametrize("seed", range(6))
def test_corrupted_files_end_in_errors(seed: int, read) -> None:
    """What is deleted or put in at random is read or refused: there is no other end."""
    rng = random.Random(seed)
    for _ in range(12):
        name, text = rng.choice(["llama3_8b", "qwen3_14b"]), MADE
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text = rng.choice((text[:at] + text[at + rng.randint(1, 30) :], text[:at] + rng.choice("0-:\n([,.*") + text[at:])) or "x"
        try:
            read(text, rng.choice(("", name)), rng.choice((None, 1, 8, 32)))
        except InputError as error:
            assert error.diagnostics
