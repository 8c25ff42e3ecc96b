"""Steps that train some groups and leave others as they are: right as they are lowered, wrong with a line less, and costed by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from compositions import mutants
from samples import sample

from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.derive import derive, evaluate
from placeproof.programs import Program, read, render
from placeproof.semantics.composition import composed
from placeproof.semantics.judge.refine import refine
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

STEPS = (
    "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "zeropp", "zero_offload", "zero_infinity", "pp", "ddp * ep", "zero1(back=broadcast)",
    "zero1(reduce=all_reduce)", "zero1 * accumulate", "fsdp(root=keep)", "fsdp(prefetch=true)", "fsdp(bucket=unit)", "fsdp * cp * pp",
    "fsdp * accumulate * checkpoint", "zero1 * zero1(dp=ep) * ep * pp", "fsdp * fsdp(dp=ep) * ep", "(S*, R, S, R, dp)", "(O, S, S, S, dp)",
    "zero1 * clip", "fsdp * ep * pp * clip", "zero_offload * clip",
)  # fmt: skip
GROUPS = "group(base, P - P_adapter, frozen=true)\ngroup(adapter, P_adapter)\n"
PARTS = 'place(parameters, dp="S*")\nplace(optimizer, dp="S")\nplace(gradients, dp="S")\n'
OWNERS = 'place(optimizer, dp="S")\n'
REDUCED = "g = all_reduce(backward(parameters), dp, op=mean)\n"
SCATTERED = "g = reduce_scatter(backward(parameters), dp, op=mean)\n"
UPDATE = "parameters, optimizer = update(parameters, optimizer, g)\n"


def adapted(text: str) -> Program:
    return lower(parse_strategy(f"{text} * lora"))


def written(*lines: str) -> Program:
    return read("mesh(dp)\n" + GROUPS + "".join(lines), source="written")


WITH_ADAPTERS = [f"{text} * lora" for text in sample(STEPS, lambda text: text.split(" * "))]


@pytest.mark.parametrize("text", [*WITH_ADAPTERS, "zero1 * clip * freeze", "fsdp * ep * accumulate * freeze"])
def test_a_step_trains_what_is_not_frozen_and_with_a_collective_less_it_does_not(text: str) -> None:
    program = lower(parse_strategy(text))
    kept = {g.name for g in program.groups if g.frozen}
    assert kept == ({g.name for g in program.groups} - {"adapter"} if text in WITH_ADAPTERS else {"frozen"})
    assert judge(resolve(program)).word == "proved"
    wrong = list(mutants(program))
    assert wrong
    for what, mutant in wrong:
        try:
            judged = judge(resolve(mutant))
        except InputError:
            continue
        assert judged.word == "refuted", (what, render(mutant))


def test_a_group_is_frozen_or_says_nothing() -> None:
    """Of what is trained nothing is said, as the grammar has it."""
    with pytest.raises(InputError) as refused:
        read("mesh(dp)\n" + GROUPS.replace("true", "false") + "parameters, optimizer = update(parameters, optimizer, gradients)\n")
    assert any("`false` is no value of `frozen`" in d.message for d in refused.value.diagnostics)


def test_the_rule_of_composition_proves_them() -> None:
    for text in ("ddp", "zero1", "zero2", "zero3", "hsdp", "zeropp", "zero_infinity * ep", "fsdp * cp * pp", "fsdp(prefetch=true)"):
        assert composed(adapted(text)).proved, text


#: Steps that are right, and why they say something: what is frozen passes through, whatever an update is given.
RIGHT = {
    "one device's": (REDUCED, UPDATE),
    "gathered": (PARTS, "g = reduce_scatter(backward(all_gather(parameters, dp)), dp, op=mean)\n", UPDATE),
    "refreshed": (OWNERS, SCATTERED, UPDATE,
                  "parameters.adapter = all_gather(parameters.adapter, dp)\n"),
    "refreshed all": (OWNERS, SCATTERED, UPDATE, "parameters = all_gather(parameters, dp)\n"),
    "clipped": ("reference(clip=global_norm)\n", REDUCED, "g = scale(g, clip_factor(sqrt(square_norm(g))))\n", UPDATE),
    "unless infinite": ("reference(skip=not_finite)\n", REDUCED, UPDATE.replace("g)", "g, found_inf(g))")),
}  # fmt: skip
WRONG = {
    "gradients of adapters are not reduced": ("g = backward(parameters)\n", UPDATE),
    "frozen weights are not gathered": (
        PARTS, "w = parameters\n", "w.adapter = all_gather(parameters.adapter, dp)\n", SCATTERED.replace("parameters", "w"), UPDATE,
    ),
    "adapters are not refreshed": (OWNERS, SCATTERED, UPDATE,
                                   "parameters.base = all_gather(parameters.base, dp)\n"),
    "a pass is of the rest alone": ("g = all_reduce(backward(parameters.adapter), dp, op=mean)\n", UPDATE),
    "frozen weights change": (REDUCED, UPDATE, "parameters.base = scale(parameters.base, 1 / 2)\n"),
    "frozen weights are lost": (OWNERS, SCATTERED,
                                "new, optimizer = update(master(optimizer), optimizer, g)\n", "parameters = all_gather(new, dp)\n"),
    "frozen weights shrink by decay": (REDUCED, UPDATE, "parameters.base = parameters.base - 1 / 8 * parameters.base\n"),
}  # fmt: skip
REFUSED = {
    "a gradient of what is frozen is exchanged": (REDUCED, "h = all_reduce(g.base, dp)\n", UPDATE),
    "a gradient of what is frozen is named": (REDUCED, "gradients.base = scale(g, 1)\n", UPDATE),
    "what is frozen is updated": (REDUCED, UPDATE, "parameters.base, o = update(parameters.base, optimizer, g)\n"),
    "its optimizer state is placed": ('place(optimizer.base, dp="S")\n', REDUCED, UPDATE),
    "its gradient is shared out": ("group(more, P_norm, partial=dp, frozen=true)\n", REDUCED, UPDATE),
    "its gradient is computed": (
        "x, kept = forward(parameters, data())\n", "h = backward_weight(parameters.base, kept, loss(x))\n", REDUCED, UPDATE,
    ),
    "a pass is of it alone, by a buffer": ("w.base = copy(parameters.base)\n", "g = all_reduce(backward(w), dp, op=mean)\n", UPDATE),
    "a pass is of it alone": ("g = all_reduce(backward(parameters.base), dp, op=mean)\n", UPDATE),
    "its weights' gradients alone are computed": (
        "x, kept = forward(parameters, data())\n", "g = all_reduce(backward_weight(parameters.base, kept, loss(x)), dp, op=mean)\n", UPDATE,
    ),
    "it is frozen perhaps": ("group(more, P_norm, frozen=maybe)\n", REDUCED, UPDATE),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert judge(resolve(written(*RIGHT[name]))).word == "proved"


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    assert judge(resolve(written(*WRONG[name])), shortest=False).word == "refuted"


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(InputError, match="frozen") as refused:
        resolve(written(*REFUSED[name]))
    assert {d.code for d in refused.value.diagnostics} <= {"PP303", "PP305", "PP309"}


def test_a_step_that_trains_nothing_is_refused() -> None:
    text = "mesh(dp)\ngroup(base, P - P_norm, frozen=true)\ngroup(norm, P_norm)\n" + REDUCED + UPDATE
    resolve(read(text, source="one"))
    with pytest.raises(InputError, match="trains nothing"):
        read(text.replace("P_norm)\ng =", "P_norm, frozen=true)\ng ="), source="none")


def test_a_step_that_trains_all_is_another_step() -> None:
    """Both are right, each for another reference."""
    full, adapters = lower(parse_strategy("fsdp")), adapted("fsdp")
    result = refine(full, adapters)
    assert result.word == "differs, and both are proved"
    assert ("reference", "base", "nothing", "frozen") in {(d.part, d.group, d.left, d.right) for d in result.differences}
    assert refine(adapters, adapted("zero3")).word == "refines"


# Costs. A model of P = 10,000 parameters, of which 400 are adapters, on 4 devices.

P, ADAPTERS, N = 10_000, 400, 4
BASE = P - ADAPTERS
#: Bytes of an element, no two alike.
THETA, GRADIENT, OMEGA, FROZEN = 2, 3, 11, Fraction(1, 2)
RING = Fraction(N - 1, N)
WEIGHTS = FROZEN * BASE + THETA * ADAPTERS
#: What a device holds of parameters, gradients and optimizer state, and what it sends of parameters and gradients.
BY_HAND = {
    "ddp": (WEIGHTS, GRADIENT * ADAPTERS, OMEGA * ADAPTERS, 2 * RING * GRADIENT * ADAPTERS),
    "zero1": (WEIGHTS, GRADIENT * ADAPTERS, OMEGA * ADAPTERS / N, RING * (GRADIENT + THETA) * ADAPTERS),
    "zero2": (WEIGHTS, GRADIENT * ADAPTERS / N, OMEGA * ADAPTERS / N, RING * (GRADIENT + THETA) * ADAPTERS),
    "zero3": (WEIGHTS / N, GRADIENT * ADAPTERS / N, OMEGA * ADAPTERS / N, RING * (2 * WEIGHTS + GRADIENT * ADAPTERS)),
    "fsdp(reshard_after_forward=false)": (
        WEIGHTS / N, GRADIENT * ADAPTERS / N, OMEGA * ADAPTERS / N, RING * (WEIGHTS + GRADIENT * ADAPTERS),
    ),
    "zero_offload": (WEIGHTS, 0, 0, RING * (GRADIENT + THETA) * ADAPTERS),
}  # fmt: skip


@pytest.mark.parametrize("text", BY_HAND)
def test_costs_are_those_that_a_hand_finds(text: str) -> None:
    derived = derive(adapted(text))
    values = {name: Fraction(n) for name, n in {"P": P, "P_adapter": ADAPTERS, "N": N, "U": P, "A": 0}.items()}
    values |= {"b_theta": Fraction(THETA), "b_g": Fraction(GRADIENT), "b_omega": Fraction(OMEGA), "b_frozen": FROZEN, "b_a": Fraction(1)}
    parameters, gradients, optimizer, sent = BY_HAND[text]
    assert evaluate(derived.memory["parameters"], values) == parameters
    assert evaluate(derived.memory["gradients"], values) == gradients
    assert evaluate(derived.memory["optimizer"], values) == optimizer
    assert evaluate(derived.sent, values) == sent
    assert evaluate(derived.undivided, values) == WEIGHTS + (GRADIENT + OMEGA) * ADAPTERS


@pytest.mark.parametrize("text", ["zero1", "fsdp", "hsdp * pp"])
def test_a_part_of_the_parameters_is_as_adapters_of_that_size(text: str) -> None:
    part, own = derive(lower(parse_strategy(f"{text} * freeze"))), derive(adapted(text))
    rest = {symbol("P_adapter"): symbol("P") - symbol("P_frozen")}
    for mine, theirs in ((part.memory["model_states"], own.memory["model_states"]), (part.sent, own.sent)):
        assert (mine - theirs.xreplace(rest)).equals(0)


@pytest.mark.parametrize("text", ["ddp", "zero2", "fsdp", "hsdp * pp", "zeropp"])
def test_where_all_parameters_are_adapters_it_is_the_strategy_itself(text: str) -> None:
    own, full = derive(adapted(text)), derive(parse_strategy(text))
    whole, none = {symbol("P_adapter"): symbol("P")}, {symbol("P_adapter"): symbol("P") * 0}
    for mine, theirs in ((own.memory["model_states"], full.memory["model_states"]), (own.sent, full.sent)):
        assert (mine.xreplace(whole) - theirs).equals(0)
        assert not (mine - theirs).equals(0)
    assert own.memory["gradients"].xreplace(none) == own.memory["optimizer"].xreplace(none) == 0


def test_a_hidden_dimension_that_is_split_is_refused() -> None:
    with pytest.raises(InputError, match="adapters"):
        adapted("fsdp * tp")


def test_the_width_of_four_bits_with_scales() -> None:
    """What the manual gives as bytes of a frozen weight: QLoRA, section 3, scales of 64 weights, and of 256 scales."""
    first, second = 64, 256
    bits = 4 + Fraction(8, first) + Fraction(32, first * second)
    assert bits / 8 == Fraction(2113, 4096)
