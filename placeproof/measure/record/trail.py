"""What a rank did last, in a file that outlives it: the only witness of one that is killed."""

from __future__ import annotations

import mmap
from pathlib import Path

_SIZE = 512


class Trail:
    """Where a rank writes down what it is about to do. Nothing is written without a path."""

    def __init__(self, path: Path | None) -> None:
        self._map: mmap.mmap | None = None
        if path is not None:
            path.write_bytes(bytes(_SIZE))
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), _SIZE)

    def say(self, what: str, phase: str, line: int) -> None:
        """The next thing: an operation, a phase of the step, and the line of the script, 0 for none."""
        if self._map is not None:
            self._map[:] = f"{line}\n{phase}\n{what}".encode()[:_SIZE].ljust(_SIZE, b"\0")


def last_said(path: Path) -> tuple[str, str, int] | None:
    """What was said last: what, phase and line; None if nothing was."""
    text = path.read_bytes().rstrip(b"\0").decode(errors="replace") if path.exists() else ""
    if not text:
        return None
    line, phase, what = text.split("\n", 2)
    return what, phase, int(line)
