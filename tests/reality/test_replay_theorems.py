"""What theorems refute, on real processes: rings, exchanged heads and experts each time, the whole suite in the nightly run."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from block_oracle import block
from replaying import Data, anything, anything_of_tensors, assert_reproduced, replayed

from placeproof.blocks import text
from placeproof.cli.main import run as command
from placeproof.programs import Program, read
from placeproof.report.proof.data import judgement
from placeproof.semantics import tensors
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.meaning import Setup
from placeproof.theory.statements import Trains
from placeproof.theory.suite.checks.programs import Programs
from placeproof.theory.suite.load import load, suite
from placeproof.theory.theorem import Theorem

pytest.importorskip("torch", reason="torch is not installed: pip install torch")

NIGHTLY = bool(os.environ.get("PLACEPROOF_PROFILE") == "nightly")
AWAY = "ring_attention_is_right: the gradient of the values stays where it is added"
NO_FIT = "shapes do not fit: parts of `tokens` have different lengths"
NOT_HOME = "what is returned holds a part of another device: it is not home from its ring"


# What theorems refute.


def refutable(topics: list[str]) -> Iterator[tuple[str, Theorem, int | None]]:
    """By name: the theorem, and the number of its control; None for the theorem itself."""
    for theorem in load([str(suite() / f"{topic}.py") for topic in topics]).theorems:
        if theorem.expect.word == "refuted":
            yield theorem.name, theorem, None
        for number, control in enumerate(theorem.controls):
            if not control.proved:
                yield f"{theorem.name}: {control.label}", theorem, number


def judged(theorem: Theorem, number: int | None) -> Judged | None:
    """What is proved of it; None where it does not speak of a program."""
    statement = theorem.elaborate(theorem.function if number is None else theorem.controls[number].make)
    return Programs(theorem, statement).judged if isinstance(statement, Trains) else None


CASES = {name: (theorem, number) for name, theorem, number in refutable(["context_parallel", "experts"])}
RINGS = (
    "ring_attention_is_right: values come from the wrong peer",
    "ring_attention_is_right: the sum of exponentials is not rescaled",
    "ring_attention_is_right: the weighted sum of values is not rescaled",
    "ring_attention_is_right: the gradient of the keys is left one step before home",
    AWAY,
    "any_number_may_be_subtracted_in_a_merge: it is not the number that the next round rescales from",
    "softmaxes_of_parts_may_be_averaged",
)
HEADS = (
    "tokens_may_change_places_with_heads: each device normalises by its share of the heads' devices",
    "tokens_may_change_places_with_heads: the gradient of a projection is not summed over the tokens' devices",
)
EXPERTS = (
    "dispatch_and_combine_are_inverse: the router's gradient is averaged",
    "capacity_may_be_counted_on_each_device",
    "expert_parallelism_trains_the_model: expert gradients are reduced over the experts' axis, too",
    "expert_parallelism_trains_the_model: experts are divided by the number of their copies",
    "sharding_goes_over_the_experts_axis_for_the_rest_alone: experts are gathered over their own axis",
    "sharding_goes_over_the_experts_axis_for_the_rest_alone: gradients of experts are scattered over their own axis",
    "sharding_goes_over_the_experts_axis_for_the_rest_alone: the rest is gathered over the experts' copies alone",
)


@cache
def text_of(name: str) -> str:
    """What `prove --json` prints of one of them."""
    found = judged(*CASES[name])
    assert found is not None
    return json.dumps(judgement(name, found))


@pytest.mark.parametrize("name", [*RINGS, *HEADS, *EXPERTS])
def test_what_is_refuted_comes_out_bit_for_bit(name: str) -> None:
    one = replayed(json.loads(text_of(name)))
    assert_reproduced(one)
    assert len(one.outcomes) >= 2
    assert one.compared >= 16 or one.found.ends is None


@pytest.mark.skipif(not NIGHTLY, reason="takes a minute: part of the nightly run")
def test_everything_that_theorems_refute_comes_out() -> None:
    names = sorted(path.stem for path in suite().glob("*.py"))
    replays = 0
    for name, theorem, number in refutable(names):
        found = judged(theorem, number)
        if found is None:
            continue
        assert found.word == "refuted", name
        one = replayed(judgement(name, found))
        assert one.word == "reproduced", (name, one.why, one.wrong[:3])
        replays += 1
    assert replays >= 100


# Rings.


def test_what_is_not_home_is_told_as_the_simulator_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "away.json"
    path.write_text(text_of(AWAY))
    for backend in ("gloo", "simulator"):
        assert command(["replay", str(path), "--backend", backend]) == 0
        assert NOT_HOME in capsys.readouterr().out


def test_a_ring_that_comes_home_although_it_should_not_differs() -> None:
    data = json.loads(text_of(AWAY))
    data["counterexample"]["run"]["program"] = f'program("ring_attention")\n{text("ring_attention")}'
    assert replayed(data).word == "differs"


def test_the_command_replays_what_it_writes_of_a_ring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mutant.step"
    path.write_text(text("ring_attention").replace("    vr = shift(vr, cp)\n", "", 1))
    assert command(["prove", str(path), "--json"]) == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(capsys.readouterr().out.encode())))
    assert command(["replay", "-", "--backend", "gloo"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "reproduced bit for bit on 2 processes: 192 numbers"


def sizes(program: Program, length: int) -> dict[str, int]:
    return {
        d: length if d in ("tokens", "keys", "batch") else 2 for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))
    }


@pytest.mark.parametrize(("degree", "length"), [(1, 2), (2, 3), (3, 4)])
def test_a_right_ring_comes_out_with_parts_of_different_sizes(degree: int, length: int) -> None:
    """Each device sends the part that it holds to the next one, whatever its length; what was predicted is what one device computes."""
    ring = block("ring_attention")
    data = anything_of_tensors(ring, tensors.Setup(degrees={"cp": degree}, sizes=sizes(ring, length)))
    run = data["counterexample"]["run"]
    for end in run["ends"]:
        assert all(end["returns"][n][at] == run["reference"]["returns"][n][at] for n in range(4) for at in end["returns"][n])
    assert_reproduced(replayed(data))


SHIFTS = {
    "to the next": "returns(total(shift(x, cp), over=tokens))",
    "to the one before": "returns(total(shift(x, cp, by=-1), over=tokens) - total(w, over=tokens))",
    "there and back": "returns(shift(shift(x, cp), cp, by=-1))",
    "all the way round": "y = shift(x, cp)\nfor r in rounds[cp]:\n    y = shift(y, cp)\nreturns(y)",
    "along another axis": "returns(shift(x, tp) + w)",
    "along both": "returns(total(shift(shift(x, cp), tp, by=-1), over=tokens))",
    NO_FIT: "returns(shift(x, cp) + w)",
    NOT_HOME: "y = copy(x)\nfor r in rounds[cp]:\n    y = shift(y, cp)\nreturns(y)",
    "positions": "p = contract(hot(shift(picked, cp)), u, over=vocab)\nreturns(total(p, over=tokens))",
}


@pytest.mark.parametrize("what", SHIFTS)
def test_shifts_come_out_bit_for_bit(what: str) -> None:
    head = "mesh(cp, tp)\ntensor(x, tokens, hidden, cp=tokens)\ntensor(w, tokens, hidden, cp=tokens)\n"
    head += "tensor(picked, tokens, cp=tokens, picks=vocab)\ntensor(u, vocab)\n"
    program = read(head + SHIFTS[what] + "\n")
    data = anything_of_tensors(program, tensors.Setup(degrees={"cp": 2, "tp": 2}, sizes={**sizes(program, 3), "vocab": 3}))
    assert data["counterexample"]["actual"] in (None, what)
    assert (data["counterexample"]["run"]["ends"] is None) is (what in (NO_FIT, NOT_HOME))
    assert_reproduced(replayed(data))


def test_a_wrong_number_of_a_ring_is_found() -> None:
    ring = block("ring_attention")
    data = anything_of_tensors(ring, tensors.Setup(degrees={"cp": 2}, sizes=sizes(ring, 2)))
    table = data["counterexample"]["run"]["ends"][1]["returns"][3]
    name = next(iter(table))
    table[name] = "1/3"
    one = replayed(data)
    assert (one.word, [(w.rank, w.table, w.element) for w in one.wrong]) == ("differs", [(1, "result 4", name)])


# Experts.

LAYER = """\
mesh(dp, ep)
splits(ep="batch")
group(dense, P - P_expert)
group(expert, P_expert, experts=ep)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
place(gradients.expert, ep="S")
x = data()
x, saved = forward(parameters, x)
dx = loss(x)
g, dx = backward(parameters, saved, dx)
g.dense = all_reduce(g.dense, dp, ep)
g.expert = all_reduce(g.expert, dp)
parameters, optimizer = update(parameters, optimizer, g)
"""


def of_layer() -> Data:
    """Two devices that share experts, in two copies; gradients are summed and not divided."""
    return anything(read(LAYER), Setup(degrees={"dp": 2, "ep": 2}, seed=2))


def test_a_layer_with_experts_comes_out_bit_for_bit() -> None:
    data = of_layer()
    run = data["counterexample"]["run"]
    assert all(end["gradients"][e] != run["reference"]["gradients"][e] for end in run["ends"] for e in end["gradients"])
    assert_reproduced(replayed(data))


@pytest.mark.parametrize("group", ["dense", "expert"])
def test_a_layer_without_some_of_its_weights_comes_out_bit_for_bit(group: str) -> None:
    """What is computed from weights that nobody gave it is no number, here as there."""
    without = LAYER.replace("x, saved = forward(parameters, x)", f"w.{group} = parameters.{group}\nx, saved = forward(w, x)")
    assert without != LAYER
    data = anything(read(without), Setup(degrees={"dp": 2, "ep": 2}, seed=2))
    assert any(None in end["gradients"].values() for end in data["counterexample"]["run"]["ends"])
    assert_reproduced(replayed(data))


def test_a_device_with_experts_of_another_one_does_not_compute() -> None:
    """Gathered over the axis that tokens are sent along: everybody has all experts, and the simulator says that shapes do not fit."""
    data = anything(read(LAYER.replace("forward(parameters,", "forward(all_gather(parameters, ep),")), Setup(degrees={"dp": 1, "ep": 2}))
    assert "another device's experts" in data["counterexample"]["actual"]
    assert_reproduced(replayed(data))


def test_what_is_no_layer_with_experts_is_not_replayed() -> None:
    data = of_layer()
    run = data["counterexample"]["run"]
    run["program"] = run["program"].replace("g, dx = backward(parameters, saved, dx)", "g = backward(parameters)")
    one = replayed(data)
    assert one.word == "not replayed"
    assert "of other operands" in one.why
