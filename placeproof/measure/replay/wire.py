"""Arrays of fractions on the wire: whole numbers over one denominator, in digits that gloo adds up and compares.

The devices of a group tell one another their denominators first. Then a number is its numerator over the common one, in two's complement,
in digits of 32 bits, each in an int64. Sums of digits do not overflow, and are the digits of the sum once the carries are taken; the
greatest number is found digit by digit, from the highest one on. So sums and maxima are exact, and are gloo's own.

What is not computed with on its way travels as bytes that another process of the same run can read.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from placeproof.measure.replay.mesh import Group, Mesh, in_bytes
from placeproof.programs import Call
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import NOTHING, IrrationalError, Nothing, Root
from placeproof.semantics.meaning.world import Columns, World

#: What a number is: a fraction; a root that is no fraction; what stands where nothing is held.
FRACTION, ROOT, NONE = range(3)
_BITS = 32
_MASK = (1 << _BITS) - 1
#: What sums over a group may add to the length of a number: there are at most 64 processes.
_SLACK = 8


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """The exchanges of one collective in one group. Arrays that are combined have one shape on all its devices."""

    mesh: Mesh
    group: Group
    call: Call

    def some(self, have: Array) -> Array:
        """Whether some device has it."""
        return self._greatest_of(torch.from_numpy(have.astype(np.int64))).numpy().astype(bool)

    def combined(self, x: Array, op: str, root: int | None = None) -> Array:
        """Sums, means or the greatest: everywhere, or on the rank ``root`` alone (elsewhere they mean nothing)."""
        digits, kinds, denominator = self._coded(x)
        digits_combined = self._greatest(digits, root) if op == "max" else self.mesh.combined(self.group, digits, "sum", self.call, root)
        return self._mean(_decoded(digits_combined, kinds, denominator, x.shape), op)

    def scattered(self, rows: Array, op: str) -> Array:
        """Row j of every device's rows, combined on the j-th device."""
        if op == "max":  # gloo scatters sums alone
            return self.combined(rows, op)[self.group.me]
        digits, kinds, denominator = self._coded(rows)
        own = self.mesh.own_sum(self.group, digits.reshape(len(rows), -1, digits.shape[-1]), self.call)
        return self._mean(_decoded(own, kinds.reshape(len(rows), -1)[self.group.me], denominator, rows.shape[1:]), op)

    # What is read as it was sent; the bytes are filled up to the longest.

    def collected(self, value: Any) -> list[Any]:
        """Every device's value, by rank."""
        data = pickle.dumps(value)
        longest = max(int(n) for n in self.mesh.collect(self.group, torch.tensor([len(data)]), self.call))
        return [pickle.loads(part.numpy()) for part in self.mesh.collect(self.group, in_bytes(data.ljust(longest)), self.call)]

    def swapped(self, values: Sequence[Any]) -> list[Any]:
        """Value j goes to the j-th device: the values that the others have for this one."""
        data = [pickle.dumps(part) for part in values]
        longest = max(self.collected(max(map(len, data))))
        rows = torch.stack([in_bytes(part.ljust(longest)) for part in data])
        return [pickle.loads(part.numpy()) for part in self.mesh.swapped(self.group, rows, self.call)]

    def spread(self, value: Any, root: int) -> Any:
        """The value of the rank ``root``."""
        data = pickle.dumps(value)
        length = int(self.mesh.spread(self.group, torch.tensor([len(data)]), root, self.call))
        return pickle.loads(self.mesh.spread(self.group, in_bytes(data[:length].ljust(length)), root, self.call).numpy())

    # Digits.

    def _coded(self, x: Array) -> tuple[Tensor, Tensor, int]:
        """An array's numbers: ``digits[number, digit]``, the lowest first, over a denominator; and ``kinds[number]`` of the whole group:
        nothing where one is nothing. Raises IrrationalError for roots."""
        numbers, kinds = zip(*(_plain(number) for number in x.reshape(-1)), strict=True)
        own = math.lcm(*(n.denominator for n in numbers))
        longest = max(abs(n.numerator).bit_length() + (own // n.denominator).bit_length() for n in numbers)
        fractions = self.collected((own, longest - own.bit_length()))
        denominator = math.lcm(*(d for d, _ in fractions))
        bits = max(n for _, n in fractions) + 1 + denominator.bit_length() + _SLACK
        whole = [n.numerator * (denominator // n.denominator) for n in numbers]
        codes = self._greatest_of(torch.tensor(kinds))
        if bool((codes == ROOT).any()):
            raise IrrationalError
        return _digits(whole, bits // _BITS + 1), codes, denominator

    def _greatest_of(self, mine: Tensor) -> Tensor:
        return self.mesh.combined(self.group, mine, "max", self.call)

    def _greatest(self, digits: Tensor, root: int | None) -> Tensor:
        """Digit by digit from the highest on: only who still has the greatest takes part. The highest one has the sign."""
        greatest, alive = torch.empty_like(digits), torch.ones(len(digits), dtype=torch.bool)
        for k in reversed(range(digits.shape[1])):
            column = digits[:, k] - ((digits[:, k] >> (_BITS - 1)) << _BITS) if k == digits.shape[1] - 1 else digits[:, k]
            offered = torch.where(alive, column, torch.full_like(column, -(1 << 62)))
            best = self.mesh.combined(self.group, offered, "max", self.call, root if k == 0 else None)
            greatest[:, k], alive = best & _MASK, alive & (column == best)
        return greatest

    def _mean(self, total: Array, op: str) -> Array:
        return total / Fraction(self.group.size) if op == "mean" else total


def _plain(number: object) -> tuple[Fraction, int]:
    if isinstance(number, Nothing | Root):
        return Fraction(0), ROOT if isinstance(number, Root) else NONE
    assert isinstance(number, Fraction | int)
    return Fraction(number), FRACTION


def _digits(whole: Sequence[int], count: int) -> Tensor:
    raw = b"".join(n.to_bytes(count * _BITS // 8, "little", signed=True) for n in whole)
    return torch.from_numpy(np.frombuffer(raw, dtype="<u4").astype(np.int64).reshape(len(whole), count))


def _decoded(digits: Tensor, kinds: Tensor, denominator: int, shape: tuple[int, ...]) -> Array:
    rows = digits.numpy().copy()
    carry: Array = np.zeros(len(rows), dtype=np.int64)
    for k in range(rows.shape[1]):
        carry += rows[:, k]
        rows[:, k], carry = carry & _MASK, carry >> _BITS
    numbers: Array = np.empty(len(rows), dtype=object)
    for n, (row, kind) in enumerate(zip(rows.astype("<u4"), kinds.tolist(), strict=True)):
        numbers[n] = NOTHING if kind == NONE else Fraction(int.from_bytes(row.tobytes(), "little", signed=True), denominator)
    return numbers.reshape(shape)


# Bytes.


def packed(value: Any) -> bytes:
    """A value without what every process knows."""
    stream = io.BytesIO()
    _Pickler(stream).dump(value)
    return stream.getvalue()


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
