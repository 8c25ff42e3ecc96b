"""The derivative of a computation on one device: adjoints passed back along what each value was computed from."""

from __future__ import annotations

from placeproof.prove.terms import ZERO, Poly
from placeproof.semantics.tensors.values import Edge, Value


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
