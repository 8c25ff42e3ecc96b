"""What a cluster is: devices, nodes, and levels of links from the inside out. Data; every figure has a source or a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from placeproof.clusters.groups import Group, groups
from placeproof.core.diagnostics import Problems, suggestion

#: Number formats whose peak a device may have.
FORMATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")

#: Bytes of memory that a sum moves for each byte that it adds: both operands are read, and the sum is written.
MOVED_BY_A_SUM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What each table of a cluster's file has: where its figures are from, which of them nobody publishes, with the reason for each, and
    which were fitted to measured steps, with these."""

    source: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)
    fitted: Mapping[str, str] = field(default_factory=dict)

    def origin(self, figure: str) -> str:
        """Where a figure is from: what it was fitted to, the reason for one that is assumed, or the source."""
        if figure in self.fitted:
            return f"fitted: {self.fitted[figure]}"
        return f"assumed: {self.assumed[figure]}" if figure in self.assumed else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached(Table):
    """What kernels of a device were measured to reach.

    ``products``: FLOP a second of products of matrices, by number format; ``memory_bandwidth``: bytes a second of kernels that only read
    and write; ``kernel``: seconds that each of these takes besides, and a host at least to launch any kernel.
    """

    products: Mapping[str, Fraction]
    memory_bandwidth: Fraction
    kernel: Fraction

    def of_products(self, number_format: str) -> str:
        """Where the rate of products in a number format is from."""
        return self.origin(number_format if number_format in self.fitted else "products")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Table):
    """One device. ``memory`` in bytes, as it is sold, ``memory_bandwidth`` in bytes a second; ``peak``: FLOP a second by number format,
    dense. ``driver_memory``: bytes that a driver shows, None where that is not known; ``architecture``: of a GPU, empty elsewhere;
    ``reached``: what was measured of kernels, where that is said."""

    name: str
    memory: Fraction
    memory_bandwidth: Fraction
    peak: Mapping[str, Fraction]
    driver_memory: Fraction | None = None
    architecture: str = ""
    reached: Reached | None = None

    @property
    def capacity(self) -> Fraction:
        """Bytes that there are: as a driver shows them, where that is known."""
        return self.memory if self.driver_memory is None else self.driver_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Level(Table):
    """One level of links.

    ``joins``: how many consecutive devices it joins; None for all, which only the outermost level may. ``latency``: seconds a message.
    ``bandwidth``: bytes a second that a device sends over one link; it receives as many at the same time. ``ports``: links that a device
    has on this level and can use at once. ``ring``: devices have links to their neighbours only, on rings or tori whose ends are joined.
    ``reached``: what of the bandwidth exchanges were measured to reach, None where that is not said.
    """

    name: str
    joins: int | None
    latency: Fraction
    bandwidth: Fraction
    ports: int = 1
    ring: bool = False
    reached: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Table):
    """A device's link to its host. ``bandwidth``: bytes a second in each direction; ``latency``: seconds a copy."""

    bandwidth: Fraction
    latency: Fraction


#: Devices of a mesh, at most: who lies where is listed one by one.
MOST_DEVICES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster of equal devices. ``node``: how many of them share a host; ``levels`` of links from the inside out."""

    name: str
    title: str
    device: Device
    node: int
    levels: tuple[Level, ...]
    host: Host | None = None

    @property
    def reduction(self) -> Fraction:
        """Seconds for each byte that a device adds: the time of the memory traffic of a sum."""
        return MOVED_BY_A_SUM / self.device.memory_bandwidth

    @property
    def as_measured(self) -> Cluster:
        """The cluster whose links are as fast as exchanges were measured to be, where that is said."""
        return replace(self, levels=tuple(replace(one, bandwidth=one.reached or one.bandwidth) for one in self.levels))

    def groups(self, mesh: Mapping[str, int], along: str | Sequence[str]) -> tuple[Group, ...]:
        """The groups of devices along one axis of a mesh, or along several together; those that lie alike once.

        mesh: the axes' degrees, from the innermost axis, whose neighbours have consecutive ranks, to the outermost. Rank r is device r.
        Raises InputError for an axis that the mesh has not, a degree below 1, and more devices than the outermost level joins.
        """
        axes = (along,) if isinstance(along, str) else tuple(along)
        self._check(mesh, axes)
        return groups(mesh, axes, [level.joins for level in self.levels[:-1] if level.joins is not None])

    def level(self, mesh: Mapping[str, int], along: str | Sequence[str]) -> tuple[str, ...]:
        """The names of the levels of links that some group along an axis, or along several, uses; from the inside out."""
        used = {level for group in self.groups(mesh, along) for level in group.used}
        return tuple(self.levels[level].name for level in sorted(used))

    def _check(self, mesh: Mapping[str, int], axes: Sequence[str]) -> None:
        problems, world = Problems(), 1
        for axis in axes:
            if axis not in mesh:
                listed = "its axes: " + ", ".join(mesh)
                problems.add("PP305", f"the mesh has no axis `{axis}`", help=suggestion(axis, mesh) or listed)
        for axis, degree in mesh.items():
            world *= degree
            if degree < 1:
                problems.add("PP103", f"the degree of axis `{axis}` is a whole number of at least 1, not {degree}")
        if world > MOST_DEVICES:
            problems.add("PP103", f"the mesh has {world} devices, and at most {MOST_DEVICES} are timed", help="take a smaller mesh")
        most = self.levels[-1].joins
        if most is not None and world > most:
            problems.add(
                "PP103",
                f"the mesh has {world} devices, and `{self.levels[-1].name}`, the outermost level of {self.name}, joins {most}",
                help="take a smaller mesh, or a cluster with another level of links",
            )
        problems.raise_if_any()
