"""``placeproof shapes``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from placeproof.cli.options import output as written_to
from placeproof.cli.terminal import Brief, say
from placeproof.core.diagnostics import refuse
from placeproof.core.files import write_text

_Script = Annotated[Path, typer.Argument(help="A training script: its `train()` is called, or it is run as the main program.")]
_Given = Annotated[list[str] | None, typer.Argument(metavar="-- ARGUMENT...", help="What the script is given: `-- --lr 0.1`.")]
_World = Annotated[int, typer.Option(metavar="N", min=1, help="The ranks that the script is told of; it runs as the first one.")]
_Unit = Annotated[
    list[str] | None,
    typer.Option(metavar="CLASS", help="A class of modules that are wrapped; by default as the script wraps."),
]
_Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long the script may take up to its first update.")]
_Out = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the shapes to a file; else they are printed.")]


def command(
    script: _Script,
    arguments: _Given = None,
    world: _World = 2,
    unit: _Unit = None,
    timeout: _Timeout = 300.0,
    output: _Out = None,
    brief: Brief = False,
) -> int:
    """Run a training script up to its first update, and write the shapes of its module as a file that `--shapes` reads. Needs torch."""
    if find_spec("torch") is None:
        refuse("PP603", "reading a script's module needs PyTorch, which is not installed", help="pip install torch")
    path = None if output is None else written_to("--output", output, "shapes are written as TOML", ".toml")
    from placeproof.importers import render_shapes
    from placeproof.measure.shapes import script_shapes

    shapes = script_shapes(script, world=world, units=unit or (), arguments=arguments or (), timeout=timeout)
    if path is None and not brief:
        say(render_shapes(shapes))
        return 0
    if path is not None:
        write_text(path, render_shapes(shapes))
    count = len(shapes.units)
    written = "" if path is None else f"{path}: "
    say(f"{written}{shapes.elements:,} parameters of {script} in {count} unit{'s' if count > 1 else ''}\n")
    return 0
