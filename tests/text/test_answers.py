"""The Python interface: what it answers is what the command line prints, and an answer shows itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import placeproof
from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer
from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import Derivation, derive
from placeproof.semantics.judge.verdict import Judged

SHAPES = "transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)"
STEP = Path(__file__).parents[1] / "programs" / "correct" / "a_mean_of_flags.step"

#: An answer, and the command that says the same.
ANSWERS = {
    "derive": (lambda: placeproof.derive("zero3(8) * tp"), ["derive", "zero3(8) * tp"]),
    "numbers": (
        lambda: placeproof.derive("zero3", P="70B", N=64, precision="fp32-adam"),
        ["derive", "zero3", "--set", "P=70B", "--set", "N=64", "--precision", "fp32-adam"],
    ),
    "shards": (
        lambda: placeproof.derive("zero3", shards=["dp=2:1:1"], P=7e9),
        ["derive", "zero3", "--shards", "dp=2:1:1", "--set", "P=7e9"],
    ),
    "groups": (lambda: placeproof.derive(placeproof.zero1(8), groups=True), ["derive", "zero1(8)", "--groups"]),
    "step": (lambda: placeproof.derive(str(STEP)), ["derive", str(STEP)]),
    "model": (
        lambda: placeproof.model("fsdp(8) * pp(2)", "llama3-8b", b=2, s=4096, recompute="full", stages=[10, 22]),
        [
            "derive",
            "fsdp(8) * pp(2)",
            "--model",
            "llama3-8b",
            "--set",
            "b=2",
            "--set",
            "s=4096",
            "--recompute",
            "full",
            "--stages",
            "10,22",
        ],
    ),
    "widths": (
        lambda: placeproof.derive("tp(8) * sp").model("llama3-8b", widths={"rms_norm.n": 1}, fp8=True, vocab_padding=0),
        ["derive", "tp(8) * sp", "--model", "llama3-8b", "--width", "rms_norm.n=1", "--fp8", "--vocab-padding", "none"],
    ),
    "bytes": (
        lambda: placeproof.derive("fsdp").bytes(SHAPES, profile="torch-2.13", degrees={"N": 4}, rank=1, options={"dtype": "bfloat16"}),
        [
            *("derive", "fsdp", "--shapes", SHAPES, "--profile", "torch-2.13", "--set", "N=4", "--rank", "1"),
            *("--option", "dtype=bfloat16"),
        ],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_says_what_the_command_line_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, arguments = ANSWERS[name]
    answer: Answer = make()
    assert run(arguments) == 0, capsys.readouterr().err
    assert f"{answer}\n" == capsys.readouterr().out.partition("\nmore: ")[0]
    assert run([*arguments, "--json"]) == 0
    assert answer.data == json.loads(capsys.readouterr().out)


def test_the_time_of_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    model = placeproof.model("fsdp(64)", "llama3-8b", b=1)
    step = model.time("dgx-h100", efficiency=0.4, overlap="all")
    command = ["derive", "fsdp(64)", "--model", "llama3-8b", "--set", "b=1", "--cluster", "dgx-h100", "--efficiency", "0.4"]
    assert run([*command, "--overlap", "all"]) == 0
    text = capsys.readouterr().out
    assert all(part in text for part in str(step).split("\n\n")[1:])
    assert str(step).splitlines()[0] == text.splitlines()[0]
    assert run([*command, "--overlap", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time"] == step.data
    assert step.seconds > 0


def test_a_time_needs_numbers() -> None:
    with pytest.raises(InputError) as error:
        placeproof.model("fsdp", "llama3-8b", b=1).time("dgx-h100")
    assert "`N` is not set" in error.value.diagnostics[0].message
    on_eight = placeproof.model("fsdp", "llama3-8b", world=8).time("dgx-h100")
    assert on_eight.seconds == placeproof.model("fsdp(8)", "llama3-8b", b=1).time("dgx-h100").seconds


def test_a_judgement(capsys: pytest.CaptureFixture[str]) -> None:
    answer = placeproof.derive("zero3 * tp").prove()
    assert isinstance(answer, Judged)
    assert (answer.word, answer.subject) == ("proved", "zero3 * tp")
    assert run(["prove", "zero3 * tp"]) == 0

    def without_time(text: str) -> str:
        return re.sub(r"in \d+ ms", "", text)

    assert without_time(f"{answer}\n") == without_time(capsys.readouterr().out)
    assert placeproof.judge(placeproof.program(STEP.read_text())).word == placeproof.derive(str(STEP)).prove().word == "proved"


def test_a_configuration_says_its_numbers_and_what_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As on the command line, which says besides how the file was read."""
    path = tmp_path / "ds.json"
    settings = {
        "zero_optimization": {"stage": 2},
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
    }
    path.write_text(json.dumps(settings))
    for make, more in ((placeproof.derive, []), (lambda text: placeproof.model(text, "llama3-8b"), ["--model", "llama3-8b"])):
        assert run(["derive", str(path), *more, "--json"]) == 0, capsys.readouterr().err
        said = json.loads(capsys.readouterr().out)
        assert said.pop("imported")["numbers"]
        assert make(str(path)).data == said
    path = tmp_path / "run.args"
    path.write_text("--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 --eod-mask-loss --bf16\n")
    answer = placeproof.judge(str(path))
    assert answer.word == "refuted"
    assert "equal-token-counts" not in answer.data["assumptions"]


class Balanced(HTMLParser):
    """That every element is closed, and what is said in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.open += [] if tag == "br" else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data + " "


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_shows_itself(name: str) -> None:
    """In a line at a prompt; in a notebook with everything that the text says."""
    answer: Any = ANSWERS[name][0]()
    line = repr(answer)
    assert len(line) < 200
    assert line.startswith("<")
    assert "\n" not in line
    said = " ".join(Balanced(answer._repr_html_()).said.split())
    for section in answer.document.sections():
        assert " ".join(section.title.split()) in said
    assert "<script" not in answer._repr_html_()
    latex = answer._repr_latex_()
    if name == "bytes":
        assert latex is None
    else:
        assert latex.startswith("\\begin{align*}")
        assert latex.count("&=") >= 10
    assert answer._repr_markdown_().startswith("# ")


@pytest.mark.parametrize("text", ["fsdp(8) * tp", "zero1(2) * tp(8) * sp * pp(4, microbatches=8)"])
def test_a_strategy_shows_its_expression(text: str) -> None:
    assert repr(placeproof.strategies.parse_strategy(text)) == f"<strategy {text}>"


def test_what_users_write_is_escaped() -> None:
    """A title is text, whatever it looks like."""
    placement = {"dp": {"parameters": "S*", "optimizer": "S", "gradients": "S"}}
    mine = placeproof.define("mine", title="<b>|*_", axes={"dp": {}}, placement=placement)
    answer = placeproof.derive(mine(8))
    assert "<b>" not in answer._repr_html_()
    assert "&lt;b&gt;|*_" in answer._repr_html_()
    assert answer._repr_markdown_().startswith("# mine(8): \\<b>\\|\\*\\_\n")


def test_an_answer_is_the_record_that_it_was() -> None:
    """Who computes with it finds everything where it stood."""
    answer, record = placeproof.derive("zero3 * tp"), derive(placeproof.strategy("zero3 * tp"))
    assert isinstance(answer, Derivation)
    assert (answer.forms, answer.symbols, answer.limits()) == (record.forms, record.symbols, record.limits())
    assert answer.strategy == record.strategy


def test_a_program_has_no_model() -> None:
    for ask in (lambda: placeproof.derive(str(STEP)).model("llama3-8b"), lambda: placeproof.model(str(STEP), "llama3-8b")):
        with pytest.raises(InputError) as error:
            ask()
        assert "is a step program, which says nothing of a model's blocks" in error.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("zero3 * tp(8)", subjects.Expression),
        ("mine.toml", subjects.Expression),
        ("swiglu", subjects.Expression),
        (str(STEP), subjects.StepProgram),
        ("LINKED", subjects.LinkedProgram),
        ("DEEPSPEED", subjects.Configuration),
        ("TORCHTITAN", subjects.Configuration),
    ],
)
def test_what_an_argument_is(text: str, kind: type, tmp_path: Path) -> None:
    files = {
        "LINKED": (tmp_path / "linked.step", "mesh(dp=2)\nstack(embedding, 2 * layers)\n"),
        "DEEPSPEED": (tmp_path / "ds.json", '{"zero_optimization": {"stage": 3}}'),
        "TORCHTITAN": (tmp_path / "train.toml", "[parallelism]\ndata_parallel_shard_degree = 8\n"),
    }
    if text in files:
        path, body = files[text]
        path.write_text(body)
        text = str(path)
    assert type(subjects.read(text)) is kind
    assert type(subjects.read(text, library=True)) is (subjects.LibraryProgram if text == "swiglu" else kind)


def test_a_subject_that_is_not_what_is_asked_for_is_refused_in_one_way(tmp_path: Path) -> None:
    path = tmp_path / "linked.step"
    path.write_text("mesh(dp=2)\nstack(embedding)\n")
    linked, step, block = subjects.read(str(path)), subjects.read(str(STEP)), subjects.LibraryProgram(name="swiglu")
    asked = [(subjects.strategy, one) for one in (linked, step, block)] + [(subjects.program, linked), (subjects.linked, step)]
    for make, subject in asked:
        with pytest.raises(InputError) as error:
            make(subject)
        (problem,) = error.value.diagnostics
        assert problem.code == "PP104"
        assert problem.help
        assert "\n" not in problem.message
