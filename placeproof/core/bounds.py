"""How large the numbers of an input may be, wherever they stand. No system is so large; what is computed of larger ones takes time and
memory without end, or cannot be shown."""

from __future__ import annotations

import re
import reprlib
from fractions import Fraction
from typing import TypeGuard

#: Devices along one axis, and whatever else is counted one by one: micro-batches, layers, heads.
MOST_COUNT = 10**9
#: The greatest magnitude of any other number; its inverse is the least.
LARGEST = 10**100
#: The greatest exponent in a formula.
MOST_EXPONENT = 32

_EXPONENT = re.compile(r"[eE][-+]?0*(\d+)$")


def a_count(most: int = MOST_COUNT) -> str:
    """What a number is that is counted one by one up to a power of ten, in words."""
    return f"a whole number of at least 1 and at most 1e{len(str(most)) - 1}"


#: What :func:`is_count` asks for.
A_COUNT = a_count()


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, at least 1 and not too large."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_COUNT


def too_long(text: str) -> bool:
    """Whether a decimal number has too many digits to be computed at all: of itself, or in its exponent."""
    exponent = _EXPONENT.search(text)
    return len(text) > 400 or (exponent is not None and len(exponent[1]) > 3)


def within(value: Fraction) -> bool:
    """Whether a number is of a magnitude that can be computed with."""
    return value == 0 or 1 <= abs(value) * LARGEST <= LARGEST**2


def brief(value: object) -> str:
    """What was given instead of something else, in a few words; Python does not print numbers of thousands of digits."""
    try:
        return reprlib.repr(value)
    except ValueError:
        return f"a {type(value).__name__} too long to print"
