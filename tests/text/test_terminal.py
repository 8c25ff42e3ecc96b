"""How results are laid out: fitted to a width without a word being changed, in colours that repeat what words say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placeproof.cli import terminal
from placeproof.cli.main import run
from placeproof.report.document import Code, Document, Lines, Notes, Section, Table, section
from placeproof.report.text import Line, columns, folded, text

FILES = [*golden.files()]


@pytest.mark.parametrize(("path", "command", "width"), FILES, ids=[path.stem for path, _, _ in FILES])
def test_what_is_printed_is_what_was_looked_at(path: Path, command: tuple[str, ...], width: int) -> None:
    """If what is printed now is right, `python tests/helpers/golden.py` writes it."""
    shown = golden.printed(command, width)
    assert shown == path.read_text(encoding="utf-8")
    assert max(map(len, shown.splitlines())) <= width


def test_nothing_else_is_kept() -> None:
    assert {path.name for path in golden.FOLDER.iterdir()} == {path.name for path, _, _ in FILES}


WORD = st.text("ab*/(=_", min_size=1, max_size=12)
TEXT = st.lists(WORD, max_size=25).map(" ".join)
NUMBER = st.integers(0, 10**9).map(str)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 9))
    right = draw(st.sets(st.integers(0, count - 1)))
    row = st.tuples(*(NUMBER if i in right else TEXT for i in range(count)))
    head = draw(st.one_of(st.just(()), st.tuples(*[WORD] * count)))
    return Table(draw(st.lists(row, max_size=4)), head, sorted(right))


PART = st.one_of(tables(), *(st.lists(TEXT, max_size=4).map(kind) for kind in (Lines, Notes, Code)))


@given(st.lists(st.builds(Section, TEXT, st.lists(PART, max_size=3).map(tuple)), min_size=1, max_size=3), st.integers(40, 140))
def test_every_line_fits_and_every_word_is_there(sections: list[Section], width: int) -> None:
    document = Document(name="any", sections=lambda: sections, data=dict)
    fitted = text(document, width=width)
    assert all(len(line) <= width for line in fitted.splitlines())
    assert set(fitted.split()) >= set(text(document).split())


@given(tables())
def test_what_has_room_stays_as_it_is(table: Table) -> None:
    document = Document(name="any", sections=lambda: [section("", table)], data=dict)
    whole = text(document)
    width = max([40, *map(len, whole.splitlines())])
    assert text(document, width=width).split("\n") == [line.rstrip() for line in whole.split("\n")]


def test_a_table_of_many_numbers_goes_on_below_itself() -> None:
    head = ("strategy", *(f"column{i}" for i in range(12)))
    rows = [head, ("zero3(8)", *(str(10**6 + i) for i in range(12))), ("fsdp(64) * tp(8) * sp * pp(16)", *(str(i) for i in range(12)))]
    shown = list(columns(rows, range(1, 13), width=60))
    heads = [line for line in shown if "strategy" in line]
    assert len(heads) == 3
    assert sum(len(line.split()) - 1 for line in heads) == 12
    assert all(len(line) <= 60 for line in shown)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("one two three four", ["one two", "  three", "  four"]),
        ("  - one two three", ["  - one", "    two", "    three"]),
        ("sizes: b = 1, m = 22", ["sizes: b", "  = 1, m", "  = 22"]),
    ],
)
def test_folded(line: str, expected: list[str]) -> None:
    assert folded(line, 9) == expected


def colored(*arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **environment: str) -> str:
    for name in ("NO_COLOR", "TERM", "COLUMNS", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run([*arguments])
    return capsys.readouterr().out


ESCAPE = re.compile("\x1b\\[[0-9;]*m")


def test_colours_repeat_what_words_say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plain = colored("prove", "zero3", "--brief", monkeypatch=monkeypatch, capsys=capsys)
    assert plain == "zero3: proved for N >= 1\n"
    bright = colored("prove", "zero3", "--brief", "--color", "always", monkeypatch=monkeypatch, capsys=capsys, NO_COLOR="1")
    assert "\x1b[1;32mproved" in bright
    assert ESCAPE.sub("", bright) == plain
    for more in ([], ["--color", "auto"], ["--color", "never"]):
        assert colored("prove", "zero3", "--brief", *more, monkeypatch=monkeypatch, capsys=capsys) == plain


@pytest.mark.parametrize(
    ("word", "style"), [("proved", "32"), ("refuted", "31"), ("does not fit", "31"), ("may not fit", "33"), ("1 unexpected", "31")]
)
def test_verdicts_have_colours(word: str, style: str) -> None:
    shown = terminal._colors([Line(f"subject: {word}", "answer"), Line("0 unexpected", "answer"), Line("x = refuted(", "code")])
    first, second, third = shown.splitlines()
    assert f"{style}m" in first
    assert ESCAPE.search(second) is None
    assert ESCAPE.search(third) is None


def test_an_unknown_choice_of_colours_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "clusters", "--color", "pink"]) == 2
    assert "one of auto, always, never" in capsys.readouterr().err


def test_brief_and_whole_exclude_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["prove", "zero3"], ["list", "clusters"], ["derive", "zero3"], ["check", "paper"]):
        assert run([*command, "--brief", "--json"]) == 2
        assert "error[PP104]: `--brief` does not go with `--json`" in capsys.readouterr().err


BRIEF = {n: c for n, c in golden.COMMANDS.items() if "--help" not in c and "--brief" not in c and n != "error"}


@pytest.mark.parametrize("command", [c for c in BRIEF.values() if "--full" not in c], ids=lambda c: " ".join(c[:2]))
def test_brief_is_one_line(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    run([*command, "--brief"])
    assert capsys.readouterr().out.count("\n") == 1


def test_no_environment_of_the_terminal_decides_what_tests_print() -> None:
    assert "COLUMNS" not in os.environ


def typed(*arguments: str, rows: int = 24, columns: int = 90, slow: bool = False, **environment: str) -> tuple[int, str]:
    """What a command ends with and shows on a terminal of its own; ``slow``: it computes for three seconds more."""
    import fcntl
    import pty
    import struct
    import sys
    import termios

    code = "import time, placeproof.cli.listing as one; kinds = one._clusters\n"
    code += "one.KINDS['clusters'] = one.Listing(('name', 'title'), lambda: time.sleep(3.2) or kinds())\n" if slow else ""
    code += f"import sys; sys.argv = {['placeproof', *arguments]!r}; from placeproof.cli.main import main; main()"
    pid, terminal = pty.fork()
    if not pid:
        theirs = ("COLUMNS", "LINES", "NO_COLOR", "PAGER", "PLACEPROOF_PAGER")
        said = {name: text for name, text in os.environ.items() if name not in theirs} | {"TERM": "xterm", **environment}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execve(sys.executable, [sys.executable, "-c", code], said)  # readline, which pytest imports, has set LINES and COLUMNS in C
    shown = b""
    while True:
        try:
            got = os.read(terminal, 65536)
        except OSError:
            break
        if not got:
            break
        shown += got
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().replace("\r\n", "\n")


def test_a_terminal_has_colours_and_its_width() -> None:
    code, shown = typed("explain", "zero3", columns=60, rows=100)
    assert code == 0
    assert ESCAPE.search(shown)
    lines = ESCAPE.sub("", shown).splitlines()
    assert max(map(len, lines)) <= 60
    assert typed("explain", "zero3", columns=60, rows=100, NO_COLOR="1")[1] == "\n".join([*lines, ""])


def test_what_is_longer_than_the_screen_goes_through_a_pager(tmp_path: Path) -> None:
    paged = tmp_path / "paged"
    pager = f"cat > {paged}"
    assert typed("list", "clusters", rows=5, PAGER="false", PLACEPROOF_PAGER=pager) == (0, "")
    assert "dgx-h100" in paged.read_text()
    for more in ({"rows": 40}, {"rows": 5, "PAGER": "cat"}, {"rows": 5, "PAGER": "no-such-program 2>/dev/null"}):
        assert "dgx-h100" in typed("list", "clusters", **{"PAGER": "false", **more})[1]  # type: ignore[arg-type]
    assert "dgx-h100" in typed("list", "clusters", "--no-pager", rows=5, PAGER="false")[1]
    assert typed("prove", "clip_by_local_norm", rows=5, PAGER="head -1 > /dev/null")[0] == 1, "a pager that is left changes no exit code"


def test_a_command_that_takes_long_says_so_until_it_answers() -> None:
    code, shown = typed("list", "clusters", rows=100, slow=True)
    assert code == 0
    begin, _, answer = shown.rpartition("\r\x1b[K")
    assert "placeproof list: 2 s" in begin
    assert "placeproof list" not in answer
    assert "dgx-h100" in answer
