"""Steps whose update reads whole matrices are right as they are lowered, and wrong where a matrix is not whole: proofs, runs on devices and
the interpreter that was written from the manual say so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import sympy
from manual_truth import at_the_witness, right
from matrix_steps import STEPS, WRITTEN, without
from samples import sample

import placeproof
from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.programs import Program, calls, read, render, render_expression, statements
from placeproof.semantics.composition import composed
from placeproof.semantics.judge.refine import refine
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy


def stepped(text: str, how: str = "gathered") -> Program:
    return lower(parse_strategy(f"{text} * muon({how})"))


def gathers(program: Program) -> set[str]:
    """The axes over which momentum is gathered."""
    every = (c for s in statements(program.body) for c in calls(s) if c.op == "all_gather")
    return {axis for c in every if "momentum(" in render_expression(c) for axis in c.axes}


def edited(program: Program) -> Iterator[tuple[str, Program]]:
    """The program without one of what makes matrices whole: an axis of a gather, what is made of the matrix, the direction; without a
    reduction before it; with the momentum of an earlier step."""
    lines = render(program).splitlines()
    for number, line in enumerate(lines):
        edits: dict[str, str] = {}
        if "= all_gather(" in line and "momentum(" in line:
            edits |= without(line, "all_gather")
            edits["an old state"] = re.sub(r"momentum\((optimizer\.\w+\[u\])", r"momentum(stale(\1, 1)", line)
        elif "orthogonalize(" in line:
            edits["no matrix"] = line.replace("orthogonalize(matrices)", "matrices")
        elif "update_with(" in line:
            edits["no direction"] = re.sub(r"update_with\((.*), (?:to_host\()?part\(directions[^()]*\)+$", r"update(\1)", line)
        elif line.startswith("gradients") and "backward" not in line:
            edits |= without(line, "reduce_scatter")
            edits |= without(line, "all_reduce")
        for what, new in edits.items():
            assert new != line
            yield what, read("\n".join([*lines[:number], new, *lines[number + 1 :]]), source="edited")


def runs(text: str, how: str) -> bool | None:
    """Whether small runs end as one device does, as the interpreter has it; None where it says nothing of the strategy without Muon."""
    return right(stepped(text, how)) if right(lower(parse_strategy(text))) else None


@pytest.mark.parametrize(
    ("text", "how", "link"),
    [
        ("(R, O, S, R, dp)", "gathered", "P*(b_g + 3*b_theta)/N"),  # gradients there; momentum back, directions there, parameters back
        ("(S*, O, S, R, dp)", "exchanged", "P*(b_g + 3*b_theta)/N"),
        ("(R, S, O, R, dp)", "gathered", "2*P*b_g/N"),  # there as they are reduced, and back
        ("zero_offload", "gathered", "P*(b_g + 3*b_theta)/N"),
    ],
)
def test_gradients_cross_the_host_link_once(text: str, how: str, link: str) -> None:
    """However often the update reads them: for the momentum, and with the direction."""
    program = stepped(text, how)
    symbols = {name: sympy.Symbol(name) for name in ("P", "N", "b_g", "b_theta")}
    assert sympy.simplify(derive(program).host_link - sympy.sympify(link, locals=symbols)) == 0
    assert judge(resolve(program)).word == "proved"


@pytest.mark.parametrize("text", sample(list(STEPS), lambda text: {STEPS[text], *text.split(" * ")[1:]}))
def test_a_step_with_whole_matrices_trains_and_none_that_lacks_one_does(text: str) -> None:
    program = stepped(text)
    assert dict(program.reference)["optimizer"] == "orthogonal"
    assert gathers(program) == set(STEPS[text].split())
    assert judge(resolve(program)).word == "proved"
    ran = runs(text, "gathered")
    assert ran is not False
    for what, wrong in edited(program):
        judged = judge(resolve(wrong))
        assert judged.word == "refuted", what
        assert not ran or at_the_witness(judged), what


def test_many_things_can_be_wrong() -> None:
    wrong = [what for text in STEPS for what, _ in edited(stepped(text))]
    assert {*wrong} >= {
        "no all_gather over dp",
        "no all_gather over tp",
        "an old state",
        "no matrix",
        "no direction",
        "no all_reduce over dp",
    }
    assert len(wrong) > 3 * len(STEPS)


@pytest.mark.parametrize("text", sample(list(STEPS), lambda text: {STEPS[text], *text.split(" * ")[1:]}))
def test_parts_that_are_whole_matrices_need_no_exchange_but_over_the_hidden_axis(text: str) -> None:
    program = stepped(text, "owned")
    assert gathers(program) == set(STEPS[text].split()) & {"tp"}
    assert judge(resolve(program)).word == "proved"
    assert runs(text, "owned") is not False
    if set(STEPS[text].split()) - {"tp"}:  # of parts that are not whole, devices have no whole matrices
        cut = read(re.sub(r", whole=(\w+|\"[^\"]*\")", "", render(program)), source="cut")
        assert judge(resolve(cut), shortest=False).word == "refuted"


OWN = {"axes": {"dp": {"splits": "batch"}}, "placement": {"dp": {"parameters": "R", "optimizer": "S", "gradients": "S"}}}


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({"update": "orthogonal", "matrices": "reduced"}, "does not bring together"),
        ({"update": "factored", "matrices": "exchanged"}, "does not bring together"),
        ({"update": "factored"}, "nothing says what brings together"),
        ({"update": "nonsense", "matrices": "owned"}, "no update of whole matrices"),
        ({"matrices": "gathered"}, "no update reads whole ones"),
    ],
)
def test_a_strategy_of_one_s_own_says_what_its_update_reads(schedule: dict[str, str], text: str) -> None:
    with pytest.raises(InputError, match=text) as refused:
        placeproof.derive(placeproof.define("mine", schedule=schedule, **OWN))
    assert [d.code for d in refused.value.diagnostics] == ["PP104"]
    right = {"update": "factored", "matrices": "reduced"}
    assert placeproof.judge(placeproof.define("mine", schedule=right, **OWN)).word == "proved"


EXCHANGED = ("zero1", "zero3", "hsdp", "tp", "zero_infinity", "zero1 * tp * clip", "fsdp * tp * sp * pp", "zero1 * zero1(dp=ep) * ep")


@pytest.mark.parametrize("text", sample(EXCHANGED, lambda text: {STEPS[text]}))
def test_matrices_may_be_sent_to_owners_and_directions_back(text: str) -> None:
    """Where one of both is not, is sent to others, or is read as it came, the step is another."""
    program = stepped(text, "exchanged")
    assert judge(resolve(program)).word == "proved"
    assert runs(text, "exchanged") is not False
    shown = render(program)
    there, back = (
        next(line for line in shown.splitlines() if f"order={order}" in line and "expert" not in line) for order in ("matrices", "blocked")
    )
    axes = ", ".join(STEPS[text].split())
    for wrong in (
        shown.replace(there, re.sub(r"all_to_all\((.*), order=matrices\)", r"\1", there).replace(f", {axes}", "")),
        shown.replace(back, re.sub(r"all_to_all\(directions.*order=blocked\)", "directions", back)),
        shown.replace("order=blocked", "order=matrices"),
        shown.replace("order=matrices", "order=blocked"),
    ):
        assert wrong != shown
        assert judge(resolve(read(wrong, source="wrong")), shortest=False).word == "refuted", wrong


def test_what_owners_are_sent_is_a_part_of_a_part() -> None:
    """And so is what they send: 2 (N - 1) / N**2 of all matrices, where a gather sends (N - 1) / N."""
    own, gathered = (derive(stepped("zero1", how)).messages for how in ("exchanged", "gathered"))
    sent = {str(m.collective): m.total for m in own.messages if m.state == "momentum"}
    (all_of_it,) = (m.total for m in gathered.messages if m.state == "momentum")
    assert str(sympy.simplify(sent["all_to_all"] / all_of_it)) == "2/N"


def test_the_interpreter_of_the_manual_speaks_of_many() -> None:
    assert [runs(text, how) for text in ("zero1", "ddp", "zero3", "hsdp") for how in ("gathered", "owned")] == [True] * 8


ALL = "parameters, optimizer = update(parameters, optimizer, g)"
APART = "parameters.norm, optimizer.norm = update(parameters.norm, optimizer.norm, g.norm)\n"
GIVEN = "parameters.matrix, optimizer.matrix = update_with(parameters.matrix, optimizer.matrix, g.matrix, {direction})"
DIRECTION = "part(orthogonalize(all_gather(momentum(optimizer.matrix, g.matrix), dp)), dp)"
PART, TWICE = "momentum(optimizer.matrix, g.matrix)", "momentum(optimizer.matrix, scale(g.matrix, 2))"
ALONE = ", update=elementwise"
CASES = [
    ("", ALONE, "orthogonal", DIRECTION, "proved"),
    ("", "", "orthogonal", DIRECTION, "refuted"),  # norms of which the update reads the whole, too
    (", whole=dp", ", whole=dp", "orthogonal", "", "proved"),
    (", whole=dp", ALONE, "matrix", "", "proved"),
    ("", ALONE, "matrix", "", "refuted"),
    (", whole=dp", ALONE, "tensor_norm", "", "proved"),
    (ALONE, ALONE, "orthogonal", "", "proved"),
    # A direction where the reference has none, or of elements alone; of a part; of another gradient.
    ("", ALONE, "elementwise", DIRECTION, "refuted"),
    (ALONE, ALONE, "orthogonal", DIRECTION, "refuted"),
    ("", ALONE, "orthogonal", PART, "refuted"),
    ("", ALONE, "orthogonal", f"orthogonalize({PART})", "refuted"),
    ("", ALONE, "orthogonal", DIRECTION.replace(PART, TWICE), "refuted"),
]


@pytest.mark.parametrize(("options", "norm", "optimizer", "direction", "word"), CASES)
def test_a_group_says_how_its_elements_are_updated(options: str, norm: str, optimizer: str, direction: str, word: str) -> None:
    step = APART + GIVEN.format(direction=direction) if direction else ALL
    program = read(WRITTEN.format(options=options, norm=norm, optimizer=optimizer, step=step), source="written")
    assert judge(resolve(program), shortest=False).word == word
    assert right(program) == (word == "proved")


EXPERTS = """
mesh(dp, ep)
splits(ep="batch")
group(rest, P - P_expert, update=elementwise)
group(expert, P_expert, experts=ep{whole})
place(parameters.expert, ep="S")
place(optimizer.rest, dp="S")
place(optimizer.expert, dp="S", ep="S")
reference(optimizer=orthogonal)
g = backward(parameters)
g.rest = all_reduce(g.rest, ep)
g = scale(reduce_scatter(g, dp), 1 / (dp * ep))
parameters, optimizer = update(parameters, optimizer, g)
parameters = all_gather(parameters, dp)
"""


@pytest.mark.parametrize(("whole", "word"), [("", "refuted"), (", whole=dp", "proved")])
def test_an_expert_is_a_matrix_of_its_own(whole: str, word: str) -> None:
    """Which needs nothing of the other devices of experts."""
    program = read(EXPERTS.format(whole=whole), source="experts")
    assert judge(resolve(program), shortest=False).word == word


def test_which_parts_of_experts_make_a_matrix_has_to_be_known() -> None:
    with pytest.raises(InputError, match="which parts of experts make one"):
        stepped("ep * tp")
    text = render(lower(parse_strategy("ep * tp"))).replace("x = data()", "reference(optimizer=matrix)\nx = data()", 1)
    assert judge(resolve(read(text, source="experts")), shortest=False).word in ("unknown", "refuted")


@pytest.mark.parametrize(("text", "how", "sent"), [("zero1", "gathered", 1), ("zero1", "owned", 0), ("zero1 * tp", "gathered", 1)])
def test_a_step_says_what_it_costs(text: str, how: str, sent: int) -> None:
    """Of matrices, what one gather sends over all axes; of the rest, and of parts that are whole matrices, nothing."""
    d, plain = derive(stepped(text, how), groups=True), derive(lower(parse_strategy(text)), groups=True)
    rows = [m for m in d.messages.messages if m.state == "momentum"]
    assert len(rows) == sent
    assert all({str(s) for s in row.bytes.free_symbols} >= {"P", "P_norm", "b_theta"} for row in rows)
    assert d.memory["model_states"] == plain.memory["model_states"]


@pytest.mark.parametrize("text", ["zero1", "tp", "zero1 * tp * pp"])
def test_the_rule_of_composition_leaves_it_to_a_direct_proof(text: str) -> None:
    assert composed(stepped(text)).verdict is None


APART_GROUPS = """
mesh(dp)
group(matrix, P - P_norm)
group(norm, P_norm, update=elementwise)
reference(optimizer=orthogonal)
g = backward(parameters)
g.matrix = all_reduce(g.matrix, dp, op=mean)
g.norm = {reduced}(g.norm, dp, op=mean)
parameters.matrix, optimizer.matrix = update(parameters.matrix, optimizer.matrix, g.matrix)
parameters.norm, optimizer.norm = update(parameters.norm, optimizer.norm, g.norm)
parameters.norm = all_gather(parameters.norm, dp)
"""


@pytest.mark.parametrize(("reduced", "mode"), [("all_reduce", "R"), ("reduce_scatter", "S")])
def test_a_state_lies_as_the_update_of_its_own_group_reads_gradients(reduced: str, mode: str) -> None:
    program = resolve(read(APART_GROUPS.format(reduced=reduced), source="apart"))
    placed = {p.group: dict(p.modes)["dp"].symbol for p in program.placed if p.state == "optimizer"}
    assert (placed.get("norm", placed.get(None)), placed.get("matrix", placed.get(None))) == (mode, "R")
    assert judge(program).word == "proved"


def test_steps_that_update_a_group_otherwise_are_held_against_different_ones() -> None:
    """The same lines, and another update of norms. Where the reference is element-wise, to say it of a group adds nothing."""
    text = APART_GROUPS.format(reduced="all_reduce")
    plain = text.replace("reference(optimizer=orthogonal)\n", "")
    found = refine(read(text, source="one"), read(text.replace(", update=elementwise", ""), source="other"))
    assert found.word == "differs, and both are proved"
    assert [(d.part, d.group, d.left, d.right) for d in found.differences] == [("reference", "norm", "nothing", "optimizer=orthogonal")]
    alike = refine(read(plain, source="one"), read(plain.replace(", update=elementwise", ""), source="other"))
    assert alike.word == "refines"
