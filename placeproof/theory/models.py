"""What a model costs under a strategy, as terms in which the model's sizes are numbers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.core.symbols import Dimension
from placeproof.theory.language import Origin, StatementError, Term, maximum
from placeproof.theory.units import measured

if TYPE_CHECKING:
    import sympy

    from placeproof.core.strategy import Strategy
    from placeproof.cost.model import ModelDerivation, StageCost
    from placeproof.models import Model

_BYTES: Dimension = {"byte": 1}
#: What a device holds, by the names that ``placeproof derive --model`` gives it.
_HELD = ("model_states", "activations", "transient", "working", "peak", "host")


class ModelCosts:
    """What ``placeproof derive STRATEGY --model MODEL`` derives, the sizes of the model put in. Widths, micro-batches, and degrees that the
    strategy leaves open stay symbols. Where pipeline stages differ, a value is that of the stage that has most."""

    def __init__(self, strategy: Strategy, model: str | Model, text: str, recompute: str | None) -> None:
        from placeproof.cost.model import derive_model
        from placeproof.models import load

        read = load(model) if isinstance(model, str) else model
        self._name = f"{strategy.name}, {read.name}"
        self._text = f"{read}\nrecompute={recompute} under\n{text}"
        self._found: ModelDerivation = derive_model(read, strategy, recompute=recompute)

    def memory(self, key: str = "model_states", *, stage: str | None = None) -> Term:
        """Bytes on a device: ``parameters``, ``gradients``, ``optimizer``, ``model_states``, ``activations``, ``transient``, ``working``
        (what is computed again), ``peak``, ``host``. ``stage``: one of them, ``"stage 0"``. Raises StatementError for another key or stage.
        """
        costs = self._stages(stage)
        known = (*costs[0].states, *_HELD)
        if key not in known:
            raise StatementError(f"there is no `{key}` of a model; there are {', '.join(known)}")
        return self._most((c.states[key] if key in c.states else getattr(c, key) for c in costs), key, stage)

    @property
    def sent(self) -> Term:
        """Bytes that a device sends in a step."""
        import sympy

        return self._most((sympy.Add(*c.traffic().values()) for c in self._found.costs), "sent", None)

    def over(self, axis: str, *, stage: str | None = None) -> Term:
        """Bytes that a device sends over an axis in a step. Raises StatementError for an axis that carries nothing."""
        rows = [c.traffic() for c in self._stages(stage)]
        if not any(axis in row for row in rows):
            carrying = ", ".join(dict.fromkeys(name for row in rows for name in row))
            raise StatementError(f"nothing is sent over `{axis}`; there is traffic over {carrying or 'no axis'}")
        return self._most((row[axis] for row in rows if axis in row), f"sent over {axis}", stage)

    @property
    def operations(self) -> Term:
        """Floating-point operations of a device for one micro-batch, forward and backward, with what is computed again."""
        sums = (c.flops.forward + c.flops.again + c.flops.inputs + c.flops.weights for c in self._found.costs)
        return self._most(sums, "operations", None, {"operation": 1})

    @property
    def time(self) -> Term:
        """Seconds of a step: in ``F_peak`` and ``eta`` of a device, and ``alpha_AXIS`` and ``beta_AXIS`` of its links, with rings."""
        from placeproof.cost.model.time import ModelTime

        return self._most([ModelTime(d=self._found).form], "time", None, {"second": 1})

    def _stages(self, name: str | None) -> list[StageCost]:
        costs = [c for c in self._found.costs if name in (None, c.stage.name)]
        if not costs:
            known = ", ".join(f"`{c.stage.name}`" for c in self._found.costs)
            raise StatementError(f"there is no stage `{name}`; there are {known}")
        return costs

    def _most(self, amounts: Iterable[sympy.Expr], key: str, stage: str | None, dimension: Dimension = _BYTES) -> Term:
        label = f"{key}({self._name})" if stage is None else f"{key}({self._name}, {stage})"
        terms = [self._term(amount, dimension) for amount in dict.fromkeys(amounts)]
        return self._named(terms[0] if len(terms) == 1 else maximum(*terms), label)

    def _term(self, amount: sympy.Expr, dimension: Dimension) -> Term:
        import sympy

        from placeproof.prove import Relation

        expr = measured(sympy.sympify(amount).xreplace(self._sizes), dimension)
        return Term(expr, Relation(expr, "==", expr).all_divisors())

    def _named(self, found: Term, label: str) -> Term:
        import sympy

        origin = Origin(label, found.expr, f"{label.partition('(')[0]} of\n{self._text}")
        return Term(found.expr, found.divisors, origins=frozenset({origin}), shown=sympy.Symbol(label))

    @cached_property
    def _sizes(self) -> dict[sympy.Expr, sympy.Expr]:
        import sympy

        return {sympy.Symbol(n): sympy.Rational(v.numerator, v.denominator) for n, v in self._found.values.items()}
