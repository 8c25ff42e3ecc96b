"""What a linked program's step makes of the parameters that a device has: its formulas for so many of them.

They are those of the step as devices of one stage run it. P is what such a device has, P_norm of it has gradients that the step sums over
the axis that splits the hidden dimension, U is what the largest unit has. Experts have formulas of their own, in their P and their U.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.diagnostics import refuse
from placeproof.core.modes import SHARDED
from placeproof.core.states import OPTIMIZER
from placeproof.core.strategy import (
    ADAPTER,
    ADAPTER_SUMS,
    COPIES,
    ELEMENTWISE,
    EXPERT_COPIES,
    EXPERTS,
    FROZEN,
    MATRIX_COPIES,
    MATRIX_SUMS,
    NORM,
    TIED,
)
from placeproof.core.symbols import symbol
from placeproof.cost.closed import largest, tidy
from placeproof.cost.model.stages import Stage
from placeproof.cost.step.amounts import Amounts
from placeproof.cost.step.devices import Condition, Holds, holding_at, kinds
from placeproof.cost.step.memory import Memory, memory
from placeproof.cost.step.traffic import SCALAR, Message, traffic
from placeproof.cost.step.unrolled import Known, Unrolled
from placeproof.cost.uneven import require_uneven, sent
from placeproof.programs import Assign, Call, Expr, For, If, Placed, Ref, Stmt, calls
from placeproof.semantics.linked import Linked
from placeproof.semantics.linked.contract import stands_for
from placeproof.semantics.resolve import resolve
from placeproof.semantics.trace import trace
from placeproof.semantics.values import Kind

if TYPE_CHECKING:
    import sympy

#: What blocks say of themselves is left out: what forward keeps, and what goes from one to the next.
_OF_BLOCKS = frozenset({Kind.SAVED, Kind.STREAM})
#: Groups whose parameters are counted by themselves, in units as well.
COUNTED = (NORM, ADAPTER, ADAPTER_SUMS, FROZEN, MATRIX_COPIES, MATRIX_SUMS, ELEMENTWISE)
#: How what is kept of a layer gets to where it lies, and back.
_MOVES = ("to_host", "to_device", "part", "all_gather")


@dataclass(frozen=True, kw_only=True)
class StateMessage:
    """What a statement sends of a model state, or a number, as :class:`placeproof.cost.step.traffic.Message` says it.

    ``size``: bytes of the tensor, as :class:`placeproof.core.exchange.Exchange` counts them; ``loops``: what the loops around it walk over.
    """

    kind: str
    about: str
    axes: tuple[str, ...]
    phase: str
    size: sympy.Expr
    bytes: sympy.Expr
    count: sympy.Expr
    loops: frozenset[str]
    stmt: Stmt

    @property
    def scalar(self) -> bool:
        """Whether it is a number, such as a norm."""
        return self.about == SCALAR

    @property
    def groups(self) -> frozenset[str | None]:
        """The groups that its statement is about."""
        return frozenset(t.group for t in self.stmt.targets) if isinstance(self.stmt, Assign) else frozenset()


@dataclass(frozen=True, kw_only=True)
class GroupCosts:
    """Formulas for parameters that the step treats alike: all but experts, or experts. ``memory``: model states by state, what passes in
    the passes (``transient``) and in the ``update``, what lies on the ``host``. ``points``: the same of what passes, point by point."""

    experts: bool
    memory: Mapping[str, sympy.Expr]
    points: Mapping[str, tuple[sympy.Expr, ...]]
    messages: tuple[StateMessage, ...]

    @cached_property
    def root_apart(self) -> bool:
        """Whether the root unit is gathered apart from the others, so that formulas speak of its parameters."""
        return any(symbol("U_root") in e.free_symbols for e in (*self.memory.values(), *(m.bytes for m in self.messages)))


class StepCosts:
    """The step of a linked program, for the devices of each stage.

    ``uneven``: axes whose devices hold fractions of their own (:mod:`placeproof.cost.uneven`). Raises InputError where the step exchanges
    activations otherwise than from stage to stage.
    """

    def __init__(self, linked: Linked, uneven: tuple[str, ...] = ()) -> None:
        self.linked = linked
        self.found = trace(resolve(replace(linked.step, counts=_counts(linked), placed=tuple(_placed(linked)))))
        require_uneven(self.found, uneven)
        inside = frozenset(a.name for a in linked.step.axes if a.splits.stages or a.splits.matrices)
        self.amounts = Amounts(self.found.program, groups=True, uneven=uneven, inside=inside)
        known = Known(self.found, self.amounts.parts)
        self.runs = tuple(Unrolled(known, holds) for holds in kinds(self.found.program, self.amounts))
        self._around = dict(_around(self.found.program.body))
        self._at: dict[tuple[tuple[Condition, bool], ...], tuple[GroupCosts, ...]] = {}

    def at(self, stage: Stage) -> tuple[GroupCosts, ...]:
        """The formulas for devices of a stage: those of experts come last, where an axis has them in parts."""
        holds = self._holds(stage)
        key = tuple(holds.items())
        if key not in self._at:
            self._at[key] = tuple(self._costs(tuple(run for run in self.runs if all(run.taken[c] is yes for c, yes in key))))
        return self._at[key]

    def formulas(self, stage: Stage) -> Iterator[sympy.Expr]:
        """All of them."""
        for costs in self.at(stage):
            yield from (*costs.memory.values(), *(m.bytes for m in costs.messages))

    def _holds(self, stage: Stage) -> Holds:
        """Which conditions on its rank along the pipeline hold."""
        if self.linked.pipeline is None:
            return {}
        last = stage.last or stage.end
        ranks = (stage.index,) if stage.index is not None else (-1,) if last else (0,) if stage.first else (1, -2)
        kinds = [holding_at(rank, self.linked.pipeline, self.found.program, self.amounts) for rank in ranks]
        if any(holds != kinds[0] for holds in kinds):
            message = f"stages between the first and the last do different things along `{self.linked.pipeline}`"
            refuse("PP203", message, help="say the number of stages: `pp(16)`")
        return kinds[0]

    def _costs(self, runs: tuple[Unrolled, ...]) -> Iterator[GroupCosts]:
        costs = memory(self.found, self.amounts, runs, without=_OF_BLOCKS)
        messages = [m for m in traffic(self.found, self.amounts, runs).messages if m.state != "activations" or self._refused(m)]
        names = {g.name for g in self.found.program.groups}
        for experts in (False, True) if names & {*EXPERTS} else (False,):
            points = _points(costs, experts=experts)
            yield GroupCosts(
                experts=experts,
                memory=dict(_memory(costs, points, experts=experts)),
                points=points,
                messages=tuple(_together(self._message(m, experts=experts) for m in messages if m.state != SCALAR or not experts)),
            )

    def _message(self, message: Message, *, experts: bool) -> StateMessage:
        import sympy

        row = COLLECTIVES[message.collective]
        share = sent(row, message.axes, self.amounts.devices(message.axes), sympy.Integer(1), self.amounts.uneven)
        inside = {a.name for a in self.linked.step.axes if a.splits.matrices}
        of_copies = {symbol(f"P_{EXPERT_COPIES}"): symbol("P_expert")} if inside & {*message.axes} else {}  # these alone are summed there
        amount = _of(message.bytes.xreplace(of_copies), experts=experts)
        size = sympy.cancel(amount / share)  # whoever only receives has no message
        return StateMessage(
            kind=message.collective,
            about=message.state,
            axes=message.axes,
            phase=message.phase,
            size=size,
            bytes=amount,
            count=message.count,
            loops=self._around[id(message.stmt)],
            stmt=message.stmt,
        )

    def _refused(self, message: Message) -> bool:
        """Raise InputError for what a step does that is its blocks' to do; False is what it does with the stream between stages, and with
        what it keeps of a layer."""
        own = [c for c in calls(message.stmt) if c.op == message.collective and c.axes == message.axes]
        if message.collective != "send" and not all(_of_layers(c) for c in own):
            text = f"the step exchanges activations over {' and '.join(f'`{a}`' for a in message.axes)}, which its blocks do themselves"
            refuse("PP311", text, place=message.stmt.place, help="leave it out of the step")
        return False


def _of_layers(expr: Expr) -> bool:
    """Whether it moves what is kept of a layer to where it lies, or back."""
    if isinstance(expr, Call) and expr.op in _MOVES:
        return (isinstance(expr.args[0], Ref) and expr.args[0].name in ("x", "activations")) or _of_layers(expr.args[0])
    return False


def _points(costs: Memory, *, experts: bool) -> dict[str, tuple[sympy.Expr, ...]]:
    """What passes at each point: activations are gone when parameters are updated."""
    updates = {True: "update", False: "transient"}
    points: dict[str, tuple[sympy.Expr, ...]] = dict.fromkeys(updates.values(), ())
    for phase, beyond in costs.points:
        points[updates[phase == "update"]] += (tidy(_of(beyond, experts=experts)),)
    return points


def _memory(costs: Memory, points: Mapping[str, tuple[sympy.Expr, ...]], *, experts: bool) -> Iterator[tuple[str, sympy.Expr]]:
    import sympy

    for name, amount in (*costs.held.items(), ("host", costs.host)):
        yield name, tidy(_of(amount, experts=experts))
    for name, amounts in points.items():
        yield name, tidy(largest(amounts)) if amounts else sympy.Integer(0)


def _placed(linked: Linked) -> Iterator[Placed]:
    """Where states lie: optimizer state also on the axis that splits the hidden dimension, of groups of which all weights lie in parts
    there. What is made of it to update whole matrices is gathered over that axis."""
    inside = {a.name for a in linked.step.axes if a.splits.matrices}
    lies = stands_for(linked).values()
    for placed in linked.step.placed:
        own = [inside & {*s.lies.split} for s in lies if placed.state == OPTIMIZER.name and s.group == placed.group]
        split = set.intersection(*own) if own else set()
        yield replace(placed, modes=tuple(sorted({**dict(placed.modes), **dict.fromkeys(split, SHARDED)}.items())))


def _of(expr: sympy.Expr, *, experts: bool) -> sympy.Expr:
    """A formula of all groups for experts alone, or for all others."""
    whole, own, copies = symbol("P"), symbol("P_expert"), symbol(f"P_{EXPERT_COPIES}")
    if not experts:
        return expr.xreplace({own: own * 0, copies: own * 0})
    others = {symbol(f"P_{group}"): own * 0 for group in (TIED, COPIES, EXPERT_COPIES, *COUNTED)}
    return expr.xreplace({whole: own, **others}).xreplace({own: whole})


def _together(messages: Iterable[StateMessage]) -> Iterator[StateMessage]:
    """What statements say of several groups alike is one message."""
    left = [m for m in messages if m.bytes != 0]
    while left:
        first, *left = left
        for other in [m for m in left if _alike(first, m)]:
            left.remove(other)
            first = replace(first, size=tidy(first.size + other.size), bytes=tidy(first.bytes + other.bytes))
        yield first


def _alike(message: StateMessage, other: StateMessage) -> bool:
    """Whether they are about groups of their own, and else the same."""
    groups = message.groups | other.groups
    apart = None not in groups and TIED not in groups and message.groups.isdisjoint(other.groups)
    return apart and all(getattr(message, f) == getattr(other, f) for f in ("kind", "about", "axes", "phase", "count", "loops"))


def _counts(linked: Linked) -> tuple[tuple[str, int], ...]:
    """A device of two copies runs the micro-batches of both."""
    copies = next((a.degree or 1 for a in linked.step.axes if a.name in linked.apart), 1)
    return tuple((domain, n * copies if domain == "microbatches" else n) for domain, n in linked.step.counts)


def _around(body: tuple[Stmt, ...], loops: frozenset[str] = frozenset()) -> Iterator[tuple[int, frozenset[str]]]:
    """What the loops around each statement walk over, by its ``id``."""
    for stmt in body:
        if isinstance(stmt, For):
            yield from _around(stmt.body, loops | {stmt.domain})
        elif isinstance(stmt, If):
            yield from _around((*stmt.then, *stmt.orelse), loops)
        else:
            yield id(stmt), loops
