"""Pictures of what commands print, drawn when the documentation is built."""

from __future__ import annotations

import base64
import json
import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from command_pages import printed

from placeproof.report.page.charts import charts
from placeproof.report.page.elements import element

_SUM = """mesh(dp)
gradients = all_reduce(backward(parameters), dp)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
#: Of the page's own style, what marked lines and grids of devices need.
_STYLE = """.drawn .program span { display: block; margin-left: 2rem; padding-left: 0.5rem; border-left: 3px solid #1d5fae; }
.drawn .program span.wrong { border-left: 3px double #b3261e; color: #b3261e; font-weight: 600; }
.drawn td, .drawn th { padding: 0.25rem 0.75rem; border: 1px solid #888; }
.drawn td.wrong { border: 3px solid #b3261e; }"""
_RUN = ("--model", "llama3-70b", "--cluster", "dgx-h100")


def memory() -> str:
    """What stages hold, and their schedule."""
    return _plotted("fsdp(2) * tp(8) * sp * pp(4) * checkpoint", *_RUN, "--global-batch", "16")


def wrong() -> str:
    """A program with what fails at its lines, and the gradients that devices end with: of the page that `prove --html` writes."""
    with TemporaryDirectory() as folder, chdir(folder):
        Path("sum.step").write_text(_SUM, encoding="utf-8")
        found = json.loads(printed("prove", "sum.step", "--json"))
    lines = {"sum.step": dict(enumerate(_SUM.splitlines(), 1))}
    shown = [chart for chart in charts(found, lines) if chart.title.startswith(("the program", "gradients"))]
    drawn = "".join(element(chart).replace("h2>", "strong>") for chart in shown)
    image = f'<style>{_STYLE}</style><div class="drawn">{drawn}</div>'
    return f"```{{raw}} html\n{image}\n```\n\n`placeproof prove sum.step --html page.html`\n"


def change() -> str:
    """What `diff --markdown` writes for a pull request, as it is read there. Headings are bold: they are none of the page that shows it."""
    arguments = ("--model", "llama3-8b", "--cluster", "dgx-h100", "--set", "b=1")
    said = printed("diff", "zero1(8)", "zero3(8)", *arguments, "--markdown").partition("## the program")[0]
    quoted = re.sub(r"^#+ (.*)$", r"**\1**", said, flags=re.MULTILINE).splitlines()
    shown = "\n".join(f"> {line}" for line in quoted)
    return f'{shown}\n\n`placeproof diff "zero1(8)" "zero3(8)" {" ".join(arguments)} --markdown`\n'


def _plotted(strategy: str, *arguments: str) -> str:
    """What `derive --plot` draws. Its command stands below it."""
    with TemporaryDirectory() as folder, chdir(folder):
        printed("derive", strategy, *arguments, "--plot", "plan.svg")
        drawn = base64.b64encode(Path("plan.svg").read_bytes()).decode()
    command = " ".join(["placeproof derive", f'"{strategy}"', *arguments, "--plot plan.svg"])
    image = (
        f'<img alt="Memory of each stage, and the schedule of its passes" src="data:image/svg+xml;base64,{drawn}" style="max-width: 100%">'
    )
    return f"```{{raw}} html\n{image}\n```\n\n`{command}`\n"
