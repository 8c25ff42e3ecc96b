"""``placeproof compare --model``: what a model costs under several strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from placeproof.cli.configs import as_data, precision_of, settings
from placeproof.cli.model import ModelOptions, Run, degrees, derived, read_options, read_strategy, timed
from placeproof.core.diagnostics import Diagnostic, InputError, Problems

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.cost.model.comparison import Member
    from placeproof.cost.values import Numbers
    from placeproof.importers import Imported


def compared(
    texts: Sequence[str],
    options: ModelOptions,
    found: Sequence[Imported | None],
    asked: tuple[list[str], str | None],
    problems: Problems,
    *,
    json_: bool,
) -> str:
    """The answer, as text or JSON. ``asked``: the NAME=VALUE texts and the precision of the command line. Raises InputError with every
    problem, those in ``problems`` among them, each with the strategy that it is of."""
    from placeproof.cost.model.comparison import ModelComparison
    from placeproof.cost.values import read_numbers
    from placeproof.report.models.compare import comparison_data, comparison_text

    given, precision = asked
    with problems.collecting():
        numbers = read_numbers(given, precision_of(precision, list(found)))
    with problems.collecting():
        run = read_options(options, given)
    strategies: list[Strategy] = []
    for text in texts:
        with problems.collecting():
            strategies.append(read_strategy(text))
    problems.raise_if_any()
    members: list[Member] = []
    imported = found if len(found) == len(strategies) else [None] * len(strategies)
    _check_degrees(strategies, numbers, problems)
    for strategy, one in zip(strategies, imported, strict=True):
        try:
            of = found if one is None else [one]
            members.append(_member(strategy, run, settings(given, of), precision_of(precision, of)))
        except InputError as error:
            problems.found += [_of(strategy, d) for d in error.diagnostics]
    problems.raise_if_any()
    comparison = ModelComparison(members=members)
    if not json_:
        return comparison_text(comparison, numbers)
    import json

    return json.dumps(comparison_data(comparison) | as_data(list(found)), indent=2, ensure_ascii=False) + "\n"


def _of(strategy: Strategy, problem: Diagnostic) -> Diagnostic:
    """A problem of one strategy among several."""
    return replace(problem, message=f"{strategy.name}: {problem.message}")


def _member(strategy: Strategy, run: Run, given: Sequence[str], precision: str | None) -> Member:
    from placeproof.cost.model.comparison import Member

    d, numbers = derived(strategy, run, _numbers(strategy, given, precision))
    numbers, step = timed(d, numbers, run)
    return Member(d=d, values=numbers.values if numbers.asked else {}, step=step)


def _check_degrees(strategies: Sequence[Strategy], numbers: Numbers, problems: Problems) -> None:
    """A problem for each degree that is set and that none of the strategies has."""
    axes = {f"N_{a.name}" for s in strategies for a in s.axes}
    for name in numbers.given:
        if name.startswith("N_") and name not in axes:
            problems.add("PP201", f"`{name}` is no degree of any of the strategies", help=f"their degrees: N, {', '.join(sorted(axes))}")


def _numbers(strategy: Strategy, given: Sequence[str], precision: str | None) -> Numbers:
    """What the settings say of one strategy: those of its own degrees; N is the world size, which decides one degree that is open."""
    from placeproof.core.mesh import degree_symbol
    from placeproof.cost.values import read_numbers

    only = len(strategy.axes) == 1
    own = {f"N_{a.name}": degree_symbol(a.name, only=only) for a in strategy.axes}
    mine, world = [], None
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        if name == "N":
            world = value
        elif not name.startswith("N_"):
            mine.append(text)
        elif name in own:
            mine.append(f"{own[name]}={value}")
    numbers = read_numbers(mine, precision, degrees=degrees(strategy.axes, strategy.schedule.microbatches))
    if world is None:
        return numbers
    open_ = {a.name: own[f"N_{a.name}"] for a in strategy.axes if a.degree is None}
    fixed = prod(a.degree for a in strategy.axes if a.degree is not None)
    return _of_world(open_, fixed, numbers, read_numbers([f"N={world}"], None).values["N"])


def _of_world(open_: Mapping[str, str], fixed: int, numbers: Numbers, world: Fraction) -> Numbers:
    """With the one degree that a world size decides. ``open_``: symbols of open degrees by their axes; ``fixed``: the product of others.

    Raises InputError where several are left open, or the others do not divide it.
    """
    problems = Problems()
    unset = [name for name, symbol in open_.items() if symbol not in numbers.values]
    rest = prod((numbers.values[symbol] for name, symbol in open_.items() if name not in unset), start=Fraction(fixed))
    asked = replace(numbers, given=(*numbers.given, "N"), asked=True)
    if len(unset) > 1:
        listed = " and ".join(f"`{name}`" for name in unset)
        problems.add(
            "PP203", f"{world} devices leave the degrees of {listed} open", help=f"set all but one of them: `--set {open_[unset[0]]}=8`"
        )
    elif not unset and rest != world:
        problems.add("PP205", f"its degrees make {rest} devices, and `N` is {world}", help="leave one degree open, or `N` out")
    elif unset and world % rest:
        problems.add("PP202", f"{world} devices cannot be shared out over {rest} that its other degrees take", help=f"a multiple of {rest}")
    problems.raise_if_any()
    if not unset:
        return asked
    symbol = open_[unset[0]]
    return replace(asked, values={**numbers.values, symbol: world / rest}, given=(*asked.given, symbol))
