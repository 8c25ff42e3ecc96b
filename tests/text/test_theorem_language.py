"""The reference of the theorem language: every word is there, with the parameters that it has."""

import inspect
import re
from pathlib import Path

import pytest

from placeproof import theory

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "theorem-language.md").read_text(encoding="utf-8")
HEADINGS = dict(re.findall(r"^### `(\w+)(.*)`$", PAGE, flags=re.MULTILINE))


def test_every_word_is_on_the_page_and_no_other() -> None:
    assert sorted(HEADINGS) == sorted(theory.__all__)
    assert len(re.findall(r"^### ", PAGE, flags=re.MULTILINE)) == len(HEADINGS)


@pytest.mark.parametrize("name", sorted(n for n, shown in HEADINGS.items() if shown))
def test_a_word_has_the_parameters_that_it_is_said_to_have(name: str) -> None:
    parameters = inspect.signature(getattr(theory, name)).parameters.values()
    shown = [
        p.strip().partition("=")[0]
        for p in re.sub(r"=\(\)|=\{\}", "=x", HEADINGS[name]).strip("()").split(",")
        if p.strip() not in ("", "*")
    ]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    assert shown == [stars.get(p.kind, "") + p.name for p in parameters]


def test_what_is_no_function_is_shown_without_parameters() -> None:
    assert {n for n, shown in HEADINGS.items() if not shown} == {n for n in theory.__all__ if not callable(getattr(theory, n))} | {
        "StatementError"
    }
