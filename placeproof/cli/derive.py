"""``placeproof derive``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.configs import From, World, as_data, expressions, precision_of, read_subjects, settings, shown
from placeproof.cli.exact import OptionOption, ProfileOption, RankOption, ShapesOption, WithOption, exact, realised, require_profile
from placeproof.cli.model import (
    ClusterOption,
    EfficiencyOption,
    ModelOption,
    ModelOptions,
    OverlapOption,
    PlotOption,
    RecomputeOption,
    StagesOption,
)
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.cost.derive import Derivation
    from placeproof.cost.values import Numbers
    from placeproof.importers import Imported

Subject = Annotated[
    str,
    typer.Argument(
        help="A strategy such as `zero3`, `zero1(64) * tp(8) * pp(16)`, `mine.toml`; a program; or a configuration, `ds_config.json`."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Give a symbol a value, NAME=VALUE (P=70e9, P=70B, N=64); may be repeated. Numbers are shown beside the formulas.",
    ),
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", help="Byte widths for numbers: `placeproof list precisions`. [default: mixed-adam]")
]
GroupsOption = Annotated[bool, typer.Option("--groups", help="Count norms and biases apart, as P_norm.")]
ProgramOption = Annotated[bool, typer.Option("--program", help="Print the step program alone.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON (schema placeproof.derive/1; with --model, placeproof.derive-model/1).")
]
LatexOption = Annotated[bool, typer.Option("--latex", help="Print the closed forms as LaTeX.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the closed forms as Markdown.")]
PythonOption = Annotated[bool, typer.Option("--python", help="Print the closed forms as Python functions.")]


@dataclass(frozen=True, slots=True)
class _Exact:
    """The options of exact bytes; ``profile`` and ``wanted`` speak of closed forms, too."""

    profile: str | None
    wanted: list[str]
    shapes: str | None
    rank: int
    options: list[str]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line. ``imports``: --from and --world; ``forms``: options that choose a form of output."""

    subject: str
    given: list[str]
    precision: str | None
    imports: tuple[str | None, int | None]
    exact: _Exact
    about: ModelOptions
    groups: bool
    forms: list[str]

    @property
    def json(self) -> bool:
        """Whether JSON is wanted."""
        return "--json" in self.forms


def command(
    strategy: Subject,
    set_: SetOption = None,
    precision: PrecisionOption = None,
    from_: From = None,
    world: World = None,
    profile: ProfileOption = None,
    with_: WithOption = None,
    shapes: ShapesOption = None,
    rank: RankOption = 0,
    option: OptionOption = None,
    model: ModelOption = None,
    recompute: RecomputeOption = None,
    stages: StagesOption = None,
    cluster: ClusterOption = None,
    efficiency: EfficiencyOption = None,
    overlap: OverlapOption = None,
    plot: PlotOption = None,
    groups: GroupsOption = False,
    program: ProgramOption = False,
    json_: JsonOption = False,
    latex: LatexOption = False,
    markdown: MarkdownOption = False,
    python: PythonOption = False,
) -> None:
    """Closed-form memory and traffic of a strategy or a step program, with their derivation."""
    outputs = {"--json": json_, "--latex": latex, "--markdown": markdown, "--python": python, "--program": program}
    forms = [name for name, on in outputs.items() if on]
    of_exact = _Exact(profile, with_ or [], shapes, rank, option or [])
    about = ModelOptions(model, recompute, stages, cluster, efficiency, overlap, plot)
    asked = _Asked(strategy, set_ or [], precision, (from_, world), of_exact, about, groups, forms)
    typer.echo(_answer(asked), nl=False)


def _answer(asked: _Asked) -> str:
    """What is printed. Raises InputError with every problem that can be found together."""
    from placeproof.cost.values import read_numbers

    problems = Problems()
    _check(asked, problems)
    with problems.collecting():
        read_numbers(asked.given, asked.precision)
    found: list[Imported | None] = [None]
    expression = asked.subject
    with problems.collecting():
        found = read_subjects([asked.subject], *asked.imports)
        (expression,) = expressions([asked.subject], found)
        if asked.exact.shapes is None:
            expression = realised(expression, asked.exact.profile, asked.exact.wanted)
    if asked.exact.shapes is not None:
        problems.raise_if_any()
        return _exact(asked, expression, found)
    return (_of_model if asked.about.model is not None else _of_strategy)(asked, expression, found, problems)


def _check(asked: _Asked, problems: Problems) -> None:
    """Options that exclude one another, or have nothing to act on."""
    if len(asked.forms) > 1:
        problems.add("PP104", f"{' and '.join(asked.forms)} exclude one another", help="choose one form of output")
    only_formulas = [name for name in asked.forms if name != "--json"]
    groups = ["--groups"] if asked.groups else []
    asked.about.check([*only_formulas, *groups, *(["--shapes"] if asked.exact.shapes is not None else [])], problems)
    unused = [*only_formulas, *(["--precision"] if asked.precision else []), *groups]
    with problems.collecting():
        require_profile(
            asked.exact.profile, asked.exact.wanted, asked.exact.shapes, asked.exact.rank, asked.exact.options, exclusive=unused
        )


def _exact(asked: _Asked, expression: str, found: list[Imported | None]) -> str:
    told = exact(
        expression,
        asked.exact.shapes or "",
        profile=asked.exact.profile,
        wanted=asked.exact.wanted,
        given=asked.given,
        rank=asked.exact.rank,
        options=asked.exact.options,
        json_=asked.json,
    )
    return told if asked.json else shown(found) + told


def _of_model(asked: _Asked, expression: str, found: list[Imported | None], problems: Problems) -> str:
    from placeproof.cli.model import degrees, derived, read_options, read_strategy, rendered
    from placeproof.cost.values import read_numbers

    with problems.collecting():
        run = read_options(asked.about, asked.given)
    with problems.collecting():
        strategy = read_strategy(expression)
    problems.raise_if_any()
    d = derived(strategy, run)
    numbers = read_numbers(settings(asked.given, found), precision_of(asked.precision, found), degrees=degrees(d))
    told = rendered(d, numbers, run, as_data(found), json_=asked.json)
    return told if asked.json else shown(found) + told


def _of_strategy(asked: _Asked, expression: str, found: list[Imported | None], problems: Problems) -> str:
    from placeproof.cli.common import derive_all
    from placeproof.cost.values import read_numbers

    with problems.collecting():
        (derived,) = derive_all([expression], groups=asked.groups)
    problems.raise_if_any()
    numbers = read_numbers(settings(asked.given, found), precision_of(asked.precision, found), degrees=derived.degree_values)
    if asked.given:
        require_numbers(derived, numbers)
    return ("" if asked.forms else shown(found)) + _rendered(derived, numbers, asked.forms, as_data(found))


def require_numbers(derived: Derivation, numbers: Numbers) -> None:
    """Numbers were asked for: the model states, at least, must have one."""
    problems = Problems()
    expr = derived.memory["model_states"] + derived.memory["host"]
    for name in sorted(str(s) for s in expr.free_symbols if str(s) not in numbers.values):
        axis = next((a.name for a in derived.program.axes if str(derived.amounts.degree(a.name)) == name), None)
        how = f"--set {name}=8" if axis is None else f"--set {name}=8, or the degree in the strategy: `{_with_degree(derived, axis)}`"
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


def _rendered(derived: Derivation, numbers: Numbers, chosen: list[str], read: dict[str, Any]) -> str:
    if "--program" in chosen:
        from placeproof.core.program import render

        return render(derived.program)
    if "--json" in chosen:
        import json

        from placeproof.report import data

        return json.dumps(data.derivation(derived, numbers) | read, indent=2, ensure_ascii=False) + "\n"
    if chosen:
        from placeproof.report import formats

        return {"--latex": formats.latex, "--markdown": formats.markdown, "--python": formats.python}[chosen[0]](derived)
    from placeproof.report import text

    return text.derivation(derived, numbers)
