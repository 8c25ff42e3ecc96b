"""Experts that DeepSpeed's AutoEP deals to the data-parallel devices (deepspeed==0.19.8:module_inject/auto_ep_folding.py)."""

from __future__ import annotations

from placeproof.importers.fields import Reader
from placeproof.importers.imported import SHARING, Role

_TABLE = "expert_parallel"


def check_experts(reader: Reader, data: str, found: tuple[str, str] | None) -> None:
    """Refuse what DeepSpeed refuses, and what no strategy says.

    ``data``: the strategy of data parallelism. ``found``: why no strategy has the experts over so many devices, and a remedy.
    """
    split = f"{_TABLE}.expert_tensor_parallel_size"
    if (reader.get(split) or 1) > 1:
        reader.refuse(split, "DeepSpeed does not split an expert", "leave it at 1: each expert is whole")
    if data == "zeropp":
        found = found or ("ZeRO++ beside experts that devices share: no strategy says that", "drop one of the two")
    if found is not None:
        reader.refuse(f"{_TABLE}.autoep_size", *found)


def devices_note(*, whole: bool, sharded: bool) -> tuple[str, Role]:
    """What is said of the number of devices. ``whole``: matrices beside the experts are split; ``sharded``: ZeRO is on."""
    note = f"{SHARING} dp"
    if not whole:
        return note, Role.READ
    note += "; each expert is whole, and DeepSpeed deals the tokens of a device over tensor parallelism before they are sent"
    return f"{note}, and shards experts over it too: less than is counted" if sharded else note, Role.NOT_MODELLED
