"""Every operation of the table, with every option, on operands of every kind: used or refused by each interpretation, and never a crash.

The programs are generated from `placeproof/programs/ops.py`. What the prover says of each is compared with the interpreter that was
written from the manual alone, where that speaks of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from manual_interpreter import UnsupportedError, differs
from verdict_counts import count

from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.programs import read
from placeproof.programs.ops import OPS, Axes, Op
from placeproof.programs.ranks import least_degrees
from placeproof.programs.wellformed import TENSOR_OPS
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.kinds import NEEDS

#: A kind of value -> a buffer that holds one.
KINDS = {
    "parameters": "parameters",
    "optimizer": "optimizer",
    "gradients": "g",
    "a momentum": "d",
    "sums along lines": "t",
    "a stream": "x",
    "what a forward kept": "s",
    "a degree": "dp",
    "a number of each device": "n",
    "a constant": "2",
}
#: Values of options that the table leaves open.
OPEN = {"root": ("0", "1", "owner"), "to": ("1", "-1"), "source": ("1", "-1"), "dim": ("tokens",), "over": ("tokens",)}
#: How a result may count in the end: as the gradient, as a factor, as one that cancels out, as what is updated, or not at all.
USES = ("G = r\n", "G = scale(g, r / r)\n", "G = g + r - r\n", "G = g\nr, o = update(r, optimizer, g)\n", "G = g\n")
HEAD = "mesh(dp)\nx, s = forward(parameters, data())\ndx = loss(x)\ng = backward(parameters, s, dx)\n"
HEAD += "g = all_reduce(g, dp, op=mean)\nn = square_norm(g) + 1\nd = momentum(optimizer, g)\nt = line_sums(g)\n"
FLAT = "mesh(dp)\nx = data()\ng = all_reduce(backward(parameters), dp, op=mean)\nn = square_norm(g) + 1\n"
FLAT += "d = momentum(optimizer, g)\nt = line_sums(g)\n"
UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"
SKIPPED = {*TENSOR_OPS, "start", "wait", "send", "recv"}  # of tensors; of collectives; in pairs


def calls_of(op: Op) -> Iterator[str]:
    """Calls of an operation: each option alone, each kind as its first operand, the others of the kinds that `update` has."""
    axes = {Axes.NONE: "", Axes.ONE: "dp", Axes.SOME: "dp", Axes.ANY: "dp"}[op.axes]
    options = [""] + [f"{name}={value}" for name, values in op.options for value in (values or OPEN.get(name, ("1",)))]
    least = len(op.operands) - op.optional
    usual = {"elementwise": ("square",), "quantize": ("b_g",), "cast": ("b_g",)}
    for kind, option, length in itertools.product(KINDS.values(), options, range(least, len(op.operands) + 1)):
        rest: tuple[str, ...] = ("2", "2", "2")
        if op.name.startswith(("update", "tensor")):
            rest = ("optimizer", "g", "n", "n")
        elif op.name == "momentum":
            rest = ("g",)
        elif op.name.startswith("back"):
            rest = ("s", "x", "x")
        operands = [kind, *rest][:length] if length else []
        if op.name == "elementwise":
            operands = ["square", kind]
        elif op.name in usual:
            operands = [kind, *usual[op.name]]
        yield f"{op.name}({', '.join([*operands, *([axes] if axes else []), *([option] if option else [])])})"
        if not length:
            return


def programs() -> Iterator[tuple[str, str]]:
    for op in OPS.values():
        if op.name in SKIPPED:
            continue
        for call in dict.fromkeys(calls_of(op)):
            results = {0: "", 1: "r = ", 2: "r, q = "}[op.results[0]]
            for use, head in itertools.product(USES, (HEAD, FLAT)):
                if results or use == USES[-1]:
                    yield call, f"{head}{results}{call}\n{use}{UPDATE}"


EVERY = list(programs())


def test_the_table_is_covered() -> None:
    named = {text.split("(")[0] for text, _ in EVERY}
    assert named == {op.name for op in OPS.values()} - SKIPPED
    assert len(EVERY) > 3000
    collectives = {op.name for op in OPS.values() if op.collective and op.operands}
    assert collectives - SKIPPED <= set(NEEDS), "placeproof/semantics/kinds.py: the kinds that it takes"


@pytest.mark.parametrize("name", [op.name for op in OPS.values() if op.name not in SKIPPED])
def test_an_operation_is_used_or_refused(name: str) -> None:
    """A seventh of all programs, another one for each operation; what is proved, the manual says as well."""
    own = [text for call, text in EVERY if call.split("(")[0] == name]
    for text in own[len(name) % 7 :: 7] if len(own) > 40 else own:
        try:
            judged = judge(program := read(text))
        except InputError:
            count(f"calls of {name}", "refused")
            continue
        derive(judged.program)
        count("calls of every operation", judged.word)
        least = least_degrees(judged.program).get("dp", 1)
        if judged.word != "proved" or name == "stale":  # what was before the first step is the first; to the interpreter it is nothing
            continue
        for degree in range(least, least + 3):
            try:
                found = differs(program, {"dp": degree}, microbatches=1, units=2)
                # what is not held cancels out here, and spreads in the interpreter
                assert found is None or ("garbage" in found and USES[2] in text), text
            except UnsupportedError:
                break
