"""What the languages of formulas, of schedules' numbers and of models' sizes have in common: their limits, and what is in none of them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from fractions import Fraction

import pytest

from placeproof.core.formula import ARITHMETIC, MOST_CHARACTERS, MOST_LEVELS, NUMBERS, ForeignError, Language, parse
from placeproof.framework_rules.formula import read_formula
from placeproof.models.expressions import expression
from placeproof.schedules.expression import read

READERS: dict[str, Callable[[str], object]] = {"rules": read_formula, "schedules": lambda text: read(text, ("p",)), "models": expression}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text",
    [
        "p" + "+p" * 500,
        "(p" + "+p" * 500 + ").x",
        "p*" * 199 + "p",
        "p+" * 40_000 + "p",
        "p" * (MOST_CHARACTERS + 1),
        "(" * 150 + "p+" * 150,
    ],
)
def test_what_is_too_long_or_too_deep_is_refused_and_exhausts_nothing(reader: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"is no expression|at most 200 characters"):
        READERS[reader](text)


@pytest.mark.parametrize("reader", READERS)
def test_a_sum_of_a_hundred_terms_is_read(reader: str) -> None:
    assert READERS[reader]("p+" * 99 + "p")


def test_limits_are_exact() -> None:
    assert parse("p" * MOST_CHARACTERS)
    with pytest.raises(ValueError, match=f"more than {MOST_CHARACTERS} characters"):
        parse("p" * (MOST_CHARACTERS + 1))
    last = MOST_LEVELS - 2  # the innermost name is a level, and so is that it is read and not written
    assert parse("-" * last + "p")
    with pytest.raises(ValueError, match=f"more than {MOST_LEVELS} levels"):
        parse("-" * (last + 1) + "p")


def test_the_first_foreign_part_is_told_and_names_before_it_are_given() -> None:
    names = Language(table=ARITHMETIC).names(parse("a + b ** 2 + c.d"))
    assert next(names) == "a"
    with pytest.raises(ForeignError, match=r"^b \*\* 2$") as error:
        next(names)
    assert error.value.node.col_offset == 4


def test_values_are_lifted_before_anything_is_computed_of_them() -> None:
    halves = Language(table={**NUMBERS, ast.Div: lambda a, b: a / b}, lifted=Fraction)
    assert halves.meaning(parse("-a / 3 + 1"))({"a": 1}) == Fraction(2, 3)


def test_a_function_takes_as_many_arguments_as_its_language_says() -> None:
    language = Language(table={"both": lambda a, b: (a, b)}, arguments={"both": range(2, 3)})
    tree = parse("both(x, 2)")
    assert list(language.names(tree)) == ["x"]
    assert language.meaning(tree)({"x": 1}) == (1, 2)
    for text in ("both(x)", "both(x, x, x)", "both(x, y=2)", "both.x(1, 2)", "both(*x, 2)"):
        with pytest.raises(ForeignError):
            list(language.names(parse(text)))
