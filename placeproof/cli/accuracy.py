"""``placeproof accuracy``."""

from __future__ import annotations

from typing import Annotated

import typer

from placeproof.cli.terminal import Brief, show
from placeproof.core.diagnostics import refuse


def command(
    name: Annotated[str, typer.Argument(help="A set of measured runs: `placeproof list runs`.")],
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Leave out a difference of the implementation, or a term of a step's time (`placeproof list terms`); may be repeated."
            " `all`: all differences.",
        ),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="How good times are without each term, one by one.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Every step of a set that has more than 100 rows.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Rows alone of a model, of a cluster, or of that name; may be repeated: of all of these."),
    ] = None,
    plans: Annotated[bool, typer.Option("--plans", help="Beside each plan that was run the best one of `placeproof plan`.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON (schema placeproof.accuracy/1; with `--plans` placeproof.ran/1).")
    ] = False,
    brief: Brief = False,
) -> None:
    """How far what is derived is from what others measured on real devices, run by run."""
    from placeproof.answers.accuracy import accuracy, some_of, terms_left_out

    if each and (without or rows):
        refuse("PP104", "`--each` leaves out one term after another, and shows no rows", help="leave `--without` and `--rows` out")
    if plans and (each or without or rows):
        refuse("PP104", "`--plans` shows plans alone", help="leave `--each`, `--without` and `--rows` out")
    of = some_of(name, only or ())
    if plans:
        from placeproof.answers.ran import plans_beside

        show(plans_beside(of).document, json_=json_, brief=brief)
    else:
        show((terms_left_out(of) if each else accuracy(of, without or (), rows=rows)).document, json_=json_, brief=brief)
