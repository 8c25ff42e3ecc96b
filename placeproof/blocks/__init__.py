"""Blocks of a transformer as tensor programs: correct ones, to prove and to start from."""

from __future__ import annotations

from importlib.resources import files

#: The names of the blocks.
BLOCKS: tuple[str, ...] = (
    "mlp",
    "mlp_sharded_output",
    "swiglu",
    "attention",
    "gqa",
    "embedding",
    "cross_entropy",
    "norm",
    "ring_attention",
)


def text(name: str) -> str:
    """The step program of a block."""
    return files(__name__).joinpath(f"{name}.step").read_text(encoding="utf-8")
