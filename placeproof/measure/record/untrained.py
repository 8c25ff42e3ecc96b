"""An optimizer that has other parameters than the model: a witness, from real processes, that nothing is trained.

Who makes an optimizer step after a backward pass means it to read a gradient. Here optimizers that step have parameters of all the shapes
that the model has, and get no gradient ever, while the model's do; no optimizer has a parameter of the model; and on all ranks the model's
are at last, after further steps or when the script has ended, bit for bit what they were when it was first run.
"""

from __future__ import annotations

from collections.abc import Mapping

from placeproof.measure.record.recording import Recording
from placeproof.measure.record.sides import kept
from placeproof.measure.record.witness import Witness


def untrained(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """What shows that a script's optimizers train nothing; None where nothing does."""
    every = [r for _, r in sorted(recordings.items())]
    if not all(_nothing(r) for r in every):
        return None
    first = every[0]
    own = kept(first).aside
    size, name = own.gradient
    return Witness.of(
        first,
        step,
        condition="gradient integrity",
        line=own.lines[0],
        claim=f"the update reads the gradient of `{name}`",
        seen=(
            f"the gradient of `{name}` is up to {size:.6g} on rank {first.rank}, and no parameter that the optimizer has gets one",
            f"after the last step all {len(own.before)} parameters of the model are bit for bit what they were before the first one",
        ),
        numbers={"parameter": name, "gradient": size, "unchanged": sorted(own.before)},
        reasons=(
            "the parameters that the optimizer has are none of the model's, and there is one of each of its shapes: they were replaced",
        ),
        summary="an optimizer steps, and trains nothing",
        remark="Make the optimizer of the parameters that the model has when it is wrapped.",
    )


def _nothing(recording: Recording) -> bool:
    own = kept(recording).aside
    same = bool(own.before) and all(own.before.values()) and own.before == own.after
    return same and bool(own.lines) and own.gradient[0] > 0 and not (own.read or own.own or recording.updates)
