"""Experts of Megatron-LM: over which devices a strategy has them.

Megatron numbers its devices twice: once by tensor, context and data parallelism for everything else, and once for the experts by their
own tensor parallelism, by expert parallelism and by what is left (megatron-core==0.16.1:parallel_state.py). The strategy `ep` divides
the data-parallel devices alone.
"""

from __future__ import annotations

from placeproof.importers.asked import Known
from placeproof.importers.imported import SHARING, misplaced

_TENSOR, _DEVICES, _WAY = "expert_tensor_parallel_size", "expert_model_parallel_size", "moe_token_dispatcher_type"
_UNSAID = f"Megatron gathers all tokens unless `{_WAY}` says otherwise: the formulas send each to its experts"


def check_split(known: Known) -> None:
    """What Megatron runs and no strategy says: experts over devices of tensor or context parallelism, or split in a way of their own."""
    reader, tp, cp, ep = known.reader, known["tp"], known["cp"], known["ep"]
    tensor = reader.get(_TENSOR) or tp
    if not reader.get("num_experts") or known.breaks("megatron-03"):
        return
    if tensor not in (1, tp):
        message = f"experts are split over {tensor} devices, and other matrices over {tp}: no strategy says that"
        reader.refuse(_TENSOR, message, f"take {tp}, the default, or 1: each expert whole")
    elif complaint := misplaced(ep, known.get("dp"), tensor=tp if tensor == 1 else 1, context=cp):
        reader.refuse(_DEVICES, *complaint)


def note_devices(known: Known) -> None:
    """Over which devices the experts lie."""
    if known["ep"] > 1:
        parts = [f"{SHARING} dp"]
        parts += ["dp has to be a multiple"] if "dp" not in known else []
        parts += ["Megatron takes the devices of one sequence first: the same bytes, between other devices"] if known["cp"] > 1 else []
        parts += [] if known.reader.said(_WAY) else [_UNSAID]
        known.reader.note(_DEVICES, "; ".join(parts), told=len(parts) > 1)
