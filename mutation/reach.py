"""Which tests may notice a change: what `coverage_map.py` saw, read for `run.py`."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mutants import PACKAGE, Mutant

#: A first round of so many seconds, from so many files: to read all files of tests takes longer than most tests do.
FIRST_SECONDS, FIRST_FILES = 8.0, 3


@dataclass(frozen=True)
class Ran:
    """What one file of tests ran: seconds of its tests, their numbers by line of a source, and the data that was opened."""

    file: str
    tests: tuple[str, ...]
    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]
    opened: frozenset[str]

    def at(self, path: str, lines: range | None) -> set[str]:
        """Tests that run any of the lines, or any line of the file."""
        found = self.lines.get(path, {})
        wanted = found.values() if lines is None else (found.get(str(line), ()) for line in lines)
        return {self.tests[number] for numbers in wanted for number in numbers}


class Reach:
    """Which tests reach a change, those of the files that are most about it first."""

    def __init__(self, folder: Path) -> None:
        self.ran: list[Ran] = []
        for path in sorted(folder.glob("*.json")):
            data = json.loads(path.read_text(encoding="utf-8"))
            tests, opened = tuple(data["seconds"]), frozenset(data["opened"])
            self.ran.append(Ran(data["file"], tests, data["seconds"], data["lines"], opened))
        self.seconds = {name: seconds for ran in self.ran for name, seconds in ran.seconds.items()}

    def of(self, mutant: Mutant) -> list[str]:
        """Names of tests, the best first."""
        found = {ran.file: self._of_file(ran, mutant) for ran in self.ran}
        share = {ran.file: len(found[ran.file]) / max(len(ran.tests), 1) for ran in self.ran}
        word = mutant.path.partition("/")[0].removesuffix("s")
        files = sorted((file for file in found if found[file]), key=lambda file: (-share[file], word not in file))
        rounds: list[list[tuple[float, str]]] = [[], []]
        seconds = 0.0
        for at, file in enumerate(files):
            for cost, name in self._ordered(mutant, found[file]):
                early = at < FIRST_FILES and seconds + self.seconds[name] <= FIRST_SECONDS
                seconds += self.seconds[name] if early else 0
                rounds[0 if early else 1].append((cost, name))
        return [name for each in rounds for _, name in sorted(each)]

    def quick(self, mutant: Mutant) -> list[str]:
        """Names of tests, quick ones first, whichever their files are."""
        return [name for _, name in sorted(cost for ran in self.ran for cost in self._ordered(mutant, self._of_file(ran, mutant)))]

    def _ordered(self, mutant: Mutant, found: set[str]) -> list[tuple[float, str]]:
        """Quick ones first, of the cases of one test the first before the others; what names the changed file before what does not."""
        cases: Counter[str] = Counter()
        costs = []
        for name in sorted(found, key=self.seconds.__getitem__):
            test = name.partition("[")[0]
            cases[test] += 1
            costs.append(((self.seconds[name] + 0.02) * cases[test] / (5 if names(mutant.path, name) else 1), name))
        return sorted(costs)

    def _of_file(self, ran: Ran, mutant: Mutant) -> set[str]:
        if not mutant.path.endswith(".py"):
            return set(ran.tests) if mutant.path in ran.opened else set()
        lines = of_statement(mutant.path, mutant.line)
        if lines is not None:
            return ran.at(mutant.path, lines)
        return ran.at(mutant.path, None) or set().union(*(ran.at(path, None) for path in _users(mutant.path)))


def names(path: str, name: str) -> bool:
    """Whether the name of a test names a file of the product."""
    stem = Path(path).stem
    return len(stem) > 1 and re.search(rf"(?<![a-z0-9]){re.escape(stem)}(?![a-z0-9])", name) is not None


@lru_cache(maxsize=1024)
def _tree(path: str) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"))


@lru_cache(maxsize=4096)
def of_statement(path: str, line: int) -> range | None:
    """The lines of the statement of a function that a line lies in; none outside of functions, and in those that a module calls when it is
    read: that happens in whichever test comes first."""
    found = None
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node.lineno <= line <= (node.end_lineno or 0):
            found = node if found is None or node.lineno >= found.lineno else found
    if found is None or (isinstance(found, ast.FunctionDef) and found.name in _called_by_import(path)):
        return None
    inside = [n for n in ast.walk(found) if isinstance(n, ast.stmt) and n is not found and n.lineno <= line <= (n.end_lineno or 0)]
    least = max(inside, key=lambda n: n.lineno, default=found)
    return range(least.lineno, line + 1)


@lru_cache(maxsize=1024)
def _called_by_import(path: str) -> frozenset[str]:
    outside = [n for n in _tree(path).body if not isinstance(n, ast.FunctionDef | ast.ClassDef)]
    called = (n.func for stmt in outside for n in ast.walk(stmt) if isinstance(n, ast.Call))
    return frozenset(f.id for f in called if isinstance(f, ast.Name))


@lru_cache(maxsize=1)
def _imports() -> dict[str, list[str]]:
    """Of each module the files that import it, or something of it."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        other = str(path.relative_to(PACKAGE))
        named = set()
        for node in ast.walk(_tree(other)):
            if isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        for name in named:
            found.setdefault(name, []).append(other)
    return found


def _users(path: str) -> list[str]:
    """Files that import a module."""
    name = ".".join(("placeproof", *Path(path).with_suffix("").parts)).removesuffix(".__init__")
    return _imports().get(name, [])
