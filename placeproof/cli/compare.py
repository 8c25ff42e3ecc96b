"""``placeproof compare``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.configs import From, World, as_data, expressions, precision_of, read_subjects, settings, shown
from placeproof.cli.exact import OptionOption, RankOption, ShapesOption, compare_profiles
from placeproof.cli.model import (
    ClusterOption,
    EfficiencyOption,
    Fp8Option,
    ModelOption,
    ModelOptions,
    OverlapOption,
    PaddingOption,
    RecomputeOption,
    StagesOption,
    WidthOption,
)
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.importers import Imported

Subjects = Annotated[list[str], typer.Argument(help="Two or more strategies, step programs or configurations; or profiles, with `--of`.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Give a symbol a value; may be repeated.")]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", help="Byte widths for numbers: `placeproof list precisions`. [default: mixed-adam]")
]
OfOption = Annotated[str | None, typer.Option("--of", metavar="STRATEGY", help="Compare profiles: how each runs this strategy.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON (schema placeproof.compare/1; with --model, placeproof.compare-models/1).")
]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line. ``imports``: --from and --world; ``rank`` and ``options`` are of exact bytes."""

    subjects: list[str]
    given: list[str]
    precision: str | None
    imports: tuple[str | None, int | None]
    of: str | None
    shapes: str | None
    rank: int
    options: list[str]
    about: ModelOptions
    json: bool


def command(
    strategies: Subjects,
    set_: SetOption = None,
    precision: PrecisionOption = None,
    from_: From = None,
    world: World = None,
    of: OfOption = None,
    shapes: ShapesOption = None,
    rank: RankOption = 0,
    option: OptionOption = None,
    model: ModelOption = None,
    recompute: RecomputeOption = None,
    stages: StagesOption = None,
    width: WidthOption = None,
    fp8: Fp8Option = False,
    vocab_padding: PaddingOption = None,
    cluster: ClusterOption = None,
    efficiency: EfficiencyOption = None,
    overlap: OverlapOption = None,
    json_: JsonOption = False,
) -> None:
    """Strategies side by side at the same world size: ratios, limits, and where one overtakes another; or for a model, in numbers."""
    about = ModelOptions(model, recompute, stages, cluster, efficiency, overlap, width=width, fp8=fp8, vocab_padding=vocab_padding)
    asked = _Asked(strategies, set_ or [], precision, (from_, world), of, shapes, rank, option or [], about, json_)
    problems = Problems()
    about.check([name for name, text in (("--of", of), ("--shapes", shapes)) if text is not None], problems)
    if of is None:
        told = _strategies(asked, problems)
    else:
        problems.raise_if_any()
        told = _profiles(asked, of)
    typer.echo(told, nl=False)


def _profiles(asked: _Asked, of: str) -> str:
    return compare_profiles(
        asked.subjects,
        of,
        asked.shapes,
        given=asked.given,
        precision=asked.precision,
        rank=asked.rank,
        options=asked.options,
        imports=asked.imports,
        json_=asked.json,
    )


def _strategies(asked: _Asked, problems: Problems) -> str:
    _only_profiles(asked.subjects, asked.shapes, problems)
    if len(asked.subjects) < 2:
        problems.add("PP102", "a comparison needs two strategies", help="for example `placeproof compare ddp zero3`")
    found: list[Imported | None] = []
    texts: list[str] = []
    with problems.collecting():
        found = read_subjects(asked.subjects, *asked.imports)
        texts = expressions(asked.subjects, found)
    if asked.about.model is not None:
        from placeproof.cli.model_compare import compared

        told = compared(texts, asked.about, found, (asked.given, asked.precision), problems, json_=asked.json)
    else:
        told = _formulas(asked, texts, found, problems)
    return told if asked.json else shown(found) + told


def _formulas(asked: _Asked, texts: list[str], found: list[Imported | None], problems: Problems) -> str:
    from placeproof.cli.common import derive_all
    from placeproof.cost.compare import Comparison, known
    from placeproof.cost.values import read_numbers
    from placeproof.report import compare as report

    with problems.collecting():
        derived = derive_all(texts)
    with problems.collecting():
        numbers = read_numbers(settings(asked.given, found), precision_of(asked.precision, found))
    problems.raise_if_any()
    comparison = Comparison(tuple(derived), known(numbers))
    if not asked.json:
        return report.text(comparison, numbers)
    import json

    return json.dumps(report.to_json(comparison, numbers) | as_data(found), indent=2, ensure_ascii=False) + "\n"


def _only_profiles(strategies: list[str], shapes: str | None, problems: Problems) -> None:
    """What goes with profiles alone."""
    from placeproof.profiles.profile import names

    if set(strategies) <= set(names()):
        problems.add("PP102", "profiles are compared on a strategy", help=f"`placeproof compare {' '.join(strategies)} --of fsdp`")
        problems.raise_if_any()
    if shapes is not None:
        problems.add("PP104", "`--shapes` compares profiles", help="`placeproof compare ideal torch-2.13 --of fsdp --shapes FILE`")
