"""The rules as data: what each system enforces, what we say of it, and with what evidence. One TOML file a system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import refuse, suggestion
from placeproof.core.tables import FileKind, Table, records
from placeproof.framework_rules.domains import domain
from placeproof.framework_rules.formula import Fact, Facts, Formula, read_formula
from placeproof.framework_rules.functions import OURS

_FOLDER = Path(__file__).parent
#: What the files beside this module are.
KIND = FileKind(noun="a file of rules", manual="see the other entries, and docs/reference/rules.md")


class RuleKind(Enum):
    """What a rule is about, judged from the program that every device runs."""

    SEMANTIC = "semantic"  # there is a step that breaks it, and trains something else
    SHAPE = "shape"  # what breaks it cannot be laid out on devices
    COST = "cost"  # what breaks it trains the same, and costs more, or saves nothing
    ENGINEERING = "engineering"  # what breaks it trains the same, or is not a program's matter: the system does not do it


#: What each kind means, in words for users.
MEANINGS: dict[RuleKind, str] = {
    RuleKind.SEMANTIC: "breaking it trains something else: a step that breaks it is refuted, and one that keeps it is proved",
    RuleKind.SHAPE: "breaking it leaves no layout: something does not divide, or there is less of it than devices",
    RuleKind.COST: "breaking it is correct, and costs more or saves nothing: by a formula that is derived",
    RuleKind.ENGINEERING: "nothing that a program could show forbids it: the system does not implement it, or wants it said in another way",
}

#: The systems by the prefix of their rules' ids.
SYSTEMS: dict[str, str] = {
    "megatron": "Megatron-LM",
    "deepspeed": "DeepSpeed",
    "torchtitan": "torchtitan",
    "accelerate": "accelerate",
    "colossalai": "ColossalAI",
    "nanotron": "nanotron",
    "pytorch": "PyTorch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two subjects whose costs are compared. ``key``: the formula in which the first costs more."""

    of: str
    against: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A program with facts to fill in, and configurations of which some keep the rule: it is proved of these and refuted of the others."""

    program: str
    configs: tuple[Facts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where we draw the line that a rule draws, by dealing out and by timetables. Both are evaluated for all small configurations.

    ``stricter``: of what kind the difference is where the rule refuses what the line allows; ``looser``: why the rule allows what the
    line does not. Both are empty where there is no such difference.
    """

    formula: Formula
    domains: Mapping[str, tuple[Fact, ...]]
    stricter: RuleKind | None = None
    stricter_why: str = ""
    looser_why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that a system enforces. ``says``: in the collection's words; ``formula``: true of what is allowed; ``citation``: where.

    ``why``: our reason for its kind. Evidence: ``proved``, ``refuted`` and ``refused`` name subjects
    (:mod:`placeproof.framework_rules.subjects`); ``saves_nothing`` and ``dearer`` compare costs; ``costs`` and ``free`` are relations
    between numbers of orders, cuts and traffic, that show that breaking the rule costs something, or nothing.
    """

    id: str
    says: str
    formula: Formula
    citation: str
    kind: RuleKind
    why: str
    proved: tuple[str, ...] = ()
    refuted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    template: Template | None = None
    line: Line | None = None
    saves_nothing: tuple[Pair, ...] = ()
    dearer: tuple[Pair, ...] = ()
    costs: tuple[Formula, ...] = ()
    free: tuple[Formula, ...] = ()

    @property
    def system(self) -> str:
        """The system's key in :data:`SYSTEMS`."""
        return self.id.partition("-")[0]

    @property
    def title(self) -> str:
        """The system's name."""
        return SYSTEMS[self.system]


@lru_cache(maxsize=1)
def rules() -> dict[str, Rule]:
    """All rules by id, system by system, in the order of the collection."""
    return {rule.id: rule for system in SYSTEMS for rule in of_system(system)}


def of_system(system: str) -> tuple[Rule, ...]:
    """The rules of one system, by its key or its name. Raises InputError for one that is not known."""
    wanted = {title.lower(): key for key, title in SYSTEMS.items()}.get(system.lower(), system.lower())
    if wanted not in SYSTEMS:
        refuse("PP204", f"no rules of `{system}` are known", help=suggestion(system, SYSTEMS) or "one of " + ", ".join(SYSTEMS))
    return _of_file(wanted)


@lru_cache(maxsize=len(SYSTEMS))
def _of_file(system: str) -> tuple[Rule, ...]:
    enforced = read_rules(Table.open(_FOLDER / f"{system}.toml", kind=KIND))
    assert all(rule.system == system for rule in enforced), f"a rule of {system} has another's id"
    assert len({rule.id for rule in enforced}) == len(enforced), "an id is used twice"
    return enforced


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that a configuration breaks."""

    rule: Rule
    facts: Mapping[str, Fact]


def broken(system: str, facts: Facts) -> tuple[Broken, ...]:
    """The rules of a system that a configuration breaks, in the order of the collection.

    ``facts``: by the names that formulas use. A rule that asks for a fact which is not given is passed over. Raises InputError for a
    system that is not known, and for facts of which a formula cannot be computed.
    """
    asked = [rule for rule in of_system(system) if set(rule.formula.names) <= set(facts)]
    failed = [rule for rule in asked if not rule.formula.holds(facts)]
    return tuple(Broken(rule=rule, facts={name: facts[name] for name in rule.formula.names}) for rule in failed)


def read_rules(table: Table) -> tuple[Rule, ...]:
    """The rules of a file. Raises InputError with all that is wrong with it."""
    table.known(("rule",))
    return table.sound(tuple(map(_rule, table.rows("rule"))))


def _rule(row: Table) -> Rule:
    said = row.fields(
        **dict.fromkeys(("id", "rule", "citation", "why"), Table.required),
        **dict.fromkeys(("proved", "refuted", "refused"), Table.texts),
        **dict.fromkeys(("costs", "free"), partial(Table.each, read=ours)),
        **dict.fromkeys(("saves_nothing", "dearer"), records(Pair)),
        **dict.fromkeys(("stricter_why", "looser_why"), Table.text),
        **dict.fromkeys(("class", "stricter"), _kind),
        formula=partial(Table.parsed, read=read_formula, required=True),
        template=lambda row, key: _template(row.table(key)) if key in row.data else None,
        line=partial(Table.parsed, read=ours),
        domains=domains,
    )
    formula, line, own = said["formula"], said.pop("line"), said.pop("domains")
    names = dict.fromkeys((*formula.names, *line.names))
    drawn = Line(
        formula=line,
        domains={name: own[name] if name in own else domain(name) for name in names},
        **{key: said.pop(key) for key in ("stricter", "stricter_why", "looser_why")},
    )
    return Rule(says=said.pop("rule"), kind=said.pop("class") or RuleKind.SHAPE, line=drawn if "line" in row.data else None, **said)


def domains(table: Table, key: str) -> dict[str, tuple[Fact, ...]]:
    """For each fact of a table the values that it may have."""
    inner, is_list = table.table(key), lambda value: isinstance(value, list)
    return {name: tuple(map(_fact, inner.value(name, is_list, "a list of values") or ())) for name in inner.data}


def _kind(row: Table, key: str) -> RuleKind | None:
    said = row.choice(key, [kind.value for kind in RuleKind]) if key == "class" or key in row.data else ""
    return RuleKind(said) if said else None


def _template(table: Table) -> Template:
    said = table.fields(program=Table.required, configs=Table.rows)
    return Template(
        program=said["program"], configs=tuple({name: _fact(value) for name, value in row.data.items()} for row in said["configs"])
    )


def ours(text: str) -> Formula:
    """A formula that may use our functions. Raises FormulaError where it is none."""
    return read_formula(text, OURS)


def _fact(value: Any) -> Fact:
    return tuple(map(_fact, value)) if isinstance(value, list) else value
