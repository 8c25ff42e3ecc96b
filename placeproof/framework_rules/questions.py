"""Questions on which systems disagree: each answer as a predicate over the same facts, and the smallest configuration that parts two."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from placeproof.framework_rules.domains import grid, size
from placeproof.framework_rules.formula import Fact, Facts, Formula, read_formula
from placeproof.framework_rules.functions import OURS
from placeproof.framework_rules.table import SYSTEMS, rules

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
        return tuple(found for one, two in combinations(self.answers, 2) if (found := _part(self, one, two)))

    def against(self, answer: Answer) -> tuple[Facts | None, Facts | None]:
        """The smallest configuration that an answer refuses and our line allows, and the smallest the other way round."""
        sides = [(facts, answer.allows(facts), self.line.holds(facts)) for facts in sorted(grid(self.domains), key=size)]
        refused = next((facts for facts, theirs, ours in sides if ours and not theirs), None)
        allowed = next((facts for facts, theirs, ours in sides if theirs and not ours), None)
        return refused, allowed


@lru_cache(maxsize=1)
def questions() -> dict[str, Question]:
    """The questions by name."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))["question"]
    return {entry["name"]: _question(entry) for entry in data}


def asked(rule: str) -> tuple[Question, ...]:
    """The questions that a rule answers."""
    return tuple(q for q in questions().values() if any(rule in answer.rules for answer in q.answers))


def _question(entry: dict[str, Any]) -> Question:
    return Question(
        name=entry["name"],
        asks=entry["asks"],
        says=entry["says"],
        line=read_formula(entry["line"], OURS),
        proved=tuple(entry["proved"]),
        domains={name: tuple(values) for name, values in entry["domains"].items()},
        answers=tuple(_answer(answer) for answer in entry["answer"]),
    )


def _answer(entry: dict[str, Any]) -> Answer:
    found = tuple(rules()[name] for name in entry.get("rules", ()))
    return Answer(
        system=found[0].system if found else entry["system"],
        says="; ".join(rule.says for rule in found) or entry["says"],
        citation="; ".join(rule.citation for rule in found) or entry["citation"],
        rules=tuple(rule.id for rule in found),
        formulas=tuple(rule.formula for rule in found) or (read_formula(entry["formula"]),),
        facts={name: read_formula(text) for name, text in entry.get("facts", {}).items()},
    )


def _part(question: Question, one: Answer, two: Answer) -> Parted | None:
    for facts in sorted(grid(question.domains), key=size):
        first, second = one.allows(facts), two.allows(facts)
        if first != second:
            return Parted(allows=one if first else two, refuses=two if first else one, facts=facts)
    return None
