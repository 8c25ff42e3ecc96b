"""Bytes and other numbers as people read them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from fractions import Fraction
from typing import Any

_DECIMAL = (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_BINARY = {"PB": ("PiB", 2**50), "TB": ("TiB", 2**40), "GB": ("GiB", 2**30), "MB": ("MiB", 2**20), "kB": ("KiB", 2**10)}


def figure(value: Fraction, digits: int = 6) -> str:
    """A number with so many significant digits, without an exponent where that is shorter."""
    if value.denominator == 1 and abs(value) < 10**9:
        return str(value.numerator)
    power = 3 * ((len(str(abs(value.numerator // value.denominator))) - 1) // 3)
    if value.denominator == 1 and (value / 10**power * 1000).denominator == 1:
        return f"{float(value / 10**power):g}e{power}"
    shown = f"{float(value):.{digits}g}"
    if "e" in shown and 10**-4 < abs(value) < 10**15:
        return f"{float(value):.0f}"
    return shown


def bytes_text(value: Fraction) -> str:
    """``140 GB (130.385 GiB)``: decimal and binary units, the same magnitude for both."""
    if abs(value) >= 10**7:
        return f"{figure(value / 10**9)} GB ({figure(value / 2**30)} GiB)"
    for name, size in _DECIMAL:
        if abs(value) >= size:
            binary, power = _BINARY[name]
            return f"{figure(value / size)} {name} ({figure(value / power)} {binary})"
    return f"{figure(value)} B"


def giga(value: Fraction | None) -> str:
    """Gigabytes without their unit, for columns; ``?`` where the number is not known."""
    if value is None:
        return "?"
    return "0" if value == 0 else f"{float(value / 10**9):.4g}" if value < 10**13 else figure(value / 10**9)


def whole(value: Fraction) -> str:
    """``12,470``: four digits, and thousands."""
    return f"{float(f'{float(value):.4g}'):,.0f}" if value >= 1000 else f"{float(value):.4g}"


def unused(given: Iterable[str], symbols: Container[str]) -> list[str]:
    """A line that names what was set and no formula speaks of, if there is something."""
    names = [name for name in given if name not in symbols]
    return [f"set, but in no formula: {', '.join(names)}"] if names else []


def percent(value: Fraction) -> str:
    """``48.85 %``."""
    return f"{float(100 * value):.4g} %"


_SECONDS = (("s", 1), ("ms", 10**3), ("us", 10**6))


def seconds_text(value: Fraction) -> str:
    """``1.25 s``, ``30.1 ms``, ``14 us``."""
    unit, scale = next(((u, n) for u, n in _SECONDS if value * n >= 1), _SECONDS[-1])
    return f"{float(value * scale):.4g} {unit}" if value else "0"


def plain(value: Any) -> int | float:
    """An exact number as JSON has it: an integer where it is one."""
    return value.numerator if value.denominator == 1 else float(value)
