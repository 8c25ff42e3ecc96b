"""What one device does with a block: whether it treats each sample by itself, and a loss is the mean over samples (it runs two samples
together, and each alone); and whether another block does the same.

That a step may average over devices and micro-batches rests on this. It is what `separable-loss` assumes of models of which nothing is
known; of a block, runs can deny it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from placeproof.programs import Ref, Resolved, calls, statements
from placeproof.programs.ir import Tensor
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.tensors.arrays import Arrays
from placeproof.semantics.tensors.machine import Machine, Output
from placeproof.semantics.tensors.setup import FaultError, NotComputedError, Setup
from placeproof.semantics.tensors.simulate import arithmetic, setups

#: The dimension along which samples lie.
BATCH = "batch"
_SEEDS = (1, 2, 3)
#: The seeds of runs in fractions, whose numbers are few, so that two may agree by chance; and how many have to agree.
_MANY, _ENOUGH = range(1, 17), 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What runs show, in words. ``sure``: not in residues alone, where those may deceive."""

    text: str
    sure: bool = True


@lru_cache(maxsize=256)
def coupled(program: Resolved, *, loss: bool) -> Shown | None:
    """What a block makes of two samples otherwise than of each alone, in words; None where no run shows any.

    ``loss``: whether it gives a loss, which is to be the mean over samples, as are its gradients; of others, gradients of weights are sums.
    """
    if not any(BATCH in t.dims for t in program.tensors):
        return None
    first = next(setups(program))
    alone = Setup(degrees=dict.fromkeys(first.degrees, 1), sizes={**first.sizes, BATCH: 2})
    return _shown(program, alone, lambda setup: next(_differences(program, setup, loss=loss), None))


def _shown(program: Resolved, setup: Setup, differs: Callable[[Setup], str | None]) -> Shown | None:
    """What differs in residues; of a program that takes logarithms, which residues have no more than in name, in fractions too."""
    found, _ = _first(differs, [replace(setup, exact=False, seed=seed) for seed in _SEEDS])
    every = (c for s in statements(program.body) for c in calls(s) if c.op == "elementwise")
    if found is None or not any(isinstance(c.args[0], Ref) and c.args[0].name == "log" for c in every):
        return None if found is None else Shown(text=found)
    shown, ran = _first(differs, [replace(setup, fine=fine, seed=seed) for fine in (False, True) for seed in _MANY])
    return Shown(text=found, sure=shown is not None) if shown is not None or ran < _ENOUGH else None


def _first(differs: Callable[[Setup], str | None], every: list[Setup]) -> tuple[str | None, int]:
    """What the first run shows that shows something, and how many were computed."""
    ran = 0
    for setup in every:
        try:
            found = differs(setup)
        except (NotComputedError, FaultError, ZeroDivisionError):
            continue
        ran += 1
        if found is not None:
            return found, ran
    return None, ran


def unlike(program: Resolved, reference: Resolved) -> Shown | None:
    """What a block returns otherwise than another one on one device, in words; None where no run shows any."""
    first = next(setups(reference))
    setup = Setup(degrees={a.name: 1 for a in program.axes}, sizes={d: max(n, 2) for d, n in first.sizes.items()})
    return _shown(program, setup, lambda own: _other(program, reference, own))


def _other(program: Resolved, reference: Resolved, setup: Setup) -> str | None:
    try:
        found, expected = (_returned(one, setup) for one in (program, reference))
    except KeyError:  # tensors of other dimensions
        return None
    arrays = Arrays(arithmetic(setup)[0], setup.degrees, setup.seed)
    for kind, output in expected.items():
        other, dims = found.get(kind), sorted(output.value.dims)
        if other is None or sorted(other.value.dims) != dims:
            return f"{output.name} is nothing"
        if not np.asarray(arrays.field.same(arrays.ordered(other.value, dims), arrays.ordered(output.value, dims))).all():
            return f"{output.name} is something else"
    return None


def _returned(program: Resolved, setup: Setup) -> dict[tuple[str | None, str | None], Output]:
    f, begin = arithmetic(setup)
    run = Machine(program, Arrays(f, setup.degrees, setup.seed), setup.sizes, begin, seed=setup.seed).run()
    return {(o.call.option("gradient_of"), o.call.option("by")): o for o in run}


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
