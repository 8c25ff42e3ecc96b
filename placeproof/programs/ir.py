"""The step program: the SPMD program that every device runs for one training step.

Straight-line code with symbolic repetition. The language is the table of operations in :mod:`.ops`; this module holds
the nodes, which are data without behaviour. Source positions do not take part in equality.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from placeproof.core.diagnostics import Place
from placeproof.core.mesh import Axis
from placeproof.core.modes import Mode
from placeproof.programs.ops import DEFAULTS

#: Options that name buffers.
_NAMING = ("gradient_of", "by", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """An exact rational constant."""

    value: Fraction
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """``[u]`` or ``[u + offset]``: one iteration's part of something that a loop walks over.

    Without a variable it counts from the start (``[0]``) or from the end (``[-1]``). A part beyond either end is no part:
    a statement about it does nothing.
    """

    var: str | None
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A buffer, a state, an axis (its degree), or a symbol; ``parameters.norm[u]`` selects a group and a part."""

    name: str
    group: str | None = None
    index: Index | None = None
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operation of the table applied to operands, over axes, with named options."""

    op: str
    args: tuple[Expr, ...] = ()
    axes: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def option(self, name: str) -> str | None:
        """The value of a named option, as text; None where it is not said."""
        return dict(self.options).get(name)

    def choice(self, name: str) -> str:
        """The value of an option that has a default in the table of operations, or that a resolved program always says."""
        value = self.option(name) or DEFAULTS.get(name)
        assert value is not None, f"`{self.op}` does not say `{name}`"
        return value

    @property
    def cuts(self) -> tuple[tuple[str, str], ...]:
        """Each axis with the dimension that it splits of the result: one for all axes, or one each. Empty where `dim` says neither."""
        dims = (self.option("dim") or "").split()
        dims = dims * len(self.axes) if len(dims) == 1 else dims
        return tuple(zip(self.axes, dims, strict=True)) if len(dims) == len(self.axes) else ()

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The arguments that are values: neither the name of a function nor a width."""
        if self.op in ("cast", "quantize"):
            return self.args[:1]
        return self.args[1:] if self.op in ("elementwise", "slope") else self.args

    @property
    def steps(self) -> int:
        """How far along its axis a message goes, or comes from."""
        return int(self.choice("to" if self.op == "send" else "source"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """Arithmetic: ``+ - * / **``, on scalars or element-wise on tensors."""

    op: str
    left: Expr
    right: Expr
    place: Place | None = field(default=None, compare=False, repr=False)


Expr: TypeAlias = Number | Ref | Call | Binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """``targets = value``, or ``target += value`` when ``accumulate``."""

    targets: tuple[Ref, ...]
    value: Expr
    accumulate: bool = False
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """An operation for its effect: ``send``, ``free``, ``zero``."""

    call: Call
    place: Place | None = field(default=None, compare=False, repr=False)


#: What a loop within the first unit is within.
FIRST_UNIT = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class For:
    """``for var in domain:``. ``within`` names the outer loop variable whose part is walked (``blocks[u]``), or the first unit
    (``blocks[0]``, :data:`FIRST_UNIT`).

    ``start`` is 1 where the first part is left out (``units[1:]``): it is computed apart, as a root unit that stays gathered is.
    ``in_flight`` is the number of micro-batches whose activations coexist (1 unless a schedule overlaps them). ``hops``: how often each
    micro-batch is handed on from device to device, and its gradient back, where a device has several runs of layers.
    """

    var: str
    domain: str
    body: tuple[Stmt, ...]
    within: str | None = None
    start: int = 0
    reverse: bool = False
    in_flight: Expr | None = None
    hops: Expr | None = None
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class If:
    """``if rank(axis) <op> bound:``: the devices of one axis part ways."""

    axis: str
    op: str
    bound: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)


Stmt: TypeAlias = Assign | Do | For | If


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A parameter group: parameters that share one placement and one reduction domain. ``size`` in parameters.

    ``partial``: the axes over which its gradient is a partial sum, though the group is not in parts there (a norm under sequence
    parallelism, a router): that of a whole pass, and over axes that split blocks also that of a call. ``tied``: the pipeline axis between
    whose first and last stage the group's copies are tied. ``experts``: the axes over which its experts are spread, each token being sent
    to its expert. ``whole``: the axes along which its parts are whole matrices, each with one owner. ``update``: "elementwise" where its
    elements are updated one by one, "tensor_norm" where each is with norms of its tensor, whatever the reference's optimizer reads of other
    groups.
    ``frozen``: it is not trained, so that it has parameters alone.
    """

    name: str
    size: Expr
    partial: tuple[str, ...] = ()
    tied: str | None = None
    experts: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    update: str | None = None
    frozen: bool = False
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor that a program over tensors begins with: its dimensions by name, and along which of them it is split over axes.

    ``picks``: its elements are not numbers but positions along that dimension (token ids, targets).
    """

    name: str
    dims: tuple[str, ...]
    split: tuple[tuple[str, str], ...] = ()
    picks: str | None = None
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def split_dims(self) -> dict[str, tuple[str, ...]]:
        """The dimensions that are split, each with the axes that split it, the outermost first."""
        axes_of: dict[str, tuple[str, ...]] = {}
        for axis, dim in self.split:
            axes_of[dim] = (*axes_of.get(dim, ()), axis)
        return axes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """How one state (of one group, or of all) lies between steps, axis by axis; axes not named are replicated."""

    state: str
    group: str | None
    modes: tuple[tuple[str, Mode], ...]
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of what the reference trains: ``factor`` times the sum of a ``loss`` of all units ``of``, divided by how many of ``over``
    there are (or by that number). Over micro-batches: the mean of the mean of each."""

    MAIN: ClassVar[str] = "main"

    factor: Fraction
    over: str | Fraction
    of: str
    loss: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """A whole step program. ``unit`` is the number of parameters in the largest unit, where it is fixed.

    ``reference`` says what the single device does beyond a plain step (:data:`placeproof.programs.header.REFERENCE`), ``loss`` of what
    its loss is a mean (of all tokens, of which every device has equally many, where it does not say), and ``without`` names assumptions
    that are not made. ``not_compared``: of a step that was recorded, what nobody has compared, by name. A program over ``tensors`` is one
    block of a model, forward and backward: it has no states.
    """

    name: str
    axes: tuple[Axis, ...]
    groups: tuple[Group, ...]
    placed: tuple[Placed, ...]
    body: tuple[Stmt, ...]
    counts: tuple[tuple[str, int], ...] = ()
    unit: int | None = None
    approximates: tuple[str, ...] = ()
    reference: tuple[tuple[str, str], ...] = ()
    loss: tuple[Term, ...] = ()
    without: tuple[str, ...] = ()
    not_compared: tuple[tuple[str, str], ...] = ()
    tensors: tuple[Tensor, ...] = ()

    def count(self, domain: str) -> int | None:
        """The fixed number of iterations of a domain, or None while it is symbolic."""
        return dict(self.counts).get(domain)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every operation, in the order of the text, operands first."""
        return tuple(call for stmt in statements(self.body) for call in calls(stmt))

    @property
    def not_spoken_of(self) -> tuple[str, Place | None] | None:
        """Why neither a proof nor a run speaks of this step, and where that is: states that no device holds between steps, experts of
        whole passes that lie in no parts over the axes over which they are spread, or tied weights beside layers that are called one by
        one, of which nothing says where they are used, or beside parts of the model, of which nothing says whether they have them."""
        for p in self.placed:
            if p.state in ("parameters", "optimizer") and any(mode.transient for _, mode in p.modes):
                return f"no device holds the {p.state} between steps", p.place
        read = [c.args[0] for c in self.calls if c.op == "forward"]
        parts = {(p.group, axis) for p in self.placed if p.state == "parameters" for axis, mode in p.modes if mode.split}
        for group in (g for g in self.groups if g.experts and not read):
            if parts.isdisjoint({(name, axis) for name in (group.name, None) for axis in group.experts}):
                axes = ", ".join(f'{axis}="S"' for axis in group.experts)
                remedy = f"`place(parameters.{group.name}, {axes})`"
                return f"nothing says which devices have which experts of `{group.name}`, as {remedy} does", group.place
        tied = {g.name: g.place for g in self.groups if g.tied and g.name not in self.shared_by_ends}
        if read and (tied or (self.shared_by_ends and any(isinstance(w, Ref) and w.group for w in read))):
            name, place = next(iter(tied.items()), (self.shared_by_ends[0] if self.shared_by_ends else "", None))
            return f"nothing says where activations that are passed on meet the tied weights `{name}`", place
        of_parts = (r for s in statements(self.body) for r in references(s) if r.index is not None and r.index.var not in self._batches)
        if tied and (one := next((r for r in of_parts if r.group in (None, *tied)), None)) is not None:
            return f"nothing says in which part of the model tied weights lie, as those of `{one.group or next(iter(tied))}`", one.place
        return None

    @cached_property
    def shared_by_ends(self) -> tuple[str, ...]:
        """Tied groups whose elements lie in the stages, as those of other groups do, in a step that passes activations on: the first block
        of the first stage and the last block of the last one share theirs."""
        if not any(c.op == "forward" for c in self.calls):
            return ()
        split = {(p.group, axis) for p in self.placed if p.state == "parameters" for axis, mode in p.modes if mode.split}
        return tuple(g.name for g in self.groups if g.tied and not split.isdisjoint({(g.name, g.tied), (None, g.tied)}))

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """The groups that have gradients and optimizer state: all that are not frozen."""
        return tuple(g.name for g in self.groups if not g.frozen)

    @property
    def clip_limit(self) -> Fraction | None:
        """The limit that the reference clips to: the one that the program names everywhere; None where it names none."""
        limits = {constant(c.args[1]) for c in self.calls if c.op == "clip_factor" and len(c.args) > 1}
        return next(iter(limits)) if len(limits) == 1 else None

    @cached_property
    def kept_by_batch(self) -> frozenset[str]:
        """The buffers that are written with an index over micro-batches, and kept for each by itself."""
        return frozenset(t.name for t in assigned(self.body) if t.index is not None and t.index.var in self._batches)

    @cached_property
    def _batches(self) -> frozenset[str]:
        """The variables that stand for a micro-batch."""
        return frozenset(s.var for s in statements(self.body) if isinstance(s, For) and s.domain == "microbatches")

    def __getstate__(self) -> dict[str, object]:
        """Without what is remembered, which is about these very objects."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def elsewhere(self) -> Mapping[int, tuple[Ref, ...]]:
        """Of the statements that name a part which need not be there (``g[u + 1]``, ``g[2]``), by their ``id``: what they name."""
        named = {id(s): tuple(r for r in references(s) if r.index is not None) for s in statements(self.body)}
        return {n: refs for n, refs in named.items() if any(r.index is not None and r.index.offset for r in refs)}

    def axis(self, name: str) -> Axis | None:
        """The mesh axis of that name, or of which that name is the outer or inner factor."""
        return self._axis_named.get(name)

    @cached_property
    def _axis_named(self) -> Mapping[str, Axis]:
        return {name: a for a in reversed(self.axes) for name in (a.name, a.outer_name, a.inner_name)}

    def factors(self, *names: str) -> tuple[str, ...]:
        """The axis factors that names of axes, or of their factors, stand for."""
        factors: list[str] = []
        for name in names:
            axis = self.axis(name)
            factors += axis.factors if axis is not None and name == axis.name else (name,)
        return tuple(factors)

    @property
    def axis_factors(self) -> tuple[str, ...]:
        """All axis factors of the mesh."""
        return tuple(f for axis in self.axes for f in axis.factors)


@dataclass(frozen=True, kw_only=True)
class Resolved(Program):
    """A program in which nothing is left for a reader to fill in: what costs, proofs and runs are made of.

    Every model state is placed, group by group where groups differ; a loop variable stands for one domain; collectives name their root; the
    only group has no name; every operand has a kind that its operation takes. ``gradients``: the buffer that plays the gradients. Made by
    :func:`placeproof.semantics.resolve.resolve` alone.
    """

    gradients: str = "gradients"


DEFAULT_GROUP = "all"

#: Dimensions along which samples and their tokens lie. A tensor of the header that has one of them is an activation (or a gradient
#: that comes in); one that has none belongs to the model. Nothing else in a program tells the two operands of a product apart.
POSITIONS = frozenset({"batch", "tokens", "queries", "keys"})


def constant(expr: Expr) -> Fraction | None:
    """The value of an expression of numbers alone; None where it speaks of something else, or divides by zero."""
    if isinstance(expr, Number):
        return expr.value
    sides = (constant(expr.left), constant(expr.right)) if isinstance(expr, Binary) else (None, None)
    match expr, sides:
        case Binary(op="+"), (Fraction() as left, Fraction() as right):
            return left + right
        case Binary(op="-"), (Fraction() as left, Fraction() as right):
            return left - right
        case Binary(op="*"), (Fraction() as left, Fraction() as right):
            return left * right
        case Binary(op="/"), (Fraction() as left, Fraction() as right) if right:
            return left / right
    return None


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of a body in order, loops and branches before what they contain."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, For):
            yield from statements(stmt.body)
        elif isinstance(stmt, If):
            yield from statements(stmt.then)
            yield from statements(stmt.orelse)


def expressions(expr: Expr) -> list[Expr]:
    """An expression and everything inside it, operands first (the order in which a device evaluates them)."""
    if isinstance(expr, Call):
        return [*(inner for arg in expr.args for inner in expressions(arg)), expr]
    if isinstance(expr, Binary):
        return [*expressions(expr.left), *expressions(expr.right), expr]
    return [expr]


def own_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself evaluates, without those of the statements inside it."""
    if isinstance(stmt, Assign):
        return (stmt.value,)
    if isinstance(stmt, Do):
        return (stmt.call,)
    if isinstance(stmt, For):
        return tuple(e for e in (stmt.in_flight, stmt.hops) if e is not None)
    return (stmt.bound,)


def evaluated(stmt: Stmt) -> list[Expr]:
    """Every expression that a statement itself evaluates, with those inside it, in order of evaluation."""
    return [expr for own in own_expressions(stmt) for expr in expressions(own)]


def references(stmt: Stmt) -> Iterator[Ref]:
    """The buffers that a statement itself reads, in order of evaluation, and writes."""
    yield from reads(stmt)
    yield from stmt.targets if isinstance(stmt, Assign) else ()


def calls(stmt: Stmt) -> Iterator[Call]:
    """Every operation that a statement itself performs, in order of evaluation."""
    return (expr for expr in evaluated(stmt) if isinstance(expr, Call))


def reads(stmt: Stmt) -> Iterator[Ref]:
    """Every name in the expressions that a statement itself evaluates."""
    return (expr for expr in evaluated(stmt) if isinstance(expr, Ref))


def assigned(body: tuple[Stmt, ...]) -> Iterator[Ref]:
    """What the assignments of a body write, in order."""
    for stmt in statements(body):
        if isinstance(stmt, Assign):
            yield from stmt.targets


def walked(loops: tuple[For, ...]) -> str:
    """Of which units nested loops walk over parts: "all", the "first", or the "rest"."""
    if any(loop.start for loop in loops):
        return "rest"
    return "first" if any(loop.within == FIRST_UNIT for loop in loops) else "all"


def rewritten(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """An expression with each of its parts changed, operands first. The name of a function is none of them."""
    match expr:
        case Binary(left=left, right=right):
            expr = replace(expr, left=rewritten(left, change), right=rewritten(right, change))
        case Call(op="elementwise" | "slope", args=(function, x)):
            expr = replace(expr, args=(function, rewritten(x, change)))
        case Call(args=args):
            expr = replace(expr, args=tuple(rewritten(a, change) for a in args))
    return change(expr)


def with_expressions(stmt: Stmt, change: Callable[[Any], Any], inside: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """A statement with its targets and its own expressions changed, each as a whole, and with other statements inside it."""
    match stmt:
        case Assign(targets=targets, value=value):
            return replace(stmt, targets=tuple(change(t) for t in targets), value=change(value))
        case Do(call=call):
            return replace(stmt, call=change(call))
        case If(bound=bound, then=then, orelse=orelse):
            return replace(stmt, bound=change(bound), then=inside(then), orelse=inside(orelse))
        case For(in_flight=in_flight, hops=hops, body=body):
            own = (None if e is None else change(e) for e in (in_flight, hops))
            return replace(stmt, body=inside(body), in_flight=next(own), hops=next(own))


def with_draws(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Statements in which every `random` says which draw it is."""
    numbers = itertools.count()

    def one(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or expr.op != "random":
            return expr
        return replace(expr, options=tuple(({"draw": str(next(numbers))} | dict(expr.options)).items()))

    def inside(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(with_expressions(s, lambda e: rewritten(e, one), inside) for s in stmts)

    return inside(body) if any(c.op == "random" for s in statements(body) for c in calls(s)) else body


def with_names(expr: Expr, names: Mapping[str, str]) -> Expr:
    """An expression that reads buffers by other names."""
    return rewritten(expr, lambda e: replace(e, name=names.get(e.name, e.name)) if isinstance(e, Ref) else e)


def with_buffers(program: Program, names: Mapping[str, str]) -> Program:
    """A program whose statements call buffers by other names."""

    def change(expr: Expr) -> Expr:
        expr = with_names(expr, names)
        if isinstance(expr, Call):
            return replace(expr, options=tuple((o, names.get(v, v) if o in _NAMING else v) for o, v in expr.options))
        return expr

    return replace(program, body=tuple(with_expressions(s, change, tuple) for s in program.body))


def returned(program: Program) -> list[Call]:
    """Every `returns` of a program over tensors that stands in no loop and under no condition, in order."""
    return [s.call for s in program.body if isinstance(s, Do) and s.call.op == "returns"]


def adjoints(program: Program) -> frozenset[str]:
    """The buffers that gradients begin with: what a `returns` names as `at`."""
    return frozenset(at for call in returned(program) if (at := call.option("at")) is not None)
