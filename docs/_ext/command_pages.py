"""Help texts and error messages, as the command line really prints them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from option_pages import options
from pipe_tables import block, plain

from placeproof.cli.main import program, run
from placeproof.core.codes import CODES, Code

_COLUMNS = "100"


def printed(*arguments: str) -> str:
    """What a command prints, on standard output and on standard error together."""
    out = io.StringIO()
    with patch.dict(os.environ, COLUMNS=_COLUMNS), redirect_stdout(out), redirect_stderr(out):
        run(list(arguments))
    return out.getvalue()


def commands() -> str:
    """The help of the program and of each command, and a table of its options with anchors and examples."""
    parts = [block(printed("--help"))]
    for name in program.commands:
        parts += [f"## placeproof {name}\n", block(printed(name, "--help")), options(name)]
    return "\n".join(parts)


def errors() -> str:
    """Every error code with an input that has it, and the error that this input gives."""
    with TemporaryDirectory() as folder, chdir(folder):
        return "\n".join(_error(code) for code in CODES.values())


def _error(code: Code) -> str:
    parts = [f"## {code.code}: {code.title}\n", f"{plain(code.meaning)} {plain(code.remedy)}\n"]
    with _example(code) as arguments:
        if code.kind in FILES:
            parts += [f"With `{FILES[code.kind]}`:\n", block(code.example, {"file": "toml", "lock": "json"}.get(code.kind, "python"))]
        shown = " ".join(f'"{a}"' if set(a) & set(" *()") else a for a in arguments)
        parts.append(block(f"$ placeproof {shown}\n{printed(*arguments)}"))
    return "\n".join(parts)


#: The file that an example of some kinds is written to.
FILES = {"file": "mine.toml", "program": "mine.step", "theorem": "mine.py", "lock": "verdicts.lock.json"}


#: A theorem that stands, beside a lock file that does not.
THEOREM = '''from placeproof.theory import Integer, Proved, theorem

@theorem(expect=Proved(), cite="rajbhandari2020zero")
def square(n: Integer):
    """A square is not negative."""
    return n * n >= 0

square.control("cube", lambda n: n * n * n >= 0, refuted_at={"n": -1})
'''


@contextmanager
def _example(code: Code) -> Iterator[list[str]]:
    """The arguments that give a code's example, with its file in the current folder."""
    match code.kind:
        case "file" | "program":
            path = Path(FILES[code.kind])
            path.write_text(code.example, encoding="utf-8")
            yield ["derive", str(path)]
            path.unlink()
        case "theorem" | "lock":
            paths = {Path(FILES[code.kind]): code.example} | ({Path("mine.py"): THEOREM} if code.kind == "lock" else {})
            for path, text in paths.items():
                path.write_text(text, encoding="utf-8")
            yield ["check", "mine.py"]
            for path in paths:
                path.unlink()
        case "set":
            yield ["derive", "zero3(8)", *(part for setting in code.example.split() for part in ("--set", setting))]
        case "precision":
            yield ["derive", "ddp", "--precision", code.example]
        case "unset":
            yield ["derive", *code.example.split()]
        case _:
            yield ["derive", code.example]
