"""``placeproof calibrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from placeproof.cli.options import cluster_path
from placeproof.cli.terminal import Brief, show


def command(
    cluster: Annotated[str, typer.Argument(help="A cluster: `placeproof list clusters`; a file ends in .toml.")],
    from_: Annotated[
        str,
        typer.Option("--from", metavar="FILE|SET", help="Measured steps: a table that ends in .csv, or a set of `placeproof list runs`."),
    ],
    constants: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="What is fitted: products, memory, kernel, or a level of links. [default: products, and what is not said]",
        ),
    ] = None,
    held_out: Annotated[
        str,
        typer.Option(
            "--held-out", metavar="half|groups|N,N-N,...", help="Steps that are not fitted to, and that errors are of; counted from 1."
        ),
    ] = "half",
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write the cluster to a file, which `--cluster` takes.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.calibration/1).")] = False,
    brief: Brief = False,
) -> None:
    """Fit constants of a cluster to measured steps, and say how good it is on steps that were not used."""
    from placeproof.answers.calibration import calibrate

    path = cluster_path(out)
    names = None if constants is None else [name.strip() for name in constants.split(",") if name.strip()]
    result = calibrate(cluster, from_, names, held_out)
    if path is not None:
        result.write(path)
    show(result.document, json_=json_, brief=brief)
