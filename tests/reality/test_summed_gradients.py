"""Ranks that split layers, and go back with other gradients of what they add up, refute a script; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from summed_scripts import SUMMED, WHOLE, script

from placeproof.cli.main import run
from placeproof.measure.record.launch import Launch, beyond_step, forked
from placeproof.measure.record.summed import summed
from placeproof.measure.record.witness import Witness

#: Of each kind some.
DIFFER = (
    "samples by rank, in distributed tensors",
    "what blocks are given is reduced while weights are trained, and samples are by rank",
)
ALIKE = (
    "dropout by rank within blocks",
    "a task on each rank, gradients added up by a hook",
    "a sum whose gradients are added up before it, a task on each rank",
    "players with costs of their own, who add up what they do",
)


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def found(body: str, folder: Path) -> Witness | None:
    """What is said of a script."""
    path = folder / "train.py"
    path.write_text(script(body), encoding="utf-8")
    return summed(forked(Launch(script=path, world=2, timeout=60), beyond_step), 1)


@pytest.mark.parametrize("name", DIFFER)
def test_other_gradients_of_one_sum_are_a_witness(name: str, tmp_path: Path) -> None:
    witness = found(SUMMED[name], tmp_path)
    assert witness is not None
    gradient = witness.numbers["gradient"]
    assert isinstance(gradient, dict)
    assert gradient["0"] != gradient["1"]
    assert "model" in witness.source[witness.line - 1] or "added(" in witness.source[witness.line - 1]


@pytest.mark.parametrize("name", ALIKE)
def test_gradients_that_are_one_or_meant_to_differ_are_none(name: str, tmp_path: Path) -> None:
    assert found(WHOLE[name], tmp_path) is None


def test_a_script_whose_ranks_drop_other_activations_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(script(SUMMED["dropout by rank after blocks"]), encoding="utf-8")
    assert run(["trace", "record", str(path), "-o", str(out), "--world", "2", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "gradient integrity")
    assert said["counterexample"]["parameter"].endswith("down.weight")
