"""Our own theorems: what `placeproof check` says of all of them, from nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from placeproof.cli.main import run
from placeproof.theory.suite.load import load, suite

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "check.schema.json"
ERRORS = Path(__file__).parents[1] / "data" / "published_errors.json"

TOPICS = {"kernel", "collectives", "memory", "traffic", "correctness", "composition", "pipeline", "paper", "placement", "folklore"}

#: Opt-outs of anything but dimensions, each with its reason in the declaration.
OPT_OUTS = {
    "placement.strategies_are_the_papers_tuples": {"not trivial"},
}


#: Random choices of each solver.
SEEDS = "5" if os.environ.get("PLACEPROOF_PROFILE") == "nightly" else "1"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The whole suite, second opinions and seeds included, in a process of its own."""
    command = [sys.executable, "-m", "placeproof", "check", "--json", "--no-cache", "--seeds", SEEDS, "--jobs", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("empty"), timeout=1200, check=False)
    assert ran.stderr == ""
    whole: dict[str, Any] = json.loads(ran.stdout)
    wrong = [r["id"] for r in whole["results"] if r["standing"] in ("unexpected", "undecided")]
    assert ran.returncode == 0, (wrong, whole["lock"])
    return whole


def test_everything_stands(found: dict[str, Any]) -> None:
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    assert found["theorems"] >= 120
    assert found["refuted_as_expected"] >= 25
    assert found["proved"] + found["refuted_as_expected"] == found["theorems"]
    assert (found["open"], found["unexpected"], found["undecided"], found["malformed"], found["lock"]) == (0, 0, 0, [], [])
    assert found["second_opinion"]["disagree"] == 0
    assert found["second_opinion"]["agree"] > found["theorems"] / 2


def test_no_theorem_is_filler(found: dict[str, Any]) -> None:
    for result in found["results"]:
        assert result["controls"], result["id"]
        assert result["cite"], result["id"]
        standing = {c["name"]: c["standing"] for c in result["checks"]}
        assert standing["hypotheses satisfiable"] == "passed", result["id"]
        computed = "not applicable" if result["evidence"] == "equations" else "passed"  # of arbitrary functions there is no point
        assert standing["exact arithmetic"] == computed, result["id"]
        skipped = {name for name, how in standing.items() if how == "skipped"}
        assert skipped <= OPT_OUTS.get(result["id"], {"dimensions"}), f"{result['id']} opts out of {skipped}"
        if result["verdict"] == "proved":
            assert standing["needed"] in ("passed", "not applicable"), result["id"]
            assert SEEDS == "1" or standing["seeds"] == "passed", result["id"]
    said = [r["says"] for r in found["results"]]
    assert len(set(said)) == len(said)
    stated = [(r["statement"], tuple(r["hypotheses"])) for r in found["results"] if "trains" not in r["statement"]]
    assert sorted(s for s in set(stated) if stated.count(s) > 1) == []


def test_every_topic_is_there(found: dict[str, Any]) -> None:
    assert {r["id"].split(".")[0] for r in found["results"]} >= TOPICS


def test_every_published_error_has_its_theorem() -> None:
    remarks = " ".join(t.says + t.remarks for t in load().theorems if t.expect.word == "refuted")
    missing = [row["id"] for row in json.loads(ERRORS.read_text(encoding="utf-8")) if row["id"] not in remarks]
    assert not missing


def test_everything_is_locked(found: dict[str, Any]) -> None:
    locked = json.loads((suite() / "verdicts.lock.json").read_text(encoding="utf-8"))
    assert set(locked["verdicts"]) == {r["id"] for r in found["results"]}


def test_every_theorem_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "theorems"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [t.id for t in load().theorems]
    for name in listed[::10]:
        assert run(["explain", name]) == 0
        assert f"theorem {name}" in capsys.readouterr().out


def test_declaring_proves_nothing() -> None:
    code = "import sys; from placeproof.theory.suite.load import load; found = load(); assert found.theorems; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"z3", "cvc5", "sympy"} & set(loaded)
