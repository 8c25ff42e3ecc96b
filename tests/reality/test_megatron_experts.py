"""What a stage of Megatron-core and Transformer Engine has at most where layers have experts, run by an oracle in PyTorch, against what is
derived: as ``test_megatron_memory.py``, which says more.

The oracle (``helpers/megatron_experts.py``) counts no integers; nor is anything counted here that is as many bytes of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import placeproof
from placeproof.models import Model, load

torch = pytest.importorskip("torch")

from megatron_experts import ExpertSizes, ExpertStage  # noqa: E402
from megatron_layers import normed  # noqa: E402

SMALL = {"hidden": 32, "ffn": 24, "vocab": 64, "heads": 4, "kv_heads": 2, "tokens": 16, "layers": 2, "experts": 4, "choices": 2}
FIRST, LAST = {"stages": 2, "last": False, "micro": 4}, {"stages": 2, "micro": 4}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two devices": {"devices": 2},
    "two devices, bf16": {"devices": 2, "dtype": torch.bfloat16, "batch": 2},
    "wide experts": {"ffn": 96, "experts": 8, "devices": 2},
    "wide experts, one device": {"ffn": 96, "choices": 3, "tokens": 32},
    "narrow experts": {"devices": 2, "hidden": 64, "ffn": 8, "layers": 3, "choices": 4, "experts": 8},
    "large vocabulary": {"vocab": 1024, "layers": 1, "devices": 2},
    "first stage": {**FIRST, "devices": 2},
    "last stage": {**LAST, "devices": 2},
    "last stage, one micro-batch": {**LAST, "devices": 2, "micro": 1},
    "full": {"full": True, "layers": 3, "devices": 2},
    "full, wide experts": {"full": True, "layers": 3, "devices": 2, "ffn": 96},
    "full, last stage": {**LAST, "full": True, "devices": 2},
    "full, first stage, large vocabulary": {**FIRST, "full": True, "vocab": 1024},
    "sigmoids": {"sigmoid": True, "devices": 2},
    "sigmoids, wide experts": {"sigmoid": True, "ffn": 96},
    "an expert for all": {"sigmoid": True, "shared": 40, "devices": 2},
    "wide experts, one for all": {"sigmoid": True, "shared": 64, "ffn": 96},
    "a wide expert for all": {"sigmoid": True, "shared": 256, "choices": 1, "devices": 2},
}
#: Where the oracle has most, and where that is in blocks.
PLACES = {
    "unpermute": ("y",),
    "sort": ("back",),
    "dweighted": ("dg", "du"),
    "dswiglu": ("dvg", "dvu"),
    "dtable": ("before",),
}


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def run(sizes: ExpertSizes) -> ExpertStage:
    """A step of a stage, of random weights and data."""
    torch.manual_seed(0)
    stage = ExpertStage(sizes)
    stage.step(torch.randint(sizes.vocab, (sizes.batch, sizes.tokens)), torch.randint(sizes.vocab, (sizes.tokens, sizes.batch)))
    return stage


@cache
def model(folder: Path, block: str) -> Model:
    """Mixtral with another block for its experts."""
    if block == "moe":
        return load("mixtral-8x7b")
    families = Path(placeproof.__file__).parent / "models"
    text = (families / "families" / "mixtral.toml").read_text(encoding="utf-8").replace('"moe"]', f'"{block}"]')
    text = text.replace('name = "mixtral"', 'name = "other"').replace('a_kv = "a"\n', "")
    text = text.replace("[groups]", 'shared_ffn = "f_s"\n[groups]') if block == "moe_shared" else text
    (folder / f"{block}_family.toml").write_text(text, encoding="utf-8")
    return load(str(folder / f"{block}_family.toml"))


@cache
def formulas(folder: Path, block: str, devices: int, stages: int, full: bool, layers: int | None) -> Any:
    split = [f"zero1(dp=ep) * ep({devices})"] * (devices > 1) + [f"pp({stages})"] * (stages > 1)
    how = {"recompute": "full" if full else "none", "implementation": "megatron-te-2.11"}
    return placeproof.model(" * ".join(split) or "ddp(2)", model(folder, block), **({} if layers is None else {"L": layers}), **how)


def derived(folder: Path, n: ExpertSizes, where: str) -> tuple[int, str]:
    """The most that a stage has beyond weights and integers, and where."""
    block = "moe_shared" if n.shared else "moe_sigmoid" if n.sigmoid else "moe"
    d = formulas(folder, block, n.devices, n.stages, n.full, n.layers * n.stages if n.stages > 1 or block != "moe" else None)
    width = 4 if n.dtype == torch.float32 else 2
    sizes = {"h": n.hidden, "f_e": n.ffn, "V": n.vocab, "a": n.heads, "a_kv": n.kv_heads, "d": n.width, "s": n.tokens, "b": n.batch}
    values = {**sizes, "E": n.experts, "k": n.choices, "c": 1, "f_s": n.shared, "L": n.layers * n.stages, "m": n.micro}
    values |= {"b_a": width, "b_theta": width}
    cost = d.costs[-1 if n.last else 0]
    moment = d.peak_moment(cost, values)
    tokens, flight = n.batch * n.tokens, min(1 if n.last else n.stages, n.micro)
    own = flight * n.layers - (where == "dtable") * n.layers  # layers that have what they keep
    integers = 8 * tokens * min(n.stages, n.micro) * n.first + tokens * (9 * n.experts + 8 * n.choices) * (
        where != "dtable" if n.full else own
    )
    lasting = n.layers * tokens * n.experts * width  # the gates that dispatchers have, which lie beside all the time
    place = moment.at or moment.part if moment.part != "before" else "before"
    return int(d.value(cost.activations + cost.working, values)) - integers + lasting, place


def apart(n: ExpertSizes, where: str) -> int:
    """The streams that Megatron-core has besides, by the names that hold them: docs/explanation/what-a-device-holds.md."""
    forward, table = where in ("unpermute", "sort") and not n.full, where == "dtable"
    streams = int(n.stages > 1 and n.last and n.micro > 1)  # the gradient that was handed back before
    streams += n.stages > 1 and n.last and n.micro > 1 and forward  # and the input that it is by
    streams += n.stages > 1 and not n.last and n.micro > 1 and (table or forward)  # the gradient that came in
    streams += (2 * n.layers - 1 if table else n.layers - 2) if n.full else 0  # inputs of layers, and gradients by them, which gates hold
    streams += n.batch > 1 and table  # the gradient by the table's rows, in the order of the table's indices
    return streams


@pytest.mark.parametrize("name", CASES)
def test_the_most_that_a_stage_has(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    sizes = ExpertSizes(**{**SMALL, **CASES[name]})
    watch = run(sizes).watch
    stream = sizes.tokens * sizes.batch * sizes.hidden * (4 if sizes.dtype == torch.float32 else 2)
    most, place = derived(tmp_path_factory.getbasetemp(), sizes, watch.where)
    assert watch.most == most + apart(sizes, watch.where) * stream, (watch.where, place)
    assert place.rpartition(".")[2] in PLACES[watch.where]


def test_cases_have_their_most_at_different_moments() -> None:
    assert {run(ExpertSizes(**{**SMALL, **CASES[name]})).watch.where for name in CASES} == set(PLACES)


class Plain(ExpertStage):
    """The same model, of which experts are a sum over all of them, and gradients are autograd's."""

    def layer(self, weights: list[Any], x: Any) -> Any:
        gain, router, *rest = weights[3:]
        x = x + self.attention(x, *weights[:3])
        rows = normed(x, gain)[0].flatten(0, 1)
        logits, chosen, experts = rows @ router.T, self.chosen, self.sizes.experts
        scores = torch.sigmoid(logits) if self.sizes.sigmoid else logits.exp()
        gates = scores * chosen / (scores * chosen).sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for w1, w2, gate in zip(rest[:experts], rest[experts : 2 * experts], gates.T, strict=True):
            out = out + gate[:, None] * gated(rows, w1, w2)
        return x + (out + gated(rows, *rest[2 * experts :]) if self.sizes.shared else out).view(x.shape)


def gated(x: Any, w1: Any, w2: Any) -> Any:
    g, u = (x @ w1.T).chunk(2, -1)
    return (torch.nn.functional.silu(g) * u) @ w2.T


@pytest.mark.parametrize("more", [{}, {"full": True}, {"sigmoid": True, "shared": 40}])
def test_the_oracle_trains_what_plain_autograd_trains(more: dict[str, Any]) -> None:
    """So that no kernel of it goes without something that it needs."""
    sizes = ExpertSizes(**{**SMALL, **more})
    both = []
    for kind in (ExpertStage, Plain):
        torch.manual_seed(0)
        both.append(kind(sizes))
        both[-1].step(torch.randint(sizes.vocab, (1, sizes.tokens)), torch.randint(sizes.vocab, (sizes.tokens, 1)))
    pairs = [pair for own, plain in zip(both[0].layers, both[1].layers, strict=True) for pair in zip(own, plain, strict=True)]
    for own, plain in (*pairs, (both[0].table, both[1].table), (both[0].gain, both[1].gain), (both[0].head, both[1].head)):
        assert plain.main_grad.abs().max() > 0
        torch.testing.assert_close(own.main_grad, plain.main_grad, rtol=1e-4, atol=1e-6)
