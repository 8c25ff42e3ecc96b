"""Files and annotations for continuous integration, which commands that give verdicts write beside their answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.options import output
from placeproof.cli.process import EXIT_BAD_INPUT
from placeproof.core.diagnostics import InputError
from placeproof.core.files import write_text

if TYPE_CHECKING:
    from placeproof.report.findings import Case

JunitOption = Annotated[
    str | None, typer.Option("--junit", metavar="FILE.xml", help="Write what was asked and found as JUnit XML, too, for the tests of a CI.")
]
SarifOption = Annotated[
    str | None, typer.Option("--sarif", metavar="FILE.sarif", help="Write what was found as SARIF 2.1.0, too, for code scanning.")
]
GithubOption = Annotated[
    bool, typer.Option("--github", help="Print what was found as annotations of GitHub's workflows, too, on standard error.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What is written beside an answer."""

    junit: JunitOption = None
    sarif: SarifOption = None
    github: GithubOption = False

    def run(self, command: str, answer: Callable[[], int]) -> int:
        """Give an answer that writes its reports itself; of an input that cannot be used, write them here. Raises InputError."""
        self._paths()
        with self._problems(command):
            return answer()

    @contextmanager
    def _problems(self, command: str) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            if self.wanted:
                from placeproof.report.findings import of_problems

                self.write(command, of_problems(error.diagnostics), EXIT_BAD_INPUT)
            raise

    @property
    def wanted(self) -> bool:
        """Whether anything is."""
        return self.github or self.junit is not None or self.sarif is not None

    def _paths(self) -> tuple[Path | None, Path | None]:
        """Where files go, if they can. Raises InputError."""
        junit = None if self.junit is None else output("--junit", self.junit, "a report of JUnit is written as XML", ".xml")
        return junit, None if self.sarif is None else output("--sarif", self.sarif, "a log is written as SARIF", ".sarif")

    def write(self, command: str, cases: Iterable[Case], code: int) -> int:
        """Write what is wanted of what was found, and give the exit code on."""
        if not self.wanted:
            return code
        from placeproof import __version__
        from placeproof.report import ci

        found, (junit, sarif) = list(cases), self._paths()
        if junit is not None:
            write_text(junit, ci.junit(found, command))
        if sarif is not None:
            write_text(sarif, ci.sarif(found, __version__, code))
        if self.github:
            typer.echo(ci.github(found), nl=False, err=True)
        return code
