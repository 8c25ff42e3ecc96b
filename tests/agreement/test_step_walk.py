"""The time of a step against a walk through its events: one clock for computing, one for the network, and passes in order.

The walk takes the operations and the bytes of each exchange from the derivation, and nothing of how they are put together: which
exchanges come once a step is told by how often they come, and what an update moves is counted element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pytest
import sympy

from placeproof.clusters import Cluster
from placeproof.clusters.cluster import Device, Level
from placeproof.core.symbols import symbol
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.derivation import StageCost
from placeproof.cost.model.time import Overlap, step_time
from placeproof.models import load
from placeproof.strategies import parse_strategy

#: Bytes of an element, no two alike.
WIDTHS = {"b_theta": 2, "b_g": 3, "b_omega": 11, "b_a": 1}
#: Micro-batches: what comes for each of them comes a multiple of so often.
M = 7
MEMORY, PEAK = Fraction(10**12), Fraction(10**14)


@dataclass(frozen=True)
class Links:
    """One level of links for all devices."""

    latency: Fraction
    bandwidth: Fraction


@dataclass(frozen=True)
class Walked:
    """Seconds of one stage: of computing forward, backward by inputs and by weights; of exchanges in a forward and in a backward pass."""

    compute: tuple[Fraction, Fraction, Fraction]
    inside: tuple[Fraction, Fraction]
    data: tuple[Fraction, Fraction]
    once: tuple[Fraction, Fraction]
    update: Fraction
    send: Fraction

    def of(self, backward: bool, overlap: Overlap, *, once: bool = False) -> Fraction:
        """One pass: when both clocks are done. ``once``: with what comes once a step, behind what comes in each pass."""
        computed = sum(self.compute[1:]) if backward else self.compute[0]
        network = self.data[backward] + (self.once[backward] if once else 0)
        if overlap == "none":
            return computed + self.inside[backward] + network
        if overlap == "data":
            return self.inside[backward] + max(computed, network)
        return max(computed, self.inside[backward] + network)

    def rest(self, overlap: Overlap) -> Fraction:
        """What comes once a step, where the network is idle while a pass computes, and the update."""
        return sum(self.of(b, overlap, once=True) - self.of(b, overlap) for b in (False, True)) + self.update


def ring(kind: str, n: int, size: Fraction, calls: Fraction, links: Links) -> Fraction:
    """Neighbours pass on one n-th of a tensor, round after round; who adds reads two numbers and writes one."""
    rounds = {"send": 1, "shift": 1, "all_reduce": 2 * (n - 1)}.get(kind, n - 1)
    part = size if kind in ("send", "shift") else size / n
    summed = (n - 1) * part if kind in ("all_reduce", "reduce_scatter") else 0
    return rounds * (calls * links.latency + part / links.bandwidth) + 3 * summed / MEMORY


def walked(d: ModelDerivation, cost: StageCost, number: Callable[[Any], Fraction], links: Links) -> Walked:
    found = {kind: [Fraction(0), Fraction(0)] for kind in ("inside", "data", "once")}
    send = Fraction(0)
    for sent in cost.sent:
        two = sent.kind == "tied_reduce"
        n = 2 if two else int(number(sympy.Mul(*(d.at.degrees[a] for a in sent.axes))))
        kind, often = "all_reduce" if two else sent.kind, number(sent.times)
        seconds = ring(kind, n, number(sent.size), number(sent.calls), links)
        if kind == "send":
            send = seconds
        elif often % M == 0:
            found["inside" if "activations" in sent.about else "data"][sent.phase == "backward"] += seconds * often / M
        else:
            found["once"][sent.phase == "backward"] += seconds * often
    work = cost.flops
    compute = tuple(number(n) / (PEAK / 2) for n in (work.forward, work.again + work.inputs, work.weights))
    inside, data, once = (tuple(found[kind]) for kind in ("inside", "data", "once"))
    return Walked(compute, inside, data, once, moved(cost, number) / MEMORY, send)  # type: ignore[arg-type]


def moved(cost: StageCost, number: Callable[[Any], Fraction]) -> Fraction:
    """Bytes of an update, by what is done to each element whose optimizer state a device has."""
    elements = number(cost.states["optimizer"]) / WIDTHS["b_omega"]
    done = ("read b_g", "read b_theta", "read b_omega", "write b_omega", "write b_theta")
    return elements * sum(WIDTHS[each.split()[1]] for each in done)


def one_f_one_b(stages: list[Walked], overlap: Overlap) -> Fraction:
    """When the last pass of a pipeline ends: each device takes its passes in order, and waits for the messages that they need."""
    p = len(stages)
    orders = []
    for d in range(p):
        warm = min(p - 1 - d, M)
        steady = [(kind, i + (warm if kind == "F" else 0)) for i in range(M - warm) for kind in "FB"]
        orders.append([("F", i) for i in range(warm)] + steady + [("B", i) for i in range(M - warm, M)])
    ends: dict[tuple[str, int, int], Fraction] = {}
    clock = [Fraction(0)] * p
    while any(orders):
        for d, stage in enumerate(stages):
            if not orders[d]:
                continue
            kind, i = orders[d][0]
            from_ = ("F", d - 1, i) if kind == "F" and d else ("B", d + 1, i) if kind == "B" and d < p - 1 else None
            if from_ is not None and from_ not in ends:
                continue
            start = max(clock[d], ends[from_] + max(s.send for s in stages) if from_ else Fraction(0))
            ends[kind, d, i] = clock[d] = start + stage.of(kind == "B", overlap)
            orders[d].pop(0)
    return max(clock)


SUBJECTS = (
    ("llama3-8b", "ddp(4) * tp(2) * sp * accumulate"),
    ("llama3-8b", "zero1(4) * tp(2) * sp * accumulate"),
    ("llama3-8b", "zero2(2) * cp(2) * accumulate"),
    ("llama3-8b", "fsdp(4) * tp(2) * accumulate"),
    ("llama3-8b", "fsdp(4, reshard_after_forward=false) * accumulate"),
    ("llama3-8b", "zero1(4) * tp(2) * sp * pp(4)"),
    ("gpt3-175b", "ddp(2) * tp(2) * pp(3)"),
    ("bloom-176b", "zero1(4) * pp(2)"),
)


@lru_cache(maxsize=16)
def derived(model: str, subject: str) -> ModelDerivation:
    return derive_model(load(model), parse_strategy(subject))


@pytest.mark.parametrize("overlap", ["none", "data", "all"])
@pytest.mark.parametrize(("model", "subject"), SUBJECTS)
def test_a_step_takes_as_long_as_a_walk_through_it(model: str, subject: str, overlap: Overlap) -> None:
    """Behind the schedule's passes come, on the slowest stage, what comes once a step and the update. Links are slow, or fast."""
    d = derived(model, subject)
    values = {name: Fraction(n) for name, n in {**WIDTHS, "b": 1, "m": M, "eta": Fraction(1, 2)}.items()}

    def number(expr: Any) -> Fraction:
        found = d.value(sympy.sympify(expr), values)
        assert found is not None
        return found

    for gigabytes in (1, 20, 400):
        links = Links(Fraction(3, 10**6), Fraction(gigabytes * 10**9))
        stages = [walked(d, cost, number, links) for cost in d.costs]
        assert any(sum(stage.once) for stage in stages) or subject.startswith("fsdp")
        passes = M * sum(stages[0].of(b, overlap) for b in (False, True)) if len(stages) == 1 else one_f_one_b(stages, overlap)
        device = Device(name="card", memory=Fraction(8 * 10**10), memory_bandwidth=MEMORY, peak={"bf16": PEAK})
        level = Level(name="net", joins=None, latency=links.latency, bandwidth=links.bandwidth)
        flat = Cluster(name="flat", title="flat", device=device, node=8, levels=(level,))
        found = step_time(d, values, flat, overlap=overlap, flat=True)
        assert found.seconds == passes + max(stage.rest(overlap) for stage in stages)


def test_the_tied_table_is_summed_in_the_width_of_gradients_once_a_step() -> None:
    d = derive_model(load("gpt3-175b"), parse_strategy("pp(2)"))
    for cost in d.costs:
        (sent,) = (one for one in cost.sent if one.kind == "tied_reduce")
        assert sympy.expand(sent.bytes - symbol("b_g") * symbol("V") * symbol("h")) == 0
        assert (sent.times, sent.each) == (1, False)
