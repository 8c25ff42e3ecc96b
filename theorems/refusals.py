"""What is refused: sizes that degrees do not divide, degrees, ranks and options of which no figure would be right, and what was not
measured.

Each error has a code. A theorem counts the calls that end with one, so that what is refused stays refused, and what is not stays answered.
"""

from placeproof.clusters import read_text
from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.core.tables import Table
from placeproof.models.family import KIND, read_family
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
        refused("PP101", lambda: counted("no_family"), lambda: counted("llama")) == 1,
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
        refused("PP103", send(pp=0), send(pp=2**14), send(pp=2**20 + 1)) == 2,
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


CLUSTER = """
name = "two levels"
[device]
name = "d"
memory = 8
memory_bandwidth = 1e3
source = "s"
peak = { bf16 = 100 }
[node]
devices = 2
source = "s"
[levels.near]
joins = 4
latency = 0
bandwidth = 10
source = "s"
[levels.far]
joins = 16
latency = 1e-6
bandwidth = 1
source = "s"
"""


def clusters(old, *texts):
    """What is asked of a cluster's file in which a piece is another one."""
    return [lambda new=new: read_text(CLUSTER.replace(old, new, 1), source="a cluster") for new in texts]


@theorem(expect=Proved(), cite=("nvidia2021dgx", "austin2025scale"))
def clusters_that_contradict_themselves_are_refused():
    """A cluster is refused with a figure that is no positive number, or no number that anything has, or is missing; with a format that
    there is not; with levels of which one does not join two or more whole blocks of the one before it, or neither whole nodes nor an equal
    part of one; and with a level that joins all before the last. A latency may be 0. Nor has it more devices
    than its last level joins."""
    return holds(
        refused("PP112", *clusters("memory = 8", *(f"memory = {n}" for n in ("0", "-1", "true", '"8"', "inf", "1e101", "1e99", "8.5"))))
        == 6,
        refused("PP112", *clusters("latency = 0", *(f"latency = {n}" for n in ("-1", "0", "1e-9")))) == 1,
        refused("PP112", *clusters("joins = 4", *(f"joins = {n}" for n in (1, 2, 3, 4, 8)))) == 2,
        refused("PP112", *clusters("joins = 16", *(f"joins = {n}" for n in (4, 8, 16, 18, 20)), "")) == 2,
        refused("PP112", *clusters("devices = 2", *(f"devices = {n}" for n in (1, 3, 4, 6, 8)))) == 2,
        refused("PP113", *(make for old in ("devices = 2", "joins = 4", "joins = 16", "memory = 8") for make in clusters(old, ""))) == 3,
        refused("PP111", *clusters("bf16", "bf17", "fp8")) == 1,
        refused("PP103", *(lambda n=n: read_text(CLUSTER, source="a cluster").groups({"dp": n}, "dp") for n in (0, 1, 16, 17))) == 2,
    )


clusters_that_contradict_themselves_are_refused.control(
    "a level within nodes", lambda: refused("PP112", *clusters("devices = 2", "devices = 8")) == 1, refuted_at={}
)


FAMILY = """
name = "f"
title = "t"
source = "s"
shared = ["gain"]
[defaults]
f = "4*h"
[dims]
batch = "b"
tokens = "s"
hidden = "h"
ffn = "f"
[groups]
w1 = "matrix"
[buffers.swiglu]
scale = ["ffn"]
[stack.layers]
times = "L"
blocks = ["rms_norm", "swiglu"]
[options.plain]
default = "no"
no = {}
yes.blocks = { rms_norm = "layer_norm" }
"""
#: Of what a family does not agree on, a piece of its file, what stands there then, and the code of the error.
DISAGREES = (
    ("PP502", '"rms_norm", "swiglu"]', '"rms_nrm", "swiglu"]'),
    ("PP502", 'hidden = "h"', 'hidden = "h"\nwide = "h"'),
    ("PP502", 'w1 = "matrix"', 'w9 = "matrix"'),
    ("PP502", 'w1 = "matrix"', 'w1 = "matrices"'),
    ("PP502", '["gain"]', '["gains"]'),
    ("PP502", "buffers.swiglu", "buffers.head"),
    ("PP502", "{ rms_norm =", "{ embedding ="),
    ("PP502", "yes.blocks", 'yes.ones = ["mask"]\nyes.blocks'),
    ("PP502", 'f = "4*h"', 'f = "4*h"\nd = "h"'),
    ("PP503", '["rms_norm", "swiglu"]', "[]"),
    ("PP503", 'hidden = "h"', ""),
    ("PP503", '["ffn"]', '["keys"]'),
    ("PP503", 'default = "no"', 'default = "maybe"'),
    ("PP503", 'times = "L"', 'times = "L +"'),
    ("PP504", 'f = "4*h"', 'f = "g"\ng = "f"'),
    ("PP504", 'f = "4*h"', 'f = "f"'),
    ("PP201", 'times = "L"', 'times = "Q"'),
)


@theorem(expect=Proved(), cite=("radford2019language", "touvron2023llama"))
def families_whose_parts_disagree_are_refused():
    """A family is refused that names blocks, weights, dimensions, groups, symbols or tensors that there are not, leaves a size unsaid or
    says one that nothing has, has no block, an option without its usual value, or a default that rests on itself. One whose parts agree is
    read.
    """

    def family(old, new):
        return lambda: read_family(Table.read(FAMILY.replace(old, new, 1), kind=KIND, source="a family"), folder=None)

    codes = ("PP502", "PP503", "PP504", "PP201")
    agrees = [refused(code, family("", "")) == 0 for code in codes]
    wrong = {code: [(old, new) for own, old, new in DISAGREES if own == code] for code in codes}
    return holds(agrees, [refused(code, *(family(old, new) for old, new in pairs)) == len(pairs) for code, pairs in wrong.items()])


def with_default(text):
    """A family whose defaults say one more."""
    return lambda: read_family(Table.read(FAMILY.replace("[dims]", f"{text}\n[dims]", 1), kind=KIND, source="a family"), folder=None)


families_whose_parts_disagree_are_refused.control(
    "a default that nothing rests on is no error", lambda: refused("PP502", with_default('d = "h"')) == 0, refuted_at={}
)
