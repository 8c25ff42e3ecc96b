"""The prover against brute force: random small programs, and random edits of catalogue programs, run on every small mesh.

False accepts (proved, but some run differs) and false refusals (refuted, but no run differs) must be none; the rate of unknown is
printed. The runs share no code with the encoding.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

from compositions import body_without
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_counts import count

from placeproof.core.diagnostics import InputError
from placeproof.programs import Assign, Call, For, If, Program, Stmt, check, read, statements
from placeproof.programs.ir import calls
from placeproof.programs.ops import OPS
from placeproof.semantics.judge.search import SEEDS, setups
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning.run import run
from placeproof.semantics.resolve import resolve
from placeproof.strategies import names, parse_strategy

LONG = 3_000 if os.environ.get("PLACEPROOF_PROFILE") == "nightly" else None


def differs(program: Program, most: int = 6) -> bool:
    """Whether some run on a mesh of degrees up to 3 (and of few devices) differs from one device."""
    placed = resolve(program)
    for setup in setups(placed, frozenset(placed.without)):
        devices = 1
        for name, size in setup.degrees.items():
            devices *= 1 if name.endswith("_inner") else size
        if devices > most:
            continue
        if any(run(placed, replace(setup, seed=seed)) is not None for seed in SEEDS[:2]):
            return True
    return False


def agree(program: Program, subject: str = "random programs against brute force") -> str:
    """The verdict, after comparing it with brute force."""
    judged = judge(program)
    wrong = differs(program)
    assert not (judged.word == "proved" and wrong), "false accept"
    assert not (judged.word == "refuted" and not wrong), "false refusal"
    assert not (judged.word == "unknown" and wrong), "a run differs, and the search did not find it"
    count(subject, judged.word)
    return judged.word


# Random programs.

AXES = st.sampled_from(["dp", "cp", "dp, cp"])
SCALES = st.sampled_from(["1 / dp", "1 / cp", "1 / (dp * cp)", "1 / 2", "dp", "2", "1 / microbatches", "1 / (dp * cp * microbatches)"])
STEPS = st.one_of(
    st.builds("G = all_reduce(G, {})".format, AXES),
    st.builds("G = all_reduce(G, {}, op=mean)".format, AXES),
    st.builds("G = scale(G, {})".format, SCALES),
    st.builds("G = all_gather(reduce_scatter(G, {0}), {0})".format, AXES),
    st.builds("G = all_gather(reduce_scatter(G, {0}, op=mean), {0})".format, AXES),
    st.builds("G = broadcast(G, {}, root=0)".format, AXES),
    st.builds("G = all_gather(part(G, {0}), {0})".format, AXES),
    st.builds("G = broadcast(reduce(G, {0}, root=0), {0}, root=0)".format, AXES),
    st.builds("if rank(dp) == 0:\n    G = scale(G, {})".format, SCALES),
    st.just("G = all_reduce(G, dp, op=max)"),
    st.just("H = copy(G)\nG = all_reduce(H, dp)"),
    st.just("G = G + G"),
    st.just("G = scale(G + all_reduce(G, dp), 1 / (dp + 1))"),
)
STARTS = st.sampled_from(
    [
        "G = backward(parameters)",
        "G = backward(stale(parameters, 1))",
        "for i in microbatches:\n    G += backward(parameters, i)",
        "for i in microbatches:\n    G = backward(parameters, i)",
        "for i in microbatches:\n    G += all_reduce(backward(parameters, i), dp)",
        "for i in microbatches:\n    G += scale(backward(parameters, i), 1 / microbatches)",
        "w = all_gather(part(parameters, dp), dp)\nG = backward(w)",
        "w = part(parameters, dp)\nG = backward(w)",
    ]
)
SHARDED = "o = part(optimizer, dp)\nparameters, o = update(parameters, o, G)\n"
ENDS = st.sampled_from(
    [
        "parameters, optimizer = update(parameters, optimizer, G)",
        "parameters, optimizer = update(parameters, optimizer, G)\nparameters = broadcast(parameters, dp, root=0)",
        SHARDED + "parameters = all_gather(parameters, dp)\noptimizer = all_gather(o, dp)",
        SHARDED + "optimizer = all_gather(o, dp)",
        "dead = copy(parameters)\ndead, optimizer = update(dead, optimizer, G)",
        "new, optimizer = update(parameters, optimizer, G)\nparameters = copy(new)",
    ]
)
HEAD = "mesh(dp, cp)\nplace(parameters)\nplace(optimizer)\nplace(gradients)\n"
GOOD = "G = scale(all_reduce(G, dp, cp), 1 / (dp * cp * microbatches))"


@st.composite
def programs(draw: st.DrawFn) -> str:
    middle = draw(st.lists(STEPS, max_size=3))
    if draw(st.booleans()):
        middle.insert(draw(st.integers(0, len(middle))), GOOD)
    text = "\n".join([draw(STARTS), *middle, draw(ENDS)])
    if "microbatches:" not in text:
        text = text.replace(" * microbatches", "").replace("1 / microbatches", "1")
    return HEAD + text + "\n"


@settings(max_examples=LONG or 60)
@given(text=programs())
def test_random_programs(text: str) -> None:
    agree(read(text))


def test_the_unknown_rate_of_random_programs_is_small() -> None:
    import random

    rates: Counter[str] = Counter()
    for seed in range(60):
        chosen = random.Random(seed)
        steps = chosen.sample(list(CORRECT_STEPS), 2)
        body = [HEAD + "G = backward(parameters)", *steps, GOOD.replace(" * microbatches", ""), UPDATE]
        rates[agree(read("\n".join(body)))] += 1
    print(f"random programs: {dict(rates)}")
    assert rates["unknown"] <= 6


UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"
CORRECT_STEPS = (
    "G = scale(scale(G, 1 / 2), 2)",
    "G = copy(G)",
    "G = scale(G, dp / dp)",
    "G = all_reduce(scale(G, 1 / dp), dp)",
    "G = G + scale(G, 0)",
    "G = scale(G + G, 1 / 2)",
)


# Random edits of catalogue programs.


def edits(program: Program) -> list[tuple[str, Program]]:
    """The program with one small change: a call taken away or doubled, another reduction, a statement dropped or doubled."""
    found: list[tuple[str, Program]] = []
    for stmt in statements(program.body):
        for call in calls(stmt):
            if call.args and OPS[call.op].results == (1, 1) and call.op not in ("data", "forward", "backward", "loss", "start"):
                found.append((f"{call.op} taken away", replace(program, body=body_without(program.body, call))))
            if OPS[call.op].collective and call.op in ("all_reduce", "reduce_scatter"):
                found += [(f"{call.op} by {op}", _swapped(program, call, replace(call, options=(("op", op),)))) for op in ("mean", "max")]
                found.append((f"{call.op} twice", _swapped(program, call, replace(call, op="all_reduce", args=(call,), options=()))))
        if isinstance(stmt, Assign) and stmt.accumulate:
            found.append(("overwritten", _replaced(program, stmt, (replace(stmt, accumulate=False),))))
        if isinstance(stmt, Assign) and not (isinstance(stmt.value, Call) and stmt.value.op == "start"):
            found += [("dropped", _replaced(program, stmt, ())), ("doubled", _replaced(program, stmt, (stmt, stmt)))]
    return found


def _swapped(program: Program, old: Call, new: Call) -> Program:
    def expr(e: Any) -> Any:
        if e is old:
            return new
        if isinstance(e, Call):
            return replace(e, args=tuple(expr(a) for a in e.args))
        return replace(e, left=expr(e.left), right=expr(e.right)) if hasattr(e, "left") else e

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in stmts:
            match s:
                case Assign():
                    out.append(replace(s, value=expr(s.value)))
                case For():
                    out.append(replace(s, body=body(s.body)))
                case If():
                    out.append(replace(s, then=body(s.then), orelse=body(s.orelse)))
                case _:
                    out.append(s)
        return tuple(out)

    return replace(program, body=body(program.body))


def _replaced(program: Program, old: Stmt, new: tuple[Stmt, ...]) -> Program:
    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in stmts:
            if s is old:
                out += new
            elif isinstance(s, For):
                out.append(replace(s, body=body(s.body)))
            elif isinstance(s, If):
                out.append(replace(s, then=body(s.then), orelse=body(s.orelse)))
            else:
                out.append(s)
        return tuple(out)

    return replace(program, body=body(program.body))


SUBJECTS = [n if n not in ("sp", "zero_r") else f"tp * {n}" for n in names()] + ["zero1 * tp * pp", "zero2 * accumulate", "ddp * tp * sp"]


@settings(max_examples=LONG or 60)
@given(subject=st.sampled_from(SUBJECTS), data=st.data())
def test_random_edits_of_catalogue_programs(subject: str, data: st.DataObject) -> None:
    _, mutant = data.draw(st.sampled_from(edits(lower(parse_strategy(subject)))), label="edit")
    try:
        check(mutant)
    except InputError:
        return
    try:
        agree(mutant, "edited catalogue programs against brute force")
    except (InputError, TypeError):  # a value of another kind than the operation takes: refused, or a crash on any device
        return
