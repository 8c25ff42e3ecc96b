"""What an error code is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One error code. ``example`` is an input of the kind named (``strategy``, ``file``, ``program``, ``set``)."""

    code: str
    title: str
    meaning: str
    kind: str
    example: str
    remedy: str
