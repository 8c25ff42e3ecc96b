"""What holds of every strategy of the catalogue: of each alone, with each of its options, and of any two together.

Nothing is typed in but what one device holds: so a strategy that joins the catalogue is spoken of as well.
"""

from functools import cache

from placeproof.core.symbols import symbol
from placeproof.programs import Program
from placeproof.semantics.catalogue import compositions, variants
from placeproof.theory import Degree, Proved, Real, derived, holds, maximum, refused, theorem, units, without_call, wrong

MODELLED = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "tp", "tp * sp", "cp", "zero_offload", "zero1 * tp * cp", "tp * checkpoint")


@cache
def every():
    """Compositions of one and two strategies, and each option of one: their programs, by their expressions."""
    options = {text: made for text, made in variants() if text.count("*") < 2}
    return {text: made for text, made in (dict(compositions(2)) | options).items() if isinstance(made, Program)}


@cache
def costs(text):
    """What a composition costs."""
    return derived(text)


def trained(text, parameters, adapters, frozen):
    """The parameters that are trained: all of them, adapters alone, or all but those that are frozen."""
    return adapters if "lora" in text else parameters - frozen if "freeze" in text else parameters


def updated(text, b_omega, b_master, b_nu, rho, b_pre, sigma):
    """Bytes of optimizer state for each parameter that is trained: Adafactor has factors beside a wide copy, Shampoo preconditioners beside
    moments."""
    return b_master + b_nu * rho if "adafactor" in text else b_omega + b_pre * sigma if "shampoo" in text else b_omega


def on_one(amount, **more):
    """An amount where each axis has one device."""
    degrees = [s.name for s in amount.expr.free_symbols if s.name == "N" or s.name.startswith("N_")]
    return amount.where(**dict.fromkeys(degrees, 1), **more)


@theorem(expect=Proved(), cite="mehta2026placement")
def every_composition_trains():
    """Each strategy of the catalogue trains what one device does: alone, with each option, and with any other that it goes with."""
    return wrong(*every().values()) == 0


every_composition_trains.control(
    "one of them does not gather", lambda: wrong(every()["tp * zero1"], without_call("zero1 * pp", "all_gather")) == 0, refuted_at={}
).control("one of them clips by the norm of a part", lambda: wrong(without_call("tp * clip", "all_reduce", 3)) == 0, refuted_at={})


@theorem(expect=Proved(), cite="mehta2026placement")
def every_composition_has_costs():
    """Of no composition of the catalogue costs are refused."""
    return (
        refused("any", *(lambda text=text: (costs(text).memory("peak"), costs(text).sent, costs(text).undivided) for text in every())) == 0
    )


every_composition_has_costs.control("of a strategy that there is not", lambda: refused("any", lambda: costs("zero4")) == 0, refuted_at={})


@theorem(expect=Proved(), cite="mehta2026placement")
def one_device_holds_all(
    P: Real,
    P_adapter: Real,
    P_frozen: Real,
    L: Real,
    b: Real["sequence"],
    s: Real["token / sequence"],
    h: Real["element / token"],
    b_theta: Real,
    b_g: Real,
    b_omega: Real,
    b_master: Real,
    b_nu: Real,
    rho: Real,
    b_pre: Real,
    sigma: Real,
    b_frozen: Real,
    b_a: Real,
):
    """On one device along each axis, the device and its host hold together all of the model states, under whatever strategy; checkpoints
    that are put on the host come on top. What is held undivided is that, on any number of devices. What is frozen has parameters alone."""
    goals = []
    for text in every():
        own = trained(text, P, P_adapter, P_frozen)
        whole = own * (b_theta + b_g + updated(text, b_omega, b_master, b_nu, rho, b_pre, sigma)) + (P - own) * b_frozen
        stored = L * b * s * h * b_a if "checkpoints=host" in text else 0
        goals += [on_one(costs(text).memory() + costs(text).memory("host")) == whole + stored, costs(text).undivided == whole]
    return holds(goals)


one_device_holds_all.control(
    "on the device",
    lambda P, b_theta, b_g, b_omega: on_one(costs("zero_offload").memory()) == P * (b_theta + b_g + b_omega),
    refuted_at={
        "P": 1, "P_adapter": 0, "P_frozen": 0, "L": 1, "b": 1, "s": 1, "h": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_master": 4,
        "b_nu": 4, "rho": 1, "b_pre": 8, "sigma": 2, "b_frozen": 2, "b_a": 2,
    },
)  # fmt: skip

#: What a device sends to itself: what is broadcast passes on all of it, by convention, and two copies of a stage lie on one device.
TO_ITSELF = {"zero1(back=broadcast)": "b_theta", "zero2(back=broadcast)": "b_theta", "pp(schedule=dualpipe)": "b_g"}


@theorem(expect=Proved(), cite="mehta2026placement")
def one_device_sends_nothing(P: Real, b_theta: Real, b_g: Real):
    """On one device along each axis nothing is sent along any, but for the conventions of broadcasts, and of two copies of a stage."""
    return holds([on_one(costs(text).sent) == (P * symbol(TO_ITSELF[text]) if text in TO_ITSELF else 0) for text in every()])


one_device_sends_nothing.control(
    "nor does each of two", lambda: costs("zero1").sent.where(N=2) == 0, refuted_at={"P": 1, "b_theta": 2, "b_g": 2}
)


@theorem(expect=Proved(), cite=("chen2016sublinear", "huang2019gpipe"))
def one_device_keeps_what_one_micro_batch_has(
    A: Real, L: Real, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """On one device along each axis, and with one micro-batch, activations are those of the batch, or, with checkpoints, the stream before
    each layer, on the device or on its host; where the second half of the stages runs back, a device has both, and counts them once more by
    half. The peak is what is held, kept, and passing."""
    goals = []
    for text in every():
        stored, twice = "checkpoint" in text or "zero_r" in text, 3 if "dualpipe-v" in text else 2
        kept = 0 if "checkpoints=host" in text else L * b * s * h * b_a if stored else A * b_a
        goals += [2 * on_one(costs(text).memory("activations"), m=1) == twice * kept]
    return holds([goal for goal in goals if not goal.trivial()])


one_device_keeps_what_one_micro_batch_has.control(
    "with two micro-batches, too",
    lambda A, b_a: costs("accumulate").memory("activations").where(m=2) == A * b_a,
    refuted_at={"A": 1, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(
    expect=Proved(), cite=("ren2021offload", "rajbhandari2021infinity"),
    skip={"dimensions": "4 bytes of a gradient for each parameter are written as 4"},
)  # fmt: skip
def hosts_are_asked_for_half_more(
    b_g: Real,
    P: Real,
    P_adapter: Real,
    P_frozen: Real,
    b_theta: Real,
    b_omega: Real,
    b_master: Real,
    b_nu: Real,
    rho: Real,
    b_pre: Real,
    sigma: Real,
    b_frozen: Real,
):
    """Of a host DeepSpeed asks for 3/2 of the model states that it holds, in which a gradient takes 4 bytes at least, and exists wherever
    optimizer state does: of every composition with offload, here on one device."""
    goals = []
    for text in every():
        if "offload" in text or "infinity" in text:
            held, asked = (on_one(costs(text).memory(key)) for key in ("host", "host_asked"))
            goals += [2 * asked == 3 * (held + trained(text, P, P_adapter, P_frozen) * (maximum(4, b_g) - b_g))]
    return holds(goals)


hosts_are_asked_for_half_more.control(
    "for what they hold",
    lambda: on_one(costs("zero_offload").memory("host_asked")) == on_one(costs("zero_offload").memory("host")),
    refuted_at={
        "P": 1,
        "P_adapter": 0,
        "P_frozen": 0,
        "b_theta": 2,
        "b_g": 4,
        "b_omega": 12,
        "b_master": 4,
        "b_nu": 4,
        "rho": 1,
        "b_pre": 8,
        "sigma": 2,
        "b_frozen": 2,
    },
)


@theorem(expect=Proved(), cite=("rajbhandari2021infinity", "chen2016sublinear"))
def hosts_are_asked_for_checkpoints_as_they_are(
    L: Real, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """For checkpoints that lie on the host, DeepSpeed asks for as many bytes as they take, here on one device."""
    stored = [text for text in every() if "checkpoints=host" in text]
    return holds([on_one(costs(text).memory("host_asked")) == L * b * s * h * b_a for text in stored])


hosts_are_asked_for_checkpoints_as_they_are.control(
    "for half more",
    lambda L, b, s, h, b_a: 2 * on_one(costs("checkpoint(checkpoints=host)").memory("host_asked")) == 3 * L * b * s * h * b_a,
    refuted_at={"L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "shoeybi2019megatron", "rajbhandari2020zero"))
def one_device_does_all_of_a_model(
    L: Real, h: Real, V: Real, s: Real, a: Real, b: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """On one device along each axis, a model has all of its parameters and model states, keeps what it keeps on one device, sends nothing,
    and computes all of its operations, under each strategy."""
    alone, goals = derived("ddp", model="gpt"), []
    whole = alone.parameters() * (b_theta + b_g + b_omega)
    for text in MODELLED:
        one = derived(text, model="gpt")
        goals += [on_one(one.parameters()) == alone.parameters(), on_one(one.memory() + one.memory("host")) == whole]
        goals += [on_one(one.sent) == 0 * units("byte"), on_one(one.work("model")) == alone.work("model")]
        if "checkpoint" not in text:
            goals += [on_one(one.memory("activations")) == alone.memory("activations")]
    return holds([goal for goal in goals if not goal.trivial()])


one_device_does_all_of_a_model.control(
    "on two devices",
    lambda: derived("tp", model="gpt").work("model").where(N=2) == derived("ddp", model="gpt").work("model"),
    refuted_at={"L": 1, "h": 1, "V": 1, "s": 1, "a": 1, "b": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2},
)


@theorem(expect=Proved(), cite=("lepikhin2021gshard", "shoeybi2019megatron", "rajbhandari2020zero"))
def experts_are_split_as_matrices_or_each_is_whole(
    P: Real, P_expert: Real, N_dp: Degree, N_ep: Degree, N_tp: Degree, b_theta: Real, b_g: Real, b_omega: Real
):
    """Beside expert and tensor parallelism, with the stream split by tokens or not, data parallelism and ZeRO of each stage hold and send
    of states what they do beside expert parallelism alone of what tensor parallelism leaves: a part of experts as of other matrices, or, if
    each is to be whole, all of them, and a part of the rest."""
    goals = []
    for base in ("ep", "ddp * ep", "zero1 * ep", "zero2 * ep", "zero3 * ep"):
        alone, named = costs(base), {"N": N_ep} if base == "ep" else {}
        for way, left in (("", P_expert / N_tp), ("(experts=whole)", P_expert)):
            for tensor in ("tp", "tp * sp"):
                both, sizes = costs(f"{base}{way} * {tensor}"), {"P": (P - P_expert) / N_tp + left, "P_expert": left, **named}
                goals += [both.memory(key) == alone.memory(key).where(**sizes) for key in ("parameters", "gradients", "optimizer")]
                over = {"ep": ("ep",), "ddp * ep": ("dp", "dp*ep")}.get(base, ("dp", "ep"))
                goals += [both.over(axes) == alone.over(axes).where(**sizes) for axes in over]
    return holds([goal for goal in goals if not goal.trivial()])


experts_are_split_as_matrices_or_each_is_whole.control(
    "whole experts are split",
    lambda P, N_tp: costs("zero1 * ep(experts=whole) * tp").memory() == costs("zero1 * ep").memory().where(P=P / N_tp),
    refuted_at={"P": 2, "P_expert": 1, "N_dp": 1, "N_ep": 1, "N_tp": 2, "b_theta": 2, "b_g": 2, "b_omega": 12},
)


#: Strategies with degrees, each with what they are without, and a model with sizes of its own.
SAID = (
    ("hsdp(2, 4) * tp(2) * sp * cp(2)", "hsdp * tp * sp * cp", {"N_rep": 2, "N_shard": 4, "N_tp": 2, "N_cp": 2}, "bloom"),
    ("zero3(4) * tp(2)", "zero3 * tp", {"N_dp": 4, "N_tp": 2}, "gpt"),
    ("zero1(4) * ep(2) * tp(2)", "zero1 * ep * tp", {"N_dp": 4, "N_ep": 2, "N_tp": 2}, "mixtral"),
    ("cp(4, attention=gather)", "cp(attention=gather)", {"N": 4}, "llama"),
    ("cp(2, attention=ulysses) * fsdp(2)", "cp(attention=ulysses) * fsdp", {"N_cp": 2, "N_dp": 2}, "llama"),
)


@theorem(expect=Proved(), cite=("mehta2026placement", "narayanan2021megatron"))
def a_degree_that_is_said_is_the_number_of_an_open_one(
    P: Real, P_expert: Real, U: Real, A: Real, A_seq: Real, A_expert: Real, L: Real, b: Real["sequence"], s: Real["token / sequence"],
    h: Real["element / token"], b_theta: Real, b_g: Real, b_omega: Real, b_a: Real,
):  # fmt: skip
    """What a strategy with degrees costs is what it costs without, at these numbers: what is held, kept and passing, and what is sent."""
    goals = []
    for text, open_text, degrees, _ in SAID:
        said, left = costs(text), costs(open_text)
        goals += [said.memory(key) == left.memory(key).where(**degrees) for key in ("model_states", "activations", "peak")]
        goals += [said.sent == left.sent.where(**degrees)]
    return holds([goal for goal in goals if not goal.trivial()])


a_degree_that_is_said_is_the_number_of_an_open_one.control(
    "at another number",
    lambda: costs("zero3(4) * tp(2)").memory() == costs("zero3 * tp").memory().where(N_dp=2, N_tp=2),
    refuted_at={
        "P": 1, "P_expert": 0, "U": 0, "A": 0, "A_seq": 0, "A_expert": 0, "L": 1, "b": 1, "s": 1, "h": 1,
        "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2,
    },
)  # fmt: skip


@theorem(expect=Proved(), cite=("mehta2026placement", "narayanan2021megatron"))
def a_degree_that_is_said_is_one_of_a_model_too(
    L: Real, h: Real, V: Real, s: Real, a: Real, b: Real, k: Real, c: Real, E: Real, f_e: Real, b_theta: Real, b_g: Real, b_omega: Real,
    b_a: Real,
):  # fmt: skip
    """Of models, too: what is held, kept, passing and computed, and what is sent, with numbers for degrees or with symbols."""
    goals = []
    for text, open_text, degrees, model in SAID:
        said, left = derived(text, model=model), derived(open_text, model=model)
        goals += [said.memory(key) == left.memory(key).where(**degrees) for key in ("model_states", "activations", "peak")]
        goals += [said.sent == left.sent.where(**degrees), said.work("total") == left.work("total").where(**degrees)]
    return holds([goal for goal in goals if not goal.trivial()])


a_degree_that_is_said_is_one_of_a_model_too.control(
    "at another number",
    lambda: derived("zero3(4) * tp(2)", model="gpt").sent == derived("zero3 * tp", model="gpt").sent.where(N_dp=2, N_tp=2),
    refuted_at={
        "L": 1, "h": 1, "V": 1, "s": 1, "a": 1, "b": 1, "k": 1, "c": 1, "E": 1, "f_e": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2,
    },
)  # fmt: skip
