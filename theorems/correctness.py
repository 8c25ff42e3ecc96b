"""Which conditions make a step right, for which optimizers, and which of them a right step keeps.

The claim is that of Placement Semantics: gradient integrity and state consistency are necessary and sufficient. Here they are what a proof
asks of a step program, device by device and element by element (``docs/explanation/how-proofs-work.md``):

- *gradient integrity*: what an update reads as its gradient is the gradient of the global batch, clipped where the reference clips;
- *state consistency*: whatever is computed is computed from the parameters and the optimizer state of this step, and every copy of a
  parameter is what its update wrote;
- *step invariant*: after the step, each device holds what it is placed to hold, and it is the reference's. This is that the step is right.

All is about one synchronous step in real arithmetic, for every number of devices and every model; `From one step to all` says what follows
of training. ``family`` is nine of the catalogue's strategies and each of their programs with one collective or one scale taken away; a test
asks the same of all strategies, and of all pairs. What is said of an element alone (rates, momentum) is said of arithmetic, and no program.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from placeproof.programs import Program
from placeproof.theory import (
    Integer,
    Natural,
    Positive,
    Proved,
    Real,
    Refuted,
    StatementError,
    by_induction,
    data,
    edited,
    holds,
    keeps,
    recursive,
    sign,
    theorem,
    trains,
    without_call,
)

GRADIENT, CONSISTENCY, INVARIANT = "gradient integrity", "state consistency", "step invariant"
BOTH = (GRADIENT, CONSISTENCY)
SAMPLES = ("separable-loss", "equal-token-counts")
COPIED = "equal-initial-states"
ANY_OPTIMIZER = (*SAMPLES, COPIED)
ELEMENTWISE = (*ANY_OPTIMIZER, "elementwise-optimizer")


def broken(subject: str) -> Iterator[Program]:
    """A strategy's program with each of its reductions, gathers and scales taken away, one at a time."""
    for op in ("all_reduce", "reduce_scatter", "all_gather", "scale"):
        number = 1
        while True:
            try:
                yield without_call(subject, op, number)
            except StatementError:  # there is none of that number
                break
            number += 1


STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "pp", "ep", "accumulate", "cp", "zero_infinity")


@cache
def family() -> list[str | Program]:
    """The strategies, and all that become of their programs."""
    return [*STRATEGIES, *(program for subject in STRATEGIES for program in broken(subject))]


PLAIN = """
program("data parallelism")
mesh(dp)
place(parameters)
place(optimizer)
g = all_reduce(backward(parameters), dp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
"""
OLD_PARAMETERS = edited(PLAIN, "update(parameters", "update(stale(parameters, 1)")
OLD_STATE = edited(PLAIN, "optimizer, g)", "stale(optimizer, 1), g)")
SUMMED = edited(PLAIN, ", op=mean", "")

# The two conditions are sufficient for element-wise optimizers.


@theorem(expect=Proved(), cite="mehta2026placement", level=1)
def steps_are_right_of_both_conditions():
    """Of nine of the catalogue's strategies, and of all that become of their programs when a collective or a scale is left out, those
    that keep gradient integrity and state consistency are right, under an element-wise optimizer.

    The sufficiency of the two conditions, for programs. The reason is congruence: an element-wise optimizer is an arbitrary function of
    what the two conditions speak of, so that equal operands give equal results; and copies that are what the update wrote are equal.
    """
    return keeps(family(), INVARIANT, given=BOTH)


steps_are_right_of_both_conditions.control(
    "a step that changes its optimizer state after the update",
    lambda: keeps([PLAIN, PLAIN + "optimizer = all_reduce(optimizer, dp)\n"], INVARIANT, given=BOTH),
    breaks=INVARIANT,
)


@theorem(
    expect=Refuted(breaks=INVARIANT, because="copies that are not refreshed, or an update of old parameters, keep the right gradient"),
    cite="mehta2026placement",
)
def steps_are_right_of_gradient_integrity_alone():
    """A step is right if each update reads the gradient of the global batch.

    The witnesses: ZeRO stage 1 that does not gather what it updated, and an update of the parameters of the step before.
    """
    return keeps([without_call("zero1", "all_gather"), OLD_PARAMETERS], INVARIANT, given=[GRADIENT])


steps_are_right_of_gradient_integrity_alone.control(
    "if it keeps state consistency as well",
    lambda: keeps(["zero1", without_call("zero1", "all_gather"), OLD_PARAMETERS], INVARIANT, given=BOTH),
    proved=True,
)


@theorem(
    expect=Refuted(breaks=INVARIANT, because="equal copies are all updated by the same wrong gradient, here a sum for a mean"),
    cite="mehta2026placement",
)
def steps_are_right_of_state_consistency_alone():
    """A step is right if all devices compute from the states of this step, and copies stay equal."""
    return keeps([SUMMED, without_call("zero3", "scale")], INVARIANT, given=[CONSISTENCY])


steps_are_right_of_state_consistency_alone.control(
    "if it keeps gradient integrity as well", lambda: keeps([PLAIN, SUMMED, "zero3"], INVARIANT, given=BOTH), proved=True
)


@theorem(
    expect=Refuted(
        breaks=INVARIANT,
        because="the conditions ask nothing of optimizer state after the update, and nothing of a step that has no update",
    ),
    cite="mehta2026placement",
)
def any_step_is_right_of_both_conditions():
    """Whatever else a step does, it is right if it keeps gradient integrity and state consistency, under an element-wise optimizer.

    So "every copy that is kept is what the update wrote" has to be asked of the optimizer state, too. The step invariant does.
    """
    return keeps(
        [PLAIN + "optimizer = scale(optimizer, 2)\n", "mesh(dp)\nplace(parameters)\nplace(optimizer)\ng = backward(parameters)\n"],
        INVARIANT,
        given=BOTH,
    )


any_step_is_right_of_both_conditions.control(
    "the states that are kept are what the update wrote", lambda: keeps(PLAIN, INVARIANT, given=BOTH), proved=True
)

# They are not sufficient where an update reads more than an element.


@theorem(
    expect=Refuted(breaks=INVARIANT, because="an update of a part of a matrix reads what the device does not have"),
    cite=("mehta2026placement", "jordan2024muon"),
)
def steps_are_right_of_both_conditions_and_any_optimizer():
    """A step that keeps gradient integrity and state consistency is right, whatever the optimizer.

    This is the claim of the paper with nothing added. Under an optimizer of whole matrices (Muon, Shampoo), ZeRO, FSDP and tensor
    parallelism keep both conditions for every number of devices, and end with other parameters.
    """
    return keeps(["zero1", "zero2", "zero3", "fsdp", "tp", "muon_on_shards"], INVARIANT, given=BOTH, assuming=ANY_OPTIMIZER)


steps_are_right_of_both_conditions_and_any_optimizer.control(
    "if the optimizer is element-wise",
    lambda: keeps(["zero1", "zero2", "zero3", "fsdp", "tp"], INVARIANT, given=BOTH, assuming=ELEMENTWISE),
    proved=True,
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def sharded_steps_keep_both_conditions_of_any_optimizer():
    """ZeRO stage 1 keeps both conditions, all that they ask, whatever the optimizer.

    So it is not that the conditions fail for Muon: they hold, and the step is wrong.
    """
    return keeps("zero1", *BOTH, assuming=ANY_OPTIMIZER)


sharded_steps_keep_both_conditions_of_any_optimizer.control(
    "the step invariant as well", lambda: keeps("zero1", *BOTH, INVARIANT, assuming=ANY_OPTIMIZER), breaks=INVARIANT
)

WHOLE = """
program("whole matrices are updated")
mesh(dp)
place(parameters)
place(optimizer, dp="S")
g = all_reduce(backward(parameters), dp, op=mean)
parameters, whole = update(parameters, all_gather(optimizer, dp), g)
optimizer = part(whole, dp)
"""
REDUCED_NORMS = """
program("tensor norms are summed over shards")
mesh(dp)
reference(optimizer=tensor_norm)
place(parameters)
place(optimizer, dp="S")
g = reduce_scatter(backward(parameters), dp, op=mean)
norms = all_reduce(tensor_norms(parameters, optimizer, g), dp)
parameters, optimizer = update_with(parameters, optimizer, g, norms)
parameters = all_gather(parameters, dp)
"""


@theorem(expect=Proved(), cite=("mehta2026placement", "jordan2024muon"))
def steps_are_right_of_both_conditions_and_whole_matrices():
    """Where each device has whole matrices, with their whole gradients and states, the two conditions are sufficient for any optimizer: in
    data parallelism, where stages of a pipeline hold whole layers, and where state is gathered for the update and cut after it.

    This is the third condition: a device has all that the update of its elements reads.
    """
    programs = ["ddp", "pp", WHOLE, without_call("ddp", "scale"), without_call("pp", "scale"), OLD_PARAMETERS]
    return keeps(programs, INVARIANT, given=BOTH, assuming=ANY_OPTIMIZER)


steps_are_right_of_both_conditions_and_whole_matrices.control(
    "matrices are cut between the devices of a tensor axis",
    lambda: keeps(["ddp", "pp", "tp"], INVARIANT, given=BOTH, assuming=ANY_OPTIMIZER),
    breaks=INVARIANT,
)


@theorem(expect=Proved(), cite=("mehta2026placement", "you2020lamb"))
def shards_are_right_of_summed_norms():
    """An optimizer that reads an element and norms of its tensor, as LAMB does, is right on shards if each device is given the norms of
    whole tensors: all that the update reads need not be held, it may be reduced."""
    return keeps(REDUCED_NORMS, *BOTH, INVARIANT, assuming=ANY_OPTIMIZER)


shards_are_right_of_summed_norms.control(
    "each shard takes its own norms", lambda: keeps("lamb_on_shards", INVARIANT, given=BOTH), breaks=INVARIANT
)


@theorem(
    expect=Refuted(breaks=GRADIENT, because="each device scales its part by the norm of that part"),
    cite=("mehta2026placement", "pascanu2013difficulty"),
)
def clipped_steps_are_right_of_a_right_gradient_before_clipping():
    """A step that clips by the global norm is right if the gradient that it reduces is that of the global batch.

    The control takes clipping out, of the step and of the reference: what is clipped is the gradient of the global batch. So gradient
    integrity has to be asked of what the update reads, after clipping, and clipping needs what all devices hold.
    """
    return trains("clip_by_local_norm", assuming=ELEMENTWISE)


UNCLIPPED = edited(edited("clip_by_local_norm", "scale(gradients, factor)", "gradients"), "reference(clip=global_norm)\n", "")
clipped_steps_are_right_of_a_right_gradient_before_clipping.control(
    "what is clipped is right", lambda: keeps(UNCLIPPED, *BOTH, INVARIANT), proved=True
).control(
    "it is scaled by the norm of all parts",
    lambda: keeps(edited("clip_by_local_norm", "square_norm(gradients)", "all_reduce(square_norm(gradients), dp)"), *BOTH, INVARIANT),
    proved=True,
)

# A right step keeps both, in what it uses.

UNUSED_PASS = edited(PLAIN, "g = all_reduce", "h = backward(stale(parameters, 1))\ng = all_reduce")
UNUSED_UPDATE = edited(
    PLAIN, "parameters, optimizer =", "p, o = update(parameters, optimizer, g)\np, o = update(p, o, g)\nparameters, optimizer ="
)


@theorem(expect=Proved(), cite="mehta2026placement", level=1)
def right_steps_keep_both_conditions_of_use():
    """Of nine of the catalogue's strategies, and of all that become of their programs when a collective or a scale is left out, those
    that are right for every element-wise optimizer keep gradient integrity and state consistency.

    The necessity of the two conditions, for programs all of whose work is used: what each device computes reaches a state that it keeps.
    """
    return keeps(family(), *BOTH, given=[INVARIANT])


right_steps_keep_both_conditions_of_use.control(
    "a program with a pass that is not used",
    lambda: keeps([PLAIN, UNUSED_PASS], *BOTH, given=[INVARIANT]),
    breaks=CONSISTENCY,
)


@theorem(
    expect=Refuted(breaks=CONSISTENCY, because="a pass over old parameters, or a second update, that nobody reads reaches no state"),
    cite="mehta2026placement",
)
def right_steps_keep_state_consistency():
    """In a step that is right for every element-wise optimizer, whatever a device computes, it computes from the states of this step.

    So as it is worded, state consistency is not necessary. It is, of what reaches a state that is kept.
    """
    return keeps([UNUSED_PASS, UNUSED_UPDATE], CONSISTENCY, given=[INVARIANT])


right_steps_keep_state_consistency.control("without what is not used", lambda: keeps(PLAIN, CONSISTENCY, given=[INVARIANT]), proved=True)


@theorem(expect=Proved(), cite="mehta2026placement")
def a_stale_pass_is_harmless_of_no_use():
    """A step with a backward pass over the parameters of the step before trains, if what it gives is not used."""
    return trains(UNUSED_PASS, assuming=[*SAMPLES, COPIED])


a_stale_pass_is_harmless_of_no_use.control(
    "it is used", lambda: trains(edited(UNUSED_PASS, "optimizer, g)", "optimizer, all_reduce(h, dp, op=mean))")), breaks=CONSISTENCY
)

ROOT_UPDATES = """
program("one device updates")
mesh(dp)
place(parameters)
place(optimizer)
g = reduce(backward(parameters), dp, op=mean, root=0)
parameters, optimizer = update(parameters, optimizer, g)
parameters = broadcast(parameters, dp, root=0)
optimizer = broadcast(optimizer, dp, root=0)
"""


@theorem(
    expect=Refuted(breaks=GRADIENT, because="devices whose states are overwritten by those of another one need no gradient"),
    cite="mehta2026placement",
)
def right_steps_keep_gradient_integrity():
    """In a step that is right for every element-wise optimizer, every device updates by the gradient of the global batch.

    The witness trains: ``agreement.one_device_may_update_of_broadcasting_all_states``. Gradient integrity is necessary on devices whose
    states are kept.
    """
    return keeps(ROOT_UPDATES, GRADIENT, given=[INVARIANT])


right_steps_keep_gradient_integrity.control(
    "every device keeps what it updated",
    lambda: keeps([PLAIN, without_call(ROOT_UPDATES, "broadcast", 2)], GRADIENT, given=[INVARIANT]),
    proved=True,
)

# Necessary of all optimizers, and not of one.


@theorem(expect=Proved(), cite="mehta2026placement")
def all_that_an_update_reads_is_determined_of_three_steps(
    d: Real, w: Real, h: Real, a: Real, b: Real, c: Positive, beta: Real, gamma: Real
):
    """If a device's parameter is off by d, its momentum by w and its gradient by h, then what three steps of SGD with momentum are off by
    determines d, w and h: with two rates a and b, and a third with another decay. The three vanish only if d, w and h do.

    A step is off by d - rate (decay w + h). So all that an update reads is necessary as soon as a claim is about every element-wise
    optimizer, or only about three of them: parameter, optimizer state and gradient.
    """
    x, y, z = d - a * (beta * w + h), d - b * (beta * w + h), d - c * (gamma * w + h)
    moved, parameter = (y - x) / (a - b), (a * y - b * x) / (a - b)
    state = (moved - (parameter - z) / c) / (beta - gamma)
    return holds(parameter == d, state == w, moved - beta * state == h, given=[a != b, beta != gamma])


all_that_an_update_reads_is_determined_of_three_steps.control(
    "two of them are enough",
    lambda d, w, h, a, b, beta: holds(w == 0, given=[a != b, d == a * (beta * w + h), d == b * (beta * w + h)]),
    refuted_at={"d": 0, "w": 1, "h": -1, "a": 1, "b": 2, "beta": 1, "c": 1, "gamma": 0},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def an_error_of_the_state_shows_of_momentum(theta: Real, omega: Real, w: Real, g: Real, rate: Positive, decay: Positive):
    """Under SGD with momentum, of right parameters and right gradients, an error of the optimizer state moves the parameter after one step
    by rate times decay times the error, whatever the rate and the decay above zero: the state is necessary."""
    off = (theta - rate * (decay * (omega + w) + g)) - (theta - rate * (decay * omega + g))
    return holds(off == -rate * decay * w, sign(off) == -sign(w))


an_error_of_the_state_shows_of_momentum.control(
    "also of a decay of zero, which is SGD",
    lambda w, rate: holds(w == 0, given=[rate * 0 * w == 0]),
    refuted_at={"theta": 0, "omega": 0, "w": 1, "g": 0, "rate": 1, "decay": 1},
)


@theorem(
    expect=Refuted(
        breaks=CONSISTENCY, because="an update by the state of the step before is another update, for some element-wise optimizer"
    ),
    cite="mehta2026placement",
)
def steps_with_old_optimizer_state_train():
    """A step may update by the optimizer state of the step before, if parameters and gradients are right.

    Of SGD this is true, which has no state. A proof is about every element-wise optimizer.
    """
    return trains(OLD_STATE, assuming=[*SAMPLES, COPIED])


steps_with_old_optimizer_state_train.control(
    "by the state of this step", lambda: trains(PLAIN, assuming=[*SAMPLES, COPIED]), proved=True
).control("gradients are right in the witness", lambda: keeps(OLD_STATE, GRADIENT), proved=True)


@theorem(
    expect=Refuted(witness={"d": 1, "h": 1, "rate": 1}, because="an error of the parameter can cancel one of the gradient"),
    cite="mehta2026placement",
)
def gradient_integrity_is_necessary_of_sgd(d: Real, h: Real, rate: Positive):
    """If a device's parameter is off by d and its gradient by h, and an SGD step with one rate is right all the same, then h is zero."""
    return holds(h == 0, given=[d == rate * h])


gradient_integrity_is_necessary_of_sgd.control(
    "of a right parameter", lambda d, h, rate: holds(h == 0, given=[d == rate * h, d == 0]), proved=True
)


@theorem(
    expect=Refuted(witness={"theta": 0, "g": 2, "g_ref": 1, "rate": 1}, because="sign-SGD moves by the rate, whatever the gradient's size"),
    cite=("mehta2026placement", "bernstein2018signsgd"),
)
def gradient_integrity_is_necessary_of_sign_sgd(theta: Real, g: Real, g_ref: Real, rate: Positive):
    """If sign-SGD takes equal parameters to equal parameters, then the gradients were equal.

    This is the claim that both conditions are necessary, read for a fixed optimizer. The witness is a sum where a mean is meant.
    """
    return holds(g == g_ref, given=[theta - rate * sign(g) == theta - rate * sign(g_ref)])


gradient_integrity_is_necessary_of_sign_sgd.control(
    "their signs were equal",
    lambda theta, g, g_ref, rate: holds(sign(g) == sign(g_ref), given=[theta - rate * sign(g) == theta - rate * sign(g_ref)]),
    proved=True,
)


@recursive(on="t", reals=("beta", "c"))
def first_moment(t, beta, c):
    """Adam's mean of gradients, each times c."""
    return 0, beta * first_moment(t - 1, beta, c) + (1 - beta) * (c * shared(t))


@recursive(on="t", reals=("beta", "c"))
def second_moment(t, beta, c):
    """Adam's mean of squares of gradients, each gradient times c."""
    return 0, beta * second_moment(t - 1, beta, c) + (1 - beta) * (c * shared(t)) ** 2


@theorem(expect=Proved(), cite="kingma2015adam", level=1)
def moments_scale_with_the_gradient(t: Natural, beta: Real, c: Real):
    """After any number of steps whose gradients all have the factor c, Adam's first moment has it, and its second has its square."""
    return by_induction(
        [first_moment(t, beta, c) == c * first_moment(t, beta, 1), second_moment(t, beta, c) == c**2 * second_moment(t, beta, 1)], on=t
    )


moments_scale_with_the_gradient.control(
    "the second has it once", lambda t, beta, c: second_moment(t, beta, c) == c * second_moment(t, beta, 1), refuted_at={"t": 1, "c": 2}
)


@theorem(expect=Proved(), cite="kingma2015adam")
def adam_is_blind_to_a_factor_of_no_epsilon(t: Natural, beta: Real, gamma: Real, c: Real):
    """Without epsilon, the square of Adam's update, the first moment's square over the second moment, does not change if all gradients
    have a factor c. Cross-multiplied, so that nothing is divided by zero.

    The sign does not change either if c is positive. So Adam hides a missing mean, as sign-SGD does: the step is right in spite of a broken
    gradient. Section 2.1 of the source says that updates do not depend on the scale of gradients. Epsilon, clipping and a coupled weight
    decay see the factor.
    """
    here = first_moment(t, beta, c) ** 2 * second_moment(t, gamma, 1) == first_moment(t, beta, 1) ** 2 * second_moment(t, gamma, c)
    return holds(here, lemmas=[moments_scale_with_the_gradient.at(t=t, beta=b, c=c) for b in (beta, gamma)])


adam_is_blind_to_a_factor_of_no_epsilon.control(
    "with an epsilon within the root",
    lambda t, beta, gamma, c: (
        first_moment(t, beta, c) ** 2 * (second_moment(t, gamma, 1) + Fraction(1, 10))
        == first_moment(t, beta, 1) ** 2 * (second_moment(t, gamma, c) + Fraction(1, 10))
    ),
    refuted_at={"t": 1, "beta": "9/10", "gamma": "1/2", "c": 2},
)

# From one step to all.

initial, shared, spread, leftover = data("initial"), data("shared"), data("spread"), data("leftover")


@recursive(on="t", reals=("read",))
def off(t, read):
    """By how much what devices are placed to hold is off after t steps: a step multiplies it by anything, and adds ``read`` times what is
    left over on devices where nothing is placed."""
    return initial(0), spread(t) * off(t - 1, read) + read * leftover(t)


@theorem(expect=Proved(), cite="mehta2026placement")
def training_is_right_of_the_step_invariant(t: Natural):
    """If what devices are placed to hold is the reference's at the beginning, and each step keeps that, it is the reference's after any
    number of steps.

    A proof of the step invariant is about one step from states that lie as placed and are the reference's, for every model and every
    optimizer, which may change from step to step: where nothing is off, nothing is off after the step, and of steps that begin otherwise
    nothing is said (``spread`` is any number). Nothing that is proved of a step may depend on what is left where nothing is placed: that is
    ``read == 0``. That the invariant has the same words before and after the step is what this needs; ``steps_are_right_of_right_owners``
    is a step that ends right and does not begin so.
    """
    return by_induction(off(t, 0) == 0, on=t, given=[initial(0) == 0])


training_is_right_of_the_step_invariant.control("whatever it begins with", lambda t: off(t, 0) == 0, refuted_at={"t": 1}).control(
    "a step may read what is left over", lambda t: holds(off(t, 1) == 0, given=[initial(0) == 0]), refuted_at={"t": 1}
)


@theorem(
    expect=Refuted(breaks=CONSISTENCY, because="the next step reads the copies of devices that are no owners, which nobody refreshed"),
    cite="mehta2026placement",
)
def steps_are_right_of_right_owners():
    """ZeRO stage 1 may leave out the gather: after the step the owner of each element has the reference's.

    One step ends with the right parameters on their owners, and begins with right parameters on all devices. So the induction over steps
    has no step.
    """
    return trains(without_call("zero1", "all_gather"), assuming=ELEMENTWISE)


steps_are_right_of_right_owners.control(
    "if it begins by a gather of what owners have",
    lambda: trains(
        """
mesh(dp)
place(parameters, dp="S*")
place(optimizer, dp="S")
g = reduce_scatter(backward(all_gather(parameters, dp)), dp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
""",
        assuming=[*SAMPLES, "elementwise-optimizer"],
    ),
    proved=True,
)


@recursive(on="t", reals=("rate",))
def copy_of(t, i, rate):
    """Device i's copy after t SGD steps with gradients that all devices share."""
    return initial(i), copy_of(t - 1, i, rate) - rate * shared(t)


@theorem(expect=Proved(), cite="li2020ddp")
def copies_never_meet_of_unequal_start(t: Natural, i: Integer, j: Integer, rate: Real):
    """Under data parallelism with SGD, two copies of a parameter differ after any number of steps by what they differed at the start.

    Every gradient is reduced rightly, and nothing brings the copies together. That is why equal initial states are an assumption, and
    why DDP broadcasts them.
    """
    return by_induction(copy_of(t, i, rate) - copy_of(t, j, rate) == initial(i) - initial(j), on=t)


copies_never_meet_of_unequal_start.control(
    "training brings them together", lambda t, i, j, rate: copy_of(t, i, rate) == copy_of(t, j, rate), refuted_at={"t": 5, "i": 0, "j": 1}
)


@theorem(
    expect=Refuted(
        witness={"theta": 1, "curvature": 1, "rate": "1/2"}, because="the second gradient is taken where the parameter no longer is"
    ),
    cite="dean2012large",
)
def a_stale_read_is_harmless(theta: Real, curvature: Positive, rate: Positive):
    """Two SGD steps on a quadratic loss give the same if the second reads its gradient at the parameter of the first."""
    once = theta - rate * curvature * theta
    return once - rate * curvature * once == once - rate * curvature * theta


def missed_by_a_stale_read(theta, curvature, rate):
    """By how much the two steps differ."""
    once = theta - rate * curvature * theta
    fresh, stale = once - rate * curvature * once, once - rate * curvature * theta
    return fresh - stale == (rate * curvature) ** 2 * theta


a_stale_read_is_harmless.control("the error is of second order in the rate", missed_by_a_stale_read, proved=True)
