"""Orders that are searched for: the bubbles that their authors print, the limit that is never exceeded, and what is said of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import placeproof
from placeproof import schedules
from placeproof.core.diagnostics import InputError
from placeproof.cost.model import derive_model
from placeproof.models import load as model
from placeproof.report import text as as_text
from placeproof.schedules import Profile, Schedule, Search, Times, load
from placeproof.schedules.expression import read
from placeproof.strategies import parse_strategy
from tests.helpers.samples import NIGHTLY

#: Qi et al. 2024, Zero Bubble: of table 9 devices, micro-batches and T_F, T_B, T_W, T_comm; of table 3 hidden size and heads, with 1024
#: tokens; of table 5 the bubble rates of ZB-H1, ZB-H2, ZB-1p and ZB-2p. The last four take longer than all others together.
PRINTED = (
    ((8, 24), (18522, 18086, 9337, 601), (2304, 24), ("0.1585", "0.1083", "0.1585", "0.0433")),
    ((8, 32), (18513, 18086, 9331, 626), (2304, 24), ("0.1242", "0.0837", "0.1242", "0.0039")),
    ((8, 64), (18546, 18097, 9321, 762), (2304, 24), ("0.0674", "0.0444", "0.0674", "0.0026")),
    ((8, 24), (29718, 29444, 19927, 527), (4096, 32), ("0.1323", "0.0698", "0.1323", "0.0029")),
    ((8, 32), (29802, 29428, 19530, 577), (4096, 32), ("0.1045", "0.0559", "0.1045", "0.0022")),
    ((8, 64), (29935, 29621, 19388, 535), (4096, 32), ("0.0554", "0.0294", "0.0554", "0.0010")),
    ((16, 48), (11347, 11248, 8132, 377), (5120, 40), ("0.1397", "0.0672", "0.1397", "0.0066")),
    ((16, 64), (11307, 11254, 8101, 379), (5120, 40), ("0.1088", "0.0516", "0.1088", "0.0054")),
    ((16, 128), (11325, 11308, 8109, 378), (5120, 40), ("0.0576", "0.0266", "0.0576", "0.0028")),
    ((32, 96), (10419, 10207, 7715, 408), (6144, 48), ("0.1421", "0.0641", "0.1421", "0.0038")),
    ((32, 128), (10408, 10204, 7703, 408), (6144, 48), ("0.1106", "0.0490", "0.1106", "0.0029")),
    ((32, 256), (10402, 10248, 7698, 460), (6144, 48), ("0.0594", "0.0257", "0.0594", "0.0018")),
)


def rate(schedule: Schedule, p: int, m: int, times: Times) -> str:
    """Of the longest time from a device's first pass to its last, the share in which it does nothing (section 5.3 there)."""
    table = schedules.simulate(schedule, p=p, m=m, times=times)
    longest = max(runs[-1].end - runs[0].start for runs in table.runs)
    return f"{float(1 - table.busy(0) / longest):.4f}"


def limit(schedule: Schedule, p: int, m: int, d: int) -> Fraction:
    assert schedule.search is not None
    told = schedule.search.profile
    return Fraction(schedule.search.most.value({"p": p, "m": m, "v": 1, "d": d, "M_B": told.kept, "M_W": told.late}))


@pytest.mark.parametrize(("counts", "spent", "shape", "printed"), PRINTED if NIGHTLY else PRINTED[:-4])
def test_bubbles_are_those_that_are_printed(
    counts: tuple[int, int], spent: tuple[int, int, int, int], shape: tuple[int, int], printed: tuple[str, ...]
) -> None:
    """To every digit, and within the limit to the byte: M_B and M_W are those of table 1."""
    (p, m), (h, a) = counts, shape
    times = Times(forward=spent[0], backward=spent[1], weight=spent[2], send=spent[3])
    profile = Profile(*spent, kept=34 * h + 5 * a * 1024, late=32 * h)
    searched = [load(name).searched_for(profile) for name in ("zb-1p", "zb-2p")]
    assert tuple(rate(one, p, m, times) for one in (load("zb-h1"), load("zb-h2"), *searched)) == printed
    for one in searched:
        kept = [schedules.peak(one, p=p, m=m, d=d, M_B=profile.kept, M_W=profile.late) for d in range(p)]
        assert all(most <= limit(one, p, m, d) for d, most in enumerate(kept))
        assert max(kept) > limit(one, p, m, 0) - profile.kept  # and no less than it has to be


def test_another_profile_finds_another_order() -> None:
    """Without its times, an order waits longer than it has to; without its sizes, it keeps less than it may."""
    (p, m), spent, (h, a), _ = PRINTED[1]
    times = Times(forward=spent[0], backward=spent[1], weight=spent[2], send=spent[3])
    sizes = {"M_B": 34 * h + 5 * a * 1024, "M_W": 32 * h}
    for profile in (Profile(), Profile(kept=sizes["M_B"], late=sizes["M_W"]), Profile(*spent)):
        assert float(rate(load("zb-2p").searched_for(profile), p, m, times)) > 0.0039
    unit = schedules.peak("zb-2p", p=p, m=m, d=1, **sizes)
    assert unit == schedules.peak("zb-h2", p=p, m=m, d=1, **sizes) + sizes["M_W"]
    assert schedules.peak(load("zb-2p").searched_for(Profile(kept=sizes["M_B"], late=sizes["M_W"])), p=p, m=m, d=1, **sizes) > unit


def test_every_order_that_is_found_is_one_and_fits() -> None:
    """At random sizes, times and limits, also where W needs more than F kept, or nothing. A limit below one micro-batch is refused."""
    source, counted = random.Random(11), Counter[str]()
    names = ("p", "m", "v", "d", "M_B", "M_W")
    for _ in range(120):
        p, m = source.randint(1, 7), source.randint(1, 14)
        times = [source.choice((0, 1, 2, 3, 5, Fraction(7, 3))) for _ in range(4)]
        profile = Profile(*times, kept=source.choice((1, 2, 3, Fraction(5, 2))), late=source.choice((0, 1, 2, 3, 9)))
        text = source.choice(("M_B", "p * M_B", "2 * p * M_B", "max(1, p - d) * M_B", "9 * p", "(p + 1) // 2 * M_B"))
        one = replace(load("zb-2p"), search=Search(most=read(text, names), profile=profile))
        limits = [limit(one, p, m, d) for d in range(p)]
        if min(limits) < max(profile.kept, profile.late):
            with pytest.raises(InputError, match="leaves no room for one micro-batch"):
                schedules.slots(one, p, m)
            counted["refused"] += 1
            continue
        spent = Times(forward=times[0], backward=times[1], weight=times[2], send=times[3])
        table = schedules.simulate(one, p=p, m=m, times=spent)  # each pass once, and nobody waits for ever
        for d, order in enumerate(schedules.orders(one, p, m)):
            assert Counter(x.kind.value for x in order) == {"F": m, "B": m, "W": m}
            assert max(amount for _, amount in table.held(d, profile.kept, profile.late)) <= limits[d]
        counted["found"] += 1
    assert counted["found"] > 60 < counted["found"] + counted["refused"]
    assert counted["refused"] > 5


def test_with_as_many_micro_batches_as_devices_both_limits_are_one() -> None:
    """Appendix H there: with m <= p micro-batches they are essentially the same, and take (m + p - 1) * (T_F + T_B) + T_W."""
    for p in (2, 4, 5):
        for m in range(1, p + 1):
            one, two = (schedules.simulate(load(name), p=p, m=m) for name in ("zb-1p", "zb-2p"))
            assert one.step == two.step == 2 * (m + p - 1) + 1


def test_a_strategy_says_it_with_numbers_alone() -> None:
    """Proved for the numbers at which it is run; refused where they are open, as no form says what it keeps."""
    assert placeproof.judge("zero1 * pp(4, microbatches=8, schedule=zb-2p)").word == "proved"
    assert placeproof.derive("pp(4, microbatches=8, schedule=zb-2p)").memory["activations"].subs({"A": 8, "b_a": 1}) == 2
    for text in ("pp(schedule=zb-2p)", "pp(4, schedule=zb-2p)", "pp(schedule=zb-1p, microbatches=8)"):
        with pytest.raises(InputError, match="no closed form of its peak") as caught:
            placeproof.derive(text)
        assert [one.code for one in caught.value.diagnostics] == ["PP122"]
        assert "microbatches=8" in caught.value.diagnostics[0].help
        assert "file" not in caught.value.diagnostics[0].help


def test_of_a_model_it_is_searched_for_what_the_models_passes_are() -> None:
    """Operations and what is kept, of the stage that keeps most; and what a device keeps is at most twice what 1F1B's first device does."""
    found = derive_model(model("llama3-8b").resized({"s": 4096, "L": 32}), parse_strategy("pp(4, microbatches=12, schedule=zb-2p)"))
    values = {"b": Fraction(1), "b_a": Fraction(2)}
    costs = [(found.value(run.kept, values), found.value(run.late, values), cost) for cost in found.costs for run in cost.runs]
    kept, late, cost = max(costs, key=lambda row: row[0])
    told = found.order.search.profile if found.order.search else None
    work = [found.value(n, values) for n in (cost.flops.forward, cost.flops.again + cost.flops.inputs, cost.flops.weights)]
    assert told == Profile(*work, 0, kept, late)
    assert all(found.value(c.activations, values) <= 8 * kept for c in found.costs)
    orders = schedules.slots(found.order, 4, 12)
    first = found.value(found.costs[0].activations, values)
    assert first == schedules.kept_at_most(orders[0], costs[0][0], costs[0][1])
    text = as_text.text(placeproof.model("pp(4, microbatches=12, schedule=zb-2p)", "llama3-8b", b=1).document)
    said = next(line for line in text.splitlines() if "searched" in line)
    assert "of one sample on the stage that keeps most" in said
    assert "under 2 * p * M_B" in said


FILE = """name = "mine"
layout = "loop"

[order.search]
most = "3 * p * M_B"
T_F = 18.5
T_B = "18"
T_W = 9
M_W = "3/8"
"""


def test_a_file_of_ones_own_is_searched_for_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    search = load(path).search
    assert search is not None
    assert search.profile == Profile(Fraction(37, 2), 18, 9, 0, 1, Fraction(3, 8))
    assert placeproof.judge(f'pp(4, microbatches=8, schedule="{path}")').word == "proved"
    found = derive_model(model("llama3-8b"), parse_strategy(f'pp(4, microbatches=8, schedule="{path}")'))
    assert (found.order, found.profiled) == (load(path), False)
    for old, new, code, line, says in (
        ('"3 * p * M_B"', '"p - 2"', "PP112", 4, "leaves no room"),
        ('most = "3 * p * M_B"\n', "", "PP113", 4, "`most` is missing"),
        ("M_W", "M_X", "PP111", 9, "M_X"),
        ('"3/8"', "-1", "PP112", 9, "no number of at least 0"),
        ('"18"', '"soon"', "PP112", 7, "no number of at least 0"),
        ("18.5", "true", "PP112", 6, "no number of at least 0"),
        ('layout = "loop"', 'layout = "vee"', "PP112", 4, "each device has one stage"),
        ('layout = "loop"', 'layout = "loop"\nchunks = 2', "PP112", 5, "each device has one stage"),
        ("[order.search]", '[order]\nphases = [{ times = "m", run = "F BW" }]\n[order.search]', "PP112", 5, "does not go with `search`"),
    ):
        path.write_text(FILE.replace(old, new))
        with pytest.raises(InputError) as caught:
            load(path)
        fault = caught.value.diagnostics[0]
        assert (fault.code, fault.place.line if fault.place else None) == (code, line), fault
        assert says in fault.message
