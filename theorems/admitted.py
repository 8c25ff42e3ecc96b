"""Which placements admit a correct step, and what that step costs with several micro-batches, or on many axes at once.

A placement is a tuple of modes, of parameters, optimizer state, gradients and activations. On an axis of samples the product accepts
R, S* or O for parameters, R, S or O for optimizer state, and R, S, M or O for gradients: 36 placements. What it refuses is written down as
a step of one's own here; of parameters or optimizer state M there is none, since no device would hold them between steps. N is the number
of devices, m of micro-batches.
"""

from functools import cache
from itertools import product

from placeproof.collectives import COLLECTIVES
from placeproof.core.modes import MODES, Share
from placeproof.core.states import MODEL_STATES
from placeproof.core.symbols import symbol
from placeproof.theory import Degree, Proved, Real, Refuted, derived, edited, theorem, trains, without_call

ACCEPTED = list(product(("R", "S*", "O"), ("R", "S", "O"), ("R", "S", "M", "O")))
ON_DEVICES = [modes for modes in ACCEPTED if "O" not in modes]
#: Placements among which each mode of each state occurs, and any two modes of parameters and optimizer state that go together without O.
MIXED = [("R", "R", "S"), ("S*", "S", "R"), ("R", "S", "M"), ("S*", "R", "S")]
ON_HOSTS = [("S*", "O", "S"), ("O", "R", "O")]


def on_one(modes):
    """A placement on one axis, in m micro-batches."""
    return f"({', '.join(modes)}, R) * accumulate"


def side_by_side(*rows):
    """A placement on each of several axes."""
    return " * ".join(f"({', '.join(modes)}, R, d{i})" for i, modes in enumerate(rows, 1))


@cache
def costs(text):
    """What a strategy costs, derived once for all theorems."""
    return derived(text)


def left(rows, on_host=False):
    """Bytes of model states by the table of modes: of each state its bytes, times what its mode on each axis leaves of them."""
    total = 0
    for state, column in zip(MODEL_STATES, zip(*((p, o, g) for p, o, g in rows), strict=True), strict=True):
        modes = [MODES[mode] for mode in column]
        if any(mode.fetches for mode in modes) is not on_host:
            continue
        size = symbol("P") * symbol(state.width)
        for i, mode in enumerate(modes, 1):
            share = mode.host if mode.fetches else mode.device
            size = {Share.WHOLE: size, Share.PART: size / symbol(f"N_d{i}"), Share.NOTHING: 0}[share]
        total += size
    return total


def by_modes(modes):
    """Bytes that a device sends in m micro-batches, by what each mode asks for."""
    parameters, optimizer, gradients = (MODES[mode] for mode in modes)
    uses = 2 if parameters.gathers else 0  # in the forward and in the backward of each micro-batch
    back = 1 if optimizer.split and not parameters.split else 0  # every device gets the others' updated parts
    each = 1 if gradients.split else 0  # what lies in parts is reduced as it is produced
    once = (0 if gradients.split else 1) + (0 if optimizer.split else 1)  # or once; and gathered where each device updates all
    b_theta, b_g, m = symbol("b_theta"), symbol("b_g"), symbol("m")
    return COLLECTIVES["all_gather"].sent(symbol("N"), symbol("P") * (b_theta * (m * uses + back) + b_g * (m * each + once)))


STEP = """
mesh(dp)
splits(dp="batch")
place(parameters, dp="{}")
place(optimizer, dp="{}")
place(gradients, dp="{}")
x = data()
x, activations = forward(parameters, x)
gradients = {}(backward(parameters, activations, loss(x)), dp, op=mean)
"""
UNGATHERED = STEP.format("S", "S", "S", "reduce_scatter") + "parameters, optimizer = update(parameters, optimizer, gradients)\n"
GATHERED_STATE = (
    STEP.format("R", "S*", "R", "all_reduce")
    + "parameters, whole = update(parameters, all_gather(optimizer, dp), gradients)\noptimizer = part(whole, dp)\n"
)
GATHERED_GRADIENTS = (
    STEP.format("R", "R", "S*", "reduce_scatter") + "parameters, optimizer = update(parameters, optimizer, all_gather(gradients, dp))\n"
)

# What is accepted admits a correct step.


@theorem(expect=Proved(), cite="mehta2026placement", level=1)
def a_step_trains_of_placements_on_devices_side_by_side():
    """On four axes of samples, among which each mode of each state occurs that needs no host, the step that the product makes trains what
    one device trains, for all four numbers of devices.

    A test proves the step of each of the 36 placements alone.
    """
    return trains(side_by_side(*MIXED))


a_step_trains_of_placements_on_devices_side_by_side.control(
    "updated parts are not gathered", lambda: trains(without_call("(R, S, S, R)", "all_gather")), breaks="state consistency"
)


@theorem(expect=Proved(), cite=("mehta2026placement", "ren2021offload"), level=1)
def a_step_trains_of_placements_on_hosts_side_by_side():
    """So it does on two axes, on each of which other states lie on the host."""
    return trains(side_by_side(*ON_HOSTS))


a_step_trains_of_placements_on_hosts_side_by_side.control(
    "gradients come to the host as they are", lambda: trains(without_call("(R, O, O, R)", "reduce_scatter")), breaks="gradient integrity"
)

# What is refused: one part of it because no step would be right, the other because it costs more.


@theorem(
    expect=Refuted(breaks="state consistency", because="forward and backward compute with one device's part of the model"),
    cite="mehta2026placement",
)
def a_step_trains_of_parts_that_nothing_gathers():
    """Parameters may lie S on an axis of samples, where each device computes with what it holds."""
    return trains(UNGATHERED)


a_step_trains_of_parts_that_nothing_gathers.control("they are gathered for each use", lambda: trains("(S*, S, S, R)"), proved=True)


def with_copies(subject, axis):
    """The step of a strategy with all model states copied along an axis on which they lie in parts."""
    for _ in MODEL_STATES:
        subject = edited(subject, f'{axis}="S"', f'{axis}="R"')
    return subject


@theorem(
    expect=Refuted(breaks="gradient integrity", because="each device computes with the whole of each matrix, and the outputs are added up"),
    cite=("mehta2026placement", "shoeybi2019megatron"),
)
def a_step_trains_of_copies_where_computation_is_split():
    """Where an axis splits the hidden dimension, model states may lie R on it."""
    return trains(with_copies("tp", "tp"))


a_step_trains_of_copies_where_computation_is_split.control(
    "each device has the part that it computes with", lambda: trains("(S, S, S, R, tp)"), proved=True
)


@theorem(expect=Proved(), cite="mehta2026placement")
def a_step_trains_of_gathered_optimizer_state():
    """Optimizer state may lie S*: gathered for the update, and cut down afterwards. The product refuses it though it would be right."""
    return trains(GATHERED_STATE)


a_step_trains_of_gathered_optimizer_state.control(
    "the old part is kept",
    lambda: trains(edited(GATHERED_STATE, "optimizer = part(whole, dp)", "optimizer = copy(optimizer)")),
    breaks="step invariant",
)


@theorem(expect=Proved(), cite="mehta2026placement")
def a_step_trains_of_gathered_gradients():
    """Gradients may lie S*, which is what the product makes of S where every device updates all."""
    return trains(GATHERED_GRADIENTS)


a_step_trains_of_gathered_gradients.control(
    "the update reads the part",
    lambda: trains(edited(GATHERED_GRADIENTS, "all_gather(gradients, dp)", "gradients")),
    breaks="state consistency",
)


@theorem(expect=Proved(), cite="mehta2026placement")
def gathering_optimizer_state_holds_as_much_and_sends_more(P: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """Gathering optimizer state for the update sends P (b_omega + b_g - b_theta) bytes more through a ring than gathering updated
    parameters does, and a device holds as much.

    With Adam, b_omega is six times b_theta, so that the mode which is refused is never the better one there.
    """
    ours, theirs = derived(GATHERED_STATE), derived("(R, S, R, R)")
    more = COLLECTIVES["all_gather"].sent(N, P * (b_omega + b_g - b_theta))
    return [ours.sent - theirs.sent == more, ours.memory() == theirs.memory()]


gathering_optimizer_state_holds_as_much_and_sends_more.control(
    "it sends as much", lambda: derived(GATHERED_STATE).sent == derived("(R, S, R, R)").sent, refuted_at={"P": 1, "N": 2, "b_omega": 12}
)

# What the steps hold and send.


@theorem(expect=Proved(), cite="mehta2026placement", level=1)
def traffic_follows_from_every_placement_and_the_micro_batches(P: Real, N: Degree, m: Real, b_theta: Real, b_g: Real):
    """For each of the 36 placements, a step of m micro-batches sends two gathers of the parameters in each if these are gathered; one
    after the update if parts of what all devices hold were updated; a reduction of gradients, in each micro-batch if they lie in parts,
    else once; and a gather of gradients, once, if every device updates all.

    Gathered parameters are dropped after each use, and collectives are rings.
    """
    return [costs(on_one(modes)).sent == by_modes(modes) for modes in ACCEPTED]


traffic_follows_from_every_placement_and_the_micro_batches.control(
    "gradients in parts are gathered for no update",
    lambda: costs(on_one(("R", "R", "S"))).sent == by_modes(("R", "S", "S")),
    refuted_at={"P": 1, "N": 2, "m": 1, "b_g": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 2, "m": 1, "b_g": 2}, because="a replicated optimizer reads the whole gradient, wherever that is kept"
    ),
    cite="mehta2026placement",
)
def traffic_of_gradients_follows_from_their_own_mode(P: Real, N: Degree, m: Real, b_g: Real):
    """What gradients send follows from where they lie themselves: a reduce-scatter in each micro-batch if they lie in parts."""
    return costs(on_one(("R", "R", "S"))).sent == m * COLLECTIVES["reduce_scatter"].sent(N, P * b_g)


traffic_of_gradients_follows_from_their_own_mode.control(
    "and a gather once, as the optimizer's mode says",
    lambda P, N, m, b_g: costs(on_one(("R", "R", "S"))).sent == (m + 1) * COLLECTIVES["all_gather"].sent(N, P * b_g),
    proved=True,
)


@theorem(expect=Proved(), cite="mehta2026placement", level=1)
def divisors_multiply_of_eight_placements_side_by_side(
    P: Real, N_d2: Degree, N_d3: Degree, N_d4: Degree, N_d5: Degree, N_d6: Degree, N_d7: Degree, N_d8: Degree,
    b_theta: Real, b_g: Real, b_omega: Real,
):  # fmt: skip
    """On eight axes of samples, each with another of the placements that hold all states on devices all step, what is left of each state is
    the product of what its modes leave on the axes."""
    rows = [modes for modes in ON_DEVICES if "M" not in modes]
    return costs(side_by_side(*rows)).memory() == left(rows)


divisors_multiply_of_eight_placements_side_by_side.control(
    "the second axis divides what it copies, too",
    lambda: costs(side_by_side(("R", "R", "R"), ("R", "R", "S"))).memory() == left([("R", "R", "R"), ("R", "S", "S")]),
    refuted_at={"P": 1, "N_d2": 2, "b_omega": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N_d1": 2, "N_d2": 2, "b_g": 2},
        because="nothing reduces gradients on the host, so that they come there in the parts that the update reads",
    ),
    cite="mehta2026placement",
)
def divisors_multiply_on_hosts(P: Real, N_d1: Degree, N_d2: Degree, b_g: Real):
    """With gradients O on one axis and R on another, a device's share of the host is what these two modes leave."""
    return costs(side_by_side(("R", "R", "O"), ("R", "S", "R"))).memory("host") == left([("R", "R", "O"), ("R", "S", "R")], on_host=True)


divisors_multiply_on_hosts.control(
    "they lie in parts along an axis on which the optimizer state does",
    lambda: costs(side_by_side(("R", "R", "O"), ("R", "S", "R"))).memory("host") == left([("R", "R", "O"), ("R", "S", "S")], on_host=True),
    proved=True,
)
