"""Placements of model states on axes that split the batch, and what the table of modes says that they hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import sympy

import placeproof
from placeproof.core.modes import Mode, Share
from placeproof.core.strategy import Strategy
from placeproof.core.symbols import symbol

#: The model states, with their bytes a parameter.
STATES = {"parameters": "b_theta", "optimizer": "b_omega", "gradients": "b_g"}
#: Modes in which a state can rest on an axis whose devices all compute with it.
RESTS = {"parameters": ("R", "S*", "O"), "optimizer": ("R", "S", "O"), "gradients": ("R", "S", "M", "O")}
#: The placements that are accepted on one axis: modes of parameters, optimizer state, gradients.
ACCEPTED = list(itertools.product(*RESTS.values()))


def placed(*axes: Sequence[str]) -> Strategy:
    """A strategy over one batch axis or two, with the modes of parameters, optimizer state and gradients on each."""
    names = ("dp", "rep")[: len(axes)]
    return placeproof.define(
        "mine",
        axes={name: {"splits": "batch"} for name in names},
        placement={name: dict(zip(STATES, modes, strict=True)) for name, modes in zip(names, axes, strict=True)},
    )()


def by_table(strategy: Strategy, *, host: bool) -> sympy.Expr:
    """Bytes of model states on a device, or on its share of the host: a state with a part on the host lies there whole.

    Gradients on the host lie there in parts also on another axis on which they are placed whole, if the optimizer state is split over it.
    """
    total = sympy.Integer(0)
    for state, width in STATES.items():
        modes = {axis.name: _mode(strategy, state, axis.name) for axis in strategy.axes}
        if any(mode.fetches for mode in modes.values()) is not host:
            continue
        size = symbol("P") * symbol(width)
        for axis, mode in modes.items():
            n = symbol("N" if len(modes) == 1 else f"N_{axis}")
            read_in_parts = host and state == "gradients" and not mode.transient and _mode(strategy, "optimizer", axis).split
            share = mode.host if mode.fetches else Share.PART if read_in_parts else mode.device
            size = {Share.WHOLE: size, Share.PART: size / n, Share.NOTHING: 0}[share]
        total = total + size
    return total


def _mode(strategy: Strategy, state: str, axis: str) -> Mode:
    return next(e.mode for e in strategy.entries if (e.state, e.axis) == (state, axis))


def beside_the_table(*axes: Sequence[str]) -> dict[str, tuple[sympy.Expr, sympy.Expr]]:
    """What is derived otherwise than the table of modes says: (derived, by the table), of model states and of host memory."""
    strategy = placed(*axes)
    memory = placeproof.derive(strategy).memory
    pairs = {key: (memory[key], by_table(strategy, host=key == "host")) for key in ("model_states", "host")}
    return {key: (found, said) for key, (found, said) in pairs.items() if sympy.simplify(found - said) != 0}
