"""A rule of a training framework in words: its kind, the reason, what its evidence came to, and what other systems say."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, assert_never

from placeproof.framework_rules import MEANINGS, Rule
from placeproof.framework_rules.evidence import Agreement, Compared, Found, Refusal, Related, Verdict, examine
from placeproof.framework_rules.formula import Facts
from placeproof.framework_rules.questions import Question, asked
from placeproof.framework_rules.subjects import source
from placeproof.report.text import columns
from placeproof.semantics import tensors
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.script import missing, shown_pair, what_differs


def text(rule: Rule) -> Iterator[str]:
    """A rule for the command line. Its evidence is run."""
    yield f"rule {rule.id} of {rule.title}: {rule.kind.value}"
    yield ""
    yield rule.says
    yield f"    {rule.formula.text}"
    yield ""
    yield f"{rule.kind.value}: {MEANINGS[rule.kind]}"
    yield f"why: {rule.why}"
    for one in examine(rule):
        yield ""
        yield from evidence(one)
    for question in asked(rule.id):
        yield ""
        yield from others(question, rule.id)
    yield ""
    yield f"source: {rule.citation}"


def evidence(piece: Found) -> Iterator[str]:
    """What one piece of evidence came to."""
    match piece:
        case Verdict():
            yield from _verdict(piece)
        case Refusal():
            yield f"refused: {piece.subject}: {piece.why}"
        case Compared():
            yield from _compared(piece)
        case Related():
            yield _related(piece)
        case Agreement():
            yield from _agreement(piece)
        case _:
            assert_never(piece)


def facts(configuration: Facts) -> str:
    """A configuration in words."""
    return ", ".join(f"{name} = {_shown(value)}" for name, value in configuration.items())


def others(question: Question, rule: str = "") -> Iterator[str]:
    """What systems answer, and the smallest configurations on which they differ."""
    yield f"systems disagree: {question.asks}"
    yield f"  from the program: {question.says}"
    for answer in question.answers:
        mark = " (this rule)" if rule in answer.rules else ""
        yield f"  {answer.title}: {answer.says}{mark}"
    for parted in question.parted():
        if not rule or rule in (*parted.allows.rules, *parted.refuses.rules):
            yield f"  {facts(parted.facts)}: {parted.allows.title} allows it, {parted.refuses.title} does not"


def witness(judged: Judged) -> str:
    """The run that refutes a program, in a line."""
    counterexample = judged.found
    assert counterexample is not None
    if isinstance(counterexample, tensors.RefutingBlockRun):
        sizes = facts({**counterexample.setup.degrees, **counterexample.setup.sizes})
        return f"{sizes}: {counterexample.words}"
    setup, what = counterexample.setup, counterexample.what
    mesh = facts({**setup.degrees, "micro-batches": setup.microbatches})
    if isinstance(what, Fault):
        return f"{mesh}: {what.words}"
    if what.actual is None:
        return f"{mesh}: {missing(what)}"
    expected, actual = shown_pair(what)
    return f"{mesh}: {what_differs(what)}: expected {_number(expected)}, actual {_number(actual)}"


def _number(value: Any) -> str:
    """A number that can be read: where a device reads what it does not hold, it is arbitrary and may have many digits."""
    shown = str(value)
    return shown if len(shown) <= 20 else f"about {float(value):.6g}"


def _verdict(verdict: Verdict) -> Iterator[str]:
    judged = verdict.judged
    put = f" with {facts(verdict.facts)}" if verdict.facts is not None else ""
    if judged.word == "refuted":
        condition = f": {judged.about.condition} is broken" if judged.about is not None else ""
        yield f"refuted: {verdict.subject}{put}{condition}"
        yield f"  {witness(judged)}"
    else:
        given = [f"{a.name} = {a.degree}" for a in judged.program.axes if a.degree is not None]
        yield f"{judged.word}: {verdict.subject}{put}, for {', '.join([*judged.for_all, *given]) or 'one device'}"
    if verdict.subject.endswith(".step"):
        program = source(verdict.subject)
        yield from (f"    {line}" for line in (program.format(**verdict.facts) if verdict.facts else program).rstrip().splitlines())


def _compared(compared: Compared) -> Iterator[str]:
    pair = compared.pair
    if not pair.key:
        yield f"saves nothing: {pair.of} costs what {pair.against} costs, in memory and in traffic"
        return
    yield f"costs more: {pair.of} less {pair.against}, bytes per device"
    never = {pair.key: "  (never negative)"}
    yield from columns([(_name(key), f"{difference}{never.get(key, '')}") for key, difference in compared.differences.items()])


def _name(key: str) -> str:
    return key.partition(".")[2].replace("_", " ")


def _related(related: Related) -> str:
    sides = related.formula.sides({})
    assert sides is not None
    costs = "costs" if related.costs else "costs nothing"
    return f"{costs}: {related.formula.text}: {_shown(related.left)} {sides[1]} {_shown(related.right)}"


def _shown(value: Any) -> str:
    if value == inf:
        return "for ever"
    if isinstance(value, tuple):
        return " * ".join(" ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in value)
    return str(value)


def _agreement(agreement: Agreement) -> Iterator[str]:
    assert agreement.kept is not None
    assert agreement.broken is not None
    differ = len(agreement.stricter) + len(agreement.looser)
    where = "on all" if not differ else f"on {agreement.configs - differ}"
    yield f"our line: {agreement.line.formula.text}"
    yield f"  agrees with the rule {where} of {agreement.configs} configurations: {_ranges(agreement)}"
    yield f"  allowed: {facts(agreement.kept)}"
    yield f"  not: {facts(agreement.broken)}"
    if agreement.stricter and agreement.line.stricter is not None:
        first = facts(agreement.stricter[0])
        yield f"  the rule is stricter on {len(agreement.stricter)}, first at {first}: {agreement.line.stricter.value}"
        yield f"    {agreement.line.stricter_why}"
    if agreement.looser:
        yield f"  the rule is looser on {len(agreement.looser)}, first at {facts(agreement.looser[0])}"
        yield f"    {agreement.line.looser_why}"


def _ranges(agreement: Agreement) -> str:
    """The values of each fact."""

    def of(values: tuple[Any, ...]) -> str:
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        if whole and values == tuple(range(values[0], values[-1] + 1)) and len(values) > 2:
            return f"{values[0]} to {values[-1]}"
        return " or ".join(_shown(v) for v in values)

    return ", ".join(f"{name} {of(values)}" for name, values in agreement.line.domains.items())
