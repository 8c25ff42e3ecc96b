"""Where tensors were made that no model has made: by which operation of which line of the script, and which one of several alike.

Ranks that are stages of one pipeline read parts of the same samples: what two of them make in the same place has to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.digests import bytes_of, digest
from placeproof.measure.record.recording import Instead, Maker, Recording, Rows, Source, indices
from placeproof.measure.record.shadow import local, storage

#: Tensors of more bytes are not kept.
_LARGE = 1 << 24


class Makers:
    """Follows operations outside of all modules. What comes from another rank was made there. ``contents``: the bytes of what was made,
    where they are kept; ``instead``: of what is to be written to it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.contents: dict[tuple[Maker, int], bytes] | None = None
        self.instead: Instead = {}
        self._of: dict[int, tuple[Maker, int]] = {}
        self._strides: dict[tuple[Maker, int], tuple[tuple[int, ...], int]] = {}

    def made(self, name: str, tensors: Iterable[Tensor], line: int) -> None:
        """An operation has made tensors, or written to them."""
        for tensor in tensors:
            if tensor.requires_grad or not tensor.numel() or type(tensor) is not Tensor or tensor.is_meta:
                continue
            known = self._of.get(storage(tensor)) if name.endswith("_") else None
            maker, number = known or self._begun(name, tensor, line)
            if self.contents is not None:
                self._kept(tensor, (maker, number))
            self.recording.made[maker][number] = "" if name.startswith(("empty", "new_empty")) else digest(tensor)

    def _begun(self, name: str, tensor: Tensor, line: int) -> tuple[Maker, int]:
        maker = (line, name, str(tensor.dtype), tuple(tensor.shape))
        alike = self.recording.made.setdefault(maker, [])
        alike.append("")
        self._of[storage(tensor)] = maker, len(alike) - 1
        self._strides[maker, len(alike) - 1] = tensor.stride(), int(tensor.storage_offset())
        return maker, len(alike) - 1

    def _kept(self, tensor: Tensor, place: tuple[Maker, int]) -> None:
        """Write to a tensor what it is to hold instead, and keep what it holds, all of it where a part was written."""
        assert self.contents is not None
        with _disable_current_modes(), torch.no_grad():
            tensor = tensor.as_strided(place[0][3], *self._strides[place])
        if tensor.numel() * tensor.element_size() > _LARGE:
            return
        held = bytearray(bytes_of(tensor))
        for rows, values in self.instead.get(place, ()):
            width = len(held) // rows[3]
            for number, row in enumerate(indices(rows)):
                held[row * width : (row + 1) * width] = values[number * width : (number + 1) * width]
        if place in self.instead:
            with _disable_current_modes(), torch.no_grad():
                tensor.copy_(torch.frombuffer(held, dtype=tensor.dtype).view(tensor.shape))
        self.contents[place] = bytes(held)

    def received(self, tensors: Iterable[Tensor]) -> None:
        """Other ranks have written to these."""
        for tensor in tensors:
            self._of.pop(storage(tensor), None)

    def of(self, tensors: Iterable[Tensor]) -> set[Source]:
        """Where tensors were made, as far as this rank has made them."""
        return {(*self._of[storage(t)], _rows(t, self._of[storage(t)][0])) for t in map(local, tensors) if storage(t) in self._of}


def _rows(tensor: Tensor, maker: Maker) -> Rows:
    """Which rows of what was made a tensor has."""
    (total, *rest) = maker[3] or (1,)
    row, step = prod(rest), tensor.stride(0) if tensor.dim() else 0
    if tensor.is_contiguous() and tensor.storage_offset() % row == tensor.numel() % row == 0:
        return int(tensor.storage_offset()) // row, 1, tensor.numel() // row, total
    return int(tensor.storage_offset()) // row, step // row, tensor.shape[0] if step >= row else 0, total
