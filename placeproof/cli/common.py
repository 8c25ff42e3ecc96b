"""What the commands share: exit codes, pictures, and what configurations were read as."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Problems
from placeproof.core.files import write_text

if TYPE_CHECKING:
    from placeproof.answers.subject import Subject
    from placeproof.report.document import Document

EXIT_BAD_INPUT = 2
EXIT_BUG = 70


def read_as(subjects: Sequence[Subject]) -> Document | None:
    """What the configurations among the subjects were read as; None where there is none."""
    from placeproof.answers.subject import imported

    if not (every := imported(subjects)):
        return None
    from placeproof.report.imported import document

    return document(every, alone=len(subjects) == 1)


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
