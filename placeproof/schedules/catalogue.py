"""Looking schedules up by name: the catalogue's data files, or a file of one's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import InputError, Problems, suggestion
from placeproof.schedules.read import read_text
from placeproof.schedules.schedule import Schedule

_FOLDER = Path(__file__).parent / "catalogue"


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The names of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load(name: str | Path) -> Schedule:
    """The schedule of that name, or of a file whose name ends in ``.toml``.

    Raises InputError: PP101 for a name that is not in the catalogue, PP110 to PP113 for a file that cannot be read or used.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        return _file(Path(name))
    if name not in names():
        problems = Problems()
        listed = f"the schedules are {', '.join(names())}; a file's name ends in .toml"
        hint = suggestion(name, names())
        problems.add("PP101", f"there is no schedule `{name}`", help=f"{hint} {listed}" if hint else listed)
        raise InputError(problems.found)
    return _named(name)


@lru_cache(maxsize=64)
def _named(name: str) -> Schedule:
    return _file(_FOLDER / f"{name}.toml")


def _file(path: Path) -> Schedule:
    return read_text(files.read_text(path, code="PP110", help="give the path of a readable TOML file"), source=str(path))
