"""What a walk over a step knows of its buffers: how they lie, and how long they live."""

from __future__ import annotations

from placeproof.collectives import Layout
from placeproof.core.program import For, read
from placeproof.semantics.liveness import liveness
from placeproof.semantics.resolve import resolve
from placeproof.semantics.trace import trace


def test_a_sum_with_what_is_partial_is_partial() -> None:
    steps = "G = all_reduce(g, dp)\nT = {}\n"
    for value, layout in (
        ("G + g", Layout.PARTIAL),
        ("g + G", Layout.PARTIAL),
        ("G + G", None),
        ("G + 1", None),
        ("g + 1", Layout.PARTIAL),
    ):
        text = f"mesh(dp)\ng = backward(parameters)\n{steps.format(value)}parameters, optimizer = update(parameters, optimizer, G)\n"
        (write,) = (a for a in trace(resolve(read(text))).accesses if a.name == "T")
        assert dict(write.value.pieces[0].layout).get("dp") == layout, value


def test_a_buffer_that_a_loop_writes_before_it_reads_it_is_not_alive_when_the_loop_begins() -> None:
    step = "T = copy(G)\nH = copy(T)\nfor u in units:\n    S[u] = copy(G[u])\n    {}\n    G[u] = copy(S[u])\n"
    for body, alive in (("T[u] = copy(S[u])\n    S[u] = copy(T[u])", False), ("S[u] = copy(T[u])\n    T[u] = copy(G[u])", True)):
        text = f"mesh(dp)\nG = all_reduce(backward(parameters), dp, op=mean)\n{step.format(body)}"
        found = liveness(read(f"{text}parameters, optimizer = update(parameters, optimizer, G)\n"), frozenset("GTS"))
        (entering,) = found.entering.values()
        assert ("T" in entering) is alive, body
        assert "S" not in entering


def test_a_loop_inside_that_does_not_touch_a_buffer_does_not_keep_it_alive() -> None:
    text = (
        "mesh(dp)\nG = all_reduce(backward(parameters), dp, op=mean)\nT = copy(G)\nH = copy(T)\nfor u in units:\n    for b in blocks[u]:\n"
    )
    text += "        S[b] = copy(G[b])\n    T[u] = copy(S[u])\n    G[u] = copy(T[u])\n"
    text += "parameters, optimizer = update(parameters, optimizer, G)\n"
    program = read(text)
    (outer,) = (stmt for stmt in program.body if isinstance(stmt, For))
    assert liveness(program, frozenset("GTS")).entering[id(outer)] == {"G"}


def test_the_gradient_of_an_input_lies_as_that_of_the_output() -> None:
    text = 'mesh(tp)\ngroup(matrix, P - P_norm)\ngroup(norm, P_norm)\nplace(parameters.matrix, tp="S")\nplace(optimizer.matrix, tp="S")\n'
    text += "x, s = forward(parameters, part(data(), tp))\nd = loss(x)\ng, dx = backward(parameters, s, d)\nG = all_reduce(g, tp)\n"
    accesses = trace(resolve(read(f"{text}parameters, optimizer = update(parameters, optimizer, G)\n"))).accesses
    lies = {a.name: a.value.pieces[0].layout for a in accesses if a.write and a.name in ("d", "dx")}
    assert lies["dx"] == lies["d"] == (("tp", Layout.PARTIAL),)
