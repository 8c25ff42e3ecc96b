"""Bad input: every error code can happen, and every bad input ends in one message that lists all problems, exit code 2."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placeproof.cli.main import run
from placeproof.core.codes import CODES, Code
from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.cost.values import read_numbers
from placeproof.strategies import parse_strategies, parse_strategy

FILES = {
    "file": "mine.toml",
    "program": "mine.step",
    "theorem": "mine.py",
    "lock": "verdicts.lock.json",
    "config": "ds_config.json",
    "certificate": "c.json",
}
THEOREM = '''from placeproof.theory import Integer, Proved, theorem
@theorem(expect=Proved(), cite="rajbhandari2020zero")
def square(n: Integer):
    """A square is not negative."""
    return n * n >= 0
square.control("cube", lambda n: n * n * n >= 0, refuted_at={"n": -1})
'''
SOURCE = Path(__file__).parents[2] / "placeproof"


def codes_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The codes that a command reports; it must exit with 2 and print nothing to standard output."""
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return re.findall(r"^error\[(PP\d+)\]", captured.err, re.MULTILINE)


def arguments(code: Code, folder: Path) -> list[str]:
    """The command line that makes a code's example."""
    if code.kind == "strategy":
        return ["derive", code.example]
    if code.kind == "assumption":
        return ["prove", "zero3", "--without", code.example]
    if code.kind == "command":
        return code.example.split()
    if code.kind == "range":
        return ["prove", "zero3", *(part for text in code.example.split(" and ") for part in ("--for-all", text))]
    if code.kind == "unset":
        return ["derive", *code.example.split()]
    if code.kind == "precision":
        return ["derive", "ddp", "--precision", code.example]
    if code.kind == "set":
        return ["derive", "zero3(8)", *(part for setting in code.example.split() for part in ("--set", setting))]
    path = folder / FILES[code.kind]
    path.write_text(code.example)
    if code.kind == "lock":
        path = folder / "mine.py"
        path.write_text(THEOREM)
    commands = {"theorem": "check", "lock": "check", "certificate": "verify"}
    return [commands.get(code.kind, "derive"), str(path)]


@pytest.mark.parametrize("code", CODES.values(), ids=lambda c: c.code)
def test_the_example_of_each_code_has_it(code: Code, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code.code in codes_of(capsys, *arguments(code, tmp_path))


@pytest.mark.parametrize("code", CODES)
def test_each_code_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", code]) == 0
    assert CODES[code].title in capsys.readouterr().out


def test_each_code_that_the_product_uses_is_in_the_table() -> None:
    used = {c for path in SOURCE.rglob("*.py") for c in re.findall(r'"(PP\d{3})"', path.read_text())}
    assert used == set(CODES)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("zero3(-1)", ["PP103"]),
        ("zero3(2.5)", ["PP103"]),
        ("zero3(0) * tp(0)", ["PP103", "PP103"]),
        ("zero3(true)", ["PP103"]),
        ("zero3(N)", ["PP103"]),
        ("zero3(8, 8)", ["PP104"]),
        ("zero3(dp=8, dp=4)", ["PP102"]),
        ("zero3(8, dp=4)", ["PP104"]),
        ("fsdp(reshard_after_forward=0)", ["PP104"]),
        ("zero3(prefech=true)", ["PP104"]),
        ("zero3(8, speed=high) * tp(width=2)", ["PP104", "PP104"]),
        ("fsdp(6, reshard_after_forward=4)", ["PP103"]),
        ("ddp * zero3", ["PP105"]),
        ("fsdp(reshard_after_forward=4, prefetch=true)", ["PP122"]),
        ("zero1 * zero1", ["PP105"]),
        ("tp * tp", ["PP105"]),
        ("sp * zero_r * tp", ["PP105"]),
        ("tp(2) * sp(4)", ["PP106"]),
        ("accumulate(2) * accumulate(3)", ["PP107"]),
        ("adafactor * muon", ["PP107"]),
        ("muon(exchanged) * zero1 * shampoo", ["PP107"]),
        ("muon(exchanged) * muon(owned)", ["PP107"]),
        ("adafactor * clip * muon * accumulate(2) * accumulate(3)", ["PP107", "PP107"]),
        ("zero_r", ["PP108"]),
        ("sp * ddp", ["PP108"]),
        ("(R, S, R)", ["PP102"]),
        ("(R, S, R, R) * (R, S, R, R)", ["PP105"]),
        ("(S, S, S, R)", ["PP120"]),
        ("zero3 tp", ["PP102"]),
        ("* zero3", ["PP102"]),
        ("zero3 *", ["PP102"]),
        ("", ["PP102"]),
        ("zero3 & tp", ["PP102"]),
        ("zero3(\n8)", ["PP102"]),
        ("none.toml", ["PP110"]),
        ("none.step", ["PP110"]),
        ("zero33 * tpp(0) * ddp(-1)", ["PP101", "PP101", "PP103"]),
    ],
)
def test_bad_strategies(strategy: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert codes_of(capsys, "derive", strategy) == expected


@pytest.mark.parametrize("name", ["inner", "dp_inner", "gradients"])
def test_a_word_of_step_programs_is_no_axis(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", f"fsdp(dp={name})"]) == 2
    assert f"error[PP103]: no axis can be called `{name}`: that name means something else in step programs\n" in capsys.readouterr().err


def test_a_conflict_names_both_strategies_and_the_rule() -> None:
    with pytest.raises(InputError) as caught:
        parse_strategy("zero1(4) * fsdp")
    (problem,) = caught.value.diagnostics
    assert "`zero1(4)`" in problem.message
    assert "`fsdp`" in problem.message
    assert "`dp`" in problem.message
    assert problem.notes[0].startswith("rule: one_placement_of_each_state_on_an_axis")


def test_a_suggestion_is_made() -> None:
    with pytest.raises(InputError) as caught:
        parse_strategy("zerro3")
    assert "`zero3`" in (caught.value.diagnostics[0].help or "")


def test_the_problems_of_several_arguments_come_together() -> None:
    with pytest.raises(InputError) as caught:
        parse_strategies(["zerro", "ddp(0)", "tp"])
    assert [d.code for d in caught.value.diagnostics] == ["PP101", "PP103"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["P"], "PP202"),
        (["P="], "PP202"),
        (["P=x"], "PP202"),
        (["P=-1"], "PP202"),
        (["P=nan"], "PP202"),
        (["P=inf"], "PP202"),
        (["P=1e9999"], "PP202"),
        (["N=2.5"], "PP202"),
        (["N=8", "N=9"], "PP202"),
        (["m=0"], "PP202"),
        (["P=0"], "PP202"),
        (["b_omega=-1"], "PP202"),
        (["A=-1"], "PP202"),
        (["P=1/0"], "PP202"),
        (["PP=1"], "PP201"),
        (["P=10", "U=11"], "PP205"),
    ],
)
def test_bad_settings(settings: list[str], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_numbers(settings, None)
    assert [d.code for d in caught.value.diagnostics] == [expected]


def test_a_degree_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert codes_of(capsys, "derive", "zero3(8)", "--set", "P=1e9", "--set", "N=16") == ["PP205"]
    assert codes_of(capsys, "derive", "zero3(8)", "--set", "P=1e9", "--set", "N_tp=2") == ["PP201"]
    assert run(["derive", "zero3(8)", "--set", "P=1e9", "--set", "N=8"]) == 0


def test_good_settings_are_exact() -> None:
    values = read_numbers(["P=70B", "N=64", "b_g=1/2", "U=1e3"], "fp32-adam").values
    assert (values["P"], values["N"], values["U"]) == (70 * 10**9, 64, 1000)
    assert values["b_g"] * 2 == 1
    assert values["b_theta"] == 4
    assert read_numbers(["b_omega=0"], None).values["b_omega"] == 0


BAD_FILES = {
    'name = "x"\n[axes.dp]\n[placement.dp]\nparameters = "S"\n': "PP120",
    'name = "x"\n[axes.dp]\n[placement.dp]\nparameters = "M"\n': "PP120",
    'name = "x"\n[axes.dp]\n[placement.dp]\noptimizer = "S*"\n': "PP120",
    'name = "x"\n[axes.dp]\n[placement.dp]\ngradients = "S*"\n': "PP120",
    'name = "x"\n[axes.dp]\n[placement.dp]\nactivations = "R"\n': "PP120",
    'name = "x"\n[axes.tp]\n[placement.tp]\nparameters = "S*"\n': "PP120",
    'name = "x"\n[axes.pp]\n[placement.pp]\nparameters = "S"\n': "PP121",
    'name = "x"\n[axes.a]\nsplits = "hidden"\n[axes.tp]\n': "PP122",
    'name = "x"\nnme = "y"\n': "PP111",
    'name = "x"\n[axes.dp]\nsplit = "batch"\n': "PP111",
    'name = "x"\n[axes.q]\n': "PP112",
    'name = "x"\n[axes.dp]\ndegree = 0\n': "PP103",
    'name = "x"\n[placement.dp]\nparameters = "R"\n': "PP111",
    'name = "x"\n[schedule]\nprefetchh = true\n': "PP111",
    'name = "x"\n[options.o]\nsets = "nothing"\n': "PP112",
    'name = "x"\naxes = 3\n': "PP112",
    "name = 3\n": "PP112",
    'name = "x"\n[axes.update]\nsplits = "batch"\n': "PP112",
    'name = "x"\n[needs]\ntp = "weights"\n': "PP112",
    'name = "x\n': "PP110",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_bad_files(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    assert BAD_FILES[text] in codes_of(capsys, "derive", str(path))


def test_a_wrong_key_is_shown_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('name = "x"\n\n[axes.dp]\n\n[placement.dp]\nparameters = "R"\noptimiser = "S"\ngradients = "X"\n')
    assert run(["derive", str(path)]) == 2
    shown = capsys.readouterr().err
    assert f"{path}:7:1" in shown
    assert f"{path}:8:1" in shown
    assert '7 | optimiser = "S"\n  | ^^^^^^^^^' in shown
    assert "did you mean `optimizer`?" in shown


def test_an_unusable_mode_is_shown_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('name = "x"\n[axes.dp]\n[placement.dp]\nparameters = "S"\noptimizer = "S*"\ngradients = "S*"\n')
    assert codes_of(capsys, "derive", str(path)) == ["PP120", "PP120", "PP120"]
    assert run(["derive", f"{path} * tp"]) == 2
    shown = capsys.readouterr().err
    for line, key in ((4, "parameters"), (5, "optimizer"), (6, "gradients")):
        assert f"{path}:{line}:1\n" in shown
        assert f"{line} | {key}" in shown


@given(st.binary(max_size=80))
def test_no_file_makes_a_traceback(content: bytes) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_bytes(content)
        try:
            derive(parse_strategy(str(path)))
        except InputError as error:
            assert error.diagnostics


@given(st.text(alphabet=st.sampled_from("zero123tp*() ,=.\"'abcdefNP-_+"), max_size=40))
def test_no_expression_makes_a_traceback(text: str) -> None:
    try:
        derive(parse_strategy(text))
    except InputError as error:
        assert error.diagnostics


def test_a_whole_process_exits_with_two_and_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-m", "placeproof", "derive", "zero3(0)"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error[PP103]")
    assert done.stderr.endswith("1 problem; nothing was computed\n")


def test_wrong_usage_exits_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero3", "--nonsense"]) == 2
    assert run(["compare", "zero3"]) == 2
    assert run(["list", "strategie"]) == 2
    assert run(["explain", "zerro3"]) == 2
    assert run(["derive", "zero3", "--json", "--latex"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_strategy_without_quotes_is_told_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "fsdp", "README.md", "tp"]) == 2  # as a shell hands it over
    assert 'in quotes, as in `placeproof derive "fsdp * tp"`' in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["--json"], ["--catalogue", "zero3"]])
def test_a_proof_has_a_subject_or_is_of_the_catalogue(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert codes_of(capsys, "prove", *asked) == ["PP207"]


def test_a_bug_is_exit_code_seventy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr("placeproof.cost.derive.derive_shards", broken)
    assert run(["derive", "zero3"]) == 70
    shown = capsys.readouterr().err
    assert "placeproof has a bug: RuntimeError: on purpose" in shown
    assert "Traceback" not in shown
