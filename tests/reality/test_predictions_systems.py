"""Exact bytes of DeepSpeed and Megatron-core: what is predicted from proved programs against what they did, recorded."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from importlib.resources import files
from itertools import pairwise
from math import lcm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_systems import CASES, SEEDS, about, rows

from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.cost.exact import deepspeed, megatron
from placeproof.cost.exact.bytes import exact_bytes
from placeproof.cost.exact.choose import chosen
from placeproof.cost.exact.flat import buffers, filled, passed, slices
from placeproof.cost.exact.reuse import Limits, gathers
from placeproof.measure.systems.cases import predicted
from placeproof.profiles.profile import profile
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge, judge_tensors
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy


@pytest.mark.parametrize("recorded", rows(), ids=lambda r: f"{r['system']}-{r['seed']}")
def test_recorded_measurements_are_predicted(recorded: dict[str, Any]) -> None:
    """Not only in kind, axes, bytes and count, but in how a reduction combines and in the phase, too."""
    case = CASES[recorded["system"]](recorded["seed"])
    assert about(case) == {k: recorded[k] for k in about(case)}, "another case than the one recorded: run nightly/systems.py"
    prediction = predicted(case)
    exchanges, memory = prediction.exchanges, prediction.memory
    seen = {Exchange(kind=k, axes=tuple(a), bytes=b, op=o, phase=p): n for k, a, b, o, p, n in recorded["calls"]}
    assert Counter(exchanges) == seen
    assert memory == recorded["memory"]


def test_what_was_recorded_of_states_and_split_blocks_together_is_derived() -> None:
    """The ideal that it is told apart from is measured with nothing."""
    shapes = CASES["megatron"](4).shapes
    strategy = parse_strategy("zero1(2) * tp(2)")
    derived = exact_bytes(strategy, chosen(profile(megatron.PROFILE), strategy), shapes, {"dp": 2, "tp": 2})
    assert derived.predicted.exchanges
    assert {e.axes for e in derived.predicted.exchanges} == {("dp",), ("tp",)}


def test_that_gradients_are_all_reduced_is_among_what_is_otherwise() -> None:
    strategy = parse_strategy("zero1(2)")
    (change,) = exact_bytes(strategy, chosen(profile(deepspeed.PROFILE), strategy), stack((8,)), {"dp": 2}).changes
    assert change.bytes == {"all_reduce": 32 + 4, "reduce_scatter": -32}


def test_every_implementation_was_recorded() -> None:
    used = {(r["system"], name) for r in rows() for p in predicted(CASES[r["system"]](r["seed"])).strategies for name in p.split("*")}
    profiles = {"deepspeed": deepspeed.PROFILE, "megatron": megatron.PROFILE}
    assert used == {(system, one.name) for system, name in profiles.items() for one in profile(name).implementations}
    assert [(r["system"], r["seed"]) for r in rows()] == [(s, seed) for s in sorted(SEEDS) for seed in SEEDS[s]]


WITHOUT = {
    "bucket_size": None,
    "average_in_collective": False,
    "dtype": "float32",
    "grad_reduce_in_fp32": False,
    "optimizer": "sgd",
    "overlap_comm": True,
    "overlap_grad_reduce": False,
    "pad_buckets_for_high_nccl_busbw": False,
    "reduce_bucket_size": 500_000_000,
    "reduce_scatter": False,
    "sequence_parallel": False,
    "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_param_persistence_threshold": 0,
    "stage3_prefetch_bucket_size": 0,
    "use_distributed_optimizer": False,
    "use_multi_rank_bucket_allreduce": True,
}


@pytest.mark.parametrize(("option", "value"), WITHOUT.items())
def test_what_was_recorded_shows_each_option(option: str, value: Any) -> None:
    """Where an option made no difference in any case, the record would not show what is predicted of it."""

    def shown(case: Any) -> bool:
        other = replace(case, options={**case.options, option: value})
        ours, theirs = predicted(case), predicted(other)
        return (Counter(ours.exchanges), ours.memory) != (Counter(theirs.exchanges), theirs.memory)

    cases = [CASES[system](seed) for system, seeds in SEEDS.items() for seed in seeds]
    assert any(shown(case) for case in cases if case.options.get(option, value) != value)


# What is predicted from is proved, for all degrees.

_BLOCKS = sorted(f.name for f in files("placeproof.profiles").joinpath("megatron").iterdir())


@pytest.mark.parametrize("one", profile(deepspeed.PROFILE).implementations, ids=lambda one: one.name)
def test_programs_of_deepspeed_are_proved(one: Any) -> None:
    assert judge(lower(one.realise(parse_strategy(deepspeed.expression(one))))).word == "proved"


@pytest.mark.parametrize("blocks", ["", "tp", "tp_sp"])
@pytest.mark.parametrize("states", ["ddp", "distributed_optimizer"])
def test_programs_of_megatron_are_proved(states: str, blocks: str) -> None:
    names = (states, blocks) if blocks else (states,)
    strategy = parse_strategy(megatron.expression(names))
    strategy = reduce(lambda s, name: profile(megatron.PROFILE).find(name).realise(s), names, strategy)
    assert judge(lower(strategy)).word == "proved"


@pytest.mark.parametrize("name", _BLOCKS)
def test_blocks_of_megatron_are_proved(name: str) -> None:
    text = files("placeproof.profiles").joinpath("megatron", name).read_text(encoding="utf-8")
    assert judge_tensors(read(text, source=name)).word == "proved"


def test_there_is_a_block_program_of_each_kind() -> None:
    blocks = ("attention", "embedding", "feed_forward", "head", "norm")
    assert sorted(f"{block}_{plan}.step" for block in blocks for plan in ("sp", "tp")) == _BLOCKS


# Rules.


def stack(*units: tuple[int, ...]) -> Shapes:
    """A root and units of flat weights, by their sizes."""
    made = [
        Unit(name=f"u{i}", weights=tuple(Weight(name=f"u{i}.w{j}", shape=(n,)) for j, n in enumerate(sizes)))
        for i, sizes in enumerate(units)
    ]
    return Shapes(name="stack", units=tuple(made))


def test_a_small_model_is_gathered_once_unless_told_otherwise() -> None:
    shapes = stack((7,), (10, 3), (5,))
    options = {"stage": 3, "stage3_param_persistence_threshold": 0}
    kept = deepspeed.predict_step(shapes, 2, options)
    assert list(kept.strategies) == ["stage3_kept"]
    assert sum(e.bytes for e in kept.exchanges if e.kind == "all_gather") == 4 * (8 + 10 + 4 + 6)
    no = {"stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
    again = deepspeed.predict_step(shapes, 2, {**options, **no})
    assert list(again.strategies) == ["stage3"]
    assert sum(e.bytes for e in again.exchanges if e.kind == "all_gather") == 2 * 4 * (8 + 10 + 4 + 6)
    whole = deepspeed.predict_step(shapes, 2, {"stage": 3})
    assert {e.phase for e in whole.exchanges if e.kind == "all_gather"} == {"update"}


def flat(*sizes: int, stage: int, **options: Any) -> list[tuple[str, str, int]]:
    """Kind, phase and elements of the calls about states, of weights of these sizes on one device."""
    shapes = Shapes(name="flat", units=(Unit(name="root", weights=tuple(Weight(name=f"m{i}.w", shape=(n,)) for i, n in enumerate(sizes))),))
    told = deepspeed.predict_step(shapes, 2, {"stage": stage, **options})
    return [(e.kind, e.phase, e.bytes // 4) for e in told.exchanges if e.bytes > 8]


MILLION = 10**6


def test_a_bucket_of_stage_0_ends_beyond_half_a_billion_elements() -> None:
    """deepspeed==0.19.8:deepspeed/runtime/engine.py: ``MEMORY_OPT_ALLREDUCE_SIZE = 500000000``, and ``allreduce_no_retain``
    closes a bucket when its elements are more than ``numel_per_bucket``."""
    reduced = [n for kind, _, n in flat(500 * MILLION, 9, 500 * MILLION + 1, 7, stage=0) if kind == "all_reduce"]
    assert reduced == [500 * MILLION + 9, 500 * MILLION + 1, 7]


def test_a_bucket_of_stages_1_to_3_holds_at_most_half_a_billion_elements() -> None:
    """deepspeed==0.19.8:deepspeed/runtime/zero/config.py: ``reduce_bucket_size = 5e8``; ``stage_1_and_2.py``,
    ``reduce_independent_p_g_buckets_and_remove_grads``, and ``stage3.py``, ``reduce_independent_p_g_buckets_and_remove_grads``: a bucket is
    sent before it would hold more."""
    kinds = {1: "all_reduce", 2: "all_reduce", 3: "reduce_scatter"}
    sizes = (300 * MILLION, 200 * MILLION, 200 * MILLION, 300 * MILLION + 2)
    found = {stage: [n for k, _, n in flat(*sizes, stage=stage) if k == kind] for stage, kind in kinds.items()}
    assert found[1] == [500 * MILLION, 200 * MILLION, 300 * MILLION + 2]  # in the order of registration
    assert found[2] == found[3] == [300 * MILLION + 2, 400 * MILLION, 300 * MILLION]


def test_a_weight_of_at_most_a_hundred_thousand_elements_stays_whole() -> None:
    """deepspeed==0.19.8:deepspeed/runtime/zero/config.py: ``param_persistence_threshold = 1e5``; ``partition_parameters.py``:
    ``ds_persist`` where ``ds_numel <= Init.param_persistence_threshold``."""
    gathered = {phase: n for kind, phase, n in flat(100_000, 100_002, stage=3) if kind == "all_gather"}
    assert gathered == {"forward": 100_002, "update": 100_000}


def test_what_is_used_again_before_a_billion_elements_stays_gathered() -> None:
    """deepspeed==0.19.8:deepspeed/runtime/zero/config.py: ``max_reuse_distance = 1e9``; ``partitioned_param_coordinator.py``,
    ``__params_to_release`` adds up the elements of later modules and stops when they are not below the distance.

    The weight of the first module is used again after the others, twice: in forward and in backward. Nothing is gathered ahead.
    """
    ahead = {"stage3_prefetch_bucket_size": 0}
    kept = flat(200_000, 249_900_000, 250 * MILLION, stage=3, **ahead)
    assert Counter(n for kind, _, n in kept if kind == "all_gather")[200_000] == 1
    dropped = flat(200_000, 250_000_000, 250 * MILLION, stage=3, **ahead)
    assert Counter(n for kind, _, n in dropped if kind == "all_gather")[200_000] == 2


def test_fifty_million_elements_are_gathered_ahead_while_less_than_a_billion_are_there() -> None:
    """deepspeed==0.19.8:deepspeed/runtime/zero/config.py: ``prefetch_bucket_size = 5e7``, ``max_live_parameters = 1e9``;
    ``partitioned_param_coordinator.py``, ``_fetch_sub_module_impl``: taken ahead while their sum is below the smaller of the two."""
    first = [n for kind, phase, n in flat(*[10 * MILLION] * 8, stage=3) if kind == "all_gather" and phase == "forward"]
    assert first == [50 * MILLION, 30 * MILLION]
    live = [n for kind, phase, n in flat(990 * MILLION, *[5 * MILLION] * 4, stage=3) if kind == "all_gather" and phase == "forward"]
    assert live[:2] == [990 * MILLION, 10 * MILLION]


def test_the_optimizer_of_stage_3_counts_the_steps_of_each_billion_elements() -> None:
    """deepspeed==0.19.8:deepspeed/runtime/zero/config.py: ``sub_group_size = 1e9``; ``stage3.py``, ``_create_fp16_sub_groups``: closed as
    soon as the device's parts have as many."""

    def counters(*parts: int) -> int:
        weights = tuple(Weight(name=f"m{i}.w", shape=(2 * n,)) for i, n in enumerate(parts))
        told = deepspeed.predict_step(Shapes(name="flat", units=(Unit(name="root", weights=weights),)), 2, {"stage": 3})
        return told.memory["optimizer"] - 12 * sum(parts)

    assert counters(500 * MILLION, 500 * MILLION) == counters(7) == 4
    assert counters(500 * MILLION, 500 * MILLION, 7) == counters(999 * MILLION, 500 * MILLION, 7) == 8


def test_an_all_reduce_costs_what_a_reduce_scatter_would_twice() -> None:
    shapes = stack((8,), (8, 16))
    ours = deepspeed.predict_step(shapes, 2, {"stage": 2})
    owners = deepspeed.predict_step(shapes, 2, {"stage": 2, "use_multi_rank_bucket_allreduce": False})
    assert [e.bytes for e in ours.exchanges if e.kind == "all_reduce" and e.phase == "backward"] == [4 * 32]
    assert [e.bytes for e in owners.exchanges if e.kind == "reduce"] == [4 * 16, 4 * 16]


def test_unknown_options_and_stages_are_refused() -> None:
    with pytest.raises(InputError, match="`bucket` is no option that is predicted of DeepSpeed"):
        deepspeed.predict_step(stack((1,)), 2, {"bucket": 1})
    with pytest.raises(InputError, match="no stage 4"):
        deepspeed.predict_step(stack((1,)), 2, {"stage": 4})
    with pytest.raises(InputError, match="`stage` is no option that is predicted of Megatron-core"):
        megatron.predict_step(stack((1,)), {"dp": 2, "tp": 1}, {"stage": 1})


SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=8)


@given(sizes=SIZES, limit=st.integers(1, 500))
def test_filled_buckets_do_not_pass_their_limit(sizes: list[int], limit: int) -> None:
    weights = [Weight(name=str(i), shape=(n,)) for i, n in enumerate(sizes)]
    found = filled(weights, limit)
    assert [w for b in found for w in b] == weights
    for bucket in found:
        assert len(bucket) == 1 or sum(w.elements for w in bucket) <= limit
    for before, after in pairwise(found):
        assert sum(w.elements for w in before) + after[0].elements > limit


@given(sizes=SIZES, limit=st.integers(1, 500))
def test_passed_buckets_end_beyond_their_limit(sizes: list[int], limit: int) -> None:
    found = passed(sizes, limit)
    assert sum(found) == sum(sizes)
    assert all(size > limit for size in found[:-1])


@given(start=st.integers(0, 100), elements=st.integers(1, 300), part=st.integers(1, 90))
def test_slices_say_who_owns_each_element(start: int, elements: int, part: int) -> None:
    owners = [owner for owner, count in slices(start, elements, part) for _ in range(count)]
    assert owners == [at // part for at in range(start, start + elements)]


@given(sizes=SIZES, limit=st.one_of(st.none(), st.integers(1, 600)), parts=st.integers(1, 9), aligned=st.booleans())
def test_buffers_are_padded_where_they_are_aligned(sizes: list[int], limit: int | None, parts: int, aligned: bool) -> None:
    found = buffers([(n,) for n in sizes], limit, parts, aligned=aligned, even=1)
    if not aligned:
        assert sum(found) == sum(sizes)
        return
    assert all(size % lcm(parts, 128) == 0 for size in found)
    assert sum(sizes) <= sum(found) < sum(sizes) + 64 * len(sizes) + lcm(parts, 128) * len(found)


@given(sizes=st.lists(st.lists(st.integers(1, 40), max_size=3), min_size=1, max_size=5), data=st.data())
def test_everything_is_gathered_before_each_use(sizes: list[list[int]], data: Any) -> None:
    """Every weight once or twice, the first time in forward; all of them once where nothing is dropped, twice where nothing is kept."""
    modules = [tuple(f"{i}.{j}" for j in range(len(unit))) for i, unit in enumerate(sizes)]
    elements = {f"{i}.{j}": n for i, unit in enumerate(sizes) for j, n in enumerate(unit)}
    number = st.integers(0, 200)
    limits = Limits(prefetch=data.draw(number), live=data.draw(number), reuse=data.draw(number))
    times = Counter(
        name for _, names in gathers(modules[0], modules[1:], modules[:0:-1], elements, frozenset(), limits).calls for name in names
    )
    assert set(times) == set(elements)
    assert set(times.values()) <= {1, 2}
    forever = gathers(modules[0], modules[1:], modules[:0:-1], elements, frozenset(), replace(limits, reuse=10**9))
    assert {name for _, names in forever.calls for name in names} == set(elements)
    assert sum(len(names) for _, names in forever.calls) == len(elements)
    never = gathers(modules[0], modules[1:], modules[:0:-1], elements, frozenset(), Limits(prefetch=0, live=0, reuse=0))
    assert Counter(name for _, names in never.calls for name in names) == dict.fromkeys(elements, 2)
