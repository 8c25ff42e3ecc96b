"""What a device of a stage sends: exchanges of activations, messages between stages, and what data parallelism makes of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from placeproof.collectives import COLLECTIVES
from placeproof.core.strategy import ADAPTER_SUMS, COPIES, EXPERT, EXPERT_COPIES, EXPERTS, NORM, TIED
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.directions import blocked, matrices
from placeproof.cost.model.parts import DeviceSegment, Sizing
from placeproof.cost.model.stages import Stage
from placeproof.cost.model.step import COUNTED, GroupCosts, StateMessage
from placeproof.semantics.linked import Linked

if TYPE_CHECKING:
    import sympy


#: A part of a device, how often it has it, and the elements of its weights by the names of block and weight.
Member: TypeAlias = tuple[DeviceSegment, Amount, Mapping[tuple[str, str], Amount]]

#: What is put for the symbols of sizes, by their names; and the same of whole tensors, by the symbol of what there is of them.
Sizes: TypeAlias = "dict[str, sympy.Expr]"
Tensors: TypeAlias = "dict[sympy.Symbol, Sizes]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A collective that a device of a stage takes part in: ``bytes`` sent by it a time, ``times`` a step. ``about``: what is sent.

    ``size``: bytes of the tensor that it is about, by the convention of :class:`placeproof.core.exchange.Exchange`; they are sent in
    ``calls`` equal parts. ``each``: whether it comes for each micro-batch. ``pair``: the axis along which two devices meet: those that
    have both copies of a stage, or both ends of the model.
    """

    kind: str
    axes: tuple[str, ...]
    about: str
    phase: str
    size: sympy.Expr
    bytes: sympy.Expr
    times: sympy.Expr
    calls: Amount = 1
    each: bool = True
    pair: str | None = None

    @property
    def total(self) -> sympy.Expr:
        """Bytes a step."""
        return self.bytes * self.times


class ParameterShare:
    """The parameters of one device that follow the same formulas: how many, and how many of them each unit has.

    A unit is a part of the model. Where the root unit is gathered apart, it has what is no layer, and the units are the layers. ``once``:
    those of groups, of one copy. ``sums``: those of one copy whose gradients the step sums over the axis that splits the hidden dimension,
    where a formula does not say of which group. ``apart``: whether units differ in what they have of groups that are held, or updated,
    otherwise. ``tensors``: what there is of whole tensors, in place of their elements, by the symbol that formulas multiply these with.
    """

    def __init__(self, costs: GroupCosts, counted: Mapping[str, sympy.Expr], stage: Stage, at: Sizing, linked: Linked) -> None:
        import sympy

        named = {g.name for g in linked.step.groups} & {*EXPERTS}

        def own(group: str) -> bool:
            return (group in named) is costs.experts

        self.costs = costs
        self.total = sympy.Add(*(n for g, n in counted.items() if own(g)))
        members = [(p, times, p.elements_of(own, at)) for p, times in stage.held]
        self.root = sympy.Add(*(n for _, n in _once(m for m in members if not m[0].repeats))) if costs.root_apart else None
        layers = [elements for p, _, elements in members if p.repeats or self.root is None]
        self.units = [sympy.Add(*elements.values()) for elements in layers] or [sympy.Integer(0)]

        def by_group(weights: Iterable[tuple[tuple[str, str], Amount]]) -> dict[str, sympy.Expr]:
            groups = [(linked.group(*weight), n) for weight, n in weights]
            return {g: sympy.Add(*(n for of, n in groups if of == g)) for g in (*COUNTED, *EXPERTS, COPIES, TIED)}

        self.once = by_group(_once(members))
        self.apart = any(g.frozen or g.update for g in linked.step.groups)
        self.groups = {g: stage.copies * self.once[g] for g in COUNTED}
        self.of_root = by_group(_once(m for m in members if not m[0].repeats))
        self.parts = [by_group(elements.items()) for elements in layers]

        def of_tensors(weights: Iterable[tuple[tuple[str, str], Amount]]) -> Tensors:
            """What there is of whole tensors, in place of their elements."""
            own = [*weights]
            every = {name: [(weight, n * ratios[weight]) for weight, n in own if weight in ratios] for name, ratios in found.items()}
            return {name: _sizes(by_group(counts), sympy.Add(*(n for _, n in counts))) for name, counts in every.items()}

        found = _ratios(stage, at, linked)
        whole = of_tensors(_once(members)).items()
        self.tensors: Tensors = {name: {size: stage.copies * n for size, n in sizes.items()} for name, sizes in whole}
        self.tensors_of_root = of_tensors(_once(m for m in members if not m[0].repeats))
        self.tensors_of_parts = [of_tensors(elements.items()) for elements in layers]
        self.layers = _layers(stage)
        self.sums = sympy.Add(*(self.once[g] for g in _summed_groups(named, experts=costs.experts)))
        self.tied = _of_ends(stage, at) if linked.pipeline is not None else sympy.Integer(0)
        self.groups |= self._beside(stage)

    def _beside(self, stage: Stage) -> dict[str, sympy.Expr]:
        """Of copies and of tied ends: where all is held and updated alike, formulas are the same for any number of these."""
        import sympy

        alike = {COPIES: sympy.Integer(0), TIED: self.tied}
        return {g: stage.copies * self.once[g] for g in alike} if self.apart else alike

    @cached_property
    def largest(self) -> sympy.Expr:
        """Parameters in the largest unit. SymPy takes long to compare, so it is asked once, and only where a formula speaks of it."""
        import sympy

        return sympy.Max(*self.units)

    def of(self, expr: sympy.Expr, unit: sympy.Expr | None = None) -> sympy.Expr:
        """A formula for these parameters; ``unit``: those of the unit that it is about, the largest unless it is given."""
        named = self.largest if unit is None and symbol("U") in expr.free_symbols else unit
        put = {
            "P": self.total,
            "U": self.total if named is None else named,
            "n_u": self.layers,
            **{f"P_{group}": n for group, n in self.groups.items()},
        }
        put |= {} if self.root is None else {"U_root": self.root}
        return self._put(expr, put, self.tensors)

    def of_unit(self, expr: sympy.Expr, number: int) -> sympy.Expr:
        """A formula for these parameters, in which what is said of a unit is said of one of them, with what it has of each group."""
        import sympy

        if isinstance(expr, sympy.Add | sympy.Max):
            return expr.func(*(self.of_unit(arg, number) for arg in expr.args))
        if symbol("U_root") in expr.free_symbols:
            groups, total, own = self.of_root, self.root, self.tensors_of_root
        elif symbol("U") in expr.free_symbols:
            groups, total, own = self.parts[number], self.units[number], self.tensors_of_parts[number]
        else:
            return self.of(expr)
        return self._put(expr, _sizes(groups, total), own) if total != 0 else sympy.Integer(0)

    def _put(self, expr: sympy.Expr, sizes: Sizes, tensors: Tensors) -> sympy.Expr:
        """A formula with sizes put in; where it speaks of what there is of whole tensors, with that in their place."""
        import sympy

        named = [name for name in tensors if expr.has(name)]
        if not named:
            return expr.xreplace({symbol(name): n for name, n in sizes.items()})
        if isinstance(expr, sympy.Max):
            return expr.func(*(self._put(arg, sizes, tensors) for arg in expr.args))
        terms = sympy.Add.make_args(sympy.expand(expr))
        put = [(sympy.Add(*(term for term in terms if not term.has(*named))), sizes)]
        for name in (name for name in named if tensors[name]["P"] != 0):
            put.append((sympy.Add(*(term / name for term in terms if term.has(name))), sizes | tensors[name]))
        return sympy.Add(*(e.xreplace({symbol(name): n for name, n in values.items()}) for e, values in put))

    def of_sums(self, expr: sympy.Expr) -> sympy.Expr:
        """A formula for those of one copy that are summed, of all units together."""
        return expr.xreplace({symbol("P"): self.sums, **{symbol(f"P_{group}"): self.once[group] for group in COUNTED}})


def _factors(rows: sympy.Expr, columns: sympy.Expr) -> sympy.Expr:
    """Rows and columns of a matrix, for each of its elements."""
    return 1 / rows + 1 / columns


def _preconditioners(*sides: sympy.Expr) -> sympy.Expr:
    """Elements of the preconditioners of a matrix, or a vector, for each of its own."""
    import sympy

    block = blocked(*sides)
    return sympy.Add(*(side**2 / sympy.Mul(*block) for side in block))


def _tensors(*sides: sympy.Expr) -> sympy.Expr:
    """One tensor, for each of its elements."""
    import sympy

    return 1 / sympy.Mul(*sides)


#: What there is of a tensor by its sides, for each of its elements, by the symbol of that in formulas; and under which updates.
_RATIOS: dict[str, tuple[tuple[str, ...], Callable[..., sympy.Expr]]] = {
    "rho": (("factored",), _factors),
    "tau": (("factored", "tensor_norm"), _tensors),
    "sigma": (("preconditioned",), _preconditioners),
}


def _summed_groups(named: Collection[str], *, experts: bool) -> tuple[str, ...]:
    """The groups whose gradients a step sums over the axis that splits the hidden dimension. ``named``: those of experts that it has."""
    if not experts:
        return (NORM, ADAPTER_SUMS)
    return (EXPERT_COPIES,) if EXPERT_COPIES in named else (EXPERT,)


def _ratios(stage: Stage, at: Sizing, linked: Linked) -> dict[sympy.Symbol, dict[tuple[str, str], sympy.Expr]]:
    """What there is of each weight that is updated so, for each of the elements that a device has: of the whole tensor where it has a part
    of it."""
    import sympy

    optimizer = dict(linked.step.reference).get("optimizer")
    updates = {g.name: None if g.frozen else g.update or optimizer for g in linked.step.groups}
    found: dict[sympy.Symbol, dict[tuple[str, str], sympy.Expr]] = {}
    for name, (under, of_sides) in _RATIOS.items():
        for matrix in (m for part, _ in stage.held if not {*under}.isdisjoint(updates.values()) for m in matrices(part)):
            weight = matrix.weight
            if updates[linked.group(weight.block, weight.name)] in under:
                parts = sympy.Mul(*(at.degrees[a] for dim, axes in weight.split if dim not in matrix.beside for a in axes))
                found.setdefault(symbol(name), {})[weight.block, weight.name] = parts * of_sides(*matrix.sides(at.sizes))
    return found


def _sizes(groups: Mapping[str, sympy.Expr], total: sympy.Expr) -> Sizes:
    """The sizes that formulas of a unit speak of."""
    return {"P": total, "U": total, "U_root": total, **{f"P_{group}": groups[group] for group in (*COUNTED, COPIES, TIED)}}


def _of_ends(stage: Stage, at: Sizing) -> sympy.Expr:
    """Elements of the weights that a stage at one end of the pipeline has in common with the other end."""
    import sympy

    ends = stage.held[:1] if stage.first else stage.held[-1:] if stage.last else ()
    rows = [r for part, _ in ends for r in part.bytes(tuple(w for _, w in part.weights), at) if r.stored.name in part.shared]
    return sympy.Add(*(r.elements for r in rows)) if stage.first != stage.last else sympy.Integer(0)


def _once(members: Iterable[Member]) -> Iterator[tuple[tuple[str, str], Amount]]:
    """The weights of parts, with all their repetitions; what several share is one tensor."""
    seen: set[str] = set()
    for part, times, elements in members:
        for (block, weight), n in elements.items():
            if weight not in seen:
                yield (block, weight), times * n
            seen |= {weight} & set(part.shared)


def sent_of_activations(
    stage: Stage, at: Sizing, batches: Amount, hops: tuple[Amount, Amount], linked: Linked, layer: DeviceSegment | None
) -> list[Transfer]:
    """Collectives inside layers, and messages to other stages: of so many micro-batches, each handed on and back so often.

    ``layer``: one of the model's, whose input is what goes between stages.
    """
    import sympy

    sent = []
    for part, times in stage.held:
        for exchange, each in part.exchanges(at):
            group = sympy.Mul(*(at.degrees[a] for a in exchange.axes))
            sent.append(
                Transfer(
                    kind=exchange.kind,
                    axes=exchange.axes,
                    about=f"activations of `{part.name}`",
                    phase=exchange.phase,
                    size=sympy.sympify(exchange.bytes),
                    bytes=_ring_bytes(exchange.kind, group, sympy.sympify(exchange.bytes)),
                    times=sympy.sympify(times * each * batches),
                )
            )
    return [*sent, *sent_between(stage, at, batches, hops, linked, layer)]


def sent_between(
    stage: Stage, at: Sizing, batches: Amount, hops: tuple[Amount, Amount], linked: Linked, layer: DeviceSegment | None
) -> tuple[Transfer, ...]:
    """Messages of a stage to others alone: as of :func:`sent_of_activations`."""
    return () if linked.pipeline is None or layer is None else tuple(_between(layer, at, batches, hops, linked))


def synchronised(stage: Stage, shares: Sequence[ParameterShare], linked: Linked) -> Iterator[Transfer]:
    """What the step's statements send of states: what the ends of a pipeline share, then what is summed over the axis that splits the
    hidden dimension, whatever it is of, and then the rest."""
    every = [(share, message) for share in shares if share.total != 0 for message in share.costs.messages]
    inside = {a.name for a in linked.step.axes if a.splits.matrices}
    states = [(share, message) for share, message in every if not message.scalar]
    tied = [(share, message) for share, message in states if TIED in message.groups]
    gradients = [(share, message) for share, message in states if message.about == "gradients"]
    summed = [(share, message) for share, message in gradients if set(message.axes) & inside and TIED not in message.groups]
    yield from (_of_tied(share, message) for share, message in tied if share.tied != 0)
    for axes in dict.fromkeys(message.axes for _, message in summed):
        yield from _summed(stage, [(share, message) for share, message in summed if message.axes == axes])
    layers = _layers(stage)
    for share, message in every:
        if (share, message) in summed or (share, message) in tied:
            continue
        copies = bool(set(message.axes) & set(linked.apart))
        axes = tuple(linked.pipeline or a if a in linked.apart else a for a in message.axes)
        each = "microbatches" in message.loops
        yield Transfer(  # of two copies each device of a pair has both stages, and sends its own once
            kind="tied_reduce" if copies and len(axes) == 1 else message.kind,
            axes=axes,
            about="gradients of the two copies" if copies else message.about,
            pair=linked.pipeline if copies else None,
            phase=message.phase,
            size=share.of(message.size),
            bytes=share.of(message.bytes),
            times=share.of(message.count) / (stage.copies if each else 1),  # each copy has its part of the micro-batches
            calls=stage.copies * layers if message.loops & {"units", "layers"} and not message.scalar else 1,
            each=each,
        )


def _layers(stage: Stage) -> sympy.Expr:
    import sympy

    return sympy.Add(*(times for _, times in stage.held))


def _of_tied(share: ParameterShare, message: StateMessage) -> Transfer:
    return Transfer(
        kind=message.kind,
        axes=message.axes,
        about="gradients of the tied table",
        pair=message.axes[0] if message.kind == "tied_reduce" else None,
        phase=message.phase,
        size=share.of(message.size),
        bytes=share.of(message.bytes),
        times=message.count,
        each="microbatches" in message.loops,
    )


def _summed(stage: Stage, summed: Sequence[tuple[ParameterShare, StateMessage]]) -> Iterator[Transfer]:
    """Sums over axes that split the hidden dimension, as one."""
    import sympy

    size = sympy.Add(*(share.of_sums(message.size) for share, message in summed))
    if size == 0:
        return
    first = summed[0][1]
    each = bool(first.loops)  # as it is produced, in every pass
    of = {("adapters" if ADAPTER_SUMS in m.groups else "norms") if not share.costs.experts else "experts" for share, m in summed}
    yield Transfer(
        kind=first.kind,
        axes=first.axes,
        about=f"gradients of {' and '.join(sorted(of, key=lambda name: name == 'experts'))}",
        phase="backward",
        size=size,
        bytes=sympy.Add(*(share.of_sums(m.bytes) * m.count / first.count for share, m in summed)),
        times=first.count * (1 if each else stage.copies),
        calls=_layers(stage),
        each=each,
    )


def _ring_bytes(kind: str, group: sympy.Expr, size: sympy.Expr) -> sympy.Expr:
    """Bytes that one device sends for a collective about a tensor of that size, by a ring."""
    return size if kind == "shift" else COLLECTIVES[kind].sent(group, size)


def _between(part: DeviceSegment, at: Sizing, batches: Amount, hops: tuple[Amount, Amount], linked: Linked) -> Iterator[Transfer]:
    """What the step's messages hand on to the neighbouring stages: the stream as it lies between layers, and its gradient."""
    import sympy

    stream = next(t for t in part.layer.program.tensors if part.layer.origin(t.name).block == "input")
    size = at.width * sympy.Mul(*(at.sizes[d] for d in stream.dims)) / sympy.Mul(*(at.degrees[axis] for axis, _ in stream.split))
    for call in (c for c in linked.step.calls if c.op == "send"):
        often, phase = (hops[0], "forward") if call.steps > 0 else (hops[1], "backward")
        if often != 0:
            yield Transfer(
                kind=call.op,
                axes=call.axes,
                about="activations between stages",
                phase=phase,
                size=size,
                bytes=size,
                times=sympy.sympify(batches * often),
            )
