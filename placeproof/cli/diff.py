"""``placeproof diff``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli import compare
from placeproof.cli.options import Given, OfStep, Shown, option, takes
from placeproof.cli.terminal import say, show
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.answers.subject import Subject
    from placeproof.report.diff import Judged

EXIT_WORSE = 1
_HELP = "A strategy, a step program, a configuration, or such a file at a revision of Git, `main:ds_config.json`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    old: Annotated[str, typer.Argument(help=_HELP)]
    new: Annotated[str, typer.Argument(help="The same, as it is now.")]
    given: Given
    about: OfStep
    shown: Shown
    markdown: bool = option("--markdown", "Print Markdown, for a pull request.", default=False)
    json_: bool = option("--json", "Print JSON (schema placeproof.diff/1).", default=False)


@takes(Options)
def command(options: Options) -> int:
    """What changed from one strategy, program or configuration to another: verdict, memory, traffic, and with a model the time of a step.

    Ends with 1 if a verdict became worse, that of the proof or with a cluster whether it fits; with 0 otherwise, also where costs rose.
    """
    from placeproof.answers.revision import checked_out
    from placeproof.report import renderers
    from placeproof.report.diff import Difference, document

    problems = Problems()
    options.about.check(problems)
    forms = [name for name, wanted in (("--json", options.json_), ("--markdown", options.markdown)) if wanted]
    detail = options.shown.detail(forms, problems)
    if len(forms) > 1:
        problems.add("PP104", "`--json` and `--markdown` exclude one another", help="choose one form of output")
    problems.raise_if_any()
    names = (options.old, options.new)
    with ExitStack() as files:
        subjects = options.given.read([files.enter_context(checked_out(name)) for name in names])
        made = compare.of_model if options.about.model is not None else compare.of_formulas
        costs, numbers = made(options, subjects, problems)
        old, new = (_judged(name, subject, options.about.model) for name, subject in zip(names, subjects, strict=True))
        found = Difference(sides=(old, new), costs=costs, numbers=numbers)
        if options.markdown:
            say(renderers.markdown(document(found)))
        else:
            show(document(found), json_=options.json_, ascii=False, detail=detail)
    return EXIT_WORSE if found.worse else 0


def _judged(name: str, subject: Subject, model: str | None) -> Judged:
    """The verdict on one of them, and the lines of its step. Raises InputError."""
    from placeproof.answers import subject as read
    from placeproof.answers.proof import Judgement, judgement_of
    from placeproof.core.strategy import Strategy
    from placeproof.programs import render
    from placeproof.report.diff import Judged
    from placeproof.semantics.lower import lower

    target = read.costed(subject)
    judged = judgement_of(target, read.imported([subject]), None if model is None else read.model(model))
    of_step = judged if isinstance(judged, Judgement) else judged.step
    about = of_step.about if of_step.word == "refuted" else None
    settings = [setting.name for setting in judged.settings]
    broken = f"{about.condition}: {about.name}" if about is not None else f"not modelled: {', '.join(settings)}" if settings else ""
    lines: Sequence[str] = render(lower(target) if isinstance(target, Strategy) else target).splitlines()
    return Judged(name=name, word=judged.word, broken=broken, program=lines)
