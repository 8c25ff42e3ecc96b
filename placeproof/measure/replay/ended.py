"""What a process of a replay ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placeproof.measure.replay.file import Named

#: The table of the reference's derivative, where that is what a block should have returned.
DERIVATIVE = "derivative"

Tables = Mapping[str, Named]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a process ends with. ``reference``: what one device ends with, computed by the first process; ``by_autograd``: a second time."""

    tables: Tables
    reference: Tables = field(default_factory=dict)
    by_autograd: Tables = field(default_factory=dict)
