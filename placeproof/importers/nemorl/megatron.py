"""The policy under Megatron-LM: its settings are Megatron's own, by other names, and are read as those.

(NVIDIA-NeMo/RL@7ea279abfbeb:nemo_rl/models/megatron/setup.py)
"""

from __future__ import annotations

from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.adapters import frozen
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported
from placeproof.importers.megatron.adapted import adapted
from placeproof.importers.megatron.handed import OTHERWISE, Arguments, hand, path_of, read, table
from placeproof.importers.nemorl.run import MEGATRON, POLICY, Run

_WIDE = MEGATRON + "distributed_data_parallel_config.grad_reduce_in_fp32"
_SAME = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_ON_HOST = ("fine_grained_activation_offloading", "offload_modules")
_OF_EXPERTS = (
    *("expert_model_parallel_size", "expert_tensor_parallel_size", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend"),
    *("moe_enable_deepep", "moe_shared_expert_overlap"),
)
#: Settings of the update that say the types of the model, which `precision` says.
_TYPES = ("bf16", "fp16", "params_dtype")
_FRACTION = "optimizer_offload_fraction"
_OF_8_BITS = {"fp8_cfg.fp8": "fp8_format", "fp8_cfg.fp8_recipe": "fp8_recipe", "fp8_cfg.fp8_param": "fp8_param_gather"}
#: What NeMo RL sets, whatever the model; a loss that evens out experts is told beside the strategy.
_SET: dict[str, Any] = {
    "attention_dropout": 0.0, "hidden_dropout": 0.0, "moe_router_load_balancing_type": "none", "moe_token_dispatcher_type": "alltoall",
    "calculate_per_token_loss": True,
}  # fmt: skip


def built(reader: Reader, step: Run, problems: Problems, *, routed: bool) -> Imported:
    """The strategy. ``routed``: the model is known to have routers, and what of it is frozen lies whole on each device."""
    imported = read(_arguments(reader, step), reader.document, step.size, problems, "nemorl")
    if reader.get(MEGATRON + "peft.enabled"):
        return adapted(reader, imported, MEGATRON + "peft.", "dim")
    return frozen(imported, "router") if routed and reader.get(MEGATRON + "freeze_moe_router") else imported


def _arguments(reader: Reader, step: Run) -> Arguments:
    arguments = Arguments(data=dict(_SET))
    names = {MEGATRON + name: OTHERWISE.get(name, name) for name in (*_SAME, *OTHERWISE)}
    if reader.get(MEGATRON + "tensor_model_parallel_size") > 1:
        names[MEGATRON + "sequence_parallel"] = "sequence_parallel"
    experts = reader.get(MEGATRON + "expert_model_parallel_size")
    if experts > 1:
        names |= {MEGATRON + name: name for name in _OF_EXPERTS}
        arguments.put("num_experts", experts)  # how many there are says the model
        arguments.put("disable_bias_linear", True)
    if reader.get(MEGATRON + "fine_grained_activation_offloading"):
        names |= {MEGATRON + name: name for name in _ON_HOST}
    if reader.get(MEGATRON + "fp8_cfg.enabled"):
        names |= {MEGATRON + name: its for name, its in _OF_8_BITS.items()}
    if reader.get(MEGATRON + "mtp_num_layers"):
        names[MEGATRON + "mtp_num_layers"] = "mtp_num_layers"
    for name, its in names.items():
        hand(reader, arguments, name, its)
    _recomputation(reader, arguments)
    half = {"bfloat16": "bf16", "float16": "fp16"}.get(reader.get(POLICY + "precision"))
    if half is not None:
        arguments.put(half, True, path_of(reader, POLICY + "precision"), reader.get(POLICY + "precision"))
    arguments.put("micro_batch_size", step.micro)
    arguments.put("global_batch_size", step.samples)
    for name in reader.document.data["policy"]["megatron_cfg"].get("model_overrides") or ():
        if MEGATRON + str(name) in reader.fields:
            message = f"`{name}` has a place of its own, and NeMo RL stops where it is overridden"
            reader.refuse(f"{MEGATRON}model_overrides.{name}", message, f"say `{MEGATRON}{name}`")
    for path in ("model_overrides", "optimizer"):
        table(reader, arguments, (*MEGATRON.rstrip(".").split("."), path), apart=(*_TYPES, _FRACTION))
    if reader.get(MEGATRON + "optimizer.optimizer_cpu_offload"):
        hand(reader, arguments, MEGATRON + f"optimizer.{_FRACTION}", _FRACTION)
    narrow = half is not None and not reader.get(_WIDE)
    arguments.put("grad_reduce_in_bf16", narrow or None, path_of(reader, _WIDE), said=False)
    return arguments


def _recomputation(reader: Reader, arguments: Arguments) -> None:
    """What is computed again: all of a layer, layer by layer, or the parts that are named."""
    if not reader.get(MEGATRON + "activation_checkpointing"):
        return
    hand(reader, arguments, MEGATRON + "activation_checkpointing", "recompute_granularity", reader.get(MEGATRON + "recompute_granularity"))
    if reader.get(MEGATRON + "recompute_granularity") == "full":
        arguments.put("recompute_method", "uniform")
        arguments.put("recompute_num_layers", 1)
    else:
        hand(reader, arguments, MEGATRON + "recompute_modules", "recompute_modules")
