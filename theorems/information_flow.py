"""No all-reduce sends less than a ring: how the parts of n devices can reach all of them.

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
