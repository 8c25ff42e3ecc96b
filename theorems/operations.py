"""What the product counts beside bytes: operations of blocks, what recomputation adds to them, uneven parts, and rounding to whole parts.

Operations are floating-point operations of products of matrices on one device, read off a block's program. Sizes are those of the block's
dimensions: batch, tokens, hidden, ffn, heads, width, keys.
"""

from placeproof.theory import (
    Degree,
    Integer,
    Positive,
    Proved,
    Real,
    derived,
    holds,
    operations,
    rounded,
    theorem,
    values_of,
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "korthikanti2022activations"))
def weights_take_two_operations_a_token(batch: Real, tokens: Real, hidden: Real, ffn: Real, vocab: Real):
    """A block that multiplies tokens with weights alone takes 2 operations for each element of its matrices and each token in forward, and
    as many each for the gradients by its inputs and by its weights: 6 in all.

    Of feed-forward blocks, gated or not, and of the head.
    """
    goals = []
    for block in ("swiglu", "mlp_gpt", "head"):
        work = operations(block)
        each = 2 * batch * tokens * work.of_matrices
        goals += [work.forward == each, work.inputs == each, work.weights == each, work.total == 3 * each]
    return holds(goals)


weights_take_two_operations_a_token.control(
    "one, as if a multiplication and an addition were one operation",
    lambda batch, tokens: operations("swiglu").forward == batch * tokens * operations("swiglu").of_matrices,
    refuted_at={"batch": 1, "tokens": 1, "hidden": 1, "ffn": 1, "vocab": 1},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "korthikanti2022activations"))
def a_layer_takes_24_and_4(batch: Real, tokens: Real, heads: Real, width: Real):
    """Forward of a transformer layer with a feed-forward block of 4 times its width takes 24 * b * s * h^2 + 4 * b * s^2 * h operations,
    and backward twice as many.

    Appendix of the first source, and appendix A of the second. Keys are the tokens, and h is the width of all heads together.
    """
    hidden = heads * width
    sizes = {"hidden": hidden, "keys": tokens, "ffn": 4 * hidden}
    attention, mlp = operations("attention_gpt"), operations("mlp_gpt")
    forward = (attention.forward + mlp.forward).where(**sizes)
    backward = (attention.inputs + attention.weights + mlp.inputs + mlp.weights).where(**sizes)
    published = 24 * batch * tokens * hidden**2 + 4 * batch * tokens**2 * hidden
    return holds(forward == published, backward == 2 * published)


a_layer_takes_24_and_4.control(
    "gradients by weights take half of attention's backward",
    lambda heads, width, tokens: (
        (operations("attention_gpt").weights - operations("attention_gpt").inputs).where(hidden=heads * width, keys=tokens) == 0
    ),
    refuted_at={"batch": 1, "tokens": 1, "heads": 1, "width": 1},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "chen2016sublinear"))
def recomputation_adds_one_forward(
    batch: Real, tokens: Real, hidden: Real, ffn: Real, heads: Real, width: Real, keys: Real, kv_heads: Real, group: Real
):
    """If backward computes all values of forward again, what is computed again is one forward more than before, and nothing else changes.

    Attention that keeps no probabilities computes a part of its forward again anyway.
    """
    goals = []
    for block in ("swiglu", "mlp_gpt", "attention", "attention_gpt", "attention_flash"):
        kept, again = operations(block), operations(block, again=values_of(block))
        goals += [again.again == kept.again + kept.forward, again.total == kept.total + kept.forward]
    return holds(goals)


recomputation_adds_one_forward.control(
    "it doubles the work of a layer",
    lambda: operations("mlp_gpt", again=values_of("mlp_gpt")).total == 2 * operations("mlp_gpt").total,
    refuted_at={"batch": 1, "tokens": 1, "hidden": 1, "ffn": 1, "heads": 1, "width": 1, "keys": 1, "kv_heads": 1, "group": 1},
)


@theorem(expect=Proved(), cite="fedus2022switch")
def a_token_meets_the_experts_it_chooses(batch: Real, tokens: Real, hidden: Real, choices: Real, experts: Positive, expert_ffn: Real):
    """A token takes 2 operations for each element of the router, and of the matrices of so many experts as it chooses, whatever their
    number."""
    work = operations("moe")
    router = experts * hidden
    return work.forward == 2 * batch * tokens * (router + choices * (work.of_matrices - router) / experts)


a_token_meets_the_experts_it_chooses.control(
    "of all experts",
    lambda batch, tokens: operations("moe").forward == 2 * batch * tokens * operations("moe").of_matrices,
    refuted_at={"batch": 1, "tokens": 1, "hidden": 1, "choices": 1, "experts": 2, "expert_ffn": 1},
)


# Uneven parts: a device holds a fraction of its own, f_dp, and the next device in the ring fnext_dp.


SHARDED = ("zero1", "zero2", "zero3", "fsdp")


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def uneven_parts_are_equal_ones_of_an_nth(P: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """Where every device has an N-th, uneven parts are held and sent as equal ones are."""
    goals = []
    for name in SHARDED:
        uneven, equal = derived(name, uneven=["dp"]), derived(name)
        parts = {"f_dp": 1 / N, "fnext_dp": 1 / N}
        goals += [uneven.memory().where(**parts) == equal.memory(), uneven.sent.where(**parts) == equal.sent]
    return holds(goals)


uneven_parts_are_equal_ones_of_an_nth.control(
    "of one device more",
    lambda N: derived("zero3", uneven=["dp"]).memory().where(f_dp=1 / (N + 1)) == derived("zero3").memory(),
    refuted_at={"P": 1, "N": 1, "b_theta": 1, "b_g": 1, "b_omega": 1},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def uneven_parts_add_up(x: Real, y: Real, P: Real, b_theta: Real, b_g: Real, b_omega: Real):
    """Three devices whose parts add up to 1 hold together what three with equal parts hold, and send together as much, each of them to the
    next."""
    goals, z = [], 1 - x - y
    for name in SHARDED:
        uneven, equal = derived(name, uneven=["dp"]), derived(name)
        held = sum(uneven.memory().where(f_dp=own) for own in (x, y, z))
        sent = sum(uneven.sent.where(f_dp=own, fnext_dp=after) for own, after in ((x, y), (y, z), (z, x)))
        goals += [held == 3 * equal.memory().where(N=3), sent == 3 * equal.sent.where(N=3)]
    return holds(goals)


uneven_parts_add_up.control(
    "each sends what it would with equal parts",
    lambda x, y: derived("zero3", uneven=["dp"]).sent.where(f_dp=x, fnext_dp=y) == derived("zero3").sent.where(N=3),
    refuted_at={"x": 0, "y": 0, "P": 1, "b_theta": 1, "b_g": 1, "b_omega": 1},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "thakur2005"))
def a_ring_leaves_out_one_part(P: Real, b_theta: Real, b_g: Real, f_dp: Real, fnext_dp: Real):
    """Of uneven parts, a device of stage 3 passes on twice all parameters but the next device's part, and once all sums but that of its
    own part; a device of stage 1 passes on the former once.

    The next device had its own part from the start, and nobody needs the sum of a device's own part but itself.
    """
    gathered, scattered = P * b_theta * (1 - fnext_dp), P * b_g * (1 - f_dp)
    sent = {name: derived(name, uneven=["dp"]).sent for name in ("zero1", "zero3")}
    return holds(sent["zero3"] == 2 * gathered + scattered, sent["zero1"] == gathered + scattered)


a_ring_leaves_out_one_part.control(
    "its own part in both",
    lambda P, b_theta, b_g, f_dp: derived("zero3", uneven=["dp"]).sent == P * (2 * b_theta + b_g) * (1 - f_dp),
    refuted_at={"P": 1, "b_theta": 1, "b_g": 1, "f_dp": 0, "fnext_dp": 1},
)


# Rounding: profiles fill up flat tensors to a multiple of some number of elements.


@theorem(expect=Proved(), cite="graham1994concrete")
def filling_up_takes_less_than_a_divisor(n: Integer, d: Integer, k: Integer):
    """What profiles fill a tensor up to is not below its number of elements, and less than one divisor above it; a multiple of the divisor
    stays as it is."""
    up = rounded(n, d)
    return holds(up >= n, up < n + d, rounded(k * d, d) == k * d, given=[d >= 1])


filling_up_takes_less_than_a_divisor.control(
    "it takes no element that is not needed", lambda n, d: holds(rounded(n, d) == n, given=[d >= 1]), refuted_at={"n": 1, "d": 2, "k": 0}
)
