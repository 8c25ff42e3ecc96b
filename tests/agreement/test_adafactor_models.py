"""Adafactor beside a model: its factors, counted from the shapes of a file by hand, and what the step sends and holds of them."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from placeproof.cli.main import run
from placeproof.cost.model.derivation import ModelDerivation, derive_model
from placeproof.models import load
from placeproof.report.models.derivation import AVERAGE
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.strategies import parse_strategy

LLAMA = {"h": 8, "a": 4, "a_kv": 2, "f": 12, "V": 16, "L": 4, "s": 4}
GPT = {"h": 8, "a": 2, "V": 16, "L": 4, "s": 4, "n_pos": 6}
MIXTRAL = {**{n: v for n, v in LLAMA.items() if n != "f"}, "E": 6, "k": 2, "f_e": 10}
SIZES = {"llama3-8b": LLAMA, "gpt3-125m": GPT, "mixtral-8x7b": MIXTRAL}
NUMBERS = {n: Fraction(v) for n, v in {"b_theta": 2, "b_g": 3, "b_master": 5, "b_nu": 7, "b_s": 11, "b": 1, "m": 4, "c": 1}.items()}

#: Of each model: matrices and other weights of a layer, of one of its experts, before the layers and behind them.
Shapes = list[tuple[int, ...]]
SHAPES: dict[str, tuple[Shapes, Shapes, Shapes, Shapes]] = {
    "llama3-8b": ([(8, 8), (8, 4), (8, 4), (8, 8), (8, 12), (8, 12), (12, 8), (8,), (8,)], [], [(16, 8)], [(8,), (8, 16)]),
    "gpt3-125m": (
        [(8, 8)] * 4 + [(8,)] * 4 + [(8, 32), (32,), (32, 8), (8,)] + [(8,)] * 4,
        [],
        [(16, 8), (6, 8)],
        [(8,), (8,)],
    ),
    "mixtral-8x7b": ([(8, 8), (8, 4), (8, 4), (8, 8), (8, 6), (8,), (8,)], [(8, 10), (8, 10), (10, 8)], [(16, 8)], [(8,), (8, 16)]),
}


def moments(shapes: Shapes) -> int:
    """Rows and columns of matrices, and elements of all others."""
    return sum(sum(shape) for shape in shapes)


def elements(shapes: Shapes) -> int:
    return sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes)


def derived(model: str, strategy: str) -> ModelDerivation:
    return derive_model(load(model).resized(SIZES[model]), parse_strategy(strategy))


def whole(model: str, of: str) -> int:
    """Of a whole model: factors and moments, or elements, or tensors."""
    layer, expert, before, behind = SHAPES[model]
    count = {"moments": moments, "elements": elements, "tensors": len}[of]
    return SIZES[model]["L"] * (count(layer) + SIZES[model].get("E", 0) * count(expert)) + count([*before, *behind])


def vectors(model: str) -> int:
    """Elements of what is no matrix."""
    layer, _, before, behind = SHAPES[model]
    return sum(shape[0] * n for n, own in ((SIZES[model]["L"], layer), (1, [*before, *behind])) for shape in own if len(shape) == 1)


@pytest.mark.parametrize("model", ["llama3-8b", "gpt3-125m"])
def test_factors_are_the_rows_and_columns_of_all_matrices(model: str) -> None:
    """Of tables, heads and experts too; parts of matrices have all factors, parts that are whole matrices their own."""
    all_of_it, alone, gains = whole(model, "elements"), whole(model, "moments"), vectors(model)
    for text, copies, factors, others in (
        ("adafactor", 1, 1, 1),
        ("zero1(2) * adafactor", 2, 1, 2),
        ("fsdp(2) * adafactor", 2, 1, 2),
        ("zero1(2) * adafactor(owned)", 2, 2, 2),
    ):
        (cost,) = (found := derived(model, text)).costs
        wanted = Fraction(5 * all_of_it, copies) + 7 * (Fraction(alone - gains, factors) + Fraction(gains, others))
        assert found.value(cost.states["optimizer"], NUMBERS) == wanted, text


@pytest.mark.parametrize("model", ["llama3-8b", "gpt3-125m"])
def test_sums_along_all_rows_and_columns_are_sent_and_two_norms_of_each_tensor(model: str) -> None:
    alone = whole(model, "moments") - vectors(model)
    (cost,) = (found := derived(model, "zero1(2) * adafactor")).costs
    sent = Counter[str]()
    for t in (t for t in cost.sent if t.phase == "update" and t.about != "parameters"):
        sent[t.about] += found.value(t.total, NUMBERS)
    assert sent == {"sums": 7 * alone, "norms": 2 * 11 * whole(model, "tensors")}


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("zero1(2) * freeze(layers=2) * adafactor", {("dp",): 2 * 9 + 2}),
        ("fsdp(2) * freeze(layers=1, parts=ends) * adafactor", {("dp",): 9}),
        ("zero1(2) * lora(rank=2) * adafactor", {("dp",): 2 * 4 * 7}),
        ("zero1(2) * tp(2) * sp * adafactor", {("dp",): 4 * 2 + 1, ("dp", "tp"): 4 * 7 + 2}),
        ("tp(2) * adafactor", {("tp",): 4 * 7 + 2}),
        ("zero1(2) * adafactor(owned)", {}),
        ("ddp(2) * adafactor", {}),
    ],
)
def test_norms_are_of_tensors_that_are_trained_and_lie_in_parts(text: str, tensors: dict[tuple[str, ...], int]) -> None:
    (cost,) = (found := derived("llama3-8b", text)).costs
    sent = Counter[tuple[str, ...]]()
    for t in (t for t in cost.sent if t.about == "norms"):
        sent[t.axes] += found.value(t.total, NUMBERS)
    degree = {axes: 2 ** len(axes) for axes in tensors}
    assert sent == {axes: Fraction(2 * (degree[axes] - 1), degree[axes]) * 2 * 11 * n for axes, n in tensors.items()}


def test_norms_of_experts_are_those_of_a_device_s_own() -> None:
    (cost,) = (found := derived("mixtral-8x7b", "zero1(2) * ep(2) * adafactor")).costs
    layer, expert, before, behind = SHAPES["mixtral-8x7b"]
    held = 4 * (len(layer) + 3 * len(expert)) + len([*before, *behind])
    assert sum(found.value(t.total, NUMBERS) for t in cost.sent if t.about == "norms") == 2 * 11 * held


def test_stages_have_factors_of_their_own_matrices() -> None:
    layer, _, before, behind = SHAPES["llama3-8b"]
    found = derived("llama3-8b", "zero1(2) * pp(2) * adafactor")
    for cost, own in zip(found.costs, ([*layer * 2, *before], [*layer * 2, *behind]), strict=True):
        gains = sum(shape[0] for shape in own if len(shape) == 1)
        wanted = Fraction(5 * elements(own), 2) + 7 * (moments(own) - gains + Fraction(gains, 2))
        assert found.value(cost.states["optimizer"], NUMBERS) == wanted


def test_devices_have_factors_of_their_own_experts() -> None:
    (_, expert, _, _), every = SHAPES["mixtral-8x7b"], 4 * 6
    (cost,) = (found := derived("mixtral-8x7b", "ddp(2) * ep(2) * adafactor")).costs
    gone = Fraction(every * (5 * elements(expert) + 7 * moments(expert)), 2)
    all_of_it, alone = (whole("mixtral-8x7b", of) for of in ("elements", "moments"))
    assert found.value(cost.states["optimizer"], NUMBERS) == 5 * all_of_it + 7 * alone - gone


def test_a_model_trains_with_it() -> None:
    assert judge_linked(link(load("llama3-8b").resized(LLAMA), parse_strategy("zero1 * pp * adafactor"))).word == "proved"


def test_norms_of_biases_in_parts_are_reduced_over_tensor_parallelism_too() -> None:
    """Those of what each of its devices has whole are not."""
    linked = link(load("gpt3-125m").resized(GPT), parse_strategy("zero1 * tp * adafactor"))
    text = render_linked(linked)
    biases, copies = (f"tensor_norms(parameters.{g}[u], optimizer.{g}[u], gradients.{g}[u])" for g in ("elementwise", "copies"))
    assert f"all_reduce({biases}, dp, tp)" in text
    assert f"all_reduce({copies}, dp)" in text
    assert judge_linked(linked).word == "proved"
    for right, wrong in ((f"{biases}, dp, tp", f"{biases}, tp"), (f"{copies}, dp", f"{copies}, dp, tp")):
        edited = read_linked(text.replace(f"all_reduce({right})", f"all_reduce({wrong})"), source="edited")
        assert judge_linked(edited).word == "refuted", wrong


def test_devices_of_tensor_parallelism_have_all_factors_and_parts_of_all_else() -> None:
    """But for gains, which each has whole. Sums of what lies in parts there are reduced over all devices."""
    gains = vectors("llama3-8b")
    all_of_it, alone = whole("llama3-8b", "elements") - gains, whole("llama3-8b", "moments") - gains
    (cost,) = (found := derived("llama3-8b", "zero1(2) * tp(2) * sp * adafactor")).costs
    wanted = 5 * (Fraction(all_of_it, 4) + Fraction(gains, 2)) + 7 * (alone + Fraction(gains, 2))
    assert found.value(cost.states["optimizer"], NUMBERS) == wanted
    (sums,) = (t for t in cost.sent if t.about == "sums")
    assert (sums.axes, found.value(sums.total, NUMBERS)) == (("dp", "tp"), 2 * Fraction(3, 4) * 7 * alone)


def test_sums_of_copies_are_reduced_over_data_parallelism_alone() -> None:
    """A router is one."""
    found = derived("mixtral-8x7b", "zero1(2) * tp(2) * sp * adafactor")
    sent = {t.axes: found.value(t.total, NUMBERS) for cost in found.costs for t in cost.sent if t.about == "sums"}
    routers = 4 * moments([(8, 6)])
    others = whole("mixtral-8x7b", "moments") - vectors("mixtral-8x7b") - routers
    assert sent == {("dp", "tp"): 2 * Fraction(3, 4) * 7 * others, ("dp",): 2 * Fraction(1, 2) * 7 * routers}


def test_a_table_of_both_ends_has_factors_on_both() -> None:
    layer, _, (table, learned), behind = SHAPES["gpt3-125m"]
    found = derived("gpt3-125m", "zero1(2) * pp(2) * adafactor")
    for cost, own in zip(found.costs, ([*layer * 2, table, learned], [*layer * 2, *behind, table]), strict=True):
        gains = sum(shape[0] for shape in own if len(shape) == 1)
        wanted = Fraction(5 * elements(own), 2) + 7 * (moments(own) - gains + Fraction(gains, 2))
        assert found.value(cost.states["optimizer"], NUMBERS) == wanted


@pytest.mark.parametrize(("frozen", "most"), [(1, 2 * 496), (3, 3 * 496)])
def test_numbers_of_a_unit_are_of_the_largest_in_bytes(frozen: int, most: int) -> None:
    """Layers of 496 parameters, of which the last two are trained."""
    (cost,) = (found := derived("llama3-8b", "fsdp(2) * freeze(layers=2)")).costs
    assert found.value(cost.transient, NUMBERS | {"b_frozen": Fraction(frozen)}) == most


@pytest.mark.parametrize(("strategy", "said"), [("freeze(layers=2)", True), ("adafactor", True), ("tp", False), ("", False)])
def test_formulas_of_a_unit_say_that_they_take_average_shares(strategy: str, said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", " * ".join(["fsdp(2)", strategy] if strategy else ["fsdp(2)"]), "--model", "llama3-8b", "--full"]) == 0
    assert (AVERAGE in capsys.readouterr().out) == said
