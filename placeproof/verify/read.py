"""A certificate's terms, read from data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .terms import ONE, Poly, RejectedError, Terms, atom, ordered, plus


class Reader:
    """The terms of a certificate, each worked out when it is first needed."""

    def __init__(self, lines: list[Any], terms: Terms) -> None:
        self.lines, self.terms = lines, terms
        self.done: dict[int, Poly] = {}

    def index(self, x: Any) -> Any:
        """An index as data."""
        kind, name, *rest = x
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
            return self.terms.function(over, body)
        raise RejectedError(f"{x} is no argument")

    def term(self, number: Any) -> Poly:
        """The term of a line."""
        if type(number) is not int or not 0 <= number < len(self.lines):
            raise RejectedError(f"there is no term {number}")
        if number not in self.done:
            self.done[number] = self._read(number, *self.lines[number])
        return self.done[number]

    def _read(self, number: int, kind: str, *parts: Any) -> Poly:
        terms = self.terms
        below = [self.term(p) if type(p) is int and (kind != "power" or k == 0) else p for k, p in enumerate(parts)]
        match kind, below:
            case "number", [str(text)]:
                return {m: c * Fraction(text) for m, c in ONE.items() if Fraction(text)}
            case "symbol", [str(name)]:
                return atom(("symbol", name))
            case "apply", [str(name), args]:
                return terms.apply(name, [self.term(a) if type(a) is int else self.argument(a) for a in args])
            case "plus", _:
                return plus(*below)
            case "times", _:
                return terms.times(*below)
            case "power", [dict(poly), int(n)]:
                return terms.power(poly, n)
            case "equal", [a, b]:
                return terms.same(self.index(a), self.index(b))
            case "sum", [over, dict(body)]:
                return terms.sum(self.variables(over), body)
            case "the sum", [over, dict(body)]:
                return atom(terms.the_sum(self.variables(over), terms.alone(body)))
            case "max", [over, guards, dict(body)]:
                return terms.max(list(self.variables(over)), tuple((self.index(a), self.index(b)) for a, b in guards), body)
            case "let", [pairs, dict(body)]:
                return self._let([(self.index(v), self.index(i)) for v, i in pairs], body)
            case "move", [old, new, dict(body)]:
                return terms.moved(body, self.index(old), self.index(new))
            case "given", [guard, bool(holds), dict(body)]:
                return terms.given(body, ordered((tuple(map(self.index, guard)),), {})[0], holds)
        raise RejectedError(f"term {number} cannot be read")

    def _let(self, pairs: list[tuple[Any, Any]], body: Poly) -> Poly:
        """All variables are replaced at once."""
        held = [(v, ("var", f"~~{next(self.terms._fresh)}", v[2]), new) for v, new in pairs]
        for old, between, _ in held:
            body = self.terms.moved(body, old, between)
        for _, between, new in held:
            body = self.terms.moved(body, between, new)
        return body
