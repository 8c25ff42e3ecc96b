"""Settings of a configuration that a file of Python makes, with their places."""

from __future__ import annotations

from typing import Any

from placeproof.core.places import KeyPath
from placeproof.importers.python.module import Module
from placeproof.importers.python.values import Made, Unknown


class Settings:
    """Settings by their paths, with the places of those of a function that say them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.data: dict[str, Any] = {}
        self.spans: dict[KeyPath, tuple[int, int, int]] = {}
        self.open: dict[str, str] = {}

    def put(self, path: tuple[str, ...], value: Any, node: Any) -> None:
        """Say a setting."""
        table = self.data
        for depth, part in enumerate(path[:-1]):
            table = table.setdefault(part, {})
            self.spans.setdefault(path[: depth + 1], self.module.span(node))
        if isinstance(value, list) and not _listed(value):
            value = Unknown("[...]")
        if isinstance(value, Unknown | Made):
            self.open[".".join(path)] = f"it is `{shown(value)}`, which is not followed"
            value = shown(value)
        table[path[-1]] = value
        self.spans[path] = self.module.span(node)

    def whole(self, made: Made) -> None:
        """A problem where settings have no name."""
        if made.given or made.starred:
            self.refuse(f"`{made.name}` takes its settings by name", made.node, "write the names", "PP503")

    def refuse(self, message: str, node: Any, help: str, code: str = "PP504") -> None:
        """A problem with what a function says."""
        self.module.problems.add(code, message, place=self.module.place(node), help=help)


def _listed(values: list[Any]) -> bool:
    """Whether it is a list of values, or of lists of values."""
    flat = [inner for value in values for inner in (value if isinstance(value, list) else [value])]
    return not any(isinstance(value, list | Unknown | Made) for value in flat)


def shown(value: Any) -> str:
    """A value as messages show it."""
    if isinstance(value, Made):
        return f"{value.name or '...'}(...)"
    return value.text if isinstance(value, Unknown) else repr(value)[:60]
