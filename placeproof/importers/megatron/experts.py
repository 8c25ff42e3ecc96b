"""Experts of Megatron-LM: over which devices a strategy has them, and what becomes of the settings that speak of them.

Megatron numbers its devices twice: once by tensor, context and data parallelism for everything else, and once for the experts by their
own tensor parallelism, by expert parallelism and by what is left (megatron-core==0.16.1:parallel_state.py). The strategy `ep` divides
the data-parallel devices alone.
"""

from __future__ import annotations

from placeproof.importers.asked import Known
from placeproof.importers.fields import Reader
from placeproof.importers.imported import SHARING, Note, Role, misplaced
from placeproof.importers.megatron.rules import Sizes, flag, own_fsdp

_TENSOR, _DEVICES, _WAY = "expert_tensor_parallel_size", "expert_model_parallel_size", "moe_token_dispatcher_type"
_UNSAID = f"Megatron gathers all tokens unless `{_WAY}` says otherwise: the formulas send each to its experts"
#: How tokens reach experts.
_WAYS = {
    "alltoall": Note(Role.READ, "each token is sent to its experts"),
    "alltoall_seq": Note(Role.READ, "each token is sent to its experts"),
    "allgather": Note(
        Role.NOT_MODELLED, "all tokens are gathered by the devices that share experts: the formulas send each to its experts"
    ),
    "flex": Note(Role.NOT_MODELLED, "a token goes once to a device with several of its experts: the formulas send it once for each"),
}


def _tensor(reader: Reader, sizes: Sizes) -> int:
    """Devices that an expert is split over."""
    return int(reader.get(_TENSOR) or sizes.tp)


def experts_whole(reader: Reader, sizes: Sizes) -> bool:
    """Whether each expert is whole on a device while other matrices are split."""
    return bool(reader.get("num_experts")) and sizes.tp > 1 and _tensor(reader, sizes) == 1


def check_split(reader: Reader, sizes: Sizes, facts: Known) -> None:
    """What Megatron runs and no strategy says: experts over devices of tensor or context parallelism, or split in a way of their own."""
    tensor = _tensor(reader, sizes)
    if not reader.get("num_experts") or facts.breaks("megatron-03"):
        return
    if tensor not in (1, sizes.tp):
        message = f"experts are split over {tensor} devices, and other matrices over {sizes.tp}: no strategy says that"
        reader.refuse(_TENSOR, message, f"take {sizes.tp}, the default, or 1: each expert whole")
    elif found := misplaced(sizes.ep, sizes.dp, tensor=sizes.tp if tensor == 1 else 1, context=sizes.cp):
        reader.refuse(_DEVICES, *found)


def expert_notes(reader: Reader, sizes: Sizes) -> dict[str, Note]:
    """What became of the settings of experts, where it depends on others."""
    notes: dict[str, Note] = {}
    if reader.said(_TENSOR):
        notes[_TENSOR] = _split_note(reader, sizes)
    if sizes.ep > 1:
        notes[_DEVICES] = _devices_note(reader, sizes)
        if reader.get(_WAY) in _WAYS:
            notes[_WAY] = _WAYS[reader.get(_WAY)]
    elif reader.said(_WAY):
        notes[_WAY] = Note(Role.NO_MATTER, "experts are not split over devices")
    return notes


def _devices_note(reader: Reader, sizes: Sizes) -> Note:
    parts = [f"{SHARING} dp"]
    if sizes.dp is None:
        parts.append("dp has to be a multiple")
    if sizes.cp > 1:
        parts.append("Megatron takes the devices of one sequence first: the same bytes, between other devices")
    if not reader.said(_WAY):
        parts.append(_UNSAID)
    return Note(Role.READ, "; ".join(parts), len(parts) > 1)


def _split_note(reader: Reader, sizes: Sizes) -> Note:
    if not reader.get("num_experts"):
        return Note(Role.NO_MATTER, "there are no experts")
    if not experts_whole(reader, sizes):
        return Note(Role.READ, "experts are split as other matrices are")
    note = "each expert is whole; Megatron takes the devices of tensor parallelism first for those that share experts"
    if flag(reader, "use_distributed_optimizer") or own_fsdp(reader):
        return Note(
            Role.NOT_MODELLED, f"{note}, and shards over them: of what is sharded of experts a device has 1/{sizes.tp} of what is counted"
        )
    return Note(Role.READ, f"{note}: a device holds as much, and exchanges it with other devices", True)
