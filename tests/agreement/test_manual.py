"""Verdicts about programs that people write, and about programs drawn at random, against truths that share nothing with the prover.

`data/people_programs.json`, `data/layered_programs.json` of programs that pass activations from part to part, `data/unusual_programs.json`
of blocks and of what is seldom used together, and `data/system_programs.json` of what frameworks do, as their engineers would write it
down, hold programs that somebody wrote from the manual without a look at the code, each with its truth, worked out by hand: `open` is what
the manual leaves open, `illegal` what it refuses.
`manual_interpreter.py` runs a program as the manual says, device by device and element by element; it was written from the manual alone.
`nightly/manual.py` compares many more.

Of each file, and of what is drawn, a run that decides whether a change lands takes some at equal distances, and one at night all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import manual_programs
import pytest
from manual_truth import at_the_witness, right
from manual_twins import twins
from manual_wild import wild
from samples import NIGHTLY, sample, words
from verdict_counts import count

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

DATA = Path(__file__, "../../data").resolve()
PEOPLE: dict[str, dict[str, str]] = json.loads((DATA / "people_programs.json").read_text())
LAYERED: dict[str, dict[str, str]] = json.loads((DATA / "layered_programs.json").read_text())
UNUSUAL: dict[str, dict[str, str]] = json.loads((DATA / "unusual_programs.json").read_text())
SYSTEMS: dict[str, dict[str, str]] = json.loads((DATA / "system_programs.json").read_text())


def verdict(text: str) -> str:
    """The verdict, or ``refused``."""
    try:
        return judge(read(text)).word
    except InputError:
        return "refused"


@pytest.mark.parametrize("name", sample(list(PEOPLE), lambda name: words(PEOPLE[name])))
def test_a_verdict_about_a_program_that_somebody_wrote_is_right(name: str) -> None:
    one = PEOPLE[name]
    found = verdict(one["text"])
    assert found != {"right": "refuted", "wrong": "proved"}.get(one["truth"]), (one["text"], one["why"])
    count(f"programs of people that are {one['truth']}", found)


@pytest.mark.parametrize("name", sample(list(LAYERED), lambda name: words(LAYERED[name])))
def test_a_verdict_about_a_program_that_passes_activations_on_is_right(name: str) -> None:
    one = LAYERED[name]
    found = verdict(one["text"])
    assert found != {"right": "refuted", "wrong": "proved"}[one["truth"]], (one["text"], one["why"])
    count(f"programs that pass activations on, {one['truth']}", found)


@pytest.mark.parametrize("name", sample(list(UNUSUAL), lambda name: words(UNUSUAL[name])))
def test_a_verdict_about_an_unusual_program_is_right(name: str) -> None:
    one = UNUSUAL[name]
    found = verdict(one["text"])
    assert found != {"right": "refuted", "wrong": "proved", "illegal": "proved"}.get(one["truth"]), (one["text"], one["why"])
    count(f"unusual programs that are {one['truth']}", found)


@pytest.mark.parametrize("name", sample(list(SYSTEMS), lambda name: words(SYSTEMS[name])))
def test_a_verdict_about_a_step_of_a_real_system_is_right(name: str) -> None:
    one = SYSTEMS[name]
    found = verdict(one["text"])
    assert found != {"right": "refuted", "wrong": "proved"}.get(one["truth"]), (one["text"], one["why"])
    count(f"steps of real systems that are {one['truth']}", found)


def compared(text: str) -> tuple[str, bool | None]:
    """The verdict of a program and its truth. Raises AssertionError for a false accept."""
    found = verdict(text)
    truth = right(read(text)) if found != "refused" else None
    assert not (found == "proved" and truth is False), f"false accept\n{text}"
    return found, truth


@pytest.mark.parametrize("draw", [manual_programs.drawn, wild, twins])
@pytest.mark.parametrize("seed", range(0, 600, 10) if not NIGHTLY else range(6_000))
def test_a_verdict_about_a_drawn_program_is_that_of_the_manual(seed: int, draw: Callable[[int], str]) -> None:
    text = draw(seed)
    found, truth = compared(text)
    count(f"{'twins' if draw is twins else 'programs'} drawn at random, by the manual {truth}", found)
    # small runs do not show every mistake: a refutation may be of a larger mesh
    if found == "refuted" and truth is True:
        assert at_the_witness(judge(read(text))) or "start(" in text, "false refusal"


def test_the_interpreter_sees_what_is_wrong() -> None:
    """Both answers come up, of programs that differ by a word."""
    text = "mesh(dp)\ng = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    assert right(read(text)) is True
    whole = "all_reduce(backward(parameters), dp, op=mean)"
    for wrong in (text.replace("op=mean", "op=sum"), text.replace("op=mean", "op=max"), text.replace(whole, "backward(parameters)")):
        assert right(read(wrong)) is False
