"""Every composition that the catalogue's rules allow, these rules, and the programs that are known not to be equivalent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from placeproof.blocks import BLOCKS
from placeproof.blocks import text as block_text
from placeproof.core.diagnostics import InputError
from placeproof.core.tables import FileKind, Table, records
from placeproof.programs import Program, read
from placeproof.schedules import load
from placeproof.semantics.lower import lower
from placeproof.strategies import names, parse_strategy, template
from placeproof.strategies.template import Option

_FOLDER = Path(__file__).parent.parent / "strategies"
_KIND = FileKind(noun="a file of rules", manual="see the other rules of composition")


def compositions(most: int = 3) -> Iterator[tuple[str, Program | InputError]]:
    """Each composition of up to ``most`` catalogue strategies, on axes of their own where they would share one: its program, or
    why the rules do not allow it."""
    for count in range(1, most + 1):
        for combination in itertools.combinations(names(), count):
            yield _lowered(" * ".join(apart(combination)))


@cache
def _lowered(text: str) -> tuple[str, Program | InputError]:
    try:
        return text, lower(parse_strategy(text))
    except InputError as refused:
        return text, refused


def variants() -> Iterator[tuple[str, Program | InputError]]:
    """Each strategy with one option set to another of its words: alone, and beside all that splits the computation or its tokens."""
    for name in names():
        strategy = template(name)
        assert strategy is not None
        beside = [s for s in ("tp", "sp", "cp", "ep", "pp") if s != name]
        alone = "".join(f"{axis} * " for axis, _ in strategy.needs)
        for written in (w for option in strategy.options for w in _words(name, option)):
            for text in (f"{alone}{written}", " * ".join([written, *beside])):
                yield _lowered(text)


def _words(name: str, option: Option) -> Iterator[str]:
    """A strategy with an option set to each word that is not its default."""
    for word in option.kinds:
        if word in ("integer", "name", "file", "symbolic") or word == str(option.default).lower():
            continue
        more = ", chunks=2" if option.sets == "in_flight" and load(word).chunks is None else ""
        yield f"{name}({option.name}={word}{more})"


def apart(combination: tuple[str, ...]) -> list[str]:
    """Expressions of strategies of which no two place states on one axis of samples: the second is given an axis `dp2`, ..."""
    taken: set[str] = set()
    written = []
    for name in combination:
        strategy = template(name)
        assert strategy is not None
        renamed = []
        for axis in (a.name for a in strategy.axes if a.splits.samples and any(e.axis == a.name for e in strategy.entries)):
            fresh = next(n for n in (axis, *(f"{axis}{i}" for i in range(2, 9))) if n not in taken)
            taken.add(fresh)
            renamed += [f"{axis}={fresh}"] if fresh != axis else []
        written.append(f"{name}({', '.join(renamed)})" if renamed else name)
    return written


@lru_cache(maxsize=1)
def not_equivalent() -> dict[str, Path]:
    """Programs that do not train what one device trains, by name; each file says why and where it comes from."""
    return {path.stem: path for path in sorted((_FOLDER / "not_equivalent").glob("*.step"))}


def read_not_equivalent(name: str) -> Program:
    """One of these programs."""
    path = not_equivalent()[name]
    return read(path.read_text(encoding="utf-8"), source=path.name)


def read_block(name: str) -> Program:
    """A block of a transformer, as a program over tensors."""
    return read(block_text(name), source=f"{name}.step")


def about(name: str) -> str:
    """What a program that is not equivalent, or a block, does: the comment that it begins with."""
    return comment(block_text(name) if name in BLOCKS else not_equivalent()[name].read_text(encoding="utf-8"))


def comment(text: str) -> str:
    """The comment that a program's text begins with, in one line."""
    return " ".join(line.lstrip("# ") for line in itertools.takewhile(lambda ln: ln.startswith("#"), text.splitlines()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule with its theorem's name. ``holds``: subjects that are proved; ``fails``: subjects that are refuted, or refused as input.

    A subject is the text of a program, or `strategy: EXPRESSION`, or `refused: EXPRESSION`.
    """

    name: str
    says: str
    holds: tuple[str, ...]
    fails: tuple[str, ...]


@lru_cache(maxsize=1)
def rules() -> dict[str, Rule]:
    """The rules by name."""
    return {rule.name: rule for rule in read_rules(Table.open(_FOLDER / "rules.toml", kind=_KIND))}


def read_rules(table: Table) -> tuple[Rule, ...]:
    """The rules of a file. Raises InputError with all that is wrong with it."""
    table.known(("rule",))
    return table.sound(records(Rule)(table, "rule"))


__all__ = [
    "BLOCKS",
    "Rule",
    "about",
    "apart",
    "comment",
    "compositions",
    "not_equivalent",
    "read_block",
    "read_not_equivalent",
    "rules",
    "variants",
]
