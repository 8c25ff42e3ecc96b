"""The actor under Megatron-LM: its settings are Megatron's own, by other names, and are read as those.

(verl==0.9.1:workers/engine/megatron/transformer_impl.py and utils/megatron/optimizer.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.places import KeyPath
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Role
from placeproof.importers.megatron.handed import Arguments, read
from placeproof.importers.settings import settings
from placeproof.importers.verl.run import ACTOR, MEGATRON, Run

#: verl's names -> Megatron's, where they are not the same.
_NAMES = {
    MEGATRON + "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    MEGATRON + "num_layers_per_virtual_pipeline_stage": "num_layers_per_virtual_pipeline_stage",
    ACTOR + "optim.clip_grad": "clip_grad",
    ACTOR + "optim.use_precision_aware_optimizer": "use_precision_aware_optimizer",
}
_SAME = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"),
    *("expert_tensor_parallel_size", "use_megatron_fsdp"),
)
#: Tables of which every setting is one of Megatron's; and settings there that its arguments call otherwise.
_TABLES = tuple(
    (*table.rstrip(".").split("."),)
    for table in (MEGATRON + "override_transformer_config", MEGATRON + "override_ddp_config", ACTOR + "optim.override_optimizer_config")
)
_OTHERWISE = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
#: Of kernels and of what runs beside what: nothing that a step computes, or that a formula counts.
_KERNELS = frozenset((
    "apply_rope_fusion", "masked_softmax_fusion", "bias_activation_fusion", "bias_dropout_fusion", "gradient_accumulation_fusion",
    "deallocate_pipeline_outputs", "persist_layer_norm", "attention_softmax_in_fp32", "variable_seq_lengths", "average_in_collective",
    "overlap_p2p_comm", "batch_p2p_comm", "use_flash_attn", "attention_backend",
))  # fmt: skip
#: What verl sets, whatever the model.
_SET: dict[str, Any] = {
    "bf16": True, "attention_dropout": 0.0, "hidden_dropout": 0.0, "moe_router_load_balancing_type": "none",
    "moe_token_dispatcher_type": "alltoall",
}  # fmt: skip


def built(run: Reader, step: Run, m: int | None, problems: Problems) -> Imported:
    """The strategy. ``m``: micro-batches of a step, None where they are open."""
    return read(_arguments(run, step, m), run.document, step.size, problems, "verl")


def _arguments(run: Reader, step: Run, m: int | None) -> Arguments:
    arguments = Arguments(data=dict(_SET))
    for name in _SAME:
        _said(run, arguments, MEGATRON + name, name)
    for name, its in _NAMES.items():
        _said(run, arguments, name, its)
    tp = run.get(MEGATRON + "tensor_model_parallel_size")
    for name in ("sequence_parallel", "use_distributed_optimizer"):
        value = run.get(MEGATRON + name) and (tp > 1 or name != "sequence_parallel")
        arguments.put(name, value or None, _path(run, MEGATRON + name))
    if run.get(MEGATRON + "dtype") in ("float16", "fp16"):
        arguments.data = {("fp16" if name == "bf16" else name): value for name, value in arguments.data.items()}
    arguments.put("optimizer", run.get(ACTOR + "optim.optimizer"), _path(run, ACTOR + "optim.optimizer"))
    arguments.put("micro_batch_size", step.micro)
    arguments.put("global_batch_size", step.samples if m is not None or run.get(ACTOR + "use_dynamic_bsz") else None)
    if (sharers := run.get(MEGATRON + "expert_model_parallel_size")) > 1:
        arguments.put("num_experts", sharers)  # how many there are says the model
        arguments.put("disable_bias_linear", True)
    for table in _TABLES:
        _table(run, arguments, table)
    return arguments


def _path(run: Reader, name: str) -> KeyPath:
    return tuple(run.name(name).split(".")) if run.name(name) in run.found else ()


def _said(run: Reader, arguments: Arguments, name: str, its: str) -> None:
    value = run.get(name)
    arguments.put(its, value if value is not False else None, _path(run, name))


def _table(run: Reader, arguments: Arguments, path: tuple[str, ...]) -> None:
    """What a table of Megatron's own settings says."""
    table: Any = run.document.data
    for part in path:
        table = table.get(part) if isinstance(table, Mapping) else None
    known = {name for row in settings("megatron") for name in row.names}
    for key, value in (table or {}).items() if isinstance(table, Mapping) else ():
        name, here = _OTHERWISE.get(str(key), str(key)), (*path, str(key))
        if name == "grad_reduce_in_fp32":
            arguments.put("grad_reduce_in_bf16", True if value in (False, "False", "false") else None, here)
        elif name in known and not isinstance(value, Mapping):
            arguments.put(name, value if value is not False else None, here)
        elif name in _KERNELS:
            run.note(".".join(here), "kernels, and what runs beside what: the same step", Role.NO_MATTER)
        else:
            help = suggestion(name, known) or "leave it out, or ask about the strategy itself"
            run.refuse(".".join(here), f"`{key}` is no setting of Megatron-LM that is read here", help, "PP502")
