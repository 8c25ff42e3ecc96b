"""What a layer of a model keeps, computes and sends: a chain of blocks (:mod:`.chain`), read as one program.

A tensor that two blocks keep is one tensor: what a norm gives and the next block reads, what a block gives and the norm behind it reads.
Recomputation (:mod:`.recompute`) crosses blocks: a norm's output is computed again in the block that reads it, or all of a layer from
its input.

Values are named ``block.value``, with the block's name and its own name for the value; blocks of one name are named together. An input of
the layer is ``input.x``. Amounts are numbers or SymPy expressions, as what is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from placeproof.core.diagnostics import refuse, suggestion
from placeproof.core.exchange import Exchange
from placeproof.cost.blocks.alive import alive
from placeproof.cost.blocks.chain import INPUT, Origin, chained
from placeproof.cost.blocks.flops import (
    Work,
    amount,
    element_operations,
    flops,
    flops_by_weights,
    matrices,
    operations,
    products,
    storage,
    weights,
)
from placeproof.cost.blocks.kernels import KernelWork, kernel_work, kernels
from placeproof.cost.blocks.recompute import AGAIN, computed_again, made_in_forward, recompute
from placeproof.cost.blocks.tensors import INDEX_BYTES, Amount, Splits, every_degree, exchanges, kept
from placeproof.models.programs import WIRES
from placeproof.programs import POSITIONS, Assign, Program
from placeproof.programs.ops import COLLECTIVES
from placeproof.semantics.layouts.lines import BlockValue, lines

__all__ = ["Layer", "SizedTensor", "Stored", "layer"]

#: What hands a value on as it is.
_MOVES = frozenset({"all_gather", "all_to_all", "broadcast", "copy", "part", "shift"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor on one device: the block that it is of, with its number in the layer, and the block's name for it.
    ``wide``: bytes of an element, where these are told.

    ``dims`` and ``split`` are those of :class:`placeproof.cost.blocks.tensors.Kept`, and so is ``picks``. ``thin``: the dimensions along
    which only what is picked is there (:mod:`placeproof.cost.blocks.flops`).
    """

    block: str
    number: int
    name: str
    dims: tuple[str, ...]
    split: Splits = ()
    picks: str | None = None
    thin: frozenset[str] = frozenset()
    wide: int | None = None

    def elements(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount], load: Amount = 1) -> Amount:
        """Elements on one device. Raises SizeError where a size or a degree is missing, or does not divide."""
        return amount(self.dims, self.split, self.thin, sizes, degrees, load)

    def width(self, width: Amount, widths: Mapping[str, Amount]) -> Amount:
        """Bytes of an element: what ``widths`` has for ``block.value``, or for the value alone, else ``width``; 8 for positions."""
        if self.wide is not None:
            return self.wide
        own = widths.get(f"{self.block}.{self.name}", widths.get(self.name, width))
        return INDEX_BYTES if self.picks is not None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedTensor:
    """One line of a breakdown: a tensor, its elements and its bytes on one device."""

    stored: Stored
    elements: Amount
    bytes: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A chain of blocks as one program. ``origins``: where each name of the program is from."""

    program: Program
    origins: Mapping[str, Origin]

    @property
    def trained(self) -> bool:
        """Whether it has a backward: something in it is trained, or before it."""
        return any(line.backward for line in lines(self.program))

    # Values.

    def named(self, values: Iterable[str]) -> tuple[str, ...]:
        """The program's names for ``block.value``, in every block of that name. Raises InputError where there is none."""
        known: dict[str, list[str]] = {}
        for name, origin in self.origins.items():
            known.setdefault(f"{origin.block}.{origin.name}", []).append(name)
        names: list[str] = []
        for value in values:
            if value not in known:
                help = suggestion(value, known) or "a value is named `block.value`"
                refuse("PP306", f"the layer has no value `{value}`", help=help)
            names += known[value]
        return tuple(names)

    def origin(self, name: str) -> Origin:
        """Where a name of the program is from; what is computed again is from where it was computed first. Raises KeyError."""
        while name not in self.origins and name.endswith(AGAIN):
            name = name.removesuffix(AGAIN)
        return self.origins[name]

    def _origin_or_input(self, name: str) -> Origin:
        """The same; what the chain made itself counts as an input."""
        try:
            return self.origin(name)
        except KeyError:
            return Origin(block=INPUT, number=0, name=name)

    # Recomputation.

    def recomputed(self, *values: str, rerun: Iterable[str] = ()) -> Layer:
        """The layer that computes these values (``block.value``) again in backward: :func:`placeproof.cost.blocks.recompute.recompute`."""
        return replace(self, program=recompute(self.program, self.named(values), self.named(rerun)))

    def full(self) -> Layer:
        """The layer of which all that forward makes is computed again, from its input."""
        return replace(self, program=recompute(self.program, made_in_forward(self.program)))

    def again(self, *values: str, rerun: Iterable[str] = ()) -> tuple[str, ...]:
        """What :meth:`recomputed` computes again, as ``block.value``: these values, and what they need that is not kept."""
        again = computed_again(self.program, self.named(values), self.named(rerun))
        return tuple(dict.fromkeys(map(self._shown, again)))

    # Memory.

    def kept(self, regenerated: Iterable[str] = ()) -> tuple[Stored, ...]:
        """What lives from forward to backward, each tensor once, in the order in which it is made.

        ``regenerated``: activations of headers that take no room, since they are drawn again from a key (masks of dropout). Raises
        InputError where one of them is something else.
        """
        drawn = set(self.named(regenerated))
        given = {t.name for t in self.program.tensors if t.picks is None and not POSITIONS.isdisjoint(t.dims)}
        if wrong := sorted(drawn - given):
            message = f"`{self._shown(wrong[0])}` cannot be drawn again: it is no activation that the layer is given"
            refuse("PP306", message, help="`regenerated` takes the masks that headers declare")
        thin = {(o.result.name, o.result.line): o.thin for o in operations(self.program)}
        alive = (k for k in kept(self.program) if k.name not in drawn)
        return tuple(self._stored(k.name, k.dims, k.split, k.picks, thin.get((k.name, k.line), frozenset())) for k in alive)

    def alive(
        self, one_tensor: Iterable[Collection[str]] = (), regenerated: Iterable[str] = (), held: Collection[str] = ()
    ) -> tuple[tuple[bool, tuple[Stored, ...]], ...]:
        """The moments of its passes, each with whether it is in backward, and what lies in memory then: :func:`.alive.alive`.

        ``one_tensor``: lists of ``block.value`` that are written one over the other in a block. ``regenerated``: as :meth:`kept` takes it.
        ``held``: values that a name of forward has until its block gives its result.
        """
        shared: dict[tuple[int, int], set[str]] = {}
        for number, values in enumerate(one_tensor):
            for name, origin in self.origins.items():
                if f"{origin.block}.{origin.name}" in values:
                    shared.setdefault((number, origin.number), set()).add(name)
        drawn = set(self.named(regenerated))
        thin = {id(o.result): o.thin for o in operations(self.program)}
        return tuple(
            (moment.backward, tuple(self._lying(v, thin.get(id(v), frozenset())) for v in moment.values if v.name not in drawn))
            for moment in alive(self.program, tuple(map(frozenset, shared.values())), self._held(held))
        )

    def _held(self, values: Collection[str]) -> tuple[tuple[str, str], ...]:
        """Each value with the result of its block, as the program calls them."""
        results = {o.number: name for name, o in self.origins.items() if o.name in WIRES and o.block != INPUT}
        return tuple((name, results[o.number]) for name, o in self.origins.items() if f"{o.block}.{o.name}" in values)

    def kept_for_weights(self, deferred: Collection[str] | None = None) -> tuple[Stored, ...]:
        """What is still needed when the gradients by inputs are done, and those by ``deferred`` weights are not: W in Zero Bubble.

        What forward kept, and gradients that are multiplied with it. ``deferred`` are ``block.value``; without it, the weights that are
        multiplied as matrices: the gradients of gains and biases are sums, which kernels make along with those by inputs.
        """
        names = matrices(self.program) if deferred is None else self.named(deferred)
        walked = operations(self.program, names)
        late = {id(o.result) for o in walked if o.during == "weights"}
        thin = {id(o.result): o.thin for o in walked}
        needed: dict[int, BlockValue] = {}
        for operation in walked:
            for value in map(storage, operation.reads if operation.during == "weights" else ()):
                if (value.data or value.incoming) and id(value) not in late:
                    needed.setdefault(id(value), value)
        return tuple(
            self._stored(v.name, v.layout.dims, tuple(v.layout.split.items()), v.layout.picks, thin.get(id(v), frozenset()))
            for v in sorted(needed.values(), key=lambda v: v.line)
        )

    def operands(self, apart: Collection[tuple[int, str]] = ()) -> frozenset[tuple[int, str]]:
        """What backward reads of forward as operands of products for gradients by weights, and for nothing else.

        Each is the number of its block, with the block's name for it. ``apart``: weights, named alike, whose gradients do not count as
        such. What only moves a value, such as a gather, reads it as what it gives is read.
        """
        wanted = self._matrices(apart)
        alone: dict[int, bool] = {}
        operands: dict[int, BlockValue] = {}
        for operation in reversed(operations(self.program, wanted)):
            if operation.during == "forward":
                break
            result = storage(operation.result)
            own = (operation.product and operation.during == "weights" and not operation.again) or (
                operation.op in _MOVES and alone.get(id(result), False)
            )
            for value in map(storage, operation.reads):
                if value is not result:  # another name of it
                    operands[id(value)] = value
                    alone[id(value)] = own and alone.get(id(value), True)
        named = (v for key, v in operands.items() if alone[key] and v.name in self.origins and v.data and not (v.incoming or v.backward))
        return frozenset((self.origin(v.name).number, self.origin(v.name).name) for v in named)

    def _matrices(self, apart: Collection[tuple[int, str]]) -> list[str]:
        return [n for n in matrices(self.program) if (self.origin(n).number, self.origin(n).name) not in apart]

    def weights(self) -> tuple[Stored, ...]:
        """The weights of all blocks, as one device holds them."""
        own = set(weights(self.program))
        return tuple(self._stored(t.name, t.dims, tuple(t.split_dims.items())) for t in self.program.tensors if t.name in own)

    def products(self) -> dict[tuple[int, str], frozenset[str]]:
        """The weights that forward multiplies as matrices, by the numbers of their blocks and the blocks' names for them, each with the
        dimensions that it has in common with what it multiplies."""
        return {(self.origin(name).number, self.origin(name).name): dims for name, dims in products(self.program).items()}

    def _stored(
        self, name: str, dims: Sequence[str], split: Splits, picks: str | None = None, thin: frozenset[str] = frozenset()
    ) -> Stored:
        origin = self.origin(name)
        return Stored(
            block=origin.block, number=origin.number, name=origin.name, dims=tuple(dims), split=split, picks=picks, thin=thin & set(dims)
        )

    def _lying(self, value: BlockValue, thin: frozenset[str]) -> Stored:
        """A value that may have no name: then it is of no block."""
        laid = value.layout.dims, tuple((d, value.layout.split[d]) for d in value.layout.dims if d in value.layout.split)
        if value.name.removesuffix(AGAIN) in self.origins:
            return self._stored(value.name, *laid, value.layout.picks, thin)
        return Stored(block="", number=0, name="", dims=laid[0], split=laid[1], picks=value.layout.picks, thin=thin & set(laid[0]))

    def _shown(self, name: str) -> str:
        origin = self.origin(name)
        return f"{origin.block}.{origin.name}"

    # Amounts.

    def rows(
        self,
        stored: Iterable[Stored],
        sizes: Mapping[str, Amount],
        degrees: Mapping[str, Amount],
        width: Amount,
        widths: Mapping[str, Amount] | None = None,
        load: Amount = 1,
    ) -> tuple[SizedTensor, ...]:
        """Elements and bytes of tensors on one device.

        ``sizes`` of whole dimensions; ``degrees`` of axes that the program does not fix; ``width``: bytes of an element, and ``widths``:
        of the elements of values (``block.value`` or ``value``), where they differ. Raises SizeError where a size or a degree is
        missing, or does not divide.
        """
        every = every_degree(self.program, degrees)
        counted = ((s, s.elements(sizes, every, load)) for s in stored)
        return tuple(SizedTensor(stored=s, elements=n, bytes=n * s.width(width, widths or {})) for s, n in counted)

    def kept_bytes(
        self,
        sizes: Mapping[str, Amount],
        degrees: Mapping[str, Amount],
        width: Amount,
        widths: Mapping[str, Amount] | None = None,
        *,
        regenerated: Iterable[str] = (),
        load: Amount = 1,
    ) -> Amount:
        """Bytes of what :meth:`kept` lists; arguments and errors are those of :meth:`rows` and :meth:`kept`."""
        return sum(row.bytes for row in self.rows(self.kept(regenerated), sizes, degrees, width, widths, load))

    def parameters(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount]) -> Amount:
        """Elements of all weights on one device. Raises SizeError as :meth:`rows` does."""
        return sum(row.elements for row in self.rows(self.weights(), sizes, degrees, 1))

    def flops(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount], *, load: Amount = 1) -> Work:
        """Floating-point operations of products of matrices: :func:`placeproof.cost.blocks.flops.flops`."""
        return flops(self.program, sizes, degrees, load=load)

    def flops_by_weights(
        self, apart: Collection[tuple[int, str]], sizes: Mapping[str, Amount], degrees: Mapping[str, Amount], *, load: Amount = 1
    ) -> Work:
        """Those of products with its matrices, and for their gradients; ``apart``: matrices that do not count, as of :meth:`operands`."""
        return flops_by_weights(self.program, self._matrices(apart), sizes, degrees, load=load)

    def element_operations(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount], *, load: Amount = 1) -> Work:
        """Operations of everything else: :func:`placeproof.cost.blocks.flops.element_operations`."""
        return element_operations(self.program, sizes, degrees, load=load)

    def kernels(
        self,
        sizes: Mapping[str, Amount],
        degrees: Mapping[str, Amount],
        width: Amount,
        widths: Mapping[str, Amount] | None = None,
        *,
        inside: Collection[str] = (),
        load: Amount = 1,
    ) -> KernelWork:
        """What its kernels do, each within a block: :func:`placeproof.cost.blocks.kernels.kernel_work`. ``widths``: as of :meth:`rows`."""
        statements = [line.stmt for line in lines(self.program)]
        called = [s.targets[0].name if isinstance(s, Assign) else s.call.option("by") or "" for s in statements]
        blocks = tuple(self._origin_or_input(name).number for name in called)
        origins = {name: self._origin_or_input(name) for name in (*called, *(t.name for t in self.program.tensors))}
        known = widths or {}
        told = {name: known.get(f"{o.block}.{o.name}", known.get(o.name, width)) for name, o in origins.items()}
        every = kernels(self.program, frozenset(inside), blocks)
        return kernel_work(every, sizes, every_degree(self.program, degrees), width, told, inside=inside, load=load)

    def exchanges(
        self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount], width: Amount, load: Amount = 1
    ) -> tuple[Exchange, ...]:
        """Every collective, in the order in which a device enters it, with ``width`` bytes an element. Raises SizeError as :meth:`rows`."""
        every = every_degree(self.program, degrees)
        thin = [o.picked for o in operations(self.program) if o.op in COLLECTIVES]
        entered = []
        for sent, picked in zip(exchanges(self.program), thin, strict=True):
            elements = amount(sent.dims, sent.split, picked & set(sent.dims), sizes, every, load)
            entered.append(Exchange(kind=sent.kind, axes=sent.axes, bytes=width * elements, op=sent.op, phase=sent.phase))
        return tuple(entered)


def layer(blocks: Sequence[Program], name: str = "layer") -> Layer:
    """A layer of these blocks, in their order. Raises InputError as :func:`placeproof.cost.blocks.chain.chained` does."""
    program, origins = chained(blocks, name)
    return Layer(program=program, origins=origins)
