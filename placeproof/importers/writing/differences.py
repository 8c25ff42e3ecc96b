"""In what two strategies differ: their axes, where states lie, what their schedules say, and the steps that they are lowered to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placeproof.core.mesh import Axis
from placeproof.core.states import ACTIVATIONS, STATES
from placeproof.core.strategy import DENSE, EXPERT, INNER, MATRIX, NEUTRAL, NORM, OUTER, SCHEDULE_FIELDS, Strategy
from placeproof.importers.writing.facts import step
from placeproof.programs import render

#: Fields of the schedule by the words of strategies that set them, where these are others.
_WORDS = {
    "in_flight": "schedule",
    "reshard": "reshard_after_forward",
    "recompute": "recomputation",
    "clip": "clipping",
    "gather_width": "qwz",
    "reduce_width": "qgz",
}


#: What a strategy that does not say it leaves to the system that runs it. Of all other fields what is not said is what NEUTRAL says.
_LEFT_OPEN = ("prefetch",)


@dataclass(frozen=True, slots=True)
class Differences:
    """``lines``: each difference in words. ``filled``: what the first leaves open and the second says, as ``prefetch=true``."""

    lines: tuple[str, ...]
    filled: tuple[str, ...]


def differences(wanted: Strategy, read: Strategy) -> Differences:
    """In what a strategy that was read differs from the one that is wanted."""
    unsaid = (name for name in _LEFT_OPEN if getattr(wanted.schedule, name) is None)
    filled = {name: _meant(read, name) for name in unsaid if _meant(read, name) != NEUTRAL[name]}
    lines = [*_axes(wanted, read), *_states(wanted, read)]
    schedule = [n for n in SCHEDULE_FIELDS if n not in filled and _meant(wanted, n) != _meant(read, n)]
    if not lines and {_meant(wanted, "experts"), _meant(read, "experts")} & {a.name for a in read.axes}:
        schedule = [n for n in schedule if n != "experts"]  # an axis that one names, and experts lie alike without that
    lines += [_apart(_WORDS.get(n, n), _shown(_meant(wanted, n)), _shown(_meant(read, n))) for n in schedule]
    if not lines and _step(_with(wanted, filled)) != _step(read):
        lines = ["the programs that the two are lowered to are not the same"]
    return Differences(tuple(lines), tuple(f"{_WORDS.get(name, name)}={_shown(value)}" for name, value in filled.items()))


def _apart(what: str, wanted: object, read: object) -> str:
    return f"{what}: {wanted} wanted, {read} read back"


def _meant(strategy: Strategy, name: str) -> object:
    value = getattr(strategy.schedule, name)
    return NEUTRAL.get(name) if value is None else value


def _with(strategy: Strategy, filled: dict[str, object]) -> Strategy:
    return replace(strategy, schedule=replace(strategy.schedule, **filled))  # type: ignore[arg-type]


def _shown(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _axes(wanted: Strategy, read: Strategy) -> Iterator[str]:
    here, there = ({a.name: a for a in s.axes} for s in (wanted, read))
    for name in (*here, *(n for n in there if n not in here)):
        one, other = here.get(name), there.get(name)
        if one is None or other is None or _known(one) != _known(other):
            yield _apart(f"axis `{name}`", _axis(one), _axis(other))
    if wanted.experts != read.experts:
        yield _apart("axes that experts lie over", " and ".join(wanted.experts) or "none", " and ".join(read.experts) or "none")


def _known(axis: Axis) -> tuple[object, ...]:
    return axis.splits, axis.degree, axis.inner


def _axis(axis: Axis | None) -> str:
    """An axis in words."""
    if axis is None:
        return "none"
    inner = "" if axis.inner is None else f" in groups of {axis.inner}"
    return f"{axis.degree} devices{inner} that split the {axis.splits}"


def _states(wanted: Strategy, read: Strategy) -> Iterator[str]:
    """States that lie otherwise on an axis that both have; of groups where they lie apart."""
    for axis in (a.name for a in wanted.axes if any(a.name == other.name and a.splits == other.splits for other in read.axes)):
        for state in STATES.values():
            groups = (INNER, OUTER) if state is ACTIVATIONS else (DENSE, MATRIX, NORM, EXPERT)
            apart = {g: (wanted.mode(state, axis, g), read.mode(state, axis, g)) for g in groups}
            for modes in dict.fromkeys(pair for pair in apart.values() if pair[0] != pair[1]):
                of = "" if set(apart.values()) == {modes} else f" ({', '.join(g for g, pair in apart.items() if pair == modes)})"
                yield _apart(f"{state}{of} on axis `{axis}`", *modes)


def _step(strategy: Strategy) -> str:
    return render(replace(step(strategy), name=""))
