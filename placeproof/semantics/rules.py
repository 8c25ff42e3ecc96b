"""Rules of composition: what strategies may share, in which order reductions go; each with programs that show it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from placeproof.core.program import Program, read
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

_FILE = Path(__file__).parent.parent / "strategies" / "rules.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule with its theorem's name. ``holds``: subjects that are proved; ``fails``: subjects that are refuted, or refused as input.

    A subject is the text of a program, or `strategy: EXPRESSION`, or `refused: EXPRESSION`.
    """

    name: str
    says: str
    holds: tuple[str, ...]
    fails: tuple[str, ...]


@lru_cache(maxsize=1)
def rules() -> dict[str, Rule]:
    """The rules by name."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    found = [Rule(name=r["name"], says=r["says"], holds=tuple(r["holds"]), fails=tuple(r["fails"])) for r in data["rule"]]
    return {rule.name: rule for rule in found}


def subject(text: str, name: str) -> Program:
    """The program of a subject. Raises InputError for one that is refused."""
    for kind in ("strategy: ", "refused: "):
        if text.startswith(kind):
            return lower(parse_strategy(text.removeprefix(kind)))
    return read(text.lstrip("\n"), source=name)
