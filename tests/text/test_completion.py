"""Completion of command lines: what is offered, and that bash does with it what it should."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from placeproof.cli.completion import completed
from placeproof.cli.main import program, run
from placeproof.report.glossary import terms

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("placeproof der", ["derive"]),
        ("placeproof derive zero_i", ["zero_infinity"]),
        ('placeproof derive "zero3(8) * mu', ["zero3(8) * muon"]),
        ("placeproof derive 'zero3*che", ["zero3*checkpoint"]),
        ("placeproof derive zero3 --model llama3-4", ["llama3-405b"]),
        ("placeproof fit fsdp --cluster dgx-b3", ["dgx-b300"]),
        ("placeproof derive zero3 --set b_th", ["b_theta="]),
        ("placeproof derive zero3 --recom", ["--recompute"]),
        ("placeproof derive zero3 --color n", ["never"]),
        ("placeproof list sym", ["symbols"]),
        ("placeproof explain HF", ["HFU"]),
        ("placeproof prove mine.st", []),
        ("placeproof prove zero3 --smtlib ", []),
        ("placeproof nothing z", []),
        ("placeproof derive zero3", []),
    ],
)
def test_offered(line: str, expected: list[str]) -> None:
    assert completed(line, program) == expected


def test_every_command_is_offered() -> None:
    offered = completed("placeproof ", program)
    assert {"derive", "compare", "prove", "check", "list", "explain", "completion", "--help"} <= set(offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_read_by_their_shells(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    assert os.waitstatus_to_exitcode(os.system(shlex.join([program, "-n", str(script)]))) == 0


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "one of bash, zsh, fish" in capsys.readouterr().err


class Bash:
    """A shell that somebody types into."""

    def __init__(self, folder: Path) -> None:
        program = folder / "placeproof"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m placeproof "$@"\n')
        program.chmod(0o755)
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.environ |= {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TERM": "dumb", "PS1": "$ "}
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.typed("source <(placeproof completion bash); echo rea''dy\n", "ready")

    def typed(self, keys: str, until: str) -> str:
        os.write(self.terminal, keys.encode())
        shown, ends = "", time.monotonic() + 60
        while until not in shown and time.monotonic() < ends:
            if select.select([self.terminal], [], [], 0.5)[0]:
                shown += re.sub(r"\x1b\[[?0-9;]*[a-z]|[\a\r]", "", os.read(self.terminal, 4096).decode())
        return shown

    def end(self) -> None:
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    shell = Bash(tmp_path)
    yield shell
    shell.end()


def test_bash_completes(bash: Bash) -> None:
    assert "derive " in bash.typed("placeproof der\t", "derive ")
    assert 'derive "zero3 * muon" ' in "derive " + bash.typed('"zero3 * mu\t', 'muon" ').replace("\x08", "")
    assert "b_theta=" in bash.typed("--set b_th\t", "b_theta=")
    assert bash.typed("2 --model llama3-4\t", "llama3-405b ").endswith("2 --model llama3-405b ")


@pytest.mark.parametrize("term", terms(), ids=lambda t: t.name)
def test_words_that_people_ask_for_are_explained(term: object, capsys: pytest.CaptureFixture[str]) -> None:
    for word in (term.name, *term.words):  # type: ignore[attr-defined]
        assert run(["explain", word.upper()]) == 0
        assert term.says in capsys.readouterr().out  # type: ignore[attr-defined]
    for command in term.see:  # type: ignore[attr-defined]
        program, *arguments = shlex.split(command)
        assert program == "placeproof"
        if arguments[0] in ("explain", "list"):
            assert run(arguments) == 0, command
