"""``placeproof derive``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.common import defines_blocks, is_program, program_text
from placeproof.cli.configs import From, World, as_data, expressions, precision_of, read_subjects, settings, shown
from placeproof.cli.exact import OptionOption, ProfileOption, RankOption, ShapesOption, WithOption, exact, realised, require_profile
from placeproof.cli.model import (
    ClusterOption,
    EfficiencyOption,
    Fp8Option,
    ModelOption,
    ModelOptions,
    OverlapOption,
    PaddingOption,
    PlotOption,
    RecomputeOption,
    StagesOption,
    WidthOption,
    degrees,
)
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.cost.derive import Derivation
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.uneven import Shards
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
ShardsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shards",
        metavar="AXIS=PARTS",
        help="Devices of an axis hold uneven parts: dp=0.4,0.3,0.3, dp=4:3:3 or dp=0.3x2,0.1x4; may be repeated.",
    ),
]
GroupsOption = Annotated[bool, typer.Option("--groups", help="Count norms and biases apart, as P_norm.")]
ProgramOption = Annotated[bool, typer.Option("--program", help="Print the program alone: of a step, or of a model's.")]
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
    shards: list[str]
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
    width: WidthOption = None,
    fp8: Fp8Option = False,
    vocab_padding: PaddingOption = None,
    cluster: ClusterOption = None,
    efficiency: EfficiencyOption = None,
    overlap: OverlapOption = None,
    plot: PlotOption = None,
    shards: ShardsOption = None,
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
    about = ModelOptions(model, recompute, stages, cluster, efficiency, overlap, plot, width, fp8, vocab_padding)
    asked = _Asked(strategy, set_ or [], precision, (from_, world), of_exact, about, shards or [], groups, forms)
    typer.echo(_answer(asked), nl=False)


def _answer(asked: _Asked) -> str:
    """What is printed. Raises InputError with every problem that can be found together."""
    from placeproof.cost.uneven import read_shards
    from placeproof.cost.values import read_numbers

    problems = Problems()
    _check(asked, problems)
    parts: Shards | None = None
    with problems.collecting():
        read_numbers(asked.given, asked.precision)
    with problems.collecting():
        parts = read_shards(asked.shards) if asked.shards else None
    found: list[Imported | None] = [None]
    expression: str | None = None  # while a configuration cannot be read nothing is said of its strategy
    with problems.collecting():
        found = read_subjects([asked.subject], *asked.imports)
        (expression,) = expressions([asked.subject], found)
        if asked.exact.shapes is None:
            expression = realised(expression, asked.exact.profile, asked.exact.wanted)
    if asked.exact.shapes is not None:
        problems.raise_if_any()
        assert expression is not None
        return _exact(asked, expression, found)
    if expression is not None and is_program(expression) and asked.about.model is None and defines_blocks(text := program_text(expression)):
        return _of_linked(asked, text, problems)
    return (_of_model if asked.about.model is not None else _of_strategy)(asked, expression, found, parts, problems)


def _check(asked: _Asked, problems: Problems) -> None:
    """Options that exclude one another, or have nothing to act on."""
    if len(asked.forms) > 1:
        problems.add("PP104", f"{' and '.join(asked.forms)} exclude one another", help="choose one form of output")
    if asked.shards and (others := _beside_shards(asked)):
        verb = "does" if len(others) == 1 else "do"
        help = "exact bytes and times are those of equal parts; a step program is the same for all parts"
        problems.add("PP104", f"{' and '.join(others)} {verb} not go with `--shards`", help=help)
    only_formulas = [name for name in asked.forms if name != "--json"]
    without_program = [name for name in only_formulas if asked.about.model is None or name != "--program"]
    groups = ["--groups"] if asked.groups else []
    asked.about.check([*without_program, *groups, *(["--shapes"] if asked.exact.shapes is not None else [])], problems)
    unused = [*only_formulas, *(["--precision"] if asked.precision else []), *groups]
    with problems.collecting():
        require_profile(
            asked.exact.profile, asked.exact.wanted, asked.exact.shapes, asked.exact.rank, asked.exact.options, exclusive=unused
        )


def _beside_shards(asked: _Asked) -> list[str]:
    """Options that speak of what is not derived for uneven parts."""
    about = {"--cluster": asked.about.cluster, "--plot": asked.about.plot, "--shapes": asked.exact.shapes}
    return [f"`{n}`" for n in (*(n for n, text in about.items() if text is not None), *(n for n in asked.forms if n == "--program"))]


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


def _of_model(asked: _Asked, expression: str | None, found: list[Imported | None], shards: Shards | None, problems: Problems) -> str:
    from placeproof.cli.model import derived, read_options, read_strategy, rendered
    from placeproof.cost.values import read_numbers

    with problems.collecting():
        run = read_options(asked.about, asked.given)
    with problems.collecting():
        strategy = None if expression is None else read_strategy(expression)
    problems.raise_if_any()
    assert strategy is not None
    if shards is not None:
        from placeproof.cost.model.fractions import fitted_strategy

        strategy = fitted_strategy(strategy, shards)
    numbers = read_numbers(
        settings(asked.given, found), precision_of(asked.precision, found), degrees=degrees(strategy.axes, strategy.schedule.microbatches)
    )
    d, numbers = derived(strategy, run, numbers)
    if asked.forms == ["--program"]:
        return _linked_program(d, asked.about)
    text, data = _uneven_stages(d, shards, numbers)
    told = rendered(d, numbers, run, as_data(found) | data, json_=asked.json)
    return told if asked.json else shown(found) + told + text


def _uneven_stages(d: ModelDerivation, shards: Shards | None, numbers: Numbers) -> tuple[str, dict[str, Any]]:
    """What uneven parts make of a model's stages, as text and as data; nothing where parts are equal."""
    if shards is None:
        return "", {}
    from placeproof.cost.model.fractions import uneven_stages
    from placeproof.report.uneven import stages_data, stages_text

    stages = uneven_stages(d, shards)
    return "\n" + stages_text(stages, d, shards, numbers), {"shards": stages_data(stages, d, shards, numbers)}


def _linked_program(d: ModelDerivation, about: ModelOptions) -> str:
    """The program of the model's step. Raises InputError for options of what it does not say."""
    from placeproof.semantics.linked import render_linked

    others = [f"`{name}`" for name in about.given if name not in ("--recompute", "--stages", "--vocab-padding")]
    problems = Problems()
    if others:
        verb = "does" if len(others) == 1 else "do"
        help = "a program says what is computed and sent; how wide its values are, and how long it takes, is asked when it is derived"
        problems.add("PP104", f"{' and '.join(others)} {verb} not go with `--program`", help=help)
    problems.raise_if_any()
    return render_linked(d.linked)


def _of_linked(asked: _Asked, text: str, problems: Problems) -> str:
    """A linked program that was written down, derived as `--model` derives what it links."""
    from placeproof.cost.model.checks import require_fit
    from placeproof.cost.model.derivation import derive_linked
    from placeproof.cost.values import read_numbers
    from placeproof.report.models.text import model_data, model_text
    from placeproof.semantics.linked import read_linked, render_linked

    others = [name for name in asked.forms if name not in ("--json", "--program")]
    others += [*(["--groups"] if asked.groups else []), *(["--shards"] if asked.shards else [])]
    if others:
        problems.add("PP104", f"{' and '.join(others)} does not go with a model's program", help="leave it out; `--json` goes with it")
    with problems.collecting():
        linked = read_linked(text, source=asked.subject)
        d = derive_linked(linked)
    problems.raise_if_any()
    if "--program" in asked.forms:
        return render_linked(linked)
    numbers = read_numbers(asked.given, asked.precision, degrees=degrees(linked.axes, linked.step.count("microbatches")))
    require_fit(d, {n: v for n, v in numbers.values.items() if n in numbers.given})
    if asked.json:
        import json

        return json.dumps(model_data(d, numbers), indent=2, ensure_ascii=False) + "\n"
    return model_text(d, numbers)


def _of_strategy(asked: _Asked, expression: str | None, found: list[Imported | None], shards: Shards | None, problems: Problems) -> str:
    from placeproof.cost.values import read_numbers

    if expression is not None and asked.forms == ["--program"] and not asked.given:
        problems.raise_if_any()
        return _program(expression)
    with problems.collecting():
        derived = None if expression is None else _derived(expression, shards, groups=asked.groups)
    problems.raise_if_any()
    assert derived is not None
    said = settings(asked.given, found, derived.symbols)
    numbers = read_numbers(said, precision_of(asked.precision, found), degrees=derived.degree_values)
    if asked.given:
        require_numbers(derived, numbers)
    return ("" if asked.forms else shown(found)) + _rendered(derived, numbers, shards, asked.forms, as_data(found))


def _program(expression: str) -> str:
    """The step program alone, also of a strategy whose costs it does not tell."""
    from placeproof.cli.common import read_subject
    from placeproof.cost.derive import derive
    from placeproof.programs import Program, render
    from placeproof.semantics.lower import lower

    subject = read_subject(expression)
    return render(derive(subject).program if isinstance(subject, Program) else lower(subject))


def _derived(expression: str, shards: Shards | None, *, groups: bool) -> Derivation:
    from placeproof.cli.common import read_subject
    from placeproof.cost.derive import derive, derive_shards

    subject = read_subject(expression)
    return derive(subject, groups=groups) if shards is None else derive_shards(subject, shards, groups=groups)


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


def _rendered(derived: Derivation, numbers: Numbers, shards: Shards | None, chosen: list[str], read: dict[str, Any]) -> str:
    if "--program" in chosen:
        from placeproof.programs import render

        return render(derived.program)
    if "--json" in chosen:
        import json

        from placeproof.report import data

        return json.dumps(data.derivation(derived, numbers, shards) | read, indent=2, ensure_ascii=False) + "\n"
    if chosen:
        from placeproof.report import formats

        return {"--latex": formats.latex, "--markdown": formats.markdown, "--python": formats.python}[chosen[0]](derived)
    from placeproof.report import text

    return text.derivation(derived, numbers, shards)
