"""What users set, and what a comparison of strategies says, as terms: ``--set P=7e9``, ``placeproof compare ddp zero3``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placeproof.theory.language import StatementError, Term, taken, term
from placeproof.theory.statements import derived
from placeproof.theory.units import measured, powers, usual

if TYPE_CHECKING:
    import sympy

    from placeproof.core.symbols import Dimension
    from placeproof.cost.compare import Pair
    from placeproof.cost.model.comparison import ModelComparison

#: Of figures that are no bytes.
_UNITS: dict[str, Dimension] = {
    "devices": {}, "sequences": {}, "parameters": {"parameter": 1}, "flops": {"operation": 1}, "tokens": {"second": -1},
}  # fmt: skip


class Numbers:
    """Values of symbols as ``--set`` and ``--precision`` say them."""

    def __init__(self, settings: tuple[str, ...], precision: str | None, degrees: Mapping[str, int | None] | None) -> None:
        from placeproof.cost.values import read_numbers

        self.read = read_numbers(settings, precision, degrees=degrees)
        said = (*settings, *([] if precision is None else [f"precision={precision}"]))
        self.name = ", ".join(said) or "nothing set"

    def value(self, name: str) -> Term:
        """The number that a symbol has, in its usual units. Raises StatementError for one that has none."""
        if name not in self.read.values:
            raise StatementError(f"`{name}` has no value; {', '.join(self.read.values)} have one")
        return self._term(term(self.read.values[name]).expr * powers(usual(name)), name)

    @property
    def asked(self) -> Term:
        """1 if numbers are wanted beside formulas, 0 otherwise."""
        return self._term(term(int(self.read.asked)).expr, "numbers asked")

    def _term(self, expr: sympy.Expr, what: str) -> Term:
        return taken(expr, f"{what}({self.name})", f"{what} of {self.name}", "program")


def numbers(*settings: str, precision: str | None = None, degrees: Mapping[str, int | None] | None = None) -> Numbers:
    """What settings say: ``numbers("P=7e9", precision="fp32-adam").value("P")``. ``degrees``: those of a strategy by symbol, None where
    they are open. Raises InputError for what is malformed, unknown, or contradicts another."""
    return Numbers(settings, precision, degrees)


class Compared:
    """Two strategies at the same world size N, as ``placeproof compare`` has them."""

    def __init__(self, first: str, second: str, settings: tuple[str, ...]) -> None:
        from placeproof.cost.compare import Comparison, known
        from placeproof.cost.derive import derive
        from placeproof.strategies import parse_strategy

        self._name = ", ".join((first, second, *settings))
        self._comparison = Comparison(tuple(derive(parse_strategy(text)) for text in (first, second)), known(numbers(*settings).read))

    def cost(self, key: str, number: int = 0) -> Term:
        """A cost of the first (0) or the second (1) of them in N, by its key: ``memory.peak``, ``traffic.sent_per_device``."""
        return self._term(self._comparison.forms[number][key], f"{key} {number}")

    def ratio(self, key: str) -> Term:
        """The second's over the first's. Raises StatementError where there is none."""
        return self._given(self._pair(key).ratio, f"ratio {key}")

    def limit(self, key: str) -> Term:
        """What that tends to as N grows. Raises StatementError where there is no limit, or an infinite one."""
        return self._given(self._pair(key).limit, f"limit {key}")

    def crossings(self, key: str, *, numeric: bool = False) -> tuple[Term, ...]:
        """The values of N, or of another count, at which they are equal; ``numeric``: with widths, and what was set, put in."""
        pair = self._pair(key)
        crossover = pair.numeric if numeric and pair.numeric is not None else pair.crossover
        return tuple(self._term(at, f"crossing {key} {i}") for i, at in enumerate(crossover.at))

    def says(self, key: str, verdict: str) -> Term:
        """1 if that is what is said of who costs less, 0 otherwise."""
        return self._term(term(int(self._pair(key).crossover.verdict == verdict)).expr, f"whether {key}: {verdict}")

    @property
    def compares(self) -> Term:
        """How many costs are told: those that one of them has."""
        return self._term(term(len(self._comparison.keys)).expr, "costs told")

    def _pair(self, key: str) -> Pair:
        pair = next((pair for pair in self._pairs if pair.key == key), None)
        if pair is None:
            raise StatementError(f"`{key}` is not compared; {', '.join(pair.key for pair in self._pairs)} are")
        return pair

    @cached_property
    def _pairs(self) -> tuple[Pair, ...]:
        ((_, pairs),) = self._comparison.pairs()
        return pairs

    def _given(self, expr: sympy.Expr | None, what: str) -> Term:
        if expr is None or expr.is_infinite:
            raise StatementError(f"there is no {what} of {self._name}: {expr}")
        return self._term(expr, what)

    def _term(self, expr: sympy.Expr, what: str) -> Term:
        return taken(expr, f"{what}({self._name})", f"{what} of {self._name}", "program")


class ComparedModel:
    """A model under several strategies, with numbers: each of a device of its fullest stage."""

    def __init__(self, model: str, subjects: Iterable[str], cluster: str | None, values: Mapping[str, Any]) -> None:
        from fractions import Fraction

        from placeproof.cost.model.comparison import Member, ModelComparison

        known, members = {name: Fraction(value) for name, value in values.items()}, []
        for subject in subjects:
            costs = derived(subject, model=model)
            members.append(Member(d=costs.derivation, values=known, step=None if cluster is None else costs.step(cluster, known)))
        self._compared: ModelComparison = ModelComparison(members=members)
        self._name = f"{model} under {', '.join(subjects)}{'' if cluster is None else f' on {cluster}'}, {dict(values)}"

    def figure(self, key: str, number: int = 0) -> Term:
        """A number of one of the strategies: ``devices``, ``sequences`` and ``flops`` of a step, ``parameters``, ``model_states``,
        ``activations``, ``peak``, ``host``, ``traffic.AXES``, and ``tokens`` of a second and device. Raises StatementError where there is
        none."""
        member = self._compared.members[number]
        found = member.tokens if key == "tokens" else member.value(key)
        return self._given(found, f"{key} {number}", _UNITS.get(key, {"byte": 1}))

    def ratio(self, key: str, number: int = 1) -> Term:
        """A figure over that of the first strategy. Raises StatementError where there is none."""
        return self._given(self._compared.ratio(self._compared.members[number], key), f"ratio of {key} {number}", {})

    @property
    def figures(self) -> Term:
        """How many figures are told: those that one of them has."""
        return self._given(len(self._compared.keys), "figures told", {})

    def _given(self, number: Any, what: str, dimension: Dimension) -> Term:
        if number is None:
            raise StatementError(f"there is no {what} of {self._name}")
        return taken(measured(term(number).expr, dimension), f"{what}({self._name})", f"{what} of {self._name}", "program")


def compared(first: str, second: str, *settings: str) -> Compared:
    """Two strategies at one world size, as ``placeproof compare`` has them: ``compared("ddp", "zero3").ratio("memory.model_states")``.

    Raises InputError as that does.
    """
    return Compared(first, second, settings)


def compared_model(model: str, *subjects: str, cluster: str | None = None, **values: Any) -> ComparedModel:
    """A model under strategies, with values of all symbols that are open. Raises InputError as ``placeproof compare --model`` does."""
    return ComparedModel(model, subjects, cluster, values)
