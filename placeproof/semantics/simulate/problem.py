"""The numbers of a run: initial states, samples, token counts, keys. Drawn once; every device and the reference read the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from placeproof.semantics.simulate.layout import CHANNELS, Coordinates, Element, Layout, in_words
from placeproof.semantics.simulate.model import Stream
from placeproof.semantics.simulate.numbers import Recorded, Residue, residue

Number: TypeAlias = Any
Sample: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """What a seed draws. ``without``: assumptions that are not made, so that the numbers differ where they may."""

    layout: Layout
    seed: int
    exact: bool = True
    without: frozenset[str] = frozenset()
    recorded: dict[str, Recorded] | None = None
    small: bool = False

    def _drawn(self, choices: list[int], name: str, *key: object) -> Number:
        drawn = Fraction(random.Random(f"{self.seed}:{name}:{key}").choice(choices))
        if self.recorded is None:
            return self.number(drawn)
        return self.recorded.setdefault(f"{name}{key}", Recorded(drawn, name=name))

    def _of(self, sample: Sample, step: int) -> str:
        """A sample in words: the devices that have it, its micro-batch, the step."""
        at = [f"{f} = {n}" for f, n in zip(self.layout.sample_factors, sample, strict=False)]
        return ", ".join([*at, f"micro-batch {sample[-1]}", f"step {step + 1}"])

    def number(self, value: Fraction) -> Number:
        """A rational number in the arithmetic of the run."""
        return value if self.exact else Residue(residue(value))

    @property
    def tokens_of_a_sample(self) -> int:
        """Tokens of a sample in the network: one for each device that may hold some."""
        return self.layout.sizes.factors[self.layout.hidden] if self.layout.hidden else 1

    def initial(self, element: Element, at: Coordinates | None = None) -> Number:
        """A parameter before the first step, on the device at some coordinates (None: on the first)."""
        where: tuple[object, ...] = ()
        if "equal-initial-states" in self.without and at is not None:
            where = tuple(at.items()) if any(at.values()) else ()
        return self._drawn([0, 1] if self.small else [-1, 1, 2], f"parameter {in_words(element)}", *where)

    def sample(self, sample: Sample, step: int, what: str) -> Stream:
        """A sample or its target in the network."""
        tokens = range(self.tokens_of_a_sample)
        words, choices = self._of(sample, step), [0, 1] if self.small else [-1, 1, 2]
        return {(t, i): self._drawn(choices, f"{what}[{t}, {i}] of {words}") for t in tokens for i in range(CHANNELS)}

    def tokens(self, sample: Sample, step: int) -> Number:
        """How many tokens of a sample count."""
        if "equal-token-counts" not in self.without:
            return self.number(Fraction(1))
        return self._drawn([1, 2, 3], f"tokens of {self._of(sample, step)}")

    def overflows(self, element: Element, step: int) -> bool:
        """Whether the gradient of an element is not finite in a step."""
        return random.Random(f"{self.seed}:overflow {element} {step}").random() < 0.3

    @property
    def coupled(self) -> bool:
        """Whether layers use a statistic of the whole batch."""
        return "separable-loss" in self.without or dict(self.layout.program.reference).get("statistics") == "batch"

    def statistic(self, sample: Sample, step: int) -> Number:
        """What a sample adds to a statistic of the batch."""
        return self._drawn([1, 2, 3, 5], f"statistic of {self._of(sample, step)}")

    def key(self, at: Coordinates) -> Number:
        """A random key, folded with coordinates."""
        return self._drawn([1, 2, 3, 5, 7], "random key", tuple(at.items()))

    def mask(self, sample: Sample) -> Number:
        """The mask of a sample's dropout: its key is folded with the coordinates that tell samples apart."""
        own = dict(zip(self.layout.sample_factors, sample[:-1], strict=True))
        return self.key({f: own.get(f, 0) for f in self.layout.sizes.factors})

    # The flat model.

    def flat_gradient(
        self, element: Element, sample: Sample, step: int, share: tuple[object, ...], seen: Number, statistic: Number
    ) -> Number:
        """The gradient of a sample's loss with respect to an element: what the sample gives, plus the sum of all that is seen of
        the parameters, so that one wrong parameter shows. ``share``: which part of it a device computes, where it is shared out."""
        own = self._drawn([-2, -1, 1, 2, 3], f"own gradient of {in_words(element)}, {self._of(sample, step)}", share)
        return own * statistic + (seen if not share or share[0] in (0, "first") else 0)
