"""Timetables of schedules in theorems: what is claimed of them, and how that compares with the simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sympy

from placeproof import schedules
from placeproof.prove import Claim, Implication, Proved, Relation, Unknown, certify, decide
from placeproof.prove import Refuted as IsRefuted
from placeproof.prove.relations import Cases, Induction
from placeproof.schedules import Schedule, Times, simulate
from placeproof.theory import StatementError, by_induction, forms, holds, schedule, term
from placeproof.theory.language import Goal, Term
from placeproof.theory.suite.checks.claims import claims
from placeproof.theory.suite.load import load
from placeproof.theory.theorem import Theorem

x, y = sympy.symbols("x y")
ZERO, ONE = sympy.Integer(0), sympy.Integer(1)
#: By schedule its theorem, its timetable and the end of a device, what they take beside p, m, d and times, and times at which they hold.
TIMED = {
    "gpipe": ("gpipe_and_1f1b_take_no_longer_than_their", "in_gpipe", "end_of_full_backwards", None, (2, 1, 3)),
    "1f1b": ("gpipe_and_1f1b_take_no_longer_than_their", "in_1f1b", "end_of_full_backwards", None, (2, 1, 3)),
    "zb-h1": ("zb_h1_takes_no_longer_than_its", "in_zb_h1", "end_of_zb_h1", 3, (3, 1, 5)),
    "zb-h2": ("zb_h2_takes_no_longer_than_its", "in_zb_h2", "end_of_zb_h2", None, (2, 3, 1)),
    "zb-v": ("zb_v_takes_no_longer_than_its", "in_zb_v", "end_of_zb_v", None, (2, 3, 1)),
}


def own(name: str) -> Theorem:
    """The theorem that has a schedule's timetable."""
    found = f"schedule_timetables.{TIMED[name][0]}_forms_say"
    return next(t for t in load([found]).theorems if t.id == found)


@pytest.mark.parametrize("name", TIMED)
def test_no_pass_begins_later_than_its_timetable_says(name: str) -> None:
    """The simulation runs each pass as soon as it can, and knows nothing of timetables."""
    _, begins, ends, extra, times = TIMED[name]
    made = own(name).function.__globals__
    more = () if extra is None else (extra,)
    for p, m in ((1, 1), (2, 3), (3, 5), (4, 9)):
        table = simulate(schedules.load(name), p=p, m=m, times=Times(forward=times[0], backward=times[1], weight=times[2]))
        begin = made[begins](p, m, *times, *more)
        for d in range(p):
            runs, values = iter(table.runs[d]), {"p": p, "m": m, "d": d}
            for number, phase in enumerate(schedules.load(name).phases, start=1):
                for r in range(phase.times.value(values)):
                    runs_of_pattern = [next(runs) for _ in phase.run]
                    assert runs_of_pattern[0].start <= begin(number, r, d), (p, m, d, number, r)
            assert next(runs, None) is None
            assert table.runs[d][-1].end <= made[ends](p, m, d, *times, *more)
        assert table.runs[0][-1].end == made[ends](p, m, 0, *times, *more)


def without(name: str, old: str, new: str) -> Schedule:
    """A schedule with one pattern of its phases replaced by another's."""
    known = schedules.load(name)
    shown = [
        " ".join("&".join(f"{t.kind}{'' if t.chunk is None else t.chunk}" for t in slot) for slot in phase.run) for phase in known.phases
    ]
    pattern = known.phases[shown.index(new)].run if new in shown else tuple(reversed(known.phases[shown.index(old)].run))
    phases = (replace(phase, run=pattern) if text == old else phase for phase, text in zip(known.phases, shown, strict=True))
    return replace(known, phases=tuple(phases))


@pytest.mark.parametrize(
    ("name", "old", "new"), [("zb-v", "B0 B1", "B1 B0"), ("zb-h1", "F B", "F B W"), ("1f1b", "F BW", "BW F"), ("gpipe", "F", "BW")]
)
def test_a_timetable_is_of_its_order(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, theorem = without(name, old, new), own(name)
    monkeypatch.setattr(forms, "load", lambda asked: wrong if asked == name else schedules.load(asked))
    monkeypatch.setattr(theorem, "_statement", None)
    statement: Any = theorem.statement()
    verdicts = [decide(claim) for claim in claims(theorem, statement) if isinstance(claim.goal, Cases)]
    assert not all(isinstance(verdict, Proved) for verdict in verdicts)


def late(phase: int, r: Term, d: Term) -> Term:
    return term(sympy.Symbol("T_F")) * (r + d)


def test_a_timetable_that_is_not_understood_is_refused() -> None:
    for name, begins, words in (
        ("interleaved", late, "take turns"),
        ("dualpipe", late, "two copies"),
        ("gpipe", lambda phase, r, d: r + d, "not linear"),
        ("gpipe", lambda phase, r, d: late(phase, r, d) * late(phase, r, d), "not linear"),
    ):
        with pytest.raises(StatementError, match=words):
            schedule(name).timetable(begins, at=[{"T_F": 1}]).kept()


def test_many_cases_are_a_goal_and_nothing_else() -> None:
    table = schedule("gpipe").timetable(late, at=[{"T_F": 1}])
    goal: Goal = table.kept()[1]
    for use in (lambda: holds(goal, given=[goal]), lambda: by_induction(goal, on=term(x))):
        with pytest.raises(StatementError, match=r"cases at once|one relation"):
            use()
    with pytest.raises(StatementError, match="can be no lemma"):
        own("gpipe").at()
    claim = Claim(name="c", goal=Cases("several", ()))
    with pytest.raises(ValueError, match="one relation"):
        Induction(claim=claim, on="x", start=ZERO)


def case(*given: Relation, then: Relation) -> Claim:
    always = Implication((), (Relation(ZERO, "<=", x * x),))
    return Claim(name="c", goal=Cases("several", (always, Implication(given, (then,)))))


def test_cases_are_proved_and_refuted_as_a_whole() -> None:
    below = Relation(x, "<=", y)
    assert isinstance(decide(case(below, then=Relation(x, "<", y + 1))), Proved)
    refuted = decide(case(below, then=Relation(x, "<", y)))
    assert isinstance(refuted, IsRefuted)
    values = dict(refuted.witness)  # type: ignore[call-overload]
    assert values["x"] == values["y"]
    assert isinstance(decide(case(Relation(ONE, "<=", ZERO), then=Relation(x, "<", x))), Proved)
    assert isinstance(certify(case(then=Relation(ZERO, "<=", x * x))), Unknown)


def test_a_case_divides_by_nothing_that_may_be_zero() -> None:
    divided = Relation(x / y, "==", x / y + 0 * x, (y,))
    assert not isinstance(decide(case(then=divided)), Proved)
    assert isinstance(decide(case(Relation(ONE, "<=", y), then=divided)), Proved)
