"""Updates that are lost while real processes run a script refute it; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from copies_scripts import script
from lost_scripts import LEFT, LOST

from placeproof.cli.main import run
from placeproof.measure.record.launch import Launch, beyond_step, forked
from placeproof.measure.record.lost import lost
from placeproof.measure.record.witness import Witness

#: Of each kind some.
SAMPLE = {
    "lost": ("sent by the neighbour, one step", "the neighbour's copy is taken", "rank 1 updates, and rank 0 sends"),
    "left": (
        "rank 0 goes back after owners have sent, one step",
        "rank 1, that owns half, sends what it has from before",
        "each saves what it has trained",
        "one after the other",
        "dropout of the same samples",
    ),
}


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def found(body: str, folder: Path) -> Witness | None:
    """What is said of a script."""
    path = folder / "train.py"
    path.write_text(script(body), encoding="utf-8")
    return lost(forked(Launch(script=path, world=2, timeout=60), beyond_step), 1)


@pytest.mark.parametrize("name", SAMPLE["lost"])
def test_an_update_that_no_rank_has_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = found(LOST[name], tmp_path)
    assert witness is not None
    made = witness.numbers["made"]
    assert isinstance(made, dict)
    assert witness.condition == "state consistency"
    assert witness.numbers["after"] == witness.numbers["before"]
    assert witness.numbers["before"] not in made.values()
    assert (witness.numbers["read"] == "end") == ("one step" in name)
    assert any(word in witness.source[witness.line - 1] for word in ("broadcast", "all_gather"))


@pytest.mark.parametrize("name", SAMPLE["left"])
def test_what_is_taken_back_or_read_is_none(name: str, tmp_path: Path) -> None:
    assert found(LEFT[name], tmp_path) is None


def test_a_rank_that_trains_for_nothing_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(script(LOST["gradients of rank 1 alone"]), encoding="utf-8")
    assert run(["trace", "record", str(path), "-o", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "gradient integrity")
    witness = said["counterexample"]
    assert witness["sent_by"] == 1
    assert len({witness["before"], witness["made"]["0"], witness["after"]}) == 3
