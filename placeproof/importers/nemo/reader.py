"""Recipes of Megatron-Bridge and NeMo 2: their settings are Megatron's own, most by the same names, and are read as those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.adapters import lora
from placeproof.importers.asked import Known
from placeproof.importers.fields import Field, Reader
from placeproof.importers.imported import Imported, Reading, Role, balance_unsaid, expression
from placeproof.importers.meaning import meaning
from placeproof.importers.megatron.handed import Arguments
from placeproof.importers.megatron.handed import read as read_arguments
from placeproof.importers.nemo.recipes import BRIDGE, NEMO, Recipe
from placeproof.importers.settings import settings

#: Tables whose settings Megatron's arguments are; those of samples alone of which only some are.
_HANDED = ("model", "ddp", "optimizer", "train", "dist", "mixed_precision", "comm_overlap")
_HANDED_NEMO = ("trainer.strategy", "trainer.strategy.ddp", "trainer.plugins", "optim.config", "model.config")
_SAMPLES = ("data.global_batch_size", "data.micro_batch_size", "data.seq_length", "data.eod_mask_loss", "dataset.eod_mask_loss")
#: Names of settings -> Megatron's, where they are not the same.
_OTHERWISE = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "microbatch_group_size_per_vp_stage": "microbatch_group_size_per_virtual_pipeline_stage",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "num_moe_experts": "num_experts",
    "fp8": "fp8_format",
    "fp4": "fp4_format",
    "average_in_collective": "ddp_average_in_collective",
}
#: What each table has to be made by.
_CLASSES = {
    "train": "TrainingConfig",
    "optimizer": "OptimizerConfig",
    "ddp": "DistributedDataParallelConfig",
    "mixed_precision": "MixedPrecisionConfig",
    "comm_overlap": "CommOverlapConfig",
    "trainer": "Trainer",
    "trainer.strategy": "MegatronStrategy",
    "trainer.strategy.ddp": "DistributedDataParallelConfig",
    "trainer.plugins": "MixedPrecision",
    "optim": "MegatronOptimizerModule",
    "optim.config": "OptimizerConfig",
}
#: Tables without whose settings nothing can be said of a strategy.
_DECIDING = ("train", "optimizer", "ddp", "trainer", "trainer.strategy", "optim", "optim.config")
#: Families of models whose layers have no dropout unless a recipe says so.
_NO_DROPOUT = (
    *("AutoBridge", "Llama", "CodeLlama", "Mistral", "Mixtral", "Qwen", "Gemma", "CodeGemma", "Nemotron", "Phi3", "DeepSeek", "Baichuan"),
    *("ChatGLM", "Starcoder2", "GPTOSS", "GPTConfig175B", "HybridModelProvider", "OlMoE"),
)
_DDP = "trainer.strategy.ddp"
_EXPERTS = ("Mixtral", "MoE", "DeepSeekV", "Llama4", "GPTOSS", "_A", "OlMoE")
#: Classes of samples of which every token counts.
_EVERY_TOKEN = ("GPTDatasetConfig", "MockGPTDatasetConfig", "MockDataModule", "PreTrainingDataModule")
#: Classes of samples of Megatron-Bridge: of answers, and those that have to be as long as the model's.
_TUNED = ("GPTSFTDatasetConfig", "DirectHFSFTDatasetConfig", "EnergonDatasetConfig", "MockVLMSFTDatasetConfig")
_SIZED = ("GPTDatasetConfig", *_TUNED)
#: Callbacks that change nothing of a step.
_CALLBACKS = ("TimingCallback", "GarbageCollectionCallback", "MegatronCommOverlapCallback", "PreemptionCallback", "NsysCallback")
_ADAPTERS = {"LoRA": "", "DoRA": "trains the lengths of columns, too, by which weights are divided: more than adapters is held"}


def read(document: Recipe, world: int | None, problems: Problems) -> Imported:
    """Read a recipe. ``world``: the number of devices, which a recipe of Megatron-Bridge leaves to the program that starts it."""
    reader = Reader(document, _fields(document), problems)
    for name in sorted(reader.open):
        known = reader.fields.get(name)
        if known is not None and known.role is not Role.NO_MATTER:
            reader.refuse(name, f"`{name}` is left open: {document.open[name]}", "write the value itself")
    _check_classes(reader, document)
    known_ = Known(reader, meaning("nemo"))
    known_.put("strange", any(one not in _CALLBACKS for one in reader.found.get("trainer.callbacks") or ()))
    samples = document.classes.get("dataset", "")
    known_.put("sized", samples.endswith(_SIZED))
    known_.put("tuned", samples.endswith(_TUNED))
    known_.derive()
    known_.check()
    if problems.found:
        return Imported(system="nemo", source=document.source, expression="", readings=())
    arguments = _arguments(reader, document, second_fsdp=bool(known_.get("second_fsdp")))
    imported = read_arguments(arguments, document, world or _devices(reader), problems, "nemo")
    handed = {one.name: one for one in imported.readings}
    readings = (handed.get(one.name, _unless_off(one)) for one in known_.readings())
    numbers = {symbol: value for symbol, value in imported.numbers.items() if symbol != "E" or _said(reader, "num_moe_experts")}
    imported = replace(imported, readings=(*readings, *_of_the_model(reader, document)), numbers=numbers)
    imported = _with_types(_with_tokens(reader, imported, document), document)
    return _with_adapters(reader, imported, document)


def _unless_off(reading: Reading) -> Reading:
    """A switch that is off says nothing."""
    return reading.noted(Role.NO_MATTER, "switched off", False) if reading.value is False else reading


@cache
def _megatron() -> dict[str, Field]:
    return {name: row for row in settings("megatron") for name in row.names}


def _fields(document: Recipe) -> Iterator[Field]:
    """The settings of recipes, and Megatron's in the tables that are handed over."""
    own = settings("nemo")
    names = {row.name for row in own}
    yield from own
    paths = [f"{table}.{name}" for table in (_HANDED if document.bridge else _HANDED_NEMO) for name in _megatron()] + [*_SAMPLES]
    for path in paths:
        if path not in names:
            yield replace(_megatron()[path.rpartition(".")[2]], name=path, also=())
    for table in ("dataset", "data"):
        if not _is_table(document, table):
            yield Field(name=table, kinds=("text",), role=Role.NO_MATTER, note="which samples come when")
    if not _is_table(document, _DDP):
        note = "data parallelism of Megatron, which its updates ask for"
        yield Field(name=_DDP, kinds=(), choices=("megatron",), role=Role.NO_MATTER, note=note)


def _is_table(document: Recipe, path: str) -> bool:
    """Whether nothing but single settings is said of a table."""
    said: Any = document.data
    for part in path.split("."):
        said = said.get(part, {}) if isinstance(said, dict) else {}
    return isinstance(said, dict)


def _check_classes(reader: Reader, document: Recipe) -> None:
    tables = BRIDGE if document.bridge else NEMO
    for path in _DECIDING:
        if any(f"{table}.".startswith(f"{path}.") for table in tables) and not _is_table(document, path):
            message, name = f"`{path}` is no object whose settings are followed, and they decide the strategy", _CLASSES[path]
            reader.refuse(path, message, f"write `{name}(...)` with its settings")
    for path, name in _CLASSES.items():
        made = document.classes.get(path, "").rpartition(".")[2]
        if made and name not in made:
            reader.refuse(path, f"`{path}` is made by `{made}`, which is not read", f"write `{name}(...)`")
    made = document.classes.get("peft", "LoRA").rpartition(".")[2].removesuffix("']").removeprefix("PEFT_STR2CLS['")
    if made not in _ADAPTERS and made not in ("lora", "dora"):
        message = f"`{made}`: what is trained in the place of the model's own parameters is no adapter of low rank that is read here"
        reader.refuse("peft", message, "`LoRA(...)`")


def _said(reader: Reader, name: str) -> Any:
    """What one of the tables that are handed over says."""
    return next((reader.found[path] for table in (*_HANDED, *_HANDED_NEMO) if (path := f"{table}.{name}") in reader.found), None)


def _devices(reader: Reader) -> int | None:
    nodes, each = (reader.found.get(f"trainer.{name}") for name in ("num_nodes", "devices"))
    return nodes * each if nodes is not None and each is not None else None


def _arguments(reader: Reader, document: Recipe, *, second_fsdp: bool) -> Arguments:
    """Megatron's arguments. ``second_fsdp``: version 2 of its own FSDP, which shards all, whatever is said."""
    arguments = Arguments(data={"attention_dropout": 0.0, "hidden_dropout": 0.0})
    for path, value in reader.found.items():
        table, _, name = path.rpartition(".")
        its = _OTHERWISE.get(name, name)
        known = its in _megatron() and (path in _SAMPLES or table in (*_HANDED, *_HANDED_NEMO))
        if (known and reader.fields[path].role is not Role.NO_MATTER) or name == "average_in_collective":
            arguments.put(its, value if value is not False else None, (*path.split("."),))
    for path in ("mixed_precision.", "trainer.plugins."):
        half = {"bf16-mixed": "bf16", "16-mixed": "fp16"}.get(str(reader.found.get(path + "precision")))
        for name in ("bf16", "fp16"):
            arguments.put(name, True if reader.found.get(path + name) or half == name else None, (*(path + name).split("."),))
        if reader.found.get(path + "grad_reduce_in_fp32") is False:
            arguments.put("grad_reduce_in_bf16", True, (*path.split("."), "grad_reduce_in_fp32")[-3:])
    for name, its in (("megatron", "use_megatron_fsdp"), ("pytorch", "use_torch_fsdp2")):
        arguments.put(its, True if reader.found.get("trainer.strategy.fsdp") == name else None, ("trainer", "strategy", "fsdp"))
    if not document.bridge and "optim" not in document.classes:  # the model's own
        arguments.put("use_distributed_optimizer", True)
    if second_fsdp:
        arguments.put("data_parallel_sharding_strategy", "optim_grads_params")
        arguments.paths.pop("data_parallel_sharding_strategy", None)
    if "seq_length" not in arguments.data:  # that of samples has to be the model's
        arguments.put("seq_length", reader.found.get("dataset.seq_length"), ("dataset", "seq_length"))
    hidden, heads = (arguments.data.get(name) for name in ("hidden_size", "num_attention_heads"))
    if hidden and heads:  # as Megatron-Core has it, which its arguments refuse where they do not divide
        arguments.data.setdefault("kv_channels", hidden // heads)
    if arguments.data.get("moe_router_enable_expert_bias"):
        arguments.data.setdefault("moe_router_score_function", "sigmoid")  # the model's own file says it
    if "pipeline_model_parallel_layout" in arguments.data:  # it says again how many runs of layers a device has
        arguments.data.pop("num_virtual_stages_per_pipeline_rank", None)
    if "recompute_modules" in arguments.data:
        arguments.data.setdefault("moe_grouped_gemm", True)
    if (_said(reader, "expert_model_parallel_size") or 1) > 1:
        defaults = {
            "num_experts": _said(reader, "expert_model_parallel_size"),
            "disable_bias_linear": True,
            "moe_token_dispatcher_type": "alltoall",
        }
        arguments.data = {**defaults, "moe_router_load_balancing_type": "none", **arguments.data}
    return arguments


def _of_the_model(reader: Reader, document: Recipe) -> Iterator[Reading]:
    """What the model says, and the recipe does not."""
    made = document.classes.get("model.config") or document.classes.get("model", "")
    name = made.rpartition(".")[2] if "(" not in made else made
    if not name.lower().startswith(tuple(one.lower() for one in _NO_DROPOUT)):
        note = f"not said; whether layers of `{name or 'the model'}` have dropout is not known here"
        yield Reading(name="model", value=name, role=Role.ANOTHER_STEP, note=note)
    moe = any(path.rpartition(".")[2].startswith("moe_") for path in reader.found)
    if moe or (_said(reader, "expert_model_parallel_size") or 1) > 1 or any(word in name for word in _EXPERTS):
        yield balance_unsaid()


def _with_tokens(reader: Reader, imported: Imported, document: Recipe) -> Imported:
    """Where not every token counts, each micro-batch has a mean of its own tokens, unless a sum is divided by those of all devices."""
    table = "dataset" if document.bridge else "data"
    made = document.classes.get(table, "").rpartition(".")[2]
    if made.endswith(_EVERY_TOKEN) or _said(reader, "calculate_per_token_loss"):
        return imported
    note = f"`{made or '?'}`: answers alone may count, and each micro-batch has the mean of its own tokens"
    told = Reading(name=table, value=made, role=Role.READ, note=note, told=True)
    without = dict.fromkeys((*imported.without, "equal-token-counts"))
    return replace(imported, readings=(*imported.readings, told), without=tuple(without))


def _with_types(imported: Imported, document: Recipe) -> Imported:
    """Where no precision is said, the model and the optimizer have types of their own."""
    table = "mixed_precision" if document.bridge else "trainer.plugins"
    if table in document.classes:
        return imported
    if not _is_table(document, table):  # another step, as it is not followed
        return replace(imported, precision=None)
    told = Reading(name=table, value=None, role=Role.READ, note="not said; the model decides in which types all is held", told=True)
    return replace(imported, readings=(*imported.readings, told), precision=None)


def _with_adapters(reader: Reader, imported: Imported, document: Recipe) -> Imported:
    made = document.classes.get("peft")
    if made is None:
        return imported
    readings = [*imported.readings]
    if "dora" in made.lower():
        readings.append(Reading(name="peft", value=made, role=Role.ANOTHER_STEP, note=_ADAPTERS["DoRA"]))
    if "peft.target_modules" not in reader.found:
        note = f"not said; {reader.fields['peft.target_modules'].note}"
        readings.append(Reading(name="peft.target_modules", value=None, role=Role.NOT_MODELLED, note=note))
    step = f"{imported.expression} * {expression(lora(reader.get('peft.dim'), 'linear'))}"
    return replace(imported, expression=step, readings=tuple(readings), precision=None)
