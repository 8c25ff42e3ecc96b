"""What `prove` says of a model's program that is wrong: numbers, and how to compute them again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import pytest
from jsonschema import validate

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.measure.replay.file import parse
from placeproof.measure.replay.simulator import simulated
from placeproof.models import load
from placeproof.report import text as as_text
from placeproof.report.proof.model import document
from placeproof.semantics.judge.model import JudgedModel, judge_linked, repair_of
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.semantics.linked.contract import against_contracts, stands_for
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors import Difference, RefutingBlockRun
from placeproof.semantics.tensors.simulate import machine
from placeproof.strategies import parse_strategy

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/prove-model.schema.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def text(strategy: str) -> str:
    return render_linked(link(load("llama3-8b"), parse_strategy(strategy)))


def edited(strategy: str, *edits: tuple[str, str]) -> str:
    found = text(strategy)
    for old, new in edits:
        assert old in found, old
        found = found.replace(old, new)
    return found


def judged(strategy: str, *edits: tuple[str, str], own: bool = True) -> JudgedModel:
    return judge_linked(read_linked(edited(strategy, *edits)), load("llama3-8b") if own else None)


def shown(found: JudgedModel) -> str:
    return as_text.text(document(found))


# A block that is not the model's: what it returns, the two numbers.

OTHERWISE = {
    "another activation": (("silu", "gelu"), "swiglu", "`y`"),
    "another residual": (
        ("y = x + all_reduce(contract(a, w2, over=ffn), tp)", "y = n + all_reduce(contract(a, w2, over=ffn), tp)"),
        "swiglu",
        "`y`",
    ),
    "a sum that is left out": (("y = x + all_reduce(contract(a, w2, over=ffn), tp)", "y = x + contract(a, w2, over=ffn)"), "swiglu", "`y`"),
    "another epsilon": (("/ size) * gain", "/ size + 1) * gain"), "rms_norm", "`n`"),
    "a gradient twice as large": (
        (
            "returns(total(contract(a, dy, over=tokens), over=batch), at=dy, by=w2",
            "returns(2 * total(contract(a, dy, over=tokens), over=batch), at=dy, by=w2",
        ),
        "swiglu",
        "the gradient by `w2`",
    ),
    "a gradient of each device's own part": (
        ("dn = all_reduce(contract(dg, w1, over=ffn) + contract(du, w3, over=ffn), tp)", "dn = contract(dg, w1, over=ffn)"),
        "swiglu",
        "`dn`",
    ),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_block_that_is_not_the_models_is_refuted_with_numbers(what: str) -> None:
    edit, block, result = OTHERWISE[what]
    found = judged("zero1 * tp", edit)
    part = found.blocks[block]
    assert part.word == "refuted"
    assert isinstance(part.found, RefutingBlockRun)
    assert isinstance(part.found.what, Difference)
    difference = part.found.what
    assert difference.name == result
    assert difference.expected != difference.actual
    assert part.about is not None
    assert part.about.place is not None
    assert part.about.place.line == difference.line
    assert result in part.about.name
    said = shown(found)
    assert f"expected {difference.expected}, actual {difference.actual}" in said
    assert "one device runs the block of the model" in said


def test_a_counterexample_needs_no_more_devices_than_it_takes() -> None:
    for what, devices in (("another activation", 1), ("a sum that is left out", 2)):
        part = judged("zero1 * tp", OTHERWISE[what][0]).blocks["swiglu"]
        assert part.found is not None
        assert part.found.setup.degrees == {"tp": devices}


def test_what_is_expected_is_what_the_models_block_gives() -> None:
    part = judged("zero1 * tp", OTHERWISE["another activation"][0]).blocks["swiglu"]
    assert isinstance(part.found, RefutingBlockRun)
    assert isinstance(part.found.what, Difference)
    own = next(b for s in load("llama3-8b").segments for b in s.blocks if b.name == "swiglu")
    output = machine(resolve(own.program), part.found.setup, alone=True).run()[0]
    values = {tuple(sorted(at.items())): n for at, n in output.value.by_place((0,))}
    assert values[tuple(sorted(part.found.what.index.items()))] == part.found.what.expected


def test_dimensions_and_results_have_no_order() -> None:
    edits = (
        ("tensor(w2, ffn, hidden, tp=ffn)", "tensor(w2, hidden, ffn, tp=ffn)"),
        ("    returns(dy, at=dy, by=x, gradient_of=y)\n    returns(total(contract(a, dy", "    returns(total(contract(a, dy"),
        ("    dn = all_reduce(contract(dg", "    returns(dy, at=dy, by=x, gradient_of=y)\n    dn = all_reduce(contract(dg"),
    )
    assert judged("zero1 * tp", *edits).word == "proved"
    part = judged("zero1 * tp", *edits, ("silu", "gelu")).blocks["swiglu"]
    assert isinstance(part.found, RefutingBlockRun)
    assert part.found.words.startswith("`y` at")


def test_the_gradient_that_comes_in_may_have_any_name() -> None:
    definition = next(d for d in text("zero1 * tp").split("def ") if d.startswith("swiglu"))
    own = definition.replace("dy", "grad")
    assert judged("zero1 * tp", (definition, own)).word == "proved"
    found = judged("zero1 * tp", (definition, own.replace("du = da * s", "du = da")))
    assert found.blocks["swiglu"].word == "refuted"
    assert "one device runs the block of the model" in shown(found)


def test_weights_of_other_names_are_no_refutation() -> None:
    """They may be the model's by other names: nothing says which is which."""
    found = judged("zero1 * tp", ("w1", "gate"), ("w3", "up"), ("w2", "down"))
    assert found.word == "unknown"
    assert found.undecided == (
        "block `swiglu` is not compared with the model's: tensors are known by their names: "
        "`gate`, `up`, `down` here, `w1`, `w3`, `w2` there",
    )
    assert found.undecided[0] in shown(found)
    assert judged("zero1 * tp", ("w1", "gate"), ("w3", "up"), ("w2", "down"), own=False).word == "proved"


def test_other_names_hide_nothing_that_is_wrong() -> None:
    edits = (("w1", "gate"), ("y = x + all_reduce(contract(a, w2, over=ffn), tp)", "y = x + contract(a, w2, over=ffn)"))
    found = judged("zero1 * tp", *edits)
    assert found.word == "refuted"
    assert found.blocks["swiglu"].word == "refuted"


def test_a_gradient_that_is_not_there_is_said_as_such() -> None:
    line = "    returns(total(contract(a, dy, over=tokens), over=batch), at=dy, by=w2, gradient_of=y)\n"
    found = judged("zero1 * tp", (line, ""))
    assert found.word == "refuted"
    assert [b.text for b in found.breaches] == ["it gives no gradient by `w2`, which it has"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp * tp"])
def test_what_a_block_reads_another_gives_before_it(strategy: str) -> None:
    late = ("    n = rms_norm(x)\n    x = attention_flash(x, n)\n", "    x = attention_flash(x, n)\n    n = rms_norm(x)\n")
    found = judged(strategy, late, own=False)
    assert found.word == "refuted"
    assert [b.text for b in found.breaches] == ["it reads `n`, which no block gives before it"]
    head, *definitions = edited(strategy, ("stack(before, ", "stack(")).split("def ")
    rest = "def ".join(d for d in definitions if not d.startswith(("before", "embedding")))
    found = judge_linked(read_linked(f"{head}def {rest}"))
    assert found.word == "refuted"
    assert [(b.block, b.text) for b in found.breaches] == [("rms_norm", "it reads `x`, which no block gives before it")]


def test_what_lies_otherwise_than_it_is_read_is_counted() -> None:
    scattered = "y = x + reduce_scatter(contract(a, w2, over=ffn), tp, dim=tokens)"
    whole = "y = all_gather(x, tp) + all_reduce(contract(a, w2, over=ffn), tp)"
    found = judged("fsdp * tp * sp", (scattered, whole), own=False)
    assert found.word == "refuted"
    assert [b.block for b in found.breaches] == ["swiglu", "swiglu"]
    assert all(b.text.endswith("; of tokens = 2 with tp = 2 a device has 2 and needs 1") for b in found.breaches)


# A loss that is no mean: one device with two samples shows it.

SUM = (
    (
        "y = all_reduce(total(total(nll, over=tokens), over=batch), tp) / targets",
        "y = all_reduce(total(total(nll, over=tokens), over=batch), tp)",
    ),
    ("dlogits = (p - hot(target)) * dy / targets", "dlogits = (p - hot(target)) * dy"),
)


def test_a_loss_that_is_a_sum_comes_with_what_two_samples_make() -> None:
    found = judged("fsdp * tp * sp", *SUM, own=False)
    assert [b.block for b in found.breaches] == ["head"]
    (breach,) = found.breaches
    assert breach.shown is not None
    assert breach.shown.pair is not None
    expected, actual = (Fraction(str(getattr(n, "value", n))) for n in breach.shown.pair)
    assert actual == 2 * expected
    assert f"expected {expected}, actual {actual}" in shown(found)
    assert all(part.word == "proved" for part in found.parts)


# Computed again: by a script, by the simulator, on processes.


def scripted(tmp_path: Path, file: Path, *options: str) -> str:
    script = tmp_path / "again.py"
    assert run(["prove", str(file), *options, "--replay-script", str(script)]) == 1
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("strategy", "edits", "options", "part"),
    [
        ("zero1 * tp", (OTHERWISE["another activation"][0],), ("--model", "llama3-8b"), "swiglu"),
        ("zero1 * tp", (OTHERWISE["a sum that is left out"][0],), ("--model", "llama3-8b"), "swiglu"),
        ("zero1 * tp", (OTHERWISE["a sum that is left out"][0],), (), "swiglu"),
        ("fsdp * tp * sp", (("gradients.norm = all_reduce(gradients.norm, tp)\n", ""),), (), None),
    ],
)
def test_the_numbers_are_computed_again(
    strategy: str,
    edits: tuple[tuple[str, str], ...],
    options: tuple[str, ...],
    part: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine.step"
    file.write_text(edited(strategy, *edits))
    printed = scripted(tmp_path, file, *options)
    assert printed.strip() in capsys.readouterr().out
    assert run(["prove", str(file), *options, "--json"]) == 1
    said = capsys.readouterr().out
    validate(json.loads(said), SCHEMA)
    counterexample = parse(said)
    assert counterexample.subject == (part or strategy)
    again = simulated(counterexample)
    assert again.agrees(counterexample)
    assert f"expected {again.expected}, actual {again.actual}" == printed.strip()


def test_a_model_whose_block_stands_beside_is_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.step"
    file.write_text(edited("zero1 * tp", OTHERWISE["another activation"][0]))
    assert run(["prove", str(file), "--model", "llama3-8b", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    ran = said["blocks"]["swiglu"]["counterexample"]["run"]
    assert ("gelu" in ran["program"], "silu" in ran["one_device"]) == (True, True)
    ran["one_device"] = ran["one_device"].replace("silu", "gelu")
    forged = parse(json.dumps(said))
    assert not simulated(forged).agrees(forged)


def test_of_what_one_device_shows_there_is_a_script_and_no_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.step"
    file.write_text(edited("fsdp * tp * sp", *SUM).replace('model("llama3-8b"', 'model("mine"'))
    printed = scripted(tmp_path, file)
    assert printed.strip() in capsys.readouterr().out
    assert run(["prove", str(file), "--json"]) == 1
    said = capsys.readouterr().out
    document = json.loads(said)
    validate(document, SCHEMA)
    (breach,) = document["breaches"]
    assert printed.strip() == f"expected {breach['counterexample']['expected']}, actual {breach['counterexample']['actual']}"
    (tmp_path / "mine.json").write_text(said)
    assert run(["replay", str(tmp_path / "mine.json"), "--backend", "simulator"]) == 2
    refused = capsys.readouterr().err
    assert "has no counterexample of several devices" in refused
    assert "of two samples is not the mean over samples" in refused
    assert refused.count("error[") == 1


def test_a_script_computes_the_numbers_of_the_first_refuted_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Held against the model that it names, the file's head is refuted as a block, too, with numbers of that run."""
    file = tmp_path / "named.step"
    file.write_text(edited("fsdp * tp * sp", *SUM))
    printed = scripted(tmp_path, file)
    block = capsys.readouterr().out.partition("block `head`: refuted")[2]
    assert printed.strip().startswith("expected ")
    assert printed.strip() in block


def test_of_what_the_text_shows_there_is_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, script = tmp_path / "mine.step", tmp_path / "again.py"
    line = "    returns(total(contract(a, dy, over=tokens), over=batch), at=dy, by=w2, gradient_of=y)\n"
    file.write_text(edited("zero1 * tp", (line, "")))
    assert run(["prove", str(file), "--replay-script", str(script)]) == 1
    assert "was not written" in capsys.readouterr().err
    assert not script.exists()


def test_of_a_proof_nothing_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "ddp", "--model", "llama3-8b", "--json"]) == 0
    with pytest.raises(InputError, match="its verdict is `proved`"):
        parse(capsys.readouterr().out)


# A step that is wrong: of which weights, and what would mend it.

STEPS = {
    "a sum of one group": (
        "llama3-8b: fsdp * tp * sp",
        ("gradients.norm = all_reduce(gradients.norm, tp)\n", ""),
        "with `gradients.norm = all_reduce(gradients.norm, tp)` before line 166",
    ),
    "the same for all groups": (
        "llama3-8b: fsdp * tp * sp",
        ("gradients.norm = all_reduce(gradients.norm, tp)", "gradients = all_reduce(gradients, tp)"),
        "with `gradients.norm = all_reduce(gradients.norm, tp)` instead of line 166",
    ),
    "a mean that blocks take": (
        "llama3-8b: fsdp * tp * sp",
        ("1 / dp)", "1 / (dp * tp))"),
        "with `gradients = scale(gradients, 1 / dp)` instead of line 167",
    ),
    "no mean": (
        "llama3-8b: fsdp * tp * sp",
        ("gradients = scale(gradients, 1 / dp)\n", ""),
        "with `gradients = scale(gradients, 1 / dp)` before line 166",
    ),
    "a sum over the batch": (
        "llama3-8b: ddp",
        ("gradients = all_reduce(gradients, dp)\n", ""),
        "with `gradients = all_reduce(gradients, dp)` before line 145",
    ),
    "a sum twice": (
        "llama3-8b: ddp",
        ("gradients = all_reduce(gradients, dp)\n", "gradients = all_reduce(gradients, dp)\n" * 2),
        "without line 145",
    ),
    "parameters that nobody gathers": (
        "llama3-8b: zero1",
        ("parameters = all_gather(parameters, dp)", ""),
        "with `parameters = all_gather(parameters, dp)` behind line 147",
    ),
    "a sum over too many": (
        "mixtral-8x7b: ddp * ep * tp * sp",
        ("gradients.expert = all_reduce(gradients.expert, dp)", "gradients.expert = all_reduce(gradients.expert, dp, ep)"),
        "with `gradients.expert = all_reduce(gradients.expert, dp)` instead of line 186",
    ),
    "what stages share": (
        "gpt3-125m: ddp * pp",
        ("gradients.tied = tied_reduce(gradients.tied, pp)\n", ""),
        "with `gradients.tied = tied_reduce(gradients.tied, pp)` before line 186",
    ),
}


def wrong_step(what: str) -> JudgedModel:
    subject, (old, new), _ = STEPS[what]
    model, strategy = subject.split(": ")
    right = render_linked(link(load(model), parse_strategy(strategy)))
    assert right.count(old) == 1
    return judge_linked(read_linked(right.replace(old, new)))


@pytest.mark.parametrize("what", STEPS)
def test_a_line_that_would_mend_a_step_is_said_and_is_right(what: str) -> None:
    found = wrong_step(what)
    assert found.word == "refuted"
    repair = repair_of(found)
    assert repair is not None
    assert repair.text == STEPS[what][2]
    assert judge_linked(repair.linked).word == "proved"
    assert f"  {repair.text} the step is proved\n" in shown(found)


def test_a_counterexample_speaks_of_the_weights_of_blocks() -> None:
    said = shown(wrong_step("a sum of one group"))
    assert "  `norm`: rms_norm.gain\n    the gradient is a sum over `tp`\n" in said
    assert re.search(r"n\[\d, \d\] of block \d stands for a weight of `norm`\n", said)
    assert "`matrix`:" not in said


def test_groups_of_which_blocks_say_different_things_are_explained() -> None:
    right = render_linked(link(load("gpt3-125m"), parse_strategy("zero1 * tp * sp")))
    found = judge_linked(read_linked(right.replace("gradients = reduce_scatter(gradients, dp)", "gradients = part(gradients, dp)")))
    said = shown(found)
    assert found.word == "refuted"
    open_ = [s.obligation.name for s in found.step.settled if s.word != "proved"]
    assert open_
    stands = stands_for(found.linked)
    for name in {text[text.rindex("(") + 1 : -1] for text in open_}:
        weights = ", ".join(".".join(w) for w in stands[name].weights)
        of = "" if name == stands[name].group else f", of group `{stands[name].group}`"
        assert f"  `{name}`{of}: {weights}\n" in said


def test_every_weight_is_of_one_group() -> None:
    for model, strategy in (("gpt3-125m", "zero1 * tp * pp"), ("mixtral-8x7b", "ddp * ep * tp * sp")):
        linked = link(load(model), parse_strategy(strategy))
        stands = stands_for(linked)
        assert sorted(w for s in stands.values() for w in s.weights) == sorted(linked.weights())
        assert [g.name for g in against_contracts(linked).groups] == list(stands)


@pytest.mark.parametrize(
    "edit",
    [
        (", by=gain, gradient_of=n, partial=tp)", ", by=gain, gradient_of=n)"),  # the block is wrong, and the step for what it claims
        ("w = all_gather(parameters[u], dp)\n    gradients", "w = parameters[u]\n    gradients"),  # in a loop
    ],
)
def test_where_no_line_is_known_to_mend_it_none_is_said(edit: tuple[str, str]) -> None:
    found = judged("fsdp * tp * sp", edit, own=False)
    assert found.word == "refuted"
    assert repair_of(found) is None
    assert "the step is proved" not in shown(found)


def test_a_repair_is_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.step"
    file.write_text(edited("fsdp * tp * sp", ("gradients.norm = all_reduce(gradients.norm, tp)\n", "")))
    assert run(["prove", str(file), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    validate(said, SCHEMA)
    assert said["repair"] == STEPS["a sum of one group"][2]
    assert said["groups"]["norm"] == {"group": "norm", "weights": ["rms_norm.gain"], "split": [], "partial": ["tp"]}
