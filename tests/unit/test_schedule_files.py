"""Schedules as files, and what cannot be: each bad input ends in one error that names its place and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from placeproof import schedules
from placeproof.core.diagnostics import InputError
from placeproof.schedules import Pass, PassKind, Times, load, simulate
from placeproof.schedules.expression import ExpressionError, read
from placeproof.schedules.read import read_text

OWN = """
name = "mine"
layout = "loop"

[order]
phases = [
    { times = "min(m, 2 * (p - d))", run = "F" },
    { times = "max(0, m - 2 * (p - d))", run = "B W F" },
    { times = "min(m, 2 * (p - d))", run = "B W" },
]
"""


def problem(make: Callable[[], Any]) -> tuple[list[str], str]:
    """The codes and the text of what making raises."""
    with pytest.raises(InputError) as caught:
        make()
    found = caught.value.diagnostics
    assert all(d.message and (d.help or d.notes) for d in found), found
    return [d.code for d in found], "\n".join([d.message + " " + (d.help or "") + " ".join(d.notes) for d in found])


def test_a_schedule_of_ones_own(tmp_path: Path) -> None:
    """1F1B with twice the micro-batches in flight, and split backwards: it hides messages that 1F1B waits for."""
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    mine = load(path)
    assert mine == load(str(path))
    assert mine.split
    assert not mine.overlapped
    assert mine.copies == 1
    times = Times(forward=10, backward=10, weight=10, send=1)
    assert schedules.step(mine, p=4, m=16, times=times) == simulate(mine, p=4, m=16, times=times).step
    assert schedules.bubble(mine, p=4, m=16, times=times).time < schedules.bubble("1f1b", p=4, m=16, times=times).time
    assert [schedules.peak(mine, p=4, m=16, d=d) for d in range(4)] == [8, 6, 4, 2]
    assert schedules.messages(mine, p=4, m=16) == schedules.messages("1f1b", p=4, m=16)
    assert schedules.form(mine, "idle") is None
    assert schedules.formula(mine, "idle") is None
    assert schedules.form(mine, "busy") is not None


def test_orders_are_passes() -> None:
    first, last = schedules.orders(load("1f1b"), 2, 2)
    assert first == (Pass(PassKind.F, 0, 0), Pass(PassKind.F, 1, 0), Pass(PassKind.BW, 0, 0), Pass(PassKind.BW, 1, 0))
    assert last == (Pass(PassKind.F, 0, 1), Pass(PassKind.BW, 0, 1), Pass(PassKind.F, 1, 1), Pass(PassKind.BW, 1, 1))
    assert str(first[2]) == "BW of micro-batch 0, stage 0"


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        (lambda: load("1f2b"), "PP101", "did you mean `1f1b`"),
        (lambda: load("nowhere.toml"), "PP110", "nowhere.toml"),
        (lambda: schedules.step("1f1b", p=0, m=4), "PP202", "p = 0 is no count"),
        (lambda: schedules.step("1f1b", p=2, m=True), "PP202", "m = True is no count"),
        (lambda: load("interleaved").stages(4), "PP202", "say how many: v=2"),
        (lambda: load("zb-v").stages(4, 3), "PP202", "`zb-v` has 2 chunks on a device, not 3"),
        (lambda: load("dualpipe").stages(3), "PP202", "needs p % 2 == 0, and not p = 3"),
        (lambda: schedules.bubble("interleaved", p=4, m=6, v=2), "PP202", "needs m % p == 0, and not m = 6, p = 4"),
        (lambda: schedules.peak("dualpipe", p=4, m=6), "PP202", "needs m >= 2 * p"),
        (lambda: schedules.peak("1f1b", p=4, m=6, d=4), "PP202", "numbered from 0 to 3"),
        (lambda: schedules.peak("1f1b", p=4, m=6, M_B=-1), "PP202", "M_B = -1 is no size"),
        (lambda: schedules.form("1f1b", "idel"), "PP201", "busy, idle, wait, peak, messages"),
        (lambda: schedules.step("1f1b", p=2, m=2, times=Times(forward=-1, backward=1)), "PP202", "forward = -1 is no time"),
        (lambda: schedules.step("1f1b", p=2, m=2, times=Times(forward=1, backward=float("nan"))), "PP202", "backward = nan"),
        (lambda: schedules.step("1f1b", p=2, m=2, times=[schedules.UNIT]), "PP202", "times of 1 stages, and the model has 2"),
    ],
)
def test_what_cannot_be_asked(make: Callable[[], Any], code: str, says: str) -> None:
    codes, text = problem(make)
    assert codes == [code]
    assert says in text


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ('name = "mine"', 'name = "mine', "PP110", "this is not TOML"),
        ('name = "mine"', "", "PP113", "`name` is missing"),
        ('name = "mine"', 'name = "mine"\nchunk = 2', "PP111", "did you mean `chunks`"),
        ('layout = "loop"', 'layout = "ring"', "PP112", "`ring` is no layout"),
        ('layout = "loop"', 'layout = "vee"\nchunks = 3', "PP112", "layout vee has 2 chunks on a device, not 3"),
        ('layout = "loop"', 'layout = "loop"\nchunks = 0', "PP112", "`chunks` is a whole number"),
        ("max(0,", "maximum(0,", "PP112", "maximum(0, m - 2 * (p - d))"),
        ('2 * (p - d))", run = "B W"', '2 * (p - e))", run = "B W"', "PP112", "`e` is no number of a schedule here"),
        ("B W F", "B F G", "PP112", "`G` is no pass"),
        ("B W F", "B&F W", "PP112", "`B&F` cannot overlap"),
        ("phases", "phase", "PP113", "`phases` is missing"),
        ("[order]", '[[needs]]\nrule = "m"\n[order]', "PP112", "`m` is no relation"),
        ("[order]", '[[closed]]\nwhat = "peak"\nform = "m"\nproved = "x"\n[order]', "PP112", "`proved` is a list of texts"),
        ("[order]", '[[closed]]\nwhat = "cost"\nform = "m"\n[order]', "PP112", "`cost` is no quantity"),
    ],
)
def test_files_that_cannot_be_read(old: str, new: str, code: str, says: str) -> None:
    assert old in OWN
    codes, text = problem(lambda: read_text(OWN.replace(old, new), source="mine.toml"))
    assert code in codes
    assert says in text


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        ('{ times = "m", run = "F" }', "B of micro-batch 0, stage 0 is not run by any device"),
        ('{ times = "m", run = "F BW" }, { times = "1", run = "BW" }', "there is no further BW to run"),
        ('{ times = "m", run = "F0 BW0" }, { times = "1", run = "BW0" }', "there is no further BW to run"),
        ('{ times = "m // d", run = "F BW" }', "`m // d` divides by zero at d = 0, m = 3"),
        ('{ times = "m - 4", run = "F BW" }', "m - 4 = -1 is no count"),
        ('{ times = "m", run = "W F B" }', "there is no B whose W is still to run"),
        ('{ times = "m", run = "BW F" }', "too early"),
        ('{ times = "m / 2", run = "F BW" }', "m / 2 = 3/2 is no count"),
        ('{ times = "m", run = "F1 BW1" }', "there is no further F to run"),
    ],
)
def test_phases_that_give_no_order(phases: str, says: str) -> None:
    made = read_text(f'name = "mine"\nlayout = "loop"\n[order]\nphases = [{phases}]', source="mine.toml")
    codes, text = problem(lambda: schedules.orders(made, 2, 3))
    assert set(codes) == {"PP112"}
    assert says in text


def test_devices_that_wait_for_one_another() -> None:
    text = 'name = "mine"\nlayout = "loop"\nchunks = 2\n[order]\nphases = [{ times = "m", run = "F1 F0 BW1 BW0" }]'
    codes, said = problem(lambda: simulate(read_text(text, source="mine.toml"), p=2, m=2))
    assert codes == ["PP308"]
    assert "device 0 waits with F of micro-batch 0, stage 2 for device 1" in said
    assert "device 1 waits with F of micro-batch 0, stage 3 for device 0" in said


def test_the_language_of_numbers() -> None:
    made = read("min(2 * p, m // 3) - (-d) % 2 + m / 4", ("p", "m", "d"))
    assert made.names == ("d", "m", "p")
    assert made.value({"p": 4, "m": 14, "d": 1}) == 4 - 1 + Fraction(7, 2)
    assert made.sympy().subs({"p": 4, "m": 14, "d": 1}) == Fraction(13, 2)
    relation = read("m >= 2 * p", ("p", "m"))
    assert relation.relation
    assert relation.holds({"p": 2, "m": 4})
    assert not relation.holds({"p": 3, "m": 4})
    assert bool(relation.sympy().subs({"p": 2, "m": 4}))


@pytest.mark.parametrize(
    "text", ["", "p +", "p ** 2", "q", "p.x", "print(p)", "min(p)", "1 < p < 3", "(p < 3) + 1", "1.5", "True", "'p'", "p if p else 1"]
)
def test_what_is_not_in_the_language(text: str) -> None:
    with pytest.raises(ExpressionError):
        read(text, ("p",))
