"""What options change, and what another axis changes: each claim holds two derivations of the product against one another.

An option's claim says by how much each cost differs from the strategy's without it. An axis's claim says that whatever a strategy holds and
sends beside the axis is what it holds and sends alone of another model: with so many of the parameters, of a unit, and of the activations.
U is a unit's parameters, the root's are U_root.
"""

from functools import lru_cache

from placeproof.collectives import COLLECTIVES
from placeproof.core.symbols import symbol
from placeproof.theory import Degree, Positive, Proved, Real, derived, holds, minimum, theorem

#: Strategies that gather parameters by units, with the degree of the axis over which they do.
GATHERED = {"zero3": "N", "fsdp": "N", "hsdp": "N_shard", "zero_infinity": "N"}
#: What a device holds in passing, keeps, and has and asks for on its host.
HELD = ("model_states", "transient", "activations", "host", "host_asked")


@lru_cache(maxsize=256)
def costs(text):
    """What a strategy costs, derived once for all theorems."""
    return derived(text)


def ring(collective, n, size):
    """What a collective sends, by the table of collectives."""
    return COLLECTIVES[collective].sent(symbol(n), size)


def bytes_of(count, width):
    """So many elements in bytes, of symbols."""
    return symbol(count) * symbol(width)


def differs(text, base, *, sent=0, link=0, **held):
    """That a strategy costs what another one does, but for so much more; ``sent``: over all axes, ``link``: to and from the host."""
    one, other = costs(text), costs(base)
    goals = [
        one.memory(key) == other.memory(key) + held.get(key, 0) for key in HELD if key != "host_asked"
    ]  # of at least 4 bytes: no scale
    goals += [one.sent == other.sent + sent, one.host_link == other.host_link + link]
    goals.append(one.memory("peak") == other.memory("peak") + sum(held.get(key, 0) for key in ("model_states", "transient", "activations")))
    return [goal for goal in goals if not goal.trivial()]


# Options.


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp", "rajbhandari2021infinity"))
def options_of_gathering_cost_what_they_keep(
    P: Real, N: Degree, N_rep: Degree, N_shard: Degree, U: Real, U_root: Real, A: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """Of ZeRO stage 3, FSDP, hybrid sharding and ZeRO-Infinity: a model that is gathered as one unit is held whole in place of a unit, and
    the next unit that is gathered meanwhile is held beside it, both for as many bytes sent. A root that stays gathered is held beside a
    unit, and gathered once less. Gathered parameters that stay from forward to backward are held whole, and all gathered once less."""
    goals = []
    for name, n in GATHERED.items():
        goals += differs(f"{name}(unit=model)", name, transient=(symbol("P") - symbol("U")) * symbol("b_theta"))
        goals += differs(f"{name}(prefetch=true)", name, transient=bytes_of("U", "b_theta"))
        if name != "zero_infinity":
            root = bytes_of("U_root", "b_theta")
            goals += differs(f"{name}(root=keep)", name, transient=root, sent=-ring("all_gather", n, root))
        if name in ("fsdp", "hsdp"):
            whole = bytes_of("P", "b_theta")
            kept = differs(f"{name}(reshard_after_forward=false)", name, transient=whole - bytes_of("U", "b_theta"),
                           sent=-ring("all_gather", n, whole))  # fmt: skip
            goals += kept
    return holds(goals)


options_of_gathering_cost_what_they_keep.control(
    "the next unit costs a gather more",
    lambda: costs("zero3(prefetch=true)").sent == costs("zero3").sent + ring("all_gather", "N", bytes_of("U", "b_theta")),
    refuted_at={"N": 2, "U": 1, "b_theta": 1},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp"))
def options_of_reducing_cost_what_they_move(
    P: Real, N: Degree, N_rep: Degree, N_shard: Degree, U: Real, A: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """A unit's gradients that are produced before they are reduced are held beside what is gathered, for as many bytes sent. Stages 1 and 2
    that reduce to all send a gather of the gradients more, and those that bring parameters back by broadcasts send all that they are in
    place of a gather; neither changes what is held."""
    goals = []
    for name in ("zero2", "zero3", "fsdp", "hsdp"):
        goals += differs(f"{name}(bucket=unit)", name, transient=bytes_of("U", "b_g"))
    theta = bytes_of("P", "b_theta")
    for name in ("zero1", "zero2"):
        goals += differs(f"{name}(reduce=all_reduce)", name, sent=ring("all_gather", "N", bytes_of("P", "b_g")))
        back = ring("broadcast", "N", theta) - ring("all_gather", "N", theta)
        goals += differs(f"{name}(back=broadcast)", name, sent=back)
    return holds(goals)


options_of_reducing_cost_what_they_move.control(
    "broadcasts send as much as a gather",
    lambda: costs("zero1(back=broadcast)").sent == costs("zero1").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 1},
)


@theorem(expect=Proved(), cite="wang2023zeropp")
def quantised_collectives_send_by_their_widths(
    P: Real, N: Degree, N_node: Degree, U: Real, A: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real, b_qw: Real, b_qg: Real
):
    """ZeRO++ without a copy in each node, and with the widths of stage 3, sends what stage 3 does and holds what it does, however
    its devices are shared out over nodes. With the copy, each node holds all parameters once more, and gathers them for backward."""
    plain = [costs("zeropp(node=true, qwz=b_theta, qgz=b_g)"), costs("zero3")]
    goals = [plain[0].memory(key) == plain[1].memory(key) for key in (*HELD, "peak")] + [plain[0].sent == plain[1].sent]
    copy = symbol("P") * symbol("b_theta") / symbol("N_node")
    saved = ring("all_gather", "N_node", bytes_of("P", "b_theta")) - ring("all_gather", "N", bytes_of("P", "b_qw"))
    goals += differs("zeropp", "zeropp(node=true)", transient=copy, sent=saved)
    wide = costs("zeropp").sent.where(b_qw=symbol("b_theta"), b_qg=symbol("b_g"))
    goals += [costs("zeropp(qwz=b_theta, qgz=b_g)").sent == wide]
    return holds([goal for goal in goals if not goal.trivial()])


quantised_collectives_send_by_their_widths.control(
    "in a width of its own, it sends as much",
    lambda: costs("zeropp(node=true)").sent == costs("zero3").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 2, "b_g": 2, "b_qw": 1, "b_qg": 1},
)


@theorem(expect=Proved(), cite=("chen2016sublinear", "rajbhandari2020zero"))
def checkpoints_on_the_host_cross_twice(
    P: Real, N: Degree, A: Real, A_seq: Real, L: Positive, b: Real, s: Real, h: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """Checkpoints that lie on the host are kept there in place of the device, in parts where the device kept parts, and cross the link
    once for each direction."""
    goals = []
    for text, base in (("checkpoint(checkpoints=host)", "checkpoint"), ("tp * zero_r(checkpoints=host)", "tp * zero_r")):
        kept = costs(base).memory("activations").expr
        goals += differs(text, base, activations=-kept, host=kept, host_asked=kept, link=2 * kept)
    return holds(goals)


checkpoints_on_the_host_cross_twice.control(
    "they cross once",
    lambda: costs("checkpoint(checkpoints=host)").host_link == costs("checkpoint").memory("activations"),
    refuted_at={"L": 1, "b": 1, "s": 1, "h": 1, "b_a": 1},
)


# Axes.

#: Strategies over one axis of samples.
SAMPLES = ("zero1", "zero2", "zero3", "zero_offload", "zero_infinity")


#: Axes and passes beside them, each with what a device then has of the model: its parameters and a unit's, and its activations.
def beside(P, U, A, A_seq, N_dp, N_tp, N_pp, N_cp, m):
    """What strategies over samples and another axis cost, and what they cost alone of what the axis leaves of the model."""
    left = {
        "tp": {"P": P / N_tp, "U": U / N_tp, "A": A_seq + (A - A_seq) / N_tp},
        "tp * sp": {"P": P / N_tp, "U": U / N_tp, "A": A / N_tp},
        "pp": {"P": P / N_pp, "A": A * minimum(N_pp, m) / N_pp},
        "cp": {"A": A / N_cp},
    }
    for one in SAMPLES:
        for other, model in left.items():
            alone = f"{one} * accumulate" if other == "pp" else one
            yield costs(f"{one} * {other}"), costs(alone), {**model, "N": N_dp}


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero", "rajbhandari2021infinity"))
def what_is_held_beside_an_axis_is_held_alone_of_its_part(
    P: Real, N_dp: Degree, N_tp: Degree, N_pp: Degree, N_cp: Degree, U: Real, A: Real, A_seq: Real, m: Degree,
    b_theta: Real, b_g: Real, b_omega: Real, b_a: Real,
):  # fmt: skip
    """Beside tensor, sequence, context or pipeline parallelism, ZeRO of any stage and both kinds of offload hold on a device, on its host
    and in passing what they hold alone of the part of the model that the axis leaves. Units are of a stage's layers, whole.

    Norms are taken to have no parameters.
    """
    goals = []
    for both, alone, left in beside(P, U, A, A_seq, N_dp, N_tp, N_pp, N_cp, m):
        goals += [both.memory(key) == alone.memory(key).where(**left) for key in HELD]
    return holds([goal for goal in goals if not goal.trivial()])


what_is_held_beside_an_axis_is_held_alone_of_its_part.control(
    "a stage gathers a part of each unit",
    lambda: costs("zero3 * pp").memory("transient") == costs("zero3").memory("transient").where(U=symbol("U") / symbol("N_pp")),
    refuted_at={"U": 1, "b_theta": 1, "N_pp": 2},
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero", "rajbhandari2021infinity"))
def what_is_sent_beside_an_axis_is_sent_alone_of_its_part(
    P: Real, N_dp: Degree, N_tp: Degree, N_pp: Degree, N_cp: Real, U: Real, A: Real, A_seq: Real, m: Real, b_theta: Real, b_g: Real
):
    """Beside these axes, the same strategies send over their axis of samples, and to and from the host, what they send alone of the part
    of the model that the axis leaves; with stages, as often as micro-batches demand alone."""
    goals = []
    for both, alone, left in beside(P, U, A, A_seq, N_dp, N_tp, N_pp, N_cp, m):
        goals += [both.over("dp") == alone.sent.where(**left), both.host_link == alone.host_link.where(**left)]
    return holds([goal for goal in goals if not goal.trivial()])


what_is_sent_beside_an_axis_is_sent_alone_of_its_part.control(
    "stages gather once a step",
    lambda: costs("zero3 * pp").over("dp") == costs("zero3").sent.where(P=symbol("P") / symbol("N_pp"), N=symbol("N_dp")),
    refuted_at={"P": 1, "N_dp": 2, "N_pp": 2, "m": 2, "b_theta": 1, "b_g": 1},
)
