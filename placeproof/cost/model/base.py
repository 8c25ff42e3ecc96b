"""What data parallelism makes of the parameters that a device has: the strategy without the axes that split the computation.

Its step program is lowered and costed like any other. Its formulas speak of P parameters, which are then those of one device of the other
axes, and of U, those of its largest unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.program import For, If, Stmt
from placeproof.core.strategy import Strategy
from placeproof.cost.derive import Derivation, derive

if TYPE_CHECKING:
    import sympy

    from placeproof.cost.traffic import Message


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


class Base:
    """The formulas of :func:`only_samples`. Degrees are named as in the whole strategy."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.derived: Derivation = derive(only_samples(strategy))

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

    def of(self, expr: sympy.Expr, parameters: sympy.Expr, unit: sympy.Expr) -> sympy.Expr:
        """A formula for so many parameters on the device, so many of them in the largest unit."""
        from placeproof.core.symbols import symbol

        return self.named(expr).xreplace({symbol("P"): parameters, symbol("U"): unit})

    @property
    def memory(self) -> dict[str, sympy.Expr]:
        """Closed forms of model states by state, and what passes (``transient``)."""
        return {k: self.derived.memory[k] for k in ("parameters", "gradients", "optimizer", "transient")}

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is sent of parameters and gradients."""
        return tuple(m for m in self.derived.messages.messages if m.state != "activations")

    def size(self, message: Message) -> sympy.Expr:
        """Bytes of the tensor that a message is about, as :class:`placeproof.core.exchange.Exchange` counts them; 0 if nothing is sent."""
        import sympy

        sent = COLLECTIVES[message.collective].sent(self.derived.amounts.devices(message.axes), sympy.Integer(1))
        return sympy.Integer(0) if sent == 0 else sympy.cancel(message.bytes / sent)

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
