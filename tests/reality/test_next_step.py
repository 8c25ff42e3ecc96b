"""What the step after the recorded one shows: gradients that nobody clears, another loss, or what is wrong in it alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

HEAD = """
import io

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def train():
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(4, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7 + rank)
    x, y = torch.randn(3, 4, 4, generator=g), torch.randn(3, 4, 3, generator=g)
"""
END = "    return model\n"
UNITS = "units that are gathered, of which the first and the last are kept"
#: A network that follows the one that is trained, and that losses read; a model that is made anew of what was saved.
FOLLOWS = """
    slow = torch.nn.Linear(4, 3)
    slow.load_state_dict(model.module.state_dict())
    for i in range(2):
        opt.zero_grad()
        with torch.no_grad():
            aim = slow(x[i])
        loss = F.mse_loss(model(x[i]), y[i] + aim)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for s, p in zip(slow.parameters(), model.parameters()):
                if {where}:
                    s.lerp_(p, {rate})
"""
LOADED = """
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i in range(2):
        opt.zero_grad()
        F.mse_loss(model(x[i]), y[i]).backward()
        opt.step()
        if i == 0:
            saved = io.BytesIO()
            torch.save([model.module.state_dict(), opt.state_dict()], saved)
            have = torch.load(io.BytesIO(saved.getvalue()))
            model = DDP(torch.nn.Linear(4, 3))
            opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            model.module.load_state_dict(have[0])
            if {where}:
                opt.load_state_dict(have[1])
"""
#: Of what ranks keep of their own samples: one process ends with other parameters.
APART = "in numbers they end with other values than the script does as one process"
#: Bodies, what is said of them, if they are not refused, and with which words of what was not compared, or of what is wrong.
BODIES = {
    "two steps": (
        "    for i in range(2):\n        opt.zero_grad()\n        F.mse_loss(model(x[i]), y[i]).backward()\n        opt.step()\n",
        "proved",
        "",
    ),
    "one step": ("    F.mse_loss(model(x[0]), y[0]).backward()\n    opt.step()\n", "proved", ""),
    "a forward pass alone follows": (
        "    F.mse_loss(model(x[0]), y[0]).backward()\n    opt.step()\n    F.mse_loss(model(x[1]), y[1])\n",
        "proved",
        "",
    ),
    "what is left updates nothing": (
        "    for i in range(3):\n        (F.mse_loss(model(x[i]), y[i]) / 2).backward()\n"
        "        if i % 2:\n            opt.step()\n            opt.zero_grad()\n",
        "proved",
        "",
    ),
    "gradients are not cleared": (
        "    for i in range(2):\n        F.mse_loss(model(x[i]), y[i]).backward()\n        opt.step()\n",
        "proved",
        "step 2 cannot be said: what happens to gradients",
    ),
    "the last group is smaller": (
        "    for i in range(3):\n        (F.mse_loss(model(x[i]), y[i]) / 2).backward()\n"
        "        if i % 2 or i == 2:\n            opt.step()\n            opt.zero_grad()\n",
        "proved",
        "step 2 trains another loss",
    ),
    "a centre of the own samples": (
        "    centre = torch.zeros(3)\n    for i in range(2):\n        opt.zero_grad()\n        out = model(x[i])\n"
        "        (out - centre).pow(2).mean().backward()\n        centre = 0.9 * centre + 0.1 * out.detach().mean(0)\n        opt.step()\n",
        "",
        APART,
    ),
    UNITS: (
        "    from torch.distributed.device_mesh import init_device_mesh\n    from torch.distributed.fsdp import fully_shard\n"
        "    mesh = init_device_mesh('cpu', (WORLD,), mesh_dim_names=('dp',))\n    L = torch.nn.Linear\n"
        "    net = torch.nn.Sequential(L(4, 4), torch.nn.Tanh(), L(4, 4), torch.nn.Tanh(), L(4, 4), L(4, 3))\n"
        "    for unit, kept in ((net[2], False), (net[4], False), (net[5], True)):\n"
        "        fully_shard(unit, mesh=mesh, reshard_after_forward=not kept)\n    fully_shard(net, mesh=mesh)\n"
        "    opt = torch.optim.AdamW(net.parameters(), lr=0.1)\n    for i in range(2):\n        opt.zero_grad()\n"
        "        F.mse_loss(net(x[i]), y[i]).backward()\n        opt.step()\n",
        "proved",
        "",
    ),
    "a target that follows": (FOLLOWS.format(where="True", rate="0.1"), "proved", ""),
    "a target that follows on rank 0": (FOLLOWS.format(where="rank == 0", rate="0.1"), "", APART),
    "a target that follows by the own loss": (FOLLOWS.format(where="True", rate="0.1 * loss.detach()"), "", APART),
    "a state that is loaded": (LOADED.format(where="True"), "proved", ""),
    "a state that is loaded on rank 0": (
        LOADED.format(where="rank == 0"),
        "proved",
        "step 2 cannot be said: the optimizer of rank 1 begins with something else",
    ),
    "a second step in which a rank weighs its losses": (
        "    for i in range(2):\n        opt.zero_grad()\n        out = model(x[i]) - y[i]\n"
        "        weight = (y[i] * 0 + 1) * (1 + i * rank * 0.7)\n        (weight * out ** 2).mean().backward()\n        opt.step()\n",
        "",
        "rank 1 computes `mul` with 1.7, and rank 0 with 1",
    ),
    "the second step is not reduced": (
        "    for i in range(2):\n        opt.zero_grad()\n        (model if i == 0 else model.module).train()\n"
        "        F.mse_loss((model if i == 0 else model.module)(x[i]), y[i]).backward()\n        opt.step()\n",
        "refuted",
        "",
    ),
}


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


@pytest.mark.parametrize(("divided", "said"), [("2", ["previous_step"]), ("(2 - i)", [])])
def test_a_constant_of_the_loss_is_one_in_the_step_before_too(divided: str, said: list[str], tmp_path: Path) -> None:
    """Two micro-batches, and one that is left in the last step."""
    from placeproof.measure.record.record import trace

    body = f"""
    for i in range(2):
        for k in range(2 - i):
            (F.mse_loss(model(x[i + k]), y[i + k]) / {divided}).backward()
        opt.step()
        opt.zero_grad()
    """
    path = tmp_path / "train.py"
    path.write_text(HEAD + body + "\n" + END, encoding="utf-8")
    program = read(trace(path, step=2).text)
    assert judge(program).word == "proved"
    assert [key for key, _ in program.not_compared] == said


@pytest.mark.parametrize("name", BODIES)
def test_the_next_step_is_looked_at(name: str, tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    body, word, said = BODIES[name]
    path = tmp_path / "train.py"
    path.write_text(HEAD + body + END, encoding="utf-8")
    if not word:
        with pytest.raises(InputError, match=said):
            trace(path)
        return
    traced = trace(path)
    program = read(traced.text)
    assert judge(program).word == word
    assert [key for key, _ in program.not_compared] == (["next_step"] if said else [])
    assert all(said in text for _, text in program.not_compared)
    assert ("This is step 2: step 1 is proved by itself." in traced.text) == (word == "refuted")
    assert ("Step 2 is proved, too." in traced.text) == (name in ("two steps", UNITS, "a target that follows", "a state that is loaded"))
