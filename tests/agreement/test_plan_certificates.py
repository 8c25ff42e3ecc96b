"""Certificates of plans: what holds is accepted, whatever is changed in one is rejected, and intervals hold what they are about."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plan_certificates import certificate_of

from placeproof.answers.models import Clock, ModelRun
from placeproof.answers.numbers import Settings
from placeproof.answers.plan import question
from placeproof.answers.subject import model
from placeproof.clusters import find
from placeproof.core.diagnostics import InputError
from placeproof.planning import certificate
from placeproof.planning.arrays import ExchangeTime
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.search import Outcome, Search
from placeproof.planning.task import Task
from placeproof.verify import plan as checker

COUNT = 3
CLOCK = Clock(cluster=find("dgx-h100"), reserve=Fraction(66 * 10**9))
CHECKER = Path(checker.__file__)


@cache
def searched() -> tuple[Search, Outcome, dict[str, Any]]:
    """Four devices, on which some placements do not fit, some are no strategies, and of some a size is not divided."""
    task = question(model("gpt3-1.3b"), ModelRun(), Settings().numbers(), CLOCK, (4,), batch=12)
    pins = Pins(only=("b=1,2,4", "recompute=none,full", "schedule=1f1b,interleaved:2,interleaved:5", "data=ddp,zero3", "cp=1", "sp=yes"))
    search = Search(task, space_of(task.model, task.counts, task.batch, pins, task.joined))
    outcome = search.run(COUNT)
    document = certificate_of(search, outcome, COUNT)
    assert document is not None
    return search, outcome, document


@cache
def derived() -> tuple[dict[str, Any], dict[Any, Any]]:
    """What is asked, and what comes of points, worked out once for all."""
    search, outcome, _ = searched()
    return certificate.stated(search, {}), dict(outcome.derived)


def differences(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `placeproof verify` says beside the checker."""
    stated, known = derived()
    search = searched()[0]
    monkeypatch.setattr(certificate, "stated", lambda search, question: stated | {"question": question})
    monkeypatch.setattr(Search, "asked", lambda self, point: known[point] if point in known else asked(self, point))
    return [*certificate.differences(search, document, lambda point: "proved")]


asked = Search.asked


def accepted(document: dict[str, Any]) -> bool:
    """By the checker alone."""
    try:
        checker.Plan(document).check()
    except (checker.RejectedPlanError, *checker.BROKEN):
        return False
    return True


def test_a_certificate_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    search, _, document = searched()
    counts = checker.Plan(document).check()
    assert counts.total() == search.space.size
    assert {"time", "memory", "batch", "order", "exact"} <= counts.keys()
    assert differences(document, monkeypatch) == []


def nodes(tree: Any) -> list[list[Any]]:
    """The splits of a tree."""
    return [] if isinstance(tree, str) else [tree, *(node for _, part in tree[1] for node in nodes(part))]


def leaves(tree: Any) -> list[tuple[list[Any], str]]:
    return (
        []
        if isinstance(tree, str)
        else [own for part in tree[1] for own in ([(part, part[1])] if isinstance(part[1], str) else leaves(part[1]))]
    )


Corruption = Callable[[dict[str, Any], Random], None]


def a_box_less(document: dict[str, Any], draw: Random) -> None:
    parts = draw.choice(nodes(document["tree"]))[1]
    del parts[draw.randrange(len(parts))]


def a_value_less(document: dict[str, Any], draw: Random) -> None:
    part = draw.choice(draw.choice(nodes(document["tree"]))[1])
    del part[0][draw.randrange(len(part[0]))]


def a_value_twice(document: dict[str, Any], draw: Random) -> None:
    part = draw.choice(draw.choice(nodes(document["tree"]))[1])
    part[0].append(draw.choice(part[0]))


def another_rule(document: dict[str, Any], draw: Random) -> None:
    """A rule is said to cut what bounds do; bounds that hold, too, would be no lie."""
    leaf, _ = draw.choice([own for own in leaves(document["tree"]) if own[1] in ("time", "memory", "exact")])
    leaf[1] = draw.choice(["batch", "uneven", "order", "refused", "better", ""])


def a_bound_of_what_was_derived(document: dict[str, Any], draw: Random) -> None:
    leaf, _ = draw.choice([own for own in leaves(document["tree"]) if own[1] == "exact"])
    leaf[1] = draw.choice(["time", "memory"])


def a_worse_best(document: dict[str, Any], draw: Random) -> None:
    row = draw.choice([row for row in document["derived"] if row["because"] == "listed"])
    row["seconds"] = str(Fraction(row["seconds"]) * draw.choice([Fraction(101, 100), 2, Fraction(99, 100), 1 + Fraction(1, 10**12)]))


def a_plan_less(document: dict[str, Any], draw: Random) -> None:
    document["derived"].remove(draw.choice([row for row in document["derived"] if row["because"] == "listed"]))


def other_bytes(document: dict[str, Any], draw: Random) -> None:
    row = draw.choice(document["derived"])
    row[word] = str(Fraction(row[word := draw.choice(["peak", "room"])]) * draw.choice([Fraction(1, 2), 2]))


def another_reason(document: dict[str, Any], draw: Random) -> None:
    row = draw.choice(document["derived"])
    row["because"] = draw.choice([word for word in ("listed", "slower", "memory", "refused", "unproved") if word != row["because"]])


def another_point(document: dict[str, Any], draw: Random) -> None:
    row = draw.choice([row for row in document["derived"] if row["because"] == "listed"])
    name = draw.choice([name for name, values in document["grid"]["choices"].items() if len(values) > 1 and name != "flow"])
    row["point"][name] = draw.choice([value for value in document["grid"]["choices"][name] if value != row["point"][name]])
    if checker.Plan(searched()[2]).place(as_box(row["point"])) in checker.Plan(searched()[2]).rows:
        document["count"] += 1  # it is the same point: another lie


def as_box(point: dict[str, Any]) -> checker.Box:
    return {name: (value,) for name, value in point.items()}


def another_number(document: dict[str, Any], draw: Random) -> None:
    line = draw.choice([line for line in document["formulas"] if line[0] == "number" and "inf" not in line[1] and line[1] != "0"])
    line[1] = str(Fraction(line[1]) * draw.choice([Fraction(9, 10), 2, -1]))


def another_operation(document: dict[str, Any], draw: Random) -> None:
    line = draw.choice([line for line in document["formulas"] if line[0] in ("+", "*", "max", "min", "/")])
    line[0] = draw.choice([op for op in ("+", "-", "*", "max", "min", "/") if op != line[0]])


def another_formula(document: dict[str, Any], draw: Random) -> None:
    one = draw.choice([one for table in document["tables"].values() for one in table["entries"] if one.get("slots")])
    name = draw.choice([*one["slots"]])
    one["slots"][name] = draw.choice([i for i in range(len(document["formulas"])) if i != one["slots"][name]])


def a_rule_less(document: dict[str, Any], draw: Random) -> None:
    one = draw.choice([one for table in document["tables"].values() for one in table["entries"] if one.get("broken")])
    del one["broken"][draw.randrange(len(one["broken"]))]


def a_lower_bound(document: dict[str, Any], draw: Random) -> None:
    one = draw.choice([one for one in document["tables"]["states"]["entries"] if "seconds" in one])
    word = draw.choice(["seconds", "beyond"])
    document["formulas"].append(["number", "-inf" if word == "seconds" else "inf"])
    one[word] = len(document["formulas"]) - 1


def another_link(document: dict[str, Any], draw: Random) -> None:
    groups = draw.choice([groups for one in document["lines"] for groups in one if any(b != "0" for _, b in groups)])
    line = draw.choice([line for line in groups if line[1] != "0"])
    line[draw.randrange(2)] = str(Fraction(line[1]) * 3 + 1)


def more_room(document: dict[str, Any], draw: Random) -> None:
    document["rooms"] = [str(Fraction(room) * draw.choice([Fraction(1, 2), 2])) for room in document["rooms"]]


def a_smaller_grid(document: dict[str, Any], draw: Random) -> None:
    values = draw.choice([values for values in document["grid"]["choices"].values() if len(values) > 1])
    del values[draw.randrange(len(values))]


def another_question(document: dict[str, Any], draw: Random) -> None:
    name = draw.choice(["batch", "devices"])
    document["grid"][name] = [draw.choice([1, 2, 3, 8])] if name == "devices" else document["grid"][name] * draw.choice([2, 3])


CORRUPTIONS: tuple[Corruption, ...] = (
    a_box_less, a_value_less, a_value_twice, another_rule, a_bound_of_what_was_derived, a_worse_best, a_plan_less, other_bytes,
    another_reason, another_point, another_number, another_operation, another_formula, a_rule_less, a_lower_bound, another_link, more_room,
    a_smaller_grid, another_question,
)  # fmt: skip
#: Of these the checker has to say so by itself: they are not about what formulas are taken to be.
ALONE = (a_box_less, a_value_less, a_value_twice, another_rule, a_bound_of_what_was_derived, a_plan_less)


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda one: one.__name__)
def test_what_was_changed_is_rejected(corruption: Corruption, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven of each kind: 209."""
    for seed in range(11):
        document = deepcopy(searched()[2])
        corruption(document, Random(seed))
        assert document != searched()[2]
        alone = accepted(document)
        assert not (alone and corruption in ALONE), seed
        assert not alone or differences(document, monkeypatch), seed


def test_plans_that_fit_no_more_are_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is shorter than what was asked for says that nothing else fits."""
    document = deepcopy(searched()[2])
    document["count"] += 1
    assert not accepted(document)


def test_the_checker_runs_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(searched()[2]), encoding="utf-8")
    ran = subprocess.run([sys.executable, "-I", "-S", str(CHECKER), str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"holds for {searched()[0].space.size:,} points" in ran.stdout
    path.write_text(json.dumps(searched()[2] | {"derived": []}), encoding="utf-8")
    ran = subprocess.run([sys.executable, "-I", "-S", str(CHECKER), str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "rejected" in ran.stdout


def test_the_checker_is_short() -> None:
    """At most 250 lines of it are code: no blank lines, comments and texts about it."""
    text = CHECKER.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = {n for node in ast.walk(tree) if isinstance(node, ast.stmt) and not _is_text(node) for n in _own_lines(node)}
    assert len(lines) <= 250


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _own_lines(node: ast.stmt) -> range:
    """The lines of a statement without those of the statements in it."""
    inside = [part for name in ("body", "orelse", "finalbody", "handlers") for part in getattr(node, name, [])]
    return range(node.lineno, (inside[0].lineno if inside else (node.end_lineno or 0) + 1))


def test_options_that_are_refused_refuse_no_others() -> None:
    """The first recomputation of the grid is of nothing in a dense model."""
    task = question(model("gpt3-1.3b"), ModelRun(), Settings().numbers(), CLOCK, (2,), batch=2)
    pins = Pins(only=("recompute=moe-act,full", "tp=1,2", "pp=1", "cp=1", "b=1", "data=zero3", "sp=yes"))
    search = Search(task, space_of(task.model, task.counts, task.batch, pins))
    document = certificate_of(search, search.run(5), 5)
    assert document is not None
    assert len(document["derived"]) == 2
    assert checker.Plan(document).check().total() == search.space.size
    assert not any("refused" in entry for entry in document["tables"]["states"]["entries"])


# Intervals.

numbers = st.one_of(st.integers(-(10**18), 10**18).map(Fraction), st.fractions(-1000, 1000, max_denominator=10**6))


def near(value: Fraction) -> checker.Interval:
    """A number as a checker reads it, in floating-point numbers."""
    return checker.Plan._number.__wrapped__(None, str(value), False)  # type: ignore[attr-defined,no-any-return]


@given(st.sampled_from([*checker.OPERATIONS]), st.lists(st.lists(numbers, min_size=1, max_size=3), min_size=3, max_size=3))
def test_intervals_hold_what_they_are_about(op: str, values: list[list[Fraction]]) -> None:
    arguments = values[: {"ceil": 1, "floor": 1, "where": 3}.get(op, 2)]
    if op == "where":
        arguments[0] = [Fraction(value > 0) for value in arguments[0]]
    if op == "mod":
        assume(all(value > 0 for value in arguments[1]))
    found = checker.OPERATIONS[op](*(checker._hull([near(value) for value in own]) for own in arguments))
    for point in range(max(map(len, arguments))):
        own = [values[point % len(values)] for values in arguments]
        if op == "/" and own[1] == 0:
            continue
        exact = EXACT[op](*own)
        assert found[0] <= exact <= found[1], (own, exact)


EXACT: dict[str, Callable[..., Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "ceil": lambda a: -(-a // 1),
    "floor": lambda a: a // 1,
    "<": lambda a, b: Fraction(a < b),
    "<=": lambda a, b: Fraction(a <= b),
    "=": lambda a, b: Fraction(a == b),
    "where": lambda c, a, b: a if c else b,
}


def test_what_has_no_closed_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    search, outcome, _ = searched()
    monkeypatch.setattr(Task, "exchange_time", lambda self, kind, groups: ExchangeTime(kind, groups, self.cluster, ()))
    with pytest.raises(InputError, match="no closed form"):
        certificate.written(search, outcome, COUNT, {})
