"""The documentation: it builds without warnings, loads nothing from a network, and every example in it is run."""

from __future__ import annotations

import copy
import doctest
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from samples import NIGHTLY

from placeproof.cli.main import program, run
from placeproof.core.mesh import SPLITS
from placeproof.core.precision import PRECISIONS
from placeproof.importers import SYSTEMS
from placeproof.strategies import names, template

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(p for p in DOCS.rglob("*.md") if not {"_build", "theorems"} & set(p.parts)), ROOT / "README.md"]
SCHEMA = json.loads((DOCS / "reference" / "derive.schema.json").read_text(encoding="utf-8"))
KEY = re.compile(r"\b[a-z]+(?:19|20)\d\d[a-z]*\b")


# Building.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed")
    out = tmp_path_factory.mktemp("docs")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-D",
        f"theorem_statements={1 if NIGHTLY else 16}",
        "-d",
        str(out / "doctrees"),
        str(DOCS),
        str(out / "html"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


class Assets(HTMLParser):
    """What a page loads by itself: not what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        loads = {"a": (), "link": ("href",)}.get(tag, ("src", "srcset", "data", "poster", "href", "xlink:href"))
        self.found += [said[name] for name in loads if name in said]
        self.found += re.findall(r"url\(([^)]*)\)", said.get("style", ""))


def external(reference: str) -> bool:
    return re.match(r"\s*[\"']?(?:[a-z][a-z0-9+.-]*:)?//", reference, re.IGNORECASE) is not None


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<script src="https://a.example/x.js"></script>', True),
        ('<script src="//a.example/x.js"></script>', True),
        ('<link rel="stylesheet" href="http://a.example/x.css">', True),
        ('<p style="background: url(https://a.example/x.png)">', True),
        ('<a href="https://a.example/">text</a>', False),
        ('<script src="_static/x.js"></script><math xmlns="http://www.w3.org/1998/Math/MathML">', False),
    ],
)
def test_external_assets_are_seen(page: str, expected: bool) -> None:
    assert any(map(external, Assets(page).found)) is expected


def test_pages_load_nothing_from_a_network(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) >= len(PAGES) - 1
    bad = {p.name: [r for r in Assets(p.read_text(encoding="utf-8")).found if external(r)] for p in pages}
    assert not {name: found for name, found in bad.items() if found}
    styles = {
        p.name: re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]*)", p.read_text(encoding="utf-8"))
        for p in built.rglob("*.css")
    }
    assert styles
    assert not {name: found for name, found in styles.items() if found}


def test_pages_are_generated(built: Path) -> None:
    """Every marker was replaced, and formulas are MathML."""
    for page in built.rglob("*.html"):
        assert "<!-- generated:" not in page.read_text(encoding="utf-8"), page.name
    strategies = (built / "reference" / "strategies.html").read_text(encoding="utf-8")
    assert "<math" in strategies
    assert all(f'id="{name.replace("_", "-")}"' in strategies for name in names())
    errors = (built / "reference" / "errors.html").read_text(encoding="utf-8")
    assert "placeproof has a bug" not in errors
    options = (built / "reference" / "command-line.html").read_text(encoding="utf-8")
    commands = program.commands.items()
    every = [f"{name}{p.opts[0]}" for name, command in commands for p in command.params if p.opts[0].startswith("--")]
    assert len(every) > 100
    assert not [name for name in every if f'id="{name}"' not in options]
    assert "data:image/svg+xml;base64," in (built / "tutorial" / "plan-a-run.html").read_text(encoding="utf-8")


def test_public_files_of_every_system_are_counted(built: Path) -> None:
    """Each file once, in one of the columns; of the configurations as many as are listed."""
    page = (built / "reference" / "public-files.html").read_text(encoding="utf-8")
    counts, listed = (re.findall(r"<tr class=.*?</tr>", part, re.DOTALL)[1:] for part in page.split("</table>")[:2])
    rows = {}
    for row in counts:
        title, *numbers = (re.sub("<.*?>", "", cell).strip() for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL))
        rows[title.replace("’", "'")] = [int(number or 0) for number in numbers]
    assert all(files == sum(apart) and files >= 10 for files, *apart in rows.values()), rows
    assert {system.title for system in SYSTEMS.values()} <= {*rows}
    assert rows["all"][0] >= 300
    assert len(listed) == sum(rows[system.title][0] for system in SYSTEMS.values())


# Running the examples of a page.


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. ``file``: the name in the comment before it; ``night``: its commands take long, and are run at night."""

    language: str
    text: str
    line: int
    file: str | None
    night: bool


FENCE = re.compile(
    r"(?:^<!-- (?:file: (?P<file>\S+)|(?P<night>at night)) -->\n)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        line = text[: found.start("text")].count("\n") + 1
        night = found["night"] is not None
        yield Block(language=found["language"].strip(), text=found["text"], line=line, file=found["file"], night=night)


def commands(block: Block) -> Iterator[tuple[int, str, list[str]]]:
    """The commands of a console block: line, command, and the lines shown below it."""
    shown: list[str] = []
    at, command = 0, None
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if line.startswith("$ "):
            if command is not None:
                yield at, command, shown
            at, command, shown = number, line[2:], []
        else:
            assert command is not None, f"line {number}: output without a command"
            shown.append(line)
    assert command is not None, f"line {block.line}: a console block without a command"
    yield at, command, shown


def executed(command: str) -> list[str]:
    """What a command prints, results and messages, unless it writes to a file."""
    program, *arguments = shlex.split(command)
    if program == "pytest":
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments], capture_output=True, text=True, check=False
        )
        return ran.stdout.splitlines()
    if (program, *arguments[:2]) == ("python", "-m", "placeproof.verify"):
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False).stdout.splitlines()
    assert program == "placeproof", f"only placeproof and pytest are run here, not {program!r}"
    target = None
    if ">" in arguments:
        *arguments, _, target = arguments
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        run(arguments)
    if target is not None:
        Path(target).write_text(out.getvalue(), encoding="utf-8")
    return ([] if target else out.getvalue().splitlines()) + err.getvalue().splitlines()


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines are as shown, where ``...`` stands for any lines."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(agrees(shown[1:], printed[skip:]) for skip in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and agrees(shown[1:], printed[1:])


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (["a", "b", "c"], True),
        (["a", "...", "c"], True),
        (["...", "b", "..."], True),
        (["..."], True),
        (["a", "b", "c", "..."], True),
        (["a", "b"], False),
        (["a", "...", "b"], False),
        (["c", "...", "a"], False),
        ([], False),
    ],
)
def test_ellipsis_stands_for_any_lines(shown: list[str], expected: bool) -> None:
    assert agrees(shown, ["a", "b", "c"]) is expected


def run_console(block: Block) -> None:
    for line, command, shown in commands(block):
        printed = executed(command)
        if not agrees(shown, printed):
            absent = [text for text in shown if text != "..." and text not in printed] or ["(the order, or a missing `...`)"]
            pytest.fail("\n".join([f"line {line}: {command}", "not printed:", *absent, "printed:", *printed]), pytrace=False)


def run_python(block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, "page", "page", block.line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(report)


@pytest.mark.every_case
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "<!-- needs: torch -->" in page.read_text(encoding="utf-8") and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: the page runs real processes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("PLACEPROOF_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.file is not None:
            Path(block.file).parent.mkdir(exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console" and block.night and not NIGHTLY:
            continue
        elif block.language == "console":
            run_console(block)
        elif block.language == "python":
            assert ">>> " in block.text, f"line {block.line}: neither a doctest nor a file"
            run_python(block, names)
        else:
            assert block.language in ("sh", "text", "") or block.language.startswith("{"), f"line {block.line}: {block.language} is not run"


def test_there_are_examples_to_run() -> None:
    languages = {block.language for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))}
    assert {"console", "python", "toml"} <= languages


# The JSON contract.


def derived(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["derive", *arguments, "--json"]) == 0, capsys.readouterr().err
    loaded = json.loads(capsys.readouterr().out)
    assert isinstance(loaded, dict)
    return loaded


def alone(name: str) -> str:
    """An expression for a catalogue strategy, with what it builds on."""
    found = template(name)
    assert found is not None
    return f"tp * {name}" if found.needs else name


SUBJECTS = [
    *(alone(name) for name in names()),
    "zero1(64) * tp(8) * pp(16)",
    "hsdp(8, 4) * tp * sp * pp * checkpoint",
    "zero_infinity(prefetch=true) * accumulate(4)",
    "zeropp(16, node=8) * tp * zero_r(checkpoints=host)",
]
VALUES = ["--set", "P=7e9", "--set", "U=1e8", "--set", "A=1e9", "--set", "m=4", "--set", "b_g=1/2"]


def test_the_schema_is_a_schema() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)
    defined = SCHEMA["$defs"]
    assert defined["axis"]["properties"]["splits"]["enum"] == list(SPLITS)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_json_is_as_the_schema_says(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    Draft202012Validator(SCHEMA).validate(derived(capsys, subject))


@pytest.mark.parametrize(
    "subject", ["ddp(8)", "zero3(8)", "zero_offload(8)", "fsdp(16, reshard_after_forward=8)", "zero1(2) * tp(2) * pp(2)"]
)
def test_json_with_numbers_is_as_the_schema_says(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = derived(capsys, subject, *VALUES)
    Draft202012Validator(SCHEMA).validate(found)
    assert found["values"]["memory"]["model_states"] > 0


def test_a_program_is_as_the_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.step"
    path.write_text("mesh(dp)\nx = backward(parameters)\nx = all_reduce(x, dp)\nparameters, optimizer = update(parameters, optimizer, x)\n")
    Draft202012Validator(SCHEMA).validate(derived(capsys, str(path)))


def _drop(data: dict[str, Any]) -> None:
    del data["memory"]["host"]


def _extra(data: dict[str, Any]) -> None:
    data["traffic"]["events"][0]["extra"] = "1"


def _text_for_a_number(data: dict[str, Any]) -> None:
    data["values"]["memory"]["model_states"] = "140000000000"


def _number_for_an_expression(data: dict[str, Any]) -> None:
    data["memory"]["peak"] = 3


def _unknown_memory(data: dict[str, Any]) -> None:
    data["memory"]["cache"] = "P"


def _version(data: dict[str, Any]) -> None:
    data["schema"] = "placeproof.derive/2"


def _collective(data: dict[str, Any]) -> None:
    data["traffic"]["events"][0]["collective"] = "all-reduce"


def _top(data: dict[str, Any]) -> None:
    data["seconds"] = 1


BREAK = [_drop, _extra, _text_for_a_number, _number_for_an_expression, _unknown_memory, _version, _collective, _top]


@pytest.mark.parametrize("spoil", BREAK)
def test_the_schema_refuses_what_is_not_in_the_contract(
    spoil: Callable[[dict[str, Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    data = copy.deepcopy(derived(capsys, "zero3(8)", *VALUES))
    spoil(data)
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(data)


# Sources.


def bibliography() -> set[str]:
    return set(re.findall(r"^@\w+\{(\w+),$", (DOCS / "references.bib").read_text(encoding="utf-8"), re.MULTILINE))


def test_every_strategy_names_a_source_of_the_bibliography() -> None:
    for name in names():
        found = template(name)
        assert found is not None
        for part in found.source.split(";"):
            assert set(KEY.findall(part)) & bibliography(), f"{name}: {part}"


def test_every_key_in_the_code_is_in_the_bibliography() -> None:
    files = [p for p in (ROOT / "placeproof").rglob("*") if p.suffix in (".py", ".toml")]
    lines = [line for p in files for line in p.read_text(encoding="utf-8").splitlines() if re.search(r"\b(?:source|cite)\s*=", line)]
    used = {key for line in lines for key in KEY.findall(line)} | {key for p in PRECISIONS.values() for key in KEY.findall(p.source)}
    assert used
    assert used <= bibliography()


def test_every_source_that_a_page_names_is_in_the_bibliography() -> None:
    for page in PAGES:
        anchors = set(re.findall(r"sources\.md#(\w+)", page.read_text(encoding="utf-8")))
        assert anchors <= bibliography(), page.name
