"""What the validators of real systems said is replayed against the formulas of rules, and against our importers.

``nightly/README.md`` says how it was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import NIGHTLY, sample
from validator_grids import GRIDS
from validator_record import ACCEPTED, Grid, compared, packed, record, unpacked

from placeproof.core.diagnostics import InputError
from placeproof.importers import read_config

RECORD = json.loads((Path(__file__).parents[1] / "data" / "validator_grid.json").read_text(encoding="utf-8"))


def test_the_record_belongs_to_the_grids() -> None:
    assert RECORD["schema"] == "placeproof.validators/1"
    assert set(RECORD["grids"]) == set(GRIDS)
    total = sum(g["configurations"] for g in RECORD["grids"].values())
    print(f"{total} configurations in {len(GRIDS)} grids, of {len({g.package for g in GRIDS.values()})} packages")
    assert total >= 5_000


@pytest.mark.parametrize("name", GRIDS)
def test_a_record_is_that_of_its_grid(name: str) -> None:
    made = RECORD["grids"][name]
    verdicts = unpacked(made["verdicts"])
    assert {key: made[key] for key in made if key != "version"} == record(GRIDS[name], verdicts)
    assert len(verdicts) == sum(1 for _ in GRIDS[name].configs())
    assert {ACCEPTED} < set(verdicts), "a grid on which nothing is refused, or nothing accepted, shows nothing"


@pytest.mark.parametrize("name", GRIDS)
def test_each_reason_of_a_grid_occurs(name: str) -> None:
    said = {GRIDS[name].rule_of(v) for v in set(unpacked(RECORD["grids"][name]["verdicts"])) - {ACCEPTED}}
    assert set(GRIDS[name].rules) <= said


@pytest.mark.parametrize("name", GRIDS)
def test_every_disagreement_with_a_validator_is_explained(name: str) -> None:
    differ = compared(GRIDS[name], unpacked(RECORD["grids"][name]["verdicts"]))
    for one in differ:
        assert any(e.where(one.config) for e in GRIDS[name].explained), (dict(one.config), one.said, one.broken)
    for explained in GRIDS[name].explained:
        assert any(explained.where(one.config) for one in differ), explained.why


def importer_accepts(grid: Grid) -> Callable[[Mapping[str, object]], bool | None]:
    """Whether our importer takes a configuration; None for one that no file says."""
    assert grid.text is not None
    text = grid.text

    @cache
    def accepts(body: str, world: int | None) -> bool:
        try:
            read_config(body, system=grid.reads, world=world)
        except InputError:
            return False
        return True

    def one(config: Mapping[str, object]) -> bool | None:
        written = text(config)
        return None if written is None else accepts(*written)

    return one


def tried(grid: Grid, every: list[tuple[Mapping[str, object], str]]) -> list[int]:
    """Numbers of configurations: at night all; by day three hundred at equal distances, and one of each verdict and reason."""

    def kinds(n: int) -> set[object]:
        config, verdict = every[n]
        return {verdict, (verdict == ACCEPTED, next((e.why for e in grid.imported if e.where(config)), ""))}

    return sorted({*sample(range(len(every)), kinds), *range(0, len(every), max(1, len(every) // 300))})


@pytest.mark.parametrize("name", [g.name for g in GRIDS.values() if g.text is not None])
def test_importers_take_what_validators_take(name: str) -> None:
    grid, used, compared_with = GRIDS[name], set(), 0
    accepts = importer_accepts(grid)
    every = list(zip(grid.configs(), unpacked(RECORD["grids"][name]["verdicts"]), strict=True))
    for config, verdict in [every[n] for n in tried(grid, every)]:
        ours = accepts(config)
        compared_with += ours is not None
        if ours is not None and ours != (verdict == ACCEPTED):
            reasons = [e.why for e in grid.imported if e.where(config)]
            assert reasons, (config, verdict)
            used |= {reasons[0]}
    assert used == {e.why for e in grid.imported} or not NIGHTLY, "a reason that none has"
    assert compared_with >= 100


@given(st.text(alphabet=".abc", max_size=40))
def test_records_are_packed_without_loss(verdicts: str) -> None:
    assert unpacked(packed(verdicts)) == verdicts
