"""What a model costs under a strategy, as terms in which the model's sizes are numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placeproof.core.symbols import Dimension
from placeproof.theory.language import Number, Origin, StatementError, Term, maximum, taken, term
from placeproof.theory.units import measured

if TYPE_CHECKING:
    import sympy

    from placeproof.core.strategy import Strategy
    from placeproof.cost.model import ModelDerivation, StageCost
    from placeproof.cost.model.time import Overlap, StepTime
    from placeproof.models import Model

_BYTES: Dimension = {"byte": 1}
#: What a device holds, by the names that ``placeproof derive --model`` gives it.
_HELD = ("model_states", "activations", "kept", "transient", "working", "peak", "host", "host_asked")
#: What a device computes, by the names of :class:`placeproof.cost.blocks.flops.Work`.
_WORK = ("forward", "again", "inputs", "weights", "model", "total")


class ModelCosts:
    """What ``placeproof derive STRATEGY --model MODEL`` derives, the sizes of the model put in. Widths, micro-batches, and degrees that the
    strategy leaves open stay symbols. Where pipeline stages differ, a value is that of the stage that has most."""

    def __init__(self, strategy: Strategy, model: str | Model, text: str, recompute: str | None, **run: Any) -> None:
        from placeproof.cost.model import derive_model
        from placeproof.cost.model.vocabulary import padded
        from placeproof.models import load

        read, padding = load(model) if isinstance(model, str) else model, run.pop("padding", None)
        read = read if padding is None else padded(read, strategy, {}, padding)
        said = [f"{name}={read.sizes.get(name)}" for name in read.replaced] + ([] if recompute is None else [f"recompute={recompute}"])
        said += [f"{name}={value}" for name, value in run.items()]
        self._name = ", ".join((strategy.name, read.name, *said))
        self._text = f"{read}\nrecompute={recompute}, {run} under\n{text}"
        self.derivation: ModelDerivation = derive_model(read, strategy, recompute=recompute, **run)

    def memory(self, key: str = "model_states", *, stage: str | None = None) -> Term:
        """Bytes on a device: ``parameters``, ``gradients``, ``optimizer``, ``model_states``, ``activations``, those ``kept`` of one
        micro-batch, ``transient``, ``working`` (what is computed again), ``peak``, ``host``, ``host_asked``. ``stage``: one of them,
        ``"stage 0"``. Raises StatementError for another key or stage.
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

        return self._most((sympy.Add(*c.traffic().values()) for c in self.derivation.costs), "sent", None)

    def over(self, axis: str, *, stage: str | None = None) -> Term:
        """Bytes that a device sends over an axis in a step. Raises StatementError for an axis that carries nothing."""
        rows = [c.traffic() for c in self._stages(stage)]
        if not any(axis in row for row in rows):
            carrying = ", ".join(dict.fromkeys(name for row in rows for name in row))
            raise StatementError(f"nothing is sent over `{axis}`; there is traffic over {carrying or 'no axis'}")
        return self._most((row[axis] for row in rows if axis in row), f"sent over {axis}", stage)

    def by(self, kind: str, *, stage: str | None = None) -> Term:
        """Bytes that a device sends in a step by one kind of collective, 0 where there is none of it."""
        import sympy

        totals = (sympy.Add(*(one.total for one in c.sent if one.kind == kind)) for c in self._stages(stage))
        return self._most(totals, f"sent by {kind}", stage)

    def parameters(self, group: str = "", *, stage: str | None = None) -> Term:
        """Elements of the parameters that a device has a part of or all, of one group of weights (``"norm"``) or of all."""
        import sympy

        numbers = (sympy.Add(*(n for name, n in c.parameters.items() if group in ("", name))) for c in self._stages(stage))
        return self._most(numbers, f"elements {group}".rstrip(), stage, {"parameter": 1})

    def in_flight(self, *, stage: str | None = None) -> Term:
        """Micro-batches of which a device keeps activations at once; those of one of its runs of layers count as a part."""
        return self._most((c.in_flight for c in self._stages(stage)), "in flight", stage, {})

    @property
    def operations(self) -> Term:
        """Floating-point operations of a device for one micro-batch, forward and backward, with what is computed again."""
        return self._most((c.flops.total for c in self.derivation.costs), "operations", None, {"operation": 1})

    def work(self, kind: str, *, stage: str | None = None) -> Term:
        """Those of ``forward``, of what is computed ``again``, of gradients by ``inputs`` or by ``weights``, of ``model`` without what is
        computed again, or of the ``total``. Raises StatementError for another kind or stage."""
        if kind not in _WORK:
            raise StatementError(f"there are no operations of `{kind}`; there are {', '.join(_WORK)}")
        return self._most((getattr(c.flops, kind) for c in self._stages(stage)), f"operations of {kind}", stage, {"operation": 1})

    @property
    def time(self) -> Term:
        """Seconds of a step: in ``F_peak`` and ``eta`` of a device, and ``alpha_AXIS`` and ``beta_AXIS`` of its links, with rings."""
        from placeproof.cost.model.time import ModelTime

        return self._most([ModelTime(d=self.derivation).form], "time", None, {"second": 1})

    def seconds(self, cluster: str, *, overlap: Overlap = "data", flat: bool = False, **values: int | Fraction) -> Term:
        """Exact seconds of a step on a cluster. ``values``: of all symbols that are open, and of ``eta``; ``flat``: by rings alone. Raises
        InputError for a symbol without a value."""
        step, how = self._step(cluster, overlap, flat, values)
        return self._exact(step.seconds, "seconds", how, {"second": 1})

    def utilisation(self, cluster: str, **values: int | Fraction) -> tuple[Term, Term]:
        """The shares of the devices' peak in a step without overlap that is what the model asks for, and that is computed: MFU and HFU."""
        step, how = self._step(cluster, "none", False, values)
        return tuple(self._exact(share, name, how, {}) for share, name in zip(step.utilisation, ("mfu", "hfu"), strict=True))  # type: ignore[return-value]

    def bubble(self, cluster: str, **values: int | Fraction) -> Term:
        """The share of a schedule's time in which the slowest stage does nothing of its own, without overlap."""
        step, how = self._step(cluster, "none", False, values)
        return self._exact(step.bubble, "bubble", how, {})

    def links(self, cluster: str, axes: str, *, stage: str | None = None, flat: bool = False, **values: int | Fraction) -> tuple[Term, ...]:
        """Exact bytes that a device of a stage, the first if none is said, sends along an axis over each level of a cluster's links, from
        the inside out, as the mean over the devices. Raises StatementError for an axis that carries nothing."""
        step, how = self._step(cluster, "none", flat, values)
        cost = next(c for c in step.d.costs if stage in (None, c.stage.name))
        carried = step.by_level(cost)
        if axes not in carried:
            raise StatementError(f"nothing is sent over `{axes}`; there is traffic over {', '.join(carried) or 'no axis'}")
        each = enumerate(carried[axes])
        return tuple(self._exact(number, f"sent over {axes}, level {i}, {cost.stage.name}", how, _BYTES) for i, number in each)

    def step(self, cluster: str, values: Mapping[str, Fraction], *, overlap: Overlap = "data", flat: bool = False) -> StepTime:
        """A step on a cluster. Raises as :meth:`seconds`."""
        from placeproof.clusters import find
        from placeproof.cost.model.time import step_time

        return step_time(self.derivation, values, find(cluster), overlap=overlap, flat=flat)

    def _step(self, cluster: str, overlap: Overlap, flat: bool, values: Mapping[str, int | Fraction]) -> tuple[StepTime, str]:
        said = "".join(f", {name}={value}" for name, value in values.items())
        step = self.step(cluster, {name: Fraction(value) for name, value in values.items()}, overlap=overlap, flat=flat)
        return step, f"{cluster}, {overlap}{', flat' if flat else ''}{said}"

    def _exact(self, number: Fraction, what: str, how: str, dimension: Dimension) -> Term:
        import sympy

        found = Term(measured(sympy.Rational(*number.as_integer_ratio()), dimension))
        return self._named(found, f"{what}({self._name}, {how})", f"\non {how}")

    def _stages(self, name: str | None) -> list[StageCost]:
        costs = [c for c in self.derivation.costs if name in (None, c.stage.name)]
        if not costs:
            known = ", ".join(f"`{c.stage.name}`" for c in self.derivation.costs)
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

    def _named(self, found: Term, label: str, how: str = "") -> Term:
        import sympy

        origin = Origin(label, found.expr, f"{label.partition('(')[0]} of\n{self._text}{how}")
        return Term(found.expr, found.divisors, origins=frozenset({origin}), shown=sympy.Symbol(label))

    @cached_property
    def _sizes(self) -> dict[sympy.Expr, sympy.Expr]:
        import sympy

        return {sympy.Symbol(n): sympy.Rational(v.numerator, v.denominator) for n, v in self.derivation.values.items()}


class ModelCount:
    """What a model has, however it is run: numbers of elements. Sizes that it leaves open are symbols."""

    def __init__(self, model: str, chosen: Mapping[str, str | Number]) -> None:
        from placeproof.models import load

        said = "".join(f", {name}={value}" for name, value in chosen.items())
        self._model = load(model, **{name: value for name, value in chosen.items() if isinstance(value, str)})
        self._sizes = {name: _size(value) for name, value in chosen.items() if not isinstance(value, str)}
        self._name, self._text = f"{model}{said}", f"{self._model}{said}"
        self._count = self._model.parameters(self._sizes)

    def parameters(self, group: str = "") -> Term:
        """Trained parameters, of one group of weights (``"norm"``) or of all."""
        return self._term(sum(n for name, n in self._count.groups.items() if group in ("", name)), f"parameters {group}".rstrip())

    @property
    def active(self) -> Term:
        """Those that one token meets."""
        return self._term(self._count.active, "active parameters")

    @property
    def buffers(self) -> Term:
        """Elements that are not trained."""
        return self._term(self._count.buffers, "buffers")

    def size(self, name: str) -> Term:
        """The number that a symbol of its sizes has, or the symbol itself. Raises KeyError for another symbol."""
        return self._term(self._model.symbols(self._sizes)[name], name)

    def _term(self, expr: Any, what: str) -> Term:
        import sympy

        return taken(sympy.sympify(expr), f"{what}({self._name})", f"{what} of\n{self._text}", "program")


def _size(value: Number) -> Any:
    """A whole number or an expression, as models take sizes."""
    expr = term(value).expr
    return int(expr) if expr.is_Integer else expr


def counted(model: str, **chosen: str | Number) -> ModelCount:
    """What a preset, a family or a file has: ``counted("llama3-8b").parameters()``. ``chosen``: options of the family, ``tied="yes"``, and
    sizes, ``f=4 * h``.

    Raises InputError for another model, option or size.
    """
    return ModelCount(model, chosen)


def exchange(kind: str, size: Number, *, cluster: str, over: str, algorithm: str | None = None, **mesh: int) -> Term:
    """Exact seconds of an exchange of so many bytes over an axis of a mesh, or several (``"tp*dp"``), on a cluster.

    ``mesh``: degrees from the innermost axis to the outermost; ``algorithm``: by its name, the fastest if none is said. Raises InputError
    as ``placeproof derive --cluster`` does.
    """
    import sympy

    from placeproof.clusters import find
    from placeproof.collectives.time import exchange_time
    from placeproof.core.exchange import Exchange

    amount = int(term(size).expr)
    one = Exchange(kind=kind, axes=tuple(over.split("*")), bytes=amount)
    number = exchange_time(one, mesh, find(cluster), algorithm).seconds
    label = f"seconds({kind} of {amount} over {over}, {cluster}, {algorithm or 'fastest'}{''.join(f', {n}={d}' for n, d in mesh.items())})"
    return taken(measured(sympy.Rational(*number.as_integer_ratio()), {"second": 1}), label, label, "program")
