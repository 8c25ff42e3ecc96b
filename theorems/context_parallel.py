"""Attention whose tokens are split over devices: keys and values go round a ring, and partial softmaxes are merged; or they are
gathered; or tokens change places with heads.

The ring has any number of devices. A round's addition depends on the part that is visiting alone, once what was subtracted from exponents
is put back; all rounds together are then a sum over all devices.
"""

from placeproof.models.programs import block_program
from placeproof.semantics.blocks import combined, context_parallel, lower_block, tensor_parallel
from placeproof.theory import Proved, Refuted, edited, theorem, trains, without_call

KEYS, VALUES = "    kr = shift(kr, cp)\n", "    vr = shift(vr, cp)\n"
KEYS_BACK, VALUES_BACK = "    kr = shift(kr, cp, by=-1)\n", "    vr = shift(vr, cp, by=-1)\n"


@theorem(expect=Proved(), cite=("liu2023ring", "milakov2018online"))
def ring_attention_is_right():
    """Attention is right if queries stay, keys and values go round a ring of any number of devices, partial softmaxes are merged by their
    greatest scores, and the gradients of keys and values travel with them and one step more."""
    return trains("ring_attention")


ring_attention_is_right.control(
    "values come from the wrong peer",
    lambda: trains(edited("ring_attention", "vr = shift(vr, cp)\n    scores", "vr = shift(vr, cp, by=-1)\n    scores")),
    breaks="state consistency",
).control(
    "the sum of exponentials is not rescaled",
    lambda: trains(edited("ring_attention", "z = z * again + total", "z = z + total")),
    breaks="state consistency",
).control(
    "the weighted sum of values is not rescaled",
    lambda: trains(edited("ring_attention", "sum = sum * again + contract", "sum = sum + contract")),
    breaks="state consistency",
).control(
    "the gradient of the keys is left one step before home",
    lambda: trains(edited("ring_attention", "dk = shift(dk, cp)\ndv", "dv")),
    breaks="gradient integrity",
).control(
    "the gradient of the values stays where it is added",
    lambda: trains(edited("ring_attention", "    dv = shift(dv, cp)\n    p", "    p")),
    breaks="gradient integrity",
)


@theorem(expect=Proved(), cite="milakov2018online")
def any_number_may_be_subtracted_in_a_merge():
    """Merging is right whatever is subtracted from exponents, as long as what was summed before is rescaled to it: the greatest score of
    the part that is visiting will do. (That numbers do not overflow is another matter.)"""
    return trains(edited("ring_attention", "max(top, largest(scores, over=keys))", "largest(scores, over=keys)"))


any_number_may_be_subtracted_in_a_merge.control(
    "it is not the number that the next round rescales from",
    lambda: trains(edited("ring_attention", "    top = new\n", "    top = top\n")),
    breaks="gradient integrity",
)


@theorem(expect=Proved(), cite="liu2023ring")
def a_ring_may_turn_the_other_way():
    """The ring may turn either way, as long as everything in a pass turns alike."""
    return trains(edited("ring_attention", f"{KEYS}{VALUES}    scores", f"{KEYS_BACK}{VALUES_BACK}    scores"))


a_ring_may_turn_the_other_way.control(
    "keys turn one way and values the other",
    lambda: trains(edited("ring_attention", f"{KEYS}{VALUES}    scores", f"{KEYS_BACK}{VALUES}    scores")),
    breaks="state consistency",
)


@theorem(
    expect=Refuted(breaks="state consistency", because="parts with small scores count as much as parts with great ones"),
    cite="milakov2018online",
)
def softmaxes_of_parts_may_be_averaged():
    """Attention over parts of the keys may be merged by the mean of the outputs, every one normalised by itself."""
    first = edited("ring_attention", "sum = contract(e, v, over=keys)", "sum = contract(e, v, over=keys) / z")
    each = edited(first, "sum = sum * again + contract(e, vr, over=keys)", "sum = sum + contract(e, vr, over=keys) / total(e, over=keys)")
    return trains(edited(each, "o = sum / z", "o = sum / cp"))


softmaxes_of_parts_may_be_averaged.control("merged by their sums of exponentials", lambda: trains("ring_attention"), proved=True)


def lowered(*plans):
    """Attention of one device, put onto a mesh by its plans."""
    return lower_block(block_program("attention_flash"), combined(*plans))


@theorem(expect=Proved(), cite="grattafiori2024llama", level=2)
def gathered_keys_and_values_are_right():
    """Attention with split tokens is right if keys and values are all-gathered, in backward once more, and their gradients
    reduce-scattered."""
    return trains(lowered(context_parallel("cp", by="gather")))


gathered_keys_and_values_are_right.control(
    "the gradient of a projection is not summed over the tokens' devices",
    lambda: trains(without_call(lowered(context_parallel("cp")), "all_reduce", 2)),
    breaks="gradient integrity",
).control(
    "the gradients of keys are those of this device's queries alone",
    lambda: trains(edited(lowered(context_parallel("cp")), "dk = reduce_scatter(", "dk = part(")),
    breaks="gradient integrity",
)


@theorem(expect=Proved(), cite="jacobs2023ulysses", level=2)
def tokens_may_change_places_with_heads():
    """Attention with split tokens is right if queries, keys and values are exchanged for those of all tokens and some heads, and the output
    back; in backward likewise."""
    return trains(lowered(context_parallel("cp", by="ulysses")))


tokens_may_change_places_with_heads.control(
    "each device normalises by its share of the heads' devices",
    lambda: trains(edited(lowered(context_parallel("cp", by="ulysses")), "z = total(e, over=keys)", "z = total(e, over=keys) / cp")),
    breaks="state consistency",
).control(
    "the gradient of a projection is not summed over the tokens' devices",
    lambda: trains(without_call(lowered(context_parallel("cp", by="ulysses")), "all_reduce", 2)),
    breaks="gradient integrity",
)


@theorem(expect=Proved(), cite=("grattafiori2024llama", "korthikanti2022activations"), level=2)
def context_and_tensor_parallelism_compose():
    """Tokens may be split over one axis and heads over another, with the stream between blocks split over both."""
    return trains(lowered(tensor_parallel("tp", sequence=True), context_parallel("cp")))


context_and_tensor_parallelism_compose.control(
    "the output is averaged over the devices of its heads",
    lambda: trains(
        edited(
            lowered(tensor_parallel("tp"), context_parallel("cp")),
            "over=group), over=kv_heads), tp)\nreturns(y)",
            "over=group), over=kv_heads), tp, op=mean)\nreturns(y)",
        )
    ),
    breaks="state consistency",
)
