"""``placeproof accuracy``."""

from __future__ import annotations

from typing import Annotated

import typer

from placeproof.cli.options import show


def command(
    name: Annotated[str, typer.Argument(help="A set of measured runs: `placeproof list runs`.")],
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="DIFFERENCE", help="Leave out a difference of the implementation; may be repeated. `all`: all of them."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.accuracy/1).")] = False,
) -> None:
    """How far what is derived is from what others measured on real devices, run by run."""
    from placeproof.answers.accuracy import accuracy

    show(accuracy(name, without or ()).document, json_=json_)
