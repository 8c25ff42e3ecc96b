"""``placeproof derive``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.configs import From, World, as_data, expressions, precision_of, read_subjects, settings, shown
from placeproof.cli.exact import OptionOption, ProfileOption, RankOption, ShapesOption, WithOption, exact, realised, require_profile
from placeproof.cli.model import (
    ClusterOption,
    EfficiencyOption,
    ModelOption,
    OverlapOption,
    PlotOption,
    RecomputeOption,
    StagesOption,
    Timing,
    degrees,
)
from placeproof.cli.model import derived as model_derived
from placeproof.cli.model import rendered as model_rendered
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.importers import Imported

_SET = "Give a symbol a value, NAME=VALUE (P=70e9, P=70B, N=64); may be repeated. Numbers are shown beside the formulas."


def command(
    strategy: Annotated[
        str,
        typer.Argument(
            help="A strategy such as `zero3`, `zero1(64) * tp(8) * pp(16)`, `mine.toml`; a program; or a configuration, `ds_config.json`."
        ),
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=_SET)] = None,
    precision: Annotated[
        str | None, typer.Option(help="Byte widths for numbers: `placeproof list precisions`. [default: mixed-adam]")
    ] = None,
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
    groups: Annotated[bool, typer.Option("--groups", help="Count norms and biases apart, as P_norm.")] = False,
    program: Annotated[bool, typer.Option("--program", help="Print the step program alone.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.derive/1).")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print the closed forms as LaTeX.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the closed forms as Markdown.")] = False,
    python: Annotated[bool, typer.Option("--python", help="Print the closed forms as Python functions.")] = False,
) -> None:
    """Closed-form memory and traffic of a strategy or a step program, with their derivation."""
    from placeproof.cli.common import derive_all
    from placeproof.cost.values import read_numbers

    chosen = [
        n for n, on in (("--json", json_), ("--latex", latex), ("--markdown", markdown), ("--python", python), ("--program", program)) if on
    ]
    unused = [n for n, on in (("--precision", precision), ("--groups", groups)) if on]
    problems = Problems()
    if len(chosen) > 1:
        problems.add("PP104", f"{' and '.join(chosen)} exclude one another", help="choose one form of output")
    timing = Timing(cluster=cluster, efficiency=efficiency, overlap=overlap, plot=plot)
    if timing.given and model is None:
        problems.add("PP104", f"{' and '.join(timing.given)} speak of a model", help="for example `--model llama3-8b`")
    with problems.collecting():
        read_numbers(set_ or (), precision)
    found: list[Imported | None] = [None]
    with problems.collecting():
        require_profile(profile, with_, shapes, rank, option, exclusive=[*(n for n in chosen if n != "--json"), *unused])
        found = read_subjects([strategy], from_, world)
        (expression,) = expressions([strategy], found)
        if shapes is not None:
            problems.raise_if_any()
            told = exact(
                expression, shapes, profile=profile, wanted=with_ or [], given=set_ or [], rank=rank, options=option or [], json_=json_
            )
            typer.echo(("" if json_ else shown(found)) + told, nl=False)
            return
        if model is not None:
            problems.raise_if_any()
            d = model_derived(realised(expression, profile, with_ or []), model, recompute, stages)
            numbers = read_numbers(settings(set_ or [], found), precision_of(precision, found), degrees=degrees(d))
            typer.echo(("" if json_ else shown(found)) + model_rendered(d, numbers, timing, json_=json_), nl=False)
            return
        (derived,) = derive_all([realised(expression, profile, with_ or [])], groups=groups)
    problems.raise_if_any()
    numbers = read_numbers(settings(set_ or [], found), precision_of(precision, found), degrees=derived.degree_values)
    if set_:
        require_numbers(derived, numbers)
    before = shown(found) if not chosen else ""
    typer.echo(before + _rendered(derived, numbers, chosen, as_data(found)), nl=False)


def require_numbers(derived: Derivation, numbers: Numbers) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Numbers were asked for: the model states, at least, must have one."""
    problems = Problems()
    expr = derived.memory["model_states"] + derived.memory["host"]
    for name in sorted(str(s) for s in expr.free_symbols if str(s) not in numbers.values):
        axis = next((a.name for a in derived.program.axes if str(derived.amounts.degree(a.name)) == name), None)
        how = f"--set {name}=8" if axis is None else f"--set {name}=8, or the degree in the strategy: `{_with_degree(derived, axis)}`"
        problems.add("PP203", f"a number was asked for, and `{name}` is not set ({derived.symbols[name].meaning})", help=how)
    problems.raise_if_any()


def _with_degree(derived: Derivation, axis: str) -> str:  # type: ignore[name-defined]  # noqa: F821
    from placeproof.strategies import names

    if derived.strategy is None:
        return f"mesh({axis}=8)"
    parts = derived.strategy.parts
    if any(p.split("(")[0] not in names() for p in parts):
        return "mine.toml(8)"
    owners = {e.owner for e in derived.strategy.entries if e.axis == axis}
    return " * ".join(f"{p}(8)" if p in owners and "(" not in p else p for p in parts)


def _rendered(derived: Derivation, numbers: Numbers, chosen: list[str], read: dict[str, Any]) -> str:  # type: ignore[name-defined]  # noqa: F821
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
