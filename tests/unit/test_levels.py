"""Which tests a run is of: levels from recorded seconds, and the tests that are near to what was changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import conftest
import levels
import near
import pytest
import times

ROWS: dict[str, levels.Row] = {
    "tests/unit/test_a.py::quick_together_long": (100, 0.09, 1.0),
    "tests/unit/test_a.py::slow": (2, 0.1, 0.12),
    "tests/text/test_b.py::slowest": (1, 40.0, 40.0),
}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, levels.Row]]:
    """A record with these rows; what is called reads it again."""
    monkeypatch.setattr(levels, "RECORD", tmp_path / "times.json")
    monkeypatch.setattr(times, "RECORD", tmp_path / "times.json")
    read = levels.rows.__wrapped__
    monkeypatch.setattr(levels, "rows", read)
    monkeypatch.setattr(times, "rows", read)
    times.write(ROWS)
    return read


def test_each_row_is_of_a_test() -> None:
    root = Path(__file__).parents[2]
    for file, functions in json.loads(levels.RECORD.read_text(encoding="utf-8")).items():
        assert functions.keys() <= set(re.findall(r"^def (\w+)", (root / file).read_text(encoding="utf-8"), re.MULTILINE)), file


def test_what_is_written_is_read(recorded: Callable[[], dict[str, levels.Row]]) -> None:
    assert recorded() == ROWS
    times.write({"tests/unit/test_a.py::slow": (2, 0.05, 0.06), "tests/unit/test_a.py::new": (1, 0.01, 0.01)})
    assert recorded() == {name: row for name, row in ROWS.items() if not name.endswith("::slow")}


def test_some_of_the_cases_can_only_be_slower(recorded: Callable[[], dict[str, levels.Row]]) -> None:
    name = "tests/unit/test_a.py::quick_together_long"
    times.write({name: (10, 0.01, 0.1), "tests/text/test_b.py::slowest": (1, 30.0, 30.0)})
    assert (recorded()[name], recorded()["tests/text/test_b.py::slowest"]) == (ROWS[name], (1, 30.0, 30.0))
    times.write({name: (10, 0.2, 0.4)})
    assert recorded()[name] == (100, 0.2, 1.0)
    times.write({name: (10, 0.1, 0.4)}, whole=True)
    assert recorded()[name] == (10, 0.1, 0.4)


def test_a_level_follows_from_the_slowest_case(recorded: object) -> None:
    assert [levels.level(name) for name in (*ROWS, "tests/unit/test_a.py::new")] == [0, 1, 2, 0]


def test_level_0_has_some_of_many_quick_cases(recorded: object) -> None:
    many = [f"tests/unit/test_a.py::quick_together_long[{n}]" for n in range(100)]
    others = ["tests/unit/test_a.py::slow[1]", "tests/text/test_b.py::slowest", "tests/unit/test_a.py::new[1]"]
    assert levels.kept([*many, *others], 0) == {*many[::10], "tests/unit/test_a.py::new[1]"}
    assert levels.kept([*many, *others], 1) == {*many, others[0], others[2]}
    assert levels.kept([*many, *others], 2) == {*many[::2], *others}
    assert levels.kept([*many, *others], 3) == {*many, *others}


def test_level_2_has_some_of_many_cases_that_take_long_together(recorded: object) -> None:
    long = "tests/unit/test_a.py::long"
    times.write({long: (40, 2.0, 16.0)})
    cases = [f"{long}[{n}]" for n in range(40)]
    assert levels.kept(cases, 2) == {*cases[::8]}
    assert levels.kept(cases, 1) == set()
    assert levels.kept(cases, 2, {long}) == levels.kept(cases, 3) == {*cases}
    assert levels.kept([others := "tests/text/test_b.py::slowest"], 2) == {others}


def test_of_a_function_that_nobody_timed_all_cases_are_run(recorded: object) -> None:
    """And of one that has more cases than when it was timed."""
    new = [f"tests/unit/test_a.py::new[{n}]" for n in range(7)]
    more = [f"tests/unit/test_a.py::slow[{n}]" for n in range(3)]
    assert [levels.kept([*new, *more], level) for level in range(4)] == [{*new}, *[{*new, *more}] * 3]


def test_processes_are_started_for_what_takes_long(recorded: object, tmp_path: Path) -> None:
    def workers(level: int, *args: str) -> int | None:
        config = SimpleNamespace(
            args=list(args), rootpath=tmp_path, invocation_params=SimpleNamespace(dir=tmp_path), option=SimpleNamespace(level=level)
        )
        return conftest.pytest_xdist_auto_num_workers(config)

    assert workers(2, "tests/unit/test_a.py::slow[1]", "tests/unit") == 0
    assert workers(2, "tests/text/test_b.py") is None
    assert workers(2, str(tmp_path / "tests")) is None
    assert workers(1, "tests") == 0


def test_the_nearest_tests_import_what_was_changed() -> None:
    assert "tests/unit/test_network.py" in near.near("placeproof/semantics/meaning/devices/network.py", [1], "HEAD", None)
    assert near.near("placeproof/strategies/catalogue/zero3.toml", [1], "HEAD", None)
    assert near.near("tests/helpers/linked_walk.py", [], "HEAD", None) == {"tests/agreement/test_linked_walk.py"}
    assert "tests/meanings/test_model_blocks.py" in near.near("placeproof/models/blocks/swiglu.step", [1], "HEAD", None)
    assert near.near("placeproof/profiles/torch-2.13.toml", [1], "HEAD", None)
    assert near.near("tests/unit/test_levels.py", [], "HEAD", None) == {"tests/unit/test_levels.py"}
    assert near.near("tests/unit/test_gone.py", [], "HEAD", None) == set()
    assert near.near("tests/data/forged_certificates.json", [], "HEAD", None) >= {"tests/meanings/test_certificates.py"}
    assert near.near("tests/helpers/levels.py", [], "HEAD", None) >= {"tests/unit/test_levels.py"}
    assert near.near("tests/conftest.py", [], "HEAD", None) == {"tests"}


OLD, NEW = "a\nb\nc\nd\n", "new\na\nb\nD\nd\n"


def test_lines_are_followed_to_the_commit_of_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"old:placeproof/x.py": OLD, "new:placeproof/x.py": NEW}
    monkeypatch.setattr(near, "git", lambda _, name: texts[name])
    assert near.followed("placeproof/x.py", range(1, 6), "new", "old") == [None, 1, 2, None, 4]
    assert near.followed("placeproof/x.py", [3], "new", "new") == [3]


def test_tests_that_ran_a_line_are_near_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "git", lambda _, name: {"old": OLD, "new": NEW}[name.partition(":")[0]])
    monkeypatch.setattr(near, "by_imports", lambda path: {f"imports {path}"})
    ran = near.Ran("tests/unit/test_x.py", ("one", "two"), {}, {"x.py": {"1": [0], "2": [0, 1]}}, frozenset({"x.toml"}))
    known = near.Map(ran=(ran,), commit="old")
    assert near.near("placeproof/x.py", [2], "new", known) == {"one"}
    assert near.near("placeproof/x.py", [2, 3], "new", known) == {"one", "two"}
    assert near.near("placeproof/x.py", [1, 2], "new", known) == {"one", "imports placeproof/x.py"}
    assert near.near("placeproof/x.py", [5], "new", known) == {"imports placeproof/x.py"}
    assert near.near("placeproof/x.toml", [1], "new", known) == {"one", "two"}
    assert near.near("placeproof/y.toml", [1], "new", known) == {"imports placeproof/y.toml"}


def test_changed_lines_are_those_of_the_earlier_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    hunks = "@@ -3,2 +3 @@ def f\n-x\n@@ -9 +8 @@\n@@ -20,0 +19,4 @@\n@@ -0,0 +1 @@\n"
    answers = {"ls-files": "new.py\n", "diff": "placeproof/x.py\n"}
    monkeypatch.setattr(near, "git", lambda *asked: hunks if "-U0" in asked else answers[asked[0]])
    assert near.changed("HEAD") == {"new.py": [], "placeproof/x.py": [3, 4, 9, 20, 21, 1]}
