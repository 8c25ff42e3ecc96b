"""Verdicts about edited programs over tensors, against an interpreter that was written from the manual alone.

`block_mutants.py` edits every block and ring that there is as a person might, rightly or wrongly. `manual_block_interpreter.py` runs what
comes out, device by device. `nightly/manual_blocks.py` compares many more.
"""

from __future__ import annotations

import os
import random

import block_draws
import pytest
from block_mutants import edited, mutants
from block_seeds import every, folder
from manual_block_truth import RIGHT, UNDECIDED, WRONG, compared, truth
from verdict_counts import count

from placeproof.programs import read, render
from placeproof.semantics.judge.verdict import judge

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
#: Blocks that are judged in no time.
QUICK = [name for name in every() if "attention" not in name and "moe" not in name and "norm" not in name]


@pytest.mark.parametrize("name", [n for n in every() if not n.startswith("framework_rules")][:: 1 if NIGHTLY else 4])
def test_every_program_is_right_by_the_manual(name: str) -> None:
    said, why = truth(every()[name], seeds=(0,))
    assert said == RIGHT, why


def test_some_programs_of_rules_are_wrong() -> None:
    found = {name: truth(every()[name], seeds=(0,))[0] for name in folder("framework_rules/programs")}
    assert set(found.values()) == {RIGHT, WRONG}
    assert found["framework_rules/programs/tensor_group.step"] == RIGHT
    assert found["framework_rules/programs/tensor_group_too_wide.step"] == WRONG


@pytest.mark.parametrize("seed", range(100 if NIGHTLY else 5))
def test_verdicts_about_mutants_are_those_of_the_manual(seed: int) -> None:
    drawn = mutants(random.Random(seed), [every()[name] for name in QUICK])
    for _ in range(6):
        _, text = next(drawn)
        said, word, what = compared(text)
        assert not what, f"{what}\n{text}"
        count(f"mutants of blocks, by the manual {said or 'not read'}", word)


@pytest.mark.parametrize("seed", range(2000 if NIGHTLY else 40))
def test_a_verdict_about_a_drawn_program_is_that_of_the_manual(seed: int) -> None:
    said, word, what = compared(block_draws.drawn(seed))
    assert not what, f"{what}\n{block_draws.drawn(seed)}"
    count(f"drawn programs over tensors, by the manual {said or 'not read'}", word)


SMALL = "mesh(tp)\ntensor(x, tokens, hidden)\ntensor(w, hidden, ffn, tp=hidden)\n"
PART = "part(x, tp, dim=hidden)"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"returns(all_reduce(contract({PART}, w, over=hidden), tp))", RIGHT),
        (f"returns(contract({PART}, w, over=hidden))", WRONG),
        (f"returns(all_reduce(contract({PART}, w, over=hidden), tp, op=mean))", WRONG),
        ("returns(all_reduce(contract(x, w, over=hidden), tp))", WRONG),
        (f"returns(all_gather({PART}, tp))", RIGHT),
        (f"returns(shift({PART}, tp))", WRONG),
        ("returns(shift(x, tp))", RIGHT),
        (f"returns(all_reduce({PART}, tp))", WRONG),
        ("returns(all_gather(x, tp))", UNDECIDED),
        ("y = total(x * x, over=hidden)\nreturns(2 * x, gradient_of=y, by=x, at=w)", UNDECIDED),
        ("y = x * elementwise(exp, x)\nreturns(elementwise(exp, x) * (1 + x) * x, gradient_of=y, by=x, at=x)", RIGHT),
        ("y = x * elementwise(exp, x)\nreturns(elementwise(exp, x) * x * x, gradient_of=y, by=x, at=x)", WRONG),
        ("y = x * elementwise(stop, x)\nreturns(x * x, gradient_of=y, by=x, at=x)", RIGHT),
        ("y = elementwise(gelu, x)\nreturns(slope(gelu, x) * x, gradient_of=y, by=x, at=x)", RIGHT),
        ("y = elementwise(gelu, x)\nreturns(slope(silu, x) * x, gradient_of=y, by=x, at=x)", WRONG),
    ],
)
def test_the_interpreter_by_hand(body: str, said: str) -> None:
    assert truth(read(f"{SMALL}{body}\n"))[0] == said


#: What collectives leave, each with what undoes it, and what does not; on one axis, and on two.
TWO = "mesh(dp, tp)\ntensor(x, tokens, hidden)\ntensor(w, hidden, ffn)\n"
CUT, CUT_TWICE = "part(x, tp, dim=hidden)", "part(x, dp, tp, dim=hidden)"
SUM_OF_PARTS = "contract(part(x, tp, dim=hidden), part(w, tp, dim=hidden), over=hidden)"
EXCHANGED = {
    "exchanged over two axes": (f"all_gather(all_to_all({CUT_TWICE}, dp, tp, dim=tokens), dp, tp)", "proved"),
    "the mean of copies": ("all_reduce(x, tp, op=mean)", "proved"),
    "the mean of copies along two axes": ("all_reduce(x, dp, tp, op=mean)", "proved"),
    "the mean of copies along one axis is none of two": ("all_reduce(all_reduce(x, dp), tp, op=mean)", "refuted"),
    "the mean of sums": (f"all_reduce({SUM_OF_PARTS}, tp, op=mean)", "refuted"),
    "the mean of sums, times how many": (f"tp * all_reduce({SUM_OF_PARTS}, tp, op=mean)", "proved"),
    "the sum of copies": ("all_reduce(x, tp)", "refuted"),
    "the greatest of copies": ("all_reduce(x, dp, tp, op=max)", "proved"),
    "parts that are gathered": (f"all_gather({CUT}, tp)", "proved"),
    "parts of parts that are gathered": (f"all_gather({CUT_TWICE}, dp, tp)", "proved"),
    "parts of parts, one axis after the other": (f"all_gather(all_gather({CUT_TWICE}, tp), dp)", "proved"),
    "parts, and then parts of these": ("all_gather(part(part(x, dp, dim=hidden), tp, dim=hidden), dp, tp)", "proved"),
    "parts of parts, the other axis first": (f"all_gather({CUT_TWICE}, tp, dp)", "unknown"),
    "parts of two dimensions": ("all_gather(part(part(x, dp, dim=tokens), tp, dim=hidden), dp, tp)", "proved"),
    "sums that are parted and gathered": (f"all_gather(reduce_scatter({SUM_OF_PARTS}, tp, dim=ffn), tp)", "proved"),
    "parts of what was not added up": (f"all_gather(part({SUM_OF_PARTS}, tp, dim=ffn), tp)", "refuted"),
    "the sum of different elements": (f"all_gather(scale(all_reduce({CUT}, tp), 1 / tp), tp)", "refuted"),
    "one device's elements for all": (f"all_gather(broadcast({CUT}, tp), tp)", "refuted"),
    "what one device has for all": ("broadcast(x, tp)", "proved"),
    "one device's summand for all": (f"broadcast({SUM_OF_PARTS}, tp)", "refuted"),
    "added up on one device, and sent to all": (f"broadcast(reduce({SUM_OF_PARTS}, tp), tp)", "proved"),
    "added up on one device": (f"reduce({SUM_OF_PARTS}, tp)", "refuted"),
    "added up on one device, and sent from another": (f"broadcast(reduce({SUM_OF_PARTS}, tp, root=1), tp)", "refuted"),
    "cut along another dimension": (f"all_gather(all_to_all({CUT}, tp, dim=tokens), tp)", "proved"),
    "cut along another dimension and back": (f"all_gather(all_to_all(all_to_all({CUT}, tp, dim=tokens), tp, dim=hidden), tp)", "proved"),
    "cut where it is cut": (f"all_gather(part({CUT}, tp, dim=hidden), tp)", "unknown"),
    "passed on": (f"all_gather(shift({CUT}, tp), tp)", "unknown"),
    "passed on and back": (f"all_gather(shift(shift({CUT}, tp), tp, by=-1), tp)", "proved"),
    "passed on and back the other way": (f"all_gather(shift(shift({CUT}, tp, by=-1), tp), tp)", "proved"),
    "passed on twice": (f"all_gather(shift(shift({CUT}, tp), tp), tp)", "unknown"),
    "summands that are passed on and back": (f"all_reduce(shift(shift({SUM_OF_PARTS}, tp), tp, by=-1), tp)", "proved"),
    "copies that are passed on": ("shift(x, tp)", "proved"),
    "the next device's summand": (f"shift({SUM_OF_PARTS}, tp)", "refuted"),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_what_collectives_leave_is_what_the_manual_says(name: str) -> None:
    """What is right is proved, and not only not denied; what it leaves undecided is not proved."""
    body, word = EXCHANGED[name]
    said, found, what = compared(f"{TWO}returns({body})\n")
    assert not what
    assert said == {"proved": RIGHT, "refuted": WRONG, "unknown": UNDECIDED}[word]
    assert found == word or (word == "unknown" and found != "proved")


#: What a proof does not speak of, and says so: nothing is concluded from a meaning that it does not have.
NOT_SPOKEN_OF = {
    "parts of parts, the other axis first": "`all_gather` over `dp` of what is not cut along it (last)",
    "the sum of different elements": "`all_reduce` over `tp` of parts: each device has other elements along `hidden`",
    "one device's elements for all": "`broadcast` over `tp` of parts: each device has other elements along `hidden`",
    "added up on one device, and sent from another": "a root other than 0",
    "cut where it is cut": "`hidden` is cut along `tp` already",
    "passed on": "`all_gather` of parts that are not home from their ring",
    "passed on twice": "`all_gather` of parts that are not home from their ring",
}
ALSO_NOT_SPOKEN_OF = {
    f"all_gather(all_to_all({CUT_TWICE}, dp, tp, dim='tokens hidden'), dp, tp)": "`hidden` is cut along `tp` already",
    f"all_gather(all_to_all({CUT}, tp, dim=hidden), tp)": "`hidden` is cut along `tp` already",
    "all_gather(part(x, tp, dim=hidden, order=interleaved), tp)": "parts of a tensor in another order than blocked",
    "all_gather(part(x, tp, dim=ffn), tp)": "`part` needs `dim=`, a dimension of its operand",
    "all_gather(part(x, tp), tp)": "`part` needs `dim=`, a dimension of its operand",
}


@pytest.mark.parametrize(
    ("body", "why"), [*((EXCHANGED[name][0], why) for name, why in NOT_SPOKEN_OF.items()), *ALSO_NOT_SPOKEN_OF.items()]
)
def test_what_a_proof_does_not_speak_of_is_said(body: str, why: str) -> None:
    judged = judge(read(f"{TWO}returns({body})\n"))
    assert f"the proof cannot speak of this step: {why}" in judged.why


def test_an_edit_changes_one_program_into_another() -> None:
    rng, before = random.Random(1), every()["blocks/mlp.step"]
    found = [edited(rng, before) for _ in range(200)]
    assert len({render(program) for program in found if program is not None} - {render(before)}) > 100


#: Programs whose verdicts were wrong when this comparison was first made: what the manual says, and the program.
FOUND = {
    "a sum is begun by itself": (RIGHT, "mesh(tp)\ntensor(w, ffn)\ny += w\nreturns(y)\n"),
    "sums of exponentials are merged": (
        RIGHT,
        "mesh(tp)\ntensor(x, keys, tp=keys)\nm = largest(x, over=keys)\n"
        "a = elementwise(log, total(elementwise(exp, x - m), over=keys)) + m\n"
        "y = elementwise(log, all_reduce(elementwise(exp, a), tp))\nreturns(y)\n",
    ),
    "a softmax by its logarithm": (
        RIGHT,
        "tensor(x, keys)\ntensor(dz)\nz = elementwise(log, total(elementwise(exp, x), over=keys))\nreturns(z)\n"
        "returns(elementwise(exp, x - z) * dz, gradient_of=z, by=x, at=dz)\n",
    ),
    "the logarithm of zero": (
        WRONG,
        "mesh(tp)\ntensor(ids, tokens, picks=vocab)\ntensor(x, vocab, tp=vocab)\np = contract(hot(ids), x, over=vocab)\n"
        "y = all_reduce(p * elementwise(log, p), tp)\nreturns(y)\n",
    ),
    "a position of itself": (UNDECIDED, "mesh(tp)\ntensor(ids, tokens, picks=tokens)\nreturns(hot(ids))\n"),
    "gathered picks": (
        RIGHT,
        "mesh(tp)\ntensor(ids, tokens, tp=tokens, picks=vocab)\ntensor(x, vocab, tp=vocab)\n"
        "y = all_reduce(contract(all_gather(hot(ids), tp), x, over=vocab), tp)\nreturns(y)\n",
    ),
    "a result of a round alone": (UNDECIDED, "mesh(tp)\ntensor(x, hidden)\nfor r in rounds[tp]:\n    returns(x)\n"),
    "an operation of steps": (UNDECIDED, "mesh(tp)\ntensor(x, hidden)\nw = data()\nreturns(x)\n"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_manual_about_what_was_found(name: str) -> None:
    said, text = FOUND[name]
    assert truth(read(text))[0] == said


@pytest.mark.parametrize("name", FOUND)
def test_verdicts_about_what_was_found(name: str) -> None:
    _, _, what = compared(FOUND[name][1])
    assert not what
