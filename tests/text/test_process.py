"""The process around every command: interrupts, output that cannot be written, a reader that is gone, a user without a home, exit codes.

The commands are those that are registered: a new one is asked the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from samples import NIGHTLY

from placeproof.cli import main as cli
from placeproof.cli.main import run

COMMANDS = [*cli.program.commands]
#: Something short that each command can be asked, and the exit codes that it may then have: without PyTorch some refuse.
ASKED: dict[str, tuple[list[str], set[int]]] = {
    "derive": (["zero3"], {0}),
    "compare": (["ddp", "zero3"], {0}),
    "prove": (["ddp"], {0}),
    "explore": (["nothing"], {2}),
    "plan": (["--model", "nothing"], {2}),
    "fit": (["ddp"], {2}),
    "diff": (["ddp", "zero1"], {0}),
    "accuracy": (["nothing"], {2}),
    "calibrate": (["nothing", "--from", "nothing.csv"], {2}),
    "measure": (["nothing"], {2}),
    "verify": (["nothing.json"], {2}),
    "replay": (["nothing.json"], {2}),
    "experiment": (["nothing"], {2}),
    "shapes": (["nothing.py"], {2}),
    "trace": (["record", "nothing.py"], {2}),
    "check": (["theorems.py"], {0}),
    "list": (["modes"], {0}),
    "explain": (["zero3"], {0}),
    "completion": (["bash"], {0}),
}
THEOREM = '''"""Sizes."""
from placeproof.theory import Degree, Proved, theorem


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def counts(n: Degree):
    """There is a device."""
    return n >= 1


counts.control("two", lambda n: n >= 2, refuted_at={"n": 1})
'''
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no full device")


def some(first: int) -> list[str]:
    """By day every third command; streams are the same code for all."""
    return list(COMMANDS) if NIGHTLY else list(COMMANDS)[first::3]


def test_every_command_is_asked_something() -> None:
    assert set(ASKED) == set(COMMANDS)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "theorems.py").write_text(THEOREM)


def program(*arguments: str, before: str = "") -> list[str]:
    """The program's command line; ``before``: Python that comes first."""
    if not before:
        return [sys.executable, "-m", "placeproof", *arguments]
    script = (
        textwrap.dedent(before) + f"\nimport sys\nsys.argv = {['placeproof', *arguments]!r}\nfrom placeproof.__main__ import main\nmain()"
    )
    return [sys.executable, "-c", script]


def ended(*arguments: str, before: str = "", **how: object) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.run(program(*arguments, before=before), text=True, check=False, timeout=120, **streams)  # type: ignore[call-overload, no-any-return]


def test_messages_are_written_line_by_line_and_answers_are_not() -> None:
    """Whoever watches a file of messages sees each at once."""
    import io

    from placeproof.cli.process import _text

    read, write = os.pipe()
    for number, at_once in ((2, True), (write, False)):
        stream = _text(io.FileIO(number, "w", closefd=False), None)
        assert (stream.line_buffering, stream.encoding, stream.errors) == (at_once, "utf-8", "replace")
        stream.detach()
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupt_is_130_and_says_so(command: str) -> None:
    before = """
    import functools, os, signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from placeproof.cli import main as cli
    for command in cli.program.commands.values():
        def heard(*args, of=command.callback, **options):
            os.kill(os.getpid(), signal.SIGINT)
            return of(*args, **options)
        command.callback = functools.wraps(command.callback)(heard)
    """
    done = ended(command, *ASKED[command][0], before=before)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_that_python_drops_ends_the_process() -> None:
    before = """
    import functools, os, signal, time
    from placeproof.cli import main as cli, process
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process.SECONDS_TO_LET_GO = 0.2
    class Last:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
    for command in cli.program.commands.values():
        def deaf(*args, **options):
            one = Last()
            del one
            time.sleep(60)
        command.callback = functools.wraps(command.callback)(deaf)
    """
    done = ended("derive", "ddp", before=before)
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (130, "", "interrupted")
    assert "Exception ignored" in done.stderr


@pytest.mark.parametrize("arguments", [["check", "--no-cache", "-j", "1"], ["check", "--no-cache", "-j", "2"], ["prove", "--catalogue"]])
@pytest.mark.parametrize("seconds", [0.15, 4])
def test_an_interrupt_from_outside_ends_all_processes(arguments: list[str], seconds: float) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes begin deaf, and so do theirs
    group = subprocess.Popen(program(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    try:
        time.sleep(seconds)
        os.killpg(group.pid, signal.SIGINT)
        began = time.monotonic()
        _, err = group.communicate(timeout=60)
    finally:
        if group.poll() is None:
            os.killpg(group.pid, signal.SIGKILL)
    assert group.returncode == 130 or (seconds < 1 and group.returncode == -signal.SIGINT)  # Python itself had not begun yet
    assert err in ("", "interrupted\n")
    assert time.monotonic() - began < 10, "it computed on"
    nobody_is_left(group.pid)


def nobody_is_left(group: int) -> None:
    """All processes of a group end soon: a solver that holds its process ends its query first."""
    for _ in range(900):
        states = [Path(p, "stat").read_text().rpartition(")")[2].split() for p in Path("/proc").glob("[0-9]*") if (p / "stat").exists()]
        if not any(state[2] == str(group) and state[0] != "Z" for state in states):
            return
        time.sleep(0.1)
    raise AssertionError("processes are left")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    group = subprocess.Popen(program("check", "--no-cache", "-j", "2"), stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(4)
    group.kill()
    group.wait()
    nobody_is_left(group.pid)


def test_an_interrupt_of_z3_is_no_answer() -> None:
    before = """
    import os, signal, threading
    from placeproof.prove.solvers import scripts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    cubes = "".join(f"(declare-const {n} Int)" for n in "xyz") + "(assert (= (+ (* x x x) (* y y y) (* z z z)) 33))(assert (> x 1000))"
    try:
        print(scripts.ask_z3(cubes, 60_000))
    except KeyboardInterrupt:
        print("heard")
    os._exit(0)
    """
    assert ended(before=before).stdout == "heard\n"


@needs_full
@pytest.mark.parametrize("command", some(1))
@pytest.mark.parametrize("help_", [False, True])
def test_output_that_cannot_be_written(command: str, help_: bool) -> None:
    arguments, codes = (["--help"], {0}) if help_ else ASKED[command]
    with FULL.open("w") as full:
        done = ended(command, *arguments, stdout=full)
        unheard = ended(command, *arguments, stderr=full)
    assert done.returncode == 2
    if codes == {0}:
        assert done.stderr.startswith("error[PP110]: cannot write the output: no space left on device\n")
    assert unheard.returncode in codes, "a message that cannot be written changes nothing"


@pytest.mark.parametrize("command", some(0))
def test_streams_that_are_closed(command: str) -> None:
    arguments, codes = ASKED[command]
    closed = [
        subprocess.run(["sh", "-c", f'exec "$@" {which}', "sh", *program(command, *arguments)], check=False) for which in ("2>&-", "<&-")
    ]
    assert {one.returncode for one in closed} <= codes
    silent = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *program(command, *arguments)], check=False, stderr=subprocess.PIPE, text=True
    )
    assert silent.returncode == 2
    assert "Traceback" not in silent.stderr
    assert "error[" in silent.stderr


@pytest.mark.parametrize("command", some(1))
def test_a_reader_that_is_gone_changes_no_exit_code(command: str) -> None:
    arguments, codes = ASKED[command]
    reading, writing = os.pipe()
    os.close(reading)
    done = ended(command, *arguments, stdout=writing)
    os.close(writing)
    assert done.returncode in codes
    assert done.stderr == "" or codes != {0}


@pytest.mark.parametrize("command", some(2))
def test_a_user_without_a_home(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "PLACEPROOF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    before = """
    import pwd
    def nobody(_):
        raise KeyError("no such user")
    pwd.getpwuid = pwd.getpwnam = nobody
    """
    done = ended(command, *ASKED[command][0], before=before)
    assert done.returncode in ASKED[command][1], done.stderr
    assert "no such user" not in done.stderr
    home = ended(command, "~/x.toml", before=before)
    assert home.returncode == 2, home.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")
def test_a_user_that_nobody_knows(tmp_path: Path) -> None:
    """The interpreter may lie where only root can read: what is needed is loaded before."""
    before = """
    import os
    import placeproof.__main__, placeproof.report.diagnostics
    from placeproof.cli.main import run
    assert run(["check", "theorems.py", "--no-cache"]) == 0
    for name in ("HOME", "PLACEPROOF_CACHE", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    os.setgroups([])
    os.setuid(12345)
    """
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    done = ended("check", "theorems.py", before=before)
    assert done.returncode == 0, done.stderr
    assert "earlier runs" not in done.stdout


STEP = "mesh(dp)\ngradients = all_reduce(backward(parameters), dp)\n{}parameters, optimizer = update(parameters, optimizer, gradients)\n"


def test_exit_codes_of_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """0, 1 and 3 of `prove`, with and without `--against`; 1 and 3 win over what else was found."""
    (tmp_path / "good.step").write_text(STEP.format("gradients = scale(gradients, 1 / dp)\n"))
    (tmp_path / "sum.step").write_text(STEP.format(""))
    assert run(["prove", "good.step"]) == 0
    assert run(["prove", "sum.step"]) == 1
    assert run(["prove", "good.step", "--against", "ddp"]) == 0
    assert run(["prove", "sum.step", "--against", "ddp"]) == 1
    monkeypatch.setattr("placeproof.prove.kernel._answer", lambda *_: "unknown")
    assert run(["prove", "good.step"]) == 3
    assert run(["prove", "good.step", "--against", "ddp"]) == 3
    capsys.readouterr()


@pytest.mark.parametrize(("word", "code"), [("proved", 0), ("refuted", 1), ("unknown", 3)])
def test_exit_codes_of_the_catalogue(word: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What should be proved is, is refuted, or is unknown."""
    from placeproof.programs import read
    from placeproof.report.proof import catalogue as proof_catalogue

    for name, none in (("variants", lambda: ()), ("not_equivalent", lambda: ()), ("BLOCKS", ())):
        monkeypatch.setattr(proof_catalogue, name, none)
    real = proof_catalogue.judge
    step = {"proved": "gradients = scale(gradients, 1 / dp)\n"}.get(word, "")
    monkeypatch.setattr(proof_catalogue, "compositions", lambda: [("one", read(STEP.format(step)))])
    monkeypatch.setattr(proof_catalogue, "judge", lambda program: replace(real(program), word=word))
    assert run(["prove", "--catalogue"]) == code
    assert capsys.readouterr().out


def test_an_undecided_theorem_is_exit_code_three(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("placeproof.prove.kernel._answer", lambda *_: "unknown")
    Path("theorems.py").write_text(THEOREM.replace("theorem\n", "floor, theorem\n", 1).replace("return n >= 1", "return floor(n / 2) <= n"))
    assert run(["check", "theorems.py", "--no-cache", "--no-second-opinion"]) == 3
    assert "undecided" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "code"), [("reproduced", 0), ("differs", 1), ("crashed", 1), ("timed out", 1), ("not replayed", 3)])
def test_exit_codes_of_a_replay(word: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from types import SimpleNamespace

    from placeproof.cli import replay

    monkeypatch.setattr(replay, "find_spec", lambda _: object())
    monkeypatch.setattr(replay, "_read", lambda _: object())
    monkeypatch.setattr("placeproof.measure.replay.launch.replay", lambda *_, **__: SimpleNamespace(word=word))
    monkeypatch.setattr("placeproof.measure.replay.text.text", lambda one: one.word + "\n")
    assert run(["replay", "any.json"]) == code
    assert capsys.readouterr().out == f"{word}\n"


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
def test_exit_codes_of_an_experiment(holds: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from types import SimpleNamespace

    from placeproof.report.document import listing

    monkeypatch.setattr(
        "placeproof.measure.experiments.catalogue.experiments", lambda _: [SimpleNamespace(holds=True), SimpleNamespace(holds=holds)]
    )
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0")
    monkeypatch.setattr("placeproof.report.experiment.document", lambda *_: listing("experiments", "told"))
    assert run(["experiment", "memory"]) == code
    capsys.readouterr()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_zero_byte_is_bad_input(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "x\0y"]) == 2
    assert run([command, "--output", "x\0y"]) == 2
    assert "zero byte" in capsys.readouterr().err


class Leaving(BaseException):
    """Something that is no Exception."""


@pytest.mark.parametrize(
    "error", [SystemExit(0), SystemExit(None), SystemExit(1), Leaving(), GeneratorExit(), MemoryError(), OSError(32, "Broken pipe")]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_else_ends_a_command(
    command: str, error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is raised inside a command is a bug of ours, with its own code: 0 and 1 would be verdicts."""

    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.program.commands[command], "callback", broken)
    assert run([command, *ASKED[command][0]]) == 70
    assert "placeproof has a bug" in capsys.readouterr().err


def test_what_was_said_is_said_when_the_process_is_killed() -> None:
    """Messages do not wait in a buffer, also where they go to a pipe."""
    done = ended(
        "list",
        "modes",
        before="""
    import os, signal, sys
    from placeproof.cli.process import prepare
    prepare()
    print("before the end", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)
    """,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "before the end\n")
