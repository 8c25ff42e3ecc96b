"""Terms of a step's time: each that is left out changes what it is about, and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from functools import cache

import pytest

from placeproof.clusters import Cluster, cluster
from placeproof.core.diagnostics import InputError
from placeproof.cost.model import derive_model
from placeproof.cost.model.derivation import ModelDerivation
from placeproof.cost.model.passes import StageTime
from placeproof.cost.model.terms import TERMS
from placeproof.cost.model.time import StepTime, step_time
from placeproof.implementations import find, names
from placeproof.models import load
from placeproof.strategies import parse_strategy

SIZES = {"b": 1, "m": 4, "s": 4096, "b_a": 2, "b_theta": 2, "b_g": 4, "b_omega": 12}


@cache
def derivation() -> ModelDerivation:
    """Four layers with fused attention on two stages, all computed again."""
    model = load("llama3-70b").resized({"L": 4, "s": 4096})
    return derive_model(model, parse_strategy("zero1(2) * tp(2) * sp * pp(2)"), recompute="full")


def timed(on: Cluster, **sizes: int) -> StepTime:
    values = {name: Fraction(n) for name, n in (SIZES | sizes).items()}
    return step_time(derivation(), values, on, overlap="none")


def quick() -> Cluster:
    """A device whose kernels take so long to launch that nothing else takes time in a pass."""
    one = cluster("dgx-b200")
    assert one.device.reached is not None
    return replace(one, device=replace(one.device, reached=replace(one.device.reached, kernel=Fraction(1, 100))))


#: What a term is about: times of a stage by their names.
ABOUT = {
    "rate": {"forward", "inputs", "weights"},
    "mask": {"forward", "inputs"},
    "moved": {"forward", "inputs", "weights"},
    "memory": {"forward", "inputs", "weights", "update"},
    "kernels": {"forward", "inputs", "weights", "inside", "once", "send"},
    "launches": set(),  # nothing is launched as slowly here
    "links": {"inside", "once", "send"},
    "exchanges": {"inside"},
    "messages": {"send"},
    "gradients": {"once"},
    "update": {"update"},
    "recomputation": {"inputs"},
    "ends": {"forward", "inputs", "weights"},
    "bubble": set(),
}


def differing(one: StageTime, other: StageTime) -> set[str]:
    return {f.name for f in fields(StageTime) if getattr(one, f.name) != getattr(other, f.name)} - {"exposed"}


@pytest.mark.parametrize("term", TERMS)
def test_a_term_changes_what_it_is_about(term: str) -> None:
    every = timed(cluster("dgx-b200"))
    without = every.again(cluster("dgx-b200"), [term])
    changed = {name for a, b in zip(every.stages, without.stages, strict=True) for name in differing(a, b)}
    assert changed == ABOUT[term]
    more = without.seconds - every.seconds
    assert (more > 0) == (term == "mask")
    assert (more == 0) == (term == "launches")


def test_what_is_left_out_is_what_it_took() -> None:
    """By hand: the update's bytes, messages of the schedule, stages that wait, and the floor of launches."""
    on = cluster("dgx-b200")
    every = timed(on)
    tails = [s.tail - s.update for s in every.stages]
    assert every.again(on, ["update"]).seconds == every.passes + max(tails)
    passes = [sum(s.passes) for s in every.stages]
    assert every.again(on, ["bubble"]).passes == 4 * max(passes)
    assert every.again(on, ["bubble", "update", "gradients"]).seconds == 4 * max(passes)
    assert every.again(on, ["messages"]).passes < every.passes
    slow = timed(quick())
    assert slow.again(quick(), ["launches"]).seconds < slow.seconds
    assert slow.stages[0].forward + slow.stages[0].inside[0] >= Fraction(2, 100) * 2


def test_nothing_left_out_is_the_step() -> None:
    """With the same figures a step is timed alike, whatever was asked of it before."""
    on = cluster("dgx-b200")
    every = timed(on)
    every.again(on, list(TERMS))
    assert every.again(on).seconds == every.seconds == timed(on).seconds
    assert every.again(on, ["rate"]).seconds == timed(on).again(on, ["rate"]).seconds
    other = replace(on, device=replace(on.device, reached=replace(on.device.reached, memory_bandwidth=on.device.memory_bandwidth)))  # type: ignore[type-var]
    assert every.again(other).seconds == timed(other).seconds == every.again(on, ["memory"]).seconds


def test_all_terms_left_out_leave_products_of_matrices() -> None:
    """At the peak, of layers alone, forward and backward."""
    on = cluster("dgx-b200")
    bare = timed(on).again(on, [name for name in TERMS if name != "mask"])
    hidden, ffn, keys, tokens = 8192, 28672, 1024, 4096
    weights = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * ffn
    forward = 2 * tokens * (2 * weights + 2 * 2 * tokens * hidden // 2) // 2  # two layers, half of them; half is masked
    assert bare.stages[0].forward == Fraction(forward, 2250 * 10**12)
    assert bare.seconds == bare.passes == 4 * sum(bare.stages[0].passes)


@pytest.mark.parametrize(
    ("terms", "says"),
    [(["bubbles"], "did you mean `bubble`"), (["nothing"], "its terms are rate"), (["mask"], "timed by kernels, and here it is not")],
)
def test_terms_that_are_not_there(terms: list[str], says: str) -> None:
    on, values = cluster("dgx-b200"), {name: Fraction(n) for name, n in SIZES.items()}
    with pytest.raises(InputError) as error:
        step_time(derivation(), values | {"eta": Fraction(1, 2)}, on, without=terms)
    (problem,) = error.value.diagnostics
    assert says in f"{problem.message}; {problem.help}"


def test_terms_and_differences_have_names_of_their_own() -> None:
    """`--without` takes both."""
    assert not {*TERMS, "all"} & {d.name for name in names() for d in find(name).differences}
    assert {*ABOUT} == {*TERMS}
