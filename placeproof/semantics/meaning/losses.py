"""What the samples of a step are made of where a loss is a mean over something that differs in number: sequences, their tokens, and how
these make up samples and prompts. Devices and the one device read the same.

Arrays are ``[coordinates..., micro-batch, sequence]``, of length 1 along factors whose devices share what they are about.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from placeproof.core.remembered import remembered
from placeproof.programs.ir import Term
from placeproof.programs.losses import MICRO_BATCHES
from placeproof.semantics.meaning.layout import SEQUENCES
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import plain

if TYPE_CHECKING:
    from placeproof.semantics.meaning.world import World


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of a step's micro-batches."""

    world: World
    step: int

    # What is drawn.

    @cached_property
    def parted(self) -> tuple[str, ...]:
        """The factors over which the tokens of a sequence are shared out."""
        layout = self.world.layout
        return tuple(f for f in layout.sample_factors if layout.axis_of(f).splits.tokens)

    def _shape(self, without: tuple[str, ...]) -> tuple[int, ...]:
        """The shape of what differs along all factors of samples but some."""
        world = self.world
        along = [f for f in world.layout.sample_factors if f not in without]
        return (*(world.sizes[f] if f in along else 1 for f in world.factors), world.layout.setup.microbatches, SEQUENCES)

    def _dims(self) -> tuple[int, ...]:
        return self.world.dims(self.parted)

    def _drawn(self, what: str, *, own: bool = False, several: bool = True) -> Array:
        """Whole numbers of sequences (or of micro-batches): ``own``, others on each device that has a part of a sequence."""
        world, problem = self.world, self.world.problem
        along = [f for f in world.layout.sample_factors if own or f not in self.parted]
        shape = (*self._shape(() if own else self.parted)[:-1], SEQUENCES if several else 1)
        values: Array = np.empty(shape, dtype=object)
        for *at, batch, q in np.ndindex(*shape):
            sample = (*(at[world.dim[f]] for f in along), batch)
            values[(*at, batch, q)] = problem.of_sequence(what, along, sample, q if several else None, self.step)
        return values

    @cached_property
    def there(self) -> Array:
        """Which sequences there are."""
        return self._whole("number of sequences", several=False) > np.arange(SEQUENCES)

    @cached_property
    def tokens(self) -> Array:
        """How many tokens of each sequence count, on each device."""
        return np.where(self.there, self._numbers(self._drawn("tokens", own=True)), self.world.field.of(0))

    @remembered
    def members(self, unit: str) -> Array:
        """Which sequences are of one unit with which: ``[..., sequence, sequence]``."""
        number = np.broadcast_to(np.arange(SEQUENCES), self.there.shape)
        if unit != "sequences":
            begins = self._whole(f"begins another {'prompt' if unit == 'prompts' else 'sample'}")
            begins[..., 0] = 0
            number = np.cumsum(begins, axis=-1)
        alike = number[..., :, None] == number[..., None, :]
        return alike & self.there[..., :, None] & self.there[..., None, :]

    @cached_property
    def weights(self) -> Array:
        """The weight of each sequence's sample."""
        drawn = self._numbers(self._drawn("weight of the sample"))
        first = self.members("weights").argmax(axis=-1)  # the sample's first sequence
        return np.take_along_axis(drawn, first, -1)

    def _whole(self, what: str, *, several: bool = True) -> Array:
        """What shapes depend on, which is drawn but not computed with."""
        drawn = self._drawn(what, several=several)
        return np.array([int(plain(v)) for v in drawn.reshape(-1)], dtype=np.int64).reshape(drawn.shape)

    def _numbers(self, values: Array) -> Array:
        return self.world.field.array(list(values.reshape(-1)), values.shape)

    # What follows.

    @remembered
    def summed(self, unit: str) -> Array:
        """How often the loss of a token counts, all together, in the sum of the losses of all units: ``[..., sequence]``."""
        f = self.world.field
        if unit == "tokens":
            return self.tokens
        whole = f.total(self.tokens, self._dims(), keepdims=True) if self.parted else self.tokens
        of_unit = f.total(np.where(self.members(unit), whole[..., None, :], f.of(0)), -1)
        share = f.div(self.tokens, np.where(self.there, of_unit, f.of(1)))
        return f.mul(share, self.weights) if unit == "weights" else share

    @remembered
    def number(self, unit: str) -> Array:
        """How many of a unit a micro-batch has, of tokens those that a device has: ``[..., micro-batch]``."""
        f = self.world.field
        if unit == "tokens":
            return f.total(self.tokens, -1)
        firsts = self.there & (self.members(unit).argmax(axis=-1) == np.arange(SEQUENCES))
        ones = self.weights if unit == "weights" else np.broadcast_to(np.array(f.of(1), dtype=self.tokens.dtype), firsts.shape)
        return f.total(np.where(firsts, ones, f.of(0)), -1)

    def of_pass(self, unit: str, *, mean: bool) -> Array:
        """How often the loss of a token counts in a pass of its device."""
        summed = self.summed(unit)
        return self.world.field.div(summed, self.number(unit)[..., None]) if mean else summed

    def of_term(self, term: Term) -> Array:
        """How often the loss of a token counts in a term of what is trained."""
        f, world = self.world.field, self.world
        summed = f.mul(np.array(f.of(term.factor)), self.summed(term.of))
        if isinstance(term.over, Fraction):
            return f.div(summed, np.array(f.of(term.over)))
        if term.over != MICRO_BATCHES:
            number = self.number(term.over)
            return f.div(summed, f.total(number, tuple(range(number.ndim)), keepdims=True)[..., None])
        batches = prod(n for x, n in world.sizes.items() if x in world.layout.sample_factors and x not in self.parted)
        own = self.number(term.of)
        own = f.total(own, self._dims(), keepdims=True) if self.parted and term.of == "tokens" else own
        return f.div(summed, f.mul(own, np.array(f.of(batches * world.layout.setup.microbatches)))[..., None])


def weighted(world: World, weights: Array, gradients: Array) -> Array:
    """The sum over sequences of numbers for elements, each as often as its token counts: ``[..., micro-batch, element, share]``."""
    return world.field.total(world.field.mul(weights[..., None, None], gradients), -3)


def by_token(world: World, weights: Array) -> Array:
    """Numbers of sequences as those of the network's tokens, which each sequence has on every device that holds some: ``[..., token]``."""
    return np.tile(weights, world.problem.tokens_of_a_sample // SEQUENCES)


@remembered
def sequences(world: World, step: int) -> Sequences:
    """The sequences of a step."""
    return Sequences(world, step)
