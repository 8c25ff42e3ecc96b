"""What computing and an exchange take: in the symbols of a device and its links, or exactly, on a cluster.

Both have the same methods, so that :mod:`placeproof.cost.model.time` puts a step together once, with either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from placeproof.clusters import Cluster, Group, ends
from placeproof.clusters.cluster import MOVED_BY_A_SUM
from placeproof.collectives.algorithms import ALGORITHMS, Algorithm, Levelled, pipelined
from placeproof.collectives.time import TIMED_AS, Timed, fastest
from placeproof.core.diagnostics import refuse
from placeproof.core.mesh import Axis
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.derivation import ModelDerivation
from placeproof.cost.model.traffic import Transfer

if TYPE_CHECKING:
    import sympy

#: From the innermost axis, whose devices are next to one another, to the outermost: what an axis splits.
_INSIDE_OUT = ("hidden", "sequence", "experts", "batch", "layers")


def layout(axes: Sequence[Axis], order: Sequence[str] | None = None) -> tuple[Axis, ...]:
    """The axes from the innermost to the outermost: those that exchange most often inside. ``order``: their names, if not as usual.

    Of axes that split the batch, replicas of what is sharded lie outside. Raises InputError where ``order`` names other axes.
    """
    if order is not None and sorted(order) != sorted(a.name for a in axes):
        listed = ", ".join(a.name for a in axes)
        refuse("PP202", f"the order {', '.join(order)} does not name each axis once", help=f"the axes are {listed}")
    if order is not None:
        return tuple(next(a for a in axes if a.name == name) for name in order)
    place = {a.name: i for i, a in enumerate(axes)}
    return tuple(sorted(axes, key=lambda a: (_INSIDE_OUT.index(a.splits.name), -place[a.name])))


def degree(d: ModelDerivation, name: str) -> Amount:
    """Devices along an axis of the strategy, or along a factor of one that has sub-groups."""
    return d.at.degrees[name] if name in d.at.degrees else d.step.amounts.degree(name)


#: The share of attention's products that a causal mask leaves out, which a kernel of all of attention skips.
MASKED = Fraction(1, 2)


class Price(Protocol):
    """What computing takes."""

    @property
    def by_kernels(self) -> bool:
        """Whether what is no product of matrices takes time as well."""

    @property
    def masked(self) -> Any:
        """:data:`MASKED`, as a number of the kind that is worked with."""

    def compute(self, operations: Amount, /) -> Any:
        """Seconds of so many floating-point operations."""

    def narrow(self, operations: Amount, /) -> Any:
        """Seconds of so many floating-point operations in fp8."""

    def memory(self, amount: Amount, /) -> Any:
        """Seconds of reading or writing so many bytes."""

    def launch(self, number: Amount, /) -> Any:
        """Seconds that so many kernels take at least."""


def seconds_of_kernels(
    price: Price, operations: Amount, narrow: Amount, inside: Amount = 0, moved: Amount = 0, moving: Amount = 0
) -> Amount:
    """Seconds of floating-point operations, ``narrow`` of which are in fp8, and of bytes that so many other kernels move."""
    computing = price.compute(operations - narrow - price.masked * inside) + price.narrow(narrow)
    return computing + price.memory(moved) + price.launch(moving) if price.by_kernels else computing


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """Times in symbols: ring algorithms, and links along an axis that are all alike. Exchanges over several axes go over the outermost.

    ``by_kernels``: what is no product of matrices takes time as well. ``without``: terms that are left out
    (:data:`placeproof.cost.model.terms.TERMS`).
    """

    d: ModelDerivation
    order: tuple[str, ...]
    by_kernels: bool = False
    without: frozenset[str] = frozenset()
    masked: ClassVar[Fraction] = MASKED

    def amount(self, expr: Amount) -> Amount:
        """The amount as it is."""
        return expr

    def compute(self, operations: Amount) -> sympy.Expr:
        """Seconds of so many floating-point operations."""
        return operations / (symbol("F_peak") * symbol("eta"))

    def narrow(self, operations: Amount) -> sympy.Expr:
        """Seconds of so many floating-point operations in fp8."""
        return operations / symbol("F_fp8")

    def memory(self, amount: Amount) -> sympy.Expr:
        """Seconds of reading or writing so many bytes."""
        return amount / symbol("B_mem")

    def launch(self, number: Amount) -> sympy.Expr:
        """Seconds that so many kernels take at least."""
        return number * symbol("t_k")

    def exchange(self, sent: Transfer) -> sympy.Expr:
        """Seconds of one time of an exchange, all its calls."""
        import sympy

        kind = TIMED_AS.get(sent.kind, sent.kind)
        n = sympy.Mul(*(2 if a == sent.pair else degree(self.d, a) for a in sent.axes))
        if n == 1 or sent.size == 0:
            return sympy.Integer(0)
        first = next(iter(ALGORITHMS[kind].values()))
        assert isinstance(first, Algorithm)
        terms = first.terms(n, sympy.ceiling(sympy.log(n, 2)), sent.size)
        over = max(sent.axes, key=lambda a: self.order.index(self._axis(a)))
        gamma = MOVED_BY_A_SUM / symbol("B_mem")
        moved = sent.calls * terms.messages * symbol(f"alpha_{over}") + terms.sent * symbol(f"beta_{over}") + terms.added * gamma
        if not launches(self):
            return moved
        return moved + self.launch(sent.calls) * sympy.Min(1, n - 1)  # a device alone sends nothing

    def most(self, *amounts: Amount) -> sympy.Expr:
        """The greatest of some times. It is not looked into: their difference has no sign while symbols are open."""
        import sympy

        each = tuple(dict.fromkeys(map(sympy.sympify, amounts)))
        return each[0] if len(each) == 1 else sympy.Max(*each, evaluate=False)

    def _axis(self, name: str) -> str:
        return next(a.name for a in self.d.linked.axes if name in (a.name, a.inner_name, a.outer_name))


@dataclass(kw_only=True)
class Exchanges:
    """What is known of exchanges over the links of a cluster: who takes part, by axes, and how long one takes, by its bytes besides."""

    groups: dict[tuple[tuple[str, ...], str | None], tuple[Group, ...]] = field(default_factory=dict)
    timed: dict[tuple[str, tuple[str, ...], str | None, Fraction], Timed] = field(default_factory=dict)


@dataclass(kw_only=True)
class Known:
    """What is known of a derivation at some values: ``amounts``, numbers of its formulas, and exchanges by figures of the links."""

    amounts: dict[Amount, Fraction] = field(default_factory=dict)
    exchanges: dict[tuple[object, ...], Exchanges] = field(default_factory=dict)


@dataclass(kw_only=True)
class Exact:
    """Times on a cluster, as exact fractions. ``flat``: by a ring, instead of the fastest algorithm. ``values``: of all symbols.
    ``by_kernels``: what is no product of matrices takes time as well, as the cluster says. ``without``: as in :class:`Symbols`.
    ``known``: what was worked out before; more is added."""

    d: ModelDerivation
    cluster: Cluster
    values: Mapping[str, Fraction]
    axes: tuple[Axis, ...]
    peak: Fraction
    bandwidth: Fraction
    flat: bool = False
    by_kernels: bool = False
    without: frozenset[str] = frozenset()
    known: Known = field(default_factory=Known, repr=False)
    masked: ClassVar[Fraction] = MASKED

    @cached_property
    def _exchanges(self) -> Exchanges:
        """Those over links that are as fast as these."""
        links = ((one.joins, one.latency, one.bandwidth, one.ports, one.ring) for one in self.cluster.levels)
        return self.known.exchanges.setdefault((self.flat, self.cluster.device.memory_bandwidth, *links), Exchanges())

    @cached_property
    def mesh(self) -> dict[str, int]:
        """Degrees from the innermost axis to the outermost; an axis that something uses in part, as its two factors."""
        used = {name for cost in self.d.costs for sent in cost.sent for name in sent.axes}
        names = [n for a in self.axes for n in ((a.inner_name, a.outer_name) if {a.inner_name, a.outer_name} & used else (a.name,))]
        return {name: int(self.amount(degree(self.d, name))) for name in names}

    @property
    def devices(self) -> int:
        """All devices of the mesh."""
        product = 1
        for n in self.mesh.values():
            product *= n
        return product

    def amount(self, expr: Amount) -> Fraction:
        """The number that an amount comes to."""
        amounts = self.known.amounts
        if expr not in amounts:
            value = self.d.value(expr, self.values)
            assert value is not None, f"all symbols are set: {expr}"
            amounts[expr] = value
        return amounts[expr]

    def compute(self, operations: Amount) -> Fraction:
        """Seconds of so many floating-point operations."""
        return self.amount(operations) / (self.peak * self.values["eta"])

    def narrow(self, operations: Amount) -> Fraction:
        """Seconds of so many floating-point operations in fp8."""
        return self.amount(operations) / self.values["F_fp8"] if operations else Fraction(0)

    def memory(self, amount: Amount) -> Fraction:
        """Seconds of reading or writing so many bytes."""
        return self.amount(amount) / self.bandwidth

    def launch(self, number: Amount) -> Fraction:
        """Seconds that so many kernels take at least."""
        return self.amount(number) * self.values["t_k"]

    def exchange(self, sent: Transfer) -> Fraction:
        """Seconds of one time of an exchange, all its calls."""
        seconds = self.timed(sent).seconds * self.amount(sent.calls)
        return seconds + self.launch(sent.calls) if seconds and launches(self) else seconds

    def timed(self, sent: Transfer) -> Timed:
        """One call of an exchange, in the slowest of its groups."""
        kind = TIMED_AS.get(sent.kind, sent.kind)
        size = self.amount(sent.size) / self.amount(sent.calls)
        key = (sent.kind, sent.axes, sent.pair, size)
        if key not in self._exchanges.timed:
            groups = self.groups(sent.axes, sent.pair)
            algorithm = next(iter(ALGORITHMS[kind])) if self.flat else None
            self._exchanges.timed[key] = fastest(kind, groups, size, self.cluster, algorithm)
        return self._exchanges.timed[key]

    def groups(self, axes: tuple[str, ...], pair: str | None = None) -> tuple[Group, ...]:
        """The groups along some axes; along ``pair`` those that are furthest apart stand for the two that meet. Raises InputError where the
        cluster has not as many devices."""
        if (axes, pair) not in self._exchanges.groups:
            along = [n for n in self.mesh if n in axes or any(n in (f"{a}_inner", f"{a}_outer") for a in axes)]
            groups = self.cluster.groups(self.mesh, along)
            if pair is not None:
                groups = ends(groups, self.mesh[pair], inside=prod(self.mesh[n] for n in along[: along.index(pair)]))
            self._exchanges.groups[axes, pair] = groups
        return self._exchanges.groups[axes, pair]

    def most(self, *amounts: Amount) -> Fraction:
        """The greatest of some times."""
        return max(Fraction(a) for a in amounts)

    def by_level(self, sent: Transfer) -> tuple[Fraction, ...]:
        """Bytes that a device sends over each level of links in a step, by the algorithm of its time; the mean over the group's devices."""
        timed = self.timed(sent)
        size = self.amount(sent.size) / self.amount(sent.calls)
        levels = len(self.cluster.levels)
        if timed.group.degree == 1:
            return (Fraction(0),) * levels
        kind = TIMED_AS.get(sent.kind, sent.kind)
        over = _between_neighbours(timed.group, size) if kind == "send" else _algorithm(kind, timed.algorithm).carried(timed.group, size)
        often = self.amount(sent.times) * self.amount(sent.calls)
        return tuple(amount * often for amount in over)


def launches(price: Symbols | Exact) -> bool:
    """Whether each kernel that is no product, and each exchange, takes a fixed time besides."""
    return price.by_kernels and "kernels" not in price.without


def _between_neighbours(group: Group, size: Fraction) -> tuple[Fraction, ...]:
    """A message to the next device: how many of the pairs use a level."""
    return tuple(size * pairs / (group.degree - 1) for pairs in group.neighbours)


def _algorithm(kind: str, name: str) -> Algorithm | Levelled:
    if name in ALGORITHMS[kind]:
        return ALGORITHMS[kind][name]
    return pipelined(kind, int(name.removeprefix("chain(").removesuffix(")")))
