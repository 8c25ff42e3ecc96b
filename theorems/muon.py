"""What an update of whole matrices, as Muon has it, asks of a step: what has to be exchanged, and what that costs.

All of P is counted as matrices. A momentum is gathered in the width of parameters, unless a step casts it.
"""

from placeproof.theory import Degree, Proved, Real, Refuted, derived, edited, holds, theorem, trains, without_call


def sent(subject):
    """Bytes that a device sends in a step."""
    return derived(subject).sent


MOMENTUM = "momentum(optimizer.matrix[u], gradients.matrix[u])"
#: ZeRO stage 1 with a momentum that is gathered in a width of its own.
CAST = edited("zero1 * muon", MOMENTUM, f"cast({MOMENTUM}, b_qw)")
#: ZeRO stage 1 where each device makes the direction of its own part.
ALONE = edited("zero1 * muon", f"all_gather({MOMENTUM}, dp)", MOMENTUM)


@theorem(expect=Proved(), cite="liu2025moonlight", level=1)
def muon_trains_of_gathering_momentum():
    """ZeRO stage 1 trains with Muon what one device trains with it, if momentum is gathered before directions are made of it.

    Whatever is made of each whole matrix, and from however many parts it is gathered. Norms and biases are updated element by element.
    """
    return trains("zero1 * muon", assuming=["separable-loss", "equal-token-counts", "equal-initial-states", "elementwise-optimizer"])


muon_trains_of_gathering_momentum.control(
    "each device makes the direction of its part", lambda: trains(ALONE), breaks="state consistency"
).control("updated parameters are not gathered", lambda: trains(without_call("zero1 * muon", "all_gather", 2)), breaks="state consistency")


@theorem(
    expect=Refuted(breaks="step invariant", because="a device makes the direction of its own part of a matrix"), cite="liu2025moonlight"
)
def muon_trains_of_directions_of_blocks():
    """Under tensor parallelism each device may orthogonalize its own block of a matrix."""
    return trains("muon_blockwise")


muon_trains_of_directions_of_blocks.control("whole matrices are gathered first", lambda: trains("tp * muon"), proved=True)


@theorem(expect=Proved(), cite="liu2025moonlight")
def muon_adds_a_gather_of_momentum(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Beside ZeRO stage 1, and beside stage 3, Muon sends P b_theta (N - 1) / N bytes more: an all-gather of all momentum."""
    more = P * b_theta * (N - 1) / N
    return [sent("zero1 * muon") == sent("zero1") + more, sent("zero3 * muon") == sent("zero3") + more]


muon_adds_a_gather_of_momentum.control(
    "it does beside data parallelism, too",
    lambda P, N, b_theta: sent("ddp * muon") == sent("ddp") + P * b_theta * (N - 1) / N,
    refuted_at={"P": 1, "N": 2, "b_theta": 1, "b_g": 1},
)


@theorem(expect=Proved(), cite="liu2025moonlight")
def owners_of_whole_matrices_add_nothing(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Where a device's parts are whole matrices, Muon sends no more than ZeRO stage 1 does."""
    return sent("zero1 * muon(owned)") == sent("zero1")


owners_of_whole_matrices_add_nothing.control(
    "nor where parts are parts of matrices",
    lambda: sent("zero1 * muon") == sent("zero1"),
    refuted_at={"P": 1, "N": 2, "b_theta": 1, "b_g": 1},
)


@theorem(expect=Proved(), cite="liu2025moonlight")
def momentum_of_half_the_width_adds_a_quarter(P: Real, N: Degree, b_qw: Real, b_theta: Real, b_g: Real):
    """With gradients and parameters of 4 bytes, and momentum gathered in 2, Muon sends 5/4 of what ZeRO stage 1 sends.

    It is the most that section 2.3 names.
    """
    return holds(4 * sent(CAST) == 5 * sent("zero1"), given=[b_g == 2 * b_qw, b_theta == 2 * b_qw])


momentum_of_half_the_width_adds_a_quarter.control(
    "where all are of one width",
    lambda b_qw, b_theta, b_g: holds(4 * sent(CAST) == 5 * sent("zero1"), given=[b_g == b_qw, b_theta == b_qw]),
    refuted_at={"P": 1, "N": 2, "b_qw": 1, "b_theta": 1, "b_g": 1},
)


@theorem(expect=Proved(), cite="liu2025moonlight")
def muon_gathers_momentum_over_data_and_tensor_parallelism(P: Real, N_dp: Degree, N_tp: Degree, b_theta: Real):
    """Beside ZeRO stage 1 and tensor parallelism a device sends P b_theta (n - 1) / n bytes of momentum, n the devices of both."""
    n = N_dp * N_tp
    return derived("zero1 * tp * muon").over("dp*tp") == P * b_theta * (n - 1) / n


muon_gathers_momentum_over_data_and_tensor_parallelism.control(
    "a device gathers over tensor parallelism what it has of data parallelism",
    lambda P, N_dp, N_tp, b_theta: derived("zero1 * tp * muon").over("dp*tp") == P * b_theta * (N_tp - 1) / N_tp / N_dp,
    refuted_at={"P": 4, "N_dp": 2, "N_tp": 2, "b_theta": 1},
)
