"""Inputs that are too large are refused with a message, wherever they stand, and at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

import placeproof
from placeproof.cli.main import run
from placeproof.core import bounds
from placeproof.core.diagnostics import InputError
from placeproof.core.files import MOST_BYTES
from placeproof.importers import read_config

STEP = "mesh(dp{degree})\ngradients = scale(all_reduce(backward(parameters), dp), {factor})\n"
STEP += "parameters, optimizer = update(parameters, optimizer, gradients)\n"
FACTORS = {
    "2**999999999": "at most 32",
    "1 / dp**40000000": "at most 32",
    "1 / dp**33": "at most 32",
    "1 / dp**-33": "at most 32",
    "1 / (dp**6)**6": "at most 32",
    "1 / dp**dp": "at most 32",
    "2**99999999999999999999": "at most 32",
    "1e999999999": "1e100",
    "1e-999999999": "1e100",
    "9" * 200: "1e100",
    "9" * 5000: "step program",
    "dp**" * 900 + "dp": "120 levels",
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("factor", FACTORS, ids=lambda text: text[:20])
@pytest.mark.parametrize("command", ["prove", "derive"])
def test_numbers_of_programs(factor: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.step").write_text(STEP.format(degree="", factor=factor))
    assert FACTORS[factor] in refused(capsys, command, "a.step")


def test_what_is_within_the_bounds_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.step").write_text(STEP.format(degree=f"={bounds.MOST_COUNT}", factor="1 / dp**1"))
    assert run(["derive", "a.step"]) == 0
    assert run(["derive", f"zero3({bounds.MOST_COUNT})", "--set", "P=1e100"]) == 0
    Path("a.step").write_text(STEP.format(degree=f"={bounds.MOST_COUNT + 1}", factor="1 / dp"))
    capsys.readouterr()
    assert "at most 1e9" in refused(capsys, "derive", "a.step")


@pytest.mark.parametrize("setting", ["P=1e101", "P=1e-101", "P=1e400", "N=1e10", "m=1000000001", "N=0.5", "m=2.5"])
def test_settings(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "[PP202]" in refused(capsys, "derive", "zero3 * accumulate", "--set", setting)


@pytest.mark.parametrize("degree", ["1000000001", "1" + "0" * 30])
def test_degrees(degree: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "[PP103]" in refused(capsys, "derive", f"zero3({degree})")
    Path("a.toml").write_text(f'name = "mine"\n[axes.dp]\ndegree = {degree}\n')
    assert "[PP103]" in refused(capsys, "derive", "a.toml")


@pytest.mark.parametrize(
    "size", ["layers=2.7", "layers=10001", "layers=1e400", "layers='2'", "hidden=True", "hidden=1000000001", "kv_heads=0"]
)
def test_shapes(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"transformer({size}, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"
    assert f"`{size.partition('=')[0]}` is a whole number" in refused(
        capsys, "derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", text
    )


@pytest.mark.parametrize("number", ["1e9999999999999999999", "1e101", "1e-400", "9" * 500 + ".0"])
def test_clusters(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    preset = Path(__file__).parents[2] / "placeproof" / "clusters" / "presets" / "dgx-h100.toml"
    lines = [f"memory = {number}" if line.startswith("memory =") else line for line in preset.read_text().splitlines()]
    Path("c.toml").write_text("\n".join(lines) + "\n")
    assert "error[PP11" in refused(capsys, "derive", "fsdp(8)", "--model", "llama3-8b", "--set", "b=1", "--cluster", "c.toml")


@pytest.mark.parametrize("formula", ["n**33 >= 1", "n**-33 <= 1", "n <= 10**101", "n >= Fraction(1, 10**101)"])
def test_theorems(formula: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = '"""Sizes."""\nfrom fractions import Fraction\nfrom placeproof.theory import Degree, Proved, theorem\n\n\n'
    text += '@theorem(expect=Proved(), cite="rajbhandari2020zero")\ndef counts(n: Degree):\n    """There is a device."""\n'
    Path("t.py").write_text(f"{text}    return {formula}\n")
    told = refused(capsys, "check", "t.py", "--jobs", "1", "--no-cache")
    assert "at most 32" in told or "1e100" in told


NAMED = {
    "derive": (
        ["{}.toml"],
        ["{}.step"],
        ["{}.json"],
        ["zero3(8)", "--shapes", "{}.json", "--profile", "torch-2.13"],
        ["ddp", "--model", "{}.toml"],
    ),
    "prove": (["{}.step"], ["{}.toml"], ["{}.yaml"], ["ddp", "--smtlib", "{}"]),
    "check": (["{}.py"], ["{}"], ["{}.py::x"]),
    "replay": (["{}", "--backend", "simulator"],),
    "explain": (["{}.toml"],),
}


@pytest.mark.parametrize(("command", "arguments"), [(c, a) for c, several in NAMED.items() for a in several], ids=str)
def test_names_that_are_too_long(command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "error[" in refused(capsys, command, *(a.format("a" * 300) for a in arguments))
    if "--smtlib" not in arguments:
        assert "error[" in refused(capsys, command, *(a.format("~nobody_of_this_name/a") for a in arguments))


@pytest.mark.parametrize("name", ["a.toml", "a.step", "a.json", "a.yaml", "t.py"])
def test_a_file_without_an_end(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_bytes(b"#" * (MOST_BYTES + 1))
    told = refused(capsys, "check" if name == "t.py" else "derive", name)
    assert f"it has more than {MOST_BYTES:,} bytes" in told


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no such device")
def test_a_device_without_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.toml").symlink_to("/dev/zero")
    assert "it has more than" in refused(capsys, "derive", "a.toml")
    assert "it has more than" in refused(capsys, "replay", "/dev/zero", "--backend", "simulator")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("name", ["a.toml", "a.step"])
def test_what_comes_through_a_pipe_is_what_a_file_says(name: str, tmp_path: Path) -> None:
    texts = {"a.toml": "strategies/catalogue/fsdp.toml", "a.step": "strategies/not_equivalent/local_sgd.step"}
    text = (Path(placeproof.__file__).parent / texts[name]).read_bytes()
    (tmp_path / "pipe").mkdir()
    (tmp_path / name).write_bytes(text)
    os.mkfifo(tmp_path / "pipe" / name)
    Thread(target=(tmp_path / "pipe" / name).write_bytes, args=(text,), daemon=True).start()
    words = [sys.executable, "-m", "placeproof", "derive"]
    answers = [
        subprocess.run([*words, str(folder / name)], capture_output=True, check=False, timeout=120).stdout.replace(bytes(folder), b"")
        for folder in (tmp_path, tmp_path / "pipe")
    ]
    assert answers[0] == answers[1] != b""


def test_many_wrong_words_take_no_longer_than_their_number(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        (tmp_path / "a.sh").write_text("python3 -m verl.trainer.main_ppo " + "- " * count + "\n" * count)
        before = time.process_time()
        with pytest.raises(InputError, match="is no setting with a value"):
            read_config(str(tmp_path / "a.sh"), system="verl", world=8)
        return time.process_time() - before

    seconds(100)
    assert seconds(10_000) < 3 * 5 * seconds(2_000)
