"""What a walk over a step knows of its buffers: how they lie."""

from __future__ import annotations

from placeproof.collectives import AxisLayout
from placeproof.programs import read
from placeproof.semantics.resolve import resolve
from placeproof.semantics.trace import trace


def test_a_sum_with_what_is_partial_is_partial() -> None:
    steps = "G = all_reduce(g, dp)\nT = {}\n"
    for value, layout in (
        ("G + g", AxisLayout.PARTIAL),
        ("g + G", AxisLayout.PARTIAL),
        ("G + G", None),
        ("G + 1", None),
        ("g + 1", AxisLayout.PARTIAL),
    ):
        text = f"mesh(dp)\ng = backward(parameters)\n{steps.format(value)}parameters, optimizer = update(parameters, optimizer, G)\n"
        (write,) = (a for a in trace(resolve(read(text))).accesses if a.name == "T")
        assert dict(write.value.pieces[0].layout).get("dp") == layout, value


def test_the_gradient_of_an_input_lies_as_that_of_the_output() -> None:
    text = 'mesh(tp)\ngroup(matrix, P - P_norm)\ngroup(norm, P_norm)\nplace(parameters.matrix, tp="S")\nplace(optimizer.matrix, tp="S")\n'
    text += "x, s = forward(parameters, part(data(), tp))\nd = loss(x)\ng, dx = backward(parameters, s, d)\nG = all_reduce(g, tp)\n"
    accesses = trace(resolve(read(f"{text}parameters, optimizer = update(parameters, optimizer, G)\n"))).accesses
    lies = {a.name: a.value.pieces[0].layout for a in accesses if a.write and a.name in ("d", "dx")}
    assert lies["dx"] == lies["d"] == (("tp", AxisLayout.PARTIAL),)
