"""Devices with several stages of the model that are not alike: against each stage on a device of its own, and a step that is run here."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest

from placeproof.clusters import cluster
from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import evaluate
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.passes import work_timeline
from placeproof.cost.model.time import StepTime, step_time, timeline
from placeproof.models import load
from placeproof.schedules import PassKind, slots
from placeproof.strategies import parse_strategy

#: Stages of llama3-8b's 32 layers, one without any.
LAYERS = (7, 6, 5, 5, 4, 3, 2, 0)
M = 8
VALUES = {k: Fraction(n) for k, n in {"b": 1, "b_a": 2, "b_g": 2, "b_theta": 2, "b_omega": 12, "eta": 1}.items()}
SHARED = "fsdp(2) * tp(2) * sp * "
CASES = (
    ("interleaved, chunks=2", LAYERS, SHARED),
    ("zb-v", LAYERS, ""),
    ("dualpipe-v", LAYERS, ""),
    ("dualpipe", (6, 8, 8, 10), SHARED),
)


@cache
def derived(schedule: str, devices: int, layers: tuple[int, ...], sharing: str) -> ModelDerivation:
    strategy = parse_strategy(f"{sharing}pp({devices}, microbatches={M}, schedule={schedule})")
    return derive_model(load("llama3-8b").resized({"s": 4096}), strategy, layers=layers)


@cache
def stepped(schedule: str, devices: int, layers: tuple[int, ...], sharing: str) -> StepTime:
    return step_time(derived(schedule, devices, layers, sharing), VALUES, cluster("dgx-h100"), overlap="none")


def ends(step: StepTime, spent: list[tuple[Fraction, ...]], send: Fraction) -> Fraction:
    """When the last pass ends, by relaxing all that waits until nothing moves."""
    d, p = step.d, len(step.stages)
    orders = slots(d.order, p, M, d.chunks)
    end: dict[tuple[str, int, int], Fraction] = {}
    home = {(kind, x.microbatch, x.stage): n for n, order in enumerate(orders) for slot in order for x in slot for kind in x.kind.value}

    def takes(slot: tuple[object, ...]) -> Fraction:
        amounts = {PassKind.F: (0,), PassKind.B: (1,), PassKind.W: (2,), PassKind.BW: (1, 2)}
        return sum((spent[x.stage][k] for x in slot for k in amounts[x.kind]), Fraction(0))  # type: ignore[attr-defined]

    def ready(x: object, n: int) -> Fraction:
        kind, i, stage = x.kind.value[0], x.microbatch, x.stage  # type: ignore[attr-defined]
        need = ("F", i, stage - 1) if kind == "F" else ("B", i, stage + 1)
        if kind == "W" or need not in home:
            return Fraction(0)
        return end.get(need, Fraction(0)) + (send if home[need] != n else 0)

    moved = True
    while moved:
        moved = False
        for n, order in enumerate(orders):
            clock = Fraction(0)
            for slot in order:
                clock = max([clock, *(ready(x, n) for x in slot)]) + takes(slot)
                for x in slot:
                    for kind in x.kind.value:
                        moved |= end.get((kind, x.microbatch, x.stage)) != clock
                        end[kind, x.microbatch, x.stage] = clock
    return max(end.values())


@pytest.mark.parametrize(("schedule", "layers", "sharing"), CASES)
def test_a_step_takes_what_its_stages_take_each_by_itself(schedule: str, layers: tuple[int, ...], sharing: str) -> None:
    """A stage's passes are those that it has on a device of its own; a step is as long as its order makes of these."""
    found, alone = stepped(schedule, 4, layers, sharing), stepped("1f1b", len(layers), layers, sharing)
    spent = [tuple(map(Fraction, stage.passes)) for stage in alone.stages]
    assert [tuple(map(Fraction, found.runs[n].passes)) for n in range(len(layers))] == spent
    assert len(set(spent)) > 2
    assert found.passes == ends(found, spent, Fraction(found.stages[0].send))
    for cost, stage in zip(found.d.costs, found.stages, strict=True):
        each = [sum(spent[n]) for n in cost.stage.runs]
        assert sum(map(Fraction, stage.passes)) == sum(each) / cost.stage.copies
    table = timeline(found)
    assert table is not None
    assert table.step == found.passes


@pytest.mark.parametrize(("schedule", "layers", "sharing"), CASES)
def test_equal_shares_of_a_device_would_be_another_step(schedule: str, layers: tuple[int, ...], sharing: str) -> None:
    """What was counted before: every stage of a device as long as any other of it."""
    found = stepped(schedule, 4, layers, sharing)
    share, spent = Fraction(found.d.order.copies, found.d.chunks), []
    for n in range(len(layers)):
        device = next(stage for cost, stage in zip(found.d.costs, found.stages, strict=True) if n in cost.stage.runs)
        spent.append(tuple(Fraction(t) * share for t in device.passes))
    assert abs(ends(found, spent, Fraction(found.stages[0].send)) / found.passes - 1) > Fraction(1, 1000)


@pytest.mark.parametrize(("schedule", "layers", "sharing"), CASES[1:3])
def test_the_formula_is_a_bound(schedule: str, layers: tuple[int, ...], sharing: str) -> None:
    """As if each stage were the slowest one."""
    found = stepped(schedule, 4, layers, sharing)
    form = found.form.form
    assert form is not None
    put = {"F_peak": found.price.peak, "B_mem": found.price.bandwidth, "alpha_pp": Fraction(0), "beta_pp": Fraction(0), "m": Fraction(M)}
    bound = evaluate(form, {**found.d.values, **VALUES, **put})
    assert bound is not None
    quick = ends(found, [tuple(map(Fraction, found.runs[n].passes)) for n in range(len(layers))], Fraction(0))
    assert quick < bound
    slowest = max(sum(map(Fraction, s.passes)) for s in found.stages) * M
    assert quick > slowest  # which is what the busiest device computes


@pytest.mark.parametrize(("schedule", "layers", "sharing"), CASES)
def test_memory_and_traffic_are_those_of_its_stages(schedule: str, layers: tuple[int, ...], sharing: str) -> None:
    """States and bytes are sums over stages on devices of their own; activations are what the order of passes keeps of each."""
    found, alone = derived(schedule, 4, layers, sharing), derived("zb-h1", len(layers), layers, sharing)
    orders = slots(found.order, 4, M, found.chunks)
    sizes = [tuple(alone.value(n, VALUES) or Fraction(0) for n in (c.runs[0].kept, c.runs[0].late)) for c in alone.costs]
    for d, cost in enumerate(found.costs):
        own = [alone.costs[n] for n in cost.stage.runs]
        for amount in ("parameters", "gradients", "optimizer"):
            assert found.value(cost.states[amount], VALUES) == sum(alone.value(one.states[amount], VALUES) or 0 for one in own)
        if cost.stage.copies == 1:  # two copies add their gradients up, besides
            for axes in {axes for one in own for axes in one.traffic()} - {"pp"}:
                sent = (alone.value(one.traffic().get(axes, 0), VALUES) or 0 for one in own)
                assert found.value(cost.traffic()[axes], VALUES) == sum(sent)
        kept = most = Fraction(0)
        for slot in orders[d]:
            kept += sum(sizes[x.stage][0] for x in slot if x.kind is PassKind.F)
            most = max(most, kept)
            for x in slot:
                b, w = sizes[x.stage]
                kept += {PassKind.F: 0, PassKind.B: w - b, PassKind.W: -w, PassKind.BW: -b}[x.kind]
            most = max(most, kept)
        assert kept == 0
        assert found.value(cost.activations, VALUES) == most


def test_a_picture_of_operations_has_each_stages_own() -> None:
    found, alone = derived("interleaved, chunks=2", 4, LAYERS, ""), derived("1f1b", 8, LAYERS, "")
    table = work_timeline(found, VALUES)
    assert table is not None
    work = [alone.value(c.flops.forward, VALUES) for c in alone.costs]
    for run in (run for device in table.runs for run in device):
        (one,) = run.slot
        if one.kind is PassKind.F:
            assert run.end - run.start == work[one.stage]
    assert all(a.end <= b.start for device in table.runs for a, b in pairwise(device))


def test_stages_that_no_device_could_have_are_refused() -> None:
    with pytest.raises(InputError, match="there are 8 stages and 32 layers"):
        derived("interleaved, chunks=2", 4, (8, 8, 8, 8), "")
    with pytest.raises(InputError, match="stage 1 would have nothing"):
        derived("1f1b", 4, (16, 0, 8, 8), "")
    with pytest.raises(InputError, match="stage 1 would have nothing"):
        derived("interleaved, chunks=2", 4, (16, 0, 8, 0, 0, 0, 0, 8), "")
    chunk = derived("interleaved, chunks=2", 4, (16, 0, 8, 0, 0, 4, 0, 4), "")
    assert [sum(n for p, n in c.stage.held if p.repeats) for c in chunk.costs] == [16, 4, 8, 4]
