"""Whether a placement can be used at all, before it is lowered: a table of rules over one strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from placeproof.core.diagnostics import Diagnostic, InputError, Place
from placeproof.core.mesh import Axis
from placeproof.core.modes import Mode, Share
from placeproof.core.states import ACTIVATIONS, GRADIENTS, MODEL_STATES, OPTIMIZER, PARAMETERS, STATES, State
from placeproof.core.strategy import EXPERT, INNER, MATRIX, OUTER, Strategy
from placeproof.semantics.scheduled import problems as unscheduled


def _bad(message: str, help: str, place: Place | None = None, code: str = "") -> Diagnostic:
    """Why a placement cannot be used; ``code``: where it is another than its rule's."""
    return Diagnostic(code=code, message=message, help=help, place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usability:
    """What every strategy must satisfy to be lowered."""

    code: str
    demands: str
    check: Callable[[Strategy], Iterator[Diagnostic]]


def require_usable(strategy: Strategy) -> None:
    """Raise :class:`InputError` with every reason why no device could use this placement, or why it is not lowered."""
    reasons = (replace(bad, code=bad.code or rule.code) for rule in RULES for bad in rule.check(strategy))
    if problems := dict.fromkeys(reasons):
        raise InputError(problems)


def _mode(strategy: Strategy, state: State, axis: Axis) -> Mode:
    return strategy.mode(state, axis.name, MATRIX)


def _lying(strategy: Strategy, state: State) -> Iterator[tuple[Axis, Mode, str, Callable[..., Diagnostic]]]:
    """How a state lies on each axis; the axis with who places the state there, and a problem at that line of a user's file."""
    for axis in strategy.axes:
        entry = next((e for e in strategy.entries if e.state == state.name and e.axis == axis.name), None)
        where = f"`{axis.name}`" + (f" (placed by `{entry.owner}`)" if entry is not None else "")
        yield axis, _mode(strategy, state, axis), where, partial(_bad, place=entry.place if entry is not None else None)


def _parameters_reach_compute(strategy: Strategy) -> Iterator[Diagnostic]:
    for axis, mode, where, bad in _lying(strategy, PARAMETERS):
        if axis.splits.samples and mode.split and not mode.gathers:
            message = f"parameters lie `{mode}` on {where}, which splits the {axis.splits}: each device needs all, and nothing gathers them"
            yield bad(message, f'place them `S*` (gathered unit by unit for each use): `{axis.name}: parameters = "S*"`')
        if axis.splits.compute and mode.gathers:
            message = f"parameters lie `{mode}` on {where}, which splits the computation: no device needs the others' part"
            yield bad(message, "place them `S` there, or gather over an axis that splits the batch")
        if mode.transient:
            yield bad(f"parameters lie `M` on {where}, and nothing in a step produces them", "place them `S*` to gather them per use")


def _optimizer_lies(strategy: Strategy) -> Iterator[Diagnostic]:
    for _, mode, where, bad in _lying(strategy, OPTIMIZER):
        if mode.transient or (mode.gathers and not mode.fetches):
            message = f"optimizer state lies `{mode}` on {where}, but an update uses it where it lies"
            yield bad(message, "place it `S` (each device updates its part), `R` or `O`")


def _gradients_lie(strategy: Strategy) -> Iterator[Diagnostic]:
    for _, mode, where, bad in _lying(strategy, GRADIENTS):
        if mode.gathers and not mode.fetches:
            message = f"gradients lie `S*` on {where}, but nothing uses gathered gradients"
            yield bad(message, "place them `S`: each device keeps the part that it updates")


def _compute_axes_agree(strategy: Strategy) -> Iterator[Diagnostic]:
    unmet = {axis for axis, _ in _unmet(strategy)}
    for axis in strategy.axes:
        if not (axis.splits.matrices or axis.splits.stages) or axis.name in unmet:
            continue
        modes = {state: _mode(strategy, state, axis) for state in MODEL_STATES}
        if not all(m.device is Share.PART for m in modes.values()):
            shown = ", ".join(f"{state} `{mode}`" for state, mode in modes.items())
            message = f"on `{axis.name}`, which splits the {axis.splits}, {shown}: a device updates exactly the part that it computes with"
            yield _bad(message, "place parameters, gradients and optimizer `S` there")


def _activations_lie(strategy: Strategy) -> Iterator[Diagnostic]:
    for axis, mode, where, bad in _lying(strategy, ACTIVATIONS):
        if axis.splits.samples and (mode.device is not Share.PART or mode.gathers):
            help = "leave activations out there; to keep less of them, compose with `checkpoint` or `checkpoint(checkpoints=host)`"
            yield bad(f"activations lie `{mode}` on {where}, but its devices have different samples", help)
        if axis.splits.stages and (mode.device is not Share.PART or mode.gathers):
            yield bad(f"activations lie `{mode}` on `{axis.name}`, but each stage has its own layers", "leave activations out there")
        if axis.splits.matrices and mode.transient:
            message = f"activations lie `{mode}` on `{axis.name}`, which is not lowered"
            yield bad(message, "compose with `checkpoint`, which keeps each layer's input alone", code="PP122")
        if axis.splits.matrices and mode.gathers and not strategy.schedule.recompute:
            message = f"activations lie `{mode}` on `{axis.name}` without recomputation, which is not lowered"
            yield bad(message, "`zero_r` partitions activation checkpoints; `sp` splits activations by the sequence", code="PP122")


def _unmet(strategy: Strategy) -> Iterator[tuple[str, str]]:
    """The axes on which a state has to be placed by another strategy, and none does."""
    return ((axis, state) for axis, state in strategy.needs if not strategy.places(STATES[state], axis))


def _needs_met(strategy: Strategy) -> Iterator[Diagnostic]:
    for axis, state in _unmet(strategy):
        who = next((p for p in strategy.parts if any(e.owner == p and e.axis == axis for e in strategy.entries)), strategy.name)
        help = f"compose it: `{who} * tp`" if axis == "tp" else f"compose it with a strategy that places {state} on `{axis}`"
        yield _bad(f"`{who}` works on axis `{axis}` where another strategy places {state}, and none does", help)


def _one_axis_each(strategy: Strategy) -> Iterator[Diagnostic]:
    stages = [a for a in strategy.axes if a.splits.stages]
    for axes in (*_alike_to_experts(strategy), stages):
        if len(axes) > 1:
            shown = " and ".join(f"`{a.name}`" for a in axes)
            message = f"{shown} both split the {axes[0].splits}; one axis can be lowered"
            apart = f"; or let experts lie over one of them: `ep({axes[-1].name})`" if axes is not stages and strategy.experts else ""
            yield _bad(message, f"merge them into one axis of the product of their degrees{apart}")
    yield from _hidden_axes_agree(strategy)
    for axis in strategy.axes:
        if axis.splits.called:
            message = f"axis `{axis.name}` splits blocks, and a strategy has none of its own"
            yield _bad(message, "say what it splits of them: hidden, sequence, batch; `--model` has blocks")
        if axis.splits.routes:
            message = f"axis `{axis.name}` splits the experts and not the batch: that is not lowered"
            yield _bad(message, "compose it with `ep`, whose devices have different samples")
        if axis.splits.tokens and strategy.schedule.attention is None:
            message = f"axis `{axis.name}` splits the sequence, and nothing says how attention reaches the other devices' tokens"
            yield _bad(message, f"compose it with `cp({axis.name})`, whose `attention` is ring, gather or ulysses")


def _alike_to_experts(strategy: Strategy) -> tuple[list[Axis], ...]:
    """The axes that split the hidden dimension, those together on which experts lie alike: over its devices, split, or whole."""
    alike: dict[tuple[bool, bool], list[Axis]] = {}
    for axis in (a for a in strategy.axes if a.splits.matrices):
        apart = axis.name in strategy.experts
        split = not apart and (not strategy.experts or strategy.mode(PARAMETERS, axis.name, EXPERT).split)
        alike.setdefault((apart, split), []).append(axis)
    return tuple(alike.values())


def _hidden_axes_agree(strategy: Strategy) -> Iterator[Diagnostic]:
    """To all that is no expert, several axes that split the hidden dimension are one."""
    axes, named = [a.name for a in strategy.axes if a.splits.matrices], strategy.schedule.experts
    if named not in (None, "split", "whole") and (named not in axes or named in strategy.experts):
        why = "over which experts lie themselves" if named in strategy.experts else "which is no axis that splits the hidden dimension"
        message = f"experts are to be split over `{named}`, {why}"
        yield _bad(message, "`experts`: split, whole, or the one axis of tensor parallelism over which experts are split", code="PP104")
    elif named in axes and not strategy.experts:
        yield _bad(f"experts are to be split over `{named}` alone, and they lie over no axis", "compose it with `ep`", code="PP104")
    for group in (INNER, OUTER):
        modes = {name: strategy.mode(ACTIVATIONS, name, group) for name in axes}
        if len({*modes.values()}) > 1:
            shown = ", ".join(f"`{mode}` on `{name}`" for name, mode in modes.items())
            message = f"activations lie {shown}, which together split the hidden dimension: that is not lowered"
            yield _bad(message, f"place them alike: with `sp`, as `{' * '.join(f'sp(tp={name})' for name in axes)}`")
        elif len(axes) > 1 and modes[axes[0]].gathers:
            yield _bad(
                f"activations lie `{modes[axes[0]]}` on {' and '.join(f'`{name}`' for name in axes)}: that is not lowered",
                "leave `zero_r` out",
            )


def _experts_lie(strategy: Strategy) -> Iterator[Diagnostic]:
    for name in strategy.experts:
        axis = strategy.axis(name)
        modes = {state: strategy.mode(state, name, EXPERT) for state in MODEL_STATES}
        apart = axis.splits.samples or axis.splits.matrices
        if not apart or any(not m.split or m.gathers or m.fetches for m in modes.values()):
            shown = ", ".join(f"{state} `{mode}`" for state, mode in modes.items())
            message = f"experts lie {shown} on `{name}`, which splits the {axis.splits}: that is not lowered"
            help = (
                "place parameters, gradients and optimizer of `expert` `S` on an axis that splits the batch, tokens or the hidden dimension"
            )
            yield _bad(message, help)
        elif axis.splits.matrices and not strategy.mode(ACTIVATIONS, name, OUTER).stays_split:  # tokens lie whole outside parallel regions
            message = f"each device of `{name}` has all tokens, and would send them to the experts of the others once more"
            yield _bad(message, "compose it with `sp`, so that each has tokens of its own")
    yield from _beside_experts(strategy)


def _beside_experts(strategy: Strategy) -> Iterator[Diagnostic]:
    """What the other parameters may do on the axes of the experts."""
    gathers = {a.name for a in strategy.axes if _mode(strategy, PARAMETERS, a).gathers}
    beside, keeps = gathers.intersection(strategy.experts), strategy.schedule
    if not beside:
        return
    shown = " and ".join(f"`{name}`" for name in sorted(beside))
    if gathers == beside:
        yield _bad(
            f"parameters are gathered over {shown} alone, so that a unit's experts are not gathered, and the rest is: that is not lowered",
            "shard over `dp` as well: `fsdp * fsdp(dp=ep) * ep`",
        )
    if keeps.prefetch or keeps.root == "keep" or not (keeps.reshard is None or isinstance(keeps.reshard, bool)):
        yield _bad(
            f"prefetching, a root unit that is kept, or a shard over sub-groups where parameters are gathered over {shown} is not lowered",
            "leave the option out",
        )


def _groups_differ_by_computation(strategy: Strategy) -> Iterator[Diagnostic]:
    for entry in strategy.entries:
        if entry.groups and EXPERT not in entry.groups and not strategy.axis(entry.axis).splits.matrices:
            message = f"`{entry.owner}` places groups of {entry.state} differently on `{entry.axis}`, which is not lowered"
            yield _bad(message, "groups may differ on an axis that splits the hidden dimension; place the whole state alike here")


def _sub_groups_divide(strategy: Strategy) -> Iterator[Diagnostic]:
    for axis in strategy.axes:
        if isinstance(axis.inner, int) and axis.degree is not None and axis.degree % axis.inner:
            message = f"sub-groups of {axis.inner} do not divide the {axis.degree} devices of axis `{axis.name}`"
            yield _bad(message, f"choose a divisor of {axis.degree}")
        if isinstance(axis.inner, str) and not _free_degree(axis.inner, strategy):
            message = f"`{axis.inner}` cannot name the size of sub-groups of axis `{axis.name}`"
            yield _bad(message, "give a number, or a name such as `N_node` that is no other axis's degree", code="PP104")


def _free_degree(name: str, strategy: Strategy) -> bool:
    return name.startswith("N_") and len(name) > 2 and all(name != f"N_{a.name}" for a in strategy.axes)


def _has_something(strategy: Strategy) -> Iterator[Diagnostic]:
    keeps = strategy.schedule
    if keeps.root == "keep":
        if keeps.reshard is False or keeps.unit == "model":
            yield _bad("the root unit is kept where every unit is dropped: here all are kept, or there is one", "leave `root` out")
        if keeps.prefetch:
            yield _bad("prefetching together with a root unit that is kept is not lowered", "leave one of the two out", code="PP122")
    if not keeps.prefetch:
        return
    if not any(_mode(strategy, PARAMETERS, a).gathers for a in strategy.axes):
        yield _bad("there is nothing to prefetch: no parameters are gathered", "leave `prefetch` out")
    if keeps.reshard is not None and not isinstance(keeps.reshard, bool):
        yield _bad("prefetching together with a shard over sub-groups is not lowered", "leave one of the two out", code="PP122")


#: Updates of whole matrices, and what brings together what each of them reads.
_WAYS: dict[str, tuple[str, ...]] = {
    "orthogonal": ("gathered", "exchanged", "owned"),
    "factored": ("reduced", "owned"),
    "preconditioned": ("owned",),
}


def _matrices_are_read(strategy: Strategy) -> Iterator[Diagnostic]:
    update, way = strategy.schedule.update, strategy.schedule.matrices
    ways = _WAYS.get(update or "", ())
    if update is not None and not ways:
        yield _bad(f"`{update}` is no update of whole matrices", f"one of {', '.join(_WAYS)}")
    elif update is None and way is not None:
        yield _bad(f"matrices are `{way}`, and no update reads whole ones", f"say which does, `update = ...`: one of {', '.join(_WAYS)}")
    elif update is not None and way not in ways:
        said = "nothing says what brings together" if way is None else f"`matrices = {way}` does not bring together"
        yield _bad(f"{said} what the `{update}` update reads of matrices", f"`matrices`: one of {', '.join(ways)}")


RULES: tuple[Usability, ...] = (
    Usability(code="PP120", demands="parameters reach the computation that reads them", check=_parameters_reach_compute),
    Usability(code="PP120", demands="optimizer state is used where it lies", check=_optimizer_lies),
    Usability(code="PP120", demands="gradients are kept in the part that is updated", check=_gradients_lie),
    Usability(code="PP121", demands="a device updates the part that it computes with", check=_compute_axes_agree),
    Usability(code="PP120", demands="activations stay with their samples and layers", check=_activations_lie),
    Usability(code="PP108", demands="what a strategy builds on is there", check=_needs_met),
    Usability(code="PP122", demands="one axis splits the layers, one the hidden dimension, or experts differ", check=_one_axis_each),
    Usability(code="PP122", demands="experts lie where devices have tokens of their own", check=_experts_lie),
    Usability(code="PP122", demands="groups differ where the computation is split", check=_groups_differ_by_computation),
    Usability(code="PP103", demands="sub-groups divide their axis", check=_sub_groups_divide),
    Usability(code="PP104", demands="options have something to act on", check=_has_something),
    Usability(code="PP104", demands="an update of whole matrices has them", check=_matrices_are_read),
    Usability(code="PP104", demands="the schedule admits its chunks, its stages and its micro-batches", check=unscheduled),
)
