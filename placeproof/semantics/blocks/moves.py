"""Layouts of a block on the axes of a plan, and the collectives that make one layout of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from placeproof.programs import Call, Expr
from placeproof.semantics.blocks.plan import PlanAxis
from placeproof.semantics.layouts.layout import PARTIAL, AxisState, Layout
from placeproof.semantics.layouts.operations import MisfitError, result


def placed(layout: Layout, states: Mapping[str, AxisState], axes: Sequence[PlanAxis]) -> Layout:
    """The same value in other states on all axes. ``axes`` in the order of the mesh."""
    splitting: dict[str, list[PlanAxis]] = {}
    for axis in axes:
        state = states.get(axis.name)
        if state is not None and state != PARTIAL:
            splitting.setdefault(state, []).append(axis)
    split = {d: tuple(a.name for a in sorted(of_dim, key=lambda a: a.rank(d))) for d, of_dim in splitting.items()}
    partial = frozenset(a.name for a in axes if states.get(a.name) == PARTIAL)
    if split == layout.split and partial == layout.partial:
        return layout
    return replace(layout, split=split, partial=partial, loose=layout.loose - split.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One operation that changes a layout: its call without an operand, and the layout that it leaves."""

    call: Call
    after: Layout

    def of(self, expr: Expr) -> Call:
        """The operation on an expression."""
        return replace(self.call, args=(expr,))


def _move(layout: Layout, op: str, axes: tuple[str, ...], dim: str | None = None) -> Move:
    call = Call(op=op, args=(), axes=axes, options=(("dim", dim),) if dim is not None else ())
    return Move(call=call, after=result(call, [layout]))


def stored(layout: Layout) -> Layout:
    """What was sent or added up, as it counts where a program is written: stored along all of its dimensions."""
    return replace(layout, loose=frozenset()) if layout.loose else layout


def _dims(layout: Layout, axes: Sequence[PlanAxis]) -> Iterable[str]:
    """The dimensions that are split, in the order in which axes of the mesh split them."""
    return dict.fromkeys(state for a in axes if (state := layout.states.get(a.name)) not in (None, PARTIAL))


def moves(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> tuple[Move, ...]:
    """The operations that make one layout of another, in order.

    Sums come first, so that what is split by them travels in parts. Then, as long as something is not as it should be: what is split
    otherwise is exchanged, what is split too far is gathered from the innermost axis outwards, what is not split enough is cut.
    """
    path = list(sums(now, then, axes))
    while (now := path[-1].after if path else now).split != then.split:
        move = _swap(now, then, axes) or _gather(now, then, axes) or _cut(now, then, axes)
        assert move is not None, "a layout that cannot be reached"
        path.append(move)
    return tuple(path)


def sums(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> list[Move]:
    """Of these operations the first: the reductions, those that leave parts of one dimension together."""
    path: list[Move] = []
    before, summed = now, now.partial - then.partial
    for axis in (a.name for a in axes if a.name in summed):
        dim = then.states.get(axis)
        if dim is not None and _next(now, then, dim) == axis:
            together = bool(path) and path[-1].call.option("dim") == dim
            over = path.pop().call.axes if together else ()
            before = before if together else now
            path.append(_move(before, "reduce_scatter", (*over, axis), dim))
            now = path[-1].after
    rest = tuple(a.name for a in axes if a.name in now.partial - then.partial)
    return [*path, _move(now, "all_reduce", rest)] if rest else path


def _next(now: Layout, then: Layout, dim: str) -> str | None:
    """The axis that has to cut a dimension next, if what cuts it already does so in the wanted layout, too."""
    have, want = now.split.get(dim, ()), then.split.get(dim, ())
    return want[len(have)] if want[: len(have)] == have and len(want) > len(have) else None


def _swap(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> Move | None:
    """An exchange over all axes that are to split another dimension, or over one of them, whichever leaves what the other layout has."""
    have, want = now.states, then.states
    new = {a.name: dim for a in axes if (dim := want.get(a.name)) not in (None, PARTIAL) and have.get(a.name) not in (None, PARTIAL, dim)}
    last = (now.split[old][-1] for old in _dims(now, axes))
    for over in (tuple(new), *((axis,) for axis in last if axis in new)):
        dims = [new[axis] or "" for axis in over]
        try:
            move = _move(stored(now), "all_to_all", over, " ".join(dims if len({*dims}) > 1 else dims[:1]))
        except MisfitError:  # another axis splits inside of one of them
            continue
        if all(then.split[dim][: len(move.after.split[dim])] == move.after.split[dim] for dim in dims):
            return move
    return None


def _gather(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> Move | None:
    for dim in _dims(now, axes):
        have, want = now.split[dim], then.split.get(dim, ())
        common = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
        if common < len(have):
            return _move(stored(now), "all_gather", have[common:])
    return None


def _cut(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> Move | None:
    return next((_move(now, "part", (axis,), dim) for dim in _dims(then, axes) if (axis := _next(now, then, dim)) is not None), None)
