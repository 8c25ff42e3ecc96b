"""Sizes as expressions of symbols, such as ``h/a`` or ``L - L_dense``: worked out exactly with whatever numbers are given."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from placeproof.core.formula import ARITHMETIC, ForeignError, Language, Meaning, parse

#: A whole number, or a SymPy expression.
Amount: TypeAlias = Any

#: Longer expressions are refused: no size is so long, and a message repeats them.
MOST_CHARACTERS = 200
#: Whole numbers are fractions until the result, which alone has to be whole.
_LANGUAGE = Language(
    table={**ARITHMETIC, ast.Div: operator.truediv}, lifted=lambda value: Fraction(value) if isinstance(value, int) else value
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """Whole numbers and symbols, joined by ``+ - * /`` and parentheses. ``names``: its symbols, each once, in the order of the text."""

    text: str
    names: tuple[str, ...]
    _meaning: Meaning = field(compare=False, repr=False)

    def at(self, values: Mapping[str, Amount]) -> Amount:
        """Its value: a whole number where all values are, a SymPy expression where one is.

        Raises KeyError where a symbol has no value, and ValueError where whole numbers give a fraction or are divided by 0.
        """
        try:
            result = self._meaning(values)
        except ZeroDivisionError:
            raise ValueError(f"`{self.text}` divides by 0") from None
        if not isinstance(result, Fraction):
            return result
        if result.denominator != 1:
            raise ValueError(f"`{self.text}` is {result}, no whole number")
        return result.numerator

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return expression, (self.text,)  # its meaning is made of functions that are sent to no other process


@lru_cache(maxsize=512)
def expression(text: str) -> Expression:
    """An expression from its text. Raises ValueError that says what is not understood."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"an expression has at most {MOST_CHARACTERS} characters")
    try:
        tree = parse(text)
        names = tuple(dict.fromkeys(_LANGUAGE.names(tree)))
    except ForeignError as error:
        raise ValueError(f"`{error}` in `{text}` is neither a symbol, a whole number, nor + - * / of these") from None
    except ValueError:
        raise ValueError(f"`{text}` is no expression of symbols") from None
    return Expression(text=text.strip(), names=names, _meaning=_LANGUAGE.meaning(tree))
