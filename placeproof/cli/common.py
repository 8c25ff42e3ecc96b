"""What the commands share: exit codes, and reading a strategy, a program file, or values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Problems
from placeproof.core.files import read_text, write_text

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.cost.derive import Derivation
    from placeproof.programs import Program

EXIT_BAD_INPUT = 2
EXIT_BUG = 70


def is_program(text: str) -> bool:
    """Whether an argument names a file of a step program rather than a strategy."""
    return re.fullmatch(r"[^*()]*\.step", text.strip()) is not None


def read_subject(text: str) -> Strategy | Program:
    """A strategy expression, or the path of a step program. Raises InputError."""
    from placeproof.strategies import parse_strategy

    return read_program(text.strip()) if is_program(text) else parse_strategy(text)


def derive_all(texts: list[str], *, groups: bool = False) -> list[Derivation]:
    """Derive each argument: a strategy expression, or the path of a step program. All problems are raised together."""
    from placeproof.cost.derive import derive

    problems = Problems()
    subjects: list[Strategy | Program] = []
    for text in texts:
        with problems.collecting():
            subjects.append(read_subject(text))
    problems.raise_if_any()
    derived = []
    for subject in subjects:
        with problems.collecting():
            derived.append(derive(subject, groups=groups))
    problems.raise_if_any()
    return derived


def picture_path(plot: str | None) -> Path | None:
    """Where a picture goes, if it can: work is not to end in a wrong path. Raises InputError."""
    if plot is None:
        return None
    path = Path(plot)
    problems = Problems()
    if path.suffix.lower() != ".svg":
        problems.add("PP104", f"`--plot {plot}`: a picture is written as SVG", help=f"give a file that ends in .svg: {path.stem}.svg")
    elif not os.path.isdir(path.parent) or os.path.isdir(path):
        problems.add("PP104", f"`--plot {plot}`: no file can be written there", help="give a file in a folder that exists")
    problems.raise_if_any()
    return path


def write_picture(path: Path, text: str) -> None:
    """Write a picture. Raises InputError where that fails."""
    write_text(path, text, code="PP104")


def read_program(path: str) -> Program:
    """Read a step program from a file."""
    from placeproof.programs import read

    text = program_text(path)
    if defines_blocks(text):
        problems = Problems()
        message = f"{path} defines the blocks of a model beside its step, and is asked for as a step"
        problems.add("PP104", message, help=f"`placeproof derive {path}` derives it")
        problems.raise_if_any()
    return read(text, source=path)


def program_text(path: str) -> str:
    """The text of a program's file. Raises InputError."""
    return read_text(path, code="PP110", help="give the path of a readable step program")


def defines_blocks(text: str) -> bool:
    """Whether a program is a linked one: a step with the blocks that it calls."""
    return any(line.startswith(("def ", "stack(")) for line in text.splitlines())
