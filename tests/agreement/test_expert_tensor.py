"""Experts that are split over a part of the devices of tensor parallelism: several axes split the rest, and experts lie otherwise on each.

Costs are held against a walk of the printed program that shares nothing with them, against strategies with one such axis, and by hand.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from linked_pairs import STRATEGIES, outcome
from samples import NIGHTLY

from placeproof.core.diagnostics import InputError
from placeproof.core.states import PARAMETERS
from placeproof.core.strategy import EXPERT
from placeproof.cost.model import derive_model
from placeproof.importers.writing.facts import usual
from placeproof.models import load
from placeproof.programs import Program, read, render
from placeproof.semantics.judge.verdict import judge, judge_tensors
from placeproof.semantics.linked import Linked, link, read_linked, render_linked
from placeproof.semantics.linked.contract import against_contracts
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

TENSOR = "tp * sp * tp(tp=etp) * sp(tp=etp)"
APART = f"zero1 * zero1(ep) * ep * ep(tp) * {TENSOR}"
CLIPPED = f"{APART} * clip"
#: Of the devices that do not split an expert some have others, and some have the same ones.
COPIED = f"zero1 * ep(tp, experts=etp) * {TENSOR} * tp(tp=dtp) * sp(tp=dtp)"
EXPERT_SUMS = "gradients.expert = all_reduce(gradients.expert, dtp)\n"


@cache
def linked(strategy: str) -> Linked:
    return link(load("mixtral-8x7b"), parse_strategy(strategy))


def changed(strategy: str, old: str, new: str) -> Linked:
    """The linked program with a piece of its text replaced."""
    text = render_linked(linked(strategy))
    assert old in text, text
    return read_linked(text.replace(old, new))


def experts(strategy: str) -> Program:
    return linked(strategy).blocks["moe"].program


STEPS = [CLIPPED, COPIED, APART, f"fsdp * fsdp(ep) * ep * ep(tp) * {TENSOR} * pp * checkpoint"]
#: Gradients that are summed over another group of devices; by day one of each kind.
OVER_OTHERS = [
    (APART, "all_reduce(gradients.norm, etp, tp)", "all_reduce(gradients.norm, tp)"),
    (APART, "gradients = scale(", "gradients.expert = all_reduce(gradients.expert, etp)\ngradients = scale("),
    (CLIPPED, "square_norm(gradients.expert), etp, tp", "square_norm(gradients.expert), tp"),
    (COPIED, EXPERT_SUMS, ""),
    (COPIED, EXPERT_SUMS, EXPERT_SUMS.replace("dtp", "tp")),
    (APART, "all_reduce(gradients.norm, etp, tp)", "all_reduce(gradients.norm, etp)"),
    (APART, "gradients = scale(", "gradients.expert = all_reduce(gradients.expert, tp)\ngradients = scale("),
    (APART, "gradients = scale(", "gradients.expert = all_reduce(gradients.expert, ep)\ngradients = scale("),
    (APART, "gradients.expert = reduce_scatter(gradients.expert, dp)", "gradients.expert = part(gradients.expert, dp)"),
    (COPIED, EXPERT_SUMS, EXPERT_SUMS.replace("dtp", "etp")),
    (COPIED, EXPERT_SUMS, EXPERT_SUMS * 2),
]
#: Tokens, or what experts make of them, that stay where a slice is.
KEPT = [
    ("sent_full = all_gather(sent_by_experts, etp)", "sent_full = sent_by_experts"),
    ("reduce_scatter(contract(a, w2, over=expert_ffn), etp, dim=tokens)", "part(contract(a, w2, over=expert_ffn), etp, dim=tokens)"),
    ("dout_full = all_gather(dout_by_experts, etp)", "dout_full = dout_by_experts"),
]


@pytest.mark.parametrize("strategy", STEPS if NIGHTLY else STEPS[:2])
def test_a_step_is_proved_for_all_degrees(strategy: str) -> None:
    assert judge(against_contracts(linked(strategy))).word == "proved"


@pytest.mark.parametrize(("strategy", "old", "new"), OVER_OTHERS if NIGHTLY else OVER_OTHERS[:5])
def test_gradients_that_are_summed_over_another_group_are_refuted(strategy: str, old: str, new: str) -> None:
    assert judge(against_contracts(changed(strategy, old, new))).word == "refuted"


@pytest.mark.parametrize("strategy", STEPS if NIGHTLY else STEPS[1:2])
def test_experts_are_proved_for_all_degrees(strategy: str) -> None:
    assert judge_tensors(experts(strategy)).word == "proved"


@pytest.mark.parametrize(("old", "new"), KEPT if NIGHTLY else KEPT[:2])
def test_tokens_that_are_not_exchanged_are_refuted(old: str, new: str) -> None:
    text = render(experts(APART))
    assert old in text
    assert judge_tensors(read(text.replace(old, new))).word == "refuted"


@pytest.mark.parametrize("strategy", [CLIPPED, COPIED, "zero1 * cp(cp=seq) * tp"])
def test_a_program_with_axes_of_other_names_is_read_back(strategy: str) -> None:
    text = render_linked(linked(strategy))
    assert render_linked(read_linked(text)) == text


def test_costs_are_those_of_a_walk() -> None:
    """Of one; `test_linked_walk.py` has two of them for each model at night."""
    strategy = next(text for text in STRATEGIES if "tp=dtp" in text)
    found = outcome("mixtral-8x7b", strategy, {"L": 8, "s": 64})
    assert (found.word, found.why) == ("equal", ())


WIDTHS = {"b_theta": 2, "b_g": 4, "b_omega": 12, "b_a": 2, "b": 1, "c": Fraction(5, 4)}


@cache
def figures(strategy: str) -> dict[str, Fraction | None]:
    """Every closed form but traffic by axes, and what is sent in all."""
    d = derive_model(load("mixtral-8x7b"), parse_strategy(strategy))
    numbers = {name: Fraction(value) for name, value in WIDTHS.items()}
    forms = {name: d.value(form, numbers) for name, form in d.forms.items() if ".traffic" not in name}
    return forms | {"sent": sum((d.value(one.total, numbers) or Fraction(0) for c in d.costs for one in c.sent), Fraction(0))}


@pytest.mark.parametrize(
    ("several", "one"),
    [
        ("ep(2) * ep(tp) * tp(4) * sp * tp(1, tp=etp) * sp(tp=etp)", "ep(2) * ep(tp) * tp(4) * sp"),
        ("ep(2) * ep(tp) * tp(1) * sp * tp(4, tp=etp) * sp(tp=etp)", "ep(2) * tp(4) * sp"),
        ("ep(2, experts=etp) * tp(4, tp=dtp) * sp(tp=dtp) * tp(1, tp=etp) * sp(tp=etp)", "ep(2, experts=whole) * tp(4) * sp"),
    ],
)
def test_where_an_axis_has_one_device_costs_are_those_of_the_other_alone(several: str, one: str) -> None:
    sharded = "zero1(2) * zero1(ep) * {} * clip".format
    assert figures(sharded(several)) == figures(sharded(one))


def test_mixtral_by_hand() -> None:
    """16 devices: tensor parallelism of 4 and 4 data-parallel ones; each expert split over 2, and experts over 2 * 2 (Megatron's ep = 4).

    Of 32 layers with 8 experts of 3 matrices of 4096 x 14336, in bytes: 2 + 4 + 12 a parameter, the optimizer state sharded over the 2
    devices that have the same slices of experts, and over all 4 data-parallel ones for everything else.
    """
    strategy = parse_strategy("zero1(2) * zero1(ep) * ep(2) * ep(tp) * tp(2) * sp * tp(2, tp=etp) * sp(tp=etp)")
    (cost,) = (d := derive_model(load("mixtral-8x7b"), strategy)).costs
    numbers = {name: Fraction(value) for name, value in WIDTHS.items()} | {"c": Fraction(1)}
    slices = 32 * 2 * 3 * 4096 * 14336 // 2  # 8 experts over 4 devices, each split over 2
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    rest = 32 * (attention // 4 + 2 * 4096 + 8 * 4096) + 4096 + 2 * 32000 * 4096 // 4
    assert {state: d.value(amount, numbers) for state, amount in cost.states.items()} == {
        "parameters": 2 * (slices + rest),
        "gradients": 4 * (slices + rest),
        "optimizer": 12 * Fraction(slices, 2) + 12 * Fraction(rest, 4),
    }
    gradients = {one.axes: d.value(one.bytes, numbers) for one in cost.sent if one.about == "gradients"}
    assert gradients["dp",] == 4 * Fraction(slices, 2)
    # A device has a quarter of the 32768 tokens of a sample, and sends each twice, in 2 * 4096 bytes: 3 of 4 go elsewhere, there and back,
    # in each direction. What comes is gathered by the 2 devices that have a slice each: the other one's part.
    row = 8192 * 2 * 4096 * 2
    every = [(one.kind, one.axes, d.value(one.total, numbers)) for one in cost.sent]
    assert [n for kind, axes, n in every if kind == "all_to_all"] == [32 * Fraction(3, 4) * row] * 4
    assert {axes for kind, axes, _ in every if kind == "all_to_all"} == {("ep", "tp")}
    # For each layer forward, and backward for the gradient and once more for the tokens; slices of results are added up twice.
    assert {axes for kind, axes, _ in every if kind == "reduce_scatter"} == {("etp",), ("etp", "tp"), ("dp", "ep"), ("dp",)}
    gathered = sum(n or 0 for kind, axes, n in every if kind == "all_gather" and axes == ("etp",))
    assert gathered == 32 * 3 * row


@pytest.mark.parametrize(
    ("strategy", "message", "help"),
    [
        (f"zero1 * ep * {TENSOR}", "both split the hidden dimension", "ep(tp)"),
        (f"zero1 * ep(experts=whole) * {TENSOR}", "both split the hidden dimension", "merge"),
        (f"zero1 * {TENSOR}", "both split the hidden dimension", "merge"),
        ("ep(tp) * tp * sp * tp(tp=etp)", "activations lie `R` on `etp`, `S` on `tp`", "sp(tp=etp)"),
        ("ep(tp) * tp * sp * tp(tp=ztp) * sp(tp=ztp)", "tokens that `tp` splits lie in parts over `ztp`, too", "order of their names"),
        (f"ep(experts=etp) * {TENSOR}", "to gather them for experts over `etp` alone", "call `etp` by one that comes behind `tp`"),
        (f"ep(tp, experts=ztp) * {TENSOR}", "`ztp`, which is no axis", "split, whole, or"),
        (f"ep(tp, experts=tp) * {TENSOR}", "`tp`, over which experts lie themselves", "split, whole, or"),
        (
            "ddp * tp * sp(tp) * tp(tp=etp) * sp(tp=etp) * cp * ep(cp) * ep(tp)",
            "tokens that `cp` splits lie in parts over `etp`",
            "ep(etp)",
        ),
        (f"{APART} * muon", "which matrices lie in parts on `etp` and `tp`", "element by element"),
        ("ep(experts=etp) * tp * tp(tp=etp) * zero_r * zero_r(tp=etp)", "activations lie `S*`", "leave `zero_r` out"),
    ],
)
def test_what_is_not_lowered_is_refused(strategy: str, message: str, help: str) -> None:
    with pytest.raises(InputError) as refused:
        link(load("mixtral-8x7b"), parse_strategy(strategy))
    (found,) = refused.value.diagnostics
    assert message in found.message
    assert help in (found.help or "")


def test_a_step_without_a_model_has_one_such_axis() -> None:
    with pytest.raises(InputError, match="the step's own layers have one such axis") as refused:
        lower(parse_strategy(APART))
    assert "--model" in (refused.value.diagnostics[0].help or "")
    plain = 'mesh(tp, etp)\nsplits(etp="hidden")\nparameters, optimizer = update(parameters, optimizer, backward(parameters))\n'
    with pytest.raises(InputError, match="both split the hidden dimension"):
        read(plain)


def test_an_axis_takes_a_degree_and_another_name() -> None:
    strategy = parse_strategy("tp(2, tp=etp)")
    assert [(axis.name, axis.degree) for axis in strategy.axes] == [("etp", 2)]
    assert {entry.axis for entry in strategy.entries} == {"etp"}
    assert parse_strategy(strategy.name) == strategy


@pytest.mark.parametrize(
    ("text", "message"),
    [("tp(etp, tp=other)", "is given twice"), ("tp(2, tp=4)", "is given twice"), ("tp(2, tp=data)", "no axis can be called `data`")],
)
def test_an_axis_takes_one_of_each(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_strategy(text)
    (found,) = refused.value.diagnostics
    assert message in found.message


def test_sums_over_different_devices_are_told_apart() -> None:
    """Of norms and the router over all devices of tensor parallelism, of slices of experts over those that have the same ones."""
    (cost,) = derive_model(load("mixtral-8x7b"), parse_strategy(COPIED)).costs
    sums = {one.about: one.axes for one in cost.sent if one.about.startswith("gradients of")}
    assert sums == {"gradients of norms": ("dtp", "etp", "tp"), "gradients of experts": ("dtp",)}


def test_an_axis_that_is_called_otherwise_for_a_configuration_is_where_experts_are_split() -> None:
    called = usual(parse_strategy("ep(2, experts=a) * tp(2, tp=a) * tp(2, tp=z)"))
    assert [axis.name for axis in called.axes] == ["ep", "tp", "z"]
    assert [called.mode(PARAMETERS, axis, EXPERT).split for axis in ("tp", "z")] == [True, False]
