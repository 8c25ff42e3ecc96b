"""Gradients that go back to another micro-batch of a pipeline refute it, and others that none made, micro-batches that are overwritten, and
passes that are dropped; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from crossed_scripts import CLEARED, CROSSED, HANDED, OVERWRITTEN, STRAIGHT, UNSENT

from placeproof.cli.main import run
from placeproof.measure.record.crossed import crossed
from placeproof.measure.record.dropped import dropped
from placeproof.measure.record.handed import handed
from placeproof.measure.record.launch import Launch, beyond_step, forked, received_once
from placeproof.measure.record.overwritten import overwritten
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
    """What any kind says that needs no second run."""
    return crossed(recordings, step) or handed(recordings, step) or dropped(recordings, step)


def clobbered(text: str, folder: Path) -> Witness | None:
    """What is said of a script that is run again with copies of what it has received."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    launch = Launch(script=path, world=2, timeout=60)
    return overwritten(forked(launch, beyond_step), 1, lambda: forked(launch, received_once))


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
        "late by one, and the first one again",
        "passes of a large loss are left out",
        "a micro-batch for each stage",
        "sums of passes by hand",
        "functions that send, and make no gradient of what they are given",
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


def test_a_pass_of_what_is_never_sent_is_a_witness(tmp_path: Path) -> None:
    witness = found(UNSENT["one is sent twice, and the last one never"], tmp_path)
    assert witness is not None
    assert [witness.numbers[key] for key in ("rank", "pass", "of", "largest")] == [0, 4, 3, 0.0]
    assert witness.numbers["largest_begun"] != 0
    assert "backward(" in witness.source[witness.line - 1]


def test_passes_that_all_stages_drop_are_a_witness(tmp_path: Path) -> None:
    witness = found(CLEARED["zero before each pass, with AdamW"], tmp_path, dropped)
    assert witness is not None
    assert witness.numbers["dropped"] == [1, 2, 3]
    assert "backward(" in witness.source[witness.line - 1]


@pytest.mark.parametrize(("name", "turn", "by"), [("one tensor for all", 1, 4), ("two tensors in turn", 1, 3)])
def test_a_micro_batch_that_another_one_overwrites_is_a_witness(name: str, turn: int, by: int, tmp_path: Path) -> None:
    witness = clobbered(OVERWRITTEN[name], tmp_path)
    assert witness is not None
    assert [witness.numbers[key] for key in ("rank", "pass", "overwritten_by")] == [1, turn, by]
    assert witness.numbers["made"] != witness.numbers["derivative"]
    assert witness.numbers["derivative"] == pytest.approx(_derivative(witness), rel=1e-4)
    assert "backward(" in witness.source[witness.line - 1]


def _derivative(witness: Witness) -> float:
    """Of the loss of the first micro-batch, by one process."""
    import torch
    from torch import nn

    stages = []
    for rank in range(2):
        torch.manual_seed(rank)
        stages.append(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
    g = torch.Generator().manual_seed(7)
    xs, ys = torch.randn(4, 2, 6, generator=g), torch.randn(4, 2, 6, generator=g)
    (nn.functional.mse_loss(nn.Sequential(*stages)(xs[0]), ys[0]) / 4).backward()
    gradient = dict(stages[1].named_parameters())[str(witness.numbers["parameter"])].grad
    element = witness.numbers["element"]
    assert gradient is not None
    assert isinstance(element, list)
    return float(gradient[tuple(element)])


@pytest.mark.parametrize("name", ["one tensor for all, that backward does not read", "one tensor for all in a pass that is thrown away"])
def test_a_micro_batch_that_is_overwritten_unread_is_none(name: str, tmp_path: Path) -> None:
    assert clobbered(STRAIGHT[name], tmp_path) is None


def test_a_pipeline_whose_gradients_are_crossed_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(CROSSED["two of them"], encoding="utf-8")
    assert run(["trace", "record", str(path), "--world", "2", "-o", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "gradient integrity")
    assert (said["counterexample"]["pass"], said["counterexample"]["of"]) == (1, 2)
