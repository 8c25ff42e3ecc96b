"""What the commands share: exit codes, and reading a strategy, a program file, or values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Problems
from placeproof.core.files import read_text

if TYPE_CHECKING:
    from placeproof.cost.derive import Derivation

EXIT_BAD_INPUT = 2
EXIT_BUG = 70


def is_program(text: str) -> bool:
    """Whether an argument names a file of a step program rather than a strategy."""
    return re.fullmatch(r"[^*()]*\.step", text.strip()) is not None


def derive_all(texts: list[str], *, groups: bool = False) -> list[Derivation]:
    """Derive each argument: a strategy expression, or the path of a step program. All problems are raised together."""
    from placeproof.core.program import Program
    from placeproof.core.strategy import Strategy
    from placeproof.cost.derive import derive
    from placeproof.strategies import parse_strategy

    problems = Problems()
    subjects: list[Strategy | Program] = []
    for text in texts:
        with problems.collecting():
            subjects.append(read_program(text.strip()) if is_program(text) else parse_strategy(text))
    problems.raise_if_any()
    derived = []
    for subject in subjects:
        with problems.collecting():
            derived.append(derive(subject, groups=groups))
    problems.raise_if_any()
    return derived


def read_program(path: str) -> Program:  # type: ignore[name-defined]  # noqa: F821
    """Read a step program from a file."""
    from placeproof.core.program import read

    return read(read_text(path, code="PP110", help="give the path of a readable step program"), source=path)
