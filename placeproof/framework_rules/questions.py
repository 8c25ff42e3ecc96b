"""Questions on which systems disagree: each answer as a predicate over the same facts, and the smallest configuration that parts two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path

from placeproof.core.tables import Table
from placeproof.framework_rules.domains import grid, size
from placeproof.framework_rules.formula import Fact, Facts, Formula, read_formula
from placeproof.framework_rules.table import KIND, SYSTEMS, domains, ours, rules

_FILE = Path(__file__).parent / "questions.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a system says. ``rules``: the ids of its rules, none where the collection has none; ``formulas``: all of them hold of what
    it allows; ``facts``: a rule's facts as formulas over those of the question."""

    system: str
    says: str
    citation: str
    rules: tuple[str, ...]
    formulas: tuple[Formula, ...]
    facts: Mapping[str, Formula]

    @property
    def title(self) -> str:
        """The system's name, with its rules where it has some."""
        return SYSTEMS[self.system] + (f" ({', '.join(self.rules)})" if self.rules else "")

    def allows(self, facts: Facts) -> bool:
        """Whether the system takes a configuration, given by the facts of the question."""
        own = {**facts, **{name: formula.value(facts) for name, formula in self.facts.items()}}
        return all(formula.holds(own) for formula in self.formulas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Two answers and the smallest configuration that the one allows and the other does not."""

    allows: Answer
    refuses: Answer
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question. ``says``: our answer; ``line``: the same as a predicate; ``proved``: subjects that show it."""

    name: str
    asks: str
    says: str
    line: Formula
    proved: tuple[str, ...]
    domains: Mapping[str, tuple[Fact, ...]]
    answers: tuple[Answer, ...]

    def parted(self) -> tuple[Parted, ...]:
        """Every pair of answers that differ, each with the smallest configuration on which they do."""
        return tuple(pair for one, two in combinations(self.answers, 2) if (pair := _part(self, one, two)))

    def against(self, answer: Answer) -> tuple[Facts | None, Facts | None]:
        """The smallest configuration that an answer refuses and our line allows, and the smallest the other way round."""
        sides = [(facts, answer.allows(facts), self.line.holds(facts)) for facts in sorted(grid(self.domains), key=size)]
        refused = next((facts for facts, theirs, ours in sides if ours and not theirs), None)
        allowed = next((facts for facts, theirs, ours in sides if theirs and not ours), None)
        return refused, allowed


@lru_cache(maxsize=1)
def questions() -> dict[str, Question]:
    """The questions by name."""
    return {question.name: question for question in read_questions(Table.open(_FILE, kind=KIND))}


def read_questions(table: Table) -> tuple[Question, ...]:
    """The questions of a file. Raises InputError with all that is wrong with it."""
    table.known(("question",))
    return table.sound(tuple(map(_question, table.rows("question"))))


def asked(rule: str) -> tuple[Question, ...]:
    """The questions that a rule answers."""
    return tuple(q for q in questions().values() if any(rule in answer.rules for answer in q.answers))


def _question(row: Table) -> Question:
    said = row.fields(
        **dict.fromkeys(("name", "asks", "says"), Table.required),
        line=partial(Table.parsed, read=ours, required=True),
        proved=Table.texts,
        domains=domains,
        answer=lambda row, key: tuple(map(_answer, row.rows(key))),
    )
    return Question(answers=said.pop("answer"), **said)


def _answer(row: Table) -> Answer:
    """An answer by rules of the collection, or one that is said here."""
    said = row.fields(
        **dict.fromkeys(("system", "says", "citation"), Table.text if "rules" in row.data else Table.required),
        rules=Table.texts,
        formula=partial(Table.parsed, read=read_formula, required="rules" not in row.data),
        facts=_derived,
    )
    for name in said["rules"]:
        if name not in rules():
            row.unknown(f"there is no rule `{name}`", name, rules(), "rules")
    named = [rules()[name] for name in said["rules"] if name in rules()]
    return Answer(
        system=named[0].system if named else said["system"],
        says="; ".join(rule.says for rule in named) or said["says"],
        citation="; ".join(rule.citation for rule in named) or said["citation"],
        rules=said["rules"],
        formulas=tuple(rule.formula for rule in named) or (said["formula"],),
        facts=said["facts"],
    )


def _derived(row: Table, key: str) -> dict[str, Formula]:
    inner = row.table(key)
    return {name: inner.parsed(name, read_formula) for name in inner.data}


def _part(question: Question, answer: Answer, two: Answer) -> Parted | None:
    for facts in sorted(grid(question.domains), key=size):
        first, second = answer.allows(facts), two.allows(facts)
        if first != second:
            return Parted(allows=answer if first else two, refuses=two if first else answer, facts=facts)
    return None
