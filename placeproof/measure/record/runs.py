"""Whole numbers in a row, kept by runs of equal ones: as many as a row has different parts, however long it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """``values[i]`` stands from ``starts[i]`` to the next start, the last one to ``length``. Neighbours differ; an empty row has none."""

    starts: Array
    values: Array
    length: int

    @classmethod
    def same(cls, value: int, length: int) -> Runs:
        """One number all along."""
        return cls(_numbers([0] if length else []), _numbers([value] if length else []), length)

    @classmethod
    def listed(cls, numbers: Any) -> Runs:
        """A row that is given number by number."""
        each = _numbers(numbers)
        return _joined(np.arange(len(each)), each, len(each))

    @property
    def only(self) -> int | None:
        """The number that stands all along; None where several do, or none."""
        return int(self.values[0]) if len(self.values) == 1 else None

    def each(self) -> Array:
        """The row number by number."""
        return np.repeat(self.values, np.diff(self.starts, append=self.length))

    def distinct(self) -> tuple[int, ...]:
        """The numbers that occur, in their order."""
        return tuple(sorted(set(self.values.tolist())))

    def lengths(self) -> list[tuple[int, int]]:
        """The number of each run, and how often it stands there."""
        return list(zip(self.values.tolist(), np.diff(self.starts, append=self.length).tolist(), strict=True))

    def part(self, begin: int, length: int) -> Runs:
        """What stands from a place on."""
        return self.taken(_numbers([begin]), length)

    def taken(self, begins: Array, length: int) -> Runs:
        """Parts of one length, put together in the order of ``begins``."""
        return self._pieces(begins, np.full(len(begins), length)) if length else Runs.same(0, 0)

    def put(self, begins: Array, length: int, other: Runs) -> Runs:
        """The row with another one in place of parts of one length. Raises ValueError where these overlap."""
        order = np.argsort(begins, kind="stable")
        edges, count = begins[order], len(begins)
        starts, lengths = _numbers(np.zeros(2 * count + 1)), _numbers(np.zeros(2 * count + 1))
        starts[0::2] = np.concatenate((_numbers([0]), edges + length))
        lengths[0::2] = np.append(edges, self.length) - starts[0::2]
        if (lengths[0::2] < 0).any():
            raise ValueError("parts overlap that are to be written one by one")
        starts[1::2], lengths[1::2] = self.length + order * length, length
        return chained((self, other))._pieces(starts, lengths)

    def widened(self, width: int) -> Runs:
        """Each number so many times."""
        return Runs(self.starts * width, self.values, self.length * width) if width > 1 else self

    def narrowed(self, width: int, mixed: int) -> Runs:
        """One number for so many, or ``mixed`` where these differ."""
        if width == 1:
            return self
        if not (self.starts % width).any():
            return Runs(self.starts // width, self.values, self.length // width)
        rows = self.each().reshape(-1, width)
        return Runs.listed(np.where((rows == rows[:, :1]).all(axis=1), rows[:, 0], mixed))

    def _pieces(self, begins: Array, lengths: Array) -> Runs:
        begins, lengths = begins[lengths > 0], lengths[lengths > 0]
        first = np.searchsorted(self.starts, begins, side="right") - 1
        counts = np.searchsorted(self.starts, begins + lengths, side="left") - first
        ends = np.cumsum(counts)
        which = np.arange(int(counts.sum())) - np.repeat(ends - counts - first, counts)
        starts = np.maximum(self.starts[which], np.repeat(begins, counts)) + np.repeat(np.cumsum(lengths) - lengths - begins, counts)
        return _joined(starts, self.values[which], int(lengths.sum()))


def chained(rows: Sequence[Runs]) -> Runs:
    """Rows one after another."""
    ends = np.cumsum([r.length for r in rows])
    starts = np.concatenate([r.starts + (end - r.length) for r, end in zip(rows, ends, strict=True)])
    return _joined(starts, np.concatenate([r.values for r in rows]), int(ends[-1]))


def combined(*rows: Runs) -> tuple[list[tuple[int, ...]], Array, Array]:
    """The combinations of numbers that stand at one place of rows of one length; which of these each common run has, and its start."""
    starts = _numbers(sorted({start for r in rows for start in r.starts.tolist()}))
    columns = [r.values[np.searchsorted(r.starts, starts, side="right") - 1].tolist() for r in rows]
    distinct = sorted(set(zip(*columns, strict=True)))
    places = {row: i for i, row in enumerate(distinct)}
    return distinct, _numbers([places[row] for row in zip(*columns, strict=True)]), starts


def mapped(function: Callable[..., int], *rows: Runs) -> Runs:
    """Apply a function place by place to rows of one length; it is called once for each combination that occurs."""
    if not rows[0].length:
        return rows[0]
    found, where, starts = combined(*rows)
    return _joined(starts, _numbers([function(*row) for row in found])[where], rows[0].length)


def _joined(starts: Array, values: Array, length: int) -> Runs:
    """A row of runs of which neighbours may be equal."""
    new = np.concatenate(([True], values[1:] != values[:-1]))[: len(values)]
    return Runs(starts[new], values[new], length)


def _numbers(values: Any) -> Array:
    numbers: Array = np.asarray(values, dtype=np.int64)
    return numbers
