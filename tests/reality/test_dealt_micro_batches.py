"""A micro-batch that counts otherwise on another rank refutes a step; what only looks like it does not. Real processes run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placeproof.measure.record.dealt import dealt
from placeproof.measure.record.launch import Launch, beyond_step, forked, with_samples
from placeproof.measure.record.witness import Witness

HEAD = """
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(11, 6), torch.nn.Linear(6, 11)).double()
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7 + rank)
    x = torch.randint(0, 11, (6, 4), generator=g)
    y = torch.randint(0, 11, (6, 4), generator=g)
    for i in range(6):
        y[i, : (i + 2 * rank) % 4] = -100
"""
SUM = "F.cross_entropy(model(x[s]).flatten(0, 1), y[s].flatten(), ignore_index=-100, reduction='sum')"
NONE = SUM.replace("'sum'", "'none'")
EACH = "F.cross_entropy(model(a).flatten(0, 1), b.flatten(), ignore_index=-100, reduction='sum')"
MEAN = "F.cross_entropy(model(x[s]).flatten(0, 1), y[s].flatten(), ignore_index=-100)"
STATE = MEAN.replace("model(x[s])", "z")
PARTS = "    for s in (slice(0, 2), slice(2, 4), slice(4, 6)):\n"
END = "    opt.step()\n    return model\n"
WRONG = {
    "tokens of the rank, as a number": f"    n = (y != -100).sum().item()\n{PARTS}        ({SUM} / n).backward()\n{END}",
    "tokens of the rank, as a tensor": f"    n = (y != -100).sum()\n{PARTS}        ({SUM} * 2 / n).backward()\n{END}",
    "tokens of the rank, counted of copies": (
        "    batches = [(x[i : i + 2].clone(), y[i : i + 2].clone()) for i in (0, 2, 4)]\n"
        f"    n = sum((t != -100).sum() for _, t in batches)\n    for a, b in batches:\n        ({EACH} / n).backward()\n{END}"
    ),
    "all ranks have all samples": (
        "    g = torch.Generator().manual_seed(3)\n    x = torch.randint(0, 11, (12, 4), generator=g)\n    y = x.roll(1, 1)\n"
        "    y[:5, 1:] = -100\n    x, y = x[rank * 6 : rank * 6 + 6], y[rank * 6 : rank * 6 + 6]\n"
        "    n = (y != -100).sum()\n"
        f"{PARTS}        ({SUM} / n).backward()\n{END}"
    ),
    "weights of the rank": (
        f"    w = x.double().mean(1) + 1\n    w = w / w.sum()\n{PARTS}        ({NONE}.view(2, 4).mean(1) * w[s]).sum().backward()\n{END}"
    ),
}
RIGHT = {
    "tokens of all ranks": f"    n = (y != -100).sum()\n    dist.all_reduce(n)\n{PARTS}        ({SUM} * world / n).backward()\n{END}",
    "means of micro-batches": f"{PARTS}        ({MEAN} / 3).backward()\n{END}",
    "a number of Python for each rank": f"{PARTS}        ({MEAN} * (rank + 1)).backward()\n{END}",
    "tokens of the rank, counted by Python": f"    n = [18, 14][rank]\n{PARTS}        ({SUM} / n).backward()\n{END}",
    "tokens of the rank, made good before the reduction": (
        "    n = (y != -100).sum()\n    total = n.clone()\n    dist.all_reduce(total)\n"
        f"    for s in (slice(0, 2), slice(2, 4), slice(4, 6)):\n        ({SUM.replace('model', 'net')} / n).backward()\n"
        "    for p in net.parameters():\n        p.grad *= n / total\n        dist.all_reduce(p.grad)\n" + END
    ),
    "a state from micro-batch to micro-batch": (
        f"    h = 0\n{PARTS}        z = model(x[s]) + h\n        h = z.detach()\n        {STATE}.backward()\n{END}"
    ),
    "drawn noise": f"{PARTS}        F.dropout({MEAN} + model(x[s]).pow(2), 0.3).mean().backward()\n{END}",
    "other samples and nothing else, gradients divided by each rank's largest": (
        "    parts = [slice(0, 2), slice(2, 4), slice(4, 6)]\n"
        f"    for s in parts:\n        ({MEAN.replace('model', 'net')} / 3).backward()\n"
        "    for p in net.parameters():\n        p.grad /= p.grad.abs().max()\n        dist.all_reduce(p.grad)\n" + END
    ),
    "the same samples on both": (
        "    g = torch.Generator().manual_seed(3)\n    x, y = torch.randint(0, 11, (2, 6, 4), generator=g).unbind()\n"
        f"    n = (y != -100).sum()\n{PARTS}        ({SUM} / n).backward()\n{END}"
    ),
    "one micro-batch": f"    n = (y != -100).sum()\n    s = slice(0, 6)\n    ({SUM} / n).backward()\n{END}",
}


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def found(body: str, folder: Path) -> Witness | None:
    """What is said of a script."""
    path = folder / "train.py"
    path.write_text(HEAD + body, encoding="utf-8")
    launch = Launch(script=path, world=2, timeout=60)
    return dealt(forked(launch, beyond_step), 1, lambda instead: forked(launch, with_samples(instead)))


@pytest.mark.parametrize("name", WRONG)
def test_a_micro_batch_that_counts_otherwise_on_another_rank_is_a_witness(name: str, tmp_path: Path) -> None:
    witness = found(WRONG[name], tmp_path)
    assert witness is not None
    before, after = witness.numbers["gradient"], witness.numbers["exchanged"]
    assert before != after
    assert "backward()" in witness.source[witness.line - 1]


@pytest.mark.parametrize("name", RIGHT)
def test_what_one_device_may_mean_or_what_is_not_understood_is_none(name: str, tmp_path: Path) -> None:
    assert found(RIGHT[name], tmp_path) is None
