"""Collectives round by round: who sends which chunks to whom, run on real chunks, and timed.

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

#: How much of each device's own data a value holds: device d's data occurs value[d] times in the sum.
Held = tuple[int, ...]


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


def _slowest(one: Round, size: Fraction, links: Sequence[Link], gamma: Fraction, between: Callable[[int, int], int]) -> Fraction:
    """Seconds of the slowest device of a round; equal loads are computed once."""
    messages: dict[int, set[tuple[int, int]]] = defaultdict(set)
    added: dict[int, int] = defaultdict(int)
    for send in one:
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


# Running a plan.


def faults(plan: Plan) -> list[str]:
    """What is wrong with a plan, run on chunks that tell whose data are in them; empty exactly where the result is the collective's.

    A chunk is sent that its sender has not, a port is used twice in a round, or a device ends with something else than it should.
    """
    held, found = begin(plan.kind, plan.devices, plan.parts), []
    for number, one in enumerate(plan.rounds, start=1):
        found += [f"round {number}: {text}" for text in (*_ports(one), *_absent(one, held))]
        if found:
            return found
        arriving = [(send, [held[send.source][c] for c in send.chunks]) for send in one]
        for send, values in arriving:
            _receive(send, values, held[send.target])
    wanted = required(plan.kind, plan.devices, plan.parts)
    return [
        f"in the end, device {d} has {held[d].get(chunk)} of chunk {chunk} instead of {value}"
        for d, chunks in enumerate(wanted)
        for chunk, value in chunks.items()
        if held[d].get(chunk) != value
    ]


def _ports(one: Round) -> Iterator[str]:
    """Ports over which more than one message leaves or arrives, and chunks that two messages of a round replace."""
    ends = [("sends", s.source, s.port) for s in one] + [("receives", s.target, s.port) for s in one]
    yield from (f"device {d} {verb} twice over port {port}" for verb, d, port in sorted({e for e in ends if ends.count(e) > 1}))
    written = [(s.target, c) for s in one if not s.add for c in s.chunks]
    if len(set(written)) < len(written):
        yield "a chunk is replaced twice"


def _absent(one: Round, held: list[dict[int, Held]]) -> Iterator[str]:
    return (f"device {s.source} sends chunk {c}, which it has not" for s in one for c in s.chunks if c not in held[s.source])


def _receive(send: Send, values: list[Held], into: dict[int, Held]) -> None:
    for chunk, value in zip(send.chunks, values, strict=True):
        before = into.get(chunk) if send.add else None
        into[chunk] = value if before is None else tuple(a + b for a, b in zip(before, value, strict=True))


def begin(kind: str, n: int, parts: int) -> list[dict[int, Held]]:
    """What each of n devices has before a collective, by chunk. The root of a broadcast or a scatter, and the sender, is device 0."""
    own = [tuple(int(d == other) for other in range(n)) for d in range(n)]
    if kind in ("all_reduce", "reduce_scatter", "reduce"):
        return [dict.fromkeys(range(parts), own[d]) for d in range(n)]
    if kind == "all_gather":
        return [dict.fromkeys(share(d, n, parts), own[d]) for d in range(n)]
    if kind == "all_to_all":
        return [dict.fromkeys(range(d * parts, (d + 1) * parts), own[d]) for d in range(n)]
    return [dict.fromkeys(range(parts) if d == 0 else (), own[d]) for d in range(n)]


def required(kind: str, n: int, parts: int) -> list[dict[int, Held]]:
    """What each of n devices has to have after a collective, by chunk."""
    own = [tuple(int(d == other) for other in range(n)) for d in range(n)]
    everyone, whole = (1,) * n, range(parts)
    if kind == "all_reduce":
        return [dict.fromkeys(whole, everyone)] * n
    if kind == "reduce_scatter":
        return [dict.fromkeys(share(d, n, parts), everyone) for d in range(n)]
    if kind == "all_gather":
        return [{c: own[c * n // parts] for c in whole}] * n
    if kind == "all_to_all":
        return [{source * parts + c: own[source] for source in range(n) for c in share(d, n, parts)} for d in range(n)]
    receivers = {"reduce": range(1), "broadcast": range(n), "scatter": range(n), "send": range(1, min(n, 2))}[kind]
    value = everyone if kind == "reduce" else own[0]
    chunks = [share(d, n, parts) if kind == "scatter" else whole for d in range(n)]
    return [dict.fromkeys(chunks[d] if d in receivers else (), value) for d in range(n)]


def share(d: int, n: int, parts: int) -> range:
    """The chunks that belong to device d of n, where s is cut into n equal shares."""
    return range(d * parts // n, (d + 1) * parts // n)
