"""Adafactor is right where sums along rows and columns, and norms, are of whole matrices, and wrong where one of them is not: proofs, runs
on devices and the interpreter that was written from the manual say so."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sympy
from manual_truth import at_the_witness, right
from matrix_steps import STEPS, WRITTEN, without
from samples import sample

from placeproof.cost.derive import derive
from placeproof.programs import Program, calls, read, render, render_expression, statements
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.prove import Proved
from placeproof.semantics.composition.decide import composed
from placeproof.semantics.judge.cutoff import Covered, NotCovered, cutoff
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

HOW = ("reduced", "owned")
CASES = [*itertools.product(("zero1", "hsdp", "tp", "zero_infinity"), HOW), *((text, "reduced") for text in STEPS)]


def stepped(text: str, how: str = "reduced") -> Program:
    return lower(parse_strategy(f"{text} * adafactor({how})"))


def exchanged(program: Program, what: str) -> set[str]:
    """The axes over which something is exchanged, by a word in its operand."""
    every = (c for s in statements(program.body) for c in calls(s) if c.op in ("all_reduce", "all_gather"))
    return {axis for c in every if what in render_expression(c.args[0]) for axis in c.axes}


def edited(program: Program) -> Iterator[tuple[str, Program]]:
    """The program without one of what makes sums and norms those of whole matrices: an axis of an exchange, the sums that norms read; with
    the sums, or the gradients, of something else."""
    lines = render(program).splitlines()
    for number, line in enumerate(lines):
        edits: dict[str, str] = {}
        if "line_sums(" in line or "tensor_norms(" in line:
            edits |= without(line, "all_reduce")
            edits["sums of other gradients"] = re.sub(r"line_sums\((gradients[.\w]*\[u\])\)", r"line_sums(scale(\1, 2))", line)
            edits["norms without sums"] = re.sub(r", sums\)(?=\)|, )", ")", line) if "tensor_norms(" in line else line
            edits["norms of an old state"] = re.sub(r"tensor_norms\((.*), (optimizer[.\w]*\[u\])", r"tensor_norms(\1, stale(\2, 1)", line)
        elif "update_with(" in line:
            edits["no norms"] = line.replace(", sums, norms)", ", sums)")
            edits["no sums"] = line.replace(", sums, norms)", ", norms)")
            edits["each its part"] = re.sub("(, sums)?, norms\\)", ")", line).replace("update_with", "update")
        elif line.startswith("gradients") and "backward" not in line:
            edits |= without(line, "reduce_scatter")
            edits |= without(line, "all_reduce")
        for what, new in edits.items():
            if new != line:
                yield what, read("\n".join([*lines[:number], new, *lines[number + 1 :]]), source="edited")


@pytest.mark.parametrize(("text", "how"), sample(CASES, lambda case: {case[1], case[0]} & {*HOW, "zero1", "tp", "zero_infinity"}))
def test_a_step_of_whole_sums_trains_and_none_that_lacks_one_does(text: str, how: str) -> None:
    program, cut = stepped(text, how), set(STEPS[text].split())
    cut = cut & {"tp"} if how == "owned" else cut
    assert dict(program.reference)["optimizer"] == "factored"
    assert {g.name for g in program.groups if g.update == "tensor_norm"} == ({"norm"} if "lora" not in text else set())
    assert exchanged(program, "tensor_norms(") == cut
    assert exchanged(program, "optimizer.norm[u]") == (cut - {"tp"} if "lora" not in text else set())
    assert judge(resolve(program)).word == "proved"
    ran = right(program) if right(lower(parse_strategy(text))) else None
    assert ran is not False
    for what, wrong in [*edited(program)][len(text) % 6 :: 6]:
        judged = judge(resolve(wrong))
        assert judged.word == "refuted", what
        assert not ran or at_the_witness(judged), what


def test_many_things_can_be_wrong() -> None:
    wrong = {what for case in itertools.product(("zero1", "zero1 * tp * clip"), HOW) for what, _ in edited(stepped(*case))}
    assert wrong >= {
        *("no all_reduce over dp", "no all_reduce over tp", "sums of other gradients", "norms without sums"),
        *("norms of an old state", "no norms", "no sums", "each its part"),
    }


APART = """sums = {sums}
norms = all_reduce(tensor_norms(parameters.matrix, optimizer.matrix, g.matrix, sums), dp)
parameters.norm, optimizer.norm = update(parameters.norm, optimizer.norm, g.norm)
parameters.matrix, optimizer.matrix = update_with(parameters.matrix, optimizer.matrix, g.matrix, sums, norms)"""
OWN = "tensor_norms(parameters.norm, optimizer.norm, g.norm)"
MATRICES, VECTORS = "parameters.matrix, optimizer.matrix = update(parameters.matrix, optimizer.matrix, g.matrix)", ", update=tensor_norm"
ALL, SUMS, ALONE = "parameters, optimizer = update(parameters, optimizer, g)", "all_reduce(line_sums(g.matrix), dp)", ", update=elementwise"


def apart(step: str, norms: str) -> str:
    """The step with vectors that are updated with such norms."""
    alone = "parameters.norm, optimizer.norm = update(parameters.norm, optimizer.norm, g.norm)"
    given = "parameters.norm, optimizer.norm = update_with(parameters.norm, optimizer.norm, g.norm, vectors)"
    step = step.replace(ALL, f"{MATRICES}\n{alone}")
    assert alone in step
    return step.replace(alone, f"vectors = {norms}\n{given}")


@pytest.mark.parametrize(
    ("options", "norm", "optimizer", "step", "word"),
    [
        ("", ALONE, "factored", APART.format(sums=SUMS), "proved"),
        ("", ALONE, "factored", APART.format(sums="line_sums(all_gather(g.matrix, dp))"), "proved"),
        ("", ALONE, "factored", APART.format(sums="line_sums(g.matrix)"), "refuted"),
        ("", ALONE, "factored", APART.format(sums="all_reduce(line_sums(g.matrix), dp, op=mean)"), "refuted"),
        ("", "", "factored", APART.format(sums=SUMS), "refuted"),  # norms of which the update reads sums, too
        ("", ALONE, "matrix", APART.format(sums=SUMS), "refuted"),
        ("", ALONE, "tensor_norm", APART.format(sums=SUMS), "refuted"),
        ("", ALONE, "factored", ALL, "refuted"),
        (", whole=dp", ALONE, "factored", ALL, "proved"),
        (", whole=dp", ", whole=dp", "factored", ALL, "proved"),
        ("", VECTORS, "factored", apart(APART.format(sums=SUMS), f"all_reduce({OWN}, dp)"), "proved"),
        ("", VECTORS, "factored", apart(APART.format(sums=SUMS), OWN), "refuted"),
        ("", VECTORS, "factored", apart(APART.format(sums="line_sums(g.matrix)"), f"all_reduce({OWN}, dp)"), "refuted"),
        ("", ALONE, "factored", apart(APART.format(sums=SUMS), f"all_reduce({OWN}, dp)"), "refuted"),
        ("", VECTORS, "factored", APART.format(sums=SUMS), "refuted"),
        (", whole=dp", VECTORS, "preconditioned", apart(ALL, f"all_reduce({OWN}, dp)"), "proved"),
        (", whole=dp", VECTORS + ", whole=dp", "factored", ALL, "proved"),
        (", whole=dp", VECTORS, "factored", ALL, "refuted"),
        ("", VECTORS, "elementwise", apart(ALL, f"all_reduce({OWN}, dp)"), "proved"),
        ("", VECTORS, "elementwise", apart(ALL, OWN), "refuted"),
        ("", VECTORS, "elementwise", ALL, "refuted"),
        (ALONE, "", "tensor_norm", apart(ALL, f"all_reduce({OWN}, dp)"), "proved"),
        (ALONE, "", "tensor_norm", ALL, "refuted"),
    ],
)
def test_a_group_says_how_its_elements_are_updated(options: str, norm: str, optimizer: str, step: str, word: str) -> None:
    program = read(WRITTEN.format(options=options, norm=norm, optimizer=optimizer, step=step), source="written")
    assert judge(resolve(program), shortest=False).word == word
    assert right(program) == (word == "proved")


@pytest.mark.parametrize("kept", ["S", "R"])
def test_no_argument_takes_norms_of_tensors_for_an_update_by_elements(kept: str) -> None:
    """Neither axis by axis nor by a few runs, under a plain reference; nor is it said to be assumed of what reads norms."""
    exchange = "reduce_scatter" if kept == "S" else "all_reduce"
    text = WRITTEN.format(options="", norm=VECTORS, optimizer="elementwise", step=ALL).replace('dp="S"', f'dp="{kept}"')
    text = text.replace("reduce_scatter", exchange)
    text = text.replace("parameters = all_gather(parameters, dp)\n", "") if kept == "R" else text
    vectors, elements = read(text, source="written"), read(text.replace("tensor_norm", "elementwise"), source="written")
    assert [isinstance(composed(p).verdict, Proved) for p in (vectors, elements)] == [kept == "R", True]
    assert isinstance(cutoff(resolve(elements)), Covered)
    assert isinstance(cutoff(resolve(vectors)), NotCovered)


def test_it_is_not_assumed_that_vectors_are_updated_by_elements() -> None:
    assumed, program = ASSUMPTIONS["elementwise-optimizer"], stepped("zero1")
    assert not assumed.concerns(program)
    assert assumed.concerns(lower(parse_strategy("zero1 * muon")))
    assert judge(resolve(program), without=frozenset({assumed.name})).word == "proved"
    assert right(replace(program, without=(assumed.name,)))


@pytest.mark.parametrize(("optimizer", "made"), [("elementwise", True), ("tensor_norm", False), ("matrix", False)])
def test_an_update_by_elements_is_assumed_where_nothing_else_is_said(optimizer: str, made: bool) -> None:
    """Without it an update that is said to sum over tensors is that still, and no function of whole matrices."""
    assumed, given = ASSUMPTIONS["elementwise-optimizer"], ALL.replace("update(", "update_with(").replace("g)", "g, norms)")
    step = f"norms = all_reduce({OWN.replace('.norm', '')}, dp)\n{given}"
    right_one, wrong = (
        read(re.sub("group.*\n", "", WRITTEN).format(optimizer=optimizer, step=text), source="written") for text in (step, ALL)
    )
    assert assumed.concerns(right_one) is made
    if optimizer == "tensor_norm":
        assert judge(resolve(right_one), without=frozenset({assumed.name})).word == "proved"
        assert right(replace(right_one, without=(assumed.name,)))
        assert judge(resolve(wrong), without=frozenset({assumed.name}), shortest=False).word == "refuted"


def formula(text: str) -> sympy.Expr:
    return sympy.sympify(text, locals={name: sympy.Symbol(name) for name in re.findall(r"[A-Za-z_]+", text)})


def test_every_device_has_all_factors_of_a_matrix_unless_parts_are_whole_ones() -> None:
    """And sends sums along all rows and columns, and two numbers of each tensor, of norms and biases too, which have a second moment of
    their own."""
    found = {how: derive(stepped("zero1", how), groups=True) for how in HOW}
    copy, plain = "P*b_master/N", derive(lower(parse_strategy("zero1")), groups=True)
    factors = {"reduced": "rho*(P - P_norm)", "owned": "rho*(P - P_norm)/N"}
    sent = {"reduced": "2*(N - 1)/N*(rho*(P - P_norm)*b_nu + 2*tau*P*b_s)", "owned": "0"}
    for how, d in found.items():
        assert sympy.simplify(d.memory["optimizer"] - formula(f"{copy} + b_nu*({factors[how]} + P_norm/N)")) == 0, how
        assert sympy.simplify(d.sent - plain.sent - formula(sent[how])) == 0, how
    assert sympy.simplify(plain.memory["optimizer"] - formula("P*b_omega/N")) == 0


def test_factors_are_of_the_matrices_of_a_stage_and_of_own_experts() -> None:
    """Over tensor parallelism every device has all sums, as over data parallelism."""
    factors = {
        "ddp * pp": "P*rho/N_pp",
        "zero1 * tp": "P*rho",
        "ddp * tp * pp": "P*rho/N_pp",
        "ddp * ep": "P_expert*rho/N_ep + (P - P_expert)*rho",
    }
    for text, expected in factors.items():
        held = derive(stepped(text)).memory["optimizer"].expand().coeff(sympy.Symbol("b_nu"))
        assert sympy.simplify(held - formula(expected)) == 0, text


# Numbers of tensors are those of the tensors that a device has.
OF_OTHER_LAYERS = """
mesh(dp, pp)
reference(optimizer={optimizer})
for i in microbatches:
    G += backward(parameters, i)
G = scale(all_reduce(G, dp), 1 / (dp * microbatches))
{sums}
parameters, optimizer = update_with(parameters, optimizer, G, {given})
"""
OF_OTHER_EXPERTS = """
mesh(dp, ep)
splits(ep="batch")
group(rest, P - P_expert)
group(expert, P_expert, experts=ep)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
place(gradients.expert, ep="S")
reference(optimizer=tensor_norm)
G = backward(parameters)
G.rest = all_reduce(G.rest, ep)
G = scale(all_reduce(G, dp), 1 / (dp * ep))
norms = all_reduce(tensor_norms(parameters.expert, optimizer.expert, G.expert), ep)
parameters.expert, optimizer.expert = update_with(parameters.expert, optimizer.expert, G.expert, norms)
parameters.rest, optimizer.rest = update(parameters.rest, optimizer.rest, G.rest)
"""
_LINES = "sums = all_reduce(line_sums(G), pp)\nnorms = tensor_norms(parameters, optimizer, G, sums)"
_NORMS = "norms = all_reduce(tensor_norms(parameters, optimizer, G), pp)"


@pytest.mark.parametrize(
    "text",
    [
        OF_OTHER_LAYERS.format(optimizer="factored", sums=_LINES, given="sums, norms"),
        OF_OTHER_LAYERS.format(optimizer="tensor_norm", sums=_NORMS, given="norms"),
        OF_OTHER_EXPERTS,
    ],
    ids=["lines of other layers", "norms of other layers", "norms of other experts"],
)
def test_numbers_of_other_tensors_are_not_added_up(text: str) -> None:
    """Nor does a run know what they would be."""
    judged = judge(resolve(read(text, source="other tensors")))
    assert judged.word == "unknown"
    assert "of numbers of tensors of which its devices have different ones" in judged.why
    assert "no small run was possible" in judged.why
    axis = "ep" if "experts" in text else "pp"
    right = text.replace(
        f"all_reduce(tensor_norms(parameters.expert, optimizer.expert, G.expert), {axis})",
        "tensor_norms(parameters.expert, optimizer.expert, G.expert)",
    )
    right = right.replace("all_reduce(line_sums(G), pp)", "line_sums(G)")
    right = right.replace("all_reduce(tensor_norms(parameters, optimizer, G), pp)", "tensor_norms(parameters, optimizer, G)")
    assert judge(resolve(read(right, source="own tensors"))).word == "proved"
