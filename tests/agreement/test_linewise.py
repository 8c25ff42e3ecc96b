"""What the encoding says that each line leaves, against what devices hold there."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from compositions import compositions

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.prove.terms import ONE
from placeproof.semantics.encode import Line, encode
from placeproof.semantics.encode.values import Scalar, Tensor
from placeproof.semantics.judge.confirm import DisagreementError, meshes
from placeproof.semantics.judge.linewise import Differs, compared
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

PEOPLE = json.loads((Path(__file__).parents[1] / "data" / "people_programs.json").read_text())
RIGHT = [name for name, row in PEOPLE.items() if row["truth"] == "right"]

STEP = """
mesh(dp)
g = backward(parameters)
h = {call}
g = all_reduce(g, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
"""
CALLS = [
    "all_reduce(g, dp)",
    "all_reduce(g, dp, op=mean)",
    "reduce_scatter(g, dp)",
    "reduce_scatter(g, dp, op=mean, via=all_to_all)",
    "reduce(g, dp, root=0)",
    "reduce(g, dp, root=owner)",
    "broadcast(g, dp)",
    "broadcast(g, dp, root=owner)",
    "all_gather(reduce_scatter(g, dp), dp)",
    "part(g, dp)",
    "part(g, dp, order=interleaved)",
    "scale(g, (dp - 1) / dp)",
    "g - scale(g, 2)",
    "copy(g)",
]


def watched_run(program: Program, number: int = 2) -> Run:
    setups = list(meshes(program))
    run = Run(program, setups[min(number, len(setups) - 1)]).watched()
    assert run.step(0) is None
    return run


def falsified(lines: tuple[Line, ...], number: int, name: str) -> tuple[Line, ...]:
    """The lines with one more than the encoding says in a buffer, from some line to where it is written again."""
    value = lines[number].after[name]
    assert isinstance(value, Tensor | Scalar)
    wrong = value.map(lambda body: body + ONE)
    rest = [replace(line, after={**line.after, name: wrong}) if line.after.get(name) is value else line for line in lines[number:]]
    return (*lines[:number], *rest)


def written(lines: tuple[Line, ...]) -> list[tuple[int, str]]:
    before: dict[str, object] = {}
    found = []
    for number, line in enumerate(lines):
        found += [(number, n) for n, v in line.after.items() if v is not before.get(n) and isinstance(v, Tensor | Scalar)]
        before = dict(line.after)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_meaning_of_what_reaches_no_state_is_noticed(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = read(STEP.format(call=call))
    assert judge(program).word == "proved"
    from placeproof.semantics.encode.execute import Walk

    right = Walk._assign

    def wrong(walk: Walk, stmt: object, scope: object) -> None:
        right(walk, stmt, scope)  # type: ignore[arg-type]
        if "h" in walk.env:
            walk.env["h"] = walk.env["h"].map(lambda body: body + ONE)  # type: ignore[union-attr]

    monkeypatch.setattr(Walk, "_assign", wrong)
    with pytest.raises(DisagreementError, match=r"line 4, .* of `h` on dp = 0 is not what the proof takes it to be"):
        judge(program)


def test_what_is_remembered_of_a_program_and_a_report_go_from_process_to_process() -> None:
    program = read("mesh(dp)\ng = backward(parameters)\nh = g[1]\n" + STEP.format(call="copy(g)").partition("h = copy(g)\n")[2])
    assert set(program.elsewhere) == {id(program.body[1])}
    sent = pickle.loads(pickle.dumps(program))
    assert set(sent.elsewhere) == {id(sent.body[1])}
    error = DisagreementError("x", "N = 2", "it differs")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("name", ASSUMPTIONS)
@pytest.mark.parametrize("strategy", ["checkpoint", "zero3", "tp * pp", "ddp * ep"])
def test_nothing_differs_where_an_assumption_is_dropped(strategy: str, name: str) -> None:
    assert judge(lower(parse_strategy(strategy)), without=frozenset((name,)), shortest=False).word in ("proved", "refuted", "unknown")


@pytest.mark.parametrize("text", compositions()[::20])
def test_what_each_line_of_a_composition_leaves(text: str) -> None:
    program = resolve(lower(parse_strategy(text)))
    found = compared(watched_run(program), encode(program).lines)
    assert isinstance(found, int)
    assert found > 0


@pytest.mark.parametrize("name", RIGHT[::4])
def test_one_too_many_is_noticed_in_each_buffer_that_has_a_number(name: str) -> None:
    try:
        program = read(PEOPLE[name]["text"])
        proved = not program.tensors and judge(program).word == "proved"
    except InputError:
        pytest.skip("it is refused")
    if not proved:
        pytest.skip("no proof of a step")
    program = resolve(program)
    lines, run = encode(program).lines, watched_run(program)
    right = compared(run, lines)
    assert isinstance(right, int)
    noticed = [isinstance(compared(run, falsified(lines, *at)), Differs) for at in written(lines)]
    assert any(noticed) == (right > 0)
