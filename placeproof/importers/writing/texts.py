"""Settings as the text of a file, which :mod:`placeproof.importers.document` reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]


def render_settings(settings: Mapping[str, object], kind: str, comments: Sequence[str] = ()) -> str:
    """Settings by their names, with dots between tables, as a file of a kind of :func:`placeproof.importers.document.read_document`.

    ``comments``: lines that stand before them; JSON has none.
    """
    before = [] if kind == "hjson" else [f"# {line}" for line in comments]
    return "\n".join([*before, _FORMS[kind](_tree(settings))]) + "\n"


def commented(kind: str) -> bool:
    """Whether a kind of file has comments."""
    return kind != "hjson"


def _tree(settings: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *tables, last = name.split(".")
        inner = tree
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    return tree


def _json(tree: Tree) -> str:
    return json.dumps(tree, indent=2)


def _yaml(tree: Tree) -> str:
    import yaml

    return str(yaml.safe_dump(tree, sort_keys=False)).rstrip("\n")


def _toml(tree: Tree, path: tuple[str, ...] = ()) -> str:
    """Values first, then the tables in it."""
    own = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    header = [f"[{'.'.join(path)}]"] if own and path else []
    lines = [*header, *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
    inner = [_toml(value, (*path, key)) for key, value in tree.items() if isinstance(value, dict)]
    return "\n\n".join(["\n".join(lines)] * bool(lines) + inner)


def _arguments(tree: Tree) -> str:
    """An argument a line; a name alone for what is true."""
    return "\n".join(f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in tree.items())


_FORMS: Mapping[str, Callable[[dict[str, Any]], str]] = {"hjson": _json, "yaml": _yaml, "toml": _toml, "arguments": _arguments}
