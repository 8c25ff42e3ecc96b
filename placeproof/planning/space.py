"""The grid that a plan is looked for in: which degrees, and which options; and the rules that cut points out of it, each with a count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from placeproof.schedules import load

#: The axes of a mesh from the innermost to the outermost, as :func:`placeproof.cost.model.prices.layout` lays them.
#: Data parallelism that shards states among some of its devices alone has two axes, in place of `dp`.
AXES = ("tp", "cp", "ep", "dp", "dp_shard", "dp_replicate", "pp")
#: The orders in which axes lie on a cluster, from the innermost to the outermost: stages outside of data parallelism, or inside.
ORDERS = {"dp-pp": AXES, "pp-dp": ("tp", "cp", "ep", "pp", "dp", "dp_shard", "dp_replicate")}
#: Axes that split blocks, and those whose devices have samples of their own.
INSIDE, REPLICAS = ("tp", "cp", "ep"), ("dp", "dp_shard", "dp_replicate", "ep")
#: Axes whose devices have the same parameters of a block, unless they are sharded.
SHARING = ("cp", "ep", "dp", "dp_shard")
#: Kinds of data parallelism that are tried, those of context parallelism's attention, and what is computed again.
DATA = ("ddp", "zero1", "zero2", "zero3")
#: Kinds of data parallelism that are tried where they are pinned.
PINNED_DATA = ("zero_offload", "zero_infinity", "fsdp")
ATTENTION = ("ring", "gather", "ulysses")
AGAIN = ("none", "selective", "full")


def divisors(n: int) -> tuple[int, ...]:
    """In ascending order."""
    return tuple(d for d in range(1, n + 1) if n % d == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Devices along each axis."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    dp_shard: int = 1
    dp_replicate: int = 1
    pp: int = 1

    @property
    def replicas(self) -> int:
        """Devices that have samples of their own."""
        return prod(getattr(self, axis) for axis in REPLICAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How micro-batches go through a pipeline: a schedule, and runs of layers on each device."""

    schedule: str
    chunks: int = 1

    @property
    def of_copy(self) -> int:
        """Runs of layers of one copy of the model on each device."""
        return self.chunks // load(self.schedule).copies

    @property
    def text(self) -> str:
        """Its name, and how many runs of layers a device has, where that is open."""
        return self.schedule if load(self.schedule).chunks is not None else f"{self.schedule}:{self.chunks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What is chosen besides degrees. ``data``: the strategy of axes whose devices have the same parameters; ``sp``: sequence parallelism
    beside tensor parallelism; ``attention``: of context parallelism; ``recompute``: what backward computes again; ``fp8``: whether products
    with layers' matrices are in fp8; ``order``: a key of :data:`ORDERS`."""

    data: str
    sp: bool
    attention: str
    recompute: str
    flow: Flow
    fp8: bool
    order: str = "dp-pp"

    @property
    def key(self) -> tuple[bool, str, str, bool]:
        """What of it blocks depend on."""
        return self.sp, self.attention, self.recompute, self.fp8


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A placement in full: on a mesh, with options, with b sequences in each of m micro-batches."""

    mesh: Mesh
    option: Option
    b: int
    m: int

    @property
    def expression(self) -> str:
        """The strategy, for `placeproof derive`."""
        return strategy_text(self.mesh, self.option, accumulate=self.m > 1)

    @property
    def order(self) -> tuple[str, ...] | None:
        """Its axes from the innermost to the outermost, where they do not lie as usual."""
        usual, own = (tuple(axis for axis in order if getattr(self.mesh, axis) > 1) for order in (AXES, ORDERS[self.option.order]))
        return None if own == usual else own

    @property
    def structure(self) -> str:
        """The same for all degrees of the axes that it has."""
        axes = [axis for axis in AXES if getattr(self.mesh, axis) > 1]
        return strategy_text(None, self.option, axes, accumulate=self.m > 1)


def strategy_text(mesh: Mesh | None, option: Option, axes: Sequence[str] = AXES, *, accumulate: bool = False) -> str:
    """The strategy of a mesh and options; None: of all meshes of these axes, with open degrees."""

    def degree(axis: str) -> str:
        return "" if mesh is None else str(getattr(mesh, axis))

    def there(axis: str) -> bool:
        return axis in axes and (mesh is None or getattr(mesh, axis) > 1)

    def call(name: str, *arguments: str) -> str:
        given = [a for a in arguments if a]
        return f"{name}({', '.join(given)})" if given else name

    parts = [call(option.data, degree("dp"))] if there("dp") else []
    if option.data not in COPIED:
        parts += [call(option.data, degree("dp_shard"), "dp=dp_shard")] if there("dp_shard") else []
        parts += [f"{option.data}(dp={axis})" for axis in ("cp", "ep") if there(axis)]
    parts += [call("ddp", degree("dp_replicate"), "dp=dp_replicate")] if there("dp_replicate") else []
    parts += [call("tp", degree("tp"))] if there("tp") else []
    parts += ["sp"] if there("tp") and option.sp else []
    parts += [call("cp", degree("cp"), "" if option.attention == "ring" else f"attention={option.attention}")] if there("cp") else []
    parts += [call("ep", degree("ep"))] if there("ep") else []
    if there("pp"):
        flow = option.flow
        schedule = "" if flow.schedule == "1f1b" else f"schedule={flow.schedule}"
        parts.append(call("pp", degree("pp"), schedule, f"chunks={flow.chunks}" if flow.schedule == "interleaved" else ""))
    elif accumulate or not parts:
        parts.append("accumulate")
    return " * ".join(parts)


#: Kinds of data parallelism that keep every state on every device.
COPIED = ("ddp",)


def meshes(devices: int, candidates: Mapping[str, Sequence[int]]) -> Iterator[Mesh]:
    """Every way to have so many devices, with degrees among the candidates of each axis; data parallelism has what is left. ``dp``: of both
    of its axes together; ``dp_shard``, where it has one: that. Where nothing is sharded, there are no copies of shards."""
    for tp, cp, ep, pp in product(*(candidates[axis] for axis in ("tp", "cp", "ep", "pp"))):
        dp, rest = divmod(devices, tp * cp * ep * pp)
        if rest or dp not in candidates["dp"]:
            continue
        for shard in candidates["dp_shard"]:
            copies, rest = divmod(dp, shard)
            if rest or copies not in candidates["dp_replicate"]:
                continue
            if copies == 1:
                yield Mesh(tp=tp, cp=cp, ep=ep, dp=dp, pp=pp)
            elif shard * cp * ep > 1:
                yield Mesh(tp=tp, cp=cp, ep=ep, dp_shard=shard, dp_replicate=copies, pp=pp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A grid: every mesh with every b and every option. ``b``: sequences of a micro-batch on each device."""

    meshes: tuple[Mesh, ...]
    b: tuple[int, ...]
    data: tuple[str, ...] = DATA
    sp: tuple[bool, ...] = (True, False)
    attention: tuple[str, ...] = ATTENTION
    recompute: tuple[str, ...] = AGAIN
    fp8: tuple[bool, ...] = (False,)
    flows: tuple[Flow, ...] = (Flow(schedule="1f1b"),)
    orders: tuple[str, ...] = ("dp-pp",)

    @property
    def options(self) -> int:
        """Of each mesh and b."""
        return prod(map(len, (self.data, self.sp, self.attention, self.recompute, self.fp8, self.flows, self.orders)))

    @property
    def size(self) -> int:
        """Points of the grid."""
        return len(self.meshes) * len(self.b) * self.options

    def classes(self, *, by_stages: bool = False) -> tuple[tuple[Mesh, ...], ...]:
        """Its meshes, those together that have several devices along the same axes; ``by_stages``: and as many stages."""
        found: dict[tuple[int, tuple[str, ...]], list[Mesh]] = {}
        for mesh in self.meshes:
            found.setdefault((mesh.pp if by_stages else 0, axes_of([mesh])), []).append(mesh)
        return tuple(tuple(own) for _, own in sorted(found.items()))

    def options_of(
        self, axes: tuple[str, ...]
    ) -> tuple[tuple[bool, ...], tuple[str, ...], tuple[str, ...], tuple[Flow, ...], tuple[str, ...]]:
        """``sp``, ``attention``, ``data``, ``flows`` and ``orders`` of meshes with several devices along these axes alone; one of what does
        not matter there."""
        return (
            self.sp if "tp" in axes else (False,),
            self.attention if "cp" in axes else ("ring",),
            self.data if {*SHARING} & {*axes} else self.data[:1],
            self.flows if "pp" in axes else (Flow(schedule="1f1b"),),
            self.orders if "pp" in axes and not {"dp", "dp_shard", "dp_replicate"}.isdisjoint(axes) else self.orders[:1],
        )


def axes_of(meshes: Sequence[Mesh]) -> tuple[str, ...]:
    """The axes that some mesh has more than one device along."""
    return tuple(axis for axis in AXES if any(getattr(mesh, axis) > 1 for mesh in meshes))
