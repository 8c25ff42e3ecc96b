"""An oracle for costs: a step program unrolled at concrete sizes, and its buffers and messages added up one by one.

It knows nothing of layouts or formulas. Parameters are sets of elements, each with an owner on every axis; a shard is a subset,
and a collective's bytes are counted ring step by ring step. Lifetimes are those of the unrolled run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from placeproof.collectives.patterns import pairwise, ring_all_gather, ring_reduce_scatter
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt
from placeproof.programs.ops import OPS

#: (block, group, owner on each axis factor)
Element = tuple[int, str, tuple[int, ...]]


@dataclass(frozen=True)
class Sizes:
    """Concrete sizes. Layers, units and degrees are counts; ``values`` has every other symbol of the formulas.

    ``parts``: what the devices of an axis own of each tensor of a model state, where they do not own as much.
    """

    degrees: dict[str, int]
    layers_per_stage: int
    units_per_stage: int
    microbatches: int
    values: dict[str, Fraction]
    parts: dict[str, tuple[Fraction, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Set:
    """Some elements of parameters, gradients or optimizer state, at so many bytes each parameter."""

    elements: frozenset[Element]
    width: str
    host: bool = False


@dataclass(frozen=True)
class Stream:
    """Activations between blocks, split over some axis factors."""

    split: frozenset[str] = frozenset()
    host: bool = False


@dataclass(frozen=True)
class Kept:
    """What forward keeps: so many activation elements."""

    amount: Fraction
    split: frozenset[str]


@dataclass
class Life:
    """One buffer instance: its bytes, when it was written, and when it was last read."""

    name: str
    bytes: Fraction
    host: bool
    start: int
    end: int
    stream: bool


@dataclass
class Totals:
    """Bytes sent by the axes of the group, over the host link, and every buffer's life."""

    sent: dict[str, Fraction] = field(default_factory=dict)
    link: Fraction = Fraction(0)
    lives: list[Life] = field(default_factory=list)
    turn: int = 0


class Device:
    """One device's walk through the unrolled program."""

    def __init__(self, program: Program, sizes: Sizes, at: dict[str, int]) -> None:
        self.program, self.sizes, self.at = program, sizes, at
        self.factors = [f for a in program.axes for f in self._factors(a.name)]
        self.hidden = next((a.name for a in program.axes if a.splits.name == "hidden"), None)
        self.stages = next((a.name for a in program.axes if a.splits.name == "layers"), None)
        self.groups = [g.name for g in program.groups]
        self.frozen = {g.name for g in program.groups if g.frozen}
        self.env: dict[tuple[str, Any], Any] = {}
        self.open: dict[tuple[str, Any], Life] = {}
        self.totals = Totals()
        self.clock = 0
        self.in_flight = Fraction(1)
        self.used: dict[str, list[Life]] = {}

    def _factors(self, name: str) -> list[str]:
        axis = self.program.axis(name)
        assert axis is not None
        return [name] if axis.inner is None or name != axis.name else [axis.outer_name, axis.inner_name]

    def group_size(self, axes: tuple[str, ...]) -> int:
        size = 1
        for name in axes:
            for factor in self._factors(name):
                size *= self.sizes.degrees[factor]
        return size

    # Elements.

    @property
    def stage_blocks(self) -> range:
        per = 2 * self.sizes.layers_per_stage
        start = per * (self.at[self.stages] if self.stages else 0)
        return range(start, start + per)

    @property
    def all_blocks(self) -> int:
        return 2 * self.sizes.layers_per_stage * (self.sizes.degrees[self.stages] if self.stages else 1)

    def weight(self, element: Element) -> Fraction:
        """Parameters that an element stands for."""
        whole, norm, adapter, frozen = (self.sizes.values[name] for name in ("P", "P_norm", "P_adapter", "P_frozen"))
        shares = {
            "norm": norm,
            "matrix": whole - norm - (frozen if "frozen" in self.groups else 0),
            "adapter": adapter,
            "base": whole - adapter,
            "frozen": frozen,
            "dense": whole - frozen,
        }
        share = shares.get(element[1], whole)
        for factor, owner in zip(self.factors, element[2], strict=True):
            if factor in self.sizes.parts:
                share *= self.sizes.parts[factor][owner]
            elif factor != self.stages:
                share /= self.sizes.degrees[factor]
        return share / self.all_blocks

    def every(self, blocks: range | tuple[int, ...]) -> Iterator[Element]:
        ranges = [range(self.sizes.degrees[f]) if f != self.stages else range(1) for f in self.factors]
        for block, group in itertools.product(blocks, self.groups):
            yield from ((block, group, owner) for owner in itertools.product(*ranges))

    def owned(self, element: Element, factors: list[str]) -> bool:
        return all(element[2][self.factors.index(f)] == self.at[f] for f in factors if f != self.stages)

    def placed(self, state: str) -> Set:
        width = {"parameters": "b_theta", "optimizer": "b_omega", "gradients": "b_g"}[state]
        kept, host = [], False
        for element in self.every(self.stage_blocks):
            if element[1] in self.frozen and state != "parameters":
                continue
            split: list[str] = []
            for entry in (p for p in self.program.placed if p.state == state and p.group in (None, element[1])):
                for axis, mode in entry.modes:
                    host = host or mode.fetches
                    split += self._factors(axis) if mode.split else []
            if self.owned(element, split):
                kept.append(element)
        return Set(frozenset(kept), width, host)

    def bytes(self, value: Any) -> Fraction:
        v = self.sizes.values
        if isinstance(value, Set):
            if value.width == "b_omega" and self.optimizer in ("factored", "preconditioned"):
                return self.state_of_matrices(value)
            if value.width == "sums":
                return v["rho"] * v["b_nu"] * sum(map(self.weight, value.elements), Fraction(0))
            if value.width == "norms":  # two numbers of each tensor
                return 2 * v["tau"] * v["b_s"] * sum(map(self.weight, value.elements), Fraction(0))
            frozen = v["b_frozen"] if value.width == "b_theta" else v[value.width]
            return sum((self.weight(e) * (frozen if e[1] in self.frozen else v[value.width]) for e in value.elements), Fraction(0))
        amount = value.amount if isinstance(value, Kept) else v["b"] * v["s"] * v["h"] if isinstance(value, Stream) else None
        if amount is None:
            return v["b_s"]
        for factor in value.split:
            amount /= self.sizes.degrees[factor]
        return amount * v["b_a"]

    @property
    def optimizer(self) -> str:
        """What the reference says of the optimizer."""
        return dict(self.program.reference).get("optimizer", "elementwise")

    def state_of_matrices(self, value: Set) -> Fraction:
        """Bytes of what there is for each element, and of what there is for each matrix of which some are here."""
        v, alone = self.sizes.values, {g.name for g in self.program.groups if g.update is not None}
        plain = sum(map(self.weight, value.elements), Fraction(0))
        matrices = replace(value, elements=frozenset(e for e in value.elements if e[1] not in alone))
        whole = sum(map(self.weight, self.of_whole_matrices(matrices).elements), Fraction(0))
        if self.optimizer == "preconditioned":
            return v["b_omega"] * plain + v["sigma"] * v["b_pre"] * whole
        others = plain - sum(map(self.weight, matrices.elements), Fraction(0))
        return v["b_master"] * plain + v["b_nu"] * (others + v["rho"] * whole)

    def of_whole_matrices(self, value: Set) -> Set:
        """All elements of the matrices of which some are there: of parts that are whole matrices no more than these."""
        found: set[Element] = set()
        for group in self.program.groups:
            own = {f for axis in (*group.whole, *group.experts) for f in self._factors(axis)}
            mine = replace(value, elements=frozenset(e for e in value.elements if e[1] == group.name))
            found |= self.spread(mine, [f for f in self.factors if f not in own and f != self.stages]).elements
        return replace(value, elements=frozenset(found))

    # Running.

    def run(self) -> Totals:
        """Walk the whole step."""
        for state in ("parameters", "optimizer", "gradients"):
            self.env[(state, None)] = self.placed(state)
        self.body(self.program.body, {})
        return self.totals

    def lasting(self, name: str) -> bool:
        placed = [p for p in self.program.placed if p.state == name]
        return name in ("parameters", "optimizer", "gradients") and not any(m.transient for p in placed for _, m in p.modes)

    def body(self, body: tuple[Stmt, ...], loops: dict[str, Any]) -> None:
        for stmt in body:
            self.clock += 1
            if isinstance(stmt, For):
                self.loop(stmt, loops)
            elif isinstance(stmt, If):
                bound, rank = self.scalar(stmt.bound), self.at[stmt.axis]
                taken = {"==": rank == bound, "<": rank < bound, ">": rank > bound}[stmt.op]
                self.body(stmt.then if taken else stmt.orelse, loops)
            elif all(self.exists(r, loops) for r in refs(stmt)):
                self.simple(stmt, loops)

    def loop(self, stmt: For, loops: dict[str, Any]) -> None:
        if stmt.domain == "microbatches":
            if stmt.in_flight is not None:
                self.in_flight = self.scalar(stmt.in_flight)
            for i in range(self.sizes.microbatches):
                self.body(stmt.body, {**loops, stmt.var: ("batch", i, None)})
            return
        outer = tuple(self.stage_blocks)
        if stmt.within is not None:
            outer = self.parts("units", outer)[0] if stmt.within == "0" else loops[stmt.within][2]
        parts = list(enumerate(self.parts(stmt.domain, outer)))[stmt.start :]
        for position, blocks in reversed(parts) if stmt.reverse else parts:
            self.body(stmt.body, {**loops, stmt.var: (stmt.domain, position, blocks)})
            for life in self.used.pop(stmt.var, []):  # what an iteration reads of a buffer lives to its end
                life.end = self.clock if any(life is other for other in self.open.values()) else life.end

    def parts(self, domain: str, blocks: tuple[int, ...]) -> list[tuple[int, ...]]:
        size = {"blocks": 1, "layers": 2, "units": len(self.stage_blocks) // self.sizes.units_per_stage}[domain]
        return [blocks[i : i + size] for i in range(0, len(blocks), size)]

    def blocks(self, ref: Ref, loops: dict[str, Any]) -> tuple[int, ...] | None:
        if ref.index is None or (ref.index.var in loops and loops[ref.index.var][0] == "batch"):
            return None
        units = self.parts("units", tuple(self.stage_blocks))
        if ref.index.var is None:
            return units[ref.index.offset]
        domain, position, blocks = loops[ref.index.var]
        if ref.index.offset == 0:
            return blocks
        siblings, moved = self.parts(domain, tuple(self.stage_blocks)), position + ref.index.offset
        return siblings[moved] if 0 <= moved < len(siblings) else ()

    def exists(self, ref: Ref, loops: dict[str, Any]) -> bool:
        return self.blocks(ref, loops) != ()

    def simple(self, stmt: Stmt, loops: dict[str, Any]) -> None:
        if isinstance(stmt, Do):
            if stmt.call.op == "free":
                self.free(stmt.call.args[0], loops)
            elif stmt.call.op != "zero":
                self.value(stmt.call, loops)
            return
        assert isinstance(stmt, Assign)
        value = self.value(stmt.value, loops)
        values = value if isinstance(value, tuple) else (value, None)
        for target, one in zip(stmt.targets, values, strict=False):
            self.write(target, one, loops)

    # Buffers.

    def key(self, ref: Ref, loops: dict[str, Any]) -> tuple[str, Any]:
        blocks = self.blocks(ref, loops)
        return (ref.name, None if blocks is None and ref.group is None else (ref.group, blocks))

    def write(self, ref: Ref, value: Any, loops: dict[str, Any]) -> None:
        key = self.key(ref, loops)
        if self.lasting(ref.name):
            if key[1] is None:
                self.env[key] = value
            return
        if key[1] is None:
            self.free(ref, loops, before=True)
        self.env[key] = value
        counted = not isinstance(value, Stream) or ref.name == "activations"
        number = isinstance(value, Fraction) or (isinstance(value, Set) and value.width == "norms")
        if value is None or not counted or number:
            return
        if key in self.open:
            self.open[key].end = min(self.open[key].end, self.clock - 1)
        per_batch = ref.name == "activations" or isinstance(value, Kept)
        life = Life(ref.name, self.bytes(value), getattr(value, "host", False), self.clock, self.clock, per_batch)
        self.open[key] = life
        self.totals.lives.append(life)

    def touch(self, ref: Expr, loops: dict[str, Any], *, give: bool = False) -> None:
        assert isinstance(ref, Ref)
        name, part = self.key(ref, loops)
        for key, life in self.open.items():
            if key[0] == name and covers(part, key[1]):
                life.end = self.clock - 1 if give else self.clock
                if ref.index is not None and ref.index.var is not None and ref.index.offset == 0:
                    self.used.setdefault(ref.index.var, []).append(life)

    def free(self, ref: Expr, loops: dict[str, Any], *, before: bool = False) -> None:
        """End a buffer here, or just before here (when it is overwritten in place)."""
        assert isinstance(ref, Ref)
        name, part = self.key(ref, loops)
        for key in [k for k in self.open if k[0] == name and covers(part, k[1])]:
            life = self.open.pop(key)
            life.end = min(life.end, self.clock - 1) if before else self.clock
        for key in [k for k in self.env if k[0] == name and covers(part, k[1])]:
            del self.env[key]

    def read(self, ref: Ref, loops: dict[str, Any]) -> Any:
        self.touch(ref, loops)
        key = self.key(ref, loops)
        if key in self.env:
            return self.env[key]
        if (ref.name, None) in self.env:
            return self.select(self.env[(ref.name, None)], ref, loops)
        pieces = [v for k, v in self.env.items() if k[0] == ref.name and covers(key[1], k[1])]
        if pieces and isinstance(pieces[0], Set):
            around = tuple(b for kind, _, blocks in loops.values() if kind != "batch" for b in blocks)
            merged = frozenset(e for p in pieces for e in p.elements if not around or e[0] in around)
            return self.select(replace(pieces[0], elements=merged), ref, loops)
        return pieces[0] if pieces else Fraction(1)

    def select(self, value: Any, ref: Ref, loops: dict[str, Any]) -> Any:
        blocks = self.blocks(ref, loops)
        if not isinstance(value, Set):
            return value
        chosen = (e for e in value.elements if (blocks is None or e[0] in blocks) and ref.group in (None, e[1]))
        return replace(value, elements=frozenset(chosen))

    # Operations.

    def scalar(self, expr: Expr) -> Fraction:
        match expr:
            case Number(value=value):
                return value
            case Ref(name="microbatches"):
                return Fraction(self.sizes.microbatches)
            case Ref(name=name):
                return Fraction(self.group_size((name,)))
            case Binary(op="-"):
                return self.scalar(expr.left) - self.scalar(expr.right)
            case Call(op="min"):
                return min(self.scalar(a) for a in expr.args)
        raise NotImplementedError(expr)

    def value(self, expr: Expr, loops: dict[str, Any]) -> Any:
        match expr:
            case Number():
                return Fraction(1)
            case Ref():
                return self.read(expr, loops)
            case Binary():
                sides = [self.value(expr.left, loops), self.value(expr.right, loops)]
                return next((s for s in sides if not isinstance(s, Fraction)), Fraction(1))
            case Call(op="wait", args=(Ref() as ref,)):
                handed = self.read(ref, loops)
                self.touch(ref, loops, give=True)
                return handed
        assert isinstance(expr, Call)
        args = [self.value(a, loops) for a in (expr.args[:1] if expr.op in ("quantize", "cast") else expr.args)]
        if expr.op in ("loss", "backward", "backward_weight", "backward_input") and not self.totals.turn:
            self.totals.turn = self.clock
        if OPS[expr.op].collective:
            return self.collective(expr, args)
        return self.local(expr, args)

    def send(self, axes: tuple[str, ...], amount: Fraction) -> None:
        key = "*".join(axes)
        self.totals.sent[key] = self.totals.sent.get(key, Fraction(0)) + amount

    def collective(self, call: Call, args: list[Any]) -> Any:
        n, factors = self.group_size(call.axes), [f for a in call.axes for f in self._factors(a)]
        if call.op == "recv":
            return Stream(frozenset({self.hidden} if self.hidden and self.split_stream else ()))
        value = args[0]
        if call.op == "send":
            self.send(call.axes, self.bytes(value))
            return None
        if call.op == "all_to_all":  # to each of the others as much as to itself
            self.send(call.axes, self.bytes(value) * (n - 1) / n)
            return value
        whole = self.spread(value, factors)
        rounds = {"all_reduce": 2 * (n - 1), "broadcast": n}.get(call.op, n - 1)
        if call.op in ("all_gather", "reduce_scatter") and factors[0] in self.sizes.parts and isinstance(whole, Set):
            self.send(call.axes, self.passed_on(call, whole, factors[0]))
        else:
            self.send(call.axes, sum((self.bytes(whole) / n for _ in range(rounds)), Fraction(0)))
        if call.op == "reduce_scatter":
            return self.keep(whole, factors)
        return whole

    def passed_on(self, call: Call, whole: Set, factor: str) -> Fraction:
        """Bytes that this device sends round by round, a chunk being what one device of the axis owns."""
        n, place = self.sizes.degrees[factor], self.factors.index(factor)
        owned = [self.bytes(replace(whole, elements=frozenset(e for e in whole.elements if e[2][place] == d))) for d in range(n)]
        if call.option("via") == "all_to_all":
            rounds = pairwise(n)
        else:
            rounds = (ring_all_gather if call.op == "all_gather" else ring_reduce_scatter)(n)
        sends = [send for one in rounds for send in one if send.source == self.at[factor]]
        return sum((owned[chunk % n] for send in sends for chunk in send.chunks), Fraction(0))

    @property
    def split_stream(self) -> bool:
        return any(p.state == "activations" and dict(p.modes)[self.hidden].symbol == "S" for p in self.program.placed if self.hidden)

    def spread(self, value: Any, factors: list[str]) -> Any:
        """The value as it is when all devices of a group over these factors put theirs together."""
        if isinstance(value, Stream):
            return replace(value, split=value.split - set(factors))
        if not isinstance(value, Set):
            return value
        found = set()
        for block, group, owner in value.elements:
            choices = [range(self.sizes.degrees[f]) if f in factors else (owner[i],) for i, f in enumerate(self.factors)]
            found |= {(block, group, other) for other in itertools.product(*choices)}
        return replace(value, elements=frozenset(found))

    def keep(self, value: Any, factors: list[str]) -> Any:
        if isinstance(value, Stream):
            return replace(value, split=value.split | set(factors))
        return replace(value, elements=frozenset(e for e in value.elements if self.owned(e, factors)))

    def local(self, call: Call, args: list[Any]) -> Any:
        first = args[0] if args else None
        match call.op:
            case "data":
                return Stream()
            case "part":
                return self.keep(first, [f for a in call.axes for f in self._factors(a)])
            case "to_host" | "to_device":
                self.totals.link += self.bytes(first)
                return replace(first, host=call.op == "to_host")
            case "quantize" | "cast":
                assert isinstance(call.args[1], Ref)
                return replace(first, width=call.args[1].name)
            case "dequantize":
                return replace(first, width="b_theta" if first.width == "b_qw" else "b_g")
            case "forward":
                return args[1], self.kept(first, args[1])
            case "backward" | "backward_weight":
                return Set(frozenset(e for e in first.elements if e[1] not in self.frozen), "b_g")
            case "backward_input":
                return args[2]
            case "output":
                return Stream(first.split)
            case "master":
                return replace(first, width="b_theta")
            case "momentum":
                return Set(first.elements & args[1].elements, "b_theta", first.host)
            case "line_sums":
                return replace(self.of_whole_matrices(first), width="sums")
            case "tensor_norms":
                return replace(self.of_whole_matrices(args[2]), width="norms", host=False)
            case "update" | "update_with":
                owned = frozenset.intersection(*(a.elements for a in args[:3])) | {e for e in first.elements if e[1] in self.frozen}
                return Set(owned, "b_theta", args[1].host), args[1]
            case "square_norm" | "sqrt" | "clip_factor" | "tokens" | "random" | "found_inf":
                return Fraction(1)
        return first

    def kept(self, w: Set, x: Stream) -> Kept:
        v, blocks = self.sizes.values, {e[0] for e in w.elements}
        groups = {e[1] for e in w.elements}
        share = {frozenset({"norm"}): v["A_seq"], frozenset({"matrix"}): v["A"] - v["A_seq"]}.get(frozenset(groups), v["A"])
        amount = share * len(blocks) / self.all_blocks / self.sizes.microbatches
        own = self.hidden is not None and groups == {"matrix"} and all(self.owned(e, [self.hidden]) for e in w.elements)
        return Kept(amount, frozenset({self.hidden}) if own and self.hidden else x.split)


def refs(stmt: Stmt) -> Iterator[Ref]:
    """The references of a plain statement."""
    if isinstance(stmt, Assign):
        yield from stmt.targets
        yield from _inside(stmt.value)
    elif isinstance(stmt, Do):
        yield from _inside(stmt.call)


def _inside(expr: Expr) -> Iterator[Ref]:
    if isinstance(expr, Ref):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from _inside(arg)
    elif isinstance(expr, Binary):
        yield from _inside(expr.left)
        yield from _inside(expr.right)


def covers(asked: Any, part: Any) -> bool:
    """Whether two parts of a buffer have something in common."""
    if asked is None or part is None:
        return True
    (group, blocks), (own_group, own_blocks) = asked, part
    return (group is None or own_group in (None, group)) and (blocks is None or own_blocks is None or bool(set(own_blocks) & set(blocks)))


@dataclass(frozen=True)
class Costs:
    """What the oracle adds up: means over devices for traffic; the device of the first stage for memory."""

    sent: dict[str, Fraction]
    link: Fraction
    held: dict[str, Fraction]
    host: Fraction
    activations: Fraction
    peak: Fraction


def unroll(program: Program, sizes: Sizes, at: dict[str, int] | None = None) -> Costs:
    """Run every device, and add up. ``at``: only those devices with these indices."""
    first = Device(program, sizes, {})
    ranges = ((at[f],) if at and f in at else range(sizes.degrees[f]) for f in first.factors)
    places = [dict(zip(first.factors, place, strict=True)) for place in itertools.product(*ranges)]
    devices = [Device(program, sizes, at) for at in places]
    totals = [d.run() for d in devices]
    keys = {key for t in totals for key in t.sent}
    sent = {key: sum((t.sent.get(key, Fraction(0)) for t in totals), Fraction(0)) / len(totals) for key in keys}
    link = sum((t.link for t in totals), Fraction(0)) / len(totals)
    return replace(_memory(devices[0], totals[0]), sent=sent, link=link)


def _memory(device: Device, totals: Totals) -> Costs:
    held, host = {}, Fraction(0)
    for state in ("parameters", "optimizer", "gradients"):
        placed = device.placed(state)
        amount = device.bytes(placed) if device.lasting(state) else Fraction(0)
        host += amount if placed.host else 0
        held[state] = Fraction(0) if placed.host else amount
    kept = [life for life in totals.lives if life.name == "activations"]
    at_turn = [life for life in kept if life.start < totals.turn <= life.end]
    kept_bytes = sum((life.bytes for life in at_turn), Fraction(0)) * device.in_flight
    on_host = bool(at_turn) and at_turn[0].host
    peak = Fraction(0)
    others = Fraction(0) if on_host else kept_bytes - kept_bytes / device.in_flight  # of the other micro-batches in flight
    span = (min((k.start for k in kept), default=0), max((k.end for k in kept), default=0))
    for moment in range(1, device.clock + 1):
        alive = [life.bytes for life in totals.lives if life.start <= moment <= life.end and not life.host]
        peak = max(peak, sum(alive, others if span[0] <= moment <= span[1] else Fraction(0)))
    activations = Fraction(0) if on_host else kept_bytes
    return Costs({}, Fraction(0), held, host + (kept_bytes if on_host else 0), activations, sum(held.values(), Fraction(0)) + peak)
