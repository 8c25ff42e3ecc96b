"""The picture of a schedule: boxes where the simulation says, none over another, numbers inside their boxes and legible."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from placeproof.report.pictures.schedule import svg
from placeproof.schedules import Times, Timetable, load, names, simulate

SVG = "{http://www.w3.org/2000/svg}"
BOX = re.compile(r"(F|BW|B|W)\d")
CASES = [
    ("gpipe", 4, 8, None),
    ("1f1b", 4, 8, None),
    ("1f1b", 16, 64, None),
    ("interleaved", 4, 8, 3),
    ("zb-h1", 4, 8, None),
    ("zb-v", 4, 8, None),
    ("dualpipe", 4, 12, None),
]


def step(name: str, p: int, m: int, v: int | None) -> Timetable:
    return simulate(load(name), p=p, m=m, v=v, times=Times(forward=2, backward=2, weight=2, overlapped=5))


def drawn(table: Timetable) -> tuple[ElementTree.Element, list[dict[str, float]], list[dict[str, float]]]:
    """The picture, its boxes, and the grey rows behind them: x, y, width and height."""
    root = ElementTree.fromstring(svg(table))
    rects = [(r.get("class", ""), {key: float(r.get(key, 0)) for key in ("x", "y", "width", "height")}) for r in root.iter(f"{SVG}rect")]
    field = [box for name, box in rects if name == "idle"][1:]  # the first one is in the legend
    return root, [box for name, box in rects if BOX.fullmatch(name) and box["y"] >= field[0]["y"]], field


@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_boxes_lie_where_passes_run(name: str, p: int, m: int, v: int | None) -> None:
    table = step(name, p, m, v)
    _, boxes, field = drawn(table)
    assert len(boxes) == sum(len(run.slot) for device in table.runs for run in device)
    drawn_boxes = iter(boxes)
    for row, device in zip(field, table.runs, strict=True):
        scale = row["width"] / float(table.step)
        for run in device:
            for n in range(len(run.slot)):
                box = next(drawn_boxes)
                assert box["x"] == pytest.approx(row["x"] + float(run.start) * scale, abs=0.02)
                assert 0 <= float(run.end - run.start) * scale - box["width"] <= 1
                assert row["y"] + n * row["height"] / len(run.slot) == pytest.approx(box["y"], abs=0.02)
                assert box["y"] + box["height"] <= row["y"] + row["height"] + 0.01


@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_nothing_overlaps_and_everything_is_inside(name: str, p: int, m: int, v: int | None) -> None:
    root, boxes, field = drawn(step(name, p, m, v))
    width, height = (float(part) for part in root.get("viewBox", "").split()[2:])
    for above, below in pairwise(field):
        assert above["y"] + above["height"] < below["y"]
    for row in field:
        lanes: dict[float, list[dict[str, float]]] = {}
        for box in boxes:
            if row["y"] <= box["y"] < row["y"] + row["height"]:
                lanes.setdefault(box["y"], []).append(box)
        for lane in lanes.values():
            assert all(a["x"] + a["width"] <= b["x"] + 0.02 for a, b in pairwise(sorted(lane, key=lambda box: box["x"])))
        assert row["x"] + row["width"] < width
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", 0)) <= width
        assert 0 <= float(text.get("y", 0)) <= height
        if text.get("text-anchor") is None and "n" not in text.get("class", "").split() and "s" not in text.get("class", "").split():
            assert float(text.get("x", 0)) + 6.9 * len(text.text or "") <= width + 1, text.text


@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_numbers_lie_in_their_boxes(name: str, p: int, m: int, v: int | None) -> None:
    table = step(name, p, m, v)
    root, boxes, _ = drawn(table)
    numbers = [t for t in root.iter(f"{SVG}text") if {"n", "s"} & set(t.get("class", "").split())]
    assert (p < 16) == bool(numbers)
    for text in numbers:
        x, y, size = float(text.get("x", 0)), float(text.get("y", 0)), 11 if "n" in text.get("class", "").split() else 9
        inside = [b for b in boxes if b["x"] < x < b["x"] + b["width"] and b["y"] < y - size / 3 < b["y"] + b["height"]]
        assert len(inside) == 1
        half = len(text.text or "") * size * 0.58 / 2
        assert inside[0]["x"] <= x - half
        assert x + half <= inside[0]["x"] + inside[0]["width"]
        assert inside[0]["y"] <= y - size * 0.75
        assert y <= inside[0]["y"] + inside[0]["height"]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


LEGIBLE = [*((name, None) for name in names() if name != "interleaved"), *(("interleaved", v) for v in range(2, 9))]


@pytest.mark.parametrize(("name", "chunks"), LEGIBLE)
def test_numbers_are_legible(name: str, chunks: int | None) -> None:
    """Each number has a contrast of at least 4.5 to its box, as WCAG 2.1 asks of text, and the better one of two inks."""
    table = step(name, 2, 4, chunks) if chunks else step(name, 4, 12, None)
    text = svg(table)
    tones = dict(re.findall(r"^\.((?:F|BW|B|W)\d) \{ fill: (#\w{6}); \}$", text, re.MULTILINE))
    inks = dict(re.findall(r"^\.(onto|under) \{ fill: (#\w{6}); \}$", text, re.MULTILINE))
    pairs = dict(re.findall(r'<rect class="((?:F|BW|B|W)\d)"[^>]*/>\n<text class="\w (onto|under)"', text))
    assert pairs.keys() == tones.keys() if chunks else pairs
    for tone, on in pairs.items():
        shades = {ink: contrast(tones[tone], colour) for ink, colour in inks.items()}
        assert shades[on] == max(shades.values()) >= 4.5, (tone, on)


def test_what_is_said_above() -> None:
    root, _, _ = drawn(simulate(load("1f1b"), p=4, m=8))
    said = [text.text for text in root.iter(f"{SVG}text")]
    assert said[0] == "1f1b: p = 4 devices, m = 8 micro-batches"
    assert said[1] == (
        "step 33, bubble 9: 37.5 % of the time for which a device computes, 27.3 % of the step; "
        "a device keeps activations of at most 4 forwards"
    )
    assert [text for text in said if text and text.startswith("keeps")] == ["keeps 4", "keeps 3", "keeps 2", "keeps 1"]
    assert {"F: forward", "backward: both gradients", "idle", "0", "33"} <= set(said)
    assert svg(simulate(load("1f1b"), p=4, m=8)) == svg(simulate(load("1f1b"), p=4, m=8))


def test_a_pass_that_takes_no_time_has_no_box() -> None:
    table = simulate(load("zb-h1"), p=2, m=2, times=Times(forward=1, backward=1, weight=0))
    _, boxes, _ = drawn(table)
    assert len(boxes) == 8
    assert all(box["width"] > 0 for box in boxes)


def test_a_step_that_takes_no_time_can_be_drawn() -> None:
    _, boxes, field = drawn(simulate(load("gpipe"), p=2, m=1, times=Times(forward=0, backward=0)))
    assert not boxes
    assert len(field) == 2


def test_a_large_step_stays_small() -> None:
    root, boxes, _ = drawn(simulate(load("1f1b"), p=16, m=64))
    width, height = (float(part) for part in root.get("viewBox", "").split()[2:])
    assert width < 1700
    assert height < 600
    assert all(box["width"] > 3 for box in boxes)
