"""The optimizers of a run: one that looks at each element by itself, one with tensor norms, one that reads whole matrices.

Optimizer state is (master copy of the parameter, momentum). Arrays are ``[..., element]``, those of the state ``[..., element, 2]``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.values import Norms
from placeproof.semantics.meaning.world import Columns, World

States = tuple[Array, Array, Array]


def kind(world: World) -> str:
    """The reference's optimizer."""
    optimizer = dict(world.program.reference).get("optimizer", "elementwise")
    return "matrix" if "elementwise-optimizer" in world.problem.without else optimizer


def step(world: World, columns: Columns, states: States, there: Array, have: Array, given: Norms | None) -> tuple[Array, Array]:
    """New parameters and states. ``there``: where all three are; ``have``: where there is a gradient; ``given``: norms of the tensors."""
    f, (theta, omega, g) = world.field, states
    momentum = f.mul(f.add(omega[..., 1], g), f.of(Fraction(1, 2)))
    chosen = kind(world)
    if given is None and chosen == "elementwise":
        new = f.sub(f.sub(theta, f.mul(momentum, f.of(Fraction(1, 4)))), f.mul(f.mul(g, g), f.of(Fraction(1, 64))))
        return new, np.stack([new, momentum], axis=-1)
    of = _tensors(world, columns)
    if given is not None:
        tensors, norm = given.tensors, given.data
    elif chosen == "matrix":
        tensors, norm = _totals(f, of, np.where(have, g, f.of(0)))
        norm = f.add(norm, f.of(1))
    else:
        tensors, norm = _totals(f, of, np.where(there, _term(f, states), f.of(0)))
    beside = norm[..., [tensors.index(t) for t in of]]
    new = f.sub(theta, f.mul(f.mul(momentum, beside), f.of(Fraction(1, 4))))
    return new, np.stack([new, momentum], axis=-1)


def norms(world: World, columns: Columns, states: States, there: Array, extent: Array) -> Norms:
    """Of each tensor, the sum over what is there of it."""
    f, of = world.field, _tensors(world, columns)
    tensors, data = _totals(f, of, np.where(there, _term(f, states), f.of(0)))
    have = [extent[..., [t == tensor for t in of]].any(axis=-1) for tensor in tensors]
    return Norms(tensors, data, np.stack(have, axis=-1) if have else np.zeros(data.shape, dtype=bool))


def clip(field: Field, norm: Array, limit: Array) -> Array:
    """A stand-in for min(1, limit / norm): any function of the two shows a wrong norm. Of fractions, one that knows the norm's square."""
    norm = np.asarray(norm, dtype=object if field.exact else np.int64)
    over = field.div(norm, limit)
    return field.div(field.array([1], (1,) * norm.ndim), field.add(field.mul(over, over), field.of(1)))


def _term(f: Field, states: States) -> Array:
    theta, _, g = states
    return f.add(f.mul(g, g), theta)


def _tensors(world: World, columns: Columns) -> list[tuple[int, str]]:
    return [(e[0], world.layout.group_of(e)) for e in columns.elements]


def _totals(f: Field, parts: list[tuple[int, str]], terms: Array) -> tuple[tuple[tuple[int, str], ...], Array]:
    """The tensors, and the sum over each."""
    tensors = tuple(dict.fromkeys(parts))
    sums: Array = np.empty((*terms.shape[:-1], len(tensors)), dtype=terms.dtype)
    for n, tensor in enumerate(tensors):
        sums[..., n] = f.total(terms[..., [t == tensor for t in parts]], -1)
    return tensors, sums
