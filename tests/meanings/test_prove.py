"""The prover's two sides: every catalogue composition is proved for all degrees, every one with something taken away is not."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

import pytest
from compositions import compositions, mutants, mutated
from samples import NIGHTLY, parts, sample

import placeproof
from placeproof.programs import Program, read
from placeproof.prove import Equation, Order, Proved, Refuted, Unknown, confirm, settle
from placeproof.prove.kernel import ask
from placeproof.prove.smtlib import satisfiable
from placeproof.prove.terms import ZERO, constant, inverse, product, symbol
from placeproof.semantics.catalogue import apart
from placeproof.semantics.encode import encode
from placeproof.semantics.encode.reference import Reference
from placeproof.semantics.encode.world import World
from placeproof.semantics.judge.verdict import judge, judge_tensors
from placeproof.semantics.lower import lower
from placeproof.strategies import names, parse_strategy, template


@pytest.mark.parametrize("subject", sample(compositions(), parts))
def test_every_composition_is_proved(subject: str) -> None:
    """Each at night, else each strategy and option in one: `theorems/catalogue.py` proves each pair, and `test_lowering_is_correct.py` runs
    each two strategies."""
    judged = judge(lower(parse_strategy(subject)))
    assert judged.word == "proved", judged.about
    conditions = {s.obligation.condition for s in judged.settled}
    assert conditions == {"gradient integrity", "state consistency", "step invariant"}
    assert all(s.obligation.place is not None for s in judged.settled)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_strategies_that_are_composed_share_all_axes_but_those_of_samples(count: int) -> None:
    """Sequence parallelism is about the axis of tensor parallelism; two kinds of data parallelism have an axis each."""
    for combination in itertools.combinations(names(), count):
        samples, others = [], []
        for name, written in zip(combination, apart(combination), strict=True):
            renamed = dict(re.findall(r"(\w+)=(\w+)", written))
            for axis in template(name).axes:  # type: ignore[union-attr]
                (samples if axis.splits.samples else others).append((axis.name, renamed.pop(axis.name, axis.name)))
            assert not renamed, written
        assert len({shown for _, shown in samples}) == len(samples), combination
        assert all(axis == shown for axis, shown in others), combination


@pytest.mark.parametrize(("subject", "mutation"), mutated()[:: 1 if NIGHTLY else 2])
def test_taking_any_collective_away_refutes(subject: str, mutation: str) -> None:
    """By day every second; `test_lowering_is_correct.py` runs all of them."""
    mutant = next(p for name, p in mutants(lower(parse_strategy(subject))) if name == mutation)
    judged = judge(mutant)
    assert judged.word == "refuted"
    assert judged.found is not None
    assert judged.found.setup.exact


HEADER = 'mesh(dp, tp)\nsplits(tp="batch")\n'


def program(body: str) -> Program:
    return read(HEADER + body)


REDUCED = """\
gradients = scale(backward(parameters), 1 / tp)
{}
parameters, optimizer = update(parameters, optimizer, gradients)
"""

CORRECT_BUT_UNUSUAL = {
    "mean then sum": "gradients = all_reduce(all_reduce(gradients, dp, op=mean), tp)",
    "sum then mean": "gradients = scale(all_reduce(gradients, dp, tp), 1 / dp)",
    "either order": "gradients = scale(all_reduce(all_reduce(gradients, tp), dp), 1 / dp)",
    "the other order": "gradients = scale(all_reduce(all_reduce(gradients, dp), tp), 1 / dp)",
    "a redundant broadcast": "gradients = scale(all_reduce(broadcast(all_reduce(gradients, tp), tp, root=0), dp), 1 / dp)",
    "halved and doubled": "gradients = scale(scale(all_reduce(gradients, dp, tp), 1 / (2 * dp)), 2)",
    "reduced to one device, then broadcast": (
        "gradients = broadcast(reduce(scale(all_reduce(gradients, tp), 1 / dp), dp, root=0), dp, root=0)"
    ),
    "scattered and gathered": "gradients = all_gather(reduce_scatter(scale(all_reduce(gradients, tp), 1 / dp), dp), dp)",
}
WRONG = {
    "one axis missing": "gradients = scale(all_reduce(gradients, dp), 1 / dp)",
    "reduced twice": "gradients = scale(all_reduce(all_reduce(all_reduce(gradients, dp), tp), tp), 1 / dp)",
    "not divided": "gradients = all_reduce(gradients, dp, tp)",
    "divided twice": "gradients = scale(all_reduce(gradients, dp, tp, op=mean), 1 / dp)",
    "max for sum": "gradients = scale(all_reduce(all_reduce(gradients, dp, op=max), tp), 1 / dp)",
    "divided by the other axis": "gradients = scale(all_reduce(gradients, dp, tp), 1 / tp)",
    "only one device has it": "gradients = reduce(scale(all_reduce(gradients, tp), 1 / dp), dp, root=0)",
    "only the first device scales": (
        "gradients = all_reduce(gradients, dp, tp)\nif rank(dp) == 0:\n    gradients = scale(gradients, 1 / dp)"
    ),
}


@pytest.mark.parametrize("name", CORRECT_BUT_UNUSUAL)
def test_correct_but_unusual_programs_are_proved(name: str) -> None:
    judged = judge(program(REDUCED.format(CORRECT_BUT_UNUSUAL[name])))
    assert judged.word == "proved"
    assert [w for w, _ in judged.warnings if "redundant" in w] == [w for w, _ in judged.warnings]
    assert bool(judged.warnings) == ("redundant" in name)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_though_popular_programs_are_refuted(name: str) -> None:
    judged = judge(program(REDUCED.format(WRONG[name])))
    assert judged.word == "refuted"
    assert judged.about is not None
    assert judged.about.condition in ("gradient integrity", "state consistency")


def test_one_part_of_the_gradient_is_not_the_gradient() -> None:
    """What a loop over units leaves in a name without an index is the last unit's alone."""
    judged = judge(
        read("""\
mesh(dp)
x = data()
for u in units:
    x, activations[u] = forward(parameters[u], x)
dx = loss(x)
for u in reversed(units):
    g = backward_weight(parameters[u], activations[u], dx)
    dx = backward_input(parameters[u], activations[u], dx)
g = all_reduce(g, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
""")
    )
    assert judged.word != "proved"


@pytest.mark.parametrize("name", names())
def test_proofs_are_not_empty(name: str) -> None:
    """The hypotheses can hold, and the reference's gradient need not be zero: a solver has a model of both."""
    subject = f"tp * {name}" if name in ("sp", "zero_r") else name
    program = lower(parse_strategy(subject))
    for obligation in encode(program).obligations:
        assert ask(satisfiable(obligation.claim.given)) == "sat"
    world = World(program)
    for group in world.groups:
        zero = Equation(name="the gradient is zero", left=Reference(world).gradient(group), right=ZERO, given=encode(program).given)
        verdict = settle(zero)
        assert isinstance(verdict, Unknown)
        assert verdict.suspected


@pytest.mark.parametrize(
    ("one", "other"), [("zero3 * tp", "tp * zero3"), ("pp * zero1 * tp", "tp * pp * zero1"), ("ddp * hsdp", "hsdp * ddp")]
)
def test_the_order_of_composition_does_not_matter(one: str, other: str) -> None:
    first, second = (judge(lower(parse_strategy(text))) for text in (one, other))
    assert [(s.obligation.name, s.word) for s in first.settled] == [(s.obligation.name, s.word) for s in second.settled]


def test_only_the_kernel_makes_verdicts() -> None:
    claim = Equation(name="anything", left=ZERO, right=ZERO)
    for kind in (Proved, Unknown, Refuted):
        with pytest.raises(TypeError):
            kind(claim, object(), "because")  # type: ignore[call-arg]


def test_a_contradiction_proves_nothing() -> None:
    one = constant(1)
    given = (Order(name="1 > 2", left=one, relation=">", right=constant(2)),)
    verdict = settle(Equation(name="anything", left=symbol("a"), right=symbol("b"), given=given))
    assert isinstance(verdict, Unknown)
    assert "contradict" in verdict.why


def test_a_multiple_is_no_other_multiple() -> None:
    """A solver is told every coefficient, beside a factor and alone."""
    numbers = [Fraction(n, d) for n in (-2, -1, 0, 1, 2, 3) for d in (1, 2)]
    for factor in (symbol("a"), product(symbol("a"), symbol("b")), constant(1)):
        for one, other in itertools.product(numbers, repeat=2):
            claim = Equation(name="a multiple", left=product(constant(one), factor), right=product(constant(other), factor))
            assert isinstance(settle(claim), Proved) == (one == other), (one, other, factor.key)


def test_a_division_by_a_possible_zero_proves_nothing() -> None:
    x = symbol("x")
    quotient = product(x, inverse(x))
    assert isinstance(settle(Equation(name="x / x = 1", left=quotient, right=constant(1))), Proved)
    verdict = settle(Equation(name="x / x = 1", left=quotient, right=constant(1), divisors=(x,)))
    assert isinstance(verdict, Unknown)
    given = (Order(name="x > 0", left=x, relation=">", right=ZERO),)
    assert isinstance(settle(Equation(name="x / x = 1", left=quotient, right=constant(1), given=given, divisors=(x,))), Proved)


def test_a_time_out_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from placeproof.prove.solvers import scripts

    monkeypatch.setitem(scripts.SOLVERS, "silent", lambda _script, _milliseconds, _seed: "unknown")
    verdict = settle(Equation(name="a = a", left=symbol("a"), right=symbol("a")), solver="silent")
    assert isinstance(verdict, Unknown)
    assert not verdict.suspected


def test_a_refutation_needs_a_witness_that_fails() -> None:
    claim = Equation(name="a = b", left=symbol("a"), right=symbol("b"))
    assert isinstance(confirm(claim, "a witness", lambda: True), Refuted)
    assert isinstance(confirm(claim, "no witness", lambda: False), Unknown)


@pytest.mark.parametrize("kind", ["step", "tensors"])
def test_a_witness_that_a_second_run_does_not_confirm_refutes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        "step": "mesh(dp)\ngradients = backward(parameters)\nparameters, optimizer = update(parameters, optimizer, gradients)\n",
        "tensors": "mesh(tp)\ntensor(x, tokens, hidden, tp=tokens)\ntensor(w, hidden)\nreturns(total(x * w, over=tokens))\n",
    }[kind]
    judge_it, again = {"step": (judge, "judge.verdict.run"), "tensors": (judge_tensors, "judge.verdict.simulate")}[kind]
    assert judge_it(read(wrong)).word == "refuted"
    monkeypatch.setattr(f"placeproof.semantics.{again}", lambda *_: False)
    assert judge_it(read(wrong)).word == "unknown"


def test_an_undefined_division_is_not_blamed_for_what_is_wrong() -> None:
    """The token count may be zero, which concerns everything after it; what breaks is the gradient alone."""
    program = placeproof.program(
        'mesh(dp, cp)\nwithout("equal-token-counts")\nfor i in microbatches:\n    n += tokens(i)\n'
        "    G += scale(backward(parameters, i), tokens(i))\n"
        "G = all_reduce(scale(G, 1 / n), dp, cp, op=mean)\nparameters, optimizer = update(parameters, optimizer, G)\n"
    )
    judged = placeproof.judge(program)
    assert judged.word == "refuted"
    assert judged.about is not None
    assert judged.about.condition == "gradient integrity"


ORDER = """
mesh(dp)
g = scale(all_reduce(backward(parameters), dp), 1 / dp)
n = square_norm(g)
G = scale(g, 1 + {} - {})
parameters, optimizer = update(parameters, optimizer, G)
"""


@pytest.mark.parametrize(("one", "other", "word"), [
    ("min(n, 2)", "min(2, n)", "proved"), ("max(n, 2)", "max(2, n)", "proved"), ("clip_factor(n, 2)", "clip_factor(2, n)", "refuted"),
])  # fmt: skip
def test_the_order_of_operands_matters_where_it_does(one: str, other: str, word: str) -> None:
    assert judge(read(ORDER.format(one, other)), shortest=False).word == word
