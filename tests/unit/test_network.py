"""The network that runs train: its gradients are the derivatives of what it computes, and its optimizers see their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.programs import read
from placeproof.semantics.meaning import Setup, optimizer
from placeproof.semantics.meaning.devices.local import compute
from placeproof.semantics.meaning.devices.network import Weights
from placeproof.semantics.meaning.layout import CHANNELS
from placeproof.semantics.meaning.numbers import Field
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.resolve import resolve

COLUMNS, TOKENS = 3, 2
FIELD = Field(exact=True)
NUMBERS = st.integers(-4, 4).map(Fraction)
SHAPES = {
    "norm": (CHANNELS,),
    "first": (CHANNELS, COLUMNS),
    "second": (COLUMNS, CHANNELS),
    "x": (TOKENS, CHANNELS),
    "dz": (TOKENS, CHANNELS),
}
Arrays = dict[str, Any]


@st.composite
def networks(draw: st.DrawFn) -> Arrays:
    """The weights of a block, what goes in, and the gradient of what comes out."""
    sizes = {name: int(np.prod(shape)) for name, shape in SHAPES.items()}
    drawn = {name: draw(st.lists(NUMBERS, min_size=n, max_size=n)) for name, n in sizes.items()}
    return {name: np.array(values, dtype=object).reshape(SHAPES[name]) for name, values in drawn.items()}


def weights(of: Arrays, columns: tuple[int, ...] = tuple(range(COLUMNS))) -> Weights:
    return Weights(FIELD, of["norm"], of["first"], of["second"], np.isin(np.arange(COLUMNS), columns))


def slope(value: Callable[[Arrays], Fraction], of: Arrays, name: str, at: tuple[int, ...]) -> Fraction:
    """The derivative of a polynomial of degree 4 or less in one number, from five of its values: exact."""
    found = {}
    for k in (-2, -1, 1, 2):
        moved = of[name].copy()
        moved[at] += k
        found[k] = value({**of, name: moved})
    return (8 * (found[1] - found[-1]) - (found[2] - found[-2])) / 12


@settings(max_examples=15)
@given(networks())
def test_gradients_of_a_block_are_derivatives(network: Arrays) -> None:
    def value(of: Arrays) -> Fraction:
        return Fraction(np.sum(weights(of).block(of["x"]) * of["dz"]))

    dx, grads = weights(network).block_back(network["x"], network["dz"])
    for name, found in {"norm": grads.norm, "first": grads.first, "second": grads.second, "x": dx}.items():
        assert found is not None
        assert found.shape == SHAPES[name]
        for at in np.ndindex(*found.shape):
            assert found[at] == slope(value, network, name, at), (name, at)


@given(networks())
def test_a_block_is_the_sum_of_its_columns(network: Arrays) -> None:
    """Partial sums over inner columns add up, forward and backward: what tensor parallelism rests on."""
    y = weights(network).normed(network["x"])
    whole, parts = weights(network), [weights(network, (0,)), weights(network, (1, 2))]
    assert (whole.matrix(y) == sum(p.matrix(y) for p in parts)).all()
    back, each = whole.matrix_back(y, network["dz"]), [p.matrix_back(y, network["dz"]) for p in parts]
    assert (back[0] == sum(b[0] for b in each)).all()
    assert (back[1].first == sum(b[1].first for b in each)).all()
    assert (back[1].second == sum(b[1].second for b in each)).all()
    assert (whole.block(network["x"]) == network["x"] + whole.matrix(y)).all()


UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"
TRAINS = "mesh(dp)\n{reference}G = all_reduce(backward(parameters), dp, op=mean)\n" + UPDATE


def place_of(reference: str) -> Any:
    """One device, in fractions."""
    program = resolve(read(TRAINS.format(reference=f"reference(optimizer={reference})\n")))
    return Run(program, Setup(degrees={"dp": 1})).places[0]


def test_the_gradient_of_the_loss_is_its_derivative() -> None:
    """Of half of the sum of squares: what comes out less the target."""
    text = "mesh(dp)\nx, activations = forward(parameters, data())\nG = backward(parameters, activations, loss(x))\n"
    program = resolve(read(text + UPDATE))
    (place,) = Run(program, Setup(degrees={"dp": 1})).places
    x = compute(place, read_call("data"), [], 1)
    target = place.mesh.mine(place.world.stream("target", 0))[..., 0, :, :]
    found = compute(place, read_call("loss"), [x], 1)

    def loss(stream: Any) -> Fraction:
        return Fraction(np.sum((stream - target) ** 2) / 2)

    for at in np.ndindex(*x.data.shape):
        assert found.data[at] == slope(lambda of: loss(of["x"]), {"x": x.data}, "x", at)


def read_call(op: str) -> Any:
    from placeproof.programs import Call

    return Call(op=op)


@dataclass(frozen=True)
class States:
    """Parameters, master copies, momenta and gradients of all elements: ``[element]``."""

    theta: Any
    master: Any
    momentum: Any
    gradient: Any  # each is ``[1, element]``

    def step(self, place: Any, norms: Any = None) -> tuple[Any, Any]:
        columns = place.world.columns(tuple(range(len(place.world.elements))))
        every = np.ones(self.theta.shape, dtype=bool)
        omega = np.stack([self.master, self.momentum], axis=-1)
        return optimizer.step(place.world, columns, (self.theta, omega, self.gradient), every, every, norms)


@pytest.mark.parametrize("kind", ["elementwise", "tensor_norm", "matrix", "orthogonal", "factored", "preconditioned"])
@settings(max_examples=10)
@given(st.data())
def test_every_optimizer_sees_every_input(kind: str, data: st.DataObject) -> None:
    """Another gradient, another momentum, another parameter: another step. A model that did not look would hide mistakes."""
    place = place_of(kind)
    count = len(place.world.elements)
    drawn = data.draw(st.lists(st.integers(1, 3).map(Fraction), min_size=4 * count, max_size=4 * count))
    states = States(*np.array(drawn, dtype=object).reshape(4, 1, count))
    theta, omega = states.step(place)
    assert (theta == omega[..., 0]).all()
    for name in ("theta", "momentum", "gradient"):
        changed = getattr(states, name).copy()
        changed[0, 0] += 1
        other = replace(states, **{name: changed}).step(place)
        assert other[0][0, 0] != theta[0, 0] or other[1][0, 0, 1] != omega[0, 0, 1], name
        of_others = {
            "tensor_norm": ("theta", "gradient"),
            "matrix": ("gradient",),
            "preconditioned": ("gradient",),
            "orthogonal": ("momentum", "gradient"),
            "factored": ("theta", "momentum", "gradient"),
        }.get(kind, ())
        assert (other[0][0, 1] != theta[0, 1]) == (name in of_others), name  # the two are elements of one tensor


def test_clipping_sees_the_norm() -> None:
    for one in range(1, 5):
        norms = (np.array([Fraction(n)], dtype=object) for n in (one, one + 1))
        first, second = (optimizer.clip(FIELD, norm, Fraction(1))[0] for norm in norms)
        assert first != second
