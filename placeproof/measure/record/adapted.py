"""Whether a step trains copies that are dropped again, or adapted for what they are copies of: such a step is none of one device's."""

from __future__ import annotations

from dataclasses import replace

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.launch import Launch, of_rank_0
from placeproof.measure.record.recording import Recording
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

#: Within how many steps it has to be seen what copies are for.
_STEPS = 64


def adapted(launch: Launch, first: Recording, *, refuted: bool) -> int | None:
    """The line of a script at which it is seen that a step trains parameters for the sake of others, or that it is taken back; None where
    nothing shows that. ``refuted``: the step is wrong as it is."""
    if not (first.copied or (refuted and first.copies)):
        return None
    further = replace(launch, step=launch.step + _STEPS)
    try:
        return of_rank_0(further).adapted.get(launch.step)
    except InputError:  # it does not go on so far
        return None


def refuse_adapted(launch: Launch, first: Recording, text: str) -> None:
    """Raise InputError for such a step, whose program this is."""
    refuted = (first.copied or first.copies) and judge(read(text), shortest=False).word == "refuted"
    line = adapted(launch, first, refuted=refuted)
    if line is not None:
        text = f"step {launch.step} trains copies for what they are copies of, or is taken back, which is seen here: no one device says"
        text += " whether ranks may do so apart"
        refuse_lines(first.script, first.source, [(text, line)], help="record the step that trains the originals: `--steps K`")
