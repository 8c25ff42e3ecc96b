"""Lowering arithmetic claims to Z3: rational functions, minima and maxima over the reals."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import sympy
import z3

from placeproof.prove.solvers.answer import Answer, Sat, Silent, Unsat

if TYPE_CHECKING:
    from placeproof.prove.kernel import Claim

NAME: str = f"z3 {z3.get_version_string()}"


def obligations(claim: Claim) -> Iterator[tuple[str, Any]]:
    """The negations to refute: first that a denominator is zero, then that the claim fails.

    With the denominators known to differ from zero, an equation is multiplied out by them before it is asked.
    """
    denominators = _denominators(claim.left) | _denominators(claim.right)
    if denominators:
        yield "definedness", z3.Or(*(_term(d) == 0 for d in sorted(denominators, key=str)))
    if claim.relation == "==" and not (claim.left - claim.right).has(sympy.Max, sympy.Min):
        numerator = sympy.fraction(sympy.together(claim.left - claim.right))[0]
        yield "claim", _term(numerator) != 0
        return
    left, right = _term(claim.left), _term(claim.right)
    yield "claim", {"==": left != right, "<=": left > right, "<": left >= right}[claim.relation]


def ask(claim: Claim, negation: Any, milliseconds: int) -> Answer:
    """Whether the hypotheses and the negation (None: the hypotheses alone) have a model."""
    solver: Any = z3.Solver()
    solver.set("timeout", milliseconds)
    for hypothesis in claim.hypotheses:
        solver.add(_relation(hypothesis.relation))
    if negation is not None:
        solver.add(negation)
    result = solver.check()
    if result == z3.unsat:
        return Unsat()
    if result != z3.sat:
        return Silent()
    model = solver.model()
    names = sorted({str(s) for e in (claim.left, claim.right, *(h.relation for h in claim.hypotheses)) for s in e.free_symbols})
    values = [(name, _rational(model.eval(z3.Real(name), model_completion=True))) for name in names]
    if any(value is None for _, value in values):
        return Silent()
    return Sat(tuple((name, value) for name, value in values if value is not None))


def _rational(value: Any) -> Fraction | None:
    if not z3.is_rational_value(value):
        return None
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


def _denominators(expr: sympy.Expr) -> set[sympy.Expr]:
    return {p.base for p in expr.atoms(sympy.Pow) if p.exp.is_negative}


def _relation(relation: Any) -> Any:
    left, right = _term(relation.lhs), _term(relation.rhs)
    kinds = {
        sympy.Eq: lambda: left == right,
        sympy.Ne: lambda: left != right,
        sympy.Ge: lambda: left >= right,
        sympy.Gt: lambda: left > right,
        sympy.Le: lambda: left <= right,
        sympy.Lt: lambda: left < right,
    }
    for kind, make in kinds.items():
        if isinstance(relation, kind):
            return make()
    raise ValueError(f"not an arithmetic relation: {relation}")


def _term(expr: sympy.Expr) -> Any:
    if expr.is_Symbol:
        return z3.Real(str(expr))
    if expr.is_Rational:
        return z3.Q(int(expr.p), int(expr.q))
    if expr.is_Add:
        return z3.Sum(*(_term(a) for a in expr.args))
    if expr.is_Mul:
        return z3.Product(*(_term(a) for a in expr.args))
    if expr.is_Pow and expr.exp.is_Integer:
        base = _term(expr.base)
        power = z3.Product(*([base] * abs(int(expr.exp))))
        return power if expr.exp.is_positive else z3.Q(1, 1) / power
    if isinstance(expr, sympy.Max | sympy.Min):
        return _extremum(expr)
    raise ValueError(f"outside arithmetic: {expr}")


def _extremum(expr: sympy.Expr) -> Any:
    first, *rest = (_term(a) for a in expr.args)
    for other in rest:
        first = z3.If(first >= other, first, other) if isinstance(expr, sympy.Max) else z3.If(first <= other, first, other)
    return first
