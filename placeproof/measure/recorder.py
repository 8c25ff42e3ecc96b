"""What a running program exchanges, seen where PyTorch dispatches its collectives.

Every collective of ``torch.distributed`` ends in an operation of the namespaces ``c10d`` or ``_c10d_functional``: those of the reducer of
DistributedDataParallel, of FSDP, of DTensor and of pipelines alike (torch==2.13.0: distributed/_tools/fake_collectives.py lists them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from placeproof.core.exchange import Exchange

#: Of the operations that exchange data.
NAMESPACES = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"))


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """What an operation exchanges: a kind, the argument that its bytes are read off, and whether that is one device's part of it."""

    kind: str
    argument: str
    part: bool = False


#: By name, whichever namespace. What is counted is what :class:`Exchange` says.
TABLE: Mapping[str, RecordedOperation] = {
    "all_gather_into_tensor": RecordedOperation("all_gather", "input", part=True),
    "all_gather_into_tensor_coalesced": RecordedOperation("all_gather", "inputs", part=True),
    "all_gather_into_tensor_out": RecordedOperation("all_gather", "input", part=True),
    "all_reduce": RecordedOperation("all_reduce", "input"),
    "all_reduce_": RecordedOperation("all_reduce", "input"),
    "all_reduce_coalesced": RecordedOperation("all_reduce", "inputs"),
    "all_reduce_coalesced_": RecordedOperation("all_reduce", "inputs"),
    "all_to_all_single": RecordedOperation("all_to_all", "input"),
    "allgather_": RecordedOperation("all_gather", "output_tensors"),
    "allgather_coalesced_": RecordedOperation("all_gather", "output_lists"),
    "_allgather_base_": RecordedOperation("all_gather", "output_tensor"),
    "allgather_into_tensor_coalesced_": RecordedOperation("all_gather", "outputs"),
    "allreduce_": RecordedOperation("all_reduce", "tensors"),
    "allreduce_coalesced_": RecordedOperation("all_reduce", "tensors"),
    "alltoall_": RecordedOperation("all_to_all", "input_tensors"),
    "alltoall_base_": RecordedOperation("all_to_all", "input"),
    "broadcast": RecordedOperation("broadcast", "input"),
    "broadcast_": RecordedOperation("broadcast", "input"),
    "gather_": RecordedOperation("gather", "input_tensors", part=True),
    "irecv": RecordedOperation("recv", "tensor"),
    "isend": RecordedOperation("send", "tensor"),
    "recv_": RecordedOperation("recv", "tensors"),
    "recv_any_source_": RecordedOperation("recv", "tensors"),
    "reduce_": RecordedOperation("reduce", "tensors"),
    "reduce_scatter_": RecordedOperation("reduce_scatter", "input_tensors"),
    "_reduce_scatter_base_": RecordedOperation("reduce_scatter", "input_tensor"),
    "reduce_scatter_tensor": RecordedOperation("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced": RecordedOperation("reduce_scatter", "inputs"),
    "reduce_scatter_tensor_coalesced_": RecordedOperation("reduce_scatter", "inputs"),
    "reduce_scatter_tensor_out": RecordedOperation("reduce_scatter", "input"),
    "scatter_": RecordedOperation("scatter", "output_tensors", part=True),
    "send": RecordedOperation("send", "tensors"),
    "shard_dim_alltoall": RecordedOperation("all_to_all", "input"),
}
#: Operations that move no data between devices, or none of the program's.
SILENT = frozenset(
    ("_wrap_tensor_autograd", "barrier", "check_for_nan", "mesh_get_process_group", "monitored_barrier_", "wait_tensor"),
)
#: What PyTorch calls reductions, by what an :class:`Exchange` calls them.
_OPS = {"avg": "mean", "sum": "sum", "max": "max", "min": "min", "product": "product"}


def axes_of_groups(mesh: DeviceMesh, axes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Which axes each process group of this rank spans, by the group's name: one group of all axes, and one for each.

    ``axes``: what the mesh's dimensions are called, in order.
    """
    groups = {str(torch.distributed.distributed_c10d._get_default_group().group_name): tuple(axes)}
    return groups | {str(mesh.get_group(i).group_name): (axis,) for i, axis in enumerate(axes)}


class Recorder(TorchDispatchMode):
    """Notes every exchange that is dispatched while it is active, in order, as one :class:`Exchange` a call.

    ``axes``: the mesh axes by the name of a process group. ``phase``: what is being done, set from outside; :meth:`mark` overrides it for
    one tensor. ``dtypes``: the element type of each exchange. A collective that is not known, or one over a group of another name,
    raises LookupError. A call about several tensors counts all of their bytes.
    """

    def __init__(self, axes: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__()
        self.axes = dict(axes)
        self.phase = ""
        self.exchanges: list[Exchange] = []
        self.dtypes: list[str] = []
        self._marks: dict[tuple[int, int], str] = {}

    def take(self) -> tuple[Exchange, ...]:
        """What was noted since the last time, which is forgotten."""
        taken = tuple(self.exchanges)
        self.exchanges.clear()
        self.dtypes.clear()
        return taken

    def mark(self, tensor: Tensor, phase: str) -> None:
        """From now on, a message that carries this tensor belongs to a phase, whatever else is going on."""
        self._marks[_address(tensor)] = phase

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Note the operation if it is a collective, and run it."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # it comes back as operations on local tensors
        if func.namespace in NAMESPACES:
            self._note(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        name = func._schema.name.rpartition("::")[2]
        if name in SILENT:
            return
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | dict(kwargs)
        if name == "batch_p2p_ops":
            for what, tensor in zip(given["op_list"], given["tensors"], strict=True):
                self._add(what.removeprefix("i"), given, [tensor])
        elif name not in TABLE:
            raise LookupError(f"torch dispatched `{func}`, an operation of `{func.namespace}` that this recorder does not know")
        else:
            row = TABLE[name]
            argument = row.argument if row.argument in given else "tensors"  # `broadcast_` is in both namespaces
            self._add(row.kind, given, list(tensors_of(given[argument])), part=row.part)

    def _add(self, kind: str, given: Mapping[str, Any], tensors: list[Tensor], *, part: bool = False) -> None:
        group = group_name(given.get("process_group", given.get("group_name")))
        if group not in self.axes:
            known = ", ".join(f"{name!r} for {'*'.join(axes)}" for name, axes in self.axes.items())
            raise LookupError(f"a collective ({kind}) over the process group {group!r}, which is none of the mesh; known are {known}")
        size = sum(t.numel() * t.element_size() for t in tensors)
        if part:
            size *= torch.distributed.distributed_c10d._resolve_process_group(group).size()
        phase = self._marks.get(_address(tensors[0]), self.phase) if tensors else self.phase
        self.exchanges.append(Exchange(kind=kind, axes=self.axes[group], bytes=size, op=reduction(given.get("reduce_op")), phase=phase))
        self.dtypes.append(str(tensors[0].dtype).removeprefix("torch.") if tensors else "")


def tensors_of(value: Any) -> Iterable[Tensor]:
    """The tensors of an argument: itself, or those of a list, or of a list of lists."""
    if isinstance(value, Tensor):
        yield value
    else:
        for part in value:
            yield from tensors_of(part)


def group_name(group: Any) -> str:
    """The name of a group that is given by its name, as an object, or as the object's box."""
    if isinstance(group, torch.ScriptObject):
        group = ProcessGroup.unbox(group)
    return str(group.group_name if isinstance(group, ProcessGroup) else group)


def reduction(op: Any) -> str:
    """How a reduction combines, empty where there is none: given by name, or as the box of a ReduceOp."""
    if op is None:
        return ""
    name = op if isinstance(op, str) else ReduceOp.RedOpType(op.op()).name
    return _OPS.get(name.lower(), name.lower())


def _address(tensor: Tensor) -> tuple[int, int]:
    """What tells the contents of two tensors apart while both exist."""
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())
