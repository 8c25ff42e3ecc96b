"""Real bugs of distributed training as pairs of step programs: the correct one is proved, the one with the bug refuted for the
reason that its entry names.

``tests/data/bugs.json`` holds the entries with their citations; ``tests/bugs/`` the programs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placeproof.programs import Program, read
from placeproof.semantics.judge.search import RefutingRun
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.meaning.run import run

HERE = Path(__file__).parents[1]
BUGS = {b["id"]: b for b in json.loads((HERE / "data" / "bugs.json").read_text(encoding="utf-8"))}

#: Entries that a step program cannot say, and why.
OUTSIDE = {
    "B119": "a gather that returns padding has another size than its parts together; step programs name elements, not addresses",
}
INSIDE = [b for b in BUGS if b not in OUTSIDE]


def program(name: str) -> Program:
    path = HERE / "bugs" / f"{name}.step"
    return read(path.read_text(encoding="utf-8"), source=path.name)


def conditions(entry: dict[str, str]) -> set[str]:
    named = entry["condition"]
    return {"gradient integrity", "state consistency"} if named == "both" else {named}


def test_how_many_are_covered() -> None:
    pairs = {p.name.split(".")[0] for p in (HERE / "bugs").glob("*.step")}
    print(f"{len(pairs)} of {len(BUGS)} bugs as pairs of programs; outside: {', '.join(OUTSIDE)}")
    assert pairs == set(INSIDE)
    assert len(pairs) >= 55


@pytest.mark.parametrize("bug", INSIDE)
def test_the_correct_program_is_proved(bug: str) -> None:
    judged = judge(program(f"{bug}.correct"))
    assert judged.word == "proved", judged.why


@pytest.mark.every_case
@pytest.mark.parametrize("bug", INSIDE)
def test_the_bug_is_refuted_for_its_reason(bug: str) -> None:
    judged = judge(program(f"{bug}.mutant"))
    assert judged.word == "refuted", judged.why
    broken = {s.obligation.condition for s in judged.settled if s.word != "proved"}
    assert conditions(BUGS[bug]) <= broken
    assert isinstance(judged.found, RefutingRun)
    assert run(judged.program, judged.found.setup) == judged.found.what


@pytest.mark.parametrize("bug", INSIDE)
def test_the_correct_program_trains_in_the_simulator(bug: str) -> None:
    from itertools import islice

    from placeproof.semantics.judge.search import setups
    from placeproof.semantics.resolve import resolve

    correct = resolve(program(f"{bug}.correct"))
    for setup in islice(setups(correct, frozenset(correct.without)), 12):
        assert run(correct, setup) is None, setup


def test_both_ends_of_tied_embeddings_are_asked_apart() -> None:
    judged = judge(read((HERE / "bugs" / "B58.correct.step").read_text(encoding="utf-8")))
    names = [settled.obligation.name for settled in judged.settled]
    for what in ("the parameters of this step", "the optimizer state of this step", "the gradient of the global batch"):
        for group in ("body)", "embedding), first stage", "embedding), last stage"):
            assert f"update reads {what} ({group}" in names
