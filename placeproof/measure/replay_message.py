"""What buffers hold, as bytes that another process of the same run can read."""

from __future__ import annotations

import io
import pickle
from typing import Any

from placeproof.semantics.meaning.world import Columns, World


def packed(value: Any) -> bytes:
    """A value without what every process knows."""
    found = io.BytesIO()
    _Pickler(found).dump(value)
    return found.getvalue()


def unpacked(world: World, data: bytes) -> Any:
    """The value, in this process's world."""
    return _Unpickler(world, data).load()


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> tuple[int, ...] | None:
        """Elements by their numbers."""
        return value.numbers if isinstance(value, Columns) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, world: World, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._world = world

    def persistent_load(self, numbers: tuple[int, ...]) -> Columns:
        """These elements."""
        return self._world.columns(numbers)
