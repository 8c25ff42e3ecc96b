"""Experts in what Accelerate says of Megatron-LM, the one table of its files that speaks of them."""

from __future__ import annotations

from placeproof.importers.accelerate.run import AccelerateReader
from placeproof.importers.imported import SHARING, Role, misplaced

_TABLE = "megatron_lm_config.megatron_lm_"
_DEVICES, _SPLIT = _TABLE + "expert_model_parallel_size", _TABLE + "expert_tensor_parallel_size"


def experts(run: AccelerateReader) -> tuple[int, bool]:
    """Devices that share experts, and whether each expert is whole while other matrices are split: whole is Accelerate's default."""
    if run.kind != "MEGATRON_LM":
        return 1, False
    ep = run.get(_DEVICES)
    return ep, ep > 1 and run.get(_SPLIT) == 1 and run.get(_TABLE + "tp_degree") > 1


def check_experts(run: AccelerateReader, devices: int | None) -> int | None:
    """The degree of dp beside the experts, out of so many data-parallel ``devices``; None where they are open.

    Refuses what Megatron refuses, and what no strategy says.
    """
    (ep, whole), split = experts(run), run.get(_SPLIT)
    tp, cp = (run.get(_TABLE + name) for name in ("tp_degree", "context_parallel_size"))
    if ep == 1:
        return devices
    if split not in (1, tp):
        message = f"experts are split over {split} devices, and other matrices over {tp}: no strategy says that"
        run.refuse(_SPLIT, message, f"take {tp}, or 1: each expert whole")
    elif complaint := misplaced(ep, devices, tensor=tp if whole else 1, context=cp):
        run.refuse(_DEVICES, *complaint)
    note, sharded = f"{SHARING} dp", False
    if whole and run.get(_TABLE + "use_distributed_optimizer"):
        note, sharded = f"{note}; of the optimizer state of whole experts a device has 1/{tp} of what is counted", True
    run.note(_DEVICES, note, Role.NOT_MODELLED if sharded else Role.READ)
    run.note(_SPLIT, "each expert is whole" if split == 1 else "experts are split as other matrices are")
    return None if devices is None else max(devices // ep, 1)
