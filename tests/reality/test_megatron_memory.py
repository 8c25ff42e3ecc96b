"""What a stage of Megatron-core and Transformer Engine has at most, run by an oracle in PyTorch, against what is derived for it.

The oracle (``helpers/megatron_layers.py``) was written from their sources, and knows nothing of how placeproof finds a moment. Dummies and
workspaces are no part of a pass. What the two have apart is named, stream by stream, and is all that there is.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import placeproof

torch = pytest.importorskip("torch")

from megatron_layers import Sizes, Stage, normed, rotated  # noqa: E402

SMALL = {"hidden": 32, "ffn": 80, "vocab": 64, "heads": 4, "kv_heads": 2, "tokens": 16, "layers": 2}
FIRST, LAST = {"stages": 2, "last": False, "micro": 4}, {"stages": 2, "micro": 4}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bf16": {"dtype": torch.bfloat16},
    "as many heads of keys": {"kv_heads": 4, "batch": 3},
    "many tokens": {"tokens": 48},
    "large vocabulary": {"ffn": 40, "vocab": 1024, "layers": 1},
    "wide layer": {"ffn": 512, "layers": 3},
    "narrow layer": {"hidden": 64, "ffn": 8, "kv_heads": 4},
    "first stage": FIRST,
    "first stage, one micro-batch": {**FIRST, "micro": 1},
    "last stage": LAST,
    "last stage, one micro-batch": {**LAST, "micro": 1},
    "full": {"layers": 3, "full": True},
    "full, narrow layer": {"hidden": 64, "ffn": 8, "kv_heads": 4, "layers": 3, "full": True},
    "full, long": {"ffn": 40, "vocab": 1024, "tokens": 64, "layers": 1, "full": True},
    "full, first stage, large vocabulary": {**FIRST, "vocab": 1024, "full": True},
    "full, first stage, two sequences": {**FIRST, "vocab": 1024, "full": True, "batch": 2, "dtype": torch.bfloat16},
    "full, last stage": {**LAST, "full": True},
    "parts": {"parts": 2},
    "parts, wide layer": {"parts": 2, "ffn": 512, "kv_heads": 4, "layers": 1},
    "parts, large vocabulary": {"parts": 2, "ffn": 40, "vocab": 1024, "layers": 1},
    "parts, first stage, full": {"parts": 2, **FIRST, "vocab": 2048, "full": True},
    "parts, full": {"parts": 2, "layers": 3, "full": True},
}
#: Where the oracle has most, and where that is in blocks.
PLACES = {"dswiglu": "swiglu.", "dattention": "attention_flash.", "head.dgrad": "head.", "reduce_scatter": "head.", "dtable": "before"}


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def run(sizes: Sizes) -> Stage:
    """A step of a stage, of random weights and data."""
    torch.manual_seed(0)
    stage = Stage(sizes)
    rows = sizes.vocab // sizes.parts
    stage.step(torch.randint(rows, (sizes.batch, sizes.tokens)), torch.randint(rows, (sizes.tokens, sizes.batch)))
    return stage


@cache
def formulas(parts: int, stages: int, full: bool, layers: int | None) -> Any:
    split = [f"tp({parts}) * sp"] * (parts > 1) + [f"pp({stages})"] * (stages > 1)
    how = {"recompute": "full" if full else "none", "implementation": "megatron-te-2.11"}
    sizes = {} if layers is None else {"L": layers}
    return placeproof.model(" * ".join(split) or "ddp(2)", "llama3-8b", **sizes, **how)


def derived(n: Sizes) -> tuple[int, str]:
    """The most that a stage has beyond weights and integers, and where."""
    d = formulas(n.parts, n.stages, n.full, n.layers * n.stages if n.stages > 1 else None)
    width = 4 if n.dtype == torch.float32 else 2
    sizes = {"h": n.hidden, "f": n.ffn, "V": n.vocab, "a": n.heads, "a_kv": n.kv_heads, "d": n.width, "s": n.tokens, "b": n.batch}
    values = {**sizes, "L": n.layers * n.stages, "m": n.micro, "b_a": width, "b_theta": width}
    cost = d.costs[-1 if n.last else 0]
    moment = d.peak_moment(cost, values)
    ids = 8 * n.batch * n.tokens * min(n.stages, n.micro) if n.first else 0
    return int(d.value(cost.activations + cost.working, values)) - ids, moment.at or moment.part if moment.part != "before" else "before"


def apart(n: Sizes, where: str) -> int:
    """The streams that Megatron-core has besides, by the names that hold them: docs/explanation/what-a-device-holds.md."""
    layer, table = where in ("dswiglu", "dattention"), where == "dtable"
    streams = int(n.stages > 1 and n.last and n.micro > 1)  # the gradient that was handed back before
    streams += n.stages > 1 and not n.last and table  # the gradient that came in
    streams += n.parts * (n.parts > 1 and n.last and (layer or table))  # what the head gathered
    streams += n.parts * (n.batch > 1 and table)  # the gradient by the table's rows, in the order of the table's indices
    streams -= n.parts > 1 and table  # this gradient before it was gathered, which is gone
    return streams


@pytest.mark.parametrize("name", CASES)
def test_the_most_that_a_stage_has(name: str) -> None:
    sizes = Sizes(**{**SMALL, **CASES[name]})
    watch = run(sizes).watch
    stream = sizes.tokens * sizes.batch // sizes.parts * sizes.hidden * (4 if sizes.dtype == torch.float32 else 2)
    most, place = derived(sizes)
    assert watch.most == most + apart(sizes, watch.where) * stream
    assert place.startswith(PLACES[watch.where])


def test_cases_have_their_most_at_different_moments() -> None:
    assert {run(Sizes(**{**SMALL, **CASES[name]})).watch.where for name in CASES} == set(PLACES)


def test_norms_keep_a_number_for_each_token() -> None:
    """Which placeproof computes again."""
    without, counted = (run(Sizes(**SMALL, statistics=also)).watch.most for also in (False, True))
    assert counted - without == 2 * SMALL["layers"] * SMALL["tokens"] * 4


@pytest.mark.parametrize("full", [False, True])
def test_the_oracle_trains_what_plain_autograd_trains(full: bool) -> None:
    """So that no kernel of it goes without something that it needs."""
    sizes = Sizes(**SMALL, full=full)
    stage = run(sizes)
    torch.manual_seed(0)
    again = Stage(sizes)
    ids, target = torch.randint(sizes.vocab, (1, sizes.tokens)), torch.randint(sizes.vocab, (sizes.tokens, 1))
    x = again.table[ids].transpose(0, 1)
    for gain, wqkv, wo, gain2, w1, w2 in again.layers:
        mixed = (normed(x, gain)[0] @ wqkv.T).unflatten(-1, (sizes.kv_heads, -1))
        q, k, v = mixed.split(again.split, -1)
        heads = (rotated(q.reshape(*q.shape[:2], -1, sizes.width), 1), rotated(k, 1), v)
        q, k, v = (t.permute(1, 2, 0, 3) for t in heads)
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + o.permute(2, 0, 1, 3).flatten(2) @ wo.T
        g, u = (normed(x, gain2)[0] @ w1.T).chunk(2, -1)
        x = x + (torch.nn.functional.silu(g) * u) @ w2.T
    logits = normed(x, again.gain)[0] @ again.head.T
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    own = [w for layer in again.layers for w in layer] + [again.table, again.gain, again.head]
    ran = [w for layer in stage.layers for w in layer] + [stage.table, stage.gain, stage.head]
    for weight, gradient in zip(ran, torch.autograd.grad(loss, own), strict=True):
        torch.testing.assert_close(weight.main_grad, gradient, rtol=1e-4, atol=1e-6)
