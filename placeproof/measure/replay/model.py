"""The model of a replayed step as its file describes it: the elements, who owns which, and the numbers that the run begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from placeproof.core.remembered import remembered
from placeproof.measure.replay.file import Counterexample
from placeproof.semantics.meaning.devices.place import Place
from placeproof.semantics.meaning.layout import TIED, Element, Layout
from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.problem import Problem, full_name, overflow_name
from placeproof.semantics.meaning.run import Truth
from placeproof.semantics.meaning.setup import Setup
from placeproof.semantics.meaning.world import World

#: A table, an element, and what there is of it: of an optimizer's state, two numbers.
Row = tuple[str, Element, Sequence[Any]]


class MissingNumberError(Exception):
    """The run needs something that the file does not hold."""


def setup_of(counterexample: Counterexample) -> Setup:
    """What was run of a training step."""
    return Setup(
        degrees=dict(counterexample.degrees),
        microbatches=counterexample.microbatches,
        layers_per_stage=counterexample.sizes["layers per stage"],
        units_per_stage=counterexample.sizes["units per stage"],
        entries=max([2, *(1 + entry for *_, entry in counterexample.elements)]),
        seed=counterexample.seed,
        small=counterexample.flags.get("small", False),
        without=counterexample.without,
    )


def world_of(counterexample: Counterexample) -> World:
    """What all processes know. Raises MissingNumberError for a file of another model than the program's."""
    layout = _Layout(counterexample.program, setup_of(counterexample), counterexample)
    if set(layout.elements) != set(Layout(layout.program, layout.setup).elements):
        raise MissingNumberError("the elements of the file are not those of the program's model")
    problem = _Problem(layout, counterexample.seed, counterexample.without, found=counterexample)
    return World(counterexample.program, problem, Field(exact=True), counterexample.seed)


@dataclass(frozen=True)
class _Layout(Layout):
    """Elements in the order of the file, with the owners that it names."""

    found: Counterexample

    @cached_property
    def elements(self) -> list[Element]:
        """All elements of the model."""
        return list(self.found.elements)

    def group_of(self, element: Element) -> str:
        """The parameter group of an element."""
        return self.found.elements[element]

    @remembered
    def owners(self, factor: str, stage: int = 0, order: str = "blocked") -> Array:
        """The coordinate that owns each element along a factor. Who owns a tied one depends on the stage."""
        keys = [(factor, order, stage if e[0] == TIED else 0) for e in self.elements]
        if not self.found.owners.keys() >= set(keys):
            raise MissingNumberError(f"the file has no owners along `{factor}` (order {order}, stage {stage})")
        return np.array([self.found.owners[key][at] for at, key in enumerate(keys)], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class _Problem(Problem):
    """Every number from the file."""

    found: Counterexample

    def _drawn(self, _: list[int], name: str, *key: object) -> Fraction:
        return self._number(full_name(name, key))

    def overflows(self, element: Element, step: int) -> bool:
        """Whether the gradient of an element is not finite in a step."""
        return self._number(overflow_name(element, step)) != 0

    def _number(self, name: str) -> Fraction:
        try:
            return self.found.numbers[name]
        except KeyError:
            raise MissingNumberError(f"the file has no number `{name}`") from None


# What a run ends with.


def of_device(place: Place) -> Iterator[Row]:
    """What a device holds, and the gradients that its last update read."""
    parts = {"parameters": place.state("parameters"), "optimizer": place.state("optimizer"), "gradients": place.read}
    yield from ((name, element, row) for name, part in parts.items() if part is not None for element, row in part.held())


def of_truth(truth: Truth) -> Iterator[Row]:
    """What one device holds, and the gradient of its last step."""
    tables = {"parameters": truth.theta, "optimizer": truth.omega, "gradients": truth.gradient[:, None]}
    yield from ((name, e, row) for name, table in tables.items() for e, row in zip(truth.world.elements, table, strict=True))
