"""The factors that a step lacks, in words and as JSON data."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from placeproof.report.document import Notes, Section, section
from placeproof.semantics.mend import Mended, NoFactor

#: Of a step that is right.
NOTHING = "nothing: the step is proved as it is"


def data(found: Mended | NoFactor, path: str, text: str = "") -> dict[str, Any]:
    """What ``--mend`` has to say, as data. ``text``: the program as it was written; a recorded one says which lines of a script
    its own came from."""
    if isinstance(found, NoFactor):
        return {"file": None, "why": found.why, "shown": found.shown, "edits": [], "scales": []}
    edits = [{**asdict(one), "from": _origin(text.splitlines(), one.line)} for one in found.edits]
    scales = [asdict(one) for one in found.scales]
    return {"file": path, "why": None, "shown": None, "edits": edits, "scales": scales}


def shown(found: dict[str, Any]) -> Section:
    """The same in words."""
    if found["file"] is None:
        none = "no factor was found" if found["shown"] is None else "no factor makes this step right"
        return section(f"mended: {found['why']}" if found["why"] == NOTHING else f"not mended, {none}: {found['why']}")
    lines = [_edit(e) for e in found["edits"]]
    for one in found["scales"]:
        of = "" if one["loss"] == "main" else f", loss {one['loss']}"
        of = f"{one['group']}{of}"
        lines.append(f"{of}: read is {one['read']} of it, wanted {one['wanted']}: the factor is {one['factor']}")
    return section(f"mended: {found['file']} is proved", Notes(lines))


def _edit(edit: dict[str, Any]) -> str:
    as_well = "" if edit["becomes"] is None else f": write `{edit['becomes']}`"
    origin = "" if edit["from"] is None else f" ({edit['from']})"
    return f"multiply `{edit['what']}` by `{edit['factor']}` {edit['where']} line {edit['line']}{origin}{as_well}"


def _origin(lines: list[str], line: int) -> str | None:
    """The line of a script that a recorded line came from, or the one before it: what the last comment says that names one."""
    named = (re.match(r"\s*# (\S+\.py:\d+)", one) for one in reversed(lines[: max(line - 1, 0)]))
    return next((comment.group(1) for comment in named if comment is not None), None)
