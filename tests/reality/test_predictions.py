"""Exact bytes: what is predicted from the proved program against what real PyTorch does, call by call and state by state."""

from __future__ import annotations

import importlib.util
import json
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_cases import random_case
from recorded import SEEDS, about, rows
from samples import NIGHTLY, sample

from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import Exchange, tally
from placeproof.core.shapes import Shapes, Unit, Weight, transformer
from placeproof.cost.exact.choose import chosen
from placeproof.cost.exact.cuts import buckets, dealt, own, padded
from placeproof.cost.exact.options import OPTIONS
from placeproof.cost.exact.predict import predict
from placeproof.importers import read_shapes
from placeproof.measure.training.predicted import differences, predicted
from placeproof.measure.training.subjects import SUBJECTS
from placeproof.profiles.profile import names, profile
from placeproof.semantics.judge.verdict import judge
from placeproof.strategies import parse_strategy

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: recorded measurements only")


def told(seed: int) -> Any:
    case = random_case(seed)
    return predicted(case.subject, case.shapes, case.mesh, rank=case.rank, options=case.options)


@pytest.mark.parametrize("recorded", rows(), ids=lambda r: f"{r['seed']}-{r['subject']}")
def test_recorded_measurements_are_predicted(recorded: dict[str, Any]) -> None:
    case = random_case(recorded["seed"])
    assert about(case) == {k: recorded[k] for k in about(case)}, "another case than the one recorded: run python tests/helpers/recorded.py"
    prediction = told(recorded["seed"])
    assert dict(tally(prediction.exchanges)) == {(kind, tuple(axes), size): count for kind, axes, size, count in recorded["calls"]}
    assert prediction.memory == {k: recorded["memory"][k] for k in prediction.memory}
    assert prediction.held == {k: recorded["memory"][f"{k}_held"] for k in ("parameters", "gradients")}


MODELS = Path(__file__).parents[1] / "configs" / "huggingface"
RUN: dict[str, Any] = {
    name: row for name, row in json.loads((MODELS / "recorded.json").read_text(encoding="utf-8"))["models"].items() if row.get("ddp")
}


@pytest.mark.parametrize("name", RUN)
def test_what_ddp_exchanges_around_models_of_transformers_is_predicted(name: str) -> None:
    """Buckets in the order in which gradients become ready, and buffers: of every type of model, and with PyTorch's sizes of buckets."""
    shapes = read_shapes(MODELS / name)
    options = {} if shapes.elements * 4 > 2**20 else {"bucket_cap_mb": 1000 / 2**20}
    told = predict(parse_strategy("ddp(2)"), (profile("torch-2.13").find("ddp"),), shapes, {"dp": 2}, options=options)
    assert {(kind, size): count for (kind, _, size), count in tally(told.exchanges).items()} == {(k, b): n for k, b, n in RUN[name]["ddp"]}


def test_models_around_which_ddp_was_recorded_fill_every_kind_of_bucket() -> None:
    sizes = [[size for kind, size, _ in row["ddp"] if kind == "all_reduce"] for row in RUN.values()]
    assert any(2**20 < max(some) < 25 * 2**20 and len(some) > 1 for some in sizes)
    assert any(sum(size >= 2**20 for size in some) > 2 and max(some) >= 25 * 2**20 for some in sizes)


def first_repeated(exchanges: Callable[[int], list[Exchange]]) -> int:
    """The first step whose exchanges those up to the fifth repeat."""
    found = [tally(exchanges(step)) for step in range(1, 6)]
    return next(step for step in range(1, 6) if all(later == found[step - 1] for later in found[step:]))


#: Steps of DistributedDataParallel differ however many buckets there are: in the second, the first device tells the others.
STEADY = transformer(layers=4, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)


def of_step(name: str) -> dict[str, Any]:
    """Arguments of a prediction or a measurement of a subject, on two devices along each axis."""
    return {"subject": name, "shapes": STEADY, "mesh": dict.fromkeys(SUBJECTS[name].axes, 2)}


@pytest.mark.parametrize("name", [name for name, subject in SUBJECTS.items() if not subject.schedule and subject.name != "fsdp2_sub"])
def test_the_steady_step_is_the_first_that_later_ones_are_predicted_to_repeat(name: str) -> None:
    """Not of pipelines: how the first step tells its neighbours the shapes of its messages is not predicted."""
    assert first_repeated(lambda step: list(predicted(**of_step(name), options={"step": step}).exchanges)) == SUBJECTS[name].steady


@needs_torch
@pytest.mark.parametrize("name", ["ddp", "zero_redundancy", "fsdp1", "fsdp2", "gpipe", "interleaved", "dualpipev"])
def test_the_steady_step_is_the_first_that_later_ones_repeat(name: str) -> None:
    from placeproof.measure.training.run import measure

    assert first_repeated(lambda step: list(measure(**of_step(name), options={"step": step}).exchanges)) == SUBJECTS[name].steady


def test_every_implementation_was_recorded() -> None:
    assert {r["subject"] for r in rows()} == set(SUBJECTS)
    assert [r["seed"] for r in rows()] == list(SEEDS)


def kinds(seed: int) -> set[tuple[str, Any, Any]]:
    """An implementation with each value of its options, with few or many units, and for each way to make a model."""
    case = random_case(seed)
    numbers = ("bucket_cap_mb", "k", "microbatches")
    given = {name: value is not None if name in numbers else value for name, value in case.options.items()}
    given |= {"units": len(case.shapes.units) > 2, "model": case.shapes.name.partition(" ")[0]}
    return {(case.subject, name, value) for name, value in given.items()}


@needs_torch
@pytest.mark.parametrize("seed", sample(range(300), kinds))
def test_measured_now_is_predicted(seed: int) -> None:
    from placeproof.measure.training.run import measure

    case, prediction = random_case(seed), told(seed)
    found = differences(prediction, measure(case.subject, case.shapes, case.mesh, rank=case.rank, options=case.options))
    assert not found, (case, found)
    assert {"parameters", "gradients", "optimizer"} <= set(prediction.memory)


@needs_torch
@pytest.mark.parametrize(("layers", "data"), [(80, 128), (80, 512)] if NIGHTLY else [(20, 512)])
def test_seventy_billion_parameters(layers: int, data: int) -> None:
    """By day a quarter of its layers, which are all alike."""
    from placeproof.measure.training.run import measure

    shapes = transformer(layers=layers, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=32000, batch=1, tokens=4096)
    mesh = {"dp": data, "tp": 8}
    began = time.monotonic()
    measured = measure("fsdp2*tp_sp", shapes, mesh)
    found = differences(predicted("fsdp2*tp_sp", shapes, mesh), measured)
    assert not found, found
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"70B, {layers} layers, on {data * 8}: {time.monotonic() - began:.0f} s, {memory:.2f} GB")


def test_a_wrong_prediction_is_noticed() -> None:
    shapes = Shapes(name="small", units=(Unit(name="root", weights=(Weight(name="w", shape=(5, 3)),)),))
    right = predicted("fsdp2", shapes, {"dp": 4})
    wrong = predicted("fsdp2_all", shapes, {"dp": 4})
    assert tally(right.exchanges) != tally(wrong.exchanges)
    padded_bytes = {e.bytes for e in right.exchanges}
    assert padded_bytes == {4 * 8 * 3}  # five rows become eight


# The programs of the profiles are proved.

MESHES = {"dp": 4, "rep": 2, "shard": 2, "tp": 2, "pp": 2}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda s: s.name)
def test_what_is_predicted_from_is_proved(subject: Any) -> None:
    """With symbolic degrees: the program is that of every mesh."""
    import re

    expression = subject.expression({a: MESHES[a] for a in subject.axes})
    strategy = parse_strategy(re.sub(r"\((?:\w+=)?\d+(?:, \w+=\d+)*", lambda m: "(", expression).replace("(, ", "(").replace("()", ""))
    for name in subject.name.split("*"):
        strategy = profile("torch-2.13").find(name).realise(strategy)
    from placeproof.semantics.lower import lower

    assert judge(lower(strategy)).word == "proved"


@pytest.mark.parametrize("name", names())
def test_a_profile_implements_what_the_catalogue_has(name: str) -> None:
    from placeproof.strategies import names as strategies

    one = profile(name)
    for implementation in one.implementations:
        assert implementation.of
        assert set(implementation.of) <= set(strategies())
        assert implementation.source.startswith(one.source.split(":")[0].split("==")[0])


def test_unknown_names_are_answered_with_all_of_them() -> None:
    with pytest.raises(InputError, match="no profile `torch`"):
        profile("torch")
    with pytest.raises(InputError, match="no implementation `fsdp3`"):
        profile("torch-2.13").find("fsdp3")


def test_a_missing_degree_is_asked_for() -> None:
    shapes = Shapes(name="small", units=(Unit(name="root", weights=(Weight(name="w", shape=(5, 3)),)),))
    with pytest.raises(InputError, match="degree of axis `tp`"):
        predict(parse_strategy("fsdp * tp"), (profile("torch-2.13").find("fsdp2"),), shapes, {"dp": 4})
    with pytest.raises(InputError, match="8 devices, not 4"):
        predict(parse_strategy("fsdp(8)"), (profile("torch-2.13").find("fsdp2"),), shapes, {"dp": 4})


# Options, and what a strategy says itself: what figures would not depend on is refused.

IMPLEMENTED = [(name, one) for name in names() for one in profile(name).implementations]
DECODER = transformer(layers=4, hidden=24, heads=4, ffn=36, vocab=40, batch=2, tokens=8)
ROOT, *LAYERS = DECODER.units
#: The same with a layer that is frozen.
FROZEN = replace(
    DECODER, units=(ROOT, replace(LAYERS[0], weights=tuple(replace(w, trained=False) for w in LAYERS[0].weights)), *LAYERS[1:])
)
#: The same with a layer that is not used.
IDLE = replace(DECODER, units=(ROOT, replace(LAYERS[0], weights=tuple(replace(w, idle=True) for w in LAYERS[0].weights)), *LAYERS[1:]))
#: A value of each option that is not its default.
OTHERWISE: dict[str, Any] = {
    "optimizer": "sgd", "dtype": "bfloat16", "param_dtype": "bfloat16", "reduce_dtype": "float64", "microbatches": 16, "virtual": 1,
    "step": 2, "bucket_cap_mb": 0.001, "find_unused": True, "buffer": "float32:3,int64:2", "bucket_view": True, "reduce_bucket_size": 100,
    "reduce_scatter": False, "overlap_comm": True, "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 10,
    "stage3_max_live_parameters": 10, "stage3_max_reuse_distance": 0, "grad_reduce_in_fp32": True, "overlap_grad_reduce": True,
    "bucket_size": 100, "pad_buckets_for_high_nccl_busbw": True, "average_in_collective": True, "k": 4,
    "given": "all", "no_sync": True, "static_graph": True, "use_orig_params": True, "gradient_as_bucket_view": True,
}  # fmt: skip
#: With which other options an option acts.
BESIDE: dict[str, dict[str, Any]] = {
    "grad_reduce_in_fp32": {"dtype": "bfloat16"},
    "bucket_size": {"overlap_grad_reduce": True},
    "no_sync": {"no_sync": False},
    "static_graph": {"step": 2},
    "given": {"optimizer": "adagrad"},
    "gradient_as_bucket_view": {"find_unused": True},
    "overlap_comm": {"reduce_bucket_size": 100},
    "reduce_scatter": {"reduce_bucket_size": 100},
    "stage3_prefetch_bucket_size": {"stage3_param_persistence_threshold": 0},
    "stage3_max_live_parameters": {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 1000},
    "stage3_max_reuse_distance": {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
}


def example(one: Any) -> str:
    """A strategy that an implementation runs, on small degrees."""
    said = {"reshard": {"false": "reshard_after_forward=false", "number": "reshard_after_forward=2", "true": ""}}
    words = [said[k][v] if k in said else f"schedule={v}" for k, v in one.when.items()]
    words += ["chunks=2"] if "schedule=interleaved" in words else []
    more = "".join(f", {w}" for w in words if w)
    first = one.of[0]
    return {"hsdp": f"hsdp(2, shard=2{more})", "sp": "tp(2) * sp", "pp": f"pp(2{more})"}.get(first, f"{first}(4{more})")


def asked(one: Any, options: dict[str, Any]) -> Any:
    strategy = parse_strategy("zero3(4) * accumulate" if "microbatches" in options and "accumulate" in one.of else example(one))
    if "no_sync" in options:
        strategy = parse_strategy(f"{example(one)} * accumulate(3)")
    mesh = {axis.name: axis.degree for axis in strategy.axes}
    more = {} if "microbatches" in options or one.of[0] != "pp" else {"microbatches": 4}
    shapes = IDLE if "find_unused" in options else FROZEN if "given" in one.options else DECODER
    told = predict(strategy, (one,), shapes, mesh, options=options | more)  # type: ignore[arg-type]
    return tally(told.exchanges), [(e.op, e.phase, e.bytes) for e in told.exchanges], dict(told.memory)


@pytest.mark.parametrize("one", [i for _, i in IMPLEMENTED], ids=[f"{p}-{i.name}" for p, i in IMPLEMENTED])
def test_an_option_is_refused_or_changes_something(one: Any) -> None:
    assert set(OTHERWISE) == set(OPTIONS)
    if {"tp", "sp"} & set(one.of) and one.system:
        pytest.skip("blocks alone, without states: a system has no figures for them")
    for name, value in OTHERWISE.items():
        beside = {k: v for k, v in BESIDE.get(name, {}).items() if k in one.options}
        if name in one.options:
            before = {"microbatches": 8} if name == "microbatches" else beside
            assert asked(one, {**beside, name: value}) != asked(one, before), name
        else:
            with pytest.raises(InputError, match=f"takes no option `{name}`"):
                asked(one, {name: value})


@pytest.mark.parametrize("one", [i for _, i in IMPLEMENTED if i.sets], ids=lambda i: i.name)
def test_what_a_strategy_says_otherwise_than_the_implementation_sets_is_refused(one: Any) -> None:
    others = {"root": "reshard", "bucket": "stream", "reduce": "scatter", "back": "gather", "norms": "once"}
    for key in one.sets:
        expression = "tp(2) * sp(norms=once)" if key == "norms" else example(one).replace(")", f", {key}={others[key]})", 1)
        with pytest.raises(InputError, match=f"`{one.name}` has {key}=.*, not {key}={others[key]}"):
            chosen(next(profile(p) for p, i in IMPLEMENTED if i is one), parse_strategy(expression), (one.name,))


@pytest.mark.parametrize("one", [i for p, i in IMPLEMENTED if i.when and p == "torch-2.13"], ids=lambda i: i.name)
def test_an_implementation_of_another_schedule_is_refused(one: Any) -> None:
    torch = profile("torch-2.13")
    assert one in chosen(torch, parse_strategy(example(one)), (one.name,))
    other = {"pp": "pp(2, schedule=zb-h1)"}.get(one.of[0], f"{one.of[0]}(4, reshard_after_forward=M)".replace("=M", "=false"))
    if one.when != {"reshard": "false"}:
        with pytest.raises(InputError, match=f"`{one.name}` does not run"):
            chosen(torch, parse_strategy(other), (one.name,))


@pytest.mark.parametrize(
    ("expression", "name", "weights", "message"),
    [
        ("fsdp(4)", "fsdp2", {"w": ()}, "`w` is a scalar"),
        ("fsdp(4)", "fsdp1", {"w": ()}, "`w` is a scalar"),
        ("fsdp(4, unit=model, root=keep)", "fsdp2_all", {"w": (2,)}, "kept where every unit is dropped"),
        ("fsdp(4, unit=1000)", "fsdp2_all", {"w": (2,)}, "not of `unit=1000`"),
    ],
)
def test_what_is_not_followed_is_refused(expression: str, name: str, weights: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = Shapes(name="x", units=(Unit(name="root", weights=tuple(Weight(name=n, shape=s) for n, s in weights.items())),))
    with pytest.raises(InputError, match=message):
        predict(parse_strategy(expression), (profile("torch-2.13").find(name),), shapes, {"dp": 4})


def test_blocks_are_known_ones_and_activations_need_their_sizes() -> None:
    weights = (Weight(name="w", shape=(4, 4)),)

    def told(*blocks: str) -> Any:
        shapes = Shapes(name="x", units=(Unit(name="root", weights=weights, blocks=blocks),))
        return predict(parse_strategy("fsdp(2)"), (profile("torch-2.13").find("fsdp2"),), shapes, {"dp": 2}).memory

    assert "activations" not in told("norm")
    with pytest.raises(InputError, match="names a block `nrom`"):
        told("nrom")


# Cutting tensors.

SHAPES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6)


@given(shapes=SHAPES, parts=st.integers(1, 12))
def test_rows_are_dealt_out_whole_and_padded(shapes: list[tuple[int, ...]], parts: int) -> None:
    every = [own("rows", shapes, parts, part) for part in range(parts)]
    assert sum(every) == sum(prod(s) for s in shapes)
    assert padded("rows", shapes, parts) == parts * every[0]
    rows_by_hand = 0
    for shape in shapes:
        rows = shape[0]
        while rows % parts:
            rows += 1
        rows_by_hand += rows * prod(shape[1:])
    assert padded("rows", shapes, parts) == rows_by_hand


@given(shapes=SHAPES, parts=st.integers(1, 12))
def test_a_flat_tensor_is_padded_by_less_than_a_part(shapes: list[tuple[int, ...]], parts: int) -> None:
    whole, carried = sum(prod(s) for s in shapes), padded("flat", shapes, parts)
    assert carried % parts == 0
    assert 0 <= carried - whole < parts
    assert own("flat", shapes, parts, parts - 1) * parts == carried


@given(shapes=SHAPES, parts=st.integers(1, 5))
def test_whole_tensors_are_dealt_to_whoever_has_least(shapes: list[tuple[int, ...]], parts: int) -> None:
    owners = dealt(shapes, parts)
    held = [sum(prod(s) for s, o in zip(shapes, owners, strict=True) if o == part) for part in range(parts)]
    assert sum(held) == sum(prod(s) for s in shapes)
    assert max(held) - min(held) <= max(prod(s) for s in shapes)


@given(shapes=SHAPES, first=st.integers(1, 60), rest=st.integers(1, 200))
def test_buckets_close_when_they_are_full(shapes: list[tuple[int, ...]], first: int, rest: int) -> None:
    weights = [Weight(name=str(i), shape=s) for i, s in enumerate(shapes)]
    found = buckets(weights, lambda w: w.elements, first, rest)
    assert [w for b in found for w in b] == weights
    for number, bucket in enumerate(found):
        limit = first if number == 0 else rest
        assert sum(w.elements for w in bucket[:-1]) < limit
        if bucket is not found[-1]:
            assert sum(w.elements for w in bucket) >= limit


def test_the_same_program_gives_every_rank_its_own_share() -> None:
    shapes = replace(random_case(1).shapes, name="ranks")
    every = [predicted("fsdp2", shapes, {"dp": 4}, rank=rank) for rank in range(4)]
    assert sum(p.held["parameters"] for p in every) == 4 * shapes.elements
    assert len({p.memory["parameters"] for p in every}) == 1
    assert len({tuple(p.exchanges) for p in every}) == 1


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.values == "elements"])
@pytest.mark.parametrize(
    ("value", "fits"), [(1000, True), ("float32:1000", True), (True, False), (2.5, False), ("many", False), (-1, False)]
)
def test_numbers_of_elements_are_numbers_by_type(name: str, value: bool | float | str, fits: bool) -> None:
    assert OPTIONS[name].allows(value) is fits
