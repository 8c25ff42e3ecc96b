"""What a process reads while it checks theorems: a verdict of an earlier run stands only as long as all of that is as it was.

Python tells of every file that is opened, by whatever code. What is not told (environment variables, whether a file is there) is not
followed; what reads where nobody sees it (other processes, connections) keeps an outcome from being kept at all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parents[2])
#: What is installed has a version, and is told by that (see `cache.py`).
_INSTALLED = tuple({*sysconfig.get_paths().values(), *map(os.path.realpath, sysconfig.get_paths().values()), _PACKAGE})
_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_UNSEEN = frozenset({
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn", "socket.connect",
    "sqlite3.connect",
})  # fmt: skip
_EVENTS = _LISTINGS | _UNSEEN | {"open"}
#: Larger files are not read twice.
_MOST_BYTES = 64 * 2**20


@dataclass(slots=True)
class _Reads:
    """``digests``: of what was read, by path. ``lost``: something was done of which nobody can say what it read."""

    listening: bool = False
    hooked: bool = False
    lost: bool = False
    digests: dict[str, str] = field(default_factory=dict)


_READS = _Reads()
#: Of each thread: others are heard meanwhile.
_ASIDE = threading.local()


def found() -> dict[str, str] | None:
    """Digests of all that this process has read since it began to listen, by path; None where that cannot be said."""
    return None if _READS.lost else dict(_READS.digests)


def unchanged(reads: Mapping[str, str]) -> bool:
    """Whether all of it would be read again."""
    return all(digest(path) == was for path, was in reads.items())


def listen() -> None:
    """Begin to note what this process reads."""
    if not _READS.hooked:
        sys.addaudithook(_heard)
    _READS.hooked, _READS.listening = True, True


@contextmanager
def listening() -> Iterator[None]:
    """Note what is read in the block."""
    listen()
    try:
        yield
    finally:
        _READS.listening = False


@contextmanager
def aside() -> Iterator[None]:
    """What is read in the block does not bear on a verdict, or is known otherwise."""
    before, _ASIDE.on = getattr(_ASIDE, "on", False), True
    try:
        yield
    finally:
        _ASIDE.on = before


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or not _READS.listening or getattr(_ASIDE, "on", False):
        return
    with aside():  # what follows opens files itself
        try:
            if event in _UNSEEN:
                _READS.lost = True
                return
            for path in _read(event, arguments):
                now = digest(path)
                if now is None or _READS.digests.setdefault(path, now) != now:
                    _READS.lost = True
        except (OSError, ValueError, TypeError):
            _READS.lost = True


def _read(event: str, arguments: tuple[Any, ...]) -> tuple[str, ...]:
    """The path that is read, if it is the user's, and as it was said: from another folder that may be another file. Raises OSError where
    it may be relative to a folder that is not told."""
    if event in _LISTINGS and sys._getframe(2).f_code.co_filename.startswith("<frozen importlib"):
        return ()  # it looks where a module might be; which one it took is told when that is opened
    if event == "open" and _writes(*arguments[1:3]):
        return ()
    if arguments and isinstance(arguments[0], int):
        return ()  # it was open before
    given = os.fsdecode(arguments[0] if arguments and arguments[0] is not None else ".")
    path = os.path.abspath(given)
    if path.endswith(".pyc"):
        path = _source(path)
    if path.startswith(_INSTALLED) or path in ("/dev/null", "/dev/urandom"):
        return ()
    if event == "open" and arguments[1] is None and not os.path.isabs(given):
        raise OSError(f"{given}: relative to which folder, nobody tells")  # os.open, perhaps with dir_fd
    return (path,) if os.path.isabs(given) else (path, given)


def _source(path: str) -> str:
    """The file that a compiled one is of: the former changes first."""
    try:
        return importlib.util.source_from_cache(path)
    except ValueError:
        return path


def _writes(mode: str | None, flags: int) -> bool:
    return mode[0] in "wxa" and "+" not in mode if mode else bool(flags & os.O_WRONLY)


def digest(path: str) -> str | None:
    """A digest of what a path leads to: of a file its content, of a folder its names; None where it has none that would last."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return hashlib.sha256("\0".join(sorted(os.listdir(path))).encode(errors="surrogateescape")).hexdigest()
        if not stat.S_ISREG(mode) or os.stat(path).st_size > _MOST_BYTES:
            return None
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return "none"
