"""The rule of composition: its clauses, and why it has more than one.

A clause says how the result of an operation lies on one more axis, of how its operands lie there. What it says is an equation between
terms: operands are arbitrary functions of the device and of the element, the operation is what the prover takes it to be, and one more
coordinate stands for all other axes. ``docs/explanation/composition.md`` has the theorem that these clauses make.
"""

from placeproof.theory import Proved, Refuted, clause, theorem, trains


@theorem(expect=Proved(), cite="mehta2026placement")
def sums_over_an_axis_are_whole_or_in_parts_of_partial_sums():
    """Of partial sums over an axis, an all-reduce leaves full copies and a reduce-scatter leaves parts, as sums or as means."""
    return clause("all_reduce_of_partial", "mean_of_partial", "reduce_scatter_of_partial", "mean_scattered_of_partial")


sums_over_an_axis_are_whole_or_in_parts_of_partial_sums.control(
    "of parts, or of anything", lambda: clause("reduce_scatter_of_partial", takes=("any*",))
).control("a mean does not divide", lambda: clause("mean_of_partial", power=0))


@theorem(expect=Proved(), cite="mehta2026placement")
def sums_over_an_axis_count_its_devices_of_copies():
    """Of full copies, a sum over the axis is the number of its devices times the value, and a mean is the value."""
    return clause("all_reduce_of_copies", "mean_of_copies", "reduce_scatter_of_copies", "mean_scattered_of_copies")


sums_over_an_axis_count_its_devices_of_copies.control("a sum is the value", lambda: clause("all_reduce_of_copies", power=0)).control(
    "of parts", lambda: clause("mean_of_copies", takes=("shard*",))
)


@theorem(expect=Proved(), cite="mehta2026placement")
def gathers_are_whole_of_what_owners_have():
    """A gather, or a broadcast by the owners, makes full copies of what each element's owner has."""
    return clause("gathered", "broadcast_by_owners")


gathers_are_whole_of_what_owners_have.control("of partial sums", lambda: clause("gathered", takes=("partial*",)))


@theorem(expect=Proved(), cite="mehta2026placement")
def parts_are_right_of_what_owners_have():
    """The part that a device cuts out for itself is right if its owner had it."""
    return clause("cut_to_a_part")


parts_are_right_of_what_owners_have.control("it is whole", lambda: clause("cut_to_a_part", gives="replicate"))


@theorem(expect=Proved(), cite="mehta2026placement")
def other_axes_leave_an_axis_as_it_is():
    """A reduction, a scatter, a gather, a broadcast, or a cut over other axes does not change how a value lies on this one: full copies
    stay full copies, parts stay parts, and partial sums stay partial sums.

    This is what lets each axis be looked at by itself. The owners on the other axes do not depend on this one.
    """
    return clause("beside")


other_axes_leave_an_axis_as_it_is.control("a power is lost", lambda: clause("beside", power=-1)).control(
    "partial sums become copies", lambda: clause("beside", gives="replicate")
)


@theorem(expect=Proved(), cite="mehta2026placement")
def scales_and_sums_are_linear_on_every_axis():
    """A scale counts the powers of the degree in its factor, whatever it scales; a sum of two values that lie alike lies as they do."""
    return clause("scaled", "added")


scales_and_sums_are_linear_on_every_axis.control("a scale that does not count", lambda: clause("scaled", power=0)).control(
    "the second may lie otherwise", lambda: clause("added", takes=("any*", "any*"))
)


@theorem(expect=Proved(), cite="mehta2026placement")
def updates_are_right_where_all_that_they_read_is():
    """An element-wise update is right on the elements whose parameter, optimizer state and gradient a device has, and nowhere else is
    asked for."""
    return clause("updated", "updated_where_owned")


updates_are_right_where_all_that_they_read_is.control(
    "of a gradient that is a partial sum", lambda: clause("updated_where_owned", takes=("owned", "owned", "partial"))
).control("everywhere", lambda: clause("updated_where_owned", gives="replicate"))


# One axis at a time is not enough without the rule.

SUM_OF_DEGREES = """
mesh(dp, rep)
splits(rep="batch")
g = scale(all_reduce(backward(parameters), dp, rep), 1 / (dp + rep - 1))
parameters, optimizer = update(parameters, optimizer, g)
"""
IN_PARTS = """
mesh(dp)
g = all_reduce(backward(parameters), dp)
for u in reversed(units):
    t[u] = g[u]
    t = scale(t, 1 / dp)
parameters, optimizer = update(parameters, optimizer, t)
"""


@theorem(
    expect=Refuted(breaks="gradient integrity", because="N_dp + N_rep - 1 is N_dp * N_rep only if one of them is 1"),
    cite="mehta2026placement",
)
def steps_that_train_on_each_axis_alone_train_on_all():
    """A step that trains on each of its axes, where the others have one device, trains on all of them.

    The rule of composition asks for more: a factor is a product of powers of degrees.
    """
    return trains(SUM_OF_DEGREES)


steps_that_train_on_each_axis_alone_train_on_all.control(
    "if the factor is a product", lambda: trains(SUM_OF_DEGREES.replace("dp + rep - 1", "dp * rep")), proved=True
).control("on the one axis alone", lambda: trains(SUM_OF_DEGREES, for_all=["N_rep == 1"]), proved=True).control(
    "on the other axis alone", lambda: trains(SUM_OF_DEGREES, for_all=["N_dp == 1"]), proved=True
)


@theorem(
    expect=Refuted(breaks="gradient integrity", because="the parts of earlier units are divided once more with each unit"),
    cite="mehta2026placement",
)
def parts_may_be_scaled_together_while_they_are_made():
    """A mean may be taken of a buffer in the loop that fills it part by part, as it may where the axis has one device."""
    return trains(IN_PARTS)


parts_may_be_scaled_together_while_they_are_made.control(
    "after the loop", lambda: trains(IN_PARTS.replace("    t = scale", "t = scale")), proved=True
)
