"""Whether one step does what another does: recorded steps against strategies, and programs that differ in one thing."""

import ast
import json
from fractions import Fraction
from pathlib import Path

import pytest

from placeproof.cli.main import run
from placeproof.programs import Program, read
from placeproof.semantics.judge.refine import Product, differences, refine
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

SCRIPTS = Path(__file__).parents[1] / "scripts"
TRACES = Path(__file__).parents[1] / "traces"


def strategy(name: str) -> str | None:
    """The ``STRATEGY`` of a script, read and not run."""
    for node in ast.parse((SCRIPTS / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "STRATEGY":
            found = ast.literal_eval(node.value)
            return str(found) if found is not None else None
    return None


MEANT = {p.stem: meant for p in sorted(TRACES.glob("*.step")) if (meant := strategy(p.stem)) is not None}
#: Scripts that do what they are meant to and something else besides.
MORE = {"all_reduce_by_hand", "ddp_seeds"}


def program(text: str) -> Program:
    return read(text, source="here.step")


def recorded(name: str) -> Program:
    return read((TRACES / f"{name}.step").read_text(), source=f"{name}.step")


def lowered(text: str) -> Program:
    return lower(parse_strategy(text))


@pytest.mark.parametrize(
    ("number", "powers", "shown"),
    [
        (Fraction(1), (), "1"),
        (Fraction(3, 4), (), "3 / 4"),
        (Fraction(1), (("dp", 1),), "dp"),
        (Fraction(1), (("dp", -1),), "1 / dp"),
        (Fraction(1, 2), (("dp", -1), ("tp", 2)), "tp**2 / (2 * dp)"),
        (Fraction(5), (("dp", -2), ("m", 1)), "5 * m / dp**2"),
    ],
)
def test_a_product_is_shown_as_a_fraction(number: Fraction, powers: tuple[tuple[str, int], ...], shown: str) -> None:
    assert Product(number, powers).shown({}) == shown


@pytest.mark.parametrize("name", [n for n in MEANT if not n.startswith("wrong_")])
def test_correct_scripts_refine_their_strategy(name: str) -> None:
    found = refine(recorded(name), lowered(MEANT[name]))
    assert found.word == ("differs, and both are proved" if name in MORE else "refines")
    assert [d.part for d in found.differences if d.part != "without"] == (["sent"] if name in MORE else [])


@pytest.mark.parametrize("name", [n for n in MEANT if n.startswith("wrong_")])
def test_wrong_scripts_differ_from_their_strategy_and_are_refuted(name: str) -> None:
    found = refine(recorded(name), lowered(MEANT[name]))
    assert found.word == "differs, and the recorded step is refuted"
    assert found.differences


#: By name of a recorded script: the parts in which it differs from its strategy.
PARTS = {
    "wrong_accumulate": {"scale"},
    "wrong_double_average": {"scale"},
    "wrong_no_sync": {"reduced", "scale"},
    "wrong_mesh": {"reduced", "scale"},
    "wrong_sp_norm": {"reduced"},
    "wrong_tp_backward": {"block backward"},
    "wrong_tp_forward": {"block forward"},
    "wrong_zero1_gather": {"refreshed"},
    "wrong_same_data": {"same"},
    "wrong_uneven": {"without"},
    "wrong_batch_norm": {"reference"},
}


@pytest.mark.parametrize("name", PARTS)
def test_the_difference_is_where_the_mistake_is(name: str) -> None:
    assert {d.part for d in differences(recorded(name), lowered(MEANT[name]))} == PARTS[name]


BASE = """
mesh(dp)
place(parameters, dp="R")
place(optimizer, dp="S")
gradients = scale(reduce_scatter(backward(parameters), dp), 1 / dp)
parameters, optimizer = update(parameters, optimizer, gradients)
parameters = all_gather(parameters, dp)
"""


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("scale(reduce_scatter(backward(parameters), dp), 1 / dp)", "reduce_scatter(backward(parameters), dp, op=mean)", set()),
        ("scale(reduce_scatter(backward(parameters), dp), 1 / dp)", "reduce_scatter(scale(backward(parameters), 1 / dp), dp)", set()),
        ("reduce_scatter(backward", "all_reduce(backward", set()),
        ("all_gather(parameters, dp)", "broadcast(parameters, dp, root=owner)", set()),
        ("1 / dp", "1 / (dp * dp)", {"scale"}),
        ("1 / dp", "2 / dp", {"scale"}),
        ("reduce_scatter(backward(parameters), dp)", "backward(parameters)", {"reduced"}),
        ("parameters = all_gather(parameters, dp)\n", "", {"refreshed"}),
        ("gradients = scale", "parameters = broadcast(parameters, dp, root=0)\ngradients = scale", {"sent"}),
        ("gradients = scale", "y = all_to_all(parameters, dp)\ngradients = scale", {"all_to_all"}),
        ("gradients = scale", "y = all_gather(optimizer, dp)\ngradients = scale", {"all_gather"}),
        ("gradients = scale", "y = all_reduce(found_inf(parameters), dp, op=max)\ngradients = scale", {"all_reduce"}),
    ],
)
def test_what_is_part_of_the_form_and_what_is_not(old: str, new: str, parts: set[str]) -> None:
    assert old in BASE
    assert {d.part for d in differences(program(BASE.replace(old, new)), program(BASE))} == parts


def test_a_collective_that_is_no_part_of_the_form_is_named() -> None:
    found = refine(program(BASE.replace("gradients = scale", "y = all_to_all(parameters, dp)\ngradients = scale")), program(BASE))
    assert found.word != "refines"
    assert [(d.part, d.left, d.right) for d in found.differences] == [("all_to_all", "dp", "nothing")]


def test_the_first_unit_is_held_to_the_same() -> None:
    kept = (TRACES / "fsdp2.step").read_text()
    other = lowered("fsdp(root=keep)")
    assert differences(program(kept), other) == ()
    forgotten = kept.replace("gradients[0] = scale(reduce_scatter(", "gradients[0] = scale((").replace(
        "activations[0], dx), dp), 1", "activations[0], dx)), 1"
    )
    assert forgotten != kept
    found = differences(program(forgotten), other)
    assert {(d.part, d.left, d.right) for d in found if d.group == "all, first unit"} == {("reduced", "nothing", "dp")}


def test_what_is_summed_for_the_norm_counts_and_not_what_is_handed_on() -> None:
    clipped = (
        "mesh(dp, tp)\nreference(clip=global_norm)\ng = all_reduce(backward(parameters), dp, op=mean)\nn = square_norm(g)\n"
        "{again}g = scale(g, clip_factor(sqrt({norm})))\nparameters, optimizer = update(parameters, optimizer, g)\n"
    )
    once = program(clipped.format(again="", norm="n"))
    handed_on = program(clipped.format(again="k = broadcast(n, tp)\n", norm="k"))
    summed = program(clipped.format(again="k = all_reduce(n, tp)\n", norm="k"))
    assert refine(once, handed_on).word == "refines"
    assert [(d.part, d.left, d.right) for d in differences(once, summed)] == [("norm", "nothing", "tp")]


def test_the_norm_that_clips_is_compared() -> None:
    right, wrong = recorded("clip"), recorded("wrong_clip_local")
    assert differences(right, right) == ()
    assert [(d.part, d.left, d.right) for d in differences(wrong, right)] == [("norm", "nothing", "dp")]


def test_axes_of_another_name_are_the_same_axis() -> None:
    assert differences(program(BASE.replace("dp", "g0").replace("mesh(g0)", 'mesh(g0)\nsplits(g0="batch")')), program(BASE)) == ()


def test_a_step_that_is_refuted_never_refines() -> None:
    wrong = program(BASE.replace("1 / dp", "1"))
    found = refine(wrong, wrong)
    assert found.differences == ()
    assert found.word == "differs, and the recorded step is refuted"


def test_against_something_that_is_not_proved_nothing_is_claimed() -> None:
    found = refine(program(BASE), program(BASE.replace("1 / dp", "1")))
    assert found.word == "unknown"
    assert found.right.word == "refuted"


@pytest.mark.parametrize(
    ("name", "against", "code", "words"),
    [
        ("zero1_by_hand", "zero1", 0, "refines zero1"),
        ("ddp", "zero1", 0, "differs, and both are proved (against zero1)"),
        ("wrong_sum", "ddp", 1, "differs, and the recorded step is refuted (against ddp)"),
        ("zero1_by_hand", str(TRACES / "wrong_zero1_gather.step"), 3, "unknown"),
    ],
)
def test_the_command(name: str, against: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(TRACES / f"{name}.step")
    assert run(["prove", path, "--against", against]) == code
    assert words in capsys.readouterr().out
    assert run(["prove", path, "--against", against, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["against"] == against
    assert (code == 0) == (told["verdicts"][0] == told["verdicts"][1] == "proved")


def test_both_sides_are_shown_with_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", str(TRACES / "wrong_mesh.step"), "--against", "hsdp(root=keep)"]) == 1
    said = capsys.readouterr().out
    first = said.partition("then also")[0]
    assert "the first difference: gradients are reduced over" in first
    assert "wrong_mesh.step: shard\n" in first
    assert "hsdp(root=keep): rep, shard\n" in first
    assert len([line for line in first.splitlines() if line.strip(" |").startswith("^^^")]) == 2


def test_a_block_does_what_it_does_itself() -> None:
    """It has no states, so nothing flows into any."""
    text = "mesh(tp)\ntensor(x, batch, ffn, tp=ffn)\ntensor(w, ffn, tp=ffn)\ny = all_reduce(contract(x, w, over=ffn), tp)\nreturns(y)\n"
    refined = refine(program(text), program(text))
    assert (refined.word, refined.left.word) == ("refines", "proved")


ONE = """program("one")
mesh(dp)
{groups}
place(parameters, dp="R")
place(optimizer, dp="R")
place(gradients, dp="R")
x = data()
x, activations = forward(parameters, x)
dx = loss(x)
gradients = backward(parameters, activations, dx)
gradients = all_reduce(gradients, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


def test_groups_of_other_names_are_held_against_all() -> None:
    groups = ["", "group(m, P - P_norm)\ngroup(norm, P_norm)", "group(m, P - P_tied)\ngroup(tied, P_tied)"]
    none, norm, tied = (program(ONE.format(groups=text)) for text in groups)
    for left in (none, norm, tied):
        for right in (none, norm, tied):
            assert differences(left, right) == ()
    apart = 'place(optimizer.m, dp="R")\nplace(optimizer.norm, dp="S")'
    split = program(ONE.format(groups=groups[1]).replace('place(optimizer, dp="R")', apart))
    assert [d.part for d in differences(split, norm)] == ["optimizer"]
    assert {d.part for d in differences(split, tied)} == {"optimizer"}
