"""The collectives of a replay on gloo: a process group for each set of devices that exchange.

Before any exchange the devices of its group tell one another where in the program they are. Devices that meet in different collectives
raise an error then; gloo itself would end in an abort, or add up what does not belong together.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from placeproof.programs import Call
from placeproof.programs.ops import OPS

T = TypeVar("T")
Coordinates = Mapping[str, int]
_NUMBER_OF = {name: number for number, name in enumerate(OPS)}
_NAME_OF = list(OPS)
#: It was renamed; the older name warns.
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
#: Messages that were sent: gloo drops one that nobody holds any more, and it may be received after its sender has run to the end.
_UNDER_WAY: list[tuple[dist.Work, Tensor, Call]] = []


class ExchangeError(RuntimeError):
    """An exchange did not come about: nobody came, or somebody left."""


class DifferentCollectivesError(RuntimeError):
    """The devices of one group are at different places of the program."""


class NothingThereError(Exception):
    """A computation reads what the device does not have, or values that do not fit one another: shapes do not fit."""


class NotHomeError(Exception):
    """A device would return what is another device's part: it has not come home from its way round the ring."""


class NotReplayedError(Exception):
    """The program does something that this replay gives no meaning."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The devices that exchange: their ranks, in ascending order, and where each is. ``handle`` is None for a device by itself."""

    ranks: tuple[int, ...]
    at: tuple[Coordinates, ...]
    me: int
    handle: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """How many devices."""
        return len(self.ranks)

    def rank_at(self, root: Coordinates) -> int:
        """The rank of the device with some coordinates along the axes of the group."""
        return next(rank for rank, at in zip(self.ranks, self.at, strict=True) if root.items() <= at.items())


class Mesh:
    """The mesh as one process sees it. ``sets``: the factors along which groups reach; ``ends``: axes of which the first and the last
    device form a group. All processes make the same groups in the same order."""

    def __init__(self, sizes: Mapping[str, int], rank: int, sets: Iterable[frozenset[str]], ends: Iterable[str], timeout: float) -> None:
        self.sizes, self.rank = sizes, rank
        self.places = [dict(zip(sizes, at, strict=True)) for at in itertools.product(*map(range, sizes.values()))]
        self.at = self.places[rank]
        self._waits = timedelta(seconds=timeout)
        self._messages: Counter[tuple[int, int]] = Counter()
        self._own: defaultdict[str, list[bytes]] = defaultdict(list)
        self._groups = {factors: self._made(partial(_apart_from, factors)) for factors in dict.fromkeys(sets)}
        self._ends = {axis: self._made(partial(self._end_of, axis)) for axis in dict.fromkeys(ends)}

    def end(self) -> None:
        """Wait until everything that was sent is received. Raises ExchangeError for a message that nobody takes."""
        for work, _, call in _UNDER_WAY:
            self._done(call, partial(work.wait, self._waits))
        _UNDER_WAY.clear()

    def _end_of(self, axis: str, at: Coordinates) -> tuple[object, ...]:
        inside = at[axis] in (0, self.sizes[axis] - 1)
        return (*(n for a, n in at.items() if a != axis), "ends" if inside else at[axis])

    def _made(self, apart: Callable[[Coordinates], tuple[object, ...]]) -> Group:
        """Groups of the devices that agree in something, and which of them is ours."""
        members: dict[tuple[object, ...], list[int]] = {}
        for rank, at in enumerate(self.places):
            members.setdefault(apart(at), []).append(rank)
        ours: Group | None = None
        for ranks in members.values():
            handle = dist.new_group(ranks, timeout=self._waits) if len(ranks) > 1 else None
            if self.rank in ranks:
                places = tuple(self.places[r] for r in ranks)
                ours = Group(tuple(ranks), places, ranks.index(self.rank), handle)
        assert ours is not None
        return ours

    def group(self, factors: Iterable[str]) -> Group:
        """Our group along some factors of the mesh."""
        return self._groups[frozenset(factors)]

    def ends(self, axis: str) -> Group:
        """The first and the last device along an axis; any other one by itself."""
        return self._ends[axis]

    # What every exchange begins with.

    def meet(self, group: Group, call: Call, kind: int = 0) -> None:
        """Raises DifferentCollectivesError unless all devices of the group are at this call with the same kind of value."""
        line, column = (call.place.line, call.place.column) if call.place else (0, 0)
        mine = torch.tensor([line, column, _NUMBER_OF[call.op], kind], dtype=torch.int64)
        everyone = [t.tolist() for t in self.collect(group, mine, call)]
        if any(request != everyone[0] for request in everyone):
            where = ", ".join(
                f"rank {r} at `{_NAME_OF[request[2]]}` in line {request[0]}" for r, request in zip(group.ranks, everyone, strict=True)
            )
            raise DifferentCollectivesError(f"devices of one group meet in different collectives: {where}")

    def _done(self, call: Call, what: Callable[[], T]) -> T:
        try:
            return what()
        except RuntimeError as error:
            where = f"in line {call.place.line}, `{call.place.text.strip()}`" if call.place else "at the end"
            raise ExchangeError(f"{error} ({call.op} {where})") from error

    # Exchanges of tensors of one shape.

    def collect(self, group: Group, mine: Tensor, call: Call) -> list[Tensor]:
        """Every device's tensor, by rank."""
        if group.handle is None:
            return [mine]
        tensors = [torch.empty_like(mine) for _ in group.ranks]
        self._done(call, lambda: dist.all_gather(tensors, mine.contiguous(), group=group.handle))
        return tensors

    def combined(self, group: Group, mine: Tensor, op: str, call: Call, root: int | None = None) -> Tensor:
        """The sum or, for `max`, the greatest of every device's tensor, place by place: everywhere, or on the rank ``root`` alone
        (elsewhere it means nothing)."""
        data = mine.clone(memory_format=torch.contiguous_format)
        how = dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM
        if root is None:
            self._done(call, lambda: dist.all_reduce(data, how, group=group.handle))
        else:
            self._done(call, lambda: dist.reduce(data, root, how, group=group.handle))
        return data

    def own_sum(self, group: Group, rows: Tensor, call: Call) -> Tensor:
        """The sum of row j of every device's tensor, on the j-th device."""
        mine = torch.empty_like(rows[0])
        self._done(call, lambda: _REDUCE_SCATTER(mine, rows.flatten(0, 1).contiguous(), group=group.handle))
        return mine

    def swapped(self, group: Group, rows: Tensor, call: Call) -> Tensor:
        """Row j goes to the j-th device: the rows that the others have for this one."""
        data = rows.contiguous()
        received = torch.empty_like(data)
        self._done(call, lambda: dist.all_to_all_single(received, data, group=group.handle))
        return received

    def spread(self, group: Group, data: Tensor, root: int, call: Call) -> Tensor:
        """The tensor of the rank ``root``, everywhere."""
        received = data.clone(memory_format=torch.contiguous_format)
        if group.handle is not None:
            self._done(call, lambda: dist.broadcast(received, root, group=group.handle))
        return received

    # Messages.

    def send(self, to: Coordinates, data: bytes, call: Call) -> None:
        """Send to another device, without waiting for it."""
        rank = self.places.index(dict(to))
        if rank == self.rank:
            self._own[call.axes[0]].append(data)
            return
        self._post(torch.tensor([len(data)]), rank, call)
        self._post(in_bytes(data), rank, call)

    def receive(self, source: Coordinates, call: Call) -> bytes:
        """Wait for what another device sends, which need not be there."""
        if source == self.at and self._own[call.axes[0]]:
            return self._own[call.axes[0]].pop(0)
        if source == self.at or source not in self.places:
            time.sleep(self._waits.total_seconds())
            raise ExchangeError(f"Timed out waiting {self._waits // timedelta(milliseconds=1)}ms for a device that is not there")
        rank = self.places.index(dict(source))
        length = int(self._fetch(torch.zeros(1, dtype=torch.int64), rank, call))
        return bytes(self._fetch(torch.empty(length, dtype=torch.uint8), rank, call).numpy())

    def _post(self, tensor: Tensor, to: int, call: Call) -> None:
        data = tensor.contiguous()
        _UNDER_WAY.append((self._done(call, lambda: dist.isend(data, to, tag=self._next(self.rank, to))), data, call))

    def _fetch(self, received: Tensor, source: int, call: Call) -> Tensor:
        self._done(call, lambda: dist.recv(received, source, tag=self._next(source, self.rank)))
        return received

    def _next(self, sender: int, receiver: int) -> int:
        """Messages between two devices are numbered, so that each meets the one that it is meant for."""
        self._messages[(sender, receiver)] += 1
        return self._messages[(sender, receiver)]


def in_bytes(data: bytes) -> Tensor:
    """Bytes as a tensor."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _apart_from(factors: frozenset[str], at: Coordinates) -> tuple[object, ...]:
    """Where a device is along all other factors."""
    return tuple(n for factor, n in at.items() if factor not in factors)
