"""Which mesh axes a group of ranks spans: those of the script's mesh, or axes that are made up from its groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from math import prod

from placeproof.core.diagnostics import Diagnostic, InputError, refuse


@dataclass(slots=True)
class Grid:
    """The axes with their sizes, the slowest first, as in a DeviceMesh. ``inner``: axes of which sub-groups are used, with their sizes.
    ``made``: the names are ours. ``stages``: the axis along which stages of a pipeline lie, empty for none."""

    sizes: dict[str, int]
    made: bool = False
    inner: dict[str, int] = field(default_factory=dict)
    stages: str = ""

    @property
    def alike(self) -> int:
        """How many ranks hold the same parameters, or parts of these: all, or those of one stage."""
        return prod(self.sizes.values()) // self.sizes.get(self.stages, 1)

    @property
    def ends(self) -> str:
        """What the first and the last stage together are called, where there are others between them."""
        return f"{self.stages}_ends"

    def stride(self, axis: str) -> int:
        """How far apart two neighbours on an axis are, as ranks of the world."""
        names = list(self.sizes)
        return prod(self.sizes[n] for n in names[names.index(axis) + 1 :])

    def place(self, rank: int, axis: str) -> int:
        """Which one a rank is on an axis."""
        return rank // self.stride(axis) % self.sizes[axis]

    def neighbour(self, axis: str) -> int:
        """The rank next to rank 0 on an axis."""
        return self.stride(axis)

    def axes(self, ranks: tuple[int, ...]) -> tuple[str, ...]:
        """The axes, or the factor of one, that a group of ranks spans. Raises InputError for a group that lies across."""
        wanted = {r - min(ranks) for r in ranks}
        for count in range(1, len(self.sizes) + 1):
            for names in combinations(self.sizes, count):
                steps = [[k * self.stride(n) for k in range(self.sizes[n])] for n in names]
                if {sum(parts) for parts in product(*steps)} == wanted:
                    return names
        if self.stages and wanted == {0, (self.sizes[self.stages] - 1) * self.stride(self.stages)}:
            return (self.ends,)
        for name in self.sizes:
            if wanted == {k * self.stride(name) for k in range(len(ranks))} and self.sizes[name] % len(ranks) == 0:
                self.inner[name] = len(ranks)
                return (f"{name}_inner",)
        message = f"a process group of the ranks {ranks} spans no axis of the mesh ({', '.join(f'{n}={s}' for n, s in self.sizes.items())})"
        raise InputError([Diagnostic(code="PP603", message=message, help="use groups along the axes of a mesh")])


def grid(mesh: dict[str, int], groups: Collection[tuple[int, ...]], world: int) -> Grid:
    """The script's mesh, or one of axes `dp` or `g0`, `g1`, ... from groups that were made by hand. An axis of one rank over which nothing
    was exchanged is left out: what a step does with more ranks was not seen."""
    if mesh:
        used = {name: size for name, size in mesh.items() if size > 1}
        return Grid(dict(mesh) if any(len(g) == 1 for g in groups) or not used else used)
    steps = {(g[1] - g[0], len(g)) for g in groups if 1 < len(g) < world and _even(g)}
    if not steps:
        return Grid({"dp": world}, made=True)
    edges = sorted({1, world} | {s for s, _ in steps} | {s * n for s, n in steps})
    sizes = [b // a for a, b in pairwise(edges)]
    if prod(sizes) != world or any(b % a for a, b in pairwise(edges)):
        refuse("PP603", "the process groups of this script are no grid of ranks", help="make them with init_device_mesh")
    return Grid({f"g{i}": size for i, size in enumerate(reversed(sizes))}, made=True)


def with_stages(found: Grid, lines: Sequence[tuple[int, ...]]) -> Grid:
    """A grid along one axis of which stages of pipelines lie, from the first to the last. ``lines``: the ranks of each; of none, the grid.
    Raises InputError for stages along no axis, or in another order."""
    if not lines:
        return found
    axes = {found.axes(tuple(sorted(line))) for line in lines}
    axis = next(iter(axes))[0]
    if len(axes) > 1 or axes != {(axis,)} or axis not in found.sizes or any(list(line) != sorted(line) for line in lines):
        text = "the stages of a pipeline lie along no axis of the mesh, in the order of its ranks"
        refuse("PP603", text, help="make a mesh with an axis for the stages with init_device_mesh")
    names = {axis: axis}
    if found.made:
        others = [a for a in found.sizes if a != axis]
        names = {axis: "pp", **dict(zip(others, ["dp"] if len(others) == 1 else others, strict=True))}
    sizes = {names.get(a, a): n for a, n in found.sizes.items()}
    return Grid(sizes, made=found.made, inner=found.inner, stages=names[axis])


def _even(group: tuple[int, ...]) -> bool:
    return len({b - a for a, b in pairwise(group)}) == 1


def key(ranks: Sequence[int]) -> str:
    """What a process group is called in terms: its ranks."""
    return ",".join(str(r) for r in ranks)


def ranks_of(key: str) -> tuple[int, ...]:
    """The ranks that a term calls a group by."""
    return tuple(int(r) for r in key.split(","))
