"""Which steps do the same: refinement orders step programs, and how a step is written is no part of what it does.

A step refines another one if both are right, reduce the same states over the same axes, scale them alike, and gather them where they are
used (``placeproof prove A --against B``). In how many parts two steps differ is counted, and a part more for each that is not proved.
"""

from placeproof.theory import Proved, Refuted, apart, chain, edited, indicator, maximum, refines, theorem, without_call

#: Steps with one group of parameters and with several, in several ways of writing, and under other names of groups.
STEPS = ("ddp", "zero1", "zero1(reduce=all_reduce)", "zero2", "zero3", "zero3(unit=model)")

#: Data parallelism whose gradients of norms, under two names, are reduced with the others.
APART = """
mesh(dp)
group(matrix, P - P_norm)
group({norm}, P_norm)
place(parameters, dp="R")
place(optimizer, dp="R")
place(gradients, dp="R")
x = data()
x, activations = forward(parameters, x)
dx = loss(x)
gradients = backward(parameters, activations, dx)
gradients = all_reduce(gradients, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


def replicas_first():
    """Hybrid sharding with gradients that are added up over replicas first, and scattered within one afterwards."""
    backward = "(backward_weight(w, activations[u], dx), "
    early = edited("hsdp", f"reduce_scatter{backward}shard)", f"all_reduce{backward}rep)")
    return edited(early, "gradients = all_reduce(gradients, rep)", "gradients = reduce_scatter(gradients, shard)")


def broken(steps):
    """Over all triples of steps the sum of what the first and the last differ in, where neither differs from the one between."""
    differ = {(a, b): apart(a, b) for a in steps for b in steps}
    triples = [(a, b, c) for a in steps for b in steps for c in steps if a != b != c]
    return sum(indicator(differ[a, b] + differ[b, c], 0) * differ[a, c] for a, b, c in triples)


def asymmetric(steps):
    """The sum of what two steps differ in more than the same two exchanged."""
    return sum((apart(a, b) - apart(b, a)) ** 2 for a in steps for b in steps)


@theorem(expect=Proved(), cite="mehta2026placement")
def refinement_is_an_equivalence():
    """A step refines itself; what refines what refines a third refines that; and whatever refines another one is refined by it."""
    steps = (*STEPS, APART.format(norm="norm"), APART.format(norm="gains"))
    return [sum(apart(step, step) for step in steps) == 0, broken(steps) == 0, asymmetric(steps) == 0]


refinement_is_an_equivalence.control(
    "so is to differ in two parts at most",
    lambda: chain("<=", apart("zero1", "ddp * accumulate"), maximum(apart("zero1", "ddp"), apart("ddp", "ddp * accumulate"), 2)),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp"))
def how_gradients_are_scattered_is_no_part_of_a_step():
    """ZeRO stages 1 and 2, gradients reduced to all and cut afterwards or scattered at once, refine one another."""
    ways = ("zero1", "zero1(reduce=all_reduce)", "zero2", "zero2(reduce=all_reduce)")
    return [refines(a, b) for a in ways for b in ways if a < b]


how_gradients_are_scattered_is_no_part_of_a_step.control("whole optimizer states are", lambda: refines("ddp", "zero1"), refuted_at={})


@theorem(expect=Proved(), cite=("zhao2023fsdp", "mehta2026placement"))
def reductions_over_two_axes_commute():
    """Hybrid sharding is one step, whether gradients are added up over replicas before they are scattered or after, either axis first."""
    return [refines(replicas_first(), "hsdp"), refines(edited("hsdp", "mesh(rep, shard)", "mesh(shard, rep)"), "hsdp")]


reductions_over_two_axes_commute.control(
    "one of them is enough", lambda: refines(without_call("hsdp", "all_reduce"), "hsdp"), refuted_at={}
)


@theorem(
    expect=Refuted(witness={}, because="a step that accumulates is scaled by its micro-batches as well, and reduces once for all of them"),
    cite="mehta2026placement",
)
def micro_batches_are_no_part_of_a_step():
    """A step with micro-batches does what the step without them does."""
    return refines("zero1 * accumulate", "zero1")


micro_batches_are_no_part_of_a_step.control(
    "when each of them is reduced is not",
    lambda: refines("zero1 * accumulate", "zero1(reduce=all_reduce) * accumulate"),
    proved=True,
)
