"""What has to be proved of a tensor program: it returns what one device returns, and gradients are derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from placeproof.core.diagnostics import Place
from placeproof.programs import Call, Resolved
from placeproof.prove import Equal, Equation, Given, Order
from placeproof.prove.smtlib import eliminated
from placeproof.prove.terms import ZERO, Poly, Var, power, product, remembered, symbol
from placeproof.prove.terms.limit import limited
from placeproof.semantics.encode.context import CONSISTENCY, GRADIENT, NoMeaningError, Obligation, written_out
from placeproof.semantics.layouts.layout import Sharding
from placeproof.semantics.tensors.compute import positive
from placeproof.semantics.tensors.execute import Returned, SymbolicRun
from placeproof.semantics.tensors.values import Edge, Space, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a `returns` gives: its dimensions, and how it lies along them.

    Of a gradient: the tensors of the header that it is ``by``, and ``at``, where it is these as they came in; ``of``: which of the results
    that are no gradients it is of, by number from 0. Of such a result, ``reads``: the tensors of the header that it is computed from.
    """

    call: Call
    dims: frozenset[str]
    sharding: Sharding
    reads: frozenset[str]
    by: str | None = None
    at: str | None = None
    of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """What has to be proved of a tensor program, and how its results lie."""

    obligations: tuple[Obligation, ...]
    results: tuple[Result, ...]


def encode_tensors(program: Resolved) -> tuple[Obligation, ...]:
    """The obligations of a tensor program. Raises NoMeaningError where it does something that the encoding cannot speak of."""
    return encode_block(program).obligations


def encode_block(program: Resolved, reference: Resolved | None = None, lemmas: frozenset[str] = frozenset()) -> EncodedBlock:
    """What is to be proved of a tensor program. ``reference``: what one device runs, if it is another text.

    ``lemmas``: names whose values are to be proved one device's, and are any values from there on
    (:func:`placeproof.semantics.tensors.lemmas.projections`). Raises NoMeaningError as :func:`encode_tensors` does, and where nothing
    follows from lemmas without a solver.
    """
    one_device = program if reference is None else reference
    if remembered.record is not None or (reference is None and not lemmas):
        with limited():
            return _encoded(program, _OneDevice(one_device, lemmas), lemmas)
    alone = _one_device(one_device, lemmas)
    with limited():
        return _encoded(program, alone, lemmas)


class _OneDevice:
    """What one device computes, and what its gradients have to be."""

    def __init__(self, program: Resolved, lemmas: frozenset[str]) -> None:
        self.run = SymbolicRun(Space.of(program, one_device=True), lemmas)
        with _said():
            self.returned = self.run.all()
            self.derivatives = _derivatives(self.returned)


@lru_cache(maxsize=256)
def _one_device(program: Resolved, lemmas: frozenset[str]) -> _OneDevice:
    """The same for every mesh, and so is how much may be written for it. No record is told."""
    with limited():
        return _OneDevice(program, lemmas)


@contextmanager
def _said() -> Iterator[None]:
    """A rewriting that the terms do not have is nothing that can be said. Raises NoMeaningError."""
    try:
        yield
    except ValueError as error:
        raise NoMeaningError(str(error), None) from None


def _encoded(program: Resolved, alone: _OneDevice, lemmas: frozenset[str]) -> EncodedBlock:
    mesh = SymbolicRun(Space.of(program), lemmas)
    with _said():
        pairs = _pairs(mesh.all(), alone.returned)
    if not pairs:
        raise NoMeaningError("the program returns nothing, so there is nothing to prove", None)
    given = (*mesh.space.given(), *_defined(alone.run, mesh))
    claims = [_lemma(mesh, alone.run, name, given) for name in mesh.lemmas]
    claims += [_kept(mesh, many, counterpart, given) for many, counterpart in pairs]
    claims += [_fitting(mesh.space, place, given) for place in dict.fromkeys(mesh.space.misfits)]
    claims += [
        _derived(alone.run, counterpart, right, given)
        for _, counterpart in pairs
        if (right := alone.derivatives.get(id(counterpart))) is not None
    ]
    encoded = EncodedBlock(obligations=tuple(claims), results=tuple(_results(mesh)))
    if lemmas and not _follows(encoded):
        raise NoMeaningError("nothing follows from lemmas alone", None)
    return encoded


def _follows(encoded: EncodedBlock) -> bool:
    """Whether all sides of claims are the same terms, and results are computed from no adjoint, whatever stands behind lemmas."""
    claims = [eliminated(o.claim) for o in encoded.obligations]
    adjoints = {r.at for r in encoded.results}
    return all(c.left == c.right for c in claims) and not any(r.reads & adjoints for r in encoded.results)


def _results(run: SymbolicRun) -> Iterator[Result]:
    plain = [r.value.body for r in run.returned if r.of is None]
    for returned in run.returned:
        value, (by, at) = returned.value, returned.given
        yield Result(
            call=returned.call,
            dims=value.dims,
            sharding=Sharding(split=dict(value.split), loose=value.loose),
            reads=run.reads(value) if returned.of is None else frozenset(),
            by=by,
            at=at,
            of=plain.index(returned.of.body) if returned.of is not None and returned.of.body in plain else None,
        )


def _pairs(many: list[Returned], alone: list[Returned]) -> list[tuple[Returned, Returned]]:
    """What both return: results in their order, gradients by what they are of, by, and at."""

    def kind(returned: Returned) -> tuple[str, ...]:
        return tuple(returned.call.option(name) or "" for name in ("gradient_of", "by", "at"))

    if sorted(map(kind, many)) != sorted(map(kind, alone)):
        raise NoMeaningError("what is returned is not what one device returns", None)
    left = list(alone)
    return [(returned, left.pop(next(i for i, candidate in enumerate(left) if kind(candidate) == kind(returned)))) for returned in many]


def _derivatives(returned: list[Returned]) -> dict[int, Poly]:
    """What each gradient has to be, by its identity; what is common to gradients of one result is worked out once."""
    passes: dict[tuple[int, int], Adjoints] = {}
    derivatives: dict[int, Poly] = {}
    for result in returned:
        if result.of is not None and result.by is not None and result.at is not None:
            adjoints = passes.setdefault((id(result.of), id(result.at)), Adjoints(result.of, result.at.body))
            with written_out(result.call):
                derivatives[id(result)] = adjoints.by(result.by)
    return derivatives


def _defined(alone: SymbolicRun, mesh: SymbolicRun) -> list[Order]:
    """What one device divides by is not zero: of some divisors this is known, of others it is what makes the claim one. Of what the
    devices of the mesh divide by, only what is known is said."""
    orders = [
        Order(name=f"{_short(x)} is positive on one device, which takes its logarithm", left=x, relation=">", right=ZERO)
        for x in dict.fromkeys(alone.local.logs)
    ]
    own = dict.fromkeys(alone.local.divisors)
    for divisor in dict.fromkeys((*own, *(d for d in mesh.local.divisors if positive(d)))):
        left = divisor if positive(divisor) else product(divisor, divisor)
        why = "is positive" if positive(divisor) else "is not zero on one device, which divides by it"
        orders.append(Order(name=f"{_short(divisor)} {why}", left=left, relation=">", right=ZERO))
    return orders


def _short(poly: Poly) -> str:
    return poly.key if len(poly.key) <= 120 else poly.key[:120] + " ..."


def _kept(mesh: SymbolicRun, many: Returned, alone: Returned, given: tuple[Order, ...]) -> Obligation:
    """What is returned is what one device returns."""
    claim = _equal(mesh, many.name, many.value, alone.value, given)
    return Obligation(name=claim.name, condition=GRADIENT if many.of is not None else CONSISTENCY, place=many.call.place, claim=claim)


def _lemma(mesh: SymbolicRun, alone: SymbolicRun, name: str, given: tuple[Order, ...]) -> Obligation:
    """What is known under a name is what one device knows under it."""
    lemma = mesh.lemmas[name]
    claim = _equal(mesh, f"`{name}`", lemma.value, alone.lemmas[name].value, given)
    return Obligation(name=claim.name, condition=CONSISTENCY, place=lemma.place, claim=claim)


def _equal(mesh: SymbolicRun, name: str, many: Value, alone: Value, given: tuple[Order, ...]) -> Equation:
    """On every device, at every element that it holds."""
    where: list[Given] = []
    for dim in sorted(many.split):
        for axis, (coordinate, owner) in mesh.space.holds(many, dim).items():
            if isinstance(coordinate, Var):
                where.append(Equal(name=f"the device's {axis} coordinate owns the element along {dim}", left=coordinate, right=owner))
    square = power(symbol("any number"), 2)  # what a logarithm is taken of is positive if it is the opposite of no square
    divisors = tuple(dict.fromkeys((*mesh.local.divisors, *(x + square for x in mesh.local.logs))))
    name = f"{name} on every device is what one device computes"
    return Equation(name=name, left=many.body, right=alone.body, given=(*given, *where), divisors=divisors)


def _fitting(space: Space, place: Place | None, given: tuple[Order, ...]) -> Obligation:
    """Parts of different devices may be of different sizes, and then there is no result: a claim that nothing can prove."""
    name = "operands hold parts of the same devices"
    claim = Equation(name=name, left=space.unknown(()), right=ZERO, given=given, divisors=())
    return Obligation(name=name, condition=CONSISTENCY, place=place, claim=claim)


def _derived(alone: SymbolicRun, result: Returned, right: Poly, given: tuple[Order, ...]) -> Obligation:
    """On one device the gradient is the derivative."""
    options = dict(result.call.options)
    name = f"{result.name} on one device is the derivative of `{options['gradient_of']}` by `{options['by']}`"
    claim = Equation(name=name, left=result.value.body, right=right, given=given, divisors=tuple(dict.fromkeys(alone.local.divisors)))
    return Obligation(name=name, condition=GRADIENT, place=result.call.place, claim=claim)


# The derivative of a computation on one device.


class Adjoints:
    """The adjoints of everything that a value was computed from, each worked out once when it is asked for.

    The adjoint of a value needs those of its uses alone, so that what lies behind it is never touched.
    """

    def __init__(self, of: Value, seed: Poly) -> None:
        self.of = of
        self._order = _sources_first(of)
        self._uses: dict[int, list[tuple[Value, Edge]]] = {}
        for value in self._order:
            for edge in value.edges:
                self._uses.setdefault(id(edge.source), []).append((value, edge))
        self._known: dict[int, Poly] = {id(of): seed}

    def by(self, target: Value) -> Poly:
        """The sum over the elements of the value of the seed times their derivative by an element of ``target``."""
        leads: set[int] = set()
        for value in self._order:
            if value is target or any(id(e.source) in leads for e in value.edges):
                leads.add(id(value))
        for value in reversed(self._order):
            if id(value) in leads and id(value) not in self._known:
                adjoint = ZERO
                for user, edge in self._uses.get(id(value), ()):
                    adjoint = adjoint + edge.pull(self._known[id(user)])
                self._known[id(value)] = adjoint
        return self._known.get(id(target), ZERO)


def _sources_first(of: Value) -> list[Value]:
    """Every value that ``of`` was computed from, before what was computed from it."""
    order: list[Value] = []
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(of, False)]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((e.source, False) for e in value.edges)
    return order
