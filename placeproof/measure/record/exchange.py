"""What a collective makes of terms: which tensors it reads, which it writes, and what each element there is afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from placeproof.measure.record.nodes import NOTHING, Node
from placeproof.measure.record.runs import Runs, chained, mapped
from placeproof.measure.record.shadow import Shadows
from placeproof.measure.recorder import SILENT, TABLE, group_name, reduction, tensors_of

#: Where the argument that is read, and the one that is written, of an operation is called otherwise than ``input`` and the result.
_WRITES = ("output_tensors", "output_tensor", "output_lists", "outputs", "out", "output")
_READS = ("input_tensors", "input_tensor", "inputs", "input", "tensors", "tensor", "input_list")


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


def carry(done: Exchanged, shadows: Shadows, axes: tuple[str, ...], *, setup: bool, line: int) -> None:
    """Give what a collective wrote its terms. In the set-up, what moves parameters leaves them what they are."""
    like = Node(kind=done.kind, axes=axes, op=done.op, root=done.root, line=line)
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


def _chunks(row: Runs, count: int) -> list[Runs]:
    """Equal parts, one for each rank."""
    size = row.length // count
    return [row.part(i * size, size) for i in range(count)]


def _after(shadows: Shadows, terms: Runs, like: Node, *, setup: bool) -> Runs:
    nodes = shadows.nodes

    def after(number: int) -> int:
        if setup and nodes.is_parameter(number):
            return number
        return nodes.exchanged(number, replace(like, kind="broadcast") if like.kind == "scatter" else like)

    return mapped(after, terms)


def _gather(done: Exchanged, shadows: Shadows, read: Sequence[Runs], like: Node, count: int, *, setup: bool) -> None:
    """Another rank's part is of the same kind as this one's. If it went to where a parameter was, it is that parameter's."""
    nodes = shadows.nodes

    def named(number: int, before: int) -> int:
        if before == NOTHING or not nodes.is_parameter(before) or not nodes.is_parameter(number):
            return number
        index = min(nodes.states(before))
        return nodes.add(Node(kind="updated" if nodes.holds(number, "updated") else "param", index=index))

    terms = [mapped(named, r, b) for r, b in zip(_tiled(read, done.writes, count), map(shadows.read, done.writes), strict=True)]
    for tensor, term in zip(done.writes, terms, strict=True):
        shadows.write(tensor, _after(shadows, term, like, setup=setup))


def _tiled(read: Sequence[Runs], writes: Sequence[Tensor], count: int) -> list[Runs]:
    """This rank's part, as often as what is written has parts."""
    if len(read) == len(writes):
        return [chained([r] * count) for r in read]
    return [read[i % len(read)] for i in range(len(writes))]
