"""How a system's configuration says a strategy, as the table ``writing.toml`` in its folder has it in formulas.

Formulas speak of the facts of a strategy (:mod:`.facts`). ``word("orders", in_flight)`` is what the system calls a word of ours, by the
table of that name in ``meaning.toml``, by which its configurations are read; None for what is not there. A setting that comes to None is
left out, and so are a degree of 1 and a switch that is off where that is the default::

    symbols = ["symbols"]          # tables of words in `meaning.toml` whose settings are symbols
    [settings]
    tensor_model_parallel_size = "tp"
    pipeline_parallel_schedule = "word('orders', in_flight) if pp > 1 else None"

    [[way]]                        # of several ways to say a strategy the first that holds and reads back the same is taken
    when = "parameters == 'S*'"
    settings = { use_megatron_fsdp = "True" }

    [[note]]                       # what a file does not say, and has to be told beside it
    when = "pp > 1"
    text = "the program makes the {pp} stages"

What is written is read again, so that a row can be wrong, but never wrong in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from placeproof.core.tables import FileKind, Table, records
from placeproof.framework_rules.formula import Facts, Formula, read_formula
from placeproof.importers.meaning import meaning

#: Our words by those of a system, in tables with names.
Words: TypeAlias = Mapping[str, Mapping[str, str]]

_KIND = FileKind(noun="a file of how strategies are written", manual="see the other entries, and placeproof/importers/writing/table.py")
_FOLDER = Path(__file__).parent.parent
_FILE = "writing.toml"

#: The systems that strategies can be written for.
WRITTEN: tuple[str, ...] = tuple(sorted(path.parent.name for path in _FOLDER.glob(f"*/{_FILE}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to say a strategy, where a formula holds."""

    when: Formula
    settings: Mapping[str, Formula] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What is to be told of a file, where a formula holds; its text shows facts in braces."""

    when: Formula
    text: str

    @staticmethod
    def of(remarks: Iterable[Remark], facts: Facts) -> Iterator[str]:
        """The texts of those that hold."""
        return (one.text.format_map(facts) for one in remarks if one.when.holds(facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The table of a system. ``settings``: those of every way."""

    settings: Mapping[str, Formula]
    ways: tuple[Way, ...]
    notes: tuple[Remark, ...] = ()


@cache
def writing(system: str) -> Writing:
    """The table of a system, one of :data:`WRITTEN`."""
    return read_writing(Table.open(_FOLDER / system / _FILE, kind=_KIND), meaning(system).words)


def read_writing(file: Table, words: Words) -> Writing:
    """The table of a file. ``words``: the tables of words of its system. Raises InputError with all that is wrong with it."""
    formula = partial(read_formula, functions={"word": partial(_word, words)})

    def read(table: Table, key: str) -> Formula:
        return table.parsed(key, formula, "True")

    def settings(table: Table) -> dict[str, Formula]:
        return {name: read(table, name) for name in table.data}

    file.known(("symbols", "settings", "way", "note"))
    for name in (name for name in file.texts("symbols") if name not in words):
        file.unknown(f"there is no table of words `{name}`", name, words, "symbols")
    symbols = {name: formula(symbol) for table in file.texts("symbols") for name, symbol in words.get(table, {}).items()}
    ways = records(Way, when=read, settings=lambda row, key: settings(row.table(key)))(file, "way")
    notes = records(Remark, when=read)(file, "note")
    every = {**symbols, **settings(file.table("settings"))}
    return file.sound(Writing(settings=every, ways=ways, notes=notes))


def _word(words: Words, table: str, ours: object) -> str | None:
    """What a system calls one of our words."""
    return next((theirs for theirs, word in words[table].items() if word == ours), None)
