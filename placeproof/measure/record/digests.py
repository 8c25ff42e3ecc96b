"""What tells the values of tensors apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.shadow import local

#: Elements of a tensor that are kept.
_ELEMENTS = 1024


def bytes_of(tensor: Tensor) -> bytes:
    """Those of its elements, in order."""
    with _disable_current_modes(), torch.no_grad():
        flat = tensor.detach().reshape(-1).cpu().clone(memory_format=torch.contiguous_format)
        made: bytes = flat.view(torch.uint8).numpy().tobytes()
        return made


def places(count: int) -> Tensor:
    """Some of so many elements, in equal distances."""
    return torch.arange(min(count, _ELEMENTS)) * count // max(min(count, _ELEMENTS), 1)


def some(tensor: Tensor) -> NDArray[np.float64]:
    """The values of those elements."""
    with _disable_current_modes():
        flat = local(tensor).detach().reshape(-1)
        row: NDArray[np.float64] = flat[places(flat.numel()).to(flat.device)].double().cpu().numpy().copy()
        return row


def digest(tensor: Tensor) -> str:
    """What tells the values of two tensors apart."""
    with _disable_current_modes(), torch.no_grad():
        whole = tensor if tensor.layout == torch.strided else tensor.to_dense()
        return hashlib.sha256(str(tuple(whole.shape)).encode() + bytes_of(whole)).hexdigest()[:16]


def by_row(tensors: Iterable[Tensor], rows: int) -> list[tuple[str, ...]]:
    """Of tensors that have something of each of so many samples, what tells the parts of these apart; nothing of what only numbers them."""
    kept = []
    with _disable_current_modes():
        for tensor in (local(t) for t in tensors if rows and t.numel()):
            if tensor.layout == torch.strided and tensor.numel() % rows == 0 and not _numbers(tensor):
                kept.append(tuple(digest(row) for row in tensor.detach().reshape(rows, -1)))
    return kept


def _numbers(tensor: Tensor) -> bool:
    """Whether a tensor numbers samples, or says where each begins in a row of all: two or three numbers may be so by chance."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        return False
    flat = tensor.detach().reshape(-1)
    size = int(flat[1]) if flat.numel() > 3 and flat[1] > 0 else 1
    return bool(torch.equal(flat, torch.arange(flat.numel()).to(flat.dtype) * size))


def of_buffers(model: nn.Module | None, *, read: bool) -> dict[str, str]:
    """Digests of a model's buffers, by name: of all, or of those that it may ``read`` in training, which are no running statistics."""
    with _disable_current_modes():
        return {
            f"{path}.{name}".removeprefix("module.").removeprefix("."): digest(local(buffer))
            for path, module in (() if model is None else model.named_modules())
            for name, buffer in module.named_buffers(recurse=False)
            if not buffer.is_meta and not (read and isinstance(module, _NormBase) and module.training)
        }
