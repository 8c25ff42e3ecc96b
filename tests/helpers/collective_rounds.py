"""Rounds of collectives run on chunks that tell whose data are in them; and an all-gather on a torus, with its closed form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import mul

from placeproof.collectives.passes import Terms
from placeproof.collectives.patterns import Rounds, both_ways_all_gather, lines, on_members, together
from placeproof.collectives.rounds import Plan, Round, Send
from placeproof.collectives.table import A

#: How much of each device's own data a value holds: device d's data occurs value[d] times in the sum.
Held = tuple[int, ...]


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


def torus_all_gather(side: int, axes: int) -> Rounds:
    """An all-gather on a torus of side^axes devices, over all links at once. axes chunks a device; side even; two ports an axis.

    Each device's block is cut into as many parts as there are axes. Part i is gathered along axis i, then the next one, and so on round.
    """
    n = side**axes
    rounds: Rounds = []
    for phase in range(axes):
        parallel: list[Rounds] = []
        for part in range(axes):
            axis = (part + phase) % axes
            done = {(part + earlier) % axes for earlier in range(phase)}
            for members in lines(n, side**axis, side ** (axis + 1)):
                chunks = [tuple(d * axes + part for d in _reached(m, done, side, axes)) for m in members]
                parallel.append(on_members(both_ways_all_gather(side), members, chunks, port=2 * axis))
        rounds += together(*parallel)
    return rounds


def _reached(device: int, free: set[int], side: int, axes: int) -> list[int]:
    """The devices of a torus that differ from one at most along the axes that are free."""
    fixed = [side**axis for axis in range(axes) if axis not in free]
    return [d for d in range(side**axes) if all(d // below % side == device // below % side for below in fixed)]


def on_torus(side: A, axes: int, s: A) -> Terms[A]:
    """The closed form of :func:`torus_all_gather`: on axis p, a part holds side^p blocks already."""
    blocks = list(accumulate([side] * axes, mul, initial=side / side))
    sent = sum(blocks[1:-1], start=blocks[0])
    return Terms(side * axes / 2, s * side * sent / blocks[-1] / axes / 2, s * 0)
