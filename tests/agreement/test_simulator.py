"""Runs of small programs: they and the proof agree on what each operation does, one operation at a time."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import Call, read, render
from placeproof.semantics.judge.search import RefutingRun, search, setups
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.devices.local import compute
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.problem import Problem
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.resolve import resolve
from placeproof.semantics.searched import Searched
from placeproof.strategies import parse_strategy

UPDATE = "parameters, optimizer = update(parameters, optimizer, g)\n"
MEAN = "all_reduce(backward(parameters), dp, op=mean)"
SUM = "all_reduce(backward(parameters), dp)"
#: Programs that train, and what turns each into one that does not.
PAIRS = {
    "a broadcast from its root": (
        f"mesh(dp=3)\ng = {MEAN}\nif rank(dp) != 2:\n    g = scale(g, 0)\ng = broadcast(g, dp, root=2)\n",
        "root=2", "root=1",
    ),
    "a broadcast from the first device": (
        f"mesh(dp)\ng = {MEAN}\nif rank(dp) != 0:\n    g = scale(g, 0)\ng = broadcast(g, dp, root=0)\n",
        "rank(dp) != 0", "rank(dp) == 0",
    ),
    "a number from the first device": (
        f"mesh(dp)\nk = 1\nif rank(dp) == 0:\n    k = 1 / 2\nk = broadcast(k, dp)\ng = scale({SUM}, 2 * k / dp)\n",
        "k = broadcast(k, dp)\n", "",
    ),
    "a sum of numbers": (
        f"mesh(dp)\nk = all_reduce(1, dp)\ng = scale({SUM}, 1 / k)\n",
        "all_reduce(1, dp)", "all_reduce(1, dp, op=mean)",
    ),
    "one minus a gradient, twice": (
        f"mesh(dp)\ng = 1 - (1 - {MEAN})\n",
        "1 - (1 - ", "1 + (1 - ",
    ),
    "a stream divided and multiplied": (
        "mesh(dp)\ny, activations = forward(parameters, data() / 2 * 2)\n"
        "g = all_reduce(backward(parameters, activations, 3 * loss(y) / 3), dp, op=mean)\n",
        "/ 2 * 2", "* 2 * 2",
    ),
    "a multiple of a number": (
        f"mesh(dp)\nk = scale(4, 1 / 2)\ng = scale({SUM}, k / (2 * dp))\n",
        "scale(4, 1 / 2)", "scale(4, 2)",
    ),
    "a power of a degree": (
        f"mesh(dp)\ng = scale({SUM}, dp ** 2 * dp ** -3)\n",
        "dp ** -3", "dp ** 3",
    ),
    "a difference": (
        f"mesh(dp)\ng = scale({SUM}, 2 / dp) - {MEAN}\n",
        " - ", " + ",
    ),
    "a quotient": (
        f"mesh(dp)\ng = {SUM} / dp\n",
        "/ dp", "* dp",
    ),
    "a copy on the host and back": (
        f"mesh(dp)\nh = to_host({MEAN})\ng = to_device(h)\n",
        ", op=mean", "",
    ),
    "added in place": (
        f"mesh(dp)\ng = {MEAN}\nzero(g)\ng += {MEAN}\n",
        "zero(g)\n", "",
    ),
    "gradients reduced to their owners": (
        "mesh(dp)\nplace(optimizer, dp=S)\nplace(parameters, dp=R)\nplace(gradients, dp=S)\n"
        "g = reduce(backward(parameters), dp, op=mean)\n",
        "op=mean)", "op=mean, root=0)",
    ),
    "a number reduced to the first device": (
        f"mesh(dp)\nk = broadcast(reduce(1, dp), dp)\ng = scale({SUM}, 1 / k)\n",
        "reduce(1, dp)", "reduce(1, dp, op=max)",
    ),
    "the smaller and the larger of two, in either order": (
        f"mesh(dp)\na = dp\nb = 2\ng = scale({MEAN}, min(a, b) - min(b, a) + 1 + max(a, b) - max(b, a))\n",
        "max(b, a)", "max(b, b)",
    ),
    "a scaler and its flag": (
        f"mesh(dp)\na = all_reduce(square_norm(backward(parameters)), dp)\nb = dp\ng = scale({MEAN}, rescale(a, b) - rescale(a, b) + 1)\n",
        "- rescale(a, b)", "- rescale(b, a)",
    ),
    "what nothing wrote in this step": (
        "mesh(dp)\nfor i in microbatches:\n    s += backward(parameters, i)\n    n += 1\n"
        "g = scale(all_reduce(s, dp, op=mean), 1 / n)\n",
        "    n += 1", "    n += 2",
    ),
    "parts and their owners": (
        "mesh(dp)\nplace(optimizer, dp=S)\nplace(parameters, dp=R)\nplace(gradients, dp=S)\n"
        f"g = part({MEAN}, dp)\n",
        "op=mean", "op=max",
    ),
}  # fmt: skip
#: What is done to a number that has no parts.
IN_PARTS = [
    "all_gather({k}, dp)",
    "reduce_scatter({k}, dp)",
    "part({k}, dp)",
    "broadcast({k}, dp, root=owner)",
    "reduce({k}, dp, root=owner)",
]


@pytest.mark.parametrize("call", IN_PARTS)
@pytest.mark.parametrize("number", ["dp", "1 / 3", "square_norm(gradients)"])
def test_a_number_has_no_parts(call: str, number: str) -> None:
    with pytest.raises(InputError, match="PP309"):
        judge(read(f"mesh(dp=3)\nk = {call.format(k=number)}\ng = scale({SUM}, k)\n{UPDATE}"))


GATHERED = "parameters = all_gather(parameters, dp)\n"


def programs(name: str) -> tuple[str, str]:
    text, old, new = PAIRS[name]
    text += UPDATE + (GATHERED if "place(" in text else "")
    assert text.count(old) == 1, name
    return text, text.replace(old, new)


@pytest.mark.parametrize("name", PAIRS)
def test_an_operation_does_what_the_proof_says_of_it(name: str) -> None:
    right, wrong = programs(name)
    assert judge(read(right)).word == "proved"
    ran = search(resolve(read(right)))
    assert isinstance(ran, Searched)
    assert ran.runs > 0
    assert judge(read(wrong), shortest=False).word == "refuted"
    assert isinstance(search(resolve(read(wrong))), RefutingRun)


#: All-reduces of what a step has, by the kind of value.
ALL_REDUCED = {
    "a gradient": ("dp", f"mesh(dp=3)\ng = scale({SUM}, 1 / 3)\n{UPDATE}"),
    "a number": (
        "dp",
        f"mesh(dp=3)\nk = all_reduce(1, dp)\ng = scale(reduce_scatter(backward(parameters), dp), 1 / k)\ng = all_gather(g, dp)\n{UPDATE}",
    ),
    "a stream": ("tp", render(lower(parse_strategy("tp(2)")))),
    "a number for each tensor": (
        "dp",
        "mesh(dp=2)\nplace(parameters, dp='S*')\nplace(optimizer, dp=S)\nplace(gradients, dp=S)\nreference(optimizer=tensor_norm)\n"
        "g = reduce_scatter(backward(all_gather(parameters, dp)), dp, op=mean)\n"
        "norms = all_reduce(tensor_norms(parameters, optimizer, g), dp)\n"
        "parameters, optimizer = update_with(parameters, optimizer, g, norms)\n",
    ),
}


@pytest.mark.parametrize("name", ALL_REDUCED)
def test_what_is_reduced_to_one_device_is_there_and_nowhere_else(name: str) -> None:
    axis, whole = ALL_REDUCED[name]
    reduced = re.sub(rf"all_reduce\((.*), {axis}\)", rf"{{}}reduce(\1, {axis}, root=1){{}}", whole)
    assert reduced != whole
    for sent, right in ((f", {axis}, root=1)", True), (f", {axis}, root=0)", False), (None, False)):
        around = ("", "") if sent is None else ("broadcast(", sent)
        program = read(reduced.format(*around * (reduced.count("{}") // 2)))
        assert judge(program, shortest=False).word == ("proved" if right else "refuted"), sent
        assert isinstance(search(resolve(program)), Searched if right else RefutingRun), sent


@pytest.mark.parametrize(
    "subject", ["fsdp(prefetch=true)", "hsdp(prefetch=true)", "zero3(prefetch=true, bucket=unit)", "zero_infinity(prefetch=true)"]
)
def test_parts_that_are_gathered_ahead_arrive(subject: str) -> None:
    program = lower(parse_strategy(subject))
    assert judge(program).word == "proved"
    ran = search(program, seconds=60)
    assert isinstance(ran, Searched)
    assert ran.runs > 0


def test_small_meshes_come_first_and_none_is_too_large() -> None:
    for subject in ("ddp", "hsdp", "fsdp(reshard_after_forward=2)", "zeropp", "zero3 * tp * pp"):
        program = resolve(lower(parse_strategy(subject)))
        inner = {a.inner_name for a in program.axes if a.inner is not None}
        sizes = []
        for setup in setups(program, frozenset()):
            devices = 1
            for axis, degree in setup.degrees.items():
                devices *= 1 if axis in inner else degree
            assert devices <= 12
            sizes.append(devices * setup.microbatches * setup.layers_per_stage)
        assert sizes == sorted(sizes)
        assert max(sizes) > 1


def test_sub_groups_have_up_to_three_devices_and_there_are_up_to_three_of_them() -> None:
    program = lower(parse_strategy("zeropp"))
    (axis,) = program.axes
    tried = {(s.degrees[axis.inner_name], s.degrees[axis.name]) for s in setups(program)}
    assert tried == {(inner, inner * outer) for inner in (1, 2, 3) for outer in (1, 2, 3)}


def test_no_run_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked for is counted in runs: each draws other numbers, or has another mesh."""
    made: list[Setup] = []
    monkeypatch.setattr("placeproof.semantics.judge.search.run", lambda _, setup: made.append(setup))
    ran = search(lower(parse_strategy("hsdp * accumulate")))
    assert isinstance(ran, Searched)
    assert ran.runs == len(made) == len({repr(s) for s in made}) > len({s.seed for s in made}) > 1


@pytest.mark.parametrize(("small", "numbers"), [(True, {0, 1}), (False, {-1, 1, 2})])
def test_a_run_for_people_begins_with_small_numbers(small: bool, numbers: set[int]) -> None:
    program = lower(parse_strategy("tp"))
    setup = Setup(degrees={"tp": 2}, small=small)
    layout = Layout(program, setup)
    problem = Problem(layout=layout, seed=1, small=small)
    assert {problem.initial(e) for e in layout.elements} == numbers
    assert {v for at in range(9) for v in problem.sample((at,), 0, "input").values()} == numbers


def test_a_quantizer_that_is_not_exact_keeps_no_number_that_is_drawn() -> None:
    program = lower(parse_strategy("ddp"))
    setup = Setup(degrees={"dp": 1}, without=frozenset({"exact-quantizers"}))
    for exact in (True, False):
        (place,) = Run(resolve(program), setup if not exact else replace(setup, without=frozenset())).places
        held = place.state("parameters")
        drawn = held.with_(np.array([Fraction(n - 3) for n in range(held.data.size)], dtype=object).reshape(held.data.shape), held.have)
        rounded = compute(place, Call(op="quantize"), [drawn], 1)
        assert (rounded.data == drawn.data).all() == exact
        assert (rounded.data == drawn.data).any() == exact


def test_a_power_is_undefined_where_its_quotient_is() -> None:
    for text in (
        "g = scale({mean}, k / k)",
        "g = scale({mean}, k * k ** -1)",
        "g = scale({mean}, k ** 2 / k ** 2)",
        "g = scale({mean}, k ** 3 * k ** -3)",
    ):
        program = f"mesh(dp)\nk = square_norm(gradients)\n{text.format(mean=MEAN)}\n{UPDATE}"
        judged = judge(read(program))
        assert judged.word != "proved", text
        assert any(
            "divi" in settled.obligation.name or "divi" in settled.verdict.why
            for settled in judged.settled
            if hasattr(settled.verdict, "why")
        ), text


LOOPS = {
    "a number halved for each unit": "k = 2\nfor u in units:\n    k = k / 2\ng = scale({mean}, k)\n",
    "a gradient halved for each unit": "g = scale({mean}, 2)\nfor u in units:\n    g = scale(g, 1 / 2)\n",
    "a number halved for each micro-batch": (
        "k = 2\nfor i in microbatches:\n    k = k / 2\n    s += backward(parameters, i)\n"
        "g = scale(all_reduce(s, dp, op=mean), k / microbatches)\n"
    ),
    "an input doubled for each unit": (
        "x = data() / 2\nfor u in units:\n    x = scale(x, 2)\ny, activations = forward(parameters, x)\n"
        "g = all_reduce(backward(parameters, activations, loss(y)), dp, op=mean)\n"
    ),
    "a number that grows on the first device": "k = 1\nfor u in units:\n    if rank(dp) == 0:\n        k = k + 1\ng = scale({mean}, k)\n",
}


@pytest.mark.parametrize("name", LOOPS)
def test_one_iteration_does_not_stand_for_all(name: str) -> None:
    """Each trains if there is one unit or micro-batch, or none, and not otherwise."""
    program = read("mesh(dp)\n" + LOOPS[name].format(mean=MEAN) + UPDATE)
    judged = judge(program)
    assert judged.word == "refuted"
    assert isinstance(judged.found, RefutingRun)


PASS = """\
mesh(dp)
x = data()
for u in units:
    w = parameters[u]
    if rank(dp) == 0:
        w = {other}
    x, activations[u] = forward(w, x)
dx = loss(x)
for u in reversed(units):
    gradients[u], dx = backward(parameters[u], activations[u], dx)
g = all_reduce(gradients, dp, op=mean)
"""


@pytest.mark.parametrize(
    ("other", "word"),
    [("parameters[u]", "proved"), ("copy(parameters[u])", "proved"), ("parameters[0]", "refuted"), ("stale(parameters[u], 1)", "refuted")],
)
def test_both_ways_of_a_branch_hold_the_same_part(other: str, word: str) -> None:
    assert judge(read(PASS.format(other=other) + UPDATE), shortest=False).word == word


def test_devices_that_hold_another_part_are_seen_from_either_side() -> None:
    """All parameters are the reference's, but one device has those of the first unit: wherever the branch says so."""
    first = PASS.format(other="parameters[0]")
    others = first.replace("    w = parameters[u]\n", "    w = parameters[0]\n").replace("rank(dp) == 0", "rank(dp) != 0")
    others = others.replace("        w = parameters[0]\n", "        w = parameters[u]\n")
    assert others.index("w = parameters[0]") < others.index("w = parameters[u]")
    assert judge(read(first + UPDATE), shortest=False).word == "refuted"
    assert judge(read(others + UPDATE), shortest=False).word == "refuted"
