"""Trainings that are watched: nothing is found in right ones, and each planted fault within as many steps as lie between two checks."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from watched_training import FAULTS, FAULTS_OF_FOUR, PRELOAD, RIGHT, RIGHT_OF_FOUR, Fault, train

from placeproof.measure.processes import run
from placeproof.measure.watch import BrokenError, _digest, watch

EVERY, STEPS = 5, 14


def on_processes(world: int, jobs: dict[str, tuple[str, Fault | None]]) -> list[dict[str, Any]]:
    """What each rank says of each training."""

    def each(rank: int, world: int, directory: Any) -> dict[str, Any]:
        return {name: train(base, fault, STEPS, EVERY) for name, (base, fault) in jobs.items()}

    outcomes = run(world, each, timeout=240, collective_timeout=60, preload=PRELOAD)
    assert [one.error for one in outcomes] == [None] * world
    return [one.value for one in outcomes if one.value is not None]


@pytest.mark.parametrize(("world", "bases", "faults"), [(2, RIGHT, FAULTS), (4, RIGHT_OF_FOUR, FAULTS_OF_FOUR)])
def test_each_planted_fault_is_found_in_time_and_nothing_else(world: int, bases: tuple[str, ...], faults: dict[str, Fault]) -> None:
    jobs: dict[str, tuple[str, Fault | None]] = {base: (base, None) for base in bases}
    jobs |= {name: (fault.base, fault) for name, fault in faults.items()}
    for said in on_processes(world, jobs):
        for base in bases:
            assert said[base][0] == [], base
        for name, fault in faults.items():
            findings, seen, _ = said[name]
            assert findings, name
            assert (findings[0].what, fault.name in findings[0].name) == (fault.what, True), (name, findings[0])
            assert len(findings[0].ranks) > 1 or fault.what == "partial gradient", name
            late = name.startswith("skip")  # a rank that skipped an update is that much later
            assert seen == 0 if fault.when == "built" else seen <= fault.step + EVERY + late, (name, seen)


def test_there_are_forty_faults_of_eight_kinds() -> None:
    everything = {**FAULTS, **FAULTS_OF_FOUR}
    assert len(everything) >= 40
    assert len({(one.what, one.when) for one in everything.values()}) >= 8


def _alone() -> Any:
    torch.manual_seed(dist.get_rank())
    net = nn.Linear(3, 3)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def _raising(rank: int, world: int, directory: Any) -> tuple[str, str, str, str]:
    net, optimizer = _alone()
    with pytest.raises(BrokenError) as broken:
        watch(net, optimizer)
    with watch(net, optimizer, ignore=["weight", "bias"]) as watched:
        optimizer.step()
    with pytest.raises(ValueError, match="fully_shard") as refused:
        watch(FullyShardedDataParallel(nn.Linear(3, 3), device_id=torch.device("cpu")), optimizer)
    own = [dist.new_group([one]) for one in range(world)]
    with watch(net, optimizer, group=own[rank]) as apart:  # parts that lie on one rank alone, as of a pipeline
        optimizer.step()
    return str(broken.value), watched.report(), str(refused.value), apart.report()


def test_it_raises_what_is_broken_and_reports_what_it_does_not_compare() -> None:
    outcomes = run(2, _raising, timeout=60, preload=PRELOAD)
    for rank, one in enumerate(outcomes):
        assert one.error is None
        broken, ignored, _, apart = one.value or ("", "", "", "")
        assert broken == (
            "state consistency is broken after update 0: parameter of weight and of 1 more; ranks 0 | 1\n"
            "  help: begin with the same parameters (broadcast them), and make the same updates on all ranks"
        )
        assert ignored.startswith(f"rank {rank}: 1 checks in 1 updates, 0 findings\n")
        assert "not compared: 2 parameters that `ignore` names: weight, bias\n" in ignored
        assert "not compared: 2 parameters without a copy: weight, bias\n" in apart
        assert "not checked: values of what lies on one rank alone" in apart


def test_each_bit_of_a_tensor_counts() -> None:
    torch.manual_seed(0)
    for numbers in (torch.randn(5), torch.randn(20_001), torch.randn(9000, dtype=torch.float64), torch.randn(70_001).to(torch.bfloat16)):
        before = _digest(numbers)
        assert before == _digest(numbers.clone())
        for at in (0, 1, numbers.numel() // 2, numbers.numel() - 1):
            for changed in (-numbers[at], numbers[at] * 1.01, torch.tensor(float("nan"))):
                other = numbers.clone()
                other[at] = changed
                assert _digest(other) != before, (numbers.dtype, at)
        assert _digest(-numbers) != before
        assert _digest(numbers.flip(0)) != before
        assert _digest(numbers[1:]) == _digest(numbers[1:].clone())  # wherever in memory it lies


def test_objects_have_no_addresses_and_data_is_compared_whole() -> None:
    assert _digest([object(), 1]) == _digest([object(), 1])
    assert _digest({"a": [torch.ones(3)]}) != _digest({"a": [torch.zeros(3)]})
    assert _digest((0.9, 0.999)) != _digest((0.8, 0.999))
    assert _digest(torch.empty(0)) == _digest(torch.empty(0))
    assert _digest(torch.eye(2).to_sparse()) != _digest(2 * torch.eye(2).to_sparse())


def test_what_cannot_be_watched_is_refused() -> None:
    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="init_process_group"):
        watch(net, torch.optim.SGD(net.parameters(), lr=0.1))


def _partial(rank: int, world: int, directory: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    net = nn.Module()
    net.w = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Replicate()]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    watched = watch(net, optimizer, every=1, raises=False)
    net.w.grad = DTensor.from_local(torch.ones(4), mesh, [Partial()])
    optimizer.step()
    with pytest.warns(UserWarning, match="gradient integrity"):
        watched.close()
    return [(one.condition, one.what, one.name) for one in watched.findings]


def test_a_sum_that_nobody_took_is_no_gradient() -> None:
    for one in run(2, _partial, timeout=60, preload=PRELOAD):
        assert one.error is None
        assert one.value == [("gradient integrity", "partial gradient", "w")]
