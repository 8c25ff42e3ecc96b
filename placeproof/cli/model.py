"""``placeproof derive --model``: what a model costs under a strategy."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.common import picture_path, write_picture
from placeproof.core.diagnostics import InputError, Problems, suggestion

if TYPE_CHECKING:
    from placeproof.clusters import Cluster
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.model.time import StepTime
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

ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME|FILE", help="Time a step on a cluster: docs/reference/clusters.md; a file ends in .toml."),
]
EfficiencyOption = Annotated[
    str | None,
    typer.Option("--efficiency", metavar="half|peak|NUMBER", help="The share of the peak that computing reaches: eta. [default: half]"),
]
OverlapOption = Annotated[
    str | None, typer.Option("--overlap", metavar="none|data|all", help="Which exchanges hide behind computing. [default: data]")
]
PlotOption = Annotated[
    str | None, typer.Option("--plot", metavar="FILE.svg", help="Write a picture of memory by stage, and of the schedule.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What the command line says of time and of pictures."""

    cluster: str | None = None
    efficiency: str | None = None
    overlap: str | None = None
    plot: str | None = None

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return [f"--{name}" for name in ("cluster", "efficiency", "overlap", "plot") if getattr(self, name) is not None]


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


def rendered(d: ModelDerivation, numbers: Numbers, timing: Timing | None = None, *, json_: bool) -> str:
    """As text or as JSON; with a picture written, if one is wanted. Raises InputError for numbers that do not fit together."""
    from placeproof.cost.model.checks import require_fit
    from placeproof.report.model import model_data, model_text

    timing = timing or Timing()
    path = picture_path(timing.plot)
    cluster = _cluster(timing, numbers)
    require_fit(d, {n: v for n, v in numbers.values.items() if n in numbers.given})
    step = None
    if cluster is not None:
        from placeproof.cost.model.time import step_time

        numbers = replace(numbers, values=_with_efficiency(timing.efficiency, numbers), asked=True)
        step = step_time(d, numbers.values, cluster, overlap=timing.overlap or "data")  # type: ignore[arg-type]
    if path is not None:
        write_picture(path, _picture(d, numbers, step))
    if json_:
        import json

        found = model_data(d, numbers) | ({} if step is None else {"time": _time_data(d, step)})
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    return model_text(d, numbers) + ("" if step is None else "\n" + _time_text(d, step))


def _cluster(timing: Timing, numbers: Numbers) -> Cluster | None:
    """The cluster, after all options of time were looked at. Raises InputError with every problem."""
    from placeproof.cost.model.time import OVERLAP

    problems = Problems()
    alone = [o for o in timing.given if o in ("--efficiency", "--overlap")]
    if timing.cluster is None and alone:
        problems.add("PP104", f"{' and '.join(alone)} speak of time, which needs a cluster", help="for example `--cluster dgx-h100`")
    if timing.overlap is not None and timing.overlap not in OVERLAP:
        problems.add("PP104", f"there is no overlap `{timing.overlap}`", help=suggestion(timing.overlap, OVERLAP) or "none, data or all")
    with problems.collecting():
        _with_efficiency(timing.efficiency, numbers)
    found = None
    if timing.cluster is not None:
        from placeproof.clusters import find

        with problems.collecting():
            found = find(timing.cluster)
    problems.raise_if_any()
    return found


def _with_efficiency(text: str | None, numbers: Numbers) -> dict[str, Fraction]:
    """The values, eta among them. Raises InputError where it is given twice, or is no share."""
    from placeproof.cost.model.time import EFFICIENCY

    if text is None:
        return dict(numbers.values)
    problems = Problems()
    if "eta" in numbers.given:
        problems.add("PP205", "`--efficiency` and `--set eta` say the same thing", help="say it once")
    value = EFFICIENCY[text][0] if text in EFFICIENCY else None
    if re.fullmatch(r"[0-9]{0,6}\.?[0-9]{1,9}|[0-9]{1,9}/[1-9][0-9]{0,8}", text):
        value = Fraction(text)
    if value is None or not 0 < value <= 1:
        help = suggestion(text, EFFICIENCY) or "half, peak, or a number above 0 and up to 1, such as 0.4"
        problems.add("PP104", f"`--efficiency {text}` is no share of the peak", help=help)
    problems.raise_if_any()
    assert value is not None
    return {**numbers.values, "eta": value}


def _time_text(d: ModelDerivation, step: StepTime) -> str:
    from placeproof.cost.model.time import ModelTime
    from placeproof.report.time import time_text

    return time_text(ModelTime(d=d, overlap=step.overlap), step)


def _time_data(d: ModelDerivation, step: StepTime) -> dict[str, object]:
    from placeproof.cost.model.time import ModelTime
    from placeproof.report.time import time_data

    return time_data(ModelTime(d=d, overlap=step.overlap), step)


def _picture(d: ModelDerivation, numbers: Numbers, step: StepTime | None) -> str:
    from placeproof.cost.model.time import timeline, work_timeline
    from placeproof.report.memory_picture import memory_picture, stacks

    table = work_timeline(d, numbers.values) if step is None else timeline(step)
    memory = None if step is None else step.price.cluster.device.memory
    title = f"{d.model.name} under {d.strategy.name}" + ("" if step is None else f" on {step.price.cluster.name}")
    bars = stacks(d if step is None else step.d, numbers.values)
    return memory_picture(title, bars, memory, table, "seconds" if step is not None else "floating-point operations")


def degrees(d: ModelDerivation) -> dict[str, int | None]:
    """Every degree by its symbol, None where it is open."""
    from placeproof.core.mesh import degree_symbol

    only = len(d.strategy.axes) == 1
    found: dict[str, int | None] = {degree_symbol(a.name, only=only): a.degree for a in d.strategy.axes}
    fixed = d.strategy.schedule.microbatches
    return found | ({"m": fixed} if isinstance(fixed, int) else {})


__all__ = [
    "ClusterOption",
    "EfficiencyOption",
    "InputError",
    "ModelOption",
    "OverlapOption",
    "PlotOption",
    "RecomputeOption",
    "StagesOption",
    "Timing",
    "degrees",
    "derived",
    "read_model",
    "rendered",
]
