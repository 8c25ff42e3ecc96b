"""``placeproof derive``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.common import picture_path, read_as, write_picture
from placeproof.cli.options import Exact, Given, OfModel, ProfileOption, WithOption, takes
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from pathlib import Path

    from placeproof.answers.models import Clock
    from placeproof.answers.subject import LinkedProgram, Subject
    from placeproof.core.shapes import Shapes
    from placeproof.cost.derive import Derivation
    from placeproof.cost.exact.options import Value
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.model.time import StepTime
    from placeproof.cost.uneven import Shards
    from placeproof.cost.values import Numbers
    from placeproof.profiles.profile import Implementation
    from placeproof.report.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given(Given):
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Give a symbol a value, NAME=VALUE (P=70e9, P=70B, N=64); may be repeated. Numbers are shown beside the formulas.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfModel(OfModel):
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE.svg", help="Write a picture of memory by stage, and of the schedule.")
    ] = None


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
    about: _OfModel
    shards: Annotated[
        list[str] | None,
        typer.Option(
            "--shards",
            metavar="AXIS=PARTS",
            help="Devices of an axis hold uneven parts: dp=0.4,0.3,0.3, dp=4:3:3 or dp=0.3x2,0.1x4; may be repeated.",
        ),
    ] = None
    groups: Annotated[bool, typer.Option("--groups", help="Count norms and biases apart, as P_norm.")] = False
    program: Annotated[bool, typer.Option("--program", help="Print the program alone: of a step, or of a model's.")] = False
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON (schema placeproof.derive/1; with --model, placeproof.derive-model/1).")
    ] = False
    latex: Annotated[bool, typer.Option("--latex", help="Print the closed forms as LaTeX.")] = False
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the closed forms as Markdown.")] = False
    python: Annotated[bool, typer.Option("--python", help="Print the closed forms as Python functions.")] = False

    @property
    def forms(self) -> list[str]:
        """The options that choose a form of output."""
        outputs = {"--json": self.json_, "--latex": self.latex, "--markdown": self.markdown, "--python": self.python}
        return [name for name, on in (outputs | {"--program": self.program}).items() if on]

    @property
    def implementation(self) -> tuple[str | None, list[str]]:
        """The profile, and the implementations of it that are not the usual ones."""
        return self.profile, self.with_ or []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What is derived of a subject: documents by their fields in data, and its program."""

    parts: dict[str, Document]
    program: Callable[[], str]


#: What is left to do once everything that was asked for is known to make sense.
_Task = Callable[[], _Result]


@takes(Options)
def command(options: Options) -> None:
    """Closed-form memory and traffic of a strategy or a step program, with their derivation."""
    typer.echo(_answer(options), nl=False)


def _answer(o: Options) -> str:
    """What is printed. Raises InputError with every problem that can be found together."""
    from placeproof.answers.subject import LinkedProgram
    from placeproof.cost.uneven import read_shards

    problems = Problems()
    subject: Subject | None = None  # while a configuration cannot be read nothing is said of its strategy
    shards: Shards | None = None
    with problems.collecting():
        o.given.settings().check()
    with problems.collecting():
        shards = read_shards(o.shards) if o.shards else None
    with problems.collecting():
        (subject,) = o.given.read([o.strategy])
    _check(o, subject, problems)
    if isinstance(subject, LinkedProgram) and o.about.model is None:
        tasks = [_linked(o, subject, problems)]
    elif o.about.model is not None:
        tasks = [_model(o, subject, shards, problems)]
    else:
        tasks = [_formulas(o, subject, shards, problems)] if o.exact.shapes is None or _of_formulas(o) or o.program else []
    if o.exact.shapes is not None and not (o.program and not o.json_):
        tasks.append(_bytes(o, subject, problems))
    problems.raise_if_any()
    assert subject is not None
    return _printed(o, subject, [task() for task in tasks])


def _printed(o: Options, subject: Subject, results: list[_Result]) -> str:
    from placeproof.report import renderers
    from placeproof.report.document import joined

    if o.program and not o.json_:
        return results[0].program()
    parts = {name: document for result in results for name, document in result.parts.items()}
    with_settings = "bytes" not in parts or len(parts) > 1
    if len(parts) == 1:
        parts = {"": next(iter(parts.values()))}
    if o.json_:
        return renderers.json(joined(parts, read_as([subject]) if with_settings else None, "imported"))
    if o.forms:
        return {"--latex": renderers.latex, "--markdown": renderers.markdown, "--python": renderers.python}[o.forms[0]](joined(parts))
    return renderers.text(joined(parts, read_as([subject])))


def _of_formulas(o: Options) -> list[str]:
    """Options that speak of the closed forms of a strategy."""
    return [*(["--precision"] if o.given.precision else []), *(["--groups"] if o.groups else [])]


def _check(o: Options, subject: Subject | None, problems: Problems) -> None:
    """Options that exclude one another, or have nothing to act on."""
    from placeproof.answers.subject import LinkedProgram

    def refuse(names: list[str], what: str, help: str) -> None:
        if names:
            problems.add("PP104", f"{' and '.join(names)} {'does' if len(names) == 1 else 'do'} not go with {what}", help=help)

    forms = [name for name in o.forms if name != "--program" or not o.json_]
    if len(forms) > 1:
        problems.add("PP104", f"{' and '.join(forms)} exclude one another", help="choose one form of output")
    formulas = [f"`{name}`" for name in o.forms if name in ("--latex", "--python")]
    if o.shards:
        beside = {"`--cluster`": o.about.cluster, "`--plot`": o.about.plot, "`--shapes`": o.exact.shapes}
        names = [name for name, text in beside.items() if text is not None] + (formulas if o.about.model is not None else [])
        refuse(names, "`--shards`", "exact bytes and times are those of equal parts; of a model's stages, JSON has the formulas")
    if isinstance(subject, LinkedProgram) and o.about.model is None:
        said = [f"`{name}`" for name in o.about.given if name in ("--recompute", "--stages", "--vocab-padding")]
        names = [*said, *(["`--groups`"] if o.groups else []), *(["`--shards`"] if o.shards else [])]
        names += [f"`{name}`" for name, text in (("--profile", o.profile), ("--shapes", o.exact.shapes)) if text is not None]
        refuse(names, "a model's program", "leave it out; the program says what is computed and sent, and how it is laid out")
    else:
        o.about.check(problems)
    if o.about.model is not None and o.groups:
        refuse(["`--groups`"], "`--model`", "leave one of them out: a model's parameters are counted by group")
    if o.with_ and o.profile is None:
        problems.add("PP104", "`--with` names an implementation of a profile", help="add `--profile torch-2.13`")
    o.exact.check(problems)
    if o.exact.shapes is not None and formulas:
        problems.add("PP104", f"exact bytes are no formulas: {formulas[0]} does not go with `--shapes`", help="leave one of the two out")


def _formulas(o: Options, subject: Subject | None, shards: Shards | None, problems: Problems) -> _Task:
    """Closed forms of a strategy or of a step program."""
    d: Derivation | None = None
    if subject is not None and not (o.program and not o.json_):
        with problems.collecting():
            d = _derived(o, subject, shards)

    def result() -> _Result:
        from placeproof.report.derivation import document

        assert subject is not None
        if d is None:
            return _Result(parts={}, program=lambda: _program(o, subject))
        numbers = o.given.settings([subject]).numbers(symbols=d.symbols, degrees=d.degree_values)
        if o.given.set_:
            require_numbers(d, numbers)
        return _Result(parts={"": document(d, numbers, shards)}, program=lambda: _program(o, subject))

    return result


def _derived(o: Options, subject: Subject, shards: Shards | None) -> Derivation:
    from placeproof.answers.subject import costed
    from placeproof.cost.derive import derive, derive_shards

    of = costed(subject, *o.implementation)
    return derive(of, groups=o.groups) if shards is None else derive_shards(of, shards, groups=o.groups)


def _program(o: Options, subject: Subject) -> str:
    """The step program alone, also of a strategy whose costs it does not tell."""
    from placeproof.answers.subject import costed
    from placeproof.cost.derive import derive
    from placeproof.programs import Program, render
    from placeproof.semantics.lower import lower

    of = costed(subject, *o.implementation)
    return render(derive(of).program if isinstance(of, Program) else lower(of))


def require_numbers(derived: Derivation, numbers: Numbers) -> None:
    """Numbers were asked for: the model states, at least, must have one."""
    from placeproof.cost.uneven import fraction
    from placeproof.cost.values import how_to_set

    problems = Problems()
    expr = derived.memory["model_states"] + derived.memory["host"]
    own = {str(fraction(axis)) for axis in derived.amounts.uneven}
    for name in sorted(n for s in expr.free_symbols if (n := str(s)) not in numbers.values and n not in own):
        axis = next((a.name for a in derived.program.axes if str(derived.amounts.degree(a.name)) == name), None)
        how = how_to_set(name) + ("" if axis is None else f", or the degree in the strategy: `{_with_degree(derived, axis)}`")
        problems.add("PP203", f"a number was asked for, and `{name}` is not set ({derived.symbols[name].meaning})", help=how)
    problems.raise_if_any()


def _with_degree(derived: Derivation, axis: str) -> str:
    from placeproof.strategies import names

    if derived.strategy is None:
        return f"mesh({axis}=8)"
    parts = derived.strategy.parts
    if any(p.split("(")[0] not in names() for p in parts):
        return "mine.toml(8)"
    owners = {e.owner for e in derived.strategy.entries if e.axis == axis}
    return " * ".join(f"{p}(8)" if p in owners and "(" not in p else p for p in parts)


def _model(o: Options, subject: Subject | None, shards: Shards | None, problems: Problems) -> _Task:
    """What a model costs under a strategy, and the time of its step."""
    from placeproof.answers import subject as subjects
    from placeproof.answers.models import derived
    from placeproof.answers.numbers import degrees

    assert o.about.model is not None
    run, clock = o.about.run(problems), o.about.clock(o.given.set_ or [], problems)
    model, strategy, picture = None, None, None
    with problems.collecting():
        model = subjects.model(o.about.model)
    with problems.collecting():
        picture = picture_path(o.about.plot)
    with problems.collecting():
        strategy = None if subject is None else subjects.strategy(subject, *o.implementation)

    def result() -> _Result:
        from placeproof.cost.model.fractions import fitted_strategy, uneven_stages
        from placeproof.report.uneven import stages

        assert model is not None
        assert strategy is not None
        assert subject is not None
        fitted = strategy if shards is None else fitted_strategy(strategy, shards)
        known = degrees(fitted.axes, fitted.schedule.microbatches)
        d, numbers = derived(model, fitted, run, o.given.settings([subject]).numbers(degrees=known))
        made = _of_model(o, d, numbers, clock, picture)
        if shards is not None:
            made.parts["shards"] = stages(uneven_stages(d, shards), d, shards, numbers)
        return made

    return result


def _linked(o: Options, subject: LinkedProgram, problems: Problems) -> _Task:
    """A linked program that was written down, derived as `--model` derives what it links."""
    from placeproof.answers.models import derived_as_linked
    from placeproof.answers.numbers import degrees
    from placeproof.semantics.linked import Linked, read_linked

    linked: Linked | None = None
    d: ModelDerivation | None = None
    run, clock, picture = o.about.run(problems), o.about.clock(o.given.set_ or [], problems), None
    with problems.collecting():
        picture = picture_path(o.about.plot)
    with problems.collecting():
        linked = read_linked(subject.text, source=subject.path)
        d = derived_as_linked(linked, run)

    def result() -> _Result:
        assert linked is not None
        assert d is not None
        numbers = o.given.settings().numbers(degrees=degrees(linked.axes, linked.step.count("microbatches")))
        return _of_model(o, d, numbers, clock, picture)

    return result


def _of_model(o: Options, d: ModelDerivation, numbers: Numbers, clock: Clock | None, picture: Path | None) -> _Result:
    """The documents of a model's derivation, with a picture written if one is wanted."""
    from placeproof.answers.models import timed
    from placeproof.cost.model.time import ModelTime
    from placeproof.report.document import Document
    from placeproof.report.models import derivation, time
    from placeproof.semantics.linked import render_linked

    def program() -> str:
        return render_linked(d.linked)

    if o.program and not o.json_ and picture is None:
        return _Result(parts={}, program=program)
    numbers, step = timed(d, numbers, clock)
    if picture is not None:
        write_picture(picture, _picture(d, numbers, step))
    parts = {"": derivation.document(d, numbers)}
    if step is not None:
        parts["time"] = time.document(ModelTime(d=d, overlap=step.overlap), step)
    if o.program:
        parts["program"] = Document(name=d.linked.name, sections=tuple, data=program)
    return _Result(parts=parts, program=program)


def _picture(d: ModelDerivation, numbers: Numbers, step: StepTime | None) -> str:
    from placeproof.cost.model.time import timeline, work_timeline
    from placeproof.report.pictures.memory import memory_picture, stacks

    table = work_timeline(d, numbers.values) if step is None else timeline(step)
    memory = None if step is None else step.price.cluster.device.memory
    title = f"{d.linked.model} under {d.linked.name}" + ("" if step is None else f" on {step.price.cluster.name}")
    bars = stacks(d if step is None else step.d, numbers.values)
    return memory_picture(title, bars, memory, table, "seconds" if step is not None else "floating-point operations")


def _bytes(o: Options, subject: Subject | None, problems: Problems) -> _Task:
    """Exact bytes of one device."""
    from placeproof.answers import subject as subjects
    from placeproof.answers.shapes import mesh_of, options_of
    from placeproof.cost.exact.bytes import exact_bytes, require_rank
    from placeproof.cost.exact.choose import chosen
    from placeproof.profiles.profile import profile
    from placeproof.report.models.exact import document

    assert o.exact.shapes is not None
    implementations: tuple[Implementation, ...] = ()
    shapes: Shapes | None = None
    options: dict[str, Value] = {}
    mesh: dict[str, int] = {}
    if subject is None:
        return lambda: _Result(parts={}, program=str)
    problems.raise_if_any()
    strategy = subjects.strategy(subject)
    with problems.collecting():
        implementations = chosen(profile(o.profile or "ideal"), strategy, tuple(o.with_ or ()))
    with problems.collecting():
        shapes = subjects.shapes(o.exact.shapes)
    with problems.collecting():
        options = options_of(o.exact.option or [])
    with problems.collecting():
        mesh = mesh_of(strategy, o.given.set_ or [])
        require_rank(mesh, o.exact.rank)

    def result() -> _Result:
        assert shapes is not None
        answer = exact_bytes(strategy, implementations, shapes, mesh, rank=o.exact.rank, options=options)
        return _Result(parts={"bytes": document(answer)}, program=str)

    return result
