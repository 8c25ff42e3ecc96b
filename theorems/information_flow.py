"""No all-reduce sends less than a ring, and no all-gather: how the parts of n devices can reach all of them, and in how few messages.

The t-th message about byte b goes from device sender(b, t) to device receiver(b, t), both arbitrary; devices are 0, 1, ... A message may
carry all that its sender has, combined as it likes: nothing is asked of an algorithm but that each device's part has to reach each other.
"""

from __future__ import annotations

from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    Proved,
    Real,
    absolute,
    algorithm,
    by_induction,
    collective,
    data,
    floor,
    holds,
    indicator,
    maximum,
    minimum,
    recursive,
    theorem,
)

sender, receiver = data("sender", 2), data("receiver", 2)
count = data("count")


@recursive(on="t", reals=("d", "i", "b"))
def knows(t, d, i, b):
    """1 if t messages have led what device i began with to device d, else 0."""
    return indicator(d, i), maximum(knows(t - 1, d, i, b), indicator(d, receiver(b, t)) * knows(t - 1, sender(b, t), i, b))


@recursive(on="t", reals=("i", "b"))
def sends(t, i, b):
    """How many of t messages device i sends."""
    return 0, sends(t - 1, i, b) + indicator(sender(b, t), i)


@recursive(on="m", reals=("x",))
def hits(m, x):
    """How many of the devices before m are x."""
    return 0, hits(m - 1, x) + indicator(x, m - 1)


@recursive(on="m", reals=("b",))
def sent_by(m, t, b):
    """How many of t messages the devices before m send."""
    return 0, sent_by(m - 1, t, b) + sends(t, m - 1, b)


@recursive(on="m", reals=("d", "b"))
def complete(m, t, d, b):
    """1 if device d has the parts of all devices before m after t messages, else 0."""
    return 1, minimum(complete(m - 1, t, d, b), knows(t, d, m - 1, b))


@recursive(on="m", reals=("b",))
def completed(m, n, t, b):
    """How many of the devices before m have the parts of n devices."""
    return 0, completed(m - 1, n, t, b) + complete(n, t, m - 1, b)


SOURCE = "patarasuk2009"


@theorem(expect=Proved(), cite=SOURCE)
def a_device_knows_a_part_or_does_not(t: Natural, d: Real, i: Real, b: Real):
    """Knowing is 0 or 1."""
    return by_induction(knows(t, d, i, b) * (1 - knows(t, d, i, b)) == 0, on=t, at=[{}, {"d": sender(b, t + 1)}])


a_device_knows_a_part_or_does_not.control(
    "it always does", lambda t, d, i, b: knows(t, d, i, b) == 1, refuted_at={"t": 0, "d": 0, "i": 1, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def no_device_sends_less_than_nothing(t: Natural, i: Real, b: Real):
    """The number of messages of a device is not negative."""
    return by_induction(sends(t, i, b) >= 0, on=t)


no_device_sends_less_than_nothing.control("each sends one", lambda t, i, b: sends(t, i, b) >= 1, refuted_at={"t": 0, "i": 0, "b": 0})


@theorem(expect=Proved(), cite=SOURCE)
def a_part_is_known_elsewhere_of_a_message(t: Natural, d: Real, i: Real, b: Real):
    """What another device knows of device i, device i has sent at least once."""
    lemmas = [no_device_sends_less_than_nothing.at(t=t, i=i, b=b), a_device_knows_a_part_or_does_not.at(t=t, d=d, i=i, b=b)]
    return by_induction(knows(t, d, i, b) <= sends(t, i, b) + indicator(d, i), on=t, at=[{}, {"d": sender(b, t + 1)}], lemmas=lemmas)


a_part_is_known_elsewhere_of_a_message.control(
    "itself included", lambda t, d, i, b: knows(t, d, i, b) <= sends(t, i, b), refuted_at={"t": 0, "d": 1, "i": 1, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def no_device_from_m_on_is_before_m(m: Natural, x: Real):
    """None of the devices before m is x where x is m or more."""
    return by_induction(hits(m, x) == 0, on=m, given=[m <= x])


no_device_from_m_on_is_before_m.control(
    "nor where it is less by one", lambda m, x: holds(hits(m, x) == 0, given=[m <= x + 1]), refuted_at={"m": 1, "x": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def at_most_one_device_is_x(m: Natural, x: Real):
    """At most one of the devices before m is x."""
    return by_induction(hits(m, x) <= 1, on=m, lemmas=[no_device_from_m_on_is_before_m.at(m=m - 1, x=x)])


at_most_one_device_is_x.control("none", lambda m, x: hits(m, x) <= 0, refuted_at={"m": 1, "x": 0})


@theorem(expect=Proved(), cite=SOURCE)
def no_message_sends_nothing(m: Natural, b: Real):
    """Before the first message no device has sent one."""
    return by_induction(sent_by(m, 0, b) == 0, on=m)


no_message_sends_nothing.control("each one", lambda m, b: sent_by(m, 0, b) == m, refuted_at={"m": 1, "b": 0})


@theorem(expect=Proved(), cite=SOURCE)
def a_message_is_of_its_sender(m: Natural, t: Degree, b: Real):
    """With message t, as many more are sent by devices before m as there are senders of it among them."""
    return by_induction(sent_by(m, t, b) == sent_by(m, t - 1, b) + hits(m, sender(b, t)), on=m)


a_message_is_of_its_sender.control(
    "one more", lambda m, t, b: sent_by(m, t, b) == sent_by(m, t - 1, b) + 1, refuted_at={"m": 0, "t": 1, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def devices_send_at_most_all_messages(m: Natural, t: Natural, b: Real):
    """The devices before m send at most t of t messages."""
    lemmas = [
        a_message_is_of_its_sender.at(m=m, t=t, b=b),
        at_most_one_device_is_x.at(m=m, x=sender(b, t)),
        no_message_sends_nothing.at(m=m, b=b),
    ]
    return by_induction(sent_by(m, t, b) <= t, on=t, lemmas=lemmas)


devices_send_at_most_all_messages.control("all", lambda m, t, b: sent_by(m, t, b) == t, refuted_at={"m": 0, "t": 1, "b": 0})


@theorem(expect=Proved(), cite=SOURCE)
def completeness_is_0_or_1(m: Natural, t: Natural, d: Real, b: Real):
    """A device has all parts or does not."""
    known = complete(m, t, d, b)
    return by_induction(known * (1 - known) == 0, on=m, lemmas=[a_device_knows_a_part_or_does_not.at(t=t, d=d, i=m - 1, b=b)])


completeness_is_0_or_1.control("it has", lambda m, t, d, b: complete(m, t, d, b) == 1, refuted_at={"m": 1, "t": 0, "d": 1, "b": 0})


@theorem(expect=Proved(), cite=SOURCE)
def all_parts_but_ones_own_are_sent(m: Natural, t: Natural, d: Real, b: Real):
    """A device that has the parts of m devices has seen m messages of theirs, or m - 1 if it is one of them."""
    lemmas = [a_part_is_known_elsewhere_of_a_message.at(t=t, d=d, i=m - 1, b=b), completeness_is_0_or_1.at(m=m - 1, t=t, d=d, b=b)]
    goal = m * complete(m, t, d, b) <= sent_by(m, t, b) + hits(m, d)
    return by_induction(goal, on=m, lemmas=lemmas)


all_parts_but_ones_own_are_sent.control(
    "its own too", lambda m, t, d, b: m * complete(m, t, d, b) <= sent_by(m, t, b), refuted_at={"m": 1, "t": 0, "d": 0, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def all_parts_take_a_message_each(n: Natural, t: Natural, d: Real, b: Real):
    """A device that has the parts of n devices after t messages has t >= n - 1."""
    lemmas = [
        all_parts_but_ones_own_are_sent.at(m=n, t=t, d=d, b=b),
        at_most_one_device_is_x.at(m=n, x=d),
        devices_send_at_most_all_messages.at(m=n, t=t, b=b),
    ]
    return holds(n * complete(n, t, d, b) <= t + 1, lemmas=lemmas)


all_parts_take_a_message_each.control(
    "n of them", lambda n, t, d, b: n * complete(n, t, d, b) <= t, refuted_at={"n": 1, "t": 0, "d": 0, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def only_the_receiver_learns(m: Natural, t: Degree, d: Real, b: Real):
    """A message completes its receiver and no other device."""
    lemmas = [
        completeness_is_0_or_1.at(m=m, t=t - 1, d=d, b=b),
        a_device_knows_a_part_or_does_not.at(t=t - 1, d=d, i=m - 1, b=b),
        a_device_knows_a_part_or_does_not.at(t=t - 1, d=sender(b, t), i=m - 1, b=b),
    ]
    return by_induction(complete(m, t, d, b) <= complete(m, t - 1, d, b) + indicator(d, receiver(b, t)), on=m, lemmas=lemmas)


only_the_receiver_learns.control(
    "always",
    lambda m, t, d, b: complete(m, t, d, b) == complete(m, t - 1, d, b) + indicator(d, receiver(b, t)),
    refuted_at={"m": 0, "t": 1, "b": 0},
)


@theorem(expect=Proved(), cite=SOURCE)
def a_message_completes_one_device(m: Natural, n: Natural, t: Degree, b: Real):
    """With message t, as many more are complete of the devices before m as there are receivers of it among them, or fewer."""
    lemmas = [only_the_receiver_learns.at(m=n, t=t, d=m - 1, b=b)]
    return by_induction(completed(m, n, t, b) <= completed(m, n, t - 1, b) + hits(m, receiver(b, t)), on=m, lemmas=lemmas)


a_message_completes_one_device.control(
    "none", lambda m, n, t, b: completed(m, n, t, b) <= hits(m, receiver(b, t)), refuted_at={"m": 1, "n": 0, "t": 1, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def no_device_is_complete_before_n_minus_1_messages(m: Natural, n: Integer, t: Natural, b: Real):
    """Before n - 1 messages no device has the parts of n."""
    lemmas = [all_parts_take_a_message_each.at(n=n, t=t, d=m - 1, b=b), completeness_is_0_or_1.at(m=n, t=t, d=m - 1, b=b)]
    return by_induction(completed(m, n, t, b) == 0, on=m, given=[t + 2 <= n], lemmas=lemmas)


no_device_is_complete_before_n_minus_1_messages.control(
    "before n", lambda m, n, t, b: holds(completed(m, n, t, b) == 0, given=[t + 1 <= n]), refuted_at={"m": 1, "n": 1, "t": 0, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def at_most_one_device_is_complete_more(n: Natural, t: Degree, b: Real):
    """A message completes at most one of n devices."""
    lemmas = [a_message_completes_one_device.at(m=n, n=n, t=t, b=b), at_most_one_device_is_x.at(m=n, x=receiver(b, t))]
    return holds(completed(n, n, t, b) <= completed(n, n, t - 1, b) + 1, lemmas=lemmas)


at_most_one_device_is_complete_more.control(
    "none", lambda n, t, b: completed(n, n, t, b) <= completed(n, n, t - 1, b) - n, refuted_at={"n": 1, "t": 1, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def at_the_beginning_a_device_alone_is_complete(n: Degree, b: Real):
    """Before the first message no device has all parts, unless it is the only one."""
    lemmas = [no_device_is_complete_before_n_minus_1_messages.at(m=n, n=n, t=0, b=b), completeness_is_0_or_1.at(m=1, t=0, d=0, b=b)]
    return holds(completed(n, n, 0, b) <= maximum(0, 2 - n), lemmas=lemmas)


at_the_beginning_a_device_alone_is_complete.control("nor then", lambda n, b: completed(n, n, 0, b) <= 0, refuted_at={"n": 1, "b": 0})


@theorem(expect=Proved(), cite=SOURCE)
def no_integer_is_between_0_and_1(k: Integer):
    """An integer above 0 is 1 or more."""
    return holds(k >= 1, given=[k > 0])


no_integer_is_between_0_and_1.control("2 or more", lambda k: holds(k >= 2, given=[k > 0]), refuted_at={"k": 1})


@theorem(expect=Proved(), cite=SOURCE)
def each_message_from_n_minus_1_on_completes_one(n: Degree, t: Natural, b: Real):
    """After t messages at most t - (n - 2) of n devices have the parts of all."""
    lemmas = [
        at_the_beginning_a_device_alone_is_complete.at(n=n, b=b),
        no_device_is_complete_before_n_minus_1_messages.at(m=n, n=n, t=t, b=b),
        at_most_one_device_is_complete_more.at(n=n, t=t, b=b),
        no_integer_is_between_0_and_1.at(k=t + 2 - n),
    ]
    return by_induction(completed(n, n, t, b) <= maximum(0, t + 2 - n), on=t, lemmas=lemmas)


each_message_from_n_minus_1_on_completes_one.control(
    "one fewer", lambda n, t, b: completed(n, n, t, b) <= maximum(0, t + 1 - n), refuted_at={"n": 1, "t": 0, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def all_reduce_takes_two_messages_for_each_other_device(n: Degree, t: Natural, b: Real):
    """If all of n devices have the parts of all after t messages, t is 2 (n - 1) or more."""
    all_are = indicator(completed(n, n, t, b), n)
    return holds(2 * (n - 1) * all_are <= t, lemmas=[each_message_from_n_minus_1_on_completes_one.at(n=n, t=t, b=b)])


all_reduce_takes_two_messages_for_each_other_device.control(
    "one more", lambda n, t, b: (2 * n - 1) * indicator(completed(n, n, t, b), n) <= t, refuted_at={"n": 1, "t": 0, "b": 0}
)


# What one device has, to all: an all-gather, whose other half, a reduce-scatter, brings all parts to one device.


@recursive(on="m", reals=("i", "b"))
def knowing(m, t, i, b):
    """How many of the devices before m have what device i began with after t messages."""
    return 0, knowing(m - 1, t, i, b) + knows(t, m - 1, i, b)


@theorem(expect=Proved(), cite=SOURCE)
def before_the_first_message_a_part_is_at_home(m: Natural, i: Real, b: Real):
    """Before the first message a device's part is with this device alone."""
    return by_induction(knowing(m, 0, i, b) == hits(m, i), on=m)


before_the_first_message_a_part_is_at_home.control(
    "with all", lambda m, i, b: knowing(m, 0, i, b) == m, refuted_at={"m": 1, "i": 1, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def a_message_tells_its_receiver_alone(m: Natural, t: Degree, i: Real, b: Real):
    """With message t as many devices more have a part as there are receivers of it among them, or fewer."""
    lemmas = [
        a_device_knows_a_part_or_does_not.at(t=t - 1, d=m - 1, i=i, b=b),
        a_device_knows_a_part_or_does_not.at(t=t - 1, d=sender(b, t), i=i, b=b),
    ]
    return by_induction(knowing(m, t, i, b) <= knowing(m, t - 1, i, b) + hits(m, receiver(b, t)), on=m, lemmas=lemmas)


a_message_tells_its_receiver_alone.control(
    "always one more", lambda m, t, i, b: knowing(m, t, i, b) == knowing(m, t - 1, i, b) + 1, refuted_at={"m": 0, "t": 1, "i": 0, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def a_part_reaches_a_device_with_each_message(n: Natural, t: Natural, i: Real, b: Real):
    """After t messages at most t + 1 of n devices have a device's part."""
    lemmas = [
        before_the_first_message_a_part_is_at_home.at(m=n, i=i, b=b),
        at_most_one_device_is_x.at(m=n, x=i),
        a_message_tells_its_receiver_alone.at(m=n, t=t, i=i, b=b),
        at_most_one_device_is_x.at(m=n, x=receiver(b, t)),
    ]
    return by_induction(knowing(n, t, i, b) <= t + 1, on=t, lemmas=lemmas)


a_part_reaches_a_device_with_each_message.control(
    "at most t", lambda n, t, i, b: knowing(n, t, i, b) <= t, refuted_at={"n": 1, "t": 0, "i": 0, "b": 0}
)


@theorem(expect=Proved(), cite=SOURCE)
def all_gather_and_reduce_scatter_take_a_message_for_each_other_device(n: Degree, t: Natural, d: Real, i: Real, b: Real):
    """If all of n devices have what one of them began with after t messages, as after an all-gather of its bytes, or if one of them has the
    parts of all, as after a reduce-scatter, t is n - 1 or more."""
    lemmas = [
        a_part_reaches_a_device_with_each_message.at(n=n, t=t, i=i, b=b),
        all_parts_take_a_message_each.at(n=n, t=t, d=d, b=b),
        completeness_is_0_or_1.at(m=n, t=t, d=d, b=b),
    ]
    return holds((n - 1) * indicator(knowing(n, t, i, b), n) <= t, (n - 1) * complete(n, t, d, b) <= t, lemmas=lemmas)


all_gather_and_reduce_scatter_take_a_message_for_each_other_device.control(
    "a message for each device",
    lambda n, t, i, b: n * indicator(knowing(n, t, i, b), n) <= t,
    refuted_at={"n": 1, "t": 0, "d": 0, "i": 0, "b": 0},
)

# As few messages are enough: along a chain to device 0, and back along it.


@recursive(on="t", reals=("d", "i"))
def along(t, d, i, n):
    """1 if device d has what device i began with after t messages along a chain of n devices, else 0.

    Of the first n - 1 messages each goes from a device to the one before it, from the last device on; of the others each goes to the next
    one, from device 0 on: a reduce and a broadcast by the product's chains.
    """
    source, target = absolute(n - t), absolute(n - 1 - t)
    return indicator(d, i), maximum(along(t - 1, d, i, n), indicator(d, target) * along(t - 1, source, i, n))


@theorem(expect=Proved(), cite=SOURCE)
def own_parts_stay_along_a_chain(t: Natural, i: Real, n: Integer):
    """A device has its own part all along."""
    return by_induction(along(t, i, i, n) >= 1, on=t)


own_parts_stay_along_a_chain.control("twice", lambda t, i, n: along(t, i, i, n) >= 2, refuted_at={"t": 0, "i": 0, "n": 1})


@theorem(expect=Proved(), cite=SOURCE)
def parts_come_down_a_chain(t: Natural, i: Integer, n: Integer):
    """After t <= n - 1 messages device n - 1 - t has the parts of all devices from it on."""
    lemmas = [own_parts_stay_along_a_chain.at(t=t - 1, i=i, n=n), no_integer_is_between_0_and_1.at(k=i - (n - 1 - t))]
    given = [t <= n - 1, i >= n - 1 - t, i <= n - 1]
    return by_induction(along(t, n - 1 - t, i, n) >= 1, on=t, given=given, lemmas=lemmas)


parts_come_down_a_chain.control(
    "that of the device before it, too",
    lambda t, i, n: holds(along(t, n - 1 - t, i, n) >= 1, given=[t <= n - 1, i >= n - 2 - t, i <= n - 1]),
    refuted_at={"t": 0, "i": 0, "n": 2},
)


@theorem(expect=Proved(), cite=SOURCE)
def parts_go_up_a_chain(k: Natural, i: Integer, n: Integer):
    """After k messages more device k has the parts of all devices."""
    lemmas = [parts_come_down_a_chain.at(t=n - 1, i=i, n=n)]
    return by_induction(along(n - 1 + k, k, i, n) >= 1, on=k, given=[i >= 0, i <= n - 1], lemmas=lemmas)


parts_go_up_a_chain.control(
    "device k + 1, too",
    lambda k, i, n: holds(along(n - 1 + k, k + 1, i, n) >= 1, given=[i >= 0, i <= n - 1]),
    refuted_at={"k": 0, "i": 0, "n": 2},
)


@theorem(expect=Proved(), cite=SOURCE)
def parts_stay_along_a_chain(more: Natural, k: Natural, i: Integer, n: Integer):
    """What a device has it keeps: after any messages more device k has the parts of all devices."""
    lemmas = [parts_go_up_a_chain.at(k=k, i=i, n=n)]
    return by_induction(along(n - 1 + k + more, k, i, n) >= 1, on=more, given=[i >= 0, i <= n - 1], lemmas=lemmas)


parts_stay_along_a_chain.control(
    "of any device", lambda more, k, i, n: along(n - 1 + k + more, k, i, n) >= 1, refuted_at={"more": 0, "k": 0, "i": 1, "n": 1}
)


@theorem(expect=Proved(), cite=SOURCE)
def two_messages_for_each_other_device_are_enough(d: Natural, i: Natural, n: Integer):
    """After 2 (n - 1) messages along a chain each of n devices has the parts of all: the bound of all-reduces is met, for all n.

    The product's chains take as many messages for a reduce and a broadcast, by their forms.
    """
    messages = algorithm("reduce", "chain").messages + algorithm("broadcast", "chain").messages
    lemmas = [parts_stay_along_a_chain.at(more=n - 1 - d, k=d, i=i, n=n)]
    return holds(along(2 * n - 2, d, i, n) >= 1, messages == 2 * n - 2, given=[d <= n - 1, i <= n - 1], lemmas=lemmas)


two_messages_for_each_other_device_are_enough.control(
    "one fewer",
    lambda d, i, n: holds(along(2 * n - 3, d, i, n) >= 1, given=[d <= n - 1, i <= n - 1, n >= 2]),
    refuted_at={"d": 1, "i": 0, "n": 2},
)


@theorem(expect=Proved(), cite=("patarasuk2009", "thakur2005"))
def algorithms_of_the_product_meet_the_bounds(n: Degree, s: Real):
    """By the table of collectives n devices send together 2 (n - 1) times the tensor in an all-reduce, and n - 1 times in an all-gather and
    in a reduce-scatter: no more than the bounds. So do the rounds of rings, and of a reduce and a broadcast along a chain, of 8 devices."""
    bounds = {"all_reduce": 2 * (n - 1), "all_gather": n - 1, "reduce_scatter": n - 1}
    table = [n * collective(kind).sent(n, s) == times * s for kind, times in bounds.items()]
    rings = [algorithm(kind, "ring").in_all(8) == (times * s).where(n=8) for kind, times in bounds.items()]
    chains = algorithm("reduce", "chain").in_all(8) + algorithm("broadcast", "chain").in_all(8)
    return holds(table, rings, chains == (bounds["all_reduce"] * s).where(n=8))


algorithms_of_the_product_meet_the_bounds.control(
    "so does recursive doubling",
    lambda s: algorithm("all_reduce", "doubling").in_all(8) == 14 * s,
    refuted_at={"n": 8, "s": 1},
)

# Byte by byte.

sent = data("sent")


def messages_of(b):
    """How many messages are about byte b."""
    return maximum(0, floor(count(b)))


@recursive(on="s")
def messages(s):
    """How many messages are about the first s bytes. Each takes a byte."""
    return 0, messages(s - 1) + messages_of(s - 1)


@recursive(on="s")
def reduced(s, n):
    """Of how many of s bytes all of n devices get the parts of all."""
    return 0, reduced(s - 1, n) + indicator(completed(n, n, messages_of(s - 1), s - 1), n)


@recursive(on="n", start=1)
def most_sent(n):
    """What the busiest of n devices sends."""
    return sent(0), maximum(most_sent(n - 1), sent(n - 1))


@recursive(on="n")
def all_sent(n):
    """What n devices send together."""
    return 0, all_sent(n - 1) + sent(n - 1)


@theorem(expect=Proved(), cite=SOURCE)
def each_byte_takes_its_own_messages(s: Natural, n: Degree):
    """An all-reduce takes 2 (n - 1) messages of a byte for each byte of which all devices get the parts of all."""
    lemmas = [all_reduce_takes_two_messages_for_each_other_device.at(n=n, t=messages_of(s - 1), b=s - 1)]
    return by_induction(2 * (n - 1) * reduced(s, n) <= messages(s), on=s, lemmas=lemmas)


each_byte_takes_its_own_messages.control(
    "one more", lambda s, n: (2 * n - 1) * reduced(s, n) <= messages(s) - s * messages(s), refuted_at={"s": 1, "n": 1}
)


@theorem(expect=Proved(), cite=SOURCE)
def busiest_device_sends_the_mean_at_least(n: Degree):
    """What n devices send together is at most n times what the busiest sends."""
    return by_induction(all_sent(n) <= n * most_sent(n), on=n, start=1)


busiest_device_sends_the_mean_at_least.control("the last device", lambda n: all_sent(n) <= n * sent(n - 1), refuted_at={"n": 2})


@theorem(expect=Proved(), cite=SOURCE)
def no_all_reduce_sends_less_than_a_ring(n: Degree, s: Natural):
    """In whatever way n devices get the sums of some bytes, one of them sends no less than a device in a ring all-reduce of these.

    A message about a byte takes one, and carries whatever its sender has of that byte, combined in any way; what is about several bytes
    cannot be packed into fewer. If the devices send less than messages take, an equal share of the difference is added to what one sends.
    """
    lemmas = [each_byte_takes_its_own_messages.at(s=s, n=n), busiest_device_sends_the_mean_at_least.at(n=n)]
    unsaid = maximum(0, messages(s) - all_sent(n))
    return holds(collective("all_reduce").sent(n, reduced(s, n)) <= most_sent(n) + unsaid / n, lemmas=lemmas)


no_all_reduce_sends_less_than_a_ring.control(
    "a byte more for each",
    lambda n, s: collective("all_reduce").sent(n, s) + s <= most_sent(n) + maximum(0, messages(s) - all_sent(n)) / n,
    refuted_at={"n": 1, "s": 1},
)
