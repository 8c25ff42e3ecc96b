"""The logs of the last runs of mutants: how many, how many of them a test caught, and that each survivor is listed with its reason.

`mutation/run.py` writes them; `CONTRIBUTING.md` says how.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "mutation"))
from mutants import LEAST, PACKAGE, PACKAGES, chosen, every  # noqa: E402
from run import CAUGHT, ENOUGH, LOG, TRUST, complaints, head, read  # noqa: E402

DONE = read()
logged = pytest.mark.skipif(not LOG.exists(), reason="no log of a run of mutants is committed: python mutation/run.py")


@logged
@pytest.mark.parametrize(("log", "least", "enough"), [(LOG, 200, ENOUGH), (TRUST, 300, 0.92)], ids=["of all", "of what verdicts rest on"])
def test_the_log_is_of_a_whole_run(log: Path, least: int, enough: float, capsys: pytest.CaptureFixture[str]) -> None:
    done = read(log)
    found = Counter(entry["result"] for entry in done.values())
    with capsys.disabled():
        print(f"\nmutants: {len(done)}, {dict(found)}, {sum(found[how] for how in CAUGHT) / len(done):.1%} caught by tests and theorems")
    assert len(done) == head(log)["count"] >= least
    assert sum(found[how] for how in CAUGHT) >= enough * len(done)
    assert set(found) <= {*CAUGHT, "survived", "time", "import", "crash"}
    assert all(entry["commit"] for entry in done.values())
    caught = [entry["by"] for entry in done.values() if entry["result"] in CAUGHT]
    assert not {by for by in caught if not (ROOT / by.partition("::")[0]).exists()}


@logged
def test_what_verdicts_rest_on_was_drawn_from_with_another_seed() -> None:
    first = head(TRUST)
    assert first["seed"] != head(LOG)["seed"]
    assert len(read(TRUST).keys() - DONE.keys()) >= 300
    assert all(any(fnmatch(name.partition(" ")[0], pattern) for pattern in first["only"]) for name in read(TRUST))


def test_every_package_is_drawn_from() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(PACKAGES)
    drawn = Counter(mutant.path.partition("/")[0] for mutant in chosen(200, 1, lambda _: True))
    assert all(drawn[package] >= LEAST for package in PACKAGES), drawn


@logged
def test_every_package_had_its_share() -> None:
    of = Counter(name.partition("/")[0] for name in DONE)
    assert all(of[package] >= LEAST for package in PACKAGES), of


@logged
def test_survivors_are_listed_and_nothing_else_is() -> None:
    assert not complaints({**DONE, **read(TRUST)})


@logged
@pytest.mark.parametrize("log", [LOG, TRUST], ids=["of all", "of what verdicts rest on"])
def test_the_log_is_of_this_product(log: Path) -> None:
    """What has changed since is little; otherwise it is time for another run."""
    gone = [name for name in read(log) if name not in every()]
    assert len(gone) <= len(read(log)) / 5, gone


def test_a_mutant_is_one_small_change_that_can_be_read() -> None:
    for mutant in list(every().values())[::97]:
        text = (PACKAGE / mutant.path).read_text(encoding="utf-8")
        assert mutant.source != text, mutant.name
        assert len(mutant.source.splitlines()) == len(text.splitlines()) or mutant.end - mutant.start > len(mutant.put), mutant.name
        (tomllib.loads if mutant.path.endswith(".toml") else ast.parse)(mutant.source)


def test_complaints_are_made() -> None:
    name = next(iter(every()))
    one = {"mutant": name, "result": "survived", "by": "", "seconds": 1, "commit": "x"}
    told = complaints({name: one})
    assert any(text == f"not listed in survivors.toml: {name}" for text in told)
    assert any("fewer than 90%" in text for text in told)
    assert not any("not listed" in text or "fewer" in text for text in complaints({name: {**one, "result": "tests"}}))


def test_what_keeps_theorems_from_being_recorded_is_said(tmp_path: Path) -> None:
    script = "import runpy, sys\nsys.modules['coverage'] = None\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    command = f"import sys\nsys.argv = ['mutation/theorems.py', '--map', {str(tmp_path)!r}]\n{script}"
    ended = subprocess.run([sys.executable, "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "ModuleNotFoundError: import of coverage halted" in ended.stderr
