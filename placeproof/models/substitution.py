"""Models whose blocks are run as other ones: programs that give the same of the same tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placeproof.core.diagnostics import refuse
from placeproof.models.model import Block, Model
from placeproof.models.programs import block_program, blocks, rows_reached
from placeproof.programs import Program


def substituted(model: Model, programs: Mapping[str, str]) -> Model:
    """The model with other blocks in the place of some, by name: blocks that come with this package, of the same tensors.

    Blocks that the model does not have are left alone. Raises InputError for a block that there is not, and for one of other tensors.
    """
    if not any(block.name in programs for segment in model.segments for block in segment.blocks):
        return model
    segments = (replace(s, blocks=tuple(_substituted(b, programs.get(b.name)) for b in s.blocks)) for s in model.segments)
    return replace(model, segments=tuple(segments))


def _substituted(block: Block, name: str | None) -> Block:
    if name is None:
        return block
    if name not in blocks():
        refuse(
            "PP111", f"`{block.name}` is run as `{name}`, which is no block of placeproof's", "`placeproof list model-blocks` shows them"
        )
    program = block_program(name)
    if _header(program) != _header(block.program):
        refuse("PP111", f"`{block.name}` is run as `{name}`, which has other tensors", "a block with the same tensors in its header")
    return replace(block, name=name, program=program, reached=rows_reached(program))


def _header(program: Program) -> list[tuple[str, tuple[str, ...], str | None]]:
    return [(t.name, t.dims, t.picks) for t in program.tensors]
