"""Clipping as real processes did it: by which numbers gradients were multiplied, and the squares in the norms that these are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from placeproof.measure.record.axes import ranks_of
from placeproof.measure.record.nodes import COLLECTIVES, Node
from placeproof.measure.record.recording import Recording

Recordings = Mapping[int, Recording]


class UnknownError(Exception):
    """What is clipped, or by what, is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Squares:
    """The squares of ``count`` elements of a gradient that a ``rank`` adds to a norm. ``term``: of that rank."""

    rank: int
    term: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped:
    """A gradient, ``of``, times a ``number`` that is made of ``norm``, all as terms of a ``rank``. ``above``: what is done to it after
    that, the last first. ``line``: of the script."""

    rank: int
    of: int
    number: int
    norm: int
    above: tuple[int, ...]
    line: int


def clippings(recording: Recording, index: int) -> Iterator[Clipped]:
    """All clippings on the way from a parameter's gradients to its update, the last first. Raises UnknownError."""
    nodes = recording.nodes

    def walk(number: int, above: tuple[int, ...]) -> Iterator[Clipped]:
        node = nodes[number]
        if node.kind == "clipped":
            gradient, norm = node.of
            while nodes[norm].kind == "clip":
                norm = nodes[norm].of[0]
            yield Clipped(rank=recording.rank, of=gradient, number=node.of[1], norm=norm, above=above, line=node.line)
            yield from walk(gradient, (*above, number))
        elif node.kind in ("scale", "add", "elementwise", "partial") or node.kind in COLLECTIVES:
            for below in node.of:
                yield from walk(below, (*above, number))
        elif node.kind != "pass":
            raise UnknownError

    terms = recording.updates.get(index, ())
    if len(terms) != 1:
        raise UnknownError
    yield from walk(terms[0], ())


def value(clipped: Clipped, recordings: Recordings) -> float:
    """By what a gradient was multiplied. Raises UnknownError."""
    kept = recordings[clipped.rank].kept
    if kept is None or clipped.number not in kept.numbers:
        raise UnknownError
    return kept.numbers[clipped.number]


def squares(recordings: Recordings, rank: int, number: int) -> list[Squares]:
    """What a sum of squares, or its root, is of, on all ranks that add to it. Raises UnknownError."""
    nodes = recordings[rank].nodes
    node = nodes[number]
    if node.kind == "norm":
        return squares(recordings, rank, node.of[0])
    if node.kind == "sum_squares" and node.count:
        return [Squares(rank=rank, term=node.of[0], count=node.count)]
    if node.kind == "sum_squares":
        return [one for n in node.of for one in squares(recordings, rank, n)]
    if node.kind == "all_reduce" and node.op == "sum" and nodes.is_squared(number):
        return [one for other, n in given(recordings, node) for one in squares(recordings, other, n)]
    raise UnknownError


def given(recordings: Recordings, node: Node) -> Iterator[tuple[int, int]]:
    """What each rank gives an all-reduce of norms or of their squares: the n-th of one rank meets the n-th of all. Raises UnknownError."""
    for rank in (r for key in node.axes for r in ranks_of(key)):
        table = recordings[rank].nodes.table if rank in recordings else ()
        met = [k for k in table if (k.kind, k.axes, k.op, k.turn) == (node.kind, node.axes, node.op, node.turn) and k.turn >= 0]
        if len(met) != 1:
            raise UnknownError
        yield rank, met[0].of[0]


def exchanges(recording: Recording, number: int) -> Iterator[Node]:
    """The collectives that a gradient went through, the last first; with none of the norms that clip it."""
    node = recording.nodes[number]
    if node.kind in COLLECTIVES:
        yield node
    for below in node.of[:1] if node.kind in ("clipped", "elementwise") else node.of:
        yield from exchanges(recording, below)
