"""What losses are means over, where counts differ from device to device, and which frameworks train which.

A contract says of what the loss of a step is a mean: tokens, sequences, samples, prompts, micro-batches; or a sum is divided by a constant.
Each program is what a framework does between its passes and its update; ``docs/how-to/loss-contracts.md`` says how one is written.
"""

from placeproof.theory import Proved, Refuted, theorem, trains

TOKENS, SEQUENCES, BATCHES = "mean_over(tokens)", "mean_over(sequences)", "mean_over(micro_batches)"


def step(contract, passes, after, mesh="dp"):
    """A step of one parameter group: what it trains, what each micro-batch does, and what is done behind all of them."""
    lines = [f"mesh({mesh})", f"reference(loss={contract})", "for i in microbatches:", *(f"    {one}" for one in passes), *after]
    return "\n".join([*lines, "parameters, optimizer = update(parameters, optimizer, G)"])


def means_of_means(contract):
    """Each micro-batch takes the mean over its own tokens, accumulation the mean of these, and DDP the mean over devices: transformers
    before October 2024, and who has a mean as its loss."""
    return step(contract, ["G += backward(parameters, i) / microbatches"], ["G = all_reduce(G, dp, op=mean)"])


def own_count(contract):
    """Tokens are summed, and divided by those of the device's own micro-batches; DDP takes the mean: transformers in October 2024."""
    passes = ["n += tokens(i)", "G += backward(parameters, i, sum=tokens)"]
    return step(contract, passes, ["G = all_reduce(scale(G, 1 / n), dp, op=mean)"])


def all_counted(contract):
    """Tokens are summed, divided by those of all devices, and multiplied by the number of devices over which DDP takes the mean:
    transformers with ``average_tokens_across_devices``, verl with ``batch_num_tokens``."""
    passes = ["n += tokens(i)", "G += backward(parameters, i, sum=tokens)"]
    return step(contract, passes, ["n = all_reduce(n, dp)", "G = all_reduce(scale(G, dp / n), dp, op=mean)"])


def megatron(contract, own="all_reduce(tokens(i), cp)"):
    """Each micro-batch's loss is summed over its context-parallel devices and divided by their tokens; gradients are means over
    micro-batches and data-parallel devices."""
    passes = [f"G += backward(parameters, i, sum=tokens) / {own}"]
    return step(contract, passes, ["G = scale(all_reduce(G, dp, cp), 1 / (dp * microbatches))"], "dp, cp")


def megatron_per_token(contract, axes="dp, cp"):
    """``calculate_per_token_loss``: sums, divided at the end by the tokens of all devices."""
    passes = ["n += tokens(i)", "G += backward(parameters, i, sum=tokens)"]
    return step(contract, passes, [f"n = all_reduce(n, {axes})", "G = scale(all_reduce(G, dp, cp), 1 / n)"], "dp, cp")


def torchtitan(contract):
    """The tokens of all micro-batches are counted before the first pass, and each pass's sum is divided by those of all devices."""
    count = ["for i in microbatches:", "    n += tokens(i)", "n = all_reduce(n, dp, cp)"]
    lines = ["mesh(dp, cp)", f"reference(loss={contract})", *count, "for i in microbatches:"]
    lines += ["    G += backward(parameters, i, sum=tokens) / n", "G = all_reduce(G, dp, cp)"]
    return "\n".join([*lines, "parameters, optimizer = update(parameters, optimizer, G)"])


def by_share(contract):
    """verl with dynamic batches as it was: each micro-batch's mean over tokens, as often as it has sequences of those of its device; then
    FSDP's mean."""
    passes = ["s += count(i, of=sequences)", "G += scale(backward(parameters, i), count(i, of=sequences))"]
    return step(contract, passes, ["G = all_reduce(scale(G, 1 / s), dp, op=mean)"])


def over_sequences(contract, passes="backward(parameters, i, sum=sequences)", axes="dp"):
    """Losses are summed, and divided by the number of all sequences."""
    counted = ["s += count(i, of=sequences)", f"G += {passes}"]
    return step(contract, counted, [f"s = all_reduce(s, {axes})", "G = scale(all_reduce(G, dp, cp), 1 / s)"], "dp, cp")


# Tokens.


@theorem(
    expect=Refuted(breaks="gradient integrity", because="a micro-batch of few tokens counts as much as one of many"),
    cite="transformers2024accumulation",
)
def means_of_means_train_tokens():
    """The mean over micro-batches of the mean over their tokens is the mean over tokens."""
    return trains(means_of_means(TOKENS))


means_of_means_train_tokens.control("all tokens are counted", lambda: trains(all_counted(TOKENS)), proved=True)


@theorem(expect=Proved(), cite="transformers2024accumulation")
def means_of_means_train_micro_batches():
    """Accumulation of means, and a mean over devices, trains a loss in which every micro-batch counts alike."""
    return trains(means_of_means(BATCHES))


means_of_means_train_micro_batches.control("tokens are counted", lambda: trains(all_counted(BATCHES)), breaks="gradient integrity")


@theorem(
    expect=Refuted(breaks="gradient integrity", because="a token counts more on a device that has few"),
    cite="transformers2024accumulation",
)
def own_counts_train_tokens():
    """It is enough to divide by the number of tokens of the device's own micro-batches."""
    return trains(own_count(TOKENS))


own_counts_train_tokens.control("by that of all devices", lambda: trains(all_counted(TOKENS)), proved=True)


@theorem(
    expect=Refuted(breaks="gradient integrity", because="within a device tokens count alike, and not micro-batches"),
    cite="transformers2024accumulation",
)
def own_counts_train_micro_batches():
    """A device's sum over its own tokens is a mean over its micro-batches."""
    return trains(own_count(BATCHES))


own_counts_train_micro_batches.control("the means of micro-batches", lambda: trains(means_of_means(BATCHES)), proved=True)


@theorem(expect=Proved(), cite="transformers2024accumulation")
def counts_of_all_devices_train_tokens():
    """Sums over tokens, divided by the tokens of all devices and multiplied by their number, train the mean over tokens under DDP."""
    return trains(all_counted(TOKENS))


counts_of_all_devices_train_tokens.control(
    "not multiplied by their number",
    lambda: trains(all_counted(TOKENS).replace("dp / n", "1 / n")),
    breaks="gradient integrity",
).control("counted on the device alone", lambda: trains(own_count(TOKENS)), breaks="gradient integrity")


@theorem(expect=Proved(), cite="narayanan2021megatron")
def megatron_trains_micro_batches():
    """Megatron-LM's usual loss counts every micro-batch alike, whose tokens lie on its context-parallel devices."""
    return trains(megatron(BATCHES))


megatron_trains_micro_batches.control(
    "the tokens of a context-parallel device", lambda: trains(megatron(BATCHES, "tokens(i)")), breaks="gradient integrity"
).control("it is the mean over tokens", lambda: trains(megatron(TOKENS)), breaks="gradient integrity")


@theorem(expect=Proved(), cite="narayanan2021megatron")
def megatron_per_token_trains_tokens():
    """With ``calculate_per_token_loss`` it trains the mean over tokens."""
    return trains(megatron_per_token(TOKENS))


megatron_per_token_trains_tokens.control(
    "tokens are not counted over cp", lambda: trains(megatron_per_token(TOKENS, "dp")), breaks="gradient integrity"
).control("every micro-batch counts alike", lambda: trains(megatron_per_token(BATCHES)), breaks="gradient integrity")


@theorem(expect=Proved(), cite="liang2024torchtitan")
def torchtitan_trains_tokens():
    """Sums divided by the valid tokens of all devices, counted before the first pass, and added up, train the mean over tokens."""
    return trains(torchtitan(TOKENS))


torchtitan_trains_tokens.control(
    "the mean of devices", lambda: trains(torchtitan(TOKENS).replace("G, dp, cp)", "G, dp, cp, op=mean)")),
    breaks="gradient integrity",
)  # fmt: skip


# Sequences, prompts, samples and constants: losses of reinforcement learning.


@theorem(
    expect=Refuted(breaks="gradient integrity", because="a micro-batch counts by its sequences, and its tokens within it by their number"),
    cite="sheng2025verl",
)
def shares_of_sequences_train_tokens():
    """Means over tokens of micro-batches of any size may be weighted by their shares of sequences."""
    return trains(by_share(TOKENS))


shares_of_sequences_train_tokens.control("tokens of all devices", lambda: trains(all_counted(TOKENS)), proved=True)


@theorem(expect=Proved(), cite="sheng2025verl")
def sequences_train_over_sequences():
    """``seq-mean-token-mean``: means over the tokens of sequences, added up and divided by the number of all sequences, though a sequence's
    tokens lie on several devices."""
    return trains(over_sequences(SEQUENCES))


sequences_train_over_sequences.control(
    "sequences are counted on each of their devices",
    lambda: trains(over_sequences(SEQUENCES, axes="dp, cp")),
    breaks="gradient integrity",
).control(
    "tokens are added up",
    lambda: trains(over_sequences(SEQUENCES, "backward(parameters, i, sum=tokens)")),
    breaks="gradient integrity",
)


def sums_of_sequences(contract):
    """Losses of tokens are summed, and divided by the number of all sequences."""
    return over_sequences(contract, "backward(parameters, i, sum=tokens)")


@theorem(expect=Proved(), cite="sheng2025verl")
def sums_of_sequences_train_over_sequences():
    """``seq-mean-token-sum``: sums over tokens, divided by the number of sequences."""
    return trains(sums_of_sequences("mean_over(sequences, of=tokens)"))


sums_of_sequences_train_over_sequences.control(
    "means of sequences are added up", lambda: trains(over_sequences("mean_over(sequences, of=tokens)")),
    breaks="gradient integrity",
)  # fmt: skip


def by_constant(contract, factor="1024"):
    """Sums over tokens of all devices, divided by a number that no batch changes."""
    return step(contract, ["G += backward(parameters, i, sum=tokens)"], [f"G = scale(all_reduce(G, dp), 1 / {factor})"])


@theorem(expect=Proved(), cite="liu2025drgrpo")
def constants_need_no_count():
    """``seq-mean-token-sum-norm``, and Dr. GRPO: sums over tokens, divided by a constant, need nothing counted."""
    return trains(by_constant("mean_over(1024)"))


constants_need_no_count.control(
    "a mean over devices", lambda: trains(by_constant("mean_over(1024)", "(1024 * dp)")), breaks="gradient integrity"
).control("the mean over tokens", lambda: trains(by_constant(TOKENS)), breaks="gradient integrity")


def over(unit, counted, contract=None):
    """Means of units are added up, and divided by a number of all devices."""
    passes = [f"n += {counted}", f"G += backward(parameters, i, sum={unit})"]
    return step(contract or f"mean_over({unit})", passes, ["n = all_reduce(n, dp)", "G = scale(all_reduce(G, dp), 1 / n)"])


@theorem(expect=Proved(), cite="yu2025dapo")
def prompts_train_over_prompts():
    """Losses of prompts, each the mean over the tokens of all that answers it, divided by the number of prompts."""
    return trains(over("prompts", "count(i, of=prompts)"))


prompts_train_over_prompts.control(
    "by the number of sequences", lambda: trains(over("prompts", "count(i, of=sequences)")), breaks="gradient integrity"
)


@theorem(expect=Proved(), cite="goyal2017large")
def weighted_samples_need_the_sum_of_weights():
    """Losses of samples, each with a weight, are divided by the sum of all weights."""
    return trains(over("weights", "count(i, of=weights)"))


weighted_samples_need_the_sum_of_weights.control(
    "by the number of samples", lambda: trains(over("weights", "count(i, of=samples)")), breaks="gradient integrity"
)


# Several losses, each with a mean of its own.

BALANCED = f"{TOKENS} + 0.01 * mean_over(micro_batches, loss=balance)"


def balanced(contract, auxiliary="backward(parameters, i, loss=balance) / (dp * microbatches)"):
    """A main loss over tokens, and a router's balance loss for each micro-batch."""
    passes = ["n += tokens(i)", "G += backward(parameters, i, sum=tokens)", f"B += {auxiliary}"]
    after = ["n = all_reduce(n, dp)", "G = scale(all_reduce(G, dp), 1 / n) + scale(all_reduce(B, dp), 0.01)"]
    return step(contract, passes, after)


@theorem(expect=Proved(), cite="fedus2022switch")
def an_auxiliary_loss_has_its_own_mean():
    """A loss for each micro-batch is a mean over micro-batches, beside a main loss over tokens."""
    return trains(balanced(BALANCED))


an_auxiliary_loss_has_its_own_mean.control(
    "it is added up over micro-batches",
    lambda: trains(balanced(BALANCED, "backward(parameters, i, loss=balance) / dp")),
    breaks="gradient integrity",
)


def one_divisor(contract):
    """An auxiliary loss that is added to the sum over tokens, times their number so that the division at the end takes that away."""
    passes = ["n += tokens(i)"]
    passes += ["G += backward(parameters, i, sum=tokens) + 0.01 * backward(parameters, i, sum=tokens, loss=balance)"]
    return step(contract, passes, ["n = all_reduce(n, dp)", "G = scale(all_reduce(G, dp), 1 / n)"])


@theorem(expect=Refuted(breaks="gradient integrity", because="a micro-batch's balance counts by its tokens"), cite="narayanan2021megatron")
def one_divisor_serves_all_losses():
    """Under a loss per token, an auxiliary loss may be multiplied by the tokens of its micro-batch, and all be divided by all tokens."""
    return trains(one_divisor(BALANCED))


one_divisor_serves_all_losses.control(
    "the auxiliary loss is one over tokens, too",
    lambda: trains(one_divisor(f"{TOKENS} + 0.01 * mean_over(tokens, loss=balance)")),
    proved=True,
)


def with_kl(contract, divisor="s"):
    """A loss over tokens, and a divergence for each sequence."""
    passes = ["n += tokens(i)", "s += count(i, of=sequences)", "G += backward(parameters, i, sum=tokens)"]
    passes += ["K += backward(parameters, i, sum=sequences, loss=kl)"]
    after = ["n = all_reduce(n, dp)", "s = all_reduce(s, dp)"]
    return step(contract, passes, [*after, f"G = scale(all_reduce(G, dp), 1 / n) + scale(all_reduce(K, dp), 0.04 / {divisor})"])


@theorem(expect=Proved(), cite="shao2024deepseekmath")
def each_loss_is_divided_by_what_it_counts():
    """A loss over tokens with a KL term over sequences is divided by the tokens, and the term by the sequences."""
    return trains(with_kl(f"{TOKENS} + 0.04 * mean_over(sequences, loss=kl)"))


each_loss_is_divided_by_what_it_counts.control(
    "all by tokens",
    lambda: trains(with_kl(f"{TOKENS} + 0.04 * mean_over(sequences, loss=kl)", "n")),
    breaks="gradient integrity",
)


def mtp(contract, divisor="1 / n"):
    """Main and multi-token prediction over tokens that context parallelism shares out."""
    passes = ["n += tokens(i)", "G += backward(parameters, i, sum=tokens)", "M += backward(parameters, i, sum=tokens, loss=mtp)"]
    after = ["n = all_reduce(n, dp, cp)", f"G = scale(all_reduce(G, dp, cp), 1 / n) + scale(all_reduce(M, dp, cp), 0.1 * {divisor})"]
    return step(contract, passes, after, "dp, cp")


@theorem(expect=Proved(), cite="deepseek2024v3")
def prediction_of_further_tokens_is_counted_over_context():
    """The loss of multi-token prediction has the tokens of all data- and context-parallel devices as its divisor."""
    return trains(mtp(f"{TOKENS} + 0.1 * mean_over(tokens, loss=mtp)"))


prediction_of_further_tokens_is_counted_over_context.control(
    "a factor 1 / cp more",
    lambda: trains(mtp(f"{TOKENS} + 0.1 * mean_over(tokens, loss=mtp)", "1 / (n * cp)")),
    breaks="gradient integrity",
)


# Experts, and norms over mixed meshes: every element once.


def mixed(norm="square_norm(G.dense) + all_reduce(square_norm(G.expert), ep)", passes="backward(parameters, i, sum=tokens)"):
    """Dense parameters on all devices, experts on those of ``ep``, which have samples of their own; a clipped mean over tokens."""
    return f"""
mesh(dp, ep)
splits(ep="batch")
group(dense, P - P_expert)
group(expert, P_expert, experts=ep)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
reference(clip=global_norm, loss=mean_over(tokens))
for i in microbatches:
    n += tokens(i)
    G += {passes}
n = all_reduce(n, dp, ep)
G = scale(all_reduce(G, dp), 1 / n)
G.dense = all_reduce(G.dense, ep)
G = scale(G, clip_factor(sqrt({norm})))
parameters, optimizer = update(parameters, optimizer, G)
"""


@theorem(expect=Proved(), cite="fedus2022switch")
def a_mixed_norm_counts_every_element_once():
    """Experts are sums over the tokens that were sent to them, dense parameters are summed over all devices; the norm adds squares of
    experts over the devices that have others, and those of dense parameters once."""
    return trains(mixed())


a_mixed_norm_counts_every_element_once.control(
    "dense parameters are counted on each device of ep",
    lambda: trains(mixed("all_reduce(square_norm(G), ep)")),
    breaks="gradient integrity",
).control(
    "of experts, the device's own",
    lambda: trains(mixed("square_norm(G)")),
    breaks="gradient integrity",
).control(
    "means are sent, and weighted where they arrive",
    lambda: trains(mixed(passes="scale(backward(parameters, i), tokens(i))")),
    breaks="gradient integrity",
)


def tied(norm):
    """An embedding that the first and the last stage share, a router that is shared out over ``tp``, and matrices in parts, clipped."""
    return f"""
mesh(dp, tp, pp)
group(matrix, P - P_norm - P_expert)
group(router, P_norm, partial=tp)
group(embedding, P_expert, tied=pp)
place(parameters.matrix, tp="S")
place(optimizer.matrix, tp="S")
reference(clip=global_norm, loss=mean_over(sequences))
s = all_reduce(count(of=sequences), dp)
G = scale(all_reduce(backward(parameters, sum=sequences), dp), 1 / s)
G.router = all_reduce(G.router, tp)
G.embedding = tied_reduce(G.embedding, pp)
own = {norm}
if rank(pp) == 0:
    own = own + square_norm(G.embedding)
G = scale(G, clip_factor(sqrt(all_reduce(own, pp))))
parameters, optimizer = update(parameters, optimizer, G)
"""


@theorem(expect=Proved(), cite="narayanan2021megatron")
def a_tied_and_a_copied_weight_count_once():
    """A norm over stages counts a tied embedding on the first stage alone, copies over ``tp`` once, and parts over ``tp`` all."""
    return trains(tied("all_reduce(square_norm(G.matrix), tp) + square_norm(G.router)"))


a_tied_and_a_copied_weight_count_once.control(
    "copies are counted on each device of tp",
    lambda: trains(tied("all_reduce(square_norm(G.matrix) + square_norm(G.router), tp)")),
    breaks="gradient integrity",
).control(
    "a tied weight is counted on both stages",
    lambda: trains(tied("all_reduce(square_norm(G.matrix), tp) + square_norm(G.router)").replace("rank(pp) == 0", "rank(pp) >= 0")),
    breaks="gradient integrity",
)
