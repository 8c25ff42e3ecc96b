"""``placeproof prove``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.options import BRIEF, Env, From, HtmlOption, ProfileOption, WithOption, World, given, option, page_path, read_as, takes
from placeproof.cli.reports import Reports
from placeproof.cli.terminal import note, show
from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.core.files import make_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from placeproof.answers.subject import Subject
    from placeproof.importers import Reading
    from placeproof.programs import Program
    from placeproof.prove import Budget
    from placeproof.report.document import Document
    from placeproof.report.findings import Case
    from placeproof.semantics.judge.model import JudgedModel
    from placeproof.semantics.judge.verdict import Judged

EXIT_CODES = {"proved": 0, "refuted": 1, "unknown": 3, "proved except": 4}
_SUBJECT = (
    "A strategy such as `zero3 * tp`, a step program `mine.step`, a configuration `ds_config.json`, or a name of `placeproof list blocks`."
)
_REPORTS = {"--junit", "--sarif", "--github"}
#: What a proof of something else than one step takes; other options are refused, and none is passed over in silence.
_PRINTED = {"--json", "--html", "--brief"}
_OF_CATALOGUE = {"--catalogue"} | _PRINTED
_OF_TWO_STEPS = {"--against", "--without", "--from", "--world", "--env", "--profile", "--with", "--budget", "--allow"} | _PRINTED | _REPORTS
_OF_STEPS = {"--without", "--for-all", "--mend"}
#: Second opinions about one step.
_OF_A_STEP = ("cutoff", "composition")
_OF_ONE_STEP = {"--profile", "--with", "--against", "--mend"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    subject: Annotated[str | None, typer.Argument(help=_SUBJECT)] = None
    catalogue: bool = option("--catalogue", "Prove every strategy and every composition of two and of three of them.", default=False)
    without: list[str] | None = option(
        "--without", "Do not make an assumption (`placeproof list assumptions`); may be repeated.", metavar="ASSUMPTION"
    )
    for_all: list[str] | None = option(
        "--for-all", "Only for degrees in a range, `N_dp >= 2` or `m == 4`; may be repeated.", metavar="RANGE"
    )
    model: str | None = option("--model", "Prove the step of a model: its blocks, and the step that calls them.", metavar="MODEL")
    from_: From = None
    world: World = None
    env: Env = None
    allow: list[str] | None = option(
        "--allow", "Take a setting of a configuration that changes the step as of no matter; may be repeated.", metavar="SETTING"
    )
    profile: ProfileOption = None
    with_: WithOption = None
    second_opinion: str | None = option(
        "--second-opinion",
        "Ask cvc5 about everything that Z3 proved; or run a step on so many meshes that they prove it for all; or prove it axis by axis.",
        metavar="cvc5|cutoff|composition",
    )
    milliseconds: int = option("--budget", "Milliseconds that one query may take.", metavar="MS", default=5000, min=1)
    smtlib: Path | None = option("--smtlib", "Write every query as SMT-LIB 2, with the answer that it should get.", metavar="DIR")
    certificate: Path | None = option(
        "--certificate", "Write the proof as terms and steps that `placeproof verify FILE` checks.", metavar="FILE"
    )
    replay_script: Path | None = option(
        "--replay-script", "Write a counterexample as a Python file that needs only the standard library.", metavar="FILE"
    )
    against: str | None = option(
        "--against", "Also say whether the step does what another one does: a strategy, or a step program.", metavar="OTHER"
    )
    mend: Path | None = option("--mend", "Solve for the factors that a step lacks, and write the step with them.", metavar="FILE")
    html: HtmlOption = None
    reports: Reports
    json_: bool = option("--json", "Print JSON (schema placeproof.prove/1).", default=False)
    brief: bool = BRIEF

    @property
    def budget(self) -> Budget:
        """Of one query."""
        from placeproof.prove import Budget

        return Budget(milliseconds=self.milliseconds)

    def refuse(self, refused: Callable[[str], bool], what: str, help: str) -> None:
        """Raise InputError for options that were given and do not go with something."""
        problems = Problems()
        for name in filter(refused, given(self)):
            problems.add("PP207", f"`{name}` does not go with {what}", help=help)
        problems.raise_if_any()


@takes(Options)
def command(options: Options) -> int:
    """Prove that a strategy or a step program trains what one device trains, for every degree; or show where it does not.

    Ends with 0 if proved, 1 if refuted, 3 if neither could be shown within the budget, 4 if proved except for settings of a configuration
    that change the step and are not modelled, or for what was not compared of a recorded step.
    """
    return options.reports.run("prove", lambda: _answer(options))


def _answer(options: Options) -> int:
    from placeproof.answers.subject import LinkedProgram, imported, read_all

    dropped, _ = _assumptions(options.without or []), page_path(options.html)
    if options.catalogue or options.subject is None:
        return _catalogue(options)
    if options.with_ and options.profile is None:
        refuse("PP104", "`--with` names an implementation of a profile", help="add `--profile torch-2.13`")
    _check_opinion(options.second_opinion)
    subjects = read_all([options.subject], system=options.from_, world=options.world, env=options.env or (), library=True)
    _left(subjects, options.allow or ())
    dropped |= {name for one in imported(subjects) for name in one.without}
    if options.model is not None or isinstance(subjects[0], LinkedProgram):
        options.refuse(_OF_ONE_STEP.__contains__, "a model", "leave it out; a strategy alone, or a step program, takes it")
        return _prove_model(options, subjects, dropped)
    if options.against is not None:
        options.refuse(lambda name: name not in _OF_TWO_STEPS, "`--against`", "leave it out; a proof of one step takes it")
        return _held_against(options, options.against, subjects, dropped)
    return _prove_step(options, subjects, dropped)


def _prove_step(o: Options, subjects: Sequence[Subject], without: frozenset[str]) -> int:
    from placeproof.answers.proof import beside_order
    from placeproof.answers.subject import Configuration, Expression, program, strategy
    from placeproof.report import findings
    from placeproof.report.proof.text import document
    from placeproof.semantics.judge.ranges import read_ranges
    from placeproof.semantics.judge.verdict import judge

    step = program(subjects[0], o.profile, o.with_ or ())
    if step.tensors:
        o.refuse(_OF_STEPS.__contains__, "a block", "leave it out; a block is proved for all degrees, whatever is assumed of a step")
    judged = judge(step, without=without, ranges=read_ranges(o.for_all or [], step), budget=o.budget)
    if isinstance(subjects[0], Expression | Configuration):
        judged = beside_order(judged, strategy(subjects[0], o.profile, o.with_ or ()))
    if o.smtlib is not None:
        _write_queries(o.smtlib, judged)
    if o.certificate is not None:
        _write_certificate(o.certificate, judged)
    if o.replay_script is not None:
        _write_script(o.replay_script, str(o.subject), judged)
    opinion = _opinion(o, judged) | ({} if o.mend is None else {"mended": _mend(o.mend, step, judged, subjects[0])})
    cases = partial(findings.of_step, str(o.subject), judged, str(o.subject))
    return _answered(document(str(o.subject), judged, opinion), o, subjects, EXIT_CODES[judged.word], opinion, cases)


def _mend(path: Path, step: Program, judged: Judged, subject: Subject) -> dict[str, Any]:
    """The factors that a step lacks, as data; the step with them is written."""
    from placeproof.programs import render
    from placeproof.report.proof import mended
    from placeproof.semantics.mend import Mended, NoFactor, mend

    found = NoFactor(why=mended.NOTHING) if judged.word == "proved" else mend(step, without=judged.options.without)
    if isinstance(found, Mended):
        write_text(path, render(found.program))
    written = getattr(subject, "path", None)
    return mended.data(found, str(path), "" if written is None else Path(written).read_text(encoding="utf-8"))


def _answered(
    judgement: Document, o: Options, subjects: Sequence[Subject], code: int, opinion: dict[str, Any], cases: Callable[[], Iterable[Case]]
) -> int:
    """Print it, with what configurations were read as; the exit code, unless solvers or arguments disagree."""
    from placeproof.report.document import joined

    left = _left(subjects, o.allow or ()) if code == 0 else []
    if left:
        from placeproof.report.proof.excepted import WORD, excepted

        judgement, code = excepted(judgement, left), EXIT_CODES[WORD]
    show(joined({"": judgement}, read_as(subjects), "imported"), json_=o.json_, brief=o.brief, page=page_path(o.html))
    if o.reports.wanted:
        from placeproof.report.findings import of_settings

        o.reports.write("prove", [*cases(), *of_settings(str(o.subject), left)], code)
    if any(o["answer"] not in ("unsat", "silent") for o in opinion.get("second_opinion", [])):
        note("the solvers disagree; please report this", "error")
        return 70
    if code == EXIT_CODES["refuted"] and opinion.get("composition", {}).get("proved"):
        note("a run refutes what the rule of composition proves; please report this", "error")
        return 70
    return code


def _left(subjects: Sequence[Subject], allowed: Sequence[str]) -> list[Reading]:
    """The settings of configurations that change the step and are not modelled, and what was not compared of recorded steps, but for those
    that are allowed. Raises InputError where something else is allowed."""
    from placeproof.answers.subject import StepProgram, imported, program
    from placeproof.report.proof.excepted import left_out

    settings = [setting for one in imported(subjects) for setting in one.another_step]
    settings += [left for one in subjects if isinstance(one, StepProgram) for left in left_out(program(one))]
    names, problems = [setting.name for setting in settings], Problems()
    for name in allowed:
        if name not in names:
            known = ", ".join(f"`{n}`" for n in names) or "this subject says none that changes the step"
            help = suggestion(name, names) or known
            problems.add("PP207", f"`--allow {name}` names no setting that changes the step and is not modelled", help=help)
    problems.raise_if_any()
    return [setting for setting in settings if setting.name not in allowed]


def _prove_model(o: Options, subjects: Sequence[Subject], without: frozenset[str]) -> int:
    """Prove the step of a model under a strategy, or a linked program that is written down."""
    from placeproof.answers.subject import LinkedProgram, judged_program
    from placeproof.report import findings
    from placeproof.report.proof.model import document
    from placeproof.semantics.judge.model import judge_linked
    from placeproof.semantics.judge.ranges import read_ranges

    if o.second_opinion in _OF_A_STEP:
        refuse("PP207", f"`{o.second_opinion}` speaks of steps, and not of models", help="`--second-opinion cvc5`")
    linked, model = judged_program(subjects[0], o.model)
    judged = judge_linked(linked, model, without=without, ranges=read_ranges(o.for_all or [], linked.step), budget=o.budget)
    for number, (_, verdict) in enumerate(judged.named if o.smtlib is not None else (), start=1):
        assert o.smtlib is not None
        _write_queries(o.smtlib / f"{number:02}-{re.sub('[^a-z0-9]+', '-', verdict.program.name)}", verdict)
    if o.replay_script is not None:
        _write_script_of_model(o.replay_script, judged)
    if o.certificate is not None:
        _write_certificate_of_model(o.certificate, judged, o.model or (None if model is None else model.name))
    opinions = [_opinion(o, verdict) for _, verdict in judged.named]
    opinion = {"second_opinion": [answer for each in opinions for answer in each["second_opinion"]]} if o.second_opinion else {}
    path = next((s.path for s in subjects if isinstance(s, LinkedProgram)), None)
    asked = o.model is not None or model is None
    cases = partial(findings.of_model, judged, str(o.subject))
    return _answered(document(judged, path, opinion, asked=asked), o, subjects, EXIT_CODES[judged.word], opinion, cases)


def _check_opinion(name: str | None) -> None:
    """Refuse another opinion that cannot be had, before anything is proved."""
    from placeproof.prove.solvers.scripts import available

    if name not in (None, "cvc5", *_OF_A_STEP):
        refuse("PP207", f"there is no second opinion `{name}`", help="`cvc5`, `cutoff`, or `composition`")
    if name == "cvc5" and "cvc5" not in available():
        refuse("PP207", "a second opinion needs cvc5, which is not installed", help="pip install 'placeproof[cvc5]'")


def _opinion(o: Options, judged: Judged) -> dict[str, Any]:
    """What another solver, or another argument, says of what was proved, as data."""
    if o.second_opinion is None:
        return {}
    if o.second_opinion == "cvc5":
        return {"second_opinion": _second_opinions(judged, o.budget)}
    if o.second_opinion == "composition":
        from placeproof.report.proof import composition
        from placeproof.semantics.composition import composed

        dropped = tuple(sorted(judged.options.without))
        return {"composition": composition.data(composed(replace(judged.program, without=dropped)))}
    from placeproof.report.proof.cutoff import data
    from placeproof.semantics.judge.cutoff import cutoff_of

    return {"cutoff": data(cutoff_of(judged))}


def _held_against(o: Options, against: str, subjects: Sequence[Subject], without: frozenset[str]) -> int:
    """Whether one step does what another one does; 0 also where it does something else that is proved as well."""
    from placeproof.answers.subject import program, read
    from placeproof.report import findings
    from placeproof.report.proof.refinement import document
    from placeproof.semantics.judge.refine import refine

    step = program(subjects[0], o.profile, o.with_ or ())
    result = refine(step, program(read(against, library=True)), without=without, budget=o.budget)
    code = EXIT_CODES["unknown" if result.word == "unknown" else result.left.word]
    cases = partial(findings.of_refinement, str(o.subject), against, result)
    return _answered(document(str(o.subject), against, result), o, subjects, code, {}, cases)


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


def _catalogue(o: Options) -> int:
    if not o.catalogue:
        refuse("PP207", "there is nothing to prove", help='`placeproof prove "zero3 * tp"`, `placeproof prove --catalogue`')
    if o.subject is not None:
        refuse("PP207", "`--catalogue` proves everything and takes no subject", help="leave one of the two out")
    o.refuse(lambda name: name not in _OF_CATALOGUE, "`--catalogue`", "leave it out; a strategy, or a step program, takes it")
    from placeproof.report.proof import catalogue

    rows, refused = catalogue.judged()
    show(catalogue.document(rows, refused), json_=o.json_, brief=o.brief, page=page_path(o.html))
    surprises = [row["verdict"] for row in rows if row["verdict"] != row["expected"]]
    return 0 if not surprises else EXIT_CODES["unknown" if "unknown" in surprises else "refuted"]


def _second_opinions(judged: Judged, budget: Budget) -> list[dict[str, str]]:
    """What cvc5 says of each query that Z3 decided; `silent` where it gives no answer in time."""
    from placeproof.prove import Proved
    from placeproof.prove.kernel import ask
    from placeproof.prove.smtlib import queries

    answers = []
    for settled in judged.settled:
        if isinstance(settled.verdict, Proved):
            for query in (q for q in queries(settled.obligation.claim) if q.expected == "unsat"):
                answer = ask(query, budget, "cvc5")
                answers.append({"query": query.name, "solver": "cvc5", "answer": "silent" if answer == "unknown" else answer})
    return answers


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
        note(f"{path} was not written: {why}")
    else:
        write_text(path, json.dumps(document, indent=1) + "\n")


def _write_certificate_of_model(path: Path, judged: JudgedModel, named: str | None) -> None:
    """The certificates of all blocks and of the step, if all are proved."""
    from placeproof.semantics.judge.envelope import envelope

    if judged.word != "proved":
        note(f"{path} was not written: the model's program is {judged.word}")
        return
    document = envelope(judged, named)
    for part in document["parts"]:
        if part["certificate"] is None:
            note(f"{part['part']} is left to a solver: {part['why']}")
    write_text(path, json.dumps(document, indent=1) + "\n")


def _write_script_of_model(path: Path, judged: JudgedModel) -> None:
    """The computation that refutes the first of the parts that numbers refute."""
    refuted = next(((name, part) for name, part in judged.named if part.word == "refuted"), None)
    shown = next((b for b in judged.breaches if b.shown is not None), None)
    if refuted is None and shown is not None and shown.shown is not None:
        _write_text(path, shown.shown.script(f"block `{shown.block}` breaks its contract: {shown.text}"))
    else:
        _write_script(path, *(refuted or judged.named[-1]))


def _write_script(path: Path, subject: str, judged: Judged) -> None:
    from placeproof.semantics import tensors
    from placeproof.semantics.judge.search import RefutingRun
    from placeproof.semantics.meaning.script import script

    title, text = f"{subject} is refuted" + (f": {judged.about.condition}, {judged.about.name}" if judged.about is not None else ""), None
    if isinstance(judged.found, RefutingRun):
        text = script(judged.program, judged.found.setup, title)
    elif judged.found is not None:
        text = tensors.script(judged.program, judged.found, title)
    _write_text(path, text)


def _write_text(path: Path, text: str | None) -> None:
    if text is None:
        note(f"{path} was not written: there is no counterexample with two numbers that differ")
        return
    write_text(path, text)
