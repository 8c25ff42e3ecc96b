"""What a measured run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """How a run was run, in the words of ``placeproof derive``; empty where nobody says. ``overlap``: what was hidden behind computing;
    ``cluster``: that of the devices, where it is not that of the set; ``fp8``: `yes` where products with layers' matrices were."""

    model: str = ""
    implementation: str = ""
    precision: str = ""
    recompute: str = ""
    overlap: str = "none"
    cluster: str = ""
    fp8: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run: its strategy, empty where nobody says, ``settings`` as ``--set`` takes them, and layers of each of its ``stages``, where they
    are not as many.

    What was measured: ``tensors``, the most bytes of tensors of a device, ``reserved``, what the allocator had then, and ``process``, what
    a driver shows. None where nobody says. ``steps``: seconds of a step by its number of micro-batches.
    """

    name: str
    strategy: str
    settings: tuple[str, ...]
    run_as: RunAs
    tensors: Fraction | None = None
    reserved: Fraction | None = None
    process: Fraction | None = None
    stages: tuple[int, ...] = ()
    steps: Mapping[int, Fraction] = field(default_factory=dict, hash=False)
