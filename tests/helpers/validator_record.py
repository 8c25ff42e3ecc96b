"""What is recorded of the validators of real systems, and how it is compared with the formulas of rules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

Config = Mapping[str, Any]
ACCEPTED = "."
#: The verdict where a validator refuses with a message that no rule of the grid has.
OTHER = "?"


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Disagreements of one kind. ``where``: the configurations; ``right``: the validator, the collected formula, or our importer."""

    where: Callable[[Config], bool]
    right: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All combinations of the values of ``facts``.

    ``package``: whose validator decides. ``reasons``: a part of each message that it may refuse with -> the rule that the message
    belongs to, none for a check that the collection does not have. ``derived``: the facts that formulas ask for, from a configuration.
    ``text``: the configuration as a file of the system, with the number of devices; None where no file says it; ``reads``: which of our
    importers reads it. ``explained``, ``imported``: where validator and formulas differ, and validator and importer.
    """

    name: str
    package: str
    facts: Mapping[str, tuple[Any, ...]]
    reasons: Mapping[str, str]
    derived: Callable[[Config], Config] = dict
    text: Callable[[Config], tuple[str, int | None] | None] | None = None
    reads: str = ""
    explained: tuple[Explained, ...] = ()
    imported: tuple[Explained, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that are compared."""
        return tuple(dict.fromkeys(rule for rule in self.reasons.values() if rule))

    def configs(self) -> Iterator[dict[str, Any]]:
        """Every configuration, the first fact varying slowest."""
        for values in product(*self.facts.values()):
            yield dict(zip(self.facts, values, strict=True))

    def verdict(self, message: str | None) -> str:
        """What a validator said, as a letter: the number of the reason; accepted without a message."""
        if message is None:
            return ACCEPTED
        found = [n for n, part in enumerate(self.reasons) if (part in message if part else not message)]
        return chr(ord("a") + found[0]) if found else OTHER

    def rule_of(self, verdict: str) -> str:
        """The rule whose message a verdict is."""
        return list(self.reasons.values())[ord(verdict) - ord("a")]

    def digest(self) -> str:
        """A hash of the grid: a record belongs to one definition."""
        return hashlib.sha256(json.dumps([self.name, self.facts, self.reasons]).encode()).hexdigest()


def packed(verdicts: str) -> str:
    """Verdicts with their repetitions counted: ``aaa..`` is ``3a2.``."""
    return "".join(f"{len(list(run))}{letter}" for letter, run in groupby(verdicts))


def unpacked(text: str) -> str:
    """The verdicts of a packed text."""
    found, number = [], ""
    for letter in text:
        if letter.isdigit():
            number += letter
        else:
            found.append(letter * int(number))
            number = ""
    return "".join(found)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A configuration on which a validator and the formulas of its rules differ. ``said``: the reason that it was refused with."""

    config: Config
    said: str
    broken: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether the validator accepts it."""
        return not self.said


def compared(grid: Grid, verdicts: str) -> tuple[Disagreement, ...]:
    """Where verdicts and formulas differ: it is accepted and a formula is broken, or refused for a rule whose formula holds."""
    from placeproof.framework_rules import rules

    asked = {rule: rules()[rule].formula for rule in grid.rules}
    found = []
    for config, verdict in zip(grid.configs(), verdicts, strict=True):
        said = "" if verdict == ACCEPTED else grid.rule_of(verdict)
        if verdict != ACCEPTED and not said:
            continue  # a check that the collection does not have
        facts = grid.derived(config)
        broken = tuple(rule for rule, formula in asked.items() if not formula.holds(facts))
        if bool(said) != bool(broken) or (said and said not in broken):
            found.append(Disagreement(config=config, said=said, broken=broken))
    return tuple(found)


def record(grid: Grid, verdicts: str) -> dict[str, Any]:
    """What is written down of a grid."""
    differ = compared(grid, verdicts)
    return {
        "package": grid.package,
        "sha256": grid.digest(),
        "configurations": len(verdicts),
        "accepted": verdicts.count(ACCEPTED),
        "disagreements": len(differ),
        "verdicts": packed(verdicts),
    }
