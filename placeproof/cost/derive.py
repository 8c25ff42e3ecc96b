"""Deriving: from a strategy, or a program, to closed formulas of memory and traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.mesh import degree_symbol
from placeproof.core.states import MODEL_STATES
from placeproof.core.strategy import Strategy
from placeproof.core.symbols import SymbolInfo
from placeproof.cost.closed import limit, tidy
from placeproof.cost.reason import Reason
from placeproof.cost.step.amounts import Amounts
from placeproof.cost.step.devices import kinds
from placeproof.cost.step.host import asked
from placeproof.cost.step.memory import Memory, memory
from placeproof.cost.step.moments import ACTIVATIONS
from placeproof.cost.step.traffic import Traffic, traffic
from placeproof.cost.step.unrolled import Known, Unrolled
from placeproof.cost.uneven import Shards, described, fitted, named, require_parts, require_uneven
from placeproof.programs import Program
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.semantics.scheduled import schedule_of
from placeproof.semantics.trace import trace
from placeproof.semantics.values import Trace, placed_value

if TYPE_CHECKING:
    import sympy

MEMORY_KEYS = (*(s.name for s in MODEL_STATES), ACTIVATIONS, "model_states", "transient", "peak", "host", "host_asked", "host_transient")


@dataclass(frozen=True)
class Derivation:
    """What was derived. Every formula is in bytes, for one device, over the symbols of ``symbols``.

    ``strategy`` is None for a program that a user wrote down.
    """

    name: str
    strategy: Strategy | None
    found: Trace
    amounts: Amounts
    costs: Memory
    messages: Traffic

    @property
    def program(self) -> Program:
        """The program that was interpreted, with the placements that its text left out."""
        return self.found.program

    @cached_property
    def memory(self) -> dict[str, sympy.Expr]:
        """Closed forms of memory by key: the states, ``activations``, ``model_states``, ``transient``, ``peak``, ``host``,
        ``host_asked`` (:func:`placeproof.cost.step.host.asked`), ``host_transient``: what passes through host memory."""
        raw = {**self.costs.held, ACTIVATIONS: self.costs.activations, "model_states": self.costs.model_states()}
        forms = {key: tidy(value) for key, value in raw.items()}
        forms |= {"transient": tidy(self.costs.transient), "host": tidy(self.costs.host), "host_asked": tidy(asked(self.costs.host))}
        forms["host_transient"] = tidy(self.costs.host_transient)
        forms["peak"] = forms["model_states"] + forms[ACTIVATIONS] + forms["transient"]
        return {key: forms[key] for key in MEMORY_KEYS}

    @cached_property
    def sent(self) -> sympy.Expr:
        """Bytes that one device sends in a step: a term for each axis."""
        import sympy

        return sympy.Add(*self.by_axis.values())

    @cached_property
    def host_link(self) -> sympy.Expr:
        """Bytes over a device's host link in a step, both ways added."""
        return tidy(self.messages.host_link())

    @cached_property
    def by_axis(self) -> dict[str, sympy.Expr]:
        """Bytes sent by the axes of the group."""
        return {axis: tidy(expr) for axis, expr in self.messages.by_axis().items()}

    @cached_property
    def undivided(self) -> sympy.Expr:
        """Model states if one device held everything."""
        total = self.amounts.one * 0
        for state in MODEL_STATES:
            placed = placed_value(self.program, state.name)
            total = total + self.amounts.bytes(replace(placed, pieces=tuple(replace(p, layout=()) for p in placed.pieces)))
        return tidy(total)

    @cached_property
    def forms(self) -> dict[str, sympy.Expr]:
        """Every closed form by its dotted key: ``memory.peak``, ``traffic.sent_per_device``, ``traffic.by_axis.dp``."""
        forms = {f"memory.{key}": expr for key, expr in self.memory.items()}
        forms |= {"traffic.sent_per_device": self.sent, "traffic.host_link": self.host_link}
        forms |= {f"traffic.by_axis.{axis}": expr for axis, expr in self.by_axis.items()}
        return forms

    @cached_property
    def symbols(self) -> dict[str, SymbolInfo]:
        """The symbols of the formulas, in the order of the table."""
        used = {str(s) for expr in self.forms.values() for s in expr.free_symbols}
        used |= {str(s) for m in self.messages.messages for s in (m.bytes * m.count).free_symbols}
        return {name: described(name) for name in ranked(used)}

    @property
    def raw(self) -> tuple[sympy.Expr, ...]:
        """What is held and what is sent, as it was added up."""
        formulas = (*self.costs.held.values(), self.costs.activations, self.costs.transient, self.costs.host, self.costs.host_transient)
        return (*formulas, self.messages.sent(), self.messages.host_link())

    @cached_property
    def degrees(self) -> tuple[str, ...]:
        """The symbols of degrees that are still open."""
        return tuple(name for name in self.symbols if name == "N" or name.startswith("N_"))

    @cached_property
    def degree_values(self) -> dict[str, int | None]:
        """Every degree by its symbol, None where it is open: those of the axes, and sizes of sub-groups that have a name."""
        only = len(self.program.axes) == 1
        known = {degree_symbol(a.name, only=only): a.degree for a in self.program.axes}
        named: dict[str, int | None] = {a.inner: None for a in self.program.axes if isinstance(a.inner, str)}
        fixed = self.program.count("microbatches")
        return known | named | ({"m": fixed} if fixed is not None else {})

    def limits(self) -> dict[str, dict[str, sympy.Expr]]:
        """Model states and bytes sent as each open degree grows without bound: degree -> key -> limit."""
        raw = {"memory.model_states": self.costs.model_states(), "traffic.sent_per_device": self.messages.sent()}
        return {n: {k: limit(expr, n) for k, expr in raw.items() if expr.has(named(n))} for n in self.degrees}

    def memory_steps(self) -> tuple[Reason, ...]:
        """The derivation of memory."""
        peak = self.costs.moments
        moments = " or ".join(f"line {m.line}: `{m.text()}`" for m in peak)
        alive = ", ".join(f"{buffer.name} {tidy(buffer.bytes)}" for m in peak for buffer in m.alive)
        step = Reason(rule="peak: the most that is alive at once", expression=self.memory["peak"], why=f"{moments}; alive: {alive}")
        return (*_tidied(self.costs.steps), *((step,) if peak else ()))

    def traffic_steps(self) -> tuple[Reason, ...]:
        """The derivation of traffic."""
        return _tidied(step for m in (*self.messages.messages, *self.messages.host) for step in m.steps)

    def value(self, key: str, values: Mapping[str, Fraction]) -> Fraction | None:
        """The exact number of bytes of one closed form, or None while one of its symbols is unset."""
        return evaluate(self.forms[key], values)

    def compile(self, key: str, arguments: tuple[str, ...] | None = None) -> Callable[..., Any]:
        """A fast function of one closed form over numbers or NumPy arrays, arguments in the order given (or of ``symbols``).

        Raises KeyError for an unknown key.
        """
        import sympy

        expr = self.forms[key]
        names = arguments or tuple(n for n in self.symbols if expr.has(named(n)))
        modules = ["numpy"] if find_spec("numpy") is not None else ["math"]
        function: Callable[..., Any] = sympy.lambdify([named(n) for n in names], expr, modules=modules, cse=True)
        return function


def ranked(names: Iterable[str]) -> list[str]:
    """Names of symbols in the order of the table; degrees of several axes stand where N does."""
    from placeproof.core.symbols import SYMBOLS

    order = list(SYMBOLS)
    return sorted(names, key=lambda n: (order.index(n) if n in order else order.index("N"), n))


def _tidied(steps: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(replace(step, expression=tidy(step.expression)) for step in steps)


def evaluate(expr: sympy.Expr, values: Mapping[str, Fraction]) -> Fraction | None:
    """The exact value of a formula, or None while a symbol is unset."""
    import sympy

    if any(str(s) not in values for s in expr.free_symbols):
        return None
    put = {s: sympy.Rational(values[str(s)].numerator, values[str(s)].denominator) for s in expr.free_symbols}
    number = expr.xreplace(put)
    return Fraction(int(number.p), int(number.q))


def _require_one_copy(strategy: Strategy) -> None:
    """Raise InputError for a schedule that holds the model twice: its program tells what one of the two copies does."""
    if not any(a.splits.stages for a in strategy.axes):
        return
    schedule = schedule_of(strategy)
    if schedule.copies > 1:
        message = f"`{schedule.name}` holds {schedule.copies} copies of each stage, and its program tells what one of them costs"
        refuse("PP122", message, help="derive it for a model, `--model llama3-8b`, or take `dualpipe-v`, which holds one copy")


def derive_shards(subject: Strategy | Program, shards: Shards | None, *, groups: bool = False) -> Derivation:
    """Derive where devices hold uneven parts: formulas in the fractions' symbols. An open degree becomes the number of parts. Without
    ``shards`` all parts are equal.

    Raises InputError with every axis whose parts cannot be uneven, and as :func:`derive` does.
    """
    if shards is None:
        return derive(subject, groups=groups)
    problems = Problems()
    known, uneven = fitted(subject, shards, problems)
    derived = problems.attempt(lambda: derive(known, groups=groups, uneven=uneven))
    problems.attempt(lambda: require_parts(derived().raw, uneven, derived().name))
    problems.raise_if_any()
    return derived()


def derive(subject: Strategy | Program, *, groups: bool = False, uneven: tuple[str, ...] = ()) -> Derivation:
    """Derive the costs of a strategy (lowered first) or of a step program as it is written.

    ``groups`` counts norms and biases apart as ``P_norm``. Along an axis of ``uneven`` a device holds a fraction of its own of what lies in
    parts, see :mod:`placeproof.cost.uneven`. Raises :class:`InputError` when no device could use the strategy, when an operation of the
    program gets a value of the wrong kind, and for what is not known to work with uneven parts.
    """
    strategy = subject if isinstance(subject, Strategy) else None
    program = lower(subject) if isinstance(subject, Strategy) else subject
    if strategy is not None:
        _require_one_copy(strategy)
    if program.tensors:
        place = program.tensors[0].place
        refuse("PP310", f"`{program.name}` is a program over tensors", place=place, help="`placeproof prove` proves it")
    traced = trace(resolve(program))
    require_uneven(traced, uneven)
    amounts = Amounts(traced.program, groups, uneven)
    known = Known(traced, amounts.parts)
    runs = tuple(Unrolled(known, holds) for holds in kinds(traced.program, amounts))
    return Derivation(
        name=strategy.name if strategy else program.name,
        strategy=strategy,
        found=traced,
        amounts=amounts,
        costs=memory(traced, amounts, runs),
        messages=traffic(traced, amounts, runs),
    )
