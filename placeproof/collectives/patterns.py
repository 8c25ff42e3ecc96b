"""The rounds of each algorithm, for n devices.

A function returns what is sent in each round, for s cut into as many chunks as its docstring says. In all-gathers and broadcasts each
device gets each chunk once. Backwards in time, with sums in place of copies, they are reduce-scatters and reduces, which are not written
out, but for that of the ring, which goes the same way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from math import prod

from placeproof.collectives.rounds import Round, Send

Rounds = list[Round]


def steps(n: int) -> int:
    """ceil(log2 n): rounds in which what one device has can reach n devices, if all that have it pass it on."""
    return (n - 1).bit_length()


def backwards(rounds: Iterable[Round]) -> Rounds:
    """An all-gather as a reduce-scatter, a broadcast as a reduce: what was copied from a device is now added there."""
    return [tuple(Send(s.target, s.source, s.chunks, True, s.port) for s in one) for one in reversed(list(rounds))]


# All-gathers: chunk d is device d's, of n.


def ring_all_gather(n: int) -> Rounds:
    """Each device passes on what it got last. n chunks."""
    return [tuple(Send(d, (d + 1) % n, ((d - t) % n,)) for d in range(n)) for t in range(n - 1)]


def ring_reduce_scatter(n: int) -> Rounds:
    """Each device adds its part to the sum that it got last, and passes it on, the same way round as the all-gather. n chunks."""
    return [tuple(Send(d, (d + 1) % n, ((d - t - 1) % n,), True) for d in range(n)) for t in range(n - 1)]


def doubling_all_gather(n: int) -> Rounds:
    """Devices 1, 2, 4, ... apart exchange all that they have. n chunks; n is a power of two."""
    return [tuple(Send(d, d ^ w, tuple(range(d // w * w, d // w * w + w))) for d in range(n)) for w in powers(n)]


def bruck_all_gather(n: int) -> Rounds:
    """Each device sends all that it has, or what is still missing, to the device 1, 2, 4, ... before it. n chunks, any n."""
    return [tuple(Send(d, (d - w) % n, tuple((d + j) % n for j in range(min(w, n - w)))) for d in range(n)) for w in powers(n)]


def neighbour_exchange(n: int) -> Rounds:
    """Pairs of neighbours exchange their own block, then each with its other neighbour in turn the two that it got last. n chunks, n even.

    Source: chen2005allgather.
    """
    rounds: Rounds = []
    latest: list[tuple[int, ...]] = [(d,) for d in range(n)]
    for t in range(n // 2):
        partner = [(d + 1 if (d + t) % 2 == 0 else d - 1) % n for d in range(n)]
        rounds.append(tuple(Send(d, partner[d], latest[d]) for d in range(n)))
        latest = [tuple(sorted((d, partner[d]))) for d in range(n)] if t == 0 else [latest[partner[d]] for d in range(n)]
    return rounds


def both_ways_all_gather(n: int) -> Rounds:
    """Blocks go both ways round a ring, each to the half of the devices that is nearer that way. n chunks, n even; two ports.

    The device opposite gets a block one way only, so that the last round goes one way.
    """
    right = [tuple(Send(d, (d + 1) % n, ((d - t) % n,)) for d in range(n)) for t in range(n // 2)]
    left = [tuple(Send(d, (d - 1) % n, ((d + t) % n,), port=1) for d in range(n)) for t in range(n // 2 - 1)]
    return together(right, left)


def line_all_gather(n: int) -> Rounds:
    """Blocks go both ways along a line, whose ends are not joined. n chunks; two ports."""
    right = [tuple(Send(d, d + 1, (d - t,)) for d in range(t, n - 1)) for t in range(n - 1)]
    left = [tuple(Send(d, d - 1, (d + t,), port=1) for d in range(1, n - t)) for t in range(n - 1)]
    return together(right, left)


# From one device, and to one. The root is device 0.


def tree_broadcast(n: int) -> Rounds:
    """A binomial tree: devices that have the tensor send it n/2, n/4, ..., 1 further. One chunk, any n."""
    return [tuple(Send(d, d + w, (0,)) for d in range(0, n - w, 2 * w)) for w in reversed(powers(n))]


def tree_scatter(n: int) -> Rounds:
    """A binomial tree along which each device sends on what is not for its own half. n chunks, any n."""
    return [tuple(Send(d, d + w, tuple(range(d + w, min(d + 2 * w, n)))) for d in range(0, n - w, 2 * w)) for w in reversed(powers(n))]


def chain_broadcast(segments: int) -> Callable[[int], Rounds]:
    """A chain, in which each device passes on one of the tensor's segments while it gets the next. As many chunks as segments."""

    def rounds(n: int) -> Rounds:
        count = n - 2 + segments if n > 1 else 0
        return [tuple(Send(d, d + 1, (t - d,)) for d in range(n - 1) if 0 <= t - d < segments) for t in range(count)]

    return rounds


def message(n: int) -> Rounds:
    """One message, from device 0 to device 1. One chunk."""
    return [(Send(0, 1, (0,)),)] if n > 1 else []


# All to all. Chunk i * n + j is what device i has for device j.


def pairwise(n: int) -> Rounds:
    """In round r, each device sends the device r places further on what is for it. n chunks a device, any n."""
    return [tuple(Send(d, (d + r) % n, (d * n + (d + r) % n,)) for d in range(n)) for r in range(1, n)]


def bruck_all_to_all(n: int) -> Rounds:
    """What has r places to go travels 2^i of them in round i, if r has that bit. n chunks a device, any n."""
    return [tuple(Send(d, (d + w) % n, _travelling(d, w, n)) for d in range(n)) for w in powers(n)]


def _travelling(d: int, w: int, n: int) -> tuple[int, ...]:
    """What device d sends w places further: whatever has that bit still to go has gone the lower ones."""
    return tuple((d - r % w) % n * n + (d - r % w + r) % n for r in range(n) if r & w)


def ring_all_to_all(n: int) -> Rounds:
    """Everything travels one way round a ring, a place a round. n chunks a device, any n."""
    return [
        tuple(Send(d, (d + 1) % n, tuple((d - t) % n * n + (d - t + r) % n for r in range(t + 1, n))) for d in range(n))
        for t in range(n - 1)
    ]


def both_ways_all_to_all(n: int) -> Rounds:
    """Everything travels the nearer way round a ring, and half of what is for the device opposite either way.

    2 n chunks a device, two for each other one; n even; two ports.
    """

    def one_way(d: int, t: int, sign: int) -> tuple[int, ...]:
        source = (d - sign * t) % n
        pairs = [(r, half) for r in range(t + 1, n // 2 + 1) for half in range(2) if r < n // 2 or half == (sign < 0)]
        return tuple((source * n + (source + sign * r) % n) * 2 + half for r, half in pairs)

    right = [tuple(Send(d, (d + 1) % n, one_way(d, t, 1)) for d in range(n)) for t in range(n // 2)]
    left = [tuple(Send(d, (d - 1) % n, one_way(d, t, -1), port=1) for d in range(n)) for t in range(n // 2)]
    return together(right, left)


# Among all, not only by passes.


def doubling_all_reduce(n: int) -> Rounds:
    """Devices 1, 2, 4, ... apart exchange their sums. One chunk; n is a power of two."""
    return [tuple(Send(d, d ^ w, (0,), True) for d in range(n)) for w in powers(n)]


def folded_all_reduce(n: int) -> Rounds:
    """Halving and doubling among the p devices that are the largest power of two below n; the others fold their part into a neighbour's.

    p chunks; n is no power of two. Each of the first n - p pairs adds its two halves, one each, and brings them together at one of the
    two, which sends the other the result in the end. Source: rabenseifner2004.
    """
    p = folded_core(n)
    pairs = [(2 * i, 2 * i + 1) for i in range(n - p)]
    low, high, whole = tuple(range(p // 2)), tuple(range(p // 2, p)), tuple(range(p))
    fold = [
        tuple(s for a, b in pairs for s in (Send(b, a, low, True), Send(a, b, high, True))),
        tuple(Send(b, a, high) for a, b in pairs),
    ]
    active = [a for a, _ in pairs] + list(range(2 * (n - p), n))
    gather = doubling_all_gather(p)
    inner = on_members([*backwards(gather), *gather], active, [(c,) for c in whole])
    return [*fold, *inner, tuple(Send(a, b, whole) for a, b in pairs)]


def folded_core(n: int) -> int:
    """The largest power of two below n, which is none itself; and n where it is one."""
    return 1 << (n.bit_length() - 1)


# Putting rounds together.


def powers(n: int) -> list[int]:
    """1, 2, 4, ... below n."""
    return [1 << i for i in range(steps(n))]


def together(*parallel: Rounds) -> Rounds:
    """What goes on at the same time, round by round."""
    return [tuple(send for one in rounds for send in one) for rounds in zip_longest(*parallel, fillvalue=())]


def on_members(rounds: Rounds, members: Sequence[int], chunks: Sequence[tuple[int, ...]], port: int = 0) -> Rounds:
    """The same rounds among some devices of a larger group: device i is members[i], and chunk c stands for chunks[c]."""
    return [
        tuple(Send(members[s.source], members[s.target], tuple(e for c in s.chunks for e in chunks[c]), s.add, s.port + port) for s in one)
        for one in rounds
    ]


def levels_all_gather(sizes: Sequence[int]) -> Rounds:
    """Ring all-gathers, level by level from the outermost: each device collects what lies in its place of the other blocks. n chunks.

    sizes: how many blocks of a level the next one joins, from the inside out; device d lies in block d // (sizes[0] ... sizes[l-1]).
    """
    n = prod(sizes)
    rounds: Rounds = []
    for level in reversed(range(len(sizes))):
        below, upto = prod(sizes[:level]), prod(sizes[: level + 1])
        chunks = [[tuple(range(place + below * j, n, upto)) for j in range(sizes[level])] for place in range(below)]
        rounds += together(*(on_members(ring_all_gather(sizes[level]), m, chunks[m[0] % below]) for m in lines(n, below, upto)))
    return rounds


def levels_all_to_all(sizes: Sequence[int]) -> Rounds:
    """All-to-alls, level by level from the inside out: on each, data go to the device in their destination's place of it.

    n chunks a device. After a level, a device has what is for devices whose places agree with its own so far.
    """
    n = prod(sizes)
    rounds: Rounds = []
    for level, size in enumerate(sizes):
        below, upto = prod(sizes[:level]), prod(sizes[: level + 1])
        for r in range(1, size):
            sends = []
            for d in range(n):
                target = d - d % upto + (d + r * below) % upto
                sources = [d - d % below + place for place in range(below)]
                places = range(target % upto, n, upto)
                sends.append(Send(d, target, tuple(source * n + place for source in sources for place in places)))
            rounds.append(tuple(sends))
    return rounds


def lines(n: int, below: int, upto: int) -> list[range]:
    """The groups of devices that differ in one place only."""
    return [range(start + place, start + upto, below) for start in range(0, n, upto) for place in range(below)]
