"""The second argument for "for every number of devices", in words and as JSON data."""

from __future__ import annotations

from typing import Any

from placeproof.report.document import Notes, Section, section
from placeproof.semantics.judge.cutoff import Covered, NotCovered


def data(found: Covered | NotCovered) -> dict[str, Any]:
    """What ``--second-opinion cutoff`` has to say, as data."""
    if isinstance(found, NotCovered):
        return {"covered": False, "why": found.why, "line": found.place.line if found.place else None}
    return {
        "covered": True,
        "runs": found.runs,
        "degree": found.degree,
        "values": {axis: list(values) for axis, values in found.values.items()},
        "microbatches": list(found.microbatches),
        "units": list(found.units),
    }


def shown(found: dict[str, Any]) -> Section:
    """The same in words."""
    if not found["covered"]:
        where = f" (line {found['line']})" if found["line"] else ""
        return section(f"second opinion: the cut-off does not cover this: {found['why']}{where}")
    lines = []
    for axis, values in found["values"].items():
        if len(values) == 1:
            lines.append(f"{axis} = {values[0]}: it is given")
        else:
            listed = ", ".join(map(str, values))
            lines.append(f"{axis} = {listed}: coefficients are rational functions of {axis} of degree {found['degree'][axis]} at most")
    counts, units = (", ".join(map(str, found[name])) for name in ("microbatches", "units"))
    lines.append(f"micro-batches: {counts}; units in the model: {units}; of other numbers of these it says nothing")
    return section(f"second opinion: right for every number of devices by {found['runs']} runs, too", Notes(lines))
