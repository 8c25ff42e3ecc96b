"""What is run of a program over tensors, and what a run finds; :class:`placeproof.semantics.meaning.Fault` is one that does not end."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from placeproof.programs import Resolved
from placeproof.semantics.meaning import Fault
from placeproof.semantics.searched import in_words


class NotComputedError(Exception):
    """The run asks for a number, or a step, that is not computed here: it says nothing about the program."""


class FaultError(Exception):
    """The run ends here: devices could not compute this. ``where``: which of them, for each coordinate; ``line``: of the statement."""

    def __init__(self, why: str, where: Any = True) -> None:
        super().__init__(why)
        self.where, self.line = where, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A mesh, the sizes of the dimensions, and what the inputs are drawn from.

    ``exact``: compute in fractions, with small inputs; otherwise in residues. ``fine``: exponents are multiplied, so that powers of
    fractions are computed too. ``record``: remember how each number came to be. ``reference``: what one device runs, if it is another
    text.
    """

    degrees: dict[str, int]
    sizes: dict[str, int]
    seed: int = 1
    exact: bool = True
    fine: bool = False
    record: bool = False
    reference: Resolved | None = None

    @property
    def mesh(self) -> str:
        """The mesh in words."""
        return in_words(self.degrees) or "one device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A result that differs on a device: from one device's, or from the ``derivative`` of what that computes.

    ``actual`` is None, and ``unheld`` says why, where it was computed from what is not held;
    ``expected`` is None where one device has no such element."""

    line: int
    device: dict[str, int]
    name: str
    index: dict[str, int]
    expected: Fraction | None
    actual: Fraction | None
    unheld: str = ""
    derivative: bool = False

    @property
    def element(self) -> str | None:
        """The element in words; None for a number without dimensions."""
        return ", ".join(f"{dim} {n}" for dim, n in self.index.items()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefutingBlockRun:
    """A run that ends with other numbers than one device's, or does not end."""

    setup: Setup
    what: Difference | Fault

    @property
    def words(self) -> str:
        """What happens."""
        if isinstance(self.what, Fault):
            return self.what.words
        device = ", ".join(f"{axis} = {n}" for axis, n in self.what.device.items())
        where = f"{self.what.name} at {self.what.element or 'the number'} on device {device}"
        actual = f"actual nothing: {self.what.unheld}" if self.what.unheld else f"actual {self.what.actual}"
        return f"{where}: expected {self.what.expected}, {actual}"
