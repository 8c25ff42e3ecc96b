"""A counterexample replayed by the simulator that found it: no process, no torch, and the same two numbers again."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from placeproof.measure.replay_file import Counterexample


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What the simulator says now, in words like those of the file; None for what it does not say."""

    device: dict[str, int] | None = None
    element: str | None = None
    expected: Fraction | None = None
    actual: Fraction | None = None
    why: str | None = None

    def agrees(self, found: Counterexample) -> bool:
        """Whether that is what the file says."""
        shown = found.shown
        if shown.why is not None:
            return self.why == shown.why
        device = None if shown.device is None else dict(shown.device)
        return (self.device, self.element, self.expected, self.actual) == (device, shown.element, shown.expected, shown.actual)


def simulated(found: Counterexample) -> Again:
    """Run the program in fractions on every device of the mesh, and compare with one device."""
    return _step(found) if found.kind == "step" else _block(found)


def _step(found: Counterexample) -> Again:
    from placeproof.semantics.meaning import Fault, Setup
    from placeproof.semantics.meaning.recorded import plain
    from placeproof.semantics.meaning.run import run
    from placeproof.semantics.meaning.script import element_name, shown_pair

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
    if what is None:
        return Again()
    if isinstance(what, Fault):
        return Again(why=what.why)
    if what.actual is None:
        return Again(device=dict(what.device), element=element_name(what), expected=what.expected)
    expected, actual = shown_pair(what)
    return Again(device=dict(what.device), element=element_name(what), expected=plain(expected), actual=plain(actual))


def _block(found: Counterexample) -> Again:
    from placeproof.semantics.meaning import Fault
    from placeproof.semantics.tensors import Setup, simulate

    setup = Setup(degrees=dict(found.degrees), sizes=dict(found.sizes), seed=found.seed, fine=found.flags.get("fine", False))
    what = simulate(found.program, setup)
    if what is None:
        return Again()
    if isinstance(what, Fault):
        return Again(why=what.why)
    return Again(device=dict(what.device), element=what.element, expected=what.expected, actual=what.actual)
