"""``placeproof derive --model``: what a model costs under a strategy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.core.diagnostics import InputError, Problems, suggestion

if TYPE_CHECKING:
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.values import Numbers
    from placeproof.models import Model

ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Of a model: `placeproof list models`, a file, or a config.json of transformers."),
]
RecomputeOption = Annotated[
    str | None, typer.Option("--recompute", metavar="none|selective|full", help="What backward computes again. [default: none]")
]
StagesOption = Annotated[
    str | None, typer.Option("--stages", metavar="N,N,...", help="Layers of each pipeline stage, where they are not as many.")
]


def read_model(text: str) -> Model:
    """A preset, a family, a model's file, or a config.json. Raises InputError."""
    if Path(text).suffix == ".json":
        from placeproof.importers.models import model_from_config

        return model_from_config(text)
    from placeproof.models import load

    return load(text)


def derived(expression: str, model: str, recompute: str | None, stages: str | None) -> ModelDerivation:
    """Derive for a model. Raises InputError with every problem of the arguments."""
    from placeproof.cost.model import RECOMPUTE, derive_model
    from placeproof.strategies import parse_strategy

    problems = Problems()
    if recompute is not None and recompute not in RECOMPUTE:
        problems.add(
            "PP104", f"there is no recomputation `{recompute}`", help=suggestion(recompute, RECOMPUTE) or "none, selective or full"
        )
    layers = _layers(stages, problems)
    with problems.collecting():
        chosen = read_model(model)
    with problems.collecting():
        strategy = parse_strategy(expression)
    problems.raise_if_any()
    return derive_model(chosen, strategy, recompute=recompute or "none", layers=layers)  # type: ignore[arg-type]


def _layers(stages: str | None, problems: Problems) -> list[int] | None:
    if stages is None:
        return None
    runs = [re.fullmatch(r"([1-9][0-9]{0,5})(?:x([1-9][0-9]{0,5}))?", text.strip()) for text in stages.split(",")]
    if all(runs):
        return [int(run[1]) for run in runs if run for _ in range(int(run[2] or 1))]
    problems.add("PP202", f"`--stages {stages}` lists no numbers of layers", help="for example `--stages 7,8x14,7`: 7, fourteen times 8, 7")
    return None


def rendered(d: ModelDerivation, numbers: Numbers, *, json_: bool) -> str:
    """As text or as JSON. Raises InputError for numbers that do not fit together."""
    from placeproof.cost.model.checks import require_fit
    from placeproof.report.model import model_data, model_text

    require_fit(d, {n: v for n, v in numbers.values.items() if n in numbers.given})
    if json_:
        import json

        return json.dumps(model_data(d, numbers), indent=2, ensure_ascii=False) + "\n"
    return model_text(d, numbers)


def degrees(d: ModelDerivation) -> dict[str, int | None]:
    """Every degree by its symbol, None where it is open."""
    from placeproof.core.mesh import degree_symbol

    only = len(d.strategy.axes) == 1
    found: dict[str, int | None] = {degree_symbol(a.name, only=only): a.degree for a in d.strategy.axes}
    fixed = d.strategy.schedule.microbatches
    return found | ({"m": fixed} if isinstance(fixed, int) else {})


__all__ = ["InputError", "ModelOption", "RecomputeOption", "StagesOption", "degrees", "derived", "read_model", "rendered"]
