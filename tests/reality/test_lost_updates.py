"""Updates that are lost while real processes run a script refute it, passes that are dropped, optimizers that train nothing, and
parts in the wrong places; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from copies_scripts import script
from dropped_scripts import COUNTED, DROPPED
from lost_scripts import LEFT, LOST
from misplaced_scripts import MISPLACED, PLACED, STRAIGHT_ON, STRAYED
from untrained_scripts import TRAINED, UNTRAINED

from placeproof.cli.main import run
from placeproof.measure.record.dropped import dropped
from placeproof.measure.record.launch import Launch, beyond_step, forked
from placeproof.measure.record.lost import lost
from placeproof.measure.record.misplaced import misplaced
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.strayed import strayed
from placeproof.measure.record.untrained import untrained

#: Of each kind some.
SAMPLE = {
    "lost": ("sent by the neighbour, one step", "the neighbour's copy is taken", "rank 1 updates, and rank 0 sends"),
    "left": (
        "rank 0 goes back after owners have sent, one step",
        "rank 1, that owns half, sends what it has from before",
        "each saves what it has trained",
        "one of all, that is drawn",
        "dropout of the same samples",
    ),
    "dropped": ("the first pass is kept", "zero with each pass, one step, averaged by DDP"),
    "counted": ("passes of a large loss are left out", "warming up", "gradients are kept, and looked at", "a layer for each pass"),
}


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def ran(body: str, folder: Path) -> dict[int, Recording]:
    """What ranks have kept of a script."""
    path = folder / "train.py"
    path.write_text(script(body), encoding="utf-8")
    return forked(Launch(script=path, world=2, timeout=60), beyond_step)


@pytest.mark.parametrize("name", SAMPLE["lost"])
def test_an_update_that_no_rank_has_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = lost(ran(LOST[name], tmp_path), 1)
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
    assert lost(ran(LEFT[name], tmp_path), 1) is None


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


@pytest.mark.parametrize("name", SAMPLE["dropped"])
def test_a_pass_that_no_update_reads_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = dropped(ran(DROPPED[name], tmp_path), 1)
    assert witness is not None
    assert witness.numbers["dropped"] == ([2, 3, 4] if "first" in name else [1, 2, 3])
    gradients = witness.numbers["gradients"]
    assert isinstance(gradients, list)
    assert len({*gradients}) == 4
    assert "backward()" in witness.source[witness.line - 1]


@pytest.mark.parametrize("name", SAMPLE["counted"])
def test_a_pass_that_counts_or_that_a_script_looks_at_is_none(name: str, tmp_path: Path) -> None:
    assert dropped(ran(COUNTED[name], tmp_path), 1) is None


@pytest.mark.parametrize("name", ["a copy under DDP", "FSDP after the optimizer, one step"])
def test_an_optimizer_that_has_nothing_of_the_model_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = untrained(ran(UNTRAINED[name], tmp_path), 1)
    assert witness is not None
    assert witness.numbers["unchanged"] == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert "step()" in witness.source[witness.line - 1]


@pytest.mark.parametrize("name", ["twins, of which the other one waits", "gradients of a copy", "updates by hand"])
def test_an_optimizer_that_waits_or_gets_its_gradients_later_is_none(name: str, tmp_path: Path) -> None:
    assert untrained(ran(TRAINED[name], tmp_path), 1) is None


@pytest.mark.parametrize("name", ["reversed, one step", "the part of the neighbour is updated"])
def test_an_element_that_gets_the_value_of_another_one_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = misplaced(ran(MISPLACED[name], tmp_path), 1)
    assert witness is not None
    before, taken, after = (witness.numbers[key] for key in ("before", "before_taken", "after"))
    assert isinstance(before, float)
    assert isinstance(taken, float)
    assert after == pytest.approx(taken, abs=0.05)
    assert after != pytest.approx(before, abs=0.1)


@pytest.mark.parametrize("name", ["cut and put together in reverse", "halves of the model that are swapped"])
def test_an_element_that_stays_or_moves_with_its_layer_is_none(name: str, tmp_path: Path) -> None:
    assert misplaced(ran(PLACED[name], tmp_path), 1) is None


@pytest.mark.parametrize("name", ["what comes of a reduce-scatter is not read", "columns of all in a row, one step"])
def test_elements_that_are_trained_with_gradients_of_others_are_a_witness(name: str, tmp_path: Path) -> None:
    recordings = ran(STRAYED[name], tmp_path)
    witness = strayed(recordings, 1)
    assert witness is not None
    assert witness.condition == "gradient integrity"
    gradients = witness.numbers["gradients"]
    assert isinstance(gradients, list)
    assert len({*gradients}) == 2
    assert misplaced(recordings, 1) is None


@pytest.mark.parametrize("name", ["rows of one layer, each with a rank's samples", "neighbours smoothed"])
def test_elements_with_their_own_gradients_are_none(name: str, tmp_path: Path) -> None:
    assert strayed(ran(STRAIGHT_ON[name], tmp_path), 1) is None
