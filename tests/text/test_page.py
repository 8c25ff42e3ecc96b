"""Pages: one file that loads nothing, in which every figure is one of the JSON, and every word of the text is there."""

from __future__ import annotations

import html
import json
import re
from fractions import Fraction
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from placeproof.cli.main import run
from placeproof.report import text as as_text
from placeproof.report.document import Lines, Notes, Table
from placeproof.report.hypertext import formula
from placeproof.report.page import page
from placeproof.report.page.charts import charts
from placeproof.report.page.elements import element
from placeproof.report.units import figure, giga, percent, seconds_text

DENSE = ("derive", "fsdp(8) * tp(8) * sp * pp(4)", "--model", "llama3-8b")
COMMANDS: dict[str, tuple[str, ...]] = {
    "strategy": ("derive", "zero3", "--set", "N=8", "--set", "P=7e9", "--set", "A=1e9", "--set", "U=2e8"),
    "formulas": ("derive", "zero2 * tp"),
    "model": DENSE,
    "cluster": (*DENSE, "--cluster", "dgx-h100"),
    "compare": ("compare", "zero2", "zero3", "--set", "N=8", "--set", "P=7e9"),
    "compare models": ("compare", "fsdp(64)", "fsdp(8) * tp(8) * sp", "--model", "llama3-8b", "--cluster", "dgx-h100"),
    "proved": ("prove", "zero3(4)"),
    "refuted": ("prove", "<unscaled>.step"),
    "program": ("derive", "<unscaled>.step", "--set", "P=7e9", "--set", "N=8"),
    "check": ("check", "kernel.sum_is_additive"),
    "plan": (
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--devices",
        "2",
        "--global-batch",
        "16",
        "--only",
        "data=zero3",
        "--top",
        "3",
    ),
}
#: Figures that have to be among those of a page, by their places.
SHOWN = {
    "strategy": r"/values/memory/(parameters|gradients|optimizer|activations|transient|peak)|/values/traffic/by_axis/.*",
    "model": r"/stages/\d+/(memory/(parameters|gradients|optimizer|activations|transient|peak)|traffic/.*)/value",
    "cluster": r"/time/(stages/\d+/(T_F|T_B|T_W|send|once|idle|links/.*)|terms/.*|memory|seconds/step)",
    "compare": r"/strategies/\d+/values/.*(model_states|sent_per_device)",
    "compare models": (
        r"/strategies/\d+/(figures/(peak|model_states|activations)/value|time/(seconds|mfu|tokens_.*))|/strategies/0/time/memory"
    ),
    "check": "/(proved|refuted_as_expected|open|unexpected|undecided)",
    "plan": r"/plans/\d+/(seconds|most|mfu|peak|room)",
}
WRITTEN = {"giga": giga, "seconds": seconds_text, "percent": percent, "number": figure}
WRONG = """program("<script>alert(1)</script>")
mesh(dp)
# a comment
for m in microbatches:
    gradients += all_reduce(backward(parameters, m), dp)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


class Page(HTMLParser):
    """The text of a page, its figures, what it would load, and elements that are not closed."""

    VOID = ("meta", "input", "br", "rect", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said, self.tags = "", set[str]()
        self.figures: list[tuple[dict[str, str | None], str]] = []
        self.marked: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open += [] if tag in self.VOID else [tag]
        for name, value in attrs:
            assert name not in ("src", "href", "srcset", "action", "xlink:href"), (tag, value)
            if name == "alttext":
                self.said += f" {value} "
        if tag == "data":
            self.figures.append((dict(attrs), ""))
        if dict(attrs).get("class") in ("wrong", "cost"):
            self.marked.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "data":
            self.figures[-1] = (self.figures[-1][0], self.figures[-1][1] + data)
        if "math" not in self.open and "style" not in self.open:
            self.said += data + " "
        if self.marked and self.open and self.open[-1] in ("span", "td", "strong"):
            self.marked[-1] += data


@cache
def made(name: str) -> tuple[str, Any]:
    """The page of a command, and its JSON; both of the same run."""
    import contextlib
    import io
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path, step = Path(folder) / "page.html", Path(folder) / "<unscaled>.step"
        step.write_text(WRONG, encoding="utf-8")
        command = [str(step) if part.endswith(".step") else part for part in COMMANDS[name]]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert run([*command, "--json", "--html", str(path)]) in (0, 1)
        return path.read_text(encoding="utf-8"), json.loads(output.getvalue())


def at(data: Any, pointer: str) -> Any:
    """What a JSON pointer points to (RFC 6901)."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def numbers(data: Any, path: str = "") -> dict[str, float]:
    """Every number of data by its place."""
    if isinstance(data, dict):
        return {p: n for k, v in data.items() for p, n in numbers(v, f"{path}/{k.replace('~', '~0').replace('/', '~1')}").items()}
    if isinstance(data, list):
        return {p: n for i, v in enumerate(data) for p, n in numbers(v, f"{path}/{i}").items()}
    return {path: data} if isinstance(data, int | float) and not isinstance(data, bool) else {}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_figure_is_one_of_the_json(name: str) -> None:
    """Its number, and how it is written; and none that has to be there is left out."""
    text, data = made(name)
    page = Page(text)
    for attributes, written in page.figures:
        value = at(data, str(attributes["data-at"]))
        assert attributes["value"] == json.dumps(value)
        assert written == WRITTEN[str(attributes["data-as"])](Fraction(value))
    shown = {str(attributes["data-at"]) for attributes, _ in page.figures}
    wanted = {place for place in numbers(data) if re.fullmatch(SHOWN.get(name, "no figure"), place)}
    assert wanted <= shown
    assert bool(wanted) is (name in SHOWN)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_loads_nothing(name: str) -> None:
    """It is a whole file, well formed and below 3 MB, and says so to the browser, which refuses what it does not allow."""
    text, _ = made(name)
    page = Page(text)
    assert len(text.encode()) < 3_000_000
    assert text.startswith("<!DOCTYPE html>")
    assert "content=\"default-src 'none';" in text
    assert not page.tags & {"link", "img", "iframe", "object", "embed"}
    assert "url(" not in text
    assert "@import" not in text
    assert "<script>alert" not in text


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("fsdp(8) * tp(8) * sp", {"m": 4}),
        ("zero_offload(8) * checkpoint(checkpoints=host)", {}),  # columns of the host
        ("fsdp(8)", {"implementation": "pytorch-2.13"}),  # another name of what a pass takes
    ],
)
def test_a_page_says_what_the_text_says(strategy: str, options: dict[str, Any]) -> None:
    """Each cell and each line, in full, and each head of a column."""
    import placeproof

    answer = placeproof.model(strategy, "llama3-8b", b=1, **options)
    said = squeezed(Page(page(answer.document)).said)
    for section in answer.document.sections():
        assert squeezed(section.title) in said
        tables = [part for part in section.parts if isinstance(part, Table)]
        cells = [c for table in tables for row in (table.head, *table.rows) for c in row if isinstance(c, str)]
        lines = [line for part in section.parts if isinstance(part, Notes | Lines) for line in part.lines]
        assert all(squeezed(text) in said for text in (*cells, *lines)), [t for t in (*cells, *lines) if squeezed(t) not in said]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_table_is_there_twice(name: str) -> None:
    """A table that is drawn is not listed again below it; what its section says beside it is."""
    text, _ = made(name)
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert [title for title in set(titles) if titles.count(title) > 1] == []
    if name == "model":
        assert titles.count("memory of a device by stage, GB") == 1
    assert "<section></section>" not in text


def squeezed(text: str) -> str:
    """Text without spaces, and without backticks: a page has code between them as an element."""
    return "".join(text.replace("`", "").split())


def test_wrong_lines_and_elements_are_marked() -> None:
    """Without the division by dp the gradient is too large: the line of the update, and elements with what one device has."""
    text, data = made("refuted")
    found = data["counterexample"]
    page = Page(text)
    wrong = [
        one
        for one in found["run"]["ends"]
        for element, n in one["parameters"].items()
        if n != found["run"]["reference"]["parameters"][element]
    ]
    assert wrong
    assert text.count('<td class="wrong">') >= len(wrong)
    assert text.count('<span class="wrong">') >= 1
    assert f"<strong>{found['actual']}</strong> instead of {found['expected']}" in text
    assert "refuted" in page.said
    assert "&lt;unscaled&gt;.step: refuted" in text


def test_each_plan_is_held_against_its_own_room() -> None:
    """Rooms differ by the groups that a device exchanges with: one that needs more than another's room may fit."""
    told = {"strategy": "ddp(2)", "b": 1, "m": 1, "recompute": "none", "verdict": "proved", "fits": None, "seconds": 1, "mfu": 0.5}
    plans = [{**told, "peak": peak, "most": peak, "room": room, "time": {"computing": 1}} for peak, room in ((60, 64), (70, 80), (81, 80))]
    _, memory = map(element, charts({"schema": "placeproof.plan/1", "plans": plans}, {}))
    assert re.findall(r'<div class="(row.*?)">.*?<b style="left:(.*?)%"', memory) == [
        ("row", "79.012"),
        ("row", "98.765"),
        ("row over", "98.765"),
    ]
    assert re.findall(r'data-at="(.*?)"', memory) == [f"/plans/{i}/{name}" for i in range(3) for name in ("peak", "room")]


def test_findings_look_like_findings() -> None:
    """What is unexpected or undecided, in the picture and in the tables, and nothing else."""
    standings = ["proved", "refuted as expected", "open", "unexpected", "undecided"]
    told = {"id": "mine.one", "says": "It holds.", "expected": "proved", "verdict": "refuted"}

    def shown(*of: str) -> list[str]:
        counts = {one.replace(" ", "_"): of.count(one) for one in standings}
        return [*map(element, charts({"schema": "placeproof.check/1", **counts, "results": [{**told, "standing": one} for one in of]}, {}))]

    stand, theorems = shown(*standings)
    assert re.findall(r'<li><i class="(\w+)"></i>(.*?)</li>', stand) == [*zip(("s0", "s1", "s2", "wrong", "doubt"), standings, strict=True)]
    cells = re.findall(r'<td class="figure ?(\w*)"><data value="1" data-at="/(\w+)"', stand)
    assert [look for look, _ in cells] == ["", "", "", "wrong", "doubt"]
    assert re.findall(r'<td class="(\w+)"><strong>(\w+)<', theorems) == [("wrong", "unexpected"), ("doubt", "undecided")]
    assert not [text for text in shown("proved", "open") if '<td class="figure wrong' in text or "<strong>" in text]


def test_what_is_suspected_looks_like_nothing_that_is_proved() -> None:
    """A solver found a model in which it does not hold: neither is it proved nor refuted."""
    text, data = made("refuted")
    told = dict.fromkeys(("proved", "refuted", "suspected"), 0)
    for one in data["obligations"]:
        told["suspected" if one["suspected"] else one["verdict"]] += 1
    assert all(told.values())
    looks = dict(zip(told, ("cost", "wrong", "doubt"), strict=True))
    assert {word: text.count(f'<span class="{look}">{word}: ') for word, look in looks.items()} == told
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert len({re.search(rf"span{which} {{[^}}]*border-left: 3px (\w+)", style)[1] for which in ("", ".wrong", ".doubt")}) == 3  # type: ignore[index]


def test_what_users_write_is_text() -> None:
    """A program's name is a title, whatever it looks like."""
    assert "<h1>&lt;script&gt;alert(1)&lt;/script&gt;: a step program, as written</h1>" in made("program")[0]


def test_nothing_of_a_proved_step_is_marked_as_wrong() -> None:
    assert 'class="wrong"' not in made("proved")[0]


def lines_of(text: str) -> dict[int, str]:
    """What stands in each line of a program, and what is said of it."""
    return {int(n): re.sub("<[^>]*>", " ", line) for n, line in re.findall(r'<li value="(\d+)">(.*?)</li>', text)}


def test_lines_have_the_numbers_of_the_file() -> None:
    """Comments and what is left out of a header move nothing: what is said of a line stands beside that line."""
    text, data = made("refuted")
    shown, file = lines_of(text), WRONG.split("\n")
    assert set(shown) == {4, 5, 6}
    for number, line in shown.items():
        assert line.strip().startswith(html.escape(file[number - 1].strip()))
    for one in data["obligations"]:
        assert html.escape(one["name"]) in shown[one["line"]]
    assert "refuted: update reads the gradient of the global batch" in shown[6]


def test_lines_that_send_are_marked() -> None:
    """By the line that the JSON names, with what it sends."""
    text, data = made("formulas")
    lines = data["program"].split("\n")
    for event in data["traffic"]["events"]:
        assert event["collective"] in lines[event["line"] - 1]
    assert text.count('<span class="cost">') == len(data["traffic"]["events"]) + len(data["peak_at"])


@pytest.mark.parametrize("strategy", ["fsdp(2) * pp(4)", "pp(4, schedule=interleaved, chunks=2) * tp(2)", "pp(4, schedule=zb-h1)"])
def test_idle_shares_are_those_of_the_timetable(strategy: str) -> None:
    """What JSON says a stage waits, against the passes that are drawn."""
    import placeproof
    from placeproof.cost.model.time import timeline

    answer = placeproof.model(strategy, "llama3-8b", b=1, m=8).time("dgx-h100")
    table = timeline(answer)
    assert table is not None
    assert [one["idle"] for one in answer.data["stages"]] == pytest.approx([float(table.idle(d) / table.step) for d in range(table.p)])


def test_formulas_are_mathematics() -> None:
    import sympy

    theta, n = sympy.symbols("b_theta N_dp")
    told = formula(theta * (n - 1) / n)
    assert told.startswith('<math alttext="b_theta*(N_dp - 1)/N_dp">')
    assert "<mfrac>" in told
    assert "<msub><mi>b</mi><mi>&#952;</mi></msub>" in told
    assert told.count("<mo>(</mo>") == told.count("<mo>)</mo>") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("derive", "zero3", "--html", "a.txt"), "a page is written as HTML"),
        (("derive", "zero3", "--html", "nowhere/a.html"), "no file can be written there"),
        (("derive", "zero3", "--latex", "--html", "a.html"), "prints something else than a page has"),
        (("plan", "--sweep", "a.toml", "--html", "a.html"), "a sweep's file says what is asked"),
        (("prove", "zero3", "--html", "a.png"), "a page is written as HTML"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments]) == 2
    assert told in capsys.readouterr().err


def test_renderers_and_pages_share_cells() -> None:
    """A page has the numbers of the text beside its own."""
    import placeproof

    answer = placeproof.derive("zero3", N=8, P=7e9)
    assert "14 GB (13.0385 GiB)" in as_text.text(answer.document)
    assert "14 GB (13.0385 GiB)" in answer._repr_html_()
