"""Real PyTorch against predictions: what every rank allocates of odd models, which buffers are broadcast, in which order buckets fill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import tally
from placeproof.core.shapes import Shapes, transformer
from placeproof.measure.training.predicted import differences, predicted

pytest.importorskip("torch", reason="torch is not installed: real steps cannot be measured")

from test_measure_torch import SMALL, stack

from placeproof.measure.training.run import measure, measure_all

#: Fewer rows than devices, one row, one element, rows that no degree divides, three dimensions.
ODD = stack(((1,), (2, 3)), ((5, 7, 2), (1, 9)), ((3,), (13, 2), (4, 4)), dims=(("batch", 1), ("tokens", 2), ("hidden", 3)))


@pytest.mark.parametrize(
    ("name", "mesh", "options"),
    [
        ("fsdp2", {"dp": 4}, {}),
        ("fsdp2_all", {"dp": 3}, {"param_dtype": "bfloat16", "reduce_dtype": "float32"}),
        ("fsdp2_keep", {"dp": 6}, {"optimizer": "sgd"}),
        ("fsdp1", {"dp": 4}, {}),
        ("hsdp", {"rep": 2, "shard": 3}, {}),
        ("hsdp", {"rep": 3, "shard": 1}, {"dtype": "float64"}),
    ],
)
def test_every_rank_allocates_and_holds_what_is_predicted(name: str, mesh: dict[str, int], options: dict[str, str]) -> None:
    found = measure_all(name, ODD, mesh, options=options)
    for rank, one in enumerate(found):
        told = predicted(name, ODD, mesh, rank=rank, options=options)
        assert not differences(told, one), (rank, differences(told, one))
    if name.startswith("fsdp2"):
        assert len({one.memory["parameters"] for one in found}) == len({one.memory["gradients"] for one in found}) == 1
        assert found[-1].memory["parameters_held"] < found[0].memory["parameters_held"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["ddp", "zero_redundancy"])
def test_buffers_are_broadcast_by_type_in_each_forward(name: str, dtype: str) -> None:
    shapes = replace(SMALL, buffers=(("float32", 5), ("int64", 3), ("dtype", 2)))
    for options, sizes in (({}, {5, 3, 2}), ({"buffer": 0}, set()), ({"buffer": "int64:7,float32:4"}, {7, 4}), ({"buffer": 9}, {9})):
        measured = measure(name, shapes, {"dp": 2}, options={"dtype": dtype, **options})
        assert not differences(predicted(name, shapes, {"dp": 2}, options={"dtype": dtype, **options}), measured)
        forward = [e.bytes for e in measured.exchanges if e.kind == "broadcast" and e.phase == "forward"]
        assert len(forward) == (2 if dtype == "float32" and len(sizes) == 3 else len(sizes))
        assert bool(forward) == bool(sizes)


def test_a_stack_uses_its_weights_in_the_order_that_the_shapes_say() -> None:
    shapes = stack(((10,), (20,), (30,)), ((40,), (50,)), ((60,),))
    other = replace(shapes, used=("w1", "units.0.w1", "units.0.w0", "units.1.w0", "w2", "w0"))
    for one in (shapes, other):
        measured = measure("ddp", one, {"dp": 2}, options={"bucket_cap_mb": 1 / 2**20})
        reduced = [e.bytes // 4 for e in measured.exchanges]
        assert reduced == [w.elements for w in one.by_use][::-1]
        assert tally(measured.exchanges) == tally(predicted("ddp", one, {"dp": 2}, options={"bucket_cap_mb": 1 / 2**20}).exchanges)
    mixed = replace(shapes, used=("w0", "units.0.w1", "units.1.w0", "units.0.w0", "w1", "w2"))
    with pytest.raises(InputError, match="weights of one unit among those of another"):
        measure("ddp", mixed, {"dp": 2})


@pytest.mark.parametrize(
    "shapes",
    [
        transformer(layers=3, hidden=192, heads=6, kv_heads=2, ffn=500, vocab=1100, batch=1, tokens=4),
        transformer(layers=6, hidden=320, heads=5, ffn=1000, vocab=1999, batch=1, tokens=4),
    ],
    ids=lambda s: f"{s.elements * 4 // 2**20}-MiB",
)
@pytest.mark.parametrize("name", ["ddp", "zero_redundancy"])
def test_buckets_of_pytorch_s_own_sizes(name: str, shapes: Shapes) -> None:
    """Above one MiB there are two, above 26 three; gradients of the decoder become ready as they do in any module."""
    measured = measure(name, shapes, {"dp": 2})
    assert not differences(predicted(name, shapes, {"dp": 2}), measured)
    buckets = [e.bytes for e in measured.exchanges if e.kind == "all_reduce"]
    assert len(buckets) == (3 if shapes.elements * 4 > 30 * 2**20 else 2)
