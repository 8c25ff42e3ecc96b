"""``placeproof check`` and the pytest plugin: what they print, and what bad files, changed verdicts and changed sources do."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from placeproof.cli.main import run
from placeproof.theory.suite import cache as cache_module
from placeproof.theory.suite import reads
from placeproof.theory.suite.cache import Cache
from placeproof.theory.suite.load import Loaded, load_file

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "check.schema.json"

GOOD = '''"""Sizes and counts."""
from placeproof.theory import Degree, Integer, Positive, Proved, Refuted, holds, theorem

CITE = "rajbhandari2020zero"


@theorem(expect=Proved(), cite=CITE)
def shard_is_at_most_the_whole(s: Positive["byte"], n: Degree):
    """A shard is no larger than what it is a part of."""
    return s / n <= s


shard_is_at_most_the_whole.control("strictly smaller", lambda s, n: s / n < s, refuted_at={"n": 1})


@theorem(expect=Refuted(witness={"n": 9}, because="there are more devices than eight"), cite=CITE, level=1)
def degree_is_at_most_eight(n: Degree):
    """No degree exceeds eight."""
    return n <= 8


degree_is_at_most_eight.control("given so", lambda n: holds(n * n <= 64, given=[n <= 8]), proved=True)
'''
WRONG = GOOD.replace("return s / n <= s", "return s / n < s")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And as in a process of its own: what earlier tests have read is not read here."""
    monkeypatch.setenv("PLACEPROOF_CACHE", str(tmp_path / "cache"))
    with reads.listening():
        pass  # a hook cannot be taken away again: one is enough
    monkeypatch.setattr(reads, "_READS", reads._Reads(hooked=True))


def written(tmp_path: Path, text: str, name: str = "sizes.py") -> Path:
    folder = tmp_path / "theorems"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def checked(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert run(["check", "--jobs", "1", *arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(checked(capsys, *arguments, "--json", code=code)[0])
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    return found


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    out, err = checked(capsys, str(folder))
    assert err == ""
    assert out.startswith("2 theorems with 2 controls: 1 proved, 1 refuted as expected, 0 open, 0 unexpected, 0 undecided; ")
    assert re.search(r"z3 \d", out)


def test_what_fails_shows_all_that_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, WRONG)
    out, _ = checked(capsys, str(folder), code=1)
    parts = ["sizes.shard_is_at_most_the_whole: unexpected", "sizes.py:7", "states    s/n < s", "given     s > 0, n >= 1"]
    for part in (*parts, "expected  proved", "witness   n = 1", "placeproof check "):
        assert part in out, part
    alone = out.split("alone     placeproof check ")[1].splitlines()[0]
    assert "1 unexpected" in checked(capsys, alone, code=1)[0]


def test_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    found = data(capsys, str(folder))
    assert (found["theorems"], found["proved"], found["refuted_as_expected"]) == (2, 1, 1)
    first, second = found["results"]
    assert first["id"] == "sizes.shard_is_at_most_the_whole"
    assert (first["verdict"], first["expected"], first["evidence"]) == ("proved", "proved", "certificate")
    assert [c["name"] for c in first["controls"]] == ["strictly smaller"]
    assert second["witness"] == {"n": "9"}
    wrong = data(capsys, str(written(tmp_path, WRONG)), code=1)
    assert wrong["unexpected"] == 1
    assert "s/n < s" in json.dumps(wrong["results"][0]["checks"]) or wrong["results"][0]["statement"] == "s/n < s"


def test_level_jobs_and_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    assert data(capsys, str(folder), "--level", "0")["theorems"] == 1
    seeded = data(capsys, str(folder), "--seeds", "5")
    assert {c["name"]: c["standing"] for c in seeded["results"][0]["checks"]}["seeds"] == "passed"
    alone = data(capsys, str(folder), "--no-cache")
    assert run(["check", "--jobs", "2", "--no-cache", "--json", str(folder)]) == 0
    together = json.loads(capsys.readouterr().out)
    for one in (*alone["results"], *together["results"]):
        one.pop("seconds")
    assert together["results"] == alone["results"]
    none = data(capsys, str(folder), "--no-second-opinion")
    assert none["second_opinion"] == {"agree": 0, "disagree": 0, "silent": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--level", "3"], "no level 3"),
        (["--jobs", "-1"], "cannot be started"),
        (["--seeds", "0"], "cannot be tried"),
        (["nothing.py"], "cannot read `nothing.py`: No such file"),
        (["nothing.py::a"], "cannot read `nothing.py`: No such file"),
        (["plain.py"], "declares no theorem"),
        (["good.py::none"], "has no theorem `none`"),
        (["kernel.nothing_like_this"], "there is no theorem"),
        (["."], "holds no file of theorems"),
    ],
)
def test_wrong_options(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims").mkdir()
    for name, text in (("plain.py", "x = 1\n"), ("good.py", GOOD)):
        (tmp_path / "claims" / name).write_text(text)
    assert run(["check", *(f"claims/{o}" if o.startswith(("plain", "good")) else o for o in options)]) == 2
    assert message in capsys.readouterr().err


MALFORMED = {
    "a syntax error": ("def broken(:\n", "PP401", 1),
    "an import that fails": ("import nothing_of_this_name\n", "PP401", 1),
    "a line that fails": ("\nvalue = 1 / 0\n", "PP401", 2),
    "an unknown annotation": (GOOD.replace('n: Degree):\n    """No', 'n: int):\n    """No'), "PP402", 16),
    "a missing annotation": (GOOD.replace('n: Degree):\n    """No', 'n):\n    """No'), "PP402", 16),
    "no expectation": (GOOD.replace("expect=Proved(), ", ""), "PP403", 7),
    "no parentheses": (GOOD.replace("@theorem(expect=Proved(), cite=CITE)", "@theorem"), "PP403 PP404", 7),
    "no docstring": (GOOD.replace('    """No degree exceeds eight."""\n', ""), "PP403", 16),
    "an unknown source": (GOOD.replace("cite=CITE, level", "cite='nobody1900', level"), "PP404", 16),
    "a chain of comparisons": (GOOD.replace("return n <= 8", "return 1 <= n <= 8"), "PP406", 19),
    "floating point": (GOOD.replace("return n <= 8", "return n <= 8.5"), "PP406", 19),
    "an undeclared symbol": (GOOD.replace("return n <= 8", "import sympy\n    return n <= sympy.Symbol('k')"), "PP406", 16),
    "a witness without a value": (GOOD.replace('witness={"n": 9}', "witness={}"), "PP406", 16),
    "a control without a place": (GOOD.replace(', refuted_at={"n": 1}', ""), "PP406", 7),
    "a strategy that does not exist": (
        GOOD.replace("return n <= 8", "return placeproof.theory.trains('zero9')") + "\nimport placeproof\n",
        "PP101",
        1,
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_one_error_and_the_others_are_checked(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code, line = MALFORMED[case]
    folder = written(tmp_path, text, "bad.py")
    written(tmp_path, GOOD)
    out, err = checked(capsys, str(folder), code=2)
    assert re.findall(r"^error\[(PP\d+)\]", err, re.MULTILINE) == code.split(), err
    assert f"bad.py:{line}" in err, err
    assert "the others were checked" in err
    whole = 3 if "theorem" in text and code != "PP401" else 2
    assert out.startswith(f"{whole} theorems")
    found = data(capsys, str(folder), code=2)
    assert len(found["malformed"]) == len(code.split())
    assert found["unexpected"] == 0


MANY = '''"""Theorems with several wrong places each."""
import sympy
from placeproof.theory import Degree, Open, Positive, Proved, Refuted, keeps, term, theorem, trains

CITE = "rajbhandari2020zero"
y, z = (term(sympy.Symbol(name)) for name in "yz")


@theorem(expect=Proved(), cite=CITE)
def undeclared(n: Degree):
    """Two symbols are no parameters."""
    return y + z <= n


@theorem(expect=Refuted(because="so"), level=3)
def without_witness(n: Degree, k: Degree):
    """Neither a source, nor a level, nor a value for either parameter."""
    return n <= k


without_witness.control("one", lambda n: n <= n, proved=True)


@theorem
def bare(n, k: int):
    return y <= n


@theorem(expect=Proved(), cite="nobody")
def controlled(n: Degree):
    """Controls that do not say where they fail, and a name that is none."""
    return n >= 1


controlled.control("nowhere", lambda n: n >= 2)
controlled.control("elsewhere", lambda n: n >= 2, refuted_at={"k": 1.5, "n": "one"})


@theorem(expect=Proved(), cite=CITE)
def program():
    """A strategy that is none, and no control."""
    return trains("zero9")


@theorem(expect=Open("tried"), cite="nobody")
def undecided(n: Degree):
    """What is open needs no control."""
    return n >= 1


@theorem(expect=Proved(), cite=CITE)
def broken():
    """A control without the condition that it breaks."""
    return trains("zero3")


broken.control("what", lambda: trains("zero3"))
'''
ALL_OF = {
    "undeclared": ["`y` occurs in", "`z` occurs in", "it has no control"],
    "without_witness": ["level 3", "no source", "no value for `k`, `n`"],
    "bare": ["no expectation", "no docstring", "no source", "annotation of `n`", "annotation of `k`"],
    "controlled": ["no source is called `nobody`", "does not say where it fails", "names 'k'", "inexact number 1.5", "no number for 'n'"],
    "program": ["no strategy `zero9`", "it has no control"],
    "undecided": ["no source is called `nobody`"],
    "broken": ["does not say what it breaks"],
}


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each wrong place of each theorem, and nothing else."""
    _, err = checked(capsys, str(written(tmp_path, MANY, "bad.py")), code=2)
    told = re.findall(r"^error\[PP\d+\]: bad\.(\w+): (.*)", err, re.MULTILINE)
    for name, wanted in ALL_OF.items():
        own = [message for theorem, message in told if theorem == name]
        assert len(own) == len(wanted), (name, own)
        assert all(any(part in message for message in own) for part in wanted), (name, own)
    assert {name for name, _ in told} == set(ALL_OF)


def test_what_is_told_at_once_is_what_is_told_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A theorem of which everything that was told is mended is checked, and stands."""
    good = '''"""Mended."""
from placeproof.theory import Degree, Refuted, theorem


@theorem(expect=Refuted(because="so", witness={"n": 2, "k": 1}), cite="rajbhandari2020zero")
def without_witness(n: Degree, k: Degree):
    """A degree is no greater than another one."""
    return n <= k


without_witness.control("itself", lambda n: n <= n, proved=True)
'''
    checked(capsys, str(written(tmp_path, good)), code=0)


BLOCK = '''"""Blocks."""
from placeproof.theory import Proved, Refuted, edited, theorem, trains


@theorem(expect=Proved(), cite="shoeybi2019megatron")
def the_block_trains():
    """The block of a feed-forward layer trains what one device trains."""
    return trains("mlp")


the_block_trains.control("without", lambda: trains(edited("mlp", "no such text", "")), breaks="gradient integrity")
'''


def test_a_theorem_whose_control_cannot_be_built_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, BLOCK)
    result = data(capsys, str(folder), code=1)["results"][0]
    assert (result["verdict"], result["standing"]) == ("proved", "unexpected")
    assert [(c["standing"], "`no such text` occurs 0 times" in c["detail"]) for c in result["controls"]] == [("failed", True)]


def test_the_last_line_says_what_theorems_are_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "from placeproof.theory import collective, derived, schedule\n" + GOOD.replace(
        "s / n <= s", "collective('all_gather').sent(n, s) <= s"
    )
    text = rows.replace("return n <= 8", "return derived('zero3').memory().where(P=1, N=n, b_theta=0, b_g=0, b_omega=n) * n <= 8")
    written(tmp_path, text)
    written(tmp_path, BLOCK.replace("no such text", "all_reduce(y, tp)"), "blocks.py")
    out, _ = checked(capsys, str(tmp_path / "theorems"), code=1)
    assert "3 about what placeproof computes (1 programs, 1 derivations, 1 tables), 0 about mathematics alone" in out
    found = data(capsys, str(tmp_path / "theorems"), code=1)
    assert found["about"] == {"programs": 1, "derivations": 1, "forms": 0, "tables": 1, "mathematics": 0}
    assert {r["id"]: r["about"] for r in found["results"]}["blocks.the_block_trains"] == "programs"


def test_a_lock_that_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    os.mkfifo(folder / "verdicts.lock.json")
    assert run(["check", str(folder), "--no-second-opinion", "--jobs", "1"]) == 2
    assert "is no file" in capsys.readouterr().err


def test_the_lock_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    _, err = checked(capsys, str(folder), "--update")
    lock = folder / "verdicts.lock.json"
    assert str(lock) in err
    first = lock.read_text()
    assert json.loads(first)["verdicts"]["sizes.degree_is_at_most_eight"]["witness"] == {"n": "9"}
    assert "as in the lock file" in checked(capsys, str(folder))[0]
    written(tmp_path, GOOD.replace('"n": 9', '"n": 10'))
    out, _ = checked(capsys, str(folder), code=1)
    assert "    - witness: n = 9\n    + witness: n = 10\n" in out
    assert "1 differ from the lock file" in out
    assert lock.read_text() == first
    written(tmp_path, GOOD[: GOOD.index("@theorem(expect=Refuted")])
    assert "there is no such theorem any more" in checked(capsys, str(folder), code=1)[0]
    written(tmp_path, GOOD + GOOD[GOOD.index("@theorem(expect=Refuted") :].replace("degree_is_at_most_eight", "another"))
    assert "+ refuted (witness): it is not in the lock file" in checked(capsys, str(folder), code=1)[0]
    checked(capsys, str(folder), "--update")
    assert "as in the lock file" in checked(capsys, str(folder))[0]
    assert data(capsys, str(folder / "sizes.py"))["lock"] == []


def test_a_verdict_that_does_not_stand_is_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    checked(capsys, str(folder), "--update")
    before = (folder / "verdicts.lock.json").read_text()
    written(tmp_path, WRONG)
    checked(capsys, str(folder), "--update", code=1)
    assert (folder / "verdicts.lock.json").read_text() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "other", "verdicts": {}}', '{"schema": "placeproof.verdicts/1", "verdicts": {"a": 1}}']
)
def test_a_damaged_lock_file(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    (folder / "verdicts.lock.json").write_text(text)
    assert run(["check", "--jobs", "1", str(folder)]) == 2
    assert "error[PP405]" in capsys.readouterr().err


def test_what_is_unchanged_is_not_checked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, GOOD)
    assert "earlier runs" not in checked(capsys, str(folder))[0]
    assert "2 of 2 from earlier runs" in checked(capsys, str(folder))[0]
    assert "earlier runs" not in checked(capsys, str(folder), "--no-cache")[0]
    assert "earlier runs" not in checked(capsys, str(folder), "--no-second-opinion")[0]
    written(tmp_path, GOOD + "\n# another line\n")
    assert "earlier runs" not in checked(capsys, str(folder))[0]
    assert "2 of 2 from earlier runs" in checked(capsys, str(folder))[0]
    monkeypatch.setattr(cache_module, "_product", lambda: "another version of placeproof")
    assert "earlier runs" not in checked(capsys, str(folder))[0]
    for file in (tmp_path / "cache").rglob("*.json"):
        file.write_text(file.read_text()[:40])
    assert "earlier runs" not in checked(capsys, str(folder))[0]


def test_a_helper_that_changes_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD.replace('CITE = "rajbhandari2020zero"', "from ._names import CITE\n"))
    written(tmp_path, 'CITE = "rajbhandari2020zero"\n', "_names.py")
    checked(capsys, str(folder))
    assert "2 of 2 from earlier runs" in checked(capsys, str(folder))[0]
    written(tmp_path, 'CITE = "rajbhandari2020zero"\n# changed\n', "_names.py")
    assert "earlier runs" not in checked(capsys, str(folder))[0]


READS = '''"""What is read."""
{how}
from placeproof.theory import Degree, Proved, theorem


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def counts(n: Degree):
    """There is a device."""
    return n >= {what}


counts.control("two", lambda n: n >= 2, refuted_at={{"n": 1}})
'''
HOWS = {
    "pathlib, when it is loaded": ("from pathlib import Path", "int((Path(__file__).parent / 'data.txt').read_text())"),
    "open, when it is checked": ("import os", "int(open(os.path.join(os.path.dirname(__file__), 'data.txt')).read())"),
    "a module beside it": ("from .data import N", "N"),
    "a module on the path": ("import sys; sys.path.insert(0, __file__.rpartition('/')[0]); from data import N", "N"),
    "the names in a folder": ("import os", "len([n for n in os.listdir(os.path.dirname(__file__)) if n.startswith('data.txt')])"),
}


def test_a_point_has_names_and_numbers_that_can_be_computed_with() -> None:
    from placeproof.theory.theorem import _is_point

    assert all(map(_is_point, [None, {}, {"n": 2}, {"n": 10**100, "x": "1/3"}]))
    assert not any(map(_is_point, [3, {1: 2}, {"n": 2**400}, {"n": -(10**101)}, {"n": 1, "k": 2**99999}]))


def test_a_folder_that_is_listed_is_read(tmp_path: Path) -> None:
    """By whoever asks but the machinery of imports, which only looks where a module might be."""

    def told(event: str, *arguments: object) -> tuple[str, ...]:
        return reads._read(event, arguments)

    assert told("os.listdir", str(tmp_path)) == (str(tmp_path),)
    assert told("open", str(tmp_path / "a.txt"), "r", 0) == (str(tmp_path / "a.txt"),)
    assert told("open", str(tmp_path / "a.txt"), None, os.O_RDONLY) == (str(tmp_path / "a.txt"),)
    assert told("open", str(tmp_path / "a.txt"), "w", os.O_WRONLY) == ()
    assert told("open", 3, "r", 0) == ()
    with pytest.raises(OSError, match="relative to which folder"):
        told("open", "a.txt", None, os.O_RDONLY)


def test_a_relative_path_is_another_file_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.txt").write_text(folder)
    monkeypatch.setattr(reads, "_READS", reads._Reads(hooked=reads._READS.hooked))
    monkeypatch.chdir(tmp_path / "one")
    with reads.listening():
        Path("k.txt").read_text()
    found = reads.found()
    assert found
    assert reads.unchanged(found)
    monkeypatch.chdir(tmp_path / "other")
    assert not reads.unchanged(found)


def test_a_database_may_be_read_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    monkeypatch.setattr(reads, "_READS", reads._Reads(hooked=reads._READS.hooked))
    with reads.listening():
        sqlite3.connect(":memory:").close()
    assert reads.found() is None


def test_two_theorems_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(
        "from placeproof.theory import Positive, Proved, theorem\n\n"
        '@theorem(expect=Proved(), cite="li2020ddp")\ndef claim(p: Positive):\n    """False."""\n    return p * 2 == p\n\n'
        '@theorem(expect=Proved(), cite="li2020ddp")\ndef claim(p: Positive):\n    """True."""\n    return p * 2 == p + p\n'
    )
    loaded = Loaded()
    assert load_file(path, loaded) == []
    assert "line 3 has another theorem of this name" in str(loaded.problems.found[0])


def test_another_process_checks_the_theorem_that_it_is_told(tmp_path: Path) -> None:
    from placeproof.theory.suite.outcome import Outcome, Settings
    from placeproof.theory.suite.runner import Malformed, _remote

    path = str(written(tmp_path, GOOD) / "sizes.py")
    names = [t.name for t in load_file(Path(path), Loaded())]
    assert names
    for name in names:
        outcome, _ = _remote(path, name, f"sizes.{name}", Settings())
        assert isinstance(outcome, Outcome)
        assert outcome.id.endswith(f".{name}")
    gone, _ = _remote(path, "no_such_theorem", "sizes.no_such_theorem", Settings())
    assert isinstance(gone, Malformed)


@pytest.mark.parametrize(("how", "jobs"), [*((how, "1") for how in HOWS), ("pathlib, when it is loaded", "2")])
def test_what_a_theorem_reads_is_read_again(how: str, jobs: str, tmp_path: Path) -> None:
    """A change of anything that was read changes the verdict; what was not read changes nothing."""
    imported, what = HOWS[how]
    folder = written(tmp_path, READS.format(how=imported, what=what), "reads.py")
    written(tmp_path, GOOD)  # others, so that two processes have something to do
    (folder / "data.txt").write_text("1")
    (folder / "data.py").write_text("N = 1\n")

    def once() -> tuple[int, str]:
        root = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "placeproof", "check", "--jobs", jobs, f"{folder}/sizes.py", f"{folder}/reads.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | root)
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    assert once()[0] == 0
    (tmp_path / "unread.txt").write_text("x")
    assert "3 of 3 from earlier runs" in once()[1]
    (folder / "data.txt2").write_text("")
    (folder / "data.txt").write_text("2")
    (folder / "data.py").write_text("N = 2\n")
    code, said = once()
    assert (code, "1 unexpected" in said) == (1, True), said


def test_what_nobody_sees_is_not_kept(tmp_path: Path) -> None:
    folder = written(tmp_path, READS.format(how="import subprocess", what="int(subprocess.check_output(['echo', '1']))"))
    command = [sys.executable, "-m", "placeproof", "check", "--jobs", "1", str(folder)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])})
    assert not list((tmp_path / "cache").rglob("*.json"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"proved"', '"refuted"'),
        lambda text: text.replace("counts", "others"),
        lambda text: text.replace('"reads": {', '"reads": {"/nowhere": "none", '),
        lambda text: text[:-20],
        lambda text: "[" * 100_000,
        lambda text: "[]",
        lambda text: "{}",
        lambda text: "null",
        lambda text: text + " x",
        lambda text: '{"checksum": 1, "reads": 2, "outcome": 3}',
        lambda text: "\udcff",
    ],
)
def test_a_damaged_or_edited_entry_is_computed_again(damage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, READS.format(how="", what="1"))
    checked(capsys, str(folder))
    (entry,) = (tmp_path / "cache").rglob("*.json")
    good = entry.read_text()
    entry.write_text(damage(good), errors="surrogateescape")
    out, _ = checked(capsys, str(folder))
    assert "1 proved" in out
    assert "earlier" not in out
    assert json.loads(entry.read_text())["outcome"]["id"] == "sizes.counts", "it is written anew"
    assert "checked   in an earlier run" in checked(capsys, str(folder))[0]


def _damaged(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    """A file after a fault: a bit flipped, bytes lost, doubled, swapped, zeroed, cut off, or those of another entry."""
    at, length = rng.randrange(len(raw)), rng.randrange(1, 40)
    return rng.choice(
        [
            raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :],
            raw[:at] + raw[at + length :],
            raw[: at + length] + raw[at:],
            raw[:at] + raw[at : at + 2][::-1] + raw[at + 2 :],
            raw[:at] + bytes(len(raw[at : at + length])) + raw[at + length :],
            raw[:at],
            raw[:at] + other[at:],
            other,
        ]
    )


def test_each_of_300_damaged_entries_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[Any, ...]] = []
    put = Cache.put

    def noted(self: Cache, theorem: Any, settings: Any, outcome: Any, reads: Any) -> None:
        kept.append((self, theorem, settings))
        put(self, theorem, settings, outcome, reads)

    monkeypatch.setattr(Cache, "put", noted)
    checked(capsys, str(written(tmp_path, GOOD)))
    files = [cache._file(cache._key(theorem, settings)) for cache, theorem, settings in kept]
    good = [file.read_bytes() for file in files]
    assert len(good) == 2
    assert all(cache.get(theorem, settings) is not None for cache, theorem, settings in kept)
    rng, tried = random.Random(20261123), 0
    while tried < 300:
        n = rng.randrange(2)
        cache, theorem, settings = kept[n]
        damaged = _damaged(good[n], good[1 - n], rng)
        with contextlib.suppress(ValueError):
            if json.loads(damaged) == json.loads(good[n]):  # another kind of space says the same
                continue
        files[n].write_bytes(damaged)
        assert cache.get(theorem, settings) is None, damaged
        tried += 1
        files[n].write_bytes(good[n])
    assert all(cache.get(theorem, settings) is not None for cache, theorem, settings in kept)


LEAVES = (
    "raise SystemExit(0)",
    "raise SystemExit",
    "__import__('sys').exit(0)",
    "exit()",
    "quit(0)",
    "raise GeneratorExit",
    "raise type('E', (BaseException,), {})",
)


@pytest.mark.parametrize(("leaves", "jobs"), [*((one, "1") for one in LEAVES), (LEAVES[0], "2")])
def test_a_file_or_theorem_that_ends_the_process_is_an_error(
    leaves: str, jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, GOOD)
    for name, text in (
        ("loaded", f"x = 1\n{leaves}\n"),
        ("checked", READS.format(how="", what="1").replace("return", f"{leaves}\n    return")),
    ):
        folder = written(tmp_path, text, f"{name}.py")
        assert run(["check", "--jobs", jobs, "--no-cache", str(folder / f"{name}.py"), str(folder / "sizes.py")]) == 2
        told = capsys.readouterr()
        assert f"{name}.py:{2 if name == 'loaded' else 9}:" in told.err
        assert "the others were checked" in told.err
        (folder / f"{name}.py").unlink()


@pytest.mark.parametrize("text", ["", "x = 1\n", '"""Nothing."""\n'])
@pytest.mark.parametrize("json_", [False, True])
def test_a_run_that_checks_nothing_is_bad_input(text: str, json_: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, text)
    for asked in ([str(folder)], [str(folder / "sizes.py")]):
        assert run(["check", *asked, *(["--json"] if json_ else [])]) == 2
        assert "declares no theorem" in capsys.readouterr().err
    folder = written(tmp_path, GOOD.replace("cite=CITE)", "cite=CITE, level=2)"))
    assert run(["check", str(folder), "--level", "0"]) == 2
    assert "no theorem to check up to level 0" in capsys.readouterr().err


def test_a_pipe_is_no_file_of_theorems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert run(["check", str(tmp_path / "pipe.py")]) == 2
    assert "is no regular file" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLACEPROOF_CACHE", str(tmp_path / "file" / "cache"))
    checked(capsys, str(written(tmp_path, GOOD)))
    assert Cache(tmp_path / "nowhere").root.name == "nowhere"


OWN_SOURCE = """@article{me2026mine,
  author = {Me, Myself},
  title = {My Own Claims},
  year = {2026},
}
"""


def test_a_bibliography_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD.replace("rajbhandari2020zero", "me2026mine"))
    checked(capsys, str(folder), code=2)
    (folder / "references.bib").write_text(OWN_SOURCE)
    checked(capsys, str(folder))


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_pytest_collects_theorems(tmp_path: Path) -> None:
    folder = written(tmp_path, GOOD)
    written(tmp_path, "def broken(:\n# placeproof\n", "bad.py")
    (tmp_path / "test_other.py").write_text("def test_nothing():\n    pass\n")
    ran = pytest_in(tmp_path)
    assert "3 passed" in ran.stdout, ran.stdout
    assert "1 failed" in ran.stdout
    assert "error[PP401]: this is no Python" in ran.stdout
    assert "Traceback" not in ran.stdout
    assert "2 passed" in pytest_in(tmp_path, str(folder / "sizes.py")).stdout
    (folder / "bad.py").unlink()
    (folder / "sizes.py").write_text(WRONG)
    failed = pytest_in(tmp_path)
    assert "states    s/n < s" in failed.stdout
    assert failed.returncode == 1


def test_pytest_compares_with_the_lock_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, GOOD)
    checked(capsys, str(folder), "--update")
    assert pytest_in(tmp_path).returncode == 0
    written(tmp_path, GOOD.replace('"n": 9', '"n": 11'))
    assert "+ witness: n = 11" in pytest_in(tmp_path).stdout


SOUND = {
    "cite": "'rajbhandari2020zero'", "skip": "{}", "because": "'so'", "witness": "{'n': 1}", "note": "'tried'", "label": "'two'",
    "make": "lambda n: n >= 2", "refuted_at": "{'n': 1}", "breaks": "None", "proved": "False", "lemmas": "[]",
}  # fmt: skip
DECLARED = """
from placeproof.theory import Degree, Open, Proved, Refuted, holds, theorem

@theorem(expect={expect}, cite={cite}, skip={skip})
def counts(n: Degree):
    "There is a device."
    return holds(n >= 1, lemmas={lemmas})

counts.control({label}, {make}, refuted_at={refuted_at}, breaks={breaks}, proved={proved})
"""


@pytest.mark.parametrize("part", SOUND)
@pytest.mark.parametrize(
    "value",
    ["3", "[3]", "[None]", "(1, 2)", "{1: 2}", "{'n': [2]}", "object()", "'x' * 500", "lambda a, b, c: a", "2**99999", "{'n': 2**99999}"],
)
def test_a_declaration_of_anything_is_no_bug_of_ours(part: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each part of a theorem's declaration as something that it is not."""
    parts = SOUND | {part: value}
    expect = {"note": f"Open({value})", "because": f"Refuted(because={value})", "witness": f"Refuted(because='so', witness={value})"}
    text = DECLARED.format(**parts, expect=expect.get(part, "Proved()"))
    code = run(["check", str(written(tmp_path, text)), "--no-cache", "--no-second-opinion", "--jobs", "1"])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2), (out, err)
    assert (code == 2) == err.startswith("error["), (out, err)
    assert code == 2 or part in ("because", "note", "label", "breaks", "make")
