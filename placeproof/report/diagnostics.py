"""Problems of an input as text: code, place, caret, help."""

from __future__ import annotations

import re
from collections.abc import Iterable

from placeproof.core.diagnostics import Diagnostic, Place

_WIDEST = 160
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def render(diagnostics: Iterable[Diagnostic], after: str = "nothing was computed") -> str:
    """All problems, and a last line that counts them and says what became of the rest."""
    shown = list(diagnostics)
    blocks = [problem_text(d) for d in shown]
    count = f"{len(shown)} problem{'' if len(shown) == 1 else 's'}; {after}"
    return "\n\n".join([*blocks, count]) + "\n"


def problem_text(problem: Diagnostic) -> str:
    """One problem, with the line that it is on."""
    lines = [f"error[{problem.code}]: {problem.message}"]
    if problem.place is not None:
        lines += excerpt(problem.place)
    lines += [f"   = {note}" for note in problem.notes]
    if problem.help:
        lines.append(f"help: {problem.help}")
    lines.append(f"note: `placeproof explain {problem.code}`")
    return "\n".join(lines)


def excerpt(place: Place) -> list[str]:
    """The line that a place is on, with what is meant underlined."""
    number = str(place.line)
    pad = " " * len(number)
    lines = [f"{pad} --> {place.source}:{place.line}:{place.column}"]
    if place.text.strip():
        text, column = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", place.text.rstrip().expandtabs(1)), place.column
        if len(text) > _WIDEST:
            start = max(0, column - _WIDEST // 2)
            text, column = text[start : start + _WIDEST], column - start
        length = max(1, min(place.length, len(text) - column + 1))
        lines += [f"{pad} |", f"{number} | {text}", f"{pad} | {' ' * (column - 1)}{'^' * length}"]
    return lines
