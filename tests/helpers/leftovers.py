"""What a test leaves behind: processes of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def children() -> set[str]:
    """Processes whose parent this one is."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may just have ended
            if (process / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(process.name)
    return found


@contextmanager
def no_process_left() -> Iterator[None]:
    """After the block there is no child process that was not there before it."""
    before = children()
    yield
    assert children() <= before
