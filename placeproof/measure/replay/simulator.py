"""A counterexample replayed by the simulator that found it: no process, no torch, and the same two numbers again."""

from __future__ import annotations

from placeproof.core.diagnostics import refuse
from placeproof.measure.replay.file import AGAIN, CODE, Counterexample, Shown
from placeproof.measure.replay.model import setup_of
from placeproof.semantics import meaning, tensors
from placeproof.semantics.meaning.layout import in_words
from placeproof.semantics.meaning.recorded import plain
from placeproof.semantics.meaning.run import run
from placeproof.semantics.meaning.script import shown_pair


def _of_block(counterexample: Counterexample, setup: tensors.Setup) -> tensors.Difference | meaning.Fault | None:
    """What a block's run differs in. Raises InputError for a program that no run of these sizes is of."""
    try:
        return tensors.simulate(counterexample.program, setup)
    except tensors.NotComputedError as error:
        refuse(CODE, f"the counterexample's program cannot be run: {error}", help=AGAIN)


def simulated(counterexample: Counterexample) -> Shown:
    """Run the program in fractions on every device of the mesh, and compare with one device. What the simulator says now is in words like
    those of the file."""
    what: meaning.Difference | tensors.Difference | meaning.Fault | None
    if counterexample.kind == "step":
        what = run(counterexample.program, setup_of(counterexample))
    else:
        of_block = tensors.Setup(
            degrees=dict(counterexample.degrees),
            sizes=dict(counterexample.sizes),
            seed=counterexample.seed,
            fine=counterexample.flags.get("fine", False),
            reference=counterexample.one_device,
        )
        what = _of_block(counterexample, of_block)
    match what:
        case meaning.Difference():
            expected, actual = (what.expected, None) if what.actual is None else map(plain, shown_pair(what))
            return Shown(device=what.device, element=in_words(what.element), expected=expected, actual=actual)
        case tensors.Difference():
            return Shown(device=what.device, element=what.element, expected=what.expected, actual=what.actual)
    return Shown(why=None if what is None else what.why)
