"""Fractions that remember how they came to be, and what stands where a device holds nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any, TypeAlias


@dataclass(slots=True)
class Where:
    """Which device computes at the moment, and which statement: noted beside what it computes."""

    device: str = ""
    line: int | None = None
    text: str = ""


#: What a recorded number is combined with.
Plain: TypeAlias = "Recorded | Fraction | int"

#: Fractions are computed one device at a time.
HERE = Where()

#: Arithmetic of fractions.
PLAIN: dict[str, Callable[[Fraction, Fraction], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": lambda x, n: x ** int(n),
}


def _operation(op: str, *, neutral: int | None = None, absorbing: int | None = None, turned: bool = False) -> Callable[[Any, Any], Any]:
    """Arithmetic with another number on the right, or on the left (``turned``); with plain numbers that change nothing, or everything,
    it is not recorded."""

    def result(number: Recorded, other: Any) -> Any:
        if neutral is not None and _is(other, neutral):
            return number
        if absorbing is not None and _is(other, absorbing):
            return Fraction(absorbing)
        left, right = (other, number) if turned else (number, other)
        if isinstance(other, Nothing):
            return Fraction(0) if op in "*/" and 0 in (left, right) else NOTHING + 0
        return Recorded(PLAIN[op](plain(left), plain(right)), (op, left, right))

    return result


class Recorded:
    """A fraction with the operation that made it."""

    __slots__ = ("at", "made", "name", "value")

    def __init__(self, value: Fraction, made: tuple[str, Plain, Plain] | None = None, name: str = "") -> None:
        self.value, self.made, self.name = value, made, name
        self.at = (HERE.device, HERE.line, HERE.text)

    __add__, __radd__ = _operation("+", neutral=0), _operation("+", neutral=0, turned=True)
    __sub__, __rsub__ = _operation("-", neutral=0), _operation("-", turned=True)
    __mul__, __rmul__ = _operation("*", neutral=1, absorbing=0), _operation("*", neutral=1, absorbing=0, turned=True)
    __truediv__, __rtruediv__ = _operation("/", neutral=1), _operation("/", turned=True)
    __pow__, __rpow__ = _operation("**"), _operation("**", turned=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recorded | int | Fraction) and self.value == plain(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Plain) -> bool:
        return self.value < plain(other)

    def __gt__(self, other: Plain) -> bool:
        return self.value > plain(other)


def plain(number: Plain) -> Fraction:
    """The fraction that a recorded number is."""
    return number.value if isinstance(number, Recorded) else Fraction(number)


def _is(number: Any, value: int) -> bool:
    return isinstance(number, Fraction | int) and number == value


class Nothing:
    """What a device reads where it holds nothing: any number. What is computed from it is nothing, too, save zero times it, and it equals
    no number. ``read``: where it was computed with first."""

    __slots__ = ("read",)

    def __init__(self, read: tuple[str, int | None, str] | None = None) -> None:
        self.read = read

    def _nothing(self, _: object) -> Nothing:
        return self if self.read else Nothing((HERE.device, HERE.line, HERE.text))

    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __pow__ = _nothing

    def __mul__(self, other: object) -> object:
        return Fraction(0) if _is(other, 0) else self._nothing(other)

    __rmul__ = __rtruediv__ = __mul__

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __lt__


NOTHING = Nothing()


class IrrationalError(ArithmeticError):
    """A root is used otherwise than to be multiplied and squared: the result is no fraction."""


class Root:
    """The square root of a fraction that is no square."""

    __slots__ = ("square",)

    def __init__(self, square: Any) -> None:
        self.square = square

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Root):
            return root(self.square * other.square)
        if isinstance(other, Nothing):
            return other
        if other < 0:
            raise IrrationalError
        return root(self.square * (other * other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self * (1 / other) if not isinstance(other, Root) else root(self.square / other.square)

    def __rtruediv__(self, other: Any) -> Any:
        return other * root(1 / self.square)

    def __pow__(self, power: int) -> Any:
        return root(self.square**power)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Root) and bool(self.square == other.square)

    __hash__ = None  # type: ignore[assignment]

    def _no_fraction(self, _: object) -> Any:
        raise IrrationalError

    __add__ = __radd__ = __sub__ = __rsub__ = __lt__ = __gt__ = _no_fraction


def root(number: Any) -> Any:
    """The square root of a fraction; a :class:`Root` where it is no fraction. Raises IrrationalError for a negative one."""
    if isinstance(number, Nothing):
        return number + 0
    exact = number.square if isinstance(number, Root) else plain(number)
    if isinstance(number, Root) or exact < 0:
        raise IrrationalError
    over, under = isqrt(exact.numerator), isqrt(exact.denominator)
    if over * over != exact.numerator or under * under != exact.denominator:
        return Root(number)
    value = Fraction(over, under)
    return Recorded(value, ("sqrt", number, value)) if isinstance(number, Recorded) else value


def known(number: Any) -> Any:
    """A number, or None where it is nothing."""
    return None if isinstance(number, Nothing) else number


def greater(first: Any, other: Any) -> Any:
    """The greater of two numbers; nothing where either is."""
    for number in (first, other):
        if isinstance(number, Nothing):
            return number + 0
    return other if first < other else first


def smaller(first: Any, other: Any) -> Any:
    """The smaller of two numbers; nothing where either is."""
    return greater(first, other) if isinstance(greater(first, other), Nothing) else first if first < other else other


def unheld(number: Any) -> str:
    """Where what is not held was read, if a number was computed from it."""
    if not isinstance(number, Nothing):
        return ""
    device, line, text = number.read or ("", None, "")
    where = f"line {line} (`{text}`)" if line is not None else "it"
    return f"{where} reads what is not held{f' on {device}' if '=' in device else ''}"
