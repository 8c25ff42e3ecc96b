"""The process around a command: streams that may be closed or full, and interrupts."""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from placeproof.core.diagnostics import Diagnostic, InputError

EXIT_BAD_INPUT = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

#: Seconds in which an interrupted command ends, or is ended: with what is around it less than one.
SECONDS_TO_LET_GO = 0.8


class OutputError(InputError):
    """The answer cannot be written where the user wants it."""

    after = "the output is not whole"


class _Answer(io.FileIO):
    """Standard output. A reader that has gone away (`| head -1`) is no fault; anything else that keeps it from being written is
    one of the user's."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            problem = Diagnostic(
                code="PP110", message=f"cannot write the output: {reason}", help="give it a file, a pipe or a terminal that takes it"
            )
            raise OutputError([problem]) from error


class _Messages(io.FileIO):
    """Standard error. A message that cannot be written changes nothing: the exit code says what there is to say."""

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            return super().write(data) or 0
        return memoryview(data).nbytes


def prepare() -> None:
    """Streams and interrupts as all commands need them. A stream that is closed is opened, so that no file of ours takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = _text(_Answer(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupted)


def _text(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    encoding, errors = (before.encoding, before.errors) if before is not None else ("utf-8", "replace")
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=raw.isatty() or raw.fileno() == 2)


class _Ticker:
    """Says on a terminal how long a command has been at work, from two seconds on: until it prints, shows a line of its own, or ends.

    A timer of the system and no thread: what is forked has neither, and no lock is held while it writes.
    """

    def __init__(self) -> None:
        self.began, self.shown, self.what = 0.0, False, ""

    def begin(self, what: str) -> None:
        if sys.stderr.isatty() and threading.current_thread() is threading.main_thread():
            self.began, self.what = time.monotonic(), what
            signal.signal(signal.SIGALRM, self._tick)
            signal.setitimer(signal.ITIMER_REAL, 2, 1)

    def end(self) -> None:
        """Also where it never began."""
        if self.began:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.began = 0.0
        if self.shown:
            self.shown = False
            os.write(2, b"\r\033[K")

    def _tick(self, *_: object) -> None:
        if self.began:
            self.shown = True
            with suppress(OSError):
                os.write(2, f"\r\033[K{self.what}: {time.monotonic() - self.began:.0f} s".encode())


ticker = _Ticker()


def patient() -> None:
    """Of a command that has something to say once it is interrupted: it may take longer."""
    global SECONDS_TO_LET_GO  # noqa: PLW0603
    SECONDS_TO_LET_GO = 5


@contextmanager
def live_line() -> Iterator[Callable[[str], None]]:
    """What shows a line in the place of the last one, on a terminal; it is gone after the block."""
    shown = sys.stderr.isatty()
    ticker.end()

    def tell(line: str) -> None:
        if shown:
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        tell("")


@contextmanager
def progress(noun: str) -> Iterator[Callable[[int, int], None]]:
    """What tells how many are done, and of how many, in a live line."""
    with live_line() as tell:
        yield lambda done, of: tell(f"{done} of {of} {noun}")


def _interrupted(number: int, frame: FrameType | None) -> None:
    """The first Ctrl-C lets go of what is open; a second one waits for nothing.

    Python drops an exception that is raised in a callback of its own (an object's end, an import's lock), and then nobody hears it: the
    process ends all the same."""
    signal.signal(signal.SIGINT, _gone)
    _thread.start_new_thread(_unheard, ())  # threading would take locks that the interrupted code may hold
    raise KeyboardInterrupt


def _unheard() -> NoReturn:
    time.sleep(SECONDS_TO_LET_GO)
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def _gone(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)
