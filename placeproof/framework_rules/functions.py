"""The functions of our own lines and relations, beside those of formulas: dealing out, timetables, cuts of a sequence, bytes."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.framework_rules import balance, layouts, orders
from placeproof.framework_rules.formula import FUNCTIONS, Function

if TYPE_CHECKING:
    import sympy


def sent(collective: str, devices: int) -> Fraction:
    """What one device sends in a collective over so many devices, as a part of the tensor's bytes."""
    return COLLECTIVES[collective].sent(Fraction(devices), Fraction(1))


@lru_cache(maxsize=64)
def traffic(subject: str, collective: str) -> sympy.Expr:
    """Bytes that a device sends in one kind of collective in a step of a subject."""
    from placeproof.cost.closed import tidy
    from placeproof.cost.derive import derive
    from placeproof.framework_rules.subjects import read_subject

    derived = derive(read_subject(subject))
    return tidy(sum((m.bytes * m.count for m in derived.messages.messages if m.collective == collective), start=derived.amounts.one * 0))


#: Every function that a line or a relation of ours may use.
OURS: dict[str, Function] = {
    **FUNCTIONS,
    **{f.__name__: f for f in (layouts.even, layouts.each, layouts.enough, layouts.shared, layouts.pieces, layouts.exactly)},
    **{f.__name__: f for f in (layouts.levels, layouts.fills, layouts.inhabited, layouts.states, layouts.composes, layouts.when)},
    **{f.__name__: f for f in (orders.one_f_one_b, orders.interleaved, orders.zero_bubble, orders.v_shaped)},
    **{f.__name__: f for f in (orders.idle, orders.share, orders.stages_on)},
    **{f.__name__: f for f in (balance.contiguous, balance.zigzag, balance.busiest)},
    "sent": sent,
    "traffic": traffic,
}
