"""How optimizers of sharded parameters group them: with one rank as with several, where what tells groups apart may be what sharding
changes, as the dimensions of a parameter, or how many of its elements a rank has. Rates may depend on the number of ranks, so that groups
are compared, and not what they are set to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.launch import Launch, as_parameters_are, faked
from placeproof.measure.record.plan import StepPlan
from placeproof.measure.record.recording import Recording

#: Of each parameter, by name, with which settings it is updated.
_Groups = dict[str, frozenset[str]]
_UNNAMED = re.compile(r"parameter \d+")


class Groups:
    """The groups of a step. Of a script that does not run with one rank, the plan says that they were not compared."""

    def __init__(self, launch: Launch, recordings: Mapping[int, Recording], plan: StepPlan) -> None:
        self.first, self.apart = recordings[0], ""
        own, world = [r for r in recordings.values() if r.grouped], self.first.world
        sharded = plan.gathers.axes or plan.layers is not None or any(p.final.kind != "updated" for p in plan.parts)
        if not own or not sharded or plan.stages or world == 1:
            return
        alone = _alone(launch.of(1))
        if alone is None:
            if any(r.grouped > 1 for r in own):
                plan.not_compared["groups"] = "the script does not run with one rank: whether one groups parameters alike is not seen"
            return
        here, there = _groups(recordings.values()), _groups([alone])
        names = [name for name in here if name in there]
        text = "with one rank `{}` and `{}` are updated with {} settings, and with {} ranks with {}"
        if pair := next(_together(names, there, here), None):
            self.apart = text.format(*pair, "the same", world, "others")
        elif pair := next(_together(names, here, there), None):
            self.apart = text.format(*pair, "other", world, "the same")

    def refuse(self) -> None:
        """Raise InputError where groups are others with one rank."""
        help = "choose groups by what sharding does not change, such as names, or before parameters are sharded"
        refuse_lines(self.first.script, self.first.source, [(self.apart, self.first.grouped_at)] if self.apart else [], help=help)


def _alone(launch: Launch) -> Recording | None:
    """The step as one rank does it; None where the script does not run so."""
    try:
        found: Recording = faked(launch, 0, as_parameters_are)
    except InputError:
        return None
    return found if found.groups else None


def _groups(recordings: Iterable[Recording]) -> _Groups:
    groups = _Groups()
    for recording in recordings:
        for name, settings in recording.groups.items():
            if not _UNNAMED.fullmatch(name):
                groups[name] = groups.get(name, frozenset()) | settings
    return groups


def _together(names: Iterable[str], one: _Groups, other: _Groups) -> Iterator[tuple[str, str]]:
    """Two parameters that are together in one of two ways to group them, and apart in the other."""
    ordered = sorted(names, key=lambda name: (sorted(one[name]), sorted(other[name]), name))
    return ((a, b) for a, b in pairwise(ordered) if one[a] == one[b] and other[a] != other[b])
