"""Pages of theorems: a solver that reads what they show in SMT-LIB answers as they say; one of what is refuted finds the opposite."""

from __future__ import annotations

import importlib
import re
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

from placeproof.prove.solvers.scripts import ask_z3
from placeproof.theory.suite.load import load

PAGES = Path(__file__).parents[2] / "docs" / "_ext"
SAMPLE = 60


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PAGES))
    return importlib.import_module("theorem_pages")


def test_what_a_solver_is_asked_is_answered_as_the_page_says(pages: ModuleType) -> None:
    seen = set[tuple[str, bool]]()
    for theorem in load().theorems[::SAMPLE]:
        page = "".join(pages._queries(theorem))
        shown = unescape(page.partition("<pre>")[2].partition("</pre>")[0])
        _, *parts = re.split(r"^; .*: (sat|unsat) is expected$", shown, flags=re.MULTILINE)
        answers = [(expected, ask_z3(script, 5000)) for expected, script in zip(parts[::2], parts[1::2], strict=True)]
        alike = all(expected == answer for expected, answer in answers)
        assert alike == (theorem.expect.word == "proved") or not answers, theorem.id
        seen |= {(theorem.expect.word, alike)} if answers else set()
    assert seen == {("proved", True), ("refuted", False)}
