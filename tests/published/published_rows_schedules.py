"""Published bubbles, steps and activations in flight of pipeline schedules, checked against simulations.

A formula is compared at several numbers of stages and micro-batches, with times and sizes that are symbols of no simple ratio.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from published import Check, Row, as_printed, shows
from published_rows import exact, floating, formula, most_kept

from placeproof.schedules import Bubble, Times, load, simulate

STAGES = (1, 2, 3, 4, 8)
#: Times of the passes F, B and W, of which W is the shortest, and sizes of what is kept until B and until W.
PASSES = Times(forward=28, backward=32, weight=24)
KEPT = {"M_B": 34, "M_W": 32}
NAMES = {"TF": 28, "TB": 32, "TW": 24, "MB": 34, "MW": 32}


def value(row: Row, *, text: str | None = None, **names: int) -> Fraction:
    """The row's own text, computed."""
    return exact(formula(row["formula"] if text is None else text, names))


@shows("derived")
def check_bubble(row: Row) -> bool:
    """Of the ideal time; in the note, of the total time."""
    interleaved = row["id"] == "nar-bubble-int"
    if row.get("value") is None:
        cases = [(p, k * p, v) for p in STAGES for k in (1, 4) for v in ((2, 3) if interleaved else (1,))]
        return all(found(p, m, v).of_ideal == value(row, p=p, m=m, v=v) for p, m, v in cases)
    one = found(*(row["inputs"][name] for name in "pmv"))
    (noted,) = re.findall(r"TOTAL time: ([\d.]+)", row["note"])
    return floating(one.of_ideal, row["value"]) and as_printed(one.of_total, Decimal(noted))


def found(p: int, m: int, v: int) -> Bubble:
    """The bubble of a simulation."""
    return (simulate(load("interleaved"), p=p, m=m, v=v) if v > 1 else simulate(load("1f1b"), p=p, m=m)).bubble()


@shows("derived")
def check_replicas(row: Row) -> bool:
    """n devices in d replicas, each of which gets its share of b' micro-batches."""
    text = row["formula"].removesuffix(" with t=1")
    cases = [(p, m, d) for p in STAGES for m in (2 * p, 5 * p) for d in (2, 8)]
    return all(value(row, text=text, n=d * p, d=d, b_prime=d * m) == found(p, m, 1).of_ideal for p, m, d in cases)


@shows("derived")
def check_step(row: Row) -> bool:
    """b'/b micro-batches, one of them at a time."""
    times = Times(forward=28, backward=56)
    cases = [(p, m) for p in STAGES for m in (p, 3 * p)]
    names = {"t_f(b)": 28, "t_b(b)": 56, "b": 1}
    return all(value(row, **{**names, "p": p, "b'": m}) == simulate(load("1f1b"), p=p, m=m, times=times).step for p, m in cases)


@shows("derived")
def check_gpipe(row: Row) -> bool:
    text = row["formula"].removeprefix("O(").removesuffix(")")
    cases = [(p, m) for p in STAGES for m in (1, p, 3 * p)]
    return all(value(row, text=text, K=p, M=m) == simulate(load("gpipe"), p=p, m=m).bubble().of_total for p, m in cases)


@shows("derived")
def check_in_flight(row: Row) -> bool:
    """All micro-batches, and at most as many as there are stages."""
    told = re.fullmatch(r"GPipe keeps (.+) microbatches; PipeDream-Flush at most (.+)", row["formula"])
    if told is None:
        return False
    cases = [(p, m) for p in STAGES for m in (p, 3 * p)]
    peaks = [(most_kept("gpipe", p, m), most_kept("1f1b", p, m)) for p, m in cases]
    return peaks == [(value(row, text=told[1], m=m, p=p), value(row, text=told[2], m=m, p=p)) for p, m in cases]


@shows("derived")
def check_chunks(row: Row) -> bool:
    """Layers that the first stage keeps, of L: of 1F1B all, and of interleaving more. What is m there is the number of chunks."""
    told = re.fullmatch(r"1F1B first stage: p microbatches x L/p layers = (.+) layers; interleaved: (.+)", row["formula"])
    if told is None:
        return False
    for p, v in ((2, 2), (4, 2), (4, 3), (8, 3)):
        number, m = 5 * p * v, 4 * p
        plain, looped = most_kept("1f1b", p, m), most_kept("interleaved", p, m, v)
        printed = value(row, text=told[1], L=number), value(row, text=told[2], L=number, p=p, m=v)
        if (plain * number / p, looped * number / (p * v)) != printed:
            return False
    return True


@shows("derived")
def check_zero_bubble(row: Row) -> bool:
    """The time for which a device waits between its passes, and what the first device keeps; of a worker, each."""
    name = re.search(r"1F1B|H1|H2", row["id"])
    schedule = {"1F1B": "1f1b", "H1": "zb-h1", "H2": "zb-h2"}[name[0] if name else ""]
    for p, m in ((p, k * p) for p in STAGES for k in (2, 5)):
        table = simulate(load(schedule), p=p, m=m, times=PASSES)
        if row["id"].endswith("bubble"):
            waits = max(table.wait(d) for d in range(p))
            matched = waits == value(row, p=p, **NAMES)
        elif row["id"].endswith("mem"):
            matched = most_kept(schedule, p, m, **KEPT) == value(row, p=p, **NAMES)
        else:
            text = row["formula"].removesuffix(" for worker i")
            peaks = [most_kept(schedule, p, m, d=d, **KEPT) for d in range(p)]
            matched = peaks == [value(row, text=text, p=p, i=i, **NAMES) for i in range(1, p + 1)]
        if not matched:
            return False
    return True


@shows("derived")
def check_one_pipeline(row: Row) -> bool:
    """Here B is a whole backward, of which W is a part; and the row notes a copy of the model and PP activations."""
    for p, m in ((p, k * p) for p in STAGES for k in (2, 5)):
        waits = max(simulate(load("zb-h1"), p=p, m=m, times=PASSES).wait(d) for d in range(p))
        if waits != value(row, PP=p, F=28, B=56, W=24) or most_kept("zb-h1", p, m) != p:
            return False
    return load("zb-h1").copies == 1 and "parameters 1x, activations PP;" in row["note"]


@shows("derived")
def check_two_ways(row: Row) -> bool:
    """For equal F and B; of the folded one PP counts stages, of which a device has two."""
    times = Times(forward=30, backward=30, weight=24, overlapped=70)
    folded = row["id"].endswith("V")
    name = "dualpipe-v" if folded else "dualpipe"
    for stages in (2, 4, 8):
        p, m = stages // 2 if folded else stages, 3 * stages
        printed = value(row, **{"PP": stages, "F&B": 70, "B": 54, "W": 24})
        if simulate(load(name), p=p, m=m, times=times).bubble().time != printed:
            return False
        if {most_kept(name, p, m, d=d) for d in range(p)} != {stages + 1}:
            return False
    return "parameters 2x, activations PP+1" in row["note"]


CHECKS: dict[str, Check] = {
    "nar-bubble": check_bubble,
    "nar-bubble-int": check_bubble,
    **dict.fromkeys((f"nar-bubble-{case}" for case in ("p4m8v1", "p8m32v1", "p8m64v3", "p64m512v1", "p64m512v2")), check_bubble),
    **dict.fromkeys((f"nar-bubble-{case}" for case in ("p35m280v3", "p16m16v1", "p16m32v1")), check_bubble),
    "nar-bubble-dp": check_replicas,
    "nar-time": check_step,
    "gpipe-bubble": check_gpipe,
    "gpipe-inflight": check_in_flight,
    "korth-pp-inflight": check_chunks,
    **dict.fromkeys(("zb-1F1B-bubble", "zb-1F1B-mem", "zb-ZB-H1-bubble", "zb-ZB-H1-mem"), check_zero_bubble),
    **dict.fromkeys(("zb-ZB-H2-bubble", "zb-ZB-H2-mem", "zb-H1-worker", "zb-H2-worker"), check_zero_bubble),
    "dualpipe-ZB1P": check_one_pipeline,
    "dualpipe-DualPipe": check_two_ways,
    "dualpipe-DualPipeV": check_two_ways,
}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "dualpipe-DualPipe": "where F and the gradient by inputs take equally long",
    "dualpipe-DualPipeV": "where F and the gradient by inputs take equally long",
}
