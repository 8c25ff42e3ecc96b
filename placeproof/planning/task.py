"""What is asked: a model on so many devices of a cluster, with a global batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod

from placeproof.clusters import Cluster, Group, ends
from placeproof.core.precision import OPEN
from placeproof.cost.model.derivation import WIDTHS
from placeproof.cost.model.process import COMMUNICATOR, CONTEXT, error
from placeproof.cost.model.rates import Rates, rates_on
from placeproof.cost.model.time import DEFAULT_OVERLAP, Overlap
from placeproof.implementations import BlockImplementation
from placeproof.models import Model, substituted
from placeproof.planning.arrays import ExchangeTime, exchange_time
from placeproof.runs import reserved


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model, of the sizes that were set, on so many devices of a cluster, with so many sequences in a step.

    ``values``: of symbols that are neither degrees nor sizes of the model, nor b or m: bytes of an element, a device's load. ``reserve``:
    bytes that a device needs for all but tensors. ``surely``: what fits has to fit with all that was ever seen reserved. ``padding``: as
    of :func:`placeproof.cost.model.vocabulary.padded`. ``fewer``: smaller numbers of devices that are tried as well. ``precision``: whose
    widths are among the ``values``, but for those that were set.
    """

    model: Model
    cluster: Cluster
    devices: int
    batch: int
    values: Mapping[str, Fraction]
    overlap: Overlap = DEFAULT_OVERLAP
    reserve: Fraction | None = None
    surely: bool = False
    run_by: BlockImplementation | None = None
    fp8: bool = False
    padding: int | None = None
    widths: Mapping[str, int] = field(default_factory=lambda: WIDTHS)
    fewer: tuple[int, ...] = ()
    precision: str = OPEN
    _times: dict[tuple[str, tuple[Group, ...]], ExchangeTime] = field(default_factory=dict, repr=False)
    _groups: dict[tuple[tuple[tuple[str, int], ...], tuple[str, ...], str | None], tuple[Group, ...]] = field(
        default_factory=dict, repr=False
    )

    @property
    def counts(self) -> tuple[int, ...]:
        """Every number of devices that is tried."""
        return (*self.fewer, self.devices)

    @property
    def devices_text(self) -> str:
        """`1 device`, `16 devices`, `8, 16 or 32 devices`."""
        *others, last = (f"{n:,}" for n in self.counts)
        return f"{', '.join(others)} or {last} devices" if others else f"{last} {'device' if last == '1' else 'devices'}"

    @cached_property
    def ran(self) -> Model:
        """The model with the blocks that its implementation runs."""
        return self.model if self.run_by is None else substituted(self.model, self.run_by.runs)

    @cached_property
    def rates(self) -> Rates:
        """What steps are timed with."""
        return rates_on(self.cluster, self.values, fp8=self.fp8)

    @property
    def joined(self) -> tuple[int, ...]:
        """How many devices each level of links joins, where that is limited."""
        return tuple(level.joins for level in self.cluster.levels if level.joins is not None)

    def narrow(self, fp8: bool) -> Task:
        """The same with products in fp8, or without. Raises InputError where the cluster does not say how fast they are."""
        asked = self if fp8 == self.fp8 else replace(self, fp8=fp8)
        _ = asked.rates
        return asked

    def room(self, communicators: int) -> Fraction:
        """Bytes that tensors may take on a device whose process has so many communicators: what is usual fits then, or all that was ever
        seen."""
        device, beside = self.cluster.device, Fraction(0)
        if self.reserve is not None:
            free = device.capacity - self.reserve
        elif device.architecture:
            free = device.capacity - CONTEXT.most - communicators * COMMUNICATOR.most
            _, usual, most, _ = reserved()
            beside = most if self.surely else usual
        else:
            free = device.capacity
        return free / (1 + beside) / (1 + (self.error if self.surely else 0))

    @cached_property
    def error(self) -> Fraction:
        """How far tensors may be off, as a share."""
        return error(self.run_by, {block.name for segment in self.ran.segments for block in segment.blocks})

    def exchange_time(self, kind: str, groups: tuple[Group, ...]) -> ExchangeTime:
        """The time of a collective in some groups."""
        if (kind, groups) not in self._times:
            self._times[kind, groups] = exchange_time(kind, groups, self.rates.cluster)
        return self._times[kind, groups]

    def groups(self, mesh: tuple[tuple[str, int], ...], axes: tuple[str, ...], pair: str | None = None) -> tuple[Group, ...]:
        """The groups along some axes of a mesh, its degrees from the innermost axis to the outermost; ``pair``: as of
        :class:`placeproof.cost.model.traffic.Transfer`."""
        if (mesh, axes, pair) not in self._groups:
            degrees = dict(mesh)
            groups = self.cluster.groups(degrees, axes)
            if pair is not None:
                along = [axis for axis in degrees if axis in axes]
                groups = ends(groups, degrees[pair], inside=prod(degrees[axis] for axis in along[: along.index(pair)]))
            self._groups[mesh, axes, pair] = groups
        return self._groups[mesh, axes, pair]
