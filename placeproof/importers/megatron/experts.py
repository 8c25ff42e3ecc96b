"""Experts of Megatron-LM: over which devices a strategy has them.

Megatron numbers its devices twice: once by tensor, context and data parallelism for everything else, and once for the experts by their
own tensor parallelism, by expert parallelism and by what is left, in this order (megatron-core==0.16.1:parallel_state.py). So experts that
are whole lie over devices of tensor parallelism first, then over those of context parallelism, then over data-parallel ones.
"""

from __future__ import annotations

from placeproof.importers.asked import Known
from placeproof.importers.imported import Sharing, sharing

_TENSOR, _DEVICES, _WAY = "expert_tensor_parallel_size", "expert_model_parallel_size", "moe_token_dispatcher_type"
_UNSAID = f"Megatron gathers all tokens unless `{_WAY}` says otherwise: the formulas send each to its experts"


def shared(known: Known) -> Sharing:
    """Over which devices the experts lie, where the degrees are known."""
    if not {"ep", "tp", "cp"} <= {*known}:
        return Sharing()
    whole, sequence, tokens = (bool(known.get(fact)) for fact in ("whole", "sp", "splits_tokens"))
    context = known["cp"] if tokens else 1
    return sharing(known["ep"], known.get("dp"), tensor=known["tp"], context=context, whole=whole, sequence=sequence)


def check_split(known: Known, lies: Sharing) -> None:
    """What Megatron runs and no strategy says: experts over a part of an axis, or split in a way of their own."""
    reader, tp = known.reader, known["tp"]
    tensor = reader.get(_TENSOR) or tp
    if not reader.get("num_experts") or known.breaks("megatron-03"):
        return
    if tensor not in (1, tp):
        message = f"experts are split over {tensor} devices, and other matrices over {tp}: no strategy says that"
        reader.refuse(_TENSOR, message, f"take {tp}, the default, or 1: each expert whole")
    elif lies.complaint:
        reader.refuse(_DEVICES, *lies.complaint)


def note_devices(known: Known, lies: Sharing) -> None:
    """Over which devices the experts lie."""
    if known["ep"] > 1:
        parts = [lies.note("dp")]
        parts += ["dp has to be a multiple"] if "dp" not in known and lies.rest > 1 else []
        first = lies.elsewhere and known["cp"] > 1
        parts += ["Megatron takes the devices of one sequence first: the same bytes, between other devices"] if first else []
        parts += [] if known.reader.said(_WAY) else [_UNSAID]
        known.reader.note(_DEVICES, "; ".join(parts), told=len(parts) > 1)
