"""The rules that a system enforces, asked of a configuration of its own: importers say what they know, the rules say what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from placeproof.framework_rules import Broken, broken, of_system
from placeproof.framework_rules.formula import Fact
from placeproof.importers.fields import Reader


class Refuse(Protocol):
    """Adds a problem at the place of a setting."""

    def __call__(self, name: str, message: str, help: str, code: str = "PP504", notes: tuple[str, ...] = ()) -> None:
        """Add it."""


@dataclass(frozen=True, slots=True)
class Says:
    """How a broken rule is told, with facts in braces, and the settings at whose place: the first of them that the file says."""

    message: str
    help: str
    at: tuple[str, ...] = ()


@dataclass(slots=True)
class Known:
    """What an importer knows of a configuration: facts by the names that rules use, and the settings that each comes from."""

    reader: Reader
    facts: dict[str, Fact] = field(default_factory=dict)
    settings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def put(self, name: str, value: Fact, *settings: str, unset: bool = False) -> None:
        """Add a fact. None is not known, unless it may be ``unset``; nor is what comes from a setting with a value that it cannot have."""
        if (value is not None or unset) and all(self.reader.sound(one) for one in settings):
            self.facts[name] = value
            self.settings[name] = settings

    def breaks(self, rule: str) -> bool:
        """Whether what is known breaks a rule: what follows from the same mistake is not to be told beside it."""
        (formula,) = (known.formula for known in of_system(rule.partition("-")[0]) if known.id == rule)
        return set(formula.names) <= set(self.facts) and not formula.holds(self.facts)

    def ask(self, system: str, refuse: Refuse, says: Mapping[str, Says], passed_over: Collection[str] = ()) -> None:
        """Refuse what breaks a rule of the system. ``passed_over``: rules that are not asked of such a file."""
        told: dict[tuple[str, str, str], list[str]] = {}
        for one in broken(system, self.facts):
            if one.rule.id not in passed_over:
                told.setdefault(self._told(one, says.get(one.rule.id)), []).append(one.rule.id)
        for (name, message, help), ids in told.items():
            refuse(name, message, help, notes=tuple(f"`placeproof explain {rule}`" for rule in ids))

    def _told(self, one: Broken, says: Says | None) -> tuple[str, str, str]:
        """Where it is told, the message and the remedy."""
        involved = [name for fact in one.facts for name in self.settings[fact]]
        if says is None:
            shown = ", ".join(f"{fact} = {_shown(value)}" for fact, value in one.facts.items())
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(involved))
            says = Says(f"{one.rule.title} refuses it: {one.rule.says} (here {shown})", f"change one of {names}")
        at = says.at or tuple(involved)
        place = next((name for name in at if name in self.reader.found), at[0])
        return place, says.message.format(**one.facts), says.help.format(**one.facts)


def _shown(value: Fact) -> str:
    return {True: "yes", False: "no", None: "none"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
