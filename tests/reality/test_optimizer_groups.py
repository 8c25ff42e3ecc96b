"""Groups of an optimizer that are chosen by what sharding changes: one device would train with others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def wrapped(net, **given):
    return FSDP(net, device_id=torch.device("cpu"), **given)


def sharded(net):
    return fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def train():
    {before}
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    model = {model}
    named = list(model.named_parameters())
    groups = [
        dict(params=[p for n, p in named if {chosen}], weight_decay=0.1),
        dict(params=[p for n, p in named if not ({chosen})], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW({groups}, lr=0.01 * dist.get_world_size())
    g = torch.Generator().manual_seed(7 + dist.get_rank())
    x, y = torch.randn(6, 4, generator=g), torch.randn(6, 3, generator=g)
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
ORIGINAL = "wrapped(net, use_orig_params=True)"
RIGHT = {
    "by name": (ORIGINAL, "n.endswith('weight')"),
    "by name, in units of which ranks have other pieces": (
        "wrapped(nn.Sequential(wrapped(net, use_orig_params=True), nn.Linear(3, 3)), use_orig_params=True)",
        "n.endswith('weight')",
    ),
    "by name, of distributed tensors": ("sharded(net)", "n.endswith('weight')"),
    "by dimensions, which distributed tensors keep": ("sharded(net)", "p.dim() >= 2"),
    "by dimensions, of whole parameters": ("DDP(net)", "p.dim() >= 2"),
}
WRONG = {
    "by dimensions": (ORIGINAL, "p.dim() >= 2"),
    "by dimensions, of which one group is empty and left out": (ORIGINAL, "p.dim() >= 2", "[g for g in groups if g['params']]"),
    "by dimensions of all in a row": ("wrapped(net)", "p.dim() >= 2"),
    "by elements of a rank": ("sharded(net)", "p.to_local().numel() > 15"),
}


def recorded(folder: Path, model: str, chosen: str, groups: str = "groups", before: str = "pass") -> str:
    """The program of a script."""
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")
    from placeproof.measure.record.record import trace

    script = folder / "train.py"
    script.write_text(SCRIPT.format(model=model, chosen=chosen, groups=groups, before=before), encoding="utf-8")
    return trace(script).text


@pytest.mark.parametrize("name", RIGHT)
def test_groups_that_sharding_does_not_change_are_proved(name: str, tmp_path: Path) -> None:
    program = read(recorded(tmp_path, *RIGHT[name]))
    assert judge(program).word == "proved"
    assert [name for name, _ in program.not_compared] == ["settings"]  # a rate that is multiplied by the number of ranks


@pytest.mark.parametrize("name", WRONG)
def test_groups_that_sharding_changes_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"with one rank `.*` and `.*` are updated with (other|the same) settings, and with 2 ranks"):
        recorded(tmp_path, *WRONG[name])


def test_groups_of_a_script_that_has_always_as_many_ranks_are_not_compared(tmp_path: Path) -> None:
    program = read(recorded(tmp_path, *WRONG["by dimensions"], before="assert dist.get_world_size() == 2"))
    assert [name for name, _ in program.not_compared] == ["groups", "process"]
