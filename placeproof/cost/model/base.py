"""What a linked program's step makes of the parameters that a device has: its formulas for so many of them.

The step is costed like any other, as a device that is alone in its pipeline runs it. Its formulas speak of P parameters, which are those of
one device, P_norm of them with gradients that the step sums over the axis that splits the hidden dimension, and of U, those of the
largest unit. Experts have formulas of their own: those of the step as it treats their group alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.strategy import EXPERT
from placeproof.core.symbols import symbol
from placeproof.cost.derive import Derivation, derive
from placeproof.cost.uneven import sent
from placeproof.programs import Assign, Do, Expr, For, If, Program, Ref, Stmt, read, render
from placeproof.programs.ir import DEFAULT_GROUP, Call, Group, rewritten, with_expressions
from placeproof.semantics.linked import Linked

if TYPE_CHECKING:
    import sympy

    from placeproof.cost.step.traffic import Message


class Base:
    """The formulas of a linked step for the groups ``of`` its parameters; ``experts``: those of experts, where an axis has them in parts.

    ``uneven``: axes whose devices hold fractions of their own (:mod:`placeproof.cost.uneven`).
    """

    def __init__(self, linked: Linked, uneven: tuple[str, ...] = (), of: Sequence[str] | None = None) -> None:
        every = [g.name for g in linked.step.groups]
        own = [g for g in every if g != EXPERT] if of is None else list(of)
        self.derived: Derivation = derive(_alone(linked, own), groups=True, uneven=uneven)
        self._sizes: dict[int, sympy.Expr] = {}
        self.experts: Base | None = Base(linked, uneven, [EXPERT]) if of is None and EXPERT in every else None

    @cached_property
    def root_apart(self) -> bool:
        """Whether the root unit is gathered apart from the others, so that formulas speak of its parameters."""
        return any(symbol("U_root") in expr.free_symbols for expr in (*self.memory.values(), *(m.bytes for m in self.messages)))

    def of(
        self, expr: sympy.Expr, parameters: sympy.Expr, unit: sympy.Expr, root: sympy.Expr | None = None, norms: sympy.Expr | None = None
    ) -> sympy.Expr:
        """A formula for so many parameters on the device, so many of them in the largest unit, in the root unit where it is apart, and
        among those whose gradients are sums over the axis that splits the hidden dimension."""
        put = {symbol("P"): parameters, symbol("U"): unit}
        put |= ({} if root is None else {symbol("U_root"): root}) | ({} if norms is None else {symbol("P_norm"): norms})
        return expr.xreplace(put)

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


def _alone(linked: Linked, own: Sequence[str]) -> Program:
    """The step as a device that is alone in its pipeline runs it, with some of its groups."""
    step, stages = linked.step, linked.stages
    gone = {g.name for g in step.groups} - set(own)
    only = own[0] if len(own) == 1 else None
    groups = tuple(replace(g, size=_left(g.size, gone), experts=None) for g in step.groups if g.name in own)
    if only is not None:
        groups = (Group(name=DEFAULT_GROUP, size=Ref(name="P")),)
    placed = tuple(replace(p, group=None if p.group == only else p.group) for p in step.placed if p.group not in gone)
    apart = () if stages is None else (stages.name, f"{stages.name}_copy")
    body = tuple(_kept(step.body, apart, gone, only))
    return read(render(replace(step, groups=groups, placed=placed, body=body, counts=_counts(linked))), source=step.name)


def _counts(linked: Linked) -> tuple[tuple[str, int], ...]:
    copies = next((a.degree or 1 for a in linked.step.axes if linked.stages and a.name == f"{linked.stages.name}_copy"), 1)
    return tuple((domain, n * copies if domain == "microbatches" else n) for domain, n in linked.step.counts)


def _left(size: Expr, gone: set[str]) -> Expr:
    """What is left of a difference of groups."""
    from placeproof.programs import Binary

    match size:
        case Binary(op="-", left=left, right=Ref(name=name)) if name.removeprefix("P_") in gone:
            return _left(left, gone)
        case Binary(op="-", left=left):
            return replace(size, left=_left(left, gone))
    return size


def _kept(body: Sequence[Stmt], apart: Sequence[str], gone: set[str], only: str | None) -> Iterator[Stmt]:
    """The statements of a device that is the first and the last of the axes ``apart``, about groups that are not ``gone``."""
    for stmt in body:
        match stmt:
            case If(axis=axis, op=op, then=then, orelse=orelse) if axis in apart:
                yield from _kept(then if op == "==" else orelse, apart, gone, only)
            case For(body=inner):
                yield replace(stmt, body=tuple(_kept(inner, apart, gone, only)))
            case Assign(targets=targets) if any(t.group in gone for t in targets):
                pass
            case Assign(value=Call(op="tied_reduce")):
                pass
            case Assign() | Do():
                yield with_expressions(stmt, lambda e: rewritten(e, lambda x: _within(x, apart, only)), tuple)
            case _:
                yield stmt


def _within(expr: Expr, apart: Sequence[str], only: str | None) -> Expr:
    """Without the axes ``apart``, and without the name of the only group."""
    if isinstance(expr, Ref) and expr.group is not None and expr.group == only:
        return replace(expr, group=None)
    if isinstance(expr, Call) and set(expr.axes) & set(apart):
        axes = tuple(a for a in expr.axes if a not in apart)
        return replace(expr, axes=axes) if axes else expr.args[0]
    return expr
