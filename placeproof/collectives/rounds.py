"""Collectives round by round: who sends which chunks to whom, and how long it takes.

In a round, devices send at the same time what they had when it began. A *chunk* is an equal part of the amount s that
:mod:`placeproof.collectives.table` names for the collective; a plan says into how many parts s is cut. In an all-to-all, where s is
what one device holds, the chunks of device i are those from i * parts on, in the order of the devices that they are for.

Time is that of the alpha-beta-gamma model (thakur2005, section 3): a message of m bytes takes alpha + m beta seconds, and adding m
bytes to others m gamma. A device sends and receives at the same time, one message over each of its ports; a round takes as long as its
slowest device, and the next begins when all are done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Send:
    """One message: ``source`` sends ``chunks`` to ``target``, which adds them to its own (``add``) or takes them instead.

    ``port``: over which of the sender's links; a device sends, and receives, one message of a round over each port.
    """

    source: int
    target: int
    chunks: tuple[int, ...]
    add: bool = False
    port: int = 0


Round = tuple[Send, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one level of links takes: ``alpha`` seconds a message, ``beta`` seconds a byte that a device sends over one link.

    ``ports``: links that a device has and can use at once. ``ring``: it has links to two neighbours only, and not to every device.
    """

    alpha: Fraction
    beta: Fraction
    ports: int = 1
    ring: bool = False


def _one_level(source: int, target: int) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A collective among ``devices`` devices. ``parts``: how many chunks s is cut into."""

    kind: str
    devices: int
    parts: int
    rounds: tuple[Round, ...]

    def sent(self, s: Fraction) -> tuple[Fraction, ...]:
        """Bytes that each device sends, for a tensor of s bytes."""
        counts = [0] * self.devices
        for send in self._sends():
            counts[send.source] += len(send.chunks)
        return tuple(s / self.parts * count for count in counts)

    def sent_over(self, levels: int, between: Callable[[int, int], int], s: Fraction) -> tuple[tuple[Fraction, ...], ...]:
        """Bytes that each device sends over each of the levels of links, where ``between`` tells which one joins two devices."""
        counts = [[0] * levels for _ in range(self.devices)]
        for send in self._sends():
            counts[send.source][between(send.source, send.target)] += len(send.chunks)
        return tuple(tuple(s / self.parts * count for count in row) for row in counts)

    def seconds(
        self,
        s: Fraction,
        links: Sequence[Link],
        gamma: Fraction = Fraction(0),
        between: Callable[[int, int], int] = _one_level,
    ) -> Fraction:
        """Seconds for a tensor of s bytes: the sum over the rounds of the slowest device's time."""
        size = s / self.parts
        return sum((_slowest(one, size, links, gamma, between) for one in self.rounds), Fraction(0))

    def _sends(self) -> Iterator[Send]:
        return (send for one in self.rounds for send in one)


def _slowest(sent: Round, size: Fraction, links: Sequence[Link], gamma: Fraction, between: Callable[[int, int], int]) -> Fraction:
    """Seconds of the slowest device of a round; equal loads are computed once."""
    messages: dict[int, set[tuple[int, int]]] = defaultdict(set)
    added: dict[int, int] = defaultdict(int)
    for send in sent:
        load = (between(send.source, send.target), len(send.chunks))
        messages[send.source].add(load)
        messages[send.target].add(load)
        added[send.target] += len(send.chunks) * send.add
    loads = {(frozenset(messages[d]), added[d]) for d in messages}
    return max(
        (
            max(links[level].alpha + links[level].beta * size * count for level, count in sends) + gamma * size * sums
            for sends, sums in loads
        ),
        default=Fraction(0),
    )
