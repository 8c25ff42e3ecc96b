"""Names as people write them: in other letters, or by another word. What was understood so is said beside the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_heard: ContextVar[dict[str, str] | None] = ContextVar("heard", default=None)


@contextmanager
def hearing() -> Iterator[dict[str, str]]:
    """What is understood otherwise than it is written, within: as it is written -> as it was read."""
    noted: dict[str, str] = {}
    token = _heard.set(noted)
    try:
        yield noted
    finally:
        _heard.reset(token)


def heard() -> dict[str, str]:
    """What was so far, where somebody listens; who tells it takes it out."""
    return _heard.get() or {}


def read_as(written: str, name: str) -> str:
    """The name, noted as what something written means."""
    if (noted := _heard.get()) is not None and written != name:
        noted[written] = name
    return name


def respelled(written: str, known: Iterable[str], words: Mapping[str, str] | None = None) -> str | None:
    """The name that is meant: the only one that differs in capitals alone, else in hyphens, underscores and spaces, too; or what another
    word stands for.

    None where there is none, or several: then nobody guesses.
    """
    each = {name: name for name in known} | dict(words or {})
    for key in (str.lower, _alike):
        if found := {name for word, name in each.items() if key(word) == key(written)}:
            return read_as(written, found.pop()) if len(found) == 1 else None
    return None


def _alike(name: str) -> str:
    """Dots stay: they are in numbers, and 1.3b is not 13b."""
    return re.sub(r"[-_ ]", "", name.lower())
