"""What is predicted of a measurement: from the strategy that an implementation has, by its profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from placeproof.core.exchange import tally
from placeproof.core.shapes import Shapes
from placeproof.cost.exact.options import Value, taken
from placeproof.cost.exact.predict import Predicted, predict
from placeproof.measure.measured import Measured
from placeproof.measure.training.subjects import Subject, check, check_mesh, find, settle
from placeproof.profiles.profile import profile
from placeproof.strategies import parse_strategy

#: The profile whose implementations can be measured.
PROFILE = "torch-2.13"


def predicted(
    subject: Subject | str, shapes: Shapes, mesh: Mapping[str, int], *, rank: int = 0, options: Mapping[str, Value] | None = None
) -> Predicted:
    """Exact bytes of what :func:`placeproof.measure.training.run.measure` measures with the same arguments.

    Raises InputError as it does.
    """
    job = subject if isinstance(subject, Subject) else find(subject)
    check_mesh(job, mesh)
    settled = settle(job, mesh, options or {})
    check(job, shapes, mesh, settled)
    implementations = tuple(profile(PROFILE).find(name) for name in job.name.split("*"))
    options_taken = {name: settled[name] for name in taken(implementations) if name in settled}
    return predict(parse_strategy(job.expression(mesh, options)), implementations, shapes, mesh, rank=rank, options=options_taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Calls that only one side has, (kind, axes, bytes) -> how many more, and memory that differs, state -> (predicted, measured)."""

    predicted_only: Counter[tuple[str, tuple[str, ...], int]]
    measured_only: Counter[tuple[str, tuple[str, ...], int]]
    memory: Mapping[str, tuple[int, int]]

    def __bool__(self) -> bool:
        return bool(self.predicted_only or self.measured_only or self.memory)


def differences(prediction: Predicted, measured: Measured) -> Differences:
    """Where a prediction and a measurement part; false where they are equal. Memory is compared by the states that were predicted, as
    bytes that are allocated and, named ``STATE_held``, as elements times their width."""
    ours, theirs = tally(prediction.exchanges), tally(measured.exchanges)
    memory_predicted = {**prediction.memory, **{f"{state}_held": amount for state, amount in prediction.held.items()}}
    memory = {k: (v, measured.memory[k]) for k, v in memory_predicted.items() if v != measured.memory[k]}
    return Differences(predicted_only=ours - theirs, measured_only=theirs - ours, memory=memory)
