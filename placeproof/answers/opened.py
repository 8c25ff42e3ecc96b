"""Results whose degrees are symbols again, so that a page can move them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from placeproof.answers.models import ModelRun, derived, sized
from placeproof.core.diagnostics import InputError
from placeproof.core.mesh import degree_symbol
from placeproof.core.strategy import Strategy
from placeproof.core.symbols import info, symbol
from placeproof.cost.derive import Derivation, derive
from placeproof.cost.model.checks import require_fit
from placeproof.cost.model.comparison import ModelComparison
from placeproof.cost.values import Numbers
from placeproof.models import Model
from placeproof.report import derivation
from placeproof.report.document import Live, pointer
from placeproof.report.live import live, numbered
from placeproof.report.models import derivation as of_models
from placeproof.semantics.scheduled import require_order

#: What is moved in the result for a model.
_OF_MODEL = ("b", "m", "s")


def opened(strategy: Strategy) -> tuple[Strategy, dict[str, Fraction]]:
    """The strategy with its degrees open, and what they were. The number of stages stays, which decides what stages there are, and so does
    an axis of one device, over which nothing is sent."""
    only = len(strategy.axes) == 1
    here = [a for a in strategy.axes if a.degree not in (None, 1) and not a.splits.stages and a.inner is None]
    axes = tuple(replace(a, degree=None) if a in here else a for a in strategy.axes)
    return replace(strategy, axes=axes), {degree_symbol(a.name, only=only): Fraction(a.degree or 1) for a in here}


def of_strategy(d: Derivation, numbers: Numbers) -> Live | None:
    """What can be moved of a strategy's costs; nothing without numbers."""
    if d.strategy is None or not numbers.asked:
        return None
    strategy, degrees = opened(d.strategy)
    free = derive(strategy)
    known = replace(numbers, values={**numbers.values, **degrees})

    def accepts(moved: Mapping[str, Fraction]) -> bool:
        values = {**known.values, **moved}
        try:
            require_order(strategy, values)
        except InputError:
            return False
        bounds = ((values.get(name), values.get(row.at_most)) for name, row in free.symbols.items() if row.at_most is not None)
        return all(n is None or most is None or n <= most for n, most in bounds)

    data = derivation.document(free, known).data()
    movable = {name: row.meaning for name, row in free.symbols.items() if not name.startswith("b_") and name != "n_u"}
    return live(numbered(data), known.values, movable, accepts)


def of_model(model: Model, strategy: Strategy, run: ModelRun, numbers: Numbers) -> Live | None:
    """What can be moved of what a model costs; nothing without numbers."""
    if not numbers.asked or run.layers is not None:
        return None
    free, degrees = opened(strategy)
    known = replace(numbers, values={**numbers.values, **degrees})
    try:
        d, rest = derived(model, free, run, known)
    except InputError:
        return None
    if d.linked.pipeline is not None and d.order.search is not None:
        return None  # the order of passes is searched for with these numbers, and another one might be found with others
    values = {**{name: Fraction(n) for name, n in d.values.items()}, **rest.values}
    sizes = sized(model, free, run.padding, known)[0].sizes

    def accepts(moved: Mapping[str, Fraction]) -> bool:
        moved_numbers = replace(known, values={**known.values, **moved}, given=(*known.given, *moved))
        try:
            resized, _ = sized(model, free, run.padding, moved_numbers)
            require_fit(d, {**rest.values, **moved})
            require_order(free, {**values, **moved})
        except InputError:
            return False
        return {**resized.sizes, "s": 0} == {**sizes, "s": 0}

    movable = {name: info(name).meaning for name in (*degrees, *(n for n in _degrees(free) if n not in degrees), *_OF_MODEL)}
    return live(numbered(of_models.document(d, rest).data()), values, movable, accepts)


def compared(model: Model, c: ModelComparison) -> Live | None:
    """What can be moved of what a model costs under several strategies: what all of them have alike. A strategy of several stages stays as
    it is, of which another one may become the fullest."""
    from sympy import Rational

    members = {i: m for i, m in enumerate(c.members) if m.values and len(m.d.costs) == 1}
    every = {i: {**{name: Fraction(n) for name, n in m.d.values.items()}, **m.values} for i, m in members.items()}
    first = next(iter(every.values()), {})
    values = {name: first[name] for name in _OF_MODEL if name in first and all(own.get(name) == first[name] for own in every.values())}
    known = {}
    for i, member in members.items():
        fixed = {symbol(name): Rational(n.numerator, n.denominator) for name, n in every[i].items() if name not in values}
        for key, formula in member.figures.items():
            known[pointer("strategies", i, "figures", key, "value")] = formula.xreplace(fixed), member.value(key)

    def accepts(moved: Mapping[str, Fraction]) -> bool:
        try:
            sizes = model.resized({name: int(n) for name, n in moved.items() if name in model.symbols() and name != "b"}).sizes
            for i, member in members.items():
                require_fit(member.d, {**every[i], **moved})
        except InputError:
            return False
        return {**sizes, "s": 0} == {**model.sizes, "s": 0}

    return live(known, values, {name: info(name).meaning for name in values}, accepts)


def _degrees(strategy: Strategy) -> list[str]:
    only = len(strategy.axes) == 1
    return [degree_symbol(a.name, only=only) for a in strategy.axes if a.degree is None]
