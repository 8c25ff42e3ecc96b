"""Every published figure is reproduced from something derived, or is listed with the reason why it is not."""

from __future__ import annotations

import pytest
from published import Row, rows
from published_checks import CHECKS, DIFFERENCES, LISTED, checks, generated, noticed, said, shown, speaks_of
from published_rows import changed

ROWS = rows()
REPRODUCED = [row for row in ROWS if checks(row)]


@pytest.mark.parametrize("row", REPRODUCED, ids=lambda row: row["id"])
def test_row(row: Row) -> None:
    assert checks(row)[0](row), f"{row['id']}: {row.get('formula')} = {row.get('value')} is not reproduced"


def test_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Both sets together are all rows, and no row is in both. A row that is not reproduced fails in test_row."""
    names, listed = [row["id"] for row in REPRODUCED], [row["id"] for row in ROWS if said(row, LISTED)]
    with capsys.disabled():
        print(f"\npublished rows: {len(names)} reproduced, {len(listed)} listed, {len(ROWS)} in all")
    assert sorted(names + listed) == sorted({row["id"] for row in ROWS})
    assert 10 * len(names) >= 9 * len(ROWS)
    assert all(len(checks(row)) == 1 for row in REPRODUCED)
    assert all(len(said(row, LISTED)) == 1 for row in ROWS if row["id"] in listed)


def test_nothing_is_said_of_rows_that_there_are_not() -> None:
    keys = [*(key for key, _ in CHECKS), *LISTED, *DIFFERENCES]
    assert not [key for key in keys if not any(speaks_of(key, row["id"]) for row in ROWS)]
    assert not [row["id"] for row in ROWS if said(row, DIFFERENCES) and said(row, LISTED)]


def test_a_wrong_figure_is_noticed() -> None:
    """Twice the value or 5 % more, another formula, or another configuration."""
    for row in REPRODUCED:
        for other in changed(row):
            assert other != row, row["id"]
            assert noticed(other), (row["id"], other)


def test_the_page_shows_the_rows_as_they_are() -> None:
    """``python tests/published_checks.py`` writes it."""
    assert shown() == generated()
