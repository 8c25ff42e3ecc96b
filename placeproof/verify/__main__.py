"""``python -m placeproof.verify FILE``: whether a certificate holds, with the standard library alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from . import SCHEMA_OF_MODEL, SCHEMA_OF_PLAN, RejectedError, left_open, left_open_of_model, plan, verify, verify_model


def main(path: str) -> int:
    """Look at one file; 0 if it holds."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == SCHEMA_OF_PLAN:
        return plan.main(path)
    of_model = schema == SCHEMA_OF_MODEL
    try:
        used = verify_model(document) if of_model else {"": verify(document)}
    except RejectedError as rejected:
        print(f"{path}: rejected: {rejected}")
        return 1
    for name, one in _certificates(document).items():
        shown = ", ".join(f"{rule} {n}" for rule, n in used[name].most_common()) or "no steps"
        where = f"{path}, {name}" if name else path
        print(f"{where}: {len(one['claims'])} claims hold ({shown}); not shown: {len(one['unshown'])}")
    return 3 if (left_open_of_model if of_model else left_open)(document) else 0


def _certificates(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Those that a file has, by part."""
    parts = document.get("parts")
    return {"": document} if parts is None else {p["part"]: p["certificate"] for p in parts if p["certificate"] is not None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
