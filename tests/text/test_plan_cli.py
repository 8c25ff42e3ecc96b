"""``placeproof plan``: what is listed, what is counted, and what wrong questions get."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator, ValidationError

import placeproof
from placeproof.answers import plan as answers
from placeproof.answers.plan import Planned
from placeproof.cli.main import run
from placeproof.clusters import find
from placeproof.core.diagnostics import InputError
from placeproof.core.precision import PRECISIONS
from placeproof.models import load
from placeproof.planning import search
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.crew import Running
from placeproof.planning.frontier import frontier
from placeproof.planning.objective import OBJECTIVES
from placeproof.planning.pool import Queue
from placeproof.planning.search import Search
from placeproof.planning.tables import _distinct
from placeproof.report.page import page
from placeproof.report.plan import HEIGHT, WIDTH, plot
from placeproof.report.units import seconds_text
from placeproof.runs import timed_on

SMALL = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "16"]
PINS = ["--only", "recompute=none,full", "--only", "schedule=1f1b", "--forbid", "cp", "--max", "b=4"]


SCHEMA = Draft202012Validator(json.loads(Path(__file__).parents[2].joinpath("docs/reference/plan.schema.json").read_text(encoding="utf-8")))


def answered(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    assert run(["plan", *SMALL, *arguments, "--json"]) == code
    data = json.loads(capsys.readouterr().out)
    SCHEMA.validate(data)
    return data


def test_each_plan_is_what_is_derived_of_it_and_every_point_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    data = answered(["--devices", "8", "--top", "3", *PINS], capsys)
    assert data["schema"] == "placeproof.plan/1"
    assert sum(data["cut"].values()) + data["bounded"] + len(data["plans"]) == data["grid"]["points"]
    assert not any(rule.startswith("refused") for rule in data["cut"])
    seconds = [plan["seconds"] for plan in data["plans"]]
    assert len(seconds) == 3
    assert seconds == sorted(seconds)
    for plan in data["plans"]:
        assert plan["verdict"] == "proved"
        derived = placeproof.model(plan["strategy"], "llama3-8b", recompute=plan["recompute"], b=plan["b"], m=plan["m"])
        step = derived.time("dgx-h100")
        assert float(step.seconds) == plan["seconds"]
        assert max(float(step.price.amount(cost.peak)) for cost in step.d.costs) == plan["peak"]
        assert plan["peak"] <= plan["room"]
        assert sum(plan["time"].values()) == pytest.approx(1)
    for wrong in (data, data["grid"], data["plans"][0], data["plans"][1]["degrees"], data["plans"][2]["time"]):
        for key in (*wrong, "more"):  # the schema asks for each, and allows no other
            before = dict(wrong)
            wrong.pop(key) if key in wrong else wrong.update(more=1)
            with pytest.raises(ValidationError):
                SCHEMA.validate(data)
            wrong.clear()
            wrong.update(before)


@pytest.mark.parametrize(
    ("pins", "sure"),
    [
        ("b=1,2 recompute=none tp=1", [1, 3, 4]),
        ("b=2 recompute=none,full data=zero1,zero2 tp=1", [2, 3]),
        ("b=4 recompute=none data=zero1,zero2 tp=2 sp=yes", []),
        ("b=2 recompute=none data=zero2 tp=1", []),
        ("b=1,2 recompute=none data=zero3 tp=1", [1, 2]),
        ("b=2 recompute=none data=zero3 tp=1", [1]),
    ],
)
def test_the_answer_says_how_many_plans_surely_fit(pins: str, sure: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    """Some of them, none, all, and the only one; as ``--json`` says it of each."""
    asked = ["--devices", "8", "--max", "pp=1", "--max", "cp=1", "--set", "s=4096"]
    asked += [word for pin in pins.split() for word in ("--only", pin)]
    plans = answered(asked, capsys)["plans"]
    assert run(["plan", *SMALL, *asked]) == 0
    title, _, _, _, *lines = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert sure == [number for number, plan in enumerate(plans, 1) if plan["fits"]]
    assert title.endswith(", may not fit") == (plans[0]["fits"] is None)
    these = f"these {len(plans)}"
    if not sure:
        none = f"none of {these} surely fits" if len(plans) > 1 else "this one may not fit"
        assert lines == [f"{none} (`?`); `--surely-fit` lists only what does"]
    elif len(sure) == len(plans):
        assert lines == [f"{these} surely fit" if len(plans) > 1 else "this one surely fits"]
    else:
        assert lines.pop(0) == f"{len(sure)} of {these} surely fit{'s' * (len(sure) == 1)}, {len(plans) - len(sure)} may not (`?`)"
        first = plans[sure[0] - 1]
        named = f"number {sure[0]}, {seconds_text(first['seconds'])}: {first['strategy']}, b = {first['b']}, m = {first['m']}"
        said = f"the first that surely fits is {named}, recompute {first['recompute']}"
        assert lines == ([] if sure[0] == 1 else [said])


def test_a_reserve_that_leaves_nothing_for_tensors_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *SMALL, "--devices", "8", "--reserve", "200GB"]) == 2
    assert "a device of dgx-h100 has 85.52 GB, and 200 GB are reserved" in capsys.readouterr().err
    with pytest.raises(InputError, match="are reserved"):
        placeproof.fit("zero3(8)", model="llama3-8b", cluster="dgx-h100", reserve="86GB")


def test_pins_hold(capsys: pytest.CaptureFixture[str]) -> None:
    pins = [
        "--only",
        "tp=2,4",
        "--only",
        "data=zero1",
        "--only",
        "schedule=interleaved:2",
        "--only",
        "pp=2",
        "--forbid",
        "sp",
        "--only",
        "recompute=full",
    ]
    data = answered(["--devices", "8", "--top", "2", *pins], capsys)
    assert data["grid"]["schedule"] == ["interleaved:2"]
    for plan in data["plans"]:
        assert plan["degrees"]["tp"] in (2, 4)
        assert plan["degrees"]["pp"] == 2
        assert "schedule=interleaved, chunks=2" in plan["strategy"]
        assert " sp " not in plan["strategy"]
        assert plan["recompute"] == "full"


def test_copies_of_shards_fill_a_level_of_links_or_are_pinned(capsys: pytest.CaptureFixture[str]) -> None:
    def copied(pins: Pins, joined: tuple[int, ...] = (8,)) -> set[tuple[int, ...]]:
        space = space_of(load("llama3-8b"), [32], 64, pins, joined)
        return {(m.tp * m.cp * m.ep, m.dp_shard, m.dp_replicate, m.pp) for m in space.meshes if m.dp_replicate > 1}

    assert copied(Pins(only=["tp=1", "cp=1"])) == {(1, 8, 4, 1), (1, 8, 2, 2)}
    assert copied(Pins(only=["tp=1", "pp=1"])) == {(1, 8, 4, 1), (2, 4, 4, 1), (4, 2, 4, 1), (8, 1, 4, 1)}
    assert copied(Pins(only=["tp=1", "cp=1"]), ()) == set()
    assert copied(Pins(forbid=["dp_replicate"])) == set()
    assert copied(Pins(only=["dp_shard=2", "dp=8", "cp=1"])) == {(4, 2, 4, 1), (2, 2, 4, 2), (1, 2, 4, 4)}
    assert copied(Pins(only=["dp_replicate=16", "dp_shard=1"])) == {(2, 1, 16, 1)}

    data = answered(["--devices", "4", "--only", "dp_shard=2", "--only", "dp=4", "--reserve", "1GB", *PINS], capsys)
    assert data["cut"]["dp_replicate of what is not sharded"] == 3 * 2  # sizes of a micro-batch, recomputations
    for plan in data["plans"]:
        assert plan["degrees"]["dp_shard"] * plan["degrees"]["dp_replicate"] == 4
        assert "(2, dp=dp_shard) * ddp(2, dp=dp_replicate)" in plan["strategy"]
        derived = placeproof.model(plan["strategy"], "llama3-8b", recompute=plan["recompute"], b=plan["b"], m=plan["m"])
        assert float(derived.time("dgx-h100").seconds) == plan["seconds"]
        assert plan["verdict"] == "proved"


def test_states_on_a_host_are_tried_where_they_are_pinned(capsys: pytest.CaptureFixture[str]) -> None:
    pins = ["--devices", "2", "--global-batch", "4", "--only", "dp=2", "--only", "recompute=full", "--only", "b=1", "--reserve", "1GB"]
    assert run(["plan", *SMALL, *pins, "--only", "data=zero3,zero_offload"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"proved +zero_offload\(2\) \* accumulate", said)
    assert "copies to it and back, and the update there, take no time" in said
    data = answered([*pins, "--only", "data=zero3"], capsys)
    assert [plan["strategy"] for plan in data["plans"]] == ["zero3(2) * accumulate"]


def test_formats_are_tried_beside_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    pins = [*PINS, "--only", "pp=1", "--only", "tp=2", "--only", "b=1", "--forbid", "sp"]
    data = answered(["--devices", "2", "--top", "4", "--reserve", "1GB", "--only", "fp8=yes,no", *pins], capsys)
    assert data["grid"]["fp8"] == [True, False]
    assert {plan["fp8"] for plan in data["plans"]} == {True, False}
    for plan in data["plans"]:
        derived = placeproof.model(plan["strategy"], "llama3-8b", recompute=plan["recompute"], b=plan["b"], m=plan["m"], fp8=plan["fp8"])
        assert float(derived.time("dgx-h100").seconds) == plan["seconds"]
    alone = answered(["--devices", "2", "--top", "1", "--reserve", "1GB", "--fp8", *pins], capsys)
    assert alone["plans"] == [plan for plan in data["plans"] if plan["fp8"]][:1]
    assert run(["plan", *SMALL, "--devices", "2", "--fp8", "--only", "fp8=no"]) == 2
    assert "say the same thing twice, or two things" in capsys.readouterr().err
    assert run(["plan", *SMALL, "--cluster", "dgx-a100-80", "--devices", "2", "--only", "fp8=yes,no"]) == 2
    assert "says no peak for fp8" in capsys.readouterr().err


def test_where_nothing_fits_the_nearest_point_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    data = answered(["--devices", "2", "--reserve", "60GB", *PINS], capsys, code=1)
    assert data["plans"] == []
    assert data["least"]["peak"] > data["least"]["room"] == 85520809984 - 60e9
    assert data["cut"]["does not fit"] > 0
    derived = placeproof.model(data["least"]["strategy"], "llama3-8b", recompute=data["least"]["recompute"], b=data["least"]["b"], m=1)
    step = derived.time("dgx-h100")
    assert max(float(step.price.amount(cost.peak)) for cost in step.d.costs) <= data["least"]["peak"] * 1.0001


def _divides(devices: int, batch: int) -> bool:
    """Whether the 8 heads of keys, the 32 layers and the sequences can be shared out, by arithmetic alone."""
    shared = [tp * pp for tp in (1, 2, 4, 8) for pp in (1, 2, 4)]
    return any(devices % own == 0 and batch % (devices // own) == 0 for own in shared)


def test_where_nothing_divides_numbers_that_do_are_told() -> None:
    """The nearest that can be shared out, below and above."""
    pins: dict[str, Any] = {"only": ["recompute=none", "schedule=1f1b"], "forbid": ["cp"], "most": ["b=2", "pp=4"]}
    found = placeproof.plan("llama3-8b", "dgx-h100", 12, batch=16, **pins)
    data, said = found.data, str(found).splitlines()
    SCHEMA.validate(json.loads(json.dumps(data)))
    sequences = [batch for batch in range(1, 32) if _divides(12, batch)]
    devices = [number for number in range(1, 25) if _divides(number, 16)]
    assert 16 not in sequences
    below_above = [(max(n for n in each if n < own), min(n for n in each if n > own)) for each, own in ((sequences, 16), (devices, 12))]
    assert [tuple(data["near"][name]) for name in ("sequences", "devices")] == below_above
    most, rule = max((n, rule) for rule, n in data["cut"].items() if rule != "the same as another point")
    assert f"`{rule}` leaves out most: {most:,} of {data['grid']['points']:,}" in said
    (fewer, more), (less, larger) = below_above
    assert f"some point keeps all rules with {fewer} or {more} sequences a step, or on {less} or {larger} devices" in said


def test_of_what_memory_alone_forbids_no_numbers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    data = answered(["--devices", "1", "--only", "b=16", "--only", "recompute=none", "--only", "schedule=1f1b"], capsys, code=1)
    assert data["least"] is not None
    assert data["near"] is None


def test_a_least_that_may_not_be_the_least_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of devices with several runs of layers are below what they need: few of the nearest points do not tell which needs least."""
    only = ["tp=1", "cp=1", "pp=4", "b=1", "data=ddp", "recompute=full", "schedule=interleaved:2,interleaved:4"]
    found = placeproof.plan("llama3-8b", "dgx-h100", 8, batch=16, only=only, count=1)
    unfit = Search(replace(found.task, reserve=Fraction(80 * 10**9)), found.space)
    every = unfit.run(1)
    monkeypatch.setattr(search, "NEAREST", 1)
    one = Search(unfit.task, unfit.space).run(1)
    assert (every.least_of_all, one.least_of_all) == (True, False)
    assert every.least is not None
    assert one.least is not None
    assert one.least.peak >= every.least.peak
    said = "\n".join(line for section in Planned(**{**vars(found), "outcome": one}).document.sections() for line in map(str, section.parts))
    assert "nearest to fitting by their bounds" in said


def test_what_is_not_proved_is_not_listed() -> None:
    found = placeproof.plan("llama3-8b", "dgx-h100", 2, batch=4, only=["recompute=full", "schedule=1f1b", "b=1"], reserve="1GB")
    texts = [plan.point.structure for plan in found.plans]
    refuted = texts[0]
    again = Search(found.task, found.space).run(10, lambda point: "refuted" if point.structure == refuted else "proved")
    assert refuted not in [plan.point.structure for plan in again.plans]
    assert again.cut["refuted, not proved"] >= 1
    assert sum(again.cut.values()) + again.bounded + len(again.plans) == found.space.size


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--devices", "8", "--only", "shedule=1f1b"], "did you mean `schedule`?"),
        (["--devices", "8", "--only", "tp=x"], "`x` is no value of `tp`"),
        (["--devices", "8", "--only", "tp=3"], "no mesh has 8 devices"),
        (["--devices", "8", "--only", "b=3"], "no micro-batch (b = 3) shares out 16 sequences over 1, 2, 4, 8 replicas (dp * ep)"),
        (["--devices", "9", "--only", "dp=9"], "no micro-batch (b = 1, 2, 4, 8, 16) shares out 16 sequences over 9 replicas (dp * ep)"),
        (["--devices", "8", "--only", "schedule=interleaved:1"], "`interleaved:1` is no value of `schedule`"),
        (["--devices", "8", "--only", "tp=8", "--only", "pp=8"], "no mesh has 8 devices"),
        (["--devices", "8", "--only", "tp=8", "--max", "tp=4"], "nothing is left of `tp`"),
        (["--devices", "8", "--max", "data=zero1"], "degrees and b have one"),
        (["--devices", "8", "--only", "schedule=1f1b", "--forbid", "schedule=1f1b"], "it could be 1f1b, interleaved:2, interleaved:3"),
        (["--devices", "8", "--only", "sp=yes", "--forbid", "sp"], "it could be yes, no"),
        (["--devices", "8", "--model", "gpt"], "`V` of gpt is not set"),
        (["--devices", "8", "--precision", "open"], "`b_omega` of llama3-8b is not set"),
        (["--devices", "8", "--top", "101"], "101 plans cannot be listed"),
        (["--devices", "8", "--only", "schedule=zb-1p"], "is no value of `schedule`"),
        (["--devices", "8", "--only", "schedule=1f1b:2"], "is no value of `schedule`"),
        (["--devices", "8", "--set", "b=1"], "`b` is what a plan chooses"),
        (["--devices", "8", "--recompute", "full"], "`--recompute` is what a plan chooses"),
        (["--devices", "8", "--uneven", "--objective", "memory"], "shares out layers for the shortest step"),
        (["--devices", "8", "--tokens", "4M"], "say how much a step trains on, once"),
        (["--devices", "8", "--overlap", "some"], "there is no overlap `some`"),
        (["--devices", "8,x"], "`--devices 8,x` is no number of devices"),
        (["--devices", "8,24", "--only", "tp=8", "--only", "pp=1", "--only", "dp=1", "--forbid", "cp"], "no mesh has 24 devices"),
        (["--devices", "8", "--objective", "tokens"], "there is no objective `tokens`"),
        (["--devices", "8", "--objective", "memory", "--certificate", "no.json"], "a certificate is about the seconds of a step"),
        ([], "a plan needs `--devices`"),
    ],
)
def test_wrong_questions(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *SMALL, *arguments]) == 2
    assert says in capsys.readouterr().err


def test_all_that_a_plan_needs_is_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--top", "1"]) == 2
    assert "a plan needs `--model`, `--cluster`, `--devices` and `--global-batch`\n" in capsys.readouterr().err
    assert run(["plan", "--top", "1", "--tokens", "4M"]) == 2
    assert "a plan needs `--model`, `--cluster` and `--devices`\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "codes"),
    [
        ({"h": 64, "a": 6, "L": 2, "V": 1000, "s": 128}, ["PP205"]),  # h/a is no whole number, and all are set
        ({"h": 64, "a": 4, "L": 2, "V": 1000}, ["PP203"]),  # how many sequences these tokens are is open with s
    ],
)
def test_sizes_are_complained_about_once(sizes: dict[str, int], codes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part for name, n in sizes.items() for part in ("--set", f"{name}={n}")]
    assert run(["plan", "--model", "gpt", "--cluster", "dgx-h100", "--devices", "2", "--tokens", "4096", *arguments]) == 2
    assert re.findall(r"error\[(\w+)\]", capsys.readouterr().err) == codes


def test_what_is_wrong_with_pins_is_told_with_all_else(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--devices", "8", "--global-batch", "99999999", "--only", "tp=x", "--forbid", "foo", "--max", "b"]
    assert run(["plan", "--model", "gpt3-125m", "--cluster", "dgx-h100", *given]) == 2
    assert re.findall(r"error\[(\w+)\]: (.*)", capsys.readouterr().err) == [
        ("PP104", "`--only tp=x`: `x` is no value of `tp`"),
        ("PP104", "`--forbid foo`: there is no choice `foo`"),
        ("PP104", "`--max b` says no value"),
        ("PP202", "99,999,999 sequences are no batch"),
    ]


def test_tokens_stand_for_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--devices",
        "2",
        "--only",
        "recompute=full",
        "--only",
        "data=zero3",
    ]
    assert run([*arguments, "--tokens", "100000"]) == 2
    assert "100,000 tokens are no whole number of sequences of 8,192" in capsys.readouterr().err
    found = placeproof.plan(
        "llama3-8b", "dgx-h100", 2, tokens=4 * 8192, only=["recompute=full", "data=zero3", "tp=1", "cp=1", "pp=1"], reserve="1GB"
    )
    assert found.task.batch == 4
    assert all(Fraction(plan.b * plan.m * plan.point.mesh.replicas) == 4 for plan in found.plans)


def test_a_strategy_that_is_asked_about_is_what_is_derived_of_it() -> None:
    pins = {"only": ["pp=1", "recompute=full", "tp=1,2"], "forbid": ["cp"], "count": 1}
    found = placeproof.plan(
        "llama3-8b", "dgx-h100", 2, batch=4, reserve="1GB", why=["tp(2) * sp", "ddp(2) * accumulate", "tp(2) * pp(1)"], **pins
    )
    SCHEMA.validate(found.data)
    split, copied, piped = found.besides
    assert piped.plan is not None
    assert piped.plan.expression == "tp(2) * pp(1)"
    assert split.plan is not None
    assert split.plan.expression == "tp(2) * sp"  # one micro-batch has no gradients to add up
    for b in (1, 2, 4):
        text = "tp(2) * sp" if b == 4 else "tp(2) * sp * accumulate"
        step = placeproof.model(text, "llama3-8b", recompute="full", b=b, m=4 // b).time("dgx-h100")
        assert split.plan.seconds <= step.seconds
    assert copied.because == ("does not fit",)
    assert copied.strategy == "ddp(2) * accumulate"
    with pytest.raises(InputError, match="leaves degrees open"):
        placeproof.plan("llama3-8b", "dgx-h100", 2, batch=4, why=["tp"], **pins)
    with pytest.raises(InputError, match="is of 4 devices"):
        placeproof.plan("llama3-8b", "dgx-h100", 2, batch=4, why=["tp(4)"], **pins)


def test_reasons_are_minimal_and_each_alone_is_one() -> None:
    pins = ["b=1", "pp=1", "schedule=1f1b", "data=zero3", "recompute=none"]
    found = placeproof.plan("llama3-8b", "dgx-h100", 2, batch=2, only=pins, reserve="40GB")
    SCHEMA.validate(found.data)
    assert found.plans == []
    memory, *others = found.reasons
    assert memory.plan is not None
    assert memory.plan.peak > memory.plan.room
    assert [reason.of for reason in others] == ["2 devices"]
    for reason in others:  # without it something fits that is what is derived
        assert reason.plan is not None
        assert reason.plan.fits
        plan = reason.plan
        step = placeproof.model(plan.expression, "llama3-8b", recompute=plan.recompute, b=plan.b, m=plan.m).time("dgx-h100")
        assert max(step.price.amount(cost.peak) for cost in step.d.costs) == plan.peak <= plan.room


def test_the_vocabulary_is_padded_as_derivations_pad_it() -> None:
    sizes = {"L": 2, "V": 1000, "a": 4, "h": 64, "s": 128}
    for padding in (None, 0, 64):
        found = placeproof.plan("gpt", "dgx-h100", 3, batch=3, only=["tp=1,3"], vocab_padding=padding, count=1, reserve="1GB", **sizes)
        search = Search(found.task, found.space)
        padded = [1000, 1000, 1152] if padding is None else [1000] * 3 if padding == 0 else [1024, 1024, 1152]
        assert list(search.structures.vocabulary(np.array([1, 2, 3]))) == padded


def test_bounds_without_a_pipeline_are_exact() -> None:
    only = ["pp=1", "recompute=full", "data=zero1", "b=1"]
    found = placeproof.plan("llama3-8b", "dgx-h100", 4, batch=8, only=only, count=100, reserve="1GB")
    search = Search(found.task, found.space)
    search.bound()
    queue, bounds = Queue(search.pool, OBJECTIVES["time"]), {}
    while queue:
        least = queue.least
        bounds[queue.pop()] = least
    assert len(found.plans) > 5
    for plan in found.plans:
        assert bounds[plan.point] == pytest.approx(float(plan.seconds), rel=1e-9)


def test_matrices_of_the_same_shape_count_once_at_each_point() -> None:
    shapes = [(np.array([4.0, 8.0]), 2.0), (np.array([8.0, 8.0]), 2.0), (np.array([8.0, 4.0]), np.array([2.0, 4.0]))]
    assert list(_distinct(shapes)) == [8 + 16, 16 + 16]


TINY = {"L": 2, "V": 1000, "a": 4, "h": 64, "s": 128}


def test_the_frontier_goes_from_the_fastest_plan_to_the_smallest(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [word for name, n in TINY.items() for word in ("--set", f"{name}={n}")]
    pins = [word for pin in ("pp=1", "recompute=none,full", "data=zero3", "tp=1,2", "sp=no", "cp=1") for word in ("--only", pin)]
    data = answered(["--model", "gpt", *sizes, "--devices", "4", *pins, "--pareto", "--top", "1"], capsys)
    plans = data["frontier"]["plans"]
    assert len(plans) > 3
    assert plans[0]["seconds"] == data["plans"][0]["seconds"]
    assert [plan["seconds"] for plan in plans] == sorted({plan["seconds"] for plan in plans})
    assert [plan["most"] for plan in plans] == sorted({plan["most"] for plan in plans}, reverse=True)
    assert {plan["verdict"] for plan in plans} == {"proved"}
    for plan in plans[:: len(plans) - 1]:
        derived = placeproof.model(plan["strategy"], "gpt", recompute=plan["recompute"], b=plan["b"], m=plan["m"], **TINY)
        step = derived.time("dgx-h100")
        assert (float(step.seconds), float(max(step.price.amount(cost.peak) for cost in step.d.costs))) == (plan["seconds"], plan["most"])
    cut = {rule: n for rule, n in data["cut"].items() if rule.startswith("refused")}
    bounded = data["bounded"] + len(data["plans"]) + sum(cut.values())
    assert data["frontier"]["beaten"] + sum(data["frontier"]["cut"].values()) + len(plans) == bounded


def test_what_is_best_is_asked_for() -> None:
    only = ["tp=1", "pp=1", "cp=1", "recompute=none,full", "data=zero3", "b=1,4"]
    said = placeproof.plan("gpt", "dgx-h100", [2, 4], batch=16, only=only, objective="tokens-per-device", count=3, reserve="1GB", **TINY)
    known = Search(said.task, said.space).known
    times, memory, tokens = (
        Search(said.task, said.space, known).run(100, objective=OBJECTIVES[name]).plans for name in ("time", "memory", "tokens-per-device")
    )
    assert {plan.devices for plan in times} == {2, 4}
    assert {plan.point for plan in times} == {plan.point for plan in memory} == {plan.point for plan in tokens}
    assert [plan.seconds for plan in times] == sorted(plan.seconds for plan in times)
    assert [(plan.most, plan.seconds) for plan in memory] == sorted((plan.most, plan.seconds) for plan in times)
    values = [plan.seconds * plan.devices for plan in tokens]
    assert values == sorted(plan.seconds * plan.devices for plan in times)
    assert times[0].point != memory[0].point
    assert [plan.point for plan in times] != [plan.point for plan in tokens]
    assert [plan.point for plan in said.plans] == [plan.point for plan in tokens[:3]]
    assert (said.data["devices"], said.data["objective"]) == ([2, 4], "tokens-per-device")
    assert [plan["equal"] for plan in said.data["plans"]] == [value <= values[0] * Fraction(102, 100) for value in values[:3]]


@cache
def small() -> Planned:
    only = ["pp=1", "cp=1", "recompute=none", "b=1", "data=zero1,zero3"]
    return placeproof.plan("gpt", "dgx-h100", 2, batch=2, only=only, pareto=True, reserve="1GB", count=1, **TINY)


def test_the_room_for_tensors_is_that_of_all_plans_that_are_listed() -> None:
    """It is less where a device has more groups to exchange with."""
    found = small()
    (plan,) = found.plans
    for rooms, told in (((60, 60), "60"), ((62, 60, 61), "60 to 62")):
        plans = [replace(plan, room=Fraction(room * 10**9)) for room in rooms]
        said = str(replace(found, outcome=replace(found.outcome, plans=plans)))
        assert f"GB: tensors of the fullest device; there are {told} GB for them" in said


@pytest.mark.parametrize(
    ("precision", "values", "told"),
    [
        ("mixed-adam", {}, "mixed-adam: 2 + 2 + 12 bytes"),
        ("megatron-bf16", {}, "megatron-bf16: 2 + 4 + 12 bytes"),
        ("mixed-adam", {"b_g": 4}, "mixed-adam but for b_g: 2 + 4 + 12 bytes"),
        ("open", {"b_omega": 6}, "widths: 2 + 2 + 6 bytes"),
    ],
)
def test_the_answer_says_how_many_bytes_states_have(precision: str, values: dict[str, int], told: str) -> None:
    """In its first lines, and in those of its page, which are six at most."""
    found = small()
    named = PRECISIONS[precision].values() if precision in PRECISIONS else {}
    task = replace(found.task, precision=precision, values={**found.task.values, **named, **{k: Fraction(n) for k, n in values.items()}})
    asked = found if (precision, values) == ("mixed-adam", {}) else replace(found, task=task)
    head = str(asked).partition("\n\n")[0].splitlines()
    assert len(head) <= 6
    (line,) = [line for line in head if told in line]
    assert line.startswith(told)
    assert "`--precision`" in line
    assert told in page(asked.document).partition("</header>")[0]
    assert asked.data["precision"] == precision


def test_a_plot_has_a_star_for_each_plan() -> None:
    found = small()
    assert found.frontier is not None
    fast, *_, last = found.frontier.plans
    lines = [*plot([fast, last])]
    assert len(lines) == HEIGHT + 3
    assert lines[0].endswith(" |*")
    assert lines[HEIGHT].endswith("|" + " " * WIDTH + "*")
    assert sum(line.count("*") for line in lines) == 2
    assert [line.count("*") for line in plot([fast])][HEIGHT] == 1
    assert max(map(len, lines)) <= 80
    assert "\n".join(plot(found.frontier.plans)) in str(found)


def test_how_good_times_are_is_told_where_it_is_known() -> None:
    found = small()
    assert [(one["runs"], one["cluster"], one["rank_correlation"]) for one in found.data["measured"]] == [("nvidia", "dgx-h100", None)]
    (nvidia,) = (known for one, known in timed_on(found.task.cluster.device))
    assert f"nvidia  dgx-h100     {nvidia.steps}  {float(100 * nvidia.error):.4g} %" in str(found)
    otherwise = replace(found, task=replace(found.task, values={**found.task.values, "eta": Fraction(1, 2)}))
    assert otherwise.data["measured"] == []
    assert "nobody knows" in str(otherwise)
    a100 = replace(found, task=replace(found.task, cluster=find("dgx-a100-80")))
    assert [one["runs"] for one in a100.data["measured"]] == ["a100-large", "a100-small"]
    SCHEMA.validate(a100.data)


def test_a_frontier_has_nothing_that_is_not_proved() -> None:
    asked = small()
    search = Search(asked.task, asked.space)
    search.bound()
    every = frontier(search)
    refuted = every.plans[0].point.structure
    found = frontier(search, lambda point: "refuted" if point.structure == refuted else "proved")
    assert found.plans
    assert refuted not in {plan.point.structure for plan in found.plans}
    assert found.cut["refuted, not proved"] >= 1
    for one in (every, found):
        assert one.beaten + sum(one.cut.values()) + len(one.plans) == search.size


@pytest.mark.parametrize("partial", [True, False])
def test_a_frontier_that_is_interrupted_is_none(monkeypatch: pytest.MonkeyPatch, partial: bool) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    task = small().task
    monkeypatch.setattr(answers, "frontier", stopped)
    pins, running = Pins(only=["dp=2", "recompute=none", "b=1", "data=zero3"]), Running(partial=partial)
    if not partial:
        with pytest.raises(KeyboardInterrupt):
            answers.plan(task, pins, 1, running=running, pareto=True)
        return
    found = answers.plan(task, pins, 1, running=running, pareto=True)
    assert len(found.plans) == 1
    assert found.frontier is None
    SCHEMA.validate(found.data)
    assert not found.data["complete"]
    assert found.data["frontier"] is None


@pytest.mark.parametrize("room", [900, 820])
def test_layers_that_are_shared_out_otherwise_are_what_is_derived_of_them(room: int, capsys: pytest.CaptureFixture[str]) -> None:
    """With 900 MB for tensors all layers have to be computed again if each stage has as many, with 820 MB nothing fits then."""
    sizes = {"L": 6, "V": 65536, "a": 8, "h": 512, "s": 1024}
    asked = ["--model", "gpt", "--cluster", "dgx-h100", "--devices", "2", "--global-batch", "4", "--top", "1", "--uneven"]
    for pin in ("pp=2", "schedule=1f1b", "b=1", "recompute=none,full"):
        asked += ["--only", pin]
    for name, size in sizes.items():
        asked += ["--set", f"{name}={size}"]
    asked += ["--reserve", f"{int(find('dgx-h100').device.capacity) - room * 10**6}B"]
    assert run(["plan", *asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    SCHEMA.validate(data)
    assert [plan["recompute"] for plan in data["plans"]] == (["full"] if room == 900 else [])
    first, *others = data["uneven"]
    assert all(other["because"] == "the same as another one but for what is computed again" for other in others)
    assert first["plan"] == (1 if data["plans"] else None)
    best = first["best"]
    assert best["peak"] <= best["room"] == room * 10**6
    assert first["of"]["peak"] > best["room"] or first["of"]["seconds"] > best["seconds"]
    assert first["optimal"]
    assert first["least"] == best["seconds"]
    assert first["of"]["verdict"] == "proved"
    options = {"stages": best["stages"], "recompute": best["recompute"], "b": best["b"], "m": best["m"]}
    step = placeproof.model(best["strategy"], "gpt", **options, **sizes).time("dgx-h100")
    assert float(step.seconds) == best["seconds"]
    assert max(float(step.price.amount(cost.peak)) for cost in step.d.costs) == best["peak"]
