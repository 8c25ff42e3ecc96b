"""What evidence speaks of: a strategy, or a program that is written down.

A text with several lines is a program. ``NAME.step`` is a file of the folder ``programs`` beside this module. The name of a program that
is not equivalent, or of a block, is that program. Anything else is an expression of strategies.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from placeproof.framework_rules.formula import Facts
from placeproof.programs import Program, read
from placeproof.semantics.catalogue import BLOCKS, not_equivalent, read_block, read_not_equivalent
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

_FOLDER = Path(__file__).parent / "programs"


@lru_cache(maxsize=256)
def read_subject(text: str) -> Program:
    """The program of a subject. Raises InputError for a strategy that cannot be used."""
    if "\n" in text:
        return read(text.lstrip("\n"), source="<rule>")
    if text.endswith(".step"):
        return read(source(text), source=text)
    if text in not_equivalent():
        return read_not_equivalent(text)
    if text in BLOCKS:
        return read_block(text)
    return lower(parse_strategy(text))


def source(name: str) -> str:
    """The text of a program of the folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def filled(name: str, facts: Facts) -> Program:
    """A program of the folder with facts put in: ``{dp}`` stands for the value of ``dp``."""
    return read(source(name).format(**facts), source=name)
