"""The policy under FSDP 2, laid out by NeMo Automodel or by NeMo RL itself.

(NVIDIA-NeMo/RL@7ea279abfbeb:nemo_rl/models/automodel/setup.py and train.py, models/dtensor/parallelize.py, and
NVIDIA-NeMo/Automodel@24b47e856263:nemo_automodel/components/distributed/parallelizer.py and moe/parallelizer.py)
"""

from __future__ import annotations

from placeproof.importers.adapters import ELSEWHERE, lora, targets
from placeproof.importers.fields import Reader
from placeproof.importers.fsdp import ADAM, in_types, on_host
from placeproof.importers.imported import Imported, Role, Sharing, balance_unsaid, expression, in_shards, misplaced, over_axes
from placeproof.importers.nemorl.run import DTENSOR, POLICY, Run
from placeproof.importers.transformers.training import TYPES

_LORA, _SHARERS = DTENSOR + "lora_cfg.", DTENSOR + "expert_parallel_size"


def sharers(reader: Reader) -> int:
    """Devices that share experts, which Automodel lays out alone."""
    return int(reader.get(_SHARERS)) if reader.get(DTENSOR + "_v2") else 1


def replicas(reader: Reader) -> int:
    """Copies of shards, which Automodel has alone."""
    return int(reader.get(DTENSOR + "dp_replicate_size")) if reader.get(DTENSOR + "_v2") else 1


def built(reader: Reader, step: Run) -> Imported:
    """The strategy."""
    tp, tokens = (reader.get(DTENSOR + name) for name in ("tensor_parallel_size", "context_parallel_size"))
    ep = sharers(reader)
    parts = _data(reader, step.copies, tokens, ep) or {}
    if tp > 1:
        parts["tp"] = {"tp": tp}
        if reader.get(DTENSOR + "sequence_parallel"):
            parts["sp"] = {"tp": tp}
    parts = parts or {"ddp": {"dp": 1}}
    if reader.get(DTENSOR + "activation_checkpointing"):
        parts["checkpoint"] = {}
    if step.m != 1:
        parts["accumulate"] = {"microbatches": step.m}
    if reader.get(POLICY + "max_grad_norm") is not None:
        parts["clip"] = {}  # by a limit of 0, too: nothing is left then
    if reader.get(_LORA + "enabled"):
        parts |= _adapters(reader)
    ring = reader.get(DTENSOR + "_v2") and reader.get(DTENSOR + "automodel_kwargs.backend.attn") == "te"
    return Imported(
        system="nemorl",
        source=reader.document.source,
        expression=expression(over_axes(parts, tokens=tokens, attention=None if ring else "gather", experts=ep)),
        readings=(balance_unsaid(),) if ep > 1 else (),
    )


def _data(reader: Reader, copies: int, tokens: int, ep: int) -> dict[str, dict[str, object]]:
    """What is sharded over data-parallel devices."""
    rep = replicas(reader)
    if rep > 1 and (copies % rep or rep >= copies):
        name = DTENSOR + "dp_replicate_size"
        reader.refuse(name, f"{rep} copies of shards over {copies} data-parallel devices", f"a divisor of {copies} below it")
        rep = 1
    _check_experts(reader, ep, rep, copies, tokens)
    kept = ep > 1 and not reader.get(DTENSOR + "moe_parallelizer.reshard_after_forward")
    options: dict[str, object] = {"reshard_after_forward": False} if kept else {"prefetch": True} if ep == 1 else {}
    name, sharded = DTENSOR + "cpu_offload", copies * tokens > 1
    held = bool(reader.get(name)) and on_host(reader, name, modelled=sharded and rep == 1 and not kept)
    return in_shards(rep, max(copies // rep // ep, 1), options, on_host=held, tokens=tokens * ep)


def _check_experts(reader: Reader, ep: int, rep: int, copies: int, tokens: int) -> None:
    """What no strategy says of experts: Automodel takes their devices from those of data and of sequences."""
    if ep == 1:
        return
    if rep > 1:
        reader.refuse(_SHARERS, "experts over devices beside copies of shards: no strategy says that", "leave `dp_replicate_size` out")
    elif complaint := misplaced(ep, copies, context=tokens):
        reader.refuse(_SHARERS, *complaint)
    else:
        reader.note(_SHARERS, f"{Sharing(rest=ep).note('the shards')}; one gathered unit is counted", told=True)


def _adapters(reader: Reader) -> dict[str, dict[str, object]]:
    """The strategy of adapters."""
    word = None
    if not reader.get(_LORA + "match_all_linear") and not reader.get(_LORA + "exclude_modules"):
        word = targets([str(one).removeprefix("*").removeprefix(".") for one in reader.get(_LORA + "target_modules") or ()], "*_proj")
    if word is None:
        for name in ("target_modules", "exclude_modules", "match_all_linear"):
            if reader.get(_LORA + name):
                reader.note(_LORA + name, ELSEWHERE, Role.NOT_MODELLED)
    return lora(reader.get(_LORA + "dim"), word)


def precision(reader: Reader) -> tuple[str, str | None]:
    """What is kept, gathered and reduced in which types, and the named precision of it."""
    used = TYPES[str(reader.get(POLICY + "precision"))]
    update = str(reader.get(POLICY + "optimizer.name"))
    named = ADAM["fp32"] if update in ("torch.optim.Adam", "torch.optim.AdamW") else None
    alike = used == "fp32" and not reader.get(_LORA + "enabled")
    return in_types("fp32", used, "fp32", named), named if alike else None
