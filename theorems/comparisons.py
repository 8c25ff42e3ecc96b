"""What `placeproof compare` says of strategies at one world size, and what settings of numbers and of parts mean.

N devices run either strategy. A cost is what one device holds or sends; that of a strategy on several axes is written in N as well: its
open degree is N over the product of the others.
"""

from fractions import Fraction
from functools import cache

from placeproof.core.symbols import symbol
from placeproof.theory import (
    Degree,
    Integer,
    NonNegative,
    Positive,
    Proved,
    Real,
    byte,
    compared,
    compared_model,
    derived,
    holds,
    maximum,
    numbers,
    refused,
    theorem,
    units,
)

STATES, PEAK, SENT = "memory.model_states", "memory.peak", "traffic.sent_per_device"
UNITS = {"b_theta": "byte / parameter", "b_g": "byte / parameter", "b_omega": "byte / parameter", "b_a": "byte / element"}
#: Bytes of a parameter, its gradient and its optimizer state, and of activations, with which ratios are taken: so they are defined.
MIXED = {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}


@cache
def pair(first, second, *settings):
    """Two strategies side by side."""
    return compared(first, second, *settings)


def alone(name, N, N_shard):
    """What a strategy costs alone, of N devices."""
    return derived(name), {"N_rep": N / N_shard} if name == "hsdp" else {"N": N}


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp", "ren2021offload"))
def costs_that_are_compared_are_derived(
    P: Real, N: Degree, N_shard: Degree, U: Real, A: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """Each cost that is compared is what is derived of the strategy alone, at as many devices."""
    goals = []
    for names in (("ddp", "zero1"), ("zero3", "hsdp"), ("zero2", "zero_offload")):
        for i, (one, at) in enumerate(alone(name, N, N_shard) for name in names):
            goals += [pair(*names).cost(STATES, i) == one.memory().where(**at), pair(*names).cost(SENT, i) == one.sent.where(**at)]
            goals += [pair(*names).cost(PEAK, i) == one.memory("peak").where(**at)]
    return holds(goals, [pair(*names).compares == number for *names, number in (("ddp", "zero1", 3), ("zero2", "zero_offload", 5))])


costs_that_are_compared_are_derived.control(
    "of so many in each shard group",
    lambda N: pair("zero3", "hsdp").cost(STATES, 1) == derived("hsdp").memory().where(N_shard=N),
    refuted_at={"P": 1, "N": 2, "N_shard": 1, "U": 0, "A": 0, "b_theta": 1, "b_g": 1, "b_omega": 1, "b_a": 1},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp", "ren2021offload"))
def ratios_times_the_first_are_the_second(N: Degree, N_shard: Degree):
    """The ratio times the first strategy's cost is the second's, of model states and of peaks, with units of a quarter of the parameters
    and twice as many activations as these."""
    goals = []
    for first, second in (("ddp", "zero1"), ("zero1", "zero3"), ("zero3", "hsdp"), ("zero2", "zero_offload")):
        both, values = pair(first, second), {**MIXED, "P": 8, "U": 2, "A": 16}
        for key in (STATES, PEAK):
            goals += [both.ratio(key).where(**values) * both.cost(key).where(**values) == both.cost(key, 1).where(**values)]
    return holds(goals)


ratios_times_the_first_are_the_second.control(
    "of the first's over the second's",
    lambda: (
        pair("ddp", "zero1").ratio(STATES).where(**MIXED) * pair("ddp", "zero1").cost(STATES, 1).where(**MIXED, P=8)
        == pair("ddp", "zero1").cost(STATES).where(**MIXED, P=8)
    ),
    refuted_at={"N": 2, "N_shard": 1},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "zhao2023fsdp"))
def costs_of_several_axes_are_written_in_the_world_size(P: Real, N: Degree, N_tp: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """With tensor parallelism of a degree that is said, N devices have N over it replicas or shards; with one that is open, and with shard
    groups, as many as are left. Only an open degree is written so, the first one that splits samples."""
    goals = []
    for text, left in (("zero1 * tp(4)", {"N_dp": N / 4}), ("zero1 * tp", {"N_dp": N / N_tp}), ("zero1(8) * tp", {"N_tp": N / 8})):
        goals += [pair(text, "ddp").cost(STATES) == derived(text).memory().where(**left)]
    goals += [pair("hsdp(rep=2)", "ddp").cost(STATES) == derived("hsdp").memory().where(N_shard=N / 2)]
    return holds(goals, pair("zero3(8)", "ddp").cost(STATES) == derived("zero3").memory().where(N=8))


costs_of_several_axes_are_written_in_the_world_size.control(
    "each degree is N",
    lambda N: pair("zero1 * tp(4)", "ddp").cost(STATES) == derived("zero1 * tp(4)").memory().where(N_dp=N),
    refuted_at={"P": 1, "N": 4, "N_tp": 1, "b_theta": 1, "b_g": 1, "b_omega": 1},
)


def nears(amount, limit, by=0):
    """That what an amount is off its limit falls as 1 / (N - by) does."""
    return (symbol("N") - by) * (amount - limit) == (amount - limit).where(N=1 + by)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "wang2023zeropp"))
def ratios_tend_to_their_limits(P: Real, N: Integer, b_theta: Real, b_g: Real, b_omega: Real, N_node: Degree, N_shard: Degree):
    """What a ratio, or a cost, is off its limit falls as 1/N does, or, of ratios of traffic, as 1/(N - 1) does: of model states, of peaks,
    and of bytes sent."""
    goals = []
    for first, second, key in (("ddp", "zero1", STATES), ("ddp", "zero2", PEAK), ("ddp", "zero3", PEAK), ("ddp", "zeropp", PEAK)):
        values = {**MIXED, "P": 8, "U": 2, "A": 16}
        goals += [nears(pair(first, second).ratio(key).where(**values), pair(first, second).limit(key).where(**values))]
    for second, values in (("hsdp", MIXED), ("zeropp", {**MIXED, "b_qw": 1, "b_qg": 1})):
        goals += [nears(pair("ddp", second).ratio(SENT).where(**values), pair("ddp", second).limit(SENT).where(**values), 1)]
    for name in ("zero1", "zero2", "zero3"):
        goals += [nears(derived(name).memory(), derived(name).limit(STATES)), nears(derived(name).sent, derived(name).limit(SENT))]
    return holds(goals, nears(derived("ddp").sent, derived("ddp").limit(SENT)), given=[N >= 2])


ratios_tend_to_their_limits.control(
    "of stage 1 to that of stage 2",
    lambda: nears(pair("ddp", "zero1").ratio(STATES).where(**MIXED), pair("ddp", "zero2").limit(STATES).where(**MIXED)),
    refuted_at={"P": 1, "N": 2, "b_theta": 1, "b_g": 1, "b_omega": 1, "N_node": 1, "N_shard": 1},
)


#: Of two strategies, a cost that crosses, in which degree and where, and which of them costs less beyond.
CROSSINGS = (
    ("zero3", "zero_offload", STATES, "N", "(b_g + b_omega + b_theta)/b_theta", 0),
    ("zero3", "hsdp", STATES, "N", "N_shard", 0),
    ("ddp", "zero3", PEAK, "N", "P*(b_g + b_omega + b_theta)/(P*b_g + P*b_omega + P*b_theta - U*b_theta)", 1),
    ("zero1", "zero3", PEAK, "N", "P*(b_g + b_theta)/(P*b_g + P*b_theta - U*b_theta)", 1),
    ("hsdp", "zero_offload", STATES, "N_shard", "(b_g + b_omega + b_theta)/b_theta", 0),
)
NEVER = (("ddp", "zero1", STATES), ("zero1", "zero2", PEAK), ("zero2", "zero3", STATES), ("ddp", "zero_offload", PEAK))


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "ren2021offload", "zhao2023fsdp"))
def at_a_crossing_both_cost_as_much(
    P: Positive, N: Degree, N_shard: Degree, U: Real, A: Real, b_theta: Positive, b_g: Positive, b_omega: NonNegative, b_a: Real
):
    """At the number of devices that is told as a crossing, both strategies cost as much, and beyond it the one that is told costs less: of
    model states, and of peaks, if no unit is more than half of the parameters. Where one is told never to cost more, it does not. Costs
    that are equal are told to be so."""
    goals = []
    for first, second, key, name, where, less in CROSSINGS:
        both = pair(first, second)
        costs = [both.cost(key, i) for i in (0, 1)]
        goals += [both.says(key, f"beyond {name} = {where} `{(first, second)[less]}` costs less") == 1]
        for at in both.crossings(key):
            goals += [costs[0].where(**{name: at}) == costs[1].where(**{name: at})]
            beyond = [cost.where(**{name: at + 1}).where(**(MIXED if key == PEAK else {})) for cost in costs]
            goals += [beyond[less] < beyond[1 - less]]
    for more, less, key in NEVER:
        goals += [pair(more, less).cost(key, 1) <= pair(more, less).cost(key)]
        goals += [pair(*names).says(key, f"`{less}` never costs more than `{more}`") == 1 for names in ((more, less), (less, more))]
    equal = [pair("zero2", "zero1").says(SENT, "equal for all values") == 1]
    return holds(goals, equal, pair("zero1", "zero2").cost(SENT) == pair("zero1", "zero2").cost(SENT, 1), given=[2 * U <= P])


at_a_crossing_both_cost_as_much.control(
    "at a device fewer",
    lambda N: pair("zero3", "hsdp").cost(STATES).where(N=N + 1) == pair("zero3", "hsdp").cost(STATES, 1).where(N=N),
    refuted_at={"P": 1, "N": 2, "N_shard": 2, "U": 0, "A": 0, "b_theta": 1, "b_g": 1, "b_omega": 1, "b_a": 1},
)


@theorem(expect=Proved(), cite=("zhao2023fsdp", "wang2023zeropp", "ren2021offload"))
def numbers_decide_crossings_that_symbols_leave_open(N_node: Degree):
    """With 2 bytes a parameter and a gradient, and 12 of optimizer state, ZeRO-Offload holds as much as stage 3 on 8 devices, and with
    gradients of 4 bytes on 9; ZeRO++, which sends a byte and half of one, sends as much as data parallelism on 5 N_node / (N_node + 4).
    What is set is put in, but no number of devices is."""
    (states,) = pair("zero3", "zero_offload").crossings(STATES, numeric=True)
    (sent,) = pair("ddp", "zeropp").crossings(SENT, numeric=True)
    wide = pair("zero3", "zero_offload", "b_g=4", "N=64", "P=7e9")
    (more,) = wide.crossings(STATES, numeric=True)
    (unit,) = pair("ddp", "zero3", "P=100", "U=20").crossings(PEAK, numeric=True)
    (again,) = pair("ddp", "zero3", "P=100", "U=20", "N=64").crossings(PEAK, numeric=True)
    return holds(states == 8, sent == 5 * N_node / (N_node + 4), more == 9, unit == Fraction(800, 780), again == Fraction(800, 780))


numbers_decide_crossings_that_symbols_leave_open.control(
    "with gradients of 4 bytes, too",
    lambda: pair("zero3", "zero_offload", "b_g=4").crossings(STATES, numeric=True)[0] == 8,
    refuted_at={"N_node": 1},
)


# A model under several strategies.

SIZED = {"b": 1, "b_a": 2, "b_theta": 2, "b_g": 2, "b_omega": 12}


@theorem(expect=Proved(), cite=("narayanan2021megatron", "rajbhandari2020zero"))
def figures_of_a_model_are_those_of_its_fullest_stage():
    """A model's figures under a strategy are what is derived of a device of the stage with the largest peak; sequences and operations are
    of a whole step: b for each micro-batch and replica, and m times those of a micro-batch. The mesh has as many devices as its degrees
    say, and a ratio is a figure over that of the first strategy. A figure that one strategy lacks is 0 there."""
    names = ("fsdp(2) * tp(2)", "zero1(2) * pp(4, schedule=gpipe, microbatches=8)")
    compared, goals = compared_model("gpt3-125m", *names, **SIZED), []
    for i, (name, stages, count) in enumerate(zip(names, ((None,), tuple(f"stage {s}" for s in range(4))), (1, 8), strict=True)):
        costs, step = derived(name, model="gpt3-125m"), SIZED
        peaks = [costs.memory("peak", stage=stage).where(**step) for stage in stages]
        fullest = stages[-1]
        goals += [compared.figure("peak", i) == maximum(*peaks) if len(peaks) > 1 else compared.figure("peak", i) == peaks[0]]
        goals += [compared.figure(key, i) == costs.memory(key, stage=fullest).where(**step) for key in ("model_states", "activations")]
        goals += [compared.figure("parameters", i) == costs.parameters(stage=fullest)]
        goals += [compared.figure("flops", i) == count * costs.work("total", stage=fullest).where(**step)]
        goals += [compared.figure("traffic.dp", i) == costs.over("dp", stage=fullest).where(**step)]
    goals += [compared.figure("devices", i) == number for i, number in enumerate((4, 8))]
    goals += [compared.figure("sequences", i) == number for i, number in enumerate((2, 16))]
    goals += [compared.ratio(key) * compared.figure(key) == compared.figure(key, 1) for key in ("peak", "flops", "sequences")]
    tokens = compared_model("gpt3-125m", *names, cluster="dgx-a100-80", eta=1, **SIZED)
    for i, (number, devices) in enumerate(((2, 4), (16, 8))):
        seconds = derived(names[i], model="gpt3-125m").seconds("dgx-a100-80", eta=1, **SIZED)
        goals += [tokens.figure("tokens", i) * seconds * devices == number * 2048]
    return holds(goals, compared.figure("host") == 0, compared.figure("traffic.pp") == 0 * byte, compared.figures == 10)


figures_of_a_model_are_those_of_its_fullest_stage.control(
    "of the first stage",
    lambda: (
        compared_model("gpt3-125m", "zero1(2) * pp(4, schedule=gpipe, microbatches=8)", **SIZED).figure("peak")
        == derived("zero1(2) * pp(4, schedule=gpipe, microbatches=8)", model="gpt3-125m").memory("peak", stage="stage 1").where(**SIZED)
    ),
    refuted_at={},
)


# What settings mean.


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "rajbhandari2021infinity", "zhao2023fsdp", "goyal2017large"))
def precisions_are_as_wide_as_printed():
    """Each named precision has the bytes that its source prints for a parameter, a gradient, optimizer state, and an activation: mixed
    training with Adam 2, 2 and 12, 16 in all; without a name it is this one. What is set stands in place of it."""
    widths = {
        None: (2, 2, 12, 2), "mixed-adam": (2, 2, 12, 2), "megatron-bf16": (2, 4, 12, 2), "megatron-fp16": (2, 2, 16, 2),
        "fp16-fp32grad": (2, 6, 12, 2), "bf16-bf16grad": (2, 4, 12, 2), "fp32-adam": (4, 4, 8, 4), "fp32-twice": (4, 4, 12, 4),
        "fp16-fp32sums": (2, 4, 12, 2), "bf16-fp32copies": (2, 2, 16, 2), "bf16-adam": (2, 2, 4, 2), "sgd-momentum": (4, 4, 4, 4),
        "sgd": (4, 4, 0, 4),
    }  # fmt: skip
    goals, names = [], ("b_theta", "b_g", "b_omega", "b_a")
    for precision, each in widths.items():
        said = numbers(precision=precision)
        goals += [said.value(name) == width * units(UNITS[name]) for name, width in zip(names, each, strict=True)]
        goals += [said.asked == int(precision is not None)]
        goals += [numbers("b_g=8", precision=precision).value("b_g") == 8 * units(UNITS["b_g"])]
    return holds(goals, numbers("P=1").asked == 1, numbers(precision="open").asked == 0)


precisions_are_as_wide_as_printed.control(
    "gradients are as wide as parameters",
    lambda: numbers(precision="megatron-bf16").value("b_g") == numbers(precision="megatron-bf16").value("b_theta"),
    refuted_at={},
)


#: Settings, and the numbers that they are.
WRITTEN = (
    ("P=7e9", "P", 7 * 10**9), ("P=70B", "P", 70 * 10**9), ("P=70b", "P", 70 * 10**9), ("P=125M", "P", 125 * 10**6),
    ("P=64K", "P", 64_000), ("A=2T", "A", 2 * 10**12), ("P=1_000", "P", 1000), ("P=.5e3", "P", 500), ("P=3/2", "P", Fraction(3, 2)),
    ("b_omega=0", "b_omega", 0), ("b_qg=1/2", "b_qg", Fraction(1, 2)), ("b_g=1.25", "b_g", Fraction(5, 4)), (" N = 64 ", "N", 64),
    ("N_dp=1", "N_dp", 1), ("N=1000000000", "N", 10**9), ("P=+5e-1", "P", Fraction(1, 2)), ("c=5/4", "c", Fraction(5, 4)),
)  # fmt: skip
#: Settings that are none, by the code of their error.
UNREADABLE = {
    "PP202": (
        "P",
        "P=",
        "=7",
        "P=seven",
        "P=7Q",
        "N=64K",
        "b_g=2B",
        "P=1/0",
        "P=1e101",
        "P=-1",
        "P=0",
        "N=0",
        "N=3/2",
        "N=1000000001",
        "c=0",
        "P=inf",
    ),
    "PP201": ("Q=1", "N_ep=2"),
    "PP205": ("P_norm=2, P=1", "N_tp=4"),
}


def usual(name):
    """The units of a symbol, as a text."""
    known = {"P": "parameter", "A": "element", "b_qg": "byte / parameter"}
    return UNITS.get(name, known.get(name, "byte / byte"))


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def settings_are_the_numbers_that_they_are_written_as():
    """A setting is the number that it is written as: a decimal number, a power of ten, a quotient, and of parameters and elements with K,
    M, B or T. What is not set keeps what it has."""
    goals = [numbers(text).value(name) == number * units(usual(name)) for text, name, number in WRITTEN]
    both = numbers("P=5", "b_g=4", precision="fp32-adam")
    return holds(goals, both.value("b_g") == 4 * units("byte / parameter"), both.value("b_omega") == 8 * units("byte / parameter"))


settings_are_the_numbers_that_they_are_written_as.control(
    "a billion is a gigabyte", lambda: numbers("P=1B").value("P") == 2**30 * units("parameter"), refuted_at={}
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def settings_that_are_none_are_refused():
    """Refused is what is no number, is outside of what its symbol may be, is no symbol, contradicts the strategy or another setting, and a
    symbol that is set twice; nothing else is."""
    degrees, goals = {"N_dp": None, "N_tp": 2, "N": None}, []

    def asked(text, **how):
        return lambda: numbers(*text.split(", "), degrees=degrees, **how)

    for code, texts in UNREADABLE.items():
        goals += [refused(code, *map(asked, texts)) == len(texts)]
        goals += [refused(code, *(asked(text) for text, *_ in WRITTEN)) == 0]
    goals += [refused("PP202", asked("P=1, P=1"), asked("P=1, N=1")) == 1]
    goals += [refused("PP205", asked("P_norm=1, P=1"), asked("N_tp=2"), asked("N_dp=7")) == 0]
    return holds(goals, refused("PP204", asked("P=1", precision="fp12-adam"), asked("P=1", precision="sgd")) == 1)


settings_that_are_none_are_refused.control(
    "a part that is as large as the whole", lambda: refused("PP205", lambda: numbers("P_norm=1", "P=1")) == 1, refuted_at={}
)

#: Parts of devices, and what they are written as.
PARTS = (
    ("dp=0.4,0.3,0.3", (Fraction(2, 5), Fraction(3, 10), Fraction(3, 10))),
    ("dp=4:3:3", (Fraction(2, 5), Fraction(3, 10), Fraction(3, 10))),
    ("dp=1/3x3", (Fraction(1, 3),) * 3),
    ("dp=0.25x2,1/2", (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))),
    ("dp=0,1", (0, 1)),
    ("dp=1:1x2:6", (Fraction(1, 9), Fraction(1, 9), Fraction(1, 9), Fraction(6, 9))),
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def parts_of_devices_are_read_as_they_are_written(P: Real, b_theta: Real, b_g: Real, b_omega: Real):
    """Fractions that add up to one, or proportions, are the devices' parts in order, each with that of the device that follows round the
    ring; an open degree is their number. So many devices hold each its part of what lies in parts, and send what the closed forms say of
    their parts."""
    goals = []
    for text, parts in PARTS:
        zero3, zero1 = derived("zero3", uneven=[text]), derived("zero1", uneven=[text])
        for values, own, after in zip(zero3.parts, parts, (*parts[1:], parts[0]), strict=True):
            goals += [zero3.memory().where(**values) == P * (b_theta + b_g + b_omega) * own]
            goals += [zero3.sent.where(**values) == P * (2 * b_theta * (1 - after) + b_g * (1 - own))]
            goals += [zero1.memory().where(**values) == P * (b_theta + b_g + b_omega * own)]
    both = derived("zero1 * tp(2)", uneven=["dp=1:3"])
    goals += [sum(both.memory("optimizer").where(**values) for values in both.parts) == P * b_omega / 2]
    return holds(goals, derived("zero3").undivided == P * (b_theta + b_g + b_omega), derived("tp(4)").undivided == derived("ddp").undivided)


parts_of_devices_are_read_as_they_are_written.control(
    "the parts are equal",
    lambda P, b_omega: 3 * derived("zero1", uneven=["dp=4:3:3"]).memory("optimizer").where(f_dp=Fraction(2, 5)) == P * b_omega,
    refuted_at={"P": 1, "b_theta": 1, "b_g": 1, "b_omega": 1},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def parts_that_are_none_are_refused():
    """Parts are refused that are no numbers, negative, or add up to another number than one, of no axis or of one that is told twice; on an
    axis that splits the computation or has sub-groups, in another number than the strategy has devices, and where nothing lies in parts."""

    def told(strategy, *texts):
        return lambda: derived(strategy, uneven=list(texts))

    unread = ("dp=", "=1", "dp=0.5,0.4", "dp=0.5,0.6", "dp=-0.5,1.5", "dp=a,b", "dp=1/0", "dp=0:0", "dp=0.5x0,1", "dp=1x65537")
    wrong = (("tp", "tp=1:1"), ("pp", "pp=1:1"), ("ep", "ep=1:1"), ("ddp", "dp=1:1"), ("zeropp", "dp=1:1"))
    return holds(
        refused("PP202", *(told("zero1", text) for text in unread)) == len(unread),
        refused("any", *(told(name, text) for name in ("zero1", "zero2", "zero3", "fsdp", "zero1 * tp") for text, _ in PARTS)) == 0,
        refused("PP205", told("zero1", "dp=1:1", "dp=1:1"), told("zero1(3)", "dp=1:1"), told("zero1(2)", "dp=1:1")) == 2,
        refused("PP201", told("zero1", "tp=1:1"), told("zero1", "dp=1:1")) == 1,
        refused("PP104", *(told(*pair) for pair in wrong), told("zero2", "dp=1:1")) == len(wrong),
    )


parts_that_are_none_are_refused.control(
    "proportions that add up to something else", lambda: refused("PP202", lambda: derived("zero1", uneven=["dp=2:3"])) == 1, refuted_at={}
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def a_ratio_is_told_where_the_first_costs_something():
    """There is a ratio of every cost of which the first strategy has some, and none of what it has nothing of, such as host memory."""
    known = [lambda key=key: pair("ddp", "zero_offload").ratio(key) for key in (STATES, PEAK, SENT)]
    none = [lambda key=key: pair("ddp", "zero_offload").ratio(key) for key in ("memory.host", "traffic.host_link")]
    return holds(refused("any", *known) == 0, refused("any", *none) == len(none))


a_ratio_is_told_where_the_first_costs_something.control(
    "of host memory as well", lambda: refused("any", lambda: pair("ddp", "zero_offload").ratio("memory.host")) == 0, refuted_at={}
)
