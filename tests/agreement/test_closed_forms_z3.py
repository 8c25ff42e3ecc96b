"""Z3 agrees that each printed form equals the unsimplified sum, for all admissible values."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import sympy

import placeproof
from placeproof.core.symbols import Domain, info, symbol
from placeproof.cost.closed import never_less
from placeproof.cost.step.host import asked
from placeproof.prove import Budget, Claim, Named, Proved, Refuted, Relation, Unknown, decide
from placeproof.strategies import names

COMPOSITIONS = [
    "zero1 * tp * pp",
    "zero3 * tp * sp * pp",
    "hsdp * tp * accumulate",
    "fsdp(reshard_after_forward=8) * pp",
    "zeropp * tp",
    "tp * zero_r * ddp",
    "zero_infinity * checkpoint",
    "zero1(64) * tp(8) * pp(16)",
    "zero3(bucket=unit, prefetch=true) * accumulate",
]


def hypotheses(*expressions: sympy.Expr) -> tuple[Named, ...]:
    found = []
    for one in sorted({s for e in expressions for s in e.free_symbols}, key=str):
        row = info(str(one))
        fact = Relation(sympy.Integer(row.domain.lower), "<" if row.domain is Domain.POSITIVE else "<=", one)
        found.append(Named(name=f"{one} {row.domain.value}", fact=fact))
    return tuple(found)


def equal(name: str, left: sympy.Expr, right: sympy.Expr) -> Claim:
    return Claim(name=name, goal=Relation(left, "==", right), given=hypotheses(left, right))


def pairs(subject: str) -> list[tuple[str, sympy.Expr, sympy.Expr]]:
    """(key, printed form, sum over the program as it was added up)."""
    d = placeproof.derive(subject, groups="tp" in subject)
    raw = {**d.costs.held, "activations": d.costs.activations, "model_states": d.costs.model_states()}
    raw |= {"transient": d.costs.transient, "peak": d.costs.peak(), "host": d.costs.host, "host_asked": asked(d.costs.host)}
    raw["host_transient"] = d.costs.host_transient
    assert raw.keys() == d.memory.keys()
    listed = [(key, d.memory[key], raw[key]) for key in raw]
    listed += [("sent", d.sent, d.messages.sent()), ("host link", d.host_link, d.messages.host_link())]
    return listed + [(axis, expr, d.messages.by_axis()[axis]) for axis, expr in d.by_axis.items()]


@pytest.mark.parametrize("subject", [*names(), *COMPOSITIONS])
def test_printed_form_equals_unsimplified_sum(subject: str) -> None:
    if subject in ("sp", "zero_r"):
        subject = f"tp * {subject}"
    for key, printed, raw in pairs(subject):
        verdict = decide(equal(f"{subject}: {key}", printed, raw))
        assert isinstance(verdict, Proved), f"{subject} {key}: {printed} against {raw}: {verdict}"


def test_a_wrong_form_is_refuted_with_a_witness() -> None:
    d = placeproof.derive("zero3")
    wrong = d.sent * 2
    verdict = decide(equal("doubled", wrong, d.messages.sent()))
    assert isinstance(verdict, Refuted)
    values = {sympy.Symbol(n): sympy.Rational(v.numerator, v.denominator) for n, v in verdict.witness}
    assert wrong.xreplace(values) != d.messages.sent().xreplace(values)


def test_a_minimum_is_refuted_where_it_is_not_its_first_argument() -> None:
    m, n = sympy.symbols("m N")
    assert isinstance(decide(equal("min", sympy.Min(m, n), m)), Refuted)
    assert isinstance(decide(equal("min", sympy.Min(m, n) + sympy.Max(m, n), m + n)), Proved)


def test_division_must_be_defined() -> None:
    x = sympy.Symbol("x")
    same = Relation(1 / x, "==", 1 / x)
    assert isinstance(decide(Claim(name="1/x", goal=same)), Unknown)
    positive = (Named(name="x > 0", fact=Relation(sympy.Integer(0), "<", x)),)
    assert isinstance(decide(Claim(name="1/x", goal=same, given=positive)), Proved)
    forgotten = Relation(x / x, "==", sympy.Integer(1), (x,))
    assert isinstance(decide(Claim(name="x/x", goal=forgotten)), Unknown)
    assert isinstance(decide(Claim(name="x/x", goal=forgotten, given=positive)), Proved)


def test_contradictory_hypotheses_prove_nothing() -> None:
    x = sympy.Symbol("x")
    both = (Named(name="small", fact=Relation(x, "<", sympy.Integer(0))), Named(name="large", fact=Relation(sympy.Integer(1), "<", x)))
    assert isinstance(decide(Claim(name="x = 2", goal=Relation(x, "==", sympy.Integer(2)), given=both)), Unknown)


def test_only_the_kernel_makes_a_verdict() -> None:
    n = sympy.Symbol("N")
    with pytest.raises(TypeError, match="only the kernel"):
        Proved(equal("n", n, n), object(), "me")


def test_no_time_is_no_proof() -> None:
    x, y, z = sympy.symbols("x y z")
    above = Named(name="x", fact=Relation(sympy.Integer(1), "<", x))
    hard = Claim(name="hard", goal=Relation(x**9 + y**9, "<", z**9), given=(above,))
    assert not isinstance(decide(hard, Budget(milliseconds=1)), Proved)


@pytest.mark.parametrize(
    ("more", "less", "said"),
    [
        ("P", "P_norm", True),
        ("P", "P_norm + P_expert", True),
        ("A", "A_seq + A_expert", True),
        ("P", "U", True),
        ("P", "U + U_root", False),
        ("P", "2*P_norm", False),
        ("P*N", "P", True),
    ],
)
def test_one_form_is_never_less_than_another_for_parts_that_do_not_overlap(more: str, less: str, said: bool) -> None:
    known = {name: symbol(name) for name in ("A", "A_expert", "A_seq", "N", "P", "P_expert", "P_norm", "U", "U_root")}
    assert never_less(sympy.sympify(more, locals=known), sympy.sympify(less, locals=known)) is said


def test_a_closed_form_does_not_depend_on_the_hash_seed() -> None:
    subject = "zero1(back=broadcast) * tp * sp * cp * ep * pp"
    command = [sys.executable, "-m", "placeproof", "derive", subject, "--groups", "--json"]
    told = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, check=True).stdout for seed in (7, 8)
    }
    assert len(told) == 1
