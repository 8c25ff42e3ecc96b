"""The second argument for "for every number of devices", in words and as JSON data."""

from __future__ import annotations

from typing import Any

from placeproof.report.document import Notes, Section, section
from placeproof.semantics.judge.cutoff import Covered, NotCovered


def data(opinion: Covered | NotCovered) -> dict[str, Any]:
    """What ``--second-opinion cutoff`` has to say, as data."""
    if isinstance(opinion, NotCovered):
        return {"covered": False, "why": opinion.why, "line": opinion.place.line if opinion.place else None}
    return {
        "covered": True,
        "runs": opinion.runs,
        "degree": opinion.degree,
        "values": {axis: list(values) for axis, values in opinion.values.items()},
        "microbatches": list(opinion.microbatches),
        "units": list(opinion.units),
    }


def shown(opinion: dict[str, Any]) -> Section:
    """The same in words."""
    if not opinion["covered"]:
        where = f" (line {opinion['line']})" if opinion["line"] else ""
        return section(f"second opinion: the cut-off does not cover this: {opinion['why']}{where}")
    lines = []
    for axis, values in opinion["values"].items():
        if len(values) == 1:
            lines.append(f"{axis} = {values[0]}: it is given")
        else:
            listed = ", ".join(map(str, values))
            lines.append(f"{axis} = {listed}: coefficients are rational functions of {axis} of degree {opinion['degree'][axis]} at most")
    counts, units = (", ".join(map(str, opinion[name])) for name in ("microbatches", "units"))
    lines.append(f"micro-batches: {counts}; units in the model: {units}; of other numbers of these it says nothing")
    return section(f"second opinion: right for every number of devices by {opinion['runs']} runs, too", Notes(lines))
