"""Why a claim about what an operation reads does not hold: how the value lies, and what is needed instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from placeproof.programs import Call, Ref
from placeproof.programs.printer import expression
from placeproof.prove.terms import App, Fn, Poly, Var
from placeproof.prove.terms.nodes import Argument, Atom, Greatest, Lam, Mono, Paren, Sum
from placeproof.semantics.encode.world import World

#: The name with which a term of which nothing is known begins.
UNKNOWN = "unknown"
#: The names with which gradients of samples begin.
OWN = ("g.", "g of ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A value that is not as an operation needs it. ``value``: as the program calls it; ``axes``: over which it lies otherwise, none of
    micro-batches; ``lies``, ``needed``: what it is, and what has to be there, in words."""

    value: str
    axes: tuple[str, ...]
    lies: str
    needed: str

    @property
    def words(self) -> str:
        """In a line."""
        over = " and ".join(f"`{a}`" for a in self.axes)
        return f"{self.value} is {self.lies}{f' over {over}' if over else ''}: {self.needed}"


def split(world: World, factors: Iterable[str], call: Call | None, position: int = 0) -> Iterator[Cause]:
    """Parameters of which a device has a part, where it computes with all of them."""
    along = _several(world, factors)
    if along:
        needed = f"{f'`{call.op}`' if call is not None else 'the step'} needs all of it"
        yield Cause(value=_named(call, position), axes=along, lies="still split", needed=needed)


def of_gradient(world: World, group: str, body: Poly, call: Call) -> Iterator[Cause]:
    """What an update reads for the gradient, on the owner of an element: a sum over some of the devices, or of the micro-batches, alone.

    Nothing of a value of which a part is garbage: its cause lies before.
    """
    functions = list(applied(body))
    if any(one.name.startswith(UNKNOWN) for one in functions):
        return
    summed = [f for f in (*world.sample_factors, *world.partial(group)) if world.here[f].free & body.free]
    along, value = _several(world, summed), _named(call, 2)
    along = along if _is_share(body, frozenset().union(*(world.here[f].free for f in summed))) else ()
    if along:
        yield Cause(value=value, axes=along, lies="still a partial sum", needed=f"`{call.op}` needs the sum over all of its devices")
    batches = {a for one in functions for a in one.args if isinstance(a, Var | Fn) and a.sort == world.batch}
    if not world.batch.single and len(batches) == 1 and isinstance(one := next(iter(batches)), Fn):
        which = one.name.partition(".")[0]
        yield Cause(value=value, axes=(), lies=f"that of the {which} micro-batch alone", needed="the other micro-batches are left out")


def not_gathered(world: World, written: Iterable[tuple[str, str]], placed: Iterable[tuple[str, str]], body: Poly) -> Iterator[Cause]:
    """Parameters of which each device updates a part, while all have copies."""
    kept = {f for f, _ in placed}
    along = _several(world, (f for f, _ in sorted(written) if f not in kept and world.here[f].free & body.free))
    if along:
        yield Cause(
            value="`parameters`", axes=along, lies="updated in parts", needed="every device keeps all of it, and nothing gathers it"
        )


def _several(world: World, factors: Iterable[str]) -> tuple[str, ...]:
    """Those along which there is more than one device."""
    return tuple(dict.fromkeys(f for f in factors if isinstance(world.here[f], Var)))


def _named(call: Call | None, position: int) -> str:
    """A value as the program calls it."""
    value = call.args[position] if call is not None and len(call.args) > position else None
    return f"`{expression(value)}`" if isinstance(value, Ref) else "what it reads"


def _is_share(term: Argument | Atom | Mono, coordinates: frozenset[str]) -> bool:
    """Whether a term is a gradient of a device's own samples, of which the sum over devices is a gradient: of all that depends on the
    device, gradients and counts are multiplied and summed, and nothing is divided by or added."""
    match term:
        case App():
            return term.name.startswith(OWN)
        case Poly():
            return len(term.terms) == 1 and _is_share(term.terms[0][0], coordinates)
        case Mono():
            own = [(atom, power) for atom, power in term.factors if atom.free & coordinates]
            shares = [atom for atom, _ in own if _is_share(atom, coordinates)]
            return len(shares) == 1 and all(power == 1 and (atom in shares or isinstance(atom, App)) for atom, power in own)
        case Sum():
            return _is_share(term.body, coordinates)
        case Paren():
            return _is_share(term.inside, coordinates)
    return False


def applied(term: Argument | Atom | Mono) -> Iterator[App]:
    """The functions that a term applies, those within arguments too."""
    match term:
        case App():
            yield term
            inside: Iterable[Argument | Atom | Mono] = term.args
        case Poly():
            inside = (mono for mono, _ in term.terms)
        case Mono():
            inside = (atom for atom, _ in term.factors)
        case Sum() | Greatest() | Lam():
            inside = (term.body,)
        case Paren():
            inside = (term.inside,)
        case _:
            inside = ()
    for one in inside:
        yield from applied(one)
