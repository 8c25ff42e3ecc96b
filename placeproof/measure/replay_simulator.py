"""A counterexample replayed by the simulator that found it: no process, no torch, and the same two numbers again."""

from __future__ import annotations

from placeproof.measure.replay_file import Counterexample, Shown


def simulated(found: Counterexample) -> Shown:
    """Run the program in fractions on every device of the mesh, and compare with one device. What the simulator says now is in words like
    those of the file."""
    return _step(found) if found.kind == "step" else _block(found)


def _step(found: Counterexample) -> Shown:
    from placeproof.semantics.meaning import Fault, Setup
    from placeproof.semantics.meaning.layout import in_words
    from placeproof.semantics.meaning.recorded import plain
    from placeproof.semantics.meaning.run import run
    from placeproof.semantics.meaning.script import shown_pair

    setup = Setup(
        degrees=dict(found.degrees),
        microbatches=found.microbatches,
        layers_per_stage=found.sizes["layers per stage"],
        units_per_stage=found.sizes["units per stage"],
        seed=found.seed,
        small=found.flags.get("small", False),
        without=found.without,
    )
    what = run(found.program, setup)
    if what is None or isinstance(what, Fault):
        return Shown(why=None if what is None else what.why)
    expected, actual = (what.expected, None) if what.actual is None else map(plain, shown_pair(what))
    return Shown(device=what.device, element=in_words(what.element), expected=expected, actual=actual)


def _block(found: Counterexample) -> Shown:
    from placeproof.semantics.meaning import Fault
    from placeproof.semantics.tensors import Setup, simulate

    setup = Setup(degrees=dict(found.degrees), sizes=dict(found.sizes), seed=found.seed, fine=found.flags.get("fine", False))
    what = simulate(found.program, setup)
    if what is None or isinstance(what, Fault):
        return Shown(why=None if what is None else what.why)
    return Shown(device=what.device, element=what.element, expected=what.expected, actual=what.actual)
