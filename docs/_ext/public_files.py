"""The page of public files: how many of each system's are read as the system reads them, and what becomes of the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import launcher_pages
from pipe_tables import code, table

from placeproof.importers import SYSTEMS

CONFIGS = Path(__file__).parent.parent.parent / "tests" / "configs"
_RECIPES = CONFIGS.parent / "data" / "recipes.json"
_AT_COMMIT = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{7,40}):(?P<path>.+)")
_CHECKPOINT = ("huggingface.co/", "github.com/")
Row = tuple[str, str, str, str, str]


def counts() -> str:
    """Of each system: files, repositories, and how many are read, are read but for what trains another step, or are refused."""
    rows = [*map(_configurations, SYSTEMS.values()), _scripts(), _models()]
    total = ("all", *(str(sum(int(row[column] or 0) for row in rows)) for column in range(1, 5)))
    return table(["system", "files", "read", "read, with settings that train another step", "refused"], [*rows, total])


def listed() -> str:
    """Each configuration, with what somebody expects of it."""
    rows = []
    for system in SYSTEMS.values():
        for refused in ("", "bad"):
            for row in _public(system.name, refused):
                at = _AT_COMMIT.fullmatch(row["source"])
                assert at is not None
                codes = ", ".join(sorted({problem[0] for problem in row.get("problems", ())}))
                rows.append((system.title, f"{code(at['repo'])} {code(at['path'])}", at["commit"][:10], code(row.get("expression", codes))))
    return table(["system", "file", "commit", "strategy, or the codes of what is refused"], rows)


def _configurations(system: Any) -> Row:
    read, refused = _public(system.name), _public(system.name, "bad")
    other = sum(bool(row["another_step"]) for row in read)
    return (system.title, str(len(read) + len(refused)), str(len(read) - other), str(other or ""), str(len(refused) or ""))


def _public(system: str, folder: str = "") -> list[dict[str, Any]]:
    path = CONFIGS / system / folder / "expected.json"
    rows = json.loads(path.read_text(encoding="utf-8")).values() if path.exists() else ()
    return [*(row for row in rows if _AT_COMMIT.fullmatch(row.get("source") or "")), *_recipes(system, bool(folder))]


def _recipes(system: str, refused: bool) -> list[dict[str, Any]]:
    """Functions of files of Python, and files of settings that name others, of which no text is kept."""
    rows = [row for row in json.loads(_RECIPES.read_text(encoding="utf-8")) if row["system"] == system]
    return [
        {
            "source": ":".join([f"{row['repo']}@{row['commit']}", row["path"], *([row["function"]] if "function" in row else [])]),
            "problems": [["not followed"]],
            **row["read"],
        }
        for row in rows
        if ("refused" in row["read"]) == refused
    ]


def _scripts() -> Row:
    rows = launcher_pages.rows()
    read = sum(row["outcome"] == "read" for row in rows)
    return ("launch scripts", str(len(rows)), str(read), "", str(len(rows) - read))


def _models() -> Row:
    rows = json.loads((CONFIGS / "huggingface" / "expected.json").read_text(encoding="utf-8")).values()
    public = sum((row["source"] or "").startswith(_CHECKPOINT) for row in rows)
    return ("`config.json` of models", str(public), str(public), "", "")
