"""What the interpreter that was written from the manual says of a program, and of a counterexample."""

from __future__ import annotations

from manual_interpreter import UnsupportedError, differs

from placeproof.programs import Program
from placeproof.semantics.judge.verdict import Judged

#: Degrees of the first and of the other axes, micro-batches and units.
RUNS = ((1, 2, 1, 1), (2, 2, 2, 2), (3, 1, 3, 3), (4, 2, 1, 2), (2, 3, 3, 1))


def right(program: Program) -> bool | None:
    """Whether small runs end as one device does; None where the interpreter does not speak of the program."""
    for first, others, batches, units in RUNS:
        degrees = {a.name: a.degree or (first if n == 0 else others) for n, a in enumerate(program.axes)}
        degrees |= {str(a.inner): 2 if degrees[a.name] % 2 == 0 else 1 for a in program.axes if isinstance(a.inner, str)}
        try:
            if differs(program, degrees, microbatches=batches, units=units) is not None:
                return False
        except UnsupportedError:
            return None
    return True


def at_the_witness(judged: Judged) -> bool:
    """Whether the interpreter differs on the mesh of a counterexample, too."""
    assert judged.found is not None
    setup = judged.found.setup
    degrees = {k: v for k, v in setup.degrees.items() if not k.endswith("_inner")}
    degrees |= {str(a.inner): setup.degrees[a.inner_name] for a in judged.program.axes if isinstance(a.inner, str)}
    units = getattr(setup, "units_per_stage", 1)
    return differs(judged.program, degrees, microbatches=getattr(setup, "microbatches", 1), units=units) is not None
