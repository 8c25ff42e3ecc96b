"""What devices have to agree on: norms, flags, random keys and copies.

A step may need a number of the whole model, such as a norm, or a decision, such as to skip the step. Each has to be formed over all devices
that have a part in it, and over no others. Copies may be refreshed at any time, if all that belongs to them is.
"""

import re
from dataclasses import replace

from placeproof.programs import read, render
from placeproof.theory import Proved, Refuted, edited, refuted, theorem, trains, without_call, wrong
from placeproof.theory.statements import read_subject

SAMPLES = ("separable-loss", "equal-token-counts")
CUT = "elementwise-optimizer"
COPIED = "equal-initial-states"

# Norms count each element once.

CLIPPED = """
program("clipped with tensor parallelism")
mesh(dp, tp)
reference(clip=global_norm)
group(matrix, P - P_norm)
group(norm, P_norm)
place(parameters.matrix, tp="S")
place(parameters.norm)
place(optimizer.matrix, tp="S", dp="S")
place(optimizer.norm, dp="S")
place(gradients.matrix, tp="S")
place(gradients.norm)
G = backward(parameters)
G = scale(reduce_scatter(G, dp), 1 / dp)
n = all_reduce(square_norm(G.matrix), dp, tp) + all_reduce(square_norm(G.norm), dp)
c = clip_factor(sqrt(n))
G.matrix = scale(G.matrix, c)
G.norm = scale(G.norm, c)
parameters, optimizer = update(parameters, optimizer, G)
parameters = all_gather(parameters, dp)
"""


@theorem(expect=Proved(), cite=("pascanu2013difficulty", "shoeybi2019megatron"), level=1)
def clipping_trains_of_counting_copies_once():
    """Clipping by the global norm trains if squares are summed over the axes that cut a parameter, and not over those that copy it."""
    return trains(CLIPPED, assuming=[*SAMPLES, CUT, COPIED])


clipping_trains_of_counting_copies_once.control(
    "copies count once for each device of the tensor axis",
    lambda: trains(edited(CLIPPED, "all_reduce(square_norm(G.norm), dp)", "all_reduce(square_norm(G.norm), dp, tp)")),
    breaks="gradient integrity",
).control(
    "the tensor axis is forgotten",
    lambda: trains(edited(CLIPPED, "all_reduce(square_norm(G.matrix), dp, tp)", "all_reduce(square_norm(G.matrix), dp)")),
    breaks="gradient integrity",
).control(
    "one device of the tensor axis alone clips the copies",
    lambda: trains(edited(CLIPPED, "G.norm = scale(G.norm, c)", "if rank(tp) == 0:\n    G.norm = scale(G.norm, c)")),
    breaks="gradient integrity",
)

#: Clipped over meshes of several kinds: dense and expert parameters, matrices in parts, copied norms, stages, two copies of a stage.
MIXED = (
    "hsdp * tp * clip", "zero1 * ep * cp * clip", "ddp * tp * sp * pp * clip", "zero2 * pp(schedule=dualpipe) * clip",
    "zero3 * ep(experts=whole) * tp * clip", "fsdp * tp * ep * pp * clip",
)  # fmt: skip
_SQUARES = re.compile(r"all_reduce\((square_norm\([\w.]+\)|squares), ([\w, ]+)\)|square_norm\([\w.]+\)(?!, )|(?<=sqrt\()squares")


def other_norms(text):
    """The step of a strategy with each sum of squares taken over one axis less, or over one more."""
    program = read_subject(text)[1]
    lines = render(program).splitlines()
    for n, line in enumerate(lines):
        for found in _SQUARES.finditer(line):
            squares, own = found[1] or found[0], found[2].split(", ") if found[2] else []
            for axis in program.axes:
                over = [a for a in own if a != axis.name] if axis.name in own else [*own, axis.name]
                summed = f"all_reduce({squares}, {', '.join(over)})" if over else squares
                changed = read("\n".join([*lines[:n], line[: found.start()] + summed + line[found.end() :], *lines[n + 1 :]]))
                yield replace(changed, name=f"{text}, {squares} {'not ' if axis.name in own else ''}over {axis.name}")


@theorem(expect=Proved(), cite=("pascanu2013difficulty", "narayanan2021megatron"))
def norms_over_mixed_meshes_count_each_element_once():
    """The global norm adds squares of parts over the devices that have others, of experts over those of other experts, of stages over all
    stages, and of what is copied once, on meshes of up to four axes."""
    return wrong(*(read_subject(text)[1] for text in MIXED)) == 0


norms_over_mixed_meshes_count_each_element_once.control(
    "experts count once for each device of the data axis",
    lambda: wrong(edited("zero1 * ep * cp * clip", "square_norm(gradients.expert), ep)", "square_norm(gradients.expert), ep, dp)")) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("pascanu2013difficulty", "narayanan2021megatron"))
def norms_over_other_devices_train_otherwise():
    """With squares that are added up over an axis less, or over one more, none of these steps trains what one device does."""
    steps = [step for text in MIXED[:4] for step in list(other_norms(text))[::5]]
    return refuted(*steps) == len(steps)


norms_over_other_devices_train_otherwise.control(
    "over those that have others", lambda: refuted(read_subject("hsdp * tp * clip")[1]) == 1, refuted_at={}
)

REPLICAS = """
program("clipped with replicas")
mesh(rep, shard)
reference(clip=global_norm)
place(parameters, shard="S*")
place(optimizer, shard="S")
w = all_gather(parameters, shard)
g = scale(all_reduce(reduce_scatter(backward(w), shard), rep), 1 / (rep * shard))
n = all_reduce(square_norm(g), shard)
g = scale(g, clip_factor(sqrt(n)))
parameters, optimizer = update(parameters, optimizer, g)
"""


@theorem(
    expect=Refuted(breaks="gradient integrity", because="each replica has all shards, and adds the norm once more"), cite="zhao2023fsdp"
)
def clipping_trains_of_summing_over_all_devices():
    """With hybrid sharding, the global norm may be summed over all devices, as with full sharding."""
    return trains(edited(REPLICAS, "all_reduce(square_norm(g), shard)", "all_reduce(square_norm(g), rep, shard)"))


clipping_trains_of_summing_over_all_devices.control("over the shards alone", lambda: trains(REPLICAS), proved=True).control(
    "over the shards, and averaged over replicas",
    lambda: trains(edited(REPLICAS, "all_reduce(square_norm(g), shard)", "all_reduce(all_reduce(square_norm(g), shard), rep, op=mean)")),
    proved=True,
)

LAMB = """
program("tensor norms over shards")
mesh(dp)
reference(optimizer=tensor_norm)
place(parameters)
place(optimizer, dp="S")
g = reduce_scatter(backward(parameters), dp, op=mean)
norms = all_reduce(tensor_norms(parameters, optimizer, g), dp)
parameters, optimizer = update_with(parameters, optimizer, g, norms)
parameters = all_gather(parameters, dp)
"""


@theorem(expect=Proved(), cite="you2020lamb", level=1)
def lamb_trains_of_summed_tensor_norms():
    """An optimizer that scales by norms of tensors, and is element-wise but for them, trains on ZeRO stage 1's shards if what the norms sum
    is summed over them."""
    return trains(LAMB, assuming=[*SAMPLES, COPIED])


lamb_trains_of_summed_tensor_norms.control(
    "it is averaged", lambda: trains(edited(LAMB, "optimizer, g), dp)", "optimizer, g), dp, op=mean)")), breaks="step invariant"
)

# Flags.

SKIPPED = """
program("steps are skipped together")
mesh(dp, pp)
reference(skip=not_finite)
place(parameters, pp="S")
place(optimizer, dp="S", pp="S")
place(gradients, pp="S")
g = reduce_scatter(backward(parameters), dp, op=mean)
flag = all_reduce(found_inf(g), dp, pp, op=max)
parameters, optimizer = update(parameters, optimizer, g, flag)
parameters = all_gather(parameters, dp)
"""


@theorem(expect=Proved(), cite="micikevicius2018mixed", level=1)
def skipping_trains_of_agreement():
    """A step that is skipped if the gradient is not finite trains if all devices that have a part of the gradient agree on the flag: here
    those that share shards, and those of the other stages."""
    return trains(SKIPPED, assuming=[*SAMPLES, CUT, COPIED])


skipping_trains_of_agreement.control(
    "stages do not agree", lambda: trains(edited(SKIPPED, "dp, pp, op=max", "dp, op=max")), breaks="state consistency"
).control("owners of shards do not agree", lambda: trains(edited(SKIPPED, "dp, pp, op=max", "pp, op=max")), breaks="state consistency")

# Random keys.

MASKED = """
program("dropout")
mesh(dp, cp, tp)
reference(dropout=output)
key = random(dp, cp)
x = data()
x, saved = forward(parameters, x)
dx = dropout(loss(dropout(x, key)), key)
g = all_reduce(backward_weight(parameters, saved, dx), dp, cp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
"""


@theorem(expect=Proved(), cite=("srivastava2014dropout", "shoeybi2019megatron"), level=1)
def dropout_trains_of_keys_by_samples():
    """Dropout on a copied output trains if keys differ along the axes that split samples or tokens, and along no others."""
    return trains(MASKED, assuming=[*SAMPLES, COPIED])


dropout_trains_of_keys_by_samples.control(
    "copies on the tensor axis have keys of their own",
    lambda: trains(edited(MASKED, "random(dp, cp)", "random(dp, cp, tp)")),
    breaks="state consistency",
).control(
    "all devices of the context axis have one key",
    lambda: trains(edited(MASKED, "random(dp, cp)", "random(dp)")),
    breaks="state consistency",
)

# Copies that are refreshed.

REFRESHED = """
program("copies that are averaged and broadcast")
mesh(dp)
place(parameters)
place(optimizer)
g = all_reduce(backward(parameters), dp, op=mean)
g = broadcast(g, dp, root=0)
parameters, optimizer = update(parameters, optimizer, g)
parameters = all_reduce(parameters, dp, op=mean)
optimizer = broadcast(optimizer, dp, root=0)
"""


@theorem(expect=Proved(), cite="li2020ddp", level=1)
def refreshing_equal_copies_is_harmless():
    """Copies that are equal may be broadcast, or averaged, without harm: it costs traffic and changes nothing."""
    return trains(REFRESHED, assuming=[*SAMPLES, COPIED])


refreshing_equal_copies_is_harmless.control(
    "they are summed",
    lambda: trains(edited(REFRESHED, "all_reduce(parameters, dp, op=mean)", "all_reduce(parameters, dp)")),
    breaks="state consistency",
)

ONE_UPDATES = """
program("one device updates")
mesh(dp)
place(parameters)
place(optimizer)
g = reduce(backward(parameters), dp, op=mean, root=0)
parameters, optimizer = update(parameters, optimizer, g)
parameters = broadcast(parameters, dp, root=0)
optimizer = broadcast(optimizer, dp, root=0)
"""


@theorem(expect=Proved(), cite="li2020ddp", level=1)
def one_device_may_update_of_broadcasting_all_states():
    """The gradient may be right on one device alone, if its parameters and its optimizer state are then copied to all.

    So gradient integrity is asked of the devices whose states are kept, and not of all.
    """
    return trains(ONE_UPDATES, assuming=[*SAMPLES, COPIED])


one_device_may_update_of_broadcasting_all_states.control(
    "optimizer state is not copied, and devices without the gradient keep their own",
    lambda: trains(without_call(ONE_UPDATES, "broadcast", 2)),
    breaks="gradient integrity",
)

UNSEEDED = """
program("no broadcast at the start")
mesh(dp)
g = all_reduce(backward(parameters), dp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
"""

FIRST = "g = all_reduce(backward"


@theorem(
    expect=Refuted(breaks="state consistency", because="each device begins with its own numbers, and equal gradients keep the differences"),
    cite="li2020ddp",
)
def averaging_gradients_makes_up_for_unequal_starts():
    """Devices that begin with different parameters train what one device trains, if they average their gradients."""
    return trains(UNSEEDED, assuming=SAMPLES)


averaging_gradients_makes_up_for_unequal_starts.control(
    "parameters are broadcast first",
    lambda: trains(edited(UNSEEDED, FIRST, "parameters = broadcast(parameters, dp, root=0)\n" + FIRST), assuming=SAMPLES),
    proved=True,
)
