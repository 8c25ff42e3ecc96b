"""Plans that were run beside the best ones of the grid: what is compared, with how much room, and what makes the difference."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from placeproof.answers.accuracy import some_of
from placeproof.answers.ran import PlansBeside, plans_beside
from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.models import load
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.ran import NEAR, lacking
from placeproof.runs import MeasuredRun, named
from placeproof.strategies import parse_strategy

#: One strategy of the grid, whatever is computed again.
ONE = Pins(only=("tp=1", "cp=1", "pp=1", "data=zero3"), most=("b=4",))


def beside(*runs: tuple[str, int, int], pins: Pins = ONE) -> PlansBeside:
    """Runs of Llama 3 8B on eight H100, each a strategy with b and m."""
    like = next(one for one in named("nvidia").runs if one.run_as.model == "llama3-8b" and one.run_as.cluster == "dgx-h100")
    return plans_beside(replace(named("nvidia"), runs=tuple(_run(like, *one) for one in runs)), pins)


def _run(like: MeasuredRun, strategy: str, b: int, m: int) -> MeasuredRun:
    run_as = replace(like.run_as, recompute="")
    return replace(like, strategy=strategy, settings=("s=8192", f"b={b}"), run_as=run_as, steps={m: Fraction(9)}, name=f"b = {b}")


def test_a_plan_of_the_grid_is_what_it_is_there_and_none_that_fits_is_faster_than_ours() -> None:
    """It is derived twice: as a measured run, with degrees left open, and as a point of the grid."""
    pins = replace(ONE, only=(*ONE.only, "recompute=none", "b=1"))
    (one,) = beside(("fsdp(8) * accumulate(16)", 1, 16), pins=pins).plans
    assert one.ours is not None
    assert (one.ours.expression, one.ours.b, one.ours.m) == ("zero3(8) * accumulate", 1, 16)
    assert (one.ours.seconds, one.ours.peak, one.ours.room) == (one.theirs.seconds, one.theirs.peak, one.theirs.room)
    assert (one.more, one.lacks, one.cause) == (0, (), "")
    assert not any(one.differences.values())


def test_what_is_derived_for_one_cluster_is_what_is_derived_for_another() -> None:
    """Of devices of one architecture, in one table and each alone."""
    pins = replace(ONE, only=("tp=1,2", "cp=1", "pp=1,2", "data=zero1", "recompute=none", "schedule=1f1b", "b=1", "sp=yes"))
    of = replace(named("nvidia"), runs=tuple(one for one in named("nvidia").runs if one.name in ("25.11 126", "25.11 134")))
    together = plans_beside(of, pins).plans
    assert len({one.task.cluster.name for one in together}) == 2
    for one, run_ in zip(together, of.runs, strict=True):
        (alone,) = plans_beside(replace(of, runs=(run_,)), pins).plans
        assert alone.ours is not None
        assert one.ours is not None
        assert (one.ours.expression, one.ours.seconds, one.ours.peak) == (alone.ours.expression, alone.ours.seconds, alone.ours.peak)
        assert one.differences == alone.differences
    assert together[0].more != together[1].more


def test_the_difference_is_told_by_the_term_that_makes_it() -> None:
    """A grid in which all is computed again is slower by what is computed, and has not what was run."""
    pins = replace(ONE, only=(*ONE.only, "recompute=full", "b=1"))
    found = beside(("zero3(8) * accumulate(16)", 1, 16), pins=pins)
    (one,) = found.plans
    assert one.ours is not None
    assert one.more is not None
    assert one.more > NEAR
    assert one.cause == "computing"
    assert sum(one.differences.values()) == one.more
    assert one.lacks == ("recompute none",)
    text, data = str(found), found.document.data()
    assert "1 rows, 1 plans; ours takes no longer in 0 rows" in text
    assert "ours takes longer in 1 rows" in text
    assert data["plans"][0]["more"] == one.more
    assert data["plans"][0]["ours"]["seconds"] == one.ours.seconds


def test_ours_has_as_much_room_as_what_was_run() -> None:
    """Of what fits easily and what is usual otherwise: both in one question, which the one with more decides."""
    pins = replace(ONE, only=(*ONE.only, "recompute=none"))
    small, large = ("zero3(8) * accumulate(16)", 1, 16), ("zero3(8) * accumulate(8)", 2, 8)
    (usual,) = beside(small, pins=pins).plans
    assert usual.ours is not None
    assert usual.ours.room < usual.task.cluster.device.capacity
    assert usual.ours.b == 1
    of_small, of_large = beside(small, large, pins=pins).plans
    assert of_large.theirs.peak > of_large.theirs.room
    assert of_large.ours is of_small.ours
    assert of_small.ours is not None
    assert of_small.ours.room == of_large.theirs.peak
    assert of_small.ours.seconds <= min(of_small.theirs.seconds, of_large.theirs.seconds)
    assert of_small.beyond == 0


def test_what_is_said_not_to_fit_gives_no_room() -> None:
    """A plan with four times the micro-batch: its tensors alone are more than a device has."""
    pins = replace(ONE, only=(*ONE.only, "recompute=none"))
    found = beside(("zero3(8) * accumulate(16)", 1, 16), ("zero3(8) * accumulate(4)", 4, 4), pins=pins)
    small, huge = found.plans
    assert huge.beyond == huge.theirs.peak - huge.task.cluster.device.capacity > 0
    assert small.ours is not None
    assert small.ours.room == small.theirs.room
    assert "tensors of theirs are derived to be more than a device has in 1 rows" in str(found)
    assert "1 does not fit" in str(found)


@pytest.mark.parametrize(
    ("strategy", "recompute", "stages", "lacks"),
    [
        ("zero1(2) * zero1(dp=cp) * tp(2) * sp * cp(2) * pp(2, schedule=interleaved, chunks=4, microbatches=8)", "none", (4,) * 8, ()),
        ("fsdp(16) * accumulate(4)", "full", (), ()),
        ("zero1(8) * pp(2)", "none", (15, 17), ("stages with different numbers of layers",)),
        ("zero1(8) * pp(2)", "norms", (), ("recompute norms",)),
        ("zero1(8) * pp(2, schedule=interleaved, chunks=16)", "none", (), ("schedule interleaved:16",)),
        ("hsdp(8, shard=2) * tp(2)", "none", (), ("its placements",)),
        ("zero1(8) * tp(2) * sp * cp(1)", "none", (), ("its placements",)),
    ],
)
def test_what_the_grid_has_not(strategy: str, recompute: str, stages: tuple[int, ...], lacks: tuple[str, ...]) -> None:
    space = space_of(load("llama3-8b"), [16], 64, Pins())
    assert lacking(space, parse_strategy(strategy), recompute, stages) == lacks


def test_rows_that_are_not_compared_are_counted() -> None:
    of = some_of("nvidia", ["kimi-k2"])
    found = plans_beside(of)
    assert found.plans == ()
    assert sum(found.left.values()) == len(of.runs) == 2
    assert "not compared: 2 rows: the grid has no update of whole matrices: kimi-k2" in str(found)


def test_some_rows_alone() -> None:
    of = named("nvidia")
    both = some_of(of, ["llama3-8b", "dgx-h100"])
    assert [one.run_as.model for one in both.runs] == ["llama3-8b"]
    assert some_of(of, []) == of
    assert [one.name for one in some_of(of, ["26.06 17"]).runs] == ["26.06 17"]
    assert len(some_of("a100-small", ["vtrain-a100"]).runs) == len(named("a100-small").runs)
    with pytest.raises(InputError) as error:
        some_of(of, ["gpt-oss-120"])
    assert error.value.diagnostics[0].help == "did you mean `gpt-oss-120b`?"
    with pytest.raises(InputError, match="no row of `nvidia` is of `kimi-k2` and `dgx-h100`"):
        some_of(of, ["kimi-k2", "dgx-h100"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["b200", "--plans", "--each"], "leave `--each`, `--without` and `--rows` out"),
        (["mist-l4", "--plans"], "no step of `mist-l4` was measured"),
        (["nvidia", "--plans", "--only", "x"], "has no rows of `x`"),
    ],
)
def test_wrong_questions(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "nvidia", "--plans", "--only", "kimi-k2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["plans"]) == ("placeproof.ran/1", [])
