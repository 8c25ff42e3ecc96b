"""Problems of an input as text: code, place, caret, help."""

from __future__ import annotations

import re
from collections.abc import Iterable

from placeproof.core.diagnostics import Diagnostic, Place
from placeproof.report.text import around, cells

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
    """The line that a place is on, with what is meant underlined; of a very long line, what is around it."""
    number = str(place.line)
    pad = " " * len(number)
    lines = [f"{pad} --> {place.source}:{place.line}:{place.column}"]
    if place.text.strip():
        text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", place.text.rstrip().replace("\t", " "))
        begin = cells(text[: place.column - 1]) + max(0, place.column - 1 - len(text))
        length = max(1, cells(text[place.column - 1 :][: place.length]))
        shown, marks = around(text, f"{' ' * begin}{'^' * length}", _WIDEST)
        lines += [f"{pad} |", f"{number} | {shown}", f"{pad} | {marks}"]
    return lines
