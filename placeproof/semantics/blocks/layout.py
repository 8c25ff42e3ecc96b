"""How a value of a block lies on the mesh, and the collectives that make one layout of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from placeproof.programs import Call, Expr
from placeproof.semantics.blocks.plan import PlanAxis

#: Tokens that are attended to: `contract(hot(same), k, over=tokens)` calls the tokens of k so.
ATTENDED = "keys"
#: On an axis a value is a partial sum. Otherwise it is split by a dimension, whose name stands there, or replicated: None.
PARTIAL = "+"
State = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a device holds of a value. Without dimensions it is a number.

    ``split``: the dimensions of which it holds a part, each with the axes that split it, the outermost first. ``partial``: the axes over
    which its numbers are summands. ``loose``: dimensions along which nothing is stored, so that any part is there. ``picks``: its elements
    are positions along that dimension. ``hot``: it is what `hot(...)` makes of positions. ``model``: it belongs to the model, or is
    computed from such values alone.
    """

    dims: tuple[str, ...] = ()
    split: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partial: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    picks: str | None = None
    hot: bool = False
    model: bool = True

    @property
    def states(self) -> dict[str, State]:
        """How it lies on the axes on which it is not replicated."""
        found: dict[str, State] = dict.fromkeys(self.partial, PARTIAL)
        found.update((axis, dim) for dim, axes in self.split.items() for axis in axes)
        return found

    def stored(self, dim: str | None) -> bool:
        """Whether it has a dimension, and is stored along it."""
        return dim in self.dims and dim not in self.loose

    def put(self, states: Mapping[str, State], axes: Sequence[PlanAxis]) -> Layout:
        """The same value in other states on all axes. ``axes`` in the order of the mesh."""
        cutting: dict[str, list[PlanAxis]] = {}
        for axis in axes:
            state = states.get(axis.name)
            if state is not None and state != PARTIAL:
                cutting.setdefault(state, []).append(axis)
        split = {d: tuple(a.name for a in sorted(found, key=lambda a: a.rank(d))) for d, found in cutting.items()}
        partial = frozenset(a.name for a in axes if states.get(a.name) == PARTIAL)
        if split == self.split and partial == self.partial:
            return self
        return replace(self, split=split, partial=partial, loose=self.loose - split.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation that changes a layout: ``after`` is what it leaves."""

    op: str
    axes: tuple[str, ...]
    after: Layout
    dim: str | None = None

    def of(self, expr: Expr) -> Call:
        """The operation on an expression."""
        return Call(op=self.op, args=(expr,), axes=self.axes, options=(("dim", self.dim),) if self.dim is not None else ())


def steps(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> tuple[Step, ...]:
    """The operations that make one layout of another, in order.

    Sums come first, so that what is split by them travels in parts. Then, as long as something is not as it should be: what is split
    otherwise is exchanged, what is split too far is gathered from the innermost axis outwards, what is not split enough is cut.
    """
    found = list(sums(now, then, axes))
    while (now := found[-1].after if found else now).split != then.split:
        step = _swap(now, then) or _gather(now, then) or _cut(now, then)
        assert step is not None, "a layout that cannot be reached"
        found.append(step)
    return tuple(found)


def sums(now: Layout, then: Layout, axes: Sequence[PlanAxis]) -> list[Step]:
    """Of these operations the first: the reductions."""
    found: list[Step] = []
    summed = now.partial - then.partial
    for axis in (a.name for a in axes if a.name in summed):
        dim = then.states.get(axis)
        if dim is not None and _next(now, then, dim) == axis:
            now = _split(replace(now, partial=now.partial - {axis}), dim, (*now.split.get(dim, ()), axis))
            found.append(Step(op="reduce_scatter", axes=(axis,), dim=dim, after=now))
    rest = tuple(a.name for a in axes if a.name in now.partial - then.partial)
    if rest:
        found.append(Step(op="all_reduce", axes=rest, after=replace(now, partial=now.partial - set(rest))))
    return found


def _next(now: Layout, then: Layout, dim: str) -> str | None:
    """The axis that has to cut a dimension next, if what cuts it already does so in the wanted layout, too."""
    have, want = now.split.get(dim, ()), then.split.get(dim, ())
    return want[len(have)] if want[: len(have)] == have and len(want) > len(have) else None


def _swap(now: Layout, then: Layout) -> Step | None:
    for old, have in now.split.items():
        axis = have[-1]
        new = then.states.get(axis)
        if new is not None and new not in (old, PARTIAL) and _next(now, then, new) == axis:
            after = _split(_split(now, old, have[:-1]), new, (*now.split.get(new, ()), axis))
            return Step(op="all_to_all", axes=(axis,), dim=new, after=replace(after, loose=frozenset()))  # what was sent is stored
    return None


def _gather(now: Layout, then: Layout) -> Step | None:
    for dim, have in now.split.items():
        want = then.split.get(dim, ())
        common = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
        if common < len(have):
            return Step(op="all_gather", axes=have[common:], after=replace(_split(now, dim, have[:common]), loose=frozenset()))
    return None


def _cut(now: Layout, then: Layout) -> Step | None:
    for dim, want in then.split.items():
        if (axis := _next(now, then, dim)) is not None:
            return Step(op="part", axes=(axis,), dim=dim, after=_split(now, dim, want[: len(now.split.get(dim, ())) + 1]))
    return None


def _split(value: Layout, dim: str, axes: tuple[str, ...]) -> Layout:
    split = {d: a for d, a in {**value.split, dim: axes}.items() if a}
    return replace(value, split=split, loose=value.loose - split.keys())
