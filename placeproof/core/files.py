"""Files that a user names: which endings mean a configuration, and reading the text of one."""

from __future__ import annotations

from pathlib import Path

from placeproof.core.diagnostics import InputError, Problems

#: Endings of configurations -> how they are read. `.json` is Hjson because DeepSpeed reads its files as that.
CONFIG_KINDS = {".json": "hjson", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "arguments", ".args": "arguments"}


def config_kind(text: str) -> str | None:
    """How a file of this name is read if it is a configuration; None where its ending is that of none."""
    return CONFIG_KINDS.get(Path(text.strip()).suffix.lower())


def read_text(path: str | Path, *, code: str, help: str) -> str:
    """The text of a file in UTF-8; `~` is the home directory. Raises InputError with the code and the help where it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # a name with a zero byte; a home directory that nobody has
        problems = Problems()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problems.add(code, f"cannot read `{path}`: {reason}", help=help)
        raise InputError(problems.found) from error
