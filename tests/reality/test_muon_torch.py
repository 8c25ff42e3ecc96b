"""What PyTorch's own Muon computes for the matrices of a decoder, against what is derived of a step that updates whole matrices."""

from __future__ import annotations

from fractions import Fraction

import pytest

from placeproof.core.shapes import transformer
from placeproof.cost.model.derivation import derive_model
from placeproof.models import load
from placeproof.strategies import parse_strategy

torch = pytest.importorskip("torch", reason="torch is not installed: what it computes is not counted")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from placeproof.measure.training.models import decoder  # noqa: E402

SIZES = {"L": 2, "h": 32, "a": 4, "a_kv": 2, "f": 48, "V": 64, "s": 16}


@pytest.mark.parametrize("iterations", [5, 3])
def test_muon_computes_what_is_derived(iterations: int) -> None:
    shapes = transformer(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=64, batch=1, tokens=16)
    model = decoder(shapes)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and name.split(".")[0] not in ("embedding", "head")]
    for parameter in matrices:
        parameter.grad = torch.randn_like(parameter)
    muon = torch.optim.Muon(matrices, ns_steps=iterations)
    with FlopCounterMode(display=False) as counter:
        muon.step()
    found = derive_model(load("llama3-8b").resized(SIZES), parse_strategy("ddp(2) * muon"))
    assert found.value(found.costs[0].iterated, {"n_ns": Fraction(iterations)}) == counter.get_total_flops() > 0
