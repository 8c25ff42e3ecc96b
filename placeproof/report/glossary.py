"""Words that people ask for and that are no name here: what they mean, and where there is more of it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word. ``words``: others for the same; ``see``: commands; ``source``: of the word, a key of the bibliography."""

    name: str
    says: str
    words: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    source: str = ""


@cache
def terms() -> tuple[Term, ...]:
    """All of them."""
    rows = tomllib.loads((Path(__file__).parent / "glossary.toml").read_text(encoding="utf-8"))["term"]
    return tuple(
        Term(name=r["name"], says=r["says"], words=tuple(r.get("words", ())), see=tuple(r["see"]), source=r.get("source", "")) for r in rows
    )


def explained(term: Term) -> list[str]:
    """A word in lines of text."""
    lines = [f"{term.name}: {', '.join(term.words)}" if term.words else term.name, "", term.says]
    lines += [f"source: {term.source}"] if term.source else []
    return [*lines, "", *(f"`{command}`" for command in term.see)]
