"""The command line: what each command prints, and what the JSON contract says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from threading import Thread

import pytest
import sympy
from samples import NIGHTLY

import placeproof
from placeproof.cli.listing import KINDS
from placeproof.cli.main import run
from placeproof.core.strategy import NEUTRAL
from placeproof.core.symbols import SYMBOLS
from placeproof.models import load
from placeproof.programs import read
from placeproof.strategies import names, template

MEMORY = {
    "parameters",
    "optimizer",
    "gradients",
    "activations",
    "model_states",
    "transient",
    "peak",
    "host",
    "host_asked",
    "host_transient",
}
EVENT = {"line", "collective", "state", "axes", "phase", "bytes", "count"}


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:  # type: ignore[type-arg]
    loaded = json.loads(out(capsys, *arguments))
    assert isinstance(loaded, dict)
    return loaded


def expression(text: str, symbols: dict[str, str]) -> sympy.Expr:
    """As the contract says: read by sympify with the listed names as plain symbols."""
    read_back = sympy.sympify(text, locals={name: sympy.Symbol(name) for name in symbols})
    assert {str(s) for s in read_back.free_symbols} <= set(symbols)
    return read_back


SUBJECTS = [n if n not in ("sp", "zero_r") else f"tp * {n}" for n in names()] + ["zero1(64) * tp(8) * pp(16)", "hsdp * tp * sp * pp"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_json_contract(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "derive", subject, "--json")
    assert found["schema"] == "placeproof.derive/1"
    symbols = found["symbols"]
    assert set(found["memory"]) == MEMORY
    forms = {key: expression(text, symbols) for key, text in found["memory"].items()}
    assert sympy.simplify(forms["peak"] - forms["model_states"] - forms["activations"] - forms["transient"]) == 0
    assert sympy.simplify(forms["model_states"] - forms["parameters"] - forms["optimizer"] - forms["gradients"]) == 0
    traffic = found["traffic"]
    events = traffic["events"]
    assert all(set(event) == EVENT for event in events)
    total = sum(expression(e["bytes"], symbols) * expression(e["count"], symbols) for e in events)
    assert sympy.simplify(total - expression(traffic["sent_per_device"], symbols)) == 0
    by_axis = sum(expression(text, symbols) for text in traffic["by_axis"].values())
    assert sympy.simplify(by_axis - total) == 0
    for axis in found["axes"]:
        assert set(axis) == {"name", "degree", "splits"}
        expression(
            axis["degree"], symbols | {str(s): "" for s in sympy.sympify(axis["degree"], locals={"N": sympy.Symbol("N")}).free_symbols}
        )
    assert found["values"] == {}


def test_symbols_are_named_as_agreed(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(data(capsys, "derive", "zero3", "--json")["symbols"]) == {"P", "U", "N", "b_theta", "b_g", "b_omega", "b_a", "A"}
    composed = set(data(capsys, "derive", "zero3 * tp * pp", "--json")["symbols"])
    assert {"N_dp", "N_tp", "N_pp", "m", "L", "h", "s", "b"} <= composed
    assert data(capsys, "derive", "hsdp", "--json")["axes"] == [
        {"name": "rep", "degree": "N_rep", "splits": "batch"},
        {"name": "shard", "degree": "N_shard", "splits": "batch"},
    ]


def test_values_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "derive", "zero3(8)", "--set", "P=70e9", "--json")
    assert found["axes"] == [{"name": "dp", "degree": "8", "splits": "batch"}]
    values = found["values"]
    assert values["memory"]["model_states"] == 140 * 10**9
    assert values["undivided"] == 1120 * 10**9
    assert "peak" not in values["memory"]
    assert values["traffic"]["sent_per_device"] == 367_500_000_000
    everything = data(capsys, "derive", "zero3(8)", "--set", "P=70e9", "--set", "U=1e9", "--set", "A=0.5e9", "--json")["values"]
    assert set(everything["memory"]) == MEMORY
    assert everything["memory"]["peak"] == 140 * 10**9 + 2 * 10**9 + 10**9


def test_seventy_billion_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "derive", "zero3(8)", "--set", "P=70e9")
    numbers = shown[shown.index("\nnumbers (") :].splitlines()
    assert "  model states  140 GB (130.385 GiB)" in numbers
    assert "  undivided     1120 GB (1043.08 GiB)" in numbers
    assert "  not set: A (activations, peak)" in numbers
    assert shown.splitlines()[1:4] == [
        "model states: 140 GB (130.385 GiB)",
        "sent in a step: 367.5 GB (342.261 GiB)",
        "peak: A*b_a + P*(b_g + b_omega + b_theta)/8 + U*b_theta",
    ], "the answer comes first, in numbers as far as they are known"


def test_three_axes_print_gigabytes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "derive", "zero1(64) * tp(8) * pp(16)", "--set", "P=175e9")
    exact = Fraction(175 * 10**9) * (4 + Fraction(12, 64)) / 128
    assert f"model states  {float(exact / 10**9):.6g} GB" in shown


def test_derivation_names_rules_lines_and_repetitions(capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "derive", "zero2 * accumulate")
    assert "ring reduce-scatter: (n-1)/n s" in shown
    assert "because once for each micro-batch" in shown
    assert "because S on dp: s/n" in shown


def test_program_is_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "derive", "zero3 * tp", "--program")
    assert read(text).name == "zero3 * tp"


def test_a_program_file_is_costed_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zero_redundancy_optimizer.step"
    path.write_text(
        'mesh(dp)\nplace(parameters, dp="R")\nplace(optimizer, dp="S")\nplace(gradients, dp="R")\n'
        "gradients = backward(parameters)\ngradients = scale(all_reduce(gradients, dp), 1 / dp)\n"
        "parameters, optimizer = update(parameters, optimizer, gradients)\nparameters = broadcast(parameters, dp, root=owner)\n"
    )
    found = data(capsys, "derive", str(path), "--json")
    sent = expression(found["traffic"]["sent_per_device"], found["symbols"])
    n, p, b_g, b_theta = sympy.symbols("N P b_g b_theta")
    assert sympy.simplify(sent - (2 * p * b_g * (n - 1) / n + p * b_theta)) == 0
    assert found["strategy"] == "zero_redundancy_optimizer"


def test_a_strategy_file_is_accepted_wherever_a_name_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\n[axes.dp]\n[placement.dp]\nparameters = "S*"\noptimizer = "S"\ngradients = "S"\n'
        '[options.ahead]\nsets = "prefetch"\nkinds = ["true", "false"]\ndefault = false\n'
    )
    mine = data(capsys, "derive", f"{path}(8, ahead=true) * tp(2)", "--json")
    theirs = data(capsys, "derive", "zero3(8, prefetch=true) * tp(2)", "--json")
    assert mine["memory"] == theirs["memory"]
    assert mine["strategy"] == "mine(8, ahead=True) * tp(2)"
    assert "equal for all values" in out(capsys, "compare", str(path), "zero3")


def test_a_python_object_is_accepted() -> None:
    composed = placeproof.zero1(64) * placeproof.tp(8) * placeproof.pp(16)
    assert placeproof.derive(composed).forms == placeproof.derive("pp(16) * zero1(64) * tp(8)").forms
    assert placeproof.derive(placeproof.zero3 * placeproof.tp).name == "zero3 * tp"
    with pytest.raises(AttributeError):
        _ = placeproof.zero33


def test_python_output_computes_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, object] = {}
    exec(out(capsys, "derive", "zero3 * pp", "--python"), module)
    peak = module["peak"]
    assert callable(peak)
    values = {"P": 7e9, "U": 1e8, "N_dp": 8, "N_pp": 4, "m": 2, "A": 1e9, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}
    d = placeproof.derive("zero3 * pp")
    exact = d.value("memory.peak", {k: Fraction(v) for k, v in values.items()})
    assert exact is not None
    assert peak(**values) == pytest.approx(float(exact))
    assert d.compile("memory.peak", tuple(values))(*values.values()) == pytest.approx(float(exact))


def test_latex_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    latex = out(capsys, "derive", "zero3", "--latex")
    assert latex.count("\\begin{align*}") == latex.count("\\end{align*}") == 1
    assert "b_\\theta" in latex
    markdown = out(capsys, "derive", "hsdp", "--markdown")
    assert "| model states | `P*(b_g + b_omega + b_theta)/N_shard` |" in markdown


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "compare", "ddp", "zero3", "--json")
    figures = {f["key"]: f for f in found["pairs"][0]["figures"]}
    assert figures["memory.model_states"]["ratio"] == "1/N"
    assert figures["traffic.sent_per_device"]["ratio"] == "(b_g + 2*b_theta)/(2*b_g)"
    assert "3/2" in out(capsys, "compare", "ddp", "zero3")
    crossing = data(capsys, "compare", "fsdp", "hsdp(shard=8)", "--json")["pairs"][0]["figures"]
    assert {f["key"]: f["crossover"]["at"] for f in crossing}["traffic.sent_per_device"] == ["8"]
    symbolic = data(capsys, "compare", "hsdp", "fsdp", "--json")["pairs"][0]["figures"]
    assert {f["key"]: f["crossover"]["at"] for f in symbolic}["memory.model_states"] == ["N_shard"]


@pytest.mark.parametrize(
    "kind",
    [
        "strategies",
        "collectives",
        "modes",
        "states",
        "symbols",
        "precisions",
        "operations",
        "errors",
        "blocks",
        "model-blocks",
        "models",
        "families",
        "schedules",
        "clusters",
    ],
)
def test_whatever_is_listed_is_explained(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = out(capsys, "list", kind).splitlines()
    assert listed
    for line in listed[:: 1 if NIGHTLY or kind != "schedules" else 3]:  # beside a schedule's forms theorems are tried
        name = line.split()[0].split("(")[0]
        name = "N_dp" if name == "N_<axis>" else name
        assert name in out(capsys, "explain", name)


def test_a_file_of_a_cluster_is_explained_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one that is wrong is told what is wrong with a cluster."""
    text = (Path(placeproof.__file__).parent / "clusters" / "presets" / "dgx-h100.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    (tmp_path / "wrong.toml").write_text(text.replace("[device]", "[device]\nfoo = 1"), encoding="utf-8")
    assert out(capsys, "explain", str(tmp_path / "mine.toml")) == out(capsys, "explain", "dgx-h100")
    assert run(["explain", str(tmp_path / "wrong.toml")]) == 2
    assert "`foo`" in capsys.readouterr().err


def test_a_strategy_that_is_piped_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = Path(placeproof.__file__).parent / "strategies" / "catalogue" / "ddp.toml"
    os.mkfifo(pipe := tmp_path / "mine.toml")
    writer = Thread(target=pipe.write_bytes, args=(own.read_bytes(),))
    writer.start()
    told = out(capsys, "explain", str(pipe))
    writer.join()
    assert told == out(capsys, "explain", str(own)).replace(str(own), str(pipe))


def test_checkpoints_of_the_hub_are_explained_in_any_letters(capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "explain", "qwen/qwen3-30b-a3b") == out(capsys, "explain", "Qwen/Qwen3-30B-A3B")
    assert run(["explain", "qwen/qwen3-30b-a3"]) != 0
    assert "did you mean `Qwen/Qwen3-30B-A3B`" in capsys.readouterr().err


@pytest.mark.parametrize("name", names())
def test_an_explained_strategy_has_all_of_its_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, text = template(name), out(capsys, "explain", name)
    assert found is not None
    for said in (found.title, found.summary, found.source, found.signature(), *found.aliases, *found.approximates):
        assert said in text
    for entry in found.entries:
        assert f"{entry.state}" in text
        assert f" on {entry.axis}: {entry.mode}" in text
    for option in found.options:
        assert f"  {option.name}: {option.expects()}; default `{str(option.default).lower()}`\n    {option.doc}" in text


@pytest.mark.parametrize("name", names())
def test_an_option_that_is_left_out_leaves_its_field_to_other_strategies(name: str) -> None:
    """Where its default is what the field means unsaid; written down, the same value is said."""
    found = template(name)
    assert found is not None
    for option in found.options:
        neutral = option.default is None or option.default == NEUTRAL.get(option.sets)
        left = getattr(found.schedule, option.sets) if neutral else option.default
        assert getattr(found().schedule, option.sets) == left, option.name
        if option.default is not None:
            assert getattr(found(**{option.name: option.default}).schedule, option.sets) == option.default, option.name


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_the_same_as_data(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, lines = data(capsys, "list", kind, "--json"), out(capsys, "list", kind).splitlines()
    assert (found["schema"], found["kind"]) == ("placeproof.list/1", kind)
    assert len(found["entries"]) == len(lines) >= 1
    for entry, line in zip(found["entries"], lines, strict=True):
        assert list(entry) == list(found["entries"][0])
        first, *_, last = entry.values()
        assert line.startswith(first)
        assert line.endswith(last)


def test_numbers_and_lists_in_a_list_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    parameters = {entry["name"]: entry["parameters"] for entry in data(capsys, "list", "models", "--json")["entries"]}
    assert parameters["gpt3-175b"] == load("gpt3-175b").parameters().total
    assert f"{parameters['gpt3-175b']:,}" in out(capsys, "list", "models")
    for entry in data(capsys, "list", "precisions", "--json")["entries"]:
        assert entry["b_theta"] + entry["b_g"] + entry["b_omega"] == entry["total"]
    lines = out(capsys, "list", "profiles").splitlines()
    for entry, line in zip(data(capsys, "list", "profiles", "--json")["entries"], lines, strict=True):
        assert set(entry["of"]) <= set(names())
        assert f"  {' '.join(entry['of'])}  " in line
    dropped = {entry["name"]: entry["without"] for entry in data(capsys, "list", "assumptions", "--json")["entries"]}
    assert None in dropped.values()
    assert "batch normalisation" in dropped["separable-loss"]


def test_rules_of_one_system_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "list", "rules", "--system", "megatron", "--json")["entries"]
    every = data(capsys, "list", "rules", "--json")["entries"]
    assert 0 < len(found) < len(every)
    assert all(entry in every for entry in found)
    assert all(entry["name"].startswith("megatron-") for entry in found)


def test_symbols_have_everything_that_the_notation_table_needs() -> None:
    for row in SYMBOLS.values():
        assert row.latex
        assert row.meaning
        assert row.at_most is None or row.at_most in SYMBOLS


def imported(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "placeproof", *arguments], capture_output=True, text=True, check=True)
    return {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["derive", "--help"],
        ["list", "strategies"],
        ["explain", "zero3"],
        ["list", "models"],
    ],
)
def test_light_commands_import_neither_sympy_nor_a_solver(arguments: list[str]) -> None:
    assert not imported(*arguments) & {"sympy", "z3", "cvc5", "numpy"}


def test_theorems_beside_a_form_are_tried_without_a_solver() -> None:
    """They are evaluated at points; `check` alone proves them."""
    assert not imported("explain", "zb-h1") & {"z3", "cvc5"}


def test_derive_imports_no_solver() -> None:
    found = imported("derive", "zero3")
    assert "sympy" in found
    assert not found & {"z3", "cvc5", "numpy"}


@pytest.mark.parametrize(("name", "help"), [("deriv", "did you mean .derive.[?]"), ("qqq", "`placeproof -h` lists the commands")])
def test_an_unknown_command_is_answered_with_what_there_is(name: str, help: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name]) == 2
    told = capsys.readouterr().err
    assert f"No such command '{name}'" in told
    assert re.search(help, told, re.IGNORECASE)  # newer versions of click say it themselves


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("plan fsdp(64)", "`plan` takes options alone; `--why STRATEGY` asks it of one, and `placeproof fit STRATEGY` says what fits"),
        ("derive a b", 'write a strategy in quotes, as in `placeproof derive "fsdp * tp"`'),
        ("derive zero3 --mend x", "`--mend` is an option of `prove`"),
        ("derive zero3 --set", "`--set`: Give a symbol a value"),
        ("derive zero3 --set P=70B", "help: `--set P=70B --set N=8`, or the degree in the strategy: `zero3(8)`"),
        (
            "plan --model llama3-8b",
            "a plan needs `--cluster`, `--devices` and `--global-batch`\nhelp: for example `placeproof plan --model",
        ),
        ("fit fsdp", "what fits is asked with `--model` and `--cluster`\nhelp: for example `placeproof fit fsdp --model"),
        ("derive tp(8,foo=3)", "it takes degrees alone, as in `tp(8)`"),
        ("prove zero3 --for-all dp>=2", "the degree of `dp` is called `N`"),
        ("check nowhere", "there is no theorem or topic `nowhere`, and no file or folder of that name"),
        ("derive zero3 --model llama3-8b --cluster h100", "did you mean `dgx-h100` or `h800`?"),
    ],
)
def test_wrong_usage_is_helped(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments.split()) == 2
    assert said in capsys.readouterr().err


def test_letters_tell_a_symbol_from_a_mode(capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (
        ("m", "symbol m"),
        ("M", "mode M"),
        ("s", "symbol s"),
        ("S", "mode S"),
        ("microbatches", "micro-batch:"),
        ("peak", "peak:"),
    ):
        assert out(capsys, "explain", name).startswith(said)
    for name, other in (("m", "`placeproof explain M`: a mode"), ("M", "`placeproof explain m`: a symbol")):
        assert other in out(capsys, "explain", name)


#: What verdicts and answers say, as it is printed.
PRINTED = (
    "proved, refuted, unknown, fits, may not fit, surely fits, does not fit, nothing fits, equal, different, unexpected, undecided, "
    "rejected, holds"
)


@pytest.mark.parametrize("word", PRINTED.split(", "))
def test_words_of_answers_are_explained(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word in out(capsys, "explain", word)


@pytest.mark.parametrize(
    ("command", "needed"), [("plan", ("--model", "--cluster", "--devices", "--global-batch")), ("fit", ("--model", "--cluster"))]
)
def test_help_marks_what_a_command_needs(command: str, needed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, command, "--help")
    marked = [line for line in re.split(r"\n  (?=-)", shown) if "(required" in line]
    assert sorted(line.split()[0] for line in marked) == sorted(needed)
