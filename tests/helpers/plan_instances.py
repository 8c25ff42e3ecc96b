"""Random small grids of placements: models, clusters, and what is chosen of each axis and option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from random import Random
from typing import TypeVar

from plan_oracle import Instance, keys_of

from placeproof.clusters import Cluster, find
from placeproof.clusters.cluster import Device, Level, Reached
from placeproof.cost.model.rates import measured
from placeproof.cost.values import read_numbers
from placeproof.implementations import find as implementation
from placeproof.models import Model, load
from placeproof.planning.choices import Pins
from placeproof.planning.space import Flow, Mesh, Space

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What grids are drawn from. ``families``: of models, with options that change what they are made of; ``joins``: how many devices the
    first level of links joins, and ``times``: how many times as many each further one."""

    families: Mapping[str, Mapping[str, tuple[str, ...]]]
    presets: tuple[str, ...]
    implementations: tuple[str, ...]
    devices: tuple[int, ...]
    batches: tuple[int, ...]
    layers: tuple[int, ...]
    tokens: tuple[int, ...]
    b: tuple[int, ...]
    recompute: tuple[str, ...]
    flows: tuple[Flow, ...]
    joins: tuple[int, ...]
    times: tuple[tuple[int, ...], ...]
    padding: tuple[int | None, ...]


SOME = Drawn(
    families={
        "gpt": {"tied": ("yes", "no"), "attention": ("core", "flash"), "dropout": ("yes", "no")},
        "llama": {"tied": ("yes", "no"), "attention": ("flash", "core")},
        "gemma2": {"tied": ("yes", "no")},
        "qwen3": {"tied": ("no", "yes")},
        "olmo2": {},
        "falcon": {},
        "mixtral": {"tied": ("no", "yes")},
        "qwen3_moe": {},
        "gpt_oss": {},
        "deepseek_v3": {"tied": ("no", "yes")},
        "glm4_moe": {},
        "llama4": {"experts": ("every", "second")},
    },
    presets=("dgx-h100", "dgx-a100-80", "dgx-v100-32", "gb200-nvl72", "tpu-v5e", "h800"),
    implementations=("megatron-te-2.11",),
    devices=(1, 2, 2, 3, 4, 4, 4, 6, 8, 8, 8, 12, 16),
    batches=(1, 2, 4, 6, 8, 8, 12, 16, 16, 24, 32, 48),
    layers=(1, 2, 3, 4, 4, 6, 8, 8, 12),
    tokens=(16, 24, 32, 64, 256, 1024, 4096),
    b=(1, 2, 3, 4, 8),
    recompute=("none", "selective", "full", "norms", "selective+mlp"),
    flows=(
        Flow(schedule="1f1b"),
        Flow(schedule="gpipe"),
        Flow(schedule="interleaved", chunks=2),
        Flow(schedule="interleaved", chunks=3),
        Flow(schedule="zb-h1"),
        Flow(schedule="zb-h2"),
    ),
    joins=(2, 3, 4, 6, 8),
    times=((2,), (3,)),
    padding=(None, None, None, 0, 64),
)
MORE = Drawn(
    families={
        **SOME.families,
        "bloom": {"tied": ("yes", "no"), "attention": ("core", "flash"), "dropout": ("yes", "no")},
        "cohere": {"attention": ("flash", "core")},
        "gemma3": {"tied": ("yes", "no"), "attention": ("flash", "core")},
        "glm4": {"biases": ("no", "yes")},
        "minimax_m2": {"attention": ("flash", "core")},
        "mpt": {"tied": ("yes", "no")},
        "nemotron": {"tied": ("yes", "no")},
        "qwen2": {"attention": ("flash", "core")},
    },
    presets=(*SOME.presets, "dgx-b200", "gb300-nvl72", "tpu-v5p", "vtrain-a100"),
    implementations=("megatron-te-2.11", "megatron-2023.10", "megatron-deepspeed-0.6"),
    devices=(1, 2, 3, 4, 5, 6, 8, 8, 9, 10, 12, 15, 16, 18, 20, 24),
    batches=(1, 3, 5, 8, 9, 10, 15, 16, 18, 20, 27, 30, 36, 40, 45, 60),
    layers=(1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 18),
    tokens=(8, 24, 40, 48, 72, 96, 120, 512, 2048, 8192),
    b=(1, 2, 3, 4, 5, 6, 9),
    recompute=(*SOME.recompute, "mlp", "selective+norms+mlp", "moe-act", "mla-up", "norms+moe-act"),
    flows=(*SOME.flows, Flow(schedule="interleaved", chunks=4), Flow(schedule="interleaved", chunks=5)),
    joins=(2, 3, 4, 5, 6, 7, 9, 12),
    times=((2,), (3,), (5,), (2, 2), (3, 2), (5, 2)),
    padding=(None, None, 0, 16, 48, 128),
)
#: Schedules in which a device has both ends of the model, or two copies of it.
FOLDED = tuple(Flow(schedule=name, chunks=2) for name in ("zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v"))
#: Points of a grid that are derived, at most.
MOST = 40


def instance(seed: int, of: Drawn = SOME) -> Instance:
    """The grid of a seed."""
    draw = Random(seed)
    model, settings = _model(draw, of)
    devices = draw.choice(of.devices)
    batch = draw.choice(of.batches)
    precision = draw.choice(("mixed-adam", "megatron-bf16", "bf16-bf16grad", "fp32-adam"))
    cluster = _cluster(draw, of, model, devices)
    if "fp32" not in cluster.device.peak:
        precision = "mixed-adam"
    fp8 = draw.random() < 0.2 and "fp8" in cluster.device.peak and precision != "fp32-adam"
    values = {name: n for name, n in read_numbers(settings, precision).values.items() if name != "eta"}
    by_kernels = measured(cluster, values, fp8=fp8) is not None
    eta = None if by_kernels and draw.random() < 0.8 else Fraction(draw.randint(20, 90), 100)
    both = (
        precision != "fp32-adam" and "fp8" in cluster.device.peak and (eta is not None or measured(cluster, values, fp8=True) is not None)
    )
    reserve = Fraction(int(cluster.device.capacity * Fraction(draw.randint(5, 90), 100))) if draw.random() < 0.3 else None
    return Instance(
        name=f"seed {seed}",
        model=model,
        cluster=cluster,
        devices=devices,
        batch=batch,
        space=_with_fewer(
            Random(f"fewer {seed}"),
            _more(Random(-seed - 1), devices, batch, replace(_space(draw, of, devices, batch), fp8=(fp8,)), both=both),
            devices,
        ),
        settings=settings,
        precision=precision,
        eta=eta,
        overlap=draw.choice(("none", "data", "data", "all")),
        reserve=reserve,
        run_by=implementation(draw.choice(of.implementations)) if draw.random() < 0.25 else None,
        fp8=fp8,
        padding=draw.choice(of.padding),
    )


def _model(draw: Random, of: Drawn) -> tuple[Model, tuple[str, ...]]:
    family = draw.choice(tuple(of.families))
    model = load(family, **{name: draw.choice(words) for name, words in of.families[family].items()})
    heads, width = draw.choice((2, 4, 4, 6, 8, 8, 12, 16)), draw.choice((8, 16, 64, 128))
    layers, experts = draw.choice((4, 8, 12) if family == "llama4" else of.layers), draw.choice((2, 4, 6, 8))
    chosen = {
        "L": layers,
        "h": heads * width,
        "a": heads,
        "a_kv": draw.choice([n for n in (1, 2, 4, 8, heads) if heads % n == 0]),
        "d": width,
        "f": draw.choice((2, 3, 4)) * heads * width,
        "s": draw.choice(of.tokens),
        "V": draw.choice((250, 256, 257, 1000, 1024, 50257)),
        "E": experts,
        "k": draw.randint(1, min(4, experts)),
        "f_e": draw.choice((8, 12, 64, 256)),
        "f_s": draw.choice((8, 12, 64, 256)),
        "L_dense": draw.randint(0, layers),
        "r_q": draw.choice((16, 48)),
        "r_kv": draw.choice((8, 24)),
        "d_nope": width,
        "d_rope": width // 2,
        "d_v": width,
    }
    named = {name: n for name, n in chosen.items() if name in model.symbols()}
    moe = "E" in named
    return model.resized(named), (f"c={draw.choice(('1', '5/4', '2'))}",) if moe else ()


def _cluster(draw: Random, of: Drawn, model: Model, devices: int) -> Cluster:
    """A preset, or one that has about as much memory as the model takes."""
    if draw.random() < 0.25:
        return find(draw.choice(of.presets))
    states = int(model.parameters().total) * 16 // draw.choice((1, 2, devices, 2 * devices))
    architecture = draw.choice(("", "hopper"))
    libraries = 1_060_000_000 + draw.randint(0, 3) * 688_000_000 if architecture else 0
    memory = Fraction(libraries + int(states * draw.choice((0.3, 0.8, 1.1, 1.5, 2, 3, 6, 20))))
    peak = Fraction(10 ** draw.randint(9, 14))
    bandwidth = peak / draw.choice((30, 100, 300))
    reached = None
    if draw.random() < 0.4:
        products = {"bf16": peak * Fraction(7, 10), "fp8": peak * Fraction(13, 10)}
        reached = Reached(products=products, memory_bandwidth=bandwidth * Fraction(9, 10), kernel=Fraction(draw.randint(0, 9), 10**6))
    device = Device(
        name="a device",
        memory=max(memory, Fraction(1)),
        memory_bandwidth=bandwidth,
        peak={"bf16": peak, "fp8": 2 * peak, "fp32": peak / 2},
        architecture=architecture,
        reached=reached,
    )
    return Cluster(name="random", title="a random cluster", device=device, node=8, levels=_levels(draw, of, peak))


def _levels(draw: Random, of: Drawn, peak: Fraction) -> tuple[Level, ...]:
    joined = [draw.choice(of.joins)]
    for times in draw.choice(of.times) if draw.random() < 0.3 else ():
        joined.append(joined[-1] * times)
    joins: list[int | None] = [*joined, None] if draw.random() < 0.9 else [None]
    levels, bandwidth = [], peak / draw.choice((30, 300, 3000, 30000))
    for number, devices in enumerate(joins):
        reached = bandwidth * Fraction(draw.randint(5, 10), 10) if draw.random() < 0.5 else None
        ring, ports = number == 0 and draw.random() < 0.15, draw.choice((1, 1, 1, 2, 4))
        latency = Fraction(draw.choice((0, 1, 5, 50)), 10**6)
        levels.append(
            Level(name=f"level {number}", joins=devices, latency=latency, bandwidth=bandwidth, ports=ports, ring=ring, reached=reached)
        )
        bandwidth = bandwidth / draw.choice((1, 3, 10))
    return tuple(levels)


def all_meshes(devices: int) -> list[Mesh]:
    """Every way to have so many devices."""
    return _plain(devices) + _copied(devices)


def _plain(devices: int) -> list[Mesh]:
    """Without copies of shards."""
    sizes = [n for n in range(1, devices + 1) if devices % n == 0]
    every = (each for each in product(sizes, repeat=5) if prod(each) == devices)
    return [Mesh(tp=tp, cp=cp, ep=ep, dp=dp, pp=pp) for tp, cp, ep, dp, pp in every]


def _copied(devices: int) -> list[Mesh]:
    """With copies of what other devices have sharded."""
    sizes = [n for n in range(1, devices + 1) if devices % n == 0]
    every = (each for each in product(sizes, repeat=6) if prod(each) == devices and each[4] > 1)
    return [Mesh(tp=tp, cp=cp, ep=ep, dp_shard=s, dp_replicate=r, pp=pp) for tp, cp, ep, s, r, pp in every if s * cp * ep > 1]


def _with_fewer(draw: Random, space: Space, devices: int) -> Space:
    """Sometimes with a mesh of half of the devices, too."""
    if devices % 2 or draw.random() < 0.8:
        return space
    return replace(space, meshes=(*space.meshes, draw.choice([mesh for mesh in _plain(devices // 2) if mesh.ep == 1])))


def _space(draw: Random, of: Drawn, devices: int, batch: int) -> Space:
    """Some meshes and some of each option, as long as not too many points are to be derived."""

    def some(every: tuple[T, ...], most: int) -> tuple[T, ...]:
        return tuple(draw.sample(every, draw.randint(1, min(most, len(every)))))

    every = _plain(devices)
    without = [mesh for mesh in every if mesh.ep == 1]
    while True:
        pool = every if draw.random() < 0.5 else without
        space = Space(
            meshes=tuple(draw.sample(pool, min(len(pool), draw.randint(1, 5)))),
            b=some(of.b, 2),
            data=some(("ddp", "zero1", "zero2", "zero3", "fsdp"), 3),
            sp=some((True, False), 2),
            attention=some(("ring", "gather", "ulysses"), 2),
            recompute=some(of.recompute, 2),
            flows=some(of.flows, 3),
        )
        keys = keys_of(space, batch)
        if 0 < len(keys) <= MOST and (len(keys) > 3 or draw.random() < 0.2):
            return space


def _more(draw: Random, devices: int, batch: int, space: Space, *, both: bool) -> Space:
    """The same, or some meshes more that have copies of shards, or both number formats, or a schedule more, or states on a host."""
    copied = _copied(devices)
    more = tuple(draw.sample(copied, min(len(copied), draw.randint(1, 2)))) if draw.random() < 0.4 else ()
    larger = replace(space, meshes=space.meshes + more, fp8=(True, False) if both and draw.random() < 0.25 else space.fp8)
    if draw.random() < 0.15:
        larger = replace(larger, data=(*space.data, draw.choice(("zero_offload", "zero_infinity"))))
    if draw.random() < 0.3:
        larger = replace(larger, flows=(*space.flows, draw.choice(FOLDED)))
    if draw.random() < 0.3:
        larger = replace(larger, orders=draw.choice((("pp-dp",), ("pp-dp", "dp-pp"))))
    return larger if len(keys_of(larger, batch)) <= MOST else space


def pinned(seed: int) -> tuple[Instance, Pins]:
    """A grid of few devices, all that there are, and pins of it."""
    draw = Random(seed)
    asked, devices = instance(seed, MORE), draw.choice((1, 2, 2, 3, 4))
    level = replace(asked.cluster.levels[-1], joins=devices)
    said = {
        "only": ("tp=1", "tp=2", "cp=1", "dp=1", "dp=2", "pp=1", "pp=2", "b=1", "b=2", "data=ddp", "data=zero1", "recompute=none",
                 "schedule=1f1b", "sp=no", "attention=ring"),
        "forbid": ("tp", "cp", "dp", "pp", "sp", "data=zero3", "recompute=full"),
        "most": ("tp=1", "pp=1", "dp=1", "b=1"),
    }  # fmt: skip
    pins = Pins(**{name: draw.sample(texts, draw.randint(0, 3)) for name, texts in said.items()})
    cluster = replace(asked.cluster, levels=(level,))
    return replace(asked, cluster=cluster, devices=devices, batch=draw.choice((1, 2, 2, 3)), run_by=None), pins
