"""`placeproof fit` against every value tried by itself, by the Python interface that times one step."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import NIGHTLY

import placeproof
from placeproof.answers import fit as fitted
from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.planning.limits import PATIENCE, boundary

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "fit.schema.json").read_text(encoding="utf-8"))


@cache
def fits(text: str, model: str, cluster: str = "dgx-h100", **numbers: int) -> bool | str | None:
    """Whether all stages fit, by what the JSON of one step says of each; "refused" where it cannot be."""
    try:
        stages = placeproof.model(text, model, **numbers).time(cluster).data["stages"]
    except InputError:
        return "refused"
    each = [stage["fits"] for stage in stages]
    return False if False in each else None if None in each else True


CASES = [
    ("fsdp(8) * checkpoint", "llama3-8b", {}),
    ("fsdp(8) * checkpoint", "llama3-8b", {"global_batch": 96}),
    ("fsdp(4) * tp(2) * sp * cp(2) * checkpoint", "llama3-8b", {}),
    ("zero1(1) * tp(8) * sp * pp(4)", "llama3-70b", {}),
    ("zero1(2) * tp(4) * pp(4, schedule=interleaved, chunks=2)", "llama3-8b", {}),
    ("zero1(8) * ep(8)", "mixtral-8x7b", {}),
    ("ddp(8)", "llama3-70b", {}),
    ("tp(8)", "llama3-8b", {}),
]


@pytest.mark.parametrize(("text", "model", "more"), CASES if NIGHTLY else CASES[4:5])
def test_each_limit_is_the_last_value_that_fits(text: str, model: str, more: dict[str, int]) -> None:
    found = placeproof.fit(text, model, "dgx-h100", **more)
    assert found.fits is fits(text, model, **more)
    _micro_batches(found.microbatch, text, model, more)
    _sequences(found.sequence, text, model, more)


def _micro_batches(limit, text, model, more):  # type: ignore[no-untyped-def]
    every = range(1, max(limit.possible or 0, limit.best or 0, 1) + 4) if not more else range(1, more["global_batch"] + 1)
    words = {b: fits(text, model, b=b, **more) for b in every}
    assert limit.best == max((b for b, word in words.items() if word is True), default=None)
    assert limit.possible == max((b for b, word in words.items() if word in (True, None)), default=None)
    assert limit.beside == min((b for b, word in words.items() if word != "refused" and b > (limit.best or 0)), default=None)


def _sequences(limit, text, model, more):  # type: ignore[no-untyped-def]
    def said(length: int) -> bool | str | None:
        return fits(text, model, s=length, **more)

    assert all(said(length) == "refused" for length in range(1, limit.multiple))
    assert said(limit.multiple) != "refused"
    if limit.best is None:
        assert said(limit.multiple) is not True
        return
    assert said(limit.best) is True
    assert said(limit.best + limit.multiple) in (None, False)
    assert limit.beside == limit.best + limit.multiple
    assert said(limit.possible) in (True, None)
    assert said(limit.possible + limit.multiple) is False
    stride = limit.multiple * max(1, limit.possible // limit.multiple // 3)
    assert [said(n) is True for n in range(stride, limit.possible + stride, stride)] == [
        n <= limit.best for n in range(stride, limit.possible + stride, stride)
    ]


@pytest.mark.parametrize(
    ("text", "model", "more"),
    [  # by day the first
        ("fsdp({}) * checkpoint", "llama3-8b", {}),
        ("zero1({}) * tp(8) * sp * pp(4)", "llama3-70b", {}),
        ("fsdp({}) * tp(8) * sp * checkpoint", "llama3-70b", {"global_batch": 48}),
        ("hsdp({}, 8) * checkpoint", "llama3-8b", {}),
        ("zero1({}) * ep(dp) * tp(2)", "mixtral-8x7b", {}),
    ][: None if NIGHTLY else 1],
)
def test_the_fewest_devices_are_those_below_which_nothing_fits(text: str, model: str, more: dict[str, int]) -> None:
    limit = placeproof.fit(text.format(1), model, "dgx-h100", **more).devices
    last = limit.best or limit.possible or 16
    words = {n: fits(text.format(n), model, **more) for n in range(1, last + 1)}
    assert limit.best == min((n for n, word in words.items() if word is True), default=None)
    assert limit.possible == min((n for n, word in words.items() if word in (True, None)), default=None)


def test_one_device_may_fit_where_two_do_not() -> None:
    """Two devices have a communicator, of which one has none."""
    model, s = "gpt3-1.3b", placeproof.fit("ddp(1)", "gpt3-1.3b", "dgx-h100").sequence.best
    assert s is not None
    assert [fits(f"ddp({n})", model, s=s) for n in (1, 2)] == [True, None]
    assert placeproof.fit("ddp(2)", model, "dgx-h100", s=s).devices.best == 1


@pytest.mark.skipif(not NIGHTLY, reason="takes long")
def test_open_degrees_are_the_fewest_that_fit() -> None:
    found = placeproof.fit("fsdp * checkpoint", "llama3-8b", "dgx-h100")
    assert found.fits
    assert found.member.step is not None
    assert found.member.step.devices == found.devices.best
    assert [fits(f"fsdp({n}) * checkpoint", "llama3-8b") for n in (found.devices.beside, found.devices.best)] == [None, True]


def test_changes_are_those_that_were_said() -> None:
    """What is saved is the difference of two derivations of their own; those that fit come first."""
    found = placeproof.fit("zero1(8) * tp(8)", "llama3-70b", "dgx-h100", b=4)
    texts = {c.text: c for c in found.changes}
    whole = {  # by day two
        "`zero3(8) * tp(8)`": ("zero3(8) * tp(8)", {"b": 4}),
        "`zero1(8) * tp(8) * sp`": ("zero1(8) * tp(8) * sp", {"b": 4}),
        "--recompute full": ("zero1(8) * tp(8)", {"b": 4, "recompute": "full"}),
        "--set b=2": ("zero1(8) * tp(8)", {"b": 2}),
        "twice the devices, N_dp = 16": ("zero1(16) * tp(8)", {"b": 4}),
    }
    before = placeproof.model("zero1(8) * tp(8)", "llama3-70b", b=4).time("dgx-h100").data["stages"][0]["peak"]
    for said, (text, options) in [*whole.items()][:: 1 if NIGHTLY else 3]:
        step = placeproof.model(text, "llama3-70b", **options).time("dgx-h100")
        assert float(texts[said].saves) == before - step.data["stages"][0]["peak"] > 0
        assert texts[said].fits is fits(text, "llama3-70b", **options)
    enough = [c for c in found.changes if c.fits]
    assert [*found.changes][: len(enough)] == enough


def test_pairs_of_changes_are_tried_where_no_single_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all pairs of what it tries, those and no others are told that fit, by derivations of their own."""
    monkeypatch.setattr(fitted, "PATIENT", 100.0)
    found = placeproof.fit("ddp(8)", "llama3-8b", "dgx-h100", b=4)
    singles = [c for c in found.changes if " and " not in c.text]
    assert {c.text for c in singles} >= {"`zero3(8)`", "--recompute full", "--set b=2"}
    assert not any(c.fits for c in singles)
    runs = (("", {}), ("--recompute full", {"recompute": "full"}))
    sizes = (("", {"b": 4}), ("--set b=2", {"b": 2}))
    fitting = set()
    for strategy in ("ddp(8)", "zero2(8)", "zero3(8)"):
        for (run_text, run_as), (size_text, size) in product(runs, sizes):
            texts = [text for text in (run_text, "" if strategy == "ddp(8)" else f"`{strategy}`", size_text) if text]
            if len(texts) == 2 and fits(strategy, "llama3-8b", **run_as, **size):
                fitting.add(" and ".join(texts))
    told = {c.text for c in found.changes if c.fits}
    assert {text for text in told if "zero1" not in text} == fitting
    assert fitting
    assert [c.fits for c in found.changes[: len(told)]] == [True] * len(told)
    assert (found.pairs, found.untried) == (9, 0)
    assert "no single change does that" in str(found)


def test_pairs_that_there_is_no_time_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted, "PATIENT", 0.0)
    found = placeproof.fit("ddp(8)", "llama3-8b", "dgx-h100", b=4)
    assert (found.pairs, found.untried) == (0, 9)
    assert not any(" and " in c.text for c in found.changes)
    assert "pairs of changes that were tried: 0, 9 more were not, for lack of time" in str(found)


def test_no_pair_is_tried_where_a_single_change_is_enough() -> None:
    found = placeproof.fit("fsdp(8)", "llama3-8b", "dgx-h100", b=2)
    assert (found.fits, found.changes[0].fits) == (False, True)
    assert (found.pairs, found.untried) == (0, 0)
    assert not any(" and " in c.text for c in found.changes)
    assert "pairs" not in str(found)


def test_a_step_with_so_many_sequences_may_be_made_of_smaller_micro_batches() -> None:
    """That comes before more devices."""
    found = placeproof.fit("fsdp(64)", "llama3-70b", "dgx-h100", global_batch=256, recompute="full")
    change, more = found.changes
    assert (change.text, change.fits) == ("`fsdp(64) * accumulate`", True)
    assert (more.text, more.fits) == ("twice the devices, N_dp = 128", True)
    smaller = placeproof.fit("fsdp(64) * accumulate", "llama3-70b", "dgx-h100", global_batch=256, recompute="full")
    assert change.saves == found.member.value("peak") - smaller.member.value("peak") > 0
    assert all("accumulate" not in c.text for c in smaller.changes)


@given(st.lists(st.integers(0, 3 * PATIENCE), unique=True, max_size=40), st.integers(-1, 3 * PATIENCE))
def test_a_boundary_is_found_whatever_can_be(can_be: list[int], last: int) -> None:
    values = range(PATIENCE)
    allowed = {v for v in can_be if v in values}
    found = boundary(lambda v: v <= last if v in allowed else None, values)
    below, above = [v for v in allowed if v <= last], [v for v in allowed if v > last]
    assert (found.last, found.next) == (max(below, default=None), min(above, default=None))


def test_gaps_that_were_not_looked_into_are_refused() -> None:
    def holds(value: int) -> bool | None:
        return value <= 4 * PATIENCE if not 4 * PATIENCE < value < 8 * PATIENCE else None

    assert boundary(lambda v: v <= 2 if v in {0, 1, 2, 3, 10 * PATIENCE} else None, range(12 * PATIENCE)).last == 2
    with pytest.raises(InputError, match="too few values"):
        boundary(holds, range(40 * PATIENCE))


def test_exit_codes_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--json"]
    cases = (("fsdp(4)", 3, None), ("fsdp(16)", 0, True), ("ddp(8)", 1, False))
    for text, code, said in cases if NIGHTLY else cases[:1]:
        assert run(["fit", text, *asked]) == code
        data = json.loads(capsys.readouterr().out)
        assert data["fits"] is said
        jsonschema.validate(data, SCHEMA)
        assert data["peak"] == placeproof.model(text, "llama3-8b").time("dgx-h100").data["stages"][0]["peak"]
    path = tmp_path / "ds_config.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}')
    assert run(["fit", str(path), "--world", "8", *asked]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert data["imported"]["system"] == "deepspeed"
    assert run(["fit", "fsdp(8)"]) == 2
    error = capsys.readouterr().err
    assert "--model" in error
    assert "--cluster" in error
