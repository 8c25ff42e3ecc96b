"""Whether ranks enter the same collectives in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.recording import Recording, Seen


def agree(recordings: Mapping[int, Recording]) -> None:
    """Raise InputError at the first collective that the ranks of a group do not enter alike: the n-th of one rank meets the n-th of all."""
    for first, other in combinations(recordings.values(), 2):
        own = _met(first, other.rank)
        for number, (a, b) in enumerate(zip(own, _met(other, first.rank), strict=False), start=1):
            about = first.about(a), other.about(b)
            alike = a.signature() == b.signature() and about[0] == about[1]
            if not alike or first.places(a) != other.places(b):
                what = f"they put gradients in other places of what they `{a.kind}`" if alike else _differs(a, b, *about)
                refuse_lines(
                    first.script,
                    first.source,
                    [(f"ranks {first.rank} and {other.rank} do not do the same in collective {number}: {what}", a.line)],
                )
        theirs, ranks = _met(other, first.rank), (first.rank, other.rank)
        if len(own) != (count := len(theirs)):
            (more, less), where = (ranks, own[count:]) if len(own) > count else (ranks[::-1], theirs[len(own) :])
            text = f"rank {more} enters {abs(len(own) - count)} collectives more than rank {less}: first `{where[0].kind}`"
            refuse_lines(first.script, first.source, [(text, where[0].line)])


def _met(recording: Recording, rank: int) -> list[Seen]:
    """The collectives that two ranks enter together."""
    return [e for e in recording.events if e.group and rank in e.group and e.kind not in ("send", "recv")]


def _differs(a: Seen, b: Seen, mine: frozenset[str], there: frozenset[str]) -> str:
    if (a.kind, a.op) != (b.kind, b.op):
        return f"`{a.kind}`{' ' + a.op if a.op else ''} meets `{b.kind}`{' ' + b.op if b.op else ''}"
    if a.numel != b.numel or a.dtype != b.dtype:
        return f"`{a.kind}` of {a.numel} {a.dtype} meets one of {b.numel} {b.dtype}"
    own, others = (min(x - y, default="others") for x, y in ((mine, there), (there, mine)))
    return f"`{a.kind}` of `{own}` meets one of `{others}`" if mine != there else f"`{a.kind}` with another root"
