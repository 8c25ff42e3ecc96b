"""Placing the states of a program that does not say how they lie: as its use of them says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placeproof.collectives import Layout
from placeproof.core.modes import GATHERED, REPLICATED, SHARDED, Mode
from placeproof.core.program import Placed, Program, Ref
from placeproof.semantics.values import Event, Kind, Trace, axis_factors, factors

_States = ("parameters", "optimizer", "gradients")


def with_placements(program: Program, walk: Callable[[Program], Trace]) -> tuple[Program, str]:
    """The program with every model state placed, and the name of the buffer that plays the gradients.

    A state that is not placed is inferred: parameters are owned in parts on the axes over which the step gathers them
    before the update; the optimizer state and the gradients, on the axes on which the update's gradient is sharded.
    """
    program = _complete(program)
    found = walk(program)
    buffer = _gradient_buffer(found)
    placed = {p.state for p in program.placed}
    missing = [s for s in _States if s not in placed]
    if not missing:
        return program, buffer
    if "parameters" in missing:
        program = _with(program, "parameters", dict.fromkeys(_gathered(found), GATHERED))
    if "optimizer" in missing or "gradients" in missing:
        owned = _owned(walk(program))
        for state in ("optimizer", "gradients"):
            if state in missing and (state != "gradients" or buffer == "gradients"):
                program = _with(program, state, dict.fromkeys(owned, SHARDED))
    return program, buffer


def _complete(program: Program) -> Program:
    """The program with one line for each group of a state of which one is placed apart: axis by axis, what is said of the group counts, and
    for the rest what is said of all."""
    apart = {p.state for p in program.placed if p.group is not None}
    if not apart:
        return program
    placed = [p for p in program.placed if p.state not in apart]
    for state in dict.fromkeys(p.state for p in program.placed if p.state in apart):
        lines = [p for p in program.placed if p.state == state]
        for group in (g.name for g in program.groups):
            modes = {axis: mode for own in (None, group) for p in lines if p.group == own for axis, mode in p.modes}
            own_line = next((p.place for p in lines if p.group == group), lines[0].place)
            whole = tuple((a.name, modes.pop(a.name, REPLICATED)) for a in program.axes)
            placed.append(Placed(state=state, group=group, modes=(*whole, *modes.items()), place=own_line))
    return replace(program, placed=tuple(placed))


def _with(program: Program, state: str, modes: dict[str, Mode]) -> Program:
    total = tuple((a.name, modes.get(a.name, REPLICATED)) for a in program.axes)
    return replace(program, placed=(*program.placed, Placed(state=state, group=None, modes=total)))


def _update_event(found: Trace) -> Event | None:
    return next((e for e in found.events if e.call.op in ("update", "update_with")), None)


def _gradient_buffer(found: Trace) -> str:
    event = _update_event(found)
    if event is None or len(event.call.args) < 3:
        return "gradients"
    argument = event.call.args[2]
    return argument.name if isinstance(argument, Ref) else "gradients"


def _gathered(found: Trace) -> tuple[str, ...]:
    axes: list[str] = []
    for event in found.events:
        if event.phase == "update":
            break
        direct = bool(event.call.args) and isinstance(event.call.args[0], Ref) and event.call.args[0].name == "parameters"
        if event.call.op == "all_gather" and direct:
            axes += [a.name for a in found.program.axes if set(factors(found.program, a.name)) <= set(_all(event, found))]
    return tuple(dict.fromkeys(axes))


def _all(event: Event, found: Trace) -> list[str]:
    return [f for a in event.call.axes for f in factors(found.program, a)]


def _owned(found: Trace) -> tuple[str, ...]:
    event = _update_event(found)
    if event is None or len(event.operands) < 3 or event.operands[2].kind is not Kind.GRADIENTS:
        return ()
    gradient = event.operands[2]
    sharded = {f for f in axis_factors(found.program) if Layout.SHARD in gradient.on(f)}
    return tuple(a.name for a in found.program.axes if set(factors(found.program, a.name)) <= sharded)
