"""What is installed holds all that the checkout has, and what is built from it can be built elsewhere, too."""

from __future__ import annotations

import re
import zipfile
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def contents() -> ModuleType:
    spec = spec_from_file_location("contents", ROOT / ".ci" / "contents.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_data_of_every_kind_belongs_into_a_wheel() -> None:
    needed = contents().of_wheel()
    named = ("placeproof/py.typed", "placeproof/blocks/mlp.step", "placeproof/_theorems/verdicts.lock.json", "placeproof/_references.bib")
    assert {*named} <= needed
    assert {Path(name).suffix for name in needed} >= {".py", ".toml", ".step", ".json", ".bib"}
    assert not [name for name in needed if "__pycache__" in name]


def test_what_is_installed_has_every_file_of_the_checkout() -> None:
    installed = distribution("placeproof")
    names = {str(file) for file in installed.files or ()}
    if "placeproof/__init__.py" not in names:
        pytest.skip("it is installed as it lies in the checkout")
    assert contents().of_wheel() - names == set()


def test_a_file_that_a_wheel_lacks_is_named(tmp_path: Path) -> None:
    module = contents()
    *others, lacking = sorted(module.of_wheel())
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in others:
            wheel.writestr(name, "")
    assert module.missing(tmp_path / "a.whl") == {lacking}


def test_the_container_copies_what_the_package_is_built_of_and_runs_as_nobody_in_particular() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.M) for name in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    sources = {name.partition("/")[0] for name in contents().of_wheel()} | {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "theorems"}
    assert {name.partition("/")[0] for name in copied} >= sources
    assert "docs/references.bib" in copied
    user = re.findall(r"^USER (\S+)", text, re.M)
    assert user
    assert user[-1] not in ("root", "0")
