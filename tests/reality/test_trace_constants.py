"""Constants of a loss: what a script trains with one, and what it does not, where nobody can see which is meant, and where that is said.

What such steps train, `nightly/scripts` shows of real processes.
"""

from __future__ import annotations

import os
import textwrap
from fractions import Fraction
from pathlib import Path

import pytest
from trace_steps import HEAD

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")

BODY = """
net, (x, y) = model(), data()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for xs, ys in zip(x.chunk({chunks}), y.chunk({chunks})):
    ({loss}).backward()
for p in net.parameters():
    dist.all_reduce(p.grad)
    {after}
optimizer.step()
"""
MEAN, SUM, AVERAGE = "mse(net(xs), ys)", "mse(net(xs), ys, reduction='sum')", "p.grad /= dist.get_world_size()"
#: Micro-batches, their loss, what is done to summed gradients, and constants that may be meant, each with what is said then.
SCRIPTS = {
    "a constant and micro-batches in one number": (
        3,
        f"{MEAN} * (0.3 / 3)",
        AVERAGE,
        {"3/10": "proved", "1/10": "refuted", "1": "refuted"},
    ),
    "a constant and ranks in one number": (1, f"{MEAN} * (0.5 / dist.get_world_size())", "pass", {"1/2": "proved", "1/4": "refuted"}),
    "divided twice by micro-batches": (3, f"{MEAN} / 3 / 3", AVERAGE, {"1/3": "proved", "1": "refuted"}),
    "a scale that is left": (1, f"{MEAN} * 128", AVERAGE, {"128": "proved", "1": "refuted"}),
    "half a loss that is not averaged": (1, f"{MEAN} * 0.5", "pass", {"1/2": "refuted"}),
    "a sum over all samples": (3, SUM, "pass", {"1": "refuted"}),
}


#: A mesh of which one axis is the same with any number of ranks, and a loss that is divided by it.
ON_A_MESH = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

WORLD = 4


def train():
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "cp"))
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = (torch.randn(8, n).chunk(dist.get_world_size())[dist.get_rank()] for n in (4, 3))
    ({loss}).backward()
    for p in net.parameters():
        for axis in ("dp", "cp"):
            dist.all_reduce(p.grad, group=mesh.get_group(axis))
            p.grad /= mesh[axis].size()
    optimizer.step()
"""
HARD_CODED = BODY.format(chunks=1, loss=MEAN, after="p.grad /= 4")


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")


def _script(body: str, folder: Path) -> Path:
    script = folder / "script.py"
    script.write_text(HEAD + "\ndef train():\n" + textwrap.indent(body, "    "))
    return script


@pytest.mark.parametrize("name", SCRIPTS)
def test_which_constant_is_meant_is_asked_and_then_the_step_is_right_or_wrong(name: str, tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    chunks, loss, after, meant = SCRIPTS[name]
    script = _script(BODY.format(chunks=chunks, loss=loss, after=after), tmp_path)
    with pytest.raises(InputError) as refused:
        trace(script)
    assert "--loss-constant" in (refused.value.diagnostics[0].help or "") or "half a loss" in name
    for constant, word in meant.items():
        assert judge(read(trace(script, constant=Fraction(constant)).text)).word == word, constant


@pytest.mark.parametrize(
    ("loss", "constant", "word"),
    [
        ("mse / mesh['cp'].size()", "1", "refuted"),
        ("0.5 * mse", "1/2", "proved"),
        ("mse + out.pow(2).mean() / mesh['cp'].size()", None, None),
        ("mse + 0.3 * out.pow(2).mean()", None, "proved"),
        ("0.3 * mse", None, "proved"),
    ],
)
@pytest.mark.parametrize("other", ["cp", "replicate"])
def test_a_number_that_may_be_of_an_axis_that_never_changes_is_no_constant(
    loss: str, constant: str | None, word: str | None, other: str, tmp_path: Path
) -> None:
    """With the constant that is said the step is right or wrong."""
    from placeproof.measure.record.record import trace

    script, body = tmp_path / "script.py", "out = net(x)\n    mse = (out - y).pow(2).mean()\n    ({loss})"
    script.write_text(ON_A_MESH.replace("({loss})", body).format(loss=loss).replace("cp", other))
    if constant is not None or word is None:
        with pytest.raises(InputError, match="may be a constant, or"):
            trace(script)
    if word is not None:
        assert judge(read(trace(script, constant=constant and Fraction(constant)).text)).word == word


def test_a_number_for_ranks_is_wrong_with_the_ranks_that_are_said(tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    script = _script(HARD_CODED, tmp_path)
    with pytest.raises(InputError, match="a number that nobody has said"):
        trace(script)
    text = trace(script, world=2).text
    assert "mesh(dp=2)" in text
    assert judge(read(text)).word == "refuted"
    with pytest.raises(InputError, match="and not with another number of ranks"):  # right, with four
        trace(script, world=4)
