"""Gradients that go back to another micro-batch of a pipeline refute it; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from crossed_scripts import CROSSED, STRAIGHT

from placeproof.cli.main import run
from placeproof.measure.record.crossed import crossed
from placeproof.measure.record.launch import Launch, beyond_step, forked
from placeproof.measure.record.witness import Witness


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def found(text: str, folder: Path) -> Witness | None:
    """What is said of a script."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return crossed(forked(Launch(script=path, world=2, timeout=60), beyond_step), 1)


@pytest.mark.parametrize(
    ("name", "turn", "source"),
    [("the last one first", 1, 4), ("around by one", 1, 4), ("two of them", 1, 2), ("all in one tensor, in reverse", 1, 4)],
)
def test_a_gradient_of_another_micro_batch_is_a_witness(name: str, turn: int, source: int, tmp_path: Path) -> None:
    witness = found(CROSSED[name], tmp_path)
    assert witness is not None
    assert [witness.numbers[key] for key in ("rank", "pass", "of")] == [0, turn, source]
    assert witness.numbers["largest"] != witness.numbers["largest_begun"]
    assert "backward(" in witness.source[witness.line - 1]


@pytest.mark.parametrize(
    "name",
    [
        "both from the last one",
        "sent in another order than made",
        "late by one on purpose",
        "the same samples twice",
        "crossed in a pass of other samples that is thrown away",
        "a loss over pairs of micro-batches",
    ],
)
def test_gradients_that_go_back_where_they_belong_or_are_others_on_purpose_are_none(name: str, tmp_path: Path) -> None:
    assert found(STRAIGHT[name], tmp_path) is None


def test_a_pipeline_whose_gradients_are_crossed_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(CROSSED["two of them"], encoding="utf-8")
    assert run(["trace", "record", str(path), "--world", "2", "-o", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "gradient integrity")
    assert (said["counterexample"]["pass"], said["counterexample"]["of"]) == (1, 2)
