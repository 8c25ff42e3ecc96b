"""Two operands that an operation reads together: how each has to lie, axis by axis.

On one axis an operand is replicated, split by a dimension, or a partial sum. Where the two do not fit, one of them changes:

- a partial sum is reduced, unless the operation is linear in it: scattered by the dimension that splits the other operand, or else by
  that which usually splits such values; everywhere if it has no such dimension;
- where one is split and the other is replicated and has that dimension, the other takes its part, which sends nothing;
- where both are split, by different dimensions, a weight stays as it is, and so does what is split as the result has to be. Otherwise a
  value moves there or back for a while if the plan says so, and if not, the one that is split by keys, by tokens, by the batch gives
  way, in this order. What gives way is split by the other's dimension if it has it, and gathered if not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placeproof.semantics.blocks.moves import placed
from placeproof.semantics.blocks.plan import PlanAxis
from placeproof.semantics.layouts.layout import PARTIAL, AxisState, Layout

#: Tokens that are attended to: `contract(hot(same), k, over=tokens)` calls the tokens of k so.
_ATTENDED = "keys"
#: Which dimension gives way first.
_GIVES_WAY = ("keys", "queries", "tokens", "batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Why two operands are read together. ``op``: arithmetic, or a comparison, which needs the numbers themselves. ``want``: on which axes
    the result has to be split by what. ``over``: the dimension that is summed over. ``stays``: of either operand, whether it stays a
    partial sum where the other is replicated.
    """

    op: str
    want: Mapping[str, str]
    over: str | None = None
    stays: tuple[bool, bool] = (False, False)


@dataclass(slots=True)
class _Side:
    """An operand on one axis."""

    layout: Layout
    state: AxisState
    stays: bool

    def becomes(self, dim: str | None, rule: PlanAxis) -> None:
        """Split by a dimension if it has it; along what it does not store, only if the plan moves it there."""
        moved = dim in self.layout.dims and self.state is not None and dim in rule.moves.get(self.state, ())
        self.state = dim if self.layout.stored(dim) or moved else None


def aligned(rules: tuple[PlanAxis, ...], first: Layout, second: Layout, both: Together) -> tuple[Layout, Layout]:
    """The layouts in which two operands are read together. ``rules``: the axes in the order of the mesh."""
    left, right = first.states, second.states
    for rule in rules:
        name = rule.name
        if name in left or name in right or name in both.want:
            a, b = _Side(first, left.get(name), both.stays[0]), _Side(second, right.get(name), both.stays[1])
            _summed(rule, a, b, both.op)
            _wanted(rule, a, b, both)
            _fitted(rule, a, b, both)
            left[name], right[name] = a.state, b.state
    return placed(first, left, rules), placed(second, right, rules)


def reduced(rules: tuple[PlanAxis, ...], value: Layout) -> Layout:
    """The layout in which a value is read by what needs the numbers themselves."""
    if not value.partial:
        return value
    states = value.states
    for rule in rules:
        if rule.name in value.partial:
            states[rule.name] = rule.home(d for d in value.dims if value.stored(d))
    return placed(value, states, rules)


def _summed(rule: PlanAxis, a: _Side, b: _Side, op: str) -> None:
    if op in ("+", "-") and a.state == b.state == PARTIAL:
        return
    for side, other in ((a, b), (b, a)):
        scaled = (op == "*" or (op == "/" and side is a)) and not other.layout.dims
        if other.state is None and (scaled or side.stays):
            continue
        if side.state == PARTIAL:
            split = other.state not in (None, PARTIAL)
            side.state = None
            side.becomes(other.state if split else rule.home(d for d in side.layout.dims if side.layout.stored(d)), rule)


def _wanted(rule: PlanAxis, a: _Side, b: _Side, both: Together) -> None:
    """What has the dimension by which the result has to be split takes its part of it."""
    dim = both.want.get(rule.name)
    for side, other in ((a, b), (b, a)):
        if dim is None or dim == both.over or side.state is not None or dim not in side.layout.dims:
            continue
        if side.layout.stored(dim):
            side.state = dim
        elif other.state not in (None, dim, PARTIAL):  # the part of what is not stored is there anyway
            other.becomes(dim, rule)


def _fitted(rule: PlanAxis, a: _Side, b: _Side, both: Together) -> None:
    if PARTIAL in (a.state, b.state) or a.state == b.state:
        return
    for side, other in ((a, b), (b, a)):
        if other.state is None:
            _beside_replicated(rule, side, other)
            return
    gives, stays = _of_two(rule, a, b, both)
    gives.becomes(stays.state, rule)


def _beside_replicated(rule: PlanAxis, split: _Side, other: _Side) -> None:
    assert split.state is not None
    back = rule.back(split.state, split.layout.dims)
    away = rule.away(split.state, (d for d in split.layout.dims if split.layout.stored(d)))
    if other.layout.model and other.layout.stored(split.state) and back is not None:
        split.state = back  # weights are read where the value is at home
        return
    if away is not None and _ATTENDED in other.layout.dims and _ATTENDED not in split.layout.dims:
        split.state = away  # every key is here: so that attention sees all tokens, too
    if other.layout.stored(split.state):
        other.state = split.state


def _of_two(rule: PlanAxis, a: _Side, b: _Side, both: Together) -> tuple[_Side, _Side]:
    """Of two operands that are split by different dimensions: which gives way, and which stays."""
    want = both.want.get(rule.name)
    for side, other in ((a, b), (b, a)):
        if side.layout.model and not other.layout.model:
            return other, side
    for side, other in ((a, b), (b, a)):
        if side.state == want and want != both.over:
            return other, side
    for home, away in ((a, b), (b, a)):
        assert home.state is not None
        if away.state in rule.moves.get(home.state, ()):
            stays_away = away.state != both.over and (home.layout.stored(away.state) or _within(home.layout, away.layout))
            return (home, away) if stays_away or home.state not in away.layout.dims else (away, home)
    order = [_GIVES_WAY.index(s.state) if s.state in _GIVES_WAY else len(_GIVES_WAY) for s in (a, b)]
    return (a, b) if order[0] < order[1] else (b, a)


def _within(a: Layout, b: Layout) -> bool:
    """Whether a value has fewer dimensions than another one, all of which that one has: it is less to send."""
    return {*a.dims} < {*b.dims}
