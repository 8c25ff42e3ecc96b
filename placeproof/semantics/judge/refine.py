"""Whether one step program does what another does: the same reductions of the same states, the same scale, gathers where they are used.

Both are brought to the same form first. What a lowering may choose is not part of it: an all-reduce or a reduce-scatter for a gradient (the
placement says which part is needed), an all-gather or a broadcast by each owner after the update, how many units or buckets there are,
whether a gradient is reduced once for each micro-batch or once for all of them. What remains is compared group by group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Literal, TypeAlias

from placeproof.collectives import COLLECTIVES
from placeproof.core.diagnostics import Place
from placeproof.programs import Assign, Binary, Call, Expr, Group, Number, Program, Ref, expressions, render_expression, statements, walked
from placeproof.programs.header import REFERENCE
from placeproof.programs.ops import DOMAINS
from placeproof.programs.printer import contract
from placeproof.prove import Budget
from placeproof.semantics.judge.verdict import Judged, judge
from placeproof.semantics.resolve import resolve
from placeproof.semantics.trace import trace
from placeproof.semantics.values import Event, Kind, Trace

Word = Literal["refines", "differs, and both are proved", "differs, and the recorded step is refuted", "unknown"]

#: What the parts of a flow are called, in the order in which a step comes to them.
PARTS = {
    "without": "what is not assumed",
    "reference": "what one device does besides",
    "parameters": "the parameters lie",
    "optimizer": "the optimizer state lies",
    "experts": "tokens are sent to experts over",
    "sent": "before forward, parameters are sent to all over",
    "same": "samples are sent to all over",
    "forward": "forward gathers parameters over",
    "block forward": "blocks exchange activations in forward over",
    "backward": "backward gathers parameters over",
    "block backward": "blocks exchange gradients of activations in backward over",
    "statistics": "statistics of the batch are reduced over",
    "reduced": "gradients are reduced over",
    "scale": "gradients of the mean loss are scaled by",
    "norm": "the norm that clips sums squares over",
    "refreshed": "after the update, parameters are made whole over",
    **{op: f"besides, `{op}` goes over" for op in COLLECTIVES},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A part of the flow of a group that two programs do not share: what each does, and where (None: nowhere)."""

    part: str
    group: str
    left: str
    right: str
    left_place: Place | None
    right_place: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """What came out. ``left``: the step that is asked about, ``right``: the one that it is held against."""

    word: Word
    differences: tuple[Difference, ...]
    left: Judged
    right: Judged


def refine(left: Program, right: Program, *, without: frozenset[str] = frozenset(), budget: Budget | None = None) -> Refinement:
    """Compare two programs of training steps, and prove both. ``without``: assumptions that are not made.

    Raises InputError for a program that is no well-formed training step."""
    judged, against = (judge(program, without=without, budget=budget) for program in (left, right))
    contrasts = differences(judged.program, against.program)
    return Refinement(word=_word(judged, against, bool(contrasts)), differences=contrasts, left=judged, right=against)


def _word(left: Judged, right: Judged, differ: bool) -> Word:
    """Two steps that do the same and are not judged the same: then one of the two forms says too little, and nothing is claimed."""
    if left.word == "refuted":
        return "differs, and the recorded step is refuted"
    if left.word == "unknown" or right.word != "proved":
        return "unknown"
    return "differs, and both are proved" if differ else "refines"


def differences(left: Program, right: Program) -> tuple[Difference, ...]:
    """Where two programs part ways, in the order in which a step comes to it. ``left``'s axes may have other names than ``right``'s."""
    flow, other = flows(left), flows(right)
    names = _renamed(left, right)
    # one group that is all of the parameters is held against every group of the other side
    groups = sorted({*flow, *other}) if len(flow) == len(other) else max(list(flow), list(other), key=len)
    contrasts = []
    for part, group in product(PARTS, groups):
        for left_flow, right_flow in product(_of(flow, group), _of(other, group)):
            a, b = left_flow.get(part), right_flow.get(part)
            mine, theirs = _shown(a, names), _shown(b, {})
            if mine != theirs:
                at, against = a.place if a else None, b.place if b else None
                contrasts.append(Difference(part=part, group=group, left=mine, right=theirs, left_place=at, right_place=against))
    return tuple(dict.fromkeys(contrasts))


def _of(flows: Flows, group: str) -> list[dict[str, Flow]]:
    """The flows that a group is held against: that of the same name, that of the group of which it is the first unit, or else all, because
    nothing says which parameters the two groups have in common."""
    for name in (group, group.removesuffix(FIRST)):
        if name in flows:
            return [flows[name]]
    return list(flows.values())


def _shown(flow: Flow | None, names: dict[str, str]) -> str:
    if flow is None:
        return "nothing"
    if isinstance(flow.value, frozenset):
        return ", ".join(sorted(names.get(a, a) for a in flow.value)) or "nothing"
    return flow.value.shown(names)


def _renamed(left: Program, right: Program) -> dict[str, str]:
    """Axes that split the same thing are the same axis, where there is one of each."""
    names = {}
    theirs = {a.name for a in right.axes}
    for axis in left.axes:
        alike = [b.name for b in right.axes if b.splits == axis.splits]
        own = [a for a in left.axes if a.splits == axis.splits]
        if axis.name not in theirs and len(alike) == len(own) == 1:
            names[axis.name] = alike[0]
    return names


# What a program does with each group of parameters, in a form that does not depend on how it is written.


@dataclass(frozen=True, slots=True)
class Product:
    """A number times powers of names."""

    number: Fraction = Fraction(1)
    powers: tuple[tuple[str, int], ...] = ()

    def times(self, other: Product, sign: int = 1) -> Product:
        """The product with another one, or the quotient."""
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + sign * power
        number = self.number * other.number if sign == 1 else self.number / (other.number or Fraction(1))
        return Product(number, tuple(sorted((n, p) for n, p in powers.items() if p)))

    def shown(self, names: dict[str, str]) -> str:
        """As text, with some names replaced."""
        above = [names.get(n, n) + (f"**{p}" if p > 1 else "") for n, p in self.powers if p > 0]
        below = [names.get(n, n) + (f"**{-p}" if p < -1 else "") for n, p in self.powers if p < 0]
        if self.number.numerator != 1 or not above:
            above.insert(0, str(self.number.numerator))
        below = ([str(self.number.denominator)] if self.number.denominator != 1 else []) + sorted(below)
        over = " * ".join(sorted(above))
        return over if not below else f"{over} / {below[0]}" if len(below) == 1 else f"{over} / ({' * '.join(below)})"


@dataclass(frozen=True, slots=True)
class Flow:
    """One part: axes, or a factor; and the first line that says it."""

    value: frozenset[str] | Product
    place: Place | None = field(default=None, compare=False)


Flows: TypeAlias = dict[str, dict[str, Flow]]

#: What the name of a group ends in whose first unit is computed apart.
FIRST = ", first unit"

_REDUCING = ("all_reduce", "reduce_scatter", "reduce", "tied_reduce")
#: What brings a value that is reduced to whoever reads it: how is the lowering's choice.
_PASSED_ON = ((Kind.GRADIENTS, "all_gather"), (Kind.SCALAR, "broadcast"), (Kind.NORMS, "broadcast"), (Kind.SCALAR, "all_gather"))


def flows(program: Program) -> Flows:
    """The flow of each group of parameters. Raises InputError for a program that is not well-formed."""
    return _Reader(trace(resolve(program))).read()


class _Reader:
    def __init__(self, trace: Trace) -> None:
        self.trace, self.program = trace, trace.program
        self.groups = [g.name for g in self.program.groups] or [""]
        #: Of the first unit, where it is computed apart, and of the others.
        self.first: Flows = {g: {"scale": Flow(Product())} for g in self.groups}
        self.rest: Flows = {g: {"scale": Flow(Product())} for g in self.groups}
        self.sides: tuple[Flows, ...] = (self.first, self.rest)
        self.scalars = {t.name: s.value for s in statements(self.program.body) if isinstance(s, Assign) for t in s.targets}

    def _alone(self, group: Group) -> frozenset[str]:
        """What one device does with a group beyond a plain step."""
        said = dict(self.program.reference) | ({} if group.update is None else {"optimizer": group.update})
        beyond = [f"{k}={v}" for k, v in said.items() if v != REFERENCE[k][0]]
        beyond += [f"loss={contract(self.program.loss)}"] if self.program.loss else []
        return frozenset((*beyond, *(["frozen"] if group.frozen else [])))

    def read(self) -> Flows:
        """All events, and where states lie between steps."""
        for state in ("parameters", "optimizer"):
            for placed in self.program.placed:
                axes = frozenset(a for a, mode in placed.modes if mode.split)
                if placed.state == state and axes:
                    self._put(state, axes, self.groups if placed.group is None else [placed.group], placed.place)
        self._put("without", frozenset(self.program.without), self.groups, None)
        for group in self.program.groups:
            self._put("experts", frozenset(group.experts), [group.name], group.place)
            self._put("reference", self._alone(group), [group.name], group.place if group.update or group.frozen else None)
        for event in self.trace.events:
            first = walked(event.loops) == "first" or any(v.index is not None and v.index.var is None for v in event.operands)
            self.sides = (self.first,) if first else (self.rest,) if walked(event.loops) == "rest" else (self.first, self.rest)
            self._event(event)
        return self._joined()

    def _joined(self) -> Flows:
        """One flow a group, unless the first unit's is another one. That it is not gathered again is what keeping it means."""
        flows = dict(self.rest)
        for group, apart in self.first.items():
            own = {"backward": self.rest[group]["backward"]} if "forward" in apart and "backward" in self.rest[group] else {}
            flow = own | apart
            if flow != self.rest[group]:
                flows[(group or "all") + FIRST] = flow
        return flows

    def _event(self, event: Event) -> None:
        call, operands = event.call, event.operands
        if not operands:
            if call.op in COLLECTIVES:
                self._put(call.op, self._axes(event), self.groups, call.place)
            return
        first = operands[0]
        groups = [p.group for p in first.pieces if p.group in self.groups] or self.groups
        if call.op == "scale" and first.kind in (Kind.GRADIENTS, Kind.STREAM):
            self._scale(event, groups if first.kind is Kind.GRADIENTS else self.groups)
        elif first.kind is Kind.PARAMETERS and call.op in ("all_gather", "broadcast"):
            self._parameters(event, groups)
        elif first.kind is Kind.GRADIENTS and call.op in _REDUCING:
            self._reduced(event, groups)
        elif first.kind is Kind.STREAM and call.op in (*_REDUCING, "all_gather"):
            self._put("block forward" if event.phase == "forward" else "block backward", self._axes(event), self.groups, call.place)
        elif first.kind is Kind.STREAM and call.op == "broadcast":
            self._put("same", self._axes(event), self.groups, call.place)
        elif first.kind in (Kind.SCALAR, Kind.NORMS) and call.op in _REDUCING:
            self._scalar(event)
        elif call.op in COLLECTIVES and (first.kind, call.op) not in _PASSED_ON:
            self._put(call.op, self._axes(event), groups, call.place)

    def _parameters(self, event: Event, groups: Iterable[str]) -> None:
        part = "refreshed" if event.phase == "update" else "sent" if event.call.op == "broadcast" else event.phase
        kept = frozenset(axis.name if (axis := self.program.axis(a)) else a for a in self._axes(event))
        self._put(part, kept, groups, event.call.place)

    def _reduced(self, event: Event, groups: Iterable[str]) -> None:
        axes = self._axes(event)
        self._put("reduced", axes, groups, event.call.place)
        if event.call.option("op") == "mean":
            self._times(Product(powers=tuple((a, -1) for a in sorted(axes))), groups, event.call.place)

    def _scalar(self, event: Event) -> None:
        inside = _operations(event.call, self.scalars)
        part = "norm" if "square_norm" in inside else "statistics" if "statistics" in inside else event.call.op
        if not {"tokens", "count"} & inside:  # how many tokens there are is in the factor that scales
            self._put(part, self._axes(event), self.groups, event.call.place)

    def _scale(self, event: Event, groups: Iterable[str]) -> None:
        factor = event.call.args[1]
        if "clip_factor" in _operations(factor, self.scalars):
            for side, group in product(self.sides, groups):
                side[group].setdefault("norm", Flow(frozenset(), event.call.place))
            return
        self._times(self._product(factor), groups, event.call.place)

    def _times(self, factor: Product, groups: Iterable[str], place: Place | None) -> None:
        for side, group in product(self.sides, groups):
            before = side[group]["scale"]
            assert isinstance(before.value, Product)
            side[group]["scale"] = Flow(before.value.times(factor), before.place or place)

    def _put(self, part: str, axes: frozenset[str], groups: Iterable[str], place: Place | None) -> None:
        for side, group in product(self.sides, groups if axes else ()):
            before = side[group].get(part)
            old = before.value if before is not None and isinstance(before.value, frozenset) else frozenset()
            side[group][part] = Flow(old | axes, before.place if before is not None and before.place is not None else place)

    def _axes(self, event: Event) -> frozenset[str]:
        """The axes, whole where all factors of one are named."""
        named = set(self.program.factors(*event.call.axes))
        whole = {a.name: set(a.factors) for a in self.program.axes}
        rest = named - {f for fs in whole.values() if fs <= named for f in fs}
        return frozenset({a for a, fs in whole.items() if fs <= named} | (rest & set(self.program.axis_factors)))

    def _product(self, expr: Expr) -> Product:
        """A factor as a product; what is none is a name of its own."""
        match expr:
            case Number():
                return Product(expr.value)
            case Binary(op="*"):
                return self._product(expr.left).times(self._product(expr.right))
            case Binary(op="/"):
                return self._product(expr.left).times(self._product(expr.right), -1)
            case Ref() if expr.name in self.scalars and expr.name not in DOMAINS and self.program.axis(expr.name) is None:
                return self._product(self.scalars[expr.name])
            case Call(op="all_reduce", args=(Call(op="tokens"),)):
                return Product(powers=((f"tokens over {', '.join(sorted(expr.axes))}", 1),))
            case Call(op="tokens"):
                return Product(powers=(("tokens", 1),))
        return Product(powers=((render_expression(expr), 1),))


def _operations(expr: Expr, scalars: dict[str, Expr], depth: int = 8) -> set[str]:
    """All operations of an expression, those of the scalars that it reads included."""
    inside = list(expressions(expr))
    read = [scalars[e.name] for e in inside if isinstance(e, Ref) and e.name in scalars and e.index is None and e.group is None]
    return {e.op for e in inside if isinstance(e, Call)}.union(*(_operations(r, scalars, depth - 1) for r in read if depth))
