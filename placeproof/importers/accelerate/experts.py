"""Experts in what Accelerate says of Megatron-LM, the one table of its files that speaks of them."""

from __future__ import annotations

from placeproof.importers.accelerate.run import AccelerateReader
from placeproof.importers.imported import Role, sharing, sharing_beside_slices

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

    Says in ``run.experts`` over which devices they lie. Refuses what Megatron refuses, and what no strategy says.
    """
    (ep, whole), split = experts(run), run.get(_SPLIT)
    tp, cp, sequence = (run.get(_TABLE + name) for name in ("tp_degree", "context_parallel_size", "sequence_parallelism"))
    lies = run.experts = sharing(ep, devices, tensor=tp, context=cp, whole=whole, sequence=sequence)
    if ep == 1:
        return devices
    if 1 < split < tp and tp % split == 0:
        lies = run.experts = sharing_beside_slices(ep, devices, tensor=tp, split=split, context=cp, sequence=sequence)
    if tp % split:
        message = f"experts are split over {split} devices, which are no equal part of the {tp} of other matrices: no strategy says that"
        run.refuse(_SPLIT, message, f"take a divisor of {tp}; with 1 each expert is whole")
    elif lies.complaint:
        run.refuse(_DEVICES, *lies.complaint)
    note, sharded = lies.note("dp"), False
    alike = dict(lies.tensor).get("dtp", tp if whole and "tp" not in lies.axes else 1)
    if alike > 1 and run.get(_TABLE + "use_distributed_optimizer"):
        copies = "whole experts" if whole else "slices of experts"
        note, sharded = f"{note}; of the optimizer state of {copies} a device has 1/{alike} of what is counted", True
    run.note(_DEVICES, note, Role.NOT_MODELLED if sharded else Role.READ)
    slices = f"experts are split over {split} of {tp} devices of tensor parallelism: the axis etp"
    run.note(_SPLIT, "each expert is whole" if split == 1 else slices if lies.tensor else "experts are split as other matrices are")
    return None if devices is None else max(devices // lies.rest, 1)
