"""`derive --model` and `compare --model` on the command line: what is printed, and what bad input gets."""

from __future__ import annotations

import json
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sympy
from input_problems import problems

import placeproof
from placeproof.cli.main import run
from placeproof.core.shapes import transformer
from placeproof.cost.exact.predict import predict
from placeproof.cost.model import derive_model
from placeproof.cost.model.comparison import ModelComparison
from placeproof.cost.values import read_numbers
from placeproof.models import load, presets
from placeproof.strategies import parse_strategy

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
HERE = Path(__file__).parents[1]
SCHEMA = json.loads((HERE.parent / "docs" / "reference" / "derive-model.schema.json").read_text(encoding="utf-8"))
STEP = str(HERE / "programs" / "correct" / "a_mean_of_flags.step")
DERIVE = ["derive", "--model", "llama3-8b"]
COMPARE = ["compare", "--model", "llama3-8b"]
NUMBERS = ["--set", "b=1", "--set", "m=8"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The first line of every problem; nothing is printed besides, and no traceback."""
    assert run(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return [line.removeprefix("error") for line in err.splitlines() if line.startswith("error")]


# What is printed.


@pytest.mark.parametrize(
    ("strategy", "model", "more"),
    [
        ("fsdp * tp(8) * sp * cp(2) * pp(9)", "llama3-405b", ["--set", "N_dp=8", *NUMBERS, "--recompute", "selective"]),
        ("fsdp * ep(8)", "mixtral-8x7b", ["--set", "b=1", "--set", "N_dp=16", "--cluster", "dgx-h100"]),
        ("zero1 * tp * pp", "llama", []),
        ("ddp", "gpt3-125m", ["--recompute", "full", "--precision", "fp32-adam"]),
        ("ddp", "gpt3-125m", ["--recompute", "norms+selective", "--set", "b=1", "--fp8", "--width", "attention_gpt.p=4", "--width", "u=1"]),
        ("zero_offload(8) * checkpoint(checkpoints=host) * pp(4)", "llama3-8b", NUMBERS),
        ("zero1(8) * pp(4)", "llama3-8b", [*NUMBERS, "--stages", "7,8,8,9", "--cluster", "dgx-a100-80", "--overlap", "all"]),
    ],
)
def test_json_is_what_its_schema_says(strategy: str, model: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(printed(capsys, "derive", strategy, "--model", model, *more, "--json"))
    jsonschema.validate(data, SCHEMA)
    assert ("time" in data) == ("--cluster" in more)
    assert (data["schedule"] is None) == ("pp" not in strategy)
    assert all(stage["memory"]["peak"]["value"] is not None for stage in data["stages"]) == ("b=1" in more)


def test_axes_lie_on_the_cluster_as_they_are_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["derive", "zero1(2) * tp(4) * pp(4)", "--model", "llama3-8b", *NUMBERS, "--cluster", "dgx-h100"]
    usual, inside = (json.loads(printed(capsys, *own, *more, "--json"))["time"] for more in ([], ["--order", "tp, pp, dp"]))
    assert [*usual["mesh"].items()] == [("tp", 4), ("dp", 2), ("pp", 4)]
    assert [*inside["mesh"].items()] == [("tp", 4), ("pp", 4), ("dp", 2)]
    sent = [{axes: [*over.values()] for axes, over in time["stages"][0]["links"].items()} for time in (usual, inside)]
    assert [over["dp"][0] > 0 == over["dp"][1] for over in sent] == [True, False]  # nvlink, and infiniband
    assert refused(capsys, *own, "--order", "tp,dp") == ["[PP202]: the order tp, dp does not name each axis once"]
    assert refused(capsys, *own[:-2], "--order", "tp,dp,pp") == ["[PP104]: --order speaks of a step on devices, which needs a cluster"]


def amounts(data: Any) -> list[str]:
    """Every formula of some data."""
    if isinstance(data, dict):
        own = [data["formula"]] if "formula" in data else []
        return own + [text for value in data.values() for text in amounts(value)]
    return [text for value in data for text in amounts(value)] if isinstance(data, list) else []


def test_expressions_are_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Also those with E, which is a number to SymPy; and they mean what was derived."""
    data = json.loads(printed(capsys, "derive", "fsdp * ep(8) * pp(2)", "--model", "mixtral-8x7b", "--json"))
    symbols = {name: sympy.Symbol(name) for name in data["symbols"]}
    texts = amounts(data)
    assert len(texts) > 100
    assert any(sympy.Symbol("E") in sympy.sympify(text, locals=symbols).free_symbols for text in texts)
    assert {str(s) for text in texts for s in sympy.sympify(text, locals=symbols).free_symbols} <= set(symbols)
    d = derive_model(load("mixtral-8x7b"), parse_strategy("fsdp * ep(8) * pp(2)"))
    for stage, cost in zip(data["stages"], d.costs, strict=True):
        read = sympy.sympify(stage["memory"]["peak"]["formula"], locals=symbols)
        known = {**d.values, **{str(s): Fraction(i) for i, s in enumerate(sorted(symbols), start=2) if s not in d.values}}
        assert d.value(read, known) == d.value(cost.peak, known)


def test_values_are_exact_sums() -> None:
    """Traffic is the sum of what is sent, the peak that of its parts: in whole numbers, however large."""
    data = placeproof.model("fsdp(8) * tp(8) * sp * pp(9)", "llama3-405b", b=3, m=32).data
    for stage in data["stages"]:
        for axes, total in stage["traffic"].items():
            rows = [one for one in stage["sent"] if "*".join(one["axes"]) == axes]
            assert total["value"] == sum(one["bytes"]["value"] * one["times"]["value"] for one in rows)
        parts = {key: amount["value"] for key, amount in stage["memory"].items()}
        assert parts.pop("host") == parts.pop("host_asked") == 0
        assert parts.pop("peak") == sum(parts.values())
        assert stage["memory"]["activations"]["value"] == stage["in_flight"]["value"] * sum(k["bytes"]["value"] for k in stage["kept"])


def test_a_size_that_is_set_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *DERIVE, "ddp(8)", "--set", "s=4096", "--set", "b=1", "--set", "P=3")
    assert "s = 4096 (set; 8192 in the model)" in text
    assert "set, but in no formula: P" in text
    half, whole = (json.loads(printed(capsys, *DERIVE, "ddp(8)", "--set", f"s={s}", "--set", "b=2", "--json")) for s in (4096, 8192))
    kept = [[k["bytes"]["value"] for k in data["stages"][0]["kept"] if "tokens" in k["dims"]] for data in (half, whole)]
    assert [2 * n for n in kept[0]] == kept[1]


def test_stages_that_are_alike_share_rows(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *DERIVE, "ddp * pp(8)").partition("model states of one device")[0]
    assert [line.split("  ")[1] for line in text.splitlines() if "  norm " in line] == ["stage 0", "stage 1 to 6", "stage 7"]


def test_what_lies_on_the_host_is_told_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    near = printed(capsys, *DERIVE, "zero2(8) * checkpoint", *NUMBERS)
    assert "on the host" not in near
    far = printed(capsys, *DERIVE, "zero_offload(8) * checkpoint(checkpoints=host)", *NUMBERS, "--full")
    for line in ("  on the host  P*(b_g + b_omega)/8", "  layers  input x, on the host  ", "is no part of the peak"):
        assert line in far
    heads, cells = (line.split() for line in far.partition("memory of a device by stage")[2].splitlines()[1:3])
    assert heads[-7:] == ["peak", "on", "the", "host", "host,", "asked", "for"]
    assert float(cells[-2]) == pytest.approx((8030261248 * 14 / 8 + 32 * 8192 * 4096 * 2) / 1e9, rel=1e-3)
    assert float(cells[-1]) == pytest.approx((8030261248 * 16 / 8 * 1.5 + 32 * 8192 * 4096 * 2) / 1e9, rel=1e-3)


@pytest.mark.parametrize(("strategy", "bytes_"), [("zero_offload(8)", 16), ("zero_infinity(8)", 18)])
def test_host_memory_that_is_asked_for_is_what_deepspeed_asks_for(strategy: str, bytes_: int) -> None:
    """`estimate_zero2_model_states_mem_needs`, `estimate_zero3_model_states_mem_needs`: so many bytes a parameter, times 1.5."""
    d = placeproof.derive(strategy)
    for precision in ("mixed-adam", "megatron-bf16"):
        numbers = read_numbers(["P=32.76e9"], precision)
        assert 8 * d.value("memory.host_asked", numbers.values) == Fraction("32.76e9") * bytes_ * Fraction(3, 2)
    assert placeproof.derive("zero1").memory["host_asked"] == 0
    kept = placeproof.derive("checkpoint(checkpoints=host)")
    assert kept.memory["host_asked"] == kept.memory["host"] != 0


@pytest.mark.parametrize("name", presets()[:: 1 if NIGHTLY else 5])
@pytest.mark.parametrize("strategy", ["pp(2)", "tp(2)", "checkpoint * pp(2)", "pp(2, schedule=zb-h1)"])
def test_every_form_is_an_expression(name: str, strategy: str) -> None:
    """Also where a sum is 0, or a count a plain number. Of every model at night, else of every fifth."""
    model = load(name)
    stages = [model.sizes["L"] - 1, 1]
    d = derive_model(model, parse_strategy(strategy), layers=stages if "pp" in strategy else None)
    assert all(isinstance(form, sympy.Basic) for form in d.forms.values())


def test_vocabularies_are_padded_where_parts_would_be_unequal(capsys: pytest.CaptureFixture[str]) -> None:
    """As Megatron-LM: 50257 tokens over 8 devices are 51200, and 50304 on one device."""

    def size(strategy: str, *more: str) -> int:
        return int(json.loads(printed(capsys, "derive", strategy, "--model", "gpt3-175b", "--json", *more))["sizes"]["V"])

    assert [size("ddp"), size("tp(8)"), size("tp", "--set", "N=8"), size("tp")] == [50257, 51200, 51200, 50257]
    assert [size("ddp", "--vocab-padding", "128"), size("tp(2)", "--vocab-padding", "1")] == [50304, 50258]
    assert size("tp(8)", "--set", "V=50000") == 50000
    text = printed(capsys, "derive", "tp(8)", "--model", "gpt3-175b", "--full")
    assert "V = 51200 (padded; 50257 in the model)" in text
    assert "the vocabulary is padded" in text


def test_stages_may_have_no_layers(capsys: pytest.CaptureFixture[str]) -> None:
    """An embedding, and a head, count as a layer in frameworks."""
    data = json.loads(printed(capsys, *DERIVE, "pp(4)", *NUMBERS, "--stages", "0,16x2,0", "--json", "--cluster", "dgx-h100"))
    first, between, _, last = data["stages"]
    assert first["parameters"].keys() == {"embedding"}
    assert "matrix" not in last["parameters"]
    assert first["flops"]["forward"]["value"] == 0 < last["flops"]["forward"]["value"]
    assert {one["collective"] for one in first["sent"]} == {"send"} == {one["collective"] for one in between["sent"]}
    assert data["time"]["seconds"] is not None


def test_the_root_unit_of_a_model_is_what_is_no_layer(capsys: pytest.CaptureFixture[str]) -> None:
    """Embedding, last norm and head stay gathered, a layer comes on top: of Llama 3 8B, in 16 bits."""
    data = json.loads(printed(capsys, *DERIVE, "fsdp(8, root=keep)", *NUMBERS, "--json"))
    root, layer = 2 * 128256 * 4096 + 4096, 218112000
    memory = data["stages"][0]["memory"]
    assert memory["transient"]["value"] == max(2 * root + 2 * layer, 2 * root)
    gathered = [one["bytes"]["value"] for one in data["stages"][0]["sent"] if one["collective"] == "all_gather"]
    assert sorted(gathered) == sorted(7 * 2 * n // 8 for n in (root, 32 * layer, 32 * layer))


def test_widths_and_fp8_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *DERIVE, "ddp(8)", "--fp8", "--width", "lse=8", "--width", "swiglu.u=1", "--full")
    assert "bytes of an element that were set: lse 8, swiglu.u 1" in text
    assert "fp8: products with layers' matrices, and for their gradients; what layers keep for gradients by weights alone takes 1" in text
    plain = printed(capsys, *DERIVE, "ddp(8)", "--width", "lse=4", "--full")
    assert "fp8" not in plain
    assert "were set" not in plain


def test_a_comparison_takes_the_same_options(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--recompute", "norms", "--fp8", "--width", "swiglu.u=1", *NUMBERS, "--json"]
    side = json.loads(printed(capsys, *COMPARE, "fsdp(8)", "zero1(8) * pp(4)", *more))["strategies"]
    alone = [json.loads(printed(capsys, *DERIVE, text, *more))["stages"] for text in ("fsdp(8)", "zero1(8) * pp(4)")]
    for member, stages in zip(side, alone, strict=True):
        assert member["figures"]["peak"]["value"] == max(stage["memory"]["peak"]["value"] for stage in stages)


# Side by side.


def test_figures_are_those_of_each_derivation(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["fsdp(8) * tp(8)", "zero1(2) * tp(8) * pp(4)"]
    data = json.loads(printed(capsys, *COMPARE, *texts, *NUMBERS, "--cluster", "dgx-h100", "--json"))
    assert data["schema"] == "placeproof.compare-models/1"
    first = data["strategies"][0]["figures"]
    for member, text in zip(data["strategies"], texts, strict=True):
        alone = json.loads(printed(capsys, *DERIVE, text, *NUMBERS, "--cluster", "dgx-h100", "--json"))
        peaks = {stage["name"]: stage["memory"]["peak"]["value"] for stage in alone["stages"]}
        assert peaks[member["stage"]] == max(peaks.values()) == member["figures"]["peak"]["value"]
        stage = next(stage for stage in alone["stages"] if stage["name"] == member["stage"])
        assert member["figures"]["traffic.tp"]["value"] == stage["traffic"]["tp"]["value"]
        assert member["time"]["seconds"] == alone["time"]["seconds"]["step"]
        assert member["time"]["mfu"] == alone["time"]["mfu"]
        assert member["figures"]["devices"]["value"] == alone["time"]["devices"] == 64
        for key, figure in member["figures"].items():
            if first[key]["value"]:
                assert figure["ratio"] == pytest.approx(figure["value"] / first[key]["value"])
    assert data["strategies"][0]["figures"]["traffic.pp"] == {"formula": "0", "value": 0, "ratio": None}


FASTER, SURE, TOO_MUCH = "zero2(60)", "zero3(30) * tp(2) * sp", "ddp(60)"


def test_the_answer_names_what_is_faster_and_may_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*COMPARE, "--cluster", "dgx-h100", "--set", "b=1"]
    both = json.loads(printed(capsys, *asked, FASTER, SURE, "--json"))["strategies"]
    assert [m["time"]["fits"] for m in both] == [None, True]
    times = both[0]["time"]["tokens_per_second_and_device"] / both[1]["time"]["tokens_per_second_and_device"]
    assert times > 1
    title, _, faster, *_ = printed(capsys, *asked, FASTER, SURE).splitlines()
    assert title.endswith(f"`{SURE}` is the fastest that surely fits")
    assert faster == f"faster, and may not fit (`?`): `{FASTER}`, {times:.3g} times as many"
    slower = "zero3(15) * tp(4) * sp"  # it fits, too, and nothing that may not is faster than both
    title, _, then, *_ = printed(capsys, *asked, SURE, slower).splitlines()
    assert title.endswith(f"`{SURE}` is the fastest that fits")
    assert then.startswith(f"next: `{slower}`")


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("fsdp(8)", ["--global-batch", "64"]),
        ("fsdp", ["--global-batch", "96", "--set", "s=2048", "--world", "8"]),
        ("fsdp(4) * tp(2)", ["--global-batch", "64", "--set", "s=2048"]),
        ("fsdp(8)", ["--global-batch", "64", "--set", "b=8", "--recompute", "selective"]),
    ],
)
def test_micro_batches_that_fit_are_named_where_a_step_does_not(strategy: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is named is derived as it is said, and fits; the next larger micro-batch does not surely. `compare` names the same."""
    at = ["--model", "llama3-8b", "--cluster", "dgx-h100", *more]
    text = printed(capsys, "derive", strategy, *at)
    assert ": does not fit" in text.splitlines()[0]
    (line,) = [line for line in text.splitlines() if line.startswith("accumulating gradients: ")]
    named = re.fullmatch(r"accumulating gradients: `(.*)` fits with `--set b=(\d+)` \(m = (\d+)\), (.*) a step", line)
    assert named is not None
    assert named[1] == f"{strategy} * accumulate"
    b, batch = int(named[2]), int(more[1])
    whole = [option for option in at if option != "b=8"]
    whole = [option for n, option in enumerate(whole) if option != "--set" or whole[n + 1].startswith("s=")]
    assert printed(capsys, "derive", named[1], *whole, "--set", f"b={b}").splitlines()[0].endswith(f": fits, {named[4]} a step")
    replicas = batch // (b * int(named[3]))
    larger = next(n for n in range(b + 1, batch) if batch % (replicas * n) == 0)
    assert ": fits," not in printed(capsys, "derive", named[1], *whole, "--set", f"b={larger}").splitlines()[0]
    assert line in printed(capsys, "compare", strategy, "ddp(8)", *at).splitlines()


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("ddp(8)", ["--global-batch", "64"]),  # its model states alone do not fit
        ("fsdp(8)", ["--set", "b=8"]),  # nobody says of how many sequences a step is
        ("fsdp(8) * accumulate", ["--global-batch", "64", "--set", "b=8"]),  # it accumulates already
        ("fsdp(8)", ["--global-batch", "8"]),  # it fits
        ("fsdp(8)", ["--global-batch", "8", "--set", "s=65536"]),  # one sequence is too many
    ],
)
def test_micro_batches_are_named_only_where_they_make_a_step_fit(
    strategy: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "accumulat" not in printed(capsys, "derive", strategy, *more, "--model", "llama3-8b", "--cluster", "dgx-h100").partition("\n")[2]


def test_of_what_does_not_fit_the_first_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*COMPARE, "--cluster", "dgx-h100", "--set", "b=1"]
    text = printed(capsys, *asked, TOO_MUCH, "ddp(30) * tp(2) * sp", "--set", "s=32768").partition("\n\n")[0]
    first, other = re.findall(r"`(ddp[^`]*)`", text)
    assert f"none fits, `{first}` is the fastest" in text
    assert f"does not fit either: `{other}`" in text
    assert {first, other} == {TOO_MUCH, "ddp(30) * tp(2) * sp"}


@pytest.mark.parametrize("width", ["80", "120"])
def test_each_strategy_says_why_it_fits_or_does_not(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its range against what a device has is what the word says; what takes the most is the largest of the figures."""
    monkeypatch.setenv("COLUMNS", width)
    asked = [*COMPARE, "--cluster", "dgx-h100", "--set", "b=1", "fsdp(8)", "zero1(2) * tp(4)", "ddp(8)", "zero1(2) * pp(4)", "--set", "m=4"]
    data, text = json.loads(printed(capsys, *asked, "--json")), printed(capsys, *asked)
    assert max(map(len, text.splitlines())) <= int(width)
    rows = re.sub(r"\n {20,}", " ", text)
    words = {True: "fits", False: "does not fit", None: "may not fit"}
    for one in data["strategies"]:
        fits, figures = one["time"]["fits"], one["figures"]
        row = re.search(rf"\d  {re.escape(one['strategy'])} .*{words[fits]}: ([\d.]+) to ([\d.]+) GB of ([\d.]+)(.*)", rows)
        assert row is not None, (one["strategy"], rows)
        least, most, room = map(float, row.groups()[:3])
        assert fits == (True if most <= room else False if least > room else None)
        assert least < float(figures["peak"]["value"]) / 1e9 < most
        largest = max(("model states", figures["model_states"]), ("activations", figures["activations"]), key=lambda f: f[1]["value"])[0]
        assert row[4].startswith("" if fits else f", {largest} ")
    assert {one["time"]["fits"] for one in data["strategies"]} >= {True, False}


def test_the_world_decides_open_degrees(capsys: pytest.CaptureFixture[str]) -> None:
    """N is the world, and an axis may be named whether it is the only one or not."""
    data = json.loads(printed(capsys, *COMPARE, "fsdp", "zero1 * tp(8) * pp(4)", "ddp(16) * tp", "--set", "N=64", *NUMBERS, "--json"))
    sent = [m["figures"] for m in data["strategies"]]
    assert [f["devices"]["value"] for f in sent] == [64, 64, 64]
    assert [f["sequences"]["value"] for f in sent] == [64, 2 * 8, 16]
    named = json.loads(printed(capsys, *COMPARE, "fsdp", "zero1 * tp(8)", "--set", "N_dp=4", "--set", "b=1", "--json"))
    assert [m["figures"]["devices"]["value"] for m in named["strategies"]] == [4, 32]


def test_two_open_degrees_are_one_too_many_for_the_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMPARE, "fsdp * tp", "fsdp(64)", "--set", "N=64", "--set", "b=1"]) == 2
    told = capsys.readouterr().err
    assert "64 devices leave the degrees of `dp` and `tp` open" in told
    assert "set all but one of them" in told


def test_text_says_what_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *COMPARE, "ddp(8)", "fsdp(8) * tp(8) * accumulate(4)", "--set", "b=1", "--cluster", "dgx-h100", "--full")
    assert "different numbers of devices" in text
    assert "tokens a second, and not steps, can be compared" in text
    alike = printed(capsys, *COMPARE, "fsdp(8)", "zero1(8)", "--set", "b=1", "--full")
    assert "different numbers" not in alike
    assert "tokens a second" not in alike
    assert "ratios to `fsdp(8)`" in alike
    formulas = printed(capsys, *COMPARE, "fsdp", "zero1 * pp", "--full")
    assert "ratios" not in formulas
    assert "the first stage is compared" in formulas


def test_no_difference_is_claimed_of_what_is_not_known() -> None:
    from placeproof.cost.model.comparison import Member

    model = load("llama3-8b")
    members = [Member(d=derive_model(model, parse_strategy(text)), values={}) for text in ("fsdp", "fsdp * tp(8)")]
    c = ModelComparison(members=members)
    assert not c.differs("devices")
    assert c.ratio(members[1], "peak") is None
    assert c.ratio(members[1], "sequences") is None
    assert ModelComparison(members=members[::-1]).differs("parameters")


def test_configurations_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """What a configuration was read as is told first, or stands beside the figures."""
    config = str(HERE / "configs" / "deepspeed" / "hf_zero2_offload.json")
    given = [*COMPARE, config, "zero3(8)", "--world", "8", *NUMBERS]
    assert "DeepSpeed, read as" in printed(capsys, *given).splitlines()[0]
    data = json.loads(printed(capsys, *given, "--json"))
    assert [one["system"] for one in data["imported"]] == ["deepspeed"]
    assert [m["figures"]["sequences"]["value"] for m in data["strategies"]] == [64, 8]
    single = json.loads(printed(capsys, *DERIVE, config, "--world", "8", *NUMBERS, "--json"))
    jsonschema.validate(single, SCHEMA)
    assert single["imported"] == data["imported"][0]


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ddp(8)", "--model", "llama4-8b"], ["[PP101]: there is no model `llama4-8b`"]),
        (["ddp(8)", "--recompute", "ful"], ["[PP104]: there is no recomputation `ful`"]),
        (
            ["ddp(8)", "--recompute", "norms+full"],
            ["[PP104]: recomputation `full` is of all of a layer, so that `norms` cannot go with it"],
        ),
        (["ddp(8)", "--recompute", "none+mlp"], ["[PP104]: recomputation `none` is of nothing, so that `mlp` cannot go with it"]),
        (["ddp(8)", "--recompute", "norms+norms"], ["[PP104]: recomputation `norms+norms` says `norms` twice"]),
        (["ddp(8)", "--recompute", "selectiv+nrms"], ["there is no recomputation `selectiv`", "there is no recomputation `nrms`"]),
        (["ddp(8)", "--recompute", ""], ["[PP104]: there is no recomputation ``"]),
        (["ddp * checkpoint", "--recompute", "none"], ["[PP104]: `ddp * checkpoint` computes each layer again, and recomputation `none`"]),
        *(
            (["ddp(8)", "--width", text], [f"[PP202]: `--width {text}` is not NAME=BYTES"])
            for text in ("q=", "q=0", "q=-1", "q=.5", "=2", "q")
        ),
        (["ddp(8)", "--width", "q=1", "--width", "q=2"], ["[PP202]: `--width` says twice how wide `q` is"]),
        (["ddp(8)", "--width", "swiglu.q=1", "--width", "ids=4"], ["keeps no value `swiglu.q`", "keeps no value `ids`"]),
        (["ddp(8)", "--cluster", "dgx-h10", "--set", "b=1"], ["[PP101]: there is no cluster `dgx-h10`"]),
        (["tp", "--set", "N=0"], ["[PP202]: `N` is integer >= 1"]),
        (["ddp * ep(2)"], ["[PP104]: axis `ep` of `ddp * ep(2)` spreads experts over devices, and llama3-8b has none"]),
        (["pp(4, schedule=dualpipe, microbatches=9)"], ["[PP202]: `dualpipe` needs m % 2 == 0, and not m = 9"]),
        (["pp(4, schedule=interleaved, chunks=2)", "--set", "m=6"], ["[PP202]: `interleaved` needs m % p == 0, and not m = 6, p = 4"]),
        (["pp(schedule=dualpipe)", "--set", "N=3"], ["[PP202]: 32 layers", "[PP202]: `dualpipe` needs p % 2 == 0, and not p = 3"]),
        (["tp(0)"], ["[PP103]"]),
        (
            ["tp(3)"],
            ["[PP202]: `tp` of degree 3 splits dimension `kv_heads` of size 8", "[PP202]: `tp` of degree 3 splits dimension `ffn`"],
        ),
        (["fsdp * tp", "--set", "N_tp=3"], ["[PP202]: `tp` of degree 3 splits dimension `kv_heads`", "[PP202]: `tp` of degree 3 splits"]),
        (["tp", "--set", "N=999999937"], ["dimension `kv_heads`", "dimension `ffn`"]),
        (["tp(7)", "--vocab-padding", "none"], ["`vocab` of size 128256", "dimension `kv_heads`"]),
        (["tp(8)", "--vocab-padding", "0"], ["[PP202]: `--vocab-padding 0` is no number of tokens"]),
        (["ddp * pp(64)"], ["[PP202]: 32 layers cannot be shared out evenly over 64 stages"]),
        (["ddp * pp(4)", "--stages", "8,8,8"], ["[PP202]: 3 stages with 24 layers are given, and there are 4 stages and 32 layers"]),
        (["ddp * pp(4)", "--stages", "8,8,8,0"], ["[PP202]: 4 stages with 24 layers are given, and there are 4 stages and 32 layers"]),
        (["ddp * pp(4)", "--stages", "16,0,0,16"], ["[PP202]: stage 1 would have nothing"]),
        (["ddp * pp(4)", "--stages", "8,8,8,-8"], ["[PP202]: `--stages 8,8,8,-8` lists no numbers of layers"]),
        (["ddp * pp", "--stages", "16,16", "--set", "N_pp=2"], ["[PP203]: `--stages` lists 2 stages, and the degree of axis `pp` is open"]),
        (["ddp", "--stages", "16,16"], ["[PP104]: `--stages` lists the layers of pipeline stages, and `ddp` has none"]),
        (["ddp", "--set", "a=7"], ["[PP205]: llama3-8b: `h/a` is 4096/7, no whole number, with h = 4096, a = 7"]),
        (["fsdp(10000000)", "--set", "b=1", "--cluster", "dgx-h100"], ["[PP103]: the mesh has 10000000 devices, and at most 1048576"]),
        (["pp(1024)", "--set", "L=1024"], ["[PP202]: 1024 stages are told one by one, and at most 512 can be"]),
        (
            ["pp(32, schedule=gpipe)", "--set", "b=1", "--set", "m=1000000", "--cluster", "dgx-h100"],
            ["32,000,000 forward passes, and at most 200,000"],
        ),
        (["ddp", "--set", "N_tp=3"], ["[PP201]: `N_tp` is no degree of this strategy"]),
        ([STEP], [f"[PP104]: `{STEP}` is a step program"]),
        (
            ["fsp", "--recompute", "ful", "--stages", "x", "--overlap", "no", "--efficiency", "2", "--plot", "a.png", "--set", "q=1"],
            ["`q`", "`ful`", "overlap `no`", "`--stages x`", "needs a cluster", "`--efficiency 2`", "`--plot a.png`", "`fsp`"],
        ),
    ],
)
def test_bad_models_and_numbers_are_refused(arguments: list[str], said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "derive", *arguments, *([] if "--model" in arguments else ["--model", "llama3-8b"]))
    assert len(told) == len(said)
    assert all(any(part in line for line in told) for part in said), told


def test_a_folder_is_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "memory.svg"
    folder.mkdir()
    (told,) = refused(capsys, *DERIVE, "ddp(8)", *NUMBERS, "--plot", str(folder))
    assert "no file can be written there" in told
    assert not list(folder.iterdir())


@pytest.mark.parametrize("option", ["recompute", "stages", "cluster", "efficiency", "overlap", "plot"])
def test_options_of_a_model_need_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = refused(capsys, "derive", "ddp(8)", f"--{option}", "full")
    assert told == f"[PP104]: options that speak of a model need one: `--{option}`"
    if option != "plot":
        assert refused(capsys, "compare", "ddp(8)", "fsdp(8)", f"--{option}", "full") == [told]


def test_fp8_and_widths_need_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["derive", "ddp(8)"], ["compare", "ddp(8)", "fsdp(8)"]):
        (told,) = refused(capsys, *command, "--fp8", "--width", "q=1")
        assert told == "[PP104]: options that speak of a model need one: `--width`, `--fp8`"


def test_options_that_need_a_model_are_named_together(capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = refused(capsys, "derive", "ddp(8)", "--recompute", "full", "--stages", "3,3", "--cluster", "dgx-h100")
    assert told.endswith("`--recompute`, `--stages`, `--cluster`")


def test_options_that_a_model_does_not_go_with(capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = refused(capsys, *DERIVE, "ddp(8)", "--groups")
    assert told == "[PP104]: `--groups` does not go with `--model`"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fsdp"], ["[PP102]: a comparison needs two strategies"]),
        (["fsdp", "ddp", "--of", "fsdp"], ["[PP104]: `--of` does not go with `--model`"]),
        (["fsp", "zero9", "--recompute", "ful", "--set", "q=1"], ["`q`", "`ful`", "`fsp`", "`zero9`"]),
        (["tp(3)", "fsdp"], ["[PP202]: tp(3): `tp` of degree 3", "[PP202]: tp(3): `tp` of degree 3"]),
        (["fsdp * tp(8)", "zero1", "--set", "N_cp=2"], ["[PP201]: `N_cp` is no degree of any of the strategies"]),
        (["fsdp * tp(8)", "fsdp * tp", "--set", "N_tp=4"], ["[PP205]: fsdp * tp(8): `N_tp` is 8 in the strategy, and 4 here"]),
        (["fsdp(8)", "fsdp * tp", "--set", "N=4"], ["PP205]: fsdp(8): its degrees make 8", "[PP203]: fsdp * tp: 4 devices leave"]),
        (["fsdp * tp(8)", "ddp", "--set", "N=12"], ["[PP202]: fsdp * tp(8): 12 devices cannot be shared out over 8"]),
        (["fsdp * pp(2)", "fsdp", "--stages", "10,22"], ["[PP104]: fsdp: `--stages` lists"]),
        (["fsdp * pp(2)", "ddp * pp(4)", "--stages", "10,22"], ["[PP202]: ddp * pp(4): 2 stages with 32 layers are given"]),
        (["ddp", "fsdp", "--cluster", "dgx-h100"], ["ddp: a time", "ddp: a time", "fsdp: a time", "fsdp: a time"]),
    ],
)
def test_bad_comparisons_name_the_strategy(arguments: list[str], said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, *COMPARE, *arguments)
    assert len(told) == len(said)
    assert all(any(part in line for line in told) for part in said), told


# Configurations of models.


def test_a_configuration_is_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(HERE / "configs" / "huggingface" / "llama3_8b.json")
    both = [
        json.loads(printed(capsys, "derive", "fsdp * tp(8)", "--model", m, "--json", *NUMBERS, "--set", "s=8192"))
        for m in (path, "llama3-8b")
    ]
    counted = [{group: n["value"] for group, n in data["stages"][0]["parameters"].items()} for data in both]
    assert counted[0] == counted[1]
    assert min(counted[0].values()) > 0


BAD = {
    "truncated": ('{"model_type": "llama", "hidden_size": 40', ["[PP501]: this is not JSON"]),
    "kind": ('{"model_type": "t5", "d_model": 3}', ["[PP501]: the parameters of a model of type `t5` are not known"]),
    "several": (
        '{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 30, "num_key_value_heads": 7, "vocab_size": "x"}',
        [
            "[PP503]: `num_hidden_layers` is missing",
            "[PP503]: `intermediate_size` is missing",
            "[PP504]: a hidden size of 4096 is no multiple of 30 attention heads",
            "[PP504]: 30 attention heads are no multiple of 7 heads",
            '[PP503]: `vocab_size` is a whole number of at least 1, not "x"',
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_configurations_of_models(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every problem at once, each with its place; beside what else is wrong."""
    text, said = BAD[name]
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    assert run(["derive", "ddp(8)", "--model", str(path), "--recompute", "ful"]) == 2
    err = capsys.readouterr().err
    told = [line.removeprefix("error") for line in err.splitlines() if line.startswith("error")]
    assert len(told) == len(said) + 1
    assert all(any(line.startswith(part) for line in told) for part in said), told
    assert err.count(f"--> {path}:1:") == len(said)


def test_the_parameters_of_a_kind_may_be_known_and_its_blocks_not(capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = refused(capsys, "derive", "ddp(8)", "--model", str(HERE / "configs" / "huggingface" / "gpt_neox_20b.json"))
    assert "the blocks of a model of type `gpt_neox` are not written as programs" in told


# Exact bytes.


def test_exact_bytes_of_experts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Their weights lie otherwise than the rest, on the command line and in Python."""
    shapes = "transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)"
    (told,) = refused(capsys, "derive", "fsdp(2) * ep(2)", "--profile", "torch-2.13", "--shapes", shapes)
    assert "does not say how `ep` is implemented" in told
    model = transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)
    (problem,) = problems(lambda: predict(parse_strategy("ddp(2) * ep(2)"), (), model, {"dp": 2, "ep": 2}))
    assert (problem.code, problem.message) == (
        "PP101",
        "exact bytes of experts that `ep(2)` places apart over axis `ep` were not measured",
    )
