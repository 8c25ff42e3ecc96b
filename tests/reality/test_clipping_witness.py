"""Clipping that no one device does refutes a script that real processes run; rules that one device may have do not.

``nightly/clipping.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from clipping_scripts import LIKE_NONE, found, script

from placeproof.cli.main import run

#: Of each kind some; where they clip, what they are said to be.
NONE = {
    "owners by PyTorch's norm of their own": "alike with any number of ranks",
    "what was reduced to others": "of gradients of the step",
    "what others have reduced in a buffer": "reduced, or of such as are not",
    "mean of norms of shards": "where tensors are cut",
    "a part as if it were a copy": "all elements of a parameter",
    "each micro-batch, the last after ranks add up": "what each rank has made, or what all have",
    "copies, that one rank does not add to its norm": "ranks 0 and 1 clip `norm.weight` alike",
    "scaled": "the scale of a GradScaler",
}
ONE = (
    "owners, each parameter that has to be",
    "owners of layers, each by its norm",
    "reduced to owners, others are zero",
    "shards, a norm of all on each, averaged",
    "four ranks, parts that two of them have",
    "copies on the first rank alone, which sends them",
    "each micro-batch by itself, on each rank",
    "scaled, to a bound that is",
)


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


@pytest.mark.parametrize("name", NONE)
def test_clipping_that_no_one_device_does_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = found(name, tmp_path)
    assert witness is not None
    assert NONE[name] in witness.claim
    line = witness.source[witness.line - 1]
    assert "clip_grad_norm_" in line or "mul_" in line


@pytest.mark.parametrize("name", ONE)
def test_clipping_by_rules_that_one_device_may_have_is_none(name: str, tmp_path: Path) -> None:
    assert found(name, tmp_path) is None


def test_a_script_that_clips_as_no_one_device_does_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(script(LIKE_NONE["what was reduced to others, on one rank"]), encoding="utf-8")
    assert run(["trace", "record", str(path), "-o", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "gradient integrity")
    witness = said["counterexample"]
    assert (witness["rank"], witness["root"]) == (0, 1)
    assert witness["factor"] == pytest.approx(0.05 / witness["norm"], rel=1e-4)
    assert said["reasons"]
