"""Losses of which samples depend on one another: ranks are compared with one process that has the samples of all.

``nightly/scripts`` has more scripts of this kind, right and wrong, and what really running them shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import refuse
from placeproof.measure.record.nodes import Nodes
from placeproof.measure.record.recording import Recording, Seen, State, Turn
from placeproof.measure.record.together import Numbers, Origin, Samples, Together, UnlikeError, together

ORIGIN: Origin = (1, "randn", "torch.float64", (2,), 1)
WEIGHTS = np.array([0.3, -0.7])
#: The gradient that a rank makes, of what it has and of what all have.
Gradient = Callable[[np.ndarray, list[np.ndarray]], np.ndarray]


def _whole(samples: np.ndarray) -> np.ndarray:
    """The gradient of the root of the mean of squares."""
    values = samples @ WEIGHTS
    found: np.ndarray = samples.T @ values / len(values) / np.sqrt((values**2).mean())
    return found


def _share(own: np.ndarray, every: list[np.ndarray]) -> np.ndarray:
    values, all_values = own @ WEIGHTS, np.concatenate(every) @ WEIGHTS
    found: np.ndarray = own.T @ values / len(values) / np.sqrt((all_values**2).mean())
    return found


def _compared(
    gradient: Gradient, *, draw: Callable[[int], np.ndarray] | None = None, worlds: int = 4, exchanged: bool = False, times: float = 1.0
) -> Together:
    """What is said of ranks that make this gradient. ``times``: by which the loss changes more than gradients say."""

    def running(world: int, samples: Mapping[int, Samples], shift: float) -> Mapping[int, Numbers]:
        if world > worlds:
            refuse("PP603", "too many ranks", help="fewer")
        drawn = [np.random.default_rng(rank).normal(size=(3, 2)) if draw is None else draw(rank) for rank in range(world)]
        every = [np.asarray(samples.get(rank, {}).get(ORIGIN, own), dtype=np.float64) for rank, own in enumerate(drawn)]
        moved = WEIGHTS + shift * np.array([1.0, 2.0])
        made = [_whole(every[0])] if world == 1 else [gradient(own, every) for own in every]
        left = WEIGHTS - sum(made) / world
        return {
            rank: Numbers(
                rows=len(every[rank]) if world > 1 else 3,
                samples={ORIGIN: every[rank]},
                gradients={"w": made[rank]},
                left={"w": left},
                directions={"w": np.array([1.0, 2.0])},
                exchanged=exchanged,
                mean=True,
                loss=times * float(np.sqrt(((every[0] @ moved) ** 2).mean())),
                passes=1,
            )
            for rank in range(world)
        }

    turn = Turn(factor=1, summed=False, count=1, rows=1, line=1)  # type: ignore[arg-type]
    recordings = {
        rank: Recording(
            rank=rank, world=2, script="train.py", source=("",), nodes=Nodes(), turns=[turn], states=[State(name="w", numel=2)],
            events=[Seen(kind="pass", phase="backward", states=frozenset((0,)))],
        )
        for rank in range(2)
    }  # fmt: skip
    return together(recordings, 2, running)


@pytest.mark.parametrize(("times", "power"), [(lambda n: 1.0, 0), (lambda n: 1 / n, -1), (float, 1)])
def test_shares_of_the_loss_of_all_samples_are_seen_with_the_power_of_the_ranks(times: Callable[[int], float], power: int) -> None:
    found = _compared(lambda own, every: _share(own, every) * times(len(every)), exchanged=True)
    assert (found.power, found.worlds, found.mean, found.alike) == (power, (2, 3, 4), True, power == 0)
    assert found.far < 1e-9
    assert "not proved" in found.text


@pytest.mark.parametrize(
    ("gradient", "says"),
    [
        (lambda own, every: _whole(own), "differ from those of one process"),
        (lambda own, every: _share(own, every) / 2, "differ from those of one process"),
        (lambda own, every: _share(own, every) * (1 if len(every) == 2 else 2), "differ from those of one process"),
        (lambda own, every: _share(own, every) + np.array([0.0, 1e-6]), "differ from those of one process"),
        (lambda own, every: _share(own, every) * np.nan, "differ from those of one process"),
    ],
)
def test_another_gradient_is_none_of_all_samples_together(gradient: Gradient, says: str) -> None:
    with pytest.raises(UnlikeError, match=says):
        _compared(gradient)


def test_samples_that_two_ranks_have_and_samples_that_are_none_are_not_compared() -> None:
    rows = np.random.default_rng(7).normal(size=(9, 2))
    with pytest.raises(UnlikeError, match="no samples of their own"):
        _compared(_share, draw=lambda rank: rows[rank : rank + 3])
    with pytest.raises(UnlikeError, match="no samples of their own"):
        _compared(_share, draw=lambda rank: rows[:3])


def test_a_gradient_that_an_exchange_leaves_out_is_none_of_the_loss() -> None:
    """The loss of one process changes otherwise with the parameters than its gradients say: twice as much."""
    assert _compared(_share, times=2.0).power == 0
    with pytest.raises(UnlikeError, match="hands back no gradient"):
        _compared(_share, times=2.0, exchanged=True)


def test_one_number_of_ranks_decides_nothing() -> None:
    with pytest.raises(UnlikeError, match="one number of ranks alone"):
        _compared(_share, worlds=2)


HEAD = """
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
from torch import nn


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1 + rank))
    z = nn.functional.normalize(net(x), dim=1)
    zs = {gathered}
    others = z @ zs.T - 9 * torch.eye(len(zs))[rank * len(x) : (rank + 1) * len(x)]
    torch.logsumexp(others, 1).mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
"""
GATHERED = {
    "with gradients": ("torch.cat(DF.all_gather(z))", 0),
    "without gradients": ("[torch.empty_like(z) for _ in range(world)]\n    dist.all_gather(zs, z.detach())\n    zs = torch.cat(zs)", 2),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
@pytest.mark.parametrize("name", GATHERED)
def test_a_contrastive_loss_over_all_ranks_is_proved_except_for_that(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    script, out = tmp_path / "train.py", tmp_path / "train.step"
    gathered, code = GATHERED[name]
    script.write_text(HEAD.replace("{gathered}", gathered))
    assert run(["trace", "record", str(script), "-o", str(out), "--json"]) == code
    if code:
        assert "hands back no gradient" in capsys.readouterr().err
        return
    assert "against one process" in out.read_text()
    capsys.readouterr()
    assert run(["prove", str(out), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)
    assert run(["prove", str(out), "--allow", "loss"]) == 0
