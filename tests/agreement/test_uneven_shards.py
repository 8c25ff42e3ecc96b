"""Uneven shards: the formulas are today's at equal parts, and what rounds of a ring and an unrolled run add up at any others."""

from __future__ import annotations

import io
import itertools
import json
import random
from contextlib import redirect_stdout
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy
from compositions import compositions
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from test_costs_by_unrolling import sizes_for, symbol_values
from unrolling import unroll

from placeproof.cli.main import run
from placeproof.collectives import COLLECTIVES
from placeproof.collectives.patterns import pairwise, ring_all_gather, ring_reduce_scatter
from placeproof.collectives.rounds import Round
from placeproof.core.diagnostics import InputError
from placeproof.core.mesh import degree_symbol
from placeproof.core.strategy import Strategy
from placeproof.core.symbols import symbol
from placeproof.cost.closed import largest, tidy
from placeproof.cost.derive import Derivation, derive, derive_shards, evaluate
from placeproof.cost.model import derive_model
from placeproof.cost.model.fractions import fitted_strategy, uneven_stages
from placeproof.cost.uneven import Shards, described, following, fraction, read_shards, sent
from placeproof.models import load
from placeproof.programs import read
from placeproof.strategies import parse_strategy

DOCS = Path(__file__).parents[2] / "docs" / "reference"


def parts(number: int, seed: int) -> tuple[Fraction, ...]:
    """Random parts, some of them nothing."""
    draw = random.Random(seed)
    weights = [draw.choice([0, 1, draw.randint(1, 9)]) for _ in range(number)]
    weights[draw.randrange(number)] += 1
    return tuple(Fraction(w, sum(weights)) for w in weights)


def candidates(strategy: Strategy) -> list[str]:
    """The axes along which parts can be uneven, if something lies in parts there."""
    return [a.name for a in strategy.axes if a.splits.samples and a.inner is None]


def uneven(text: str) -> tuple[Strategy, tuple[str, ...], Derivation] | None:
    """A strategy with every axis along which its states lie in parts; None where there is none."""
    strategy = parse_strategy(text)
    found: tuple[str, ...] = ()
    for axis in candidates(strategy):
        try:
            derive_shards(strategy, Shards(parts={axis: (Fraction(1, 2), Fraction(1, 2))}))
        except InputError:
            continue
        found = (*found, axis)
    return (strategy, found, derive(strategy, uneven=found)) if found else None


SUBJECTS = [text for text in compositions() if any(word in text for word in ("zero1", "zero2", "zero3", "fsdp", "hsdp", "zero_"))]


# At equal parts, today's formulas.


def canonical(expr: sympy.Expr) -> sympy.Expr:
    """With maxima over as few candidates as can be told."""
    return expr.replace(lambda e: isinstance(e, sympy.Max), lambda e: largest(e.args))


def at_equal_parts(d: Derivation, axes: tuple[str, ...], key: str) -> sympy.Expr:
    only = len(d.program.axes) == 1
    put = {}
    for axis in axes:
        put |= dict.fromkeys((fraction(axis), following(axis)), 1 / symbol(degree_symbol(axis, only=only)))
    return canonical(d.forms[key].xreplace(put))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SUBJECTS))
def test_at_equal_parts_every_formula_is_the_one_without(text: str) -> None:
    found = uneven(text)
    if found is None:
        return
    strategy, axes, d = found
    even = derive(strategy)
    for key, expected in even.forms.items():
        difference = at_equal_parts(d, axes, key) - canonical(expected)
        assert sympy.cancel(sympy.together(sympy.expand(difference))) == 0, f"{text}: {key}: {d.forms[key]} and {expected}"


def test_most_strategies_that_shard_can_shard_unevenly() -> None:
    """So that the test above is about something."""
    names = ["zero1", "zero2", "zero3", "fsdp", "hsdp", "zero_offload", "zero_infinity", "zero3 * tp * sp * pp", "zero1 * cp"]
    assert [name for name in names if uneven(name) is None] == []


# Rounds of a ring, run on lists.


def ran(rounds: list[Round], start: list[dict[int, list[int]]]) -> tuple[list[dict[int, list[int]]], list[int]]:
    """What each device has in the end, chunk by chunk, and how many numbers it sent."""
    held, counts = [dict(chunks) for chunks in start], [0] * len(start)
    for one in rounds:
        moved = [(send, [(chunk, list(held[send.source][chunk])) for chunk in send.chunks]) for send in one]
        for send, chunks in moved:
            for chunk, values in chunks:
                counts[send.source] += len(values)
                own = held[send.target].get(chunk)
                held[send.target][chunk] = [a + b for a, b in zip(own, values, strict=True)] if send.add and own is not None else values
    return held, counts


def cut(sizes: list[int], values: list[int]) -> dict[int, list[int]]:
    ends = list(itertools.accumulate(sizes))
    return {i: values[end - size : end] for i, (size, end) in enumerate(zip(sizes, ends, strict=True))}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any), st.integers(0, 10**6))
def test_a_ring_of_uneven_parts_sends_what_the_formula_says(sizes: list[int], seed: int) -> None:
    n, total, draw = len(sizes), sum(sizes), random.Random(seed)
    whole = [draw.randint(0, 99) for _ in range(total)]
    gathered, by_gather = ran(ring_all_gather(n), [{d: cut(sizes, whole)[d]} for d in range(n)])
    assert gathered == [cut(sizes, whole)] * n
    inputs = [[draw.randint(0, 99) for _ in range(total)] for _ in range(n)]
    sums = [sum(column) for column in zip(*inputs, strict=True)]
    scattered, by_scatter = ran(ring_reduce_scatter(n), [cut(sizes, own) for own in inputs])
    assert [scattered[d][d] for d in range(n)] == [cut(sizes, sums)[d] for d in range(n)]
    direct = [sum(sizes[c % n] for one in pairwise(n) for s in one if s.source == d for c in s.chunks) for d in range(n)]
    shards = Shards(parts={"dp": tuple(Fraction(size, total) for size in sizes)})
    for devices in shards.devices():
        for d in range(devices.at["dp"][0], devices.at["dp"][1] + 1):
            size, several = sympy.Integer(total), sympy.Integer(n)
            formulas = {name: sent(COLLECTIVES[name], ("dp",), several, size, ("dp",)) for name in ("all_gather", "reduce_scatter")}
            assert evaluate(formulas["all_gather"], devices.values) == by_gather[d]
            assert evaluate(formulas["reduce_scatter"], devices.values) == by_scatter[d] == direct[d]
    assert sum(by_gather) == sum(by_scatter) == (n - 1) * total


# An unrolled run.


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.sampled_from([text for text in SUBJECTS if not {"ep", "cp"} & set(text.split(" * "))]), st.integers(0, 10**9))
def test_every_device_has_what_the_unrolled_run_adds_up(text: str, seed: int) -> None:
    found = uneven(text)
    if found is None:
        return
    _, axes, d = found
    sizes = sizes_for(d.program, seed, groups=False)
    shares = {axis: parts(sizes.degrees[axis], seed) for axis in axes}
    sizes = replace(sizes, parts=shares)
    values, total, shards = symbol_values(d, sizes), Fraction(0), Shards(parts=shares)
    for devices in shards.devices():
        costs = unroll(d.program, sizes, {axis: last for axis, (_, last) in devices.at.items()})
        expected = {f"memory.{state}": amount for state, amount in costs.held.items()}
        expected |= {"memory.host": costs.host, "memory.peak": costs.peak, "traffic.host_link": costs.link}
        expected |= {f"traffic.by_axis.{axis}": costs.sent.get(axis, Fraction(0)) for axis in d.by_axis}
        for key, amount in expected.items():
            assert evaluate(d.forms[key], {**values, **devices.values}) == amount, f"{text}: {key} = {d.forms[key]}: {amount} at {sizes}"
        total += devices.count() * sum(costs.sent.values(), Fraction(0))
    everyone = sympy.prod([sizes.degrees[axis] for axis in axes])
    assert total == everyone * (evaluate(derive(parse_strategy(text)).sent, values) or 0), "all devices together send what equal parts send"


def test_the_unrolled_run_notices_the_wrong_neighbour() -> None:
    d = derive(parse_strategy("zero3"), uneven=("dp",))
    sizes = replace(
        sizes_for(d.program, 3, groups=False), degrees={"dp": 3}, parts={"dp": (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6))}
    )
    costs, values = unroll(d.program, sizes, {"dp": 0}), symbol_values(d, sizes)
    right = {"f_dp": Fraction(1, 2), "fnext_dp": Fraction(1, 3)}
    assert evaluate(d.sent, {**values, **right}) == costs.sent["dp"]
    assert evaluate(d.sent, {**values, **right, "fnext_dp": Fraction(1, 6)}) != costs.sent["dp"]


def test_maxima_are_told_by_parts_of_at_most_one() -> None:
    """A part of P never exceeds P, and P exceeds it at some part."""
    p, f = symbol("P"), fraction("dp")
    assert largest([p, p * f]) == p
    assert set(largest([symbol("U"), p * f]).args) == {symbol("U"), p * f}
    assert largest([p * f, p * (1 - f)]) == sympy.Max(p * f, p * (1 - f))


# Models.


@pytest.mark.parametrize("text", ["zero1 * tp(2) * pp(2)", "fsdp * tp(2)", "zero3 * ep(2)", "zero_offload"])
def test_states_of_a_model_by_stage(text: str) -> None:
    model = load("mixtral-8x7b" if "ep" in text else "llama3-8b")
    shards = read_shards(["dp=2/3,1/3,0"])
    strategy = fitted_strategy(parse_strategy(text), shards)
    d = derive_model(model, strategy)
    numbers = {n: Fraction(4) for c in d.costs for e in (c.peak, c.host, *c.traffic().values()) for n in map(str, e.free_symbols)}
    values = {**numbers, **d.values}
    for cost, even in zip(uneven_stages(d, shards), d.costs, strict=True):
        equal = {"f_dp": Fraction(1, 3), "fnext_dp": Fraction(1, 3)}
        for key in ("model_states", "transient", "peak", "host"):
            assert evaluate(getattr(cost, key), {**values, **equal}) == evaluate(sympy.sympify(getattr(even, key)), values), key
        first = {**values, **next(shards.devices()).values}
        whole = [[o for o in one.sent if o.kind in ("all_gather", "reduce_scatter")] for one in (cost, even)]  # of whatever parts
        sizes = [[(o.kind, o.phase, o.axes, evaluate(o.size, first)) for o in sent_] for sent_ in whole]
        assert sizes[0] == sizes[1]
        assert cost.traffic().keys() == even.traffic().keys()
        for axes, amount in even.traffic().items():
            each = [evaluate(sympy.sympify(cost.traffic()[axes]), {**values, **one.values}) or 0 for one in shards.devices()]
            assert sum(each) == 3 * (evaluate(sympy.sympify(amount), values) or 0), axes
        of = [evaluate(sympy.sympify(cost.states["optimizer"] + cost.host), {**values, **one.values}) or 0 for one in shards.devices()]
        assert (of[0], of[2]) == (2 * of[1], 0)
        assert of[1] > 0


# What cannot be.


@pytest.mark.parametrize(
    ("text", "settings_", "codes", "words"),
    [
        ("zero3", ["dp=0.5,0.4"], ["PP202"], "add up to 9/10"),
        ("zero3", ["dp=0.333,0.333,0.333"], ["PP202"], "add up to 999/1000"),
        ("zero3", ["dp=1.5,-0.5"], ["PP202"], "negative"),
        ("zero3", ["dp=0:0"], ["PP202"], "all parts"),
        ("zero3", ["dp=0.5;0.5"], ["PP202"], "no part"),
        ("zero3", ["dp=1/0,1"], ["PP202"], "no part"),
        ("zero3", ["dp=1x0,1"], ["PP202"], "no part"),
        ("zero3", ["dp=0x99999,1"], ["PP202"], "more than"),
        ("zero3", ["dp="], ["PP202"], "AXIS=PARTS"),
        ("zero3", ["dp=1:1", "dp=1:1"], ["PP205"], "twice"),
        ("zero3(3)", ["dp=1:1"], ["PP205"], "degree 3"),
        ("zero3", ["tp=1:1"], ["PP201"], "there is none"),
        ("ddp", ["dp=1:1"], ["PP104"], "nothing of the model states lies in parts"),
        ("zero1 * cp", ["cp=1:1"], ["PP104"], "nothing of the model states lies in parts"),
        ("zero3 * ep", ["ep=1:1"], ["PP104"], "whole experts"),
        ("zeropp", ["dp=1:1"], ["PP104"], "sub-groups"),
        ("zero3(3) * tp * pp", ["dp=1:1", "tp=1:1", "pp=1:1", "x=1"], ["PP104", "PP104", "PP201", "PP205"], "--stages"),
    ],
)
def test_bad_parts_are_refused_together(text: str, settings_: list[str], codes: list[str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        derive_shards(parse_strategy(text), read_shards(settings_))
    found = caught.value.diagnostics
    assert sorted(p.code for p in found) == codes
    assert any(words in f"{p.message} {p.help}" for p in found)
    assert all(p.help for p in found)


PROGRAM = """\
mesh(dp)
place(parameters, dp="R")
place(optimizer, dp="S")
place(gradients, dp="R")
gradients = scale(all_reduce(backward(parameters), dp), 1 / dp)
{}
parameters = broadcast(parameters, dp, root=owner)
"""
UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)"


def test_programs_that_owners_broadcast_in_have_uneven_parts() -> None:
    """A broadcast costs s by convention, so that parts change memory alone."""
    d = derive_shards(read(PROGRAM.format(UPDATE)), read_shards(["dp=3:1"]))
    assert d.memory["optimizer"] == tidy(symbol("P") * symbol("b_omega") * fraction("dp"))
    assert d.sent == derive(read(PROGRAM.format(UPDATE).replace("mesh(dp)", "mesh(dp=2)"))).sent


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f"if rank(dp) == 0:\n    zero(gradients)\n{UPDATE}", "do different things"),
        (f"gradients = all_to_all(gradients, dp)\n{UPDATE}", "`all_to_all` over `dp`"),
    ],
)
def test_programs_whose_costs_are_not_derived_are_refused(lines: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        derive_shards(read(PROGRAM.format(lines)), read_shards(["dp=3:1"]))


# The command line.


def told(*args: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(["derive", *args]) == 0
    return out.getvalue()


def test_numbers_of_each_device_and_the_greatest_peak() -> None:
    out = told("zero3", "--shards", "dp=0.3x2,0.1x4", "--set", "P=1e9", "--set", "U=1e8", "--set", "A=1e9")
    assert [line.split() for line in out.splitlines() if line.startswith("  dp ") and "degree" not in line] == [
        ["dp", "0", "3/10", "0.6", "0.6", "3.6", "2", "0.2", "7", "4.2"],
        ["dp", "1", "3/10", "0.6", "0.6", "3.6", "2", "0.2", "7", "5"],
        ["dp", "2", "to", "4", "1/10", "0.2", "0.2", "1.2", "2", "0.2", "3.8", "5.4"],
        ["dp", "5", "1/10", "0.2", "0.2", "1.2", "2", "0.2", "3.8", "4.6"],
    ]
    assert "greatest peak: 7 GB" in out
    assert "uneven parts: 2 of 3/10, 4 of 1/10" in out


def test_two_uneven_axes_multiply() -> None:
    text = 'mesh(dp, cp)\nplace(parameters, dp="R", cp="R")\nplace(optimizer, dp="S", cp="S")\nplace(gradients, dp="R", cp="R")\n'
    text += "gradients = all_reduce(all_reduce(backward(parameters), dp), cp)\n" + UPDATE
    d = derive_shards(read(text), read_shards(["dp=3:1", "cp=2:1"]))
    assert d.memory["optimizer"] == tidy(symbol("P") * symbol("b_omega") * fraction("dp") * fraction("cp"))


def test_json_has_the_parts_and_follows_the_schema() -> None:
    data: dict[str, Any] = json.loads(told("hsdp", "--shards", "shard=2:1", "--set", "P=1e9", "--set", "N_rep=2", "--json"))
    Draft202012Validator(json.loads((DOCS / "derive.schema.json").read_text(encoding="utf-8"))).validate(data)
    assert data["shards"]["parts"] == {"shard": ["2/3", "1/3"]}
    assert [d["at"] for d in data["shards"]["devices"]] == [{"shard": [0, 0]}, {"shard": [1, 1]}]
    assert data["shards"]["greatest"]["at"] == {"shard": [0, 0]}
    assert set(data["shards"]["symbols"]["shard"].values()) <= set(data["symbols"])
    empty = json.loads(told("zero1", "--shards", "dp=2:1", "--json"))["shards"]
    assert (empty["devices"], empty["greatest"]) == ([], None)


def test_models_on_the_command_line() -> None:
    args = ("zero1 * pp(2)", "--model", "llama3-8b", "--set", "b=1", "--set", "m=8", "--shards", "dp=2:1")
    out = told(*args)
    assert out.count("stage 1  dp 1") == 1
    assert "greatest peak" in out
    data = json.loads(told(*args, "--json"))
    Draft202012Validator(json.loads((DOCS / "derive-model.schema.json").read_text(encoding="utf-8"))).validate(data)
    assert [d["stage"] for d in data["shards"]["devices"]] == ["stage 0", "stage 0", "stage 1", "stage 1"]
    assert "f_dp" in data["shards"]["formulas"]["stage 0"]["memory.optimizer"]


@pytest.mark.parametrize("form", ["--latex", "--markdown", "--python"])
def test_formulas_elsewhere_have_the_parts(form: str) -> None:
    out = told("zero3", "--shards", "dp=2:1", form)
    assert "f_{\\mathrm{dp}}" in out if form == "--latex" else "f_dp" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("zero3", "--shards", "dp=1:1", "--shapes", "x.toml"), "`--shapes` does not go with `--shards`"),
        (("zero3", "--shards", "dp=1:1", "--model", "llama3-8b", "--latex"), "`--latex` does not go with `--shards`"),
        (("zero3", "--shards", "dp=1:1", "--model", "llama3-8b", "--cluster", "dgx-h100"), "`--cluster` does not go with `--shards`"),
        (("zero3", "--shards", "dp=1:2", "--set", "N=3"), "N"),
        (("zero3(", "--shards", "dp=1,2", "--set", "Q=1"), "3 problems"),
        (("zero3 * tp", "--shards", "tp=1:1", "--model", "llama3-8b"), "splits the computation"),
        (("ddp", "--shards", "dp=1:1", "--model", "llama3-8b"), "lies in parts"),
        (("zero1 * pp(4, schedule=dualpipe)", "--shards", "dp=1:1", "--model", "llama3-8b"), "two copies"),
    ],
)
def test_wrong_command_lines_are_refused(args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", *args]) == 2
    assert words in capsys.readouterr().err


def test_fractions_are_described_and_no_other_symbol_is_taken_for_one() -> None:
    assert described("f_dp").meaning.startswith("the device's part")
    assert described("fnext_dp").meaning.startswith("that of the next device")
    assert described("f_e").meaning == "inner width of one expert"
    assert str(fraction("e")) == "fown_e"
    assert described(str(fraction("e"))).meaning.startswith("the device's part")
    with pytest.raises(KeyError):
        described("nonsense")
