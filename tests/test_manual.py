"""Verdicts about programs that people write, and about programs drawn at random, against truths that share nothing with the prover.

`data/people_programs.json` holds programs written from the manual by somebody who has not seen the code, each with its truth, worked out by
hand. `manual_interpreter.py` runs a program as the manual says, device by device and element by element; it was written from the manual
alone. `nightly/manual.py` compares many more.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import manual_programs
import pytest
from manual_interpreter import UnsupportedError, differs
from verdict_counts import count

from placeproof.core.diagnostics import InputError
from placeproof.core.program import Program, read
from placeproof.semantics.verdict import judge

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
PEOPLE: dict[str, dict[str, str]] = json.loads(Path(__file__, "../data/people_programs.json").resolve().read_text())
#: Degrees of the first and of the other axes, micro-batches and units of the interpreter's runs.
RUNS = ((1, 2, 1, 1), (2, 2, 2, 2), (3, 1, 3, 3), (4, 2, 1, 2), (2, 3, 3, 1))


def verdict(text: str) -> str:
    """The verdict, or ``refused``."""
    try:
        return judge(read(text)).word
    except InputError:
        return "refused"


@pytest.mark.parametrize("name", list(PEOPLE)[:: 1 if NIGHTLY else 4])
def test_a_verdict_about_a_program_that_somebody_wrote_is_right(name: str) -> None:
    one = PEOPLE[name]
    found = verdict(one["text"])
    assert found != {"right": "refuted", "wrong": "proved"}.get(one["truth"]), (one["text"], one["why"])
    count(f"programs of people that are {one['truth']}", found)


def truth(program: Program) -> bool | None:
    """Whether small runs of the interpreter end as one device does; None where it does not speak of the program."""
    for first, others, batches, units in RUNS:
        degrees = {a.name: a.degree or (first if n == 0 else others) for n, a in enumerate(program.axes)}
        degrees |= {str(a.inner): 2 if degrees[a.name] % 2 == 0 else 1 for a in program.axes if isinstance(a.inner, str)}
        try:
            if differs(program, degrees, microbatches=batches, units=units) is not None:
                return False
        except UnsupportedError:
            return None
    return True


def compared(text: str) -> tuple[str, bool | None]:
    """The verdict of a program and its truth. Raises AssertionError for a false accept."""
    found = verdict(text)
    right = truth(read(text)) if found != "refused" else None
    assert not (found == "proved" and right is False), f"false accept\n{text}"
    return found, right


@pytest.mark.parametrize("seed", range(0, 600, 5) if not NIGHTLY else range(6_000))
def test_a_verdict_about_a_drawn_program_is_that_of_the_manual(seed: int) -> None:
    found, right = compared(manual_programs.drawn(seed))
    count(f"programs drawn at random, by the manual {right}", found)
    # small runs do not show every mistake: a refutation may be of a larger mesh
    if found == "refuted" and right is True:
        judged: Any = judge(read(manual_programs.drawn(seed)))
        setup = judged.found.setup
        degrees = {k: v for k, v in setup.degrees.items() if not k.endswith("_inner")}
        degrees |= {str(a.inner): setup.degrees[a.inner_name] for a in judged.program.axes if isinstance(a.inner, str)}
        shown = differs(judged.program, degrees, microbatches=setup.microbatches, units=setup.units_per_stage, steps=setup.steps)
        assert shown is not None or "start(" in manual_programs.drawn(seed), "false refusal"


def test_the_interpreter_sees_what_is_wrong() -> None:
    """Both answers come up, of programs that differ by a word."""
    text = "mesh(dp)\ng = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    assert truth(read(text)) is True
    whole = "all_reduce(backward(parameters), dp, op=mean)"
    for wrong in (text.replace("op=mean", "op=sum"), text.replace("op=mean", "op=max"), text.replace(whole, "backward(parameters)")):
        assert truth(read(wrong)) is False
