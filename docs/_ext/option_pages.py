"""The options of each command as a table with anchors, each with an example that stands in a page, and is run there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pipe_tables import code, plain, table

from placeproof.cli.main import program

_PAGES = Path(__file__).parent.parent


def options(name: str) -> str:
    """The arguments and options of a command: as they are written, what they do, and an example."""
    command = program.commands[name]
    rows = [(_written(name, p), plain(p.help or ""), _example(name, p)) for p in command.params if not getattr(p, "hidden", False)]
    return table(["option", "does", "example"], rows)


def _written(command: str, parameter: Any) -> str:
    """Its names, with an anchor: `plan--model`; an argument has none."""
    if parameter.param_type_name == "argument":
        return code(parameter.make_metavar(_context()) if parameter.metavar is None else parameter.metavar)
    names = [*parameter.opts, *parameter.secondary_opts]
    shown = ", ".join(names) + ("" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}")
    return f'<span id="{anchor(command, parameter.opts[0])}"></span>{code(shown)}'


def anchor(command: str, option: str) -> str:
    """Where an option stands in the page."""
    return f"{command}{option}"


def _context() -> Any:
    return program.make_context("placeproof", ["--help"], resilient_parsing=True)


def _example(command: str, parameter: Any) -> str:
    """The shortest command line of the pages that has it, with a link to its page; nothing where there is none."""
    names = {*parameter.opts}
    found = [(line, page) for line, page, words in _lines() if words[1] == command and (names & {*words} or not names & {*_dashed(names)})]
    if not found:
        return ""
    line, page = min(found, key=lambda one: (len(one[0]), one))
    return f"[{code(line)}](../{page})"


def _dashed(names: set[str]) -> Iterator[str]:
    return (name for name in names if name.startswith("-"))


@cache
def _lines() -> list[tuple[str, str, tuple[str, ...]]]:
    """The command lines of blocks that are run, each with its page and its words."""
    found = []
    for path in sorted(_PAGES.rglob("*.md")):
        for line in re.findall(r"^\$ (placeproof [^\n>|]*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            words = tuple(word.partition("=")[0] if word.startswith("--") else word for word in shlex.split(line))
            found.append((line.strip(), path.relative_to(_PAGES).as_posix(), words))
    return found
