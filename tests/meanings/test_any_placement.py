"""Any placement of the model states on one or two batch axes is either refused or lowered to a correct program."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace

import pytest

import placeproof
import placeproof.core.strategy
from placeproof.core.diagnostics import InputError
from placeproof.core.modes import MODES
from placeproof.cost.derive import derive
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.run import run
from placeproof.semantics.usable import require_usable
from placeproof.strategies import parse_strategy

STATES = ("parameters", "optimizer", "gradients")
CHOICES = list(itertools.product(MODES, repeat=3))
#: Modes in which a state can rest on an axis whose devices all compute with it.
RESTS = {"parameters": ("R", "S*", "O"), "optimizer": ("R", "S", "O"), "gradients": ("R", "S", "M", "O")}


def placed(*axes: tuple[str, ...]) -> placeproof.core.strategy.Strategy:
    names = ("dp", "rep")[: len(axes)]
    return placeproof.define(
        "mine",
        axes={name: {"splits": "batch"} for name in names},
        placement={name: dict(zip(STATES, modes, strict=True)) for name, modes in zip(names, axes, strict=True)},
    )()


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


@pytest.mark.parametrize("first", [m for m in CHOICES if all(x in RESTS[s] for s, x in zip(STATES, m, strict=True))], ids="".join)
def test_two_axes(first: tuple[str, ...]) -> None:
    for second in (("R", "R", "R"), ("R", "S", "S"), ("S*", "S", "S"), ("R", "S", "R"), ("R", "R", "S")):
        program = lower(placed(first, second))
        assert run(program, Setup(degrees={"dp": 2, "rep": 3}, exact=False)) is None, (first, second)


@pytest.mark.parametrize(("name", "fits"), [("N_k", True), ("N_node", True), ("N_", False), ("k", False), ("N_dp", False)])
def test_sub_groups_have_a_size_with_a_name_of_its_own(name: str, fits: bool) -> None:
    strategy = parse_strategy("fsdp")
    named = replace(strategy, axes=tuple(replace(axis, inner=name) for axis in strategy.axes))
    with nullcontext() if fits else pytest.raises(InputError, match="PP104"):
        require_usable(named)
