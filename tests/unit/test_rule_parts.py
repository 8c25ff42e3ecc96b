"""What the rules of frameworks are judged with: formulas, layouts, orders of a pipeline, cuts of a sequence."""

from __future__ import annotations

from fractions import Fraction
from math import inf, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placeproof.core.diagnostics import InputError
from placeproof.framework_rules.balance import busiest, contiguous, zigzag
from placeproof.framework_rules.formula import FormulaError, pp_groups, read_formula
from placeproof.framework_rules.functions import sent, traffic
from placeproof.framework_rules.layouts import each, enough, even, exactly, fills, levels, pieces, shared
from placeproof.framework_rules.orders import idle, interleaved, one_f_one_b, share, stages_on, v_shaped, zero_bubble

# Layouts, orders and cuts against what is written down elsewhere.


@given(st.integers(0, 40), st.integers(1, 12))
def test_dealing_out(rows: int, devices: int) -> None:
    assert even(rows, devices) == (rows % devices == 0)
    assert each(rows, devices) == (rows // devices if rows % devices == 0 else -1)
    assert enough(rows, devices) == (rows >= devices)
    if rows:
        assert shared(rows, devices) == (rows % devices == 0 or devices % rows == 0)
        assert pieces(rows, devices) == (rows % devices == 0)


@given(st.integers(1, 24), st.lists(st.integers(1, 4), max_size=3))
def test_meshes(devices: int, degrees: list[int]) -> None:
    assert exactly(devices, *degrees) == levels(devices, degrees) == (prod(degrees) == devices)
    assert fills(devices, *degrees) == (devices % prod(degrees) == 0)


@given(st.integers(1, 6), st.integers(1, 12))
def test_idle_slots_of_1f1b(stages: int, microbatches: int) -> None:
    """Narayanan et al. 2021, section 2.2.1: p - 1 forward and p - 1 backward passes of each device, whatever the micro-batches."""
    table = one_f_one_b(stages, microbatches)
    assert idle(table) == 2 * stages * (stages - 1)
    assert share(table) == Fraction(stages - 1, microbatches + stages - 1)
    assert stages_on(table) == 1


@given(st.integers(2, 5), st.integers(1, 3), st.integers(2, 3))
def test_idle_slots_of_interleaving(stages: int, rounds: int, chunks: int) -> None:
    """The same, section 2.2.2: with v chunks a slot is v times shorter, and as many are idle."""
    table = interleaved(stages, rounds * stages, stages, chunks)
    assert idle(table) == 2 * stages * (stages - 1)
    assert stages_on(table) == chunks


def test_an_order_that_nobody_can_follow_never_ends() -> None:
    stuck = interleaved(3, 6, 1)
    assert idle(stuck) == inf
    assert share(stuck) == 1


@given(st.integers(1, 4), st.integers(1, 8))
def test_weight_gradients_fill_slots(stages: int, microbatches: int) -> None:
    for table in (zero_bubble(stages, microbatches, stages), v_shaped(stages, microbatches)):
        work = 6 * stages * microbatches  # two stages a device: forward, backward, weights
        assert table.slots * stages == work + table.idle


@given(st.integers(1, 6), st.integers(1, 6))
def test_work_of_a_cut_sequence(devices: int, pieces: int) -> None:
    tokens = 2 * devices * pieces
    pairs = tokens * (tokens + 1) // 2
    assert sorted(t for own in zigzag(tokens, devices) for t in own) == list(range(tokens))
    assert busiest(zigzag(tokens, devices)) * devices == pairs
    assert busiest(contiguous(tokens, devices)) * devices >= pairs
    assert busiest(zigzag(tokens, devices), False) * devices == busiest(contiguous(tokens, devices), False) * devices == tokens**2


def test_bytes() -> None:
    assert sent("all_to_all", 1) == 0
    assert sent("all_gather", 4) == Fraction(3, 4)
    assert str(traffic("zero1", "all_gather")) == "P*b_theta*(N - 1)/N"


def test_pipeline_groups_by_hand() -> None:
    """Two stages and two replicas, numbered either way."""
    assert pp_groups((("dp", 2), ("pp", 2))) == frozenset({(0, 2), (1, 3)})
    assert pp_groups((("pp", 2), ("dp", 2))) == frozenset({(0, 1), (2, 3)})


# Formulas.

NUMBERS = st.integers(-6, 6)
EXPRESSIONS = st.recursive(
    st.one_of(NUMBERS.map(str), st.sampled_from(["a", "b", "c"]), st.sampled_from(["True", "False"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda x: f"(not {x})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, NUMBERS, NUMBERS, NUMBERS)
def test_formulas_mean_what_python_means(text: str, a: int, b: int, c: int) -> None:
    facts = {"a": a, "b": b, "c": c}
    try:
        expected = eval(text, {"__builtins__": {"max": max}}, facts)
    except ZeroDivisionError:
        with pytest.raises(InputError):
            read_formula(text).value(facts)
        return
    assert read_formula(text).value(facts) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    try:
        read_formula(text)
    except FormulaError as error:
        assert str(error)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a.b",
        "a[0]",
        "lambda: 1",
        "[x for x in a]",
        "a ** 9999",
        "f'{a}'",
        "(a := 1)",
        "open('x')",
        "prod(*a)",
        "min(a, default=1)",
        "implies(a)",
        "prod",
        "a / b",
        "1.5",
        "",
        "a b",
        "implies(implies, a)",
    ],
)
def test_nothing_else_is_a_formula(text: str) -> None:
    with pytest.raises(FormulaError):
        read_formula(text)


def test_implies_computes_its_conclusion_only_where_it_has_to() -> None:
    formula = read_formula("implies(tp > 0, heads % tp == 0)")
    assert formula.names == ("tp", "heads")
    assert formula.holds({"tp": 0, "heads": 3})
    assert not formula.holds({"tp": 2, "heads": 3})
