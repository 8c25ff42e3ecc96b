"""What one device does with a block: whether it treats each sample by itself, and a loss is the mean over samples (it runs two samples
together, and each alone); and whether another block can be asked to be the same.

That a step may average over devices and micro-batches rests on this. It is what `separable-loss` assumes of models of which nothing is
known; of a block, runs can deny it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from placeproof.programs import Ref, Resolved
from placeproof.programs.ir import Tensor, returned
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import Plain, plain
from placeproof.semantics.meaning.script import begun, written
from placeproof.semantics.tensors.arrays import Arrays
from placeproof.semantics.tensors.machine import Machine, Output, kind
from placeproof.semantics.tensors.numbers import SHOWN, require_short
from placeproof.semantics.tensors.setup import FaultError, NotComputedError, Setup
from placeproof.semantics.tensors.simulate import arithmetic, setups

#: The dimension along which samples lie.
BATCH = "batch"
_SEEDS = (1, 2, 3)
#: The seeds of runs in fractions, whose numbers are few, so that two may agree by chance; and how many have to agree.
_MANY, _ENOUGH = range(1, 17), 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What runs show, in words. ``pair``: in fractions, what was expected and what is ``at`` a place; None in residues, which may
    deceive."""

    text: str
    setup: Setup
    at: str = ""
    pair: tuple[Plain, Plain] | None = None

    @property
    def sure(self) -> bool:
        """Whether numbers show it."""
        return self.pair is not None

    @property
    def words(self) -> str:
        """The two numbers."""
        expected, actual = map(plain, self.pair or (0, 0))
        return f"{self.at}: expected {expected}, actual {actual}"

    @property
    def inputs(self) -> dict[str, Fraction]:
        """The numbers that they were computed from, by name."""
        return {} if self.pair is None else begun(self.pair)

    def script(self, title: str) -> str | None:
        """They as a Python file (:mod:`placeproof.semantics.meaning.script`); None in residues."""
        return None if self.pair is None else written(title, self.pair, self.words)


@lru_cache(maxsize=256)
def coupled(program: Resolved, *, loss: bool) -> Shown | None:
    """What a block makes of two samples otherwise than of each alone, in words; None where no run shows any.

    ``loss``: whether it gives a loss, which is to be the mean over samples, as are its gradients; of others, gradients of weights are sums.
    """
    if not any(BATCH in t.dims for t in program.tensors):
        return None
    first = next(setups(program))
    alone = Setup(degrees=dict.fromkeys(first.degrees, 1), sizes={**first.sizes, BATCH: 2})
    return _shown(program, alone, lambda setup: min(_differences(program, setup, loss=loss), key=lambda s: len(s.words), default=None))


def _shown(program: Resolved, setup: Setup, differs: Callable[[Setup], Shown | None]) -> Shown | None:
    """What differs in residues, with numbers. Of a program that takes logarithms, which residues have no more than in name, it may be
    nothing."""
    residual, _ = _first(differs, [replace(setup, exact=False, seed=seed) for seed in _SEEDS])
    if residual is None:
        return None
    shown, ran = _first(differs, [replace(setup, fine=fine, seed=seed, record=True) for fine in (False, True) for seed in _MANY])
    every = (c for c in program.calls if c.op == "elementwise")
    logs = any(isinstance(c.args[0], Ref) and c.args[0].name == "log" for c in every)
    return shown or (None if logs and ran >= _ENOUGH else residual)


def _first(differs: Callable[[Setup], Shown | None], every: list[Setup]) -> tuple[Shown | None, int]:
    """What the first run shows that shows something, and how many were computed."""
    ran = 0
    for setup in every:
        try:
            difference = differs(setup)
        except (NotComputedError, FaultError, ZeroDivisionError):
            continue
        ran += 1
        if difference is not None:
            return difference, ran
    return None, ran


def comparable(program: Resolved, reference: Resolved) -> Resolved | str:
    """Another program as one device may run it for this one: dimensions have no order. Or, in words, why it may not.

    Tensors are known by their names, and what is returned by what it is of.
    """
    own, others = ({t.name: t for t in p.tensors} for p in (program, reference))
    if own.keys() != others.keys():
        extra, there = (", ".join(f"`{n}`" for n in a if n not in b) or "nothing" for a, b in ((own, others), (others, own)))
        return f"tensors are known by their names: {extra} here, {there} there"
    for name, tensor in own.items():
        if (sorted(tensor.dims), tensor.picks) != (sorted(others[name].dims), others[name].picks):
            return f"`{name}` has the dimensions {', '.join(tensor.dims)} here, and {', '.join(others[name].dims)} there"
    mine, its = (Counter(map(kind, returned(p))) for p in (program, reference))
    if mine != its:
        by = next(iter((mine - its) or (its - mine)))[1]
        return f"{'the gradient by `' + by + '`' if by else 'what it gives'} is returned otherwise here than there"
    return replace(reference, tensors=tuple(replace(t, dims=own[t.name].dims) for t in reference.tensors))


def _differences(program: Resolved, setup: Setup, *, loss: bool) -> Iterator[Shown]:
    f, begin = arithmetic(setup)
    whole = {t.name: begin(t) for t in program.tensors}

    def run(sample: int | None) -> list[Output]:
        def some(tensor: Tensor) -> Array:
            every = whole[tensor.name]
            return every if sample is None or BATCH not in tensor.dims else every.take([sample], axis=tensor.dims.index(BATCH))

        sizes, name = (setup.sizes, "two samples") if sample is None else ({**setup.sizes, BATCH: 1}, f"sample {sample} alone")
        return Machine(program, Arrays(f, setup.degrees, setup.seed), sizes, some, seed=setup.seed, name=name).run()

    for both, *each in zip(run(None), run(0), run(1), strict=True):
        arrays = Arrays(f, setup.degrees, setup.seed)
        expected, actual = _expected(arrays, both, each, loss=loss), arrays.ordered(both.value, sorted(both.value.dims))
        for at in np.argwhere(~np.asarray(f.same(actual, expected)))[:1]:
            index = dict(zip(sorted(both.value.dims), at[1 + len(arrays.axes) :].tolist(), strict=True))
            shown = Shown(text=_said(both, loss=loss), setup=setup, at=f"{both.name} at {_place(index)}")
            if not setup.exact:
                yield shown
                continue
            pair = expected[tuple(at)], actual[tuple(at)]
            require_short(f, map(plain, pair), SHOWN)
            yield replace(shown, pair=pair)


def _place(index: Mapping[str, int]) -> str:
    return ", ".join(f"{dim} {n}" for dim, n in index.items()) or "the number"


def _expected(arrays: Arrays, both: Output, each: list[Output], *, loss: bool) -> Any:
    """What two samples make of what each makes alone."""
    f, dims = arrays.field, sorted(both.value.dims)
    parts = [arrays.ordered(output.value, dims) for output in each]
    if BATCH in dims:
        values = np.concatenate(parts, axis=1 + len(arrays.axes) + dims.index(BATCH))
        return f.mul(values, f.of(Fraction(1, 2))) if loss and both.call.option("by") else values
    values = f.add(*parts)
    return f.mul(values, f.of(Fraction(1, 2))) if loss else values


def _said(output: Output, *, loss: bool) -> str:
    what = "the mean over samples" if loss else "what each sample gives by itself"
    if output.call.option("by") and not loss:
        what = "the sum of what each sample gives by itself" if BATCH not in output.value.dims else what
    return f"{output.name} of two samples is not {what}"
