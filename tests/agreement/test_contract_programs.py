"""Steps under loss contracts, written from the documentation, against sums over tokens that are added up here in fractions.

Each row has a step, and what its devices compute, said once more in Python. Counts differ everywhere; nobody may take them to be equal.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import pytest

import placeproof
from placeproof.programs import read

F = Fraction


@dataclass(frozen=True)
class Token:
    """Where a token lies, what it belongs to, and what its two losses are."""

    at: tuple[int, int, int]
    sequence: int
    sample: int
    prompt: int
    losses: tuple[Fraction, Fraction]


class Batch:
    """All tokens of a step on two by two devices with two micro-batches, by sequence, sample and prompt; samples have weights."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.tokens, self.weight = list[Token](), dict[tuple[int, int, int], Fraction]()
        for d, i in itertools.product(range(2), range(2)):
            for sequence in range(rng.randint(2, 5)):
                sample, prompt = sequence // 2, sequence // 3
                self.weight.setdefault((d, i, sample), F(rng.randint(1, 6)))
                for c in range(2):
                    for _ in range(rng.randint(1, 4)):
                        losses = F(rng.randint(-9, 9)), F(rng.randint(-9, 9))
                        self.tokens.append(Token((d, c, i), sequence, sample, prompt, losses))

    def units(self, unit: str, d: int, i: int) -> list[tuple[Fraction, list[Token]]]:
        """The units of a micro-batch, on all devices that share its tokens: how much each counts for, and its tokens."""
        own = [t for t in self.tokens if (t.at[0], t.at[2]) == (d, i)]
        if unit == "tokens":
            return [(F(1), [t]) for t in own]
        key: Callable[[Token], int] = {
            "sequences": lambda t: t.sequence, "prompts": lambda t: t.prompt, "samples": lambda t: t.sample, "weights": lambda t: t.sample,
        }[unit]  # fmt: skip
        groups = [[t for t in own if key(t) == k] for k in sorted({key(t) for t in own})]
        return [(self.weight[d, i, g[0].sample] if unit == "weights" else F(1), g) for g in groups]

    def sum(self, unit: str, d: int, c: int, i: int, loss: int = 0) -> Fraction:
        """The part of a device of the sum of losses of a micro-batch's units."""
        return added(w * added(t.losses[loss] for t in ts if t.at[1] == c) / len(ts) for w, ts in self.units(unit, d, i))

    def count(self, unit: str, d: int, c: int, i: int) -> Fraction:
        """How many units a device's micro-batch has; of tokens, its own."""
        return added(w for w, ts in self.units(unit, d, i) if unit != "tokens" or ts[0].at[1] == c)

    def all(self, unit: str) -> Fraction:
        """How many units there are."""
        return added(w for d, i in itertools.product(range(2), range(2)) for w, _ in self.units(unit, d, i))


def added(numbers: Iterable[Fraction]) -> Fraction:
    """The sum of some numbers."""
    return sum(numbers, F(0))


def every(of: Callable[[int, int, int], Fraction]) -> Fraction:
    """The sum over all devices and micro-batches."""
    return added(of(*at) for at in itertools.product(range(2), range(2), range(2)))


def mean(b: Batch, over: str, of: str = "", loss: int = 0) -> Fraction:
    """What a term of a contract is."""
    total = every(lambda d, c, i: b.sum(of or over, d, c, i, loss))
    return total / (F(over) if over.isdigit() else b.all(over))


def batches(b: Batch, of: str = "tokens", loss: int = 0) -> Fraction:
    """The mean over micro-batches of the mean over their units."""
    means = []
    for d, i in itertools.product(range(2), range(2)):
        units = b.units(of, d, i)
        means.append(added(w * added(t.losses[loss] for t in ts) / len(ts) for w, ts in units) / added(w for w, _ in units))
    return added(means) / 4


CONTRACTS: dict[str, Callable[[Batch], Fraction]] = {
    "mean_over(tokens)": lambda b: mean(b, "tokens"),
    "mean_over(sequences)": lambda b: mean(b, "sequences"),
    "mean_over(samples)": lambda b: mean(b, "samples"),
    "mean_over(prompts)": lambda b: mean(b, "prompts"),
    "mean_over(weights)": lambda b: mean(b, "weights"),
    "mean_over(8)": lambda b: mean(b, "8", "tokens"),
    "mean_over(sequences, of=tokens)": lambda b: mean(b, "sequences", "tokens"),
    "mean_over(micro_batches)": batches,
    "mean_over(micro_batches, of=sequences)": lambda b: batches(b, "sequences"),
    "mean_over(tokens) + 0.5 * mean_over(sequences, loss=kl)": lambda b: mean(b, "tokens") + mean(b, "sequences", loss=1) / 2,
    "mean_over(tokens) + 0.5 * mean_over(micro_batches, loss=kl)": lambda b: mean(b, "tokens") + batches(b, loss=1) / 2,
}
TOKENS, SEQUENCES, BATCHES, EIGHT = "mean_over(tokens)", "mean_over(sequences)", "mean_over(micro_batches)", "mean_over(8)"
KL, BALANCE = (f"{TOKENS} + 0.5 * mean_over({unit}, loss=kl)" for unit in ("sequences", "micro_batches"))


def whole(unit: str, divisor: Callable[[Batch], Fraction]) -> Callable[[Batch, int], Fraction]:
    """Sums on all devices, divided by one number."""
    return lambda b, _: every(lambda d, c, i: b.sum(unit, d, c, i)) / divisor(b)


def each(of: Callable[[Batch, int, int, int], Fraction]) -> Callable[[Batch, int], Fraction]:
    """The sum over all devices of what each makes of each micro-batch."""
    return lambda b, _: every(lambda d, c, i: of(b, d, c, i))


def step(*lines: str, passes: tuple[str, ...] = (), reduce: str = "G = all_reduce(G, dp, cp)") -> list[str]:
    """Lines of each micro-batch, the reduction, and lines behind it."""
    return ["for i in microbatches:", *(f"    {p}" for p in passes), reduce, *lines]


N, G = "n += tokens(i)", "G += backward(parameters, i, sum=tokens)"
ALL = "n = all_reduce(n, dp, cp)"


def _sum(unit: str) -> str:
    return f"G += backward(parameters, i, sum={unit})"


def _count(unit: str) -> str:
    return f"n += count(i, of={unit})"


#: What each is, its contract, its lines, and what a device that has a rank of cp computes.
ROWS: dict[str, tuple[str, list[str], Callable[[Batch, int], Fraction]]] = {
    "sums by all tokens": (TOKENS, step(ALL, "G = G / n", passes=(N, G)), whole("tokens", lambda b: b.all("tokens"))),
    "counted over dp alone": (
        TOKENS,
        step("n = all_reduce(n, dp)", "G = G / n", passes=(N, G)),
        lambda b, c: whole("tokens", lambda b: added(b.count("tokens", d, c, i) for d in range(2) for i in range(2)))(b, c),
    ),
    "counted in each micro-batch over all": (
        TOKENS,
        step("G = G / n", passes=("n += all_reduce(tokens(i), dp, cp)", G)),
        whole("tokens", lambda b: b.all("tokens")),
    ),
    "tokens of the last micro-batch, times their number": (
        TOKENS,
        step(ALL, "G = G / (n * microbatches)", passes=("n = tokens(i)", G)),
        whole("tokens", lambda b: 2 * added(b.count("tokens", d, c, 1) for d in range(2) for c in range(2))),
    ),
    "means, weighted by tokens": (
        TOKENS,
        step(ALL, "G = G / n", passes=(N, "G += tokens(i) * backward(parameters, i)")),
        whole("tokens", lambda b: b.all("tokens")),
    ),
    "means of all": (
        TOKENS,
        step("G = G / (dp * cp * microbatches)", passes=("G += backward(parameters, i)",)),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / b.count("tokens", d, c, i) / 8),
    ),
    "by the tokens that all devices have in this micro-batch": (
        TOKENS,
        step("G = G / microbatches", passes=("G += backward(parameters, i, sum=tokens) / all_reduce(tokens(i), dp, cp)",)),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / added(b.count("tokens", e, f, i) for e in range(2) for f in range(2)) / 2),
    ),
    "averaged by DDP, multiplied before": (
        TOKENS,
        step(passes=(N, G), reduce="n = all_reduce(n, dp, cp)\nG = all_reduce(G * (dp * cp) / n, dp, cp, op=mean)"),
        whole("tokens", lambda b: b.all("tokens")),
    ),
    "averaged by DDP, and not multiplied": (
        TOKENS,
        step(passes=(N, G), reduce="n = all_reduce(n, dp, cp)\nG = all_reduce(G / n, dp, cp, op=mean)"),
        whole("tokens", lambda b: 4 * b.all("tokens")),
    ),
    "counted by one rank for all": (
        TOKENS,
        step("n = broadcast(all_reduce(n, cp), dp, root=0)", "G = G / (n * dp)", passes=(N, G)),
        whole("tokens", lambda b: 2 * added(b.count("tokens", 0, c, i) for c in range(2) for i in range(2))),
    ),
    "sequences by their number": (
        SEQUENCES,
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("sequences"), _sum("sequences"))),
        whole("sequences", lambda b: b.all("sequences")),
    ),
    "sequences counted over cp, too": (
        SEQUENCES,
        step(ALL, "G = G / n", passes=(_count("sequences"), _sum("sequences"))),
        whole("sequences", lambda b: 2 * b.all("sequences")),
    ),
    "means of sequences, weighted": (
        SEQUENCES,
        step("n = all_reduce(n, dp)", "G = G / n", passes=(
            _count("sequences"), "G += count(i, of=sequences) * backward(parameters, i, mean=sequences)")),
        whole("sequences", lambda b: b.all("sequences")),
    ),
    "means of sequences, and means of these": (
        SEQUENCES,
        step("G = G / (dp * microbatches)", passes=("G += backward(parameters, i, mean=sequences)",)),
        each(lambda b, d, c, i: b.sum("sequences", d, c, i) / b.count("sequences", d, c, i) / 4),
    ),
    "the same, for micro-batches of sequences": (
        "mean_over(micro_batches, of=sequences)",
        step("G = G / (dp * microbatches)", passes=("G += backward(parameters, i, mean=sequences)",)),
        each(lambda b, d, c, i: b.sum("sequences", d, c, i) / b.count("sequences", d, c, i) / 4),
    ),
    "micro-batches whose tokens lie on cp": (
        BATCHES,
        step("G = G / (dp * microbatches)", passes=("G += backward(parameters, i, sum=tokens) / all_reduce(tokens(i), cp)",)),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / added(b.count("tokens", d, f, i) for f in range(2)) / 4),
    ),
    "micro-batches by own means over cp": (
        BATCHES,
        step("G = G / (dp * microbatches)", passes=("G += all_reduce(backward(parameters, i), cp, op=mean)",),
             reduce="G = all_reduce(G, dp)"),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / b.count("tokens", d, c, i) / 8),
    ),
    "micro-batches by all tokens": (BATCHES, step(ALL, "G = G / n", passes=(N, G)), whole("tokens", lambda b: b.all("tokens"))),
    "samples": (
        "mean_over(samples)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("samples"), _sum("samples"))),
        whole("samples", lambda b: b.all("samples")),
    ),
    "samples by the number of sequences": (
        "mean_over(samples)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("sequences"), _sum("samples"))),
        whole("samples", lambda b: b.all("sequences")),
    ),
    "prompts": (
        "mean_over(prompts)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("prompts"), _sum("prompts"))),
        whole("prompts", lambda b: b.all("prompts")),
    ),
    "prompts as sums of sequences": (
        "mean_over(prompts)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("prompts"), _sum("sequences"))),
        whole("sequences", lambda b: b.all("prompts")),
    ),
    "weights": (
        "mean_over(weights)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("weights"), _sum("weights"))),
        whole("weights", lambda b: b.all("weights")),
    ),
    "weights by the number of samples": (
        "mean_over(weights)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("samples"), _sum("weights"))),
        whole("weights", lambda b: b.all("samples")),
    ),
    "a constant": (EIGHT, step("G = G / 8", passes=(G,)), whole("tokens", lambda _: F(8))),
    "a constant, averaged": (
        EIGHT,
        step("G = G / 8", passes=(G,), reduce="G = all_reduce(G, dp, cp, op=mean)"),
        whole("tokens", lambda _: F(32)),
    ),
    "a constant, averaged and multiplied": (
        EIGHT,
        step("G = G / 8 * (dp * cp)", passes=(G,), reduce="G = all_reduce(G, dp, cp, op=mean)"),
        whole("tokens", lambda _: F(8)),
    ),
    "sums over tokens by sequences": (
        "mean_over(sequences, of=tokens)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("sequences"), G)),
        whole("tokens", lambda b: b.all("sequences")),
    ),
    "sums over tokens by samples": (
        "mean_over(sequences, of=tokens)",
        step("n = all_reduce(n, dp)", "G = G / n", passes=(_count("samples"), G)),
        whole("tokens", lambda b: b.all("samples")),
    ),
    "two losses, each by its own": (
        KL,
        step(passes=(N, "s += count(i, of=sequences)", G, "K += backward(parameters, i, sum=sequences, loss=kl)"),
             reduce="n = all_reduce(n, dp, cp)\ns = all_reduce(s, dp)\nG = all_reduce(G / n + 0.5 * K / s, dp, cp)"),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / b.all("tokens") + b.sum("sequences", d, c, i, 1) / b.all("sequences") / 2),
    ),
    "two losses, all by tokens": (
        KL,
        step(ALL, "G = G / n", passes=(N, G, "G += 0.5 * backward(parameters, i, sum=sequences, loss=kl)")),
        each(lambda b, d, c, i: (b.sum("tokens", d, c, i) + b.sum("sequences", d, c, i, 1) / 2) / b.all("tokens")),
    ),
    "a balance loss of each micro-batch": (
        BALANCE,
        step(passes=(N, G, "B += backward(parameters, i, sum=tokens, loss=kl) / all_reduce(tokens(i), cp)"),
             reduce="n = all_reduce(n, dp, cp)\nG = all_reduce(G / n + 0.5 * B / (dp * microbatches), dp, cp)"),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / b.all("tokens")
             + b.sum("tokens", d, c, i, 1) / added(b.count("tokens", d, f, i) for f in range(2)) / 8),
    ),
    "a balance loss that is divided by cp, too": (
        BALANCE,
        step(passes=(N, G, "B += backward(parameters, i, sum=tokens, loss=kl) / all_reduce(tokens(i), cp)"),
             reduce="n = all_reduce(n, dp, cp)\nG = all_reduce(G / n + 0.5 * B / (dp * cp * microbatches), dp, cp)"),
        each(lambda b, d, c, i: b.sum("tokens", d, c, i) / b.all("tokens")
             + b.sum("tokens", d, c, i, 1) / added(b.count("tokens", d, f, i) for f in range(2)) / 16),
    ),
    "a balance loss that all tokens divide": (
        BALANCE,
        step(ALL, "G = G / n", passes=(N, G, "G += 0.5 * backward(parameters, i, sum=tokens, loss=kl)")),
        each(lambda b, d, c, i: (b.sum("tokens", d, c, i) + b.sum("tokens", d, c, i, 1) / 2) / b.all("tokens")),
    ),
}  # fmt: skip
BATCH = [Batch(seed) for seed in range(6)]


def right(contract: str, computed: Callable[[Batch, int], Fraction]) -> bool:
    """Whether every device has what the contract says, of each of some batches."""
    return all(computed(b, c) == CONTRACTS[contract](b) for b in BATCH for c in range(2))


@pytest.mark.parametrize("what", ROWS)
def test_the_verdict_is_that_of_sums_over_tokens(what: str) -> None:
    """And no count is taken to be equal to another."""
    contract, lines, computed = ROWS[what]
    text = "\n".join(["mesh(dp, cp)", f"reference(loss={contract})", *lines, "parameters, optimizer = update(parameters, optimizer, G)"])
    answer = placeproof.judge(read(text))
    assert answer.word == ("proved" if right(contract, computed) else "refuted")
    assert "equal-token-counts" not in str(answer)
    assert "something-counts" in str(answer)


def test_half_of_them_are_right() -> None:
    assert len(ROWS) >= 30
    assert 14 <= sum(right(contract, computed) for contract, _, computed in ROWS.values()) <= len(ROWS) - 14


@pytest.mark.parametrize(("lines", "word"), [("n = all_reduce(n, dp)\n", "proved"), ("", "refuted")])
def test_without_a_contract_the_assumption_is_said_and_can_be_dropped(lines: str, word: str) -> None:
    """Equal counts make means of means right; without them, tokens have to be counted on all devices."""
    means = "mesh(dp)\n{}G = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, G)\n"
    assert "equal-token-counts" in str(placeproof.judge(read(means.format(""))))
    assert placeproof.judge(read(means.format('without("equal-token-counts")\n'))).word == "refuted"
    counted = "n = tokens()\n" + lines + "G = scale(all_reduce(backward(parameters) * tokens(), dp), 1 / n)\n"
    text = f'mesh(dp)\nwithout("equal-token-counts")\n{counted}parameters, optimizer = update(parameters, optimizer, G)\n'
    assert placeproof.judge(read(text)).word == word
