"""Exact bytes of real modules: what is said of random configurations against what PyTorch did in them on every rank.

`tests/data/module_bytes.json` is recorded by `nightly/modules.py`, which tries many more; `module_cases` draws them, and reads what is
measured from PyTorch alone.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from module_answers import differences, shapes_text, told
from module_cases import Case, measured, question

from placeproof.core.diagnostics import InputError
from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.importers.shapes import parse_shapes

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "module_bytes.json").read_text(encoding="utf-8"))
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: recorded measurements only")


def parted(row: dict[str, Any], shapes: Shapes) -> list[str]:
    found = []
    for rank, (said, there) in enumerate(zip(told(row["question"], shapes), row["ranks"], strict=True)):
        calls = {(kind, tuple(ranks), size): n for kind, ranks, size, n in there["calls"]}
        found += differences(said, calls, there["memory"], len(row["ranks"]), rank)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['seed']}-{row['question'][1]}-{row['model']}")
def test_what_was_recorded_is_said_of_every_rank(row: dict[str, Any]) -> None:
    assert not parted(row, parse_shapes(row["shapes"], kind="toml").shapes)


def test_the_record_has_every_kind_of_configuration() -> None:
    options = [row["question"][2] for row in ROWS]
    assert {row["model"] for row in ROWS} == {"llama", "gpt2", "mixtral", "conv", "mlp", "lora"}
    assert {row["question"][1] for row in ROWS} >= {
        "ddp",
        "zero_redundancy",
        "fsdp2",
        "fsdp2_all",
        "fsdp2_keep",
        "hsdp",
        "fsdp1",
        "fsdp1_grad_op",
    }
    assert len({o["optimizer"] for o in options}) >= 8
    for name in ("no_sync", "static_graph", "find_unused", "use_orig_params", "param_dtype", "bucket_cap_mb", "bucket_view"):
        assert any(o.get(name) not in (None, "false") for o in options), name
    assert {o["no_sync"] for o in options if "no_sync" in o} == {"true", "false"}
    for word in ("frozen = ", "idle = ", "backward = false", "[unit.dtypes]", 'dtype = "bfloat16"', "int64 = "):
        assert any(word in row["shapes"] for row in ROWS), word


def changed(shapes: Shapes, **to: Any) -> Shapes:
    return replace(shapes, units=tuple(replace(u, weights=tuple(replace(w, **to) for w in u.weights)) for u in shapes.units))


@pytest.mark.parametrize(
    ("word", "forgotten"),
    [("frozen = ", {"trained": True}), ("idle = ", {"idle": False}), ("[unit.dtypes]", {"dtype": "float32"})],
)
def test_a_module_about_which_something_is_forgotten_is_noticed(word: str, forgotten: dict[str, Any]) -> None:
    row = next(r for r in ROWS if word in r["shapes"] and r["question"][1] in ("ddp", "fsdp2"))
    shapes = parse_shapes(row["shapes"], kind="toml").shapes
    assert parted(row, replace(changed(shapes, **forgotten), used=()))


CONV = {"width": 5, "blocks": 2, "norm": "mixed"}
LORA = {"widths": [5, 3, 7], "idle": ""}
NOW = {"frozen": "first", "dtype": "float32", "given": "trained", "passes": 2}
SMALL = {"bucket_cap_mb": 0.001}


@needs_torch
@pytest.mark.filterwarnings("ignore")  # of parts of torch, when they are imported
@pytest.mark.parametrize(
    "case",
    [
        Case(seed=1, model="conv", sizes=CONV, world=2, wrap="ddp", options=SMALL, optimizer="nadam", no_sync=True, **NOW),
        Case(seed=2, model="lora", sizes=LORA, world=3, wrap="fsdp2", options={}, optimizer="sgd-momentum", no_sync=False, **NOW),
    ],
    ids=lambda case: case.wrap,
)
def test_what_is_measured_now_is_said(case: Case) -> None:
    from placeproof.measure.processes import run

    preload = ("torch.distributed.fsdp", "torch.distributed.optim")
    (text,) = (o.value for o in run(1, lambda *_: shapes_text(case), init=False, preload=preload))
    found = [o.value for o in run(case.world, lambda rank, *_: measured(case, rank), preload=preload)]
    assert text
    assert None not in found
    ranks = [{"calls": [[*call, n] for call, n in one["calls"].items()], "memory": one["memory"]} for one in found]
    assert not parted({"question": question(case), "ranks": ranks}, parse_shapes(text, kind="toml").shapes)


# What cannot be said is refused.


def of(*weights: Weight, backward: bool = True) -> Shapes:
    root = Unit(name="root", weights=(Weight(name="w", shape=(4, 4)),))
    return Shapes(name="x", units=(root, Unit(name="u", weights=weights, backward=backward)))


FROZEN = Weight(name="u.f", shape=(3, 2), trained=False)
IDLE = Weight(name="u.i", shape=(3, 2), idle=True)
HALF = Weight(name="u.h", shape=(3, 2), dtype="bfloat16")
PLAIN = Weight(name="u.p", shape=(3, 2))


@pytest.mark.parametrize(
    ("expression", "name", "weights", "options", "message"),
    [
        ("ddp(2)", "ddp", (IDLE,), {}, "`u.i` gets no gradient"),
        ("fsdp(2)", "fsdp2", (HALF, PLAIN), {}, "PyTorch refuses to reduce"),
        ("fsdp(2)", "fsdp1", (HALF, PLAIN), {"use_orig_params": "true"}, "PyTorch refuses to flatten"),
        ("fsdp(2)", "fsdp1", (FROZEN, PLAIN), {}, "PyTorch refuses to flatten"),
        ("zero1(2)", "zero_redundancy", (HALF, PLAIN), {}, "ZeroRedundancyOptimizer does not take"),
        ("zero1(2)", "zero_redundancy", (FROZEN,), {"bucket_view": "true", "given": "all"}, "`bucket_view` makes of parameters"),
        ("ddp(2) * accumulate(2)", "ddp", (PLAIN,), {"static_graph": "true", "no_sync": "true"}, "counts on a reduction in each pass"),
        ("ddp(2) * accumulate(2)", "ddp", (PLAIN,), {}, "exact bytes need to know which"),
        ("ddp(2) * accumulate(2)", "ddp", (PLAIN,), {"no_sync": "true", "step": "2"}, "were not measured"),
        ("ddp(2)", "ddp", (PLAIN,), {"no_sync": "true"}, "has one pass over the model"),
        ("ddp(2)", "ddp", (HALF,), {"dtype": "float16"}, "says the types of its parameters"),
        ("ddp(2)", "fsdp1_no_shard", (IDLE,), {"use_orig_params": "true"}, "that are not used was not measured"),
        ("fsdp(2)", "fsdp2", (PLAIN,), {"optimizer": "adafactor"}, "`adafactor` keeps of parts of a matrix"),
        ("pp(2, microbatches=2)", "1f1b", (FROZEN,), {}, "frozen, unused or of types of their own was not measured"),
    ],
)
def test_what_is_not_known_is_refused(
    expression: str, name: str, weights: tuple[Weight, ...], options: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        told((expression, name, options), of(*weights))


def test_when_a_flat_unit_without_backward_is_gathered_is_not_known() -> None:
    shapes = of(FROZEN, backward=False)
    with pytest.raises(InputError, match="whose output requires no gradient, was not measured"):
        told(("fsdp(2)", "fsdp1", {}), shapes)
    assert told(("fsdp(2)", "fsdp1", {}), of(FROZEN))
    assert told(("ddp(2)", "fsdp1_no_shard", {}), shapes)


def test_buckets_in_the_order_of_registration_need_to_know_it() -> None:
    shapes = replace(of(PLAIN, IDLE), registered=None)
    asked = {"find_unused": "true", "bucket_cap_mb": "0.00003"}
    with pytest.raises(InputError, match="in which order x registers its parameters is not known"):
        told(("ddp(2)", "ddp", asked), shapes)
    assert told(("ddp(2)", "ddp", {"find_unused": "true"}), shapes)  # in one bucket


def test_a_factored_optimizer_of_whole_tensors_is_explained() -> None:
    from placeproof.cost.exact.bytes import exact_bytes
    from placeproof.profiles.profile import profile
    from placeproof.strategies import parse_strategy

    one = profile("torch-2.13").find("zero_redundancy")
    found = exact_bytes(parse_strategy("zero1(2)"), (one,), of(PLAIN), {"dp": 2}, options={"optimizer": "adafactor"})
    assert found.predicted.memory["optimizer"] == (4 + 4) * 4 + 4


def test_a_model_without_gradients_is_refused() -> None:
    with pytest.raises(InputError, match="no parameter of x gets a gradient"):
        told(("fsdp(2)", "fsdp2", {}), changed(of(FROZEN), trained=False))
