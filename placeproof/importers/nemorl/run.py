"""What a step of the policy is made of, and the tables of settings that decide it."""

from __future__ import annotations

from dataclasses import dataclass

POLICY, CLUSTER = "policy.", "cluster."
DTENSOR, MEGATRON = POLICY + "dtensor_cfg.", POLICY + "megatron_cfg."
COLOCATED = POLICY + "generation.colocated."


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a step is made of. ``size``: devices that train; ``copies``: data-parallel ones of them; ``samples``: of one step; ``micro``: of
    a device's forward pass, ``m``: micro-batches of a step, both None where they are open."""

    size: int
    copies: int
    samples: int
    micro: int | None
    m: int | None
