"""Names of groups of one's own in linked programs: proved as any other, and no costs are derived of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.models import load
from placeproof.semantics.judge.model import judge_linked, repair_of
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.strategies import parse_strategy


@cache
def text(strategy: str = "fsdp * tp * sp") -> str:
    """The norms' group is called `attn`."""
    found = render_linked(link(load("llama3-8b"), parse_strategy(strategy)))
    for old, new in ((".norm", ".attn"), ("group(norm,", "group(attn,"), ("P_norm", "P_attn")):
        assert old in found
        found = found.replace(old, new)
    return found


def edited(*edits: tuple[str, str]) -> str:
    found = text()
    for old, new in edits:
        assert found.count(old) == 1
        found = found.replace(old, new)
    return found


SUM = "gradients.attn = all_reduce(gradients.attn, tp)\n"
#: Two groups of one's own of which every device has all weights: of the norms, and of the table's a part.
TWO = (
    ("group(matrix, P - P_attn)", "group(matrix, P - P_attn - P_ffn)"),
    ("group(attn, rms_norm.gain)", "group(attn, rms_norm.gain)\ngroup(ffn, swiglu.w1 + swiglu.w2 + swiglu.w3)"),
    *(
        (f'place({s}.attn, dp="{m}")', f'place({s}.attn, dp="{m}")\nplace({s}.ffn, dp="{m}")')
        for s, m in (("parameters", "S*"), ("optimizer", "S"), ("gradients", "S"))
    ),
)


def test_a_name_of_ones_own_is_printed_as_it_was_read() -> None:
    for found in (text(), edited(*TWO)):
        assert render_linked(read_linked(found)) == found


@pytest.mark.parametrize("edits", [(), TWO])
def test_it_is_proved_and_what_is_forgotten_is_refuted(edits: tuple[tuple[str, str], ...]) -> None:
    assert judge_linked(read_linked(edited(*edits)), load("llama3-8b")).word == "proved"
    found = judge_linked(read_linked(edited(*edits, (SUM, ""))))
    assert found.word == "refuted"
    repair = repair_of(found)
    assert repair is not None
    assert repair.text.startswith(f"with `{SUM.strip()}` before line ")


def test_a_sum_over_another_group_is_refuted() -> None:
    assert judge_linked(read_linked(edited(*TWO, (SUM, SUM.replace("attn", "ffn"))))).word == "refuted"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("group(matrix, P - P_attn)\n", ""), "the first group has all weights that are in no other, and `attn` lists some"),
        (("group(attn, rms_norm.gain)", "group(attn, rms_norm.gian)"), "there is no weight `rms_norm.gian`"),
        (("group(matrix, P - P_attn)", "group(matrix, P - P_atn)"), "`P_atn` is no defined symbol"),
        (("group(attn, rms_norm.gain)", "group(attn, P_attn)"), "nothing says which weights `attn` has"),
        (("group(attn, rms_norm.gain)", "group(attn, P_norm)"), "nothing says which weights `attn` has"),
    ],
)
def test_what_is_misspelt_or_in_no_order_is_refused(edit: tuple[str, str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_linked(edited(edit))
    assert said in str(refused.value)


def test_costs_are_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.step"
    file.write_text(text())
    assert run(["derive", str(file)]) == 2
    said = capsys.readouterr().err
    assert "a group of the name `attn` is proved, and its costs are not derived" in said
    assert "help: call it `norm`" in said
    assert said.count("error[") == 1
    file.write_text(text().replace(".attn", ".norm").replace("P_attn", "P_norm").replace("group(attn", "group(norm"))
    assert run(["derive", str(file)]) == 0


def test_a_certificate_of_it_holds(tmp_path: Path) -> None:
    path, file = tmp_path / "c.json", tmp_path / "mine.step"
    short = [d for d in text().split("def ") if not d.startswith("attention_flash")]
    mine = "def ".join(short).replace("    n = rms_norm(x)\n    x = attention_flash(x, n)\n", "")
    file.write_text(re.sub(r'model\("[^"]+"', 'model("mine"', mine))
    assert run(["prove", str(file), "--certificate", str(path)]) == 0
    assert run(["verify", str(path)]) == 0
