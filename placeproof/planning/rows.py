"""What many points have in common, worked out once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placeproof.planning.arrays import Array
from placeproof.planning.bounds import message_seconds
from placeproof.planning.space import ORDERS, Flow
from placeproof.planning.tables import GroupTimes, Points, StateAmounts, States
from placeproof.schedules import load


class Rows(NamedTuple):
    """Points on the same axes, and what is worked out at all of them, once for all that differ in what does not change it."""

    points: Points
    of_states: dict[tuple[int, str], tuple[States, tuple[list[StateAmounts], Array]]]

    def amounts(self, states: States, order: str) -> tuple[list[StateAmounts], Array]:
        """What stages have, by number, and seconds of a message. ``order``: a key of :data:`placeproof.planning.space.ORDERS`."""
        key = id(states), order
        if key not in self.of_states:
            groups = GroupTimes(states.task, self.points, ORDERS[order])
            held = [states.amounts(number, self.points, groups) for number in range(len(states.costs))]
            self.of_states[key] = states, (held, message_seconds(states, states.task, self.points, groups))
        return self.of_states[key][1]


def alike_flows(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Those together that differ in how many runs of layers a device has, of several."""
    found: dict[tuple[str, bool], list[Flow]] = {}
    for flow in flows:
        found.setdefault((flow.schedule, flow.chunks > 1), []).append(flow)
    return list(found.values())


def together_of(flows: tuple[Flow, ...], *, alike: bool) -> list[tuple[Flow, ...]]:
    """Those under which devices have the same parts of the model. Where layers are not all ``alike``, which a device has depends on its
    runs."""
    if not alike:
        return [(flow,) for flow in flows]
    layouts = [load(flow.schedule).layout for flow in flows]
    return [tuple(flow for flow, own in zip(flows, layouts, strict=True) if own is layout) for layout in dict.fromkeys(layouts)]
