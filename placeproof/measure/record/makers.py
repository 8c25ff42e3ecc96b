"""Where tensors were made that no model has made: by which operation of which line of the script, and which one of several alike.

Ranks that are stages of one pipeline read parts of the same samples: what two of them make in the same place has to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from torch import Tensor

from placeproof.measure.record.digests import digest
from placeproof.measure.record.recording import Maker, Recording, Rows, Source
from placeproof.measure.record.shadow import local, storage


class Makers:
    """Follows operations outside of all modules. What comes from another rank was made there."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._of: dict[int, tuple[Maker, int]] = {}

    def made(self, name: str, tensors: Iterable[Tensor], line: int) -> None:
        """An operation has made tensors, or written to them."""
        for tensor in tensors:
            if tensor.requires_grad or not tensor.numel() or type(tensor) is not Tensor or tensor.is_meta:
                continue
            known = self._of.get(storage(tensor)) if name.endswith("_") else None
            maker, number = known or self._begun(name, tensor, line)
            self.recording.made[maker][number] = "" if name.startswith(("empty", "new_empty")) else digest(tensor)

    def _begun(self, name: str, tensor: Tensor, line: int) -> tuple[Maker, int]:
        maker = (line, name, str(tensor.dtype), tuple(tensor.shape))
        alike = self.recording.made.setdefault(maker, [])
        alike.append("")
        self._of[storage(tensor)] = maker, len(alike) - 1
        return maker, len(alike) - 1

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
    return int(tensor.storage_offset()) // row, step // row, tensor.shape[0] if step >= row else 0, total
