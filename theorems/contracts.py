"""Each loss contract under each strategy of the catalogue: which counts it needs, and what a strategy trains that counts nothing.

Three theorems for each contract, made from a table. ``under`` sums each loss, and divides it by what is counted on all devices before the
first pass; a mistake is a count or a factor of one such step; a strategy as it is takes means of means.
"""

from dataclasses import replace
from functools import cache

from placeproof.programs import For, Program, read, render, statements
from placeproof.semantics.catalogue import compositions
from placeproof.theory import Proved, refuted, theorem, under, wrong
from placeproof.theory.contracts import contract_of
from placeproof.theory.statements import read_subject

from . import losses

TOKENS, BATCHES = "mean_over(tokens)", "mean_over(micro_batches)"
#: What a loss is a mean over, in words, and where it is from.
CONTRACTS = {
    "tokens": (TOKENS, "the mean over tokens", "transformers2024accumulation"),
    "samples": ("mean_over(samples)", "the mean over samples", "goyal2017large"),
    "sequences": ("mean_over(sequences)", "the mean over sequences", "sheng2025verl"),
    "prompts": ("mean_over(prompts)", "the mean over prompts", "yu2025dapo"),
    "weights": ("mean_over(weights)", "the mean over samples with weights", "goyal2017large"),
    "micro_batches": (BATCHES, "the mean over micro-batches of means over tokens", "narayanan2021megatron"),
    "sequences_of_micro_batches": (
        "mean_over(micro_batches, of=sequences)",
        "the mean over micro-batches of means over sequences",
        "sheng2025verl",
    ),
    "sums_of_sequences": ("mean_over(sequences, of=tokens)", "sums over tokens for each sequence", "sheng2025verl"),
    "a_constant": ("mean_over(1024)", "the sum over tokens, divided by a constant", "liu2025drgrpo"),
    "balance_and_z": (
        f"{TOKENS} + 0.01 * mean_over(micro_batches, loss=balance) + 0.001 * mean_over(tokens, loss=z)",
        "the mean over tokens, a balance loss of each micro-batch, and a z-loss over tokens",
        "fedus2022switch",
    ),
    "further_tokens": (
        f"{TOKENS} + 0.1 * mean_over(tokens, loss=mtp)",
        "the mean over tokens, with multi-token prediction",
        "deepseek2024v3",
    ),
    "divergence": (
        f"{TOKENS} + 0.04 * mean_over(sequences, loss=kl)",
        "the mean over tokens, with a divergence over sequences",
        "shao2024deepseekmath",
    ),
}
#: Compositions that are trained with, beside each strategy alone.
TOGETHER = (
    "ddp * accumulate", "zero1 * tp * pp", "zero2 * accumulate * clip", "fsdp * tp * sp", "fsdp * cp * tp * pp", "hsdp * ep * cp",
    "zero3 * pp(schedule=interleaved, chunks=2)", "zero1 * ep * tp * sp * pp", "ddp * pp(schedule=zb-h1) * checkpoint",
    "fsdp * muon * clip",
)  # fmt: skip


@cache
def strategies():
    """Each strategy of the catalogue alone, and those that are used together, by their expressions."""
    alone = {text: program for text, program in compositions(1) if isinstance(program, Program)}
    return alone | {text: read_subject(text)[1] for text in TOGETHER}


@cache
def alone():
    """The strategies of the catalogue."""
    return [text for text in strategies() if text not in TOGETHER]


def as_it_is(text, contract):
    """A strategy's own step, of which one device trains a contract."""
    program = strategies()[text]
    return replace(program, loss=contract_of(contract), name=f"{program.name} as it is, under {contract}".replace('"', "'"))


def trains_as_it_is(text, contract):
    """Means of means train micro-batches where no tokens of one lie on several devices; and tokens where all lie on one device, in one."""
    splits = [axis.splits for axis in strategies()[text].axes]
    if contract == TOKENS:
        several = any(isinstance(stmt, For) and stmt.domain == "microbatches" for stmt in statements(strategies()[text].body))
        return not several and not any(one.samples for one in splits)
    return contract == BATCHES and not any(one.tokens for one in splits)


def mistakes(program):
    """Steps that differ from one under a contract by a factor: a mean is added up, a degree more divides or multiplies a loss, a count is
    not of all devices, or of some twice."""
    text, made = render(program), {"a mean is added up": ("sum=", "mean=")}
    degrees = [axis.name for axis in program.axes] or ["2"]
    degrees += ["microbatches"] if "in microbatches" in text else []
    made |= {f"divided by {n}, too": (" = loss(x, ", f" = 1 / {n} * loss(x, ") for n in degrees if " = loss(x, " in text}
    made |= {f"multiplied by {n}": (" = loss(x, ", f" = {n} * loss(x, ") for n in degrees if " = loss(x, " in text}
    for line in (line.strip() for line in text.splitlines() if " = all_reduce(n" in line):
        name, _, axes = line.partition(" = all_reduce(")[2].rpartition(")")[0].partition(", ")
        for axis in axes.split(", "):
            fewer = ", ".join(a for a in axes.split(", ") if a != axis)
            made[f"{name} is not counted over {axis}"] = (line, f"{name} = all_reduce({name}, {fewer})" if fewer else "")
        made |= {
            f"{name} is counted over {a.name}, too": (line, line.replace(")", f", {a.name})"))
            for a in program.axes
            if a.name not in axes.split(", ")
        }
    return {what: _edited(program, what, text, *edit) for what, edit in made.items()}


def _edited(program, what, text, old, new):
    contract = program.name.rpartition(" under ")[2]
    changed = read("\n".join(_once(text.splitlines(), old, new)), source="<statement>")
    return replace(changed, name=f"{program.name.rpartition(' under ')[0]}: {what}, under {contract}")


def _once(lines, old, new):
    """Lines, of which the first that has a text has another instead."""
    at = next(n for n, line in enumerate(lines) if old in line)
    return [*lines[:at], *([changed] if (changed := lines[at].replace(old, new, 1)).strip() else []), *lines[at + 1 :]]


#: Of so many strategies one is tried with a mistake under a contract, and of so many compositions one with its counts: each under some
#: contracts, and at night under all.
SHARE = 6


def in_turn(texts, number):
    """The strategies whose turn it is under a contract, with a number that is another one for each strategy and contract."""
    return {text: n // SHARE + number for n, text in enumerate(texts) if (n + number) % SHARE == 0}


def declared(claim, name, says, cite):
    """A theorem of the table."""
    claim.__name__, claim.__doc__ = name, says
    globals()[name] = made = theorem(expect=Proved(), cite=cite)(claim)
    return made


def about(number, key, contract, words, cite):
    """The theorems about a contract."""

    def counts():
        return wrong(*(under(strategies()[text], contract) for text in (*alone(), *in_turn(TOGETHER, number)))) == 0

    declared(
        counts, f"{key}_are_trained_by_their_counts",
        f"Each strategy trains {words}, if each loss is divided by what it counts on all devices.", cite,
    ).control(
        "a count or a factor is wrong",
        lambda: wrong(mistakes(under(strategies()["fsdp * cp * tp * pp"], contract)).popitem()[1]) == 0,
        refuted_at={},
    )  # fmt: skip

    def mistaken():
        steps = [(list(mistakes(under(strategies()[text], contract)).values()), n) for text, n in in_turn(alone(), number).items()]
        return refuted(*(every[n % len(every)] for every, n in steps)) == len(steps)

    declared(
        mistaken, f"{key}_need_each_count_and_factor",
        f"No strategy trains {words} with a mean that is added up, with a degree too much, or with a count of other devices.", cite,
    ).control("with none of these", lambda: refuted(under(strategies()["hsdp"], contract)) == 1, refuted_at={})  # fmt: skip

    def as_they_are():
        tried = alone() if contract in (TOKENS, BATCHES) else list(in_turn(alone(), number))
        right = [text for text in tried if trains_as_it_is(text, contract)]
        others = [as_it_is(text, contract) for text in tried if text not in right]
        goals = [wrong(*(as_it_is(text, contract) for text in right)) == 0] if right else []
        return [refuted(*others) == len(others), *goals]

    declared(
        as_they_are,
        f"{key}_by_means_of_means",
        f"Whether strategies as they are, which take means of means and count nothing, train {words}.",
        cite,
    ).control("one that counts", lambda: refuted(under(strategies()["zero3"], contract)) == 1, refuted_at={})


for _number, (_key, _row) in enumerate(CONTRACTS.items()):
    about(_number, _key, *_row)


# What frameworks do between their passes and their update, as ``losses`` has it.

SINGLE = [contract for contract, _, _ in CONTRACTS.values() if "loss=" not in contract]


def means_of_own_tokens(contract):
    """Each device takes the mean over its own tokens of each micro-batch, and the mean over all devices: torchtitan until January 2026."""
    return losses.step(contract, ["G += backward(parameters, i) / microbatches"], ["G = all_reduce(G, dp, cp, op=mean)"], "dp, cp")


#: What each does, what it trains of these, and where it is from.
FRAMEWORKS = {
    "transformers_until_october_2024": (losses.means_of_means, BATCHES, "transformers2024accumulation"),
    "transformers_in_october_2024": (losses.own_count, None, "transformers2024accumulation"),
    "transformers_that_averages_tokens": (losses.all_counted, TOKENS, "transformers2024accumulation"),
    "megatron": (losses.megatron, BATCHES, "narayanan2021megatron"),
    "megatron_with_a_loss_per_token": (losses.megatron_per_token, TOKENS, "narayanan2021megatron"),
    "torchtitan_until_january_2026": (means_of_own_tokens, None, "liang2024torchtitan"),
    "torchtitan": (losses.torchtitan, TOKENS, "liang2024torchtitan"),
    "verl_by_shares_of_sequences": (losses.by_share, None, "sheng2025verl"),
    "verl_by_token_mean": (losses.all_counted, TOKENS, "sheng2025verl"),
    "verl_by_seq_mean_token_mean": (losses.over_sequences, "mean_over(sequences)", "sheng2025verl"),
    "verl_by_seq_mean_token_sum": (losses.sums_of_sequences, "mean_over(sequences, of=tokens)", "sheng2025verl"),
    "verl_by_seq_mean_token_sum_norm": (losses.by_constant, "mean_over(1024)", "sheng2025verl"),
}


def about_framework(key, step, trained, cite):
    """The theorem about what a framework does."""

    def of(contract):
        return replace(read(step(contract)), name=f"{key} under {contract}")

    def claim():
        others = [of(contract) for contract in SINGLE if contract != trained]
        return [refuted(*others) == len(others), *([wrong(of(trained)) == 0] if trained else [])]

    says = f"{key.replace('_', ' ')} trains {trained or 'none'} of nine contracts".capitalize()
    declared(claim, f"{key}_trains", f"{says}; with each other one there are counts for which it is wrong.", cite).control(
        "another one, too",
        lambda: wrong(of(TOKENS if trained != TOKENS else BATCHES)) == 0,
        refuted_at={},
    )


for _key, (_step, _trained, _cite) in FRAMEWORKS.items():
    about_framework(_key, _step, _trained, _cite)
