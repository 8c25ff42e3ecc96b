"""Running the evidence of a rule: nothing that a table says of a program, a cost or a grid is believed.

``examine`` runs everything and returns what was found; ``complaints`` says what of it does not bear the rule's kind out. A rule whose
kind is wrong gets a complaint: each kind asks for evidence that the others may not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from placeproof.core.diagnostics import InputError
from placeproof.framework_rules.domains import apart, grid, size
from placeproof.framework_rules.formula import Facts, Formula
from placeproof.framework_rules.subjects import filled, read_subject
from placeproof.framework_rules.table import Line, Pair, Rule, RuleKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import sympy

    from placeproof.cost.derive import Derivation
    from placeproof.semantics.judge.verdict import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A program and what was found about it. ``facts``: what was put into a template; ``expected``: proved or refuted."""

    subject: str
    expected: str
    judged: Judged
    facts: Facts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A composition and why it is refused; empty where it is not."""

    subject: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The costs of two subjects. ``differences``: of each formula in which they differ, the first less the second, in bytes."""

    pair: Pair
    differences: Mapping[str, sympy.Expr]
    dearer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """A relation between numbers, with both of its sides."""

    formula: Formula
    left: Any
    right: Any
    holds: bool
    costs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A rule's formula and our line on all small configurations.

    ``kept``, ``broken``: the smallest configurations on which both agree. ``stricter``: where the rule refuses what the line allows;
    ``looser``: the other way round; both smallest first.
    """

    line: Line
    configs: int
    kept: Facts | None
    broken: Facts | None
    stricter: tuple[Facts, ...]
    looser: tuple[Facts, ...]


Found: TypeAlias = Verdict | Refusal | Compared | Related | Agreement
#: The closed forms that are compared.
KEYS = (
    "memory.model_states",
    "memory.activations",
    "memory.transient",
    "memory.peak",
    "memory.host",
    "traffic.sent_per_device",
    "traffic.host_link",
)


def examine(rule: Rule) -> Iterator[Found]:
    """Run the evidence of a rule, one piece after the other."""
    if rule.line is not None:
        yield agreement(rule.formula, rule.line)
    for texts, expected in ((rule.proved, "proved"), (rule.refuted, "refuted")):
        for text in texts:
            yield Verdict(subject=text, expected=expected, judged=_judge(text))
    if rule.template is not None:
        for facts in rule.template.configs:
            expected = "proved" if rule.formula.holds(facts) else "refuted"
            yield Verdict(subject=rule.template.program, expected=expected, facts=facts, judged=_judge_filled(rule.template.program, facts))
    for text in rule.refused:
        yield Refusal(subject=text, why=_refusal(text))
    for pair in (*rule.saves_nothing, *rule.dearer):
        yield _compared(pair)
    for formula in (*rule.costs, *rule.free):
        yield _related(formula, costs=formula in rule.costs)


def complaints(rule: Rule, evidence: tuple[Found, ...]) -> Iterator[str]:
    """Everything that keeps the evidence from bearing the rule's kind out."""
    for one in evidence:
        yield from _false(rule, one)
    proved = [v for v in evidence if isinstance(v, Verdict) and v.judged.word == "proved"]
    refuted = [v for v in evidence if isinstance(v, Verdict) and v.judged.word == "refuted"]
    drawn, mixed = rule.line is not None, rule.line is not None and rule.line.stricter is not None
    priced = bool(rule.saves_nothing or rule.dearer or rule.costs)
    demands = {
        RuleKind.SEMANTIC: (bool(proved and refuted), "a semantic rule shows a step that is proved and one that is refuted"),
        RuleKind.SHAPE: (
            drawn and (mixed or not (proved or priced)),
            "a rule about shapes shows a line; proofs and costs belong to what the line allows",
        ),
        RuleKind.COST: (bool(proved) and priced, "a rule about cost shows a step that breaks it, proved, and what it costs"),
        RuleKind.ENGINEERING: (not (priced or drawn or rule.refused), "what draws a line or has a price is no matter of engineering"),
    }
    met, wanted = demands[rule.kind]
    if not met:
        yield wanted
    if refuted and rule.kind is not RuleKind.SEMANTIC:
        yield "a step that breaks the rule is refuted: the rule is semantic"


def _false(rule: Rule, evidence: Found) -> Iterator[str]:
    """What of one piece of evidence is not so."""
    match evidence:
        case Verdict():
            if evidence.judged.word != evidence.expected:
                yield f"{evidence.subject} is {evidence.judged.word}, not {evidence.expected}: {evidence.judged.why}"
        case Refusal():
            if not evidence.why:
                yield f"{evidence.subject} is not refused"
        case Compared():
            if evidence.pair.key and not evidence.dearer:
                yield f"{evidence.pair.of} does not cost more than {evidence.pair.against} in {evidence.pair.key}"
            if not evidence.pair.key and evidence.differences:
                yield f"{evidence.pair.of} and {evidence.pair.against} differ in {', '.join(evidence.differences)}"
        case Related():
            if not evidence.holds:
                yield f"{evidence.formula.text} does not hold: {evidence.left} and {evidence.right}"
        case Agreement():
            yield from _disagrees(evidence)


def _disagrees(agreement: Agreement) -> Iterator[str]:
    if agreement.kept is None or agreement.broken is None:
        yield "a line separates: no configuration of the grid is on both sides of it"
    for configuration, why, word in (
        (agreement.stricter, agreement.line.stricter_why, "stricter"),
        (agreement.looser, agreement.line.looser_why, "looser"),
    ):
        if configuration and not why:
            yield f"the rule is {word} than our line at {configuration[0]}, and the table does not say why"
        if why and not configuration:
            yield f"the table says why the rule is {word} than our line, and it is not"
    if bool(agreement.line.stricter) != bool(agreement.stricter):
        yield "the kind of the difference is said where there is one, and only there"


@lru_cache(maxsize=256)
def _judge(text: str) -> Judged:
    from placeproof.semantics.judge.verdict import judge

    return judge(read_subject(text))


def _judge_filled(name: str, facts: Facts) -> Judged:
    from placeproof.semantics.judge.verdict import judge

    return judge(filled(name, facts))


def _refusal(text: str) -> str:
    try:
        read_subject(text)
    except InputError as refused:
        return refused.diagnostics[0].message
    return ""


@lru_cache(maxsize=256)
def _derived(text: str) -> Derivation:
    from placeproof.cost.derive import derive

    return derive(read_subject(text))


def _compared(pair: Pair) -> Compared:
    import sympy

    from placeproof.cost.closed import never_less, tidy

    first, second = _derived(pair.of).forms, _derived(pair.against).forms
    differences = {key: tidy(sympy.expand(first[key] - second[key])) for key in KEYS if sympy.expand(first[key] - second[key]) != 0}
    dearer = pair.key in differences and never_less(first[pair.key], second[pair.key])
    return Compared(pair=pair, differences=differences, dearer=dearer)


def _related(formula: Formula, *, costs: bool) -> Related:
    sides = formula.sides({})
    assert sides is not None, f"{formula.text} is no comparison"
    left, _, right = sides
    return Related(formula=formula, left=left, right=right, holds=formula.holds({}), costs=costs)


def agreement(formula: Formula, line: Line) -> Agreement:
    """Compare a rule's formula with our line on every configuration of the grid."""
    sides: dict[tuple[bool, bool], list[Facts]] = {(a, b): [] for a in (True, False) for b in (True, False)}
    for facts in grid(line.domains):
        sides[formula.holds(facts), line.formula.holds(facts)].append(facts)
    broken = min(sides[False, False], key=size, default=None)
    kept = min(sides[True, True], key=lambda f: (apart(f, broken) if broken else 0, size(f)), default=None)
    return Agreement(
        line=line,
        configs=sum(map(len, sides.values())),
        kept=kept,
        broken=broken,
        stricter=tuple(sorted(sides[False, True], key=size)),
        looser=tuple(sorted(sides[True, False], key=size)),
    )
