"""What an importer knows of a configuration: rules of systems are asked of it, and the table of what settings mean together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from placeproof.framework_rules import Broken, broken, of_system
from placeproof.framework_rules.formula import Fact, Formula
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Reading, Role
from placeproof.importers.meaning import Meaning, Refusal
from placeproof.models.hub import checkpoint


class Known(Mapping[str, Any]):
    """Facts by the names that rules use, and settings by their own. ``settings``: those that each fact comes from."""

    def __init__(self, reader: Reader, meaning: Meaning) -> None:
        self.reader, self.meaning = reader, meaning
        self.facts: dict[str, Fact] = {}
        self.settings: dict[str, tuple[str, ...]] = {}

    def __getitem__(self, name: str) -> Any:
        """A fact, or the value of a setting. Raises KeyError for what is not known, which a setting is that has a value it cannot have."""
        return self.facts[name] if name in self.facts else self.reader.value(name)

    def __contains__(self, name: object) -> bool:
        return name in self.facts or self.reader.known(str(name))

    def __iter__(self) -> Iterator[str]:
        return iter((*self.facts, *(name for name in self.reader.fields if name not in self.facts)))

    def __len__(self) -> int:
        return len({*self.facts, *self.reader.fields})

    def put(self, name: str, value: Fact, *settings: str, unset: bool = False) -> None:
        """Add a fact. None is not known, unless it may be ``unset``; nor is what comes from a setting with a value that it cannot have."""
        if (value is not None or unset) and self.reader.sound(*settings):
            self.facts[name] = value
            self.settings[name] = settings

    def derive(self) -> None:
        """Add the facts of the table that what is known suffices for, and what is known of the model that the settings name."""
        if self.meaning.models:
            name = next((one for one in self.meaning.models if self.reader.said(one)), self.meaning.models[0])
            known = checkpoint(str(self.reader.get(name)))
            self.put("model_type", known.type if known else "", name)
            self.put("dense_model", known is not None and not known.experts, name)
            self.put("sparse_model", known is not None and known.experts, name)
            self.put("text_model", known is not None and known.text, name)
        for name, fact in self.meaning.facts.items():
            if all(each in self for each in fact.formula.names):
                self.put(name, fact.formula.value(self), *(fact.of or self._named(fact.formula)), unset=fact.unset)

    def _named(self, formula: Formula | None) -> tuple[str, ...]:
        """The settings that a formula speaks of, itself or by a fact."""
        return tuple(one for name in (formula.names if formula else ()) for one in self.settings.get(name, (name,)))

    def _with(self, **facts: Any) -> Known:
        """The same and further facts."""
        other = copy(self)
        other.facts = {**self.facts, **facts}
        return other

    def breaks(self, rule: str) -> bool:
        """Whether what is known breaks a rule: what follows from the same mistake is not to be told beside it."""
        (formula,) = (known.formula for known in of_system(rule.partition("-")[0]) if known.id == rule)
        return set(formula.names) <= set(self.facts) and not formula.holds(self.facts)

    def ask(self, *systems: str, passed_over: Collection[str] = ()) -> None:
        """Refuse what breaks a rule of the systems. ``passed_over``: rules that are not asked of such a file."""
        told: dict[tuple[str, str, str], list[str]] = {}
        for one in (one for system in systems for one in broken(system, self.facts)):
            if one.rule.id not in passed_over:
                told.setdefault(self._told(one), []).append(one.rule.id)
        for (name, message, help), ids in told.items():
            self.reader.refuse(name, message, help, notes=tuple(f"`placeproof explain {rule}`" for rule in ids))

    def _told(self, breach: Broken) -> tuple[str, str, str]:
        """Where a broken rule is told, the message and the remedy."""
        involved = tuple(self.reader.name(name) for fact in breach.facts for name in self.settings[fact])
        refusal = self.meaning.told(breach.rule.id)
        if refusal is None:
            shown = ", ".join(f"{fact} = {_shown(value)}" for fact, value in breach.facts.items())
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(involved))
            refusal = Refusal(message=f"{breach.rule.title} refuses it: {breach.rule.says} (here {shown})", help=f"change one of {names}")
        return self._place(refusal.at or involved), refusal.message.format_map(self), refusal.help.format_map(self)

    def _said(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        """Those that the document says."""
        return tuple(name for name in settings if self.reader.name(name) in self.reader.found)

    def _place(self, settings: tuple[str, ...]) -> str:
        return (self._said(settings) or settings)[0]

    def check(self) -> None:
        """Refuse what the table refuses beside the rules."""
        for one in self.meaning.refusals:
            if one.rules or (one.unless and self.breaks(one.unless)):
                continue
            for name in self._said(one.each) if one.each else ("",):
                around = self._with(value=self.reader.get(name), setting=name.split(".")[-1]) if name else self
                if _holds(one.when, around):
                    place = name or self._place(one.at or self._named(one.when))
                    self.reader.refuse(place, one.message.format_map(around), one.help.format_map(around))

    def readings(self) -> tuple[Reading, ...]:
        """What became of each setting, in the order of the file."""
        return tuple(map(self.noted, self.reader.readings))

    def unsaid(self, *names: str) -> Iterator[Reading]:
        """Settings that a configuration leaves unsaid, and whose defaults change the step."""
        for name in names:
            if name not in self.reader.found:
                reading = self.noted(Reading(name=name, value=self.reader.get(name), role=Role.READ, note="the default"))
                yield replace(reading, note=f"not said; {reading.note}")

    def noted(self, reading: Reading) -> Reading:
        """What became of a setting: as the table says it, or else as the importer has noted it."""
        if self.reader.why_unread(reading.name):
            return reading
        known = self.reader.fields.get(reading.name)
        name = reading.name if known is None else known.name
        around = self._with(value=reading.value, setting=name.split(".")[-1])
        for one in self.meaning.notes:
            if one.concerns(name) and _holds(one.when, around):
                return reading.noted(one.role, one.text.format_map(around), one.told)
        return reading.noted(*self.reader.notes[reading.name]) if reading.name in self.reader.notes else reading


def _holds(formula: Formula | None, around: Mapping[str, Any]) -> bool:
    """Whether what is known suffices for a formula, and it holds."""
    return formula is None or (all(name in around for name in formula.names) and formula.holds(around))


def _shown(value: Fact) -> str:
    return {True: "yes", False: "no", None: "none"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
