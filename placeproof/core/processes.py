"""Processes that compute for this one: they hear no interrupt, and end when it does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection


@contextmanager
def deaf() -> Iterator[None]:
    """An interrupt is heard after the block. Processes that are started there never hear one: it is for the one that started them."""
    mask = getattr(signal, "pthread_sigmask", None)  # not on every system
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        yield
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """However the process ends that started this one, this one ends, too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (connection.wait([parent.sentinel]), os._exit(1)), daemon=True).start()
