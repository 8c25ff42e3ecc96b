"""The schedule that a strategy names, and whether it admits the strategy's stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from placeproof.core.diagnostics import Diagnostic, InputError, suggestion
from placeproof.core.mesh import degree_symbol
from placeproof.core.strategy import NEUTRAL, Strategy
from placeproof.schedules import Schedule, checked_at, is_own, load, names, require_at, simulate


def schedule_of(strategy: Strategy) -> Schedule:
    """The schedule of a strategy's pipeline. Raises InputError (PP101) where there is none of that name, and for a file that is none."""
    return load(name_of(strategy))


def chunks_of(strategy: Strategy) -> int:
    """Runs of layers on each device: the schedule's own number, or what the strategy says where that is open."""
    return schedule_of(strategy).chunks or strategy.schedule.chunks or 1


def problems(strategy: Strategy) -> Iterator[Diagnostic]:
    """Why a schedule cannot run: no such schedule, chunks that it does not have, degrees or micro-batches that it does not admit."""
    axis = next((a for a in strategy.axes if a.splits.stages), None)
    if axis is None:
        return
    if not is_own(name_of(strategy)) and name_of(strategy) not in names():
        help = suggestion(name_of(strategy), names()) or f"one of {', '.join(names())}; a file's name ends in .toml"
        yield Diagnostic(code="PP104", message=f"there is no schedule `{name_of(strategy)}`", help=help)
        return
    try:
        schedule_of(strategy)
    except InputError as error:
        yield from error.diagnostics
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
        unmet = tuple(needed(found, axis.degree, fixed if isinstance(fixed, int) else None, chunks_of(strategy)))
        yield from unmet or _not_run(strategy)


def _not_run(strategy: Strategy) -> tuple[Diagnostic, ...]:
    """Why a schedule of one's own gives no order at the numbers that a strategy says."""
    try:
        if is_own(name_of(strategy)) and (at := numbers_of(strategy)) is not None:
            simulate(schedule_of(strategy), p=at.devices, m=at.batches, v=at.chunks)
    except InputError as error:
        return error.diagnostics
    return ()


class Numbers(NamedTuple):
    """Devices of a pipeline, micro-batches of a step, and runs of layers on a device."""

    devices: int
    batches: int
    chunks: int


def numbers_of(strategy: Strategy) -> Numbers | None:
    """The numbers of a strategy's pipeline, None where some are open."""
    degree = next((a.degree for a in strategy.axes if a.splits.stages), None)
    fixed = strategy.schedule.microbatches
    if degree is None or not isinstance(fixed, int):
        return None
    return Numbers(degree, fixed, chunks_of(strategy))


def require_order(strategy: Strategy, values: Mapping[str, Fraction]) -> None:
    """Raise InputError where the order of a schedule of one's own, or a form of it, is wrong at the numbers of symbols that are open in a
    strategy: it was run at small ones."""
    axis = next((a for a in strategy.axes if a.splits.stages), None)
    if axis is None or not is_own(name_of(strategy)):
        return
    said = strategy.schedule.microbatches
    devices = axis.degree or values.get(degree_symbol(axis.name, only=len(strategy.axes) == 1))
    batches = said if isinstance(said, int) else values.get("m")
    if devices is not None and batches is not None:
        require_at(schedule_of(strategy), int(devices), int(batches), chunks_of(strategy))


def not_proved(strategy: Strategy) -> str | None:
    """What no proof says of a schedule of one's own: that its order is one at every size. None where the sizes are numbers, at which it was
    run, and of the catalogue's."""
    if not any(a.splits.stages for a in strategy.axes) or not is_own(name_of(strategy)) or numbers_of(strategy) is not None:
        return None
    sizes = checked_at(schedule_of(strategy))
    most = f"p <= {max(p for p, _, _ in sizes)} and m <= {max(m for _, m, _ in sizes)}"
    return f"that `{name_of(strategy)}` runs each pass once, and no device waits for ever, was tried for {most}, and is not proved"


def needed(found: Schedule, degree: int | None, microbatches: int | None, chunks: int) -> Iterator[Diagnostic]:
    """What a schedule asks of those counts that are numbers, and does not get."""
    said = {"p": degree, "m": microbatches, "v": chunks}
    counts = {name: count for name, count in said.items() if count is not None}
    for need in found.needs:
        if set(need.rule.names) <= set(counts) and not need.rule.holds(counts):
            shown = ", ".join(f"{name} = {counts[name]}" for name in need.rule.names)
            message = f"`{found.name}` needs {need.rule.text}, and not {shown} (p devices, m micro-batches)"
            yield Diagnostic(code="PP202", message=message, help=need.because, notes=(need.source,))


def name_of(strategy: Strategy) -> str:
    """The schedule's name, or the path of its file."""
    return str(strategy.schedule.in_flight or NEUTRAL["in_flight"])
