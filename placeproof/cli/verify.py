"""``placeproof verify``."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.terminal import Brief, show
from placeproof.core.diagnostics import refuse
from placeproof.core.files import read_standard_input, read_text

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

_ABOUT = "the claims are those of the program in it, as this version of placeproof reads it"
_HELP = "give a file that `placeproof prove SUBJECT --certificate FILE` has written, or `placeproof plan`"
_ABOUT_PLANS = """each row is the number of points for which that was checked
the grid, formulas and numbers are what this version of placeproof derives of the question,
and each plan of the list is proved"""
_REASONS = {
    "batch": "the batch is no whole number of micro-batches",
    "uneven": "degrees do not divide a size of the model",
    "order": "the schedule is not for such stages, runs of layers or micro-batches",
    "refused": "no strategy has these options",
    "memory": "more memory is needed than there is, by the bound",
    "time": "a step takes no less, by the bound",
    "exact": "derived exactly: the list, and what is slower or does not fit",
}


def command(
    file: Annotated[
        str, typer.Argument(help="What `placeproof prove SUBJECT --certificate FILE` wrote, or `plan`; `-` reads it from standard input.")
    ],
    brief: Brief = False,
) -> int:
    """Check the certificate of a proof, step by step, without a solver; and that it is about the program that it holds. Or that of a plan,
    box by box; and that its formulas are what is derived of its question.

    Ends with 0 if it shows that all states are right after the step, or every claim about a block, or that nothing of a grid is better than
    its plans; 1 if anything in it does not hold; 3 if that is left to a solver; 4 if the step is recorded, and something of it was not
    compared.
    """
    from placeproof.programs import read
    from placeproof.verify import SCHEMA_OF_MODEL, SCHEMA_OF_PLAN, RejectedError, left_open, left_open_of_model, verify, verify_model

    document = _read(file)
    if document["schema"] == SCHEMA_OF_PLAN:
        return _plan(file, document, brief)
    of_model = document["schema"] == SCHEMA_OF_MODEL
    try:
        used = verify_model(document) if of_model else {"": verify(document)}
    except RejectedError as rejected:
        return _rejected(file, [str(rejected)], brief)
    if not _is_about_its_program(document):
        return _rejected(file, ["it is not what this version of placeproof writes for the program in it;", "write it anew"], brief)
    if of_model:
        _say(_shown_of_model(file, document, used), brief)
        return 3 if left_open_of_model(document) else 0
    excepted = read(document["program"], source=file).not_compared
    _say(_shown(file, document, used[""], excepted), brief)
    return 3 if left_open(document) else 4 if excepted else 0


def _say(lines: list[str], brief: bool) -> None:
    """Print the verdict and the lines below it."""
    from placeproof.report.document import Code, Document, section

    title, *more = lines
    show(Document(name=title, sections=lambda: [section(title, Code(more), detail="answer")], data=dict), json_=False, brief=brief)


def _rejected(file: str, why: list[str], brief: bool) -> int:
    _say([f"{file}: rejected", *why], brief)
    return 1


def _plan(file: str, document: dict[str, Any], brief: bool) -> int:
    """Check what a plan's certificate holds, and that it is what this version derives of its question."""
    from placeproof.cli.plan import differences
    from placeproof.core.diagnostics import InputError
    from placeproof.report.units import seconds_text
    from placeproof.verify import BROKEN, Plan, RejectedPlanError

    try:
        counts = Plan(document).check()
        wrong = differences(document)
    except (RejectedPlanError, *BROKEN) as rejected:
        return _rejected(file, [str(rejected) or type(rejected).__name__], brief)
    except InputError as error:
        wrong = [f"its question cannot be asked: {d.message}" for d in error.diagnostics]
    if wrong:
        return _rejected(file, wrong, brief)
    listed = sorted(Fraction(row["seconds"]) for row in document["derived"] if row["because"] == "listed")
    times = " to ".join(dict.fromkeys(seconds_text(seconds) for seconds in (*listed[:1], *listed[-1:])))
    of = f"{len(listed)} {'plan' if len(listed) == 1 else 'plans'} of {times}" if listed else "none fits"
    what = (f"{of}, and no other is faster" if len(listed) == document["count"] else f"{of}, and no other fits") if listed else of
    rows = [f"  {number:>15,}  {_REASONS[reason]}" for reason, number in counts.most_common()]
    _say([f"{file}: holds", f"{sum(counts.values()):,} points: {what}", "", *rows, "", *_ABOUT_PLANS.splitlines()], brief)
    return 0


def _read(file: str) -> dict[str, Any]:
    from placeproof.verify import SCHEMA, SCHEMA_OF_MODEL, SCHEMA_OF_PLAN

    text = read_standard_input(code="PP209", help=_HELP) if file == "-" else read_text(Path(file), code="PP209", help=_HELP)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse("PP209", f"`{file}` is no JSON: {error}", help=_HELP)
    if not isinstance(document, dict) or document.get("schema") not in (SCHEMA, SCHEMA_OF_MODEL, SCHEMA_OF_PLAN):
        refuse("PP209", f"`{file}` is no certificate (schema {SCHEMA})", help=_HELP)
    return document


def _is_about_its_program(document: dict[str, Any]) -> bool:
    """Whether the claims are those of the program; what cannot be read is about none."""
    from placeproof.answers.subject import model
    from placeproof.core.diagnostics import InputError
    from placeproof.semantics.encode import NoMeaningError
    from placeproof.semantics.judge import certificate, envelope
    from placeproof.verify import SCHEMA_OF_MODEL

    try:
        if document["schema"] == SCHEMA_OF_MODEL:
            return envelope.again(document, None if document["model"] is None else model(document["model"]))
        return certificate.again(document)
    except (InputError, NoMeaningError, LookupError, TypeError, ValueError, AttributeError):
        return False


def _shown_of_model(file: str, document: dict[str, Any], used: Mapping[str, Counter[str]]) -> list[str]:
    """The same of a model's program, part by part."""
    from placeproof.verify import left_open, left_open_of_model

    left = left_open_of_model(document)
    lines = [f"{file}: {'holds, but for what is left to a solver' if left else 'holds'}", ""]
    for part in document["parts"]:
        one = part["certificate"]
        if one is None:
            lines.append(f"  {part['part']}: left to a solver: {part['why']}")
            continue
        open_ = f", {len(one['unshown'])} left to a solver" if left_open(one) else ""
        lines.append(f"  {part['part']}: {len(one['claims'])} claims, {sum(used[part['part']].values())} steps{open_}")
    whose = "that stand in it" if document["model"] is None else f"of {document['model']}"
    return [*lines, "", f"one device runs the blocks {whose}", _ABOUT, "its blocks fit together"]


def _shown(file: str, document: dict[str, Any], used: Counter[str], excepted: Sequence[tuple[str, str]]) -> list[str]:
    """What the certificate shows, in words; ``excepted``: what was not compared of a recorded step."""
    from placeproof.verify import left_open

    claims, steps = document["claims"], len(document["steps"])
    rules = ", ".join(f"{rule} {n}" for rule, n in used.most_common())
    but = [*(["is left to a solver"] if left_open(document) else []), *(["was not compared"] if excepted else [])]
    lines = [f"{file}: holds" + (f", but for what {' and '.join(but)}" if but else "")]
    lines += [f"not compared: {name}: {text}" for name, text in excepted]
    lines += [f"{len(claims)} claims, {steps} {'step' if steps == 1 else 'steps'}" + (f": {rules}" if rules else ""), ""]
    lines += ["  line  condition           claim", *map(_named, claims)]
    lines += [f"{_named(c)}\n        not shown: {c['why']}" for c in document["unshown"]]
    return [*lines, "", _ABOUT]


def _named(claim: dict[str, Any]) -> str:
    return f"  {claim['line'] or '':<4}  {claim['condition']:<18}  {claim['name']}"
