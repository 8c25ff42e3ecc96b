"""Rows of numbers that are kept by runs of equal ones, against lists of all their numbers."""

import random

import numpy as np
import pytest

from placeproof.measure.record.runs import Runs, chained, combined, mapped


def drawn(rng: random.Random, length: int, kinds: int = 4) -> list[int]:
    """A row in which neighbours are often equal."""
    row: list[int] = []
    while len(row) < length:
        row += [rng.randrange(kinds)] * rng.randrange(1, 6)
    return row[:length]


def same(runs: Runs, row: list[int]) -> None:
    """The row, in as few runs as it has."""
    assert runs.each().tolist() == row
    assert runs.length == len(row)
    assert len(runs.values) == sum(1 for i, n in enumerate(row) if i == 0 or row[i - 1] != n)


@pytest.mark.parametrize("seed", range(8))
def test_parts_and_rows_put_in(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        count, length, gap = rng.randrange(1, 6), rng.randrange(1, 7), rng.randrange(1, 5)
        begins = [rng.randrange(gap) + i * (length + gap) for i in range(count)]
        rng.shuffle(begins)
        row = drawn(rng, max(begins) + length + rng.randrange(3))
        runs = Runs.listed(row)
        same(runs, row)
        same(runs.taken(np.array(begins), length), [n for b in begins for n in row[b : b + length]])
        other = drawn(rng, count * length, 9)
        after = list(row)
        for i, b in enumerate(begins):
            after[b : b + length] = other[i * length : (i + 1) * length]
        same(runs.put(np.array(begins), length, Runs.listed(other)), after)
        same(runs, row)


@pytest.mark.parametrize("seed", range(4))
def test_rows_one_after_another_and_place_by_place(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        length = rng.randrange(1, 20)
        rows = [drawn(rng, length) for _ in range(rng.randrange(1, 4))]
        runs = [Runs.listed(r) for r in rows]
        same(chained(runs), [n for r in rows for n in r])
        asked: list[tuple[int, ...]] = []

        def rule(*numbers: int, asked: list[tuple[int, ...]] = asked) -> int:
            asked.append(numbers)
            return sum(numbers) // 2

        same(mapped(rule, *runs), [sum(numbers) // 2 for numbers in zip(*rows, strict=True)])
        assert sorted(asked) == sorted({*zip(*rows, strict=True)})
        assert combined(*runs)[0] == sorted({*zip(*rows, strict=True)})
        assert runs[0].distinct() == tuple(sorted({*rows[0]}))
        assert runs[0].only == (rows[0][0] if len({*rows[0]}) == 1 else None)
        width = rng.randrange(1, 5)
        same(runs[0].widened(width), [n for n in rows[0] for _ in range(width)])
        same(runs[0].widened(width).narrowed(width, -1), rows[0])
        cut = runs[0].part(0, length // width * width)
        groups = [rows[0][i : i + width] for i in range(0, cut.length, width)]
        same(cut.narrowed(width, -1), [g[0] if len({*g}) == 1 else -1 for g in groups])


def test_rows_of_nothing_and_parts_that_overlap() -> None:
    empty = Runs.same(3, 0)
    same(empty, [])
    same(chained([empty, Runs.same(1, 2), empty]), [1, 1])
    same(mapped(lambda n: n, empty), [])
    same(Runs.same(1, 4).part(2, 0), [])
    with pytest.raises(ValueError, match="overlap"):
        Runs.same(1, 4).put(np.array([0, 1]), 2, Runs.same(2, 4))
