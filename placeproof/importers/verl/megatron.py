"""The actor under Megatron-LM: its settings are Megatron's own, by other names, and are read as those.

(verl==0.9.1:workers/engine/megatron/transformer_impl.py and utils/megatron/optimizer.py)
"""

from __future__ import annotations

from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.adapters import frozen
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported
from placeproof.importers.megatron.adapted import adapted
from placeproof.importers.megatron.handed import Arguments, hand, path_of, read, table
from placeproof.importers.verl.run import ACTOR, MEGATRON, MODEL, Run

#: verl's names -> Megatron's, where they are not the same.
_NAMES = {
    MEGATRON + "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    MEGATRON + "num_layers_per_virtual_pipeline_stage": "num_layers_per_virtual_pipeline_stage",
    ACTOR + "optim.clip_grad": "clip_grad",
    ACTOR + "optim.use_precision_aware_optimizer": "use_precision_aware_optimizer",
    ACTOR + "optim.muon_tp_mode": "muon_tp_mode",
}
_SAME = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"),
    *("expert_tensor_parallel_size", "use_megatron_fsdp"),
)
_ROUTERS = MODEL + "override_config.moe_config.freeze_moe_router"
#: Tables of which every setting is one of Megatron's.
_TABLES = tuple(
    (*table.rstrip(".").split("."),)
    for table in (MEGATRON + "override_transformer_config", MEGATRON + "override_ddp_config", ACTOR + "optim.override_optimizer_config")
)
#: What verl sets, whatever the model.
_SET: dict[str, Any] = {
    "bf16": True, "attention_dropout": 0.0, "hidden_dropout": 0.0, "moe_router_load_balancing_type": "none",
    "moe_token_dispatcher_type": "alltoall",
}  # fmt: skip


def built(run: Reader, step: Run, m: int | None, problems: Problems, *, routed: bool) -> Imported:
    """The strategy. ``m``: micro-batches of a step, None where they are open. ``routed``: the model may have routers."""
    imported = read(_arguments(run, step, m), run.document, step.size, problems, "verl")
    if not run.get(MODEL + "lora.rank"):
        apart = routed and run.get(_ROUTERS) and run.get(MEGATRON + "tensor_model_parallel_size") == 1
        return frozen(imported, "router") if apart else imported
    return adapted(run, imported, MODEL + "lora.", "rank", apart=run.get(MODEL + "lora.type") == "canonical_lora")


def _arguments(run: Reader, step: Run, m: int | None) -> Arguments:
    arguments = Arguments(data=dict(_SET))
    for name in _SAME:
        hand(run, arguments, MEGATRON + name, name)
    for name, its in _NAMES.items():
        hand(run, arguments, name, its)
    tp = run.get(MEGATRON + "tensor_model_parallel_size")
    for name in ("sequence_parallel", "use_distributed_optimizer"):
        value = run.get(MEGATRON + name) and (tp > 1 or name != "sequence_parallel")
        arguments.put(name, value or None, path_of(run, MEGATRON + name))
    if run.get(MEGATRON + "dtype") in ("float16", "fp16"):
        arguments.data = {("fp16" if name == "bf16" else name): value for name, value in arguments.data.items()}
    arguments.put("optimizer", run.get(ACTOR + "optim.optimizer"), path_of(run, ACTOR + "optim.optimizer"))
    arguments.put("micro_batch_size", step.micro)
    arguments.put("global_batch_size", step.samples if m is not None or run.get(ACTOR + "use_dynamic_bsz") else None)
    if (sharers := run.get(MEGATRON + "expert_model_parallel_size")) > 1:
        arguments.put("num_experts", sharers)  # how many there are says the model
        arguments.put("disable_bias_linear", True)
    for path in _TABLES:
        table(run, arguments, path)
    return arguments
