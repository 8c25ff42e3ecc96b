"""Correct programs that are unusual, and wrong ones that look right: the first are proved, the others refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from placeproof.programs import Program, read
from placeproof.semantics.judge.search import RefutingRun, setups
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.run import run
from placeproof.semantics.resolve import resolve

HERE = Path(__file__).parents[1] / "programs"


def names(kind: str) -> list[str]:
    return sorted(p.stem for p in (HERE / kind).glob("*.step"))


def program(kind: str, name: str) -> Program:
    return read((HERE / kind / f"{name}.step").read_text(encoding="utf-8"), source=f"{name}.step")


@pytest.mark.parametrize("name", names("correct"))
def test_correct_programs_are_proved(name: str) -> None:
    assert judge(program("correct", name)).word == "proved"


@pytest.mark.parametrize("name", names("correct"))
def test_correct_programs_train_in_the_simulator(name: str) -> None:
    placed = resolve(program("correct", name))
    for setup in list(setups(placed, frozenset(placed.without)))[:12]:
        assert run(placed, setup) is None, setup


@pytest.mark.parametrize("name", names("wrong"))
def test_wrong_programs_are_refuted(name: str) -> None:
    assert judge(program("wrong", name), shortest=False).word == "refuted"


def test_what_reaches_no_state_is_a_warning() -> None:
    """A gradient that is right on one device alone does no harm if that device's states are then copied."""
    judged = judge(program("correct", "gradient_on_one_device_then_broadcast"))
    assert any("gradient integrity" in text for text, _ in judged.warnings)


TIED_ALONG_THE_PIPELINE = """\
mesh(pp, dp)
group(rest, P - U)
group(embed, U, tied=pp)
place(parameters, pp="S")
place(optimizer, pp="S", dp="S")
for i in microbatches:
    if rank(pp) == 0:
        x = data(i)
    else:
        x = recv(pp, source=-1)
    y, a = forward(parameters, x)
    if rank(pp) < pp - 1:
        send(y, pp, to=1)
    if rank(pp) == pp - 1:
        dx = loss(y)
    else:
        dx = recv(pp, source=1)
    g += backward_weight(parameters, a, dx)
    dx = backward_input(parameters, a, dx)
    if rank(pp) > 0:
        send(dx, pp, to=-1)
g = scale(g, 1 / (microbatches*dp))
g = reduce_scatter(g, dp)
parameters, optimizer = update(parameters, optimizer, g)
parameters = all_gather(parameters, dp)
"""


def test_a_tied_group_that_lies_in_stages_is_summed_by_the_first_and_the_last_of_them() -> None:
    assert judge(read(TIED_ALONG_THE_PIPELINE), shortest=False).word == "refuted"
    summed = TIED_ALONG_THE_PIPELINE.replace("g = scale(g,", "g.embed = tied_reduce(g.embed, pp)\ng = scale(g,")
    assert judge(read(summed)).word == "proved"


def test_a_step_that_stops_is_refuted_and_the_line_is_named() -> None:
    judged = judge(program("wrong", "a_part_that_nothing_wrote"))
    assert isinstance(judged.found, RefutingRun)
    assert isinstance(judged.found.what, Fault)
    assert judged.found.what.words == "line 5: `h` is read, but nothing has written it"


NORMS_OF_A_TIED_GROUP = """\
mesh(dp, pp)
group(embedding, P_norm, tied=pp)
group(layers, P - P_norm)
reference(optimizer=tensor_norm)
place(parameters, dp="R", pp="S")
place(optimizer, dp="R", pp="S")
G = backward(parameters)
G.embedding = tied_reduce(G.embedding, pp)
G = all_reduce(G, dp, op=mean)
n = tensor_norms(parameters.embedding, optimizer.embedding, G.embedding)
parameters, optimizer = update(parameters, optimizer, G)
"""


def test_a_stage_without_tensors_has_no_norms() -> None:
    assert judge(read(NORMS_OF_A_TIED_GROUP)).word == "proved"
