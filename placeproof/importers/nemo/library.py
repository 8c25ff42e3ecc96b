"""What functions of Megatron-Bridge and of NeMo 2 return, as their sources say it.

(NVIDIA-NeMo/Megatron-Bridge@067f987df03b:src/megatron/bridge/recipes/common.py, recipes/utils and training/mixed_precision.py;
NVIDIA/NeMo@8cfedd720346:nemo/collections/llm/recipes/finetune_default.py, optim/adam.py and precision/mixed_precision.py)
"""

from __future__ import annotations

from typing import Any

from placeproof.importers.python import Known, Made, Unknown

_BRIDGE, _RECIPES = "megatron.bridge.", "nemo.collections.llm.recipes."
_DEGREES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size")
_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
#: Batches, and how gradients are reduced, by the function that a recipe of Megatron-Bridge begins with.
_COMMON: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "_pretrain_common": (
        *(32, 2, 4096),
        {"average_in_collective": True, "data_parallel_sharding_strategy": "optim_grads_params", "use_distributed_optimizer": True},
    ),
    "_sft_common": (128, 1, 2048, {}),
    "_peft_common": (128, 1, 2048, {}),
}
#: Names of types -> what is said of them. Those in 8 and 4 bits differ in how, which no width here says.
_MIXED = (
    *("bf16_mixed", "bf16_with_fp8_delayed_scaling_mixed", "bf16_with_mxfp8_mixed", "bf16_with_fp8_current_scaling_mixed"),
    *("bf16_with_fp8_subchannel_scaling_mixed", "bf16_with_nvfp4_mixed", "nemotron_h_bf16_with_fp8_current_scaling_mixed"),
    *("nanov2_bf16_with_fp8_current_scaling_mixed", "bf16_with_fp8_mixed", "nemotron_3_super_bf16_with_nvfp4_mixed"),
)
_ADAM = "distributed_fused_adam_with_cosine_annealing"


def _object(name: str, call: Made, **said: Any) -> Made:
    """An object that a call makes: its settings stand where the call does."""
    return Made(name, call.node, said, dict.fromkeys(said, call.node), changed=True)


def mixed(name: str, call: Made) -> Made | None:
    """The types that a name says, None where it is none of them."""
    name = name.replace("-", "_")
    half = name.replace("fp16", "bf16", 1) if name.startswith("fp16") else name
    if half not in _MIXED:
        return None
    fp16 = half != name
    few = {"fp8": "hybrid"} if "fp8" in half else {"fp4": "e2m1"} if "nvfp4" in half else {}
    return _object("MixedPrecisionConfig", call, **{"fp16" if fp16 else "bf16": True}, grad_reduce_in_fp32=not fp16, **few)


def _precision(call: Made) -> Any:
    return mixed(call.name.rpartition(".")[2], call)


def _named_precision(call: Made) -> Any:
    name = call.given[0] if call.given else call.said.get("name")
    return (mixed(name, call) if isinstance(name, str) else None) or Unknown("get_mixed_precision_config(...)")


def _optimizer(call: Made) -> Made:
    """Adam, of which the distributed optimizer shards the state."""
    made = _object("OptimizerConfig", call, optimizer="adam", use_distributed_optimizer=True, clip_grad=1.0)
    if "clip_grad" in call.said:
        made.said["clip_grad"], made.places["clip_grad"] = call.said["clip_grad"], call.places["clip_grad"]
    return made


def _adam(call: Made) -> Any:
    """Of Megatron-Bridge: the optimizer, and what its rate follows."""
    return Unknown(f"{_ADAM}(...)") if call.given or call.starred else [_optimizer(call), _object("SchedulerConfig", call)]


def _adam_module(call: Made) -> Any:
    """Of NeMo 2."""
    return Unknown(f"{_ADAM}(...)") if call.given or call.starred else _object("MegatronOptimizerModule", call, config=_optimizer(call))


def _adapters(call: Made) -> Any:
    scheme = call.given[0] if call.given else call.said.get("peft_scheme", Unknown("peft_scheme"))
    if scheme is None or scheme == "none":
        return None
    said = {key: value for key, value in call.said.items() if key != "peft_scheme"}
    known = {"lora": "LoRA", "dora": "DoRA"}.get(scheme.lower()) if isinstance(scheme, str) else None
    return Made(known, call.node, said, call.places, [], call.starred) if known else Unknown("default_peft_config(...)")


def _common(call: Made) -> Made:
    """What a recipe of Megatron-Bridge begins with."""
    name = call.name.rpartition(".")[2]
    batch, micro, tokens, reduced = _COMMON[name]
    data = _object("GPTDatasetConfig" if name == "_pretrain_common" else "GPTSFTDatasetConfig", call, seq_length=tokens)
    lora = _object("LoRA", call, target_modules=[*_TARGETS], dim=32) if name == "_peft_common" else None
    return _object(
        "ConfigContainer",
        call,
        model=None,
        train=_object("TrainingConfig", call, global_batch_size=batch, micro_batch_size=micro),
        optimizer=_optimizer(call),
        ddp=_object("DistributedDataParallelConfig", call, **reduced),
        dataset=data,
        mixed_precision=_object("MixedPrecisionConfig", call, bf16=True, grad_reduce_in_fp32=True),
        peft=lora,
        **{name: _object(name, call) for name in ("dist", "scheduler", "validation", "logger", "tokenizer", "checkpoint", "rng")},
    )


def _dispatched(call: Made) -> None:
    """Sends tokens to experts by another library, where the devices have it."""
    model, backend = call.given[0] if call.given else None, [*call.given[1:], *call.said.values()]
    if isinstance(model, Made) and backend and backend[0] in ("deepep", "hybridep"):
        said = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": backend[0], "moe_shared_expert_overlap": False}
        model.said |= said
        model.places |= dict.fromkeys(said, call.node)


def _configured(call: Made) -> Any:
    """``run.Config`` and ``run.Partial``: a call that is made later."""
    first = call.given[0] if call.given else None
    name = first.text if isinstance(first, Unknown) else first.name if isinstance(first, Made) else ""
    return Made(name, call.node, call.said, call.places, call.given[1:], call.starred, changed=True) if name else call


def _finetuned(call: Made) -> Any:
    """What a recipe of NeMo 2 that tunes a model begins with."""
    names = ("model", "resume_path", "dir", "name", "num_nodes", "num_gpus_per_node", "packed_sequence", "tokenizer")
    said = {**dict(zip(names, call.given, strict=False)), **call.said}
    packed = said.get("packed_sequence", False)
    if call.starred or not isinstance(packed, bool):
        return Unknown("default_finetune_recipe(...)")
    parallel = dict.fromkeys(("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"), 1)
    strategy = _object("nl.MegatronStrategy", call, **parallel, sequence_parallel=False)
    trainer = _object(
        "nl.Trainer",
        call,
        num_nodes=said.get("num_nodes", 1),
        devices=said.get("num_gpus_per_node", 8),
        plugins=mixed("bf16_mixed", call),
        strategy=strategy,
        callbacks=[_object("TimingCallback", call)],
    )
    data = _object("llm.SquadDataModule", call, seq_length=2048, global_batch_size=8 if packed else 128, micro_batch_size=1)
    optim = _object("MegatronOptimizerModule", call, config=_optimizer(_object(_ADAM, call)))
    return _object("llm.finetune", call, model=said.get("model"), trainer=trainer, data=data, optim=optim, resume=None, log=None)


def _cast(call: Made) -> Any:
    return call.given[1] if len(call.given) == 2 else call


def unsaid(made: Made, attribute: str) -> Any:
    """A degree that a model of Megatron-Bridge has where nothing said another."""
    provided = made.name.endswith((".get_model_config", ".to_megatron_provider"))
    return 1 if provided and attribute in _DEGREES else None


def _nothing(call: Made) -> None:
    """What changes nothing of a step."""


KNOWN: dict[str, Known] = {
    **{f"{_BRIDGE}recipes.common.{name}": _common for name in _COMMON},
    f"{_BRIDGE}recipes.utils.optimizer_utils.{_ADAM}": _adam,
    f"{_BRIDGE}recipes.utils.dataset_utils.default_peft_config": _adapters,
    f"{_BRIDGE}training.flex_dispatcher_backend.apply_flex_dispatcher_backend": _dispatched,
    f"{_BRIDGE}training.mixed_precision.get_mixed_precision_config": _named_precision,
    f"{_BRIDGE}utils.cuda_graph.set_cuda_graph_modules": _nothing,
    **{
        f"{place}.{one}": _precision
        for place in (f"{_BRIDGE}training.mixed_precision", f"{_RECIPES}precision.mixed_precision")
        for name in _MIXED
        for one in (name, name.replace("bf16", "fp16", 1))
    },
    f"{_RECIPES}optim.adam.{_ADAM}": _adam_module,
    f"{_RECIPES}finetune_default.default_finetune_recipe": _finetuned,
    "typing.cast": _cast,
    "run.Config": _configured,
    "run.Partial": _configured,
}
