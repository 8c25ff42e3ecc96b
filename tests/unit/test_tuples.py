"""Placements as tuples: read, printed, composed, refused."""

from __future__ import annotations

import itertools

import pytest

import placeproof
from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.core.modes import MODES
from placeproof.core.states import STATES
from placeproof.programs import render
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy


@pytest.mark.parametrize("axis", ["", ", dp=8", ", shard", ", rep=2", ", tp", ", pp=4", ", cp", ", mine"])
def test_every_tuple_is_read_and_printed(axis: str) -> None:
    for modes in itertools.product(MODES, repeat=4):
        text = f"({', '.join(modes)}{axis})"
        strategy = parse_strategy(text)
        assert strategy.name == text
        assert parse_strategy(text.replace(" ", "").replace("*", " * ")) == strategy
        name = axis.strip(", ").partition("=")[0] or "dp"
        for state, mode in list(zip(STATES.values(), modes, strict=True))[:3]:
            assert strategy.mode(state, name, "matrix").symbol == mode


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("(R, R, R, R)", "ddp"),
        ("(R, S, R, R)", "zero1"),
        ("(R, S, S, R)", "zero2"),
        ("(S*, S, S, R)", "zero3"),
        ("(S*, S, S, S)", "zero3"),
        ("(R, O, O, R)", "zero_offload"),
        ("(O, O, O, R)", "zero_infinity"),
        ("(S, S, S, R, tp)", "tp"),
        ("(S, S, S, S, tp)", "tp * sp"),
        ("(S, S, S, S, pp) * accumulate", "pp"),
        ("(S*, S, S, R, shard) * (R, R, R, R, rep) * (S, S, S, R, tp=4)", "zero3(dp=shard) * ddp(dp=rep) * tp(4)"),
        ("(R, R, R, S, cp) * cp", "ddp(dp=cp) * cp"),
        ("(S*, S, S, R) * checkpoint", "zero3 * checkpoint"),
        ("(R, S, S, R, ep) * ep", "zero2(dp=ep) * ep"),
    ],
)
def test_a_tuple_is_lowered_to_what_the_catalogue_is_lowered_to(text: str, same: str) -> None:
    ours, theirs = (render(lower(parse_strategy(s))).split("\n", 1)[1] for s in (text, same))
    assert ours == theirs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(R, S, R)", "a placement has 4 modes, and here are 3"),
        ("(R)", "a placement has 4 modes, and here are 1"),
        ("(R, S, R, dp)", "`dp` is no mode"),
        ("(R, S, R, s)", "`s` is no mode"),
        ("(R*, S, R, R)", "`R*` is no mode"),
        ("(S**, S, R, R)", "a placement has 4 modes, and here are 1"),
        ("(R, S, R, R, R)", "`R` cannot name an axis"),
        ("(R, S, R, R, gradients)", "`gradients` cannot name an axis"),
        ("(R, S, R, R, dp_inner)", "`dp_inner` cannot name an axis"),
        ("(R, S, R, R, 8)", "`8` cannot name an axis"),
        ("(R, S, R, R, dp=0)", "the degree of axis `dp` is a whole number of at least 1 and at most 1e9"),
        ("(R, S, R, R, dp=", "the degree of axis `dp` is a whole number of at least 1 and at most 1e9"),
        ("(R, S, R, R, dp=true)", "the degree of axis `dp` is a whole number of at least 1 and at most 1e9"),
        ("(R, S, R, R, dp, tp)", "expected `)` after a placement's modes and its axis"),
        ("(R, S, R, R", "expected `)` after a placement's modes and its axis"),
        ("(R, S, R, R,", "expected the name of an axis"),
        ("(", "expected a mode"),
        ("()", "`)` is no mode"),
        ("zero1 * (", "expected a mode"),
        ("(S*, S, S, R) zero1", "expected `*` between strategies"),
    ],
)
def test_a_bad_tuple_is_one_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_strategy(text)
    assert [(d.code, d.message) for d in caught.value.diagnostics] == [("PP102", message)]


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("(R, S, R, R) * zero2", "zero2(dp=dp2)"),
        ("(R, R, R, R, dp=8) * (S*, S, S, R)", "(S*, S, S, R, dp2)"),
        ("(R, R, R, R) * (S*, S, S, R, dp=8)", "(S*, S, S, R, dp2)"),
    ],
)
def test_two_placements_on_one_axis_are_refused_with_a_remedy_that_is_read(text: str, elsewhere: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_strategy(text)
    [bad] = caught.value.diagnostics
    assert bad.code == "PP105"
    assert bad.help is not None
    assert f"`{elsewhere}`" in bad.help
    assert parse_strategy(f"ddp * {elsewhere}")


@pytest.mark.parametrize(("modes", "why"), [("R, S, S, M", "activations"), ("S, S, S, R", "parameters"), ("R, M, R, R", "optimizer")])
def test_what_no_device_can_use_is_refused_when_it_is_lowered(modes: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        placeproof.derive(f"({modes})")


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("(S*, S, S, R)", "`--set P=70e9 --set N=8`, or the degree in the strategy: `(S*, S, S, R, dp=8)`"),
        ("(R, S, S, R, shard) * tp(2)", "`--set P=70e9 --set N_shard=8`, or the degree in the strategy: `(R, S, S, R, shard=8) * tp(2)`"),
    ],
)
def test_a_missing_degree_is_shown_in_the_tuple(text: str, help: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", text, "--set", "P=70e9"]) == 2
    assert f"help: {help}\n" in capsys.readouterr().err


def test_a_profile_names_the_tuple_that_it_does_not_implement(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "(S*, S, S, R)", "--profile", "torch-2.13"]) == 2
    assert "profile `torch-2.13` does not say how `(S*, S, S, R)` is implemented" in capsys.readouterr().err
