"""Whether a script of PyTorch keeps both conditions while it trains: copies of states are equal, and so are the gradients of copies.

:func:`watch` hooks an optimizer. After every k-th update each rank hashes its parameters, its optimizer state and its buffers, and takes
the norms of its gradients; one gather of some bytes per tensor goes around while training continues, and is judged at the next update.
"""

from __future__ import annotations

import hashlib
import math
import struct
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Self, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

_Ranks: TypeAlias = tuple[tuple[int, ...], ...]
#: In place of the norm of a gradient that is not there: no norm has these bits.
_NONE = -1
#: Seconds to wait at an update for ranks that have not sent the last check.
_GRACE = 5.0
#: Words of 8 bytes that are added up before they are hashed lie so far apart: a prime, so that few blocks of a tensor begin in one column.
_COLUMNS = 4093
_STATE, _GRADIENT = "state consistency", "gradient integrity"
#: By kind of what is compared: the condition that breaks, and what to do.
_KINDS = {
    "settings": (_STATE, "give each rank the same learning rate, weight decay and frozen parameters: schedule by what all ranks know"),
    "update count": (_STATE, "let all ranks make, or skip, the same updates"),
    "partial gradient": (_GRADIENT, "reduce the gradient to the placement of its parameter before the update"),
    "gradient": (_GRADIENT, "average it over the ranks, once and unscaled, before the update; leave no_sync for the last micro-batch"),
    "optimizer state": (_STATE, "make the same updates on all ranks, and load the same optimizer state"),
    "parameter": (_STATE, "begin with the same parameters (broadcast them), and make the same updates on all ranks"),
    "buffer": (_STATE, "synchronise it (of batch norms: SyncBatchNorm), or name it in `ignore` if it may differ"),
}
_TOKENS = "divide the summed loss by the tokens of all ranks and micro-batches over the number of ranks, and tell it as `divisor`"
_NOT_CHECKED = (
    "whether ranks train on different samples, and what the loss divides by, unless `count` tells it",
    "factors that are wrong alike on all ranks, such as a sum where a mean is meant: `placeproof trace record` and `prove` see them",
    "values of what lies on one rank alone: its gradients and its states",
    "the order of elements that lie a multiple of 32,744 bytes apart in a large tensor",
    "what happens between two checks and leaves no trace at the second",
)


class BrokenError(RuntimeError):
    """A condition is broken. ``findings``: what was found, the cause before what follows from it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(map(str, findings)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What broke. ``update``: after how many updates it was seen; ``ranks``: those that agree with each other, one tuple for each value."""

    condition: str
    what: str
    name: str
    others: int
    ranks: _Ranks
    update: int
    help: str

    def __str__(self) -> str:
        more = f" and of {self.others} more" if self.others else ""
        apart = " | ".join(", ".join(map(str, one)) for one in self.ranks)
        return (
            f"{self.condition} is broken after update {self.update}: {self.what} of {self.name}{more}; ranks {apart}\n  help: {self.help}"
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A number that copies should have alike. ``part``: of which part of the tensor; ``scopes``: sets of ranks among which copies lie."""

    kind: str
    name: str
    part: tuple[Any, ...]
    scopes: tuple[frozenset[int], ...]


def watch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    every: int = 10,
    group: dist.ProcessGroup | None = None,
    ignore: Iterable[str] = (),
    raises: bool = True,
    timeout: float = 300,
) -> Watch:
    """Watch training. All ranks call it, after the model is wrapped and the optimizer made; what they begin with is compared at once.

    ``every``: updates from check to check. ``group``: the ranks of which each has a copy of every tensor that is no DTensor; those of
    DistributedDataParallel, or else all. ``ignore``: patterns of names. ``raises``: raise BrokenError, instead of warning.
    ``timeout``: seconds to wait for a rank that makes fewer updates. Raises BrokenError, and ValueError for what cannot be watched.
    """
    if not dist.is_initialized():
        raise ValueError("there is no process group: call torch.distributed.init_process_group first")
    if every < 1:
        raise ValueError(f"every is {every}: it has to be 1 or more")
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise ValueError("FullyShardedDataParallel hides which parts ranks have: use fully_shard, whose parameters say it")
    return Watch(model, optimizer, every, group, tuple(ignore), raises, timeout)


class Watch:
    """A watched training; :func:`watch` makes it. ``findings``: what was found so far."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        every: int,
        group: dist.ProcessGroup | None,
        ignore: tuple[str, ...],
        raises: bool,
        timeout: float,
    ) -> None:
        self._model, self._optimizer, self._every = model, optimizer, every
        self._ignore, self._raises, self._timeout = ignore, raises, timeout
        self.findings: list[Finding] = []
        self._updates = self._forwards = self._checks = 0
        self._tokens = [[0.0, 0.0, 0.0] for _ in range(every)]  # of each update since the last check: tokens, least and largest divisor
        self._pending: tuple[Any, list[Tensor], int] | None = None
        self._group = dist.new_group(backend="gloo")  # of its own: what is late here must not meet the script's collectives
        if group is None and isinstance(model, DistributedDataParallel):
            group = model.process_group
        self._wider = None if group is None else frozenset(dist.get_process_group_ranks(group))
        self._parameters = dict(self._named())
        self._entries = list(self._layout())
        self._layouts: list[list[_Entry]] = [[]] * dist.get_world_size()
        dist.all_gather_object(self._layouts, self._entries, group=self._group)
        self._copies = list(_copies(self._layouts))
        self._sharded = any(
            isinstance(p, DTensor) and not all(one.is_replicate() for one in p.placements) for p in self._parameters.values()
        )
        self._hooks = [optimizer.register_step_post_hook(self._after_update), model.register_forward_pre_hook(self._before_forward)]
        self._send()
        self._collect(self._timeout)

    def count(self, tokens: float, *, divisor: float | None = None) -> None:
        """Tell of a micro-batch on this rank how many tokens its loss is of, and by what it divided their sum; by their number, if None.

        Gradients are averaged over the ranks, so that the mean over all tokens of an update asks for tokens of all ranks / ranks.
        """
        now = self._tokens[self._updates % self._every]
        by = tokens if divisor is None else divisor
        now[1:] = [min(now[1], by), max(now[2], by)] if now[2] else [by, by]
        now[0] += tokens

    def close(self) -> None:
        """Judge the last check, and watch no longer. All ranks call it, or none."""
        self._collect(_GRACE)
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def report(self) -> str:
        """What was compared, what was found, and what was not checked."""
        mine = dist.get_rank()
        inside = {index for _, one in self._copies for rank, index in one if rank == mine}
        compared = Counter(self._entries[index].kind for index in inside)
        ignored = [name for name, _ in self._model.named_parameters() if self._ignored(_plain(name))]
        alone = [e.name for i, e in enumerate(self._entries) if e.kind == "parameter" and i not in inside]
        local = [name for name, kept in self._buffers(all_of_them=True) if not kept]
        lines = [f"rank {mine}: {self._checks} checks in {self._updates} updates, {len(self.findings)} findings"]
        lines += map(str, self.findings)
        lines += [f"compared: {n} x {kind}" for kind, n in compared.items()]
        for what, names in (
            ("parameters without a copy", alone),
            ("parameters that `ignore` names", [_plain(one) for one in ignored]),
            ("buffers that are not saved, or ignored", local),
        ):
            if names:
                lines.append(f"not compared: {len(names)} {what}: {', '.join(names[:3])}{', ...' if names[3:] else ''}")
        return "\n".join([*lines, *(f"not checked: {one}" for one in _NOT_CHECKED)])

    # What is compared.

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters of the model, and those that the optimizer has beside."""
        known = {p: _plain(name) for name, p in self._model.named_parameters()}
        yield from ((name, p) for p, name in known.items() if not self._ignored(name))
        for i, group in enumerate(self._optimizer.param_groups):
            yield from ((f"optimizer[{i}][{j}]", p) for j, p in enumerate(group["params"]) if p not in known)

    def _ignored(self, name: str) -> bool:
        return any(fnmatch(name, one) for one in self._ignore)

    def _buffers(self, all_of_them: bool = False) -> Iterator[tuple[str, Any]]:
        """Buffers that are saved with the model. The others are caches, which ranks may fill by what they see. Of all: whether they are."""
        for prefix, module in self._model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                full = _plain(f"{prefix}.{name}" if prefix else name)
                kept = name not in module._non_persistent_buffers_set and not self._ignored(full)
                if all_of_them or kept:
                    yield full, (kept if all_of_them else buffer)

    def _layout(self) -> Iterator[_Entry]:
        """What this rank sends, in the order of :meth:`_values`."""
        for name, p in self._parameters.items():
            part, scopes = self._place(p)
            for kind in ("settings", "update count", "partial gradient"):
                yield _Entry(kind, name, (), scopes)
            for kind in ("gradient", "optimizer state", "parameter"):
                yield _Entry(kind, name, part, scopes)
        for name, buffer in self._buffers():
            yield _Entry("buffer", name, *self._place(buffer))

    def _place(self, tensor: Tensor) -> tuple[tuple[Any, ...], tuple[frozenset[int], ...]]:
        form = (tuple(tensor.shape), str(tensor.dtype))
        wider = () if self._wider is None else (self._wider,)
        if not isinstance(tensor, DTensor):
            return form, wider or (frozenset(range(dist.get_world_size())),)
        mesh = tensor.device_mesh
        where = mesh.get_coordinate()
        if where is None:
            return (*form, dist.get_rank()), ()
        split = tuple((str(one), at) for one, at in zip(tensor.placements, where, strict=True) if not one.is_replicate())
        return (*form, split), (frozenset(mesh.mesh.flatten().tolist()), *wider)

    def _values(self) -> Iterator[int]:
        settings: dict[Tensor, int] = {}
        for group in self._optimizer.param_groups:
            digest = _hash([(key, _digest(value)) for key, value in sorted(group.items()) if key not in ("params", "param_names")])
            settings |= dict.fromkeys(group["params"], digest)
        norms = self._norms()
        for name, p in self._parameters.items():
            state = self._optimizer.state.get(p, {})
            yield _hash((settings.get(p), p.requires_grad))
            yield _bits(float(step)) if isinstance(step := state.get("step"), int | float | Tensor) else 0
            yield _partial(p)
            yield norms[name]
            yield _hash([(key, _digest(value)) for key, value in sorted(state.items())])
            yield _hash(_digest(p))
        found = dict(self._buffers())
        yield from (_hash(_digest(found[one.name])) if one.name in found else 0 for one in self._entries if one.kind == "buffer")

    def _norms(self) -> dict[str, int]:
        """Of gradients, as the bits of a float; -1 where there is none."""
        gradients = {name: _local(p.grad) for name, p in self._parameters.items() if p.grad is not None}
        dense = {name: g.coalesce().values() if g.is_sparse else g for name, g in gradients.items()}
        norms = torch.stack([torch.linalg.vector_norm(g).to("cpu", torch.float64) for g in dense.values()]).tolist() if dense else []
        return dict.fromkeys(self._parameters, _NONE) | dict(zip(dense, map(_bits, norms), strict=True))

    # When.

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        self._forwards += module.training and torch.is_grad_enabled()

    def _after_update(self, *_: Any) -> None:
        self._updates += 1
        due = self._updates % self._every == 0
        self._collect(self._timeout if due else _GRACE)
        if due:
            self._send()

    def _send(self) -> None:
        numbers = [float(self._forwards), *(n for one in self._tokens for n in one)]
        row = [*map(_bits, numbers), *self._values()]
        size = len(numbers) + max(map(len, self._layouts))
        mine = torch.tensor(row + [0] * (size - len(row)), dtype=torch.int64)
        rows = [torch.empty_like(mine) for _ in self._layouts]
        self._pending = dist.all_gather(rows, mine, group=self._group, async_op=True), rows, self._updates
        self._tokens = [[0.0, 0.0, 0.0] for _ in range(self._every)]

    def _collect(self, seconds: float) -> None:
        """Judge the check that is under way once all ranks have sent theirs. One that skipped updates sends later: little is waited."""
        if self._pending is None:
            return
        work, rows, update = self._pending
        end = time.monotonic() + seconds
        while not work.is_completed():
            if time.monotonic() > end:
                if seconds == self._timeout:
                    raise RuntimeError(f"after {seconds} s a rank has not made update {update}; {_KINDS['update count'][1]}")
                return
            time.sleep(0.001)
        work.wait()
        self._pending = None
        self._checks += 1
        found = list(self._judge([row.tolist() for row in rows], update))
        self.findings += found
        if found and self._raises:
            raise BrokenError(found)
        for one in found:
            warnings.warn(str(one), stacklevel=2)

    # What it says.

    def _judge(self, rows: list[list[int]], update: int) -> Iterator[Finding]:
        head = 1 + 3 * self._every
        numbers = [[_float(n) for n in row[:head]] for row in rows]
        apart: dict[str, list[tuple[str, _Ranks]]] = defaultdict(list)
        for entry, copies in self._copies:
            ranks = _grouped(((rank, rows[rank][head + index]) for rank, index in copies), entry)
            if len(ranks) > 1:
                apart[entry.kind].append((entry.name, ranks))
        for rank, entries in enumerate(self._layouts):
            for index, entry in enumerate(entries):
                if entry.kind == "partial gradient" and rows[rank][head + index]:
                    apart["partial gradient"].append((entry.name, ((rank,),)))
        for i in range(self._every):
            yield from _tokens(numbers, i, update - self._every + 1 + i)
        forwards = _grouped((rank, row[0]) for rank, row in enumerate(rows))
        if len(forwards) > 1 and (self._sharded or apart["parameter"]):
            apart["update count"].insert(0, (f"the model: {', '.join(f'{n[0]:.0f}' for n in numbers)} forward passes", forwards))
        for kind, (condition, help_text) in _KINDS.items():
            if apart[kind]:
                (name, ranks), *rest = apart[kind]
                others = len({one for one, _ in rest} - {name})
                yield Finding(condition=condition, what=kind, name=name, others=others, ranks=ranks, update=update, help=help_text)


def _copies(layouts: list[list[_Entry]]) -> Iterator[tuple[_Entry, list[tuple[int, int]]]]:
    """Of each part of each tensor that several ranks have: the ranks that should have it alike, with the index of it on each."""
    found: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for rank, entries in enumerate(layouts):
        for index, entry in enumerate(entries):
            if entry.kind != "partial gradient":
                found[entry.kind, entry.name, entry.part].append((rank, index))
    for members in found.values():
        rest = dict(members)
        while rest:
            first = min(rest)
            reached, fresh = {first}, [first]
            while fresh:
                around = frozenset().union(*layouts[at := fresh.pop()][rest[at]].scopes)
                fresh += (new := around & rest.keys() - reached)
                reached |= new
            if len(reached) > 1:
                yield layouts[first][rest[first]], [(rank, rest[rank]) for rank in sorted(reached)]
            rest = {rank: index for rank, index in rest.items() if rank not in reached}


def _grouped(values: Iterable[tuple[int, int]], entry: _Entry | None = None) -> _Ranks:
    """Ranks by what they have. Norms of gradients are alike up to rounding, for copies may compute them; ranks without one are left out."""
    groups: dict[int, list[int]] = {}
    for rank, value in values:
        like = value
        if entry is not None and entry.kind == "gradient":
            if value == _NONE:
                continue
            like = next((one for one in groups if _close(one, value, entry.part[1])), value)
        groups.setdefault(like, []).append(rank)
    return tuple(map(tuple, groups.values()))


def _close(one: int, other: int, dtype: str) -> bool:
    tolerance: float = torch.finfo(getattr(torch, dtype.removeprefix("torch."))).eps ** 0.5
    return (
        one == other
        or math.isclose(_float(one), _float(other), rel_tol=tolerance)
        or (math.isnan(_float(one)) and math.isnan(_float(other)))
    )


def _tokens(numbers: list[list[float]], i: int, update: int) -> Iterator[Finding]:
    """Whether all losses of the i-th update divided by what the mean over all tokens asks for, to the rounding of float32."""
    of_ranks = [tuple(row[1 + 3 * i : 4 + 3 * i]) for row in numbers]
    right = sum(one[0] for one in of_ranks) / len(of_ranks)
    if any(tokens and not math.isclose(by, right, rel_tol=1e-6) for tokens, *divisors in of_ranks for by in divisors):
        by = ", ".join(
            "nothing" if not n else f"{least:.10g}" if least == most else f"{least:.10g} to {most:.10g}" for n, least, most in of_ranks
        )
        ranks = _grouped((rank, hash(one)) for rank, one in enumerate(of_ranks))
        name = f"the loss, which is divided by {by} and not by {right:.10g}"
        yield Finding(condition=_GRADIENT, what="token count", name=name, others=0, ranks=ranks, update=update, help=_TOKENS)


def _partial(p: Tensor) -> int:
    """Whether the gradient lies otherwise than its parameter, as a sum that nobody has taken does."""
    return int(isinstance(p, DTensor) and isinstance(p.grad, DTensor) and p.placements != p.grad.placements)


def _plain(name: str) -> str:
    """Without what wrappers add."""
    return ".".join(one for one in name.split(".") if one not in ("module", "_orig_mod", "_checkpoint_wrapped_module"))


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _digest(value: Any) -> bytes:
    """Of the bits of a tensor, or of plain data. Long tensors are added up by columns first, at the speed of memory. Of other objects: of
    their type alone, for how they are written may have addresses in it."""
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple):
        return repr([_digest(one) for one in value]).encode()
    if not isinstance(value, Tensor):
        return repr(value if value is None or isinstance(value, int | float | complex | str | bytes) else type(value)).encode()
    whole = _local(value.detach())
    if whole.is_sparse:
        whole = whole.coalesce()
        return _digest([whole.indices(), whole.values()])
    flat = whole.contiguous().view(-1)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    flat = flat.view(torch.uint8)
    rows = flat.numel() // (8 * _COLUMNS)
    cut = rows * 8 * _COLUMNS if rows > 1 else 0
    hashed = hashlib.blake2b(flat[cut:].cpu().numpy(), digest_size=8)
    if cut:
        hashed.update(flat[:cut].view(torch.int64).view(rows, _COLUMNS).sum(0).cpu().numpy())
    return hashed.digest()


def _hash(value: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), signed=True)


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _float(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
