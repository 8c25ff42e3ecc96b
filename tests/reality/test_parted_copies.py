"""Copies that part while real processes run a script refute it; what only looks like it does not.

``nightly/copies.py`` runs all scripts of this kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from copies_scripts import KEPT, PARTED, script

from placeproof.cli.main import run
from placeproof.measure.record.launch import Launch, beyond_step, forked
from placeproof.measure.record.parted import parted
from placeproof.measure.record.witness import Witness

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "traces.md"
#: Of each kind some.
SAMPLE = {
    "parted": (
        "update on rank 0, one step",
        "another product on rank 1",
        "owners send half",
        "rates by rank",
        "a second step of an optimizer with a rank's own gradient",
    ),
    "kept": (
        "owners send as layers are run",
        "an update with a rank's own gradient, and a second one with that of all",
        "a server that updates, and other numbers of micro-batches",
        "layers in parts that begin alike",
        "weights that are moved for one pass",
        "sums in an order of each rank's own",
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
    return parted(forked(Launch(script=path, world=2, timeout=60), beyond_step), 1)


@pytest.mark.parametrize("name", SAMPLE["parted"])
def test_copies_that_part_are_a_witness(name: str, tmp_path: Path) -> None:
    witness = found(PARTED[name], tmp_path)
    assert witness is not None
    after = witness.numbers["after"]
    assert isinstance(after, dict)
    assert after.keys() == {"0", "1"}
    assert after["0"] != after["1"]
    assert (witness.numbers["read"] == "end") == ("one step" in name)
    assert "step()" in witness.source[witness.line - 1]


@pytest.mark.parametrize("name", SAMPLE["kept"])
def test_copies_that_agree_when_they_are_read_are_none(name: str, tmp_path: Path) -> None:
    assert found(KEPT[name], tmp_path) is None


def test_a_script_whose_copies_part_is_refuted_and_no_program_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "train.py", tmp_path / "train.step"
    path.write_text(script(PARTED["rates by hand"]), encoding="utf-8")
    assert run(["trace", "record", str(path), "-o", str(out), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert (said["verdict"], said["condition"]) == ("refuted", "state consistency")
    witness = said["counterexample"]
    assert witness["read"] == "forward"
    begin, (first, second) = witness["before"], witness["after"].values()
    assert second - begin == pytest.approx(2 * (first - begin), rel=1e-4)  # rank 1 has twice the rate
    assert "p -= 0.1 * (1 + rank) * p.grad" in path.read_text(encoding="utf-8").splitlines()[witness["updated"]["1"] - 1]
    assert said["reasons"]


def test_the_page_shows_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text(encoding="utf-8")
    source = page.partition("<!-- file: rates.py -->\n```python\n")[2].partition("```\n")[0]
    shown = page.partition("$ placeproof trace record rates.py\n")[2].partition("```\n")[0]
    monkeypatch.chdir(tmp_path)
    Path("rates.py").write_text(source, encoding="utf-8")
    assert run(["trace", "record", "rates.py"]) == 1
    assert capsys.readouterr().out == shown
