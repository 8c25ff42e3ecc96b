"""The schedule that a strategy names, and whether it admits the strategy's stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

from placeproof.core.diagnostics import Diagnostic, suggestion
from placeproof.core.strategy import NEUTRAL, Strategy
from placeproof.schedules import Schedule, load, names


def schedule_of(strategy: Strategy) -> Schedule:
    """The schedule of a strategy's pipeline. Raises InputError (PP101) where there is none of that name."""
    return load(_name(strategy))


def chunks_of(strategy: Strategy) -> int:
    """Runs of layers on each device: the schedule's own number, or what the strategy says where that is open."""
    return schedule_of(strategy).chunks or strategy.schedule.chunks or 1


def problems(strategy: Strategy) -> Iterator[Diagnostic]:
    """Why a schedule cannot run: no such schedule, chunks that it does not have, degrees or micro-batches that it does not admit."""
    axis = next((a for a in strategy.axes if a.splits.stages), None)
    if axis is None:
        return
    if _name(strategy) not in names():
        help = suggestion(_name(strategy), names()) or f"one of {', '.join(names())}"
        yield Diagnostic(code="PP104", message=f"there is no schedule `{_name(strategy)}`", help=help)
        return
    found, chunks = schedule_of(strategy), strategy.schedule.chunks
    if found.chunks is None and chunks is None:
        message = f"`{found.name}` has several runs of layers on each device, and it is not said how many"
        yield Diagnostic(code="PP104", message=message, help=f"say it: `pp(schedule={found.name}, chunks=2)`")
    elif found.chunks not in (None, chunks) and chunks is not None:
        message = f"`{found.name}` has {found.chunks} run{'s' if found.chunks != 1 else ''} of layers on each device, not {chunks}"
        yield Diagnostic(code="PP104", message=message, help="leave `chunks` out, or take `schedule=interleaved`")
    else:
        fixed = strategy.schedule.microbatches
        yield from needed(schedule_of(strategy), axis.degree, fixed if isinstance(fixed, int) else None, chunks_of(strategy))


def needed(found: Schedule, degree: int | None, microbatches: int | None, chunks: int) -> Iterator[Diagnostic]:
    """What a schedule asks of those counts that are numbers, and does not get."""
    said = {"p": degree, "m": microbatches, "v": chunks}
    counts = {name: count for name, count in said.items() if count is not None}
    for need in found.needs:
        if set(need.rule.names) <= set(counts) and not need.rule.holds(counts):
            shown = ", ".join(f"{name} = {counts[name]}" for name in need.rule.names)
            message = f"`{found.name}` needs {need.rule.text}, and not {shown} (p devices, m micro-batches)"
            yield Diagnostic(code="PP202", message=message, help=need.because, notes=(need.source,))


def _name(strategy: Strategy) -> str:
    return str(strategy.schedule.in_flight or NEUTRAL["in_flight"])
