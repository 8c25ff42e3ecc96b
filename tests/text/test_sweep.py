"""``placeproof plan --sweep``: the same file of answers however it came about, and what is wrong with a sweep's file."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from placeproof.answers import engines
from placeproof.answers.engines import TRIES, Dask, Processes
from placeproof.cli import plan as plans
from placeproof.cli.main import run
from placeproof.cli.sweep import answer
from placeproof.core import files
from placeproof.report.sweep import answer_text, best
from placeproof.theory.suite.cache import sources

SWEEP = """
cluster = "dgx-h100"
only = ["recompute=none", "tp=1", "cp=1", "pp=1", "b=1"]
global_batch = 2
model = "gpt3-125m"
top = 1

[grid]
devices = [1, 2]
"""
#: No question of it is derived.
QUICK = SWEEP.replace("[grid]", '[grid]\nmodel = ["gpt3-125m", "gpt3-350m"]') + '\n[[question]]\nmodel = "llama3-8b"\ndevices = 1\n'
PLAN = {"strategy": "zero3(2)", "b": 1, "m": 1, "recompute": "none", "seconds": 0.25, "tokens": 1234.5, "fits": None, "verdict": "proved"}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(SWEEP)
    Path("quick.toml").write_text(QUICK)


def swept(name: str, *options: str, sweep: str = "sweep.toml") -> tuple[int, bytes]:
    code = run(["plan", "--sweep", sweep, "--out", name, *options])
    return code, Path(name).read_bytes()


# Processes.


def of_a_second_life(path: str) -> str:
    """A call whose process dies the first time."""
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return path


def test_a_call_whose_process_dies_is_made_again_and_no_other_pays_for_it() -> None:
    found = dict(Processes(2).run(of_a_second_life, ["a", "b"]))
    assert found == {0: "a", 1: "b"}
    assert dict(Processes(1).run(os._exit, [1])) == {0: None}
    assert not multiprocessing.active_children()


def test_a_call_that_always_dies_was_made_so_often(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert dict(Processes(1).run(functools.partial(of_no_life, str(log)), [0])) == {0: None}
    assert log.read_text() == "x" * TRIES


def of_no_life(log: str, _: object) -> None:
    with open(log, "a") as file:
        file.write("x")
    os._exit(1)


def test_an_exception_of_a_call_is_raised_and_who_stops_asking_stops_the_processes() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(Processes(1).run(int, ["x"]))
    answers = Processes(2).run(time.sleep, [0, 600])
    assert next(iter(answers)) == (0, None)
    began = time.monotonic()
    answers.close()
    assert time.monotonic() - began < 60
    assert not multiprocessing.active_children()


def test_two_jobs_of_which_one_is_killed_write_what_one_process_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as alone:
        alone.setattr(engines.Processes, "run", lambda _, call, arguments: ((n, call(one)) for n, one in enumerate(arguments)))
        assert swept("one.jsonl", "--jobs", "1")[0] == 0
    shown = capsys.readouterr().out
    killed: list[Any] = []

    def kill() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.01)
        killed.append(multiprocessing.active_children()[0])
        time.sleep(0.3)
        killed[0].kill()

    threading.Thread(target=kill).start()
    code, two = swept("two.jsonl", "--jobs", "2")
    assert (code, capsys.readouterr().out) == (0, shown)
    assert killed[0].exitcode == -9
    assert two == Path("one.jsonl").read_bytes()
    header, first, _ = map(json.loads, two.splitlines())
    assert (header["schema"], header["questions"]) == ("placeproof.sweep/1", 2)
    pins = [text for pin in first["question"]["only"] for text in ("--only", pin)]
    question = ["--model", "gpt3-125m", "--cluster", "dgx-h100", "--devices", "1", "--global-batch", "2", "--top", "1", *pins]
    assert run(["plan", *question, "--json"]) == 0
    assert first["plan"] == json.loads(capsys.readouterr().out)


# What becomes of a file.


class Here:
    """An engine without processes, which notes whom it asks, and what questions it gets answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.stops: int | None = None
        self.lost: set[int] = set()
        monkeypatch.setattr(engines.Processes, "run", lambda _, call, arguments: self.run(call, arguments))
        monkeypatch.setattr(plans, "planned", lambda question: {"plans": [PLAN], "of": question["model"]})

    def run(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number, one in reversed(list(enumerate(arguments))):
            if len(self.asked) == self.stops:
                raise KeyboardInterrupt
            self.asked.append(one["number"])
            yield number, None if one["number"] in self.lost else call(one)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(monkeypatch)


def quick(name: str) -> tuple[int, bytes]:
    return swept(name, sweep="quick.toml")


def test_an_interrupted_sweep_goes_on_where_it_was(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    assert quick("whole.jsonl")[0] == 0
    whole = Path("whole.jsonl").read_bytes()
    header, *rows = whole.decode().splitlines(keepends=True)
    assert [json.loads(row)["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert [json.loads(row)["question"]["devices"] for row in rows] == [1, 2, 1, 2, 1]
    here.asked, here.stops = [], 2
    assert quick("part.jsonl")[0] == 130
    assert Path("part.jsonl").read_text() == header + rows[4] + rows[3]
    assert "2 of 5 questions were answered; they are in part.jsonl" in capsys.readouterr().err
    here.asked, here.stops = [], None
    assert quick("part.jsonl") == (0, whole)
    assert here.asked == [3, 2, 1]
    here.asked = []
    assert quick("part.jsonl") == (0, whole)
    assert here.asked == []
    assert run(["plan", "--sweep", "quick.toml"]) == 0
    assert len(here.asked) == 5


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_torn_last_line_is_dropped(here: Here, kept: int) -> None:
    whole = quick("whole.jsonl")[1]
    header, *rows = whole.splitlines(keepends=True)
    here.asked = []
    Path("torn.jsonl").write_bytes(header + rows[2] + rows[0][:kept])
    assert quick("torn.jsonl") == (0, whole)
    assert here.asked == [5, 4, 2, 1]
    Path("torn.jsonl").write_bytes(header[:kept])
    assert quick("torn.jsonl") == (0, whole)


def test_the_file_of_another_sweep_is_refused_and_left_as_it_is(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    whole = quick("whole.jsonl")[1]
    header, first, *rest = whole.splitlines(keepends=True)
    other = header.replace(b'"digest": "', b'"digest": "0')
    stale = header.replace(b'"sources": "', b'"sources": "0')
    moved = first.replace(b'"number": 1,', b'"number": 2,')
    outside = first.replace(b'"number": 1,', b'"number": 6,')
    behind = first.replace(b'"number": 1,', b'"number": -5,')
    neither = first.replace(b'"failure": null', b'"failure": "none"')
    for content, message in [
        (b"a poem", "it is no file of a sweep's results"),
        (b"a poem\n", "it is no file of a sweep's results"),
        (b"[1]\n" + first, "it is no file of a sweep's results"),
        (other + first, "it is of other questions, or of another version"),
        (stale + first, "it is of other questions, or of another version"),
        (header + b"{}\n" + first, "its line 2 is no answer to one of the questions"),
        (header + first[:40] + b"\n", "its line 2 is no answer to one of the questions"),
        *((header + rest[0] + line, "its line 3 is no answer to one of the questions") for line in (moved, outside, behind, neither)),
    ]:
        here.asked = []
        Path("other.jsonl").write_bytes(content)
        assert quick("other.jsonl") == (2, content)
        assert message in capsys.readouterr().err
        assert here.asked == []
    Path("other.jsonl").write_bytes(other)
    Path("quick.toml").write_text(QUICK.replace("global_batch = 2", "global_batch = 4"))
    assert quick("whole.jsonl") == (2, whole)


def test_a_question_without_an_answer_is_a_row_and_is_asked_again(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    here.lost = {2}
    code, whole = quick("lost.jsonl")
    assert code == 3
    rows = [json.loads(line) for line in whole.splitlines()[1:]]
    assert [row["failure"] is None for row in rows] == [True, False, True, True, True]
    assert rows[1]["plan"] is None
    assert "has died each time" in rows[1]["failure"]
    assert "4 with plans, 1 without an answer" in capsys.readouterr().out
    here.asked, here.lost = [], set()
    assert quick("lost.jsonl")[0] == 0
    assert here.asked == [2]


def test_a_combination_that_cannot_be_is_a_row_and_is_not_asked(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    Path("quick.toml").write_text(QUICK.replace("[1, 2]", "[1, 2, 3]"))
    code, whole = quick("some.jsonl")
    rows = [json.loads(line) for line in whole.splitlines()[1:]]
    assert [row["number"] for row in rows if row["plan"] is None] == [3, 6]
    assert all("2 sequences over 3 replicas" in row["cannot"] for row in rows if row["plan"] is None)
    assert sorted(here.asked) == [1, 2, 4, 5, 7]
    assert code == 1
    told = capsys.readouterr().out
    assert "5 with plans, 2 that cannot be" in told
    assert "cannot be: no micro-batch" in told
    here.asked = []
    assert quick("some.jsonl") == (1, whole)
    assert here.asked == []


@pytest.mark.parametrize("devices", ["devices = [3]", "devices = [1, 3]\ncluster = ['dgx-h100', 'none']"])
def test_where_nothing_can_be_or_something_else_is_wrong_too_all_is_an_error(
    devices: str, here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("quick.toml").write_text(SWEEP.replace("devices = [1, 2]", devices))
    assert run(["plan", "--sweep", "quick.toml"]) == 2
    assert "2 sequences over 3 replicas" in capsys.readouterr().err
    assert here.asked == []


def test_whatever_goes_wrong_with_a_question_the_others_are_answered(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(question: dict[str, Any]) -> dict[str, Any]:
        if question["devices"] == 2:
            raise ZeroDivisionError("of ours")
        return {"plans": [PLAN]}

    monkeypatch.setattr(plans, "planned", planned)
    code, whole = quick("bug.jsonl")
    assert code == 3
    assert whole.count(b"placeproof has a bug: ZeroDivisionError: of ours") == 2


def test_one_process_answers_one_question_at_a_time() -> None:
    """Whatever threads it has: solvers are not made for several."""
    busy, most = 0, 0

    def planned(_: Any) -> dict[str, Any]:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        time.sleep(0.02)
        busy -= 1
        return {"plans": [PLAN]}

    asked = {"number": 1, "question": {}, "files": {}, "sources": sources()}
    with ThreadPoolExecutor(4) as threads:
        rows = list(threads.map(functools.partial(answer, planned), [asked] * 8))
    assert (most, [row["failure"] for row in rows]) == (1, [None] * 8)
    assert "another version" in answer(planned, asked | {"sources": "others"})["failure"]


def test_a_file_that_changes_meanwhile_is_noticed(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's file decides what the answers are: it is part of what is asked."""
    model = 'name = "mine"\nfamily = "gpt"\nsource = "mine"\ntitle = "mine"\n[sizes]\nh = 768\na = 12\nL = 12\nV = 50257\ns = 2048\n'
    Path("mine.toml").write_text(model)
    Path("quick.toml").write_text('model = "mine.toml"\ncluster = "dgx-h100"\ndevices = 1\n[grid]\nglobal_batch = [1, 2]\n')

    def planned(question: dict[str, Any]) -> dict[str, Any]:
        files.read_text("mine.toml", code="PP110", help="")
        Path("mine.toml").write_text(model + "\n")
        return {"plans": [PLAN]}

    monkeypatch.setattr(plans, "planned", planned)
    code, whole = quick("mine.jsonl")
    assert (code, whole.count(b"mine.toml is not what it was when the sweep began")) == (3, 1)
    assert quick("mine.jsonl") == (2, whole)


# What is wrong with a sweep.


@pytest.mark.parametrize("key", ["cluster", "only", "global_batch", "top", "grid", "model", "question"])
def test_a_misspelt_key_is_named_with_its_line(here: Here, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = QUICK.replace(key, f"{key}_qq", 1)
    Path("quick.toml").write_text(text)
    assert run(["plan", "--sweep", "quick.toml"]) == 2
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "_qq" in line)
    told = capsys.readouterr().err
    assert f"`{key}_qq` is no " in told
    assert f"--> quick.toml:{line}:" in told
    assert here.asked == []


def test_all_that_is_wrong_is_told_before_anything_runs(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    Path("quick.toml").write_text(
        'cluster = "dgx-h100"\ntop = 0\n[grid]\nmodel = ["gpt3-125m", "nothing"]\ndevices = 2\nwhy = [["ddp(4)"], "x"]\n'
        '[[question]]\nset = "s=4"\nfp8 = 1\nonly = [1]\njson = true\n'
    )
    assert run(["plan", "--sweep", "quick.toml", "--out", "wrong.jsonl"]) == 2
    told = capsys.readouterr().err
    for line, message in [
        (2, "`top` is a whole number of at least 1"), (5, "`devices` is a list; each is a text or a number"),
        (6, "`why` is a list; each is a list of texts"), (8, "`set` is a list of texts"), (9, "`fp8` is true or false"),
        (10, "`only` is a list of texts"), (11, "`json` is no key of `[[question]]`"),
    ]:  # fmt: skip
        assert message in told
        assert f"--> quick.toml:{line}:" in told
    assert not Path("wrong.jsonl").exists()
    assert here.asked == []


def test_questions_that_cannot_be_asked_are_all_told_once(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    Path("quick.toml").write_text(
        'cluster = "dgx-h100"\nglobal_batch = 2\n[grid]\nmodel = ["gpt3-125m", "nothing"]\ndevices = [2, 3]\n'
        '[[question]]\nmodel = "gpt3-125m"\ndevices = 2\nwhy = ["ddp(4)"]\nonly = ["tp=7"]\ntop = 1000\n'
        '[[question]]\nmodel = "gpt3-125m"\ndevices = 2\n'
    )
    assert run(["plan", "--sweep", "quick.toml"]) == 2
    told = capsys.readouterr().err
    assert told.count("there is no model `nothing`") == 1
    for message in (
        "`ddp(4)` is of 4 devices",
        "no mesh has 2 devices",
        "1000 plans cannot be listed",
        "asked by question 3",
        "question 6 is question 1 again",
        "quick.toml:6:1",
    ):
        assert message in told
    assert here.asked == []


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ('model = "gpt3-125m"', [], "0 questions are asked"),
        ("[grid]\ndevices = [" + "1, " * 10001 + "]", [], "10,001 questions are asked"),
        ("[grid]\ndevices = []", [], "`devices` is a list"),
        ("= 1", [], "this is not TOML"),
        (QUICK, ["--model", "gpt3-125m", "--top", "3"], "a sweep's file says what is asked, and not --model, --top"),
        (QUICK, ["--engine", "ray"], "there is no engine `ray`"),
        (QUICK, ["--engine", "dask"], "`--engine dask` needs a scheduler"),
        (QUICK, ["--engine", "dask", "--address", "tcp://x:1", "--jobs", "2"], "`--jobs` says processes of this machine"),
        (QUICK, ["--address", "tcp://x:1"], "`--address` is that of a scheduler"),
        (QUICK, ["--out", "rows.json"], "answers are lines of JSON"),
        (QUICK, ["--out", "nowhere/rows.jsonl"], "no file can be written there"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(content: str, options: list[str], message: str, here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text(content)
    assert run(["plan", "--sweep", "bad.toml", *options]) == 2
    assert message in capsys.readouterr().err
    assert here.asked == []


@pytest.mark.parametrize("value", ["1", '"1"', "0.5"])
def test_a_number_says_what_its_text_says(here: Here, value: str) -> None:
    Path("number.toml").write_text(f"efficiency = {value}\n" + QUICK)
    assert run(["plan", "--sweep", "number.toml", "--out", "number.jsonl"]) == 0
    rows = [json.loads(line) for line in Path("number.jsonl").read_text().splitlines()[1:]]
    assert len(here.asked) == len(rows) == 5
    assert not any(row["cannot"] for row in rows)


def test_what_is_said_of_a_sweep_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", "gpt3-125m", "--out", "x.jsonl", "--jobs", "2"]) == 2
    assert "--out: that is said of a sweep" in capsys.readouterr().err


# Dask.


def test_dask_answers_the_same_and_asks_again_whom_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        engine = Dask(cluster.scheduler_address)
        assert sorted(engine.run(abs, [-1, 2, -3])) == [(0, 1), (1, 2), (2, 3)]
        assert dict(engine.run(of_a_second_life, ["a"])) == {0: "a"}
        assert dict(engine.run(os._exit, [1])) == {0: None}
        with pytest.raises(ValueError, match="invalid literal"):
            list(engine.run(int, ["x"]))


def test_a_scheduler_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engines, "SECONDS", 1)
    assert run(["plan", "--sweep", "quick.toml", "--engine", "dask", "--address", "tcp://127.0.0.1:9"]) == 2
    told = capsys.readouterr().err
    try:
        import distributed  # noqa: F401
    except ImportError:
        assert 'pip install "placeproof[sweep]"' in told
    else:
        assert "no scheduler of Dask answers at `tcp://127.0.0.1:9`" in told


def test_the_best_of_an_answer_may_have_other_layers_of_stages() -> None:
    plan = {"seconds": "1/2", "stages": [3, 2], "strategy": "pp(2)", "b": 1, "m": 2, "recompute": "full:1,0"}
    shared = {"best": plan, "of": {"verdict": "proved"}}
    for listed, uneven, seconds in (
        ([{"seconds": "1"}], [shared, {"best": None}], "1/2"),
        ([{"seconds": "1/3"}], [shared], "1/3"),
        ([], [shared], "1/2"),
        ([], [{"best": None}], None),
    ):
        found = best({"plan": {"plans": listed, "uneven": uneven}})
        assert (None if found is None else found["seconds"]) == seconds
    row = {"failure": None, "cannot": None, "plan": {"plans": [], "uneven": [shared]}}
    assert answer_text(row) == "pp(2), b = 1, m = 2, stages 3,2, recompute full:1,0"
