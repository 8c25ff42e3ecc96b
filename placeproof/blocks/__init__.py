"""Blocks of a transformer as tensor programs: correct ones, to prove and to start from."""

from __future__ import annotations

from importlib.resources import files

#: The names of the blocks: one file each.
BLOCKS: tuple[str, ...] = tuple(sorted(f.name.removesuffix(".step") for f in files(__name__).iterdir() if f.name.endswith(".step")))


def text(name: str) -> str:
    """The step program of a block."""
    return files(__name__).joinpath(f"{name}.step").read_text(encoding="utf-8")
