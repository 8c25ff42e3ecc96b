"""``placeproof prove``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.common import EXIT_BAD_INPUT, read_as
from placeproof.cli.options import From, ProfileOption, WithOption, World
from placeproof.core.diagnostics import Diagnostic, InputError, Problems, suggestion
from placeproof.core.files import make_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placeproof.answers.subject import Subject
    from placeproof.prove import Budget
    from placeproof.report.document import Document
    from placeproof.semantics.judge.verdict import Judged

_WITH = "`--with` names an implementation of a profile"
EXIT_CODES = {"proved": 0, "refuted": 1, "unknown": 3}
_SUBJECT = (
    "A strategy such as `zero3 * tp`, a step program `mine.step`, a configuration `ds_config.json`, or a name of `placeproof list blocks`."
)


_Subject = Annotated[str | None, typer.Argument(help=_SUBJECT)]
_Catalogue = Annotated[bool, typer.Option("--catalogue", help="Prove every strategy and every composition of two and of three of them.")]
_Without = Annotated[
    list[str] | None,
    typer.Option(metavar="ASSUMPTION", help="Do not make an assumption (`placeproof list assumptions`); may be repeated."),
]
_ForAll = Annotated[
    list[str] | None,
    typer.Option("--for-all", metavar="RANGE", help="Only for degrees in a range, `N_dp >= 2` or `m == 4`; may be repeated."),
]
_SecondOpinion = Annotated[
    str | None,
    typer.Option(
        "--second-opinion",
        metavar="cvc5|cutoff",
        help="Ask cvc5 about everything that Z3 proved; or run a step on so many meshes that they prove it for all.",
    ),
]
_Budget = Annotated[int, typer.Option(metavar="MS", min=1, help="Milliseconds that one query may take.")]
_Smtlib = Annotated[Path | None, typer.Option(metavar="DIR", help="Write every query as SMT-LIB 2, with the answer that it should get.")]
_Certificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the proof as terms and steps that `placeproof verify FILE` checks.")
]
_ReplayScript = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a counterexample as a Python file that needs only the standard library.")
]
_Against = Annotated[
    str | None,
    typer.Option(metavar="OTHER", help="Also say whether the step does what another one does: a strategy, or a step program."),
]
_Model = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="Prove the step of a model: its blocks, and the step that calls them.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.prove/1).")]


def command(
    subject: _Subject = None,
    catalogue: _Catalogue = False,
    without: _Without = None,
    for_all: _ForAll = None,
    model: _Model = None,
    from_: From = None,
    world: World = None,
    profile: ProfileOption = None,
    with_: WithOption = None,
    second_opinion: _SecondOpinion = None,
    budget: _Budget = 5000,
    smtlib: _Smtlib = None,
    certificate: _Certificate = None,
    replay_script: _ReplayScript = None,
    against: _Against = None,
    json_: _Json = False,
) -> int:
    """Prove that a strategy or a step program trains what one device trains, for every degree; or show where it does not.

    Ends with 0 if proved, 1 if refuted, 3 if neither could be shown within the budget.
    """
    from placeproof.answers.subject import LinkedProgram, imported, read_all
    from placeproof.answers.subject import program as program_of
    from placeproof.report.proof.text import document as judgement
    from placeproof.semantics.judge.ranges import read_ranges
    from placeproof.semantics.judge.verdict import judge

    dropped = _assumptions(without or [])
    if catalogue or subject is None:
        return _all(subject, catalogue, json_)
    from placeproof.prove import Budget

    if against is not None:
        if model is not None:
            _require_none({"--against": against})
        return _held_against(subject, against, Budget(milliseconds=budget), json_=json_)
    if with_ and profile is None:
        raise InputError([Diagnostic(code="PP104", message=_WITH, help="add `--profile torch-2.13`")])
    found = read_all([subject], system=from_, world=world, library=True)
    dropped |= {name for one in imported(found) for name in one.without}
    if model is not None or isinstance(found[0], LinkedProgram):
        _require_none({"--profile": profile, "--certificate": certificate})
        options = _ModelOptions(dropped, tuple(for_all or ()), budget, second_opinion, smtlib, replay_script, json_)
        return _prove_model(found, model, options)
    program = program_of(found[0], profile, with_ or ())
    ranges = read_ranges(for_all or [], program)
    judged = judge(program, without=dropped, ranges=ranges, budget=Budget(milliseconds=budget))
    if smtlib is not None:
        _write_queries(smtlib, judged)
    if certificate is not None:
        _write_certificate(certificate, judged)
    if replay_script is not None:
        _write_script(replay_script, subject, judged)
    opinion = _opinion(second_opinion, judged, budget)
    return _answered(judgement(subject, judged, opinion), found, EXIT_CODES[judged.word], opinion, json_=json_)


def _answered(judgement: Document, subjects: Sequence[Subject], code: int, opinion: dict[str, Any], *, json_: bool) -> int:
    """Print it, with what configurations were read as; the exit code, unless solvers disagree."""
    from placeproof.report import renderers
    from placeproof.report.document import joined

    document = joined({"": judgement}, read_as(subjects), "imported")
    typer.echo(renderers.json(document, ascii=True) if json_ else renderers.text(document), nl=False)
    if any(o["answer"] not in ("unsat", "silent") for o in opinion.get("second_opinion", [])):
        typer.echo("error: the solvers disagree; please report this", err=True)
        return 70
    return code


@dataclass(frozen=True, slots=True)
class _ModelOptions:
    """What is asked for beside the verdict on a model's step."""

    without: frozenset[str]
    ranges: tuple[str, ...]
    budget: int
    second_opinion: str | None
    smtlib: Path | None
    replay_script: Path | None
    json_: bool


def _require_none(given: dict[str, object]) -> None:
    problems = Problems()
    for name in (name for name, value in given.items() if value is not None):
        problems.add("PP207", f"`{name}` does not go with a model", help="leave it out; a strategy alone, or a step program, takes it")
    problems.raise_if_any()


def _prove_model(subjects: Sequence[Subject], name: str | None, options: _ModelOptions) -> int:
    """Prove the step of a model under a strategy, or a linked program that is written down."""
    from placeproof.answers.subject import LinkedProgram, judged_program
    from placeproof.prove import Budget
    from placeproof.report.proof.model import document
    from placeproof.semantics.judge.model import judge_linked
    from placeproof.semantics.judge.ranges import read_ranges

    if options.second_opinion == "cutoff":
        raise InputError([Diagnostic(code="PP207", message="`cutoff` speaks of steps, and not of models", help="`--second-opinion cvc5`")])
    linked, model = judged_program(subjects[0], name)
    ranges = read_ranges(list(options.ranges), linked.step)
    judged = judge_linked(linked, model, without=options.without, ranges=ranges, budget=Budget(milliseconds=options.budget))
    for number, (_, verdict) in enumerate(judged.named if options.smtlib is not None else (), start=1):
        assert options.smtlib is not None
        _write_queries(options.smtlib / f"{number:02}-{re.sub('[^a-z0-9]+', '-', verdict.program.name)}", verdict)
    if options.replay_script is not None:
        called, first = next(((n, v) for n, v in judged.named if v.word == "refuted"), judged.named[-1])
        _write_script(options.replay_script, called, first)
    opinions = [_opinion(options.second_opinion, verdict, options.budget) for _, verdict in judged.named]
    opinion = {"second_opinion": [o for one in opinions for o in one["second_opinion"]]} if options.second_opinion else {}
    path = next((s.path for s in subjects if isinstance(s, LinkedProgram)), None)
    return _answered(document(judged, path, opinion), subjects, EXIT_CODES[judged.word], opinion, json_=options.json_)


def _opinion(name: str | None, judged: Judged, budget: int) -> dict[str, Any]:
    """What another solver, or another argument, says of what was proved, as data."""
    if name is None:
        return {}
    if name == "cvc5":
        return {"second_opinion": _second_opinions(judged, budget)}
    problems = Problems()
    if name != "cutoff":
        problems.add("PP207", f"there is no second opinion `{name}`", help="`cvc5`, or `cutoff`")
    problems.raise_if_any()
    from placeproof.report.proof.cutoff import data
    from placeproof.semantics.judge.cutoff import cutoff_of

    return {"cutoff": data(cutoff_of(judged))}


def _held_against(subject: str, against: str, budget: Budget, *, json_: bool) -> int:
    """Whether one step does what another one does; 0 also where it does something else that is proved as well."""
    from placeproof.answers.subject import program, read
    from placeproof.report import renderers
    from placeproof.report.proof.refinement import document
    from placeproof.semantics.judge.refine import refine

    found = refine(program(read(subject, library=True)), program(read(against, library=True)), budget=budget)
    result = document(subject, against, found)
    typer.echo(renderers.json(result, ascii=True) if json_ else renderers.text(result), nl=False)
    return 3 if found.word == "unknown" else EXIT_CODES[found.left.word]


def _assumptions(names: list[str]) -> frozenset[str]:
    from placeproof.programs.assumptions import ASSUMPTIONS, always_made

    problems = Problems()
    for name in names:
        if name not in ASSUMPTIONS:
            hint = suggestion(name, ASSUMPTIONS) or "`placeproof list assumptions` shows them"
            problems.add("PP206", f"there is no assumption `{name}`", help=hint)
        elif ASSUMPTIONS[name].without is None:
            message, remedy = always_made(name)
            problems.add("PP206", message, help=remedy)
    problems.raise_if_any()
    return frozenset(names)


def _all(subject: str | None, catalogue: bool, json_: bool) -> int:
    problems = Problems()
    if not catalogue:
        problems.add("PP207", "there is nothing to prove", help='`placeproof prove "zero3 * tp"`, `placeproof prove --catalogue`')
    elif subject is not None:
        problems.add("PP207", "`--catalogue` proves everything and takes no subject", help="leave one of the two out")
    problems.raise_if_any()
    from placeproof.report.proof.catalogue import run

    return run(typer.echo, json_=json_)


def _second_opinions(judged: Judged, budget: int) -> list[dict[str, str]]:
    """What cvc5 says of each query that Z3 decided; `silent` where it gives no answer in time."""
    from placeproof.prove import Budget, Proved
    from placeproof.prove.kernel import ask
    from placeproof.prove.smtlib import queries
    from placeproof.prove.solvers.scripts import available

    if "cvc5" not in available():
        problems = Problems()
        problems.add("PP207", "a second opinion needs cvc5, which is not installed", help="pip install 'placeproof[cvc5]'")
        problems.raise_if_any()
    found = []
    for one in judged.settled:
        if isinstance(one.verdict, Proved):
            wanted = [q for q in queries(one.obligation.claim) if q.expected == "unsat"]
            for query in wanted:
                answer = ask(query, Budget(milliseconds=budget), "cvc5")
                found.append({"query": query.name, "solver": "cvc5", "answer": "silent" if answer == "unknown" else answer})
    return found


def _write_queries(folder: Path, judged: Judged) -> None:
    """One file for each query, numbered in the order in which they were asked."""
    from placeproof.prove.smtlib import queries

    help = "give a folder that can be written"
    make_folder(folder, help=help)
    for number, one in enumerate(judged.settled, start=1):
        for part, query in enumerate(queries(one.obligation.claim), start=1):
            slug = re.sub(r"[^a-z0-9]+", "-", query.name.lower()).strip("-")[:60]
            write_text(folder / f"{number:02}-{part}-{slug}.smt2", query.script, help=help)


def _write_certificate(path: Path, judged: Judged) -> None:
    """The certificate of what was proved; of anything else there is none, which is said."""
    from placeproof.semantics.encode import NoMeaningError
    from placeproof.semantics.judge.certificate import certificate

    try:
        if judged.word != "proved":
            raise NoMeaningError(f"the {'block' if judged.program.tensors else 'step'} is {judged.word}", None)
        document = certificate(judged.program, judged.options)
    except NoMeaningError as why:
        typer.echo(f"note: {path} was not written: {why}", err=True)
    else:
        write_text(path, json.dumps(document, indent=1) + "\n")


def _write_script(path: Path, subject: str, judged: Judged) -> None:
    from placeproof.semantics import tensors
    from placeproof.semantics.judge.search import Found
    from placeproof.semantics.meaning.script import script

    title, text = f"{subject} is refuted" + (f": {judged.about.condition}, {judged.about.name}" if judged.about is not None else ""), None
    if isinstance(judged.found, Found):
        text = script(judged.program, judged.found.setup, title)
    elif judged.found is not None:
        text = tensors.script(judged.program, judged.found, title)
    if text is None:
        typer.echo(f"note: {path} was not written: there is no counterexample with two numbers that differ", err=True)
        return
    write_text(path, text)


__all__ = ["EXIT_BAD_INPUT", "command"]
