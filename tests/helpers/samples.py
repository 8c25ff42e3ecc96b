"""Samples of sweeps that are too long for every run: each kind of subject is in one of them. At night a sweep is whole.

A kind is anything that subjects have in common and that might break by itself: a strategy, an option, an operation, two of them together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

#: Whether every subject of each sweep is tried.
NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
T = TypeVar("T")


def sample(subjects: Sequence[T], kinds: Callable[[T], Collection[Hashable]]) -> list[T]:
    """Few subjects, the same each time and in their order, of which one has each kind that any has; at night all.

    Chosen one by one: what has the most kinds that none before it has. One that has many kinds takes long, and has to bring more.
    """
    if NIGHTLY:
        return list(subjects)
    every = [set(kinds(subject)) for subject in subjects]
    missing = set().union(*every)
    chosen = set()
    while missing:
        best = max(range(len(every)), key=lambda n: len(every[n] & missing) / max(1, len(every[n])) ** 0.5)
        missing -= every[best]
        chosen.add(best)
    return [subject for n, subject in enumerate(subjects) if n in chosen]


def parts(strategy: str) -> set[str]:
    """The strategies that are composed, each with its options but for names of axes; one that stands alone is of a kind of its own."""
    each = {re.sub(r"\(dp=\w+\)", "", part) for part in strategy.split(" * ")}
    return each if len(each) > 1 else {*each, f"{strategy} alone"}


def pairs(strategy: str) -> set[str | frozenset[str]]:
    """What `parts` says, and each two strategies, with whatever options."""
    return {*parts(strategy), *map(frozenset, combinations({part.partition("(")[0] for part in parts(strategy)}, 2))}


#: Operations; what is given by name; arithmetic and comparisons; what loops and branches are about. Not names that a program chooses.
_WORD = re.compile(r"[a-z_]+(?=\()|[a-z]+=[a-z_*]+\b|root=\d+|[-+*/]=?|[<>=!]=|\b(?:if|else|for|reversed|units|microbatches|rank)\b")


def words(program: Mapping[str, str]) -> set[tuple[str, str]]:
    """The words of the language in a program's text, each with what is true of the program."""
    return {(program["truth"], word) for word in _WORD.findall(re.sub(r"#.*", "", program["text"]))}
