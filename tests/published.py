"""Reading the copy of published figures that the tests own, and comparing numbers as papers print them."""

from __future__ import annotations

import json
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PUBLISHED = Path(__file__).parent / "data" / "published.json"


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
