"""A pytest plugin: the theorems in any repository's ``theorems`` folder are tests.

The ini option ``placeproof_theorems`` names other folders. Nothing but pytest is imported until such a folder is met.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from placeproof.core.diagnostics import Diagnostic
    from placeproof.theory.theorem import Theorem


def pytest_addoption(parser: pytest.Parser) -> None:
    """The names of the folders."""
    parser.addini("placeproof_theorems", "folders whose Python files hold theorems", type="args", default=["theorems"])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of theorems is collected as such."""
    if not _holds_theorems(file_path, parent.config):
        return None
    return TheoremFile.from_parent(parent, path=file_path)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of theorems that is named on the command line is no module of tests."""
    return _Nothing.from_parent(parent, path=module_path) if _holds_theorems(module_path, parent.config) else None


def _holds_theorems(path: Path, config: pytest.Config) -> bool:
    if (
        path.suffix != ".py"
        or path.name.startswith(("_", "test_", "conftest"))
        or path.parent.name not in config.getini("placeproof_theorems")
    ):
        return False
    return b"placeproof" in path.read_bytes()


class _Nothing(pytest.File):
    """What is collected elsewhere."""

    def collect(self) -> list[pytest.Item]:
        """Nothing."""
        return []


class TheoremFile(pytest.File):
    """A file of theorems: an item for each, and one for each problem that keeps others from being read."""

    def collect(self) -> Iterator[pytest.Item]:
        """The theorems of the file."""
        from placeproof.theory.suite.load import Loaded, load_file

        loaded = Loaded()
        for theorem in load_file(self.path, loaded):
            yield TheoremItem.from_parent(self, name=theorem.name, theorem=theorem)
        for number, problem in enumerate(loaded.problems.found, start=1):
            yield Unreadable.from_parent(self, name=f"{problem.code}-{number}", problem=problem)


class FailedError(Exception):
    """A theorem does not stand. The message is what a reader needs."""


class TheoremItem(pytest.Item):
    """One theorem as a test: it stands as expected, with all its checks, and as the lock file says."""

    def __init__(self, *, theorem: Theorem, **rest: Any) -> None:
        super().__init__(**rest)
        self.theorem = theorem

    def runtest(self) -> None:
        """Check the theorem. Raises FailedError if it does not stand."""
        from placeproof.report.checks import failure
        from placeproof.report.diagnostics import render
        from placeproof.theory.suite.lock import differences, read
        from placeproof.theory.suite.outcome import Settings
        from placeproof.theory.suite.runner import Malformed, check_one

        result = check_one(self.theorem, Settings())
        if isinstance(result, Malformed):
            raise FailedError(render(result.problems, "it was not checked"))
        if result.standing in ("unexpected", "undecided"):
            raise FailedError(failure(result))
        locked = read(self.path.parent)
        changed = differences(locked, [result], whole=False) if locked is not None else []
        if changed:
            raise FailedError("\n".join(["it differs from the lock file (`placeproof check --update` accepts it):", *changed]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message alone, without a traceback through placeproof."""
        return str(excinfo.value) if isinstance(excinfo.value, FailedError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the theorem stands."""
        return self.path, self.theorem.line - 1, self.theorem.id


class Unreadable(pytest.Item):
    """Something in a file of theorems that cannot be read: it fails, and the others run."""

    def __init__(self, *, problem: Diagnostic, **rest: Any) -> None:
        super().__init__(**rest)
        self.problem = problem

    def runtest(self) -> None:
        """Fail with the problem."""
        from placeproof.report.diagnostics import render

        raise FailedError(render([self.problem], "the others are checked"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message alone."""
        return str(excinfo.value) if isinstance(excinfo.value, FailedError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it is wrong."""
        return self.path, self.problem.place.line - 1 if self.problem.place else 0, f"{self.path.stem}: {self.problem.message}"
