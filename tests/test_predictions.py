"""Exact bytes: what is predicted from the proved program against what real PyTorch does, call by call and state by state."""

from __future__ import annotations

import importlib.util
import resource
import time
from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import SEEDS, about, rows

from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import tally
from placeproof.core.shapes import Shapes, Unit, Weight, transformer
from placeproof.cost.exact.cuts import buckets, dealt, own, padded
from placeproof.cost.exact.predict import predict
from placeproof.measure.predicted import differences, predicted
from placeproof.measure.random import random_case
from placeproof.measure.subjects import SUBJECTS
from placeproof.profiles.profile import names, profile
from placeproof.semantics.verdict import judge
from placeproof.strategies import parse_strategy

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: recorded measurements only")
CHUNK = 20


def told(seed: int) -> Any:
    case = random_case(seed)
    return predicted(case.subject, case.shapes, case.mesh, rank=case.rank, options=case.options)


@pytest.mark.parametrize("recorded", rows(), ids=lambda r: f"{r['seed']}-{r['subject']}")
def test_recorded_measurements_are_predicted(recorded: dict[str, Any]) -> None:
    case = random_case(recorded["seed"])
    assert about(case) == {k: recorded[k] for k in about(case)}, "another case than the one recorded: run python tests/recorded.py"
    prediction = told(recorded["seed"])
    assert dict(tally(prediction.exchanges)) == {(kind, tuple(axes), size): count for kind, axes, size, count in recorded["calls"]}
    assert prediction.memory == {k: recorded["memory"][k] for k in prediction.memory}


def test_every_implementation_was_recorded() -> None:
    assert {r["subject"] for r in rows()} == set(SUBJECTS)
    assert [r["seed"] for r in rows()] == list(SEEDS)


@needs_torch
@pytest.mark.parametrize("first", range(0, 300, CHUNK))
def test_measured_now_is_predicted(first: int) -> None:
    from placeproof.measure.run import measure

    for seed in range(first, first + CHUNK):
        case = random_case(seed)
        measured = measure(case.subject, case.shapes, case.mesh, rank=case.rank, options=case.options)
        found = differences(told(seed), measured)
        assert not found, f"seed {seed}, {case}: {found}"
        assert {"parameters", "gradients", "optimizer"} <= set(told(seed).memory)


@needs_torch
@pytest.mark.parametrize("data", [128, 512])
def test_seventy_billion_parameters(data: int) -> None:
    from placeproof.measure.run import measure

    shapes = transformer(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=32000, batch=1, tokens=4096)
    mesh = {"dp": data, "tp": 8}
    began = time.monotonic()
    measured = measure("fsdp2*tp_sp", shapes, mesh)
    found = differences(predicted("fsdp2*tp_sp", shapes, mesh), measured)
    assert not found, found
    print(f"70B on {data * 8}: {time.monotonic() - began:.0f} s, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


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
    assert sum(p.memory["parameters"] for p in every) == 4 * shapes.elements
    assert len({tuple(p.exchanges) for p in every}) == 1
