"""``placeproof accuracy``, and ``--implementation``: what is printed, and what wrong names get."""

from __future__ import annotations

import json

import pytest

from placeproof.cli.main import run
from placeproof.runs import named


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["accuracy", "b20"], "did you mean `b200`?"),
        (["accuracy", "b200", "--without", "swigl"], "did you mean `swiglu`?"),
        (["accuracy", "b200", "--without", "all", "--without", "swiglu"], "`all` alone leaves out all of them"),
        (["derive", "fsdp", "--implementation", "megatron-te-2.11"], "options that speak of a model need one"),
        (["derive", "fsdp", "--model", "llama3-8b", "--implementation", "megatron-te-2.1"], "did you mean `megatron-te-2.11`"),
        (["derive", "fsdp", "--model", "llama3-8b", "--implementation", "none.toml"], "none.toml"),
    ],
)
def test_wrong_names(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert says in capsys.readouterr().err


def test_the_answer_names_differences_and_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["derive", "zero1(2) * tp(2) * sp", "--model", "mixtral-8x7b", "--set", "b=1", "--implementation", "megatron-te-2.11"]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "nothing is known of `moe`" in text
    assert "measured runs" in text
    assert "in a pass, backward of" in text
    assert run([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["implementation"]["name"] == "megatron-te-2.11"
    assert data["implementation"]["as_their_programs_say"] == ["moe"]
    assert data["implementation"]["moments"]["the only stage"]["pass"] == "backward"
    assert data["stages"][0]["memory"]["beside"]["value"] > 0
