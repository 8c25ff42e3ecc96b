"""How long tests take, as recorded, and the level of each that follows from it.

``tests/times.json`` has a row for each test function that is not quick: how many cases it has, and the seconds of the slowest and of all of
them. ``python tests/helpers/times.py`` writes it. A function without a row is quick, or new: it is of level 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from functools import cache
from math import inf, sqrt
from pathlib import Path

RECORD = Path(__file__).parents[1] / "times.json"
#: Seconds of the slowest case from which on a function is of level 1, and of level 2. Of quick cases that take longer than the first of
#: these together, level 0 runs some.
SLOW = (0.1, 1.0)
#: Seconds of all cases of a function from which on level 2 runs some: as many as take the geometric mean of these and of all. A hundred
#: times as long are ten times as long then.
LONG = 0.25


#: Of a test function: how many cases, seconds of the slowest, seconds of all.
Row = tuple[int, float, float]


@cache
def rows() -> dict[str, Row]:
    """By the name of a test function, as pytest says it."""
    read = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return {f"{file}::{name}": tuple(row) for file, functions in read.items() for name, row in functions.items()}


def function(nodeid: str) -> str:
    """The test function of a case."""
    return nodeid.partition("[")[0]


def level(name: str) -> int:
    """The level of a test function: 0, 1 or 2."""
    _, slowest, _ = rows().get(name, (1, 0.0, 0.0))
    return sum(slowest >= seconds for seconds in SLOW)


def kept(nodeids: Iterable[str], most: int, whole: Collection[str] = ()) -> set[str]:
    """The cases that a run up to a level is of: all at level 3, and of ``whole`` functions at level 2. Of those that take long together,
    level 2 has some, and level 0 of quick ones, at equal distances."""
    cases: dict[str, list[str]] = {}
    for nodeid in nodeids:
        cases.setdefault(function(nodeid), []).append(nodeid)
    ran = {name: each for name, each in cases.items() if level(name) <= most}
    return {case for name, each in ran.items() for case in (each if name in whole and most == 2 else _some(name, each, most))}


def _some(name: str, cases: list[str], level: int) -> list[str]:
    count, _, together = rows().get(name, (1, 0.0, 0.0))
    longest = {0: SLOW[0], 2: sqrt(LONG * max(together, LONG))}.get(level, inf)
    most = max(1, int(count * longest / together)) if together > longest else len(cases)
    return cases if len(cases) <= most else [cases[len(cases) * n // most] for n in range(most)]


def seconds(paths: Iterable[str], most: int) -> float:
    """What the tests of files or folders take in a run up to a level, as far as they have rows."""
    found = [row for name, row in rows().items() if level(name) <= most and any(re.match(rf"{re.escape(p)}(/|::)", name) for p in paths)]
    return sum(together if most else min(together, SLOW[0]) for _, _, together in found)


def slowest_of_files() -> dict[str, float]:
    """Of each file with a row, the seconds of its slowest test."""
    found: dict[str, float] = {}
    for name, (_, slowest, _) in rows().items():
        file = name.partition("::")[0]
        found[file] = max(slowest, found.get(file, 0.0))
    return found
