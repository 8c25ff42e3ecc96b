"""What is read of public recipes, functions of Python or files, beside what people expect: `python nightly/recipes.py FOLDER`.

FOLDER has the files as `OWNER+NAME@COMMIT/PATH`, with seven digits of the commit; what it lacks is left as it was. The record has what
somebody worked out by reading a recipe and its framework's source: strategy,
`b`, `s` and `m`, byte widths, assumptions that do not hold, and settings that train another step; or why it has to be refused. It has no
text of the files, which are named by repository, path, commit and git's hash. Prints what differs, and writes what was read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import InputError
from placeproof.importers import read_config

RECORD = Path(__file__).parents[1] / "tests" / "data" / "recipes.json"


def main() -> int:
    """Read all, and write the record down. The exit code is 1 where something else is read than expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    expected = json.loads(RECORD.read_text(encoding="utf-8"))
    places = [asked.folder / f"{row['repo'].replace('/', '+')}@{row['commit'][:7]}" / row["path"] for row in expected]
    rows = [{**row, **(found(row, place) if place.exists() else {})} for row, place in zip(expected, places, strict=True)]
    for row in rows:
        if not as_expected(row):
            print(row["path"], row.get("function", ""), row["read"], row["expected"])
    RECORD.write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n", encoding="utf-8")
    print(f"{sum(map(as_expected, rows))} of {len(rows)} as expected; {sum(not place.exists() for place in places)} are not in the folder")
    return int(not all(map(as_expected, rows)))


def found(row: dict[str, Any], path: Path) -> dict[str, Any]:
    """What becomes of a recipe now."""
    data = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "recipe.py"
        copy.write_bytes(data)
        subject = f"{copy}:{row['function']}" if "function" in row else str(path)
        try:
            read = read_config(subject, world=row["world"])
        except InputError as error:
            return {"blob": blob, "read": {"refused": error.diagnostics[0].message}}
    numbers = {name: int(read.numbers[name]) if name in read.numbers else None for name in ("b", "s", "m")}
    other = sorted(one.name for one in read.another_step)
    return {
        "blob": blob,
        "read": {"expression": read.expression, **numbers, "precision": read.precision, "without": [*read.without], "another_step": other},
    }


def as_expected(row: dict[str, Any]) -> bool:
    """Whether it is read as somebody expects, or refused where it has to be."""
    return "refused" in row["read"] if "refused" in row["expected"] else bool(row["read"] == row["expected"])


if __name__ == "__main__":
    sys.exit(main())
