"""What is refused: sizes that degrees do not divide, degrees, ranks and options of which no figure would be right, and what was not
measured.

Each error has a code. A theorem counts the calls that end with one, so that what is refused stays refused, and what is not stays answered.
"""

from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.theory import Proved, counted, derived, exact, exchange, holds, refused, theorem

from .device_bytes import DECODER, ODD, TORCH

A100 = "dgx-a100-80"
SCALAR = Shapes(name="a scalar", units=(Unit(name="root", weights=(Weight(name="w", shape=()),)),))
UNKNOWN = Shapes(name="unknown buffers", units=(Unit(name="root", weights=(Weight(name="w", shape=(8,)),)),), buffers=None)
WIDTHS = {"b_a": 2, "b_theta": 2, "b_g": 2, "b_omega": 12}


def model(strategy, name="gpt3-125m", **run):
    """What is asked of a model."""
    return lambda: derived(strategy, model=name, **run).parameters()


def device(subject, tensors=ODD, **options):
    """What is asked of a device's bytes."""
    return lambda: exact(subject, tensors, **options).memory("parameters")


@theorem(expect=Proved(), cite=("narayanan2021megatron", "korthikanti2022activations"))
def costs_of_models_are_refused_where_stages_or_words_do_not_fit():
    """No costs are derived for stages of unequal layers of which it is not said how many each has, for more than 512 stages, for layers
    that do not add up, for stages with nothing, for open stages of a model with layers of two kinds, and for words of recomputation that
    are not known, said twice, or that exclude one another."""
    return holds(
        refused("PP202", model("pp(5)"), model("pp(513)"), model("pp(2)", layers=(5, 6)), model("pp(2)", layers=(13, -1))) == 4,
        refused("PP202", model("pp(3)", layers=(6, 0, 6)), model("pp(2)", layers=(12,)), model("pp(4)"), model("pp(12)")) == 2,
        refused("PP203", model("pp", "deepseek-v3"), model("pp", "gpt"), model("pp(2)", "gpt"), model("pp")) == 2,
        refused("PP104", *(model("ddp", recompute=w) for w in ("some", "full+norms", "norms+norms", "none+mlp", "norms+mlp", "full"))) == 4,
        refused("PP104", *(model("ddp * checkpoint", recompute=word) for word in ("norms", "full"))) == 1,
    )


costs_of_models_are_refused_where_stages_or_words_do_not_fit.control(
    "stages of a layer each", lambda: refused("PP202", model("pp(12)")) == 1, refuted_at={}
)


@theorem(expect=Proved(), cite=("touvron2023llama", "radford2019language"))
def sizes_that_contradict_one_another_are_refused():
    """A model is not counted with sizes that it does not have, below what they may be, of which one is a part of another that is smaller,
    or of which one does not divide another; nor with options or names that there are not."""
    llama = {"h": 64, "a": 4, "L": 2, "V": 8, "s": 8}
    return holds(
        refused("PP201", lambda: counted("llama", E=8), lambda: counted("mixtral", E=8)) == 1,
        refused("PP202", lambda: counted("llama", h=0), lambda: counted("llama", L=-1), lambda: counted("llama", L=1)) == 2,
        refused("PP205", *(lambda a=a: counted("llama", **{**llama, "a": a}).parameters() for a in (3, 4, 8, 64, 65))) == 2,
        refused("PP104", lambda: counted("gpt", tied="perhaps"), lambda: counted("gpt", gates="yes"), lambda: counted("gpt", tied="no"))
        == 2,
        refused("PP101", lambda: counted("llama4"), lambda: counted("llama")) == 1,
    )


sizes_that_contradict_one_another_are_refused.control(
    "heads that divide the hidden size", lambda: refused("PP205", lambda: counted("llama", h=64, a=8).parameters()) == 1, refuted_at={}
)


@theorem(expect=Proved(), cite=("zhao2023fsdp", "li2020ddp", "rajbhandari2020zero"))
def device_bytes_are_refused_that_were_not_measured():
    """No bytes are told of a rank beyond the last, of tensors that an implementation refuses, of buffers that nobody knows or that take
    several calls, of an open number of micro-batches, or one that is said twice; of options that the implementation does not take; of what
    was not measured together; and of sizes that blocks need and that are not there."""
    view = {"profile": TORCH, "buffer": "0"}
    return holds(
        refused("PP202", *(device("fsdp(2)", SCALAR, profile=TORCH, implementations=[i]) for i in ("fsdp2", "fsdp1"))) == 2,
        refused("PP203", device("ddp(2)", UNKNOWN, profile=TORCH), device("ddp(2)", UNKNOWN, **view), device("ddp(2)", UNKNOWN)) == 1,
        refused("PP203", *(device("ddp(2)", profile=TORCH, buffer=str(n)) for n in (2**16 * 1000, 2**16 * 1001))) == 1,
        refused("PP203", device("pp(2)", DECODER), device("pp(2, microbatches=2)", DECODER), device("pp(2)", DECODER, microbatches=2)) == 1,
        refused("PP203", device("tp(2)"), device("tp(1)"), device("pp(2, microbatches=2)")) == 2,
        refused("PP104", device("pp(2, microbatches=2)", DECODER, microbatches=3), device("ddp(2)", microbatches=2)) == 2,
        refused("PP104", device("fsdp(2)", profile=TORCH, bucket_cap_mb=1), device("ddp(2)", bucket_cap_mb=1), device("ddp(2)", step=2))
        == 3,
        refused("PP101", device("fsdp(2) * pp(2)", DECODER, profile=TORCH), device("fsdp(2) * tp(2)", DECODER, profile=TORCH)) == 1,
        refused("PP101", device("ddp(2)", **view, implementations=["fsdp3"]), device("cp(2)", DECODER), device("ep(2)", DECODER)) == 3,
        refused("PP103", lambda: exact("fsdp(2)", ODD, rank=2).sent, lambda: exact("fsdp(2)", ODD, rank=1).sent) == 1,
    )


device_bytes_are_refused_that_were_not_measured.control(
    "a scalar of data parallelism",
    lambda: refused("PP202", device("ddp(2)", SCALAR, profile=TORCH, buffer="0")) == 1,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "austin2025scale"))
def times_are_refused_where_something_is_missing():
    """No time is told of a mesh without the axis, with an axis of no device, of more devices than a cluster may have, by an algorithm that
    there is not or that is for other groups; nor of a step of which a symbol has no value, at more than the peak, with an overlap that
    there is not, or in a format whose peak nobody says."""

    def send(**asked):
        return lambda: exchange("send", 8, cluster=A100, over="pp", **asked)

    def reduce(algorithm, **mesh):
        return lambda: exchange("all_reduce", 8, cluster=A100, over="dp", algorithm=algorithm, **mesh)

    def step(cluster=A100, **values):
        how = {name: values.pop(name) for name in ("overlap",) if name in values}
        return lambda: derived("ddp", model="gpt3-125m").seconds(cluster, **how, **{**WIDTHS, "eta": 1, "b": 1, **values})

    return holds(
        refused("PP305", send(tp=2), send(pp=2)) == 1,
        refused("PP103", send(pp=0), send(pp=2**20), send(pp=2**20 + 1)) == 2,
        refused("PP101", reduce("star", dp=4), reduce("ring", dp=4)) == 1,
        refused("PP104", reduce("halving_doubling", dp=6), reduce("folded", dp=6), reduce("ring", dp=6), reduce("hierarchical", dp=8)) == 2,
        refused("PP203", step(), step(N=2), step("cpu-xeon-8380", N=2), step("cpu-xeon-8380", N=2, b_theta=4)) == 2,
        refused("PP202", step(N=2, eta=2), step(N=2)) == 1,
        refused("PP104", step(N=2, overlap="some"), step(N=2, overlap="all")) == 1,
    )


times_are_refused_where_something_is_missing.control(
    "a ring of any number",
    lambda: refused("PP104", lambda: exchange("all_reduce", 8, cluster=A100, over="dp", algorithm="ring", dp=7)) == 1,
    refuted_at={},
)
