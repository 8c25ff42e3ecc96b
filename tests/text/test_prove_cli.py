"""``placeproof prove`` as a user meets it: what it prints, its exit codes, its files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from samples import NIGHTLY, parts, sample

import placeproof
from placeproof.blocks import BLOCKS
from placeproof.cli.main import run
from placeproof.programs import Program, read
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.prove import kernel
from placeproof.prove.solvers import scripts
from placeproof.prove.solvers.scripts import SOLVERS
from placeproof.semantics import catalogue, composition
from placeproof.semantics.catalogue import about, not_equivalent, read_not_equivalent
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

HERE = Path(__file__).parents[1]
SCHEMA = json.loads((HERE.parent / "docs" / "reference" / "prove.schema.json").read_text(encoding="utf-8"))
MUTANT = str(HERE / "bugs" / "B03.mutant.step")


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    return capsys.readouterr().out


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output(capsys, "prove", *arguments, "--json", code=code))
    jsonschema.validate(found, SCHEMA)
    return found


def test_a_proof_says_for_what_and_how(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "prove", "zero3 * tp * pp")
    assert text.startswith("zero3 * tp * pp: proved for N_dp >= 1, N_tp >= 1, N_pp >= 1, m >= 1\n")
    for name, one in ASSUMPTIONS.items():
        assert (name in text) is (one.where in (None, "elements"))
    assert "exchanged-context" in output(capsys, "prove", "ddp * cp")
    assert text.splitlines()[-1].startswith("proved: 18 of 18 obligations proved by z3 in ")


def test_a_refutation_gives_numbers_to_check_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, MUTANT, code=1)
    ce = found["counterexample"]
    assert found["verdict"] == "refuted"
    assert ce["degrees"] == {"dp": 1}
    assert ce["microbatches"] == 2
    assert (ce["condition"], ce["line"]) == ("gradient integrity", 7)
    assert ce["replayed"] is True
    own = [int(v) for name, v in ce["inputs"].items() if name.startswith("own gradient")]
    parameters = [int(v) for name, v in ce["inputs"].items() if name.startswith("parameter")]
    summed = sum(own) + 2 * sum(parameters)
    assert ce["actual"] == str(summed)  # summed over two micro-batches, and not divided
    assert 2 * float(eval(ce["expected"])) == summed


def test_json_of_a_proof(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "hsdp")
    assert found["for_all"] == ["N_rep >= 1", "N_shard >= 1"]
    assert {o["verdict"] for o in found["obligations"]} == {"proved"}
    assert {o["condition"] for o in found["obligations"]} == {"gradient integrity", "state consistency", "step invariant"}
    assert all(o["line"] >= 1 and o["solver"] == "z3" for o in found["obligations"])
    assert found["counterexample"] is None


@pytest.mark.parametrize("degree", ["8", "8192"])
def test_the_degrees_do_not_matter(degree: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, f"zero3({degree}) * tp(4)")
    assert found["verdict"] == "proved"
    assert found["for_all"] == []


@pytest.mark.parametrize("name", not_equivalent())
def test_what_is_not_equivalent_is_refuted(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, name, code=1)["counterexample"]["replayed"] is True
    assert len(about(name)) > 40


REASONS = {
    "local_sgd": "state consistency",
    "asynchronous_sgd": "state consistency",
    "pipedream": "state consistency",
    "quantized_gather": "state consistency",
    "compressed_gradients": "gradient integrity",
    "mean_of_means": "gradient integrity",
    "local_batch_norm": "gradient integrity",
    "clip_by_local_norm": "gradient integrity",
    "muon_on_shards": "step invariant",
    "muon_blockwise": "step invariant",
    "lamb_on_shards": "step invariant",
}


@pytest.mark.parametrize("name", REASONS)
def test_it_is_refuted_for_the_right_reason(name: str) -> None:
    judged = judge(read_not_equivalent(name))
    assert judged.about is not None
    assert judged.about.condition == REASONS[name]


_UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)\n"
_EACH = "    parameters, optimizer = update(parameters, optimizer, backward(parameters, i))\n"
_MEANS = "parameters = all_reduce(parameters, dp, op=mean)\noptimizer = all_reduce(optimizer, dp, op=mean)\n"
_SHARDS = f"gradients = reduce_scatter(backward(parameters), dp, op=mean)\n{_UPDATE}parameters = all_gather(parameters, dp)\n"
#: What is wrong in each program, as its file says it, and what mends it: all else is as it has to be.
MENDED = {
    "asynchronous_sgd": ("stale(parameters, 1)", "parameters"),
    "clip_by_local_norm": ("square_norm(gradients)", "all_reduce(square_norm(gradients), dp)"),
    "compressed_gradients": ("dequantize(quantize(backward(parameters), b_qg))", "backward(parameters)"),
    "lamb_on_shards": (
        _UPDATE,
        """\
norms = all_reduce(tensor_norms(parameters, optimizer, gradients), dp)
parameters, optimizer = update_with(parameters, optimizer, gradients, norms)
""",
    ),
    "local_batch_norm": ("statistics(parameters)", "all_reduce(statistics(parameters), dp, op=mean)"),
    "local_sgd": (
        f"{_EACH}{_MEANS}",
        f"""\
    G += backward(parameters, i)
gradients = all_reduce(scale(G, 1 / microbatches), dp, op=mean)
{_UPDATE}""",
    ),
    "mean_of_means": ('without("equal-token-counts")\n', ""),
    "muon_blockwise": (
        _UPDATE,
        """\
directions = part(orthogonalize(all_gather(momentum(optimizer.matrix, gradients.matrix), tp)), tp)
parameters.matrix, optimizer.matrix = update_with(parameters.matrix, optimizer.matrix, gradients.matrix, directions)
parameters.norm, optimizer.norm = update(parameters.norm, optimizer.norm, gradients.norm)
""",
    ),
    "muon_on_shards": (
        _SHARDS,
        """\
g = all_reduce(backward(parameters), dp, op=mean)
whole = all_gather(optimizer, dp)
parameters, whole = update(parameters, whole, g)
optimizer = part(whole, dp)
""",
    ),
    "pipedream": ("stale(parameters, 1)", "parameters"),
    "adafactor_on_shards": (
        _UPDATE,
        """\
sums = all_reduce(line_sums(gradients), dp)
norms = all_reduce(tensor_norms(parameters, optimizer, gradients, sums), dp)
parameters, optimizer = update_with(parameters, optimizer, gradients, sums, norms)
""",
    ),
    "shampoo_on_shards": (
        f"gradients = reduce_scatter(backward(w), dp, op=mean)\n{_UPDATE}",
        """\
g = all_reduce(backward(w), dp, op=mean)
whole = all_gather(optimizer, dp)
w, whole = update(w, whole, g)
parameters = part(w, dp)
optimizer = part(whole, dp)
""",
    ),
    "quantized_gather": ("dequantize(all_gather(quantize(parameters, b_qw), dp))", "all_gather(parameters, dp)"),
}


@pytest.mark.parametrize("name", not_equivalent())
def test_what_is_wrong_can_be_mended(name: str) -> None:
    text = not_equivalent()[name].read_text(encoding="utf-8")
    wrong, right = MENDED[name]
    assert text.count(wrong) == 1
    assert judge(read(text.replace(wrong, right))).word == "proved"


DROPPED = {
    "separable-loss": "ddp",
    "equal-token-counts": "zero1 * accumulate",
    "elementwise-optimizer": "zero1",
    "equal-initial-states": "ddp",
    "exact-quantizers": "zeropp",
}


@pytest.mark.parametrize("assumption", DROPPED)
def test_dropping_a_needed_assumption_refutes(assumption: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, DROPPED[assumption])["verdict"] == "proved"
    found = data(capsys, DROPPED[assumption], "--without", assumption, code=1)
    assert assumption not in found["assumptions"]


@pytest.mark.parametrize("assumption", DROPPED)
def test_composition_grants_no_assumption_that_is_dropped(assumption: str, capsys: pytest.CaptureFixture[str]) -> None:
    opinion = ("--second-opinion", "composition")
    assert data(capsys, DROPPED[assumption], *opinion)["composition"]["proved"]
    assert not data(capsys, DROPPED[assumption], "--without", assumption, *opinion, code=1)["composition"]["proved"]


def test_a_rule_that_proves_what_is_refuted_is_a_bug_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = composition.composed(lower(parse_strategy("ddp")))
    monkeypatch.setattr(composition, "composed", lambda _: right)
    assert run(["prove", MUTANT, "--second-opinion", "composition"]) == 70
    assert "a run refutes what the rule of composition proves" in capsys.readouterr().err


def test_every_assumption_that_can_be_dropped_is_tested() -> None:
    assert set(DROPPED) == {a.name for a in ASSUMPTIONS.values() if a.without is not None}


def test_replicated_states_need_no_elementwise_optimizer(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "ddp", "--without", "elementwise-optimizer")["verdict"] == "proved"


def test_the_replay_script_needs_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "replay.py"
    ce = data(capsys, str(HERE / "bugs" / "B30.mutant.step"), "--replay-script", str(script), code=1)["counterexample"]
    ran = subprocess.run([sys.executable, "-I", "-S", str(script)], capture_output=True, text=True, check=True)
    assert ran.stdout == f"expected {ce['expected']}, actual {ce['actual']}\n"
    text = script.read_text()
    assert "placeproof" not in "".join(line for line in text.splitlines() if "import" in line)
    written = (HERE / "bugs" / "B30.mutant.step").read_text().splitlines()
    named = re.findall(r"^# .*line (\d+): (.*)$", text, re.MULTILINE)
    assert named
    assert all(shown == written[int(line) - 1].strip() for line, shown in named)
    script.write_text(re.sub(r"^(v0 = Fraction\(.*?\))", r"\1 + 1", text, count=1, flags=re.MULTILINE))
    assert script.read_text() != text
    other = subprocess.run([sys.executable, "-I", "-S", str(script)], capture_output=True, text=True, check=False)
    assert "AssertionError" in other.stderr, "it says what it computes, whatever it is given"


def test_of_what_no_device_holds_the_line_that_reads_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.step"
    program.write_text(
        'mesh(dp)\nplace(parameters, dp="S*")\nplace(optimizer, dp="S")\nG = reduce_scatter(backward(parameters), dp, op=mean)\n'
        "parameters, optimizer = update(parameters, optimizer, G)\n"
    )
    run(["prove", str(program)])
    said = "actual nothing: line 4 (`G = reduce_scatter(backward(parameters), dp, op=mean)`) reads what is not held on dp = 0"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_query_can_be_asked_again(solver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if solver == "cvc5":
        pytest.importorskip("cvc5")
    data(capsys, "zero2 * tp", "--smtlib", str(tmp_path / "queries"))
    files = sorted((tmp_path / "queries").glob("*.smt2"))
    assert len(files) > 20
    for file in files:
        text = file.read_text()
        status = "sat" if "(set-info :status sat)" in text else "unsat"
        assert SOLVERS[solver](text, 5000) == status, file.name


def test_a_second_opinion_on_the_whole_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    """Obligations are confirmed by the second solver, or listed as silent; none is denied. Of every composition in a nightly run, else of
    every third of those that have each strategy and option between them: theorems ask it of each strategy, too."""
    pytest.importorskip("cvc5")
    from compositions import compositions

    asked: set[str] = set()
    for subject in [*sample(compositions(), parts)[:: 1 if NIGHTLY else 3], *BLOCKS]:
        found = data(capsys, subject, "--second-opinion", "cvc5")
        for opinion in found["second_opinion"]:
            assert opinion["answer"] in ("unsat", "silent"), (subject, opinion)
            asked.add(opinion["answer"])
    assert "unsat" in asked


def test_a_time_out_is_no_proof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernel, "ask", lambda query, *_: "sat" if query.expected == "sat" else "unknown")
    monkeypatch.setattr("placeproof.semantics.judge.search.SECONDS", 0.2)
    found = data(capsys, "ddp", "--budget", "7", code=3)
    assert found["verdict"] == "unknown"
    assert "z3 gave no answer in 7 ms" in found["why"]
    assert "small runs" in found["why"]


@pytest.mark.parametrize("solver", scripts.SOLVERS)
@pytest.mark.parametrize(("busy", "asked"), [("the machine is", 3), ("the solver is", 1), ("nobody is", 1)])
def test_a_budget_that_the_machine_took_is_given_again(busy: str, asked: int, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out while the process was kept waiting is asked again; one of a solver that computed, or that gave up at once, is none."""
    calls: list[int] = []

    def solve(script: str, milliseconds: int, seed: int) -> tuple[str, None, float]:
        calls.append(seed)
        began = time.thread_time()
        until = began + milliseconds / 1e3
        if busy == "the machine is":
            time.sleep(milliseconds / 1e3)
        while busy == "the solver is" and time.thread_time() < until:
            pass
        return "unknown", None, time.thread_time() - began

    monkeypatch.setattr(scripts, f"_{solver}", solve)
    assert scripts.SOLVERS[solver]("(check-sat)", 50, 0) == "unknown"
    assert len(calls) == asked


def test_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "two.step"
    program.write_text(
        "mesh(dp)\ng = scale(all_reduce(backward(parameters), dp), 1 / 2)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    )
    assert data(capsys, str(program), code=1)["counterexample"]["degrees"] == {"dp": 1}
    assert data(capsys, str(program), "--for-all", "N >= 3", code=1)["counterexample"]["degrees"] == {"dp": 3}
    assert data(capsys, str(program), "--for-all", "N == 2")["for_all"] == ["N >= 1", "N == 2"]


def test_the_whole_catalogue(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it in a nightly run, else some with each strategy and option; `test_prove.py` proves compositions."""
    asked = {name: sample(list(getattr(catalogue, name)()), lambda case: parts(case[0])) for name in ("compositions", "variants")}
    others = (" * tp * ", "schedule=v-", "schedule=zb-1p", "schedule=zb-2p")  # some need a model, and some orders are no step program
    assert all(isinstance(program, Program) for text, program in asked["variants"] if not any(part in text for part in others))
    for name, some in asked.items():
        assert len(some) > 10
        monkeypatch.setattr(f"placeproof.report.proof.catalogue.{name}", lambda some=some: some)
    text = output(capsys, "prove", "--catalogue")
    first = text.splitlines()[0]
    assert ": " in first
    assert " 0 refuted, 0 unknown; 13 that are not equivalent: 13 refuted." in first


BAD = {
    "reads what nothing wrote": "mesh(dp)\ng = all_reduce(grad, dp)\nparameters, optimizer = update(parameters, optimizer, g)\n",
    "an axis that is not there": (
        "mesh(dp)\ng = all_reduce(backward(parameters), tp)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    ),
    "a root that is not there": (
        "mesh(dp=2)\nG = broadcast(backward(parameters), dp, root=7)\nparameters, optimizer = update(parameters, optimizer, G)\n"
    ),
    "a function": "mesh(dp)\ndef f():\n    return f()\n",
    "cut off": "mesh(dp)\ng = all_reduce(backward(parameters, dp",
    "empty": "",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_programs_get_one_clear_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.step"
    file.write_text(BAD[name])
    assert run(["prove", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[PP")
    assert captured.err.count("error[") == 1
    assert "Traceback" not in captured.err


def test_long_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.step"
    head = ["mesh(dp)", "g = all_reduce(backward(parameters), dp, op=mean)"]
    last = "parameters, optimizer = update(parameters, optimizer, g)\n"
    file.write_text("\n".join([*head, *["g = scale(g, 2)", "g = scale(g, 1 / 2)"] * 2400, last]))
    assert data(capsys, str(file))["verdict"] == "proved"
    file.write_text("\n".join([*head, *["g = scale(g, 2)", "g = scale(g, 1 / 2)"] * 5000, last]))
    assert run(["prove", str(file)]) == 2
    assert capsys.readouterr().err.count("error[") == 1


def test_devices_that_are_named_exist_in_counterexamples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "root.step"
    file.write_text("mesh(dp)\nG = broadcast(backward(parameters), dp, root=4)\nparameters, optimizer = update(parameters, optimizer, G)\n")
    found = data(capsys, str(file), code=1)
    assert found["for_all"] == ["N >= 5"]
    assert found["counterexample"]["degrees"] == {"dp": 5}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("body", "step"),
    [
        ("gradients += all_reduce(backward(parameters), dp, op=mean)", 2),  # nobody clears them
        ("zero(gradients)\ngradients += all_reduce(backward(parameters), dp, op=mean)", None),
        ("gradients = all_reduce(backward(parameters), dp)", 1),
        ("gradients = all_reduce(stale(backward(parameters), 1), dp, op=mean)", 2),  # those of the step before
    ],
)
def test_the_step_at_which_it_fails_is_named_everywhere(
    body: str, step: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In text, in JSON and in Python; and the run that goes with it is of so many steps."""
    path = tmp_path / "mine.step"
    path.write_text(f"mesh(dp)\n{body}\nparameters, optimizer = update(parameters, optimizer, gradients)\n", encoding="utf-8")
    assert run(["prove", str(path)]) == (0 if step is None else 1)
    named = re.findall(r" on device .*, step (\d+)", capsys.readouterr().out)
    assert named[:1] == ([] if step is None else [str(step)])
    assert run(["prove", str(path), "--json"]) == (0 if step is None else 1)
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    if step is None:
        assert found["counterexample"] is None
    else:
        assert found["counterexample"]["step"] == step
        assert found["counterexample"]["run"]["sizes"]["steps"] >= step
    assert placeproof.judge(str(path)).failing_step == step
