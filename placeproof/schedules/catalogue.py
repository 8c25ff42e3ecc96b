"""Looking schedules up by name: the catalogue's data files, or a file of one's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import unknown_name
from placeproof.schedules.read import read_file
from placeproof.schedules.schedule import Schedule

_FOLDER = Path(__file__).parent / "catalogue"


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The names of the catalogue, sorted."""
    return files.stems(_FOLDER)


def load(name: str | Path) -> Schedule:
    """The schedule of that name, or of a file whose name ends in ``.toml``.

    Raises InputError: PP101 for a name that is not in the catalogue, PP110 to PP113 for a file that cannot be read or used.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        return read_file(Path(name))
    if name not in names():
        listed = f"the schedules are {', '.join(names())}; a file's name ends in .toml"
        raise unknown_name(f"there is no schedule `{name}`", name, names(), listed)
    return _named(name)


@lru_cache(maxsize=64)
def _named(name: str) -> Schedule:
    return read_file(_FOLDER / f"{name}.toml")
