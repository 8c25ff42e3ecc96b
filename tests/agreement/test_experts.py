"""Expert parallelism: layers whose experts lie on several devices, proved and refuted, and against runs that share no code with the proof.

Costs are compared with formulas that are worked out by hand from the definition of each collective.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
import sympy
from published import Row, rows
from test_prove_against_brute_force import agree, differs, edits

from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.derive import derive
from placeproof.cost.model import derive_model
from placeproof.cost.model.checks import require_fit
from placeproof.models import load
from placeproof.programs import Program, check, parse, read, render
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.semantics.composition.decide import composed
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.judge.refine import differences, refine
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Fault, Setup
from placeproof.semantics.meaning.run import run
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

STRATEGIES = [
    "ep",
    "ddp * ep",
    "zero1 * ep",
    "zero1 * zero1(dp=ep) * ep",
    "fsdp * ep",
    "fsdp * fsdp(dp=ep) * ep",
    "zero2 * zero1(dp=ep) * ep * accumulate",
    "zero3(bucket=unit) * zero3(dp=ep, bucket=unit) * ep",
    "zero_offload * zero_offload(dp=ep) * ep",
    "ddp * ep * checkpoint",
    "ddp * ep * pp",
    "hsdp * ep * cp",
    "tp * ep",
    "tp * ep(experts=whole)",
    "tp * sp(norms=each) * ep",
    "tp * sp * ep(experts=whole)",
    "fsdp * fsdp(dp=ep) * tp * sp * ep * checkpoint",
    "zero1 * zero1(dp=ep) * tp * sp * ep(experts=whole) * accumulate",
    "tp * sp * ep(tp)",
    "ddp * tp * sp * ep * ep(tp)",
    "ddp * cp * ep(cp)",
    "zero1 * zero1(ep) * zero1(cp) * cp * ep * ep(cp)",
    "fsdp * fsdp(cp) * cp * ep(cp) * checkpoint",
    "zero1 * cp * tp * sp(norms=each) * ep(cp) * ep(tp) * accumulate",
    "ddp * tp * sp * ep * ep(tp) * pp * clip",
    "ep * ep(ep2)",
]


@cache
def program(strategy: str) -> Program:
    return lower(parse_strategy(strategy))


def changed(strategy: str, *pairs: tuple[str, str]) -> Program:
    """A lowered program with pieces of its text replaced."""
    text = render(program(strategy))
    for old, new in pairs:
        assert old in text, f"{old!r} is not in\n{text}"
        text = text.replace(old, new)
    return read(text)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_with_experts_are_proved(strategy: str) -> None:
    assert judge(program(strategy)).word == "proved"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_agrees(strategy: str) -> None:
    placed = resolve(program(strategy))
    degrees = {a.name: 2 for a in placed.axes if a.name in ("ep", "pp", "cp")} | {a.name: 1 for a in placed.axes if a.name == "shard"}
    for ep in (2, 3):
        others = {a.name: degrees.get(a.name, 2) for a in placed.axes}
        assert run(placed, Setup(degrees={**others, "ep": ep}, exact=False)) is None, ep


DENSE = "gradients.dense = all_reduce(gradients.dense, ep)"
GATHER = "w = all_gather(parameters[u], dp)"
ALL, OWN = "gradients = scale(gradients, 1 / (dp * ep))", "gradients.expert = scale(gradients.expert, {})"
ALL_CP, REST_CP = "gradients = scale(gradients, 1 / (dp * cp))", "gradients.dense = scale(gradients.dense, 1 / (dp * cp))"
UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)"
REST = "gradients.dense = scale(gradients.dense, 1 / (dp * ep))"
MUTANTS = [
    ("ep", "expert gradients reduced over the experts' axis, too", DENSE, "gradients = all_reduce(gradients, ep)"),
    ("ep", "dense gradients not reduced", DENSE + "\n", ""),
    (
        "zero1 * ep",
        "experts not reduced over copies",
        "gradients = reduce_scatter(gradients, dp)",
        "gradients.dense = reduce_scatter(gradients.dense, dp)",
    ),
    ("ep", "experts not divided", "gradients = scale(gradients, 1 / ep)", "gradients.dense = scale(gradients.dense, 1 / ep)"),
    ("zero1 * ep", "experts divided by the number of copies", ALL, f"{REST}\n{OWN.format('1 / dp')}"),
    ("zero1 * ep", "experts divided by the number of parts", ALL, f"{REST}\n{OWN.format('1 / ep')}"),
    (
        "zero1 * ep",
        "experts not brought back",
        "parameters = all_gather(parameters, dp)",
        "parameters.dense = all_gather(parameters.dense, dp)",
    ),
    ("fsdp * ep", "experts gathered over their own axis", GATHER, "w = all_gather(parameters[u], dp, ep)"),
    ("fsdp * ep", "experts gathered for forward alone", f"{GATHER}\n    x,", "w = all_gather(parameters[u], dp, ep)\n    x,"),
    ("fsdp * ep", "experts not gathered", GATHER, "w.dense = all_gather(parameters.dense[u], dp)\n    w.expert = parameters.expert[u]"),
    (
        "fsdp * fsdp(dp=ep) * ep",
        "expert gradients scattered over both axes",
        "reduce_scatter(g.expert, dp)",
        "reduce_scatter(g.expert, dp, ep)",
    ),
    ("tp * ep", "experts' part of a block's output not added up", "all_reduce(z + e, tp)", "all_reduce(z, tp) + e"),
    (
        "tp * ep",
        "experts that are split, of which each is taken as whole",
        'parameters.expert, ep="S", tp="S"',
        'parameters.expert, ep="S", tp="R"',
    ),
    ("tp * ep(experts=whole)", "whole experts added up", "all_reduce(z, tp) + e", "all_reduce(z + e, tp)"),
    (
        "tp * ep",
        "experts' part of the gradient of a norm left out",
        " + backward_input(parameters.expert[k], activations.expert[k], dx)",
        "",
    ),
    (
        "tp * sp * ep",
        "experts reduced with the norms",
        "gradients.norm, tp)",
        "gradients.norm, tp)\ngradients.expert = all_reduce(gradients.expert, tp)",
    ),
    ("tp * sp * ep(experts=whole)", "experts not reduced with the norms", "gradients.expert = all_reduce(gradients.expert, tp)\n", ""),
    (
        "tp * sp * ep(experts=whole)",
        "whole experts that are given all tokens",
        "forward(parameters.expert[k], y)",
        "forward(parameters.expert[k], all_gather(y, tp))",
    ),
    (
        "tp * ep",
        "experts reduced over their own axis",
        "gradients.matrix = all_reduce(gradients.matrix, ep)",
        "gradients = all_reduce(gradients, ep)",
    ),
    ("ddp * tp * sp * ep * ep(tp)", "tokens sent over one of the axes alone", 'experts="ep tp"', "experts=ep"),
    ("ddp * tp * sp * ep * ep(tp)", "tokens sent over the other axis alone", 'experts="ep tp"', "experts=tp"),
    ("ddp * cp * ep * ep(cp)", "tokens of a sequence not sent", 'experts="ep cp"', "experts=ep"),
    (
        "ddp * cp * ep * ep(cp)",
        "other experts of a sequence added up",
        "all_reduce(gradients.expert, dp)",
        "all_reduce(gradients.expert, dp, cp)",
    ),
    ("ddp * cp * ep(cp)", "experts not divided by the devices of a sequence", ALL_CP, f"{REST_CP}\n{OWN.format('1 / dp')}"),
    (
        "ddp * tp * sp * ep * ep(tp)",
        "other experts added up with the norms",
        "gradients.norm, tp)",
        "gradients.norm, tp)\ngradients.expert = all_reduce(gradients.expert, tp)",
    ),
    ("ddp * tp * sp * ep * ep(tp)", "a router that is not added up", "gradients.norm = all_reduce(gradients.norm, tp)\n", ""),
    ("tp * sp * ep(tp)", "experts divided by devices with the same samples", UPDATE, f"{OWN.format('1 / tp')}\n{UPDATE}"),
    (
        "tp * sp * ep(tp)",
        "experts that are given all tokens",
        "forward(parameters.expert[k], y)",
        "forward(parameters.expert[k], all_gather(y, tp))",
    ),
    ("tp * sp * ep(tp)", "experts that are taken for copies", 'parameters.expert, tp="S"', 'parameters.expert, tp="R"'),
    ("tp * sp * ep(tp)", "what experts make added up", "reduce_scatter(z, tp) + e", "reduce_scatter(z + all_gather(e, tp), tp)"),
    (
        "ddp * ep(experts=whole) * tp * sp",
        "copies of experts taken for others",
        "gradients.expert = all_reduce(gradients.expert, tp)\n",
        "",
    ),
    ("ddp * ep", "experts' gradients averaged twice", "all_reduce(gradients.expert, dp)", "all_reduce(gradients.expert, dp, op=mean)"),
]


@pytest.mark.parametrize(("strategy", "what", "old", "new"), MUTANTS, ids=[m[1] for m in MUTANTS])
def test_mistakes_are_refuted(strategy: str, what: str, old: str, new: str) -> None:
    assert judge(changed(strategy, (old, new)), shortest=False).word == "refuted", what


def test_a_layer_cannot_be_given_the_experts_of_others() -> None:
    mutant = changed("fsdp * ep", ("w = all_gather(parameters[u], dp)", "w = all_gather(parameters[u], dp, ep)"))
    found = run(resolve(mutant), Setup(degrees={"dp": 1, "ep": 2}))
    assert isinstance(found, Fault)
    assert "another device's experts" in found.why


def test_all_devices_of_the_experts_take_part() -> None:
    text = "    x, activations[u] = forward(w, x)\n"
    alone = "    if rank(ep) == 0:\n        x, activations[u] = forward(w, x)\n    else:\n        x, activations[u] = forward(w, x)\n"
    mutant = changed("fsdp * ep", (text, alone))
    judged = judge(mutant)
    assert judged.word == "refuted"
    assert isinstance(judged.found.what, Fault)  # type: ignore[union-attr]


def test_copies_may_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placeproof.semantics.judge.search.SECONDS", 2)
    text = "    x, activations[u] = forward(w, x)\n"
    alone = "    if rank(dp) == 0:\n        x, activations[u] = forward(w, x)\n    else:\n        x, activations[u] = forward(w, x)\n"
    mutant = changed("fsdp * ep", (text, alone))
    assert not differs(mutant, most=4)
    assert judge(mutant).word != "refuted"


ROUTER = """
mesh(dp, ep)
splits(ep="batch")
group(rest, P - P_expert - P_norm)
group(router, P_norm)
group(expert, P_expert, experts=ep)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
place(gradients.expert, ep="S")
G = backward(parameters)
G.rest = all_reduce(G.rest, dp, ep)
G.router = all_reduce(G.router, dp, ep)
G.expert = all_reduce(G.expert, dp)
G = scale(G, 1 / (dp * ep))
parameters, optimizer = update(parameters, optimizer, G)
"""


def test_the_router_is_reduced_like_everything_dense() -> None:
    assert agree(read(ROUTER)) == "proved"
    assert agree(read(ROUTER.replace("G.router = all_reduce(G.router, dp, ep)\n", ""))) == "refuted"
    assert agree(read(ROUTER.replace("G.router = all_reduce(G.router, dp, ep)", "G.router = all_reduce(G.router, dp)"))) == "refuted"


PASS = """
mesh(dp, tp)
group(rest, P - P_expert - P_norm)
group(router, P_norm, partial=tp)
group(expert, P_expert, experts="dp tp")
place(parameters.expert, dp="S", tp="S")
place(optimizer.expert, dp="S", tp="S")
place(gradients.expert, dp="S", tp="S")
G = backward(parameters)
G.router = all_reduce(G.router, tp)
G.rest = all_reduce(G.rest, dp)
G.router = all_reduce(G.router, dp)
G = scale(G, 1 / dp)
parameters, optimizer = update(parameters, optimizer, G)
"""


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("", "", "proved"),
        ("G.rest = all_reduce(G.rest, dp)", "G.rest = all_reduce(G.rest, dp)\nG.expert = all_reduce(G.expert, dp)", "refuted"),
        ("G.router = all_reduce(G.router, tp)", "G.router = all_reduce(G.router, tp)\nG.expert = all_reduce(G.expert, tp)", "refuted"),
        ("G = scale(G, 1 / dp)", "G = scale(G, 1 / (dp * tp))", "refuted"),
        ("G.router = all_reduce(G.router, tp)\n", "", "refuted"),
        ('parameters.expert, dp="S", tp="S"', 'parameters.expert, dp="S", tp="R"', "refuted"),
    ],
)
def test_whole_passes_with_experts_over_two_axes(old: str, new: str, word: str) -> None:
    text = PASS.replace(old, new)
    assert agree(read(text)) == word
    assert composed(resolve(read(text))).proved is (word == "proved")


GIVEN_ALL = """
mesh(tp)
group(matrix, P - P_norm - P_expert)
group(norm, P_norm)
group(expert, P_expert, experts=tp)
place(parameters, tp="S")
place(optimizer, tp="S")
place(gradients, tp="S")
place(parameters.norm, tp="R")
place(optimizer.norm, tp="R")
place(gradients.norm, tp="R")
x = data()
for k in blocks:
    y, kept.norm[k] = forward(parameters.norm[k], x)
    z, kept.matrix[k] = forward(parameters.matrix[k], y)
    e, kept.expert[k] = forward(parameters.expert[k], y)
    x = x + (all_reduce(z, tp) + e)
dx = loss(x)
for k in reversed(blocks):
    gradients.matrix[k] = backward_weight(parameters.matrix[k], kept.matrix[k], dx)
    gradients.expert[k] = backward_weight(parameters.expert[k], kept.expert[k], dx)
    dy = all_reduce(backward_input(parameters.matrix[k], kept.matrix[k], dx), tp) + backward_input(parameters.expert[k], kept.expert[k], dx)
    gradients.norm[k] = backward_weight(parameters.norm[k], kept.norm[k], dy)
    dx = dx + backward_input(parameters.norm[k], kept.norm[k], dy)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


def test_tokens_that_all_devices_have_are_sent_once() -> None:
    assert agree(read(GIVEN_ALL)) == "proved"
    assert agree(read(GIVEN_ALL.replace(UPDATE, f"{OWN.format('1 / tp')}\n{UPDATE}"))) == "refuted"
    assert agree(read(GIVEN_ALL.replace(" + e)", " + all_reduce(e, tp))"))) == "refuted"


def test_layers_with_groups_of_experts_over_different_axes_are_left_open() -> None:
    text = """
mesh(dp, ep)
splits(ep=batch)
group(rest, P - P_expert - P_norm)
group(one, P_norm, experts=dp)
group(two, P_expert, experts=ep)
place(parameters.one, dp="S")
place(optimizer.one, dp="S")
place(gradients.one, dp="S")
place(parameters.two, ep="S")
place(optimizer.two, ep="S")
place(gradients.two, ep="S")
x, kept = forward(parameters, data())
G = backward_weight(parameters, kept, loss(x))
G.rest = all_reduce(G.rest, dp, ep)
G.one = all_reduce(G.one, ep)
G.two = all_reduce(G.two, dp)
G = scale(G, 1 / (dp * ep))
parameters, optimizer = update(parameters, optimizer, G)
"""
    assert judge(read(text)).word == "unknown"
    passed = text.replace("x, kept = forward(parameters, data())\n", "").replace(
        "backward_weight(parameters, kept, loss(x))", "backward(parameters)"
    )
    assert agree(read(passed)) == "proved"


def test_the_rule_of_composition_takes_axes_of_experts_one_by_one() -> None:
    for strategy in ("ddp * tp * sp * ep * ep(tp)", "zero1 * zero1(cp) * cp * ep(cp)", "ep * ep(ep2)"):
        assert composed(resolve(program(strategy))).proved, strategy
    for old, new in (('experts="ep tp"', "experts=ep"), ("gradients.norm = all_reduce(gradients.norm, tp)\n", "")):
        assert not composed(resolve(changed("ddp * tp * sp * ep * ep(tp)", (old, new)))).proved


EDITED = ("ep", "zero1 * ep", "zero1 * zero1(dp=ep) * ep", "ep * ep(cp) * cp")


def _readable(mutant: Program) -> bool:
    """Whether each operation gets values of the kind that it takes."""
    try:
        check(mutant)
    except InputError:
        return False
    return True


@cache
def _edited(strategy: str) -> list[Program]:
    every = [mutant for _, mutant in edits(program(strategy))]
    found = [mutant for mutant in every if _readable(mutant)]
    assert 2 * len(found) > len(every), "most edits leave a program that can be read"
    return found


@pytest.mark.parametrize("number", range(24))
def test_edits_agree_with_brute_force(number: int) -> None:
    found = _edited(EDITED[number % len(EDITED)])
    agree(found[number % len(found)], "experts against brute force")


def test_the_assumption_is_listed_where_there_are_experts() -> None:
    one = ASSUMPTIONS["exchanged-tokens"]
    assert one.concerns(program("ep"))
    assert not one.concerns(program("zero1"))


REFUSED = [
    ("fsdp(dp=ep) * ep", "gathered over `ep` alone"),
    ("fsdp(prefetch=true) * fsdp(dp=ep, prefetch=true) * ep", "prefetching"),
    ("fsdp(cp) * fsdp(ep) * cp * ep * ep(cp)", "gathered over `cp` and `ep` alone"),
    ("ep(tp) * tp", "each device of `tp` has all tokens"),
    ("ep(tp) * tp * zero_r * checkpoint", "compose it with `sp`"),
    ("ep(pp) * pp", "experts lie parameters `S`, optimizer `S`, gradients `S` on `pp`, which splits the layers"),
]


@pytest.mark.parametrize(("strategy", "why"), REFUSED)
def test_what_is_not_lowered_says_why(strategy: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        lower(parse_strategy(strategy))
    assert any(why in f"{d.message} {d.help}" for d in refused.value.diagnostics)


def test_programs_with_experts_are_read_again_as_they_were() -> None:
    for strategy in STRATEGIES:
        assert parse(render(program(strategy))) == program(strategy)


# Costs.


def _at(expr: sympy.Expr, **values: int) -> Fraction:
    return Fraction(str(sympy.nsimplify(expr.subs({sympy.Symbol(k): v for k, v in values.items()}))))


P, X, DP, EP = 1000, 600, 4, 3  # parameters, those of experts, degrees
EVERY, COPIES = Fraction(11, 12), Fraction(3, 4)  # what a ring sends of 400 dense parameters over 12, and of 200 experts' over 4


@pytest.mark.parametrize(
    ("strategy", "parameters", "optimizer", "gradients", "sent"),
    [
        ("ddp * ep", 600, 600, 600, 2 * (400 * EVERY + 200 * COPIES)),
        ("fsdp * fsdp(dp=ep) * ep", Fraction(P, 12), Fraction(P, 12), Fraction(P, 12), 3 * (400 * EVERY + 200 * COPIES)),
        ("zero1 * zero1(dp=ep) * ep", 600, Fraction(P, 12), 600, 2 * (400 * EVERY + 200 * COPIES)),
        # Parts over dp alone: the rest is copied over ep, where its shard of 100 is all-reduced.
        ("fsdp * ep", Fraction(600, 4), Fraction(600, 4), Fraction(600, 4), 3 * 600 * COPIES + 2 * 100 * Fraction(2, 3)),
    ],
)
def test_costs_of_experts(strategy: str, parameters: Fraction, optimizer: Fraction, gradients: Fraction, sent: Fraction) -> None:
    d = derive(parse_strategy(strategy))
    values = {"P": P, "P_expert": X, "N_dp": DP, "N_ep": EP, "b_theta": 1, "b_g": 1, "b_omega": 1, "n_u": 1, "U": P}
    assert _at(d.memory["parameters"], **values) == parameters
    assert _at(d.memory["optimizer"], **values) == optimizer
    assert _at(d.memory["gradients"], **values) == gradients
    assert _at(sympy.Add(*(m.total for m in d.messages.messages if m.state != "activations")), **values) == sent


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if "checkpoint" not in s])
def test_parts_of_activations_are_all_of_them_on_one_device(strategy: str) -> None:
    kept = derive(parse_strategy(strategy)).memory["activations"]
    one = {name: 1 for name in kept.free_symbols if str(name).startswith("N") or str(name) == "m"}
    assert sympy.expand(kept.subs(one)) == symbol("A") * symbol("b_a")


def test_a_published_unit_test_of_expert_and_dense_optimizer_parts() -> None:
    """Row megatron-ut-ep: 388 dense parameters of a device over 16 data-parallel devices, and 64 of its experts over 4.

    What a device has is given there. Here its 64 are a quarter of 256, as on an axis of 4 of the 16 devices.
    """
    row = published("megatron-ut-ep")
    d = derive(parse_strategy("zero1(4) * zero1(dp=ep) * ep(4)"))
    found = _at(d.memory["model_states"], P=388 + 256, P_expert=256, b_theta=2, b_g=4, b_omega=12)
    assert found == Fraction(str(row["value"]))


def published(name: str) -> Row:
    """A row of the published figures."""
    (row,) = (r for r in rows() if r["id"] == name)
    return row


# Of models.


def test_tokens_after_dispatch_do_not_depend_on_the_experts_axis() -> None:
    """Row moe-megatron-tokens: a device's experts get k tokens for each of its b * s, however many devices share the experts."""
    assert published("moe-megatron-tokens")["formula"].startswith("routed tokens per rank after dispatch = topk*s*b*ETP/TP; EP cancels")
    d = derive_model(load("mixtral"), parse_strategy("ddp * ep"))
    (layers,) = (p for p in d.parts if p.name == "layers")
    (sent,) = (h.row for h in d.costs[0].held if h.row.stored.name.endswith("sent_by_experts"))
    b, s, k, h, c = sympy.symbols("b s k h c")
    assert sympy.simplify(sent.elements - c * b * s * k * h) == 0
    assert {e.kind for e, _ in layers.exchanges(d.at)} == {"all_to_all"}


def test_tokens_after_dispatch_over_tensor_parallel_devices() -> None:
    """The same row with ETP = 1: of TP devices each sends its own tokens, and its experts get as many."""
    d = derive_model(load("mixtral"), parse_strategy("ddp * tp * sp * ep * ep(tp)"))
    (sent,) = (h.row for h in d.costs[0].held if h.row.stored.name.endswith("sent_by_experts"))
    b, s, k, h, c, tp = sympy.symbols("b s k h c N_tp")
    assert sympy.simplify(sent.elements - c * b * s * k * h / tp) == 0


def test_mixtral_over_tensor_parallel_devices_by_hand() -> None:
    """16 devices: tp 2 and 8 data-parallel ones; an expert of each layer on each of 2 * 4 devices (Megatron's etp = 1, ep = 8).

    Of 32 layers with 8 experts of 3 matrices of 4096 x 14336, in bytes: 2 + 4 + 12 a parameter, the optimizer state sharded over the 2
    devices that have the same experts, and over all 8 data-parallel ones for everything else.
    """
    (cost,) = (d := derive_model(load("mixtral-8x7b"), parse_strategy("zero1(2) * zero1(ep) * tp(2) * sp * ep(4) * ep(tp)"))).costs
    expert = 3 * 4096 * 14336
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    rest = 32 * (attention // 2 + 2 * 4096 + 8 * 4096) + 4096 + 2 * 32000 * 4096 // 2
    widths = {"b_theta": Fraction(2), "b_g": Fraction(4), "b_omega": Fraction(12), "b_a": Fraction(2), "b": Fraction(1), "c": Fraction(1)}
    held = {state: d.value(amount, widths) for state, amount in cost.states.items()}
    assert held == {
        "parameters": 2 * (32 * expert + rest),
        "gradients": 4 * (32 * expert + rest),
        "optimizer": 12 * Fraction(32 * expert, 2) + 12 * Fraction(rest, 8),
    }
    # Half of the 32768 tokens of a sample, twice each, in 2 * 4096 bytes: 7 of 8 go elsewhere, there and back, in each direction.
    sent = [d.value(one.bytes * one.times, widths) for one in cost.sent if one.kind == "all_to_all"]
    assert sent == [32 * Fraction(7, 8) * 16384 * 2 * 4096 * 2] * 4
    assert {one.axes for one in cost.sent if one.kind == "all_to_all"} == {("ep", "tp")}
    experts = {one.axes: d.value(one.bytes, widths) for one in cost.sent if one.about == "gradients"}
    assert experts["dp",] == 4 * Fraction(32 * expert, 2)


def test_floating_point_operations_do_not_depend_on_whose_experts_a_device_has() -> None:
    """Tokens are spread evenly: a device with other experts computes with as many tokens as one with a part of each."""
    b, one = {"b": Fraction(1)}, {"c": Fraction(1)}
    forward = []
    for strategy in (
        "ddp(2) * tp(2) * sp * ep(4)",
        "ddp(4) * tp(2) * sp * ep(2) * ep(tp)",
        "cp(2) * ep(4) * ep(cp)",
        "ddp(2) * cp(2) * ep(2) * ep(cp)",
    ):
        (cost,) = (d := derive_model(load("mixtral-8x7b"), parse_strategy(strategy))).costs
        forward.append(d.value(cost.flops.forward, b | one))
    assert len(set(forward)) == 1


def test_states_of_a_model_follow_their_own_domains() -> None:
    d = derive_model(load("mixtral-8x7b"), parse_strategy("zero1(dp=4) * zero1(dp=ep) * ep(8)"))
    (cost,) = d.costs
    counted = load("mixtral-8x7b").parameters()
    experts = counted.groups["expert"]
    dense = counted.total - experts
    assert d.value(cost.states["parameters"], {"b_theta": Fraction(2)}) == 2 * (dense + Fraction(experts, 8))
    assert d.value(cost.states["optimizer"], {"b_omega": Fraction(12)}) == 12 * Fraction(dense + experts, 32)
    sent = {one.axes: one for one in cost.sent if one.about == "gradients"}
    assert set(sent) == {("dp", "ep"), ("dp",)}
    assert d.value(sent["dp", "ep"].bytes, {"b_g": Fraction(4)}) == 4 * dense * Fraction(31, 32)
    assert d.value(sent["dp",].bytes, {"b_g": Fraction(4)}) == 4 * Fraction(experts, 8) * Fraction(3, 4)


def test_deepseek_v3_as_it_was_trained() -> None:
    """Row dsv3-config: 16 stages, experts over 64 devices, ZeRO stage 1 over 2048 / 16 = 128 of them for everything else."""
    inputs = published("dsv3-config")["inputs"]
    copies = inputs["gpus"] // inputs["PP"] // inputs["EP"]
    strategy = parse_strategy(f"zero1({copies}) * zero1(dp=ep) * ep({inputs['EP']}) * pp({inputs['PP']})")
    d = derive_model(load("deepseek-v3"), strategy, layers=[3, *[4] * 14, 2])
    parameters = [sum((d.value(n) or 0 for g, n in c.parameters.items()), Fraction(0)) for c in d.costs]
    every = load("deepseek-v3").parameters()
    experts = sum((d.value(c.parameters["expert"]) or 0 for c in d.costs if "expert" in c.parameters), Fraction(0))
    assert experts == Fraction(every.groups["expert"], inputs["EP"])
    assert sum(parameters) == every.total - every.groups["expert"] + experts
    optimizer = sum((d.value(c.states["optimizer"], {"b_omega": Fraction(1)}) or 0 for c in d.costs), Fraction(0))
    assert optimizer == Fraction(every.total, copies * inputs["EP"])


@pytest.mark.parametrize(
    "strategy",
    [
        "ddp * ep * tp",
        "zero1 * ep(experts=whole) * tp * sp",
        "zero1 * ep * tp * sp",
        "ddp * ep * cp",
        "fsdp * fsdp(dp=ep) * ep * pp",
        "zero1 * ep * tp * sp * ep(tp)",
        "ddp * cp(attention=ulysses) * tp * sp * ep(cp) * ep(tp)",
    ],
)
def test_blocks_of_models_with_experts_are_proved_on_every_mesh(strategy: str) -> None:
    for block in link(load("mixtral"), parse_strategy(strategy)).blocks.values():
        assert judge(block.program).word == "proved", block.name


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("mixtral-8x7b", "zero1 * zero1(ep) * tp * sp * ep * ep(tp) * clip"),
        ("qwen3-30b-a3b", "fsdp * cp * tp * sp * ep(cp) * ep(tp) * accumulate"),
        ("deepseek-v3", "ddp * tp(2) * sp * ep * ep(tp) * pp(4) * checkpoint"),
    ],
)
def test_steps_of_models_are_proved_and_a_step_that_adds_up_other_experts_is_refuted(model: str, strategy: str) -> None:
    linked = link(load(model), parse_strategy(strategy))
    assert judge_linked(linked).word == "proved"
    text = render_linked(linked)
    summed = "gradients.norm = all_reduce(gradients.norm, tp)\n"
    assert summed in text
    assert judge_linked(read_linked(text.replace(summed, ""))).word == "refuted"
    wrong = summed + "gradients.expert = all_reduce(gradients.expert, tp)\n"
    assert judge_linked(read_linked(text.replace(summed, wrong))).word == "refuted"


def test_tokens_that_two_axes_split_go_to_experts_over_both() -> None:
    mixtral = load("mixtral")
    for strategy in ("cp * tp * sp * ep(cp)", "cp * tp * sp * ep(cp, experts=whole)"):
        with pytest.raises(InputError, match="is not lowered for blocks"):
            link(mixtral, parse_strategy(strategy))
        assert judge(program(strategy)).word == "proved"
    for strategy in ("cp * tp * ep(cp)", "cp * tp * sp * ep(cp) * ep(tp)", "cp * tp * sp * ep(tp)"):
        link(mixtral, parse_strategy(strategy))


@pytest.mark.parametrize("strategy", ["ddp * ep(3)", "ddp * tp(2) * sp * ep(8) * ep(tp)", "cp(16) * ep(cp)"])
def test_experts_that_do_not_divide_are_refused(strategy: str) -> None:
    with pytest.raises(InputError, match="dimension `experts` of size 8"):
        require_fit(derive_model(load("mixtral-8x7b"), parse_strategy(strategy)), {})


@pytest.mark.parametrize(
    "strategy", ["tp * sp * ep", "tp * ep", "tp * sp * ep(experts=whole)", "tp * sp * ep * zero3(dp=dp2)", "tp * sp * ep(tp)"]
)
def test_the_groups_of_a_block_keep_all_activations_together(strategy: str) -> None:
    """On one device they add up to A."""
    kept = derive(parse_strategy(strategy)).forms["memory.activations"]
    alone = kept.xreplace({s: sympy.Integer(1) for s in kept.free_symbols if str(s).startswith("N")})
    assert sympy.expand(alone - symbol("A") * symbol("b_a")) == 0


@pytest.mark.parametrize("more", ["", " * pp(2, microbatches=8)", " * checkpoint", " * cp"])
def test_experts_over_the_hidden_axis_leave_activations_as_they_are(more: str) -> None:
    """Whole experts on an axis of their own, and on that of tensor parallelism, too: the stream between layers is the same."""
    beside, over = (derive(parse_strategy(f"tp(2) * sp * {text}{more}")) for text in ("ep(4, experts=whole)", "ep(4) * ep(tp)"))
    assert beside.memory["activations"] == over.memory["activations"]
    assert beside.memory["transient"] == over.memory["transient"]
    assert beside.by_axis.get("pp") == over.by_axis.get("pp")


def test_steps_whose_experts_lie_over_other_devices_are_told_apart() -> None:
    """Each expert whole on a device of tensor parallelism, or a slice of each: states lie `S` there in both."""
    over, beside = (lower(parse_strategy(f"tp * sp * {text}")) for text in ("ep * ep(tp)", "ep"))
    assert [(d.part, d.group, d.left, d.right) for d in differences(over, beside)] == [("experts", "expert", "ep, tp", "ep")]
    assert differences(over, lower(parse_strategy("ep(tp) * ep * sp * tp"))) == ()
    found = refine(over, beside)
    assert found.word == "differs, and both are proved"
