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
from published import CLASSES, Check, Row, class_of, is_printed, rows

#: What a source says of where its copy was read, which is no part of its name.
_PLACE = re.compile(r" \([^)]*stored[^)]*\)| in the project brief")
FOLDER = Path(__file__).parents[1]
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
LISTED: dict[str, str] = tomllib.loads((FOLDER / "published" / "published_listed.toml").read_text(encoding="utf-8"))


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


def counts() -> dict[str, Counter[str]]:
    """Rows by source, and of all: by the class of their checks, and what else is to be said of those that are reproduced."""
    groups: dict[str, Counter[str]] = {}
    for row in rows():
        found = [class_of(check, row) for check in checks(row)]
        more = ["not printed"] * (not is_printed(row)) + ["differing"] * bool(said(row, DIFFERENCES)) if found else ["listed"]
        groups.setdefault(_PLACE.sub("", row["source"]), Counter()).update(["rows", *found, *more])
    return {**groups, "all": sum(groups.values(), Counter())}


def counted() -> str:
    """The counts of all rows, in a sentence."""
    n = counts()["all"]
    classes = ", ".join(f"{n[name]} {name}" for name in CLASSES)
    return (
        f"{n['rows']} rows: {classes}, {n['listed']} not reproduced; of those reproduced, {n['not printed']} have no printed value, "
        f"{n['differing']} hold in a limit or with a difference"
    )


def generated() -> str:
    """What the page shows of the rows: counts by source, differences, reasons."""
    classes = "\n".join(
        ("| Class | what is compared with the row |", "|---|---|", *(f"| {name} | {says} |" for name, says in CLASSES.items()))
    )
    classed = {row["id"]: class_of(checks(row)[0], row) for row in rows() if checks(row)}
    other = {name: kind for name, kind in classed.items() if kind != "derived"}
    parts = (counted() + ".", classes, _sources(), "## Not derived, or in part", _by(other))
    return "\n\n".join((*parts, "## In a limit, or with a difference", _by(DIFFERENCES), "## Not reproduced", _by(LISTED)))


def shown() -> str:
    """The same, as it stands in the page."""
    return _parts()[1]


def _parts() -> tuple[str, str, str]:
    """The page: before what is generated, that, and behind it."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- published: begin -->\n")
    inside, end, after = rest.partition("\n<!-- published: end -->")
    return before + begin, inside, end + after


def _sources() -> str:
    columns = [*CLASSES, "listed", "not printed", "differing"]
    names = ("not reproduced", "no printed value", "in a limit, or with a difference")
    head = f"| Source | rows | {' | '.join((*CLASSES, *names))} |\n|---|{'--:|' * (len(columns) + 1)}"
    lines = [f"| {source} | {n['rows']} | {' | '.join(str(n[key]) for key in columns)} |" for source, n in counts().items()]
    return "\n".join((head, *lines))


def _by(of: Mapping[str, str]) -> str:
    """Rows by what is said of them."""
    groups: dict[str, list[str]] = {}
    for row in rows():
        for text in said(row, of):
            groups.setdefault(text, []).append(f"`{row['id']}`")
    return "\n".join(("| Rows | |\n|---|---|", *(f"| {', '.join(ids)} | {text} |" for text, ids in groups.items())))


if __name__ == "__main__":
    print(counted())
    first, _, last = _parts()
    PAGE.write_text(first + generated() + last, encoding="utf-8")
