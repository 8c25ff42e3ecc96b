"""What a block's program runs as kernels, and what these move to and from the memory of a device.

A kernel reads what lies in memory once, and writes what others read after it.

- A product of matrices is one, with the sums of its result over more dimensions and a tensor of the model that is added to it, if nothing
  else reads what is added to.
- Of everything else, operations that read of one another are in one kernel, unless a collective, a product or the end of a block has to be
  between them. Fused kernels reach this; a system that runs operations one by one moves more.
- Along dimensions that are ``inside`` together nothing is written: with tokens and keys, attention is one kernel, as in Dao et al. 2022,
  section 3.1, its products among the rest.

What is made of weights alone is not counted: it is made once, and not for each micro-batch. A number without dimensions is an argument and
takes no memory. A row that is looked up is read, not its whole table. What a collective reads and writes is part of its own time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from placeproof.core.remembered import remembered
from placeproof.cost.blocks.flops import Operation, Work, amount, operations
from placeproof.cost.blocks.tensors import INDEX_BYTES, Amount, every_degree
from placeproof.programs import POSITIONS, Program
from placeproof.programs.ops import COLLECTIVES
from placeproof.semantics.layouts.layout import Layout
from placeproof.semantics.layouts.lines import BlockValue

__all__ = ["Kernel", "KernelWork", "Moved", "kernel_work", "kernels", "moved"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Moved:
    """A tensor that a kernel reads or writes, as it lies on a device. ``thin``: dimensions along which only what is picked is there."""

    name: str
    layout: Layout
    thin: frozenset[str] = frozenset()

    def bytes(
        self,
        sizes: Mapping[str, Amount],
        degrees: Mapping[str, Amount],
        width: Amount,
        widths: Mapping[str, Amount] | None = None,
        load: Amount = 1,
    ) -> Amount:
        """Bytes on one device; arguments as of :func:`moved`."""
        dims = tuple(filter(self.layout.stored, self.layout.dims))
        if not dims:
            return 0
        own = INDEX_BYTES if self.layout.picks is not None else (widths or {}).get(self.name, width)
        return own * amount(dims, tuple(self.layout.split.items()), self.thin & {*dims}, sizes, degrees, load)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kernel:
    """Operations that run as one, in their order, with what they read and write. ``product``: a product of matrices is among them.
    ``rounds``: the axis in whose ring it stands."""

    operations: tuple[Operation, ...]
    reads: tuple[Moved, ...]
    writes: tuple[Moved, ...]
    product: bool
    rounds: str | None = None

    @property
    def kind(self) -> str:
        """What of :class:`Work` it counts as: "again" or "weights" if all of it is, else what its first other operation is."""
        kinds = ["again" if o.again else o.during for o in self.operations]
        return next((k for k in kinds if k in ("forward", "inputs")), "again" if set(kinds) == {"again"} else "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """What kernels do on one device. ``moved``: bytes of those without a product of matrices, ``moving``: their number; ``launched``: the
    number of all; ``inside``: floating-point operations of products along dimensions that nothing is written along."""

    moved: Work
    moving: Work
    launched: Work
    inside: Work


def kernel_work(
    every: Iterable[Kernel],
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    width: Amount,
    widths: Mapping[str, Amount] | None = None,
    *,
    inside: Collection[str] = (),
    load: Amount = 1,
) -> KernelWork:
    """What kernels do. ``sizes`` of whole dimensions, and ``degrees`` of axes; ``width``: bytes of an element, and ``widths``: of the
    elements of values by name, where they differ; ``inside``: as of :func:`kernels`; ``load``: as of
    :func:`placeproof.cost.blocks.flops.flops`.

    Raises SizeError as :func:`placeproof.cost.blocks.tensors.elements` does.
    """
    amounts: dict[str, dict[str, Amount]] = {what: dict.fromkeys(_KINDS, 0) for what in ("moved", "moving", "launched", "inside")}
    for kernel in every:
        times = 1 if kernel.rounds is None else degrees[kernel.rounds] - 1
        moved = () if kernel.product else (*kernel.reads, *kernel.writes)
        once = {
            "moved": sum(m.bytes(sizes, degrees, width, widths, load) for m in moved),
            "moving": 0 if kernel.product else 1,
            "launched": 1,
        }
        for what, n in once.items():
            amounts[what][kernel.kind] += n * times
        for o in kernel.operations:  # their own rounds are in their steps
            if o.product and inside and {*inside} <= {*o.dims}:
                amounts["inside"]["again" if o.again else o.during] += o.steps(sizes, degrees, load)
    return KernelWork(**{what: Work(**by_kind) for what, by_kind in amounts.items()})


_KINDS = ("forward", "again", "inputs", "weights")


def moved(
    program: Program,
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    width: Amount,
    widths: Mapping[str, Amount] | None = None,
    *,
    inside: Collection[str] = (),
    load: Amount = 1,
) -> Work:
    """Bytes that everything but products of matrices reads and writes on one device; arguments are those of :func:`kernel_work`, degrees
    that the program fixes apart. Raises InputError for a program that is no block, SizeError as :func:`kernel_work` does."""
    every = every_degree(program, degrees)
    return kernel_work(kernels(program, frozenset(inside)), sizes, every, width, widths, load=load).moved


@remembered
def kernels(program: Program, inside: frozenset[str] = frozenset(), blocks: tuple[int, ...] | None = None) -> tuple[Kernel, ...]:
    """The kernels of a program, in an order in which they can run.

    ``inside``: dimensions that nothing is written along together; none if empty. ``blocks``: of each statement, the block of a chain that
    it is from; all are of one if not given. Raises InputError for a program that is no block.
    """
    return _Walk(operations(program), inside, blocks).kernels()


@dataclass(eq=False)
class _Group:
    """Operations that run together. ``place``: when, among groups and collectives; ``key``: what they have in common; ``inside``: they make
    or read what is inside of a kernel; ``product``: there is a product of matrices among them. ``made``, ``read``: stored values by
    identity, the latter as they are read."""

    place: int
    key: tuple[object, ...]
    inside: bool
    product: bool = False
    members: list[Operation] = field(default_factory=list)
    made: dict[int, BlockValue] = field(default_factory=dict)
    read: dict[int, BlockValue] = field(default_factory=dict)

    def takes(self, others: Iterable[_Group]) -> None:
        """What others have done before it is part of it."""
        for other in others:
            self.members = [*other.members, *self.members]
            self.made = other.made | self.made
            self.read = {key: value for key, value in (other.read | self.read).items() if key not in self.made}
            self.product = self.product or other.product


class _Walk:
    """One walk over operations. ``made``: the place of what made a stored value; ``sent``: the place of the first collective that reads it;
    ``names``: what has no storage of its own, and what it is of; ``readers``: how many operations read a value."""

    def __init__(self, every: Sequence[Operation], inside: frozenset[str], blocks: Sequence[int] | None) -> None:
        self.inside, self.blocks = inside, blocks
        self.groups: dict[int, _Group] = {}
        self.made: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self.names: dict[int, BlockValue] = {}
        self.thin: dict[int, frozenset[str]] = {}
        self.given: set[int] = set()
        self.readers: Counter[int] = Counter()
        self.places = 0
        for o in every:
            self.thin[id(o.result.stored)] = o.thin
            if (whole := _whole(o)) is not None:
                self.names[id(o.result.stored)] = whole
                continue
            self.readers.update({self._stored(v) for v in o.reads})
        for o in every:
            if o.given:
                self.given.add(self._stored(o.result))
            if id(o.result.stored) not in self.names and o.result.view is None:
                self._put(o)
        for place in sorted(self.groups, reverse=True):
            self._sink(self.groups[place])

    def kernels(self) -> tuple[Kernel, ...]:
        """The groups as kernels."""
        read = Counter(key for group in self.groups.values() for key in group.read)
        return tuple(self._kernel(self.groups[place], read) for place in sorted(self.groups))

    def _stored(self, value: BlockValue) -> int:
        """The identity of what a value is stored in."""
        value = value.stored
        while id(value) in self.names:
            value = self.names[id(value)].stored
        return id(value)

    def _put(self, o: Operation) -> None:
        place = max((self.made.get(self._stored(v), 0) for v in o.reads), default=0)
        if o.op in COLLECTIVES:
            self.made[self._stored(o.result)] = place = self._next()
            self.sent |= {key: self.sent.get(key, place) for key in map(self._stored, o.reads)}
        elif o.result.data or o.result.incoming:
            group = self._joined(o, place)
            group.members.append(o)
            group.made[self._stored(o.result)] = o.result.stored
            group.read |= {key: v for v in o.reads if (key := self._stored(v)) not in group.made}
            group.product = group.product or o.product
            self.made[self._stored(o.result)] = group.place

    def _next(self) -> int:
        self.places += 1
        return self.places

    def _joined(self, o: Operation, latest: int) -> _Group:
        """The group that an operation is of: that of the operand that was made last, if it can run with it."""
        key = (o.during == "forward" and not o.again, o.rounds, None if self.blocks is None else self.blocks[o.statement])
        if self.inside and any(self.inside <= {*value.layout.dims} for value in (o.result, *o.reads)):
            return self._within(o, key, latest)
        group = self.groups.get(latest)
        if group is not None and group.key == key and not o.product and (group.inside or not group.product or self._ends(o, group)):
            return group
        return self._new(key, inside=False)

    def _new(self, key: tuple[object, ...], *, inside: bool) -> _Group:
        group = _Group(place=self._next(), key=key, inside=inside)
        self.groups[group.place] = group
        return group

    def _within(self, o: Operation, key: tuple[object, ...], latest: int) -> _Group:
        """The group of all that is inside of the same kernel: it begins once its last operand is there."""
        places = sorted({self.made.get(self._stored(v), 0) for v in o.reads})
        own = [g for place in places if (g := self.groups.get(place)) is not None and g.inside and g.key == key]
        if len(own) == 1 and own[0].place == latest:
            return own[0]
        group = self._new(key, inside=True)
        apart = [g for g in own if not self._awaited(g, own)]
        group.takes(reversed(apart))
        for old in apart:
            del self.groups[old.place]
        self.made |= dict.fromkeys(group.made, group.place)
        return group

    def _awaited(self, group: _Group, own: Sequence[_Group]) -> bool:
        """Whether something else has read what a group made: it cannot run later."""
        others = (g for g in self.groups.values() if g not in own)
        return any(not group.made.keys().isdisjoint(g.read) for g in others) or not group.made.keys().isdisjoint(self.sent)

    def _ends(self, o: Operation, group: _Group) -> bool:
        """Whether an operation belongs to the product whose result it reads: a sum of it, or a tensor of the model that is added to it."""
        last = self._stored(group.members[-1].result)
        others = [v for v in o.reads if self._stored(v) != last]
        if self.readers[last] > 1 or len(others) == len(o.reads):
            return False
        return o.op == "total" or (o.op == "+" and not any(v.data or v.incoming for v in others))

    def _sink(self, group: _Group) -> None:
        """Put a group into the first one that reads of it, if both can run as one: nothing between them needs it."""
        reading = [g.place for g in self.groups.values() if not group.made.keys().isdisjoint(g.read)]
        first = self.groups[min(reading)] if reading else None
        if first is None or first.key != group.key or group.product or first.product:
            return
        if all(self.sent.get(key, first.place) >= first.place for key in group.made):
            first.takes([group])
            del self.groups[group.place]

    def _kernel(self, group: _Group, read: Mapping[int, int]) -> Kernel:
        needed = [v for key, v in group.made.items() if key in read or key in self.sent or key in self.given or not self.readers[key]]
        return Kernel(
            operations=tuple(group.members),
            reads=tuple(self._moved(value, self._looked_up(group, key)) for key, value in group.read.items()),
            writes=tuple(self._moved(value) for value in needed),
            product=group.product,
            rounds=group.members[0].rounds,
        )

    def _looked_up(self, group: _Group, key: int) -> BlockValue | None:
        """What an operation gives that looks up rows of a value, where nothing else of a group reads it: as much is read."""
        reading = [o for o in group.members if key in map(self._stored, o.reads)]
        lookup = reading[0] if len(reading) == 1 else None
        if lookup is None or lookup.op != "contract" or lookup.each or lookup.product or group.read[key].stored.layout.picks is not None:
            return None
        return lookup.result

    def _moved(self, value: BlockValue, rows: BlockValue | None = None) -> Moved:
        about = (value if rows is None else rows).stored
        return Moved(name=value.stored.name, layout=about.layout, thin=self.thin.get(id(about), frozenset()))


def _whole(o: Operation) -> BlockValue | None:
    """The value that an operation gives a part of, or calls otherwise: where keys are called tokens again, one position for all samples."""
    if o.op == "part":
        return o.reads[0]
    if o.op == "contract" and not o.product and o.result.view is None:
        picked = [v.stored.layout for v in o.reads]
        named = [p.picks in POSITIONS and len(p.dims) == 1 for p in picked]
        if any(named):
            return o.reads[named.index(False)]
    return None
