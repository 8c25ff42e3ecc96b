"""The factors that a step lacks, in words and as JSON data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from placeproof.report.document import Notes, Section, section
from placeproof.semantics.mend import Mended, NoFactor


def data(found: Mended | NoFactor, path: str) -> dict[str, Any]:
    """What ``--mend`` has to say, as data."""
    if isinstance(found, NoFactor):
        return {"file": None, "why": found.why, "shown": found.shown, "edits": [], "scales": []}
    edits, scales = ([asdict(one) for one in every] for every in (found.edits, found.scales))
    return {"file": path, "why": None, "shown": None, "edits": edits, "scales": scales}


def shown(found: dict[str, Any]) -> Section:
    """The same in words."""
    if found["file"] is None:
        lines = [] if found["shown"] is None else [f"no factor of what the update reads can: with {found['shown']}"]
        return section(f"mended: no factor was found: {found['why']}", Notes(lines))
    lines = [f"multiply `{e['what']}` by `{e['factor']}` {e['where']} line {e['line']}" for e in found["edits"]]
    for one in found["scales"]:
        of = "" if one["loss"] == "main" else f", loss {one['loss']}"
        of = f"{one['group']}{of}"
        lines.append(f"{of}: read is {one['read']} of it, wanted {one['wanted']}: the factor is {one['factor']}")
    return section(f"mended: {found['file']} is proved", Notes(lines))
