"""Experts that lie on several devices: what layers exchange, over which devices gradients are summed, what routing must not depend on.

The devices among which experts lie have samples of their own. So the axis is one of data parallelism for everything but the experts, and
one of parts for them.
"""

from placeproof.theory import Proved, Refuted, edited, theorem, trains, without_call

SAMPLES = ("separable-loss", "equal-token-counts")
CUT = "elementwise-optimizer"
COPIED = "equal-initial-states"
ALL = [*SAMPLES, CUT, COPIED]


def layer(name: str = "moe"):
    """A block with experts, which is written for one device, on an axis over which its experts and its samples lie."""
    from placeproof.models.programs import block_program
    from placeproof.semantics.blocks import expert_parallel, lower_block

    return lower_block(block_program(name), expert_parallel())


# One layer.


@theorem(expect=Proved(), cite="lepikhin2021gshard", level=1)
def dispatch_and_combine_are_inverse():
    """Tokens are sent to the devices of their experts, and the results come back: for any routing, any number of experts and choices, every
    device has what one device computes, forward and backward. Gradients go the same two ways."""
    return trains(layer())


dispatch_and_combine_are_inverse.control(
    "the router's gradient is not summed over the devices",
    lambda: trains(without_call(layer(), "all_reduce")),
    breaks="gradient integrity",
).control(
    "the router's gradient is averaged",
    lambda: trains(edited(layer(), ", over=batch), ep), at=dy, by=wr", ", over=batch), ep, op=mean), at=dy, by=wr")),
    breaks="gradient integrity",
).control(
    "gates are left out of the gradient that is sent to the experts",
    lambda: trains(edited(layer(), "hot(route) * (gate * dy)", "hot(route) * dy")),
    breaks="gradient integrity",
).control(
    "what experts compute is not weighted by the gates",
    lambda: trains(edited(layer(), "contract(gate, out, over=choices)", "total(out, over=choices)")),
    breaks="gradient integrity",
)


@theorem(expect=Proved(), cite="deepseek2024technical", level=1)
def shared_experts_stay_where_their_tokens_are():
    """Experts that every token passes are copied, and need no exchange; their gradients are summed like those of the router."""
    return trains(layer("moe_shared"))


shared_experts_stay_where_their_tokens_are.control(
    "the gradient of one of their matrices is not summed",
    lambda: trains(without_call(layer("moe_shared"), "all_reduce", 1)),
    breaks="gradient integrity",
).control(
    "their output is added twice",
    lambda: trains(
        edited(layer("moe_shared"), "contract(va, v2, over=shared_ffn)\nreturns", "2 * contract(va, v2, over=shared_ffn)\nreturns")
    ),
    breaks="gradient integrity",
)

# Capacity.

CAPACITY = """
program("experts that serve as many tokens as they can")
mesh(ep)
tensor(n, batch, tokens, hidden, ep=batch)
tensor(route, batch, tokens, choices, ep=batch, picks=experts)
tensor(w, experts, hidden, expert_ffn, ep=experts)
load = total(total(total(hot(route), over=choices), over=tokens), over=batch)
served = contract(hot(route), elementwise(served, load), over=experts)
sent = all_to_all(hot(route) * n, ep, dim=experts)
back = all_to_all(contract(sent, w, over=hidden), ep, dim=batch)
y = total(served * contract(hot(route), back, over=experts), over=choices)
returns(y)
"""


@theorem(
    expect=Refuted(breaks="state consistency", because="the load that one device counts is that of its own samples"),
    cite=("lepikhin2021gshard", "fedus2022switch"),
    level=1,
)
def capacity_may_be_counted_on_each_device():
    """An expert that serves a part of its tokens, by how many there are, may have them counted on each device by itself."""
    return trains(CAPACITY)


capacity_may_be_counted_on_each_device.control(
    "the load is summed over the devices",
    lambda: trains(edited(CAPACITY, ", over=batch)\nserved", ", over=batch)\nload = all_reduce(load, ep)\nserved")),
    proved=True,
).control(
    "every token is served",
    lambda: trains(edited(CAPACITY, "elementwise(served, load)", "elementwise(served, load - load)")),
    proved=True,
)

# A whole step.


@theorem(expect=Proved(), cite="lepikhin2021gshard", level=1)
def expert_parallelism_trains_the_model():
    """An axis of data parallelism may have the experts in parts: their gradients are summed over the other axes of samples alone, all
    others over this one, too, and both are divided by all devices."""
    return trains("zero1 * ep", assuming=ALL)


expert_parallelism_trains_the_model.control(
    "expert gradients are reduced over the experts' axis, too",
    lambda: trains(edited("zero1 * ep", "gradients.dense = all_reduce(gradients.dense, ep)", "gradients = all_reduce(gradients, ep)")),
    breaks="gradient integrity",
).control(
    "the rest is not reduced over the experts' axis",
    lambda: trains(edited("zero1 * ep", "gradients.dense = all_reduce(gradients.dense, ep)\n", "")),
    breaks="gradient integrity",
).control(
    "experts are divided by the number of their copies",
    lambda: trains(
        edited(
            "zero1 * ep",
            "gradients = scale(gradients, 1 / (dp * ep))",
            "gradients.dense = scale(gradients.dense, 1 / (dp * ep))\ngradients.expert = scale(gradients.expert, 1 / dp)",
        )
    ),
    breaks="gradient integrity",
)


@theorem(expect=Proved(), cite=("lepikhin2021gshard", "zhao2023fsdp"), level=1)
def sharding_goes_over_the_experts_axis_for_the_rest_alone():
    """With fully sharded data parallelism the rest of the model is cut by all axes of samples, the experts' among them, and gathered over
    all; an expert is cut and gathered over the axes on which it has copies."""
    return trains("fsdp * fsdp(dp=ep) * ep", assuming=[*SAMPLES, CUT])


sharding_goes_over_the_experts_axis_for_the_rest_alone.control(
    "experts are gathered over their own axis",
    lambda: trains(edited("fsdp * fsdp(dp=ep) * ep", "all_gather(parameters.expert[u], dp)", "all_gather(parameters.expert[u], dp, ep)")),
    breaks="gradient integrity",
).control(
    "gradients of experts are scattered over their own axis",
    lambda: trains(edited("fsdp * fsdp(dp=ep) * ep", "reduce_scatter(g.expert, dp)", "reduce_scatter(g.expert, dp, ep)")),
    breaks="gradient integrity",
).control(
    "the rest is gathered over the experts' copies alone",
    lambda: trains(edited("fsdp * fsdp(dp=ep) * ep", "all_gather(parameters.dense[u], dp, ep)", "all_gather(parameters.dense[u], dp)")),
    breaks="state consistency",
)


@theorem(expect=Proved(), cite="lepikhin2021gshard", level=2)
def expert_parallelism_composes_with_a_pipeline():
    """Experts, the optimizer's parts over all axes of samples, and a pipeline train together what one device trains."""
    return trains("zero1 * zero1(dp=ep) * ep * pp", assuming=ALL)


expert_parallelism_composes_with_a_pipeline.control(
    "updated experts are not gathered from the devices that share them",
    lambda: trains(edited("zero1 * zero1(dp=ep) * ep * pp", "parameters.expert = all_gather(parameters.expert, dp)\n", "")),
    breaks="state consistency",
).control(
    "the number of micro-batches does not divide",
    lambda: trains(edited("zero1 * zero1(dp=ep) * ep * pp", "1 / (dp * ep * microbatches)", "1 / (dp * ep)")),
    breaks="gradient integrity",
)

ROUTER = """
program("a router beside experts")
mesh(dp, ep)
splits(ep="batch")
group(rest, P - P_expert - P_norm)
group(router, P_norm)
group(expert, P_expert, experts=ep)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
place(gradients.expert, ep="S")
G = backward(parameters)
G.rest = all_reduce(G.rest, dp, ep)
G.router = all_reduce(G.router, dp, ep)
G.expert = all_reduce(G.expert, dp)
G = scale(G, 1 / (dp * ep))
parameters, optimizer = update(parameters, optimizer, G)
"""


@theorem(expect=Proved(), cite="shazeer2017outrageously", level=1)
def a_router_is_no_expert():
    """The router stands in a layer with experts, and each device has it whole: its gradient is summed over all axes of samples."""
    return trains(ROUTER, assuming=[*SAMPLES, COPIED])


a_router_is_no_expert.control(
    "its gradient is reduced with those of the experts",
    lambda: trains(edited(ROUTER, "G.router = all_reduce(G.router, dp, ep)", "G.router = all_reduce(G.router, dp)")),
    breaks="gradient integrity",
).control(
    "its gradient is forgotten",
    lambda: trains(edited(ROUTER, "G.router = all_reduce(G.router, dp, ep)\n", "")),
    breaks="gradient integrity",
)
