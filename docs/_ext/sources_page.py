"""The list of sources, and links to it."""

from __future__ import annotations

import re

from placeproof.theory.suite.bibliography import Source, entries, own


def bibliography() -> dict[str, Source]:
    """All sources by key."""
    return entries(own())


def sources() -> str:
    """The list of sources, each under its key."""
    return "\n".join(f"## {source.key}\n\n{source.text()}\n" for source in sorted(bibliography().values(), key=lambda s: s.key))


def cited(text: str) -> str:
    """A ``source`` field with its citation keys as links."""
    return re.sub(r"[A-Za-z]+\d{4}[a-z]*", lambda m: f"[{m[0]}](sources.md#{m[0]})" if m[0] in bibliography() else m[0], text)
