"""The rules as data: what each system enforces, what we say of it, and with what evidence. One TOML file a system."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.framework_rules.formula import Fact, Facts, Formula, read_formula
from placeproof.framework_rules.functions import OURS

_FOLDER = Path(__file__).parent


class Kind(Enum):
    """What a rule is about, judged from the program that every device runs."""

    SEMANTIC = "semantic"  # there is a step that breaks it, and trains something else
    SHAPE = "shape"  # what breaks it cannot be laid out on devices
    COST = "cost"  # what breaks it trains the same, and costs more, or saves nothing
    ENGINEERING = "engineering"  # what breaks it trains the same, or is not a program's matter: the system does not do it


#: What each kind means, in words for users.
MEANINGS: dict[Kind, str] = {
    Kind.SEMANTIC: "breaking it trains something else: a step that breaks it is refuted, and one that keeps it is proved",
    Kind.SHAPE: "breaking it leaves no layout: something does not divide, or there is less of it than devices",
    Kind.COST: "breaking it is correct, and costs more or saves nothing: by a formula that is derived",
    Kind.ENGINEERING: "nothing that a program could show forbids it: the system does not implement it, or wants it said in another way",
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
    stricter: Kind | None = None
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
    kind: Kind
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
    found = [_rule(entry) for system in SYSTEMS for entry in _read(system)]
    by_id = {rule.id: rule for rule in found}
    assert len(by_id) == len(found), "an id is used twice"
    return by_id


def of_system(system: str) -> tuple[Rule, ...]:
    """The rules of one system, by its key or its name. Raises InputError for one that is not known."""
    wanted = {title.lower(): key for key, title in SYSTEMS.items()}.get(system.lower(), system.lower())
    if wanted not in SYSTEMS:
        problems = Problems()
        problems.add("PP204", f"no rules of `{system}` are known", help=suggestion(system, SYSTEMS) or "one of " + ", ".join(SYSTEMS))
        problems.raise_if_any()
    return tuple(r for r in rules().values() if r.system == wanted)


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


def _read(name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))["rule"]
    return entries


def _rule(entry: dict[str, Any]) -> Rule:
    """A rule of a table. A key that is not known is an error of ours."""
    rest = dict(entry)

    def texts(key: str) -> tuple[str, ...]:
        return tuple(rest.pop(key, ()))

    def pairs(key: str) -> tuple[Pair, ...]:
        return tuple(Pair(**pair) for pair in rest.pop(key, ()))

    def relations(key: str) -> tuple[Formula, ...]:
        return tuple(read_formula(text, OURS) for text in rest.pop(key, ()))

    formula, template = read_formula(rest.pop("formula")), rest.pop("template", None)
    rule = Rule(
        id=rest.pop("id"),
        says=rest.pop("rule"),
        formula=formula,
        citation=rest.pop("citation"),
        kind=Kind(rest.pop("class")),
        why=rest.pop("why"),
        proved=texts("proved"),
        refuted=texts("refuted"),
        refused=texts("refused"),
        template=_template(template) if template else None,
        line=_line(rest, formula) if "line" in rest else None,
        saves_nothing=pairs("saves_nothing"),
        dearer=pairs("dearer"),
        costs=relations("costs"),
        free=relations("free"),
    )
    assert not rest, f"{rule.id}: unknown keys {', '.join(rest)}"
    return rule


def _template(entry: dict[str, Any]) -> Template:
    configs = ({name: _fact(value) for name, value in config.items()} for config in entry["configs"])
    return Template(program=entry["program"], configs=tuple(configs))


def _line(rest: dict[str, Any], formula: Formula) -> Line:
    """What we say of where the line is; takes its keys out of an entry."""
    from placeproof.framework_rules.domains import domain

    line = read_formula(rest.pop("line"), OURS)
    own = {name: tuple(map(_fact, values)) for name, values in rest.pop("domains", {}).items()}
    stricter = rest.pop("stricter", None)
    names = dict.fromkeys((*formula.names, *line.names))
    return Line(
        formula=line,
        domains={name: own[name] if name in own else domain(name) for name in names},
        stricter=Kind(stricter) if stricter else None,
        stricter_why=rest.pop("stricter_why", ""),
        looser_why=rest.pop("looser_why", ""),
    )


def _fact(value: Any) -> Fact:
    return tuple(map(_fact, value)) if isinstance(value, list) else value
