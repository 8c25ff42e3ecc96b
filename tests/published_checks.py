"""All checks of published rows in one table, the rows that are listed instead, and the page that shows both."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import published_rows_experts
import published_rows_flops
import published_rows_layers
import published_rows_parameters
import published_rows_schedules
import published_rows_states
import published_rows_traffic
import test_published_collectives
from published import Row, rows
from published_rows import Check

#: What a source says of where its copy was read, which is no part of its name.
_PLACE = re.compile(r" \([^)]*stored[^)]*\)| in the project brief")
FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "explanation" / "published.md"

_MODULES = (
    published_rows_states,
    published_rows_parameters,
    published_rows_layers,
    published_rows_flops,
    published_rows_experts,
    published_rows_traffic,
    published_rows_schedules,
)
#: Id, or what ids begin with -> check; and what is to be said of rows that hold in a limit or with a difference.
CHECKS: list[tuple[str, Check]] = [item for module in _MODULES for item in module.CHECKS.items()]
CHECKS += test_published_collectives.CHECKS.items()
DIFFERENCES: dict[str, str] = {key: text for module in _MODULES for key, text in module.WITH_A_DIFFERENCE.items()}
DIFFERENCES |= test_published_collectives.NOT_EXACT
LISTED: dict[str, str] = tomllib.loads((FOLDER / "published_listed.toml").read_text(encoding="utf-8"))


def speaks_of(key: str, name: str) -> bool:
    """Whether a key is the id of a row, or what it begins with."""
    return name == key or (key.endswith("-") and name.startswith(key))


def checks(row: Row) -> list[Check]:
    """The checks of a row: one, or none where it is listed."""
    return [check for key, check in CHECKS if speaks_of(key, row["id"])]


def said(row: Row, of: Mapping[str, str]) -> list[str]:
    """What is said of a row: its reasons, or its differences."""
    return [text for key, text in of.items() if speaks_of(key, row["id"])]


def noticed(row: Row) -> bool:
    """Whether a row that is wrong is not reproduced. Some checks also assert what is exact beside a row."""
    try:
        return not checks(row)[0](row)
    except AssertionError:
        return True


# The page.


def generated() -> str:
    """What the page shows of the rows: counts by source, differences, reasons."""
    return "\n\n".join((_sources(), "## In a limit, or with a difference", _by(DIFFERENCES), "## Not reproduced", _by(LISTED)))


def shown() -> str:
    """The same, as it stands in the page."""
    return _parts()[1]


def _parts() -> tuple[str, str, str]:
    """The page: before what is generated, that, and behind it."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- published: begin -->\n")
    inside, end, after = rest.partition("\n<!-- published: end -->")
    return before + begin, inside, end + after


def _sources() -> str:
    groups: dict[str, Counter[str]] = {}
    for row in rows():
        kind = "listed" if said(row, LISTED) else "differing" if said(row, DIFFERENCES) else "plain"
        groups.setdefault(_PLACE.sub("", row["source"]), Counter())[kind] += 1
    groups["all"] = sum(groups.values(), Counter())
    head = "| Source | rows | reproduced | of these in a limit, or with a difference | not reproduced |\n|---|--:|--:|--:|--:|"
    lines = [
        f"| {source} | {n.total()} | {n['plain'] + n['differing']} | {n['differing']} | {n['listed']} |" for source, n in groups.items()
    ]
    return "\n".join((head, *lines))


def _by(of: Mapping[str, str]) -> str:
    """Rows by what is said of them."""
    groups: dict[str, list[str]] = {}
    for row in rows():
        for text in said(row, of):
            groups.setdefault(text, []).append(f"`{row['id']}`")
    return "\n".join(("| Rows | |\n|---|---|", *(f"| {', '.join(ids)} | {text} |" for text, ids in groups.items())))


if __name__ == "__main__":
    first, _, last = _parts()
    PAGE.write_text(first + generated() + last, encoding="utf-8")
