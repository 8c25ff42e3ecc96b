"""By what a gradient has to be multiplied to be another one: read off the normal forms of the two.

Each is a sum of products. What is in a product is a scale (numbers, degrees, counts and sums of counts) or what is scaled. Where both
gradients scale the same things, the one has to be multiplied by the quotient of the scales: that is linear in the factor, and decided for
all degrees at once, which stay symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placeproof.prove.terms import ONE, Index, Mono, Poly, Sum, Var, constant, inverse, product, substitute, total
from placeproof.prove.terms.addition import of_atom
from placeproof.prove.terms.algebra import fresh
from placeproof.prove.terms.nodes import Argument, Atom, Sym
from placeproof.semantics.encode.causes import applied
from placeproof.semantics.encode.context import positive
from placeproof.semantics.encode.world import World


@dataclass(frozen=True, slots=True)
class Scaled:
    """A product: what it scales, in a form that is equal for equal things, of which loss that is, and the scale. The sample that is summed
    over is named ``s.FACTOR``."""

    core: Poly
    loss: str
    scale: Poly


def is_scale(atom: Atom) -> bool:
    """Whether a factor is a degree, a count, or made of these."""
    return positive(of_atom(atom)) or (isinstance(atom, Sym) and atom.name == "tokens each")


def scaled(world: World, body: Poly) -> dict[str, Scaled]:
    """The products of a gradient by what they scale. Raises ValueError where two scale the same: then they differ by devices."""
    every: dict[str, Scaled] = {}
    for mono, number in body.terms:
        one = _apart(world, mono)
        if one.core.key in every:
            raise ValueError("the same gradient is read in two parts")
        every[one.core.key] = Scaled(one.core, one.loss, product(constant(number), one.scale))
    return every


def _apart(world: World, mono: Mono) -> Scaled:
    scale, core, binders = ONE, ONE, list[Var]()
    for atom, exponent in mono.factors:
        if is_scale(atom):
            scale = product(scale, _power(atom, exponent))
        elif isinstance(atom, Sum) and exponent == 1 and not binders:
            binders, inside = _opened(world, atom)
            for part in inside:
                scale, core = (product(scale, part), core) if _all_scale(part) else (scale, product(core, part))
        else:
            core = product(core, _power(atom, exponent))
    return Scaled(total(binders, product(_guards(mono) if mono.guards else ONE, core)), _loss(core), scale)


def _power(atom: Atom, exponent: int) -> Poly:
    one = of_atom(atom, abs(exponent))
    return one if exponent > 0 else inverse(one)


def _all_scale(body: Poly) -> bool:
    return all(is_scale(a) for m, _ in body.terms for a, _ in m.factors) and not any(m.guards for m, _ in body.terms)


def _opened(world: World, atom: Sum) -> tuple[list[Var], Iterator[Poly]]:
    """The variables of a sum and its factors, in which samples have names of their own."""
    samples = {world.sorts[f].name for f in world.sample_factors} | {world.batch.name}
    sorts = [b.sort.name for b in atom.binders]
    variables, names = fresh(atom.binders)
    named = [
        Var(f"s.{b.sort.name}", b.sort) if b.sort.name in samples and sorts.count(b.sort.name) == 1 else v
        for b, v in zip(atom.binders, variables, strict=True)
    ]
    meant: Mapping[str, Index] = {v.name: n for v, n in zip(variables, named, strict=True)}
    parts = [_power(a, n) for a, n in atom.body.factors] + ([_guards(atom.body)] if atom.body.guards else [])
    return named, (substitute(substitute(part, names), meant) for part in parts)


def _guards(mono: Mono) -> Poly:
    """1 where the guards of a product hold."""
    return Poly({Mono({}, mono.guards): Fraction(1)})


def _loss(core: Poly) -> str:
    """The loss whose gradient a product has: the main one, unless it says another."""
    for one in applied(core):
        if one.name.startswith("g of "):
            return one.name.removeprefix("g of ").partition(" by ")[0]
    return "main"


def own(argument: Argument, world: World) -> str | None:
    """The factor whose coordinate an argument is, the device's own or the summed sample's; "microbatch" for that of the micro-batch."""
    name = getattr(argument, "name", "")
    for prefix in ("s.", "d."):
        if isinstance(argument, Var) and name.startswith(prefix):
            return name.removeprefix(prefix)
    for factor in world.sample_factors:
        if argument == world.here[factor]:
            return factor
    return world.batch.name if world.batch.single else None
