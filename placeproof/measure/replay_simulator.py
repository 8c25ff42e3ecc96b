"""A counterexample replayed by the simulator that found it: no process, no torch, and the same two numbers again."""

from __future__ import annotations

from placeproof.measure.replay_file import Counterexample, Shown
from placeproof.semantics import meaning, tensors
from placeproof.semantics.meaning.layout import in_words
from placeproof.semantics.meaning.recorded import plain
from placeproof.semantics.meaning.run import run
from placeproof.semantics.meaning.script import shown_pair


def simulated(found: Counterexample) -> Shown:
    """Run the program in fractions on every device of the mesh, and compare with one device. What the simulator says now is in words like
    those of the file."""
    degrees, flags = dict(found.degrees), found.flags
    what: meaning.Difference | tensors.Difference | meaning.Fault | None
    if found.kind == "step":
        setup = meaning.Setup(
            degrees=degrees,
            microbatches=found.microbatches,
            layers_per_stage=found.sizes["layers per stage"],
            units_per_stage=found.sizes["units per stage"],
            seed=found.seed,
            small=flags.get("small", False),
            without=found.without,
        )
        what = run(found.program, setup)
    else:
        of_block = tensors.Setup(degrees=degrees, sizes=dict(found.sizes), seed=found.seed, fine=flags.get("fine", False))
        what = tensors.simulate(found.program, of_block)
    match what:
        case meaning.Difference():
            expected, actual = (what.expected, None) if what.actual is None else map(plain, shown_pair(what))
            return Shown(device=what.device, element=in_words(what.element), expected=expected, actual=actual)
        case tensors.Difference():
            return Shown(device=what.device, element=what.element, expected=what.expected, actual=what.actual)
    return Shown(why=None if what is None else what.why)
