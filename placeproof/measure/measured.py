"""What was measured on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One step as one rank lived it.

    ``exchanges``: of the recorded step, in order; ``dtypes``: the element type of each. ``setup``: exchanges while the model was wrapped,
    without a phase. ``options``: all that the subject takes, settled.

    ``memory``, in bytes on this rank: ``parameters`` between steps, ``gradients`` after backward and ``optimizer`` after the update, each
    the distinct storages that its tensors lie in, with padding; of the optimizer's, ``optimizer_steps`` count steps. ``parameters_held``
    and ``gradients_held``: elements times their width.

    ``activations``: the most that was saved for backward at once during the step, as distinct
    storages without parameters; ``activations_after``: what of it is still there when the step has ended.

    ``seconds``: for all of the measurement.
    """

    subject: str
    shapes: Shapes
    mesh: Mapping[str, int]
    rank: int
    backend: str
    options: Mapping[str, bool | int | float | str | None]
    exchanges: tuple[Exchange, ...]
    dtypes: tuple[str, ...]
    setup: tuple[Exchange, ...]
    memory: Mapping[str, int]
    seconds: float
    torch: str
