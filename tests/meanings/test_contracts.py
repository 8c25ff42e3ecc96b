"""Every strategy under every loss contract: with its counts it is proved, with any mistake in them refuted."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from samples import NIGHTLY, parts, sample

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read, render
from placeproof.semantics.catalogue import compositions, variants
from placeproof.semantics.judge.verdict import all_obligations_hold, judge
from placeproof.theory import StatementError, under
from placeproof.theory.statements import edited, read_subject
from placeproof.theory.suite.load import Loaded, load_file, suite


def of_file(name: str) -> Any:
    """What a file of theorems has."""
    first, *_ = load_file(suite() / name, Loaded())
    module = ModuleType(name)
    module.__dict__.update(first.function.__globals__)
    return module


@pytest.fixture(scope="module")
def theorems() -> Any:
    """The file of theorems about contracts."""
    return of_file("contracts.py")


def tried() -> list[tuple[str, Program]]:
    """Strategies with each option, and any two together; by day some that have each strategy and option."""
    every = {text: made for text, made in (*compositions(2), *variants()) if isinstance(made, Program)}
    return [(text, every[text]) for text in sample(list(every), parts)]


def test_every_composition_trains_every_contract_by_its_counts(theorems: Any) -> None:
    """By day each composition under one of the contracts, at night under all."""
    contracts = [contract for contract, _, _ in theorems.CONTRACTS.values()]
    for number, (text, program) in enumerate(tried()):
        for contract in contracts if NIGHTLY else [contracts[number % len(contracts)]]:
            assert all_obligations_hold(under(program, contract)), (text, contract)


def test_every_mistake_in_a_count_is_refuted(theorems: Any) -> None:
    """By day a few of the two thousand, at night all: of each strategy, each composition that is used, and each contract."""
    contracts = [contract for contract, _, _ in theorems.CONTRACTS.values()]
    for number, program in enumerate(theorems.strategies().values()):
        for contract in contracts if NIGHTLY else contracts[number % 12 :: 12] if number % 3 == 0 else []:
            every = list(theorems.mistakes(under(program, contract)).values())
            for wrong in every if NIGHTLY else every[number % len(every) :][:1]:
                assert judge(wrong, shortest=False).word == "refuted", wrong.name


def test_what_strategies_train_as_they_are(theorems: Any) -> None:
    """At night each strategy under each contract; by day theorems try some."""
    contracts = [contract for contract, _, _ in theorems.CONTRACTS.values()]
    for text in theorems.strategies() if NIGHTLY else theorems.TOGETHER[3:5]:
        for contract in contracts if NIGHTLY else contracts[:1]:
            word = "proved" if theorems.trains_as_it_is(text, contract) else "refuted"
            assert judge(theorems.as_it_is(text, contract), shortest=False).word == word, (text, contract)


@pytest.mark.skipif(not NIGHTLY, reason="by day a theorem tries some")
def test_every_norm_over_other_devices_is_refuted() -> None:
    """Each sum of squares over an axis less, and over one more, on meshes of several kinds."""
    norms = of_file("agreement.py")
    for text in norms.MIXED:
        for step in norms.other_norms(text):
            assert judge(step, shortest=False).word == "refuted", step.name


# Pipelines: what the last stage multiplies its loss by reaches all stages.

PIPELINES = ["pp", "tp * pp", "zero3 * pp", "pp * checkpoint", "tp * sp * pp", "pp(schedule=interleaved, chunks=2) * tp"]
WRONG = {
    "each stage multiplies what it receives": ("dx = recv(pp, source=1)", "dx = recv(pp, source=1) / 1024"),
    "each stage but the last one lacks it": ("send(dx, pp, to=-1)", "send(1024 * dx, pp, to=-1)"),
    "the last stage has it twice": ("/ 1024", "/ 1024 / 1024"),
}


@pytest.mark.parametrize("strategy", PIPELINES)
def test_a_loss_that_is_scaled_before_backward_is_scaled_on_every_stage(strategy: str) -> None:
    """Layer by layer, too; and with the scale at one stage, or at all of them, the step is refuted."""
    right = under(strategy, "mean_over(1024)")
    assert judge(right, shortest=False).word == "proved"
    old, new = WRONG[sorted(WRONG)[PIPELINES.index(strategy) % len(WRONG)]]
    assert judge(edited(right, old, new), shortest=False).word == "refuted"


@pytest.mark.parametrize("what", WRONG)
def test_a_scale_that_stages_do_not_share_is_refuted(what: str) -> None:
    assert judge(edited(under("tp * pp", "mean_over(1024)"), *WRONG[what]), shortest=False).word == "refuted"


def test_several_losses_pass_through_the_stages() -> None:
    """Each with a factor of its own; with those of the two exchanged the step is refuted."""
    right = under("zero1 * tp * pp", "mean_over(tokens) + 0.5 * mean_over(sequences, loss=kl)")
    assert judge(right, shortest=False).word == "proved"
    assert judge(edited(right, "sum=sequences) / n1", "sum=sequences) / n0"), shortest=False).word == "refuted"


# What `under` takes.


def test_a_contract_takes_the_place_of_means() -> None:
    """Counts before the first pass, the sum of each loss, and no division behind."""
    text = render(under("ddp * cp * accumulate", "mean_over(tokens) + 0.5 * mean_over(micro_batches, of=sequences, loss=kl)"))
    assert "    n0 += tokens(i)\nn0 = all_reduce(n0, dp, cp)" in text
    assert "scale(loss(x, loss=kl, sum=sequences) / (count(i, of=sequences) * dp * microbatches), 1 / 2)" in text
    assert "scale(gradients" not in text


def test_a_step_that_is_no_strategy_is_refused() -> None:
    """Its losses are whole passes, or it divides otherwise."""
    step = "mesh(dp)\nG = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, G)\n"
    for subject in (read(step), edited("ddp", "gradients = scale(gradients, 1 / dp)\n", "")):
        with pytest.raises(StatementError, match="does not take its loss once and divide at the end"):
            under(subject, "mean_over(tokens)")
    with pytest.raises(InputError, match="`token` is nothing that a loss is a mean over"):
        under(read_subject("ddp")[1], "mean_over(token)")
