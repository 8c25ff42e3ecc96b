"""What collectives do to the values of a process: the meaning of the table of operations, with real exchanges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from placeproof.core.program import Call
from placeproof.measure.replay_file import Coordinates
from placeproof.measure.replay_mesh import ExchangeError, Group
from placeproof.measure.replay_model import CHANNELS, nothing
from placeproof.measure.replay_numbers import Arithmetic, Numbers, stacked, zeros
from placeproof.measure.replay_values import Here, Norms, NotReplayedError, Part, Scalar, Stream, Value

#: What kind of value a message carries: the same on both sides.
PART, PAIRS, STREAM, NORMS, NUMBER = range(5)


def exchange(here: Here, call: Call, value: Value) -> Value:
    """The result of a collective on this device. Messages apart: those are :func:`send` and :func:`receive`."""
    group = here.mesh.ends(call.axes[0]) if call.op == "tied_reduce" else here.mesh.group(here.model.factors(call.axes))
    here.mesh.meet(group, call, _kind(value))
    match value:
        case Part():
            return _PARTS[call.op](_Exchange(here, call, group), value) if call.op in _PARTS else _refused(call, "parameters")
        case Stream():
            return _stream(_Exchange(here, call, group), value)
        case Norms():
            return _norms(_Exchange(here, call, group), value)
        case Fraction() | Numbers():
            return _scalar(_Exchange(here, call, group), number(here.of, value))
    return _refused(call, f"a {type(value).__name__.lower()}")


def number(of: Arithmetic, value: Scalar) -> Numbers:
    """A scalar as a number that can travel."""
    return value if isinstance(value, Numbers) else Numbers.make(of, [value])[0]


def _kind(value: Value) -> int:
    if isinstance(value, Part):
        return PART if len(value.numbers.shape) == 1 else PAIRS
    return STREAM if isinstance(value, Stream) else NORMS if isinstance(value, Norms) else NUMBER


def _refused(call: Call, what: str) -> Value:
    raise NotReplayedError(f"`{call.op}` of {what}")


@dataclass(frozen=True, slots=True, eq=False)
class _Exchange:
    """One collective: where, with whom, and how it combines."""

    here: Here
    call: Call
    group: Group

    @property
    def op(self) -> str:
        return self.call.option("op", "sum") or "sum"

    @property
    def root(self) -> str:
        """Of parts of the parameters: without a name, each part's owner."""
        return self.call.option("root", "owner") or "owner"

    def rank_of_root(self) -> int:
        """The rank of the device whose number within the group is the root, without a name the first; counted around."""
        number = int(self.call.option("root", "0") or "0")
        places = [self.here.model.place(at, self.call.axes) for at in self.group.at]
        return self.group.ranks[places.index(number % self.group.size)]

    def owned(self, at: Coordinates) -> Tensor:
        return self.here.model.owns(at, self.call.axes)

    def masks(self, mine: Tensor) -> list[Tensor]:
        """Every device's mask."""
        return [m.to(torch.bool) for m in self.here.mesh.collect(self.group, mine.to(torch.int64), self.call)]

    def rows(self) -> Tensor:
        """The numbers of the elements that each device of the group owns: one row a device, filled up with one number beyond the last."""
        owned = [self.owned(at).nonzero()[:, 0] for at in self.group.at]
        rows = torch.full((self.group.size, max(1, *(len(o) for o in owned))), len(self.here.model.elements))
        for row, own in zip(rows, owned, strict=True):
            row[: len(own)] = own
        return rows

    def filled(self, part: Part, there: Tensor) -> Numbers:
        """What the device has to give for each element that anybody has: where it holds nothing, what it finds in its memory."""
        gaps = there & ~part.held
        if len(part.numbers.shape) > 1:
            if bool(gaps.any()):
                raise NotReplayedError(f"`{self.call.op}` of optimizer states that a device does not have")
            return part.numbers.where(part.held, zeros(self.here.of, *part.numbers.shape))
        given = part.numbers.where(part.held, zeros(self.here.of, len(gaps)))
        return self.here.nothing_at(self.here.at).where(gaps, given) if bool(gaps.any()) else given


# Parts of the parameters.


def _all_reduce(do: _Exchange, own: Part) -> Part:
    there = torch.stack(do.masks(own.held)).any(0)
    found = do.here.mesh.reduced(do.group, do.filled(own, there), do.op, do.call)
    return own.with_numbers(found, own.extent & there)


def _reduce_scatter(do: _Exchange, own: Part) -> Part:
    """Each device sends every other one the elements that the other owns; or gloo's reduce-scatter does."""
    there = torch.stack(do.masks(own.held)).any(0)
    rows = do.rows()
    mine = _padded(do.filled(own, there))[rows]
    if do.call.option("via") == "all_to_all":
        got = do.here.mesh.exchanged(do.group, mine, do.call)
        row = got.greatest() if do.op == "max" else got.sum(0)
        row = row / do.group.size if do.op == "mean" else row
    else:
        row = do.here.mesh.scattered(do.group, mine, do.op, do.call)
    found = _padded(zeros(do.here.of, *own.numbers.shape)).put(rows[do.group.me], row)[:-1]
    return own.with_numbers(found, own.extent & there & do.owned(do.here.at))


def _padded(numbers: Numbers) -> Numbers:
    """With one more, for rows that are not full."""
    return Numbers(numbers.of, torch.cat([numbers.data, torch.zeros_like(numbers.data[:1])]))


def _all_gather(do: _Exchange, own: Part) -> Part:
    """Each device gives what it owns; where several own an element, the last one's counts."""
    rows, masks = do.rows(), do.masks(own.held)
    shards = do.here.mesh.collected(do.group, _padded(own.numbers)[rows[do.group.me]], do.call)
    return _from_owners(do, own, rows, masks, shards)


def _from_owners(do: _Exchange, own: Part, rows: Tensor, masks: list[Tensor], shards: list[Numbers]) -> Part:
    found, held = _padded(own.numbers), torch.zeros_like(own.held)
    for row, mask, shard in zip(rows, masks, shards, strict=True):
        real = row[row < len(mask)]
        given = mask[real]
        found = found.put(real[given], shard[: len(real)][given])
        held[real[given]] = True
    extent = _with_others_experts(do, own)
    return replace(own, extent=extent, numbers=found[:-1], held=held & extent)


def _with_others_experts(do: _Exchange, own: Part) -> Tensor:
    """The extent of what a device has gathered: in a network also the experts of the devices that it gathers from."""
    model = do.here.model
    apart = () if model.experts is None else model.factors((model.experts,))
    if not model.network or not set(apart) & set(model.factors(do.call.axes)):
        return own.extent
    theirs = torch.stack(do.masks(own.extent)).any(0)
    blocks = model.blocks_in(own.extent)
    groups = {e.group for e, there in zip(model.elements, own.extent.tolist(), strict=True) if there}
    return own.extent | theirs & model.mask([e.block in blocks and e.group in groups for e in model.elements])


def _broadcast(do: _Exchange, own: Part) -> Part:
    mesh = do.here.mesh
    if do.root == "owner":
        rows, masks = do.rows(), do.masks(own.held)
        mine = _padded(own.numbers)
        shards = [Numbers(mine.of, mesh.spread(do.group, mine[row].data, r, do.call)) for r, row in zip(do.group.ranks, rows, strict=True)]
        return _from_owners(do, own, rows, masks, shards)
    root = do.rank_of_root()
    held = mesh.spread(do.group, own.held.to(torch.int64), root, do.call).to(torch.bool)
    return own.with_numbers(Numbers(own.numbers.of, mesh.spread(do.group, own.numbers.data, root, do.call)), held & own.extent)


def _reduce(do: _Exchange, own: Part) -> Part:
    mesh = do.here.mesh
    there = torch.stack(do.masks(own.held)).any(0)
    given = do.filled(own, there)
    if do.root != "owner":
        place = do.here.model.place(do.here.at, do.call.axes)
        places = [do.here.model.place(at, do.call.axes) for at in do.group.at]
        if int(do.root) not in places:
            return own.with_numbers(given, torch.zeros_like(own.held))
        found = mesh.reduced(do.group, given, do.op, do.call, do.group.ranks[places.index(int(do.root))])
        return own.with_numbers(found, own.extent & there if place == int(do.root) else torch.zeros_like(own.held))
    found = _padded(zeros(do.here.of, *own.numbers.shape))
    for rank, row in zip(do.group.ranks, do.rows(), strict=True):
        combined = mesh.reduced(do.group, _padded(given)[row], do.op, do.call, rank)
        if rank == mesh.rank:
            found = found.put(row, combined)
    return own.with_numbers(found[:-1], own.extent & there & do.owned(do.here.at))


def _tied_reduce(do: _Exchange, own: Part) -> Part:
    """The copies of tied weights combined; everything else stays."""
    tied = [
        next((g.tied for g in do.here.model.program.groups if g.name == e.group), None) == do.call.axes[0] for e in do.here.model.elements
    ]
    both = do.here.model.mask(tied)
    found = do.here.mesh.reduced(do.group, do.filled(own, both), do.op, do.call)
    return own.with_numbers(found.where(both & own.extent, own.numbers))


_PARTS: dict[str, Callable[[_Exchange, Part], Part]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "tied_reduce": _tied_reduce,
}


# Streams, numbers for each tensor, and single numbers.


def _stream(do: _Exchange, own: Stream) -> Stream:
    here, mesh = do.here, do.here.mesh
    masks = do.masks(own.there)
    union = torch.stack(masks).any(0)
    match do.call.op:
        case "all_gather":
            return _joined(do, own, masks)
        case "broadcast":
            root = do.rank_of_root()
            there = masks[do.group.ranks.index(root)]
            return Stream(there=there, numbers=Numbers(own.numbers.of, mesh.spread(do.group, own.numbers.data, root, do.call)))
        case "all_reduce" | "reduce" | "reduce_scatter":
            gaps = (union & ~own.there).tolist()
            found = [nothing(dict(here.at), (t, i)) if gap else 0 for t, gap in enumerate(gaps) for i in range(CHANNELS)]
            given = own.numbers.where(own.there, Numbers.make(here.of, found, len(gaps), CHANNELS))
            there = union & (here.model.own_tokens(here.at) | (do.call.op != "reduce_scatter"))
            return Stream(there=there, numbers=_tokens_reduced(do, given))
    raise NotReplayedError(f"`{do.call.op}` of activations")


def _tokens_reduced(do: _Exchange, given: Numbers) -> Numbers:
    """Combined everywhere; a reduce-scatter over the axis that splits tokens leaves each device its own row."""
    tokens, own = given.shape[0], do.here.model.hidden
    if own is None or do.call.op != "reduce_scatter" or do.call.axes != (own,):
        return do.here.mesh.reduced(do.group, given, do.op, do.call)
    row = do.here.mesh.scattered(do.group, given, do.op, do.call)
    return zeros(do.here.of, tokens, CHANNELS).put(do.here.at[own], row)


def _joined(do: _Exchange, own: Stream, masks: list[Tensor]) -> Stream:
    """Every token from the device whose own it is; or else from the first that has it."""
    parts = do.here.mesh.collected(do.group, own.numbers, do.call)
    order = sorted(range(do.group.size), key=lambda i: do.here.model.place(do.group.at[i], do.call.axes))
    found, there = own.numbers, torch.zeros_like(own.there)
    for i in order:
        taken = masks[i] & (do.here.model.own_tokens(do.group.at[i]) | ~there)
        found, there = parts[i].where(taken, found), there | taken
    return Stream(there=there, numbers=found)


def _norms(do: _Exchange, own: Norms) -> Norms:
    """Numbers of tensors add up; a device that has none of a tensor adds zero."""
    if do.call.op not in ("all_reduce", "reduce"):
        return own
    there = torch.stack(do.masks(own.there)).any(0)
    given = own.numbers.where(own.there, zeros(do.here.of, len(there)))
    return replace(own, there=there, numbers=do.here.mesh.reduced(do.group, given, do.op, do.call))


def _scalar(do: _Exchange, own: Numbers) -> Numbers:
    one = stacked([own])
    if do.call.op in ("all_reduce", "reduce"):
        return do.here.mesh.reduced(do.group, one, do.op, do.call)[0]
    if do.call.op == "broadcast":
        return Numbers(one.of, do.here.mesh.spread(do.group, one.data, do.rank_of_root(), do.call))[0]
    return one[0]


# Messages.


def send(here: Here, call: Call, value: Value) -> None:
    """Send a value to a device along an axis, without waiting."""
    steps = int(call.option("to", "1") or "1")
    names = [None, *(g.name for g in here.model.program.groups)]
    head = torch.tensor([_kind(value), names.index(value.group if isinstance(value, Part) else None)])
    here.mesh.send(call.axes[0], steps, [head, *_packed(here, value)], call)


def receive(here: Here, call: Call) -> Value:
    """Wait for a value from a device along an axis."""
    axis, steps = call.axes[0], int(call.option("source", "1") or "1")
    kind, group = here.mesh.receive(axis, steps, torch.zeros(2, dtype=torch.int64), call).tolist()
    shapes = _packed(here, _empty(here, kind))
    masks, numbers = (here.mesh.receive(axis, steps, shape, call) for shape in shapes)
    data = Numbers(here.of, numbers)
    match kind:
        case 0 | 1:
            extent, held = masks.to(torch.bool)
            names = [None, *(g.name for g in here.model.program.groups)]
            return Part(extent=extent, held=held, numbers=data, group=names[group])
        case 2:
            return Stream(there=masks.to(torch.bool), numbers=data)
        case 3:
            return Norms(there=masks.to(torch.bool), numbers=data)
    return data


def _packed(here: Here, value: Value) -> tuple[Tensor, Tensor]:
    """A value's masks and its numbers."""
    match value:
        case Part():
            return torch.stack([value.extent, value.held]).to(torch.int64), value.numbers.data
        case Stream() | Norms():
            return value.there.to(torch.int64), value.numbers.data
        case Fraction() | Numbers():
            return torch.zeros(1, dtype=torch.int64), number(here.of, value).data.reshape(_empty_number(here).data.shape)
    raise NotReplayedError(f"a message with a {type(value).__name__.lower()}")


def _empty_number(here: Here) -> Numbers:
    return Numbers.make(here.of, [0])[0]


def _empty(here: Here, kind: int) -> Value:
    """A value of the kind and the shapes of one that is to come."""
    count, tensors = len(here.model.elements), len(here.model.tensors)
    none = torch.zeros(count, dtype=torch.bool)
    match kind:
        case 0 | 1:
            return Part(extent=none, held=none, numbers=zeros(here.of, count) if kind == PART else zeros(here.of, count, 2))
        case 2:
            tokens = here.model.tokens_of_a_sample
            return Stream(there=torch.zeros(tokens, dtype=torch.bool), numbers=zeros(here.of, tokens, CHANNELS))
        case 3:
            return Norms(there=torch.zeros(tensors, dtype=torch.bool), numbers=zeros(here.of, tensors))
    if kind != NUMBER:
        raise ExchangeError(f"a message of the unknown kind {kind}")
    return _empty_number(here)
