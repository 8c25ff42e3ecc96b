"""A certificate's terms, read from data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .terms import ONE, Poly, RejectedError, Terms, atom, frozen, plus, scaled


class Reader:
    """The terms of a certificate, each worked out when it is first needed."""

    def __init__(self, lines: list[Any], terms: Terms) -> None:
        self.lines, self.terms = lines, terms
        self.done: dict[int, Poly] = {}
        self.needs: dict[int, set[int]] = {}  # the steps that each rests on

    def index(self, x: Any) -> Any:
        """An index as data."""
        kind, name, *rest = x
        if type(name) is not str:
            raise RejectedError(f"{x} is no index")
        if kind == "var" and len(rest) == 1 and rest[0] in self.terms.sorts and not name.startswith(("#", "?", "~~")):
            return ("var", name, rest[0])
        if kind == "of" and len(rest) == 2 and rest[1] in self.terms.sorts:
            single = self.terms.sorts[rest[1]] == 1
            return self.terms.only(rest[1]) if single else ("of", name, tuple(self.index(a) for a in rest[0]), rest[1])
        raise RejectedError(f"{x} is no index")

    def variables(self, found: Any) -> tuple[Any, ...]:
        """Variables that are bound, each once."""
        read = tuple(self.index(v) for v in found)
        if any(v[0] != "var" for v in read) or len(set(read)) != len(read):
            raise RejectedError(f"{found} are no variables")
        return read

    def argument(self, x: Any) -> Any:
        """What a function is applied to."""
        if x[0] == "index":
            return ("index", self.index(x[1]))
        if x[0] == "function":
            over, body = self.variables(x[1]), self.term(x[2])
            for v in over:
                body = self.terms.moved(body, v, self.terms.only(v[2])) if self.terms.sorts[v[2]] == 1 else body
            return self.terms.function(over, frozen(body))
        raise RejectedError(f"{x} is no argument")

    def term(self, number: Any) -> Poly:
        """The term of a line."""
        if type(number) is not int or not 0 <= number < len(self.lines):
            raise RejectedError(f"there is no term {number}")
        if number not in self.done:
            used, self.terms.used = self.terms.used, set()
            self.done[number] = self._read(*self.lines[number])
            self.needs[number], self.terms.used = self.terms.used, used
        self.terms.used |= self.needs[number]
        return self.done[number]

    def _read(self, kind: str, *parts: Any) -> Poly:
        terms = self.terms
        match kind, parts:
            case "number", [str(text)]:
                return scaled(ONE, Fraction(text))
            case "symbol", [str(name)]:
                return atom(("symbol", name))
            case "apply", [str(name), list(args)]:
                return terms.apply(name, [self.term(a) if type(a) is int else self.argument(a) for a in args])
            case "plus", _:
                return plus(*map(self.term, parts))
            case "times", _:
                return terms.times(*map(self.term, parts))
            case "power", [line, n] if type(n) is int:
                return terms.power(self.term(line), n)
            case "equal", [a, b]:
                return terms.same(self.index(a), self.index(b))
            case "sum", [over, line]:
                return terms.sum(self.variables(over), self.term(line))
            case "the sum", [over, line]:
                return atom(terms.the_sum(self.variables(over), terms.alone(self.term(line))))
            case "max", [over, guards, line]:
                return terms.max(list(self.variables(over)), tuple((self.index(a), self.index(b)) for a, b in guards), self.term(line))
            case "let", [pairs, line]:
                old = self.variables([v for v, _ in pairs])
                return self._let(list(zip(old, [self.index(i) for _, i in pairs], strict=True)), self.term(line))
        raise RejectedError("a term cannot be read")

    def inverted(self, line: int, seen: set[int]) -> set[int]:
        """The lines that a term divides by, and those that it speaks of."""
        if line in seen:
            return set()
        seen.add(line)
        kind, *parts = self.lines[line]
        if kind == "power":
            return ({parts[0]} if parts[1] < 0 else set()) | self.inverted(parts[0], seen)
        below = [p for p in parts if type(p) is int]
        if kind == "apply":
            below = [a if type(a) is int else a[2] for a in parts[1] if type(a) is int or a[0] == "function"]
        return {one for p in below for one in self.inverted(p, seen)}

    def _let(self, pairs: list[tuple[Any, Any]], body: Poly) -> Poly:
        """All variables are replaced at once."""
        held = [(v, ("var", f"~~{next(self.terms.fresh)}", v[2]), new) for v, new in pairs]
        for old, between, _ in held:
            body = self.terms.moved(body, old, between)
        for _, between, new in held:
            body = self.terms.moved(body, between, new)
        return body
