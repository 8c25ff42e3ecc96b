"""Names in other letters and by other words: understood where one thing is meant, said, and refused where several are."""

from __future__ import annotations

import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.core.spelling import hearing, respelled
from placeproof.core.symbols import SYMBOLS, WORDS, named
from placeproof.cost.values import read_numbers, spelled
from placeproof.models import load, presets
from placeproof.strategies import names, parse_strategy


def test_the_only_name_that_differs_in_letters_alone() -> None:
    with hearing() as heard:
        assert respelled("DGX_h100", ["dgx-h100", "dgx-b200"]) == "dgx-h100"
        assert respelled("Ab", ["a-b", "a_b"]) is None
        assert respelled("dgx", ["dgx-h100"]) is None
        assert respelled("a-b", ["a-b"]) == "a-b"
    assert heard == {"DGX_h100": "dgx-h100"}
    assert respelled("A", ["a"]) == "a", "nobody has to listen"


@pytest.mark.parametrize("name", names())
def test_strategies_in_capitals(name: str) -> None:
    with hearing() as heard:
        said = parse_strategy("tp * SP" if name == "sp" else "tp * ZERO_R" if name == "zero_r" else name.upper())
    assert said.name == parse_strategy(f"tp * {name}" if name in ("sp", "zero_r") else name).name
    assert heard == {name.upper(): name}


@pytest.mark.parametrize("name", presets())
def test_models_in_capitals(name: str) -> None:
    assert load(name.upper()).name == load(name).name


def test_a_dot_is_no_hyphen() -> None:
    assert load("GPT3_13B").name == "gpt3-13b"
    assert load("GPT3_1.3B").name == "gpt3-1.3b"
    with pytest.raises(InputError):
        load("GPT3.13B")


def test_words_stand_for_symbols_and_are_none() -> None:
    assert set(WORDS.values()) <= set(SYMBOLS)
    assert not set(WORDS) & set(SYMBOLS)
    assert len({word.replace("_", "") for word in WORDS}) == len({(word.replace("_", ""), name) for word, name in WORDS.items()})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("seq=4k", "s=4096"),
        ("Seq_Len=128K", "s=131072"),
        ("s = 4096", "s = 4096"),
        ("P=4k", "P=4k"),
        ("PARAMS=7B", "P=7B"),
        ("B_THETA=2", "b_theta=2"),
        ("bs=4", "bs=4"),
        ("B=4", "B=4"),
        ("N_dp=8", "N_dp=8"),
        ("nonsense", "nonsense"),
    ],
)
def test_settings(written: str, expected: str) -> None:
    assert spelled(written) == expected


def test_a_single_letter_is_itself() -> None:
    assert [named(letter) for letter in "aAbBnN"] == list("aAbBnN")


@pytest.mark.parametrize("word", ["batch", "batch_size", "bs"])
def test_what_may_be_two_things_is_refused_with_both(word: str) -> None:
    with pytest.raises(InputError) as refused:
        read_numbers([f"{word}=4"], None)
    help = refused.value.diagnostics[0].help or ""
    assert "`b`" in help
    assert "`--global-batch`" in help


def test_a_symbol_cannot_be_said_twice_by_two_words() -> None:
    with pytest.raises(InputError, match="set twice"):
        read_numbers(["s=4096", "seq=8k"], None)


def test_the_answer_says_what_was_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "FSDP(8)", "--set", "params=7B"]) == 0
    answer = capsys.readouterr().out.split("\n\n")[0]
    assert answer.splitlines()[-1] == "read `params` as `P`, `FSDP` as `fsdp`"
    assert run(["derive", "FSDP(8)", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "note: read `FSDP` as `fsdp`\n"
    assert run(["derive", "fsdp(8)", "--json"]) == 0
    assert capsys.readouterr() == (printed.out, "")
