"""Closed forms and the theorems that are named beside them: a theorem counts if that very form is in what it states."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import pytest

from placeproof import schedules
from placeproof.cost.blocks.flops import Work
from placeproof.report import described
from placeproof.schedules.expression import read
from placeproof.schedules.schedule import COUNTS, SIZES, TIMES, Form, Schedule
from placeproof.theory import Proved, forms
from placeproof.theory.suite.bound import about, behind, claimed, subject
from placeproof.theory.suite.load import load
from placeproof.theory.theorem import Theorem

#: Topics whose theorems are about closed forms.
TOPICS = ("schedule_forms", "schedule_timetables", "schedule_variants", "collective_forms", "operations")

CLOSED = [(name, number) for name in schedules.names() for number, _ in enumerate(schedules.load(name).closed)]


@cache
def theorems() -> dict[str, Theorem]:
    return {t.id: t for t in load(TOPICS).theorems}


def named(form: Form) -> list[str]:
    return [text.partition(": ")[0] for text in (*form.proved, *form.computed)]


@pytest.mark.parametrize(("name", "number"), CLOSED)
def test_each_theorem_beside_a_form_is_about_it(name: str, number: int) -> None:
    form = schedules.load(name).closed[number]
    assert form.computed
    assert behind(forms.name_of(schedules.load(name), form), named(form)) == dict.fromkeys(named(form), True)


def test_every_form_has_a_theorem() -> None:
    """A new form without one fails here."""
    proved = frozenset().union(*(claimed(t.statement()) for t in theorems().values() if isinstance(t.expect, Proved)))
    assert set(forms.shipped()) - proved == set()
    assert {f"form operations of {f.name}" for f in fields(Work)} <= proved
    known = frozenset().union(*(about(t.statement()) for t in theorems().values()))
    assert "code placeproof.cost.exact.flat.up" in known


def test_a_theorem_about_another_form_does_not_count() -> None:
    other = "schedule_timetables.zb_h1_takes_no_longer_than_its_forms_say"
    assert behind("form wait of zb-h1", [other, "schedules.gpipe_and_1f1b_take_equally_long", "memory.no_such"]) == {other: True}
    assert behind("form wait of zb-h2", [other]) == {}


@pytest.mark.parametrize(
    ("name", "what", "text", "theorem"),
    [
        ("zb-h1", "wait", "(p - 1) * (T_F + T_B)", "schedule_timetables.zb_h1_takes_no_longer_than_its_forms_say"),
        ("1f1b", "idle", "p * (T_F + T_B + T_W)", "schedule_forms.one_f_one_b_idles_as_its_form_says"),
        ("interleaved", "messages", "2 * m * p * v", "schedule_forms.interleaving_takes_what_its_forms_say"),
    ],
)
def test_beside_a_wrong_form_no_theorem_is_shown(name: str, what: str, text: str, theorem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = schedules.load(name)
    wrong = replace(
        known, closed=tuple(replace(f, form=read(text, (*COUNTS, *TIMES, *SIZES))) if f.what == what else f for f in known.closed)
    )
    assert wrong != known
    changed(monkeypatch, wrong)
    lines = list(described.schedule(wrong))
    assert f"    it is not what theorem {theorem} says: `placeproof check {theorem}`" in lines
    start = lines.index(f"    {text}")
    assert not [line for line in lines[start : start + 3] if line.startswith("    theorem")]


def changed(monkeypatch: pytest.MonkeyPatch, wrong: Schedule) -> None:
    """Let the product have a wrong schedule, and theorems be elaborated anew."""
    monkeypatch.setattr(forms, "load", lambda name: wrong if name == wrong.name else schedules.load(name))
    for theorem in theorems().values():
        monkeypatch.setattr(theorem, "_statement", None)


def test_what_a_statement_is_about() -> None:
    own = theorems()
    bound = own["schedule_forms.gpipe_idles_as_its_form_says"].statement()
    assert about(bound) == {"form idle of gpipe"}
    assert subject(bound) == "forms"
    sent = own["schedule_forms.forms_count_the_messages_that_programs_send"].statement()
    assert {"program", "form messages of zb-v"} <= about(sent)
    assert subject(sent) == "derivations"
    assert subject(own["schedule_variants.the_slowest_stage_sets_the_pace"].statement()) == "mathematics"
