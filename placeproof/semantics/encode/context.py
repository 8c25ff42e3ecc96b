"""What an encoding collects while it walks a program: obligations, divisors, and what is known on the path."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from placeproof.core.diagnostics import Place
from placeproof.programs import Call, Stmt
from placeproof.programs.losses import UNITS
from placeproof.prove import Equal, Equation, Given, Order
from placeproof.prove.terms import (
    ONE,
    ZERO,
    App,
    Index,
    Paren,
    Poly,
    Sum,
    Sym,
    Var,
    app,
    choose,
    fn,
    product,
    same,
    substitute,
    substitute_index,
    total,
)
from placeproof.prove.terms.limit import TOO_LARGE, WHY
from placeproof.prove.terms.nodes import Atom
from placeproof.semantics.encode.causes import UNKNOWN, Cause
from placeproof.semantics.encode.values import Scalar, Stream, Tensor, Value
from placeproof.semantics.encode.world import CHANNEL_AT, TOKEN_AT, Range, World

GRADIENT = "gradient integrity"
CONSISTENCY = "state consistency"
INVARIANT = "step invariant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    """What has to hold for the step to be right: a named claim, the condition it belongs to, and the line it is about. ``causes``: how
    what is read lies otherwise than it has to, where it does."""

    name: str
    condition: str
    place: Place | None
    claim: Equation
    causes: tuple[Cause, ...] = ()


class NoMeaningError(Exception):
    """The program does something to which the encoding gives no meaning."""

    def __init__(self, why: str, place: Place | None) -> None:
        super().__init__(why)
        self.place = place


@contextmanager
def written_out(what: Stmt | Call | Context) -> Iterator[None]:
    """Terms of what stands at a place. Raises NoMeaningError where they grow too large."""
    try:
        yield
    except TOO_LARGE:
        raise NoMeaningError(WHY, what.place) from None


def positive(body: Poly) -> bool:
    """Whether a term is more than zero because it adds up and multiplies nothing but degrees, numbers of micro-batches and counts."""
    return bool(body.terms) and all(c > 0 and not m.guards and all(_positive(a) for a, _ in m.factors) for m, c in body.terms)


def _positive(atom: Atom) -> bool:
    match atom:
        case Sym(name=name):
            return name == "m" or name.startswith("N")
        case App(name=name):
            return name in UNITS
        case Sum(body=mono):
            return not mono.guards and all(_positive(a) for a, _ in mono.factors)
        case Paren(inside=inside):
            return positive(inside)
    return False


#: Obligations, divisors, warnings, states written, and buffers that began as zero.
Mark: TypeAlias = tuple[
    list[Obligation], list[Poly], list[tuple[str, Place | None]], dict[str, tuple[Poly, frozenset[tuple[str, str]]]], set[str]
]


@dataclass
class Context:
    """One walk over a program."""

    world: World
    obligations: list[Obligation] = field(default_factory=list)
    divisors: list[Poly] = field(default_factory=list)
    path: dict[str, Index] = field(default_factory=dict)
    conditions: tuple[tuple[Index, Index, bool], ...] = ()
    loops: list[Var] = field(default_factory=list)
    batch: Index | None = None
    from_zero: set[str] = field(default_factory=set)
    place: Place | None = None
    call: Call | None = None
    written: dict[str, tuple[Poly, frozenset[tuple[str, str]]]] = field(default_factory=dict)
    warnings: list[tuple[str, Place | None]] = field(default_factory=list)
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def mark(self) -> Mark:
        """What has been collected so far."""
        return [*self.obligations], [*self.divisors], [*self.warnings], dict(self.written), set(self.from_zero)

    def rewound(self, to: Mark) -> Mark:
        """Forget what was collected since; what was collected until now."""
        now = self.mark()
        self.obligations, self.divisors, self.warnings = [*to[0]], [*to[1]], [*to[2]]
        self.written, self.from_zero = dict(to[3]), set(to[4])
        return now

    # Values that nobody knows.

    def unknown(self, *at: Index) -> Poly:
        """An arbitrary number for each device, loop iteration and index."""
        return app(f"{UNKNOWN}{next(self._names)}", *self.world.coordinates, *self.loops, *at)

    def unknown_stream(self, held: str | None = None) -> Stream:
        """A stream of which nothing is known."""
        return Stream(body=self.unknown(TOKEN_AT, CHANNEL_AT), held=held)

    def owned(self, group: str, body: Poly, held: Iterable[tuple[str, str]]) -> Poly:
        """A body where the device owns the element along some axis factors; garbage elsewhere."""
        where = self.where(group, held)
        return body if where == ONE else choose(where, body, self.unknown_of(group))

    def held_stream(self, body: Poly, held: str | None) -> Stream:
        """A stream whose tokens are split over an axis factor: garbage where the device does not hold the token."""
        if held is None:
            return Stream(body=body)
        where = same(self.world.here[held], self.world.token_owner(held))
        return Stream(body=choose(where, body, self.unknown(TOKEN_AT, CHANNEL_AT)), held=held)

    def where(self, group: str, held: Iterable[tuple[str, str]]) -> Poly:
        """1 where the device owns the element of a group along axis factors."""
        return product(*(self.world.owns(group, f, order) for f, order in sorted(held)))

    def unknown_tensor(self, like: Tensor) -> Tensor:
        """A tensor of which nothing is known."""
        return like.by_group(lambda group, _: self.unknown_of(group))

    def unknown_of(self, group: str) -> Poly:
        """An arbitrary number for each element of a group."""
        return self.unknown(*self.world.element(group))

    def unknown_like(self, value: Value) -> Tensor | Stream | Scalar:
        """A tensor, a number, or else a stream of which nothing is known."""
        if isinstance(value, Tensor | Stream | Scalar):
            return self.termwise(value, lambda _body, _group, at: self.unknown(*at))
        return self.unknown_stream()

    def termwise(self, value: Tensor | Stream | Scalar, make: Callable[[Poly, str, tuple[Index, ...]], Poly]) -> Tensor | Stream | Scalar:
        """A value with other terms, each made of the old one, its group (none but of a tensor's) and the indices that it depends on."""
        match value:
            case Tensor():
                return value.by_group(lambda group, piece: make(piece.body, group, self.world.element(group)))
            case Stream():
                return value.map(lambda body: make(body, "", (TOKEN_AT, CHANNEL_AT)))
        return Scalar(body=make(value.body, "", ()))

    # Claims.

    def here(self, body: Poly) -> Poly:
        """A term on the devices that are on the path."""
        return substitute(body, self.path) if self.path else body

    def own_sample(self) -> tuple[Index, ...]:
        """The sample, of the micro-batch at hand, of the devices that are on the path."""
        return tuple(substitute_index(s, self.path) for s in self.world.sample(self.batch))

    def owner_of(self, group: str, held: Iterable[tuple[str, str]]) -> list[dict[str, Index]]:
        """Coordinates that own the element: for a tied group one choice for either end of the pipeline."""
        chosen: dict[str, Index] = {}
        tied = self.world.tied(group)
        ends: list[dict[str, Index]] = [{}]
        for factor, order in sorted(held):
            variable = self.world.here[factor]
            if not isinstance(variable, Var):
                continue
            if factor == tied:
                ends = [{variable.name: self.world.rank(factor, 0)}, {variable.name: self.world.rank(factor, -1)}]
            else:
                chosen[variable.name] = self.world.owner(group, factor, order)
        return [{**{k: substitute_index(v, end) for k, v in chosen.items()}, **end} for end in ends]

    def require(
        self, name: str, condition: str, left: Poly, right: Poly, at: dict[str, Index] | None = None, causes: Iterable[Cause] = ()
    ) -> None:
        """Record a claim: two terms are equal, on the devices at the coordinates given (and on the path). ``causes``: why they are not."""
        given: list[Given] = list(self.given())
        for variable, meant in {**(at or {}), **self.path}.items():
            coordinate = next(c for c in self.world.coordinates if isinstance(c, Var) and c.name == variable)
            given.append(Equal(name=f"the device's {variable.removeprefix('d.')} coordinate is {meant.key}", left=coordinate, right=meant))
        divisors = tuple(dict.fromkeys(self.divisors))
        given += self._counts_above_zero(divisors)
        claim = Equation(name=name, left=left, right=right, given=tuple(given), divisors=divisors)
        self.obligations.append(Obligation(name=name, condition=condition, place=self.place, claim=claim, causes=tuple(causes)))

    def _counts_above_zero(self, divisors: Iterable[Poly]) -> Iterator[Given]:
        """What holds of divisors that are made of counts and degrees alone, where there is something to count everywhere."""
        for divisor in divisors if self.world.program.loss else ():
            if positive(divisor) and divisor.number is None:
                yield Order(name=f"{divisor.key} > 0", left=divisor, relation=">", right=ZERO)

    def given(self) -> tuple[Given, ...]:
        """What holds for all programs: degrees, micro-batches and token counts are at least one; and there are as many devices
        along an axis as the program names."""
        world = self.world
        bounds = [(s.size, world.least.get(f, 1)) for f, s in world.sorts.items()] + [(world.batch.size, 1), ("tokens each", 1)]
        sizes = {name: least for name, least in bounds if isinstance(name, str)}
        orders = [Range(name=n, relation=">=", bound=k).given for n, k in sizes.items()]
        ends = world.ends if any(world.shared(g) for g in world.groups) else ()
        lying = [Equal(name=f"{b.key} is of stage {stage.key}", left=fn("stage", (b,), stage.sort), right=stage) for stage, b in ends]
        if "equal-token-counts" in world.options.without:
            all_tokens = total(world.any_sample, world.tokens(world.any_sample))
            orders.append(Order(name="total tokens > 0", left=all_tokens, relation=">", right=ZERO))
        return (*orders, *lying, *(r.given for r in world.options.ranges))
