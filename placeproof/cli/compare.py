"""``placeproof compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.configs import From, World, as_data, expressions, precision_of, read_subjects, shown
from placeproof.cli.exact import OptionOption, RankOption, ShapesOption, compare_profiles
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.importers import Imported


def command(
    strategies: Annotated[
        list[str], typer.Argument(help="Two or more strategies, step programs or configurations; or profiles, with `--of`.")
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Give a symbol a value; may be repeated.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Byte widths for numbers: `placeproof list precisions`. [default: mixed-adam]")
    ] = None,
    from_: From = None,
    world: World = None,
    of: Annotated[str | None, typer.Option("--of", metavar="STRATEGY", help="Compare profiles: how each runs this strategy.")] = None,
    shapes: ShapesOption = None,
    rank: RankOption = 0,
    option: OptionOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.compare/1).")] = False,
) -> None:
    """Strategies side by side at the same world size: ratios, limits, and where one overtakes another."""
    from placeproof.cli.common import derive_all
    from placeproof.cost.compare import Comparison, known
    from placeproof.cost.values import read_numbers

    if of is not None:
        told = compare_profiles(
            strategies,
            of,
            shapes,
            given=set_ or [],
            precision=precision,
            rank=rank,
            options=option or [],
            imports=(from_, world),
            json_=json_,
        )
        typer.echo(told, nl=False)
        return
    problems = Problems()
    _only_profiles(strategies, shapes, problems)
    if len(strategies) < 2:
        problems.add("PP102", "a comparison needs two strategies", help="for example `placeproof compare ddp zero3`")
    found: list[Imported | None] = []
    with problems.collecting():
        found = read_subjects(strategies, from_, world)
        derived = derive_all(expressions(strategies, found))
    with problems.collecting():
        numbers = read_numbers(set_ or (), precision_of(precision, found))
    problems.raise_if_any()
    comparison = Comparison(tuple(derived), known(numbers))
    from placeproof.report import compare as report

    if json_:
        import json

        typer.echo(json.dumps(report.to_json(comparison, numbers) | as_data(found), indent=2, ensure_ascii=False))
    else:
        typer.echo(shown(found) + report.text(comparison, numbers), nl=False)


def _only_profiles(strategies: list[str], shapes: str | None, problems: Problems) -> None:
    """What goes with profiles alone."""
    from placeproof.profiles.profile import names

    if set(strategies) <= set(names()):
        problems.add("PP102", "profiles are compared on a strategy", help=f"`placeproof compare {' '.join(strategies)} --of fsdp`")
        problems.raise_if_any()
    if shapes is not None:
        problems.add("PP104", "`--shapes` compares profiles", help="`placeproof compare ideal torch-2.13 --of fsdp --shapes FILE`")
