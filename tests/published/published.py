"""The copy of published figures that the tests own, numbers as papers print them, and what a check shows of placeproof."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Check = Callable[[Row], bool]
PUBLISHED = Path(__file__).parents[1] / "data" / "published.json"


def rows() -> list[Row]:
    """All rows, numbers kept as they are printed (so that 41.30 and 41.3 differ only if the source says so)."""
    loaded: list[Row] = json.loads(PUBLISHED.read_text(encoding="utf-8"), parse_float=Decimal)
    return loaded


def places(printed: Decimal | int) -> int:
    """Decimal places that a number is printed with; none for 30.0, which JSON cannot tell from 30."""
    exponent = Decimal(printed).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def as_printed(exact: Fraction, printed: Decimal | int, *, may_truncate: bool = False) -> bool:
    """Whether an exact value, rounded to the printed digits, is the printed number.

    ``may_truncate``: whole numbers may have been cut off instead, as in Table 1 of the ZeRO paper.
    """
    modes = [ROUND_HALF_UP, ROUND_HALF_EVEN]
    if may_truncate and places(printed) == 0:
        modes.append(ROUND_DOWN)
    step = Decimal(1).scaleb(-places(printed))
    value = Decimal(exact.numerator) / Decimal(exact.denominator)
    return any(value.quantize(step, rounding=mode) == Decimal(printed) for mode in modes)


# What a check shows.

#: How a row is reproduced -> what that says of placeproof.
CLASSES = {
    "derived": "comes out of lowered programs, blocks of models, simulated schedules, or the rounds of a collective",
    "partly": "one factor does, and the rest is the source's accounting, written in the check",
    "trivial": "a sum of widths times a number of the row, or a product of degrees that the row gives",
}
_NOT_PRINTED = re.compile(r"\bevaluated\b|computed here|^arithmetic|^Eq \d+ on ")
_CLASS: dict[Check, Callable[[Row], str]] = {}


def shows(name: str, *, but: tuple[str, str] | None = None) -> Callable[[Check], Check]:
    """Declares the class of a check's rows; ``but``: another class, and the pattern of the ids that have it."""
    assert {name, but[0] if but else name} <= set(CLASSES)

    def declare(check: Check) -> Check:
        _CLASS[check] = lambda row: but[0] if but and re.fullmatch(but[1], row["id"]) else name
        return check

    return declare


def class_of(check: Check, row: Row) -> str:
    """What a check shows with a row. Raises KeyError for a check that declares nothing."""
    return _CLASS[check](row)


def is_printed(row: Row) -> bool:
    """Whether its source prints its value; otherwise a row says that its value was computed from a formula that is printed."""
    return not any(_NOT_PRINTED.search(str(row.get(key) or "")) for key in ("where", "note"))
