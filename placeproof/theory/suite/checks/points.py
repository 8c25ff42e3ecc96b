"""Random exact points at which statements are evaluated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placeproof.prove import Claim, Definition, Relation
from placeproof.prove.exact import Point, Table, UndefinedError, drawn
from placeproof.theory.domains import Domain
from placeproof.theory.language import periods
from placeproof.theory.statements import ByInduction, Holds
from placeproof.theory.suite.checks.claims import claims, known_definitions
from placeproof.theory.theorem import Theorem

#: The largest integers that are drawn where functions are evaluated by recursion.
SMALL = 7


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws points for a theorem's statement. ``without``: the name of a hypothesis that has to be violated."""

    theorem: Theorem
    statement: Holds | ByInduction
    without: str | None = None

    def points(self, seed: int, tries: int) -> Iterator[tuple[dict[str, Fraction], Table]]:
        """Values of all parameters that satisfy the hypotheses (but the one left out, which they violate), with functions."""
        source = random.Random(f"{self.theorem.id}:{self.without}:{seed}")
        claim = claims(self.theorem, self.statement)[0]
        relations = [n.fact for n in claim.given if isinstance(n.fact, Relation) and n.name != self.without]
        violated = [n.fact for n in claim.given if n.name == self.without]
        definitions = known_definitions(self.statement)
        small = bool(self.statement_functions())
        for _ in range(tries):
            values = {name: self._draw(name, domain, source, small) for name, domain in self.theorem.domains.items()}
            self._repair(values, relations, definitions, source)
            table = self._table(source.randrange(1 << 30), values)
            point = Point(values, definitions, table)
            try:
                if not all(d.has(values[n], bounded=not self._free(n)) for n, d in self.theorem.domains.items()):
                    continue
                if all(point.holds(r) for r in relations) and not any(point.holds(f) for f in violated):
                    yield values, table
            except UndefinedError:
                continue

    def statement_functions(self) -> object:
        """The functions that the statement speaks of."""
        return self.statement.what.functions()

    def _free(self, name: str) -> bool:
        return self.without is not None and self.without == self.theorem.domains[name].bound(name)

    def _draw(self, name: str, domain: Domain, source: random.Random, small: bool) -> Fraction:
        value = domain.draw(source, bounded=not self._free(name))
        if small and abs(value) > SMALL:
            return Fraction(int(value) % SMALL) + (domain.least or 0) if domain.integer else value % SMALL + (domain.least or 0) + 1
        return value

    def _repair(
        self, values: dict[str, Fraction], relations: list[Relation], definitions: tuple[Definition, ...], source: random.Random
    ) -> None:
        """Where a bound between symbols is missed, move the symbol that stands alone on one side."""
        for _ in range(2):
            for relation in relations:
                point = Point(values, definitions, drawn(0))
                try:
                    if point.holds(relation):
                        continue
                    left, right = point.sides(relation)
                except UndefinedError:
                    continue
                step = Fraction(source.randint(0, 3)) + (1 if relation.op in ("<", "!=") else 0) if relation.op != "==" else Fraction(0)
                if relation.right.is_Symbol and (relation.op != "==" or not relation.left.is_Symbol):
                    values[str(relation.right)] = left + step
                elif relation.left.is_Symbol:
                    values[str(relation.left)] = right - step

    def _table(self, seed: int, values: Mapping[str, Fraction]) -> Table:
        repeat = {name: values[p] for name, p in periods(self.statement.what.functions()).items() if p in values and self._keeps(name)}
        plain = drawn(seed)

        def at(name: str, args: tuple[Fraction, ...]) -> Fraction:
            if name in repeat and repeat[name] > 0:
                args = (args[0] % repeat[name], *args[1:])
            return plain(name, args)

        return at

    def _keeps(self, function: str) -> bool:
        """Whether functions still repeat: not where the hypothesis that says so is left out."""
        return self.without is None or f"{function}(" not in self.without


def fails(claims_: tuple[Claim, ...], values: Mapping[str, Fraction], table: Table | None) -> str | None:
    """What goes wrong at a point that satisfies the hypotheses: a goal that is false or not defined; None if nothing does."""
    for claim in claims_:
        try:
            if not Point(values, claim.definitions, table).holds(claim.goal):
                return f"{claim.goal} is false"
        except UndefinedError as error:
            return f"{claim.goal} is not defined: {error}"
    return None


def shown(values: Mapping[str, Fraction]) -> str:
    """A point in words."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())
