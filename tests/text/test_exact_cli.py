"""Exact bytes on the command line: derive and compare with profiles, what is printed, and what bad input gets."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_cases import random_case
from recorded import rows

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import tally
from placeproof.core.shapes import transformer
from placeproof.cost.exact.choose import chosen, explained, realised_text
from placeproof.cost.exact.options import taken
from placeproof.cost.exact.predict import predict
from placeproof.measure.training.subjects import SUBJECTS, check, find, is_decoder, settle
from placeproof.profiles.profile import profile
from placeproof.strategies import parse_strategy

SMALL = """name = "small"
[[unit]]
name = "root"
parameters = { "w0" = [5, 3], "w1" = [7] }
[[unit]]
name = "units.0"
parameters = { "units.0.w0" = [7, 7], "units.0.w1" = [7], "units.0.w2" = [3, 2, 5] }
"""
DECODER = "transformer(layers=2, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def test_derive_prints_calls_memory_and_differences(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", small]) == 0
    shown = capsys.readouterr().out
    assert "all_gather      dp  forward   416  x 1" in shown
    assert "root: the root unit stays gathered" in shown
    assert 'placeproof prove "fsdp(4, root=keep, bucket=unit)"' in shown


def test_json_has_what_the_text_has(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "fsdp", "--set", "N=4", "--profile", "torch-2.13", "--shapes", small, "--rank", "3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "placeproof.exact/1"
    assert (data["mesh"], data["rank"], data["implementations"]) == ({"dp": 4}, 3, ["fsdp2"])
    assert sum(call["count"] for call in data["calls"]) == 5
    assert data["memory"]["optimizer"] == 2 * data["held"]["parameters"] + 4 * 5
    assert data["held"]["parameters"] < data["memory"]["parameters"] == data["memory"]["gradients"]
    assert [d["name"] for d in data["differences"]] == ["root", "cut"]
    assert any("used once in a pass" in text for text in data["assumes"])


def test_what_the_last_devices_allocate_is_told_beside_what_they_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five rows of 100 on four devices: two for each, so that the last one allocates 800 bytes for nothing (torch==2.13.0:
    torch/distributed/fsdp/_fully_shard/_fsdp_param.py, ``_init_sharded_param``); its optimizer state has no element."""
    (tmp_path / "one.toml").write_text('[[unit]]\nname = "root"\nparameters = { "w" = [5, 100] }\n', encoding="utf-8")
    asked = ["derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", str(tmp_path / "one.toml"), "--rank"]
    assert run([*asked, "3"]) == 0
    shown = capsys.readouterr().out
    assert "what rank 3 of 4 allocates, bytes\n  parameters  800  of which held 0; the rest is padding\n" in shown
    assert "  gradients   800  of which held 0; the rest is padding\n  optimizer     4\n" in shown
    assert run([*asked, "0"]) == 0
    assert "of which held" not in capsys.readouterr().out
    compared = ["compare", "ideal", "torch-2.13", "--of", "fsdp(4)", "--shapes", str(tmp_path / "one.toml"), "--rank", "2"]
    assert run(compared) == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if line.startswith("  parameters")] == [
        ["parameters", "500", "800"],
        ["parameters,", "held", "500", "400"],
    ]


def test_the_extras_of_ddp_are_told_as_extras(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["derive", "ddp(2)", "--profile", "torch-2.13", "--shapes", small, "--json"]
    options = ["--option", "find_unused=true", "--option", "buffer=float32:3,int64:2", "--option", "bucket_cap_mb=0.00001"]
    assert run([*asked, *options]) == 0
    told = {d["name"]: d for d in json.loads(capsys.readouterr().out)["differences"]}
    assert told["extras"]["bytes"] == {"broadcast": 12 + 16, "all_reduce": 4 * 5}
    assert told["extras"]["calls"] == {"broadcast": 2, "all_reduce": 1}
    assert told["calls"]["bytes"] == {}
    assert told["calls"]["calls"] == {"all_reduce": 3}


def test_the_program_that_is_named_is_proved(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "zero1 * tp * sp", "--profile", "torch-2.13"]) == 0
    assert "proved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("profile", "strategy", "says"),
    [
        ("ideal", "fsdp(4)", "single numbers"),
        ("torch-2.13", "fsdp(4)", "is left out"),
        ("deepspeed-0.19", "zero1(4)", "nothing that is not counted"),
        ("megatron-core", "zero1(4)", "is left out"),
    ],
)
def test_clipping_adds_what_the_profile_says_in_words(profile: str, strategy: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for text in (strategy, f"{strategy} * clip"):
        assert run(["derive", text, "--profile", profile, "--shapes", DECODER, "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    plain, clips = told
    assert [plain[key] for key in ("calls", "sent", "memory")] == [clips[key] for key in ("calls", "sent", "memory")]
    (added,) = set(clips["assumes"]) - set(plain["assumes"])
    assert says in added
    assert not any("clip" in text for text in plain["assumes"])
    assert clips["program"] == f"{plain['program']} * clip"


def test_profiles_side_by_side(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "ideal", "torch-2.13", "--of", "fsdp(4)", "--shapes", small]) == 0
    shown = capsys.readouterr().out
    assert "torch-2.13, unlike the ideal" in shown
    assert "cut: each tensor is cut by its first dimension" in shown
    assert run(["compare", "ideal", "torch-2.13", "--of", "zero1"]) == 0
    assert "2*b_g*(N - 1)/N" in capsys.readouterr().out
    assert run(["compare", "ideal", "torch-2.13", "--of", "fsdp(4)", "--shapes", small, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["profiles"]) == {"ideal", "torch-2.13"}


@pytest.mark.parametrize("seed", range(40))
def test_named_differences_lead_from_the_ideal_to_the_implementation(seed: int) -> None:
    """All changes together are the whole difference: nothing of it has no name."""
    case = random_case(seed)
    subject = SUBJECTS[case.subject]
    implementations = tuple(profile("torch-2.13").find(name) for name in subject.name.split("*"))
    strategy = parse_strategy(subject.expression(case.mesh, case.options))
    options = {name: value for name, value in case.options.items() if name in taken(implementations)}
    ideal, changes, told = explained(strategy, implementations, case.shapes, case.mesh, rank=case.rank, options=options)
    for kind in {e.kind for e in (*ideal.exchanges, *told.exchanges)}:
        before = sum(e.bytes for e in ideal.exchanges if e.kind == kind)
        after = sum(e.bytes for e in told.exchanges if e.kind == kind)
        assert before + sum(c.bytes.get(kind, 0) for c in changes) == after
    for state, amount in told.memory.items():
        assert ideal.memory[state] + sum(c.memory.get(state, 0) for c in changes) == amount
    again = predict(strategy, implementations, case.shapes, case.mesh, rank=case.rank, options=options)
    assert tally(again.exchanges) == tally(told.exchanges)


@pytest.mark.parametrize(
    ("strategy", "names", "text"),
    [
        ("fsdp(8)", ("fsdp2",), "fsdp(8, root=keep, bucket=unit)"),
        ("fsdp(reshard_after_forward=false)", ("fsdp2_keep",), "fsdp(reshard_after_forward=False, bucket=unit)"),
        ("fsdp(reshard_after_forward=2)", ("fsdp2_sub",), "fsdp(reshard_after_forward=2, bucket=unit)"),
        ("zero1", ("zero_redundancy",), "zero1(reduce=all_reduce, back=broadcast)"),
        ("hsdp * tp * sp", ("hsdp", "tp_sp"), "hsdp(root=keep, bucket=unit) * tp * sp(norms=each)"),
        ("pp * ddp", ("1f1b", "ddp"), None),
    ],
)
def test_the_usual_implementations(strategy: str, names: tuple[str, ...], text: str | None) -> None:
    composed = parse_strategy(strategy)
    found = chosen(profile("torch-2.13"), composed)
    assert {one.name for one in found} == set(names)
    if text is not None:
        assert realised_text(composed, found) == text
        assert parse_strategy(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["derive", "fsdp(4)", "--profile", "torch-2", "--shapes", "SMALL"], "there is no profile `torch-2`"),
        (["derive", "zero2(4)", "--profile", "torch-2.13", "--shapes", "SMALL"], "does not say how `zero2` is implemented"),
        (["derive", "fsdp(4)", "--profile", "torch-2.13", "--with", "ddp", "--shapes", "SMALL"], "`ddp` implements ddp"),
        (["derive", "fsdp(4)", "--with", "fsdp1"], "add `--profile torch-2.13`"),
        (["derive", "fsdp", "--profile", "torch-2.13", "--shapes", "SMALL"], "`--set N=8`"),
        (["derive", "fsdp", "--set", "N=0", "--shapes", "SMALL"], "`N` is integer >= 1"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--rank", "4"], "there is no rank 4 among 4 devices"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--latex"], "`--latex` does not go with `--shapes`"),
        (["derive", "fsdp(4)", "--rank", "1"], "`--rank` is about exact bytes"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--option", "dtype=fp8"], "option `dtype` cannot be `fp8`"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--option", "color=red"], "there is no option `color`"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--option", "find_unused=true"], "`states` takes no option `find_unused`"),
        (["derive", "ddp(4)", "--profile", "torch-2.13", "--shapes", "SMALL", "--option", "buffer=float31:2"], "cannot be `float31:2`"),
        (["derive", "ddp(4)", "--profile", "torch-2.13", "--shapes", "SMALL", "--option", "buffer=-1"], "cannot be `-1`"),
        (["derive", "ddp(4)", "--profile", "torch-2.13", "--shapes", "SMALL", "--option", "buffer=70000000"], "more than 262,144,000"),
        (["derive", "ddp(4)", "--profile", "torch-2.13", "--shapes", "SMALL", "--option", "step=0"], "a whole number of at least 1"),
        (["compare", "ideal", "torch-2.13", "--of", "ddp(2)", "--shapes", "SMALL", "--option", "k=2"], "takes no option `k`"),
        (["derive", "zero3(2) * accumulate(4)", "--shapes", "SMALL", "--option", "microbatches=2"], "has 4 micro-batches"),
        (["derive", "zero3(2)", "--shapes", "SMALL", "--option", "microbatches=2"], "has no micro-batches"),
        (["derive", "fsdp(4)", "--profile", "torch-2.13", "--with", "fsdp2_keep", "--shapes", "SMALL"], "reshard_after_forward=false"),
        (["derive", "fsdp(4, root=reshard)", "--profile", "torch-2.13", "--shapes", "SMALL"], "`--with fsdp2_all`"),
        (["derive", "pp(2, microbatches=4, schedule=zb-h1)", "--profile", "torch-2.13", "--shapes", DECODER], "schedule=zb-v"),
        (["derive", "zero2(4)", "--profile", "deepspeed-0.19", "--shapes", "SMALL", "--option", "stage3_max_reuse_distance=0"], "takes no"),
        (["measure", "hsdp(4)"], '`placeproof measure "hsdp(4)" --set N_shard=2`'),
        (["measure", "fsdp"], '`placeproof measure "fsdp" --set N=2`'),
        (["measure", "fsdp(4) * pp(2)"], '`placeproof measure "fsdp(4)"`'),
        (["measure", "zero2(2)"], "`deepspeed-0.19`"),
        (["derive", "fsdp(4)", "--shapes", "nowhere.toml"], "nowhere.toml"),
        (["derive", "fsdp(4)", "--shapes", "transformer(layers=2)"], "`hidden` is missing"),
        (["derive", "fsdp(4)", "--shapes", "transformer(layers=2, layers=3, hidden=4, heads=4)"], "`layers` is said twice"),
        (
            ["derive", "fsdp(4)", "--shapes", "transformer(layers=2, hidden=33, heads=4, ffn=1, vocab=1, batch=1, tokens=1)"],
            "do not divide",
        ),
        (["derive", "fsdp(4)", "--shapes", "transformer(layers=0, hidden=4, heads=4, ffn=1, vocab=1, batch=1, tokens=1)"], "at least 1"),
        (["derive", "tp(3)", "--shapes", DECODER], "does not divide"),
        (
            ["derive", "tp(2)", "--profile", "torch-2.13", "--shapes", "SMALL"],
            "splits the blocks of the model, and small does not name them",
        ),
        (["derive", "pp(2, microbatches=4)", "--shapes", "SMALL"], "small does not say its batch, tokens, hidden"),
        (["derive", "zero3(2) * accumulate", "--shapes", "SMALL"], "need the number of micro-batches"),
        (
            ["derive", "fsdp(2) * accumulate(4)", "--profile", "torch-2.13", "--shapes", "SMALL"],
            "exact bytes need to know which",
        ),
        (["derive", "accumulate(2)", "--profile", "torch-2.13", "--shapes", "SMALL"], "no implementation runs `accumulate(2)` by itself"),
        (["derive", "clip", "--profile", "torch-2.13", "--shapes", "SMALL"], "no implementation runs `clip` by itself"),
        (["derive", "fsdp(2) * pp(2)", "--profile", "torch-2.13", "--shapes", DECODER], "together with `1f1b` was not measured"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--python"], "`--python` does not go with `--shapes`"),
        (["derive", "fsdp(4)", "--shapes", "SMALL", "--groups", "--latex"], "`--latex` does not go with `--shapes`"),
        (["compare", "ideal", "torch-2.13", "--of", "fsdp(4)", "--world", "8"], "`--world` goes with a configuration"),
        (["measure", "zero2(2)", "--profile", "deepspeed-0.19", "--rank", "1"], "`--rank` is of the profile torch-2.13 alone"),
        (["measure", "zero2(2)", "--profile", "deepspeed-0.19", "--backend", "fake"], "`--backend` is of the profile torch-2.13 alone"),
        (["compare", "ideal", "torch-2.13"], "`placeproof compare ideal torch-2.13 --of fsdp`"),
        (["compare", "ideal", "--of", "fsdp"], "needs two profiles"),
        (["compare", "fsdp", "ddp", "--shapes", "SMALL"], "`--shapes` compares profiles"),
    ],
)
def test_bad_input_gets_one_clear_error(arguments: list[str], says: str, small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([small if a == "SMALL" else a for a in arguments]) == 2
    shown = capsys.readouterr().err
    assert says in shown
    assert "Traceback" not in shown


def test_activations_are_not_told_where_forward_is_computed_again(capsys: pytest.CaptureFixture[str]) -> None:
    for expression, told in (("zero3(2)", True), ("zero3(2) * checkpoint", False)):
        assert run(["derive", expression, "--shapes", DECODER, "--json"]) == 0
        assert ("activations" in json.loads(capsys.readouterr().out)["memory"]) is told


def test_widths_of_a_comparison_are_those_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "ideal", "torch-2.13", "--of", "zero1", "--precision", "fp32-adam"]) == 0
    assert "fp32-adam" in capsys.readouterr().out


def test_a_split_that_does_not_divide_is_refused_before_anything_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "fsdp(2) * tp(3)", "--profile", "torch-2.13", "--shapes", DECODER]) == 2
    assert "3" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: nothing can be measured")
def test_measure_prints_both_sides(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", "fsdp(4)", "--shapes", small]) == 0
    shown = capsys.readouterr().out
    assert "equal: every call and every byte was predicted" in shown
    assert run(["measure", "ddp(2)", "--shapes", small, "--backend", "gloo", "--json"]) == 0
    data: Any = json.loads(capsys.readouterr().out)
    assert data["equal"] is True
    assert all(call["predicted"] == call["measured"] for call in data["calls"])
    assert run(["measure", "pp(4, microbatches=8)"]) == 0
    assert "equal" in capsys.readouterr().out
    assert run(["measure", "fsdp(4)", "--shapes", small, "--rank", "3"]) == 0
    assert "parameters, held" in capsys.readouterr().out
    assert run(["measure", "fsdp * zero1(dp=dp2)", "--set", "N_dp=2", "--set", "N_dp2=2"]) == 2
    assert "cannot be measured" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_measure_without_torch_says_what_to_install(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", "fsdp(4)", "--shapes", small]) == 2
    assert "torch is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["zero2(2)", "--profile", "ideal"], "profile `ideal` cannot be measured"),
        (["zero2(2)", "--profile", "deepspeed-0.19"], "placeproof[deepspeed]"),
        (["zero1(2)", "--profile", "megatron-core"], "placeproof[megatron]"),
    ],
)
def test_what_cannot_be_measured_says_why(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("deepspeed") is not None or importlib.util.find_spec("megatron") is not None:
        pytest.skip("the systems are installed")
    assert run(["measure", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_system_runs_some_strategies_alone() -> None:
    from placeproof.measure.systems.run import _deepspeed, _megatron

    shapes = random_case(1).shapes
    with pytest.raises(InputError, match="one stage on `dp`"):
        _deepspeed(parse_strategy("zero2 * tp"), shapes, {"dp": 2, "tp": 2}, {})
    with pytest.raises(InputError, match="ddp or zero1"):
        _megatron(parse_strategy("fsdp"), shapes, {"dp": 2}, {})
    assert _deepspeed(parse_strategy("zero2"), shapes, {"dp": 2}, {}).options["stage"] == 2


def test_recorded_rows_name_their_torch() -> None:
    assert {r["torch"] for r in rows()} == {"2.13.0+cpu"}


def test_what_transformer_makes_is_a_decoder_and_nothing_else() -> None:
    shapes = transformer(layers=1, hidden=8, heads=2, ffn=16, vocab=8, batch=1, tokens=4)
    assert is_decoder(shapes)
    assert not is_decoder(replace(shapes, units=shapes.units[1:]))
    assert not is_decoder(replace(shapes, dims=()))


@pytest.mark.parametrize(
    ("name", "degree", "layers", "microbatches", "said"),
    [
        ("gpipe", 2, 2, 1, ""),
        ("gpipe", 1, 2, 1, "a pipeline of one device exchanges nothing"),
        ("gpipe", 3, 3, 1, ""),
        ("gpipe", 3, 2, 1, "2 units do not fill 3 stages"),
        ("zbv", 2, 4, 1, ""),
        ("zbv", 2, 3, 1, "3 units do not fill 4 stages"),
        ("1f1b", 3, 3, 3, ""),
        ("1f1b", 3, 3, 2, "needs a micro-batch for each of its 3 stages, not 2"),
        ("dualpipev", 2, 4, 4, ""),
        ("dualpipev", 2, 4, 3, "needs a micro-batch for each of its 4 stages, not 3"),
        ("interleaved", 3, 6, 5, ""),
        ("interleaved", 3, 6, 6, ""),
        ("interleaved", 3, 6, 7, "cannot divide 7 micro-batches into 2 rounds"),
        ("zb1p", 2, 4, 1, ""),
        ("zb1p", 2, 4, 5, "cannot divide 5 micro-batches into 2 rounds"),
    ],
)
def test_a_pipeline_runs_up_to_its_bounds_and_not_beyond(name: str, degree: int, layers: int, microbatches: int, said: str) -> None:
    shapes = transformer(layers=layers, hidden=8, heads=2, ffn=16, vocab=8, batch=1, tokens=4)
    subject, mesh = find(name), {"pp": degree}
    options = settle(subject, mesh, {"microbatches": microbatches})
    if not said:
        check(subject, shapes, mesh, options)
        return
    with pytest.raises(InputError, match=said) as caught:
        check(subject, shapes, mesh, options)
    assert len(caught.value.diagnostics) == 1
