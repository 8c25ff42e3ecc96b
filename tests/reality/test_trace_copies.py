"""Of layers that ranks split, some of what all have is averaged over ranks, and of the rest nothing is exchanged: both are their mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from summed_scripts import script

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.record import trace
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

STEP = """
model = build(False)
for b in model[:2]:
    for of, name, dim in ((b.up, "weight", 0), (b.up, "bias", 0), (b.down, "weight", 1)):
        setattr(of, name, nn.Parameter(getattr(of, name).data.chunk(world, dim)[rank].clone()))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = batch(0)
(F.mse_loss(model(x), y) * LOSS).backward()
for b in model[:2]:
    for p in (*b.up.parameters(), *b.down.parameters()):
        p.grad *= PARTS
    for p in b.norm.parameters():
        dist.all_reduce(p.grad)
        p.grad *= COPIES
opt.step()
"""


@pytest.fixture(autouse=True)
def _processes() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")


def recorded(folder: Path, loss: str, parts: str, copies: str) -> str:
    """The verdict on a step with these factors."""
    path = folder / "train.py"
    path.write_text(script(STEP.replace("LOSS", loss).replace("PARTS", parts).replace("COPIES", copies)), encoding="utf-8")
    return judge(read(trace(path, world=2).text)).word


@pytest.mark.parametrize(("copies", "word"), [("1 / world", "proved"), ("1", "refuted")])
def test_copies_that_are_averaged_are_what_each_has_and_their_sum_is_not(copies: str, word: str, tmp_path: Path) -> None:
    assert recorded(tmp_path, "1", "1", copies) == word


def test_where_a_sum_makes_up_for_a_part_of_the_loss_the_rest_is_not_taken_for_right(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 ways"):
        recorded(tmp_path, "1 / world", "world", "1")
