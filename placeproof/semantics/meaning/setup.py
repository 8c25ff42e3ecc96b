"""What is run, and what a run finds: the small mesh, a difference, a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.core.mesh import Axis
from placeproof.programs import Program

if TYPE_CHECKING:
    from placeproof.semantics.meaning.layout import Element


class NoMeaningError(Exception):
    """A program does something that has no meaning here."""


@dataclass(frozen=True)
class Setup:
    """The small mesh: degrees by axis (sub-group sizes by the inner factor's name), micro-batches, layers and units a stage.

    ``exact``: compute in fractions; otherwise in residues, which are as good for a search and do not grow. ``small``: begin with
    numbers that stay small, for people. ``record``: remember how each number came to be. ``entries``: elements of each group in a block of
    the flat model.
    """

    degrees: dict[str, int]
    microbatches: int = 1
    layers_per_stage: int = 1
    units_per_stage: int = 1
    steps: int = 2
    seed: int = 1
    exact: bool = True
    without: frozenset[str] = frozenset()
    record: bool = False
    small: bool = False
    entries: int = 2


@dataclass(frozen=True)
class Difference:
    """A device that does not hold what the reference holds. ``gradient``: the reference's for the element, and the one that the
    device's update read (None where it read none). ``unheld``: why there is no number, where one was computed from what is not held."""

    step: int
    device: dict[str, int]
    state: str
    element: Element
    expected: Fraction
    actual: Fraction | None
    gradient: tuple[Any, Any] = (None, None)
    unheld: str = ""

    @property
    def of_nothing(self) -> bool:
        """Whether the device lacks what the step reads: a gradient to update with, or what a number was computed from."""
        return bool(self.unheld) or self.actual is None or self.gradient[1] is None

    @property
    def in_gradient(self) -> bool:
        """Whether the update read another gradient already: the difference that is easiest to follow."""
        expected, read = self.gradient
        return expected is not None and read is not None and bool(expected != read)


@dataclass(frozen=True)
class Fault:
    """What a real run would end with: devices that wait for one another for ever, meet in different collectives, or
    compute with tensors whose shapes do not fit. ``line``: where that is, if it is one place."""

    why: str
    devices: tuple[dict[str, int], ...] = field(default=())
    line: int | None = None

    @property
    def words(self) -> str:
        """What happens, and where."""
        return self.why if self.line is None else f"line {self.line}: {self.why}"


def factors_of(axis: Axis, setup: Setup) -> dict[str, int]:
    """The factors of an axis with their sizes."""
    size = setup.degrees.get(axis.name, axis.degree or 1)
    if axis.inner is None:
        return {axis.name: size}
    inner = axis.inner if isinstance(axis.inner, int) else setup.degrees.get(axis.inner_name, 1)
    if size % inner:
        raise ValueError(f"sub-groups of {inner} do not divide axis {axis.name} of {size}")
    return {axis.outer_name: size // inner, axis.inner_name: inner}


def one_size_each(program: Program, degrees: Mapping[str, int]) -> bool:
    """Whether sub-groups whose size has one name have one size, on whatever axes they are."""
    sizes = {(a.inner, degrees.get(a.inner_name, 1)) for a in program.axes if isinstance(a.inner, str)}
    return len(sizes) == len({name for name, _ in sizes})
