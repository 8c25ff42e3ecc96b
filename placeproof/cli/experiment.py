"""``placeproof experiment``."""

from __future__ import annotations

from typing import Annotated

import typer

from placeproof.cli.options import picture_path
from placeproof.cli.terminal import Brief, show
from placeproof.core.files import write_text


def command(
    name: Annotated[str, typer.Argument(help="`memory`, `traffic`, `training`, or `all` of them.")],
    plot: Annotated[str | None, typer.Option(metavar="FILE.svg", help="Write a picture of the numbers, as SVG.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.experiment/1).")] = False,
    brief: Brief = False,
) -> int:
    """Check predictions of the theory on real PyTorch: how much memory sharding saves, what it sends, and that it trains the same.

    Ends with 0 if every measurement is as predicted, 1 if one is not.
    """
    from placeproof.measure.experiments.catalogue import experiments, names

    path = picture_path(plot)
    made = experiments(names() if name == "all" else (name,))
    from importlib.metadata import version

    from placeproof.report import experiment as shown

    torch = version("torch")
    show(shown.document(made, torch), json_=json_, brief=brief)
    if path is not None:
        write_text(path, shown.picture(made, torch), code="PP104")
    return 0 if all(one.holds for one in made) else 1
