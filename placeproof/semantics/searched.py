"""How far a search for a counterexample went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How far a search without a result went."""

    runs: int
    largest: str

    @property
    def words(self) -> str:
        """The same in words."""
        return f"{self.runs} small runs up to {self.largest} showed no difference" if self.runs else "no small run was possible"


def in_words(degrees: Mapping[str, int]) -> str:
    """Degrees in words; nothing where there is no axis."""
    return ", ".join(f"N_{axis} = {n}" for axis, n in degrees.items())
