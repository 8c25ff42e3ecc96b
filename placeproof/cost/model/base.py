"""What a linked program's step makes of the parameters that a device has: its formulas for so many of them.

The step is costed like any other, as a device that is alone in its pipeline runs it. Its formulas speak of P parameters, which are those of
one device, P_norm of them with gradients that the step sums over the axis that splits the hidden dimension, and of U, those of the
largest unit. Experts have formulas of their own: those of the step as it treats their group alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.strategy import EXPERT, TIED
from placeproof.core.symbols import symbol
from placeproof.cost.derive import Derivation, derive
from placeproof.cost.uneven import sent
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Program, Ref, Stmt, expressions, read, render
from placeproof.programs.ir import DEFAULT_GROUP, Group, rewritten, with_expressions
from placeproof.semantics.linked import Linked

if TYPE_CHECKING:
    import sympy

    from placeproof.cost.step.traffic import Message


#: How what is kept of a layer gets to where it lies, and back.
_MOVES = ("to_host", "to_device", "part", "all_gather")


class Base:
    """The formulas of a linked step for the groups ``of`` its parameters; ``experts``: those of experts, where an axis has them in parts.

    ``uneven``: axes whose devices hold fractions of their own (:mod:`placeproof.cost.uneven`).
    """

    def __init__(self, linked: Linked, uneven: tuple[str, ...] = (), of: Sequence[str] | None = None) -> None:
        every = [g.name for g in linked.step.groups]
        own = [g for g in every if g not in (EXPERT, TIED)] if of is None else list(of)
        self.derived: Derivation = derive(_alone(linked, own), groups=True, uneven=uneven)
        for message in self.derived.messages.messages:
            if message.state == "activations":
                text = f"the step exchanges activations over {' and '.join(f'`{a}`' for a in message.axes)}, which its blocks do themselves"
                raise InputError([Diagnostic(code="PP311", message=text, place=message.stmt.place, help="leave it out of the step")])
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

    @cached_property
    def memory(self) -> dict[str, sympy.Expr]:
        """Closed forms of model states by state, of what passes (``transient``), and of what lies on the ``host``. Activations that are
        computed again pass as well, A of them in all; what these are the blocks say."""
        kept = ("parameters", "gradients", "optimizer", "transient", "host")
        return {k: self.derived.memory[k].xreplace({symbol("A"): symbol("A") * 0}) for k in kept}

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is sent of parameters and gradients."""
        return self.derived.messages.messages

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
    step = linked.step
    gone = {g.name for g in step.groups} - set(own)
    only = own[0] if len(own) == 1 else None
    groups = tuple(replace(g, size=_left(g.size, gone), experts=None) for g in step.groups if g.name in own)
    if only is not None:
        groups = (Group(name=DEFAULT_GROUP, size=Ref(name="P")),)
    placed = tuple(replace(p, group=None if p.group == only else p.group) for p in step.placed if p.group not in gone)
    apart = () if linked.pipeline is None else (linked.pipeline,)
    body = _plain(tuple(_kept(step.body, apart, gone, only)), own)
    return read(render(replace(step, groups=groups, placed=placed, body=body, counts=_counts(linked))), source=step.name)


def _counts(linked: Linked) -> tuple[tuple[str, int], ...]:
    copies = next((a.degree or 1 for a in linked.step.axes if a.name in linked.apart), 1)
    return tuple((domain, n * copies if domain == "microbatches" else n) for domain, n in linked.step.counts)


def _left(size: Expr, gone: set[str]) -> Expr:
    """What is left of a difference of groups."""
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
            case Assign() | Do():
                yield with_expressions(stmt, lambda e: rewritten(e, lambda x: _within(x, apart, only)), tuple)
            case _:
                yield stmt


def _plain(body: Sequence[Stmt], own: Sequence[str]) -> tuple[Stmt, ...]:
    """With statements that are said of each group, one after the other, said of all together; and with what is named only to be cut by
    groups not named: what a unit's gradients are reduced from is no buffer then."""
    found: list[Stmt] = []
    left = [replace(s, body=_plain(s.body, own)) if isinstance(s, For) else s for s in body]
    while left:
        alike = [_of_all(stmt, group) for stmt, group in zip(left, own, strict=False)]
        if len(alike) == len(own) and alike[0] != left[0] and all(one == alike[0] for one in alike):
            left[: len(own)] = alike[:1]
        found.append(left.pop(0))
    return tuple(_inlined(found))


def _of_all(stmt: Stmt, group: str) -> Stmt:
    """A statement about a group as one about all groups."""

    def plain(expr: Expr) -> Expr:
        return replace(expr, group=None) if isinstance(expr, Ref) and expr.group == group else expr

    return with_expressions(stmt, lambda e: rewritten(e, plain), tuple) if isinstance(stmt, Assign) else stmt


def _inlined(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Without a buffer that the next statement alone reads, or the next ones, each a group of its own, and that is freed then."""
    left = list(body)
    while left:
        match left[0]:
            case Assign(targets=(Ref(name=name, group=None, index=None),), value=value, accumulate=False):
                users = _users(left[1:], name)
                if users and _freed(left[1 + len(users) : 2 + len(users)], name):
                    left[: 2 + len(users)] = [replace(s, value=rewritten(s.value, partial(_put, name, value))) for s in users]
        yield left.pop(0)


def _users(body: Sequence[Stmt], name: str) -> list[Assign]:
    """The statements, from the first on, that read a buffer: one that reads it once, or several that read a group of it each."""
    found: dict[str | None, Assign] = {}
    for stmt in body:
        read = [r for r in expressions(stmt.value) if isinstance(r, Ref) and r.name == name] if isinstance(stmt, Assign) else []
        if not isinstance(stmt, Assign) or len(read) != 1 or read[0].index is not None or read[0].group in found or None in found:
            break
        found[read[0].group] = stmt
    return list(found.values())


def _freed(stmts: Sequence[Stmt], name: str) -> bool:
    return any(isinstance(s, Do) and s.call.op == "free" and s.call.args == (Ref(name=name),) for s in stmts)


def _put(name: str, value: Expr, expr: Expr) -> Expr:
    """What is computed instead of a buffer; of a group, from that group of the parameters."""
    if not isinstance(expr, Ref) or expr.name != name:
        return expr
    if expr.group is None or not isinstance(value, Call) or not isinstance(value.args[0], Ref):
        return value
    return replace(value, args=(replace(value.args[0], group=expr.group), *value.args[1:]))


def _within(expr: Expr, apart: Sequence[str], only: str | None) -> Expr:
    """Without the axes ``apart``, without the name of the only group, and with what is kept of a layer kept as it is: blocks say where."""
    if isinstance(expr, Ref) and expr.group is not None and expr.group == only:
        return replace(expr, group=None)
    if isinstance(expr, Call) and expr.op in _MOVES and isinstance(expr.args[0], Ref) and expr.args[0].name in ("x", "activations"):
        return expr.args[0]
    if isinstance(expr, Call) and set(expr.axes) & set(apart):
        axes = tuple(a for a in expr.axes if a not in apart)
        return replace(expr, axes=axes) if axes else expr.args[0]
    return expr
