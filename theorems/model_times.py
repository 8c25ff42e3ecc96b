"""How long exchanges take on clusters, and the steps of models: what levels of links, schedules and overlap make of bytes and operations.

All times are exact seconds in the product's model: a message of s bytes takes alpha + s beta, a sum moves three bytes of memory for each
byte, products of matrices run at eta of a device's peak, and the update reads and writes what it updates.
"""

from fractions import Fraction
from functools import cache

from placeproof.theory import Proved, algorithm, byte, chain, derived, exchange, holds, minimum, second, theorem, units

#: Of clusters, as their sources print them: devices that the inner links join, seconds a message and bytes a second within and across.
LINKS = {
    "dgx-v100-32": (16, "3.4e-6", 150 * 10**9, "14e-6", 6_250_000_000),
    "dgx-a100-80": (8, "3.4e-6", 300 * 10**9, "14e-6", 25 * 10**9),
    "vtrain-a100": (8, "3.4e-6", 300 * 10**9, "14e-6", 12_500_000_000),
    "dgx-h100": (8, "3.4e-6", 450 * 10**9, "14e-6", 50 * 10**9),
    "dgx-b200": (8, "3.4e-6", 900 * 10**9, "14e-6", 50 * 10**9),
    "h800": (8, "3.4e-6", 160 * 10**9, "14e-6", 50 * 10**9),
    "tpu-v5e": (256, "1e-6", 45 * 10**9, "10e-6", 3_125_000_000),
    "tpu-v5p": (8960, "1e-6", 90 * 10**9, "10e-6", 6_250_000_000),
    "cpu-xeon-8380": (1, "0", 1, "25e-6", 12_500_000_000),
}
#: Operations a second in 16 bits, or in 32 where these are missing, with bytes of a number; and bytes of memory a second.
DEVICES = {
    "dgx-v100-32": (125 * 10**12, 2, 900 * 10**9),
    "dgx-a100-80": (312 * 10**12, 2, 2039 * 10**9),
    "vtrain-a100": (312 * 10**12, 2, 2039 * 10**9),
    "dgx-h100": (989_400 * 10**9, 2, 3350 * 10**9),
    "dgx-b200": (2250 * 10**12, 2, 8 * 10**12),
    "h800": (989_400 * 10**9, 2, 3350 * 10**9),
    "tpu-v5e": (197 * 10**12, 2, 810 * 10**9),
    "tpu-v5p": (459 * 10**12, 2, 2800 * 10**9),
    "cpu-xeon-8380": (5888 * 10**9, 4, 204_800_000_000),
}
A100 = "dgx-a100-80"
NEAR, FAR = (Fraction(34, 10**7), Fraction(1, 300 * 10**9)), (Fraction(14, 10**6), Fraction(1, 25 * 10**9))
#: Seconds for each byte that an A100 adds.
SUM = Fraction(3, 2039 * 10**9)
SIZE = 10**6


def over(kind, name, devices, link, rounds=0, size=SIZE):
    """Seconds of an algorithm on links that are all alike."""
    alpha, beta = link
    return algorithm(kind, name).seconds(n=devices, k=rounds, s=size, alpha=alpha, beta=beta, gamma=SUM) * second


# Exchanges.


@theorem(
    expect=Proved(),
    cite=("nvidia2018dgx", "nvidia2021ampere", "nvidia2022hopper", "nvidia2023dgx", "nvidia2024dgx", "austin2025scale", "intel2021xeon"),
)
def links_are_as_fast_as_printed():
    """On each cluster a message of a billion bytes takes the latency of the links, and a billion over their bandwidth: of the inner ones
    where neighbours lie within what these join, and of the outer ones where they lie beyond."""
    goals, size = [], 10**9
    for cluster, (joins, near, fast, far, slow) in LINKS.items():
        goals += [exchange("send", size, cluster=cluster, over="pp", tp=joins, pp=2) == (Fraction(far) + Fraction(size, slow)) * second]
        if joins > 1:
            inside = exchange("send", size, cluster=cluster, over="pp", tp=joins // 2, pp=2)
            goals += [inside == (Fraction(near) + Fraction(size, fast)) * second]
    return holds(goals)


links_are_as_fast_as_printed.control(
    "wherever neighbours lie",
    lambda: exchange("send", SIZE, cluster=A100, over="pp", tp=4, pp=2) == exchange("send", SIZE, cluster=A100, over="pp", tp=8, pp=2),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("thakur2005", "chan2007collective"))
def exchanges_on_one_level_take_the_closed_forms():
    """On links that are all alike, each algorithm takes what its closed form says of these links: on 8 devices of a node, and on 4 in as
    many nodes; the fastest takes the least of them; a sum of two ends what an all-reduce of two takes, and a receive nothing."""
    goals = []
    for kind, names in (
        ("all_reduce", ("ring", "halving_doubling", "doubling", "tree")),
        ("reduce_scatter", ("ring", "halving")),
        ("all_gather", ("ring", "doubling", "bruck")),
        ("all_to_all", ("pairwise", "bruck")),
        ("broadcast", ("tree", "scatter_gather")),
    ):
        for name in names:
            goals += [exchange(kind, SIZE, cluster=A100, over="dp", algorithm=name, dp=8) == over(kind, name, 8, NEAR, 3)]
            goals += [exchange(kind, SIZE, cluster=A100, over="dp", algorithm=name, tp=8, dp=4) == over(kind, name, 4, FAR, 2)]
    least = minimum(*(over("all_reduce", name, 8, NEAR, 3) for name in ("ring", "halving_doubling", "doubling", "tree")))
    ends = exchange("tied_reduce", SIZE, cluster=A100, over="pp", tp=4, pp=4)
    goals += [ends == minimum(over("all_reduce", "ring", 2, FAR, 1), over("all_reduce", "doubling", 2, FAR, 1))]
    goals += [exchange("recv", SIZE, cluster=A100, over="pp", pp=2) == 0 * second]
    large = exchange("all_reduce", 10**9, cluster=A100, over="dp", dp=8)
    goals += [large == over("all_reduce", "halving_doubling", 8, NEAR, 3, 10**9)]
    return holds(goals, exchange("all_reduce", SIZE, cluster=A100, over="dp", dp=8) == least)


exchanges_on_one_level_take_the_closed_forms.control(
    "a ring, whatever the size",
    lambda: exchange("all_reduce", SIZE, cluster=A100, over="dp", dp=8) == over("all_reduce", "ring", 8, NEAR),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("cho2019blueconnect", "thakur2005"))
def exchanges_over_levels_take_the_sum_of_levels():
    """Over two nodes of 8 devices an algorithm that goes level by level takes what it takes of the inner links and of the outer ones
    together; a ring takes all of its rounds at the pace of the outer ones, on a node and a half, too; and an exchange over two axes is one
    over the devices of both.
    """
    goals = []
    for kind in ("all_reduce", "reduce_scatter", "all_gather"):
        levels = zip((algorithm(kind, "hierarchical").level(i) for i in (0, 1)), (NEAR, FAR), strict=True)
        seconds = sum(messages * alpha + sent * beta + added * SUM for (messages, sent, added), (alpha, beta) in levels)
        together = seconds.where(n_0=8, n_1=2, k_0=3, k_1=1, s=SIZE)
        goals += [exchange(kind, SIZE, cluster=A100, over="dp", algorithm="hierarchical", dp=16) == together * second]
        ring = exchange(kind, SIZE, cluster=A100, over="dp", algorithm="ring", dp=16)
        goals += [
            ring == over(kind, "ring", 16, FAR),
            exchange(kind, SIZE, cluster=A100, over="tp*dp", algorithm="ring", tp=4, dp=4) == ring,
        ]
    return holds([goal for goal in goals if not goal.trivial()])


exchanges_over_levels_take_the_sum_of_levels.control(
    "a ring over both, too",
    lambda: (
        exchange("all_reduce", SIZE, cluster=A100, over="dp", algorithm="ring", dp=16)
        == exchange("all_reduce", SIZE, cluster=A100, over="dp", algorithm="hierarchical", dp=16)
    ),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("thakur2005", "austin2025scale"))
def the_fastest_algorithm_is_no_slower_than_any_and_more_links_help():
    """The fastest algorithm takes no longer than a ring, on two levels too; longer for more bytes, and for more devices of a ring; less on
    faster links; and on a torus, whose devices have links to neighbours alone, no longer than there in one direction."""
    fastest = [exchange("all_reduce", size, cluster=A100, over="dp", dp=16) for size in (10**3, 10**6, 10**9)]
    rings = [exchange("all_reduce", SIZE, cluster=A100, over="dp", algorithm="ring", dp=n) for n in (2, 4, 8, 16)]
    clusters = [exchange("all_reduce", SIZE, cluster=c, over="dp", dp=8) for c in ("dgx-v100-32", A100, "dgx-h100")]
    torus, one_way = (exchange("all_reduce", SIZE, cluster="tpu-v5e", over="dp", algorithm=name, dp=16) for name in (None, "ring"))
    goals = [*chain("<", *fastest), *chain("<", *rings), *chain(">", *clusters)]
    return holds(goals, fastest[1] <= rings[3], torus < one_way)


the_fastest_algorithm_is_no_slower_than_any_and_more_links_help.control(
    "a ring on a node is no slower than over two",
    lambda: (
        exchange("all_reduce", SIZE, cluster=A100, over="dp", algorithm="ring", dp=16)
        <= exchange("all_reduce", SIZE, cluster=A100, over="dp", algorithm="ring", dp=8)
    ),
    refuted_at={},
)

# Steps.


SMALL = "gpt3-125m"
PARAMETERS, TOKENS = 125_226_240, 2048
FORWARD = 2 * TOKENS * (12 * 12 * 768**2 + 50257 * 768) + 4 * 12 * TOKENS**2 * 768
WIDTHS = {"b": 1, "b_a": 2, "b_theta": 2, "b_g": 2, "b_omega": 12}


@cache
def costs(strategy, model=SMALL):
    """What a model costs."""
    return derived(strategy, model=model)


def step(strategy, overlap="none", cluster=A100, eta=1, flat=False, **values):
    """Seconds of a step of the smallest GPT-3."""
    return costs(strategy).seconds(cluster, overlap=overlap, flat=flat, eta=eta, **(WIDTHS | values))


def computed(share=1, eta=1, cluster=A100):
    """Seconds in which a device computes a share of forward and of backward."""
    return Fraction(3 * FORWARD, share * DEVICES[cluster][0]) / Fraction(eta)


def updated(elements, width=2, cluster=A100):
    """Seconds in which a device updates so many parameters: it reads gradients, reads and writes parameters and 12 bytes of state."""
    return Fraction(elements * (3 * width + 24), DEVICES[cluster][2])


@theorem(expect=Proved(), cite=("narayanan2021megatron", "nvidia2021ampere", "nvidia2022hopper", "austin2025scale", "intel2021xeon"))
def a_step_of_one_device_computes_and_updates():
    """A step of the smallest GPT-3 on one device takes three times the operations of forward at half of the peak, once for each of m
    micro-batches, and the bytes of the update: of each parameter its gradient, and its own bytes and those of its state twice."""
    goals = []
    for cluster, (_, width, _) in DEVICES.items():
        alone = step("ddp", cluster=cluster, eta=Fraction(1, 2), N=1, b_theta=width, b_g=width)
        goals += [alone == (computed(1, Fraction(1, 2), cluster) + updated(PARAMETERS, width, cluster)) * second]
    more = step("ddp * accumulate", N=1, m=5)
    return holds(goals, more == (5 * computed() + updated(PARAMETERS)) * second)


a_step_of_one_device_computes_and_updates.control("without the update", lambda: step("ddp", N=1) == computed() * second, refuted_at={})


@theorem(expect=Proved(), cite=("li2020ddp", "rajbhandari2020zero"))
def a_step_adds_what_is_not_hidden():
    """Without overlap a step takes its computing, its exchanges one after the other, and its update. Data parallelism hides the gradients'
    behind backward, as far as that lasts, and stage 1 of ZeRO adds that of parameters, which hides behind forward; on 1024 devices, where
    the exchange takes longer, what is beyond is added."""
    goals = []
    compute, update = computed(), updated(PARAMETERS)
    for devices, nodes in ((8, {"dp": 8}), (1024, {"dp": 1024})):
        reduced = exchange("all_reduce", 2 * PARAMETERS, cluster=A100, over="dp", **nodes)
        goals += [step("ddp", N=devices) == reduced + (compute + update) * second]
        hidden = step("ddp", "data", eta=1, N=devices)
        goals += [hidden == (compute + update) * second] if devices == 8 else [hidden == reduced + (compute / 3 + update) * second]
    scattered, gathered = (exchange(kind, 2 * PARAMETERS, cluster=A100, over="dp", dp=8) for kind in ("reduce_scatter", "all_gather"))
    goals += [step("zero1", N=8) == scattered + gathered + (compute + updated(PARAMETERS) / 8) * second]
    return holds(goals, step("zero1", "data", N=8) == (compute + updated(PARAMETERS) / 8) * second)


a_step_adds_what_is_not_hidden.control(
    "data parallelism is free on any number of devices",
    lambda: step("ddp", "data", N=1024) == step("ddp", "data", N=8),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "zhao2023fsdp"))
def a_step_on_a_cluster_is_its_closed_form():
    """Rings alone on links that are all alike take what the closed form of a step says, of each strategy without a pipeline: with the
    latency and the bandwidth of these links along every axis, on devices that hide exchanges and on such that are too fast for that."""
    goals = []
    for strategy, degrees in (
        ("ddp", {"N": 8}),
        ("fsdp * tp * sp", {"N_dp": 4, "N_tp": 2}),
        ("zero1 * cp", {"N_dp": 2, "N_cp": 4}),
        ("tp * accumulate", {"N": 4, "m": 3}),
        ("fsdp(4) * tp(2) * sp", {}),
    ):
        links = {}
        for axis in ("dp", "tp", "cp"):
            links |= {f"alpha_{axis}": NEAR[0], f"beta_{axis}": NEAR[1]}
        for peak in (DEVICES[A100][0], 10**24):
            known = WIDTHS | degrees | links | {"F_peak": peak, "B_mem": DEVICES[A100][2], "eta": Fraction(1, 2)}
            exact = step(strategy, "data", eta=Fraction(1, 2), flat=True, F_peak=peak, **degrees)
            goals += [costs(strategy).time.where(**known) == exact]
    return holds(goals)


a_step_on_a_cluster_is_its_closed_form.control(
    "with the fastest algorithms, too",
    lambda: step("fsdp * tp * sp", "none", flat=True, N_dp=4, N_tp=2) == step("fsdp * tp * sp", "none", N_dp=4, N_tp=2),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "huang2019gpipe"))
def a_pipeline_goes_at_the_pace_of_its_slowest_stage():
    """From as many micro-batches on as there are stages, one more takes what the slowest stage computes for it, by 1F1B and by GPipe; the
    whole takes no longer than if every stage were as slow, and longer than the slowest stage alone."""
    goals = []
    last = Fraction(3 * (2 * TOKENS * (3 * 12 * 768**2 + 50257 * 768) + 4 * 3 * TOKENS**2 * 768), DEVICES[A100][0])
    hop = NEAR[0] + 2 * TOKENS * 768 * NEAR[1]
    for strategy in ("pp(4)", "pp(4, schedule=gpipe)"):
        few, more = step(strategy, m=8), step(strategy, m=9)
        goals += [more - few == last * second if strategy != "pp(4)" else more - few >= last * second]
        goals += [few > 8 * last * second, few < (11 * (last + 2 * hop) + Fraction(1, 100)) * second]
    return holds(goals)


a_pipeline_goes_at_the_pace_of_its_slowest_stage.control(
    "a quarter of the time of one device", lambda: 4 * step("pp(4)", m=8) == 8 * step("ddp", N=1), refuted_at={}
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "narayanan2021megatron"))
def shares_of_the_peak_are_operations_over_seconds():
    """The model's operations, and all that are computed, over what the devices' peak could have done in the seconds of a step, are its
    shares of the peak; with layers that are computed again the latter is larger by their forward. A pipeline's bubble is what the slowest
    stage's passes leave of the schedule's time."""
    full, peak = derived("ddp", model=SMALL, recompute="full"), DEVICES[A100][0]
    known = WIDTHS | {"N": 8, "eta": Fraction(1, 2)}
    mfu, hfu = full.utilisation(A100, **known)
    seconds, layers = full.seconds(A100, overlap="none", **known), FORWARD - 2 * TOKENS * 50257 * 768
    goals = [mfu * peak * seconds == 3 * FORWARD * second, hfu * peak * seconds == (3 * FORWARD + layers) * second]
    run, stage = costs("pp(4)", "llama3-8b"), "stage 3"
    slowest = run.work("total", stage=stage).where(b=1) / peak / units("operation") * second
    update = run.parameters(stage=stage) / units("parameter") * Fraction(30, DEVICES[A100][2]) * second
    known = WIDTHS | {"m": 8, "eta": 1}
    passes = run.seconds(A100, overlap="none", **known) - update
    return holds(goals, (1 - run.bubble(A100, **known)) * passes == 8 * slowest, costs("ddp").bubble(A100, N=8, eta=1, **WIDTHS) == 0)


shares_of_the_peak_are_operations_over_seconds.control(
    "half of the peak at eta of a half",
    lambda: 2 * derived("ddp", model=SMALL).utilisation(A100, N=8, eta=Fraction(1, 2), **WIDTHS)[0] == 1,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "austin2025scale"))
def more_overlap_and_less_work_take_no_longer():
    """With more overlap a step takes no longer, and with what is fastest no longer than with rings alone; a faster cluster, a higher share
    of the peak and fewer tokens take less; within a node tensor parallelism takes less than across nodes."""
    goals = []
    for strategy, degrees in (("fsdp * tp * sp", {"N_dp": 4, "N_tp": 2}), ("zero1 * cp", {"N_dp": 16, "N_cp": 2})):
        runs = [step(strategy, overlap, **degrees) for overlap in ("all", "data", "none")]
        goals += [*chain("<=", *runs, step(strategy, "none", flat=True, **degrees)), runs[0] < runs[2]]
    goals += [step("ddp", cluster="dgx-h100", N=8) < step("ddp", N=8), step("ddp", N=8) < step("ddp", eta=Fraction(1, 2), N=8)]
    return holds(goals, step("ddp", N=8) < step("ddp", N=8, b=2), step("tp", N=8) < step("tp", cluster="cpu-xeon-8380", b_theta=4, N=8))


more_overlap_and_less_work_take_no_longer.control(
    "overlap of data is all there is",
    lambda: step("fsdp * tp * sp", "all", N_dp=4, N_tp=2) == step("fsdp * tp * sp", "data", N_dp=4, N_tp=2),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "narayanan2021megatron"))
def inner_axes_lie_within_nodes():
    """Tensor parallelism lies inside of data parallelism: over 8 devices of a node it exchanges over inner links, and gradients then go
    over outer ones, each device's part by itself. A step without overlap takes all of it one after the other."""
    stream, share = 2 * TOKENS * 768, PARAMETERS - (6 * 12 + 2 + 2048) * 768
    local = share // 4 + PARAMETERS - share
    layers = 4 * 12 + 2
    inside = exchange("all_reduce", stream, cluster=A100, over="tp", tp=4, dp=4)
    loss = exchange("all_reduce", 2 * TOKENS, cluster=A100, over="tp", tp=4, dp=4)
    across = exchange("all_reduce", 2 * local, cluster=A100, over="dp", tp=4, dp=4)
    alone = (computed(4) + updated(local)) * second
    return step("ddp * tp", N_dp=4, N_tp=4) == alone + layers * inside + 3 * loss + across


inner_axes_lie_within_nodes.control(
    "data parallelism inside",
    lambda: (
        exchange("all_reduce", SIZE, cluster=A100, over="dp", tp=4, dp=4)
        == exchange("all_reduce", SIZE, cluster=A100, over="dp", dp=4, tp=4)
    ),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("cho2019blueconnect", "narayanan2021megatron"))
def links_carry_what_devices_send():
    """By rings, a device sends over all levels of links together what it sends along an axis, as the mean over the devices: of n devices in
    nodes of 8 next to one another n less the number of nodes send within these. Devices on a mesh whose inner axes fill a node send
    over outer links alone. Of stages the pairs of neighbours count, and the two ends for what they share. Where an algorithm that goes
    level by level is the fastest, it is what that sends on each."""
    goals = []
    for strategy, axis, degrees, (inner, outer) in (
        ("ddp", "dp", {"N": 16}, (14, 2)),
        ("fsdp", "dp", {"N": 12}, (10, 2)),
        ("ddp * tp", "dp", {"N_dp": 4, "N_tp": 4}, (1, 1)),
        ("ddp * tp", "tp", {"N_dp": 4, "N_tp": 4}, (1, 0)),
        ("hsdp", "rep", {"N_rep": 2, "N_shard": 8}, (0, 1)),
        ("hsdp", "shard", {"N_rep": 2, "N_shard": 8}, (1, 0)),
        ("pp(4)", "pp", {"m": 4}, (1, 0)),
        ("pp(12)", "pp", {"m": 4}, (10, 1)),
        ("zero1(2) * pp(4) * tp(2)", "pp", {"m": 4}, (2, 1)),
    ):
        stage = "stage 1" if axis == "pp" else None
        whole = costs(strategy).over(axis, stage=stage).where(**WIDTHS, **degrees)
        each = costs(strategy).links(A100, axis, stage=stage, flat=True, eta=1, **WIDTHS, **degrees)
        goals += [part * (inner + outer) == share * whole for part, share in zip(each, (inner, outer), strict=True)]
    first = costs("zero1(2) * pp(4) * tp(2)")
    ends = first.links(A100, "pp", stage="stage 0", eta=1, m=4, **WIDTHS)
    sums = [first.by(kind, stage="stage 0").where(m=4, **WIDTHS) for kind in ("send", "tied_reduce")]
    goals += [3 * ends[0] == 2 * sums[0], ends[1] == sums[0] / 3 + sums[1]]
    levels = costs("ddp").links(A100, "dp", eta=1, N=32, **WIDTHS)
    parts = [algorithm("all_reduce", "hierarchical").level(i)[1].where(n_0=8, n_1=4, s=2 * PARAMETERS) for i in (0, 1)]
    return holds(goals, [level == part * byte for level, part in zip(levels, parts, strict=True)])


links_carry_what_devices_send.control(
    "as much over each level",
    lambda: chain("==", *costs("ddp").links(A100, "dp", flat=True, eta=1, N=16, **WIDTHS)),
    refuted_at={},
)
