"""Whether a block treats each sample by itself, and a loss is the mean over samples: one device runs two samples together, and each alone.

That a step may average over devices and micro-batches rests on this. It is what `separable-loss` assumes of models of which nothing is
known; of a block, runs can deny it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from placeproof.programs import Resolved
from placeproof.programs.ir import Tensor
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.tensors.arrays import Arrays
from placeproof.semantics.tensors.machine import Machine, Output
from placeproof.semantics.tensors.setup import FaultError, NotComputedError, Setup
from placeproof.semantics.tensors.simulate import arithmetic, setups

#: The dimension along which samples lie.
BATCH = "batch"
_SEEDS = (1, 2, 3)


@lru_cache(maxsize=256)
def coupled(program: Resolved, *, loss: bool) -> str | None:
    """What a block makes of two samples otherwise than of each alone, in words; None where no run shows any.

    ``loss``: whether it gives a loss, which is to be the mean over samples, as are its gradients; of others, gradients of weights are sums.
    """
    if not any(BATCH in t.dims for t in program.tensors):
        return None
    first = next(setups(program))
    sizes = {**first.sizes, BATCH: 2}
    alone = Setup(degrees=dict.fromkeys(first.degrees, 1), sizes=sizes, exact=False)
    for seed in _SEEDS:
        try:
            found = next(_differences(program, replace(alone, seed=seed), loss=loss), None)
        except (NotComputedError, FaultError, ZeroDivisionError):
            continue
        if found is not None:
            return found
    return None


def _differences(program: Resolved, setup: Setup, *, loss: bool) -> Iterator[str]:
    f, begin = arithmetic(setup)
    whole = {t.name: begin(t) for t in program.tensors}

    def run(sample: int | None) -> list[Output]:
        def some(tensor: Tensor) -> Array:
            every = whole[tensor.name]
            return every if sample is None or BATCH not in tensor.dims else every.take([sample], axis=tensor.dims.index(BATCH))

        sizes = setup.sizes if sample is None else {**setup.sizes, BATCH: 1}
        return Machine(program, Arrays(f, setup.degrees, setup.seed), sizes, some, seed=setup.seed).run()

    for both, *each in zip(run(None), run(0), run(1), strict=True):
        arrays = Arrays(f, setup.degrees, setup.seed)
        expected, actual = _expected(arrays, both, each, loss=loss), arrays.ordered(both.value, sorted(both.value.dims))
        if not np.asarray(f.same(actual, expected)).all():
            yield _said(both, loss=loss)


def _expected(arrays: Arrays, both: Output, each: list[Output], *, loss: bool) -> Any:
    """What two samples make of what each makes alone."""
    f, dims = arrays.field, sorted(both.value.dims)
    parts = [arrays.ordered(one.value, dims) for one in each]
    if BATCH in dims:
        found = np.concatenate(parts, axis=1 + len(arrays.axes) + dims.index(BATCH))
        return f.mul(found, f.of(Fraction(1, 2))) if loss and both.call.option("by") else found
    found = f.add(*parts)
    return f.mul(found, f.of(Fraction(1, 2))) if loss else found


def _said(output: Output, *, loss: bool) -> str:
    what = "the mean over samples" if loss else "what each sample gives by itself"
    if output.call.option("by") and not loss:
        what = "the sum of what each sample gives by itself" if BATCH not in output.value.dims else what
    return f"{output.name} of two samples is not {what}"
