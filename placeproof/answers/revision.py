"""Files as they are at a revision of Git: ``REVISION:PATH``, as ``git show`` takes it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from placeproof.core.diagnostics import refuse

_SECONDS = 60


@contextmanager
def checked_out(text: str) -> Iterator[str]:
    """The path of the file in a folder of its own while the block lasts; a text that names no revision as it is.

    Raises InputError where the revision, or the file in it, is not there. A file that it speaks of is not brought along.
    """
    revision, colon, path = text.partition(":")
    if not colon or not path or os.path.exists(text) or not revision.strip() or set(text) & set(" *()"):
        yield text
        return
    body = _shown(text, "./" if not path.startswith(("/", "./", "../")) else "", revision, path)
    with TemporaryDirectory() as folder:
        file = Path(folder) / Path(path).name
        file.write_bytes(body)
        yield str(file)


def _shown(text: str, here: str, revision: str, path: str) -> bytes:
    command = ["git", "show", "--end-of-options", f"{revision}:{here}{path}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        refuse("PP110", f"`{text}` could not be asked of git: {error}", help="give a file, or a strategy")
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        help = "REVISION:PATH, with a path from the current folder: `main:steps/ours.step`"
        refuse("PP110", f"git has no `{text}`" + (f": {why[0].removeprefix('fatal: ')}" if why else ""), help=help)
    return done.stdout
