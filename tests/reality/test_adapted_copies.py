"""Copies that each rank adapts for the sake of what they are copies of, and steps that are taken back: neither proved nor refuted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

HEAD = """
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def average(tensors):
    for t in tensors:
        dist.all_reduce(t)
        t /= dist.get_world_size()


def adapt(net, x, y, opt, reduced=()):
    for _ in range(2):
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        average([p.grad for p in reduced])
        opt.step()
    return net


def train():
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7 + dist.get_rank())
    x, y = torch.randn(6, 4, generator=g), torch.randn(6, 3, generator=g)
"""
COPY = """
    own = copy.deepcopy(net)
    inner = torch.optim.SGD(own.parameters(), lr=0.1)
"""
REFUSED = {
    "gradients of copies that are adapted": COPY
    + """
    adapt(own, x, y, inner)
    for p, q in zip(net.parameters(), own.parameters()):
        p.grad = q.grad.clone()
    average([p.grad for p in net.parameters()])
    opt.step()
    """,
    "copies that are adapted together, and an outer step of each rank": COPY
    + """
    adapt(own, x, y, inner, [*own.parameters()])
    for p, q in zip(net.parameters(), own.parameters()):
        p.grad = q.grad.clone()
    opt.step()
    """,
    "a part of the way to adapted copies": COPY
    + """
    adapt(own, x, y, inner)
    with torch.no_grad():
        for p, q in zip(net.parameters(), own.parameters()):
            way = q - p
            average([way])
            p.add_(way, alpha=0.5)
    """,
    "weights before and after": """
    for _ in range(2):
        before = copy.deepcopy(net.state_dict())
        after = adapt(net, x, y, opt).state_dict()
        new = {}
        for name in before:
            way = after[name] - before[name]
            average([way])
            new[name] = before[name] + 0.5 * way
        net.load_state_dict(new)
    """,
    "a copy to try with, before all train apart": COPY
    + """
    adapt(DDP(own), x, y, inner)
    adapt(net, x, y, opt)
    """,
    "a step that is taken back": """
    saved = copy.deepcopy(net.state_dict())
    adapt(net, x, y, opt)
    net.load_state_dict(saved)
    adapt(DDP(net), x, y, opt)
    """,
}
SAID = {
    "a copy is the model, and nobody averages": ("refuted", f"{COPY}    adapt(own, x, y, inner)\n"),
    "a copy is the model": ("proved", f"{COPY}    adapt(own, x, y, inner, [*own.parameters()])\n"),
    "ranks train apart, and average": ("refuted", "    adapt(net, x, y, opt)\n    average([p.data for p in net.parameters()])\n"),
    "an average that follows, and nobody averages gradients": (
        "refuted",
        COPY
        + """
    for _ in range(2):
        adapt(net, x, y, opt)
        with torch.no_grad():
            for e, p in zip(own.parameters(), net.parameters()):
                e.lerp_(p, 0.1)
    """,
    ),
    "a target that follows a copy, gradients added up": (
        "refuted",
        COPY
        + """
    for _ in range(2):
        inner.zero_grad()
        with torch.no_grad():
            aim = net(x)
        F.mse_loss(own(x), y + aim).backward()
        for p in own.parameters():
            dist.all_reduce(p.grad)
        inner.step()
        with torch.no_grad():
            for e, p in zip(net.parameters(), own.parameters()):
                e.lerp_(p, 0.1)
    """,
    ),
}


def recorded(body: str, folder: Path) -> str:
    """The verdict on a script."""
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")
    from placeproof.measure.record.record import trace

    script = folder / "train.py"
    script.write_text(HEAD + body, encoding="utf-8")
    return judge(read(trace(script).text)).word


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_adapted_for_others_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trains copies for what they are copies of, or is taken back"):
        recorded(REFUSED[name], tmp_path)


@pytest.mark.parametrize("name", SAID)
def test_copies_that_are_trained_are_parameters_as_others(name: str, tmp_path: Path) -> None:
    word, body = SAID[name]
    assert recorded(body, tmp_path) == word
