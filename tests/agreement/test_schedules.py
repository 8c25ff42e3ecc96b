"""Pipeline schedules: closed forms equal the simulation, the simulation equals a slower one, and orders equal those of others."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from published import Row, rows

from placeproof import schedules
from placeproof.core.diagnostics import InputError
from placeproof.framework_rules import orders as slot_orders
from placeproof.schedules import Pass, PassKind, Schedule, StageLayout, Times, Timetable, load, repeated, simulate
from placeproof.schedules.expression import read

NAMES = schedules.names()
#: Those that have closed forms: an order that is searched for has none.
FORMED = [name for name in NAMES if load(name).search is None]
#: Building blocks that are repeated, whose closed forms of peaks are those of enough micro-batches.
REPEATED = ("v-half", "v-min")


def admitted(schedule: Schedule, most_p: int = 8, most_m: int = 16) -> Iterator[tuple[int, int, int]]:
    """All p, m and v that a schedule admits, up to 8, 16 and 4."""
    for p in range(1, most_p + 1):
        for m in range(1, most_m + 1):
            for v in range(1, 5) if schedule.chunks is None else (schedule.chunks,):
                if all(need.rule.holds({"p": p, "m": m, "v": v}) for need in schedule.needs):
                    yield p, m, v


def durations(source: random.Random, overlapped: bool) -> list[Times]:
    """Times of passes: equal, without W, those of a layer at two lengths, and random ones with and without messages."""
    a, b, c = sorted(Fraction(source.randint(1, 50), source.randint(1, 4)) for _ in range(3))
    found = [
        Times(forward=1, backward=1, weight=1),
        Times(forward=1, backward=2),
        Times(forward=28, backward=32, weight=24),
        Times(forward=b, backward=c, weight=a),
        Times(forward=a, backward=c, weight=b),
        Times(forward=c, backward=a, weight=b),
        Times(forward=b, backward=c, weight=a, send=min(b, a + c) * Fraction(source.randint(0, 8), 8)),
        Times(forward=b, backward=c, weight=a, send=c * source.randint(1, 9)),
    ]
    if overlapped:
        found.append(Times(forward=b, backward=c, weight=a, overlapped=max(b, a + c) + min(b, a + c) * Fraction(source.randint(0, 5), 5)))
    return found


def measured(table: Timetable) -> dict[str, Fraction | int]:
    """What closed forms speak of, read off a simulated step."""
    devices = range(table.p)
    idle = max(map(table.idle, devices))
    return {
        "busy": table.step - idle,
        "idle": idle,
        "wait": max(map(table.wait, devices)),
        "messages": sum(map(table.messages, devices)),
    }


# Closed forms and the simulation.


def numbers(p: int, m: int, v: int, times: Times) -> dict[str, Fraction | int]:
    """What the names of a form stand for, but for a device and sizes."""
    return {"p": p, "m": m, "v": v, **dict(zip(("T_F", "T_B", "T_W", "T_send", "T_FB"), times.fractions(), strict=True))}


@pytest.mark.parametrize("name", FORMED)
def test_closed_forms_equal_the_simulation(name: str) -> None:
    """And so does what a source prints, where the file says so."""
    schedule, source, count = load(name), random.Random(name), 0
    printed = [one.form for one in schedule.printed if one.form.what != "peak"]
    held = dict.fromkeys(range(len(printed)), 0)
    for p, m, v in admitted(schedule):
        for times in durations(source, schedule.overlapped):
            table, values = measured(simulate(schedule, p=p, m=m, v=v, times=times)), numbers(p, m, v, times)
            forms = {what: schedules.evaluate(schedule, what, p=p, m=m, v=v, times=times) for what in table}
            if forms["idle"] is None:
                del forms["busy"]
            for what, value in forms.items():
                if value is not None:
                    assert value == table[what], (what, p, m, v, times)
                    count += 1
            for n, one in enumerate(printed):
                if one.holds(values):
                    assert one.form.value(values) == table[one.what], (one.form.text, p, m, v, times)
                    held[n] += 1
    print(f"{name}: {count} values of closed forms equal the simulation")
    assert count >= 300
    assert all(many >= 10 for many in held.values()), held


@pytest.mark.parametrize("name", FORMED)
def test_closed_forms_of_peaks_equal_the_orders(name: str) -> None:
    """And so does what a source prints, where the file says so."""
    schedule, count = load(name), 0
    printed = [one.form for one in schedule.printed if one.form.what == "peak"]
    held = dict.fromkeys(range(len(printed)), 0)
    for p, m, v in admitted(schedule):
        for d, order in enumerate(schedules.slots(schedule, p, m, v)):
            for b, w in ((1, 1), (1, 0), (34, 32), (Fraction(7, 2), 1), (7, 8), (3, 7), (1, 9), (0, 1)):
                found = schedules.kept_at_most(order, b, w)
                known = schedules.evaluate(schedule, "peak", p=p, m=m, v=v, d=d, M_B=b, M_W=w)
                values = {**numbers(p, m, v, schedules.UNIT), "d": d, "M_B": b, "M_W": w}
                if known is None and name in REPEATED:
                    continue  # of few micro-batches
                assert known is not None
                assert known == max(one.form.value(values) for one in schedules.forms(schedule, "peak")) == found, (p, m, v, d, b, w)
                count += 1
                for n, one in enumerate(printed):
                    if one.holds(values):
                        assert one.form.value(values) == found, (one.form.text, values)
                        held[n] += 1
    print(f"{name}: {count} peaks of devices equal those of their orders")
    assert count >= 200
    assert all(many >= 20 for many in held.values()), held


def test_every_schedule_has_all_closed_forms() -> None:
    for name in NAMES:
        for what in ("busy", "idle", "wait", "peak", "messages"):
            assert (schedules.form(name, what) is not None) == (name in FORMED), (name, what)


def naive(schedule: Schedule, p: int, m: int, v: int, each: list[Times]) -> dict[Pass, Fraction]:
    """When each pass ends, by relaxing all constraints until nothing moves: of schedules in which nothing overlaps."""
    orders = schedules.orders(schedule, p, m, v)
    home = {one: d for d, order in enumerate(orders) for one in order}
    ends = dict.fromkeys(home, Fraction(0))

    def takes(one: Pass) -> Fraction:
        f, b, w, _, _ = each[one.stage].fractions()
        return {PassKind.F: f, PassKind.B: b, PassKind.W: w, PassKind.BW: b + w}[one.kind]

    def feeds(one: Pass, other: Pass) -> bool:
        if one.microbatch != other.microbatch or PassKind.W in (one.kind, other.kind):
            return False
        forward = other.kind is PassKind.F
        return (one.kind is PassKind.F) == forward and one.stage == other.stage + (-1 if forward else 1)

    before = [(a, b, Fraction(0)) for order in orders for a, b in pairwise(order)]
    before += [(a, b, Fraction(each[a.stage].send if home[a] != home[b] else 0)) for a in ends for b in ends if feeds(a, b)]
    ends = {one: takes(one) for one in ends}
    moved = True
    while moved:
        moved = False
        for first, then, message in before:
            if ends[first] + message + takes(then) > ends[then]:
                ends[then], moved = ends[first] + message + takes(then), True
    return ends


@pytest.mark.parametrize("name", [n for n in NAMES if not load(n).overlapped])
def test_the_simulation_equals_a_naive_one(name: str) -> None:
    """With different times on each stage, and messages that take time."""
    schedule, source = load(name), random.Random(name)
    for p, m in ((3, 6), (2, 4)):
        v = schedule.chunks or 2
        part = lambda: Fraction(source.randint(0, 9), source.randint(1, 3))  # noqa: E731
        each = [Times(forward=part(), backward=part(), weight=part(), send=part()) for _ in range(schedule.depth(p, v))]
        table = simulate(schedule, p=p, m=m, v=v, times=each)
        assert {one: run.end for device in table.runs for run in device for one in run.slot} == naive(schedule, p, m, v, each)


def test_the_slowest_stage_sets_the_pace() -> None:
    """Forwards of unequal stages: the time of one micro-batch on all, and the slowest stage's for each further one."""
    takes = [Fraction(3), Fraction(7, 2), Fraction(1), Fraction(2)]
    for m in range(1, 6):
        table = simulate(load("gpipe"), p=4, m=m, times=[Times(forward=t, backward=0) for t in takes])
        assert table.step == sum(takes) + (m - 1) * max(takes)


def test_formulas_are_the_same_in_sympy() -> None:
    import sympy

    for name in FORMED:
        schedule, times = load(name), Times(forward=28, backward=32, weight=24, overlapped=70)
        p, m, v = [row for row in admitted(schedule) if row[0] == 4][-1]
        values = {"p": p, "m": m, "v": v, "d": 1, "T_F": 28, "T_B": 32, "T_W": 24, "T_FB": 70, "T_send": 0, "M_B": 34, "M_W": 32}
        for what in ("idle", "wait", "busy", "peak", "messages"):
            made = schedules.formula(name, what)
            assert made is not None
            number = schedules.evaluate(name, what, p=p, m=m, v=v, d=1, times=times, M_B=34, M_W=32)
            assert (number is None) == (name in ("v-half", "v-min") and what in ("idle", "wait"))  # said of equal passes alone
            if number is not None:
                assert made.subs({sympy.Symbol(k): n for k, n in values.items()}) == number, (name, what)


def test_large_pipelines_need_no_simulation() -> None:
    found = schedules.bubble("interleaved", p=64, m=64_000, v=4)
    assert found.of_ideal == Fraction(63, 4 * 64_000)
    assert found.of_total == found.time / schedules.step("interleaved", p=64, m=64_000, v=4)


# Orders.


#: Schedules whose devices repeat one phase. Of the others, two phases grow, passes have no phases but units of time, or it depends on m
#: which copy of the model a micro-batch takes.
ONE_PHASE = {"1f1b", "dualpipe-v", "interleaved", "zb-h1", "zb-h2", "zb-v"}


def unlike(source: random.Random, depth: int) -> list[Times]:
    """Times of stages: any, or those of one stage but for the last; messages take time or none."""
    send = Fraction(source.choice((0, 1, 3)), 2)
    drawn = [[source.randint(least, 9) for least in (1, 1, 0)] for _ in range(depth)]
    every = [Times(forward=f, backward=b, weight=w, send=send) for f, b, w in drawn]
    return every if source.randrange(4) else [*[every[0]] * (depth - 1), every[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_what_devices_repeat_need_not_be_simulated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From steps with too few micro-batches for devices to repeat themselves, and with enough."""
    monkeypatch.setattr(repeated, "PASSES", (60, 160))
    source, schedule, known = random.Random(name), load(name), 0
    for p, m, v in admitted(schedule, 4, 96):
        if p > 1 and v in (1, 2, 3) and m > 80 and source.randrange(5) == 0:
            times = unlike(source, schedule.depth(p, v))
            found = repeated.step_of_many(schedule, p=p, m=m, v=v, times=times)
            known += found is not None
            assert found is None or found == simulate(schedule, p=p, m=m, v=v, times=times).step, (p, m, v, times)
    assert (known >= 3) if name in ONE_PHASE else not known


@pytest.mark.parametrize("name", sorted(ONE_PHASE))
def test_steps_of_many_micro_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them take as much longer than a few hundred as those take longer than fewer; other steps as long are refused."""
    schedule = load(name)
    v = schedule.chunks or 2
    times = [Times(forward=7 + (i == 0), backward=9 + 2 * (i == 3), weight=5, send=Fraction(1, 3)) for i in range(schedule.depth(4, v))]
    few, more, many = (schedules.step(name, p=4, m=m, v=v, times=times) for m in (200, 400, 10**6))
    assert many == few + (more - few) * (10**6 - 200) / 200
    monkeypatch.setattr(repeated, "PASSES", ())
    with pytest.raises(InputError, match="at most 200,000 are put in order"):
        schedules.step(name, p=4, m=10**6, v=v, times=times)


@pytest.mark.parametrize("name", NAMES)
def test_each_pass_runs_once_in_its_place(name: str) -> None:
    schedule = load(name)
    for p, m, v in admitted(schedule, most_p=5, most_m=10):
        orders = schedules.orders(schedule, p, m, v)
        parts = [(part, one.microbatch, one.stage) for order in orders for one in order for part in one.kind.value]
        assert sorted(parts) == sorted((part, i, s) for part in "FBW" for i in range(m) for s in range(schedule.depth(p, v)))
        for d, order in enumerate(orders):
            assert {one.stage for one in order} == set(schedule.stages(p, v)[d])
            place = {(part, one.microbatch, one.stage): n for n, one in enumerate(order) for part in one.kind.value}
            assert all(place["F", i, s] < place["B", i, s] <= place["W", i, s] for _, i, s in place)
            assert schedule.split == any(one.kind is PassKind.W for one in order)


def test_what_a_schedule_is() -> None:
    assert [n for n in NAMES if load(n).split] == ["dualpipe", "dualpipe-v", "v-half", "v-min", "zb-1p", "zb-2p", "zb-h1", "zb-h2", "zb-v"]
    assert [n for n in NAMES if load(n).copies == 2] == ["dualpipe"]
    assert [n for n in NAMES if load(n).overlapped] == ["dualpipe", "dualpipe-v"]
    assert load("interleaved").stages(2, 3) == ((0, 2, 4), (1, 3, 5))
    assert load("zb-v").stages(3) == ((0, 5), (1, 4), (2, 3))
    assert load("dualpipe").stages(4) == ((0, 3), (1, 2), (1, 2), (0, 3))
    assert load("dualpipe").layout is StageLayout.BOTH


def test_orders_equal_those_of_torch() -> None:
    reason = "torch is not installed: orders cannot be compared with its schedules"
    torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason=reason)
    kinds = {"FORWARD": PassKind.F, "BACKWARD_INPUT": PassKind.B, "BACKWARD_WEIGHT": PassKind.W, "FULL_BACKWARD": PassKind.BW}

    def read_action(action: Any) -> tuple[Pass, ...]:
        if action.sub_actions:
            return tuple(one for part in action.sub_actions for one in read_action(part))
        return (Pass(kinds[action.computation_type.name], action.microbatch_index, action.stage_index),)

    compared = 0
    for name, theirs in (("zb-v", torch_schedules.ScheduleZBVZeroBubble), ("dualpipe-v", torch_schedules.ScheduleDualPipeV)):
        for p, m, v in admitted(load(name)):
            owner = SimpleNamespace(pp_group_size=p, num_stages=2 * p, _n_microbatches=m)
            for d, ours in enumerate(schedules.slots(load(name), p, m, v)):
                actions = theirs._calculate_single_rank_operations(owner, d)
                assert ours == tuple(read_action(action) for action in actions if action is not None), (name, p, m, d)
                compared += 1
    assert compared == 780


def test_dualpipe_is_two_folded_halves() -> None:
    """Devices do at each time what the folded schedule does on half the devices, for half the micro-batches."""
    times = Times(forward=28, backward=32, weight=24, overlapped=70)
    for p, m, _ in admitted(load("dualpipe"), most_m=24):
        whole, half = simulate(load("dualpipe"), p=p, m=m, times=times), simulate(load("dualpipe-v"), p=p // 2, m=m // 2, times=times)
        for d in range(p):
            kinds = [[([one.kind for one in tick.slot], tick.start, tick.end) for tick in device] for device in whole.ticks]
            folded = [([one.kind for one in tick.slot], tick.start, tick.end) for tick in half.ticks[min(d, p - 1 - d)]]
            assert kinds[d] == folded


def test_steps_equal_the_timetables_of_the_rules() -> None:
    """Another simulation, slot by slot, of which this package knows nothing."""
    for p in range(1, 7):
        for m in range(1, 13):
            assert simulate(load("1f1b"), p=p, m=m, times=Times(forward=1, backward=1)).step == slot_orders.one_f_one_b(p, m).slots
            if m % p == 0 and p > 1:
                table = slot_orders.interleaved(p, m, p, 3)
                assert simulate(load("interleaved"), p=p, m=m, v=3, times=Times(forward=1, backward=1)).step == table.slots


def test_what_is_held_over_time() -> None:
    table = simulate(load("zb-h1"), p=3, m=5)
    for d in range(3):
        held = table.held(d, 34, 32)
        assert held[-1][1] == 0
        assert max(kept for _, kept in held) == schedules.peak("zb-h1", p=3, m=5, d=d, M_B=34, M_W=32) == (3 - d) * 34 + d * 32
        assert all(kept >= 0 for _, kept in held)


# Where the simulation differs from what sources print.


def differs(name: str, what: str, *, p: int, m: int, v: int | None = None, times: Times = schedules.UNIT) -> tuple[Fraction, Fraction]:
    """What a source prints, and what the simulation gives."""
    schedule = load(name)
    chunks = schedule.counts(p, m, v)
    form = next(one.form for one in schedule.printed if one.form.what == what)
    print_says = Fraction(form.form.value({**numbers(p, m, chunks, times), "d": 0, "M_B": 1, "M_W": 1}))
    if what == "peak":
        return print_says, schedules.kept_at_most(schedules.slots(schedule, p, m, v)[0])
    return print_says, Fraction(measured(simulate(schedule, p=p, m=m, v=v, times=times))[what])


def test_findings() -> None:
    """Times and counts that the sources' formulas do not speak of, and one for which DualPipe's is too large."""
    long_w = Times(forward=1, backward=1, weight=2)
    assert differs("zb-h1", "wait", p=4, m=8, times=long_w) == (0, 3)
    assert differs("zb-h2", "wait", p=4, m=8, times=long_w) == (-6, 0)
    assert differs("zb-h2", "wait", p=4, m=8, times=Times(forward=3, backward=1, weight=3)) == (-6, 0)
    assert differs("zb-h2", "wait", p=2, m=8, times=Times(forward=1, backward=2, weight=2)) == (-1, 1)
    assert schedules.bubble("zb-h2", p=4, m=8).time == 3  # over the whole step, in which devices begin and end one after the other
    layer = Times(forward=28, backward=32, weight=24)
    assert differs("zb-v", "wait", p=4, m=8, times=layer) == (0, 48)
    assert differs("dualpipe", "idle", p=8, m=20, times=layer) == (3 * 68, 3 * 68 - 12)
    assert differs("dualpipe", "idle", p=8, m=20, times=Times(forward=1, backward=2)) == (15, 14)
    assert differs("interleaved", "peak", p=4, m=4, v=2) == (11, 8)


def test_1f1b_waits_for_messages_again_and_again() -> None:
    """GPipe waits for the messages of one micro-batch, interleaving for those of one through all chunks, 1F1B for p - 1 of each p."""
    times = Times(forward=10, backward=20, send=1)
    added = {
        name: [schedules.bubble(name, p=4, m=m, v=v, times=times).time - 90 for m in (4, 8, 16)]
        for name, v in (("gpipe", None), ("1f1b", None), ("interleaved", 2))
    }
    assert added == {"gpipe": [6, 6, 6], "1f1b": [10, 16, 28], "interleaved": [14, 14, 14]}


# Figures of the papers.


def row(key: str) -> Row:
    return next(one for one in rows() if one["id"] == key)


def printed(key: str, **values: Any) -> Fraction:
    """A row's formula at some values; it is the row's text that is computed."""
    text = re.sub(r"^O\((.*)\)$", r"\1", re.sub(r" (for worker|with t=1).*", "", row(key)["formula"]))
    text = text.replace("F&B", "FB").replace("b'/b", "m").replace("t_f(b)", "TF").replace("t_b(b)", "TB")
    text = re.sub(r"(\d)([A-Za-z(])|(\))(\()", lambda match: "*".join(part for part in match.groups() if part), text)
    return Fraction(read(text, values).value(values))


@pytest.mark.parametrize("key", [one["id"] for one in rows() if one["id"].startswith("nar-bubble-p")])
def test_published_bubbles(key: str) -> None:
    p, m, v = (row(key)["inputs"][name] for name in "pmv")
    found = schedules.bubble("interleaved" if v > 1 else "1f1b", p=p, m=m, v=v)
    assert float(found.of_ideal) == float(row(key)["value"])
    assert f"{float(found.of_total):.6f}" in row(key)["note"]
    assert printed("nar-bubble" if v == 1 else "nar-bubble-int", p=p, m=m, v=v) == found.of_ideal


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_published_formulas(p: int) -> None:
    times, one_pass = Times(forward=28, backward=32, weight=24), Times(forward=28, backward=56)
    at = {"p": p, "TF": 28, "TB": 32, "TW": 24, "MB": 34, "MW": 32}
    for m in (2 * p, 5 * p):
        assert printed("nar-time", m=m, p=p, TF=28, TB=56) == schedules.step("1f1b", p=p, m=m, times=one_pass)
        assert printed("gpipe-bubble", K=p, M=m) == schedules.bubble("gpipe", p=p, m=m).of_total
        assert printed("nar-bubble-dp", n=8 * p, d=8, b_prime=8 * m) == schedules.bubble("1f1b", p=p, m=m).of_ideal
        assert schedules.peak("gpipe", p=p, m=m) == m
        assert schedules.peak("1f1b", p=p, m=m) == p
        assert printed("zb-1F1B-bubble", **at) == schedules.bubble("1f1b", p=p, m=m, times=times).time
        assert printed("zb-1F1B-mem", **at) == schedules.peak("1f1b", p=p, m=m, M_B=34, M_W=32)
        for key in ("H1", "H2"):
            name = f"zb-{key.lower()}"
            assert printed(f"zb-ZB-{key}-bubble", **at) == schedules.evaluate(name, "wait", p=p, m=m, times=times)
            assert printed(f"zb-ZB-{key}-mem", **at) == schedules.peak(name, p=p, m=m, M_B=34, M_W=32)
            for i in range(1, p + 1):
                assert printed(f"zb-{key}-worker", i=i, **at) == schedules.peak(name, p=p, m=m, d=i - 1, M_B=34, M_W=32)
        assert printed("dualpipe-ZB1P", PP=p, F=28, B=56, W=24) == schedules.evaluate("zb-h1", "wait", p=p, m=m, times=times)


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_published_dualpipe(stages: int) -> None:
    """Both rows, for equal F and B; of the folded one PP counts stages, of which a device has two."""
    times = Times(forward=30, backward=30, weight=24, overlapped=70)
    at = {"PP": stages, "F": 30, "B": 54, "W": 24, "FB": 70}
    m = 3 * stages
    assert printed("dualpipe-DualPipe", **at) == schedules.bubble("dualpipe", p=stages, m=m, times=times).time
    assert printed("dualpipe-DualPipeV", **at) == schedules.bubble("dualpipe-v", p=stages // 2, m=m, times=times).time
    assert "parameters 2x, activations PP+1" in row("dualpipe-DualPipe")["note"]
    assert load("dualpipe").copies == 2
    assert {schedules.peak("dualpipe", p=stages, m=m, d=d) for d in range(stages)} == {stages + 1}
    assert {schedules.peak("dualpipe-v", p=stages // 2, m=m, d=d) for d in range(stages // 2)} == {stages + 1}


def test_published_activations_of_interleaving() -> None:
    """L * (1 + (p - 1) / (p * m)) layers, where m is the number of chunks; L / (p * v) of them are in one chunk."""
    assert row("korth-pp-inflight")["formula"].endswith("interleaved: L*(1+(p-1)/(p*m))")
    for p, v in ((4, 2), (8, 3)):
        share = schedules.peak("interleaved", p=p, m=4 * p, v=v) / (p * v)
        assert share == 1 + Fraction(p - 1, p * v)
        assert schedules.peak("interleaved", p=p, m=p, v=v) / (p * v) == 1
        assert schedules.peak("1f1b", p=p, m=4 * p) / p == 1
