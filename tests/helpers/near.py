"""Runs the tests that reach what was changed: `python tests/helpers/near.py`, with options of pytest behind.

What was changed is what differs from the last commit, or from `--since COMMIT`. Tests that run changed lines are taken from the map of
`mutation/coverage_map.py` (`--map`, `.map` if it is not said), as far as it knows the lines: a map is of the commit at which it was made,
and lines are followed from there. Of lines that are newer, of files that no test of the map opened, and without a map, it is the tests
whose imports are nearest to the file. A changed file of tests or of theorems is run itself, and for what tests read those that name it.
`--show` prints the tests instead.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PACKAGE = "placeproof/"
sys.path.insert(0, str(ROOT / "mutation"))
from reach import Ran, Reach  # noqa: E402

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """What files of tests ran, and the commit whose lines it speaks of."""

    ran: tuple[Ran, ...]
    commit: str


def git(*arguments: str) -> str:
    """What git prints; nothing where it fails, as it does of a file that a commit does not have."""
    return subprocess.run(["git", "-c", "core.quotepath=off", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def changed(since: str) -> dict[str, list[int]]:
    """Lines that differ, by their numbers at ``since``, of each file that differs; where lines were put in, those around them."""
    found: dict[str, list[int]] = {path: [] for path in git("ls-files", "--others", "--exclude-standard").splitlines()}
    for path in git("diff", "--name-only", "--no-renames", since).splitlines():
        hunks = [(int(start), int(count or 1)) for start, count in _HUNK.findall(git("diff", "-U0", "--no-renames", since, "--", path))]
        found[path] = [line for start, count in hunks for line in (range(start, start + count) if count else (start, start + 1)) if line]
    return found


def followed(path: str, lines: Iterable[int], since: str, commit: str) -> list[int | None]:
    """Numbers of the same lines at another commit; None of one that it does not have."""
    if since == commit:
        return list(lines)
    old, new = (git("show", f"{at}:{path}").splitlines() for at in (commit, since))
    number: dict[int, int] = {}
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        number |= {block.b + n + 1: block.a + n + 1 for n in range(block.size)}
    return [number.get(line) for line in lines]


def near(path: str, lines: list[int], since: str, known: Map | None) -> set[str]:
    """The tests for what changed in a file: names of cases, or of files."""
    if not path.startswith(PACKAGE):
        return beside(path)
    inside = path.removeprefix(PACKAGE)
    if known is None:
        return by_imports(path)
    if not path.endswith(".py"):
        return {test for ran in known.ran if inside in ran.opened for test in ran.tests} or by_imports(path)
    numbers = followed(path, lines, since, known.commit)
    found = {test for ran in known.ran for n in numbers if n is not None for test in ran.at(inside, range(n, n + 1))}
    return found if found and None not in numbers else found | by_imports(path)


def beside(path: str) -> set[str]:
    """The tests for a file that is no part of the product: itself, or the tests that import or name it."""
    file = ROOT / path
    if re.match(r"tests/.*/test_\w+\.py$|theorems/[a-z]\w*\.py$", path):
        return {path} if file.exists() else set()
    if path == "tests/conftest.py":
        return {"tests"}
    if path.startswith("tests/") and path.endswith(".py"):
        return by_imports(path)
    if path.endswith(".md"):
        return {"tests/text/test_docs.py"}
    names = [file.name, *([file.parent.name] if path.startswith("tests/") and file.parent.name not in ("tests", "data") else [])]
    named = re.compile(rf"""["'/`]({"|".join(map(re.escape, names))})["'/`]|^ *(from|import) {re.escape(file.stem)}\b""", re.MULTILINE)
    return {test for test in test_files() if named.search((ROOT / test).read_text(encoding="utf-8"))}


# Imports.


@cache
def test_files() -> tuple[str, ...]:
    return tuple(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/*/test_*.py")))


def _module(path: str) -> str:
    """The name by which a file is imported: that of a file of tests has no folder."""
    parts = Path(path).with_suffix("").parts
    return parts[-1] if parts[0] == "tests" else ".".join(parts).removesuffix(".__init__")


@cache
def importers() -> dict[str, set[str]]:
    """Of each module the files that import it, or something of it."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in (*ROOT.glob("placeproof/**/*.py"), *ROOT.glob("tests/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in named:
                found[name].add(str(file.relative_to(ROOT)))
    return found


def readers(path: str) -> set[str]:
    """The modules that may read a file of data: those of the package that it lies in; where some name its folder there, these."""
    folder = next(parent for parent in (ROOT / path).parents if (parent / "__init__.py").exists())
    modules = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in folder.glob("*.py")}
    inside = (ROOT / path).relative_to(folder).parts[0]
    return {name for name, text in modules.items() if f'"{inside}"' in text} or set(modules)


def by_imports(path: str) -> set[str]:
    """The files of tests from which the fewest imports lead to a file; of data, to what reads it."""
    seen, last = {path}, {_module(file) for file in ([path] if path.endswith(".py") else readers(path))}
    while last:
        files = set().union(*(importers().get(name, ()) for name in last)) - seen
        if tests := {file for file in files if Path(file).name.startswith("test_")}:
            return tests
        if "tests/conftest.py" in files:
            return {"tests"}
        seen |= files
        last = {_module(file) for file in files}
    return set()


# Running.


def chosen(since: str, folder: Path) -> list[str]:
    """What pytest is to run, sorted; of a file that is run whole no single cases."""
    known = _map(folder)
    found = set().union(*(near(path, lines, since, known) for path, lines in changed(since).items()))
    return sorted(name for name in found if "::" not in name or name.partition("::")[0] not in found)


def _map(folder: Path) -> Map | None:
    commits = {json.loads(path.read_text(encoding="utf-8"))["commit"] for path in folder.glob("*.json")}
    return Map(ran=tuple(Reach(folder).ran), commit=commits.pop()) if len(commits) == 1 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", default="HEAD", help="a commit")
    parser.add_argument("--map", type=Path, default=ROOT / ".map", help="the folder of `mutation/coverage_map.py`")
    parser.add_argument("--show", action="store_true", help="print the tests, and do not run them")
    options, others = parser.parse_known_args()
    tests = chosen(git("rev-parse", options.since).strip(), options.map.resolve())
    if options.show or not tests:
        print(*tests or ["nothing that a test reaches was changed"], sep="\n")
        return 0
    os.chdir(ROOT)
    with TemporaryDirectory() as folder:
        names = Path(folder, "tests.txt")
        names.write_text("\n".join(tests), encoding="utf-8")
        return subprocess.run([sys.executable, "-m", "pytest", *others, f"@{names}"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
