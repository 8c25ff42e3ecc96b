"""Runs as files of counterexamples, for the tests that replay them: those that proofs find, and any run on a mesh of our choice."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from placeproof.measure.replay.file import parse
from placeproof.measure.replay.launch import Replayed, replay
from placeproof.programs import Program
from placeproof.report.proof.run import of_block, of_step
from placeproof.semantics import tensors
from placeproof.semantics.meaning import Difference, Fault, Setup
from placeproof.semantics.meaning.run import run
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors.setup import FaultError
from placeproof.semantics.tensors.simulate import machine

Data = dict[str, Any]


def replayed(data: Data, **options: float) -> Replayed:
    return replay(parse(json.dumps(data)), **options)


def assert_reproduced(one: Replayed) -> None:
    assert one.word == "reproduced", (one.why, one.wrong[:3], [o.error for o in one.outcomes])


def anything(program: Program, setup: Setup, steps: int = 1) -> Data:
    """A run as the file of a counterexample, whether or not it differs from one device's."""
    placed = resolve(program)
    what = run(placed, setup)
    if not isinstance(what, Fault):
        what = Difference(step=steps - 1, device={}, state="parameters", element=(0, "", 0, 0), expected=Fraction(0), actual=None)
    why = what.why if isinstance(what, Fault) else None
    return _file(setup.degrees, setup.microbatches, of_step(placed, setup, what), why)


def anything_of_tensors(program: Program, setup: tensors.Setup) -> Data:
    """The same of a program over tensors: the first result is the one that is shown."""
    first = machine(program, setup, alone=True).run()[0]
    what = tensors.Difference(line=first.line, device={}, name=first.name, index={}, expected=None, actual=None)
    why = None
    try:
        machine(program, setup).run()
    except FaultError as fault:
        why = str(fault)
    return _file(setup.degrees, 1, of_block(program, tensors.RefutingBlockRun(setup=setup, what=what)), why)


def _file(degrees: dict[str, int], microbatches: int, run: Data, why: str | None) -> Data:
    shown = {"device": {}, "element": None, "expected": None, "actual": why, "run": run}
    found = {"degrees": degrees, "microbatches": microbatches} | shown
    return {"schema": "placeproof.prove/1", "subject": "a run", "verdict": "refuted", "counterexample": found}
