"""Why an obligation is broken: the value, over which axis it lies otherwise, what is needed; what a cause asks for mends the step."""

from __future__ import annotations

import json

import pytest

from placeproof.programs import Program, read
from placeproof.report.findings import of_step
from placeproof.report.proof.text import document
from placeproof.report.text import text
from placeproof.semantics.catalogue import compositions
from placeproof.semantics.encode import encode
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.resolve import resolve

UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)"
SPLIT = """
mesh(dp, cp)
place(parameters, dp="S*", cp="S*")
place(gradients, dp="S", cp="S")
place(optimizer, dp="S", cp="S")
w = all_gather(parameters, {gathered})
x, kept = forward(w, data())
gradients = reduce_scatter(backward_weight(w, kept, loss(x)), dp, cp, op=mean)
"""
#: A step with a hole; what in the hole makes it wrong, and right; the cause, in words.
HOLES = [
    (SPLIT + UPDATE, {"gathered": "dp"}, {"gathered": "dp, cp"}, "`w` is still split over `cp`: `forward` needs all of it"),
    (SPLIT + UPDATE, {"gathered": "cp"}, {"gathered": "dp, cp"}, "`w` is still split over `dp`: `forward` needs all of it"),
    (
        f"mesh(dp, cp)\ngradients = all_reduce(backward(parameters), {{over}}, op=mean)\n{UPDATE}",
        {"over": "dp"},
        {"over": "dp, cp"},
        "`gradients` is still a partial sum over `cp`: `update` needs the sum over all of its devices",
    ),
    (
        f"mesh(dp, tp)\ngroup(norm, P_norm, partial=tp)\ngroup(matrix, P - P_norm)\nplace(parameters.matrix, tp=S)\n"
        f"gradients = all_reduce(backward(parameters), dp, op=mean)\n{{norm}}\n{UPDATE}",
        {"norm": "pass"},
        {"norm": "gradients.norm = all_reduce(gradients.norm, tp)"},
        "`gradients` is still a partial sum over `tp`: `update` needs the sum over all of its devices",
    ),
    (
        f"mesh(dp)\nzero(gradients)\nfor i in microbatches:\n    gradients {{put}} backward(parameters, i)\n"
        f"gradients = scale(all_reduce(gradients, dp, op=mean), {{by}})\n{UPDATE}",
        {"put": "=", "by": "1"},
        {"put": "+=", "by": "1 / microbatches"},
        "`gradients` is that of the last micro-batch alone: the other micro-batches are left out",
    ),
    (
        f"mesh(dp)\nplace(optimizer, dp=S)\ngradients = reduce_scatter(backward(parameters), dp, op=mean)\n{UPDATE}\n{{after}}",
        {"after": "pass"},
        {"after": "parameters = all_gather(parameters, dp)"},
        "`parameters` is updated in parts over `dp`: every device keeps all of it, and nothing gathers it",
    ),
]


def _program(step: str, hole: dict[str, str]) -> Program:
    return read(step.format(**hole), source="hole.step")


@pytest.mark.parametrize(("step", "wrong", "right", "words"), HOLES)
def test_the_cause_is_named_everywhere_and_its_remedy_is_proved(
    step: str, wrong: dict[str, str], right: dict[str, str], words: str
) -> None:
    judged = judge(_program(step, wrong), shortest=False)
    assert judged.word == "refuted"
    assert judged.about is not None
    assert [c.words for c in judged.about.causes] == [words]
    shown = document("hole.step", judged)
    assert f"   = {words}\n" in text(shown)
    broken = [o for o in json.loads(json.dumps(shown.data()))["obligations"] if o["verdict"] == "refuted"]
    assert [c["words"] for o in broken for c in o["causes"]] == [words]
    assert [words in case.message for case in of_step("hole.step", judged) if case.standing == "failed"] == [True]
    mended = judge(_program(step, right))
    assert mended.word == "proved"
    assert not any(o.obligation.causes for o in mended.settled)


def test_what_is_garbage_already_has_no_cause_of_its_own() -> None:
    """A gradient that was computed from what a device does not hold: the line before has the cause."""
    obligations = encode(resolve(_program(SPLIT + UPDATE, {"gathered": "dp"}))).obligations
    assert [bool(o.causes) for o in obligations if "gradient of the global batch" in o.name] == [False]


COUNTED = """
mesh(dp, cp)
reference(loss=mean_over(sequences))
for i in microbatches:
    s += count(i, of=sequences)
    G += backward(parameters, i, sum=sequences)
{summed}
G = scale(all_reduce({G}, dp, cp), 1 / s)
parameters, optimizer = update(parameters, optimizer, G)
"""


def test_what_depends_on_a_device_is_no_partial_sum_for_that() -> None:
    """A gradient that each device divides by its own count, and one that is added to its mean: a sum mends neither."""
    for step in (
        COUNTED.format(summed="pass", G="G"),
        f"mesh(dp)\ng = backward(parameters)\ngradients = all_reduce(g, dp, op=mean)\ngradients += g\n{UPDATE}",
    ):
        judged = judge(read(step), shortest=False)
        assert judged.word == "refuted"
        assert not any(o.obligation.causes for o in judged.settled)
    assert judge(read(COUNTED.format(summed="s = all_reduce(s, dp)", G="G"))).word == "proved"


def test_a_sum_with_counts_is_partial() -> None:
    step = COUNTED.format(summed="s = all_reduce(s, dp)", G="G").replace("all_reduce(G, dp, cp)", "all_reduce(G, cp)")
    judged = judge(read(step), shortest=False)
    assert judged.about is not None
    words = "`G` is still a partial sum over `dp`: `update` needs the sum over all of its devices"
    assert [c.words for c in judged.about.causes] == [words]


def test_right_steps_have_no_causes() -> None:
    """Whatever lies in parts on purpose is no cause: in no composition of the catalogue."""
    count = 0
    for name, program in list(compositions(2))[::5]:
        if not isinstance(program, Program):
            continue
        count += 1
        assert not [c.words for o in encode(resolve(program)).obligations for c in o.causes], name
    assert count > 10
