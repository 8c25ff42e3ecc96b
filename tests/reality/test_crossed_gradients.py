"""Gradients that go back to another micro-batch of a pipeline refute it, and others that none made; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from crossed_scripts import CROSSED, HANDED, STRAIGHT

from placeproof.cli.main import run
from placeproof.measure.record.crossed import crossed
from placeproof.measure.record.handed import handed
from placeproof.measure.record.launch import Launch, beyond_step, forked
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.witness import Witness


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def found(text: str, folder: Path, kind: Callable[[Mapping[int, Recording], int], Witness | None] = crossed) -> Witness | None:
    """What is said of a script."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return kind(forked(Launch(script=path, world=2, timeout=60), beyond_step), 1)


def either(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """What one of both kinds says."""
    return crossed(recordings, step) or handed(recordings, step)


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
        "signs",
        "ones in a pass of other samples that is thrown away",
    ],
)
def test_gradients_that_go_back_where_they_belong_or_are_others_on_purpose_are_none(name: str, tmp_path: Path) -> None:
    assert found(STRAIGHT[name], tmp_path, either) is None


@pytest.mark.parametrize(("name", "instead"), [("one number in all places", "one number"), ("a buffer that keeps what it had", "the sum")])
def test_a_gradient_that_no_stage_made_of_the_micro_batch_is_a_witness(name: str, instead: str, tmp_path: Path) -> None:
    witness = found(HANDED[name], tmp_path, handed)
    assert witness is not None
    assert str(witness.numbers["instead"]).startswith(instead)
    assert witness.numbers["made"] != witness.numbers["begun"]
    assert "backward(" in witness.source[witness.line - 1]


def test_a_pipeline_whose_gradients_are_crossed_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(CROSSED["two of them"], encoding="utf-8")
    assert run(["trace", "record", str(path), "--world", "2", "-o", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "gradient integrity")
    assert (said["counterexample"]["pass"], said["counterexample"]["of"]) == (1, 2)
