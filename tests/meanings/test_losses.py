"""Loss contracts: proofs and runs against sums over tokens that are written out here."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read, render
from placeproof.programs.losses import UNITS
from placeproof.semantics.judge.verdict import all_obligations_hold, judge
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.problem import Problem
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.resolve import resolve
from placeproof.theory.statements import read_subject

# The oracle: a global batch of tokens, and what is made of them.


@dataclass(frozen=True)
class Token:
    """A token that counts: where it is, what it belongs to, and its loss."""

    dp: int
    cp: int
    batch: int
    sequence: int
    sample: int
    prompt: int
    loss: Fraction


@dataclass(frozen=True)
class Batch:
    """All tokens of a step, and the weight of each sample, by where it is."""

    tokens: tuple[Token, ...]
    weights: dict[tuple[int, int, int], Fraction]
    dp: int
    cp: int
    m: int

    def units(self, unit: str) -> dict[tuple[int, ...], tuple[Fraction, list[Token]]]:
        """The units by where they are: how many each counts for, and its tokens. Those of tokens say their device, too."""
        key: dict[str, Callable[[Token], int]] = {
            "sequences": lambda t: t.sequence, "samples": lambda t: t.sample, "weights": lambda t: t.sample, "prompts": lambda t: t.prompt,
        }  # fmt: skip
        every: dict[tuple[int, ...], tuple[Fraction, list[Token]]] = {}
        for number, t in enumerate(self.tokens):
            name = (t.dp, t.batch, number if unit == "tokens" else key[unit](t))
            many = self.weights[name] if unit == "weights" else Fraction(1)
            every.setdefault(name, (many, []))[1].append(t)
        return every

    def part(self, unit: str, dp: int, cp: int, batch: int) -> Fraction:
        """What a device has of the sum of the losses of the units of a micro-batch."""
        total = Fraction(0)
        for (at, i, _), (many, tokens) in self.units(unit).items():
            if (at, i) == (dp, batch):
                total += many * sum((t.loss for t in tokens if t.cp == cp), Fraction(0)) / len(tokens)
        return total

    def count(self, unit: str, dp: int, cp: int, batch: int) -> Fraction:
        """How many of a unit a device's micro-batch has."""
        of = self.units(unit).items()
        return sum((n for (at, i, _), (n, ts) in of if (at, i) == (dp, batch) and (unit != "tokens" or ts[0].cp == cp)), Fraction(0))

    def everywhere(self, unit: str) -> Fraction:
        """How many of a unit there are."""
        return sum((n for n, _ in self.units(unit).values()), Fraction(0))

    def contract(self, over: str, of: str) -> Fraction:
        """What is trained."""
        every = {
            (d, i): [u for (at, b, _), u in self.units(of).items() if (at, b) == (d, i)] for d in range(self.dp) for i in range(self.m)
        }
        losses = {key: [(n, n * sum(t.loss for t in ts) / len(ts)) for n, ts in units] for key, units in every.items()}
        if over == "micro_batches":
            means = [sum(x for _, x in units) / sum(n for n, _ in units) for units in losses.values()]
            return Fraction(sum(means)) / len(means)
        total = sum(x for units in losses.values() for _, x in units)
        return Fraction(total) / (7 if over == "7" else self.everywhere(over))


def drawn(seed: int) -> Batch:
    """A batch on two data-parallel and two context-parallel devices, with two micro-batches."""
    rng, tokens, weights = random.Random(seed), [], {}
    for d, i in itertools.product(range(2), range(2)):
        sample = prompt = 0
        for q in range(rng.randint(1, 3)):
            sample, prompt = sample + (q > 0 and rng.random() < 0.5), prompt + (q > 0 and rng.random() < 0.5)
            weights.setdefault((d, i, sample), Fraction(rng.randint(1, 5)))
            for c in range(2):
                tokens += [Token(d, c, i, q, sample, prompt, Fraction(rng.randint(-9, 9))) for _ in range(rng.randint(1, 3))]
    return Batch(tuple(tokens), weights, 2, 2, 2)


@dataclass(frozen=True)
class Step:
    """A pass of a micro-batch, a number by which it is multiplied, and what the sum over all is divided by."""

    unit: str
    summed: bool
    weight: str | None
    divisor: str

    def text(self, contract: str) -> str:
        """The program."""
        count = {u: "tokens(i)" if u == "tokens" else f"count(i, of={u})" for u in UNITS}
        passed = f"backward(parameters, i, {'sum' if self.summed else 'mean'}={self.unit})"
        passed = f"scale({passed}, {count[self.weight]})" if self.weight else passed
        lines = ["mesh(dp, cp)", f"reference(loss={contract})", "for i in microbatches:", f"    G += {passed}"]
        over = {"batches": "dp * microbatches", "devices": "dp * cp * microbatches", "7": "7"}.get(self.divisor, "n")
        if over == "n":
            axes = "dp, cp" if self.divisor == "tokens" else "dp"
            lines = [*lines, f"    n += {count[self.divisor]}", f"n = all_reduce(n, {axes})"]
        lines += [f"G = scale(all_reduce(G, dp, cp), 1 / ({over}))", "parameters, optimizer = update(parameters, optimizer, G)"]
        return "\n".join(lines)

    def value(self, batch: Batch) -> Fraction:
        """What it computes."""
        total = Fraction(0)
        for d, c, i in itertools.product(range(batch.dp), range(batch.cp), range(batch.m)):
            own = batch.part(self.unit, d, c, i) / (1 if self.summed else batch.count(self.unit, d, c, i))
            total += own * (batch.count(self.weight, d, c, i) if self.weight else 1)
        over = {"batches": batch.dp * batch.m, "devices": batch.dp * batch.cp * batch.m, "7": 7}
        return total / (over[self.divisor] if self.divisor in over else batch.everywhere(self.divisor))


STEPS = [Step(*one) for one in itertools.product(UNITS, (False, True), (None, "tokens", "sequences"), (*UNITS, "batches", "devices", "7"))]
CONTRACTS = [(over, of) for of in UNITS for over in (of, "micro_batches", "7")] + [("sequences", "tokens"), ("prompts", "sequences")]
BATCHES = [drawn(seed) for seed in range(6)]


def written(over: str, of: str) -> str:
    """A contract as it is written."""
    return f"mean_over({over}, of={of})"


@cache
def right() -> tuple[tuple[Step, tuple[str, str]], ...]:
    """The steps that train a contract on every batch."""
    return tuple(_right())


def _right() -> Iterator[tuple[Step, tuple[str, str]]]:
    values = [[b.contract(*c) for b in BATCHES] for c in CONTRACTS]
    for step in STEPS:
        own = [step.value(b) for b in BATCHES]
        yield from ((step, c) for c, wanted in zip(CONTRACTS, values, strict=True) if own == wanted)


def test_what_is_proved_is_what_sums_over_tokens_say() -> None:
    """Every step that is right on all batches is proved; of those that are wrong on one, none of a sample is."""
    correct = right()
    assert len(correct) >= 20
    for step, contract in correct:
        assert all_obligations_hold(read(step.text(written(*contract)))), (step, contract)
    wrong = [pair for pair in itertools.product(STEPS, CONTRACTS) if pair not in correct]
    for step, contract in random.Random(5).sample(wrong, 20):
        assert not all_obligations_hold(read(step.text(written(*contract)))), (step, contract)


@pytest.mark.parametrize("seed", range(5))
def test_verdicts_are_confirmed_or_refuted_by_runs(seed: int) -> None:
    """A step that is right is proved, and one that is wrong refuted with numbers."""
    rng, correct = random.Random(seed), right()
    step, contract = rng.choice(correct)
    assert judge(read(step.text(written(*contract)))).word == "proved"
    other = rng.choice([s for s in STEPS if (s, contract) not in correct])
    assert judge(read(other.text(written(*contract))), shortest=False).word == "refuted", (other, contract)


class _Given(Problem):
    """A problem whose sequences are those of a batch of the oracle."""

    batch: Batch

    def of_sequence(self, what: str, along: list[str], sample: tuple[int, ...], sequence: int | None, _: int) -> Fraction:
        at, own = dict(zip(along, sample, strict=False)), [t for t in self.batch.tokens if (t.dp, t.batch) == (sample[0], sample[-1])]
        if sequence is None:
            return Fraction(len({t.sequence for t in own}))
        these = [t for t in own if t.sequence == sequence]
        if not these:
            return Fraction(1)
        if what == "tokens":
            return Fraction(sum(t.cp == at["cp"] for t in these))
        if what == "weight of the sample":
            return self.batch.weights[sample[0], sample[-1], these[0].sample]
        before = [t for t in own if t.sequence == sequence - 1]
        return Fraction(bool(before) and (before[0].prompt != these[0].prompt if "prompt" in what else before[0].sample != these[0].sample))

    def own_gradient(self, _: Any, sample: tuple[int, ...], __: int, ___: Any, of: str = "") -> Fraction:
        own = [t for t in self.batch.tokens if (t.dp, t.cp, t.batch) == sample]
        these = [t.loss for t in own if f"sequence {t.sequence}," in of]
        return sum(these, Fraction(0)) / len(these) if these else Fraction(0)

    def initial(self, _: Any, __: Any = None) -> Fraction:
        return Fraction(0)


@pytest.mark.parametrize(("over", "of"), CONTRACTS)
def test_the_one_device_of_runs_trains_the_contract(over: str, of: str) -> None:
    """The reference of runs, on the tokens of the oracle, is what the contract says."""
    program = resolve(read(STEPS[0].text(written(over, of))))
    setup = Setup({"dp": 2, "cp": 2}, microbatches=2)
    for batch in BATCHES:
        problem = type("_Of", (_Given,), {"batch": batch})(layout=Layout(program, setup), seed=1)
        both = Run(program, setup, problem)
        both.step(0)
        assert set(both.truth.gradient) == {batch.contract(over, of)}


def test_what_devices_compute_is_what_sums_over_tokens_say() -> None:
    """The gradient that the update of a device reads, on the tokens of the oracle."""
    setup, batch = Setup({"dp": 2, "cp": 2}, microbatches=2), BATCHES[1]
    for step in random.Random(3).sample(STEPS, 12):
        program = resolve(read(step.text("mean_over(7)")))
        both = Run(program, setup, type("_Of", (_Given,), {"batch": batch})(layout=Layout(program, setup), seed=1))
        both.step(0)
        assert {place.gradient(0, (0, 0)) for place in both.places} == {step.value(batch)}, step


@pytest.mark.parametrize(
    "strategy", ["ddp", "zero3", "hsdp(shard=2)", "zero1 * accumulate", "ddp * tp * pp", "fsdp * cp", "zero3 * ep", "tp"]
)
def test_strategies_train_micro_batches_unless_they_split_tokens(strategy: str) -> None:
    """Means of means: every micro-batch counts alike, and so does every part of one, whose tokens are not equally many."""
    program = read_subject(strategy)[1]
    assert _under(program, "mean_over(micro_batches)") == ("refuted" if "cp" in strategy else "proved")
    assert _under(program, "mean_over(tokens)") == ("proved" if strategy == "tp" else "refuted")
    assert _under(program, "mean_over(sequences)") == "refuted"


def _under(program: Program, contract: str) -> str:
    said = read(STEPS[0].text(contract)).loss
    return judge(replace(program, loss=said), shortest=False).word


LAYERS = """
mesh(dp, cp)
place(parameters, dp="S*")
place(optimizer, dp="S")
place(gradients, dp="S")
reference(loss=mean_over(weights) + 0.5 * mean_over(prompts, of=sequences, loss=z))
zero(gradients)
for i in microbatches:
    n += count(i, of=weights)
    p += count(i, of=prompts)
n = all_reduce(n, dp)
p = all_reduce(p, dp)
for i in microbatches:
    x = data(i)
    for u in units:
        w = all_gather(parameters[u], dp)
        x, activations[u] = forward(w, x)
    dx = scale(loss(x, sum=weights), 1 / n) + scale(loss(x, loss=z, sum=sequences), 0.5 / p)
    for u in reversed(units):
        w = all_gather(parameters[u], dp)
        gradients[u] += reduce_scatter(backward_weight(w, activations[u], dx), dp)
        dx = backward_input(w, activations[u], dx)
gradients = all_reduce(gradients, cp)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("sum=sequences", "mean=sequences"),
        ("0.5 / p", "0.5 / n"),
        ("loss(x, sum=weights)", "loss(x, sum=samples)"),
        ("p = all_reduce(p, dp)", "p = all_reduce(p, dp, cp)"),
    ],
)
def test_layers_pass_on_the_gradients_of_several_losses(old: str, new: str) -> None:
    """Each loss by its own unit, through units that are gathered; every mistake shows in numbers."""
    assert judge(read(LAYERS.replace(old, new)), shortest=False).word == ("refuted" if old else "proved")


# As text.


@pytest.mark.parametrize(
    "contract",
    [
        "mean_over(tokens)",
        "mean_over(sequences, of=tokens)",
        "2 * mean_over(1024) + 0.01 * mean_over(micro_batches, loss=balance) + 1 / 3 * mean_over(prompts, of=sequences, loss=kl)",
    ],
)
def test_a_contract_reads_back(contract: str) -> None:
    """What is printed is what was read."""
    program = read(STEPS[0].text(contract))
    assert f"reference(loss={contract})" in render(program)
    assert read(render(program)) == program


@pytest.mark.parametrize(
    ("contract", "passed", "says"),
    [
        ("mean_over(token)", "backward(parameters, i)", "`token` is nothing that a loss is a mean over"),
        ("mean_over(0)", "backward(parameters, i)", "divided by a number above 0"),
        ("mean_over(tokens, of=words)", "backward(parameters, i)", "`mean_over` has no `of=words`"),
        ("mean_over(tokens) - mean_over(tokens, loss=z)", "backward(parameters, i)", "a loss is a sum of means"),
        ("mean_over(tokens) + mean_over(samples)", "backward(parameters, i)", "two terms are of one loss"),
        ("mean_over(tokens)", "backward(parameters, i, loss=z)", "the reference has no loss `z`"),
        ("mean_over(tokens)", "backward(parameters, i, mean=tokens, sum=tokens)", "a mean or a sum, and not both"),
        ("mean_over(tokens)", "backward(parameters, i, mean=words)", "`mean=words` is not an option"),
    ],
)
def test_a_contract_that_cannot_be_meant_is_refused(contract: str, passed: str, says: str) -> None:
    """With what is wrong, once."""
    text = STEPS[0].text(contract).replace("backward(parameters, i, mean=tokens)", passed)
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        read(text)


def test_units_need_a_contract() -> None:
    """Of a step that says nothing of its loss, all that is known is that counts are equal."""
    text = "mesh(dp)\nG = all_reduce(scale(backward(parameters, sum=tokens), 1 / count(of=samples)), dp)\n"
    with pytest.raises(InputError, match="`count` is of steps that say") as caught:
        read(text + "parameters, optimizer = update(parameters, optimizer, G)\n")
    assert "`sum=` is of steps that say" in str(caught.value)
