"""What a collective makes of terms: which tensors it reads, which it writes, and what each element there is afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from placeproof.measure.record.frames import TORCH, begun_by
from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes
from placeproof.measure.record.runs import Runs, chained, mapped
from placeproof.measure.record.shadow import Shadows, flat, local
from placeproof.measure.recorder import SILENT, TABLE, group_name, reduction, tensors_of

#: Where the argument that is read, and the one that is written, of an operation is called otherwise than ``input`` and the result.
_WRITES = ("output_tensors", "output_tensor", "output_lists", "outputs", "out", "output")
_READS = ("input_tensors", "input_tensor", "inputs", "input", "tensors", "tensor", "input_list")


#: The storage of a tensor, and from where to where it has elements there.
_Span = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A collective that was dispatched: its kind, ranks, reduction and root (as ranks of the world; of a send, where it
    goes), and what it reads and writes."""

    kind: str
    ranks: tuple[int, ...]
    op: str
    root: int
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A collective that goes on: what it is called, and spans of memory that it changes, and that it reads alone."""

    name: str
    changes: tuple[_Span, ...]
    reads: tuple[_Span, ...]


class Underway:
    """Collectives that were begun. Before one is waited for, nobody may read or write what it changes, nor write what it reads."""

    def __init__(self) -> None:
        self._begun: dict[int, _Begun] = {}
        self._count = 0

    def begins(self, name: str, changes: Iterable[Tensor], reads: Iterable[Tensor] = ()) -> int:
        """One goes on: its number."""
        self._count += 1
        self._begun[self._count] = _Begun(name, tuple(map(_span, changes)), tuple(map(_span, reads)))
        return self._count

    def ends(self, number: int) -> None:
        """One was waited for."""
        self._begun.pop(number, None)

    def meets(self, given: Iterable[Tensor], written: Iterable[Tensor]) -> str:
        """The name of one that works on what an operation is ``given``, or on what is ``written``; nothing for none."""
        if not self._begun:
            return ""
        of, own = ([_span(t) for t in tensors if t.layout == torch.strided] for tensors in (given, written))
        return next((b.name for b in self._begun.values() if _overlap(b.changes, of) or _overlap(b.reads, own)), "")


def _overlap(some: Iterable[_Span], others: Sequence[_Span]) -> bool:
    return any(a == b and first < last and start < end for a, start, last in some for b, first, end in others)


def _span(tensor: Tensor) -> _Span:
    tensor = local(tensor)
    start = int(tensor.storage_offset())
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1 if tensor.numel() else 0
    return tensor.untyped_storage()._cdata, start, start + reach


#: What a collective changes: its arguments of this name. It reads those of other names.
CHANGES = {
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "all_reduce": "tensor",
    "all_to_all": "output_tensor_list",
    "all_to_all_single": "output",
    "broadcast": "tensor",
    "gather": "gather_list",
    "reduce": "tensor",
    "reduce_scatter": "output",
    "reduce_scatter_tensor": "output",
    "scatter": "tensor",
}


def awaited(name: str, collective: Callable[..., Any], underway: Underway) -> Callable[..., Any]:
    """A collective that may go on; where PyTorch itself begins one, it waits in ways of its own."""

    @wraps(collective)
    def begun(*args: Any, **kwargs: Any) -> Any:
        work = collective(*args, **kwargs)
        if work is None or (name != "all_reduce" and begun_by(TORCH)):
            return work
        given = signature(collective).bind(*args, **kwargs).arguments
        return _Awaited(work, name, flat((given.pop(CHANGES[name], None),)), flat(tuple(given.values())), underway)

    return begun


class _Awaited:
    """A collective that goes on. Its future is there when it has ended, with the tensors, as that of NCCL is."""

    def __init__(self, work: Any, name: str, changes: list[Tensor], reads: list[Tensor], underway: Underway) -> None:
        self._work, self._tensors = work, changes
        self._underway, self._number = underway, underway.begins(name, changes, reads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Go on when it has ended."""
        self._underway.ends(self._number)
        return self._work.wait(*args, **kwargs)

    def get_future(self) -> Any:
        """The future of a list of what is changed."""
        self.wait()
        done: Any = torch.futures.Future()
        done.set_result(self._tensors)
        return done


def read_exchange(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Exchanged | None:
    """What was exchanged; None for operations of these namespaces that move nothing. Raises LookupError for one that is not known."""
    name = func._schema.name.rpartition("::")[2]
    if name in SILENT:
        return None
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | dict(kwargs)
    if name == "batch_p2p_ops":
        return _exchanged("send", given, tuple(tensors_of(given["tensors"])), ())
    if name not in TABLE:
        raise LookupError(f"torch dispatched `{func}`, which cannot be followed")
    reads = next((tuple(tensors_of(given[n])) for n in _READS if n in given), ())
    writes = next((tuple(tensors_of(given[n])) for n in _WRITES if n in given), ())
    if not writes:
        functional = func.namespace != "c10d" and isinstance(out, (Tensor, list, tuple))
        writes = tuple(tensors_of(out)) if functional else reads
    return _exchanged(TABLE[name].kind, given, reads, writes)


def _exchanged(kind: str, given: Mapping[str, Any], reads: tuple[Tensor, ...], writes: tuple[Tensor, ...]) -> Exchanged:
    group = dist.distributed_c10d._resolve_process_group(group_name(given.get("process_group", given.get("group_name"))))
    ranks = tuple(dist.get_process_group_ranks(group))
    root = given.get("root_rank", given.get("src", given.get("dst", -1)))
    return Exchanged(kind, ranks, reduction(given.get("reduce_op")), ranks[root] if 0 <= root < len(ranks) else -1, reads, writes)


def carry(done: Exchanged, shadows: Shadows, axes: tuple[str, ...], *, setup: bool, line: int, turn: int = -1) -> None:
    """Give what a collective wrote its terms; ``turn``: the how many-th of its ranks it is. In the set-up, what moves parameters leaves
    them what they are."""
    like = Node(kind=done.kind, axes=axes, op=done.op, root=done.root, line=line, turn=turn)
    read = [shadows.read(t) for t in done.reads]
    if all(r.only == NOTHING or not r.length for r in read):
        for tensor in done.writes:
            if shadows.known(tensor) and done.kind != "broadcast":
                shadows.write(tensor, NOTHING)
        return
    rank, count = done.ranks.index(dist.get_rank()), len(done.ranks)
    if done.kind in ("all_reduce", "broadcast", "reduce"):
        for tensor, terms in zip(done.writes, read, strict=True):
            shadows.write(tensor, _after(shadows, terms, like, setup=setup))
    elif done.kind == "all_gather":
        _gather(done, shadows, read, like, count, setup=setup)
    elif done.kind in ("reduce_scatter", "scatter"):
        parts = read if len(read) == count * len(done.writes) else [p for r in read for p in _chunks(r, count)]
        for i, tensor in enumerate(done.writes):
            shadows.write(tensor, _after(shadows, parts[i * count + rank], like, setup=setup))
    else:
        for tensor in done.writes:
            shadows.write(tensor, shadows.nodes.unknown(shadows.terms(tensor), f"the exchange `{done.kind}`", line))


def places(done: Exchanged, shadows: Shadows) -> tuple[tuple[frozenset[int], int], ...]:
    """How many elements in a row, of what is reduced, are made of which parameters."""
    nodes, reduced = shadows.nodes, done.reads if done.kind in ("all_reduce", "reduce", "reduce_scatter") else ()
    rows = [row for t in reduced for row in shadows.read(t).lengths()]
    known = {n: frozenset[int]() if n <= ZERO or nodes.holds(n, "unknown") else nodes.states(n) for n, _ in rows}
    return tuple((states, sum(count for _, count in same)) for states, same in groupby(rows, key=lambda row: known[row[0]]))


def _chunks(row: Runs, count: int) -> list[Runs]:
    """Equal parts, one for each rank."""
    size = row.length // count
    return [row.part(i * size, size) for i in range(count)]


def _after(shadows: Shadows, terms: Runs, like: Node, *, setup: bool) -> Runs:
    return mapped(lambda n: _one_after(shadows.nodes, n, like, setup=setup), terms)


def _one_after(nodes: Nodes, number: int, like: Node, *, setup: bool) -> int:
    parameter = nodes.is_parameter(number)
    if setup and parameter:
        return number
    kind = "broadcast" if like.kind == "scatter" and parameter else like.kind
    counted = nodes.is_norm(number) or (kind == "broadcast" and not parameter)
    return nodes.exchanged(number, replace(like, kind=kind, turn=like.turn if counted else -1))


def _gather(done: Exchanged, shadows: Shadows, read: Sequence[Runs], like: Node, count: int, *, setup: bool) -> None:
    """Another rank's part is of the same kind as this one's, and of a gradient it is told whose it is. If it went to where a parameter was,
    it is that parameter's."""
    nodes = shadows.nodes

    def gathered(number: int, before: int, rank: int) -> int:
        if before != NOTHING and nodes.is_parameter(before) and nodes.is_parameter(number):
            index = min(nodes.states(before))
            number = nodes.add(Node(kind="updated" if nodes.holds(number, "updated") else "param", index=index))
        return _one_after(nodes, number, replace(like, root=rank) if nodes.is_gradient(number) else like, setup=setup)

    tiled = _tiled(read, done.writes, count)
    made = [mapped(gathered, terms, shadows.read(t), ranks) for t, (terms, ranks) in zip(done.writes, tiled, strict=True)]
    for tensor, row in zip(done.writes, made, strict=True):
        shadows.write(tensor, row)


def _tiled(read: Sequence[Runs], writes: Sequence[Tensor], count: int) -> list[tuple[Runs, Runs]]:
    """This rank's part, as often as what is written has parts, and whose each of these is."""
    if len(read) == len(writes):
        return [(chained([r] * count), chained([Runs.same(k, r.length) for k in range(count)])) for r in read]
    return [(r, Runs.same(i // len(read), r.length)) for i in range(len(writes)) for r in (read[i % len(read)],)]
