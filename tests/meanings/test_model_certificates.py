"""The certificate of a model's program: of each block and of the step, checked as a whole."""

from __future__ import annotations

import copy
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from samples import NIGHTLY

from placeproof.cli.main import run
from placeproof.models import Model, load
from placeproof.semantics.judge import certificate
from placeproof.semantics.judge.envelope import again, envelope
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.judge.ranges import read_ranges
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.strategies import parse_strategy
from placeproof.verify import RejectedError, left_open_of_model, verify_model
from placeproof.verify.model import digest

Data = dict[str, Any]
SIZES = "[dims]\nbatch = 'b'\ntokens = 's'\nhidden = 'h'\nffn = 'f'\nvocab = 'V'\n"
STACK = "[stack.before]\nblocks = ['embedding']\n[stack.layers]\ntimes = 'L'\nblocks = ['rms_norm', 'swiglu']\n"
#: A model without attention, whose proofs are short.
SMALL = f"name = 'small'\ntitle = 't'\nsource = 's'\n{SIZES}{STACK}[stack.after]\nblocks = ['rms_norm', 'head']\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.toml"
    path.write_text(SMALL)
    return path


def text(model: Model, strategy: str) -> str:
    return render_linked(link(model, parse_strategy(strategy)))


@cache
def written(path: Path, strategy: str, *ranges: str) -> Data:
    model = load(path)
    linked = read_linked(text(model, strategy))
    judged = judge_linked(linked, model, ranges=read_ranges(ranges, linked.step))
    assert judged.word == "proved"
    found: Data = json.loads(json.dumps(envelope(judged, str(path))))
    return found


@pytest.mark.parametrize("strategy", ["zero1 * tp", "fsdp * tp * sp"])
def test_every_part_has_a_certificate_that_shows_all(small: Path, strategy: str) -> None:
    document = written(small, strategy)
    names = [part["part"] for part in document["parts"]]
    assert names == ["block `embedding`", "block `rms_norm`", "block `swiglu`", "block `head`", "the step"]
    assert list(verify_model(document)) == names
    assert not left_open_of_model(document)
    assert again(document, load(small))


@pytest.mark.parametrize("strategy", ["ddp * pp", "ddp * pp(1)"])
def test_a_table_that_two_stages_share_is_in_the_certificate(tmp_path: Path, strategy: str) -> None:
    """What each end of a pipeline has for a block of its own is one of what hypotheses say."""
    path = tmp_path / "tied.toml"
    path.write_text(SMALL.replace("source", "shared = ['table']\nsource").replace("'head'", "'head_tied'"))
    document = written(path, strategy)
    verify_model(document)
    step = document["parts"][-1]["certificate"]
    assert step["claims"]
    assert not step["unshown"]
    assert not left_open_of_model(document)


def test_ranges_that_leave_one_degree_are_in_the_program(small: Path) -> None:
    document = written(small, "zero1 * tp", "N_tp == 2", "N_dp >= 2")
    assert document["ranges"] == ["N_dp >= 2"]
    assert "mesh(dp, tp=2)" in document["program"]
    assert again(document, load(small))


# What is changed is noticed.


def _spots(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key in x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
        yield from _spots(x[key], (*path, key))


def _corrupted(document: Data, rng: random.Random) -> Data:
    """One thing changed: in what the envelope says half of the time, else anywhere in its certificates."""
    found = copy.deepcopy(document)
    spots = list(_spots(found))
    outer = [spot for spot in spots if "certificate" not in spot[:-1]]
    *above, last = rng.choice(outer if rng.random() < 0.5 else spots)
    holder = found
    for key in above:
        holder = holder[key]
    value = holder[last]
    match value:
        case list() if value:
            at, other = rng.randrange(len(value)), rng.randrange(len(value))
            if rng.random() < 0.5:
                value[at], value[other] = value[other], value[at]
            else:
                value[at : at + 1] = [] if rng.random() < 0.5 else [value[at], value[at]]
        case str() if len(value) > 1:
            at = rng.randrange(len(value) - 1)
            holder[last] = value[:at] + value[at + 1] + value[at] + value[at + 2 :] if rng.random() < 0.7 else value[:at] + value[at + 1 :]
        case bool() | None:
            holder[last] = not value
        case int():
            holder[last] = value + rng.choice([-1, 1])
        case _:
            del holder[last]
    return found


def _rejected(document: Data, model: Model) -> str | None:
    try:
        verify_model(document)
    except RejectedError:
        return "checker"
    try:
        return None if again(document, model) else "program"
    except Exception:
        return "program"


def test_each_corrupted_certificate_is_rejected(small: Path) -> None:
    rng, model, document = random.Random(20261125), load(small), written(small, "zero1 * tp")
    by: list[str] = []
    while len(by) < (100 if NIGHTLY else 30):
        changed = _corrupted(document, rng)
        if changed in (document, {**document, "model": changed.get("model")}):
            continue  # by what its model is called it is found, and compared with it: the next test
        found = _rejected(changed, model)
        assert found is not None, changed
        by.append(found)
    assert by.count("checker") > len(by) / 2


def _swapped(document: Data) -> None:
    first, second = document["parts"][1:3]
    for key in ("certificate", "sha256", "one_device"):
        first[key], second[key] = second[key], first[key]


def _forged(document: Data) -> None:
    document["program"] = document["program"].replace("silu", "gelu")
    document["sha256"] = digest(document["program"])


def _forged_twice(document: Data) -> None:
    _forged(document)
    part = document["parts"][2]
    part["certificate"]["program"] = part["certificate"]["program"].replace("silu", "gelu")
    part["sha256"] = digest(part["certificate"]["program"])


def _left_out(document: Data) -> None:
    document["parts"][2] |= {"certificate": None, "why": "it is too long"}


def _without_a_block(document: Data) -> None:
    del document["parts"][2]


def _without_a_sum(document: Data) -> None:
    document["program"] = document["program"].replace("gradients = reduce_scatter(gradients, dp)\n", "gradients = part(gradients, dp)\n")
    document["sha256"] = digest(document["program"])


def _under_other_assumptions(document: Data) -> None:
    document["without"] = ["equal-token-counts"]


def _of_larger_meshes(document: Data) -> None:
    document["ranges"] = document["parts"][-1]["certificate"]["ranges"] = ["N_tp >= 2"]


@pytest.mark.parametrize(
    "forge",
    [_swapped, _forged, _forged_twice, _left_out, _without_a_block, _without_a_sum, _under_other_assumptions, _of_larger_meshes],
)
def test_what_is_forged_is_rejected(forge: Callable[[Data], None], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed, path = copy.deepcopy(written(small, "zero1 * tp")), tmp_path / "c.json"
    forge(changed)
    assert changed != written(small, "zero1 * tp")
    path.write_text(json.dumps(changed))
    assert run(["verify", str(path)]) == 1
    assert "rejected" in capsys.readouterr().out


def _honest(linked_text: str, named: str | None) -> Data:
    """A certificate that says of a program what can be shown of it, whether or not it is proved."""
    judged = judge_linked(read_linked(linked_text))
    found: Data = json.loads(json.dumps(envelope(judged, named)))
    return found


def test_a_program_that_is_another_models_is_rejected(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every certificate in it holds, and what it is said to be of has another activation, fewer layers, or another name."""
    path, right = tmp_path / "c.json", text(load(small), "zero1 * tp")
    for old, new in (("silu", "gelu"), ("layers * L", "layers * (2 * L)"), ("", "")):
        document = _honest(right.replace(old, new) if old else right, None)
        assert not left_open_of_model(document)
        path.write_text(json.dumps(document))
        assert run(["verify", str(path)]) == 0
        assert "one device runs the blocks that stand in it" in capsys.readouterr().out
        for named in (str(small), "llama3-8b", "no such model"):
            path.write_text(json.dumps({**document, "model": named}))
            assert run(["verify", str(path)]) == 1
            assert "rejected" in capsys.readouterr().out


UNFIT = {
    "a weight without a gradient": (("    returns(total(contract(a, dy, over=tokens), over=batch), at=dy, by=w2, gradient_of=y)\n", ""),),
    "a loss that is no mean": (
        ("y = total(total(nll, over=tokens), over=batch) / targets", "y = total(total(nll, over=tokens), over=batch)"),
        ("* dy / targets", "* dy"),
    ),
    "a norm that comes too late": (("    n = rms_norm(x)\n    x = swiglu(x, n)\n", "    x = swiglu(x, n)\n    n = rms_norm(x)\n"),),
}


@pytest.mark.parametrize("what", UNFIT)
def test_blocks_that_do_not_fit_have_no_certificate_that_holds(
    what: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = text(load(small), "zero1 * tp")
    for old, new in UNFIT[what]:
        assert old in wrong
        wrong = wrong.replace(old, new)
    file, path = tmp_path / "mine.step", tmp_path / "c.json"
    file.write_text(wrong)
    assert run(["prove", str(file), "--certificate", str(path)]) == 1
    assert "was not written: the model's program is refuted" in capsys.readouterr().err
    assert not path.exists()
    path.write_text(json.dumps(_honest(wrong, None)))
    assert run(["verify", str(path)]) == 1


# The commands.


def test_prove_writes_what_verify_reads(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    assert run(["prove", "zero1 * tp", "--model", str(small), "--certificate", str(path)]) == 0
    capsys.readouterr()
    assert run(["verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: holds\n")
    assert "  block `swiglu`: 11 claims, " in said
    assert f"one device runs the blocks of {small}\n" in said
    assert json.loads(path.read_text()) == written(small, "zero1 * tp")


def test_a_part_that_says_too_much_is_left_to_a_solver(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    monkeypatch.setattr(certificate, "MOST", 180)
    assert run(["prove", "zero1 * tp", "--model", str(small), "--certificate", str(path)]) == 0
    assert "note: block `swiglu` is left to a solver: its proof has" in capsys.readouterr().err
    assert run(["verify", str(path)]) == 3
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: holds, but for what is left to a solver\n")
    assert "  block `swiglu`: left to a solver: its proof has" in said


def test_a_copy_of_the_checker_runs_by_itself(small: Path, tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "placeproof" / "verify", tmp_path / "verify")
    document = written(small, "zero1 * tp")
    for name, changed, code in (("good.json", document, 0), ("bad.json", {**document, "parts": document["parts"][1:]}, 1)):
        (tmp_path / name).write_text(json.dumps(changed))
        done = subprocess.run([sys.executable, "-S", "-m", "verify", name], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done
        assert ("claims hold" if code == 0 else "rejected") in done.stdout
