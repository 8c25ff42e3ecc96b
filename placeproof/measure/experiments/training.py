"""The experiment about training: after ten steps, several devices have the parameters that one device has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from placeproof.measure.experiments.exact import SIGNIFICAND, Exactness
from placeproof.measure.experiments.experiment import Experiment, Line, timed
from placeproof.measure.experiments.nets import DECODER, REGIMES, Batch, Regime
from placeproof.measure.processes import Outcome, message, run
from placeproof.measure.training.subjects import find, settle
from placeproof.measure.training.wrap import WRAPS, Job

STEPS = 10
SEED = 0
#: The most that ten rounded steps of AdamW may differ by: parameters are of the order of 1/4, and a float64 of that order by 2^-55.
CLOSE = Fraction(1, 10**12)
#: Seconds for all steps of all strategies on so many processes; a collective waits for half of it.
PATIENCE = 120.0
#: What optimizers import when they are first used: in the parent once, instead of in each process anew.
_PRELOAD = ("torch._dynamo",)

Parameters: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to train: ``subject`` wraps the decoder, and, but for tensor parallelism, the exact model; ``axes`` as in its mesh."""

    name: str
    subject: str
    mesh: Mapping[str, int]

    @property
    def world(self) -> int:
        """Number of devices."""
        return prod(self.mesh.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What one process ended with, the bits that the longest sum of each step needed, and the steps in which every parameter changed.

    ``bits`` is None where steps are rounded.
    """

    parameters: Parameters
    bits: Sequence[int] | None
    moved: int


WAYS = (
    *(Way(name="ddp", subject="ddp", mesh={"dp": n}) for n in (2, 4)),
    *(Way(name="fsdp2", subject="fsdp2", mesh={"dp": n}) for n in (2, 4)),
    *(Way(name="tp", subject="tp_megatron", mesh={"tp": n}) for n in (2, 4)),
    Way(name="hsdp", subject="hsdp", mesh={"rep": 2, "shard": 2}),
)


def training() -> Experiment:
    """Ten steps from one seed, on one device and on two and four."""
    return timed("training", "ten steps on several devices, against ten on one", lambda: (_says(), _lines()))


def _says() -> Iterator[str]:
    yield (
        "exact: SGD on branches of two layers with a ReLU; weights and data are small whole numbers, the loss is a mean absolute "
        "difference, and what is divided by is a power of two"
    )
    yield f"in these steps, no sum has terms that need more than {SIGNIFICAND} bits in all: no order of addition rounds"
    yield f"rounded: AdamW on a decoder ({DECODER.name}, {DECODER.elements:,} parameters), cross-entropy, float64"
    yield f"each number is the largest difference of any parameter on any device, after {STEPS} steps"


def _lines() -> Iterator[Line]:
    alone = _alone()
    yield from _lines_alone(alone["exact"], alone["rounded"])
    for world in dict.fromkeys(way.world for way in WAYS):
        ways = [way for way in WAYS if way.world == world]
        outcomes = _together(world, ways)
        for way in ways:
            for regime in REGIMES:
                yield _line(way, regime, alone[regime].parameters, outcomes)


def _lines_alone(exact: Alone, rounded: Alone) -> Iterator[Line]:
    how = "one process"
    bits = max(exact.bits or (0,))
    yield Line(
        what="exact, N = 1: the longest sum", unit="bits", predicted=Fraction(SIGNIFICAND), measured=Fraction(bits), bound=True, how=how
    )
    for name, ended in (("exact", exact), ("rounded", rounded)):
        yield Line(
            what=f"{name}, N = 1: steps in which every parameter tensor changes",
            unit="steps",
            predicted=Fraction(STEPS),
            measured=Fraction(ended.moved),
            how=how,
        )


def _line(way: Way, regime: str, expected: Parameters, outcomes: Sequence[Outcome[dict[tuple[str, str], Parameters]]]) -> Line:
    """One way of training against one device."""
    trained = [outcome.value[way.name, regime] for outcome in outcomes if outcome.value is not None]
    whole = len(trained) == len(outcomes)
    gap = max((_gap(parameters, expected) for parameters in trained), default=math.inf)
    exact = regime == "exact"
    return Line(
        what=f"{regime}, {way.name}, N = {way.world}",
        unit="difference",
        predicted=Fraction(0) if exact else CLOSE,
        measured=Fraction(gap) if whole and math.isfinite(gap) else None,
        bound=not exact,
        how=f"{way.world} processes on gloo",
        note="" if whole else message(outcomes),
    )


def _gap(parameters: Parameters, expected: Parameters) -> float:
    """The largest absolute difference; inf where names or shapes differ, or a number is none."""
    if parameters.keys() != expected.keys() or any(parameters[name].shape != p.shape for name, p in expected.items()):
        return math.inf
    gap = max((parameters[name] - p).abs().max().item() for name, p in expected.items())
    return math.inf if any(p.isnan().any() for p in parameters.values()) else float(gap)


# In processes of their own.


def _alone() -> dict[str, Alone]:
    """What one process does, by regime. In a process of its own, since backward in this one would leave threads behind."""

    def trained_alone(rank: int, world: int, directory: Path) -> dict[str, Alone]:
        return {name: _on_one(regime, exact=name == "exact") for name, regime in REGIMES.items()}

    (outcome,) = run(1, trained_alone, timeout=PATIENCE, init=False, preload=_PRELOAD)
    if outcome.value is None:
        raise RuntimeError(f"one process could not train: {message([outcome])}\n{outcome.error}")
    return outcome.value


def _together(world: int, ways: Sequence[Way]) -> Sequence[Outcome[dict[tuple[str, str], Parameters]]]:
    """All of these ways of training on as many processes, by way and regime."""

    def trained(rank: int, size: int, directory: Path) -> dict[tuple[str, str], Parameters]:
        return {(way.name, name): _on_several(way, name, regime) for way in ways for name, regime in REGIMES.items()}

    return run(world, trained, timeout=PATIENCE, collective_timeout=PATIENCE / 2, preload=_PRELOAD)


def _on_one(regime: Regime, *, exact: bool) -> Alone:
    model, batch = regime.begin(SEED)
    update, bits, moved = regime.updates(model), [], 0
    for _ in range(STEPS):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        if exact:
            with Exactness() as exactness:
                _step(regime, model, update, batch)
            bits.append(exactness.bits)
        else:
            _step(regime, model, update, batch)
        moved += all(not torch.equal(p, before[name]) for name, p in model.named_parameters())
    return Alone(parameters=_full(model), bits=bits if exact else None, moved=moved)


def _on_several(way: Way, name: str, regime: Regime) -> Parameters:
    """The parameters that this rank ends with."""
    model, (x, y) = regime.begin(SEED)
    subject = find(way.subject)
    mesh = init_device_mesh("cpu", tuple(way.mesh.values()), mesh_dim_names=tuple(way.mesh))
    job = Job(mesh=mesh, axes=tuple(way.mesh), backend="gloo", options=settle(subject, way.mesh, {"dtype": "float64"}))
    if "tp" in way.mesh:
        module = regime.split(model, job)
    else:
        (wrap,) = subject.wraps
        module = WRAPS[wrap](model, job)
        x, y = (t.chunk(way.world)[dist.get_rank()] for t in (x, y))
    update = regime.updates(module)
    for _ in range(STEPS):
        _step(regime, module, update, (x, y))
    return _full(model)


def _step(regime: Regime, module: nn.Module, update: torch.optim.Optimizer, batch: Batch) -> None:
    x, y = batch
    torch.autograd.backward(regime.loss(module(x), y))
    update.step()
    update.zero_grad()


def _full(model: nn.Module) -> Parameters:
    """The whole parameters by name; those that are distributed are gathered, by all ranks of their mesh."""
    with torch.no_grad():
        return {n: (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for n, p in model.named_parameters()}
