"""``placeproof fit``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.options import Given, HtmlOption, OfStep, Shown, lacking, option, page_path, read_as, takes
from placeproof.cli.terminal import show
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.answers.fit import Question
    from placeproof.answers.subject import Subject

_EXIT = {True: 0, False: 1, None: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfStep(OfStep):
    model: str | None = option("--model", "(required) A model: `placeproof list models`, a file, or a config.json.", metavar="MODEL")
    cluster: str | None = option(
        "--cluster", "(required) A cluster: docs/reference/clusters.md; a file ends in .toml.", metavar="NAME|FILE"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    strategy: Annotated[str, typer.Argument(help="A strategy such as `fsdp` or `zero1(8) * tp(8)`, or a configuration.")]
    given: Given
    about: _OfStep
    shown: Shown
    html: HtmlOption = None
    json_: bool = option("--json", "Print JSON (schema placeproof.fit/1).", default=False)


@takes(Options)
def command(options: Options) -> int:
    """The largest micro-batch, the longest sequence and the fewest devices that fit, and the first change to make.

    Ends with 0 if the step fits as it is asked about, 1 if it does not, 3 if the model of memory cannot tell. Where nobody says how many
    devices split samples, it is asked about on the fewest that fit.
    """
    from placeproof.answers.fit import fit
    from placeproof.report.document import joined

    problems = Problems()
    detail = options.shown.detail(["--json"] if options.json_ else [], problems)
    page = problems.attempt(lambda: page_path(options.html))
    subject, question = _question(options, problems)
    found = fit(question)
    show(joined({"": found.document}, read_as([subject]), "imported"), json_=options.json_, ascii=False, detail=detail, page=page())
    return _EXIT[found.fits]


def _question(o: Options, problems: Problems) -> tuple[Subject, Question]:
    """What is asked. Raises InputError with everything that is wrong."""
    from placeproof.answers import subject as read
    from placeproof.answers.fit import Question

    if missing := lacking({"--model": o.about.model, "--cluster": o.about.cluster}):
        help = "for example `placeproof fit fsdp --model llama3-8b --cluster dgx-h100`"
        problems.add("PP102", f"what fits is asked with {missing}", help=help)
    problems.attempt(o.given.settings().check)
    subjects = problems.attempt(partial(o.given.read, [o.strategy]))
    run, clock = o.about.run(problems), o.about.clock(o.given.set_ or [], problems)
    model = problems.attempt(lambda: read.model(str(o.about.model))) if o.about.model is not None else None
    strategy = problems.attempt(lambda: read.strategy(subjects()[0]))
    problems.raise_if_any()
    assert clock is not None
    assert model is not None
    subject, architecture = subjects()[0], clock.cluster.device.architecture
    run = run if run.run_by is None else replace(run, run_by=run.run_by.on(architecture))
    return subject, Question(
        model=model(), strategy=strategy(), run=run, clock=clock, settings=o.given.settings([subject]), world=o.given.on(subject),
        batch=o.about.global_batch, read=read.imported([subject]),
    )  # fmt: skip
