"""Lines of source with a place in them: marks stand under it, in what there is room for."""

from __future__ import annotations

import ast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from placeproof.core.diagnostics import InputError, Place, Problems
from placeproof.importers.python.module import Module
from placeproof.programs.parse import read
from placeproof.report.diagnostics import excerpt
from placeproof.report.text import fitted

LETTERS = "ab (\t,日本\u0301é=한"


def columns(line: str) -> list[str]:
    """What stands in each column of a line; a wide letter stands in two. Widths are those of rich, which knows nothing of ours."""
    each: list[str] = []
    for letter in line:
        each += [letter] * cell_len(letter)
    return each


@given(st.text(LETTERS, min_size=1, max_size=400), st.data(), st.integers(40, 130))
@example("日" * 100, None, 40)
def test_marks_stand_under_the_place(text: str, data: st.DataObject | None, width: int) -> None:
    """The line has room; marks stand under letters of the place alone, the first of them among these where there is room for it; and
    what is left out is shown as dots."""
    column = 77 if data is None else data.draw(st.integers(1, len(text)))
    length = 3 if data is None else data.draw(st.integers(1, len(text) - column + 1))
    whole = excerpt(Place(source="a.step", line=7, column=column, length=length, text=text))
    if len(whole) == 1:
        assert not text.strip()
        return
    shown, marks = [*fitted(whole, width)][-2:]
    assert max(map(cell_len, (shown, marks))) <= width
    assert shown.startswith("7 | ")
    assert marks.startswith("  | ")
    above, below = columns(shown[4:]), columns(marks[4:])
    marked = "".join("".join(a for a, b in zip(above, below, strict=False) if b == "^").split())
    meant = columns(text.rstrip().replace("\t", " ")[column - 1 :][:length])
    assert not meant or marked.strip(".") in "".join("".join(meant).split())  # a wide letter that is cut is a space
    assert "^" in below
    if cell_len(text.rstrip().replace("\t", " ")) <= width - 4:
        assert shown[4:] == text.rstrip().replace("\t", " ")
        assert len(below) - below.index("^") == max(len(meant), 1)
    else:
        assert "..." in shown


@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("place", ["none", "nowhere", "never"])
def test_a_long_line_is_cut_around_its_place(width: int, place: str) -> None:
    """Places at the beginning, in the middle and at the end of a line: each with marks under the whole name."""
    text = f"none = f({'x, ' * 40}nowhere{', y' * 40}) + never"
    whole = excerpt(Place(source="a.step", line=1, column=text.index(place) + 1, length=len(place), text=text))
    shown, marks = [*fitted(whole, width)][-2:]
    begin = marks.index("^")
    assert shown[begin : begin + len(place)] == place
    assert marks.count("^") == len(place)
    assert shown.endswith("...") is (place != "never")
    assert shown.startswith("1 | ...") is (place != "none")


def test_what_has_no_marks_below_it_is_folded_as_before() -> None:
    """A table with bars, and marks without a line above them, are no excerpts."""
    lines = ["a | " + "word " * 20, "| ^^^", "  | ^^^"]
    assert [*fitted(lines, 40)][-2:] == lines[-2:]
    assert "".join("".join(fitted(lines, 40)).split()) == "".join("".join(lines).split()).replace("a|", "a|", 1)
    assert [*fitted(lines, None)] == lines


#: Letters before the place take two and three bytes each; ``ast`` counts these.
WIDE = 'note = "日本é"; '


def test_columns_of_step_programs_are_letters() -> None:
    line = "é = all_gather(parameters, dp, é)"
    with pytest.raises(InputError) as caught:
        read(f"mesh(dp)\n{line}\n", source="a.step")
    shown = [line[d.place.column - 1 :][: d.place.length] for d in caught.value.diagnostics if d.place is not None and d.place.line == 2]
    assert shown
    assert set(shown) <= {"é", "all_gather(parameters, dp, é)", line}, shown


def test_columns_of_python_are_letters() -> None:
    text = f"{WIDE}value = other(1)"
    module = Module(text, "a.py", Problems())
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    line, column, length = module.span(call)
    assert (line, text[column - 1 :][:length]) == (1, "other(1)")
