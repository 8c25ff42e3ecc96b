"""Every placement: what it holds, sends, and leaves open.

A placement is a tuple of modes, ``(S*, S, S, R)``: of parameters, optimizer state, gradients, activations. The claims are those of Mehta,
arXiv 2601.02311, that memory and communication follow from the placement. They are asked of all placements that are accepted on one axis of
samples, and not of the catalogue's alone. What is sent over that axis, mode by mode, is in ``admitted``. What is accepted is asked of the
product, and what a mode costs of its table of modes.
"""

import itertools
from functools import lru_cache

from placeproof.collectives import COLLECTIVES
from placeproof.core.diagnostics import InputError
from placeproof.core.modes import MODES, Share
from placeproof.core.states import MODEL_STATES
from placeproof.core.symbols import symbol
from placeproof.semantics.usable import require_usable
from placeproof.strategies import parse_strategy
from placeproof.theory import (
    Degree,
    Integer,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    by_induction,
    data,
    derived,
    holds,
    maximum,
    recursive,
    theorem,
)

#: One of each pair of modes on two axes, state by state.
PAIRS = tuple(itertools.product(range(4), repeat=2))


def named(*modes, axis="dp"):
    """The placement with these modes of model states, on an axis."""
    return f"({', '.join(modes)}, R)" if axis == "dp" else f"({', '.join(modes)}, R, {axis})"


@lru_cache(maxsize=1)
def accepted():
    """The modes of parameters, optimizer state and gradients of each placement that is accepted on an axis of samples."""
    return tuple(modes for modes in itertools.product(MODES, repeat=3) if _usable(named(*modes)))


def _usable(text):
    try:
        require_usable(parse_strategy(text))
    except InputError:
        return False
    return True


def on_devices():
    """Those of which no state is off the device, or exists in passing alone."""
    return [modes for modes in accepted() if not set(modes) & {"O", "M"}]


@lru_cache(maxsize=256)
def costs(text):
    """What a strategy costs, derived once for all theorems."""
    return derived(text)


def of(*modes):
    """What a placement on one axis costs."""
    return costs(named(*modes))


def ring(collective, n, size):
    """What a collective sends, by the table of collectives."""
    return COLLECTIVES[collective].sent(symbol(n), size)


def left(size, modes, degrees, on_host=False):
    """What modes on axes leave of a state on a device, or on its share of the host, by the table of modes."""
    if any(mode.fetches for mode in modes) is not on_host:
        return 0
    for mode, n in zip(modes, degrees, strict=True):
        share = mode.host if mode.fetches else mode.device
        size = {Share.WHOLE: size, Share.PART: size / symbol(n), Share.NOTHING: 0}[share]
    return size


def by_table(*axes, degrees=("N",), on_host=False):
    """Bytes of model states by the table of modes."""
    sizes = [symbol("P") * symbol(state.width) for state in MODEL_STATES]
    return sum(left(size, [MODES[m] for m in modes], degrees, on_host) for size, modes in zip(sizes, zip(*axes, strict=True), strict=True))


# Memory.


@theorem(expect=Proved(), cite="mehta2026placement")
def model_states_follow_from_every_placement(P: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """In each placement that is accepted on an axis of samples, the bytes of model states that its step holds on a device are the sum, over
    the states, of what the state's mode leaves there: all of it, one N-th, or nothing.

    The paper's first claim for one axis. The left sides are derived from step programs, the right sides from the table of modes.
    """
    return [of(*modes).memory("model_states") == by_table(modes) for modes in accepted()]


model_states_follow_from_every_placement.control(
    "a gradient that is gathered for the update counts as held",
    lambda P, b_theta, b_g, b_omega: of("R", "R", "S").memory("model_states") == P * (b_theta + b_g + b_omega),
    refuted_at={"N": 2},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def host_memory_follows_from_every_placement(P: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """In each accepted placement, a device's share of host memory is one N-th of each state that is off the device, and nothing else."""
    return [of(*modes).memory("host") == by_table(modes, on_host=True) for modes in accepted()]


host_memory_follows_from_every_placement.control(
    "gradients that the update reads whole lie whole on each host",
    lambda P, b_g: of("R", "R", "O").memory("host") == P * b_g,
    refuted_at={"N": 2, "P": 1, "b_g": 1},
)


def pairs():
    """Pairs of placements in which every pair of modes of each state comes."""
    modes = [list(dict.fromkeys(m[k] for m in accepted())) for k in range(3)]
    for i, j in PAIRS:
        k = 4 * i + j
        yield (modes[0][k % 3], modes[1][k // 3 % 3], modes[2][i]), (modes[0][k // 3 % 3], modes[1][k % 3], modes[2][j])


@theorem(expect=Proved(), cite="mehta2026placement")
def divisors_of_any_two_axes_multiply(P: Real, N_dp: Degree, N_rep: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """On two axes of samples, what is left of each state on a device is the product of what its modes on the axes leave.

    Of each state, every pair of modes is among the pairs of placements. A nightly check has all 1,296.
    """
    return [
        costs(f"{named(*one)} * {named(*two, axis='rep')}").memory("model_states") == by_table(one, two, degrees=("N_dp", "N_rep"))
        for one, two in pairs()
    ]


divisors_of_any_two_axes_multiply.control(
    "the larger divisor counts alone",
    lambda: (
        costs(f"{named('S*', 'S', 'S')} * {named('S*', 'S', 'S', axis='rep')}").memory("model_states")
        == by_table(("S*", "S", "S"), degrees=("N_dp",))
    ),
    refuted_at={"N_dp": 2, "N_rep": 2},
)

# Communication over an axis of samples.


@theorem(expect=Proved(), cite="mehta2026placement")
def where_gradients_lie_sends_nothing(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """For one micro-batch, how gradients lie changes nothing of what is sent, whatever the modes of parameters and optimizer state.

    So gradients may be sharded for nothing, as ZeRO stage 2 does, beside any parameters and any optimizer.
    """
    return [of(*modes).sent == of(*modes[:2], "R").sent for modes in accepted() if modes[2] != "R"]


where_gradients_lie_sends_nothing.control(
    "nor for several micro-batches",
    lambda: costs("(R, S, S, R) * accumulate").sent.where(m=2) == costs("(R, S, R, R) * accumulate").sent.where(m=2),
    refuted_at={"N": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 2, "b_theta": 1, "b_g": 1},
        because="sharding the optimizer state adds a gather of the parameters that every device keeps, and none of those that are gathered",
    ),
    cite="mehta2026placement",
)
def each_state_has_traffic_of_its_own(P: Positive, N: Degree, b_theta: Positive, b_g: Positive):
    """What is sent is a sum over states, each by its own mode: sharding the optimizer state changes it equally for both modes of
    parameters."""
    return of("R", "S", "S").sent - of("R", "R", "S").sent == of("S*", "S", "S").sent - of("S*", "R", "S").sent


each_state_has_traffic_of_its_own.control(
    "the difference is one gather of the parameters",
    lambda P, b_theta: (
        of("R", "S", "S").sent - of("R", "R", "S").sent - of("S*", "S", "S").sent + of("S*", "R", "S").sent
        == ring("all_gather", "N", P.expr * b_theta.expr)
    ),
    proved=True,
)


def crossing(parameters, optimizer, gradients):
    """Bytes over a device's host link, by modes."""
    theta, g = (symbol("P") * symbol(b) / symbol("N") for b in ("b_theta", "b_g"))
    there = {"R": 1, "S": 2, "O": 0}[optimizer]  # a whole update writes back its part; one in parts reads it, too
    of_parameters = 2 + there if parameters == "O" else 1 if optimizer == "O" else 0
    of_gradients = 1 if optimizer == "O" else 2 if gradients == "O" else 0
    return of_parameters * theta + of_gradients * g


@theorem(expect=Proved(), cite="mehta2026placement")
def host_traffic_follows_from_every_placement(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """What crosses a device's host link follows from the modes. Parameters off the device come for both uses, and for the update where
    that is made on the device. Gradients go to the host for an update there, and there and back if they rest there alone."""
    return [of(*modes).host_link == crossing(*modes) for modes in accepted()]


host_traffic_follows_from_every_placement.control(
    "gradients off the device cost nothing beside an optimizer that is on it",
    lambda: of("R", "S", "O").host_link == of("R", "S", "S").host_link,
    refuted_at={"N": 2, "P": 1, "b_g": 1},
)

# The catalogue's placements.

#: The catalogue's strategies by the paper's tuples.
TUPLES = {
    "ddp": "(R, R, R, R)",
    "zero1": "(R, S, R, R)",
    "zero2": "(R, S, S, R)",
    "zero3": "(S*, S, S, R)",
    "fsdp": "(S*, S, S, R)",
    "zero_offload": "(R, O, O, R)",
    "zero_infinity": "(O, O, O, R)",
    "tp": "(S, S, S, R, tp)",
    "tp * sp": "(S, S, S, S, tp)",
    "pp": "(S, S, S, S, pp) * accumulate",
}


@theorem(
    expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"),
    skip={"not trivial": "that both are lowered to one program but for its name is what is to be shown"},
)  # fmt: skip
def strategies_are_the_papers_tuples(
    P: Real, N: Degree, U: Real, A: Real, A_seq: Real, L: Real, m: Degree, b: Real, s: Real, h: Real,
    b_theta: Real, b_g: Real, b_omega: Real, b_a: Real,
):  # fmt: skip
    """Each strategy of the catalogue on one axis costs what the paper's tuple for it costs: the same peak, host memory and traffic."""
    names = [(costs(name), costs(text)) for name, text in TUPLES.items()]
    keys = ("peak", "model_states", "host")
    return [ours.memory(key) == theirs.memory(key) for ours, theirs in names for key in keys] + [a.sent == b.sent for a, b in names]


strategies_are_the_papers_tuples.control(
    "the tuples of stages 1 and 2 say the same",
    lambda: costs("zero1").memory("peak") == costs("(R, S, S, R)").memory("peak"),
    refuted_at={"N": 2},
)

# Communication over other axes.

#: What tensor parallelism puts between two all-reduces: attention, and what follows it.
PARALLEL_REGIONS = 2


def over_tensors(activations):
    """Bytes a layer over an axis that splits the hidden dimension, by the mode of the activations outside the parallel regions."""
    size = symbol("b") * symbol("s") * symbol("h") * symbol("b_a")
    moves = {"R": ("all_reduce",), "S": ("all_gather", "reduce_scatter")}[activations]  # into and out of a region
    again = ring("all_gather", "N", size) if activations == "S" else 0  # what backward reads was kept in parts
    return PARALLEL_REGIONS * (2 * sum(ring(move, "N", size) for move in moves) + again)


@theorem(expect=Proved(), cite=("mehta2026placement", "shoeybi2019megatron", "korthikanti2022activations"))
def traffic_of_tensor_parallelism_follows_from_activations(
    L: Real, N: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """Over an axis that splits the hidden dimension, what is sent follows from how activations lie outside the parallel regions. Copies
    are all-reduced once a region and direction. Parts are gathered into it and scattered out of it, and gathered once more for backward."""
    return [costs(f"(S, S, S, {mode}, tp)").over("tp") == symbol("L") * over_tensors(mode) for mode in ("R", "S")]


traffic_of_tensor_parallelism_follows_from_activations.control(
    "parts are free: a gather and a scatter are an all-reduce",
    lambda: costs("(S, S, S, S, tp)").over("tp") == costs("(S, S, S, R, tp)").over("tp"),
    refuted_at={"N": 2, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 1},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def traffic_of_axes_of_samples_is_the_same_whatever_else_is_split(P: Real, N_dp: Degree, N_tp: Degree, b_theta: Real, b_g: Real):
    """Beside tensor parallelism, a placement sends over its axis of samples what it sends alone, of one device's part of the matrices.

    For all placements with every state on the device. Norms are taken to have no parameters.
    """
    return [costs(f"{named(*modes)} * (S, S, S, R, tp)").over("dp") == of(*modes).sent.where(N=N_dp, P=P / N_tp) for modes in on_devices()]


traffic_of_axes_of_samples_is_the_same_whatever_else_is_split.control(
    "it is what it sends alone, of the whole model",
    lambda: costs("(R, S, S, R) * (S, S, S, R, tp)").over("dp") == of("R", "S", "S").sent.where(N=symbol("N_dp")),
    refuted_at={"N_dp": 2, "N_tp": 2},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "liu2023ring"))
def traffic_of_context_parallelism_follows_from_model_states(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Over an axis that splits the tokens, model states send what they send over an axis that splits the batch, in all accepted placements
    with every state on the device. What attention exchanges is the blocks' own, and comes on top of it."""
    return [costs(f"{named(*modes, axis='cp')} * cp").over("cp") == of(*modes).sent for modes in on_devices()]


traffic_of_context_parallelism_follows_from_model_states.control(
    "parameters are copied over tokens, and nothing is gathered",
    lambda: costs("(S*, S, S, R, cp) * cp").over("cp") == costs("cp").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 1, "b_g": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "narayanan2021megatron"))
def traffic_of_a_pipeline_follows_from_activations(
    N: Degree, m: Real, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """Over an axis that splits the layers, every state lies in parts, and what is sent are activations and their gradients, at each border
    of stages and of each micro-batch: 2 (N - 1) messages of N devices together. Widths of model states do not come in."""
    return N * costs("(S, S, S, S, pp) * accumulate").over("pp") == 2 * (N - 1) * m * b * s * h * b_a


traffic_of_a_pipeline_follows_from_activations.control(
    "the last stage sends to the first",
    lambda m, b, s, h, b_a: costs("(S, S, S, S, pp) * accumulate").over("pp") == 2 * m * b * s * h * b_a,
    refuted_at={"N": 2, "m": 1, "b": 1, "s": 1, "h": 1, "b_a": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "lepikhin2021gshard"))
def traffic_of_expert_parallelism_follows_from_each_group(P: Real, P_expert: Real, N: Degree, b_theta: Real, b_g: Real):
    """Over the axis of experts, which lie there in parts for good, no expert's state is sent. All else sends what its own placement
    sends, in all accepted placements that keep parameters whole and states on the device."""
    return [
        costs(f"{named(*modes, axis='ep')} * ep").over("ep") == of(*modes).sent.where(P=P - P_expert)
        for modes in on_devices()
        if modes[0] == "R"
    ]


traffic_of_expert_parallelism_follows_from_each_group.control(
    "experts' gradients are summed, too",
    lambda: costs("ep").over("ep") == of("R", "R", "R").sent,
    refuted_at={"N": 2, "P": 2, "P_expert": 1, "b_g": 1},
)

# What a placement does not say.


@theorem(
    expect=Refuted(
        witness={"L": 1, "N": 2, "b": 1, "s": 1, "h": 1, "b_a": 1},
        because="a forward that is run again is exchanged again, and no mode says whether it is",
    ),
    cite=("mehta2026placement", "korthikanti2022activations"),
)
def traffic_of_tensor_parallelism_follows_from_placement_alone(
    L: Positive, N: Degree, b: Positive["sequence"], s: Positive["token / sequence"], h: Positive["element / token"], b_a: Positive
):
    """Two strategies that place all states alike over an axis of the hidden dimension send the same over it."""
    return costs("tp").over("tp") == costs("tp * checkpoint").over("tp")


traffic_of_tensor_parallelism_follows_from_placement_alone.control(
    "the difference is an all-reduce for each region of each layer",
    lambda L, b, s, h, b_a: (
        costs("tp * checkpoint").over("tp") - costs("tp").over("tp")
        == PARALLEL_REGIONS * ring("all_reduce", "N", (L * b * s * h * b_a).expr)
    ),
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"N": 2, "m": 1, "b": 1, "s": 1, "h": 1, "b_a": 1},
        because="with two runs of layers on each device there are more borders, and no mode says how many runs there are",
    ),
    cite=("mehta2026placement", "narayanan2021megatron"),
)
def traffic_of_a_pipeline_follows_from_placement_alone(
    N: Degree, m: Degree, b: Positive["sequence"], s: Positive["token / sequence"], h: Positive["element / token"], b_a: Positive
):
    """Two pipelines that place all states alike send the same: each device has one N-th of the layers in both."""
    return costs("pp").over("pp") == costs("pp(schedule=interleaved, chunks=2)").over("pp")


traffic_of_a_pipeline_follows_from_placement_alone.control(
    "on two devices and more there are 2N - 1 borders for N - 1",
    lambda N: holds(
        (2 * N - 1) * costs("pp").over("pp") == (N - 1) * costs("pp(schedule=interleaved, chunks=2)").over("pp"), given=[N >= 2]
    ),
    proved=True,
)

# The least traffic.

#: What a device receives for its k-th use of all parameters, over or under what is missing for it.
surplus = data("surplus")


@recursive(on="k", reals=("missing",))
def received(k, missing):
    """Parameters that a device has received for k uses: for each what is missing, at least."""
    return 0, received(k - 1, missing) + maximum(missing, missing + surplus(k))


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def a_device_receives_what_it_does_not_hold_for_each_use(k: Integer, P: Real, held: Real, N: Degree):
    """A device that holds at most one N-th of P parameters, uses all of them k times, and keeps none of the others from use to use,
    receives at least k P (N - 1)/N, in whatever way.

    The counting argument: what a device uses it holds, or has received for this use. By induction over the uses.
    """
    return by_induction(received(k, P - held) >= k * (P - P / N), on=k, given=[N * held <= P])


a_device_receives_what_it_does_not_hold_for_each_use.control(
    "all parameters for each use",
    lambda k, P, held: received(k, P - held) >= k * P,
    refuted_at={"k": 1, "P": 1, "held": 1, "N": 1},
)


def least(uses, held):
    """Bytes that a step has to receive for ``uses`` of all parameters, of which a device holds ``held`` bytes, and for its part of the
    gradients' sum."""
    theta, g = (symbol("P") * symbol(b) for b in ("b_theta", "b_g"))
    return uses * (theta - held) + ring("reduce_scatter", "N", g)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def no_placement_sends_less_than_its_memory_demands(P: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative):
    """In all accepted placements with parameters on the device, a step sends at least what two uses of the parameters demand of a device
    that holds no more than this step does, and one part of the gradients' sum.

    Each device sends as much as it receives, since all collectives are rings. What is held is derived, too.
    """
    return [of(*modes).sent >= least(2, of(*modes).memory("parameters")) for modes in accepted() if modes[0] != "O"]


no_placement_sends_less_than_its_memory_demands.control(
    "stage 3 sends enough for three uses",
    lambda: of("S*", "S", "S").sent >= least(3, of("S*", "S", "S").memory("parameters")),
    refuted_at={"P": 1, "N": 2, "b_theta": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def stage_3_lies_on_the_bound(P: Real, N: Degree, m: Real, b_theta: Real, b_g: Real):
    """ZeRO stage 3 sends exactly what its memory demands for two uses a micro-batch, however many there are, and FSDP that keeps parameters
    after forward exactly what one use demands: for given memory of parameters no step that drops or keeps them sends less."""
    held = of("S*", "S", "S").memory("parameters")
    return [
        costs("zero3").sent == least(2, held),
        costs("zero3 * accumulate").sent == symbol("m") * least(2, held),
        costs("fsdp(reshard_after_forward=false)").sent == least(1, held),
        costs("zero3(prefetch=true)").sent == least(2, held),
        costs("zero3(unit=model)").sent == least(2, held),
    ]


stage_3_lies_on_the_bound.control(
    "so does stage 2, which holds all parameters",
    lambda: costs("zero2").sent == least(2, of("R", "S", "S").memory("parameters")),
    refuted_at={"N": 2, "P": 1, "b_theta": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def lowering_reaches_the_least_of_each_placement(P: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative):
    """Of all ways in which the catalogue realises the placements of stages 1 and 2, the one that a placement is lowered to sends least."""
    ways = ("reduce=all_reduce", "back=broadcast", "reduce=all_reduce, back=broadcast")
    tuples = {"zero1": of("R", "S", "R"), "zero2": of("R", "S", "S")}
    return [least_of.sent <= costs(f"{name}({way})").sent for name, least_of in tuples.items() for way in ways]


lowering_reaches_the_least_of_each_placement.control(
    "also of stage 3, whose parameters may be kept",
    lambda: of("S*", "S", "S").sent <= costs("fsdp(reshard_after_forward=false)").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 1},
)

# The front of memory and traffic.


STAGES = {1: ("R", "S", "R"), 2: ("R", "S", "S"), 3: ("S*", "S", "S")}


def dominated(pairs, suffix=""):
    """That the first placement of each pair sends no less than the second, and holds no less."""
    for modes, better in pairs:
        ours, theirs = (costs(named(*m) + suffix) for m in (modes, better))
        yield from (ours.sent >= theirs.sent, ours.memory("model_states") >= theirs.memory("model_states"))


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def every_placement_on_devices_is_dominated_by_stage_2_or_3(
    P: NonNegative, N: Degree, b_theta: NonNegative, b_g: Real, b_omega: NonNegative
):
    """With gradients as wide as parameters, and one micro-batch, each accepted placement with every state on the device holds no less model
    states, and sends no less, than ZeRO stage 2 if it copies parameters, and than stage 3 if it gathers them."""
    better = {modes: STAGES[3 if modes[0] == "S*" else 2] for modes in on_devices()}
    return holds(dominated((modes, stage) for modes, stage in better.items() if modes != stage), given=[b_theta == b_g])


every_placement_on_devices_is_dominated_by_stage_2_or_3.control(
    "whatever the widths",
    lambda: of("R", "R", "R").sent >= of("R", "S", "S").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 2, "b_g": 1, "b_omega": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "ren2021offload", "rajbhandari2021infinity"))
def every_placement_is_dominated_by_an_offload(P: NonNegative, N: Degree, b_theta: NonNegative, b_g: Real, b_omega: NonNegative):
    """With gradients as wide as parameters, and one micro-batch, each of the accepted placements holds no less model states on the device,
    and sends no less over the network, than ZeRO-Offload if it copies parameters, and than ZeRO-Infinity if it does not. The host link is
    free."""
    better = {modes: ("R" if modes[0] == "R" else "O", "O", "O") for modes in accepted()}
    return holds(dominated((modes, best) for modes, best in better.items() if modes != best), given=[b_theta == b_g])


every_placement_is_dominated_by_an_offload.control(
    "ZeRO-Offload dominates stage 3",
    lambda: holds(dominated([(STAGES[3], ("R", "O", "O"))])),
    refuted_at={"P": 1, "N": 8, "b_theta": 1, "b_g": 1, "b_omega": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def stages_2_and_3_are_the_front(P: Positive, N: Integer, b_theta: Positive, b_g: Real, b_omega: Real):
    """On two devices and more, stage 3 holds less than stage 2, and sends more: neither dominates the other, whatever the widths."""
    two, three = of("R", "S", "S"), of("S*", "S", "S")
    return holds(three.memory("model_states") < two.memory("model_states"), two.sent < three.sent, given=[N >= 2])


stages_2_and_3_are_the_front.control("stage 1 is on it, too", lambda: of("R", "S", "R").sent < of("R", "S", "S").sent, refuted_at={"N": 2})


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def stage_1_is_on_the_front_of_several_micro_batches(P: Positive, N: Integer, m: Integer, b_theta: Positive, b_g: Positive, b_omega: Real):
    """With two micro-batches and more, on two devices and more, the stages are ordered both ways: each holds less than the one before it,
    and sends more. So with accumulation all three are on the front."""
    stages = [costs("(R, S, R, R) * accumulate"), costs("(R, S, S, R) * accumulate"), costs("(S*, S, S, R) * accumulate")]
    return holds(
        [b.memory("model_states") < a.memory("model_states") for a, b in itertools.pairwise(stages)],
        [a.sent < b.sent for a, b in itertools.pairwise(stages)],
        given=[N >= 2, m >= 2],
    )


stage_1_is_on_the_front_of_several_micro_batches.control(
    "from one micro-batch on",
    lambda N, m: holds(costs("(R, S, R, R) * accumulate").sent < costs("(R, S, S, R) * accumulate").sent, given=[N >= 2, m >= 1]),
    refuted_at={"N": 2, "m": 1},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def no_other_placement_is_on_the_front_of_several_micro_batches(
    P: NonNegative, N: Degree, m: Degree, b_theta: NonNegative, b_g: Real, b_omega: NonNegative
):
    """With gradients as wide as parameters, each other accepted placement with every state on the device holds no less, and sends no less,
    than one of the three stages, however many micro-batches there are.

    Data parallelism is dominated by stage 1. What shards parameters and gradients beside a replicated optimizer is dominated by stage 3,
    and all else by stage 2.
    """
    better = {("R", "R", "R"): STAGES[1], ("S*", "R", "S"): STAGES[3]}
    others = [modes for modes in on_devices() if modes not in STAGES.values()]
    return holds(dominated(((modes, better.get(modes, STAGES[2])) for modes in others), " * accumulate"), given=[b_theta == b_g])


no_other_placement_is_on_the_front_of_several_micro_batches.control(
    "what shards parameters and gradients beside a replicated optimizer is dominated by stage 2, too",
    lambda: holds(dominated([(("S*", "R", "S"), STAGES[2])], " * accumulate")),
    refuted_at={"P": 1, "N": 2, "m": 1, "b_theta": 1, "b_g": 1, "b_omega": 0},
)
