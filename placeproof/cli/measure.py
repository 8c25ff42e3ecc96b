"""``placeproof measure``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.options import OptionOption, RankOption, ShapesOption, WithOption
from placeproof.core.diagnostics import InputError, Problems

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.measure.training.subjects import Subject

#: A model that is small enough for real tensors, where none is given; it has more layers where there are more stages.
DEFAULT = "transformer(layers={layers}, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"


def command(
    strategy: Annotated[
        str, typer.Argument(help="What to run: a strategy such as `fsdp(4)`, `fsdp(2) * tp(2) * sp`, `pp(4, microbatches=8)`.")
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="N=VALUE", help="The degree of an axis; may be repeated.")] = None,
    shapes: ShapesOption = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="What to run: torch-2.13; deepspeed-0.19 and megatron-core on real processes.")
    ] = "torch-2.13",
    with_: WithOption = None,
    rank: RankOption = 0,
    option: OptionOption = None,
    backend: Annotated[
        str | None,
        typer.Option(help="`fake`: one device of up to 4,096, without the others; `gloo`: a real process for each device. [default: fake]"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.measure/1).")] = False,
) -> int:
    """Run a training step of PyTorch, and hold what a device exchanged and held against what is predicted. Needs torch.

    Ends with 0 if prediction and measurement are equal, 1 if they are not.
    """
    from placeproof.answers.shapes import mesh_of, options_of
    from placeproof.answers.subject import shapes as shapes_of
    from placeproof.cost.exact.bytes import require_rank
    from placeproof.measure.systems.run import SYSTEMS
    from placeproof.measure.training.predicted import PROFILE, differences, predicted
    from placeproof.measure.training.run import measure
    from placeproof.report import measured as report
    from placeproof.strategies import parse_strategy

    composed = parse_strategy(strategy)
    problems = Problems()
    if profile in SYSTEMS:
        for name, value in (("--with", with_), ("--rank", rank), ("--backend", backend)):
            if value:
                problems.add("PP104", f"`{name}` is of the profile {PROFILE} alone", help="leave it out: systems run on real processes")
        problems.raise_if_any()
        return _of_system(profile, composed, shapes or DEFAULT.format(layers=2), set_ or [], option or [], json_=json_)
    if profile != PROFILE:
        problems.add("PP101", f"profile `{profile}` cannot be measured", help=f"one of {', '.join((PROFILE, *SYSTEMS))}")
    problems.raise_if_any()
    with problems.collecting():
        subject = _subject(composed, tuple(with_ or ()))
    with problems.collecting():
        options = options_of(option or [])
    with problems.collecting():
        given = mesh_of(composed, set_ or [], command=f'placeproof measure "{strategy}"')
        require_rank(given, rank)
    model = None
    with problems.collecting():
        model = shapes_of(shapes) if shapes else None
    problems.raise_if_any()
    mesh = {axis: given[axis] for axis in subject.axes}
    settled = _from_schedule(composed, subject) | options
    if model is None:
        model = shapes_of(DEFAULT.format(layers=_layers(subject, mesh, settled)))
    measured = measure(subject, model, mesh, backend=backend or "fake", rank=rank, options=settled)
    told = predicted(subject, model, mesh, rank=rank, options=settled)
    found = differences(told, measured)
    if json_:
        typer.echo(json.dumps(report.as_data(composed.name, told, measured, found), indent=2))
    else:
        typer.echo(report.text(composed.name, subject.title, told, measured, found), nl=False)
    return 1 if found else 0


def _of_system(profile: str, strategy: Strategy, shapes: str, given: list[str], options: list[str], *, json_: bool) -> int:
    """The same for a whole system."""
    from placeproof.answers.shapes import mesh_of, options_of
    from placeproof.answers.subject import shapes as shapes_of
    from placeproof.measure.systems.run import run_system
    from placeproof.measure.training.predicted import differences
    from placeproof.report import measured as report

    told, measured = run_system(profile, strategy, shapes_of(shapes), mesh_of(strategy, given), options_of(options))
    found = differences(told, measured)
    if json_:
        typer.echo(json.dumps(report.as_data(strategy.name, told, measured, found), indent=2))
    else:
        typer.echo(report.text(strategy.name, profile, told, measured, found), nl=False)
    return 1 if found else 0


def _subject(strategy: Strategy, wanted: tuple[str, ...]) -> Subject:
    """What can be measured of the implementations of a strategy. Raises InputError."""
    from placeproof.cost.exact.choose import chosen
    from placeproof.measure.training.predicted import PROFILE
    from placeproof.measure.training.subjects import SUBJECTS
    from placeproof.profiles.profile import profile

    names = [one.name for one in chosen(profile(PROFILE), strategy, wanted)]
    subject = SUBJECTS.get("*".join(names))
    problems = Problems()
    if subject is None:
        help_ = f"for example {_runs(strategy)}; implementations that can be measured, with `--with`: {', '.join(SUBJECTS)}"
        problems.add("PP101", f"`{strategy.name}`, run by {' and '.join(names)}, cannot be measured", help=help_)
    elif set(subject.axes) != {a.name for a in strategy.axes}:
        message = f"`{subject.name}` runs on the axes {', '.join(subject.axes)}, not {', '.join(a.name for a in strategy.axes)}"
        problems.add("PP103", message, help="leave the names of axes as they are in the catalogue")
    problems.raise_if_any()
    assert subject is not None
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
    found: dict[str, Any] = {}
    schedule = strategy.schedule
    if "microbatches" in subject.takes() and isinstance(schedule.microbatches, int):
        found["microbatches"] = schedule.microbatches
    if "virtual" in subject.takes() and isinstance(schedule.chunks, int):
        found["virtual"] = schedule.chunks
    if "k" in subject.takes() and isinstance(schedule.reshard, int):
        found["k"] = int(schedule.reshard)
    return found
