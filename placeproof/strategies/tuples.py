"""The tuple notation of placements: ``(S*, S, S, R)`` is a strategy on one axis.

The order is the paper's: parameters, optimizer state, gradients, activations. Source: Mehta, arXiv 2601.02311.
"""

from __future__ import annotations

from collections.abc import Iterator

from placeproof.core.mesh import SPLITS, USUAL_SPLITS, Axis
from placeproof.core.modes import REPLICATED, Mode
from placeproof.core.states import ACTIVATIONS, STATES, State
from placeproof.core.strategy import MATRIX, NORM, Entry, Realisation, Strategy, usual_mode

USUAL_AXIS = "dp"
ORDER = tuple(STATES.values())


def placement(modes: tuple[Mode, ...], axis: str = USUAL_AXIS, degree: int | None = None) -> Strategy:
    """The strategy that places the four states of ``ORDER`` in these modes on one axis, which splits what its name says, or the batch.

    Raises ValueError unless there is a mode for each state.
    """
    splits = SPLITS[USUAL_SPLITS.get(axis, "batch")]
    # A tuple is about what is copied beside experts: where those lie, devices have samples of their own.
    on = Axis(name=axis, splits=SPLITS["batch"] if splits.routes else splits, degree=degree)
    shown = [mode.symbol for mode in modes]
    if degree is not None or axis != USUAL_AXIS:
        shown.append(axis if degree is None else f"{axis}={degree}")
    name = f"({', '.join(shown)})"
    entries = tuple(e for state, mode in zip(ORDER, modes, strict=True) for e in _entries(state, mode, on, name))
    return Strategy(
        parts=(name,),
        axes=(on,),
        entries=entries,
        schedule=Realisation(),
        title="a placement",
        summary=", ".join(f"{state} {mode.name}" for state, mode in zip(ORDER, modes, strict=True)) + f" over {axis}.",
        source="mehta2026placement",
    )


def _entries(state: State, mode: Mode, axis: Axis, owner: str) -> Iterator[Entry]:
    """What is placed: activations that lie as the axis leaves them are not, and norms are copied where matrices are cut."""
    # R says that a device keeps its activations whole: on an axis that splits samples these are those of its own samples.
    if state is ACTIVATIONS and (mode == usual_mode(state, axis) or (axis.splits.samples and mode == REPLICATED)):
        return
    if state is not ACTIVATIONS and axis.splits.matrices and mode != REPLICATED:
        for group, lies in ((MATRIX, mode), (NORM, REPLICATED)):
            yield Entry(state=state.name, axis=axis.name, mode=lies, owner=owner, groups=(group,))
        return
    yield Entry(state=state.name, axis=axis.name, mode=mode, owner=owner)
