"""Rules of well-formedness about the numbers that a program says: exponents, divisors, what is in flight, limits."""

from __future__ import annotations

from fractions import Fraction

from placeproof.core.bounds import MOST_EXPONENT
from placeproof.core.diagnostics import Problems
from placeproof.programs.ir import Binary, Call, Expr, For, Program, constant, evaluated, own_expressions, statements


def check_powers(program: Program, problems: Problems) -> None:
    """Exponents are numbers, and small."""

    def degree(expr: Expr) -> Fraction:
        """How high the powers of an expression are, those of one another multiplied."""
        if isinstance(expr, Call):
            return max((degree(a) for a in expr.args), default=Fraction(1))
        if not isinstance(expr, Binary):
            return Fraction(1)
        inner = degree(expr.left)
        if expr.op != "**":
            return max(inner, degree(expr.right))
        power = constant(expr.right)
        highest = None if power is None else inner * max(abs(power), Fraction(1))
        if highest is None or highest > MOST_EXPONENT:
            problems.add(
                "PP303", f"an exponent is a number, and at most {MOST_EXPONENT}", place=expr.place, help="multiply, or divide, instead"
            )
        return Fraction(1) if highest is None else highest

    for stmt in statements(program.body):
        for own in own_expressions(stmt):
            degree(own)
    for group in program.groups:
        degree(group.size)


def check_divisors(program: Program, problems: Problems) -> None:
    """Nothing is divided by a number that is zero."""
    for expr in (e for s in statements(program.body) for e in evaluated(s)):
        if isinstance(expr, Binary) and expr.op == "/" and constant(expr.right) == 0:
            problems.add("PP303", "this divides by zero", place=expr.place, help="divide by something else")


def check_in_flight(program: Program, problems: Problems) -> None:
    """A loop's micro-batches in flight are one at least, where they are a number."""
    for loop in (s for s in statements(program.body) if isinstance(s, For) and s.in_flight is not None):
        number = constant(loop.in_flight) if loop.in_flight is not None else None
        if number is not None and number < 1:
            message = f"{number} micro-batches cannot be in flight: a device has one at least"
            problems.add("PP303", message, place=loop.place, help="for example `in_flight=min(microbatches, pp)`")


def check_limit(program: Program, problems: Problems) -> None:
    """The reference clips to the limit that the program names."""
    if dict(program.reference).get("clip") != "global_norm":
        return
    named = [c for c in program.calls if c.op == "clip_factor"]
    for call in named:
        limit = constant(call.args[1]) if len(call.args) > 1 else None
        if len(call.args) > 1 and (limit is None or limit <= 0):
            problems.add("PP304", "the limit of `clip_factor` is no positive number", place=call.place, help="write it as a number")
        elif len(call.args) > 1 and limit != program.clip_limit:
            problems.add("PP304", "two limits are named, and the reference clips to one", place=call.place, help="name one limit")
