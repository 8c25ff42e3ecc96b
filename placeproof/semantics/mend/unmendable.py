"""Numbers that show that no factor makes a gradient right: two elements of one group on one device that would need two."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program
from placeproof.semantics.judge.search import describe, setups
from placeproof.semantics.meaning.layout import in_words
from placeproof.semantics.meaning.recorded import IrrationalError
from placeproof.semantics.meaning.run import NoMeaningError, Run
from placeproof.semantics.resolve import resolve

#: The most meshes that are looked at.
MOST = 12


def different_factors(program: Program, without: frozenset[str]) -> str | None:
    """On which device two elements of a group would need different factors, in words; None where no small run shows such."""
    resolved = resolve(program)
    for number, setup in enumerate(setups(resolved, without)):
        if number >= MOST:
            return None
        both = Run(resolved, replace(setup, exact=True, steps=1))
        try:
            if both.step(0) is not None:
                continue
            shown = next((text for place in both.places if (text := _of_device(both, place)) is not None), None)
        except (ZeroDivisionError, NoMeaningError, IrrationalError, InputError):
            continue
        if shown is not None:
            return f"{describe(setup)}: {shown}"
    return None


def _of_device(both: Run, place: Any) -> str | None:
    first: dict[str, tuple[str, Fraction | None]] = {}
    layout = place.world.layout
    for number, element in enumerate(both.truth.columns.elements):
        read = place.gradient(number, (0,) * len(place.world.factors))
        wanted = both.truth.gradient[number]
        if read is None or (not read and not wanted) or not isinstance(read, Fraction) or layout.group(layout.group_of(element)).frozen:
            continue
        factor = wanted / read if read else None
        group, name = layout.group_of(element), in_words(element)
        before, other = first.setdefault(group, (name, factor))
        where = ", ".join(f"{f} = {n}" for f, n in place.here.items()) or "the device"
        if factor is None:
            return f"on {where}, {name} is read as 0, and needs to be something else"
        if other != factor:
            return f"on {where}, {before} needs {other}, and {name} needs {factor}"
    return None
