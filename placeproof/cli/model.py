"""``--model`` of ``placeproof derive`` and ``compare``: what a model costs under a strategy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.common import is_program, picture_path, write_picture
from placeproof.core.diagnostics import Problems, suggestion

if TYPE_CHECKING:
    from placeproof.clusters import Cluster
    from placeproof.core.mesh import Axis
    from placeproof.core.strategy import Strategy
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.model.time import StepTime
    from placeproof.cost.values import Numbers
    from placeproof.models import Model

ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Of a model: `placeproof list models`, a file, or a config.json of transformers."),
]
RecomputeOption = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        metavar="none|full|selective|norms|mlp",
        help="What backward computes again; `selective+norms` says several. [default: what the strategy says, else none]",
    ),
]
WidthOption = Annotated[
    list[str] | None,
    typer.Option(
        "--width", metavar="NAME=BYTES", help="Bytes of an element of a value that is kept, block.value or value; may be repeated."
    ),
]
Fp8Option = Annotated[
    bool, typer.Option("--fp8", help="Keep in one byte what layers keep for products of matrices that give gradients by weights alone.")
]
StagesOption = Annotated[
    str | None, typer.Option("--stages", metavar="N,N,...", help="Layers of each pipeline stage, where they are not as many.")
]
PaddingOption = Annotated[
    str | None,
    typer.Option(
        "--vocab-padding",
        metavar="N|none",
        help="Pad the vocabulary to a multiple of N tokens a part. [default: 128 where parts would be unequal, as Megatron-LM]",
    ),
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


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the command line says of a model, as it was written."""

    model: str | None = None
    recompute: str | None = None
    stages: str | None = None
    cluster: str | None = None
    efficiency: str | None = None
    overlap: str | None = None
    plot: str | None = None
    width: Sequence[str] | None = None
    fp8: bool = False
    vocab_padding: str | None = None

    @property
    def given(self) -> list[str]:
        """The options that say something of the model, as they are written."""
        return [
            f"--{f.name.replace('_', '-')}" for f in fields(self) if f.name != "model" and getattr(self, f.name) not in (None, False, [])
        ]

    def check(self, others: Sequence[str], problems: Problems) -> None:
        """Options without a model; and ``others`` that a model does not go with."""
        if self.model is None and self.given:
            listed = ", ".join(f"`{name}`" for name in self.given)
            problems.add("PP104", f"options that speak of a model need one: {listed}", help="for example `--model llama3-8b`")
        if self.model is not None and others:
            listed = " and ".join(f"`{name}`" for name in others)
            verb = "does" if len(others) == 1 else "do"
            problems.add("PP104", f"{listed} {verb} not go with `--model`", help="leave one of them out; `--json` goes with it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A model, and how it is run. ``recompute``: None for what a strategy says; ``layers``: of each pipeline stage; ``widths``: those that
    were given; ``padding``: see :func:`placeproof.cost.model.vocabulary.padded`, 0 for none; ``eta``: the share of the peak, where it was
    given."""

    model: Model
    recompute: str | None
    layers: list[int] | None
    widths: dict[str, int]
    fp8: bool
    padding: int | None
    cluster: Cluster | None
    eta: Fraction | None
    overlap: str
    picture: Path | None


def read_model(text: str) -> Model:
    """A preset, a family, a model's file, or a config.json. Raises InputError."""
    if Path(text).suffix == ".json":
        from placeproof.importers.models import model_from_config

        return model_from_config(text)
    from placeproof.models import load

    return load(text)


def read_options(options: ModelOptions, settings: Sequence[str]) -> Run:
    """What the options say. ``settings``: the NAME=VALUE texts beside them. Raises InputError with every problem."""
    from placeproof.cost.model.recomputation import words
    from placeproof.cost.model.time import DEFAULT_OVERLAP, OVERLAP

    assert options.model is not None
    problems = Problems()
    with problems.collecting():
        words("none" if options.recompute is None else options.recompute)
    overlap = DEFAULT_OVERLAP if options.overlap is None else options.overlap
    if overlap not in OVERLAP:
        problems.add("PP104", f"there is no overlap `{overlap}`", help=suggestion(overlap, OVERLAP) or f"one of {', '.join(OVERLAP)}")
    layers, widths = _layers(options.stages, problems), _widths(options.width or (), problems)
    padding = _padding(options.vocab_padding, problems)
    alone = [name for name in options.given if name in ("--efficiency", "--overlap")]
    if options.cluster is None and alone:
        verb = "speaks" if len(alone) == 1 else "speak"
        problems.add("PP104", f"{' and '.join(alone)} {verb} of time, which needs a cluster", help="for example `--cluster dgx-h100`")
    eta = _efficiency(options.efficiency, settings, problems)
    model, cluster, picture = None, None, None
    with problems.collecting():
        model = read_model(options.model)
    with problems.collecting():
        cluster = _cluster(options.cluster)
    with problems.collecting():
        picture = picture_path(options.plot)
    problems.raise_if_any()
    assert model is not None
    return Run(
        model=model,
        recompute=options.recompute,
        layers=layers,
        widths=widths,
        fp8=options.fp8,
        padding=padding,
        cluster=cluster,
        eta=eta,
        overlap=overlap,
        picture=picture,
    )


def _widths(texts: Sequence[str], problems: Problems) -> dict[str, int]:
    """What ``--width`` says, as far as it is well formed."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if not name or not re.fullmatch(r"[1-9][0-9]?", number):
            help = "a whole number from 1 to 99, for example `--width rms_norm.n=1`"
            problems.add("PP202", f"`--width {text}` is not NAME=BYTES", help=help)
        elif name in found:
            problems.add("PP202", f"`--width` says twice how wide `{name}` is", help="say it once")
        else:
            found[name] = int(number)
    return found


def _padding(text: str | None, problems: Problems) -> int | None:
    if text is None or text == "none":
        return None if text is None else 0
    if re.fullmatch(r"[1-9][0-9]{0,5}", text):
        return int(text)
    problems.add("PP202", f"`--vocab-padding {text}` is no number of tokens", help="a whole number such as 128, or `none`")
    return None


def _layers(stages: str | None, problems: Problems) -> list[int] | None:
    if stages is None:
        return None
    runs = [re.fullmatch(r"(0|[1-9][0-9]{0,5})(?:x([1-9][0-9]{0,5}))?", text.strip()) for text in stages.split(",")]
    if all(runs):
        return [int(run[1]) for run in runs if run for _ in range(int(run[2] or 1))]
    problems.add("PP202", f"`--stages {stages}` lists no numbers of layers", help="for example `--stages 7,8x14,7`: 7, fourteen times 8, 7")
    return None


def _cluster(name: str | None) -> Cluster | None:
    if name is None:
        return None
    from placeproof.clusters import find

    return find(name)


def _efficiency(text: str | None, settings: Sequence[str], problems: Problems) -> Fraction | None:
    """The share of the peak; a problem where it is given twice, or is no share."""
    from placeproof.cost.model.time import EFFICIENCY

    if text is None:
        return None
    if any(setting.partition("=")[0].strip() == "eta" for setting in settings):
        problems.add("PP205", "`--efficiency` and `--set eta` say the same thing", help="say it once")
    value = EFFICIENCY[text][0] if text in EFFICIENCY else None
    if re.fullmatch(r"[0-9]{0,6}\.?[0-9]{1,9}|[0-9]{1,9}/[1-9][0-9]{0,8}", text):
        value = Fraction(text)
    if value is None or not 0 < value <= 1:
        help = suggestion(text, EFFICIENCY) or "half, peak, or a number above 0 and up to 1, such as 0.4"
        problems.add("PP104", f"`--efficiency {text}` is no share of the peak", help=help)
    return value


def read_strategy(expression: str) -> Strategy:
    """The strategy. Raises InputError, also for a step program."""
    from placeproof.strategies import parse_strategy

    if is_program(expression):
        problems = Problems()
        message = f"`{expression}` is a step program, which says nothing of a model's blocks"
        problems.add("PP104", message, help="give a strategy, or leave out `--model`")
        problems.raise_if_any()
    return parse_strategy(expression)


def derived(strategy: Strategy, run: Run, numbers: Numbers) -> tuple[ModelDerivation, Numbers]:
    """The derivation for a model of the sizes that the numbers set, and the other numbers.

    Raises InputError where the model cannot have these sizes, or cannot be run that way.
    """
    from placeproof.cost.model import derive_model
    from placeproof.cost.model.checks import require_names
    from placeproof.cost.model.derivation import WIDTHS

    _check_stages(strategy, run.layers)
    widths = {**WIDTHS, **run.widths}
    model, rest = _sized(strategy, run, numbers)
    d = derive_model(model, strategy, recompute=run.recompute, layers=run.layers, widths=widths, fp8=run.fp8)
    require_names(d, run.widths)
    return d, rest


def _sized(strategy: Strategy, run: Run, numbers: Numbers) -> tuple[Model, Numbers]:
    """The model with the sizes among the numbers, its vocabulary padded, and the numbers that are none of its sizes."""
    from placeproof.cost.model.vocabulary import padded

    names = {name for name in numbers.given if name in run.model.symbols() and name != "b"}
    sizes = {name: numbers.values[name] for name in names}
    model = run.model.resized({name: int(n) if n.denominator == 1 else n for name, n in sizes.items()})
    rest = {name: n for name, n in numbers.values.items() if name not in names}
    model = model if run.padding == 0 else padded(model, strategy, rest, run.padding)
    return model, replace(numbers, values=rest, given=tuple(n for n in numbers.given if n not in names))


def _check_stages(strategy: Strategy, layers: list[int] | None) -> None:
    """Raise InputError where stages are told, and there are none, or nobody knows how many."""
    from placeproof.cost.model.stages import pipeline_axis

    name = pipeline_axis(strategy)
    axis = next((a for a in strategy.axes if a.name == name), None)
    problems = Problems()
    if layers is not None and axis is None:
        message = f"`--stages` lists the layers of pipeline stages, and `{strategy.name}` has none"
        problems.add("PP104", message, help=f"`{strategy.name} * pp({len(layers)})` has {len(layers)} stages")
    elif layers is not None and axis is not None and axis.degree is None:
        message = f"`--stages` lists {len(layers)} stages, and the degree of axis `{name}` is open"
        problems.add("PP203", message, help=f"say it in the strategy: `pp({len(layers)})`")
    problems.raise_if_any()


def timed(d: ModelDerivation, numbers: Numbers, run: Run) -> tuple[Numbers, StepTime | None]:
    """The numbers with what a cluster adds, and the step on it. Raises InputError where numbers do not fit together or are missing."""
    from placeproof.cost.model.checks import require_fit

    require_fit(d, {n: v for n, v in numbers.values.items() if n in numbers.given})
    if run.cluster is None:
        return numbers, None
    from placeproof.cost.model.time import step_time

    eta = {} if run.eta is None else {"eta": run.eta}
    numbers = replace(numbers, values={**numbers.values, **eta}, asked=True)
    return numbers, step_time(d, numbers.values, run.cluster, overlap=run.overlap)  # type: ignore[arg-type]


def rendered(d: ModelDerivation, numbers: Numbers, run: Run, read: dict[str, Any], *, json_: bool) -> str:
    """As text or as JSON, which ``read`` is added to; with a picture written, if one is wanted. Raises InputError as :func:`timed`."""
    from placeproof.report.models.text import model_data, model_text

    numbers, step = timed(d, numbers, run)
    if run.picture is not None:
        write_picture(run.picture, _picture(d, numbers, step))
    if json_:
        import json

        found = model_data(d, numbers) | ({} if step is None else {"time": _time_data(d, step)}) | read
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    return model_text(d, numbers) + ("" if step is None else "\n" + _time_text(d, step))


def _time_text(d: ModelDerivation, step: StepTime) -> str:
    from placeproof.cost.model.time import ModelTime
    from placeproof.report.models.time import time_text

    return time_text(ModelTime(d=d, overlap=step.overlap), step)


def _time_data(d: ModelDerivation, step: StepTime) -> dict[str, object]:
    from placeproof.cost.model.time import ModelTime
    from placeproof.report.models.time import time_data

    return time_data(ModelTime(d=d, overlap=step.overlap), step)


def _picture(d: ModelDerivation, numbers: Numbers, step: StepTime | None) -> str:
    from placeproof.cost.model.time import timeline, work_timeline
    from placeproof.report.pictures.memory import memory_picture, stacks

    table = work_timeline(d, numbers.values) if step is None else timeline(step)
    memory = None if step is None else step.price.cluster.device.memory
    title = f"{d.linked.model} under {d.linked.name}" + ("" if step is None else f" on {step.price.cluster.name}")
    bars = stacks(d if step is None else step.d, numbers.values)
    return memory_picture(title, bars, memory, table, "seconds" if step is not None else "floating-point operations")


def degrees(axes: Sequence[Axis], fixed: object) -> dict[str, int | None]:
    """Every degree by its symbol, None where it is open; and m, where it is ``fixed``."""
    from placeproof.core.mesh import degree_symbol

    only = len(axes) == 1
    found: dict[str, int | None] = {degree_symbol(a.name, only=only): a.degree for a in axes}
    return found | ({"m": fixed} if isinstance(fixed, int) else {})
