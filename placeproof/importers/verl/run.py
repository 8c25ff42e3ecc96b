"""What the actor's step is made of, and the tables of settings that decide it."""

from __future__ import annotations

from dataclasses import dataclass

ACTOR = "actor_rollout_ref.actor."
MODEL = "actor_rollout_ref.model."
FSDP = ACTOR + "fsdp_config."
MEGATRON = ACTOR + "megatron."


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a step is made of. ``size``: devices; ``samples``: of one step; ``micro``: of a device's forward pass, None where it is open."""

    size: int
    samples: int
    micro: int | None
