"""Beliefs about what trains, each beside what is true.

Beliefs about costs stand in a file of their own. A belief about any number of devices is refuted with two, and one about models with a
model of one parameter.
"""

from placeproof.theory import (
    Degree,
    Natural,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    absolute,
    by_induction,
    edited,
    holds,
    maximum,
    minimum,
    recursive,
    theorem,
    trains,
    without_call,
)

# Tensor parallelism. Row-split and column-split matrices are those of the block `mlp`.


@theorem(
    expect=Refuted(
        breaks="gradient integrity", because="every device already has the whole gradient of the output; a sum multiplies it by N"
    ),
    cite="shoeybi2019megatron",
)
def row_parallel_backward_needs_an_all_reduce():
    """In backward, the gradient of the output is all-reduced before a matrix that is split by rows.

    The all-reduce of such a matrix is in forward; its adjoint leaves the gradient alone. Section 3 has one of each for a block.
    """
    return trains(edited("mlp", "da = contract(dy, w2", "da = contract(all_reduce(dy, tp), w2"))


row_parallel_backward_needs_an_all_reduce.control("it is used as it is", lambda: trains("mlp"), proved=True)


@theorem(
    expect=Refuted(breaks="gradient integrity", because="each device's columns give a part of the gradient of the input"),
    cite="shoeybi2019megatron",
)
def column_parallel_backward_needs_no_all_reduce():
    """In backward, the gradient of the input of a matrix that is split by columns needs no all-reduce, as forward has none there.

    It is the mirror image of the belief before. Only layers upstream of the block are then wrong.
    """
    return trains(without_call("mlp_sharded_output", "all_reduce"))


column_parallel_backward_needs_no_all_reduce.control("it is all-reduced", lambda: trains("mlp_sharded_output"), proved=True)

GELU_OF_PARTS = """
mesh(tp)
tensor(x, tokens, hidden, tp=hidden)
tensor(w, hidden, ffn, tp=hidden)
y = all_reduce(elementwise(gelu, contract(x, w, over=hidden)), tp)
returns(y)
"""
AFTER = "elementwise(gelu, all_reduce(contract(x, w, over=hidden), tp))"


@theorem(
    expect=Refuted(breaks="state consistency", because="a function of a sum is not the sum of the function of its parts"),
    cite="shoeybi2019megatron",
)
def gelu_may_precede_the_sum():
    """GELU may be applied to what each device has of the output of a matrix that is split by rows, before the sum.

    Parts of a sum are not elements. After a matrix that is split by columns each device has whole elements, and GELU needs no exchange,
    which is doubted as often: section 3 splits the first matrix of a block by columns for this reason.
    """
    return trains(GELU_OF_PARTS)


gelu_may_precede_the_sum.control(
    "it is applied after the sum",
    lambda: trains(GELU_OF_PARTS.replace("all_reduce(elementwise(gelu, contract(x, w, over=hidden)), tp)", AFTER)),
    proved=True,
).control("it is applied between split columns and split rows", lambda: trains("mlp"), proved=True)

# Flags of a loss scaler.


SKIPS = """
program("a step that skips what is not finite")
mesh(dp)
place(parameters, dp="S*")
place(optimizer, dp="S")
reference(skip=not_finite)
w = all_gather(parameters, dp)
gradients = reduce_scatter(backward(w), dp, op=mean)
flag = all_reduce(found_inf(gradients), dp, op=sum)
parameters, optimizer = update(parameters, optimizer, gradients, flag)
"""


@theorem(expect=Proved(), cite="micikevicius2018mixed")
def a_sum_of_flags_serves_as_their_maximum():
    """A step whose devices skip it where the sum of their flags is not 0 trains what one device trains that skips it where its gradient is
    not finite.

    Flags are zero or one, so that an all-reduce with op=sum does where the greatest of them is meant.
    """
    return trains(SKIPS, assuming=["separable-loss", "equal-token-counts", "elementwise-optimizer"])


a_sum_of_flags_serves_as_their_maximum.control(
    "each device by its own flag", lambda: trains(without_call(SKIPS, "all_reduce")), breaks="state consistency"
)

# Means.


def of_the_batch(m1, m2, v1, v2):
    """The variance of two equal groups of samples with some means and variances: the mean square less the squared mean."""
    return ((v1 + m1**2) + (v2 + m2**2)) / 2 - ((m1 + m2) / 2) ** 2


@theorem(
    expect=Refuted(witness={"m": 1, "d": 1, "v1": 0, "v2": 0}, because="what lies between the devices' means is left out"),
    cite="ioffe2015batch",
)
def the_mean_of_variances_is_the_variance(m: Real, d: Real, v1: Real, v2: Real):
    """The mean of two devices' variances is the variance of the whole batch, if both have equally many samples.

    The devices' means are m - d and m + d. If it were true, a batch normalisation could be synchronised by averaging variances.
    """
    return of_the_batch(m - d, m + d, v1, v2) == (v1 + v2) / 2


the_mean_of_variances_is_the_variance.control(
    "the square of half the difference of means is added",
    lambda m, d, v1, v2: of_the_batch(m - d, m + d, v1, v2) == (v1 + v2) / 2 + d**2,
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"f1": 1, "f2": 0, "p1": 1, "p2": 0}, because="a product of means over the batch is not the mean of the devices' products"
    ),
    cite="fedus2022switch",
)
def the_balance_loss_is_the_mean_of_the_devices_losses(f1: Real, f2: Real, p1: Real, p2: Real):
    """An expert's term in the load-balancing loss of a batch, its share of tokens times its mean probability, is the mean of the terms of
    two devices with equally many tokens.

    The loss is no mean over tokens. Two devices that each use one expert look unbalanced, and balanced together.
    """
    return (f1 * p1 + f2 * p2) / 2 == ((f1 + f2) / 2) * ((p1 + p2) / 2)


the_balance_loss_is_the_mean_of_the_devices_losses.control(
    "it is that, less the covariance over the devices",
    lambda f1, f2, p1, p2: (f1 * p1 + f2 * p2) / 2 - (f1 - f2) * (p1 - p2) / 4 == ((f1 + f2) / 2) * ((p1 + p2) / 2),
    proved=True,
)

# Clipping.


def clipped(g, limit):
    """A gradient of one element, clipped."""
    return maximum(-limit, minimum(limit, g))


@theorem(
    expect=Refuted(witness={"g1": 3, "g2": -1, "limit": 1}, because="the larger of two gradients has lost its weight before the mean"),
    cite="pascanu2013difficulty",
)
def clipping_commutes_with_averaging(g1: Real, g2: Real, limit: Positive):
    """The mean of two devices' clipped gradients is their clipped mean."""
    return (clipped(g1, limit) + clipped(g2, limit)) / 2 == clipped((g1 + g2) / 2, limit)


clipping_commutes_with_averaging.control(
    "it is, if neither is clipped",
    lambda g1, g2, limit: holds(
        (clipped(g1, limit) + clipped(g2, limit)) / 2 == clipped((g1 + g2) / 2, limit), given=[absolute(g1) <= limit, absolute(g2) <= limit]
    ),
    proved=True,
).control(
    "either is within the limit",
    lambda g1, g2, limit: absolute((clipped(g1, limit) + clipped(g2, limit)) / 2) <= limit,
    proved=True,
)


@theorem(
    expect=Refuted(breaks="gradient integrity", because="the square of a sum of norms is not the sum of their squares"),
    cite="pascanu2013difficulty",
)
def the_global_norm_is_the_sum_of_norms():
    """A step may clip its shards by the sum of the norms of all shards, in place of the global norm."""
    return trains(edited("clip_by_local_norm", "sqrt(square_norm(gradients))", "all_reduce(sqrt(square_norm(gradients)), dp)"))


the_global_norm_is_the_sum_of_norms.control(
    "by the root of the sum of their squares",
    lambda: trains(edited("clip_by_local_norm", "square_norm(gradients)", "all_reduce(square_norm(gradients), dp)")),
    proved=True,
)


@theorem(
    expect=Refuted(witness={"g": 1, "factor": 1024, "limit": 1}, because="the limit is met by the scaled gradient, and undershot after it"),
    cite="micikevicius2018mixed",
)
def a_loss_scale_may_be_undone_after_clipping(g: Real, factor: Positive, limit: Positive):
    """A loss may be scaled, the gradient clipped, and the scale divided out after that."""
    return clipped(factor * g, limit) / factor == clipped(g, limit)


a_loss_scale_may_be_undone_after_clipping.control(
    "with the limit scaled, too",
    lambda g, factor, limit: clipped(factor * g, factor * limit) / factor == clipped(g, limit),
    proved=True,
)

# Learning rates.


@theorem(
    expect=Refuted(
        witness={"w": 1, "g": 0, "rate": 1, "decay": "1/10", "n": 2},
        because="the weight decay is divided with the rate, and was not summed",
    ),
    cite="goyal2017large",
)
def a_sum_for_a_mean_only_scales_the_rate(w: Real, g: Real, rate: Positive, decay: NonNegative, n: Degree):
    """An SGD step with weight decay that sums n gradients of mean g, at one n-th of the rate, is the step with their mean.

    Remark 1 of section 3: to scale the loss is not to scale the rate.
    """
    return w - rate / n * (n * g + decay * w) == w - rate * (g + decay * w)


a_sum_for_a_mean_only_scales_the_rate.control(
    "it is, with n times the decay",
    lambda w, g, rate, decay, n: w - rate / n * (n * g + n * decay * w) == w - rate * (g + decay * w),
    proved=True,
)


@recursive(on="k", reals=("x",))
def left_of_small_steps(k, x):
    """What is left of the distance to the minimum after k SGD steps on a quadratic loss; x is rate times curvature."""
    return 1, left_of_small_steps(k - 1, x) * (1 - x)


@theorem(
    expect=Refuted(witness={"k": 2, "x": "1/2"}, because="the second small step has a smaller gradient"),
    cite="goyal2017large",
)
def k_times_the_rate_makes_up_for_k_steps(k: Natural, x: Real):
    """Training with a k times larger batch at k times the rate is exact: on a quadratic loss, k steps are one step with k times the rate.

    The linear scaling rule of section 2.1 assumes that the gradient hardly changes in k steps. x is rate times curvature.
    """
    return left_of_small_steps(k, x) == 1 - k * x


k_times_the_rate_makes_up_for_k_steps.control(
    "the large step goes at least as far, which may be beyond the minimum",
    lambda k, x: by_induction(left_of_small_steps(k, x) >= 1 - k * x, on=k, given=[x >= 0, x <= 1]),
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"v": 1, "g": 0, "decay": "9/10", "rate": 1, "raised": 2}, because="velocity that holds the rate keeps the old one"
    ),
    cite="goyal2017large",
)
def momentum_may_hold_the_rate(v: Real, g: Real, decay: Positive, rate: Positive, raised: Positive):
    """An update with momentum is the same whether the learning rate is in the velocity or multiplies it, also when the rate is raised.

    v is the velocity without the rate. Remark 2 of section 3 asks for a correction when a warm-up changes the rate.
    """
    return decay * (rate * v) + raised * g == raised * (decay * v + g)


momentum_may_hold_the_rate.control(
    "with the velocity corrected by the ratio of the rates",
    lambda v, g, decay, rate, raised: decay * (raised / rate) * (rate * v) + raised * g == raised * (decay * v + g),
    proved=True,
)
