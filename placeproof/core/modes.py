"""The five modes: how a state lies on one mesh axis.

A mode is a record of behaviour. Code asks a mode what it does (``mode.gathers``); it never compares modes by name.
The paper's body has no code; this table is our reading of it.

Source: Mehta, arXiv 2601.02311; the columns follow ``docs/reference/modes.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Share(Enum):
    """How much of a state of s bytes one of n devices holds all step."""

    WHOLE = "s"
    PART = "s/n"
    NOTHING = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How a state of s bytes lies on an axis of n devices, with units of u <= s bytes.

    ``device`` and ``host`` say what one device (and its share of the host) holds all step; ``gathers`` that a use
    all-gathers it unit by unit; ``fetches`` that a use crosses the host link; ``transient`` that it exists in full only
    between being produced and consumed.
    """

    symbol: str
    name: str
    device: Share
    host: Share = Share.NOTHING
    gathers: bool = False
    fetches: bool = False
    transient: bool = False
    peak: str
    traffic: str
    meaning: str

    @property
    def split(self) -> bool:
        """Whether each device owns one part of the state, on the device or on the host."""
        return Share.PART in (self.device, self.host)

    @property
    def stays_split(self) -> bool:
        """Whether a device has its part alone, at every time: nothing is gathered for use."""
        return self.device is Share.PART and not self.gathers

    def __str__(self) -> str:
        return self.symbol


REPLICATED = Mode(
    symbol="R",
    name="REPLICATED",
    device=Share.WHOLE,
    peak="0",
    traffic="whatever keeps the copies equal",
    meaning="a full copy on each device",
)
SHARDED = Mode(
    symbol="S",
    name="SHARDED",
    device=Share.PART,
    peak="0",
    traffic="none to hold it",
    meaning="each device owns one part; only usable where no device needs the rest",
)
GATHERED = Mode(
    symbol="S*",
    name="GATHERED",
    device=Share.PART,
    gathers=True,
    peak="u (2u with prefetch)",
    traffic="one all-gather per use",
    meaning="owned in parts, gathered unit by unit when used, dropped after",
)
MATERIALIZED = Mode(
    symbol="M",
    name="MATERIALIZED",
    device=Share.NOTHING,
    transient=True,
    peak="u (default u = s)",
    traffic="as its producer says",
    meaning="exists in full only between being produced and consumed",
)
OFFLOADED = Mode(
    symbol="O",
    name="OFFLOADED",
    device=Share.NOTHING,
    host=Share.PART,
    gathers=True,
    fetches=True,
    peak="u",
    traffic="host link, both ways, per use",
    meaning="held off the device, fetched when used",
)

MODES: dict[str, Mode] = {m.symbol: m for m in (REPLICATED, SHARDED, GATHERED, MATERIALIZED, OFFLOADED)}
