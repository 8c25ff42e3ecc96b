"""``python -m placeproof.verify FILE``: whether a certificate holds, with the standard library alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import RejectedError, left_open, verify


def main(path: str) -> int:
    """Look at one file; 0 if it holds."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        used = verify(document)
    except RejectedError as rejected:
        print(f"{path}: rejected: {rejected}")
        return 1
    shown = ", ".join(f"{rule} {n}" for rule, n in used.most_common()) or "no steps"
    print(f"{path}: {len(document['claims'])} claims hold ({shown}); not shown: {len(document['unshown'])}")
    return 3 if left_open(document) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
