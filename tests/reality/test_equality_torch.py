"""Training scripts on real processes: correct ones end with the bits of one process, those with a mistake do not, and the prover says
of each the same.

``tests/scripts/NAME.py`` is a script of plain PyTorch. Beside it, ``NAME.step`` says what its step is; where there is none, the script's
STRATEGY does. Of the tests here, those about verdicts run without torch.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from leftovers import no_process_left
from script_mistakes import UPDATE, WRONG

from placeproof import judge
from placeproof.core.diagnostics import InputError
from placeproof.measure.compared import Compared
from placeproof.measure.equality import compare, compare_all
from placeproof.programs import read

SCRIPTS = Path(__file__).parents[1] / "scripts"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "mistakes.md"
CORRECT = sorted(p.stem for p in SCRIPTS.glob("*.py") if p.stem != "common" and not p.stem.startswith("wrong_"))
#: Correct only up to rounding: what is rounded is the norm of a gradient.
ROUNDED = {"clip_active": 2.0**-40}
#: Scripts that run on any number of processes as they are; WIDTH and BLOCKS of tests/scripts/common.py are enough for four.
ON_FOUR = sorted(set(CORRECT) - {"fsdp2_subgroup", "fsdp2_tp", "hsdp", "interleaved", "tokens_weighted", "tp_sp"} - set(ROUNDED))
LOUD = [name for name, mistake in WRONG.items() if mistake.real in ("crash", "time-out", "exception")]
SILENT = [name for name in WRONG if name not in LOUD]


# What the prover says.


def said_by(name: str) -> dict[str, object]:
    """The constants of a script, read and not run."""
    body = ast.parse((SCRIPTS / f"{name}.py").read_text(encoding="utf-8")).body
    assigned = [s for s in body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)]
    return {s.targets[0].id: s.value.value for s in assigned if isinstance(s.targets[0], ast.Name) and isinstance(s.value, ast.Constant)}


@cache
def verdict(text: str, name: str) -> tuple[str, str]:
    """The verdict on a step program, and the condition that is broken first, if the proof came so far; or "refused" and the code."""
    try:
        judged = judge(read(text, source=name))
    except InputError as error:
        (code,) = {one.code for one in error.diagnostics}
        return "refused", code
    return judged.word, judged.about.condition if judged.about else ""


@cache
def verdict_of(name: str) -> tuple[str, str]:
    """The verdict on the step of a script: on its step program, or on its strategy if it has none."""
    step = SCRIPTS / f"{name}.step"
    if step.exists():
        return verdict(step.read_text(encoding="utf-8"), step.name)
    return meant(str(said_by(name)["STRATEGY"])), ""


@cache
def meant(strategy: str) -> str:
    """The verdict on what a script is meant to implement."""
    return judge(strategy).word


def test_there_is_a_step_for_every_script() -> None:
    scripts = {p.stem for p in SCRIPTS.glob("*.py")} - {"common"}
    assert scripts == set(CORRECT) | set(WRONG)
    steps = {p.stem for p in SCRIPTS.glob("*.step")}
    assert set(WRONG) <= steps <= scripts
    assert all(name in steps or said_by(name)["STRATEGY"] for name in CORRECT)
    assert len(CORRECT) >= 20
    assert len(WRONG) >= 12


@pytest.mark.parametrize("name", CORRECT)
def test_the_step_of_a_correct_script_is_proved(name: str) -> None:
    assert verdict_of(name) == ("proved", "")
    strategy = said_by(name)["STRATEGY"]
    assert strategy is None or meant(str(strategy)) == "proved"


@pytest.mark.parametrize("name", WRONG)
def test_the_step_of_a_wrong_script_is_not_proved_and_without_the_mistake_it_is(name: str) -> None:
    mistake, text = WRONG[name], (SCRIPTS / f"{name}.step").read_text(encoding="utf-8")
    word = "refused" if mistake.proof.startswith("PP") else "refuted"
    assert verdict_of(name) == (word, mistake.proof)
    strategy = said_by(name)["STRATEGY"]
    assert strategy is None or meant(str(strategy)) == "proved"
    for wrong, right in mistake.mend.items():
        assert text.count(wrong) == 1, wrong
        text = text.replace(wrong, right)
    assert verdict(text, name) == ("proved", "")


def test_reordered_calls_are_refused_where_they_stand() -> None:
    """Written as the script has it, with each rank's calls in its own branch, the step is refused: these calls do not meet."""
    first, second = (f"    gradients.{g} = all_reduce(gradients.{g}, dp, op=mean)\n" for g in ("first", "second"))
    text = "mesh(dp=2)\ngroup(first, P - P_norm)\ngroup(second, P_norm)\ngradients = backward(parameters)\n"
    text += f"if rank(dp) == 0:\n{first}{second}else:\n{second}{first}{UPDATE}"
    assert verdict(text, "literal") == ("refused", "PP308")


# What happens on real processes.

#: A gap that no rounding makes.
FAR = 1e-3
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


def need_torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: scripts cannot be run")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with no_process_left():
        yield


def paths(names: list[str]) -> list[Path]:
    return [SCRIPTS / f"{name}.py" for name in names]


def correct_ones() -> dict[str, list[Compared]]:
    """The runs of the correct scripts, on as many processes as they say, and on four."""
    found = {name: [ran] for name, ran in zip(CORRECT, compare_all(paths(CORRECT)), strict=True)}
    for name, ran in zip(ON_FOUR, compare_all(paths(ON_FOUR), world=4), strict=True):
        found[name].append(ran)
    return found


def wrong_ones() -> dict[str, Compared]:
    silent = dict(zip(SILENT, compare_all(paths(SILENT)), strict=True))
    return {name: silent.get(name) or compare(SCRIPTS / f"{name}.py", wait=4) for name in WRONG}


def test_the_step_is_exact_in_floating_point() -> None:
    """The reference, computed in fractions, has the same parameters: nothing was rounded."""
    need_torch()
    pytest.importorskip("numpy", reason="numpy is not installed")
    from placeproof.measure.equality_run import read_all

    reference = read_all([SCRIPTS / "ddp.py"], 60)[SCRIPTS / "ddp.py"].reference
    before, expected = step_in_fractions()
    assert expected.keys() == reference.keys()
    for name, values in expected.items():
        assert (values != before[name]).any(), name
        assert [Fraction(v) for v in reference[name].flatten().tolist()] == values.flatten().tolist(), name


def step_in_fractions() -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of tests/scripts/common.py before and after one step, forward and backward written out."""
    import numpy as np

    spec = importlib.util.spec_from_file_location("common_of_scripts", SCRIPTS / "common.py")
    assert spec is not None
    assert spec.loader is not None
    common = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(common)

    def exact(tensor: Any) -> Any:
        return np.vectorize(Fraction, otypes=[object])(tensor.detach().numpy())

    w = {name: exact(p) for name, p in common.model().named_parameters()}
    g: dict[str, Any] = {}
    x, y = (exact(t).reshape(-1, common.WIDTH) for t in common.batch())
    h = x @ w["inlet.weight"].T
    saved = []
    for i in range(common.BLOCKS):
        n, left, right, down = (w[f"blocks.{i}.{part}.weight"] for part in ("norm", "left", "right", "down"))
        a = h * n
        p, q = a @ left.T, a @ right.T
        saved.append((h, a, p > 0, q > 0, p * (p > 0) + q * (q > 0)))
        h = h + saved[-1][-1] @ down.T
    dy = (h @ w["outlet.weight"].T - y) * Fraction(2, y.size)
    g["outlet.weight"], dh = dy.T @ h, dy @ w["outlet.weight"]
    for i in reversed(range(common.BLOCKS)):
        n, left, right, down = (w[f"blocks.{i}.{part}.weight"] for part in ("norm", "left", "right", "down"))
        h, a, positive, other, z = saved[i]
        g[f"blocks.{i}.down.weight"], dz = dh.T @ z, dh @ down
        g[f"blocks.{i}.left.weight"], g[f"blocks.{i}.right.weight"] = (dz * positive).T @ a, (dz * other).T @ a
        da = (dz * positive) @ left + (dz * other) @ right
        g[f"blocks.{i}.norm.weight"], dh = (da * h).sum(0), dh + da * n
    g["inlet.weight"] = dh.T @ x
    rate = Fraction(common.LEARNING_RATE)
    return w, {name: value - rate * g[name] for name, value in w.items()}


# Each of the tests below runs its scripts itself: tests of one file may run in different processes, which share nothing.


def test_correct_scripts_end_with_the_bits_of_one_process_and_are_proved() -> None:
    need_torch()
    table: Counter[tuple[str, bool]] = Counter()
    bits = 0
    for name, runs in correct_ones().items():
        for ran in runs:
            assert ran.agree, ran.text()
            assert not ran.missing, ran.text()
            assert ran.equal or ran.gap < ROUNDED.get(name, 0), ran.text()
            bits += ran.equal and name not in ROUNDED
        table[verdict_of(name)[0], all(ran.equal or ran.gap < ROUNDED.get(name, 0) for ran in runs)] += 1
    print(f"{bits} runs of {len(CORRECT) - len(ROUNDED)} scripts equal to one process, bit by bit\n{in_words(table)}")
    assert bits >= 40
    assert table == {("proved", True): len(CORRECT)}


def test_wrong_scripts_show_as_their_kind_are_not_proved_and_the_page_says_so() -> None:
    need_torch()
    found = wrong_ones()
    assert {name: ran.word for name, ran in found.items()} == {name: mistake.real for name, mistake in WRONG.items()}
    for name in SILENT:
        assert found[name].gap > FAR, found[name].text()
    assert "SIGABRT" in found["wrong_size"].text()
    assert [one.word for one in found["wrong_skip"].ranks] == ["time-out", "equal"]
    assert [one.word for one in found["wrong_reduce_op"].ranks] == ["equal", "differs"]
    table = Counter((verdict_of(name)[0], ran.equal) for name, ran in found.items())
    print(in_words(table))
    assert table == {("refuted", False): len(WRONG) - len(LOUD), ("refused", False): len(LOUD)}
    check_page(found)


def in_words(table: Counter[tuple[str, bool]]) -> str:
    lines = [f"{n} scripts: step {word}, ranks {'' if same else 'not '}equal to one process" for (word, same), n in sorted(table.items())]
    return "\n".join(lines)


def row(name: str, ran: Compared) -> str:
    """A mistake as the page's table has it."""
    word, why = verdict_of(name)
    agree = {True: "yes", False: "no", None: ""}[ran.agree]
    gap = f"{ran.gap:.3g}" if ran.agree is not None else ""
    return f"| {WRONG[name].title} | `{name}` | {ran.word} | {agree} | {gap} | {word}{': ' if why else ''}{why} |"


def check_page(found: dict[str, Compared]) -> None:
    """Its table is what was measured, its scripts are the scripts, and what it shows of a comparison is what that prints."""
    page = PAGE.read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if "| `wrong_" in line]
    assert sorted(shown) == sorted(row(name, ran) for name, ran in found.items())
    for name in ("wrong_order.py", "wrong_order.step"):
        assert f"<!-- file: {name} -->\n```python\n{(SCRIPTS / name).read_text(encoding='utf-8')}```\n" in page
    assert f'>>> print(compare("wrong_order.py").text())\n{found["wrong_order"].text()}\n```\n' in page


def test_what_is_silent_stays_silent_with_debugging_on() -> None:
    """Not asked of DistributedDataParallel: with that variable its constructor dies in torch 2.13.0, in correct scripts too."""
    need_torch()
    asked = [name for name in SILENT if "DistributedDataParallel(" not in (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")]
    assert {"wrong_order", "wrong_reduce_op"} <= set(asked)
    assert len(asked) >= 10
    for name, ran in zip(asked, compare_all(paths(asked), environment=DETAIL), strict=True):
        assert ran.word == WRONG[name].real, ran.text()
        assert ran.gap > FAR, ran.text()
    for name in LOUD:
        ran = compare(SCRIPTS / f"{name}.py", wait=4, environment=DETAIL)
        assert ran.word == WRONG[name].detail, ran.text()
        assert re.search("mismatch between collectives|monitoredBarrier", ran.text()), ran.text()


# Scripts of all kinds.

HEAD = """
import os, time, torch
import torch.distributed as dist

WORLD = 2

def reference():
    return {"a": torch.ones(2), "b": torch.zeros(3)}

def train():
    rank = dist.get_rank()
    a, b = torch.ones(2), torch.zeros(3)
"""
ENDS = {
    "return {'a': a, 'b': b}": ("equal", "equal", "equal"),
    "return {'a': a} if rank else {'b': b}": ("equal", "equal", "equal"),
    "return {'a': a}": ("differs", "equal", "equal"),
    "return {'a': a + rank, 'b': b}": ("ranks disagree", "equal", "differs"),
    "return {'a': a + 2.0**-20, 'b': b + 1}": ("differs", "differs", "differs"),
    "return {'a': a.double(), 'b': b}": ("differs", "differs", "differs"),
    "return {'a': a, 'b': torch.zeros(4)}": ("differs", "differs", "differs"),
    "return {'a': a, 'b': b, 'c': a}": ("differs", "differs", "differs"),
    "return {'a': a, 'b': b * float('nan')}": ("ranks disagree", "differs", "differs"),
    "return None": ("exception", "exception", "exception"),
    "return {'a': a.tolist()}": ("exception", "exception", "exception"),
    "if rank: os.abort()\n    dist.all_reduce(a)": ("crash", "exception", "crash"),
    "if rank: time.sleep(60)\n    dist.all_reduce(a)": ("time-out", "time-out", "time-out"),
}


@pytest.fixture
def scripts(tmp_path: Path) -> list[Path]:
    made = []
    for i, end in enumerate(ENDS):
        made.append(tmp_path / f"s{i}.py")
        made[-1].write_text(f"{HEAD}    {end}\n")
    return made


def test_every_end_has_its_word(scripts: list[Path]) -> None:
    need_torch()
    began = time.monotonic()
    for ran, (whole, *each) in zip(compare_all(scripts, wait=1), ENDS.values(), strict=True):
        assert (ran.word, *[one.word for one in ran.ranks]) == (whole, *each), ran.text()
        assert ran.equal is (whole == "equal")
        assert (ran.agree is None) is (whole in ("crash", "time-out", "exception"))
    assert time.monotonic() - began < 30


def test_a_difference_is_named(scripts: list[Path]) -> None:
    need_torch()
    small, more = compare_all([scripts[4], scripts[7]])
    assert small.ranks[0].gap == 1
    assert small.ranks[0].first == "a"
    assert small.text().splitlines()[1] == "rank 0: differs by up to 1, first in a"
    assert more.ranks[0].first == "c"
    assert more.gap == float("inf")
    assert compare(scripts[2]).missing == ("b",)
    assert compare(scripts[2]).text().splitlines()[-1] == "no rank returned b"
    assert compare(scripts[0], world=3).world == 3


def test_scripts_import_their_own_neighbours(tmp_path: Path) -> None:
    need_torch()
    made = []
    for name, value in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "neighbour.py").write_text(f"value = {value}\n")
        made.append(folder / "s.py")
        made[-1].write_text(
            f"import neighbour\n{HEAD.replace('ones(2)', 'ones(neighbour.value)')}    return {{'a': torch.ones({value}), 'b': b}}\n"
        )
    assert [ran.word for ran in compare_all(made)] == ["equal", "equal"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("WORLD = 2\ndef reference(): return {}\n", "train()"),
        ("WORLD = 2\ndef train(): return {}\n", "reference()"),
        ("def train(): return {}\ndef reference(): return {}\n", "WORLD is None"),
        ("WORLD = True\ndef train(): return {}\ndef reference(): return {}\n", "WORLD is True"),
    ],
)
def test_what_is_no_script_to_compare(text: str, said: str, tmp_path: Path) -> None:
    need_torch()
    path = tmp_path / "s.py"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        compare(path)
    (one,) = raised.value.diagnostics
    assert said in one.message
    assert str(path) in one.message


def test_a_script_that_is_not_there_and_a_reference_that_fails(tmp_path: Path) -> None:
    need_torch()
    with pytest.raises(InputError, match="there is no script"):
        compare(tmp_path / "none.py")
    (tmp_path / "s.py").write_text("WORLD = 2\ndef train(): return {}\ndef reference(): return 1 / 0\n")
    with pytest.raises(RuntimeError, match="division by zero"):
        compare(tmp_path / "s.py")
