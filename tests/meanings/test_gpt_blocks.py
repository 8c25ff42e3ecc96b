"""The blocks of a GPT layer: proved on one device and as they are lowered by hand, refuted where they are wrong."""

from __future__ import annotations

import pytest
from gpt_blocks import LAYER, block, differs, text

from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge_tensors

PLANS = ("", "tp", "sp")


#: Proofs of attention take seconds; of its hand-written plans one is proved, and the other is run.
PROVED = [(name, plan) for name in sorted(set(LAYER)) for plan in PLANS if (name, plan) != ("attention_gpt", "tp")]


@pytest.mark.parametrize(("name", "plan"), PROVED)
def test_blocks_are_proved(name: str, plan: str) -> None:
    judged = judge_tensors(block(name, plan))
    assert judged.word == "proved", judged.why
    claims = {s.obligation.name for s in judged.settled}
    for tensor in block(name).tensors:
        if tensor.name not in ("same", "drop", "mask", "dy", "dn"):
            assert any(f"by `{tensor.name}`" in c and "is the derivative" in c for c in claims), tensor.name


@pytest.mark.parametrize("plan", PLANS)
def test_attention_agrees_with_derivatives_in_fractions(plan: str) -> None:
    assert not differs(block("attention_gpt", plan))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("layer_norm", "back = dc - total(dc, over=hidden) / size", "back = dc"),
        ("layer_norm", "2 * apart * total(dh * apart, over=hidden)", "apart * total(dh * apart, over=hidden)"),
        ("attention_gpt", "over=width) * drop\n", "over=width)\n"),
        ("attention_gpt", "contract(pd, do, over=tokens)", "contract(p, do, over=tokens)"),
        ("attention_gpt", "ds = p * (dp - total(p * dp, over=keys))", "ds = pd * (dp - total(pd * dp, over=keys))"),
        ("mlp_gpt", "slope(gelu, u)", "slope(gelu, a)"),
        ("mlp_gpt", "dout = dy * mask", "dout = dy"),
    ],
)
def test_wrong_blocks_are_refuted(name: str, old: str, new: str) -> None:
    assert text(name).count(old) == 1
    wrong = read(text(name).replace(old, new))
    assert differs(wrong)
    assert name == "attention_gpt" or judge_tensors(wrong).word == "refuted"
