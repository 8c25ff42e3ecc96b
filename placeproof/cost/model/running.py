"""What lies in a device's memory beyond what it keeps, as an implementation runs the blocks: while a pass runs, and beside all of them.

A pass is at its most of one micro-batch while all that was kept of the others lies there. Forward ends, and backward begins, with what is
behind the layers; then comes the last layer. All moments are told as what lies there beyond the activations of all micro-batches in flight:
the one that counts is found by its amount, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placeproof.core.symbols import symbol
from placeproof.cost.blocks.alive import products_of_one_value
from placeproof.cost.blocks.chain import INPUT
from placeproof.cost.blocks.layer import Stored
from placeproof.cost.blocks.tensors import Amount, elements
from placeproof.cost.closed import tidy
from placeproof.cost.model.extents import Replay
from placeproof.cost.model.parts import DeviceSegment, Sizing
from placeproof.cost.model.stages import Stage
from placeproof.implementations import BlockImplementation
from placeproof.models.family import ROUTER, apart

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, slots=True, kw_only=True)
class PassMoment:
    """A moment of a pass of one micro-batch: of which ``part`` of the model, whether in ``backward``, at which value (``block.value``, or
    empty), and the bytes that lie there beyond activations that are kept."""

    part: str
    backward: bool
    at: str
    bytes: sympy.Expr

    @property
    def words(self) -> str:
        """Where it is."""
        return f"{'backward' if self.backward else 'forward'} of `{self.part}`" + (f", at {self.at}" if self.at else "")


def computed_again(stage: Stage, at: Sizing, put_off: bool) -> sympy.Expr:
    """What backward computes again at once beyond what was kept, and beyond what it is through with of the same micro-batch.

    ``put_off``: gradients by weights are, so that what these need is still there.
    """
    import sympy

    if not stage.replays:
        each = [_bytes(p, p.working, at) for p, _ in stage.held if p.working]
        return sympy.Max(*each) if each else sympy.Integer(0)
    return sympy.Max(sympy.Integer(0), *dict.fromkeys(_replayed(replay, at, put_off) for replay in stage.replays))


def _replayed(replay: Replay, at: Sizing, put_off: bool) -> sympy.Expr:
    """What is computed again at once, without what is free by then of the layers behind."""
    import sympy

    again = (n * _bytes(p, p.working, at) for p, n in replay.members)
    return sympy.Add(*again, *(-n * _freed(p, at, put_off) for p, n in replay.freed))


def _freed(part: DeviceSegment, at: Sizing, put_off: bool) -> sympy.Expr:
    """What is free of one repetition once its backward is over."""
    import sympy

    if put_off and part.layer is not part.plain:  # what was computed again stays
        return sympy.Integer(0)
    return _bytes(part, part.kept, at) - (_bytes(part, part.late, at) if put_off else 0)


def _behind_ends(stage: Stage, at: Sizing, put_off: bool, again: sympy.Expr) -> sympy.Expr:
    """What lies there beyond all activations when most does: nothing as backward begins behind the layers, or, once that is over, what is
    computed ``again`` in its place."""
    import sympy

    through = sympy.Add(*(_freed(p, at, put_off) for p in _behind(stage)))
    return again if 0 in (again, through) else sympy.Max(sympy.Integer(0), again - through)


def pass_moments(stage: Stage, at: Sizing, run_by: BlockImplementation, put_off: bool) -> tuple[PassMoment, ...]:
    """The moments of a stage's passes at which it can have most; those of the same amount once. ``put_off``: as :func:`computed_again`."""
    first = stage.runs[min(stage.runs)] if stage.runs else stage
    behind = _behind(stage)
    found: dict[sympy.Expr, PassMoment] = {}
    for part, _ in stage.held:
        later = {backward: sum(_let_go(p, at, backward) for p in behind if part.repeats) for backward in (False, True)}
        ends = not part.repeats and part not in behind  # backward ends here, and has freed what all layers kept
        others = sum(times * _let_go(p, at, True) for p, times in first.held if p is not part) if ends else 0
        own, more = _kept(part, at), _gradients(part, at, run_by) if ends else 0
        replays = [replay for replay in stage.replays if any(p is part for p, _ in replay.members)]
        for backward, lying in part.alive(run_by.tensors, run_by.held):
            if ends and not backward:
                continue  # nothing of the micro-batch is kept yet
            beyond = _bytes(part, lying, at) + more - own - later[backward] - others
            beyond += _outputs(part, lying, at, backward) if run_by.keeps_output else 0
            beside = [_replayed(replay, at, put_off) - _bytes(part, part.working, at) for replay in replays if backward] or [0]
            for bytes_ in (tidy(beyond + other) for other in beside):
                name = f"{lying[-1].block}.{lying[-1].name}" if lying and lying[-1].block not in ("", INPUT) else ""
                found.setdefault(bytes_, PassMoment(part=part.name, backward=backward, at=name, bytes=bytes_))
    return tuple(found.values())


def _behind(stage: Stage) -> list[DeviceSegment]:
    """What is behind the last layer of a stage; none where a device has several stages, as a pass may be of another one."""
    parts = [] if stage.several else [p for p, _ in stage.held]
    last = max((i for i, p in enumerate(parts) if p.repeats), default=-1)
    return list(parts[last + 1 :])


def _bytes(part: DeviceSegment, stored: Iterable[Stored], at: Sizing) -> sympy.Expr:
    import sympy

    return sympy.Add(*(row.bytes for row in part.bytes(tuple(stored), at)))


def _kept(part: DeviceSegment, at: Sizing) -> sympy.Expr:
    """What one repetition keeps on the device."""
    return _bytes(part, (s for s in part.kept if not (part.checkpoints.host and part.is_checkpoint(s))), at)


def _let_go(part: DeviceSegment, at: Sizing, backward: bool) -> sympy.Expr:
    """What one repetition kept on the device, and does not have any more when its backward is over; or not yet, in forward."""
    return _kept(part, at) - _bytes(part, (s for s in part.stays if backward or s in part.kept), at)


def _outputs(part: DeviceSegment, lying: Sequence[Stored], at: Sizing, backward: bool) -> sympy.Expr:
    """Of a layer that is computed again whole, its output and the gradient by it, each as large as its input, as far as they lie there: the
    gradient while its forward runs again, and both in its backward."""
    import sympy

    kept = [s for s in part.layer.kept(part.drawn) if s.picks is None]
    if not part.working or not all(map(part.is_checkpoint, kept)):
        return sympy.Integer(0)
    came_in = any(part.is_checkpoint(s) and s.name not in {k.name for k in kept} for s in lying)
    return (2 if backward and not came_in else 1) * _bytes(part, kept, at)


def _gradients(part: DeviceSegment, at: Sizing, run_by: BlockImplementation) -> sympy.Expr:
    """Gradients of weights that are tensors of their own before they are added."""
    import sympy

    rows = part.bytes(tuple(w for _, w in part.weights if f"{w.block}.{w.name}" in run_by.gradients), at)
    return sympy.Add(*(row.elements for row in rows)) * symbol("b_theta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Bytes beyond model states and activations: ``working``, what is computed again, and ``beyond``, the most that a pass has beyond all
    activations; both the most of ``moments`` where there are any; ``beside`` all the time; ``updating``, beyond what the step has there,
    in the update."""

    working: sympy.Expr
    beyond: sympy.Expr
    moments: tuple[PassMoment, ...]
    beside: sympy.Expr
    updating: sympy.Expr


def running(
    stage: Stage, at: Sizing, run_by: BlockImplementation | None, put_off: bool, values: Mapping[str, Amount], optimizer: sympy.Expr
) -> Running:
    """What a stage has as an implementation runs it; None: as the blocks' programs say. ``optimizer``: bytes of optimizer state.

    ``put_off``: as :func:`computed_again`. ``values``: sizes that are known.
    """
    import sympy

    none = sympy.Integer(0)
    if run_by is None:
        again = computed_again(stage, at, put_off)
        return Running(working=again, beyond=_behind_ends(stage, at, put_off, again), moments=(), beside=none, updating=none)
    moments, mine = pass_moments(stage, at, run_by, put_off), owned(optimizer)
    copied = mine if run_by.flat_gradients else none
    lasting = sympy.Add(*(n * _bytes(part, part.lasting(run_by.lasting), at) for part, n in stage.held)) if run_by.lasting else none
    most = sympy.Max(*(one.bytes for one in moments), evaluate=False)
    return Running(
        working=most,
        beyond=most,
        moments=moments,
        beside=dummy_gradients(stage, at, run_by, values) + lasting + (copied + run_by.bucket) * symbol("b_g") + run_by.workspace,
        updating=4 * mine if run_by.widened_gradients else none,
    )


def owned(optimizer: sympy.Expr) -> sympy.Expr:
    """Elements that a device holds optimizer state for, of the bytes of that state."""
    import sympy

    one, none = sympy.Integer(1), sympy.Integer(0)
    return sympy.sympify(optimizer).xreplace({symbol("b_omega"): one, symbol("b_master"): one, symbol("b_nu"): none, symbol("b_pre"): none})


def dummy_gradients(stage: Stage, at: Sizing, run_by: BlockImplementation, values: Mapping[str, Amount]) -> sympy.Expr:
    """Bytes of gradients that nobody writes to: one for each distinct shape of a matrix. ``values``: sizes that are known."""
    import sympy

    return sympy.Add(*(rows * columns for rows, columns in dummy_shapes(stage, at, run_by, values))) * symbol("b_theta")


def dummy_shapes(
    stage: Stage, at: Sizing, run_by: BlockImplementation, values: Mapping[str, Amount]
) -> tuple[tuple[sympy.Expr, sympy.Expr], ...]:
    """Rows and columns of the matrices of :func:`dummy_gradients`; those that are the same at some degrees alone are told apart while these
    are open."""
    return tuple(dict.fromkeys(shape for part, _ in stage.held for shape in _shapes(part, at, run_by, values)))


def _shapes(
    part: DeviceSegment, at: Sizing, run_by: BlockImplementation, values: Mapping[str, Amount]
) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Rows and columns of each matrix of a part, as a device has it."""
    import sympy

    own = {(r.stored.block, r.stored.name): r.elements for r in part.bytes(tuple(w for _, w in part.weights), at)}
    groups = {(w.block, w.name): group for group, w in part.weights}
    inner = part.plain.products()
    for block in (b for b in part.blocks if b.name in run_by.dummies):
        weights = {w.name: (w, own[w.block, w.name]) for group, w in part.weights if w.block == block.name and group != ROUTER}
        for names in products_of_one_value(block.program):
            told = [weights[n] for n in names if n in weights]
            if told:
                shared = inner.get((told[0][0].number, told[0][0].name), frozenset())
                beside = apart(groups[told[0][0].block, told[0][0].name])
                columns = sympy.sympify(_size(told[0][0], shared - beside, at))
                rows = sympy.Add(*(n for _, n in told)) / columns / _size(told[0][0], beside, at)
                yield tuple(sympy.simplify(n.xreplace({symbol(k): sympy.sympify(v) for k, v in values.items()})) for n in (rows, columns))


def _size(stored: Stored, dims: frozenset[str], at: Sizing) -> Amount:
    """The elements of a matrix along some of its dimensions, on a device."""
    return elements([d for d in stored.dims if d in dims], stored.split, at.sizes, at.degrees)
