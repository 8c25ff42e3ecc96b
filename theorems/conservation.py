"""Conservation: what all devices send is what all devices receive.

Of any messages whatever, and of those of the product: the rounds of its algorithms of collectives, and what devices exchange in its
schedules of pipelines. The t-th message goes from device sender(t) to device receiver(t) and has size(t) bytes, all three arbitrary.
Devices are 0, 1, ...
"""

from __future__ import annotations

from placeproof.schedules import names
from placeproof.theory import (
    Degree,
    Natural,
    Proved,
    Real,
    Refuted,
    absolute,
    algorithm,
    by_induction,
    collective,
    data,
    indicator,
    minimum,
    recursive,
    schedule,
    theorem,
)

from .collective_forms import FLAT, LEVELS
from .information_flow import hits

sender, receiver, size = data("sender"), data("receiver"), data("size")

# Any messages.


@recursive(on="t", reals=("d",))
def sends(t, d):
    """Bytes that device d sends in the first t messages."""
    return 0, sends(t - 1, d) + indicator(sender(t), d) * size(t)


@recursive(on="t", reals=("d",))
def receives(t, d):
    """Bytes that device d receives in the first t messages."""
    return 0, receives(t - 1, d) + indicator(receiver(t), d) * size(t)


@recursive(on="m")
def all_send(m, t):
    """Bytes that the devices before m send in the first t messages."""
    return 0, all_send(m - 1, t) + sends(t, m - 1)


@recursive(on="m")
def all_receive(m, t):
    """Bytes that the devices before m receive in the first t messages."""
    return 0, all_receive(m - 1, t) + receives(t, m - 1)


@recursive(on="t")
def in_all(t):
    """The bytes of the first t messages."""
    return 0, in_all(t - 1) + size(t)


@recursive(on="t")
def among(t, n):
    """0 if the first t messages go between n devices, and less if not: sender and receiver of each are one of them."""
    return 0, minimum(among(t - 1, n), -absolute(hits(n, sender(t)) - 1), -absolute(hits(n, receiver(t)) - 1))


@theorem(expect=Proved(), cite="patarasuk2009")
def before_the_first_message_nothing_is_sent(m: Natural):
    """Devices have sent nothing before the first message."""
    return by_induction(all_send(m, 0) == 0, on=m)


before_the_first_message_nothing_is_sent.control("a byte each", lambda m: all_send(m, 0) == m, refuted_at={"m": 1})


@theorem(expect=Proved(), cite="patarasuk2009")
def before_the_first_message_nothing_is_received(m: Natural):
    """Devices have received nothing before the first message."""
    return by_induction(all_receive(m, 0) == 0, on=m)


before_the_first_message_nothing_is_received.control("a byte each", lambda m: all_receive(m, 0) == m, refuted_at={"m": 1})


@theorem(expect=Proved(), cite="patarasuk2009")
def a_message_is_sent_by_its_sender_alone(m: Natural, t: Degree):
    """With message t, devices before m send its bytes more as often as its sender is among them."""
    return by_induction(all_send(m, t) == all_send(m, t - 1) + hits(m, sender(t)) * size(t), on=m)


a_message_is_sent_by_its_sender_alone.control(
    "always", lambda m, t: all_send(m, t) == all_send(m, t - 1) + size(t), refuted_at={"m": 0, "t": 1}
)


@theorem(expect=Proved(), cite="patarasuk2009")
def a_message_is_received_by_its_receiver_alone(m: Natural, t: Degree):
    """With message t, devices before m receive its bytes more as often as its receiver is among them."""
    return by_induction(all_receive(m, t) == all_receive(m, t - 1) + hits(m, receiver(t)) * size(t), on=m)


a_message_is_received_by_its_receiver_alone.control(
    "always", lambda m, t: all_receive(m, t) == all_receive(m, t - 1) + size(t), refuted_at={"m": 0, "t": 1}
)


@theorem(expect=Proved(), cite="patarasuk2009")
def devices_send_the_bytes_of_all_messages(t: Natural, n: Natural):
    """n devices send the bytes of all messages between them, each once."""
    lemmas = [a_message_is_sent_by_its_sender_alone.at(m=n, t=t), before_the_first_message_nothing_is_sent.at(m=n)]
    return by_induction(all_send(n, t) == in_all(t), on=t, given=[among(t, n) >= 0], lemmas=lemmas)


devices_send_the_bytes_of_all_messages.control("whoever sends them", lambda t, n: all_send(n, t) == in_all(t), refuted_at={"t": 1, "n": 0})


@theorem(expect=Proved(), cite="patarasuk2009")
def all_devices_receive_what_all_devices_send(t: Natural, n: Natural):
    """Whatever messages n devices send one another, what all of them receive is what all of them send."""
    lemmas = [
        a_message_is_received_by_its_receiver_alone.at(m=n, t=t),
        a_message_is_sent_by_its_sender_alone.at(m=n, t=t),
        before_the_first_message_nothing_is_received.at(m=n),
        before_the_first_message_nothing_is_sent.at(m=n),
    ]
    return by_induction(all_receive(n, t) == all_send(n, t), on=t, given=[among(t, n) >= 0], lemmas=lemmas)


all_devices_receive_what_all_devices_send.control(
    "also what goes to others", lambda t, n: all_receive(n, t) == all_send(n, t), refuted_at={"t": 1, "n": 3}
)

# The rounds of the product's algorithms.

ALL = [(kind, name) for kind, rows in FLAT.items() for name in rows]
LEVELLED = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


@theorem(expect=Proved(), cite=("thakur2005", "cho2019blueconnect"))
def messages_of_algorithms_go_between_their_devices():
    """In the rounds of each algorithm, over groups of up to 17 devices and of several levels, every message goes from a device of the group
    to another one: so what all of them receive is what all of them send."""
    return [algorithm(*row).astray() == 0 for row in ALL] + [algorithm(kind, "hierarchical").astray(LEVELS) == 0 for kind in LEVELLED]


messages_of_algorithms_go_between_their_devices.control(
    "and there is none", lambda: algorithm("all_reduce", "ring").in_all(4).where(s=1) == 0, refuted_at={}
)

#: Algorithms by which some device receives more than it sends: by the ends of lines and chains, by leaves of trees, by folded neighbours.
UNEVEN = {
    ("all_reduce", "folded"),
    ("all_gather", "line"),
    ("broadcast", "tree"),
    ("broadcast", "scatter_gather"),
    ("broadcast", "chain"),
    ("reduce", "tree"),
    ("reduce", "chain"),
    ("scatter", "tree"),
    ("send", "message"),
}


@theorem(expect=Proved(), cite=("thakur2005", "cho2019blueconnect"))
def devices_receive_what_they_send_by_even_algorithms():
    """By each algorithm of a collective that leaves all devices alike, but for lines and folded ones, each device receives as many bytes as
    it sends, in groups of up to 17 devices and of several levels; by trees, too, if a reduce is followed by a broadcast."""
    even = [algorithm(*row).unbalanced() == 0 for row in ALL if row not in UNEVEN]
    return even + [algorithm(kind, "hierarchical").unbalanced(LEVELS) == 0 for kind in LEVELLED]


devices_receive_what_they_send_by_even_algorithms.control(
    "by any", lambda: [algorithm(*row).unbalanced((2, 3, 4)) == 0 for row in sorted(UNEVEN)], refuted_at={}
)

OPTIMAL = {
    "all_reduce": ("ring", "halving_doubling", "tree", "bidirectional"),
    "reduce_scatter": ("ring", "halving", "bidirectional"),
    "all_gather": ("ring", "doubling", "bruck", "neighbour_exchange", "bidirectional", "line"),
    "all_to_all": ("pairwise",),
}


@theorem(expect=Proved(), cite=("patarasuk2009", "chan2007collective"))
def devices_send_in_all_what_the_table_says_of_each(s: Real):
    """By the algorithms that waste nothing, 8 devices send in all 8 times what the table of collectives says of each; by a line and by
    trees, too, which have some send more than others. So do 2 * 4 over two levels."""
    flat = [algorithm(kind, name).in_all(8) == 8 * collective(kind).sent(8, s) for kind, rows in OPTIMAL.items() for name in rows]
    levels = [algorithm(kind, "hierarchical").in_all(2, 4) == 8 * collective(kind).sent(8, s) for kind in LEVELLED[:3]]
    return flat + levels


devices_send_in_all_what_the_table_says_of_each.control(
    "so does an all-reduce by doubling, of whole tensors",
    lambda s: algorithm("all_reduce", "doubling").in_all(8) == 8 * collective("all_reduce").sent(8, s),
    refuted_at={"s": 1},
)


# Pipelines.


@theorem(expect=Proved(), cite="narayanan2021megatron")
def devices_of_a_pipeline_receive_what_they_send():
    """In each schedule of the product, on up to 4 devices, a device receives as many activations and gradients as it sends: what crosses a
    border of stages for a micro-batch comes back over it as a gradient."""
    sizes = {"dualpipe": {"p": (2, 4), "m": range(4, 11, 2)}}
    return [schedule(name).unreceived(**sizes.get(name, {})) == 0 for name in names()]


devices_of_a_pipeline_receive_what_they_send.control(
    "because there are none", lambda: schedule("1f1b").messages.where(p=2, m=2) == 0, refuted_at={}
)


@theorem(
    expect=Refuted(witness={"s": 1}, because="the root of a tree sends more than it receives, and a leaf receives more than it sends"),
    cite="thakur2005",
)
def every_device_receives_what_it_sends_in_a_broadcast(s: Real):
    """In a broadcast by a tree, as in an all-reduce by two of them, each device receives what it sends."""
    return algorithm("broadcast", "tree").unbalanced((4,)) * s == algorithm("all_reduce", "tree").unbalanced((4,)) * s


every_device_receives_what_it_sends_in_a_broadcast.control(
    "in all, they receive what they send: each but the root gets the whole once",
    lambda s: algorithm("broadcast", "tree").in_all(4) == 3 * s,
    proved=True,
)
