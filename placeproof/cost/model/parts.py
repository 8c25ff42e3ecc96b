"""The segments of a linked program as one device runs them: its blocks put into chains, recomputed where asked.

A device's micro-batch is what a block sees. The sums of gradients by weights that blocks leave to the step are none of a segment's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.exchange import Exchange
from placeproof.cost.blocks.autograd import ACTIVATIONS, Buffer, Ran, Setting, run
from placeproof.cost.blocks.chain import INPUT
from placeproof.cost.blocks.flops import Work
from placeproof.cost.blocks.kernels import KernelWork
from placeproof.cost.blocks.layer import Layer, SizedTensor, Stored, layer
from placeproof.cost.blocks.tensors import Amount, BlockExchange, Splits, exchanges
from placeproof.cost.model.recomputation import recomputed, require_found
from placeproof.implementations import BlockImplementation, Tensor
from placeproof.models import Block, Segment, shared_by_segments
from placeproof.models.expressions import Expression
from placeproof.models.family import ROUTER
from placeproof.programs import POSITIONS, Assign, Call, expressions, statements
from placeproof.semantics.linked import Linked

#: The dimensions that scores of attention have.
_ATTENDED = ("tokens", "keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Where the inputs of layers lie that a strategy keeps: on the ``host``, and in parts ``over`` axes, gathered when they are used."""

    host: bool = False
    over: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeviceSegment:
    """One repetition of a segment on one device. ``plain``: without recomputation. ``ring``: the axes round which keys and values go.
    ``shared``: names of weights that several parts have in common. ``checkpoints``: where its inputs lie, if the strategy keeps them alone.
    ``in_turn``: that of the segment. ``inner``: its input is computed again, too, with a layer before it. ``ran``: as an
    implementation runs it, where that has modules; ``kept_as``: values, each with the tensors that it keeps for it.
    """

    name: str
    times: Expression
    blocks: tuple[Block, ...]
    plain: Layer
    layer: Layer
    drawn: tuple[str, ...] = ()
    ring: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    checkpoints: Checkpoints = Checkpoints()
    in_turn: bool = False
    inner: bool = False
    ran: Ran | None = None
    kept_as: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)

    @property
    def repeats(self) -> bool:
        """Whether it is a layer, of which a model has several."""
        return str(self.times) != "1"

    @cached_property
    def weights(self) -> tuple[tuple[str, Stored], ...]:
        """Its weights, each with the parameter group that it is of."""
        return tuple((self.blocks[w.number - 1].groups[w.name], w) for w in self.layer.weights())

    @cached_property
    def kept(self) -> tuple[Stored, ...]:
        """What lives from forward to backward, checkpoints in the parts that one device has of them."""
        if self.ran is not None:
            return tuple(map(_stored, self.ran.kept))
        over = self.checkpoints.over
        alive = self.layer.kept(self.drawn)
        if self.inner:
            return self._as_kept(s for s in alive if not self.is_checkpoint(s))
        return self._as_kept(replace(s, split=_split(s.split, over)) if over and self.is_checkpoint(s) else s for s in alive)

    @cached_property
    def late(self) -> tuple[Stored, ...]:
        """What is still needed when the gradients by inputs are done, and those by weights are not."""
        return self._as_kept(self.layer.kept_for_weights())

    def lasting(self, values: Mapping[str, tuple[Tensor, ...]]) -> tuple[Stored, ...]:
        """Tensors that are told by values, ``block.value``, of what one repetition keeps where nothing is computed again."""
        return tuple(_like(s, tensor) for s in self.plain.kept() for tensor in values.get(f"{s.block}.{s.name}", ()))

    def _as_kept(self, values: Iterable[Stored]) -> tuple[Stored, ...]:
        """Values as the tensors that are kept for them."""
        return tuple(tensor for s in values for tensor in self._kept_for(s))

    def _kept_for(self, stored: Stored) -> tuple[Stored, ...]:
        tensors = self.kept_as.get(f"{stored.block}.{stored.name}")
        return (stored,) if tensors is None else tuple(_like(stored, tensor) for tensor in tensors)

    def is_checkpoint(self, stored: Stored) -> bool:
        """Whether a tensor is an input of the layer."""
        return stored.block == INPUT and stored.picks is None

    @cached_property
    def working(self) -> tuple[Stored, ...]:
        """What backward has of one repetition beyond what was kept, once it is computed again; nothing where nothing is.

        A checkpoint that lies elsewhere, or in parts, is there again as well.
        """
        if self.layer == self.plain:
            return ()
        elsewhere = self.checkpoints != Checkpoints()
        kept = {(s.number, s.name) for s in self.kept if not (elsewhere and self.is_checkpoint(s))}
        return self._as_kept(s for s in self.plain.kept() if (s.number, s.name) not in kept)

    @cached_property
    def stays(self) -> tuple[Stored, ...]:
        """What of it lies there when its backward is over."""
        return () if self.ran is None else tuple(map(_stored, self.ran.stays))

    def alive(self, one_tensor: Iterable[Collection[str]] = (), held: Collection[str] = ()) -> tuple[tuple[bool, tuple[Stored, ...]], ...]:
        """The moments of its passes: :meth:`placeproof.cost.blocks.layer.Layer.alive`, of all of it where it is computed again."""
        if self.ran is not None:
            return tuple((backward, tuple(map(_stored, lying))) for backward, lying in self.ran.moments)
        moments = (self.plain if self.working else self.layer).alive(one_tensor, self.drawn, held)
        return tuple((backward, self._as_kept(lying)) for backward, lying in moments)

    @cached_property
    def narrow(self) -> frozenset[tuple[int, str]]:
        """What a layer keeps as an operand for gradients by weights and for nothing else, by block and name."""
        return self.layer.operands(self._wide) if self.repeats else frozenset()

    @property
    def _wide(self) -> frozenset[tuple[int, str]]:
        """Matrices that are not multiplied in fp8, by block and name: routers."""
        return frozenset((w.number, w.name) for group, w in self.weights if group == ROUTER)

    def bytes(self, stored: tuple[Stored, ...], at: Sizing) -> tuple[SizedTensor, ...]:
        """Each tensor with its elements and bytes."""
        widths = at.widths if self.ran is None else {}  # modules say it themselves
        rows = self.layer.rows(stored, at.sizes, at.degrees, at.width, widths, at.load)
        if not at.fp8:
            return rows
        return tuple(replace(r, bytes=r.elements) if _key(r.stored) in self.narrow and not at.told(r.stored) else r for r in rows)

    def elements_of(self, group: Callable[[str], bool], at: Sizing) -> dict[tuple[str, str], Amount]:
        """Elements of its weights whose groups fulfil a condition, by the names of block and weight; a block that comes twice counts
        twice."""
        elements: dict[tuple[str, str], Amount] = {}
        own = tuple(w for g, w in self.weights if group(g))
        for row in self.bytes(own, at):
            key = row.stored.block, row.stored.name
            elements[key] = elements.get(key, 0) + row.elements
        return elements

    def flops(self, at: Sizing) -> Work:
        """Floating-point operations of one repetition."""
        if self.name not in at.flops:
            at.flops[self.name] = self.layer.flops(at.sizes, at.degrees, load=at.load)
        return at.flops[self.name]

    def narrow_flops(self, at: Sizing) -> Work:
        """Those of one repetition that are done in fp8: products with the matrices of a layer, and for their gradients."""
        if not (at.fp8 and self.repeats):
            return Work(forward=0, again=0, inputs=0, weights=0)
        if self.name not in at.narrow_flops:
            at.narrow_flops[self.name] = self.layer.flops_by_weights(self._wide, at.sizes, at.degrees, load=at.load)
        return at.narrow_flops[self.name]

    def kernels(self, at: Sizing) -> KernelWork:
        """What kernels of one repetition do. Where nothing is kept that has an element for each query and key, attention is a kernel, in
        which these stay (Dao et al. 2022, section 3.1)."""
        if self.name not in at.kernels:
            kept = self.plain.kept()
            inside = () if any({*_ATTENDED} <= {*s.dims} for s in kept) else _ATTENDED
            at.kernels[self.name] = self.layer.kernels(at.sizes, at.degrees, at.width, at.widths, inside=inside, load=at.load)
        return at.kernels[self.name]

    def exchanges(self, at: Sizing) -> tuple[tuple[Exchange, Amount], ...]:
        """The collectives of activations, each with how often it comes in one repetition."""
        if self.name not in at.exchanges:
            at.exchanges[self.name] = tuple(self._exchanges(at))
        return at.exchanges[self.name]

    def _exchanges(self, at: Sizing) -> Iterator[tuple[Exchange, Amount]]:
        """The collectives of activations, checkpoints that are gathered among them.

        Where keys and values go round a ring, an all-gather of n parts is n - 1 steps of a part each, and a reduce-scatter n: gradients
        that travel have one more step to be home (the program ring_attention of ``placeproof.blocks``).
        """
        for shape, exchange in self._sent(at):
            if POSITIONS.isdisjoint(shape.dims):
                continue
            if exchange.axes and set(exchange.axes) <= set(self.ring) and exchange.kind in ("all_gather", "reduce_scatter"):
                (axis,) = exchange.axes
                degree = at.degrees[axis]
                part = _part(exchange.bytes, degree)
                steps = degree - 1 if exchange.kind == "all_gather" else degree * _any_other(degree)
                yield Exchange(kind="shift", axes=exchange.axes, bytes=part, op="", phase=exchange.phase), steps
            else:
                yield exchange, 1
        if self.checkpoints.over:
            for stored in filter(self.is_checkpoint, self.layer.kept(self.drawn)):
                (row,) = self.bytes((stored,), at)
                yield Exchange(kind="all_gather", axes=self.checkpoints.over, bytes=row.bytes, phase="backward"), 1

    def _sent(self, at: Sizing) -> tuple[tuple[BlockExchange, Exchange], ...]:
        """Every collective of the layer, as its shape and with its bytes."""
        if self.name not in at.sent:
            bytes_ = self.layer.exchanges(at.sizes, at.degrees, at.width, at.load)
            at.sent[self.name] = tuple(zip(exchanges(self.layer.program), bytes_, strict=True))
        return at.sent[self.name]


def _stored(buffer: Buffer) -> Stored:
    wide = None if buffer.width == ACTIVATIONS else int(buffer.width)
    return Stored(block=buffer.block, number=buffer.number, name=buffer.name, dims=buffer.dims, wide=wide)


def _like(stored: Stored, tensor: Tensor) -> Stored:
    """A tensor that is told by another one, split as that."""
    split = tuple((dim, axes) for dim, axes in stored.split if dim in tensor.dims)
    width = tensor.width or stored.wide
    return replace(stored, dims=tensor.dims, split=split, picks=None, thin=frozenset(), wide=width)


def _split(split: Splits, over: tuple[str, ...]) -> Splits:
    """With tokens split over more axes."""
    dims = dict(split)
    return tuple({**dims, "tokens": (*dims.get("tokens", ()), *over)}.items())


def _key(stored: Stored) -> tuple[int, str]:
    return stored.number, stored.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Where amounts are worked out: sizes of dimensions, degrees of axes, bytes of an element, and of the elements of named values.

    ``load``: tokens that a device's experts get, over the mean of all devices. ``fp8``: layers multiply by their matrices in fp8, and
    operands for gradients by weights take one byte, unless ``widths`` names them.
    """

    sizes: Mapping[str, Amount]
    degrees: Mapping[str, Amount]
    width: Amount
    widths: Mapping[str, Amount]
    load: Amount = 1
    fp8: bool = False
    #: What was worked out for parts, by their names: several stages have the same part.
    sent: dict[str, tuple[tuple[BlockExchange, Exchange], ...]] = field(default_factory=dict, compare=False, repr=False)
    flops: dict[str, Work] = field(default_factory=dict, compare=False, repr=False)
    narrow_flops: dict[str, Work] = field(default_factory=dict, compare=False, repr=False)
    exchanges: dict[str, tuple[tuple[Exchange, Amount], ...]] = field(default_factory=dict, compare=False, repr=False)
    kernels: dict[str, KernelWork] = field(default_factory=dict, compare=False, repr=False)

    def told(self, stored: Stored) -> bool:
        """Whether ``widths`` says how wide the elements of a value are."""
        return f"{stored.block}.{stored.name}" in self.widths or stored.name in self.widths


def _any_other(degree: Amount) -> Amount:
    """1 where there is another device, 0 where a device is alone: it has nobody to send to."""
    if isinstance(degree, int):
        return min(1, degree - 1)
    if hasattr(degree, "clip"):  # an array of degrees
        return (degree - 1).clip(max=1)
    import sympy

    return sympy.Min(1, degree - 1)


def _part(whole: Amount, degree: Amount) -> Amount:
    return whole // degree if isinstance(whole, int) and isinstance(degree, int) else whole / degree


def parts(
    linked: Linked, run_by: BlockImplementation | None = None, alone: frozenset[str] = frozenset(), *, added: bool = False
) -> tuple[DeviceSegment, ...]:
    """The segments of a linked program, as an implementation runs them.

    ``alone``: dimensions that are known to be of size 1. ``added``: whether a step has several micro-batches, whose gradients are added up.
    Raises InputError for a recomputation that is none, or of nothing, and for what an implementation does not know.
    """
    shared = shared_by_segments(linked.shared, linked.stack)
    checkpoints = _checkpoints(linked)
    every = tuple(_part_of(segment, linked, shared, checkpoints, run_by) for segment in linked.stack)
    require_found(linked.recompute, [(part.plain, segment) for part, segment in zip(every, linked.stack, strict=True) if part.repeats])
    if run_by is None or not run_by.modules:
        return every
    require_modules(every, linked, run_by)
    last = max((i for i, p in enumerate(every) if p.repeats), default=-1)
    twice = frozenset(shared) if run_by.second_gradients and linked.stages is None else frozenset[str]()
    width = run_by.known["b_a"]
    made = []
    for i, part in enumerate(every):
        apart = {"second": twice} if i < last else {"waits": twice if added else frozenset()}
        setting = Setting(width=width, alone=alone, in_place=run_by.in_place, caller=part.repeats, added=added, **apart)
        made.append(replace(part, ran=_ran(part, run_by, setting)))
    return tuple(made)


def require_modules(every: tuple[DeviceSegment, ...], linked: Linked, run_by: BlockImplementation) -> None:
    """Raise InputError where an implementation that runs modules cannot run a program: it knows them as they are on one device."""
    problems = Problems()
    of = f"`{run_by.name}` runs modules of one device"
    for name in dict.fromkeys(b.name for p in every for b in p.blocks if b.name not in run_by.modules):
        problems.add("PP310", f"`{run_by.name}` has no module for block `{name}`", help=f"it has {', '.join(run_by.modules)}")
    if any(p.layer.program.axes for p in every):
        axes = ", ".join(f"`{n}`" for n in dict.fromkeys(a.name for p in every for a in p.layer.program.axes))
        problems.add("PP310", f"{of}, and {axes} has a part of their tensors", help="leave out the strategy that splits tensors")
    for name in dict.fromkeys(b.name for p in every for b in p.blocks if b.frozen):
        problems.add(
            "PP310", f"{of} that are trained, and weights of `{name}` are frozen", help="`--implementation` of another name, or none"
        )
    if linked.recompute != ("none",):
        problems.add("PP310", f"{of}, and what it computes again is not known", help="`--recompute none`")
    if "b_a" not in run_by.known:
        problems.add("PP203", f"`{run_by.name}` has to know how wide activations are", help="`--set b_a=2`, or a precision")
    problems.raise_if_any()


def _ran(part: DeviceSegment, run_by: BlockImplementation, setting: Setting) -> Ran:
    try:
        return run([(b.name, b.program) for b in part.blocks], run_by.modules, run_by.operations, setting)
    except (KeyError, ValueError) as error:
        blocks = ", ".join(f"`{b.name}`" for b in part.blocks)
        refuse(
            "PP310",
            f"modules of `{run_by.name}` cannot be run as {blocks} have their tensors: {error}",
            "see `view` and `over` in its file",
        )


def _checkpoints(linked: Linked) -> Checkpoints:
    """Where the step puts what it keeps of a layer whose forward it runs again."""
    for stmt in statements(linked.step.body):
        if isinstance(stmt, Assign) and stmt.targets[-1].name == "activations" and len(stmt.targets) == 1:
            kept = [e for e in expressions(stmt.value) if isinstance(e, Call)]
            over = tuple(axis for e in kept if e.op == "part" for axis in e.axes)
            return Checkpoints(host=any(e.op == "to_host" for e in kept), over=over)
    return Checkpoints()


def _part_of(
    segment: Segment, linked: Linked, shared: tuple[str, ...], checkpoints: Checkpoints, run_by: BlockImplementation | None
) -> DeviceSegment:
    plain = layer([b.program for b in segment.blocks], segment.name)
    made_again = _made_again(plain, run_by)
    again, drawn = recomputed(plain, segment, linked.recompute, made_again)
    plain = plain.recomputed(*made_again) if made_again else plain
    made = DeviceSegment(
        name=segment.name,
        times=segment.times,
        blocks=segment.blocks,
        plain=plain,
        layer=again,
        drawn=drawn,
        shared=shared,
        in_turn=segment.in_turn,
        kept_as={} if run_by is None else run_by.kept_as,
    )
    return replace(made, ring=linked.ring, checkpoints=checkpoints if made.repeats else Checkpoints())


def _made_again(plain: Layer, run_by: BlockImplementation | None) -> tuple[str, ...]:
    """The values of a layer that its kernels make again, so that nobody keeps them."""
    own = {f"{origin.block}.{origin.name}" for origin in plain.origins.values()}
    return () if run_by is None or not plain.trained else tuple(value for value in run_by.again if value in own)
