"""``placeproof calibrate``: what is fitted, what is not used for it, the file that is written, and what a table may say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from placeproof.answers.calibration import Calibration, calibrate
from placeproof.answers.runs import Derivations, DerivedRun
from placeproof.cli.main import run
from placeproof.clusters import Cluster, cluster, load, names, read_text
from placeproof.clusters.constants import with_values
from placeproof.clusters.writing import text
from placeproof.core.diagnostics import InputError
from placeproof.cost.fit import fitted
from placeproof.runs import MeasuredRun, RunAs

SETTINGS = ("L=4", "h=1024", "a=8", "s=512", "n_pos=512", "V=1024")
PLANS = [(text, b, m) for text in ("ddp(2) * accumulate", "tp(2) * accumulate") for b, m in ((1, 4), (4, 2), (8, 4), (16, 1))]


@cache
def derived() -> tuple[DerivedRun, ...]:
    """Eight plans of a small model."""
    derive, how = Derivations(), RunAs(model="gpt3-175b", precision="mixed-adam", overlap="data")
    steps = [(text, (*SETTINGS, f"b={b}"), {m: Fraction(1)}) for text, b, m in PLANS]
    return tuple(derive(MeasuredRun(name="", strategy=s, settings=given, steps=m, run_as=how)) for s, given, m in steps)


def table(file: Path, on: Cluster, more: Mapping[int, Fraction] | None = None) -> str:
    """A table of their steps as they take on a cluster; of some numbers longer."""
    sizes = [text.split("=") for text in SETTINGS]
    lines = [",".join(("strategy", "model", "precision", *(name for name, _ in sizes), "b", "m", "ms"))]
    for number, ((strategy, b, m), one) in enumerate(zip(PLANS, derived(), strict=True), 1):
        ms = one.step(m, on).seconds * 1000 * (more or {}).get(number, Fraction(1))
        lines.append(",".join((strategy, "gpt3-175b", "mixed-adam", *(n for _, n in sizes), str(b), str(m), f"{float(ms):.9f}")))
    file.write_text("\n".join(lines), encoding="utf-8")
    return str(file)


def told(found: Calibration) -> dict[str, float]:
    return {one.name: float(one.fitted) for one in found.constants}


A100 = "dgx-a100-80"


@pytest.mark.parametrize(
    "known",
    [{"products": 200e12}, {"memory": 1.1e12, "nvlink": 120e9}],
)
def test_constants_that_steps_were_made_with_are_found(known: Mapping[str, float], tmp_path: Path) -> None:
    made = with_values(cluster(A100), {name: Fraction(value) for name, value in known.items()}, "bf16")
    found = calibrate(A100, table(tmp_path / "steps.csv", made), list(known))
    assert told(found) == pytest.approx(known, rel=0.02)
    assert found.accuracy(found.after, held_out=True).error < Fraction(1, 500)
    assert found.accuracy(found.before, held_out=True).error > Fraction(1, 100)


def test_what_is_held_out_is_not_used(tmp_path: Path) -> None:
    """However wrong it is; what is used counts."""
    made = with_values(cluster(A100), {"products": Fraction(200 * 10**12)}, "bf16")
    right = calibrate(A100, table(tmp_path / "right.csv", made))
    assert right.held_out == (2, 4, 6, 8)
    wrong = calibrate(A100, table(tmp_path / "wrong.csv", made, {n: Fraction(3) for n in right.held_out}))
    assert told(wrong) == told(right)
    assert wrong.accuracy(wrong.after, held_out=True).error == pytest.approx(2 / 3, rel=1e-3)
    other = calibrate(A100, table(tmp_path / "other.csv", made, {n: Fraction(2) for n in (1, 3, 5, 7)}))
    assert told(other)["products"] < told(right)["products"] / 1.2
    named = calibrate(A100, str(tmp_path / "wrong.csv"), held_out="2,4,6-8")
    assert (named.held_out, told(named)) == ((2, 4, 6, 7, 8), told(right))


def test_a_plan_that_was_measured_twice_is_on_one_side(tmp_path: Path) -> None:
    path = Path(table(tmp_path / "steps.csv", cluster(A100)))
    head, first, *rest = path.read_text(encoding="utf-8").split("\n")
    again = first.rpartition(",")[0] + ",99"
    path.write_text("\n".join([head, first, again, *rest]), encoding="utf-8")
    assert calibrate(A100, str(path)).held_out == (3, 5, 7, 9)


def test_groups_are_held_out_whole(tmp_path: Path) -> None:
    """Plans of as many samples on as many devices are of one group, which is used or is not."""
    found = calibrate(A100, table(tmp_path / "steps.csv", cluster(A100)), held_out="groups")
    groups = [(2, 2 * b * m if "ddp" in text else b * m) for text, b, m in PLANS]
    order = list(dict.fromkeys(groups))
    assert found.held_out == tuple(n for n, group in enumerate(groups, 1) if order.index(group) % 2)


def test_the_file_is_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which says what was fitted, and to what; all else is as before, and other commands take it."""
    made = with_values(cluster(A100), {"products": Fraction(200 * 10**12), "nvlink": Fraction(150 * 10**9)}, "bf16")
    steps, out = table(tmp_path / "steps.csv", made), str(tmp_path / "mine.toml")
    assert run(["calibrate", A100, "--from", steps, "--constants", "products, nvlink", "--out", out]) == 0
    said = capsys.readouterr().out
    assert "held out: steps 2, 4, 6, 8, every second plan" in said
    found, before = load(out), cluster(A100)
    assert found.device.reached is not None
    assert before.device.reached is not None
    assert float(found.device.reached.products["bf16"]) == pytest.approx(200e12, rel=0.01)
    assert float(found.levels[0].reached or 0) == pytest.approx(150e9, rel=0.02)
    for origin in (found.device.reached.of_products("bf16"), found.levels[0].origin("reached")):
        assert origin.startswith(f"fitted: 4 of 8 steps of {steps}; on the 4 others 0.0")
        assert origin.endswith(" % before")
    assert found.device.reached.origin("kernel") == before.device.reached.origin("kernel")
    assert found.device.reached.memory_bandwidth == before.device.reached.memory_bandwidth
    assert (found.levels[1], found.host, found.node) == (before.levels[1], before.host, before.node)
    derive = ["derive", "ddp(2) * accumulate", "--model", "gpt3-175b", "--set", "b=1", "--set", "m=4", "--set", "L=4", "--cluster"]
    took = []
    for on in (A100, out):
        assert run([*derive, on, "--json"]) == 0
        took.append(json.loads(capsys.readouterr().out)["time"]["seconds"]["step"])
    assert took[1] > took[0] * 1.1


def test_data_has_what_the_text_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = with_values(cluster(A100), {"products": Fraction(200 * 10**12)}, "bf16")
    assert run(["calibrate", A100, "--from", table(tmp_path / "steps.csv", made), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "placeproof.calibration/1"
    assert data["held_out"] == {"steps": [2, 4, 6, 8], "how": "every second plan"}
    assert [row["step"] for row in data["rows"] if row["held_out"]] == [2, 4, 6, 8]
    errors = [abs(row["before"]["derived"] / row["measured"] - 1) for row in data["rows"] if row["held_out"]]
    assert data["not_used"]["before"]["error"]["mean"] == pytest.approx(math.fsum(errors) / 4)
    assert data["constants"][0]["before"] == 267.9e12


def test_where_a_cluster_says_nothing_of_kernels_all_is_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a step is timed with half of the peak."""
    monkeypatch.setattr("placeproof.cost.fit.ROUNDS", 2)
    bare = replace(cluster(A100), device=replace(cluster(A100).device, reached=None))
    known = {"products": 120e12, "memory": 1.2e12, "kernel": 2e-5}
    steps = table(tmp_path / "steps.csv", with_values(bare, {name: Fraction(n) for name, n in known.items()}, "bf16"))
    found = calibrate(bare, steps)
    assert told(found)["products"] == pytest.approx(known["products"], rel=0.3)
    assert [one.before for one in found.constants] == [None, None, None]
    assert "not said" in str(found)
    assert found.accuracy(found.after, held_out=True).error < found.accuracy(found.before, held_out=True).error / 2


def test_half_of_the_measured_steps_tells_of_the_others() -> None:
    """Of 16 on B200: one half brings the other one nearer, to less than 4 per cent."""
    found = calibrate("dgx-b200", "b200")
    errors = [found.accuracy(each, held_out=True).error for each in (found.after, found.before)]
    assert errors[0] < Fraction(4, 100) < Fraction(6, 100) < errors[1]


@pytest.mark.parametrize("name", names())
def test_a_cluster_is_written_as_it_is_read(name: str) -> None:
    assert read_text(text(cluster(name)), source="m.toml") == cluster(name)


def test_a_fit_stays_within_its_bounds() -> None:
    def loss(values: Mapping[str, float]) -> float:
        return math.log(values["x"] / 7) ** 2 + math.log(values["x"] * values["y"] / 70) ** 2

    found = fitted(loss, {"x": 1.0, "y": 1.0}, {"x": (0.1, 100), "y": (0.1, 100)})
    assert found == pytest.approx({"x": 7, "y": 10}, rel=1e-2)
    assert fitted(lambda v: -v["x"], {"x": 1.0}, {"x": (0.5, 3)}) == {"x": 3}
    assert fitted(lambda v: 0.0, {"x": 1.0}, {"x": (0.5, 3)}) == {"x": 1.0}


HEAD = "strategy,model,b,m,ms"
GOOD = "ddp(2) * accumulate,gpt3-1.3b,1,4,12.5"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((HEAD, "ddp(2) * acumulate,gpt3-1.3b,1,4,5"), [("PP101", 2, 10, "did you mean `accumulate`")]),
        ((HEAD, '"cp(2, atention=ulysses)",gpt3-1.3b,1,4,5'), [("PP104", 2, 17, "did you mean `attention`")]),
        ((HEAD, "ddp(2),gpt3-13b,1,4,-5", "ddp(2),gpt3-1.3b,1,x,5"), [("PP112", 2, 21, "above 0"), ("PP112", 3, 20, "at least 1")]),
        ((HEAD, "ddp(2),gpt3-1.33b,1,4,5"), [("PP101", 2, 8, "did you mean")]),
        ((HEAD, "ddp(2),gpt3-1.3b,1.5,4,5"), [("PP202", 2, 18, "change `b` of this row")]),
        ((HEAD, "ddp(2),gpt3-1.3b,,4,5"), [("PP203", 2, 18, "in a column `b`")]),
        ((HEAD, "ddp(2),gpt3-1.3b,1,4"), [("PP112", 2, 1, "quote a cell that has a comma")]),
        ((HEAD, 'ddp(2),"gpt3,1,4,5'), [("PP110", 2, 1, "quote a cell")]),
        ((HEAD, ",gpt3-1.3b,1,4,5"), [("PP113", 2, 1, "say it")]),
        (("strategy,model,b,m,mss", GOOD), [("PP113", 1, 1, "shows such a file"), ("PP111", 1, 20, "did you mean `ms`")]),
        (("strategy,b,m,ms,seconds", GOOD), [("PP113", 1, 1, "add it"), ("PP113", 1, 1, "shows such a file")]),
        (("strategy,model,eta,m,ms", GOOD), [("PP112", 1, 16, "the cluster says it")]),
        (("strategy,model,cluster,b,m,ms", "ddp(2),gpt3-1.3b,dgx-h100,1,4,5"), [("PP112", 2, 18, "leave the column out")]),
        (("strategy,model,stages,b,m,ms", "pp(2),gpt3-1.3b,7;8,1,4,5"), [("PP112", 2, 17, "for example 7,8x14,7")]),
        (("strategy,model,fp8,b,m,ms", "ddp(2),gpt3-1.3b,no,1,4,5"), [("PP112", 2, 18, "`yes`, or nothing")]),
        (("strategy,model,m,m,ms", GOOD), [("PP112", 1, 1, "say each thing once")]),
        ((HEAD,), [("PP113", 1, 1, "add a row for each")]),
        (("strategy,model,overlap,b,m,ms", "ddp(2),gpt3-1.3b,nothing,1,4,5"), [("PP104", 2, 18, "none, data or all")]),
        (("strategy,model,precision,b,m,ms", "ddp(2),gpt3-1.3b,fp17,1,4,5"), [("PP204", 2, 18, "")]),
        (("strategy,model,recompute,b,m,ms", "ddp(2),gpt3-1.3b,fulll,1,4,5"), [("PP104", 2, 18, "did you mean `full`")]),
        (("strategy,model,implementation,b,m,ms", "ddp(2),gpt3-1.3b,megatron,1,4,5"), [("PP101", 2, 18, "did you mean")]),
    ],
)
def test_each_bad_row_gets_one_error(lines: Sequence[str], expected: list[tuple[str, int, int, str]], tmp_path: Path) -> None:
    """With its line, its column and a remedy; all of them at once."""
    file = tmp_path / "steps.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        calibrate("dgx-b200", str(file))
    found = [(d.code, d.place and d.place.line, d.place and d.place.column) for d in error.value.diagnostics]
    assert found == [(code, line, column) for code, line, column, _ in expected]
    assert all(said in str(d.help) for d, (*_, said) in zip(error.value.diagnostics, expected, strict=True))
    assert all(d.help and d.place and d.place.source == str(file) for d in error.value.diagnostics)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dgx-b20", "--from", "b200"], "did you mean `dgx-b200`"),
        (["dgx-b200", "--from", "none.csv"], "cannot read `none.csv`"),
        (["dgx-b200", "--from", "b20"], "did you mean `b200`"),
        (["dgx-b200", "--from", "bloom"], "no step of `bloom` was measured"),
        (["dgx-b200", "--from", "b200", "--constants", "product"], "did you mean `products`"),
        (["dgx-b200", "--from", "b200", "--constants", " ,"], "no constant is named"),
        (["dgx-b200", "--from", "b200", "--out", "mine.csv"], "give a file that ends in .toml"),
    ],
)
def test_wrong_input_is_one_error(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("constants", "held_out", "says"),
    [
        (["infiniband"], "half", "none of these steps depends on `infiniband`"),
        (None, "some", "names no steps"),
        (None, "3,9", "there are 8"),
        (None, "5-3", "there are 8"),
        (None, "1-8", "0 of 8 steps are left to fit 1 constant to"),
        (["products", "memory"], "1-6", "2 of 8 steps are left to fit 2 constants to"),
    ],
)
def test_what_cannot_be_fitted_is_refused(constants: list[str] | None, held_out: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        calibrate(A100, table(tmp_path / "steps.csv", cluster(A100)), constants, held_out)
    assert says in str(error.value)


def test_what_is_fitted_is_a_figure_of_its_table() -> None:
    """A cluster's file that says otherwise is refused."""
    right = text(cluster("dgx-b200")).replace("[device.reached.products]", 'fitted = { bf16 = "x" }\n[device.reached.products]')
    assert read_text(right, source="m.toml").device.reached.of_products("bf16") == "fitted: x"  # type: ignore[union-attr]
    with pytest.raises(InputError) as error:
        read_text(right.replace("fitted = { bf16", "fitted = { bf61"), source="m.toml")
    assert "`bf61` is no figure of this table" in str(error.value)
