"""Models, schedules and clusters in words: what `explain` prints is what the data and the simulation say."""

from __future__ import annotations

import pytest

from placeproof import schedules
from placeproof.cli.main import run
from placeproof.clusters import cluster
from placeproof.clusters import names as clusters
from placeproof.models import load, presets
from placeproof.report.described import figures, timetable


def explained(capsys: pytest.CaptureFixture[str], name: str) -> str:
    assert run(["explain", name]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_timetable_by_hand() -> None:
    table = schedules.simulate(schedules.load("1f1b"), p=2, m=2)
    assert list(timetable(table)) == ["device 0  F0 F1 .. .. B0 W0 .. B1 W1", "device 1  .. F0 B0 W0 F1 B1 W1 .. .."]


@pytest.mark.parametrize(("name", "m"), [(name, m) for name in schedules.names() for m in (8, 12)])
def test_a_timetable_shows_every_pass_when_it_is_run(name: str, m: int) -> None:
    v = 2 if schedules.load(name).chunks is None else None
    table = schedules.simulate(schedules.load(name), p=4, m=m, v=v)
    rows = [line.split()[2:] for line in timetable(table)]
    assert {len(row) for row in rows} == {table.step}
    for d, row in enumerate(rows):
        shown = [(cell[0].upper(), int(cell[1:])) for cell in row if cell[0] != "."]
        passes = [(letter, one.microbatch) for run_ in table.runs[d] for one in run_.slot for letter in one.kind.value]
        assert shown == passes
        assert [i for i, cell in enumerate(row) if cell[0] != "."] == [
            i for run_ in table.runs[d] for i in range(int(run_.start), int(run_.end))
        ]
        capital = {one.microbatch for run_ in table.runs[d] for one in run_.slot if one.stage == table.schedule.stages(4, table.v)[d][0]}
        assert {int(cell[1:]) for cell in row if cell[0] in "FBW"} == capital


def test_a_schedule_says_what_stands_behind_its_forms(capsys: pytest.CaptureFixture[str]) -> None:
    lines = explained(capsys, "zb_h1").splitlines()
    assert "    theorem schedule_timetables.zb_h1_takes_no_longer_than_its_forms_say, for all p and m; for m >= p" in lines
    assert "    theorem schedule_forms.zb_h1_takes_what_its_forms_say, computed for up to 4 devices and 9 micro-batches" in lines
    assert "    not proved for all p and m" in lines
    assert "needs m % p == 0: " in explained(capsys, "interleaved")
    searched = explained(capsys, "zb_2p")
    assert "order: searched for under 2 * p * M_B, with T_F = 1, T_B = 1, T_W = 1, T_send = 0, M_B = 1, M_W = 1" in searched
    assert run(["derive", searched.rpartition('derive "')[2].partition('"')[0], "--model", "llama3-8b"]) == 0
    assert "2 runs of layers, the model twice" in explained(capsys, "dualpipe")


@pytest.mark.parametrize("name", presets())
def test_a_model_is_told_with_its_parameters(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, model = explained(capsys, name), load(name)
    count = model.parameters()
    assert f"all        {count.total:,}" in text
    assert all(f"{group:<10} {number:,}" in text for group, number in count.groups.items())
    assert all(f"{symbol:<5} {size}" in text for symbol, size in model.sizes.items())
    assert model.source in text


def test_a_model_is_told_by_its_name_on_the_hub(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(capsys, "Qwen/Qwen2.5-7B-Instruct") == explained(capsys, "qwen2.5-7b")


def test_a_family_is_told_in_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "llama")
    assert f"all        {load('llama').parameters().total}" in text
    assert "f = 4*h unless it is given" in text
    assert "option attention: flash, core; default flash" in text


@pytest.mark.parametrize("name", clusters())
def test_each_figure_of_a_cluster_says_where_it_is_from(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows, text, one = list(figures(cluster(name))), explained(capsys, name), cluster(name)
    reached = 0 if one.device.reached is None else len(one.device.reached.products) + 2
    reached += sum(level.reached is not None for level in one.levels)
    memory = 2 + (one.device.driver_memory is not None)
    assert len(rows) == memory + len(one.device.peak) + reached + 2 * len(one.levels) + 2 * (one.host is not None)
    assert all(origin for _, _, origin in rows)
    assert all(what in text and number in text and origin in text for what, number, origin in rows)


def test_figures_have_units() -> None:
    found = {what: number for what, number, _ in figures(cluster("dgx-h100"))}
    assert found["memory"] == "80 GB"
    assert found["peak bf16"] == "989.4 TFLOP/s"
    assert found["nvlink latency"] == "3.4 us"


def test_a_peak_that_is_assumed_says_so() -> None:
    origins = {what: origin for what, _, origin in figures(cluster("h800"))}
    assert origins["peak bf16"].startswith("assumed: ")
    assert not {what: origin for what, _, origin in figures(cluster("dgx-h100"))}["peak bf16"].startswith("assumed: ")


@pytest.mark.parametrize(
    ("name", "meant"), [("llama3-40b", "llama3-405b"), ("zb-h9", "zb-h1"), ("dgx-h10", "dgx-h100"), ("mixtal", "mixtral")]
)
def test_an_unknown_name_is_one_error_with_a_suggestion(name: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", name]) == 2
    said = capsys.readouterr().err
    assert said.count("error[") == 1
    assert f"`{meant}`" in said
