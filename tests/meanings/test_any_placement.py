"""Any placement of the model states on one or two batch axes is either refused or lowered to a correct program."""

from __future__ import annotations

import itertools
import random
from contextlib import nullcontext
from dataclasses import replace

import pytest
from accepted_placements import ACCEPTED, RESTS, STATES, beside_the_table, placed

import placeproof
from placeproof.core.diagnostics import InputError
from placeproof.core.modes import MODES
from placeproof.cost.derive import derive
from placeproof.programs import render
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.run import run
from placeproof.semantics.usable import require_usable
from placeproof.strategies import parse_strategy

CHOICES = list(itertools.product(MODES, repeat=3))


@pytest.mark.parametrize("modes", CHOICES, ids="".join)
@pytest.mark.parametrize("with_", ["", "accumulate", "tp * pp"])
def test_one_axis(modes: tuple[str, ...], with_: str) -> None:
    usable = all(mode in RESTS[state] for state, mode in zip(STATES, modes, strict=True))
    strategy = placed(modes)
    if with_:
        strategy = strategy * placeproof.strategy(with_)
    if not usable:
        with pytest.raises(InputError):
            lower(strategy)
        return
    program = lower(strategy)
    repeats = 2 if with_ else 1
    degrees = {axis.name: 2 for axis in strategy.axes}
    assert run(program, Setup(degrees=degrees, microbatches=repeats, exact=False)) is None
    d = derive(strategy)
    assert set(d.forms) >= {"memory.peak", "traffic.sent_per_device"}


@pytest.mark.parametrize("first", ACCEPTED, ids="".join)
def test_two_axes(first: tuple[str, ...]) -> None:
    for second in (("R", "R", "R"), ("R", "S", "S"), ("S*", "S", "S"), ("R", "S", "R"), ("R", "R", "S")):
        program = lower(placed(first, second))
        assert run(program, Setup(degrees={"dp": 2, "rep": 3}, exact=False)) is None, (first, second)


@pytest.mark.parametrize("modes", ACCEPTED, ids="".join)
def test_what_is_held_on_one_axis_is_what_the_table_of_modes_says(modes: tuple[str, ...]) -> None:
    assert not beside_the_table(modes)


def test_what_is_held_on_two_axes_is_what_the_table_of_modes_says() -> None:
    gathered = [(first, second) for first in ACCEPTED for second in ACCEPTED if ("R", "S") in (first[1:], second[1:])]
    draw = random.Random(1)
    pairs = [*draw.sample(gathered, 5), *(tuple(draw.choices(ACCEPTED, k=2)) for _ in range(15))]
    wrong = {pair: found for pair in pairs if (found := beside_the_table(*pair))}
    assert not wrong


@pytest.mark.parametrize("modes", ACCEPTED, ids="".join)
def test_a_step_of_several_micro_batches_is_proved(modes: tuple[str, ...]) -> None:
    assert placeproof.judge(placed(modes) * placeproof.strategy("accumulate")).word == "proved"


@pytest.mark.parametrize(
    ("axis", "others", "accepted"),
    [
        ("tp", "", {"(S, S, S, R, tp)", "(S, S, S, S, tp)"}),
        ("tp", " * checkpoint", {f"(S, S, S, {mode}, tp)" for mode in ("R", "S", "S*", "O")}),
        ("pp", "", {"(S, S, S, S, pp)"}),
        ("pp", " * accumulate", {"(S, S, S, S, pp)"}),
        ("cp", " * cp", {f"({', '.join(modes)}, {mode}, cp)" for modes in ACCEPTED for mode in ("R", "S")}),
    ],
)
def test_on_any_axis_a_placement_is_refused_or_proved(axis: str, others: str, accepted: set[str]) -> None:
    every = [f"({', '.join(modes)}, {axis})" for modes in itertools.product(MODES, repeat=4)]
    words = {placement: word for placement in every if (word := _word(placement + others)) != "refused"}
    assert words == dict.fromkeys(accepted, "proved")


def _word(text: str) -> str:
    try:
        strategy = parse_strategy(text)
        require_usable(strategy)
    except InputError:
        return "refused"
    return placeproof.judge(strategy).word


def test_a_step_over_twenty_axes_with_other_placements_is_proved() -> None:
    """More axes than arrays of numpy can have where an encoding is compared line by line."""
    rows = random.Random(1).sample(ACCEPTED, 20)
    strategy = placeproof.strategy(" * ".join(f"({', '.join(modes)}, R, d{i})" for i, modes in enumerate(rows)))
    assert placeproof.judge(strategy).word == "proved"


@pytest.mark.parametrize("parameters", RESTS["parameters"])
def test_gradients_on_the_host_are_kept_in_parts_and_gathered_for_an_update_of_all(parameters: str) -> None:
    program = render(lower(placed((parameters, "R", "O"))))
    assert "full = all_gather(to_device(gradients), dp)" in program


@pytest.mark.parametrize(("name", "fits"), [("N_k", True), ("N_node", True), ("N_", False), ("k", False), ("N_dp", False)])
def test_sub_groups_have_a_size_with_a_name_of_its_own(name: str, fits: bool) -> None:
    strategy = parse_strategy("fsdp")
    named = replace(strategy, axes=tuple(replace(axis, inner=name) for axis in strategy.axes))
    with nullcontext() if fits else pytest.raises(InputError, match="PP104"):
        require_usable(named)
