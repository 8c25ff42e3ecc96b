"""The page of settings: what becomes of each setting of each system whose configurations are read."""

from __future__ import annotations

from pathlib import Path

import yaml
from pipe_tables import code, plain, table

from placeproof.importers import SYSTEMS, Role
from placeproof.importers.settings import settings


def of_action() -> str:
    """The inputs of the action for GitHub."""
    inputs = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))["inputs"]
    return table(["input", "is", "default"], [(code(name), one["description"], code(one["default"])) for name, one in inputs.items()])


def listed() -> str:
    """The settings of each system, by what becomes of them."""
    return "\n".join(f"## {system.title}\n\n{_of(system.name, *system.more)}" for system in SYSTEMS.values())


def _of(*tables: str) -> str:
    names: dict[tuple[Role, str], list[str]] = {}
    for known in (known for name in tables for known in settings(name)):
        names.setdefault((known.role, known.note), []).append(known.name)
    order = list(Role)
    rows = [
        (role.value, ", ".join(map(code, which)), plain(note))
        for (role, note), which in sorted(names.items(), key=lambda item: order.index(item[0][0]))
    ]
    return table(["role", "settings", "what they do"], rows)
