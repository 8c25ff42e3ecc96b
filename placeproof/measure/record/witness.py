"""What refutes a script whose step no program says: numbers that real processes came to. Data, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.measure.record.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A ``condition`` that is broken in a ``step`` of a script on ``world`` ranks: the ``claim`` that does not hold, what was ``seen``
    instead, and the ``line`` of the script, 0 for none. ``numbers``: the counterexample as data. ``reasons``: what makes it so, as far as
    it was seen. ``summary`` and ``remark``: what that means."""

    script: str
    source: tuple[str, ...]
    world: int
    step: int
    condition: str
    line: int
    claim: str
    seen: tuple[str, ...]
    numbers: Mapping[str, object]
    reasons: tuple[str, ...]
    summary: str
    remark: str

    @classmethod
    def of(
        cls,
        recording: Recording,
        step: int,
        *,
        condition: str,
        line: int,
        claim: str,
        seen: tuple[str, ...],
        numbers: Mapping[str, object],
        summary: str,
        remark: str,
        reasons: tuple[str, ...] = (),
    ) -> Witness:
        """What a step of the script shows that was recorded."""
        return cls(
            script=recording.script, source=recording.source, world=recording.world, step=step, condition=condition, line=line, claim=claim,
            seen=seen, numbers=numbers, reasons=reasons, summary=summary, remark=remark,
        )  # fmt: skip


def shown(*numbers: float) -> list[str]:
    """Numbers with as few digits as tell the last two apart."""
    texts = [[f"{n:.{digits}g}" for n in numbers] for digits in (6, 9, 17)]
    return next((t for t in texts if t[-1] != t[-2]), texts[-1])
