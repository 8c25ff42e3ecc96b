"""The factor that a step lacks, against history and against factors that were put there."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placeproof.cli.main import run
from placeproof.programs import read, render
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.mend import Mended, NoFactor, mend
from placeproof.theory.statements import read_subject

TESTS = Path(__file__).parents[1]
HISTORY = json.loads((TESTS / "data" / "mended.json").read_text())


def wrong_and_merged(row: dict[str, Any]) -> tuple[str, str]:
    """The step of a fix before and after it; of a bug that has files, what it says of counts as a contract."""
    if "bug" in row:
        texts = ((TESTS / "bugs" / f"{row['bug']}.{which}.step").read_text() for which in ("mutant", "correct"))
        wrong, merged = (t.replace('without("equal-token-counts")', "reference(loss=mean_over(tokens))") for t in texts)
        return wrong, merged
    wrong = merged = row["step"]
    for old, new in row["merged"]:
        assert merged.count(old) == 1
        merged = merged.replace(old, new)
    return wrong, merged


def test_history_is_long_enough() -> None:
    """Different fixes, each of a place of its own."""
    assert len({row.get("issue", row.get("bug")) for row in HISTORY}) == len(HISTORY) >= 30


@pytest.mark.parametrize("row", HISTORY, ids=lambda row: row.get("bug") or row["issue"].removeprefix("https://github.com/"))
def test_a_fix_that_was_merged_is_found_again(row: dict[str, Any]) -> None:
    """The factor of the fix, exactly; the step with it is proved, and so is the step that was merged."""
    wrong, merged = wrong_and_merged(row)
    began = time.process_time()
    found = mend(read(wrong))
    assert time.process_time() - began < 1
    assert isinstance(found, Mended), found
    assert [one.factor for one in found.scales] == row["factor"]
    assert judge(read(render(found.program))).word == "proved"
    assert judge(read(merged)).word == "proved"
    assert judge(read(wrong), shortest=False).word == "refuted"


RIGHT = """
mesh(dp, cp)
reference(loss=mean_over({unit}))
for i in microbatches:
    n += {count}
    G += backward(parameters, i, sum={unit})
n = all_reduce(n, {axes})
G = scale(all_reduce(G, dp, cp), 1 / n)
parameters, optimizer = update(parameters, optimizer, G)
"""


@pytest.mark.parametrize("seed", range(8))
def test_a_factor_that_was_put_there_is_taken_away(seed: int) -> None:
    """Any product of degrees and numbers, in any line, of any unit: what is found is its inverse."""
    rng = random.Random(seed)
    unit = rng.choice(["tokens", "sequences", "prompts", "samples", "weights"])
    count, axes = ("tokens(i)", "dp, cp") if unit == "tokens" else (f"count(i, of={unit})", "dp")
    text = RIGHT.format(unit=unit, count=count, axes=axes)
    powers = {name: rng.randint(-2, 2) for name in ("dp", "cp", "microbatches", "3")}
    powers["dp"] = powers["dp"] or 1
    factor = " * ".join(f"{name} ** {n}" if n > 0 else f"1 / {name} ** {-n}" for name, n in powers.items() if n)
    at = rng.choice([f"backward(parameters, i, sum={unit})", "all_reduce(G, dp, cp)"])
    found = mend(read(text.replace(at, f"scale({at}, {factor.replace(' * 1 /', ' /')})")))
    assert isinstance(found, Mended), found
    inverse = {name: -n for name, n in powers.items() if n}
    assert _powers(found.scales[0].factor) == inverse


def _powers(text: str) -> dict[str, int]:
    """A product of names and numbers, as the power of each."""
    over, _, under = text.partition(" / ")
    powers: dict[str, int] = {}
    for side, sign in ((over, 1), (under.strip("()"), -1)):
        for name in filter(None, side.split(" * ")):
            for one in ["3"] * {"1": 0, "3": 1, "9": 2}[name] if name.isdigit() else [name]:
                powers[one] = powers.get(one, 0) + sign
    return powers


STRATEGIES = ("zero3", "pp", "fsdp * clip", "zero1 * ep * accumulate", "tp * pp * sp")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_get_the_factors_of_a_mean_over_tokens(strategy: str) -> None:
    """Counts at each pass, or at the loss where layers are called one by one, and the number of all tokens behind."""
    contract = read(RIGHT.format(unit="tokens", count="tokens(i)", axes="dp, cp")).loss
    found = mend(replace(read_subject(strategy)[1], loss=contract))
    assert isinstance(found, Mended), found
    assert any(e.factor in ("tokens()", "tokens(i)") for e in found.edits)
    assert judge(read(render(found.program))).word == "proved"


NOTHING_HELPS = {
    "nothing sums it over devices": ("all_reduce(G, dp, cp)", "all_reduce(G, cp)", "the device's own samples along `dp`"),
    "the last micro-batch alone": ("G += backward", "G = backward", ""),
    "another unit": ("sum=tokens)", "sum=sequences)", "no multiple of the gradient"),
    "old gradients": ("scale(all_reduce(G, dp, cp)", "scale(all_reduce(stale(G, 1), dp, cp)", ""),
}


@pytest.mark.parametrize("what", NOTHING_HELPS)
def test_where_no_factor_helps_none_is_found_and_numbers_say_so(what: str) -> None:
    """Two elements of one group want two factors."""
    old, new, why = NOTHING_HELPS[what]
    text = RIGHT.format(unit="tokens", count="tokens(i)", axes="dp, cp")
    found = mend(read(text.replace(old, new)))
    assert isinstance(found, NoFactor)
    assert why in found.why
    if what != "old gradients":
        assert found.shown is not None
        assert " needs " in found.shown


@pytest.mark.parametrize("name", ["clip_by_local_norm", "local_sgd", "local_batch_norm", "pipedream", "lamb_on_shards"])
def test_what_cannot_be_mended_is_told_in_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And no file is written. Where the gradient is right before it is clipped, that is said."""
    assert run(["prove", name, "--mend", str(tmp_path / "mended.step")]) == 1
    told = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    assert len(told) == 1
    assert re.fullmatch(r"not mended, no factor (was found|makes this step right): [^:]*", told[0]), told
    assert ("before it is clipped, is right" in told[0]) is (name == "clip_by_local_norm")
    assert not (tmp_path / "mended.step").exists()


def test_a_gradient_that_is_read_as_nothing_is_told_as_that() -> None:
    """No factor makes of 0 what is wanted, and none is named."""
    found = mend(read("mesh(dp)\nG = scale(backward(parameters), 0)\nparameters, optimizer = update(parameters, optimizer, G)\n"))
    assert isinstance(found, NoFactor)
    assert found.shown is not None
    assert "is read as 0, and needs to be something else" in found.shown
    assert "None" not in found.shown


def test_what_each_step_of_accumulation_divides_again_lacks_no_factor() -> None:
    """A schedule of four micro-batches divided all that was accumulated by four, in each step of accumulation: pytorch/torchtitan 1732.
    Each loss is divided by both numbers now."""
    wrong = """
mesh(dp)
for i in microbatches:
    G += backward(parameters, i)
    G = scale(G, 1 / 4)
G = all_reduce(G, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, G)
"""
    assert judge(read(wrong), shortest=False).word == "refuted"
    found = mend(read(wrong))
    assert isinstance(found, NoFactor)
    assert found.shown is not None
    assert "a loop changes otherwise than by adding" in found.why
    merged = wrong.replace("    G = scale(G, 1 / 4)\n", "").replace("backward(parameters, i)", "backward(parameters, i) / microbatches")
    assert judge(read(merged)).word == "proved"


def test_what_is_right_but_for_something_else_lacks_no_factor() -> None:
    """Parameters that nobody refreshes."""
    text = """
mesh(dp)
place(optimizer, dp="S")
gradients = reduce_scatter(backward(parameters), dp, op=mean)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
    found = mend(read(text))
    assert isinstance(found, NoFactor)
    assert "the gradient is right" in found.why


def test_a_number_that_is_two_degrees_at_once_is_no_degree() -> None:
    """Two devices, two micro-batches and a half: which of the two is meant is not guessed, and right for all."""
    text = """
mesh(dp=2)
count(microbatches=2)
for i in microbatches:
    G += backward(parameters, i)
G = scale(all_reduce(G, dp), 1 / 2)
parameters, optimizer = update(parameters, optimizer, G)
"""
    found = mend(read(text))
    assert isinstance(found, Mended)
    assert [e.factor for e in found.edits] == ["2 / (dp * microbatches)"]
    symbolic = render(found.program).replace("dp=2", "dp").replace("count(microbatches=2)\n", "")
    assert judge(read(symbolic)).word == "proved"


def test_clipped_and_split_steps_are_mended_before_their_norm() -> None:
    """The norm reads what was multiplied, too."""
    text = """
mesh(dp)
place(parameters, dp="S*")
place(optimizer, dp="S")
reference(clip=global_norm)
w = all_gather(parameters, dp)
for i in microbatches:
    G += backward(w, i)
G = reduce_scatter(G, dp, op=mean)
G = scale(G, clip_factor(sqrt(all_reduce(square_norm(G), dp)), 1))
parameters, optimizer = update(parameters, optimizer, G)
"""
    found = mend(read(text))
    assert isinstance(found, Mended)
    assert [(e.where, e.line, e.factor) for e in found.edits] == [("before", 10, "1 / microbatches")]


def test_an_edit_of_a_recorded_step_names_the_line_of_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pass whose gradient is multiplied."""
    assert run(["prove", str(TESTS / "traces" / "wrong_accumulate.step"), "--mend", str(tmp_path / "right.step")]) == 1
    assert "multiply `gradients` by `1 / microbatches` before line 13 (wrong_accumulate.py:24)" in capsys.readouterr().out


def test_the_command_writes_the_mended_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says the edit and the derivation; the answer about the step as it was stays what it was."""
    wrong, _ = wrong_and_merged(HISTORY[0])
    path, out = tmp_path / "wrong.step", tmp_path / "right.step"
    path.write_text(wrong)
    assert run(["prove", str(path), "--mend", str(out)]) == 1
    said = capsys.readouterr().out
    assert "multiply `G` by `microbatches` before line" in said
    assert "the factor is microbatches" in said
    assert run(["prove", str(out)]) == 0
    capsys.readouterr()
    assert run(["prove", str(path), "--mend", str(out), "--json"]) == 1
    mended = json.loads(capsys.readouterr().out)["mended"]
    assert (mended["file"], [e["factor"] for e in mended["edits"]]) == (str(out), ["microbatches"])
    assert run(["prove", str(out), "--mend", str(tmp_path / "again.step")]) == 0
    assert "mended: nothing: the step is proved as it is" in capsys.readouterr().out
    assert not (tmp_path / "again.step").exists()
