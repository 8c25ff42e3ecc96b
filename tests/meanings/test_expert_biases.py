"""Experts with biases, of which tensor parallelism has copies: the step adds up what devices find of these, and of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import placeproof
from placeproof.models.presets import load
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.linked.link import link
from placeproof.strategies import parse_strategy

PACKAGE = Path(placeproof.__file__).parent / "models"
SIZES = {"h": 64, "L": 2, "a": 4, "a_kv": 2, "f_e": 64, "V": 128, "s": 32, "b": 1, "E": 4, "k": 2}
#: What makes of the block of experts one whose second matrices have biases, forward and backward.
BIASED = {
    "tensor(w2, experts, expert_ffn, hidden)\n": "tensor(w2, experts, expert_ffn, hidden)\ntensor(b2, experts, hidden)\n",
    "contract(a, w2, over=expert_ffn), over=experts": "contract(a, w2, over=expert_ffn) + hot(route) * b2, over=experts",
    "da = contract(": "returns(total(total(total(dout, over=tokens), over=batch), over=choices), gradient_of=y, by=b2, at=dy)\n"
    "da = contract(",
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    block = (PACKAGE / "blocks" / "moe.step").read_text(encoding="utf-8")
    for old, new in BIASED.items():
        assert block.count(old) == 1
        block = block.replace(old, new)
    family = (PACKAGE / "families" / "mixtral.toml").read_text(encoding="utf-8")
    (tmp_path / "biased.step").write_text(block, encoding="utf-8")
    (tmp_path / "biased.toml").write_text(family.replace('"moe"]', '"biased.step"]').replace('"mixtral"', '"biased"'), encoding="utf-8")
    return str(tmp_path / "biased.toml")


@pytest.mark.parametrize("strategy", ["ep * tp", "ep * tp * sp", "ep * tp * sp * clip", "ep(experts=whole) * tp * sp"])
def test_its_step_is_proved(strategy: str, model: str) -> None:
    read = load(model)
    assert judge_linked(link(read, parse_strategy(strategy)), read).word == "proved"


def costs(strategy: str, model: str) -> dict[str, Any]:
    stage: dict[str, Any] = placeproof.model(strategy, model, precision="mixed-adam", **SIZES).data["stages"][0]
    return stage


@pytest.mark.parametrize("strategy", ["ep(2) * tp(2)", "ep(2) * tp(2) * sp", "zero1(2) * zero1(dp=ep) * ep(2) * tp(2) * sp"])
def test_clipping_adds_scalars_alone(strategy: str, model: str) -> None:
    plain, clips = costs(strategy, model), costs(f"{strategy} * clip", model)
    assert all(plain["memory"][state]["value"] == held["value"] for state, held in clips["memory"].items())
    scalars = [row for row in clips["sent"] if row["about"] == "scalar"]
    more = sum(row["bytes"]["value"] * row["times"]["value"] for row in scalars)
    sent = [sum(over["value"] for over in one["traffic"].values()) for one in (plain, clips)]
    assert sent[1] - sent[0] == more > 0


def test_biases_alone_are_added_up_over_the_hidden_dimension(model: str) -> None:
    """Of two layers: a bias of 64 for each of a device's two experts; gains of five norms, and the router."""
    rows = [r for r in costs("ep(2) * tp(2) * sp", model)["sent"] if r["axes"] == ["tp"] and r["about"].startswith("gradients")]
    assert sum(row["bytes"]["value"] * row["times"]["value"] for row in rows) == 2 * (2 * 2 * 64 + 5 * 64 + 2 * 64 * 4)
