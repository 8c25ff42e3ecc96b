"""The file of a sweep's results: a line that says of which questions it is, and a line of JSON for each answer.

Lines are added as answers come, and put in the order of the questions at the end. What is there of an interrupted sweep is taken over.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from placeproof.core import files
from placeproof.core.diagnostics import refuse
from placeproof.core.processes import deaf

SCHEMA = "placeproof.sweep/1"
#: More bytes are no file of results.
MOST_BYTES = 2**30
_ANOTHER = "give the name of a new file, or remove this one"


@dataclass(frozen=True, kw_only=True)
class Results:
    """Answers by the numbers of their questions, from 1. ``path``: None where they are not kept. ``questions``: all that decides what is
    answered; ``version``: of placeproof, and a digest of its sources."""

    path: Path | None
    questions: Sequence[dict[str, Any]]
    version: tuple[str, str]
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def header(self) -> str:
        """The first line."""
        digest = hashlib.sha256(json.dumps(self.questions, sort_keys=True).encode()).hexdigest()
        version, sources = self.version
        return _line({"schema": SCHEMA, "placeproof": version, "sources": sources, "questions": len(self.questions), "digest": digest})

    def open(self) -> None:
        """Take over what the file has of these questions, but for those that got no answer; and a line that was not written to its end.

        Raises InputError where the file is another one, or cannot be written.
        """
        if self.path is None:
            return
        if os.path.exists(self.path):
            *lines, torn = files.read_text(self.path, code="PP110", help=_ANOTHER, most=MOST_BYTES).split("\n")
            self._check_header(lines[0] if lines else torn, whole=bool(lines))
            for number, line in enumerate(lines[1:], 2):
                row = self._row(line, number)
                if row["failure"] is None:
                    self.rows[row["number"]] = row
        self._write()

    def _check_header(self, line: str, *, whole: bool) -> None:
        """Refuse a first line that is not the one of these questions, or, where it is torn, not its beginning."""
        if f"{line}\n" == self.header or (not whole and self.header.startswith(line)):
            return
        try:
            ours = json.loads(line)["schema"] == SCHEMA
        except (ValueError, LookupError, TypeError, RecursionError):
            ours = False
        other = "it is of other questions, or of another version of placeproof"
        self._refuse(other if ours else "it is no file of a sweep's results")

    def _row(self, line: str, number: int) -> dict[str, Any]:
        """An answer of the file. ``number``: of the line."""
        try:
            row: dict[str, Any] = json.loads(line)
            known = row["number"] > 0 and self.questions[row["number"] - 1]["question"] == row["question"]
            known = known and sum(row[key] is not None for key in ("plan", "cannot", "failure")) == 1
            known = known and isinstance(row["plan"], dict | None)
        except (ValueError, LookupError, TypeError, RecursionError):
            known = False
        if not known:
            self._refuse(f"its line {number} is no answer to one of the questions")
        return row

    def add(self, row: dict[str, Any]) -> None:
        """Keep an answer. Raises InputError where it cannot be written."""
        self.rows[row["number"]] = row
        if self.path is not None:
            with deaf():
                files.append_text(self.path, _line(row))

    def close(self) -> None:
        """Put all answers in order. Raises InputError where they cannot be written."""
        if self.path is not None:
            self._write()

    def _write(self) -> None:
        assert self.path is not None
        with deaf():
            files.replace_text(self.path, "".join([self.header, *(_line(row) for _, row in sorted(self.rows.items()))]))

    def _refuse(self, why: str) -> NoReturn:
        refuse("PP110", f"`{self.path}` cannot be gone on with: {why}", help=_ANOTHER)


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"
