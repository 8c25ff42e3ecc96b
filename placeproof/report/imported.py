"""What a configuration was read as, as a document: its text stands before a result, its data inside of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from placeproof.importers import SYSTEMS, Imported, Reading, Role
from placeproof.report.document import Document, Lines, Notes, Section, SectionPart, section

#: So many settings that a system passes over are shown.
_MOST = 20
#: So many names of settings of no matter are shown.
_FEW = 6


def document(every: Sequence[Imported], *, alone: bool) -> Document:
    """What configurations were read as. In data, every setting and what became of it; a list, but of one that is ``alone``."""
    data = [_data(one) for one in every]
    return Document(
        name=", ".join(one.source for one in every),
        sections=lambda: (section for one in every for section in _sections(one)),
        data=lambda: data[0] if alone else data,
    )


def _sections(imported: Imported) -> Iterator[Section]:
    """The strategy, what goes with it, what is not modelled, and how much says nothing about it: one block of text."""
    title = SYSTEMS[imported.system].title
    also = [f"precision  {imported.precision}"] if imported.precision is not None else []
    also += ["numbers    " + ", ".join(f"{name} = {value}" for name, value in imported.numbers.items())] if imported.numbers else []
    parts: list[SectionPart] = [Notes([*also, *(f"without    {name}" for name in imported.without)])]
    unknown, other, left, rest = (imported.of(role) for role in (Role.UNKNOWN, Role.ANOTHER_STEP, Role.NOT_MODELLED, Role.NO_MATTER))
    if unknown:
        more = [f"and {len(unknown) - _MOST} more"] * (len(unknown) > _MOST)
        parts.append(Lines([f"unknown to {title}, which passes over them without a word: what they were to do is not done"]))
        parts.append(Notes([*rows(unknown[:_MOST]), *more]))
    known = [r for r in imported.readings if r.told and r.role not in (Role.NOT_MODELLED, Role.ANOTHER_STEP)]
    parts += [Lines(["of what was read:"]), Notes(rows(known))] if known else []
    parts += [Lines(["another step: what follows is about the step without these"]), Notes(rows(other))] if other else []
    parts += [Lines(["not modelled: nothing below speaks of these"]), Notes(rows(left))] if left else []
    if rest:
        parts.append(Lines([f"of no matter here: {named(rest)}"]))
    yield section(f"{imported.source}: {title}, read as `{imported.expression}`", *parts)


def named(readings: Sequence[Reading]) -> str:
    """How many settings there are, and the names of the first."""
    names = ", ".join(r.name for r in readings[:_FEW]) + (", ..." if len(readings) > _FEW else "")
    return f"{len(readings)} setting{'' if len(readings) == 1 else 's'} ({names})"


def rows(readings: Iterable[Reading]) -> list[str]:
    """A line for each setting: its value, and what became of it."""
    return [f"{r.name} = {_value(r.value)}: {r.note}" for r in readings]


def _value(value: object) -> str:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _data(imported: Imported) -> dict[str, Any]:
    """Every setting and what became of it."""
    return {
        "system": imported.system,
        "source": imported.source,
        "expression": imported.expression,
        "precision": imported.precision,
        "numbers": {name: str(value) for name, value in imported.numbers.items()},
        "without": list(imported.without),
        "settings": [
            {
                "name": r.name,
                "value": r.value
                if isinstance(r.value, bool | int | float | str | None) and r.value != inf
                else str(r.value),  # as JSON has it
                "role": r.role.value,
                "note": r.note,
                "line": r.place.line if r.place is not None else None,
            }
            for r in imported.readings
        ],
    }
