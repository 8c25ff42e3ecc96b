"""What a page works out anew: its JavaScript, run by Node.js, against derivations of what the sliders say."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy

import placeproof
from placeproof.cli.main import run
from placeproof.report.page.sliders import javascript

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
#: Random places of the sliders.
POINTS = 50 if os.environ.get("PLACEPROOF_PROFILE") == "nightly" else 15


@cache
def page(*command: str) -> str:
    import contextlib
    import io
    import tempfile

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "page.html"
        assert run([*command, "--html", str(path)]) == 0
        return path.read_text(encoding="utf-8")


def sliders(text: str) -> dict[str, Any]:
    """What the page begins with, and its sliders."""
    found = re.search(r'<script type="application/json" id="live">(.*?)</script>', text)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def computed(text: str, points: list[dict[str, float]]) -> list[dict[str, Any]]:
    """What the page's own script makes of settings: each figure's number, and how it is written in gigabytes."""
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    each = "Object.entries(p.formulas).map(([at, f]) => [at, [f(v), p.giga(f(v))]])"
    result: list[dict[str, Any]] = mapped(script[1], f"(v) => Object.fromEntries({each})", points)
    return result


def mapped(script: str, function: str, values: list[Any]) -> Any:
    """Values through a function that uses what the page's script offers without a document, as `p`."""
    told = "JSON.parse(require('fs').readFileSync(0))"
    code = f"{script}\n;{{const p = globalThis.placeproof; console.log(JSON.stringify({told}.map({function})))}}"
    done = subprocess.run(["node", "-e", code], input=json.dumps(values), text=True, capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def at(data: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        data = data[int(step)] if isinstance(data, list) else data[step]
    return data


def drawn(told: dict[str, Any], seed: int) -> list[dict[str, float]]:
    """Settings of the sliders at random that the page does not refuse."""
    source, points = random.Random(seed), []
    while len(points) < POINTS:
        moved = {name: source.choice(positions) for name, positions in told["sliders"].items()}
        if not any(all(moved[name] == value for name, value in pair) for pair in told["refused"]):
            points.append({**told["values"], **moved})
    return points


@needs_node
def test_a_model_is_what_is_derived_there() -> None:
    """At random places of all sliders together: a strategy with those degrees, derived for itself, says the same."""
    from placeproof.report.units import giga

    text = page("derive", "fsdp(8) * tp(8) * sp * cp(2) * pp(2)", "--model", "llama3-8b")
    told = sliders(text)
    assert set(told["sliders"]) == {"N_dp", "N_tp", "N_cp", "b", "m", "s"}
    points = drawn(told, 1)
    for point, figures in zip(points, computed(text, points), strict=True):
        dp, tp, cp, b, m, s = (int(point[name]) for name in ("N_dp", "N_tp", "N_cp", "b", "m", "s"))
        data = placeproof.model(f"fsdp({dp}) * tp({tp}) * sp * cp({cp}) * pp(2)", "llama3-8b", b=b, m=m, s=s).data
        assert len(figures) >= 2 * (3 + 6)
        for place, (value, written) in figures.items():
            wanted = at(data, place)
            assert value == pytest.approx(wanted, rel=1e-12)
            assert written == giga(Fraction(wanted))


@needs_node
def test_strategies_side_by_side_are_what_is_compared_there(capsys: pytest.CaptureFixture[str]) -> None:
    """What strategies have alike is moved; one of several stages, of which another may become the fullest, stays as it is."""
    strategies = ["zero3(16)", "fsdp(4) * tp(4) * sp", "zero1(2) * tp(4) * pp(2)"]
    command = ["compare", *strategies, "--model", "llama3-8b", "--cluster", "dgx-h100"]
    text = page(*command, "--set", "b=2")
    told = sliders(text)
    assert set(told["sliders"]) == {"b", "s", "capacity"}
    points = drawn(told, 4)[:5]
    for point, figures in zip(points, computed(text, points), strict=True):
        capsys.readouterr()
        run([*command, "--set", f"b={int(point['b'])}", "--set", f"s={int(point['s'])}", "--json"])
        data = json.loads(capsys.readouterr().out)
        assert {place.split("/")[2] for place in figures} == {"0", "1"}
        assert len(figures) == 2 * 3
        for place, (value, _) in figures.items():
            assert value == pytest.approx(at(data, place), rel=1e-12)


@needs_node
def test_a_strategy_is_what_is_derived_there() -> None:
    text = page("derive", "zero3(8) * tp(4)", "--set", "P=7e9", "--set", "A=1e9", "--set", "U=2e8", "--set", "A_seq=1e8")
    told = sliders(text)
    assert {"N_dp", "N_tp", "P", "U"} <= set(told["sliders"])
    points = drawn(told, 2)
    for point, figures in zip(points, computed(text, points), strict=True):
        numbers = {name: Fraction(point[name]) for name in told["sliders"] if not name.startswith("N_")}
        data = placeproof.derive(f"zero3({int(point['N_dp'])}) * tp({int(point['N_tp'])})", **numbers).data
        assert figures
        for place, (value, _) in figures.items():
            assert value == pytest.approx(at(data, place), rel=1e-12)


@needs_node
def test_numbers_are_written_as_python_writes_them() -> None:
    """Also where a number lies in the middle of two, and where the digits carry."""
    text = page("derive", "zero3(8)", "--set", "P=7e9")
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    source = random.Random(3)
    numbers = [0.0, 12.625, 12.635, 0.125, 9999.9, 999.95, 1e-5, 1.5e-7, 100.0, 1234.5, 0.00099995]
    numbers += [source.uniform(0, 10) ** 9 for _ in range(300)]
    assert mapped(script[1], "(x) => p.general(x, 4)", numbers) == [f"{x:.4g}" for x in numbers]


def test_degrees_that_do_not_divide_are_no_positions() -> None:
    """Llama 3 8B has 8 heads of keys and values; with Ulysses' context parallelism both axes share them."""
    assert sliders(page("derive", "fsdp(8) * tp(2)", "--model", "llama3-8b"))["sliders"]["N_tp"] == [2, 4, 8]
    told = sliders(page("derive", "fsdp(2) * tp(2) * cp(2, attention=ulysses)", "--model", "llama3-8b"))
    refused = {tuple(sorted(map(tuple, pair))) for pair in told["refused"]}
    assert told["sliders"]["N_cp"] == told["sliders"]["N_tp"] == [2, 4]
    assert refused == {(("N_cp", 4), ("N_tp", 4))}


def test_what_has_no_word_in_javascript_is_left_out() -> None:
    n = sympy.Symbol("N</script>")
    assert javascript(n**2 / 3) == '(1/3)*Math.pow(v["N\\u003c/script>"], 2)'
    assert javascript(sympy.Function("strange")(n)) is None


def test_a_page_of_formulas_has_no_sliders() -> None:
    """Nothing moves where there are no numbers, and nothing runs."""
    text = page("derive", "zero3")
    assert "<script" not in text
    assert "script-src 'none'" in text


def test_an_order_that_is_searched_for_does_not_move() -> None:
    """With other numbers the search might find another one."""
    assert "<script" not in page("derive", "fsdp(2) * pp(4, microbatches=8, schedule=zb-2p)", "--model", "llama3-8b")
    assert "<script" in page("derive", "fsdp(2) * pp(4, microbatches=8, schedule=zb-h1)", "--model", "llama3-8b")
