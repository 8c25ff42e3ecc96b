"""Arrays of fractions on the wire: whole numbers over one denominator, in digits that gloo adds up and compares.

The devices of a group tell one another their denominators first. Then a number is its numerator over the common one, in two's complement,
in digits of 32 bits, each in an int64. Sums of digits do not overflow, and are the digits of the sum once the carries are taken; the
greatest number is found digit by digit, from the highest one on. So sums and maxima are exact, and are gloo's own.

What else buffers hold travels as bytes that another process of the same run can read.
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

from placeproof.core.program import Call
from placeproof.measure.replay_mesh import Group, Mesh
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import NOTHING, IrrationalError, Nothing, Root
from placeproof.semantics.meaning.world import Columns, World

#: What a number is: a fraction; the root of one that is no fraction; what stands where nothing is held.
FRACTION, ROOT, NONE = range(3)
_BITS = 32
_MASK = (1 << _BITS) - 1
#: What sums over a group may add to the length of a number: there are at most 64 processes.
_SLACK = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Coded:
    """An array's numbers: ``digits[number, digit]``, the lowest first, over a denominator; ``kinds[number]``."""

    digits: Tensor
    kinds: Tensor
    denominator: int


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """The exchanges of one collective in one group. Arrays of all its devices have one shape."""

    mesh: Mesh
    group: Group
    call: Call

    def some(self, have: Array) -> Array:
        """Whether some device has it."""
        return self._greatest_of(torch.from_numpy(have.astype(np.int64))).numpy().astype(bool)

    def combined(self, x: Array, op: str, root: int | None = None) -> Array:
        """Sums, means or the greatest: everywhere, or on the rank ``root`` alone (elsewhere they mean nothing)."""
        coded = self._coded(x)
        kinds = self._kinds(coded)
        find = self._greatest if op == "max" else self._sum
        digits = find(coded.digits, root)
        return self._mean(_decoded(digits, kinds, coded.denominator, x.shape), op)

    def scattered(self, rows: Array, op: str) -> Array:
        """Row j of every device's rows, combined on the j-th device."""
        if op == "max":  # gloo scatters sums alone
            return self.combined(rows, op)[self.group.me]
        coded = self._coded(rows)
        kinds = self._kinds(coded).reshape(len(rows), -1)[self.group.me]
        digits = self.mesh.own_sum(self.group, coded.digits.reshape(len(rows), -1, coded.digits.shape[-1]), self.call)
        return self._mean(_decoded(digits, kinds, coded.denominator, rows.shape[1:]), op)

    def collected(self, x: Array) -> list[Array]:
        """Every device's numbers."""
        coded = self._coded(x)
        return [self._unpacked(one, coded, x.shape) for one in self.mesh.collect(self.group, _packed(coded), self.call)]

    def swapped(self, rows: Sequence[Array]) -> list[Array]:
        """Row j goes to the j-th device: the rows that the others have for this one."""
        coded = self._coded(np.stack(rows))
        packed = _packed(coded)
        found = self.mesh.swapped(self.group, packed.reshape(len(rows), -1, packed.shape[-1]), self.call)
        return [self._unpacked(one, coded, rows[0].shape) for one in found]

    def spread(self, x: Array, root: int) -> Array:
        """The numbers of the rank ``root``."""
        coded = self._coded(x)
        return self._unpacked(self.mesh.spread(self.group, _packed(coded), root, self.call), coded, x.shape)

    # Encoding.

    def _coded(self, x: Array) -> _Coded:
        numbers, kinds = zip(*(_plain(one) for one in x.reshape(-1)), strict=True)
        own = math.lcm(*(n.denominator for n in numbers))
        longest = max(abs(n.numerator).bit_length() + (own // n.denominator).bit_length() for n in numbers)
        told = [one.split() for one in self.mesh.told(self.group, f"{own:x} {longest - own.bit_length()}", self.call)]
        denominator = math.lcm(*(int(d, 16) for d, _ in told))
        bits = max(int(n) for _, n in told) + 1 + denominator.bit_length() + _SLACK
        whole = [n.numerator * (denominator // n.denominator) for n in numbers]
        return _Coded(_digits(whole, bits // _BITS + 1), torch.tensor(kinds), denominator)

    def _kinds(self, coded: _Coded) -> Tensor:
        """What becomes of numbers of several kinds: nothing where one is nothing. Raises IrrationalError for roots."""
        found = self._greatest_of(coded.kinds)
        if bool((found == ROOT).any()):
            raise IrrationalError
        return found

    def _greatest_of(self, mine: Tensor) -> Tensor:
        return self.mesh.combined(self.group, mine, "max", self.call)

    def _sum(self, digits: Tensor, root: int | None) -> Tensor:
        return self.mesh.combined(self.group, digits, "sum", self.call, root)

    def _greatest(self, digits: Tensor, root: int | None) -> Tensor:
        """Digit by digit from the highest on: only who still has the greatest takes part. The highest one has the sign."""
        found, alive = torch.empty_like(digits), torch.ones(len(digits), dtype=torch.bool)
        for k in reversed(range(digits.shape[1])):
            column = digits[:, k] - ((digits[:, k] >> (_BITS - 1)) << _BITS) if k == digits.shape[1] - 1 else digits[:, k]
            offered = torch.where(alive, column, torch.full_like(column, -(1 << 62)))
            best = self.mesh.combined(self.group, offered, "max", self.call, root if k == 0 else None)
            found[:, k], alive = best & _MASK, alive & (column == best)
        return found

    def _mean(self, total: Array, op: str) -> Array:
        return total / Fraction(self.group.size) if op == "mean" else total

    def _unpacked(self, packed: Tensor, coded: _Coded, shape: tuple[int, ...]) -> Array:
        return _decoded(packed[:, :-1], packed[:, -1], coded.denominator, shape)


def _plain(number: object) -> tuple[Fraction, int]:
    if isinstance(number, Nothing):
        return Fraction(0), NONE
    if isinstance(number, Root):
        return Fraction(number.square), ROOT
    assert isinstance(number, Fraction | int)
    return Fraction(number), FRACTION


def _packed(coded: _Coded) -> Tensor:
    return torch.cat([coded.digits, coded.kinds[:, None]], dim=1)


def _digits(whole: Sequence[int], count: int) -> Tensor:
    raw = b"".join(n.to_bytes(count * _BITS // 8, "little", signed=True) for n in whole)
    return torch.from_numpy(np.frombuffer(raw, dtype="<u4").astype(np.int64).reshape(len(whole), count))


def _decoded(digits: Tensor, kinds: Tensor, denominator: int, shape: tuple[int, ...]) -> Array:
    rows = digits.numpy().copy()
    carry: Array = np.zeros(len(rows), dtype=np.int64)
    for k in range(rows.shape[1]):
        carry += rows[:, k]
        rows[:, k], carry = carry & _MASK, carry >> _BITS
    found: Array = np.empty(len(rows), dtype=object)
    for n, (row, kind) in enumerate(zip(rows.astype("<u4"), kinds.tolist(), strict=True)):
        number = Fraction(int.from_bytes(row.tobytes(), "little", signed=True), denominator)
        found[n] = NOTHING if kind == NONE else Root(number) if kind == ROOT else number
    return found.reshape(shape)


# Bytes.


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
