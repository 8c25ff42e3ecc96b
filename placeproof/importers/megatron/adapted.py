"""Adapters of Megatron-Bridge beside Megatron-LM's matrices, as several systems ask for them.

(NVIDIA-NeMo/Megatron-Bridge@8c46dc425908:src/megatron/bridge/peft/lora.py, canonical_lora.py and module_matcher.py)
"""

from __future__ import annotations

from dataclasses import replace

from placeproof.importers.adapters import ELSEWHERE, FUSED, lora
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Reading, Role, expression

#: Modules beside which adapters stand, by the word of the strategy `lora`: of matrices that lie as one, and of each by itself.
_TOGETHER = {"linear": {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"}, "attention": {"linear_qkv", "linear_proj"}}
_APART = {
    "linear": {"linear_q", "linear_k", "linear_v", "linear_proj", "linear_fc1_up", "linear_fc1_gate", "linear_fc2"},
    "attention": {"linear_q", "linear_k", "linear_v", "linear_proj"},
    "qv": {"linear_q", "linear_v"},
}


def adapted(reader: Reader, imported: Imported, table: str, rank: str, *, apart: bool = False) -> Imported:
    """The strategy with adapters in the place of training in full.

    ``table``: of the settings of adapters; ``rank``: its name for their rank. ``apart``: each matrix has one of its own, those of queries,
    keys and values, too.
    """
    name = table + "target_modules"
    said = {str(one) for one in reader.get(name) or ()}
    known = [word for word, modules in (_APART if apart else _TOGETHER).items() if modules == said]
    word = known[0] if known and not reader.get(table + "exclude_modules") else None
    note = ELSEWHERE if word is None else "" if apart else FUSED
    unsaid = () if reader.said(name) or not note else (Reading(name=name, value=None, role=Role.NOT_MODELLED, note=f"not said; {note}"),)
    if reader.said(name) and note:
        reader.note(name, note, Role.NOT_MODELLED)
    step = f"{imported.expression} * {expression(lora(reader.get(table + rank), word))}"
    return replace(imported, expression=step, readings=(*imported.readings, *unsaid), precision=None)
