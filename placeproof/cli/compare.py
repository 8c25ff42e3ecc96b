"""``placeproof compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from placeproof.core.diagnostics import Problems


def command(
    strategies: Annotated[list[str], typer.Argument(help="Two or more strategies or step programs.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Give a symbol a value; may be repeated.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Byte widths for numbers: `placeproof list precisions`. [default: mixed-adam]")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.compare/1).")] = False,
) -> None:
    """Strategies side by side at the same world size: ratios, limits, and where one overtakes another."""
    from placeproof.cli.common import derive_all
    from placeproof.cost.compare import Comparison, known
    from placeproof.cost.values import read_numbers

    problems = Problems()
    if len(strategies) < 2:
        problems.add("PP102", "a comparison needs two strategies", help="for example `placeproof compare ddp zero3`")
    with problems.collecting():
        numbers = read_numbers(set_ or (), precision)
    with problems.collecting():
        derived = derive_all(strategies)
    problems.raise_if_any()
    comparison = Comparison(tuple(derived), known(numbers))
    from placeproof.report import compare as report

    if json_:
        import json

        typer.echo(json.dumps(report.to_json(comparison, numbers), indent=2, ensure_ascii=False))
    else:
        typer.echo(report.text(comparison, numbers), nl=False)
