"""Lowering arithmetic claims to SMT-LIB 2, the one text that every solver is asked.

Symbols are reals, functions are uninterpreted. Of a function that is defined by recursion, the solver is told its definition at the
arguments at which the claim applies it, and at those that this brings up. Fractions are cleared before a solver sees them: what they
are divided by is asked first, on its own.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from placeproof.prove.claims import Query
from placeproof.prove.relations import Cases, Claim, Fact, Implication, Relation, applied
from placeproof.prove.smtlib import Script, joined, number

if TYPE_CHECKING:
    import sympy

#: How often definitions are unfolded: once for what the claim applies, once more for what that brings up; and a few times more
#: where an application is at a known distance from the start.
ROUNDS = 2
MORE = 6
#: Functions of SymPy, by their names: how the one of two that is chosen compares with the other, and what others are.
_ORDERS = {"Max": ">=", "Min": "<="}
_FUNCTIONS = {
    "KroneckerDelta": "(ite (= {0} {1}) 1.0 0.0)",
    "floor": "(to_real (to_int {0}))",
    "ceiling": "(- (to_real (to_int (- {0}))))",
    "sign": "(ite (> {0} 0.0) 1.0 (ite (< {0} 0.0) (- 1.0) 0.0))",
    "Abs": "(ite (>= {0} 0.0) {0} (- {0}))",
}
#: Those that round: integers, whatever they round.
ROUNDED = ("floor", "ceiling")


def outside(expr: sympy.Expr) -> sympy.Expr | None:
    """The first part of an expression that arithmetic cannot say; None if there is none."""
    import sympy
    from sympy.core.function import AppliedUndef

    def said(part: sympy.Expr) -> bool:
        named = isinstance(part, AppliedUndef) or part.func.__name__ in (*_ORDERS, *_FUNCTIONS)
        return part.is_Symbol or part.is_Rational or part.is_Add or part.is_Mul or (part.is_Pow and part.exp.is_Integer) or named

    return next((part for part in sympy.preorder_traversal(expr) if not said(part)), None)


@lru_cache(maxsize=1024)
def queries(claim: Claim) -> tuple[Query, ...]:
    """The questions that together decide a claim: hypotheses satisfiable, no division by zero, no counterexample."""
    script = _Script(claim)
    asked = [script.query(f"{claim.name}: the hypotheses do not contradict each other", "sat")]
    if by := script.zeros(claim.goal):
        asked.append(script.undefined(claim.name, by))
    return (*asked, script.query(claim.name, "unsat", f"(not {script.goal(claim.goal)})", f"the negation of {claim.goal}"))


class _Script(Script):
    """The hypotheses, and what the definitions say."""

    def __init__(self, claim: Claim) -> None:
        super().__init__()
        self.guarded: list[tuple[str, sympy.Expr]] = []
        self.whole: dict[str, str] = {}
        for name in claim.integers:
            real = self.declare(name, [])
            if rounds(claim):  # what is rounded is divided as integers are
                self.whole[name] = self.declare(f"{name} as an integer", [], "Int")
                self.claim_that(f"(= {real} (to_real {self.whole[name]}))", f"{name} is an integer")
            else:
                self.claim_that(f"(is_int {real})", f"{name} is an integer")
        for named in claim.given:
            self.claim_that(self.fact(named.fact), named.name)
        self._unfold(claim)

    def _unfold(self, claim: Claim) -> None:
        definitions = {d.name: d for d in claim.definitions}
        done: set[sympy.Expr] = set()
        fresh = {c for r in claim.relations() for e in (r.left, r.right, *r.divisors) for c in applied(e)}
        for turn in range(ROUNDS + MORE):
            known = sorted((c for c in fresh - done if c.func.__name__ in definitions), key=str)
            if turn >= ROUNDS:
                known = [c for c in known if definitions[c.func.__name__].distance(c).is_Integer]
            done |= fresh
            fresh = set()
            for call in known:
                for where, value, divisors in definitions[call.func.__name__].instances(call):
                    if _false(where):
                        continue
                    meant = Relation(call, "==", value, divisors)
                    condition, by = self.relation(where), [d for d in meant.all_divisors() if not d.is_Number]
                    self.guarded += [(condition, d) for d in by]
                    defined = [condition, *(f"(not (= {self.term(d)} 0.0))" for d in by)]  # of what does not exist nothing is said
                    self.claim_that(f"(=> {joined('and', defined)} {self.relation(meant)})", f"{call} by its definition")
                    fresh |= set(applied(value))

    def zeros(self, goal: Relation | Cases) -> list[str]:
        """The ways in which a division is undefined; a case claims of what it divides by that it is not zero."""
        plain = [] if isinstance(goal, Cases) else [f"(= {self.term(d)} 0.0)" for d in goal.all_divisors()]
        return plain + [f"(and {condition} (= {self.term(d)} 0.0))" for condition, d in self.guarded]

    # Formulas.

    def goal(self, goal: Relation | Cases) -> str:
        return joined("and", map(self.fact, goal.of)) if isinstance(goal, Cases) else self.relation(goal)

    def fact(self, fact: Fact) -> str:
        if isinstance(fact, Implication):
            then = joined("and", map(self._defined, fact.then))
            return f"(=> {joined('and', map(self._defined, fact.given))} {then})" if fact.given else then
        return self._defined(fact)

    def _defined(self, relation: Relation) -> str:
        """What holds is defined as well."""
        return joined("and", [*(f"(not (= {self.term(d)} 0.0))" for d in relation.all_divisors()), self.relation(relation)])

    def relation(self, relation: Relation) -> str:
        """A relation with its fractions cleared, as it is where nothing that is divided by is zero."""
        import sympy

        difference = relation.right - relation.left
        divides = any(p.exp.is_negative for p in difference.atoms(sympy.Pow))
        above, below = sympy.fraction(sympy.together(difference)) if divides else (difference, sympy.Integer(1))
        if relation.op in ("==", "!="):
            equal = f"(= {self.term(above)} 0.0)"
            return equal if relation.op == "==" else f"(not {equal})"
        if not below.is_Number:
            constant, powers = sympy.factor_list(below)
            below = sympy.sign(constant) * sympy.Mul(*(base for base, exponent in powers if exponent % 2))
        return f"({'>=' if relation.op == '<=' else '>'} {self.term(above * below)} 0.0)"

    def term(self, expr: sympy.Expr) -> str:
        """An expression as a term. Raises ValueError for what arithmetic cannot say."""
        if expr.is_Symbol:
            return self.declare(str(expr), [])
        if expr.is_Rational:
            return number(Fraction(int(expr.p), int(expr.q)))
        if expr.is_Add or expr.is_Mul:
            return f"({'+' if expr.is_Add else '*'} {' '.join(self.term(a) for a in expr.args)})"
        if expr.is_Pow and expr.exp.is_Integer:
            base = self.term(expr.base)
            size = abs(int(expr.exp))
            power = base if size == 1 else f"(* {' '.join([base] * size)})"
            return power if expr.exp.is_positive else f"(/ 1.0 {power})"
        return self._function(expr)

    def _function(self, expr: sympy.Expr) -> str:
        from sympy.core.function import AppliedUndef

        name = expr.func.__name__
        if isinstance(expr, AppliedUndef):
            declared = self.declare(name, ["Real"] * len(expr.args))
            return f"({declared} {' '.join(self.term(a) for a in expr.args)})"
        if name in _ORDERS:
            return reduce(lambda a, b: f"(ite ({_ORDERS[name]} {a} {b}) {a} {b})", sorted(self.term(a) for a in expr.args))
        if name not in _FUNCTIONS:
            raise ValueError(f"outside arithmetic: {expr}")
        if name in ROUNDED and self.whole:
            return f"(to_real {self.integer(expr)})"
        return _FUNCTIONS[name].format(*(self.term(a) for a in expr.args[:2]))

    def integer(self, expr: sympy.Expr) -> str | None:
        """An expression as a term of integers; None if it is none for its form."""
        if expr.is_Symbol:
            return self.whole.get(str(expr))
        if expr.is_Integer:
            return str(expr) if expr >= 0 else f"(- {-expr})"
        if expr.func.__name__ in ROUNDED:
            return self._rounded(expr.args[0]) if expr.func.__name__ == "floor" else f"(- {self._rounded(-expr.args[0])})"
        if expr.is_Pow and expr.exp.is_Integer and expr.exp.is_positive:
            parts = [self.integer(expr.base)] * int(expr.exp)
        else:
            parts = [self.integer(a) for a in expr.args] if expr.is_Add or expr.is_Mul else [None]
        known = [p for p in parts if p is not None]
        return f"({'+' if expr.is_Add else '*'} {' '.join(known)})" if len(known) == len(parts) else None

    def _rounded(self, expr: sympy.Expr) -> str:
        """The greatest integer that is not above: of a quotient of integers by their division, which rounds down where it divides by more
        than zero."""
        import sympy

        above, below = sympy.fraction(sympy.together(expr))
        top, bottom = self.integer(above), self.integer(below)
        if top is None or bottom is None:
            return f"(to_int {self.term(expr)})"
        if below.is_Integer:
            return f"(div {top} {bottom})"
        return f"(ite (> {bottom} 0) (div {top} {bottom}) (div (- {top}) (- {bottom})))"


def rounds(claim: Claim) -> bool:
    """Whether a claim, or a definition that it speaks of, rounds something."""
    import sympy

    said = [e for r in claim.relations() for e in (r.left, r.right, *r.divisors)]
    said += [e for d in claim.definitions for e in (d.base, d.step)]
    return any(e.has(sympy.floor, sympy.ceiling) for e in said)


def _false(relation: Relation) -> bool:
    """Whether a relation between numbers does not hold."""
    if not (relation.left.is_Rational and relation.right.is_Rational):
        return False
    return bool(relation.left != relation.right) if relation.op == "==" else bool(relation.left > relation.right)
