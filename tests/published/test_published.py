"""Every published figure is reproduced, or is listed with the reason why it is not; and is what a check shows what it says?"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest
from published import Check, Row, class_of, rows
from published_checks import CHECKS, DIFFERENCES, LISTED, checks, counted, generated, noticed, said, shown, speaks_of
from published_rows import changed

import placeproof

ROWS = rows()
REPRODUCED = [row for row in ROWS if checks(row)]


@pytest.mark.every_case
@pytest.mark.parametrize("row", REPRODUCED, ids=lambda row: row["id"])
def test_row(row: Row) -> None:
    assert checks(row)[0](row), f"{row['id']}: {row.get('formula')} = {row.get('value')} is not reproduced"


def test_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Both sets together are all rows, and no row is in both. A row that is not reproduced fails in test_row."""
    names, listed = [row["id"] for row in REPRODUCED], [row["id"] for row in ROWS if said(row, LISTED)]
    with capsys.disabled():
        print(f"\npublished rows: {counted()}")
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
    """``python tests/published/published_checks.py`` writes it."""
    assert shown() == generated()


# What a check shows.

_PACKAGE = Path(placeproof.__file__).parent
#: Functions that derive: of a block on a mesh, of a model's blocks, of a schedule, of the rounds of a collective.
_DERIVING = {
    ("semantics/blocks/lower.py", "lower_block"),
    ("cost/blocks/layer.py", "layer"),
    ("models/model.py", "per_segment"),
    ("models/model.py", "parameters"),
    ("models/model.py", "dims"),
    ("schedules/simulation.py", "_run"),
    ("collectives/algorithms.py", "plan"),
    ("collectives/rounds.py", "seconds"),
}
Watch: TypeAlias = Callable[[FrameType, str, object], Any]
_LOWERING = ("semantics/lower/program.py", "lower")


#: Whose caches hold nothing but files as they are read: programs of blocks, families.
_READ = ("placeproof.models.programs", "placeproof.models.family")


@functools.cache
def _caches() -> list[Any]:
    """All caches of the product and of the checks, but for those of files."""
    gc.unfreeze()  # what is frozen is not listed
    found = [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]
    gc.freeze()
    named = [one for one in found if (one.__module__ or "").startswith(("placeproof", "published", "test_published"))]
    return [one for one in named if one.__module__ not in _READ and one is not _caches]


class _DerivesError(BaseException):
    """Raised from within a check where it begins to derive: what it comes to is another test's."""


def derives(check: Check, row: Row) -> str:
    """What a check enters first that derives, with no result of an earlier one: a function, or a strategy that puts a state in parts. Empty
    if it comes to its end without.

    What follows from copies alone is a sum of widths.
    """
    for cached in _caches():
        cached.cache_clear()

    def entered(frame: FrameType, event: str, value: object) -> Watch | None:
        name = (frame.f_code.co_filename.removeprefix(f"{_PACKAGE}/"), frame.f_code.co_name)
        if name in _DERIVING:
            raise _DerivesError(":".join(name))
        return left if name == _LOWERING else None

    def left(frame: FrameType, event: str, value: object) -> Watch:
        if event == "return" and value is not None and in_parts(value):
            raise _DerivesError(":".join(_LOWERING))
        return left

    names = {name for _, name in (*_DERIVING, _LOWERING)}
    sys.settrace(lambda frame, event, value: entered(frame, event, value) if frame.f_code.co_name in names else None)
    try:
        assert check(row)
    except _DerivesError as derived:
        return str(derived)
    finally:
        sys.settrace(None)
    return ""


def in_parts(program: Any) -> bool:
    """Whether a program puts a state in parts."""
    return any(mode.split for placed in program.placed for _, mode in placed.modes)


def by_class() -> dict[tuple[str, str], tuple[Check, str, list[Row]]]:
    """The rows of each check and class."""
    found: dict[tuple[str, str], tuple[Check, str, list[Row]]] = {}
    for row in REPRODUCED:
        check = checks(row)[0]
        name = class_of(check, row)
        found.setdefault((f"{check.__module__}.{check.__name__}", name), (check, name, []))[2].append(row)
    return found


BY_CLASS = by_class()


@pytest.mark.every_case
@pytest.mark.parametrize("key", BY_CLASS, ids="-".join)
def test_a_check_shows_what_it_says(key: tuple[str, str]) -> None:
    """One that derives enters what derives; one that is trivial does not. In between lies what is partly derived."""
    check, name, of = BY_CLASS[key]
    found = next((what for row in of[:: max(1, len(of) // 2)] if (what := derives(check, row))), "")
    assert found or name != "derived"
    assert not found or name != "trivial", found
