"""Branches on a rank: the encoding, the simulator and plain arithmetic agree on which devices take them."""

from __future__ import annotations

import itertools
import operator
from dataclasses import replace

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from placeproof import derive
from placeproof.core.diagnostics import InputError
from placeproof.programs import For, If, Stmt, parse, read, statements
from placeproof.programs.ranks import covers, rank_bound
from placeproof.semantics.judge.search import RefutingRun, search
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

OPERATORS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
#: Conditions that hold on the first device, on the last, and on all but one of these: for every degree.
FIRST = ("rank(dp) == 0", "rank(dp) <= 0", "rank(dp) < 1")
NOT_FIRST = ("rank(dp) != 0", "rank(dp) > 0", "rank(dp) >= 1")
LAST = ("rank(dp) == dp - 1", "rank(dp) >= dp - 1")
NOT_LAST = ("rank(dp) != dp - 1", "rank(dp) < dp - 1")
UPDATED = "parameters, optimizer = update(parameters, optimizer, g)\n"
TWICE = """\
mesh(dp)
g = backward(parameters)
if {one}:
    g = scale(g, 2)
if {other}:
    g = scale(g, 2)
gradients = scale(all_reduce(g, dp), 1 / (2 * dp))
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ("2", (2, 0)), ("2 * 3", (6, 0)), ("4 / 2", (2, 0)), ("dp / 2", None), ("dp - 1", (-1, 1)), ("(dp - 1) * 1", (-1, 1)),
        ("1 * (dp - 1)", (-1, 1)), ("2 * dp - dp", (0, 1)), ("dp * 2 / 2", (0, 1)), ("2 * dp", None), ("dp * dp", None), ("2 / dp", None),
    ],
)  # fmt: skip
def test_what_a_rank_is_compared_with_is_a_number_and_whether_it_counts_from_the_end(bound: str, found: tuple[int, int] | None) -> None:
    program = read(f"mesh(dp)\ng = backward(parameters)\nif rank(dp) < {bound}:\n    g = scale(g, 1)\n{UPDATED}")
    (stmt,) = (s for s in program.body if isinstance(s, If))
    assert rank_bound(stmt, program) == found


@pytest.mark.parametrize("op", OPERATORS)
def test_a_run_compares_ranks_as_numbers(op: str) -> None:
    for bound in range(0 if op in ("==", "!=") else -1, 4):
        text = f"mesh(dp)\nk = 0\nif rank(dp) {op} {bound}:\n    k = 1\ng = scale(backward(parameters), k)\n{UPDATED}"
        program = resolve(read(text))
        both = Run(program, Setup(degrees={"dp": 3}, exact=False))
        assert both.step(0) is None
        assert [place.env["k"] == 1 for place in both.places] == [OPERATORS[op](rank, bound) for rank in range(3)]


OPPOSITE = [*itertools.product(FIRST, NOT_FIRST), *itertools.product(LAST, NOT_LAST)]


@pytest.mark.parametrize(("one", "other"), OPPOSITE)
def test_a_condition_and_its_opposite_cover_each_device_once(one: str, other: str) -> None:
    program = read(TWICE.format(one=one, other=other))
    assert judge(program).word == "proved"
    assert not isinstance(search(program), RefutingRun)


@pytest.mark.parametrize(("one", "other"), OPPOSITE)
def test_otherwise_is_the_opposite(one: str, other: str) -> None:
    """A branch and its `else`, in either order."""
    with_else = TWICE.format(one=one, other=other).replace(f"if {other}:", "else:")
    for text in (with_else, with_else.replace(one, other)):
        program = read(text)
        assert judge(program).word == "proved"
        assert not isinstance(search(program), RefutingRun)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pair
        for kinds in ((FIRST, FIRST), (NOT_FIRST, NOT_FIRST), (FIRST, LAST), (LAST, LAST), (FIRST, NOT_LAST))
        for pair in itertools.product(*kinds)
    ],
)
def test_conditions_that_are_no_opposites_are_refuted(one: str, other: str) -> None:
    assert judge(read(TWICE.format(one=one, other=other)), shortest=False).word == "refuted"


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("bound", ["2", "dp / 2", "dp - 2"])
def test_conditions_in_between_are_undone_by_the_same_condition_alone(op: str, bound: str) -> None:
    """What the proof does not know of a condition, it knows of its second use."""
    text = TWICE.format(one=f"rank(dp) {op} {bound}", other=f"rank(dp) {op} {bound}")
    undone = text.replace("    g = scale(g, 2)", "    g = scale(g, 1 / 2)", 1).replace("2 * dp", "dp")
    assert judge(read(undone)).word == "proved"
    other = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[op]
    mixed = undone.replace(f"if rank(dp) {op} {bound}", f"if rank(dp) {other} {bound}", 1)
    assert judge(read(mixed), shortest=False).word == "refuted"


def turned(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Each branch with the opposite condition and its two sides exchanged."""
    other = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
    found: list[Stmt] = []
    for stmt in body:
        match stmt:
            case If():
                found.append(replace(stmt, op=other[stmt.op], then=turned(stmt.orelse), orelse=turned(stmt.then)))
            case For():
                found.append(replace(stmt, body=turned(stmt.body)))
            case _:
                found.append(stmt)
    return tuple(found)


@pytest.mark.parametrize("subject", ["pp", "ddp * pp(schedule=gpipe)", "ep * pp"])
def test_stages_may_say_first_what_the_others_do(subject: str) -> None:
    """What a stage sends and receives is followed on either side of a branch."""
    program = lower(parse_strategy(subject))
    other = replace(program, body=turned(program.body))
    assert other != program
    assert judge(other).word == "proved"


def test_streams_and_numbers_may_differ_on_devices() -> None:
    text = """\
mesh(dp)
x = data()
k = 1
if rank(dp) == 0:
    x = scale(x, 2)
    k = 1 / 2
x = scale(x, k)
y, activations = forward(parameters, x)
gradients = all_reduce(backward(parameters, activations, loss(y)), dp, op=mean)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
    assert judge(read(text)).word == "proved"
    for old, new in (("k = 1 / 2", "k = 1 / 3"), ("scale(x, 2)", "scale(x, 3)"), ("    k = 1 / 2", "else:\n    k = 1 / 2")):
        assert judge(read(text.replace(old, new)), shortest=False).word == "refuted"


NESTED = """\
mesh({mesh})
{inner}g = backward(parameters)
if rank({one}:
    if rank({other}:
        h = all_reduce(g, tp)
parameters, optimizer = update(parameters, optimizer, g)
"""


def _times(mesh: str, inner: str, one: str, other: str) -> sympy.Expr:
    return sum(
        (m.count for m in derive(read(NESTED.format(mesh=mesh, inner=inner, one=one, other=other))).messages.messages), sympy.Integer(0)
    )


@pytest.mark.parametrize(("dp", "inner"), [(6, 2), (12, 4), (4, 1), (9, 3)])
def test_branches_on_an_axis_and_on_its_sub_groups_cost_what_a_count_of_devices_says(dp: int, inner: int) -> None:
    ranks = {"dp": lambda r: r, "dp_inner": lambda r: r % inner, "dp_outer": lambda r: r // inner}
    for (one, other), op, than, bound in itertools.product(
        itertools.permutations(ranks, 2), ("==", "!=", "<", ">="), ("<=", ">"), range(min(inner, dp // inner))
    ):
        taken = [
            r for r in range(dp) if OPERATORS[op](ranks[one](r), bound) and OPERATORS[than](ranks[other](r), bound)
        ]  # fmt: skip
        found = _times(f"dp={dp}, tp=2", f"inner(dp={inner})\n", f"{one}) {op} {bound}", f"{other}) {than} {bound}")
        assert found == sympy.Rational(len(taken), dp)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("dp) < tp", "dp) >= 0"),
        ("dp) < dp / 2", "dp) >= dp / 4"),
        ("dp) > tp", "dp) < 3"),
        ("dp) >= 2 * tp", "dp) != dp - 1"),
        ("dp) != tp", "dp) < 4"),
    ],
)
def test_branches_on_other_degrees_cost_what_a_count_of_devices_says(one: str, other: str) -> None:
    found = _times("dp, tp", "", one, other)
    for dp, tp in itertools.product((4, 8, 12), (1, 2, 5)):
        numbers = {"dp": dp, "tp": tp}
        holds = [_holds(one, r, numbers) and _holds(other, r, numbers) for r in range(dp)]
        assert found.subs({"N_dp": dp, "N_tp": tp}) == sympy.Rational(sum(holds), dp), (dp, tp)


def _holds(condition: str, rank: int, numbers: dict[str, int]) -> bool:
    op, _, bound = condition.partition(") ")[2].partition(" ")
    return bool(OPERATORS[op](rank, eval(bound, {}, numbers)))  # of the test's own text


def test_branches_on_sub_groups_without_a_number_are_refused() -> None:
    with pytest.raises(InputError, match="sub-groups"):
        _times("dp, tp", "inner(dp=N_node)\n", "dp) > 0", "dp_inner) == 0")


BOUNDS = [str(k) for k in range(6)] + ["dp", *(f"dp - {k}" for k in range(1, 5)), "dp + 1"]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(sorted(OPERATORS)), st.sampled_from(BOUNDS)), min_size=1, max_size=2), min_size=2, max_size=4
    )
)
def test_what_sides_of_branches_cover_is_what_a_count_of_the_ranks_says(sides: list[list[tuple[str, str]]]) -> None:
    """The first is where something is read, the others are where it is written: on every rank of up to 20 devices."""
    program = read("mesh(dp)\ng = all_reduce(backward(parameters), dp, op=mean)\n" + UPDATED)
    paths = []
    for side in sides:
        text = "mesh(dp)\ng = backward(parameters)\n" + "".join(f"if rank(dp) {op} {end}:\n    pass\n" for op, end in side)
        found = [s for s in statements(parse(text + UPDATED).body) if isinstance(s, If)]
        paths.append(frozenset(((s.axis, s.op, s.bound), True) for s in found))

    def takes(side: list[tuple[str, str]], rank: int, dp: int) -> bool:
        return all(OPERATORS[op](rank, eval(end, {"dp": dp})) for op, end in side)

    counted = all(any(takes(side, r, n) for side in sides[1:]) for n in range(1, 21) for r in range(n) if takes(sides[0], r, n))
    assert covers(paths[1:], paths[0], program) is counted


@pytest.mark.parametrize("other", ["rank(dp) > 1", "rank(dp) == dp - 1", "rank(pp) > 0", "rank(dp) > units"])
def test_what_some_devices_alone_have_written_is_not_read_by_all(other: str) -> None:
    head = "mesh(dp, pp)\ng = all_reduce(backward(parameters), dp, op=mean)\n"
    with pytest.raises(InputError, match="`n` is read here by devices on which nothing wrote it"):
        read(head + f"if rank(dp) == 0:\n    n = 1\nif {other}:\n    n = 1\ng = scale(g, n)\n" + UPDATED)
