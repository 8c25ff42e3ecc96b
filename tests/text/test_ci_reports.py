"""What `check` and `prove` write for continuous integration, read back by readers of its own; the action's and the hooks' commands, run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from placeproof.cli.main import run
from placeproof.report.ci import github, junit, sarif
from placeproof.report.findings import RULES, Case

ROOT = Path(__file__).parents[2]
SUM = "mesh(dp)\ngradients = all_reduce(backward(parameters), dp)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
RIGHT = SUM.replace("\nparameters,", "\ngradients = scale(gradients, 1 / dp)\nparameters,")
THEOREMS = '''"""Claims."""
from placeproof.theory import Degree, Positive, Proved, theorem


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def counts(n: Degree):
    """There is a device."""
    return n >= 1


counts.control("two", lambda n: n >= 2, refuted_at={"n": 1})


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def several(n: Degree, x: Positive):
    """There are two."""
    return n * x >= 2


several.control("two", lambda n: n >= 2, refuted_at={"n": 1})
'''


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.setenv("PLACEPROOF_CACHE", str(tmp_path / "cache"))
    Path("sum.step").write_text(SUM)
    Path("right.step").write_text(RIGHT)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[ET.Element], list[dict[str, Any]], list[str]]:
    """The exit code, the tests of the XML, the results of the log, and the annotations; counts and references within them hold."""
    code = run([*arguments, "--junit", "a.xml", "--sarif", "a.sarif", "--github"])
    root = ET.parse("a.xml").getroot()
    assert root.tag == "testsuites"
    for suite in [root, *root]:
        kinds = Counter(child.tag for child in suite.iter() if child.tag in ("testcase", "failure", "error", "skipped"))
        counts = {"tests": kinds["testcase"], "failures": kinds["failure"], "errors": kinds["error"]}
        assert {name: int(suite.attrib[name]) for name in counts} == counts
    tests = [test for suite in root for test in suite]
    assert all(test.tag == "testcase" and {"name", "classname", "time"} <= {*test.attrib} for test in tests)
    (log,) = json.loads(Path("a.sarif").read_text())["runs"]
    rules = [rule["id"] for rule in log["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in log["results"])
    assert log["invocations"] == [{"executionSuccessful": code != 2, "exitCode": code}]
    return code, tests, log["results"], re.findall("^::.*$", capsys.readouterr().err, re.M)


def place(result: dict[str, Any]) -> tuple[str, int]:
    physical = result["locations"][0]["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def bad(tests: list[ET.Element]) -> list[tuple[str, str | None, str | None]]:
    return [(child.tag, test.get("file"), test.get("line")) for test in tests for child in test if child.tag in ("failure", "error")]


def test_what_is_proved_has_tests_and_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    code, tests, results, lines = told(capsys, "prove", "right.step", "--json")
    assert (code, results, lines, bad(tests)) == (0, [], [], [])
    assert run(["prove", "right.step", "--json"]) == 0
    assert [test.get("name") for test in tests] == [o["name"] for o in json.loads(capsys.readouterr().out)["obligations"]]


def test_what_is_refuted_has_one_finding_at_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, tests, results, lines = told(capsys, "prove", "sum.step")
    assert (code, bad(tests)) == (1, [("failure", "sum.step", "3")])
    assert [(r["ruleId"], r["level"], place(r)) for r in results] == [("refuted", "error", ("sum.step", 3))]
    assert "expected 7/2, actual 7" in results[0]["message"]["text"]
    assert lines[0].startswith("::error file=sum.step,line=3,col=1,title=placeproof%3A refuted::sum.step: refuted")
    assert len(lines) == 1


def test_settings_that_are_not_modelled_are_findings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ds_config.json").write_text(json.dumps({"zero_optimization": {"stage": 1, "zenflow": {"topk_ratio": 0.1}}}, indent=1))
    code, tests, results, lines = told(capsys, "prove", "ds_config.json", "--world", "8")
    assert (code, [r["ruleId"] for r in results], len(lines)) == (4, ["not-modelled"], 1)
    assert bad(tests) == [("failure", "ds_config.json", "4")]
    assert told(capsys, "prove", "ds_config.json", "--world", "8", "--allow", results[0]["message"]["text"].partition(":")[0])[::3] == (
        0,
        [],
    )


def test_input_that_cannot_be_used_is_in_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.xml").write_text("left over")
    Path("bad.step").write_text(SUM.replace("all_reduce", "all_redce"))
    code, tests, results, lines = told(capsys, "prove", "bad.step")
    assert (code, bad(tests)) == (2, [("error", "bad.step", "2")])
    assert (results[0]["ruleId"], place(results[0]), len(lines)) == ("input", ("bad.step", 2), 1)


def test_what_is_undecided_is_an_error_and_no_pass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from placeproof.prove import kernel

    monkeypatch.setattr(kernel, "ask", lambda query, *_: "sat" if query.expected == "sat" else "unknown")
    code, tests, results, lines = told(capsys, "prove", "right.step")
    assert (code, {tag for tag, *_ in bad(tests)}, {r["ruleId"] for r in results}) == (3, {"error"}, {"undecided"})
    assert len(lines) == len(results) == len(bad(tests)) > 0


def test_theorems_that_fail_have_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Path("theorems").mkdir()
    Path("theorems/mine.py").write_text(THEOREMS)
    code, tests, results, lines = told(capsys, "check", "theorems", "-j", "1", "--no-cache", "--no-second-opinion")
    line = next(n for n, text in enumerate(THEOREMS.splitlines(), 1) if "def several" in text)
    assert (code, len(tests), [(tag, file) for tag, file, _ in bad(tests)]) == (1, 2, [("failure", "theorems/mine.py")])
    (result,) = results
    assert (result["ruleId"], place(result)[0], abs(place(result)[1] - line) <= 1) == ("unexpected", "theorems/mine.py", True)
    assert len(lines) == 1


def test_wrong_paths_are_refused_before_anything_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "sum.step", "--junit", "a.txt"]) == 2
    assert run(["check", "--sarif", "nowhere/a.sarif"]) == 2
    assert run(["prove", "--catalogue", "--junit", "a.xml"]) == 2
    assert capsys.readouterr().out == ""


def test_paths_are_those_of_the_checkout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    *_, results, _ = told(capsys, "prove", "sum.step")
    assert place(results[0])[0] == f"{tmp_path.name}/sum.step"


@given(st.text(), st.text(), st.sampled_from(sorted(RULES)))
def test_any_text_comes_back(name: str, message: str, rule: str) -> None:
    case = Case(name=name, of="x", standing="failed", rule=rule, message=message, text=message, path="a b,c:d%.step", line=2)
    root = ET.fromstring(junit([case], "prove").encode())
    keep = "".join(
        c if c in "\t\n\r" or " " <= c < "\ud800" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "\N{REPLACEMENT CHARACTER}"
        for c in message
    )
    assert root[0][0][0].get("message") == keep
    assert json.loads(sarif([case], "1", 1))["runs"][0]["results"][0]["message"]["text"] == message
    command, properties, value = re.fullmatch(r"::(\w+) (.*?)::(.*)\n", github([case]), re.S).groups()  # type: ignore[union-attr]
    assert command == "error"
    assert _unescaped(value) == message
    assert "\n" not in value
    found = dict(part.split("=", 1) for part in properties.split(","))
    assert _unescaped(found["file"]).replace("%3A", ":") == "a b,c:d%.step"


def _unescaped(text: str) -> str:
    return re.sub("%(0D|0A|25|3A|2C)", lambda found: chr(int(found[1], 16)), text)


def program() -> dict[str, str]:
    """An environment in which `placeproof` is this checkout's."""
    folder = Path("bin").resolve()
    folder.mkdir()
    (folder / "placeproof").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m placeproof "$@"\n')
    (folder / "placeproof").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("subjects", "code"), [('right.step\n"zero1(2) * pp"\nright.step --for-all "N >= 2"\n', 0), ("right.step\nsum.step", 1), ("", 2)]
)
def test_the_action_asks_everything(subjects: str, code: int) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    assert all("shell" in step for step in action["runs"]["steps"] if "run" in step)
    step = action["runs"]["steps"][-1]
    assert {value.split("inputs.")[1].split(" ")[0] for value in step["env"].values()} <= {*action["inputs"]}
    env = {**program(), "CHECK": "", "PROVE": subjects, "REPORTS": "out"}
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    assert len(list(Path("out").glob("*.xml"))) == len(list(Path("out").glob("*.sarif"))) == len([s for s in subjects.split("\n") if s])


def test_hooks_pick_their_files_and_fail_where_they_should() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert all({"id", "name", "entry", "language", "files"} <= {*hook} for hook in hooks.values())
    picked = {name: re.compile(hook["files"]).search for name, hook in hooks.items()}
    assert picked["placeproof-prove"]("a/b.step")
    assert not picked["placeproof-prove"]("a/b.steps")
    assert picked["placeproof-check"]("x/theorems/mine.py")
    assert not picked["placeproof-check"]("theorems/_helper.py")
    entry, env = shlex.split(hooks["placeproof-prove"]["entry"]), program()
    for files, code in ((["right.step"], 0), (["sum.step", "right.step"], 1)):
        assert subprocess.run([*entry, *files], env=env, capture_output=True, check=False, timeout=300).returncode == code
