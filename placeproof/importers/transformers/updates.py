"""The updates that transformers' Trainer can be told by name (transformers==5.24.0:trainer_optimizer.py), and what is known of each.

Names that older versions had are among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from placeproof.importers.imported import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """``deepspeed``: what DeepSpeed calls it, empty where it has no such. ``note``: what is to be told of it, with its ``role``.

    ``rowwise``: it looks at whole rows or matrices. ``strategy``: that of the step in which every device has whole gradients.
    """

    deepspeed: str = ""
    note: str = ""
    role: Role = Role.READ
    rowwise: bool = False
    strategy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """What is known of an update of whole matrices, beside the ``setting`` that says it: what is to be told, with its role, where every
    device has whole gradients (``whole``), and where FSDP 2 has them in parts (``parts``), whose matrices are then exchanged; None where
    it is not known to be one."""

    setting: str
    whole: tuple[str, Role]
    parts: tuple[str, Role] | None = None


_PAGED = "its state moves to host memory where that of the device does not suffice"
_BLOCKS = "keeps its state in few bits, scaled by blocks, which are others once a tensor is sharded"
_STATE = "the update; no named precision has its state"
_RANK = "an update of low rank, which looks at whole matrices"
_EARLY = "updates parameters while backward runs: no gradient is held"

_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_apex_fused", "adamw_hf")
_FEW_BITS = (
    *("adamw_torch_4bit", "adamw_torch_8bit", "adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "ademamix_8bit", "paged_ademamix_8bit"),
    *("lion_8bit", "paged_lion_8bit", "rmsprop_bnb_8bit"),
)
_LOW_RANK = (
    *("galore_adamw", "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise", "galore_adamw_8bit_layerwise"),
    *("galore_adafactor_layerwise", "apollo_adamw", "apollo_adamw_layerwise"),
)
_OTHER_STATE = ("adamw_anyprecision", "ademamix", "schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd")

UPDATES: dict[str, Update] = {
    **dict.fromkeys(_ADAM, Update(deepspeed="AdamW")),
    **dict.fromkeys(("paged_adamw_32bit", "paged_adamw"), Update(deepspeed="AdamW", note=_PAGED, role=Role.NOT_MODELLED)),
    **dict.fromkeys(_FEW_BITS, Update(note=_BLOCKS, role=Role.ANOTHER_STEP)),
    **dict.fromkeys(_LOW_RANK, Update(note=_RANK, role=Role.ANOTHER_STEP, rowwise=True)),
    **dict.fromkeys(_OTHER_STATE, Update(note=_STATE)),
    **dict.fromkeys(("lomo", "adalomo"), Update(note=_EARLY, role=Role.ANOTHER_STEP)),
    "paged_ademamix_32bit": Update(note=_PAGED, role=Role.NOT_MODELLED),
    "grokadamw": Update(note="an update that the losses steer", role=Role.ANOTHER_STEP),
    "stable_adamw": Update(note="an update that is clipped by the norm of each whole tensor", role=Role.ANOTHER_STEP, rowwise=True),
    "adafactor": Update(
        deepspeed="Adafactor",
        note="an update that sums along rows and columns of matrices, and clips by norms of tensors: not elementwise",
        rowwise=True,
        strategy="adafactor",
    ),
    "sgd": Update(deepspeed="SGD"),
    "adagrad": Update(deepspeed="Adagrad", note=_STATE),
    **dict.fromkeys(("rmsprop", "rmsprop_bnb", "rmsprop_bnb_32bit"), Update(deepspeed="RMSprop", note=_STATE)),
    "lion_32bit": Update(deepspeed="Lion", note=_STATE),
    "paged_lion_32bit": Update(deepspeed="Lion", note=_PAGED, role=Role.NOT_MODELLED),
}
