"""The theorem language and its checks: each check passes what is right, and fails what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from placeproof.collectives.algorithms import ALGORITHMS, Algorithm
from placeproof.collectives.rounds import Send
from placeproof.core.diagnostics import InputError
from placeproof.prove import (
    Claim,
    Definition,
    Induction,
    Named,
    Proved,
    Refuted,
    Relation,
    Unknown,
    certify,
    decide,
    induct,
    kernel,
    refute,
)
from placeproof.prove.certificate import Certificate, checked, find
from placeproof.prove.exact import Point, UndefinedError, drawn
from placeproof.prove.solvers.scripts import SOLVERS
from placeproof.schedules import Timetable
from placeproof.semantics.judge.conditions import answered
from placeproof.semantics.judge.confirm import DisagreementError
from placeproof.semantics.judge.linewise import Differs
from placeproof.theory import (
    GB,
    Degree,
    GiB,
    Integer,
    Natural,
    NonNegative,
    Positive,
    Real,
    StatementError,
    absolute,
    algorithm,
    by_induction,
    ceiling,
    chain,
    collective,
    crossover,
    data,
    derived,
    edited,
    floor,
    holds,
    indicator,
    keeps,
    maximum,
    minimum,
    operations,
    recursive,
    rounded,
    schedule,
    sign,
    theorem,
    trains,
    units,
    values_of,
    without_call,
)
from placeproof.theory import Proved as Expected
from placeproof.theory import Refuted as ExpectedRefuted
from placeproof.theory.domains import Domain
from placeproof.theory.language import Term, term
from placeproof.theory.statements import read_subject
from placeproof.theory.suite.check import check
from placeproof.theory.suite.checks.claims import hypotheses
from placeproof.theory.suite.load import Loaded, _module
from placeproof.theory.suite.outcome import Outcome, from_data
from placeproof.theory.theorem import Open, Theorem
from placeproof.theory.units import plain

SOURCE = "rajbhandari2020zero"
SIZE, TIME = Positive["byte"], Positive["second"]
x, y, n = sympy.symbols("x y n")


def declared(function: Callable[..., Any], expect: Any = None, **options: Any) -> Theorem:
    function.__doc__ = function.__doc__ or "Says something."
    found: Theorem = theorem(expect=expect or Expected(), cite=SOURCE, **options)(function)
    assert not found.problems
    return found


def failed(outcome: Outcome) -> dict[str, str]:
    return {c.name: c.detail for c in outcome.failures()}


def above(n: Degree):  # type: ignore[no-untyped-def,valid-type]
    """A degree is at most its cube."""
    return n <= n * n * n


def with_control(found: Theorem) -> Theorem:
    return found.control("strict", lambda n: n < n * n * n, refuted_at={"n": 1})


# Terms remember.


def test_a_division_that_sympy_forgets_is_asked_about() -> None:
    def one(x: Real):  # type: ignore[no-untyped-def,valid-type]
        return x / x == 1

    found = check(declared(one))
    assert found.verdict == "unknown"
    assert "denominator" in failed(found)["verdict"]

    def on_positive(x: Positive):  # type: ignore[no-untyped-def,valid-type]
        return x / x == 1 + 0 * x, x > x / 2

    good = declared(on_positive).control("zero", lambda x: x / x == 2, refuted_at={"x": 1})
    assert "divisions defined" not in failed(check(good))
    assert check(good).verdict == "proved"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: 1 <= n <= 4, "not a truth value"),
        (lambda n: (n if n else 1) == 1, "no truth value"),
        (lambda n: n * 0.5 == 1, "no exact number"),
        (lambda n: n**n == 1, "whole number"),
        (lambda n: n / 0 == 1, "divided by zero"),
        (lambda n: n + "a" == 1, "no term"),
        (lambda n: 7, "return a relation"),
        (lambda n: holds(), "states nothing"),
        (lambda n: derived("ddp").sent == n, "is no parameter of it"),
        (lambda n: by_induction(n == 1, on=3), "over a parameter"),
        (lambda n: n < term(sympy.exp(n.expr)), "outside arithmetic"),
        (lambda n: n < term(sympy.oo), "outside arithmetic"),
        (lambda n: chain("=", n, n), "a chain needs"),
        (lambda n: data("f", 2)(n) == 1, "takes 2 arguments"),
        (lambda n: derived("ddp").memory("all") == n, "there is no `all`"),
        (lambda n: trains("ddp", assuming=["luck"]), "no assumption"),
        (lambda n: trains(3), "neither a strategy"),
        (lambda n: trains("steps/ours.step"), r'Path\("steps/ours.step"\).read_text\(\)'),
        (lambda n: trains(__file__), "is a file, and a statement takes its text"),
        (lambda n: trains(without_call("ddp", "all_gather")), "has 0 `all_gather`"),
        (lambda n: trains(edited("ddp", "nothing there", "x")), "occurs 0 times"),
        (lambda n: keeps("ddp", "luck"), "no condition; these are: gradient integrity"),
        (lambda n: keeps("ddp", "step invariant", given=["luck"]), "no condition"),
        (lambda n: keeps("ddp", given=["step invariant"]), "name a condition"),
        (lambda n: keeps("ddp", "step invariant", assuming=["luck"]), "no assumption"),
        (lambda n: keeps(["ddp", "mlp"], "step invariant"), "`mlp` is a block"),
        (lambda n: keeps([], "step invariant"), "neither a strategy"),
        (lambda k: k == 1, "no parameter"),
    ],
)
def test_what_cannot_be_understood_says_what_to_write(make: Callable[..., Any], message: str) -> None:
    found = declared(above)
    with pytest.raises(StatementError, match=message):
        found.elaborate(make)


def test_a_strategy_that_cannot_be_read_is_an_input_error() -> None:
    with pytest.raises(InputError):
        declared(above).elaborate(lambda n: trains("zero9"))


# The checks fail what they are there for.


def test_what_stands_passes_every_check() -> None:
    found = check(with_control(declared(above)))
    assert found.standing == "proved"
    assert {c.name for c in found.checks} >= {
        "verdict", "hypotheses satisfiable", "needed", "not trivial", "divisions defined", "exact arithmetic", "second solver",
        "dimensions", "controls",
    }  # fmt: skip
    assert found.used == ("n >= 1",)
    assert found.evidence == "certificate"
    assert found.opinion == "agree"


def test_without_a_control_it_does_not_stand() -> None:
    assert "add a changed form" in failed(check(declared(above)))["controls"]


def test_a_control_that_does_not_fail_there() -> None:
    found = declared(above).control("strict", lambda n: n < n * n, refuted_at={"n": 2})
    assert "should fail" in failed(check(found))["strict"]
    outside = declared(above).control("strict", lambda n: n < n * n, refuted_at={"n": Fraction(1, 2)})
    assert "outside its domain" in failed(check(outside))["strict"]


def test_contradictory_hypotheses_are_found() -> None:
    def nothing(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return holds(n > 3, given=[n < 1])

    found = check(declared(nothing).control("c", lambda n: n > 3, refuted_at={"n": 1}))
    assert found.verdict == "unknown"
    assert "hypotheses satisfiable" in failed(found)


def test_an_unused_hypothesis_is_found() -> None:
    def square(n: Degree, k: Positive):  # type: ignore[no-untyped-def,valid-type]
        return holds(n <= n * n * n, given=[k <= 5])

    detail = failed(check(declared(square).control("c", lambda n: n < n * n, refuted_at={"n": 1})))["needed"]
    assert "k > 0" in detail
    assert "k <= 5" in detail
    assert "n >= 1" not in detail


def test_a_triviality_is_found() -> None:
    def same(n: Integer):  # type: ignore[no-untyped-def,valid-type]
        return n + n == 2 * n

    assert "both sides are the same" in failed(check(declared(same)))["not trivial"]


def test_two_derivations_that_agree_are_no_triviality() -> None:
    def traffic(P: Real, N: Degree, b_g: Real, b_theta: Real):  # type: ignore[no-untyped-def,valid-type]
        return derived("zero1").sent == derived("zero2").sent

    found = declared(traffic).control("zero3", lambda: derived("zero3").sent == derived("ddp").sent, refuted_at={"N": 2})
    assert check(found).standing == "proved"


@pytest.mark.parametrize(("ours", "theirs"), [("zero3", "fsdp"), ("zero1", "distributed_optimizer"), ("zero2 * tp", "tp * zero2")])
def test_two_names_of_one_program_are_a_triviality(ours: str, theirs: str) -> None:
    assert (2 * derived(ours).sent == derived(theirs).sent + derived(ours).sent).trivial()
    assert (derived(ours).sent.where(N=4) == derived(theirs).sent.where(N=4)).trivial()
    assert not (derived(ours).memory("peak") == derived(theirs).sent).trivial()


def test_dimensions_must_agree() -> None:
    def sizes(s: SIZE, t: TIME):  # type: ignore[no-untyped-def,valid-type]
        return holds(s + t > s)

    assert "do not scale alike" in failed(check(declared(sizes)))["dimensions"]


# Models, and what has a unit.

WIDTHS = {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}


def states(strategy: str = "zero3") -> Term:
    return derived(strategy, model="llama3-8b").memory("model_states").where(b_theta=2, b_g=2, b_omega=12)


def test_a_model_fits_from_a_number_of_devices_on() -> None:
    def fits(N: Degree):  # type: ignore[no-untyped-def,valid-type]
        return holds(states() <= 80 * GB, given=[N >= 2])

    found = check(declared(fits).control("on one", lambda: states() <= 80 * GB, refuted_at={"N": 1}))
    assert (found.standing, found.used) == ("proved", ("2 <= N",))

    def bare(N: Degree):  # type: ignore[no-untyped-def,valid-type]
        return holds(states() <= 80 * 10**9, given=[N >= 2])

    assert list(failed(check(declared(bare)))) == ["dimensions", "controls"]


def test_what_a_model_costs_is_what_derive_says_with_its_numbers() -> None:
    from placeproof import model

    for strategy, stage in (("zero3(8)", None), ("zero1(4) * tp(2) * pp(4)", "stage 1"), ("zero2(2) * accumulate", None)):
        known = model(strategy, "llama3-8b", b=3, m=8, **WIDTHS)
        ours = derived(strategy, model="llama3-8b")
        values = {k: Fraction(v) for k, v in known.numbers.values.items()}
        costs = [c for c in known.costs if stage in (None, c.stage.name)]
        for term_, forms in (
            (ours.memory("peak", stage=stage), [c.peak for c in costs]),
            (ours.memory("optimizer", stage=stage), [c.states["optimizer"] for c in costs]),
            (ours.over("dp", stage=stage), [c.traffic()["dp"] for c in costs]),
        ):
            numbers = {s.name: values[s.name] for s in plain(term_.expr).free_symbols}
            assert Point(numbers).value(plain(term_.expr)) == max(known.value(form, values) for form in forms)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: derived("zero3", model="llama3-8b").memory("all"), "there is no `all`"),
        (lambda: derived("zero3", model="llama3-8b").memory(stage="stage 7"), "there is no stage `stage 7`; there are `all layers`"),
        (lambda: derived("zero3", model="llama3-8b").over("tp"), "nothing is sent over `tp`; there is traffic over dp"),
        (lambda: derived(without_call("ddp", "all_reduce"), model="llama3-8b"), "under a strategy"),
    ],
)
def test_what_a_model_does_not_have_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(StatementError, match=message):
        make()


def test_two_models_or_two_ways_of_running_one_are_no_triviality() -> None:
    ours = derived("zero3", model="llama3-8b")
    assert (ours.sent == derived("fsdp", model="llama3-8b").sent).trivial()
    assert not (ours.sent == derived("zero3", model="llama3-8b", recompute="full").sent).trivial()
    assert ours.memory("activations").expr != derived("zero3", model="llama3-8b", recompute="full").memory("activations").expr


def test_time_and_operations_have_dimensions() -> None:
    def slower(b: Degree, N: Degree, m: Degree, F_peak: Positive, eta: Positive, b_theta: Positive):  # type: ignore[no-untyped-def,valid-type]
        work = derived("ddp", model="llama3-70b").operations
        return work / (F_peak * eta) <= 2 * work / (F_peak * eta), b_theta * units("parameter") <= b_theta * units("parameter") + GiB

    assert "dimensions" not in failed(check(declared(slower)))
    seconds = derived("ddp", model="llama3-70b").time
    assert (seconds <= 3 * units("second")).units() >= {"second", "operation"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [("2 <= n", False), ("1 <= n", False), ("0 < n", True), ("1 < n", False), ("n == 3", False), ("n == 0", True), ("n <= 4", True)],
)
def test_a_bound_that_a_number_implies_is_no_hypothesis(given: str, kept: bool) -> None:
    ops: dict[str, Callable[[Any], Any]] = {
        "2 <= n": lambda n: n >= 2, "1 <= n": lambda n: n >= 1, "0 < n": lambda n: n > 0, "1 < n": lambda n: n > 1,
        "n == 3": lambda n: n == 3, "n == 0": lambda n: n == 0, "n <= 4": lambda n: n <= 4,
    }  # fmt: skip

    def stated(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return holds(n * n >= n, given=[ops[given](n)])

    found = declared(stated)
    names = [h.name for h in hypotheses(found, found.statement())]  # type: ignore[arg-type]
    assert names == (["n >= 1", given] if kept else [given])


def test_a_reason_skips_a_check_and_nothing_else_does() -> None:
    found = check(declared(above, skip={"controls": "it is an example"}))
    assert found.standing == "proved"
    assert next(c for c in found.checks if c.name == "controls").standing == "skipped"
    wrong = theorem(expect=Expected(), cite=SOURCE, skip={"verdict": "I say so"})(above)
    assert wrong.problems
    assert theorem(expect=Expected(), cite=SOURCE, skip={"controls": " "})(above).problems


def test_a_solver_that_is_opted_out_of_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel._answer.cache_clear()
    monkeypatch.setitem(SOLVERS, "cvc5", lambda _script, _ms, _seed: pytest.fail("it was asked"))
    found = check(with_control(declared(above, skip={"second solver": "it takes long"})))
    assert found.standing == "proved"
    assert found.opinion == "not asked"


def test_a_solver_that_disagrees_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cvc5")
    kernel._answer.cache_clear()
    monkeypatch.setitem(SOLVERS, "cvc5", lambda _script, _ms, _seed: "sat")
    found = check(with_control(declared(above)))
    kernel._answer.cache_clear()
    assert found.opinion == "disagree"
    assert found.standing == "unexpected"


def second(found: Theorem, answer: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome, list[tuple[str, int]]]:
    """An outcome where cvc5 answers so, and what it was asked, with its milliseconds."""
    asked: list[tuple[str, int]] = []
    kernel._answer.cache_clear()
    monkeypatch.setitem(SOLVERS, "cvc5", lambda script, ms, _seed: (asked.append((script, ms)), answer)[1])
    outcome = check(found)
    kernel._answer.cache_clear()
    return outcome, asked


@pytest.mark.parametrize(("level", "most"), [(0, 1_000), (1, 2_000), (2, 2_000)])
def test_a_second_solver_is_asked_what_the_first_decided(level: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For integers where it was decided for them, and no longer than is set, at any level."""
    pytest.importorskip("cvc5")

    def even(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return 2 * n != 3

    for statement, integers in ((even, True), (above, False)):
        found, asked = second(declared(statement, level=level), "unknown", monkeypatch)
        assert (found.verdict, found.opinion) == ("proved", "silent")
        assert asked
        assert all(("is_int" in script, ms) == (integers, most) for script, ms in asked)


def test_a_second_solver_is_asked_of_a_refuted_statement_until_it_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cvc5")

    def small(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return n <= 8, n <= 7

    found, asked = second(declared(small, ExpectedRefuted(witness={"n": 9}, because="degrees grow")), "sat", monkeypatch)
    assert (found.verdict, found.opinion) == ("refuted", "agree")
    assert not [script for script, _ in asked if "is_int" not in script or "- 7" in script]
    assert second(declared(small, ExpectedRefuted(witness={"n": 9}, because="degrees grow")), "unknown", monkeypatch)[0].opinion == "silent"


def test_a_silent_solver_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel._answer.cache_clear()
    monkeypatch.setitem(SOLVERS, "z3", lambda _script, _ms, _seed: "unknown")

    def hard(n: Degree, k: Real):  # type: ignore[no-untyped-def,valid-type]
        return (n - k) * (n - k) + n > 0

    found = check(declared(hard))
    kernel._answer.cache_clear()
    assert found.standing == "undecided"


# What is expected to fail.


def test_a_witness_is_replayed() -> None:
    def small(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return n <= 8

    good = declared(small, ExpectedRefuted(witness={"n": 9}, because="degrees grow")).control("c", lambda n: n < n + 8, proved=True)
    assert check(good).standing == "refuted as expected"
    assert check(good).witness == {"n": "9"}
    wrong = declared(small, ExpectedRefuted(witness={"n": 3}, because="degrees grow"))
    assert "the hypotheses do not hold there, or the claim does" in failed(check(wrong))["exact arithmetic"]
    outside = declared(small, ExpectedRefuted(witness={"n": "19/2"}, because="degrees grow"))
    assert "outside its domain" in failed(check(outside))["exact arithmetic"]
    with pytest.raises(StatementError, match="no value for `n`"):
        check(declared(small, ExpectedRefuted(because="degrees grow")))
    with pytest.raises(StatementError, match="no parameter"):
        check(declared(small, ExpectedRefuted(witness={"m": 1}, because="degrees grow")))
    with pytest.raises(StatementError, match="inexact"):
        check(declared(small, ExpectedRefuted(witness={"n": 9.5}, because="degrees grow")))  # type: ignore[dict-item]


def test_what_a_solver_proves_is_not_refuted_by_its_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two contradict one another, so one of them is wrong."""

    def small(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return n <= 8

    n = sympy.Symbol("n")
    proved = decide(Claim(name="n = n", goal=Relation(n, "==", n)))
    assert isinstance(proved, Proved)
    monkeypatch.setattr("placeproof.theory.suite.checks.arithmetic.verdicts", lambda *_: [proved])
    found = check(declared(small, ExpectedRefuted(witness={"n": 9}, because="degrees grow")))
    assert failed(found)["solver"] == "z3 proves it"
    assert found.standing == "unexpected"


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("Degre", "cannot be read: NameError"),
        ("Degree[1]", "cannot be read: "),
        ("1 +", "cannot be read: SyntaxError"),
        ("int", "no domain"),
    ],
)
def test_an_annotation_that_is_no_domain_says_why(annotation: str, said: str) -> None:
    def small(n):  # type: ignore[no-untyped-def]
        """Says something."""
        return n <= 8

    small.__annotations__["n"] = annotation
    ((code, message, _),) = theorem(expect=Expected(), cite=SOURCE)(small).problems
    assert code == "PP402"
    assert said in message


def test_a_surprise_either_way_is_unexpected() -> None:
    def true(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return n <= n * n

    def false(n: Degree):  # type: ignore[no-untyped-def,valid-type]
        return n < n * n

    assert check(declared(true, ExpectedRefuted(witness={"n": 1}, because="no"))).standing in ("unexpected", "undecided")
    assert check(declared(false)).standing == "unexpected"
    assert check(declared(false)).witness == {"n": "1"}
    assert check(declared(true, Open("nobody knows"))).standing == "unexpected"


def test_a_refutation_outside_the_integers_is_none() -> None:
    def gap(n: Integer):  # type: ignore[no-untyped-def,valid-type]
        return n * n >= n

    found = declared(gap).control("strict", lambda n: n * n > n, refuted_at={"n": 1})
    assert check(found).standing == "proved"


# Programs.


def test_a_program_and_what_it_assumes() -> None:
    def trained():  # type: ignore[no-untyped-def]
        return trains("ddp", assuming=["separable-loss", "equal-token-counts", "equal-initial-states"])

    found = declared(trained).control("unreduced", lambda: trains(without_call("ddp", "all_reduce")), breaks="gradient integrity")
    outcome = check(found)
    assert outcome.standing == "proved"
    assert outcome.used == ("separable-loss", "equal-token-counts", "equal-initial-states")

    def too_much():  # type: ignore[no-untyped-def]
        return trains("ddp", assuming=["separable-loss", "equal-token-counts", "equal-initial-states", "elementwise-optimizer"])

    assert "elementwise-optimizer" in failed(check(declared(too_much)))["needed"]

    def too_little():  # type: ignore[no-untyped-def]
        return trains("ddp", assuming=["equal-token-counts"])

    assert check(declared(too_little)).verdict == "refuted"


def test_without_assumptions_it_is_told_which_are_needed() -> None:
    def trained():  # type: ignore[no-untyped-def]
        return trains("zero1")

    made = ("separable-loss", "equal-token-counts", "elementwise-optimizer", "equal-initial-states")
    outcome = check(
        declared(trained).control("unreduced", lambda: trains(without_call("zero1", "reduce_scatter")), breaks="gradient integrity")
    )
    assert (outcome.standing, outcome.hypotheses, outcome.used) == ("proved", made, made)

    def untrained():  # type: ignore[no-untyped-def]
        return trains(without_call("zero1", "all_gather"))

    assert check(declared(untrained)).verdict == "refuted"


def test_a_program_that_fails_for_another_reason_is_unexpected() -> None:
    def wrong():  # type: ignore[no-untyped-def]
        return trains(without_call("zero3", "all_gather"))

    for condition, standing in (("state consistency", "refuted as expected"), ("gradient integrity", "unexpected")):
        found = declared(wrong, ExpectedRefuted(breaks=condition, because="it reads a part"))
        outcome = check(found.control("whole", lambda: trains("zero3"), proved=True))
        assert outcome.standing == standing
        assert outcome.witness["breaks"] == "state consistency"


def test_what_is_refuted_names_the_assumptions_that_it_lacks_or_what_is_broken() -> None:
    def trained():  # type: ignore[no-untyped-def]
        return trains("zero1", assuming=["equal-initial-states"])

    said = failed(check(declared(trained)))["verdict"]
    lacking = [name for name in ("separable-loss", "equal-token-counts", "equal-initial-states", "exact-quantizers") if f"`{name}`" in said]
    assert lacking == ["separable-loss", "equal-token-counts"]
    outcome = check(declared(lambda: trains("zero1", assuming=[*lacking, "equal-initial-states", "elementwise-optimizer"])))
    assert outcome.verdict == "proved"
    unreduced = failed(check(declared(lambda: trains(without_call("ddp", "all_reduce"), assuming=lacking))))["verdict"]
    assert "assumed, too" not in unreduced
    assert "it does not hold that" in unreduced


# Conditions of programs.

GRADIENT, CONSISTENCY, INVARIANT = "gradient integrity", "state consistency", "step invariant"
STALE = """
mesh(dp)
h = backward(stale(parameters, 1))
g = all_reduce(backward(parameters), dp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
"""


def test_conditions_of_one_program_need_what_they_assume() -> None:
    def kept():  # type: ignore[no-untyped-def]
        return keeps("zero1", GRADIENT, assuming=made)

    made = ("separable-loss", "equal-token-counts")
    found = declared(kept).control("unreduced", lambda: keeps(without_call("zero1", "scale"), GRADIENT), breaks=GRADIENT)
    outcome = check(found)
    assert (outcome.verdict, outcome.hypotheses) == ("refuted", made)  # copies may begin otherwise
    made = (*made, "equal-initial-states")
    found._statement = None
    outcome = check(found)
    assert (outcome.standing, outcome.hypotheses, outcome.used) == ("proved", made, made)
    made = (*made, "elementwise-optimizer")
    found._statement = None
    assert "elementwise-optimizer" in failed(check(found))["needed"]


def test_a_condition_that_no_state_depends_on_is_refuted_by_numbers_on_the_way() -> None:
    def kept():  # type: ignore[no-untyped-def]
        return keeps(STALE, CONSISTENCY)

    found = declared(kept, ExpectedRefuted(breaks=CONSISTENCY, because="nobody reads what it gives"))
    outcome = check(found.control("without it", lambda: keeps("ddp", CONSISTENCY), proved=True))
    assert outcome.standing == "refuted as expected"
    assert "a pass reads the parameters of this step" in next(c.detail for c in outcome.checks if c.name == "exact arithmetic")
    other = declared(kept, ExpectedRefuted(breaks=GRADIENT, because="another reason"))
    assert failed(check(other))["reason"].startswith("it breaks state consistency, and gradient integrity is expected")


def test_of_several_programs_those_count_that_keep_what_is_given() -> None:
    def implied():  # type: ignore[no-untyped-def]
        return keeps(programs, INVARIANT, given=given)

    unscaled, ungathered = without_call("ddp", "scale"), without_call("zero1", "all_gather")
    given, programs = (GRADIENT, CONSISTENCY), ("ddp", unscaled, ungathered)
    found = declared(implied).control("one alone", lambda: keeps(programs, INVARIANT, given=[CONSISTENCY]), breaks=INVARIANT)
    outcome = check(found)
    assert (outcome.standing, outcome.used) == ("proved", given)
    programs = ("ddp", unscaled)  # all of which keep state consistency
    found._statement = None
    assert failed(check(found))["needed"] == "not needed: state consistency"
    programs = (unscaled, ungathered)
    found._statement = None
    assert "0 of 2 programs" in failed(check(found))["hypotheses satisfiable"]


def test_a_control_about_conditions_fails_where_it_breaks_another_one() -> None:
    def trained():  # type: ignore[no-untyped-def]
        return trains("ddp", assuming=["separable-loss", "equal-token-counts", "equal-initial-states"])

    found = declared(trained).control("unscaled", lambda: keeps(without_call("ddp", "scale"), GRADIENT), breaks=CONSISTENCY)
    assert failed(check(found)) == {"unscaled": "refuted, breaking gradient integrity; it should break state consistency"}
    right = declared(trained).control("unscaled", lambda: keeps(without_call("ddp", "scale"), GRADIENT), breaks=GRADIENT)
    assert check(right).standing == "proved"


def test_numbers_that_deny_a_proved_condition_are_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    differs = Differs(3, "its copy", {"dp": 1}, None)
    monkeypatch.setattr("placeproof.semantics.judge.conditions.sides", lambda run, obligation: differs)
    with pytest.raises(DisagreementError, match="in line 3, `its copy` on dp = 1 is not what the proof takes it to be"):
        answered(read_subject("ddp")[1])


# Functions and induction.


f = data("f")


@recursive(on="n")
def total(n):  # type: ignore[no-untyped-def]
    return 0, total(n - 1) + f(n - 1)


@recursive(on="n")
def triangle(n):  # type: ignore[no-untyped-def]
    return 0, triangle(n - 1) + n


def sums(n: Natural):  # type: ignore[no-untyped-def,valid-type]
    return by_induction(2 * triangle(n) == n * (n + 1), on=n)


def test_an_induction() -> None:
    found = check(declared(sums).control("off", lambda n: 2 * triangle(n) == n * n, refuted_at={"n": 1}))
    assert found.standing == "proved"
    assert found.evidence == "induction"


@pytest.mark.parametrize(
    ("goal", "witness"),
    [
        (lambda n, k: 2 * triangle(n) == n * (n + 1) + 1, 0),
        (lambda n, k: 2 * triangle(n) == n * (n + 2), 1),
        (lambda n, k: triangle(n) <= 40 * n, 100),
        (lambda n, k: triangle(n) != k - 7777, 0),
        (lambda n, k: total(n) <= n, 1),
    ],
)
def test_a_false_claim_by_induction_fails_at_the_first_number_that_was_computed(goal: Callable[..., Any], witness: int) -> None:
    def wrong(n: Natural, k: Degree):  # type: ignore[no-untyped-def,valid-type]
        return by_induction(goal(n, k), on=n)

    outcome = check(declared(wrong))
    assert (outcome.verdict, outcome.evidence, outcome.witness["n"]) == ("refuted", "witness", str(witness))


def test_a_true_claim_that_is_not_inductive_stays_unknown() -> None:
    def weak(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return by_induction(triangle(n) * triangle(n) >= n, on=n)

    assert check(declared(weak)).verdict == "unknown"


def test_numbers_outside_the_hypotheses_refute_nothing() -> None:
    def early(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return by_induction(triangle(n) * triangle(n) >= n * n * n * n, on=n, given=[n <= 1])

    assert check(declared(early)).verdict != "refuted"


def test_an_induction_that_begins_late_says_nothing_of_what_is_before() -> None:
    def late(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return by_induction(triangle(n) >= 3, on=n, start=2)

    parts = declared(late)
    assert check(parts.control("from 1", lambda n: triangle(n) >= 3, refuted_at={"n": 1})).verdict == "proved"
    fact = parts.at(n=5).fact
    assert any(str(r) == "2 <= 5" for r in fact.given)


def test_a_lemma_counts_only_if_it_is_proved() -> None:
    def false(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return total(n) == 0

    lemma = declared(false)

    def built(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return holds(total(n) == 0, lemmas=[lemma.at(n=n)])

    assert "is not proved" in failed(check(declared(built)))["verdict"]


def test_a_lemma_about_integers_is_used_at_integers() -> None:
    lemma = declared(sums)

    def half(k: Real):  # type: ignore[no-untyped-def,valid-type]
        return holds(k == k + 0, lemmas=[lemma.at(n=term(k))])

    with pytest.raises(StatementError, match="has to be an integer"):
        declared(half).statement()

    def applied(k: Real):  # type: ignore[no-untyped-def,valid-type]
        return triangle(k) >= 0

    with pytest.raises(StatementError, match="has to be an integer"):
        declared(applied).statement()


def test_a_circular_definition_is_refused() -> None:
    @recursive(on="n")
    def now(n):  # type: ignore[no-untyped-def]
        return 0, now(n) + 1

    @recursive(on="n")
    def there(n):  # type: ignore[no-untyped-def]
        return 0, back(n - 1)

    @recursive(on="n")
    def back(n):  # type: ignore[no-untyped-def]
        return 0, there(n)

    for function in (now, there):

        def about(n: Natural):  # type: ignore[no-untyped-def,valid-type]
            return function(n) >= 0  # noqa: B023

        with pytest.raises(StatementError, match=r"may use the value at|by way of itself"):
            check(declared(about))


def test_definitions_and_inductions_are_checked_by_the_prover_itself() -> None:
    g, k, zero = sympy.Function("g"), sympy.Symbol("k"), sympy.Integer(0)
    for step in (g(n) + 1, g(n + 1), g(n - 2), g(2 * n - 1)):
        with pytest.raises(ValueError, match="value at"):
            Definition(name="g", params=("n",), on="n", start=zero, base=zero, step=step)
    with pytest.raises(ValueError, match="itself"):
        Definition(name="g", params=("n",), on="n", start=zero, base=g(n), step=zero)
    with pytest.raises(ValueError, match="depends on"):
        Definition(name="g", params=("n",), on="n", start=n, base=zero, step=zero)
    with pytest.raises(ValueError, match="value at"):  # the start moves along: it would never be reached
        Definition(name="g", params=("n", "k"), on="n", start=k, base=zero, step=g(n - 1, k - 1))
    first = Definition(name="a", params=("n",), on="n", start=zero, base=zero, step=sympy.Function("b")(n))
    second = Definition(name="b", params=("n",), on="n", start=zero, base=zero, step=sympy.Function("a")(n))
    with pytest.raises(ValueError, match="defined after it"):
        Claim(name="c", goal=Relation(n, "==", n), definitions=(first, second))
    claim = Claim(name="c", goal=Relation(n, "==", n))
    for wrong in ({"n": n + 1},):
        with pytest.raises(ValueError, match="may not change"):
            Induction(claim=claim, on="n", start=zero, instances=(wrong,))
    with pytest.raises(ValueError, match="depends on"):
        Induction(claim=claim, on="n", start=n)


def test_only_the_kernel_makes_verdicts_of_inductions() -> None:
    induction = Induction(claim=Claim(name="c", goal=Relation(n, "==", n)), on="n", start=sympy.Integer(0))
    with pytest.raises(TypeError, match="only the kernel"):
        Proved(induction, object(), "me")
    assert isinstance(induct(induction), Proved)


# Certificates and exact points.

NUMBERS = st.fractions(min_value=-3, max_value=3, max_denominator=3)
POLYS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)


def polynomial(terms: list[tuple[int, int, int]]) -> sympy.Expr:
    return sympy.Add(*(c * x**i * y**j for c, i, j in terms))


@given(POLYS, POLYS, st.sampled_from(["==", "<=", "<"]), st.integers(-2, 2), st.integers(-2, 2))
def test_a_certificate_is_right_and_so_is_a_verdict(left: Any, right: Any, op: str, low: int, lower: int) -> None:
    bounds = (Named(name="x", fact=Relation(sympy.Integer(low), "<=", x)), Named(name="y", fact=Relation(sympy.Integer(lower), "<", y)))
    claim = Claim(name="c", goal=Relation(polynomial(left), op, polynomial(right)), given=bounds)
    certified, verdict = certify(claim), decide(claim, kernel.Budget(milliseconds=300))
    points = [{"x": low + Fraction(a, 2), "y": lower + Fraction(b, 2)} for a in range(5) for b in range(1, 6)]
    fails = [p for p in points if isinstance(refute(claim, p), Refuted)]
    if isinstance(certified, Proved) or isinstance(verdict, Proved):
        assert not fails
    if isinstance(verdict, Refuted):
        assert not isinstance(certified, Proved)
        assert isinstance(refute(claim, dict(verdict.witness)), Refuted)  # type: ignore[call-overload]


def test_a_forged_certificate_is_refused() -> None:
    claim = Claim(name="c", goal=Relation(sympy.Integer(1), "<=", x), given=(Named(name="x", fact=Relation(sympy.Integer(0), "<=", x)),))
    assert find(claim) is None
    for forged in ({"x": sympy.Integer(1)}, {"x": x}, {"y": sympy.Integer(1)}, {"x": y, "y": x}):
        assert not checked(claim, Certificate(shifts=tuple(forged.items()), strict=frozenset()))
    assert not checked(claim, Certificate(shifts=(("x", sympy.Integer(0)),), strict=frozenset({"x"})))
    below = Claim(name="c", goal=Relation(1 / x, "<=", 1 / x + 1), given=claim.given)
    assert isinstance(certify(below), Unknown)
    assert isinstance(decide(below), Unknown)


@given(NUMBERS, NUMBERS)
def test_functions_of_arithmetic_mean_the_same_everywhere(a: Fraction, b: Fraction) -> None:
    made = [maximum(1, x) + minimum(y, x), sign(x) * absolute(y), floor(x) + ceiling(y), indicator(x, y)]
    values = {x: sympy.Rational(a.numerator, a.denominator), y: sympy.Rational(b.numerator, b.denominator)}
    plain = [max(Fraction(1), a) + min(a, b), ((a > 0) - (a < 0)) * abs(b), Fraction(a.__floor__() + b.__ceil__()), Fraction(a == b)]
    for one, value in zip(made, plain, strict=True):
        assert Point({"x": a, "y": b}).value(one.expr) == value
        fixed = tuple(Named(name=str(s), fact=Relation(s, "==", v)) for s, v in values.items())
        right = sympy.Rational(value.numerator, value.denominator)
        for solver in ("z3", "cvc5"):
            if solver == "cvc5":
                pytest.importorskip("cvc5")
            claim = Claim(name="c", goal=Relation(one.expr, "==", right), given=fixed)
            assert isinstance(decide(claim, solver=solver), Proved)
            off = Claim(name="c", goal=Relation(one.expr, "==", right + 1), given=fixed)
            assert isinstance(decide(off), Refuted)


@pytest.mark.parametrize("divisor", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize("solver", ["z3", "cvc5"])
def test_what_is_rounded_means_the_same_to_solvers_that_divide_integers(solver: str, divisor: int) -> None:
    if solver == "cvc5":
        pytest.importorskip("cvc5")
    for above in (-7, -6, 0, 5, 6):
        given = (
            Named(name="x", fact=Relation(x, "==", sympy.Integer(above))),
            Named(name="y", fact=Relation(y, "==", sympy.Integer(divisor))),
        )
        for expr, value in ((sympy.floor(x / y), above // divisor), (sympy.ceiling((x + 1) / y), -(-(above + 1) // divisor))):
            right = Claim(name="c", goal=Relation(expr, "==", sympy.Integer(value)), given=given, integers=("x", "y"))
            assert isinstance(decide(right, solver=solver), Proved)
            off = Claim(name="c", goal=Relation(expr, "==", sympy.Integer(value + 1)), given=given, integers=("x", "y"))
            assert not isinstance(decide(off, solver=solver), Proved)


ROUNDING: dict[str, Callable[..., Any]] = {
    "halves": lambda n, k: floor(n / 2) + ceiling(n / 2) == n,
    "ceiling by floor": lambda n, k: ceiling(n / k) == floor((n + k - 1) / k),
    "less than one part more": lambda n, k: k * ceiling(n / k) < n + k,
    "twice": lambda n, k: ceiling(ceiling(n / 2) / 2) == ceiling(n / 4),
    "greatest and least": lambda n, k: maximum(n, k) + minimum(n, k) == n + k,
    "by induction": lambda n, k: by_induction(triangle(n) == floor(n * (n + 1) / 2), on=n),
}


@pytest.mark.parametrize("name", ROUNDING)
def test_floors_and_ceilings_of_quotients_are_decided(name: str) -> None:
    def right(n: Natural, k: Degree):  # type: ignore[no-untyped-def,valid-type]
        return ROUNDING[name](n, k)

    if name != "by induction":
        right.__annotations__["n"] = Integer  # a bound that nothing needs would be looked for by a solver

    def wrong(n: Natural, k: Degree):  # type: ignore[no-untyped-def,valid-type]
        stated = ROUNDING[name](n, k)
        goal = stated.what.goals[0] if name == "by induction" else stated
        return goal.left + 1 == goal.right if goal.op == "==" else goal.left + 1 < goal.right

    assert check(declared(right, level=2)).verdict == "proved"
    assert check(declared(wrong, level=2)).verdict == "refuted"


def test_a_claim_of_integers_that_is_not_decided_in_time_is_not_refuted_by_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def right(n: Integer, k: Degree):  # type: ignore[no-untyped-def,valid-type]
        return ROUNDING["ceiling by floor"](n, k)

    asked = kernel.ask

    def impatient(query: Any, *rest: Any) -> str:
        return "unknown" if "Int" in query.script else asked(query, *rest)

    assert check(declared(right, level=2)).verdict == "proved"
    monkeypatch.setattr(kernel, "ask", impatient)
    assert check(declared(right, level=2)).verdict == "unknown"


def test_what_is_rounded_is_an_integer_and_may_be_counted_to() -> None:
    def positive(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return by_induction(triangle(n) >= 0, on=n)

    lemma = declared(positive)

    def half(n: Natural, m: Natural):  # type: ignore[no-untyped-def,valid-type]
        to = maximum(floor(n / 2), m)
        return holds(triangle(to) >= 0, lemmas=[lemma.at(n=to)])

    assert check(declared(half)).verdict == "proved"

    def quotient(n: Natural):  # type: ignore[no-untyped-def,valid-type]
        return triangle(floor(n) / 2) >= 0

    with pytest.raises(StatementError, match="has to be an integer"):
        declared(quotient).statement()


def test_names_that_mean_something_to_a_solver() -> None:
    names = sympy.symbols("let ite div Real f")
    goal = Relation(sympy.Add(*names), "==", sympy.Function("f")(names[0]) + names[4])
    claim = Claim(name="c", goal=goal)
    for solver in ("z3", "cvc5"):
        if solver == "cvc5":
            pytest.importorskip("cvc5")
        assert isinstance(decide(claim, solver=solver), Unknown)
        assert "has a model of the opposite" in getattr(decide(claim, solver=solver), "why", "")
    plain = Claim(name="c", goal=Relation(names[0] + names[1], "==", names[2]))
    assert isinstance(decide(plain), Refuted)


def test_a_point_says_what_is_not_defined() -> None:
    definition = Definition(
        name="g", params=("n",), on="n", start=sympy.Integer(1), base=sympy.Integer(5), step=sympy.Function("g")(n - 1) * n
    )
    point = Point({"n": Fraction(4), "x": Fraction(0)}, (definition,))
    assert point.value(sympy.Function("g")(n)) == 5 * 2 * 3 * 4
    deep = Point({"n": Fraction(100_000)}, (definition,))
    with pytest.raises(UndefinedError):
        deep.value(sympy.Function("g")(n))
    for expr in (sympy.Function("g")(n - 4), sympy.Function("g")(n / 3), 1 / x, sympy.Function("h")(n)):
        with pytest.raises(UndefinedError):
            point.value(expr)
    assert drawn(1)("h", (Fraction(1),)) == drawn(1)("h", (Fraction(1),))


def test_domains() -> None:
    assert Positive["byte / parameter token"].units() == {"byte": 1, "parameter": -1, "token": -1}
    for wrong in ("byte / parameter / token", "byte-second"):
        with pytest.raises(ValueError, match=r"write for example|one division"):
            Positive[wrong]
    kinds: list[Domain] = [Real, Positive, NonNegative, Integer, Natural, Degree]
    import random

    source = random.Random(1)
    for domain in kinds:
        values = [domain.draw(source) for _ in range(200)]
        assert all(domain.has(v) for v in values)
        assert max(values) > 1
        assert (min(values) < 0) is (domain.least is None)
    assert not Degree.has(Fraction(0))
    assert not Degree.has(Fraction(3, 2))
    assert not Positive.has(Fraction(0))
    assert NonNegative.has(Fraction(0))


def test_an_outcome_survives_being_written() -> None:
    found = check(with_control(declared(above)))
    import json

    assert from_data(json.loads(json.dumps(found.data()))) == found


def test_a_definition_that_divides_by_zero_proves_nothing() -> None:
    """What a definition says of a value is not said where the value does not exist."""

    @recursive(on="n", start=-1)
    def inverses(n):  # type: ignore[no-untyped-def]
        return 0, inverses(n - 1) + 1 / n

    def through_zero(n: Integer):  # type: ignore[no-untyped-def,valid-type]
        return by_induction(inverses(n) >= n - 100, on=n, start=-1, given=[n <= 3])

    found = check(declared(through_zero))
    assert found.verdict == "unknown"
    g, k = sympy.Function("g"), sympy.Symbol("k")
    definition = Definition(name="g", params=("k",), on="k", start=sympy.Integer(-1), base=sympy.Integer(0), step=g(k - 1) + 1 / k)
    at_zero = Named(name="k", fact=Relation(k, "==", sympy.Integer(0)))
    for goal in (Relation(g(k), "==", sympy.Integer(7)), Relation(g(k), "!=", sympy.Integer(7))):
        assert isinstance(decide(Claim(name="c", goal=goal, given=(at_zero,), definitions=(definition,))), Unknown)


def test_a_definition_speaks_of_its_parameters_alone() -> None:
    with pytest.raises(ValueError, match="no parameter"):
        Definition(name="g", params=("n",), on="n", start=sympy.Integer(0), base=sympy.Symbol("k"), step=sympy.Function("g")(n - 1))


def test_what_a_lemma_leaves_open_has_to_be_an_integer_too() -> None:
    lemma = declared(sums)

    def loose(n: Real):  # type: ignore[no-untyped-def,valid-type]
        return holds(n * n >= 0, lemmas=[lemma.at()])

    with pytest.raises(StatementError, match="has to be an integer"):
        declared(loose).statement()


def test_a_file_is_one_module_however_it_is_first_reached(tmp_path: Path) -> None:
    """Functions are told by identity: what one file imports from another is what that file declares when its own turn comes."""
    (tmp_path / "one.py").write_text("here = object()\n")
    (tmp_path / "two.py").write_text("from .one import here\n")
    (tmp_path / "three.py").write_text("from .one import here\nfrom .two import here as same\n")
    found = {name: _module(tmp_path / f"{name}.py", Loaded()) for name in ("two", "one", "three")}
    assert found["two"].here is found["one"].here is found["three"].here is found["three"].same


def test_a_file_that_changed_is_read_again_with_what_imports_it(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("here = 1\n")
    (tmp_path / "two.py").write_text("from .one import here\n")
    assert _module(tmp_path / "two.py", Loaded()).here == 1
    (tmp_path / "one.py").write_text("here = 2\n")
    assert _module(tmp_path / "one.py", Loaded()).here == 2
    assert _module(tmp_path / "two.py", Loaded()).here == 2


def test_words_of_forms_refuse_what_is_not_there() -> None:
    for ask, words in (
        (lambda: schedule("1f1b").form("idle", 2), "no number 2"),
        (lambda: schedule("1f1b").times(4), "3 phases"),
        (lambda: schedule("gpipe").printed("messages"), "no source prints"),
        (lambda: schedule("zb-h1").off("idle", m=(1,), p=(3,)), "none of these points"),
        (lambda: algorithm("all_reduce", "bruck"), "ring"),
        (lambda: algorithm("all_reduce", "hierarchical").sent, "several levels"),
        (lambda: algorithm("all_reduce", "folded").level(0), "no closed form over 2 levels"),
        (lambda: algorithm("all_reduce", "halving_doubling").off((3,)), "none of these groups"),
        (lambda: algorithm("all_reduce", "halving_doubling").in_all(3), "none of these groups"),
        (lambda: crossover("all_reduce", "ring", "hierarchical"), "no one size"),
        (lambda: collective("gossip"), "all_reduce"),
        (lambda: operations("mixer"), "no model has a block"),
        (lambda: values_of("mixer"), "no model has a block"),
    ):
        with pytest.raises(StatementError, match=words):
            ask()


def test_words_of_forms_are_those_of_the_product() -> None:
    p, m = sympy.symbols("p m")
    assert schedule("1f1b").messages.expr == 2 * m * (p - 1)
    assert schedule("1f1b").off("messages", by=1, p=(2,), m=(1, 2)).expr == 2
    assert schedule("zb-v").times(1).expr == 2 * (p - sympy.Symbol("d")) - 1
    assert algorithm("all_gather", "ring").off((4, 5), by=2).expr == 2 * (1 + 5) * 2
    assert crossover("all_reduce", "doubling", "ring").where(n=4, k=2, alpha=1, beta=1, gamma=0).expr == 8
    assert rounded(7, 4).expr == 8
    assert values_of("swiglu") == ("g", "u", "s", "a", "y")
    assert operations("swiglu", elements=True).forward.expr != operations("swiglu").forward.expr
    n, s = sympy.symbols("n s")
    assert collective("all_reduce").sent(n, s).expr == 2 * s * (n - 1) / n


def test_words_of_rounds_count_what_devices_send_and_receive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert algorithm("all_reduce", "ring").in_all(4).expr == 6 * sympy.Symbol("s")
    assert algorithm("broadcast", "tree").unbalanced((2,)).expr == 14  # the root has sent 7 bytes, and another device has got them
    assert algorithm("all_gather", "ring").unbalanced((3, (2, 2))).expr == algorithm("all_gather", "ring").astray((3,)).expr == 0
    assert schedule("1f1b").unreceived(p=(2, 3), m=(2,)).expr == 0
    broken = algorithm("send", "message")
    row = ALGORITHMS["send"]["message"]
    assert isinstance(row, Algorithm)
    outside = replace(row.passes[0], rounds=lambda n: [(Send(0, n, (0,)), Send(1, 1, (0,)))])
    monkeypatch.setattr(broken, "_row", replace(row, passes=(outside,)))
    assert broken.astray((3,)).expr == 2


def test_a_message_that_no_pass_needs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timetable, "messages", lambda table, d: 1)
    assert schedule("gpipe").unreceived(p=(1, 2), m=(1,)).expr == 1


@pytest.mark.parametrize("make", [trains, lambda text: keeps(text, "gradient integrity")])
def test_nothing_is_stated_of_a_recorded_step_of_which_something_was_not_compared(make: Callable[[str], Any]) -> None:
    body = "gradients = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
    step = "mesh(dp)\n{}" + body
    make(step.format(""))
    with pytest.raises(StatementError, match="`factors` of this recorded step was not compared"):
        make(step.format('not_compared(factors="with this number of ranks alone")\n'))
