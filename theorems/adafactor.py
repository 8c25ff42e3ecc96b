"""What Adafactor asks of a step: sums along rows and columns, and norms, of whole matrices; and what its factors take.

All of P is counted as matrices. `rho` is rows and columns of a matrix for each of its elements.
"""

from placeproof.theory import Degree, Positive, Proved, Real, Refuted, derived, holds, theorem, trains, without_call


def states(subject):
    """Bytes of parameters, gradients and optimizer state on a device."""
    return derived(subject).memory("model_states")


@theorem(expect=Proved(), cite="shazeer2018adafactor", level=1)
def adafactor_trains_of_sums_that_are_reduced():
    """ZeRO stage 1 trains with Adafactor what one device trains with it, if sums along rows and columns of matrices, and norms of what they
    make, are added up over the devices, and norms of all other tensors, too.

    Whatever the sums are of, and whatever is made of them. No matrix is gathered.
    """
    return trains("zero1 * adafactor", assuming=["separable-loss", "equal-token-counts", "equal-initial-states"])


adafactor_trains_of_sums_that_are_reduced.control(
    "sums along rows and columns are each device's own",
    lambda: trains(without_call("zero1 * adafactor", "all_reduce", 1)),
    breaks="step invariant",
).control(
    "norms are each device's own", lambda: trains(without_call("zero1 * adafactor", "all_reduce", 2)), breaks="step invariant"
).control(
    "norms of gains and biases are each device's own",
    lambda: trains(without_call("zero1 * adafactor", "all_reduce", 3)),
    breaks="step invariant",
)


@theorem(
    expect=Refuted(breaks="step invariant", because="a device sums along the parts of rows and columns that it has"),
    cite="shazeer2018adafactor",
)
def adafactor_trains_on_shards():
    """Each device of ZeRO may update its own part with Adafactor."""
    return trains("adafactor_on_shards")


adafactor_trains_on_shards.control("sums and norms are reduced", lambda: trains("zero1 * adafactor"), proved=True)


@theorem(expect=Proved(), cite="shazeer2018adafactor")
def factors_stand_for_a_second_moment(P: Real, N: Degree, rho: Real, b_master: Real, b_nu: Real):
    """Adafactor keeps b_nu bytes of each row and column, on every device of ZeRO; of owned matrices each device has its own."""
    held, owned = derived("zero1 * adafactor").memory("optimizer"), derived("zero1 * adafactor(owned)").memory("optimizer")
    return [held == P * b_master / N + P * rho * b_nu, owned == (P * b_master + P * rho * b_nu) / N]


factors_stand_for_a_second_moment.control(
    "parts of matrices have parts of the factors",
    lambda P, N, rho, b_master, b_nu: derived("zero1 * adafactor").memory("optimizer") == (P * b_master + P * rho * b_nu) / N,
    refuted_at={"P": 1, "N": 2, "rho": 1, "b_master": 1, "b_nu": 1},
)


@theorem(expect=Proved(), cite="shazeer2018adafactor")
def parts_of_moments_are_smaller_than_factors_on_many_devices(
    P: Positive, N: Degree, rho: Real, b_omega: Real, b_master: Real, b_nu: Real, b_theta: Real, b_g: Real
):
    """ZeRO stage 1 with Adafactor holds no more than with Adam on up to (b_omega - b_master) / (b_nu rho) devices."""
    return holds(states("zero1 * adafactor") <= states("zero1"), given=[N * b_nu * rho <= b_omega - b_master])


parts_of_moments_are_smaller_than_factors_on_many_devices.control(
    "on any number",
    lambda: states("zero1 * adafactor") <= states("zero1"),
    refuted_at={"P": 1, "N": 8, "rho": 1, "b_omega": 2, "b_master": 1, "b_nu": 1, "b_theta": 1, "b_g": 1},
)
