"""Experts of Megatron-LM: over which devices a strategy has them.

Megatron numbers its devices twice: once by tensor, context and data parallelism for everything else, and once for the experts by their
own tensor parallelism, by expert parallelism and by what is left, in this order (megatron-core==0.16.1:parallel_state.py). So experts that
are whole lie over devices of tensor parallelism first, then over those of context parallelism, then over data-parallel ones; and those that
are split over some devices of tensor parallelism lie over the others first.
"""

from __future__ import annotations

from placeproof.importers.asked import Known
from placeproof.importers.imported import Sharing, sharing, sharing_beside_slices

_TENSOR, _DEVICES, _WAY = "expert_tensor_parallel_size", "expert_model_parallel_size", "moe_token_dispatcher_type"
_SAVED = "distribute_saved_activations"
_UNSAID = f"Megatron gathers all tokens unless `{_WAY}` says otherwise: the formulas send each to its experts"


def shared(known: Known) -> Sharing:
    """Over which devices the experts lie, where the degrees are known."""
    if not {"ep", "tp", "cp"} <= {*known}:
        return Sharing()
    whole, sequence, tokens = (bool(known.get(fact)) for fact in ("whole", "sp", "splits_tokens"))
    context, tensor, split = known["cp"] if tokens else 1, known["tp"], known.reader.get(_TENSOR)
    if known.reader.get("num_experts") and 1 < (split or tensor) < tensor and tensor % split == 0:
        return sharing_beside_slices(known["ep"], known.get("dp"), tensor=tensor, split=split, context=context, sequence=sequence)
    lies = sharing(known["ep"], known.get("dp"), tensor=tensor, context=context, whole=whole, sequence=sequence)
    if lies.complaint and whole and sequence and tensor % known["ep"] == 0:  # data-parallel devices do not suffice, and a part of these do
        return sharing_beside_slices(known["ep"], known.get("dp"), tensor=tensor, split=1)
    return lies


def check_split(known: Known, lies: Sharing) -> None:
    """What Megatron runs and no strategy says: experts over a part of an axis, or over other devices than matrices are split over."""
    reader, tp = known.reader, known["tp"]
    tensor = reader.get(_TENSOR) or tp
    if not reader.get("num_experts") or known.breaks("megatron-03"):
        return
    if tp % tensor:
        message = f"experts are split over {tensor} devices, which are no equal part of the {tp} of other matrices: no strategy says that"
        reader.refuse(_TENSOR, message, f"take a divisor of {tp}; with 1 each expert is whole")
    elif lies.tensor and reader.get(_SAVED):
        message = f"saved activations in parts over {tp} devices, to which experts lie in several ways: that is not lowered"
        reader.refuse(_SAVED, message, "leave it out")
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
