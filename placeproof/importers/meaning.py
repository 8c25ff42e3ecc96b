"""What settings of a system mean together, as the table ``meaning.toml`` in its folder says it in formulas.

Formulas speak of settings by their names, and of facts. A switch that is not said is off; another setting that is not said, and has no
default, is None. Texts of messages and notes may show what formulas speak of, in braces::

    models = ["model.path"]       # settings that name the model, of which the first that is said counts: formulas may speak of its
                                  # `model_type`, and of whether it is a `dense_model`, known to have no experts, a `sparse_model`, or a
                                  # `text_model`, known to have no part for images or sounds

    [facts]                       # what rules of systems ask for, and the rest of this table; a later one may use an earlier one
    heads = "num_attention_heads" # a fact that is None is not known, unless it may be unset
    way = { is = "by_layers", unset = true, of = ["by_layers", "by_stages"] }  # `of`: settings to blame, where the formula names others

    [words.orders]                # words of the system, and ours: it is read and written by the same table
    Interleaved1F1B = "interleaved"

    [[refusal]]                   # how a rule is told that the facts break, in our own words
    rules = ["megatron-16"]
    message = "{heads} attention heads are no multiple of {tp}"
    help = "change one of the two"
    at = ["num_attention_heads"]  # the place: the first of them that is said; left out: the settings of the facts

    [[refusal]]                   # what is refused beside the rules
    when = "bf16 and fp16"
    each = ["fp16"]               # instead of `at`: each of these that is said; `value` and `setting` are its value and its name
    unless = "megatron-07"        # it follows from the same mistake as this rule

    [[note]]                      # what became of settings, in place of their table's note; the first one that holds
    of = ["hidden_dropout"]       # names, or beginnings of names with a star
    when = "value == 0"
    role = "no matter"
    text = "switched off"
    told = true                   # it is told beside the strategy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from placeproof.core.tables import FileKind, Table, records
from placeproof.framework_rules.formula import Formula, read_formula
from placeproof.importers.imported import Role

_KIND = FileKind(noun="a file of meanings", manual="see the other entries, and placeproof/importers/meaning.py")
_formula = partial(read_formula, dotted=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A fact. ``of``: the settings that it comes from."""

    formula: Formula
    of: tuple[str, ...] = ()
    unset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What is refused, and how it is told: ``when`` a formula holds, or where ``rules`` are broken."""

    message: str
    help: str
    rules: tuple[str, ...] = ()
    when: Formula | None = None
    at: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    unless: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What became of settings, where a formula holds."""

    of: tuple[str, ...]
    text: str
    when: Formula | None = None
    role: Role | None = None
    told: bool = False

    def concerns(self, name: str) -> bool:
        """Whether it speaks of a setting."""
        return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in self.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The table of a system."""

    facts: dict[str, Derived]
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Remark, ...] = ()
    #: Settings that name the model.
    models: tuple[str, ...] = ()
    #: Our words by those of the system, in tables with names.
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def told(self, rule: str) -> Refusal | None:
        """How a broken rule is told; None where in the rule's own words."""
        return next((one for one in self.refusals if rule in one.rules), None)


@cache
def meaning(system: str) -> Meaning:
    """The table of a system."""
    return read_meaning(Table.open(Path(__file__).parent / system / "meaning.toml", kind=_KIND))


def together(*systems: str) -> Meaning:
    """The tables of several systems as one: of notes on a setting the first one that holds."""
    tables = [meaning(system) for system in systems]
    facts = {name: fact for table in tables for name, fact in table.facts.items()}
    refusals = tuple(one for table in tables for one in table.refusals)
    words = {name: table for one in tables for name, table in one.words.items()}
    notes = tuple(one for table in tables for one in table.notes)
    return Meaning(
        facts=facts, refusals=refusals, notes=notes, words=words, models=tuple(name for table in tables for name in table.models)
    )


def read_meaning(file: Table) -> Meaning:
    """The meanings of a file. Raises InputError with all that is wrong with it."""
    file.known(("facts", "words", "refusal", "note", "models"))
    words = file.table("words")
    return file.sound(
        Meaning(
            facts=_facts(file.table("facts")),
            refusals=records(Refusal, when=_read)(file, "refusal"),
            notes=records(Remark, when=_read, role=_role)(file, "note"),
            words={name: words.mapping(name) for name in words.data},
            models=file.texts("models"),
        )
    )


def _facts(table: Table) -> dict[str, Derived]:
    """Facts by their names; one that is a formula alone is written without a table."""
    facts = {}
    for name, value in table.data.items():
        if isinstance(value, str):
            facts[name] = Derived(formula=_read(table, name))
        else:
            row = table.table(name)
            row.known(("is", "of", "unset"))
            facts[name] = Derived(formula=_read(row, "is"), of=row.texts("of"), unset=row.flag("unset"))
    return facts


def _read(table: Table, key: str) -> Formula:
    return table.parsed(key, _formula, "True")


def _role(row: Table, key: str) -> Role | None:
    said = row.choice(key, [role.value for role in Role])
    return Role(said) if said else None
