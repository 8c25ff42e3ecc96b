"""Looking strategies up by name. One data file a strategy; nothing is read that is not asked for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from placeproof.core import files
from placeproof.strategies.files import read_file
from placeproof.strategies.template import Template

_FOLDER = Path(__file__).parent / "catalogue"


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The names of the catalogue, sorted."""
    return files.stems(_FOLDER)


@lru_cache(maxsize=64)
def _read(name: str) -> Template:
    return read_file(_FOLDER / f"{name}.toml")


@lru_cache(maxsize=1)
def aliases() -> dict[str, str]:
    """Other names under which strategies are known -> the catalogue's name."""
    return {alias: name for name in names() for alias in _read(name).aliases}


def template(name: str) -> Template | None:
    """The strategy of that name or alias, with degrees and options open; None when the catalogue has none."""
    if name in names():
        return _read(name)
    file = aliases().get(name)
    return _read(file) if file else None
