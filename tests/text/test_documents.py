"""Documents and what is made of them: each kind of part in each form, written out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import sympy
import typer
from typer.testing import CliRunner

from placeproof.cli.options import option, takes
from placeproof.core.diagnostics import InputError, Problems
from placeproof.report import hypertext, renderers, text
from placeproof.report.document import Code, Document, Figure, Form, Lines, Notes, Reasons, Table, joined, listing, section

P, N = sympy.symbols("P N")
KNOWN = Figure(2 * P, Fraction(3 * 10**9))


def document(**more: Any) -> Document:
    step = SimpleNamespace(rule="shard", expression=P / N, why="`dp` splits it")
    parts = [
        section("a title", Lines(["first", "second"]), Notes(["a note"]), Notes(["an item"], items=True)),
        section("formulas", Table([("a_b", KNOWN), ("longer", Figure(P))]), Table([], ("never", "shown"))),
        section("numbers", Table([("x", "10"), ("y", "7")], ("", "GB"), right=(1,))),
        section("why", Reasons([step])),  # type: ignore[list-item]
        section("", Code(["  1 | x < y", "    | ^"])),
    ]
    data = {"formula": P / N, "both": KNOWN, "half": Fraction(1, 2), "whole": Fraction(4), "rows": ({"a": None}, True, "ü")}
    return Document(name="mine", sections=lambda: parts, data=lambda: data, forms=forms, **more)


def forms() -> list[Form]:
    return [
        Form(key="memory.peak", name="peak", label="peak_1", formula=2 * P),
        Form(key="traffic.by_axis.dp", name="by_axis.dp", label="over dp", formula=P / N, part=True),
        Form(key="x.lambda", name="lambda", label="hidden", formula=sympy.Integer(0), shown=False),
    ]


def test_text() -> None:
    assert text.text(document()) == (
        "a title\nfirst\nsecond\n  a note\n  - an item\n\n"
        "formulas\n  a_b     2*P  3 GB (2.79397 GiB)\n  longer  P\n\n"
        "numbers\n     GB\n  x  10\n  y   7\n\n"
        "why\n   1. shard\n        = P/N\n      because `dp` splits it\n\n"
        "  1 | x < y\n    | ^\n"
    )


def test_json() -> None:
    told = renderers.json(document())
    assert '"both": {\n    "formula": "2*P",\n    "value": 3000000000\n  }' in told
    assert '"formula": "P/N"' in told
    assert '"half": 0.5' in told
    assert '"whole": 4' in told
    assert "ü" in told
    assert "\\u00fc" in renderers.json(document(), ascii=True)
    assert renderers.as_data({"n": Fraction(4)}, float) == {"n": 4.0}
    assert isinstance(renderers.as_data(Fraction(4), float), float)


def test_markdown() -> None:
    assert renderers.markdown(document()) == (
        "# a title\n\nfirst  \nsecond\n\n- a note\n\n- an item\n\n"
        "| formulas |  |  |\n| --- | --- | --- |\n| a_b | `2*P` | 3 GB (2.79397 GiB) |\n| longer | `P` |  |\n\n"
        "## numbers\n\n|  | GB |\n| --- | ---: |\n| x | 10 |\n| y | 7 |\n\n"
        "## why\n\n1. shard: `P/N`, because `dp` splits it\n\n"
        "```text\n  1 | x < y\n    | ^\n```\n"
    )


def test_html() -> None:
    told = hypertext.fragment(document())
    assert told.startswith('<div class="placeproof"><h4>a title</h4><p>first<br>second</p><ul><li>a note</li></ul>')
    assert '<math alttext="2*P"><mrow><mn>2</mn>' in told
    assert "never" not in told
    assert '<td style="text-align: right">10</td>' in told
    assert "<pre>  1 | x &lt; y\n    | ^</pre>" in told
    assert '<li>shard: <math alttext="P/N"><mrow><mfrac><mi>P</mi><mi>N</mi></mfrac></mrow></math>, because `dp` splits it</li>' in told


def test_latex_has_what_people_read() -> None:
    assert renderers.latex(document(measure="bytes")) == (
        "% mine, bytes\n\\begin{align*}\n  \\text{peak\\_1} &= 2 P \\\\\n  \\quad\\text{over dp} &= \\frac{P}{N}\n\\end{align*}\n"
    )


def test_python_has_every_form() -> None:
    names: dict[str, Any] = {}
    exec(compile(renderers.python(document()), "forms", "exec"), names)
    assert names["peak"](P=3) == 6
    assert names["by_axis_dp"](P=6, N=4) == 1.5
    assert names["lambda_"]() == 0


def test_several_documents_are_one() -> None:
    before, time = listing("read", "read as\n"), listing("time", "a time\n")
    both = joined({"": document(), "time": time}, before, "imported")
    assert text.text(both) == f"read as\n\n{text.text(document())}\na time\n"
    assert renderers.as_data(both.data()) == renderers.as_data(document().data()) | {"time": "a time\n", "imported": "read as\n"}
    assert both.forms() == forms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Options of their own."""

    deep: int = option("--deep", "How deep.", metavar="N", default=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """A command line."""

    inner: Inner
    names: list[str] | None = option("--name", "A name.")
    loud: bool = option("--loud", "Aloud.", default=False)


def test_a_command_takes_a_record() -> None:
    app = typer.Typer()
    seen: list[Outer] = []

    @app.command()
    @takes(Outer)
    def command(options: Outer) -> None:
        """What it does."""
        seen.append(options)

    runner = CliRunner()
    assert runner.invoke(app, []).exit_code == 0
    assert runner.invoke(app, ["--deep", "5", "--name", "a", "--name", "b", "--loud"]).exit_code == 0
    assert seen == [Outer(inner=Inner(deep=3), names=None), Outer(inner=Inner(deep=5), names=["a", "b"], loud=True)]
    shown = runner.invoke(app, ["--help"]).output
    assert "What it does." in shown
    assert shown.index("--deep") < shown.index("--name") < shown.index("--loud")


def test_an_attempt_is_a_value_or_a_problem_that_is_said_once() -> None:
    problems = Problems()
    good, bad = problems.attempt(lambda: 1), problems.attempt(lambda: refuse("no"))
    follows = problems.attempt(lambda: good() + bad())
    assert good() == 1
    assert [d.message for d in problems.found] == ["no"]
    for value in (bad, follows):
        try:
            value()
        except InputError as error:
            assert error.diagnostics[0].message == "no"
        else:
            raise AssertionError


def refuse(message: str) -> int:
    problems = Problems()
    problems.add("PP104", message, help="another one")
    problems.raise_if_any()
    return 0
