"""What data parallelism makes of the parameters that a device has: the strategy without the axes that split the computation.

Its step program is lowered and costed like any other. Its formulas speak of P parameters, which are then those of one device of the other
axes, and of U, those of its largest unit. Experts have formulas of their own: those of the strategy without the axis over which they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.states import PARAMETERS
from placeproof.core.strategy import EXPERT, Strategy
from placeproof.cost.derive import Derivation, derive
from placeproof.cost.uneven import sent
from placeproof.programs import For, If, Stmt
from placeproof.semantics.lower.facts import Facts

if TYPE_CHECKING:
    import sympy

    from placeproof.cost.step.traffic import Message


def only_samples(strategy: Strategy) -> Strategy:
    """The strategy on the axes whose devices see different samples."""
    axes = tuple(a for a in strategy.axes if a.splits.samples)
    names = {a.name for a in axes}
    return replace(
        strategy,
        axes=axes,
        entries=tuple(e for e in strategy.entries if e.axis in names and not e.groups),
        schedule=replace(strategy.schedule, in_flight=None, recompute=None, checkpoints=None),
        needs=tuple(n for n in strategy.needs if n[0] in names),
    )


def without_axis(strategy: Strategy, axis: str) -> Strategy:
    """The strategy on its other axes. What is said of gathering ahead, or of the root unit, is left out where nothing is gathered there."""
    rest = replace(
        strategy,
        axes=tuple(a for a in strategy.axes if a.name != axis),
        entries=tuple(e for e in strategy.entries if e.axis != axis),
        needs=tuple(n for n in strategy.needs if n[0] != axis),
    )
    if any(rest.mode(PARAMETERS, a.name).gathers for a in rest.axes):
        return rest
    return replace(rest, schedule=replace(rest.schedule, prefetch=None, root=None))


class Base:
    """The formulas of :func:`only_samples`. Degrees are named as in the ``whole`` strategy. ``experts``: the formulas of experts, where an
    axis has them in parts. ``uneven``: axes whose devices hold fractions of their own (:mod:`placeproof.cost.uneven`)."""

    def __init__(self, strategy: Strategy, whole: Strategy | None = None, uneven: tuple[str, ...] = ()) -> None:
        self.strategy = whole or strategy
        self.facts = Facts(self.strategy)
        self.derived: Derivation = derive(only_samples(strategy), uneven=uneven)
        self._sizes: dict[int, sympy.Expr] = {}
        axis = Facts(strategy).experts
        self.experts: Base | None = None if axis is None else Base(without_axis(strategy, axis), self.strategy, uneven)

    @cached_property
    def _names(self) -> dict[sympy.Symbol, sympy.Symbol]:
        """With one axis left its degree is called N; in the whole strategy it may have another name."""
        from placeproof.core.mesh import degree_symbol
        from placeproof.core.symbols import symbol

        left = self.derived.program.axes
        whole = len(self.strategy.axes) == 1
        only = len(left) == 1
        return {symbol(degree_symbol(a.name, only=only)): symbol(degree_symbol(a.name, only=whole)) for a in left}

    def named(self, expr: sympy.Expr) -> sympy.Expr:
        """A formula with the degrees called as in the whole strategy."""
        return expr.xreplace(self._names)

    @cached_property
    def root_apart(self) -> bool:
        """Whether the root unit is gathered apart from the others, so that formulas speak of its parameters."""
        from placeproof.core.symbols import symbol

        return any(symbol("U_root") in expr.free_symbols for expr in (*self.memory.values(), *(m.bytes for m in self.messages)))

    def of(self, expr: sympy.Expr, parameters: sympy.Expr, unit: sympy.Expr, root: sympy.Expr | None = None) -> sympy.Expr:
        """A formula for so many parameters on the device, so many of them in the largest unit, and in the root unit where it is apart."""
        from placeproof.core.symbols import symbol

        put = {symbol("P"): parameters, symbol("U"): unit} | ({} if root is None else {symbol("U_root"): root})
        return self.named(expr).xreplace(put)

    def speaks_of(self, group: str) -> Base:
        """The formulas that a group's parameters follow."""
        return self.experts if self.experts is not None and group == EXPERT else self

    @property
    def every(self) -> tuple[Base, ...]:
        """These formulas, and those of experts where they are others."""
        return (self,) if self.experts is None else (self, self.experts)

    @property
    def memory(self) -> dict[str, sympy.Expr]:
        """Closed forms of model states by state, and what passes (``transient``)."""
        return {k: self.derived.memory[k] for k in ("parameters", "gradients", "optimizer", "transient")}

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is sent of parameters and gradients."""
        return tuple(m for m in self.derived.messages.messages if m.state != "activations")

    def size(self, message: Message) -> sympy.Expr:
        """Bytes of the tensor that a message is about, as :class:`placeproof.core.exchange.Exchange` counts them."""
        import sympy

        if id(message.stmt) not in self._sizes:
            amounts, row = self.derived.amounts, COLLECTIVES[message.collective]
            share = sent(row, message.axes, amounts.devices(message.axes), sympy.Integer(1), amounts.uneven)
            self._sizes[id(message.stmt)] = sympy.cancel(message.bytes / share)  # whoever only receives has no message
        return self._sizes[id(message.stmt)]

    def loops(self, message: Message) -> frozenset[str]:
        """What the loops that a message stands in walk over: ``microbatches``, ``units``."""
        return next(iter(_around(self.derived.program.body, message.stmt)), frozenset())


def _around(body: tuple[Stmt, ...], wanted: Stmt) -> Iterator[frozenset[str]]:
    for stmt in body:
        if stmt is wanted:
            yield frozenset()
        elif isinstance(stmt, For):
            yield from (found | {stmt.domain} for found in _around(stmt.body, wanted))
        elif isinstance(stmt, If):
            yield from _around((*stmt.then, *stmt.orelse), wanted)
