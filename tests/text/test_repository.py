"""What a repository says of itself: versions agree, hosted checks run what is promised, and files that others read can be read."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import placeproof

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def data(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_the_citation_is_of_this_version_and_licence() -> None:
    citation = data("CITATION.cff")
    assert citation["version"] == placeproof.__version__
    assert citation["license"] == PROJECT["license"]
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])


def test_hosted_checks_run_each_version_that_is_promised() -> None:
    jobs = data(".github/workflows/checks.yml")["jobs"]
    promised = [c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert jobs["versions"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert {step.get("run") for step in jobs["everything"]["steps"]} >= {".ci/run"}


def test_files_that_tests_import_by_their_names_have_names_of_their_own() -> None:
    """Tests put these folders on the path: of two files with one name, only one could be imported."""
    folders = ("tests/*", "nightly", "mutation")
    names = Counter(path.name for folder in folders for path in ROOT.glob(f"{folder}/*.py"))
    assert len(names) > 100
    assert not [name for name, n in names.items() if n > 1]


@pytest.mark.parametrize("name", [".ci/run", ".ci/lowest", ".ci/release"])
def test_recipes_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    assert (ROOT / name).read_text().startswith("#!/usr/bin/env bash\n")


def test_files_that_contributing_names_are_there() -> None:
    """Each by the end of its path. Capitals stand for something else."""
    named = set(re.findall(r"`([a-z0-9_./-]+/[a-z0-9_.-]*[a-z])`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    tops = (ROOT / top for top in ("placeproof", "tests", "docs", "mutation", "nightly"))
    ends = tuple(str(path) for top in tops for path in top.rglob("*"))
    assert len(named) > 50
    assert not [path for path in named if not (ROOT / path).exists() and not any(end.endswith(f"/{path}") for end in ends)]


def test_each_package_has_a_lowest_version() -> None:
    """`.ci/lowest` installs it."""
    assert all(re.match(r"[\w-]+>=[\d.]+", needed) for needed in PROJECT["dependencies"])


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda p: p.stem)
def test_an_issue_asks_for_what_decides_it(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    required = [part["id"] for part in form["body"] if part.get("validations", {}).get("required")]
    assert "command" in required
    assert {"truth", "source"} & set(required)


def test_hooks_are_the_checks_of_ci() -> None:
    hooks = [hook["entry"] for repo in data(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    ran = (ROOT / ".ci/run").read_text()
    assert all(f"tools/bin/{entry}" in ran for entry in hooks)
    assert len(hooks) == 4
