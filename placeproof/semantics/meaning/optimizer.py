"""The optimizers of a run: one that looks at each element by itself, one with tensor norms, one with sums along lines before them, one of
directions, one of whole matrices.

Optimizer state is (master copy of the parameter, momentum). Arrays are ``[..., element]``, those of the state ``[..., element, 2]``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from placeproof.semantics.meaning.layout import TensorId
from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.values import Norms
from placeproof.semantics.meaning.world import Columns, World

States = tuple[Array, Array, Array]
#: What the first part of a step gives: numbers of tensors or of lines of matrices, or the direction of each element.
Given = tuple[Norms, ...] | Array | None


def kind(world: World, group: str) -> str:
    """What the reference's optimizer reads for an element of a group."""
    said = world.layout.group(group).update or dict(world.program.reference).get("optimizer", "elementwise")
    return "matrix" if said == "elementwise" and "elementwise-optimizer" in world.problem.without else said


def step(world: World, columns: Columns, states: States, there: Array, have: Array, given: Given) -> tuple[Array, Array]:
    """New parameters and states. ``there``: where all three are; ``have``: where there is a gradient; ``given``: norms of the tensors, or
    the direction of each element."""
    kinds = [kind(world, world.layout.group_of(e)) for e in columns.elements]
    new = np.empty_like(states[0])
    for chosen in dict.fromkeys(kinds):
        own = np.array([k == chosen for k in kinds])
        new[..., own] = _moved(world, columns, states, (there, have), given, chosen)[..., own]
    return new, np.stack([new, momentum(world.field, *states[1:])], axis=-1)


def _moved(world: World, columns: Columns, states: States, held: tuple[Array, Array], given: Given, chosen: str) -> Array:
    """New parameters, of an optimizer of a kind."""
    f, (theta, omega, g), (there, have) = world.field, states, held
    moved = momentum(f, omega, g)
    if given is None and chosen == "elementwise":
        return elementwise(f, states)
    of = _tensors(world, columns)
    if given is None and chosen == "factored":
        lines = line_sums(world, columns, g, have, have)
        given = lines, norms(world, columns, states, there, there, lines)
    if isinstance(given, tuple):
        by = _read(world, columns, given)
    elif given is not None:
        moved, by = given, f.of(1)
    elif chosen == "orthogonal":
        moved, by = orthogonalized(world, columns, moved, there), f.of(1)
    elif chosen in ("matrix", "preconditioned"):
        by = f.add(_beside(of, *_totals(f, of, np.where(have, g, f.of(0)))), f.of(1))
    else:
        by = _beside(of, *_totals(f, of, np.where(there, _term(f, states), f.of(0))))
    return f.sub(theta, f.mul(f.mul(moved, by), f.of(Fraction(1, 4))))


def _read(world: World, columns: Columns, given: tuple[Norms, ...]) -> Array:
    """What an element is told of numbers of its tensor, and of its row and column."""
    total: Array = world.field.of(0)
    for numbers in given:
        for n, of in enumerate(_lines(world, columns) if numbers.lines else [_tensors(world, columns)], start=1):
            total = world.field.add(total, world.field.mul(_beside(of, numbers.tensors, numbers.data), world.field.of(n)))
    return total


def momentum(f: Field, omega: Array, g: Array) -> Array:
    """The momentum after the step: half the sum of the old one and the gradient."""
    return f.mul(f.add(omega[..., 1], g), f.of(Fraction(1, 2)))


def elementwise(f: Field, states: States) -> Array:
    """New parameters, of an optimizer that looks at each element by itself."""
    theta, omega, g = states
    return f.sub(f.sub(theta, f.mul(momentum(f, omega, g), f.of(Fraction(1, 4)))), f.mul(f.mul(g, g), f.of(Fraction(1, 64))))


def orthogonalized(world: World, columns: Columns, x: Array, there: Array) -> Array:
    """A stand-in for a function of whole matrices: each element times 1 plus the sum of squares over what is there of its matrix."""
    f, of = world.field, _tensors(world, columns)
    return f.mul(x, f.add(_beside(of, *_totals(f, of, np.where(there, f.mul(x, x), f.of(0)))), f.of(1)))


def _beside(of: list[TensorId], tensors: tuple[TensorId, ...], numbers: Array) -> Array:
    """A number of each tensor beside each element."""
    beside: Array = numbers[..., [tensors.index(t) for t in of]]
    return beside


def norms(world: World, columns: Columns, states: States, there: Array, extent: Array, sums: Norms | None = None) -> Norms:
    """Of each tensor, the sum over what is there of it; with sums along lines, of terms that read these, and the momentum."""
    f, terms = world.field, _term(world.field, states)
    if sums is not None:
        terms = f.mul(f.add(terms, momentum(f, *states[1:])), f.add(_read(world, columns, (sums,)), f.of(1)))
    return _summed(world, _tensors(world, columns), np.where(there, terms, f.of(0)), extent)


def line_sums(world: World, columns: Columns, g: Array, there: Array, extent: Array) -> Norms:
    """Of each row and each column of a matrix, the sum of squares over what is there of it."""
    squares = np.where(there, world.field.mul(g, g), world.field.of(0))
    rows, of_columns = (_summed(world, of, squares, extent) for of in _lines(world, columns))
    data, have = (np.concatenate(pair, axis=-1) for pair in ((rows.data, of_columns.data), (rows.have, of_columns.have)))
    return Norms((*rows.tensors, *of_columns.tensors), data, have, lines=True)


def _summed(world: World, of: list[TensorId], terms: Array, extent: Array) -> Norms:
    """The sum over each of what elements lie in; ``extent``: the elements that a device may have."""
    ids, data = _totals(world.field, of, terms)
    have = [extent[..., [t == one for t in of]].any(axis=-1) for one in ids]
    return Norms(ids, data, np.stack(have, axis=-1) if have else np.zeros(data.shape, dtype=bool))


def clip(field: Field, norm: Array, limit: Array) -> Array:
    """A stand-in for min(1, limit / norm): any function of the two shows a wrong norm. Of fractions, one that knows the norm's square."""
    norm = np.asarray(norm, dtype=object if field.exact else np.int64)
    over = field.div(norm, limit)
    return field.div(field.array([1], (1,) * norm.ndim), field.add(field.mul(over, over), field.of(1)))


def _term(f: Field, states: States) -> Array:
    theta, _, g = states
    return f.add(f.mul(g, g), theta)


def _tensors(world: World, columns: Columns) -> list[TensorId]:
    return [world.layout.tensor_of(e) for e in columns.elements]


def _lines(world: World, columns: Columns) -> tuple[list[TensorId], list[TensorId]]:
    """The row and the column in which each element lies."""
    rows, of_columns = zip(*(world.layout.lines_of(e) for e in columns.elements), strict=True) if len(columns) else ((), ())
    return [*rows], [*of_columns]


def _totals(f: Field, parts: list[TensorId], terms: Array) -> tuple[tuple[TensorId, ...], Array]:
    """The tensors, and the sum over each."""
    tensors = tuple(dict.fromkeys(parts))
    sums: Array = np.empty((*terms.shape[:-1], len(tensors)), dtype=terms.dtype)
    for n, tensor in enumerate(tensors):
        sums[..., n] = f.total(terms[..., [t == tensor for t in parts]], -1)
    return tensors, sums
