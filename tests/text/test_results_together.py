"""Several results of one subject in one answer: each says what it says alone."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from placeproof.cli.main import run

HERE = Path(__file__).parents[1]
REFERENCE = HERE.parent / "docs" / "reference"
SHAPES = "transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)"
STRATEGY = "fsdp(2) * tp(2) * sp * pp(2)"
BYTES = ["--profile", "torch-2.13", "--shapes", SHAPES]
MODEL = ["--model", "llama3-8b"]
NUMBERS = ["--set", "b=1", "--set", "m=8"]
CLUSTER = ["--cluster", "dgx-h100"]


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Any:
    def printed(*arguments: str) -> str:
        assert run(["derive", *arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return printed


@pytest.fixture
def data(out: Any) -> Any:
    return lambda *arguments: json.loads(out(*arguments, "--json"))


@pytest.fixture
def linked(out: Any, tmp_path: Path) -> str:
    path = tmp_path / "linked.step"
    path.write_text(out(STRATEGY, *MODEL, "--program"), encoding="utf-8")
    return str(path)


def valid(found: dict[str, Any], schema: str) -> dict[str, Any]:
    Draft202012Validator(json.loads((REFERENCE / schema).read_text(encoding="utf-8"))).validate(found)
    return found


def together(*texts: str) -> str:
    """Results below one another: the answer of each first, where it begins with one."""
    split = [text.split("\n\n", 1) for text in texts]
    return "\n\n".join([*(answer for answer, _ in split), *(rest.rstrip("\n") for _, rest in split)]) + "\n"


@pytest.mark.parametrize("more", [["--groups"], ["--precision", "mixed-adam"], ["--groups", "--precision", "mixed-adam"]])
def test_closed_forms_stand_before_exact_bytes(more: list[str], out: Any, data: Any) -> None:
    """The formulas are those of the strategy as the profile lowers it, as without shapes."""
    subject = ["fsdp(4)", "--profile", "torch-2.13"]
    alone, beside = out(*subject, *more), out("fsdp(4)", *BYTES)
    assert out(*subject, *more, "--shapes", SHAPES) == together(alone, beside)
    found = valid(data(*subject, *more, "--shapes", SHAPES), "derive.schema.json")
    assert found == data(*subject, *more) | {"bytes": data("fsdp(4)", *BYTES)}


def test_exact_bytes_alone_are_what_they_were(data: Any) -> None:
    assert data("fsdp(4)", *BYTES)["schema"] == "placeproof.exact/1"


@pytest.mark.parametrize("more", [[], NUMBERS, [*NUMBERS, *CLUSTER]])
def test_a_model_its_time_and_exact_bytes(more: list[str], out: Any, data: Any) -> None:
    subject = "fsdp(4)"
    alone, beside = out(subject, *MODEL, *more, "--full"), out(subject, "--shapes", SHAPES)
    assert out(subject, *MODEL, *more, "--shapes", SHAPES, "--full") == together(alone, beside)
    found = valid(data(subject, *MODEL, *more, "--shapes", SHAPES), "derive-model.schema.json")
    assert found == data(subject, *MODEL, *more) | {"bytes": data(subject, "--shapes", SHAPES)}


@pytest.mark.parametrize(
    "more",
    [
        ["--shards", "dp=1:1"],
        ["--set", "P=70e9"],
        ["--precision", "mixed-adam", "--groups"],
        ["--shapes", SHAPES],
        ["--shapes", SHAPES, "--rank", "1"],
    ],
    ids=" ".join,
)
def test_a_step_program_is_the_same_whatever_is_asked_besides(more: list[str], out: Any) -> None:
    assert out("zero3", "--program", *more) == out("zero3", "--program")


@pytest.mark.parametrize(
    "more", [["--fp8"], ["--width", "rms_norm.n=1"], CLUSTER, ["--cluster", "dgx-h100", "--overlap", "all"]], ids=" ".join
)
def test_so_is_the_program_of_a_model(more: list[str], out: Any) -> None:
    assert out(STRATEGY, *MODEL, "--program", *more) == out(STRATEGY, *MODEL, "--program")


def test_what_a_program_does_not_depend_on_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero3", "--program", "--set", "P=1", "--precision", "bf16-adam"]) == 0
    assert capsys.readouterr().err == "note: `--program` prints the program alone, which does not depend on `--set`, `--precision`\n"
    assert run(["derive", "zero3", "--program"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", ["--latex", "--python"])
def test_so_is_what_formulas_do_not_depend_on(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero3", form]) == 0
    alone = capsys.readouterr()
    assert alone.err == ""
    assert run(["derive", "zero3", form, "--set", "P=1", "--set", "N=8", "--precision", "bf16-adam"]) == 0
    told = capsys.readouterr()
    assert told.out == alone.out
    assert told.err == f"note: `{form}` prints closed forms alone, which do not depend on `--set`, `--precision`\n"
    assert run(["derive", "zero3 * tp", form, "--groups"]) == 0
    told = capsys.readouterr()
    assert "norm" in told.out
    assert told.err == ""


def test_what_no_formula_of_a_comparison_speaks_of_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for setting, told in (("k=3", True), ("P=1e9", False)):
        assert run(["compare", "zero1", "zero3", "--set", setting]) == 0
        assert ("set, but in no formula: k\n" in capsys.readouterr().out) == told


SMALL = ["--shapes", "transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)"]


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["derive", "fsdp(4)", *SMALL, "--set", "N=8"], "[PP205]: `N` is 4 in the strategy, and 8 here"),
        (["derive", "fsdp(4)", *SMALL, "--set", "P=1e9"], "[PP201]: exact bytes do not depend on `P`"),
        (
            ["compare", "ideal", "torch-2.13", "--of", "fsdp(4)", *SMALL, "--set", "N=8"],
            "[PP205]: `N` is 4 in the strategy, and 8 here",
        ),
        (["prove", "zero3", "--against", "ddp", "--for-all", "N >= 2"], "[PP207]: `--for-all` does not go with `--against`"),
        (["prove", "zero3", "--against", "ddp", "--smtlib", "x"], "[PP207]: `--smtlib` does not go with `--against`"),
        (
            ["prove", "zero3", "--against", "ddp", "--second-opinion", "cutoff"],
            "[PP207]: `--second-opinion` does not go with `--against`",
        ),
        (["prove", "--catalogue", "--without", "separable-loss"], "[PP207]: `--without` does not go with `--catalogue`"),
        (["prove", "mlp", "--without", "separable-loss"], "[PP207]: `--without` does not go with a block"),
        (["prove", "mlp", "--for-all", "N >= 2"], "[PP207]: `--for-all` does not go with a block"),
        (["prove", "zero3", "--second-opinion", "none"], "[PP207]: there is no second opinion `none`"),
        (["replay", "x.json", "--backend", "simulator", "--timeout", "3"], "[PP601]: `--timeout` does not go with the simulator"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_no_option_is_passed_over_in_silence(arguments: list[str], refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"error{refused}")


def test_assumptions_and_budgets_go_with_a_second_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Without its assumption neither step is proved."""
    assert run(["prove", "zero3", "--against", "zero3"]) == 0
    assert capsys.readouterr().out.startswith("zero3 refines zero3\n")
    assert run(["prove", "zero3", "--against", "zero3", "--without", "separable-loss", "--budget", "4000"]) == 1
    assert "differs, and the recorded step is refuted" in capsys.readouterr().out


def test_what_is_wrong_is_said_beside_a_program_too(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--set", "q=1", "--overlap", "no", "--cluster", "none", "--width", "x"]
    assert run(["derive", STRATEGY, *MODEL, "--program", *wrong]) == 2
    said = capsys.readouterr().err
    assert said.endswith("4 problems; nothing was computed\n"), said


def test_json_has_the_program_of_a_model_where_it_is_asked_for(out: Any, data: Any) -> None:
    found = valid(data(STRATEGY, *MODEL, "--program"), "derive-model.schema.json")
    assert found == data(STRATEGY, *MODEL) | {"program": out(STRATEGY, *MODEL, "--program")}
    assert data("zero3", "--program") == data("zero3")
    assert data("zero3")["program"] == out("zero3", "--program")


def test_a_picture_is_written_beside_a_program(out: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    out(STRATEGY, *MODEL, *NUMBERS, "--program", "--plot", str(paths[0]))
    out(STRATEGY, *MODEL, *NUMBERS, "--plot", str(paths[1]))
    assert paths[0].read_text() == paths[1].read_text()


@pytest.mark.parametrize("more", [[], NUMBERS, [*NUMBERS, *CLUSTER], ["--fp8"], ["--width", "rms_norm.n=1"]], ids=" ".join)
def test_a_linked_program_takes_what_its_model_takes(more: list[str], linked: str, data: Any) -> None:
    """Time and widths are no part of the program, and are the same for its file."""
    assert data(linked, *more) == data(STRATEGY, *MODEL, *more)


def test_a_linked_program_says_what_is_wrong(linked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", linked, "--width", "nothing.of=1"]) == 2
    assert "nothing.of" in capsys.readouterr().err
    assert run(["derive", linked, "--shapes", SHAPES, "--profile", "torch-2.13"]) == 2
    assert "`--profile` and `--shapes` do not go with a model's program" in capsys.readouterr().err


def test_formulas_of_a_model_as_python(out: Any, data: Any) -> None:
    """Each function gives the number that JSON has."""
    found = data(STRATEGY, *MODEL, *NUMBERS)
    names: dict[str, Any] = {}
    exec(compile(ast.parse(out(STRATEGY, *MODEL, "--python")), "forms", "exec"), names)
    values = {**found["sizes"], "b": 1, "m": 8, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}
    compared = 0
    for stage in found["stages"]:
        prefix = stage["name"].replace(" ", "_")
        amounts = {**stage["memory"], **{f"traffic_{k.replace('*', '_')}": v for k, v in stage["traffic"].items()}}
        amounts |= {f"flops_{k}": v for k, v in stage["flops"].items()}
        for key, amount in amounts.items():
            function = names[f"{prefix}_{key}"]
            arguments = {n: values[n] for n in function.__kwdefaults__ or function.__annotations__ if n != "return"}
            assert function(**arguments) == pytest.approx(amount["value"], rel=1e-9, abs=1e-9), key
            compared += 1
    assert compared > 30


def test_formulas_of_a_model_as_latex(out: Any) -> None:
    told = out(STRATEGY, *MODEL, "--latex")
    assert told.count("\\begin{align*}") == told.count("\\end{align*}") == 1
    assert "\\text{stage 0.peak} &= " in told
    assert "\\text{stage 1.flops.forward} &= " in told


@pytest.mark.parametrize(
    "subject", [["zero3"], [STRATEGY, *MODEL], ["fsdp(4)", *BYTES], [STRATEGY, *MODEL, *NUMBERS, *CLUSTER]], ids=" ".join
)
def test_markdown_has_every_cell_of_the_text(subject: list[str], out: Any) -> None:
    """Tables are tables: each row has as many cells as its head, and every formula of the text is there."""
    lines = out(*subject, "--markdown").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows
    width = 0
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            cells = line.replace("\\|", "").count("|")
            width = cells if not before.startswith("|") else width
            assert cells == width, line
    flat = re.sub(r"\\(.)", r"\1", "\n".join(lines)).replace("`", "")
    for line in out(*subject, "--full").replace("`", "").splitlines():
        for cell in filter(None, (part.strip(" -.") for part in line.split("  "))):
            assert cell.removeprefix("because ").removeprefix("= ").lstrip("0123456789. ") in flat, cell
