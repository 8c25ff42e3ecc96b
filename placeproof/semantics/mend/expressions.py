"""A factor as an expression of a step program: degrees, and counts, counted where the step counts them or by lines of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from placeproof.programs import Binary, Call, Expr, Number, Ref
from placeproof.programs.losses import UNITS
from placeproof.prove.terms import App, Poly, Sum, Var, substitute
from placeproof.prove.terms.addition import of_atom
from placeproof.prove.terms.nodes import Atom, Sym
from placeproof.semantics.encode.values import Scalar, Value
from placeproof.semantics.encode.world import World
from placeproof.semantics.mend.ratio import own


class NoWordsError(Exception):
    """A factor that no expression of a step says at a place."""


@dataclass
class Words:
    """Says factors. ``held``: what buffers hold at the place; ``loop``: the variable of the micro-batch there, None outside of all;
    ``counted``: the counts that the step has to add up over its micro-batches, by the name of their buffer: the unit, and the axes to sum
    over; ``taken``: names that no new buffer may have."""

    world: World
    held: Mapping[str, Value]
    loop: str | None
    counted: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()

    def quotient(self, ratio: Poly) -> Expr:
        """A product of powers. Raises NoWordsError."""
        alone = ratio.alone
        if alone is None or alone[0].guards:
            raise NoWordsError("it is no product of degrees and counts")
        over, under = list[Expr](), list[Expr]()
        for atom, exponent in alone[0].factors:
            (over if exponent > 0 else under).extend([self.atom(atom)] * abs(exponent))
        number = alone[1]
        over = [*([Number(value=Fraction(number.numerator))] if number.numerator != 1 or not over else []), *over]
        under = [*([Number(value=Fraction(number.denominator))] if number.denominator != 1 else []), *under]
        top = _product(over)
        return top if not under else Binary(op="/", left=top, right=_product(under))

    def atom(self, atom: Atom) -> Expr:
        """A degree, a count, or a sum of counts."""
        here = substitute(of_atom(atom), {f"s.{f}": self.world.here[f] for f in self.world.sample_factors})
        for name, value in self.held.items():
            if isinstance(value, Scalar) and value.body == here:
                return Ref(name=name)
        match atom:
            case Sym(name="m"):
                return Ref(name="microbatches")
            case Sym(name=name):
                factor = next((f for f, s in self.world.sorts.items() if s.size == name), None)
                if factor is not None:
                    return Ref(name=factor)
            case App(name=unit) if unit in UNITS:
                return self._count(atom, {}, unit)
            case Sum(binders=binders, body=body) if not body.guards and len(body.factors) == 1:
                ((inner, exponent),) = body.factors
                if isinstance(inner, App) and inner.name in UNITS and exponent == 1:
                    return self._count(inner, {b.name: b for b in binders}, inner.name)
        raise NoWordsError(f"nothing in the step says {atom.key}")

    def _count(self, atom: App, bound: Mapping[str, Var], unit: str) -> Expr:
        world = self.world
        factors = [f for f in world.sample_factors if unit == "tokens" or not world.axis_of(f).splits.tokens]
        axes = list[str]()
        for factor, argument in zip(factors, atom.args, strict=False):
            if isinstance(argument, Var) and argument.name in bound:
                axes.append(factor)
            elif own(argument, world) != factor:
                raise NoWordsError(f"no device has the count of another one: {atom.key}")
        batch = atom.args[-1]
        if isinstance(batch, Var) and batch.name in bound:
            return Ref(name=self._added_up(unit, tuple(axes)))
        if own(batch, world) != world.batch.name or (self.loop is None and not world.batch.single):
            raise NoWordsError(f"there is no micro-batch of which to say {atom.key}")
        count = self.counting(unit)
        return Call(op="all_reduce", args=(count,), axes=tuple(axes)) if axes else count

    def counting(self, unit: str) -> Call:
        """What the device's own micro-batch has of a unit."""
        args = () if self.loop is None else (Ref(name=self.loop),)
        return Call(op="tokens", args=args) if unit == "tokens" else Call(op="count", args=args, options=(("of", unit),))

    def _added_up(self, unit: str, axes: tuple[str, ...]) -> str:
        if self.loop is not None:
            raise NoWordsError("all micro-batches are counted behind their loop only")
        for name, one in self.counted.items():
            if one == (unit, axes):
                return name
        base = f"{'all' if axes else 'own'}_{unit}"
        name = next(n for n in (base, *(f"{base}{k}" for k in range(2, 99))) if n not in self.taken and n not in self.counted)
        self.counted[name] = unit, axes
        return name


def _product(parts: list[Expr]) -> Expr:
    first, *rest = parts
    for one in rest:
        first = Binary(op="*", left=first, right=one)
    return first


def in_words(scale: Poly, world: World) -> str:
    """A scale for people: degrees by the names of axes, counts with what they are added up over."""
    alone = scale.alone
    if alone is None:
        return scale.key
    over, under = list[str](), list[str]()
    for atom, exponent in alone[0].factors:
        (over if exponent > 0 else under).extend([_atom(atom, world)] * abs(exponent))
    number = alone[1]
    over = [str(number.numerator)] * (number.numerator != 1 or not over) + over
    under = [str(number.denominator)] * (number.denominator != 1) + under
    below = f" / {under[0]}" if len(under) == 1 else f" / ({' * '.join(under)})" if under else ""
    return " * ".join(over) + below


def _atom(atom: Atom, world: World) -> str:
    match atom:
        case Sym(name="m"):
            return "microbatches"
        case Sym(name=name):
            return next((f for f, s in world.sorts.items() if s.size == name), name)
        case App(name=unit):
            return unit
        case Sum(binders=binders, body=body) if len(body.factors) == 1:
            over = ", ".join("microbatches" if b.sort == world.batch else b.sort.name for b in binders)
            return f"{_atom(body.factors[0][0], world)}[all {over}]"
    return atom.key
