"""What one device holds of a tensor, and what it computes from that: the numbers behind `manual_block_interpreter.py`.

It was written from the manual alone.

Of each dimension a device holds all of it, or the positions that it owns along one axis or several; who owns what is drawn, and uneven.
Two operands that hold different positions of a dimension do not fit, as two arrays of different lengths do not. `hot` makes what is asked.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placeproof.programs import Program
from placeproof.programs.ir import calls, statements

Device = tuple[int, ...]
#: Of each axis that cuts a dimension: how many devices away the owner is.
Layout = tuple[tuple[str, int], ...]


class WrongError(Exception):
    """A device has something else than one device has, or what no device could compute."""


class UndecidedError(Exception):
    """The manual does not say what this does."""


@dataclass(frozen=True)
class T:
    """What a device has of a tensor: of each dimension its layout, and the elements in the order of the dimensions.

    ``bends``: dimensions of `hot`, of which a device makes what the other operand holds. ``picks``: elements are positions along it.
    """

    dims: dict[str, Layout]
    data: np.ndarray
    bends: frozenset[str] = frozenset()
    picks: str | None = None


Everywhere = dict[Device, "T | None"]


@dataclass
class Mesh:
    """Degrees, sizes of dimensions, and who owns which position of a dimension along an axis."""

    degrees: dict[str, int]
    sizes: dict[str, int]
    owners: dict[tuple[str, str], np.ndarray]

    def devices(self) -> list[Device]:
        return list(itertools.product(*(range(n) for n in self.degrees.values())))

    def at(self, device: Device, axis: str) -> int:
        return device[list(self.degrees).index(axis)]

    def group(self, device: Device, axes: Sequence[str]) -> list[Device]:
        """The devices that differ from this one along these axes alone."""
        names = list(self.degrees)
        return [d for d in self.devices() if all(a == b for name, a, b in zip(names, d, device, strict=True) if name not in axes)]

    def held(self, device: Device, dim: str, layout: Layout) -> np.ndarray:
        """The positions of a dimension that a device holds."""
        mine = np.ones(self.sizes[dim], bool)
        for axis, away in layout:
            mine &= self.owners[dim, axis] == (self.at(device, axis) - away) % self.degrees[axis]
        return np.flatnonzero(mine)


def draw_mesh(program: Program, degrees: dict[str, int], rng: np.random.Generator, given: dict[str, int] | None = None) -> Mesh:
    """Sizes and owners: each combination of devices that can own a part of a dimension owns some of it."""
    least = 1 + rng.integers(2)
    cut: dict[str, set[str]] = {}
    for t in program.tensors:
        for dim in (*t.dims, *([t.picks] if t.picks else [])):
            cut.setdefault(dim, set())
        for axis, dim in t.split:
            cut[dim].add(axis)
    for call in (c for s in statements(program.body) for c in calls(s)):
        said = (call.option("dim") or "").split()
        for axis, dim in zip(call.axes, said if len(said) > 1 else said * len(call.axes), strict=False):
            cut.setdefault(dim, set()).add(axis)
    sizes, owners = {}, {}
    for dim, axes in cut.items():
        every = list(itertools.product(*(range(degrees.get(a, 1)) for a in sorted(axes))))
        sizes[dim] = max(len(every), least + rng.integers(4 - least)) + (rng.integers(2) if len(every) > 1 else 0)
        sizes[dim] = (given or {}).get(dim, sizes[dim])
        each = (every + [every[rng.integers(len(every))] for _ in range(sizes[dim] - len(every))])[: sizes[dim]]
        order = rng.permutation(len(each))
        for n, axis in enumerate(sorted(axes)):
            owners[dim, axis] = np.array([each[i][n] for i in order])
    return Mesh(degrees, sizes, owners)


# Arithmetic of what one device holds.


def spread(x: T, dims: dict[str, Layout]) -> np.ndarray:
    """The elements, along these dimensions in this order."""
    data = np.transpose(x.data, [list(x.dims).index(d) for d in dims if d in x.dims])
    return np.expand_dims(data, tuple(n for n, d in enumerate(dims) if d not in x.dims))


def aligned(mesh: Mesh, device: Device, a: T, b: T) -> tuple[T, T, dict[str, Layout]]:
    """Two operands with the same positions of each dimension that both have."""
    if a.picks or b.picks:
        raise UndecidedError("arithmetic with positions")
    for dim in set(a.dims) & set(b.dims):
        if a.dims[dim] != b.dims[dim]:
            if dim in a.bends and not a.dims[dim]:
                a = cut(mesh, device, a, dim, b.dims[dim])
            elif dim in b.bends and not b.dims[dim]:
                b = cut(mesh, device, b, dim, a.dims[dim])
            else:
                raise WrongError(f"the parts of `{dim}` do not fit")
    return a, b, a.dims | b.dims


def cut(mesh: Mesh, device: Device, x: T, dim: str, layout: Layout) -> T:
    """Of what a device has, what it would hold with another layout of one dimension."""
    have, want = mesh.held(device, dim, x.dims[dim]), mesh.held(device, dim, layout)
    index = [n for n, p in enumerate(have) if p in set(want)]
    return replace(x, dims=x.dims | {dim: layout}, data=np.take(x.data, index, list(x.dims).index(dim)), bends=x.bends - {dim})


def greater(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a.real >= b.real, a, b)


OPERATORS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "max": greater,
}


def together(mesh: Mesh, device: Device, op: str, a: T, b: T) -> T:
    a, b, dims = aligned(mesh, device, a, b)
    bends = frozenset(d for d in dims if all(d in x.bends for x in (a, b) if d in x.dims))
    return T(dims, OPERATORS[op](spread(a, dims), spread(b, dims)), bends)


def over(x: T, dim: str | None, op: str) -> T:
    """A sum or a greatest value over what a device holds of a dimension."""
    if dim not in x.dims or x.picks:
        raise UndecidedError(f"`{op}` over a dimension that is not there")
    n = list(x.dims).index(dim)
    best = np.expand_dims(x.data.real.argmax(n), n)
    data = np.take_along_axis(x.data, best, n).squeeze(n) if op == "largest" else x.data.sum(n)
    return T({d: a for d, a in x.dims.items() if d != dim}, data, x.bends - {dim})


def function(name: str, seed: int, x: np.ndarray, slope: bool) -> np.ndarray:
    """`exp`, `log` (of the absolute value) and `reciprocal` are known; any other function is drawn by its name."""
    if name == "stop":
        return np.zeros_like(x) if slope else x.real + 0 * x.real
    if name == "exp":
        return np.exp(x)
    if name == "log":
        return 1 / x if slope else np.log(np.where(x.real < 0, -x, x))
    if name == "reciprocal":
        return -1 / x**2 if slope else 1 / x
    a, b, c, d = np.random.default_rng([seed, zlib.crc32(name.encode())]).uniform(0.5, 1.5, 4)
    return a * b * np.cos(b * x + d) + c if slope else a * np.sin(b * x + d) + c * x
