"""``placeproof derive``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.options import (
    Exact,
    Given,
    HtmlOption,
    OfStep,
    ProfileOption,
    Shown,
    WithOption,
    given,
    option,
    page_path,
    picture_path,
    read_as,
    takes,
)
from placeproof.cli.terminal import note, say, show
from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.files import write_text

if TYPE_CHECKING:
    from placeproof.answers.models import ModelRun
    from placeproof.answers.subject import Subject
    from placeproof.core.mesh import Axis
    from placeproof.core.strategy import Strategy
    from placeproof.cost.derive import Derivation
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.model.time import StepTime
    from placeproof.cost.uneven import Shards
    from placeproof.cost.values import Numbers
    from placeproof.models import Model
    from placeproof.programs import Program
    from placeproof.report.document import Document, Live


#: What a program alone depends on, what formulas alone do not, and what goes with a configuration.
_OF_PROGRAM = {"--from", "--world", "--env", "--profile", "--with", "--model", "--recompute", "--stages", "--vocab-padding"}
_FORMULAS = {"--latex", "--python"}
_CONFIGURED = {"--set", "--precision", "--from", "--world", "--env", "--model"}
_NUMBERS = {"--set", "--precision", "--cluster", "--efficiency", "--order", "--overlap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given(Given):
    set_: list[str] | None = option(
        "--set",
        "Give a symbol a value; may be repeated, `--set P=70B --set N=64`. Numbers are shown beside the formulas.",
        metavar="NAME=VALUE",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfStep(OfStep):
    plot: str | None = option("--plot", "Write a picture of memory by stage, and of the schedule.", metavar="FILE.svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    strategy: Annotated[
        str,
        typer.Argument(
            help="A strategy such as `zero3`, `zero1(64) * tp(8) * pp(16)`, `mine.toml`; a program; or a configuration, `ds_config.json`."
        ),
    ]
    given: _Given
    profile: ProfileOption = None
    with_: WithOption = None
    exact: Exact
    about: _OfStep
    shards: list[str] | None = option(
        "--shards",
        "Devices of an axis hold uneven parts: dp=0.4,0.3,0.3, dp=4:3:3 or dp=0.3x2,0.1x4; may be repeated.",
        metavar="AXIS=PARTS",
    )
    groups: bool = option("--groups", "Count norms and biases apart, as P_norm.", default=False)
    program: bool = option("--program", "Print the program alone: of a step, or of a model's.", default=False)
    json_: bool = option("--json", "Print JSON (schema placeproof.derive/1; with --model, placeproof.derive-model/1).", default=False)
    latex: bool = option("--latex", "Print the closed forms as LaTeX.", default=False)
    markdown: bool = option("--markdown", "Print the closed forms as Markdown.", default=False)
    python: bool = option("--python", "Print the closed forms as Python functions.", default=False)
    shown: Shown
    html: HtmlOption = None
    as_: str | None = option(
        "--as",
        "Print the strategy as a configuration that reads back as it: accelerate, deepspeed, megatron or torchtitan.",
        metavar="SYSTEM",
    )

    @property
    def forms(self) -> list[str]:
        """The options that choose a form of output."""
        return [name for name in ("--json", "--latex", "--markdown", "--python", "--program", "--as") if name in given(self)]

    @property
    def alone(self) -> bool:
        """Whether the program is printed, and nothing else."""
        return self.program and not self.json_

    @property
    def beside_bytes(self) -> bool:
        """Whether closed forms are derived: always, but where exact bytes alone are asked for."""
        return self.exact.shapes is None or bool(self.about.model or self.given.precision or self.groups or self.program)

    @property
    def of_no_matter(self) -> list[str]:
        """Options that were given, and change nothing of what is printed."""
        if self.about.plot is not None or self.html is not None:
            return []  # a picture is of the numbers, too
        matters = set(self.forms) | _OF_PROGRAM | ({"--set"} if self.about.model is not None else set())
        if self.alone:
            return [name for name in given(self) if name not in matters]
        return [name for name in given(self) if name in _NUMBERS - matters] if _FORMULAS & set(self.forms) else []

    @property
    def implementation(self) -> tuple[str | None, list[str]]:
        """The profile, and the implementations of it that are not the usual ones."""
        return self.profile, self.with_ or []


#: What is left to do once everything that was asked for is known to make sense: documents by their fields in data.
_Task = Callable[[], dict[str, "Document"]]


@takes(Options)
def command(options: Options) -> None:
    """Closed-form memory and traffic of a strategy or a step program, with their derivation."""
    if options.as_ is not None:
        _configuration(options, options.as_)
        return
    _print(options)
    if options.of_no_matter:
        listed = ", ".join(f"`{name}`" for name in options.of_no_matter)
        what = "the program alone, which does" if options.alone else "closed forms alone, which do"
        note(f"`{options.forms[0]}` prints {what} not depend on {listed}")


def _configuration(o: Options, system: str) -> None:
    """Print a configuration alone, and what is to be known of it beside it."""
    from placeproof.answers import subject as read
    from placeproof.answers.configuration import of_subject

    problems, name = Problems(), o.about.model
    problems.attempt(o.given.settings().check)
    subject = problems.attempt(lambda: o.given.read([o.strategy])[0])
    _check(o, False, problems)
    model = problems.attempt(lambda: None if name is None else read.model(name))
    problems.raise_if_any()
    if o.given.on(subject()) is not None:
        refuse("PP505", "`--world` goes with a configuration", help="a strategy says its degrees: `zero3(64)`")
    written = of_subject(subject(), system, o.given.settings([subject()]), model())
    say(written.text)
    for text in written.notes:
        note(text)


def _print(o: Options) -> None:
    """Print the result. Raises InputError with every problem that can be found together."""
    from placeproof.report import renderers
    from placeproof.report.text import text

    subject, tasks = _tasks(o)
    if o.alone:
        say(text(tasks[0]()["program"]))  # it is read again
        return
    together = _together(o, subject, tasks)
    if o.forms and not o.json_:
        form = {"--latex": renderers.latex, "--markdown": renderers.markdown, "--python": renderers.python}[o.forms[0]]
        say(form(together))
        return
    show(together, json_=o.json_, ascii=False, detail=o.shown.detail((), Problems()), page=page_path(o.html))


def document(o: Options) -> Document:
    """What is printed, or written as a page. Raises InputError with every problem that can be found together."""
    return _together(o, *_tasks(o))


def _tasks(o: Options) -> tuple[Subject, list[_Task]]:
    """What is asked about, and what is left to do once it is known that everything makes sense."""
    from placeproof.answers.subject import LinkedProgram
    from placeproof.cost.uneven import read_shards

    problems = Problems()
    problems.attempt(o.given.settings().check)
    shards = problems.attempt(lambda: read_shards(o.shards) if o.shards else None)
    subject = problems.attempt(lambda: o.given.read([o.strategy])[0])
    linked = False
    with problems.collecting():
        linked = o.about.model is None and isinstance(subject(), LinkedProgram)
    _check(o, linked, problems)
    tasks: list[_Task] = []
    if linked or o.about.model is not None:
        tasks.append(_linked(o, subject, problems) if linked else _model(o, subject, shards, problems))
    elif o.beside_bytes:
        tasks.append(_formulas(o, subject, shards, problems))
    if o.exact.shapes is not None and not o.alone:
        tasks.append(_bytes(o, subject, problems))
    problems.raise_if_any()
    return subject(), tasks


def _together(o: Options, subject: Subject, tasks: Sequence[_Task]) -> Document:
    from placeproof.report.document import joined

    parts = {field: document for task in tasks for field, document in task().items()}
    of_bytes = list(parts) == ["bytes"]
    return joined({"": parts["bytes"]} if of_bytes else parts, None if of_bytes and o.json_ else read_as([subject]), "imported")


def given_as(given: Given) -> _Given:
    """What is set, as this command takes it."""
    return _Given(**{one.name: getattr(given, one.name) for one in fields(given)})


def about_as(about: OfStep) -> _OfStep:
    """What is said of a model, as this command takes it."""
    return _OfStep(**{one.name: getattr(about, one.name) for one in fields(about)})


def _check(o: Options, linked: bool, problems: Problems) -> None:
    """Options that exclude one another, or have nothing to act on. ``linked``: whether the subject is a model's program."""

    asked = given(o)

    def refuse(names: Collection[str], what: str, help: str) -> None:
        if refused := [f"`{name}`" for name in asked if name in names]:
            problems.add("PP104", f"{' and '.join(refused)} {'does' if len(refused) == 1 else 'do'} not go with {what}", help=help)

    forms = [name for name in o.forms if name != "--program" or not o.json_]
    if len(forms) > 1:
        problems.add("PP104", f"{' and '.join(forms)} exclude one another", help="choose one form of output")
    o.shown.detail(forms, problems)
    if o.as_ is not None:
        help = "leave it out; sizes that arguments of a system say are given one by one, `--set b=1`"
        refuse(set(asked) - _CONFIGURED - set(forms), "`--as`", help)
        return
    if o.shards:
        unlike = {"--cluster", "--plot", "--shapes"} | (_FORMULAS if o.about.model is not None else set())
        refuse(unlike, "`--shards`", "exact bytes and times are those of equal parts; of a model's stages, JSON has the formulas")
    if linked:
        fixed = {"--recompute", "--stages", "--vocab-padding", "--groups", "--shards", "--profile", "--shapes"}
        refuse(fixed, "a model's program", "leave it out; the program says what is computed and sent, and how it is laid out")
    else:
        o.about.check(problems)
    if o.about.model is not None:
        refuse({"--groups"}, "`--model`", "leave one of them out: a model's parameters are counted by group")
    if o.with_ and o.profile is None:
        problems.add("PP104", "`--with` names an implementation of a profile", help="add `--profile torch-2.13`")
    o.exact.check(problems)
    problems.attempt(lambda: page_path(o.html))
    if o.html is not None and (alone := [name for name in forms if name != "--json"]):
        problems.add("PP104", f"`{alone[0]}` prints something else than a page has", help="leave it out, or `--html`")
    if o.exact.shapes is not None and (formulas := [name for name in forms if name in _FORMULAS]):
        problems.add("PP104", f"exact bytes are no formulas: `{formulas[0]}` does not go with `--shapes`", help="leave one of the two out")


def _formulas(o: Options, subject: Callable[[], Subject], shards: Callable[[], Shards | None], problems: Problems) -> _Task:
    """Closed forms of a strategy or of a step program."""
    from placeproof.answers.subject import costed
    from placeproof.cost.derive import derive_shards

    target = problems.attempt(lambda: costed(subject(), *o.implementation))
    if o.alone:
        return lambda: {"program": _program(target())}
    d = problems.attempt(lambda: derive_shards(target(), shards(), groups=o.groups))

    def parts() -> dict[str, Document]:
        from placeproof.report.derivation import document
        from placeproof.semantics.scheduled import require_order

        settings, world = o.given.settings([subject()]), o.given.on(subject())
        strategy = d().strategy
        if world is not None and strategy is not None:
            numbers = settings.on(world).of_axes(strategy.axes, strategy.schedule.microbatches)
        else:
            numbers = settings.numbers(symbols=d().symbols, degrees=d().degree_values)
        if o.given.set_:
            require_numbers(d(), numbers, o.given.set_)
        if strategy is not None:
            require_order(strategy, numbers.values)
        said = document(d(), numbers, shards())
        return {"": said if shards() is not None or o.groups else replace(said, live=lambda: _moving(d(), numbers))}

    return parts


def _moving(d: Derivation, numbers: Numbers) -> Live | None:
    from placeproof.answers.opened import of_strategy

    return of_strategy(d, numbers)


def _program(of: Strategy | Program) -> Document:
    """The step program alone, also of a strategy whose costs it does not tell."""
    from placeproof.cost.derive import derive
    from placeproof.programs import Program, render
    from placeproof.report.document import listing
    from placeproof.semantics.lower import lower

    return listing(of.name, render(derive(of).program if isinstance(of, Program) else lower(of)))


def require_numbers(derived: Derivation, numbers: Numbers, said: Sequence[str] = ()) -> None:
    """Numbers were asked for: the model states, at least, must have one. ``said``: what is set, which help repeats."""
    from placeproof.cost.uneven import fraction
    from placeproof.cost.values import how_to_set

    problems, before = Problems(), "".join(f"--set {shlex.quote(text)} " for text in said)
    expr = derived.memory["model_states"] + derived.memory["host"]
    own = {str(fraction(axis)) for axis in derived.amounts.uneven}
    for name in sorted(n for s in expr.free_symbols if (n := str(s)) not in numbers.values and n not in own):
        axis = next((a.name for a in derived.program.axes if str(derived.amounts.degree(a.name)) == name), None)
        how = how_to_set(name).replace("`--set", f"`{before}--set", 1) + (
            "" if axis is None else f", or the degree in the strategy: `{_with_degree(derived, axis)}`"
        )
        problems.add("PP203", f"a number was asked for, and `{name}` is not set ({derived.symbols[name].meaning})", help=how)
    problems.raise_if_any()


def _with_degree(derived: Derivation, axis: str) -> str:
    from placeproof.core.strategy import on_axis
    from placeproof.strategies import names

    if derived.strategy is None:
        return f"mesh({axis}=8)"
    parts = derived.strategy.parts
    if any(p.split("(")[0] not in ("", *names()) for p in parts):
        return "mine.toml(8)"
    owners = {e.owner for e in derived.strategy.entries if e.axis == axis}
    tuples = {p: on_axis(p, f"{axis}=8") for p in parts if p.startswith("(")}
    given = tuples | {p: f"{p}(8)" for p in parts if "(" not in p}
    return " * ".join(given.get(p, p) if p in owners else p for p in parts)


def _model(o: Options, subject: Callable[[], Subject], shards: Callable[[], Shards | None], problems: Problems) -> _Task:
    """What a model costs under a strategy, and the time of its step."""
    from placeproof.answers import subject as subjects
    from placeproof.answers.models import derived

    asked = _Asked(o, problems)
    model = problems.attempt(lambda: subjects.model(str(o.about.model)))
    strategy = problems.attempt(lambda: subjects.strategy(subject(), *o.implementation))

    def parts() -> dict[str, Document]:
        from placeproof.cost.model.fractions import fitted_strategy, uneven_stages
        from placeproof.report.uneven import stages

        uneven = shards()
        fitted = strategy() if uneven is None else fitted_strategy(strategy(), uneven)
        numbers = _numbers(o, subject(), fitted.axes, fitted.schedule.microbatches)
        read = subjects.imported([subject()])
        d, rest = derived(model(), fitted, asked.run, numbers, read)
        more = {} if uneven is None else {"shards": stages(uneven_stages(d, uneven), d, uneven, rest)}
        settings, world = o.given.settings([subject()]), o.given.on(subject())
        asked_about = {"model": model(), "strategy": fitted, "run": asked.run, "settings": settings, "world": world, "read": read}
        parts = asked.parts(d, rest, **({} if uneven is not None else asked_about)) | more
        if uneven is None and not read and "" in parts:
            parts[""] = replace(parts[""], live=lambda: _moving_of_model(model(), fitted, asked.run, numbers))
        return parts

    return parts


def _moving_of_model(model: Model, strategy: Strategy, run: ModelRun, numbers: Numbers) -> Live | None:
    from placeproof.answers.opened import of_model

    return of_model(model, strategy, run, numbers)


def _linked(o: Options, subject: Callable[[], Subject], problems: Problems) -> _Task:
    """A linked program that was written down, derived as `--model` derives what it links."""
    from placeproof.answers.models import derived_as_linked
    from placeproof.answers.subject import linked

    asked = _Asked(o, problems)
    d = problems.attempt(lambda: derived_as_linked(linked(subject()), asked.run))

    def parts() -> dict[str, Document]:
        program = d().linked
        microbatches = "symbolic" if getattr(d().batches, "free_symbols", ()) else int(d().batches)
        return asked.parts(d(), _numbers(o, subject(), program.axes, microbatches))

    return parts


def _numbers(o: Options, subject: Subject, axes: Sequence[Axis], microbatches: int | str | None) -> Numbers:
    """Those of a model's step, with what is assumed. Raises InputError."""
    from placeproof.answers.numbers import check_degrees

    settings, problems = o.given.settings([subject]), Problems()
    check_degrees([axes], settings.numbers(), problems)
    problems.raise_if_any()
    return settings.of_model(axes, microbatches, o.given.on(subject), o.about.global_batch)


class _Asked:
    """What is asked of a model: how it is run, what its step is timed with, a picture."""

    def __init__(self, options: Options, problems: Problems) -> None:
        self.options = options
        run, self.clock = options.about.run(problems), options.about.clock(options.given.set_ or [], problems)
        there = "" if self.clock is None else self.clock.cluster.device.architecture
        self.run = run if run.run_by is None else replace(run, run_by=run.run_by.on(there))
        self.picture = problems.attempt(lambda: picture_path(options.about.plot))

    def parts(self, d: ModelDerivation, numbers: Numbers, **of: Any) -> dict[str, Document]:
        """The documents of a derivation; a picture is written, if one is wanted. ``of``: as ``asked`` of ``OfStep.accumulated``; without it
        gradients are not accumulated."""
        from placeproof.answers.models import timed
        from placeproof.report.document import listing
        from placeproof.report.models import derivation, time
        from placeproof.semantics.linked import render_linked

        program = {"program": listing(d.linked.name, render_linked(d.linked))} if self.options.program else {}
        picture = self.picture()
        if self.options.alone and picture is None:
            return program
        numbers, step = timed(d, numbers, self.clock)
        if picture is not None:
            write_text(picture, _picture(d, numbers, step), code="PP104")
        timing = {} if step is None else {"time": time.document(step.form, step)}
        less = self.options.about.accumulated(step, self.clock, **of) if of else None
        return {"": derivation.document(d, numbers, step, less)} | timing | program


def _picture(d: ModelDerivation, numbers: Numbers, step: StepTime | None) -> str:
    from placeproof.cost.model.passes import work_timeline
    from placeproof.cost.model.time import timeline
    from placeproof.report.pictures.memory import memory_picture, stacks

    table = work_timeline(d, numbers.values) if step is None else timeline(step)
    memory = None if step is None else step.price.cluster.device.memory
    title = f"{d.linked.model} under {d.linked.name}" + ("" if step is None else f" on {step.price.cluster.name}")
    bars = stacks(d if step is None else step.d, numbers.values)
    return memory_picture(title, bars, memory, table, "seconds" if step is not None else "floating-point operations")


def _bytes(o: Options, subject: Callable[[], Subject], problems: Problems) -> _Task:
    """Exact bytes of one device."""
    from placeproof.answers.costs import AsRun, device_bytes
    from placeproof.answers.subject import strategy

    target = problems.attempt(lambda: strategy(subject()))
    run = AsRun(profile=o.profile, implementations=o.with_ or (), rank=o.exact.rank, options=o.exact.option or ())
    made = device_bytes(target, o.exact.read, run, o.given.set_ or (), problems, others=o.beside_bytes)
    return lambda: {"bytes": made().document}
