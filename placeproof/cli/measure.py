"""``placeproof measure``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.options import BRIEF, Exact, WithOption, given, option, takes
from placeproof.cli.terminal import show
from placeproof.core.diagnostics import InputError, Problems, refuse

if TYPE_CHECKING:
    from placeproof.core.shapes import Shapes
    from placeproof.core.strategy import Strategy
    from placeproof.cost.exact.predict import Predicted
    from placeproof.measure.measured import Measured
    from placeproof.measure.training.subjects import Subject

#: A model that is small enough for real tensors, where none is given; it has more layers where there are more stages.
DEFAULT = "transformer(layers={layers}, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    strategy: Annotated[
        str, typer.Argument(help="What to run: a strategy such as `fsdp(4)`, `fsdp(2) * tp(2) * sp`, `pp(4, microbatches=8)`.")
    ]
    set_: list[str] | None = option("--set", "The degree of an axis; may be repeated.", metavar="N=VALUE")
    exact: Exact
    profile: str = option(
        "--profile", "What to run: torch-2.13; deepspeed-0.19 and megatron-core on real processes.", metavar="NAME", default="torch-2.13"
    )
    with_: WithOption = None
    backend: str | None = option(
        "--backend", "`fake`: one device of up to 4,096, without the others; `gloo`: a real process for each device. [default: fake]"
    )
    json_: bool = option("--json", "Print JSON (schema placeproof.measure/1).", default=False)
    brief: bool = BRIEF


@takes(Options)
def command(o: Options) -> int:
    """Run a training step of PyTorch, and hold what a device exchanged and held against what is predicted. Needs torch.

    Ends with 0 if prediction and measurement are equal, 1 if they are not.
    """
    from placeproof.answers.shapes import mesh_of, options_of
    from placeproof.answers.subject import shapes as shapes_of
    from placeproof.cost.exact.bytes import require_rank
    from placeproof.measure.systems.run import SYSTEMS, run_system
    from placeproof.measure.training.predicted import PROFILE, differences
    from placeproof.report.measured import document
    from placeproof.strategies import parse_strategy

    strategy, system, problems = parse_strategy(o.strategy), o.profile in SYSTEMS, Problems()
    if o.profile not in (PROFILE, *SYSTEMS):
        refuse("PP101", f"profile `{o.profile}` cannot be measured", help=f"one of {', '.join((PROFILE, *SYSTEMS))}")
    for name in given(o):
        if system and name in ("--with", "--rank", "--backend"):
            problems.add("PP104", f"`{name}` is of the profile {PROFILE} alone", help="leave it out: systems run on real processes")
    subject = problems.attempt(lambda: None if system else _subject(strategy, tuple(o.with_ or ())))
    options = problems.attempt(lambda: options_of(o.exact.option or []))
    called = "" if system else f'placeproof measure "{o.strategy}"'
    mesh = problems.attempt(lambda: mesh_of(strategy, o.set_ or [], command=called))
    problems.attempt(lambda: require_rank(mesh(), o.exact.rank))
    o.exact.check(problems, without=("--rank", "--option"))
    shapes = problems.attempt(lambda: o.exact.read() if o.exact.shapes else None)
    problems.raise_if_any()
    if (run := subject()) is None:
        title = o.profile
        prediction, measured = run_system(title, strategy, shapes() or shapes_of(DEFAULT.format(layers=2)), mesh(), options())
    else:
        title = run.title
        prediction, measured = _measured(o, run, shapes(), {a: mesh()[a] for a in run.axes}, _from_schedule(strategy, run) | options())
    unequal = differences(prediction, measured)
    show(document(strategy.name, title, prediction, measured, unequal), json_=o.json_, brief=o.brief)
    return 1 if unequal else 0


def _measured(
    o: Options, subject: Subject, shapes: Shapes | None, mesh: Mapping[str, int], options: Mapping[str, Any]
) -> tuple[Predicted, Measured]:
    """What one device does, predicted and measured."""
    from placeproof.answers.subject import shapes as shapes_of
    from placeproof.measure.training.predicted import predicted
    from placeproof.measure.training.run import measure

    model = shapes or shapes_of(DEFAULT.format(layers=_layers(subject, mesh, options)))
    measured = measure(subject, model, mesh, backend=o.backend or "fake", rank=o.exact.rank, options=options)
    return predicted(subject, model, mesh, rank=o.exact.rank, options=options), measured


def _subject(strategy: Strategy, wanted: tuple[str, ...]) -> Subject:
    """What can be measured of the implementations of a strategy. Raises InputError."""
    from placeproof.cost.exact.choose import chosen
    from placeproof.measure.training.predicted import PROFILE
    from placeproof.measure.training.subjects import SUBJECTS
    from placeproof.profiles.profile import profile

    names = [one.name for one in chosen(profile(PROFILE), strategy, wanted)]
    subject = SUBJECTS.get("*".join(names))
    if subject is None:
        help_ = f"for example {_runs(strategy)}; implementations that can be measured, with `--with`: {', '.join(SUBJECTS)}"
        refuse("PP101", f"`{strategy.name}`, run by {' and '.join(names)}, cannot be measured", help=help_)
    elif set(subject.axes) != {a.name for a in strategy.axes}:
        message = f"`{subject.name}` runs on the axes {', '.join(subject.axes)}, not {', '.join(a.name for a in strategy.axes)}"
        refuse("PP103", message, help="leave the names of axes as they are in the catalogue")
    return subject


def _layers(subject: Subject, mesh: Mapping[str, int], options: Mapping[str, Any]) -> int:
    """Layers of the default model: two, or one for each stage of a pipeline. Raises InputError for options that it does not take."""
    from placeproof.measure.training.subjects import settle

    return max(2, subject.stages(mesh, settle(subject, mesh, options))) if subject.schedule else 2


def _runs(strategy: Strategy) -> str:
    """A command that measures a part of a strategy, or something else where no part can be measured by itself."""
    from placeproof.cost.exact.choose import chosen
    from placeproof.measure.training.predicted import PROFILE
    from placeproof.measure.training.subjects import SUBJECTS
    from placeproof.profiles.profile import profile
    from placeproof.strategies import parse_strategy

    for part in strategy.parts:
        try:
            names = [one.name for one in chosen(profile(PROFILE), parse_strategy(part))]
        except InputError:
            continue
        if "*".join(names) in SUBJECTS:
            return f'`placeproof measure "{part}"`'
    return '`placeproof measure "fsdp(4)"`'


def _from_schedule(strategy: Strategy, subject: Subject) -> dict[str, Any]:
    """Options that the strategy itself says."""
    options: dict[str, Any] = {}
    schedule = strategy.schedule
    if "microbatches" in subject.takes() and isinstance(schedule.microbatches, int):
        options["microbatches"] = schedule.microbatches
    if "virtual" in subject.takes() and isinstance(schedule.chunks, int):
        options["virtual"] = schedule.chunks
    if "k" in subject.takes() and isinstance(schedule.reshard, int):
        options["k"] = int(schedule.reshard)
    return options
