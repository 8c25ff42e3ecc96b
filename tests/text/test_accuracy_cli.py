"""``placeproof accuracy``, and ``--implementation``: what is printed, and what wrong names get."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from placeproof.answers.accuracy import accuracy, terms_left_out
from placeproof.cli.main import run
from placeproof.cost.accuracy import step_accuracy
from placeproof.cost.model.terms import TERMS
from placeproof.runs import RunSet, named


def test_the_table_has_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "b200"]) == 0
    text = capsys.readouterr().out
    for one in named("b200").runs:
        assert one.strategy in text
    assert "reserved" in text
    assert "how long a step takes" in text
    assert "errors:" in text


def test_data_has_what_the_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "b200", "--without", "swiglu", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "placeproof.accuracy/1"
    assert data["without"] == ["swiglu"]
    for row, one in zip(data["rows"], named("b200").runs, strict=True):
        assert row["strategy"] == one.strategy
        assert row["tensors"]["measured"] == float(one.tensors or 0)
        assert {step["m"]: step["measured"] for step in row["steps"]} == {m: float(s) for m, s in one.steps.items()}
        assert row["tensors"]["error"] == pytest.approx(row["tensors"]["derived"] / row["tensors"]["measured"] - 1)


def some_of(name: str, count: int) -> RunSet:
    return replace(named(name), runs=named(name).runs[:count])


def test_a_long_set_shows_groups_and_its_rows_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placeproof.report.accuracy.MOST_ROWS", 4)
    of = some_of("a100-large", 5)
    short, long = (str(accuracy(of, rows=rows)) for rows in (False, True))
    for text in (short, long):
        assert "how plans are ranked" in text
        assert "Spearman: 1.000 on average" in text
        assert "regret: 0.00 % on average" in text
    assert "5 steps; `--rows` shows them" in short
    assert "ddp(64) * accumulate" not in short
    assert long.count("ddp(64) * accumulate") == 3


def test_each_term_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """What the table says of one is what the set says without it; JSON has the same."""
    found = terms_left_out(some_of("a100-large", 4))
    table, data = str(found), found.document.data()
    assert [row["without"] for row in data["times"]] == [[], *([name] for name in TERMS)]
    for row in data["times"][:3]:
        own = step_accuracy(accuracy(some_of("a100-large", 4), row["without"]).predictions)
        assert own is not None
        assert (row["error"]["mean"], row["regret"]["worst"]) == (own.error, own.regrets and own.regrets[2])
        assert row["rank_correlation"]["mean"] == own.plans[0].rank_correlation
        assert row["groups"][0]["plans"] == row["steps"] == 4
        assert f"{100 * float(own.error):.2f} %" in table
    assert all(f"left out: {one.left_out}" in table for one in TERMS.values())
    assert run(["list", "terms"]) == 0
    assert all(one.text in capsys.readouterr().out for one in list(TERMS.values())[:1])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["accuracy", "b20"], "did you mean `b200`?"),
        (["accuracy", "b200", "--without", "swigl"], "did you mean `swiglu`?"),
        (["accuracy", "b200", "--without", "all", "--without", "swiglu"], "`all` leaves out all of them"),
        (["accuracy", "b200", "--without", "bubbel"], "did you mean `bubble`?"),
        (["accuracy", "bloom", "--without", "bubble"], "has no difference `bubble`"),
        (["accuracy", "a100-small", "--without", "swiglu"], "terms of a step's time are rate"),
        (["accuracy", "mist-l4", "--without", "bubble"], "nothing is derived"),
        (["accuracy", "mist-l4", "--each"], "no step of `mist-l4` was measured"),
        (["accuracy", "b200", "--each", "--rows"], "leave `--without` and `--rows` out"),
        (["derive", "fsdp", "--implementation", "megatron-te-2.11"], "options that speak of a model need one"),
        (["derive", "fsdp", "--model", "llama3-8b", "--implementation", "megatron-te-2.1"], "did you mean `megatron-te-2.11`"),
        (["derive", "fsdp", "--model", "llama3-8b", "--implementation", "none.toml"], "none.toml"),
    ],
)
def test_wrong_names(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert says in capsys.readouterr().err


def test_the_answer_names_differences_and_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["derive", "zero1(2) * tp(2) * sp", "--model", "gpt-oss-20b", "--set", "b=1", "--implementation", "megatron-te-2.11"]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "nothing is known of `attention_flash_sinks`" in text
    assert "measured runs" in text
    assert "in a pass, backward of" in text
    assert run([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["implementation"]["name"] == "megatron-te-2.11"
    assert data["implementation"]["as_their_programs_say"] == ["attention_flash_sinks"]
    assert data["implementation"]["moments"]["all layers"]["pass"] == "backward"
    assert data["stages"][0]["memory"]["beside"]["value"] > 0
