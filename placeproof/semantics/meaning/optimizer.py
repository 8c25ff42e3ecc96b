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
    said = dict(world.program.reference).get("optimizer", "elementwise")
    return "matrix" if "elementwise-optimizer" in world.problem.without else said


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
        where = [given.tensors.index(t) for t in of]
        norm = given.data[..., where]
    elif chosen == "matrix":
        norm = f.add(_by_tensor(f, of, np.where(have, g, f.of(0))), f.of(1))
    else:
        norm = _by_tensor(f, of, np.where(there, _term(f, states), f.of(0)))
    new = f.sub(theta, f.mul(f.mul(momentum, norm), f.of(Fraction(1, 4))))
    return new, np.stack([new, momentum], axis=-1)


def norms(world: World, columns: Columns, states: States, there: Array, extent: Array) -> Norms:
    """Of each tensor, the sum over what is there of it."""
    f, of = world.field, _tensors(world, columns)
    tensors = tuple(dict.fromkeys(of))
    terms = np.where(there, _term(f, states), f.of(0))
    masks = [np.array([t == tensor for t in of]) for tensor in tensors]
    data = np.stack([f.total(np.where(mask, terms, f.of(0)), -1) for mask in masks], axis=-1)
    return Norms(tensors, data, np.stack([(extent & mask).any(axis=-1) for mask in masks], axis=-1))


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


def _by_tensor(f: Field, of: list[tuple[int, str]], terms: Array) -> Array:
    """The sum over each element's tensor, beside each element."""
    found = np.empty_like(terms)
    for tensor in dict.fromkeys(of):
        at = [n for n, t in enumerate(of) if t == tensor]
        found[..., at] = f.total(terms[..., at], -1, keepdims=False)[..., None]
    return found
