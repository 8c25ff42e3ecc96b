"""The experiments about memory and traffic, and how all of them are shown: numbers follow here from sizes alone, a wrong expectation is
noticed, and nothing stays behind. Training is tested in tests/reality/test_experiment_training.py.
"""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from leftovers import no_process_left

from placeproof.cli.main import run
from placeproof.core.shapes import Shapes, transformer
from placeproof.measure.experiments import sizes
from placeproof.measure.experiments.experiment import Experiment, Line
from placeproof.measure.experiments.sizes import Bench, memory, traffic
from placeproof.measure.training.predicted import predicted
from placeproof.report import experiment as report
from placeproof.report import text as as_text
from placeproof.report.pictures import bars as picture
from placeproof.report.pictures.bars import Bar, BarRow, Panel, svg
from placeproof.report.pictures.svg import STYLE

#: As the large model of the experiments, but of one layer.
LARGE = transformer(layers=1, hidden=2048, heads=32, kv_heads=4, ffn=5632, vocab=32000, batch=1, tokens=8)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "experiments.md"
SVG = "{http://www.w3.org/2000/svg}"


def need_torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: experiments cannot be made")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with no_process_left():
        yield


# Without torch.


def line(**changed: Any) -> Line:
    given: dict[str, Any] = {"what": "a : b", "unit": "ratio", "predicted": Fraction(3, 2), "measured": Fraction(3, 2), "how": "by hand"}
    return Line(**given | changed)


def made(*lines: Line) -> Experiment:
    return Experiment(name="traffic", title="sent <and> received", says=("a & b",), lines=lines, seconds=1.0)


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({}, True),
        ({"measured": Fraction(3, 2) + Fraction(1, 10**12)}, False),
        ({"measured": None}, False),
        ({"bound": True, "measured": Fraction(1)}, True),
        ({"bound": True, "measured": Fraction(2)}, False),
        ({"ideal": Fraction(3, 2)}, True),
        ({"ideal": Fraction(1)}, False),
        ({"ideal": Fraction(1), "note": "padding"}, True),
        ({"ideal": Fraction(1), "note": "padding", "measured": Fraction(1)}, False),
    ],
)
def test_a_line_holds_if_the_measurement_is_as_predicted_and_departures_are_explained(changed: dict[str, Any], holds: bool) -> None:
    assert line(**changed).holds is holds


def test_an_experiment_without_lines_does_not_hold() -> None:
    assert not made().holds
    assert made(line()).holds


def test_a_line_that_differs_is_shown_in_full() -> None:
    near = line(measured=Fraction(3, 2) + Fraction(1, 10**12))
    shown = as_text.text(report.document([made(line(), near)], "2.13.0"))
    assert re.search(r"a : b +- +1\.5 +1\.5  differs\n", shown)
    assert f"exactly: closed form None, predicted 3/2, measured {near.measured}" in shown
    assert shown.startswith("1 of 2 lines differ, with torch 2.13.0, in 1 s\n")


def test_notes_are_shown_where_a_prediction_departs() -> None:
    shown = as_text.text(
        report.document([made(line(ideal=Fraction(1), note="padded"), line(ideal=Fraction(3, 2), note="not said"))], "2.13.0")
    )
    assert "holds (1)" in shown
    assert "(1) padded" in shown
    assert "not said" not in shown


def test_commands_are_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (("experiment", "memry"), "did you mean `memory`?"),
        (("experiment", "all", "--plot", "picture.png"), "give a file that ends in .svg: picture.svg"),
        (("experiment", "all", "--plot", str(tmp_path / "none" / "x.svg")), "give a file in a folder that exists"),
        (("experiment", "all", "--plote", "x.svg"), "No such option"),
    ):
        assert run(list(arguments)) == 2
        assert said in capsys.readouterr().err


def test_without_torch_the_remedy_is_named() -> None:
    """In a process in which torch cannot be imported."""
    code = (
        "import sys, importlib.util as u; sys.modules['torch'] = None; found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else found(name, *rest)\n"
        "from placeproof.cli.main import run; sys.exit(run(['experiment', 'all']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "placeproof[torch]"' in done.stderr
    assert "Traceback" not in done.stderr


# Pictures.


def bars(text: str) -> list[float]:
    """The widths of the bars, without the background and the legend's squares."""
    colours = [one for one in ET.fromstring(text).iter(f"{SVG}rect") if one.get("fill")]
    return [float(one.get("width", "nan")) for one in colours][3:]


def test_the_length_of_a_bar_is_its_number() -> None:
    rows = tuple(BarRow(label=f"row {v}", bars=(Bar(series=0, value=v, text=str(v)),)) for v in (1.0, 2.0, 0.0, 7.3))
    one, two, none, most = bars(svg("t", ("a", "b", "c"), [Panel(title="p", axis="x", rows=rows)]))
    assert two == pytest.approx(2 * one, abs=0.11)
    assert most == pytest.approx(7.3 * one, abs=0.5)
    assert none == 0


def test_on_a_logarithmic_axis_a_power_of_ten_is_a_step() -> None:
    values = (1e-12, 1e-14, 1e-16, 0.0)
    rows = tuple(BarRow(label="row", bars=(Bar(series=1, value=v, text=str(v)),)) for v in values)
    text = svg("t", ("a", "b", "c"), [Panel(title="p", axis="x", rows=rows, log=True)])
    first, second, third, none = bars(text)
    assert first - second == pytest.approx(second - third, abs=0.11)
    assert third > 0
    assert none == 0
    ticks = {one.text for one in ET.fromstring(text).iter(f"{SVG}text")}
    assert {"1e-12", "1e-14", "1e-16"} <= ticks


def test_a_picture_has_every_number_and_loads_nothing() -> None:
    lines = (line(ideal=Fraction(7, 5), note="n"), line(unit="difference", predicted=Fraction(1, 10**12), bound=True, measured=None))
    text = report.picture([made(*lines)], "2.13.0")
    shown = [one.text for one in ET.fromstring(text).iter(f"{SVG}text")]
    assert {"1.4", "1.5", "<= 1.0e-12", "-", "a : b", "traffic: sent <and> received"} <= set(shown)
    assert "prefers-color-scheme: dark" in text
    assert not {"href", "url(", "@import", "<script"} & set(text.split())
    assert text.count("http") == 1  # the name of the format


def contrast(one: str, other: str) -> float:
    """WCAG 2.1: the ratio of the relative luminances, each with 0.05 added."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05

    return max(luminance(one) / luminance(other), luminance(other) / luminance(one))


def test_a_picture_is_legible_on_light_and_on_dark() -> None:
    light, dark = re.findall(r"\.back { fill: (#\w+)", STYLE)
    on_light, on_dark = re.findall(r"text {[^}]*fill: (#\w+)", STYLE)
    assert min(contrast(on_light, light), contrast(on_dark, dark)) > 7
    assert all(contrast(colour, back) > 3 for colour in picture._COLOURS for back in (light, dark))


def test_a_picture_of_nothing_is_well_formed() -> None:
    assert ET.fromstring(report.picture([made()], "2.13.0")).tag == f"{SVG}svg"


# Amounts.


@pytest.fixture(scope="module")
def bench() -> Any:
    need_torch()
    return Bench(large=LARGE)


def by_what(made: Experiment) -> dict[str, Line]:
    found = {one.what: one for one in made.lines}
    assert len(found) == len(made.lines)
    return found


def held(shapes: Shapes, n: int, rank: int) -> int:
    """Bytes of float32 parameters, gradients and AdamW's state: rows dealt out in equal parts, and a count for each tensor.

    Parameters and gradients have the room of a whole part on every device; the optimizer's state is of the rows that a device has.
    """
    room = own = 0
    for weight in shapes.weights:
        rows, part = weight.shape[0], math.ceil(weight.shape[0] / n)
        room += part * (weight.elements // rows)
        own += max(0, min(rows, part * (rank + 1)) - part * rank) * (weight.elements // rows)
    return 8 * room + 8 * own + 4 * sum(1 for _ in shapes.weights)


def test_memory_is_what_the_sizes_say(bench: Any) -> None:
    found = memory(bench)
    assert found.holds, as_text.text(report.document([found], ""))
    lines = by_what(found)
    large, small = bench.large, bench.small
    for n, rank, shapes, what in (
        (8, 0, large, "ddp : fsdp2, large, N = 8: model states"),
        (24, 0, large, "ddp : fsdp2, large, N = 24, device 0: model states"),
        (24, 23, large, "ddp : fsdp2, large, N = 24, device 23: model states"),
        *((4, rank, small, f"ddp : fsdp2, small, N = 4, device {rank}: model states") for rank in range(4)),
    ):
        assert lines[what].measured == Fraction(held(shapes, 1, 0), held(shapes, n, rank)), what
        assert lines[what].ideal == n
    assert lines["ddp : fsdp2, large, N = 8: parameters"].measured == 8
    assert lines["ddp : fsdp2, large, N = 24, device 0: model states"].measured < 24  # type: ignore[operator]
    assert "their ratio N" in found.says[0]


class Told(Bench):
    """What would be measured if every prediction were right: no torch is needed."""

    def fake(self, subject: str, shapes: Shapes, devices: int, rank: int = 0) -> Any:
        return predicted("ddp" if subject == "unwrapped" else subject, shapes, {"dp": devices}, rank=rank)

    def real(self, subject: str) -> Any:
        return [self.fake(subject, self.small, self.processes, rank) for rank in range(self.processes)]


def test_the_page_shows_what_the_experiments_say() -> None:
    """Of memory and traffic all; of training what does not depend on the machine."""
    page = PAGE.read_text(encoding="utf-8")
    shown = as_text.text(report.document([memory(Told()), traffic(Told())], "")).partition("\n\n")[2].rstrip("\n")
    for block in shown.split("\n\n"):
        assert f"{block}\n" in page, block
    assert re.search(r"the longest sum +- +<= 53 +36  holds", page)


def padded(shapes: Shapes, n: int, *, root: bool = True) -> int:
    """Elements with every tensor's rows filled up to equal parts."""
    units = shapes.units if root else shapes.units[1:]
    return sum(math.ceil(w.shape[0] / n) * n * (w.elements // w.shape[0]) for u in units for w in u.weights)


def test_traffic_is_what_the_sizes_say(bench: Any) -> None:
    found = traffic(bench)
    assert found.holds, as_text.text(report.document([found], ""))
    lines = by_what(found)
    large, middle, small = bench.large, bench.middle, bench.small
    assert lines["fsdp2_all, large, N = 8"].measured == 3
    assert lines["fsdp2, large, N = 8"].measured == 3 - Fraction(large.units[0].elements, large.elements)
    assert lines["ddp, middle, N = 8"].measured == 2
    assert lines["fsdp2_all : ddp, middle, N = 8"].measured == Fraction(3, 2)
    assert lines["fsdp2 : ddp, middle, N = 8"].measured == Fraction(3, 2) - Fraction(middle.units[0].elements, 2 * middle.elements)
    whole, inner = padded(small, 4), padded(small, 4, root=False)
    assert lines["fsdp2_all : ddp, small, N = 4"].measured == Fraction(3 * whole, 2 * small.elements)
    assert lines["fsdp2 : ddp, small, N = 4"].measured == Fraction(2 * whole + inner, 2 * small.elements)
    assert all(one.departs == ("small" in one.what) for one in found.lines)


def test_a_wrong_prediction_is_noticed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root as if it were gathered again; only the lines of fsdp2 fail."""
    true: Callable[..., Any] = sizes.predicted
    monkeypatch.setattr(sizes, "predicted", lambda job, *rest, **named: true("fsdp2_all" if job == "fsdp2" else job, *rest, **named))
    found = sizes.traffic(bench)
    assert not found.holds
    assert {one.what for one in found.lines if not one.holds} == {one.what for one in found.lines if one.what.startswith("fsdp2,")} | {
        one.what for one in found.lines if one.what.startswith("fsdp2 :")
    }


def test_a_closed_form_that_departs_for_no_reason_is_noticed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sizes.FORMS, "fsdp2", "fsdp")
    wrong = [one for one in sizes.traffic(bench).lines if not one.holds]
    assert [one.what for one in wrong] == ["fsdp2, large, N = 8", "fsdp2 : ddp, middle, N = 8"]
    assert all(one.measured == one.predicted for one in wrong)


def test_one_byte_is_noticed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    true: Callable[..., Any] = sizes.predicted

    def off(*given: Any, **named: Any) -> Any:
        found = true(*given, **named)
        return replace(found, memory={**found.memory, "optimizer": found.memory["optimizer"] + (given[0] == "fsdp2")})

    monkeypatch.setattr(sizes, "predicted", off)
    holds = {one.what: one.holds for one in sizes.memory(bench).lines}
    assert {what for what, held in holds.items() if held} == {
        "the module alone : ddp, middle: model states",
        "ddp : fsdp2, large, N = 8: parameters",
        "ddp : fsdp2, large, N = 8: gradients",
    }


def test_importing_the_experiments_needs_no_torch() -> None:
    code = (
        "import sys; import placeproof.cli.experiment, placeproof.measure.experiments.catalogue, placeproof.report.experiment; "
        "sys.exit('torch' in sys.modules or 'sympy' in sys.modules)"
    )
    assert importlib.util.find_spec("placeproof") is not None
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ticks_of_a_linear_scale_are_even() -> None:
    scale = picture._Scale(0.0, 12.0, log=False)
    ticks = scale.ticks()
    assert [text for _, text in ticks] == ["0", "2", "4", "6", "8", "10", "12"]
    assert all(place == pytest.approx(scale.at(float(text))) for place, text in ticks)
