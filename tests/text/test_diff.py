"""`placeproof diff` against what other commands say of each side by itself, and against revisions of a real repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import placeproof
from placeproof.cli.main import run

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "diff.schema.json").read_text(encoding="utf-8"))
SUMMED = "all_reduce(backward(parameters), dp)"
RIGHT = f"mesh(dp)\ngradients = scale({SUMMED}, 1 / dp)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
WRONG = RIGHT.replace(f"scale({SUMMED}, 1 / dp)", SUMMED)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("right.step").write_text(RIGHT)
    Path("wrong.step").write_text(WRONG)


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["diff", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("right.step", "wrong.step", 1), ("wrong.step", "right.step", 0), ("wrong.step", "wrong.step", 0), ("ddp", "zero3", 0)],
)
def test_the_exit_code_says_whether_a_verdict_became_worse(old: str, new: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, old, new, code=code)
    assert found["worse"] is bool(code)
    assert [found[side]["verdict"] for side in ("old", "new")] == [placeproof.judge(side).word for side in (old, new)]
    assert bool(found["new"]["broken"]) is (new == "wrong.step")


def test_formulas_are_those_of_each_side(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["figure"]: row for row in data(capsys, "zero1(8)", "zero3(8)", "--set", "P=7e9")["costs"]}
    old, new = placeproof.derive("zero1(8)", P="7e9"), placeproof.derive("zero3(8)", P="7e9")
    assert found["memory.model_states"]["formulas"] == [str(d.memory["model_states"]) for d in (old, new)]
    assert found["traffic.sent_per_device"]["values"] == [24500000000, 36750000000]
    assert found["memory.model_states"]["changed"]
    same = data(capsys, "zero1(8)", "zero1(8) * clip")["costs"]
    assert {row["figure"]: row["changed"] for row in same}["memory.model_states"] is False


def test_of_a_model_numbers_and_whether_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--set", "b=2"]
    found = data(capsys, "fsdp(8) * checkpoint", "fsdp(8)", *asked, code=1)
    steps = [placeproof.model(text, "llama3-8b", b=2).time("dgx-h100").data for text in ("fsdp(8) * checkpoint", "fsdp(8)")]
    assert found["fits"] == [step["stages"][0]["fits"] for step in steps] == [True, False]
    rows = {row["figure"]: row["values"] for row in found["costs"]}
    assert rows["peak"] == [step["stages"][0]["peak"] for step in steps]
    assert rows["seconds of a step"] == pytest.approx([step["seconds"]["step"] for step in steps])
    assert run(["diff", "fsdp(8)", "fsdp(8) * checkpoint", *asked]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def git(*arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)


def test_revisions_of_a_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    Path("steps").mkdir()
    Path("steps/ours.step").write_text(RIGHT)
    Path("ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": 1}}))
    git("add", ".")
    git("commit", "-qm", "one")
    Path("steps/ours.step").write_text(WRONG)
    Path("ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}))
    assert data(capsys, "HEAD:steps/ours.step", "steps/ours.step", code=1)["old"] == {
        "subject": "HEAD:steps/ours.step",
        "verdict": "proved",
        "broken": "",
    }
    stages = {row["figure"]: row for row in data(capsys, "HEAD:ds_config.json", "ds_config.json", "--world", "8")["costs"]}
    assert stages["memory.model_states"]["changed"]
    monkeypatch.chdir("steps")  # paths are those of the current folder
    assert data(capsys, "HEAD:ours.step", "ours.step", code=1)["worse"]


def test_revisions_that_are_not_there_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    git("init", "-q")
    for text in ("HEAD:right.step", "nowhere:right.step", "--output=made:right.step"):
        assert run(["diff", "--", text, "right.step"]) == 2
        assert f"git has no `{text}`" in capsys.readouterr().err
    assert not Path("made").exists()


def test_markdown_is_for_a_pull_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "right.step", "wrong.step", "--markdown"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("# worse: proved before, refuted now\n")
    assert "-gradients = scale(all_reduce(backward(parameters), dp), 1 / dp)" in shown
    assert run(["diff", "ddp", "zero1", "--markdown", "--json"]) == 2
