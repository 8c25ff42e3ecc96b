"""Steps that clip are right as they are lowered, and wrong if an axis more or less is summed over, as proofs and runs on devices find."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from samples import NIGHTLY, sample

from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.cost.model.derivation import derive_linked
from placeproof.models.presets import load
from placeproof.programs import Assign, Call, Program, Ref, calls, read, render
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.linked.link import link
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

STEPS = (
    "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "zeropp", "zero_offload", "zero_infinity", "tp", "tp * sp", "pp", "ddp * ep",
    "zero1(reduce=all_reduce)", "zero1 * accumulate", "fsdp(root=keep)", "hsdp * tp * sp", "zero1 * cp * pp", "fsdp * tp * sp * cp * pp",
    "zero2 * ep * tp", "ep(experts=whole) * tp * sp", "zero1 * zero1(dp=ep) * ep * pp", "(R, S, R, R, dp)", "(S*, R, S, R, dp)",
)  # fmt: skip


def clipped(text: str) -> Program:
    return lower(parse_strategy(f"{text} * clip"))


def edited(program: Program) -> Iterator[tuple[str, Program]]:
    """The program with an axis more, an axis less, or another one, in one of the sums of squares; and without one of the lines that make
    them."""
    lines = render(program).splitlines()
    axes = [axis.name for axis in program.axes]
    for number, line in enumerate(lines):
        if "square_norm" not in line and "squares" not in line:
            continue
        found = re.search(r"all_reduce\(((?:square_norm\([^()]*\))|squares)((?:, \w+)*)\)", line)
        own = found[2].split(", ")[1:] if found else []
        what = found[1] if found else re.search(r"square_norm\([^()]*\)|squares(?=\))", line)
        whole = found[0] if found else what[0] if what else None
        if whole is None:
            continue
        inner = found[1] if found else whole
        for axis in axes:
            others = [a for a in own if a != axis] if axis in own else [*own, axis]
            new = f"all_reduce({inner}, {', '.join(others)})" if others else inner
            yield new, read("\n".join([*lines[:number], line.replace(whole, new), *lines[number + 1 :]]), source="edited")
        if line.startswith("squares +="):
            yield f"without {line}", read("\n".join([*lines[:number], *lines[number + 1 :]]), source="edited")


@pytest.mark.parametrize("text", sample([t for t in STEPS if NIGHTLY or t.count("*") < 3], lambda text: text.split(" * ")))
def test_a_step_that_clips_trains_and_no_other_sum_of_squares_does(text: str) -> None:
    program = clipped(text)
    assert dict(program.reference) == {"clip": "global_norm"}
    assert judge(resolve(program)).word == "proved"
    for what, wrong in edited(program):
        try:
            judged = judge(resolve(wrong))
        except InputError:  # what is a scalar already is summed over an axis along which nothing differs
            continue
        assert judged.word == "refuted", what


def test_each_element_is_counted_once_among_many() -> None:
    """The edits are not all refused, and a step has several."""
    wrong = [what for text in STEPS for what, _ in edited(clipped(text))]
    assert len(wrong) > 2 * len(STEPS)


@pytest.mark.parametrize("text", STEPS)
def test_each_sum_of_squares_is_sent(text: str) -> None:
    """Also where one number is added up over many lines."""
    program = clipped(text)
    counted = [m.count for m in derive(program).messages.messages if m.state == "scalar"]
    assert sum(counted) == sum(_of_squares(call) for stmt in program.body if isinstance(stmt, Assign) for call in calls(stmt))


def _of_squares(call: Call) -> bool:
    if call.op != "all_reduce":
        return False
    (summed,) = call.args
    return (isinstance(summed, Call) and summed.op == "square_norm") or (isinstance(summed, Ref) and summed.name == "squares")


SHARED = """
mesh(pp)
group(dense, P - P_tied)
group(tied, P_tied, tied=pp)
place(parameters, pp="S")
place(optimizer, pp="S")
place(gradients, pp="S")
reference(clip=global_norm)
if rank(pp) == 0:
    x = data()
else:
    x = recv(pp, source=-1)
x, kept = forward(parameters, x)
if rank(pp) < pp - 1:
    send(x, pp, to=1)
if rank(pp) == pp - 1:
    dx = loss(x)
else:
    dx = recv(pp, source=1)
gradients = backward_weight(parameters, kept, dx)
dx = backward_input(parameters, kept, dx)
if rank(pp) > 0:
    send(dx, pp, to=-1)
gradients.tied = tied_reduce(gradients.tied, pp)
squares = square_norm(gradients.dense) + square_norm(gradients.tied{option})
gradients = scale(gradients, clip_factor(sqrt(all_reduce(squares, pp))))
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize(("option", "word"), [("", "refuted"), (", shared=all", "refuted"), (", shared=first", "proved")])
def test_a_weight_that_stages_share_is_counted_once(option: str, word: str) -> None:
    assert judge(resolve(read(SHARED.format(option=option), source="shared")), shortest=False).word == word
    assert (
        judge(resolve(read(SHARED.replace("mesh(pp)", "mesh(pp=2)").format(option=option), source="shared")), shortest=False).word == word
    )


FLAT = """
mesh(pp)
group(dense, P - P_tied)
group(tied, P_tied, tied=pp)
place(parameters.dense, pp="S")
place(optimizer.dense, pp="S")
place(gradients.dense, pp="S")
reference(clip=global_norm)
gradients = backward(parameters)
gradients.tied = tied_reduce(gradients.tied, pp)
squares = square_norm(gradients.dense) + square_norm(gradients.tied{option})
gradients = scale(gradients, clip_factor(sqrt(all_reduce(squares, pp))))
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize(("option", "word"), [("", "refuted"), (", shared=first", "proved")])
def test_it_is_where_passes_are_whole(option: str, word: str) -> None:
    assert judge(resolve(read(FLAT.format(option=option), source="shared")), shortest=False).word == word


@pytest.mark.parametrize("model", ["gpt3-125m", "llama3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("text", ["fsdp * tp", "zero1 * tp * sp * pp"])
def test_models_are_clipped(model: str, text: str) -> None:
    """What each device of the hidden axis has is a group of its own; the embedding that both ends of a pipeline share counts once."""
    linked = link(load(model), parse_strategy(f"{text} * clip"))
    assert judge_linked(linked, load(model)).word == "proved"
    assert ("shared=first" in render(linked.step)) == ("pp" in text and model.startswith("gpt3"))
    sums = [call for stmt in linked.step.body if isinstance(stmt, Assign) for call in calls(stmt)]
    costs = derive_linked(linked.with_degrees({"dp": 2, "tp": 2, "pp": 2})).costs[0]
    rows = [row for row in costs.sent if row.about == "scalar"]
    assert sum(row.times for row in rows) == sum(_of_squares(call) for call in sums) > 0


BY_HAND = """
mesh(dp)
reference(clip=global_norm)
gradients = scale(all_reduce(backward(parameters), dp), 1 / dp)
norm = sqrt(square_norm(gradients))
gradients = scale(gradients, {factor})
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize(("factor", "word"), [("min(1, 1 / norm)", "refuted"), ("1", "refuted"), ("clip_factor(norm)", "proved")])
def test_clipping_is_a_function_of_its_own_and_a_warning_says_so(factor: str, word: str) -> None:
    judged = judge(resolve(read(BY_HAND.format(factor=factor), source="by hand")))
    assert judged.word == word
    assert any("`clip_factor`, which this step does not call" in text for text, _ in judged.warnings) == (word == "refuted")
