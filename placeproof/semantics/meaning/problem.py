"""The numbers of a run in fractions: initial states, samples, token counts, keys. Every device and the reference read the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from placeproof.semantics.meaning.layout import CHANNELS, SEQUENCES, Coordinates, Element, Layout, in_words
from placeproof.semantics.meaning.recorded import Recorded

Number: TypeAlias = Any
Sample: TypeAlias = tuple[int, ...]
#: A sample in the network: a number for each token and channel.
Drawn: TypeAlias = dict[tuple[int, int], Number]


def full_name(name: str, key: tuple[object, ...]) -> str:
    """The name of a number in a file: with what else it is drawn for, coordinates or the share of a gradient."""
    return name + "".join(_words(k) for k in key)


def _words(key: object) -> str:
    if not isinstance(key, tuple) or not key:
        return ""
    if isinstance(key[0], tuple):
        return "".join(_words(one) for one in key)
    return f", on {key[0]} = {key[1]}" if len(key) == 2 else f", share {key[0]}"


def overflow_name(element: Element, step: int) -> str:
    """The name of the flag that is 1 where the gradient of an element is not finite in a step."""
    return f"overflow of {in_words(element)}, step {step + 1}"


@dataclass(frozen=True)
class Problem:
    """What a seed draws. ``without``: assumptions that are not made, so that the numbers differ where they may."""

    layout: Layout
    seed: int
    without: frozenset[str] = frozenset()
    recorded: dict[str, Recorded] | None = None
    small: bool = False

    def _drawn(self, choices: list[int], name: str, *key: object) -> Number:
        """One of some numbers. :func:`full_name` of the name and the key tells it from all others."""
        drawn = Fraction(random.Random(f"{self.seed}:{name}:{key}").choice(choices))
        if self.recorded is None:
            return drawn
        return self.recorded.setdefault(f"{name}{key}", Recorded(drawn, name=name))

    def _of(self, sample: Sample, step: int) -> str:
        """A sample in words: the devices that have it, its micro-batch, the step."""
        at = [f"{f} = {n}" for f, n in zip(self.layout.sample_factors, sample, strict=False)]
        return ", ".join([*at, f"micro-batch {sample[-1]}", f"step {step + 1}"])

    @property
    def tokens_of_a_sample(self) -> int:
        """Tokens of a sample in the network: one for each device that may hold some; of each sequence, where there are several."""
        own = self.layout.sizes[self.layout.tokens] if self.layout.tokens else 1
        return own * SEQUENCES if self.layout.program.loss else own

    def initial(self, element: Element, at: Coordinates | None = None) -> Number:
        """A parameter before the first step, on the device at some coordinates (None: on the first)."""
        where: tuple[object, ...] = ()
        if "equal-initial-states" in self.without and at is not None:
            where = tuple(at.items()) if any(at.values()) else ()
        return self._drawn([0, 1] if self.small else [-1, 1, 2], f"parameter {in_words(element)}", *where)

    def sample(self, sample: Sample, step: int, what: str) -> Drawn:
        """A sample or its target in the network."""
        tokens = range(self.tokens_of_a_sample)
        words, choices = self._of(sample, step), [0, 1] if self.small else [-1, 1, 2]
        return {(t, i): self._drawn(choices, f"{what}[{t}, {i}] of {words}") for t in tokens for i in range(CHANNELS)}

    def of_sequence(self, what: str, along: list[str], sample: Sample, sequence: int | None, step: int) -> Number:
        """A number of one sequence of a micro-batch (None: of all of them). ``along``: the factors whose coordinates tell them apart."""
        at = [f"{f} = {n}" for f, n in zip(along, sample, strict=False)]
        which = [] if sequence is None else [f"sequence {sequence}"]
        choices = [0, 1] if what.startswith("begins") else [1, 2] if what == "tokens" and self.small else [1, 2, 3]
        return self._drawn(choices, f"{what} of {', '.join([*which, *at, f'micro-batch {sample[-1]}', f'step {step + 1}'])}")

    def tokens(self, sample: Sample, step: int) -> Number:
        """How many tokens of a sample count."""
        if "equal-token-counts" not in self.without:
            return Fraction(1)
        return self._drawn([1, 2, 3], f"tokens of {self._of(sample, step)}")

    def overflows(self, element: Element, step: int) -> bool:
        """Whether the gradient of an element is not finite in a step: of none, of one, or of several."""
        drawn = random.Random(f"{self.seed}:overflow {step}")
        how_many, one = drawn.randrange(3), drawn.choice(self.layout.elements)
        return element == one if how_many == 1 else how_many == 2 and random.Random(f"{self.seed}:overflow {element} {step}").random() < 0.3

    @property
    def coupled(self) -> bool:
        """Whether layers use a statistic of the whole batch."""
        return "separable-loss" in self.without or dict(self.layout.program.reference).get("statistics") == "batch"

    def statistic(self, sample: Sample, step: int) -> Number:
        """What a sample adds to a statistic of the batch."""
        return self._drawn([1, 2, 3, 5], f"statistic of {self._of(sample, step)}")

    def key(self, draw: str, batch: int | None, step: int, at: Coordinates) -> Number:
        """A random key, folded with coordinates. ``batch``: the micro-batch in which it is drawn; None outside of all."""
        when = "all micro-batches" if batch is None else f"micro-batch {batch}"
        return self._drawn([1, 2, 3, 5, 7], f"random key {draw}, {when}, step {step + 1}", tuple(at.items()))

    def portion(self, element: Element, number: int) -> Number:
        """Which portion of the gradient of an element the device of that number finds in a block that several compute together."""
        return self._drawn([-1, 1, 2], f"portion of {in_words(element)} of device {number}")

    def own_gradient(self, element: Element, sample: Sample, step: int, share: tuple[object, ...], of: str = "") -> Number:
        """What a sample gives to the gradient of an element of the flat model. ``share``: which part of it, where it is shared out. ``of``:
        what of the sample gives it, and which loss."""
        return self._drawn([-2, -1, 1, 2, 3], f"own gradient of {in_words(element)}, {of}{self._of(sample, step)}", share)
