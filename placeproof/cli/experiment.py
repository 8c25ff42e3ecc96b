"""``placeproof experiment``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from placeproof.core.diagnostics import InputError, Problems


def command(
    name: Annotated[str, typer.Argument(help="`memory`, `traffic`, `training`, or `all` of them.")],
    plot: Annotated[str | None, typer.Option(metavar="FILE.svg", help="Write a picture of the numbers, as SVG.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.experiment/1).")] = False,
) -> int:
    """Check predictions of the theory on real PyTorch: how much memory sharding saves, what it sends, and that it trains the same.

    Ends with 0 if every measurement is as predicted, 1 if one is not.
    """
    from placeproof.measure.experiments import experiments, names

    path = _checked(plot)
    made = experiments(names() if name == "all" else (name,))
    from importlib.metadata import version

    from placeproof.report import experiment as shown

    torch = version("torch")
    typer.echo(json.dumps(shown.data(made, torch), indent=2) if json_ else shown.text(made, torch), nl=json_)
    if path is not None:
        _write(path, shown.picture(made, torch))
    return 0 if all(one.holds for one in made) else 1


def _checked(plot: str | None) -> Path | None:
    """Where the picture goes, if it can: a minute of measuring is not to end in a wrong path. Raises InputError."""
    if plot is None:
        return None
    path = Path(plot)
    problems = Problems()
    if path.suffix.lower() != ".svg":
        problems.add("PP104", f"`--plot {plot}`: a picture is written as SVG", help=f"give a file that ends in .svg: {path.stem}.svg")
    elif not path.parent.is_dir() or path.is_dir():
        problems.add("PP104", f"`--plot {plot}`: no file can be written there", help="give a file in a folder that exists")
    problems.raise_if_any()
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problems = Problems()
        problems.add("PP104", f"cannot write `{path}`: {error.strerror or error}", help="give a file that can be written")
        raise InputError(problems.found) from error
