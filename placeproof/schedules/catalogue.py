"""Looking schedules up by name: the catalogue's data files, or a file of one's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import unknown_name
from placeproof.schedules.own import read_own
from placeproof.schedules.read import read_file
from placeproof.schedules.schedule import Schedule

_FOLDER = Path(__file__).parent / "catalogue"


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The names of the catalogue, sorted."""
    return files.stems(_FOLDER)


def is_own(name: str) -> bool:
    """Whether a name is that of a file, and of none of the catalogue."""
    return name.endswith(".toml")


def load(name: str | Path) -> Schedule:
    """The schedule of that name, or of a file whose name ends in ``.toml``.

    Raises InputError: PP101 for a name that is not in the catalogue, and of a file as :func:`placeproof.schedules.own.read_own`.
    """
    if isinstance(name, Path) or is_own(name):
        return read_own(Path(name), names())
    if name not in names():
        listed = f"the schedules are {', '.join(names())}; a file's name ends in .toml"
        raise unknown_name(f"there is no schedule `{name}`", name, names(), listed)
    return _named(name)


@lru_cache(maxsize=64)
def _named(name: str) -> Schedule:
    return read_file(_FOLDER / f"{name}.toml")
