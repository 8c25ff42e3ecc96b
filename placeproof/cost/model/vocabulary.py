"""The vocabulary of a model, padded to parts of equal size."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

from placeproof.core.mesh import degree_symbol
from placeproof.core.strategy import Strategy
from placeproof.models import Model

#: How a padded vocabulary differs from the model's, in :attr:`placeproof.models.Model.replaced`.
PADDED = "padded"
#: What Megatron-LM makes each part a multiple of, unless told otherwise: `--make-vocab-size-divisible-by` (megatron/training/arguments.py).
MULTIPLE = 128


def padded(model: Model, strategy: Strategy, values: Mapping[str, Fraction], multiple: int | None = None) -> Model:
    """The model with its vocabulary padded to a multiple of ``multiple`` tokens for each device that has a part of it.

    Megatron-LM pads every vocabulary so, to multiples of 128 (``_vocab_size_with_padding``). With ``multiple`` None it is padded like that
    where its parts would be unequal, and left as it is elsewhere. ``values``: of degrees that are open; of one that is not set nothing is
    known, and the vocabulary stays.
    """
    only = len(strategy.axes) == 1
    axes = [a for a in strategy.axes if a.splits.matrices]
    degrees = [a.degree or values.get(degree_symbol(a.name, only=only)) for a in axes]
    before = model.sizes.get("V")
    if before is None or None in degrees:
        return model
    parts = int(prod(n for n in degrees if n is not None))
    if multiple is None and before % parts == 0:
        return model
    unit = (multiple or MULTIPLE) * parts
    return model.resized({"V": -(-before // unit) * unit}, PADDED)
