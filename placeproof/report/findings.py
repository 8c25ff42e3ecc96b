"""What commands that give verdicts found, one thing at a time and with its place: what files for continuous integration are made of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from placeproof.core.diagnostics import Diagnostic, Place
from placeproof.importers import Reading
from placeproof.report.checks import failure
from placeproof.report.diagnostics import problem_text
from placeproof.report.document import Document
from placeproof.report.proof.text import opening
from placeproof.report.text import text as rendered
from placeproof.semantics.judge.explain import told
from placeproof.semantics.judge.model import JudgedModel
from placeproof.semantics.judge.refine import Refinement
from placeproof.semantics.judge.verdict import Judged
from placeproof.theory.suite.outcome import Outcome

#: ``open``: not decided, and of no matter beside what failed.
Standing = Literal["passed", "failed", "undecided", "warned", "open"]
#: Kinds of findings -> what they mean.
RULES = {
    "refuted": "a computation shows that the step does not train what one device trains",
    "unexpected": "a theorem is not as expected, or one of its checks failed",
    "undecided": "neither proved nor refuted within the budget",
    "not-modelled": "a setting changes the step and is not modelled: what is proved is the step without it",
    "lock": "a verdict differs from the lock file",
    "warning": "a step is right, and does something that is seldom meant",
    "input": "an input cannot be used",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that was asked. ``of``: what it belongs to; ``rule``: of what does not stand, a key of :data:`RULES`; ``message``: in a
    line, ``text``: in full; ``path``: the file that it is in, empty where it is in none; lines and columns count from 1."""

    name: str
    of: str
    standing: Standing = "passed"
    rule: str = ""
    message: str = ""
    text: str = ""
    path: str = ""
    line: int = 1
    column: int = 1
    seconds: float = 0.0

    def at(self, place: Place | None) -> Case:
        """The same at a place, if that is in a file: programs that placeproof wrote are in none."""
        if place is None or not os.path.isfile(place.source):
            return self
        return replace(self, path=place.source, line=place.line, column=place.column)


def of_theorems(outcomes: Iterable[Outcome], problems: Iterable[Diagnostic], changed: Sequence[str] | None) -> Iterator[Case]:
    """Every theorem; what could not be read; and each theorem that differs from the lock file."""
    outcomes = list(outcomes)
    places = {o.id: o for o in outcomes}
    yield from map(_of_theorem, outcomes)
    yield from of_problems(problems)
    for name, lines in _by_theorem(changed or ()):
        where = places.get(name)
        of = Case(name=f"{name} as locked", of="lock file", standing="failed", rule="lock", text="\n".join(lines))
        of = replace(of, message=f"{name}: {'; '.join(lines[1:])}; `--update` accepts it")
        yield of if where is None else replace(of, path=where.path, line=where.line)


def _by_theorem(changed: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Lines about the lock file, by the theorem that they are about."""
    found: list[tuple[str, list[str]]] = []
    for line in changed:
        if not line.startswith("    "):
            found.append((line.strip(), []))
        found[-1][1].append(line.strip())
    return found


def _of_theorem(o: Outcome) -> Case:
    topic, _, name = o.id.rpartition(".")
    case = Case(name=name, of=topic, path=o.path, line=o.line, seconds=o.seconds)
    if o.standing not in ("unexpected", "undecided"):
        return case
    witness = ", ".join(f"{key} = {value}" for key, value in o.witness.items())
    found = f"expected {o.expected}, found {o.verdict}" + (f" at {witness}" if witness else "")
    failed = "; ".join(f"{check.name}: {check.detail}" for check in o.failures())
    message = f"{o.id}: {found}" + (f"; {failed}" if failed else "")
    standing: Standing = "failed" if o.standing == "unexpected" else "undecided"
    return replace(case, standing=standing, rule=o.standing, message=message, text=failure(o))


def of_problems(problems: Iterable[Diagnostic]) -> Iterator[Case]:
    """What of an input cannot be used."""
    for problem in problems:
        message = problem.message + (f"; {problem.help}" if problem.help else "")
        case = Case(name=f"{problem.code}: {problem.message}", of="input", standing="failed", rule="input", message=message)
        yield replace(case, text=problem_text(problem)).at(problem.place)


def of_step(subject: str, judged: Judged, file: str | None = None) -> Iterator[Case]:
    """Every obligation of a step or of a block. What is wrong with a refuted one is said once, where it is broken. ``file``: where what is
    not in a file of its own is said to be."""
    path = file if file is not None and os.path.isfile(file) else ""
    text = rendered(Document(name=subject, sections=lambda: [opening(subject, judged)], data=dict)).strip()
    whole = Case(name=judged.word, of=subject, text=text, path=path)
    said = judged.word == "proved"
    for settled in judged.settled:
        case = Case(name=settled.obligation.name, of=subject, path=path, seconds=settled.seconds).at(settled.obligation.place)
        about = judged.word == "refuted" and settled.obligation is judged.about
        if about:
            message = f"{subject}: refuted: {settled.obligation.condition} is broken: it does not hold that {settled.obligation.name}"
            why = told(judged).sentence if not judged.program.tensors else None
            message += "".join(f"; {words}" for words in (*(cause.words for cause in settled.obligation.causes), why) if words)
            case = replace(case, standing="failed", rule="refuted", message=message, text=text)
        elif settled.word != "proved" and judged.word == "refuted":
            case = replace(case, standing="open", message="the step is refuted, and this was not decided")
        elif settled.word != "proved":
            message = f"{subject}: it was not decided whether {settled.obligation.name}"
            case = replace(case, standing="undecided", rule="undecided", message=message, text=text)
        said |= about or (judged.word == "unknown" and case.standing == "undecided")
        yield case
    if not said and judged.word == "refuted":
        place = None if judged.about is None else judged.about.place
        yield replace(whole, standing="failed", rule="refuted", message=text.splitlines()[0]).at(place)
    elif not said:
        yield replace(whole, standing="undecided", rule="undecided", message=f"{subject}: unknown: {judged.why}")
    for warning, place in judged.warnings:
        case = replace(whole, name=warning, standing="warned", rule="warning", message=f"{subject}: {warning}", text=warning)
        yield case.at(place)


def of_model(judged: JudgedModel, file: str | None = None) -> Iterator[Case]:
    """Every obligation of each block and of the step, and each contract that is broken. ``file``: as of :func:`of_step`."""
    name = f"{judged.linked.model} under {judged.linked.name}"
    for breach in judged.breaches:
        what = "this is not the model's program" if breach.block is None else f"block `{breach.block}` breaks its contract"
        case = Case(name=what, of=name, standing="failed", rule="refuted", message=f"{name}: {what}: {breach.text}", text=breach.text)
        yield case.at(breach.place)
    for called, verdict in judged.named:
        yield from of_step(f"{name}: {called}", verdict, file)
    for text in judged.undecided:
        yield Case(name=text, of=name, standing="undecided", rule="undecided", message=f"{name}: {text}", text=text)


def of_refinement(subject: str, against: str, result: Refinement) -> Iterator[Case]:
    """Every obligation of the step, whose verdict is the command's; and whether it could be held against the other one."""
    yield from of_step(subject, result.left, subject)
    message = f"{subject} is {result.word} against {against}"
    case = Case(name=f"held against {against}", of=subject)
    yield replace(case, standing="undecided", rule="undecided", message=message) if result.word == "unknown" else case


def of_settings(subject: str, settings: Iterable[Reading]) -> Iterator[Case]:
    """Settings of a configuration that a proof is not about."""
    for setting in settings:
        message = f"{setting.name}: {setting.note or RULES['not-modelled']}; `--allow {setting.name}` takes it as of no matter"
        case = Case(name=setting.name, of=subject, standing="failed", rule="not-modelled", message=message, text=message)
        yield case.at(setting.place)


def shown_path(path: str) -> str:
    """A file as services name it: from the root of the checkout that a service names, else from the current folder."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.getcwd())
    whole = Path(os.path.abspath(path))
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else whole.as_posix()
