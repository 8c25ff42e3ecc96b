"""The picture of a model's memory and of its schedule: a standalone file whose rectangles are to scale."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from placeproof.cli.main import run
from placeproof.cost.model import derive_model
from placeproof.models import load
from placeproof.report.pictures.memory import MOST_PASSES, PASSES, SERIES, memory_picture, stacks
from placeproof.report.pictures.svg import STYLE
from placeproof.schedules import load as schedule
from placeproof.schedules import simulate
from placeproof.strategies import parse_strategy

SVG = "{http://www.w3.org/2000/svg}"
VALUES = {n: Fraction(v) for n, v in {"b": 1, "m": 8, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}.items()}
COMMAND = ["derive", "fsdp(4) * tp(4) * pp(4)", "--model", "llama3-8b", "--set", "b=1", "--set", "m=8"]


def drawn(path: Path, *arguments: str) -> ET.Element:
    assert run([*COMMAND, "--plot", str(path), *arguments]) == 0
    return ET.fromstring(path.read_text(encoding="utf-8"))


def widths(root: ET.Element, colour: str, high: float = 15.0) -> list[float]:
    return [float(r.attrib["width"]) for r in root.iter(f"{SVG}rect") if r.get("fill") == colour and float(r.attrib["height"]) == high]


def test_bars_are_to_scale(tmp_path: Path) -> None:
    root = drawn(tmp_path / "a.svg", "--cluster", "dgx-h100")
    bars = stacks(derive_model(load("llama3-8b"), parse_strategy("fsdp(4) * tp(4) * pp(4)")), VALUES)
    place = list(SERIES).index("optimizer")
    found = widths(root, SERIES["optimizer"])
    sizes = [float(b.parts[place]) for b in bars]
    scale = found[0] / sizes[0]
    assert found == pytest.approx([s * scale for s in sizes], abs=0.06)
    (line,) = (x for x in root.iter(f"{SVG}line") if x.get("class") == "memory")
    first = min(float(x.attrib["x1"]) for x in root.iter(f"{SVG}line") if x.get("class") == "grid")
    assert (float(line.attrib["x1"]) - first) / 80e9 == pytest.approx(scale, rel=0.01)


def test_each_pass_is_drawn_once(tmp_path: Path) -> None:
    root = drawn(tmp_path / "a.svg")
    assert len(widths(root, "#2e8b57")) == 4 + 4 * 8  # activations, backward
    assert not [x for x in root.iter(f"{SVG}line") if x.get("class") == "memory"]
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert "One forward, one backward: 8 micro-batches on 4 stages" in texts
    assert "floating-point operations" in texts


def test_a_picture_is_the_same_each_time_and_loads_nothing(tmp_path: Path) -> None:
    drawn(tmp_path / "a.svg", "--cluster", "dgx-h100")
    drawn(tmp_path / "b.svg", "--cluster", "dgx-h100")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://\S+?(?=[\"'])", text) == ["http://www.w3.org/2000/svg"]


def test_times_that_overlap_share_a_row_and_long_schedules_are_left_out() -> None:
    bars = stacks(derive_model(load("llama3-8b"), parse_strategy("pp(4)")), VALUES)
    table = simulate(schedule("dualpipe-v"), p=4, m=8)
    both = ET.fromstring(memory_picture("x", bars, None, table, "units"))
    assert widths(both, PASSES[next(k for k in PASSES if k.value == "F")][1], 7.5)
    long = simulate(schedule("1f1b"), p=4, m=MOST_PASSES // 8 + 1)
    assert "micro-batches" not in memory_picture("x", bars, None, long, "units")


def test_colours_are_told_apart_on_light_and_on_dark() -> None:
    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    backs = re.findall(r"\.back { fill: (#\w+)", STYLE)
    assert len(backs) == 2
    for colour in {*SERIES.values(), *(c for _, c in PASSES.values())}:
        for back in backs:
            low, high = sorted((luminance(colour), luminance(back)))
            assert (high + 0.05) / (low + 0.05) > 3, (colour, back)


def test_a_picture_needs_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "fsdp * tp(4) * pp(4)", "--model", "llama3-8b", "--plot", str(tmp_path / "a.svg")]) == 2
    assert "a picture needs numbers, and `N_dp` is not set" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, *_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert run([*COMMAND, "--plot", str(tmp_path / "a.svg")]) == 2
    told = capsys.readouterr()
    assert "No space left on device" in told.err
    assert told.out == ""
