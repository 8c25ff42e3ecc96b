"""What a configuration was read as: as text before a result, and as data inside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placeproof.importers import SYSTEMS, Imported, Reading, Role

#: So many settings that a system passes over are shown.
_MOST = 20
#: So many names of settings of no matter are shown.
_FEW = 6


def text(imported: Imported) -> str:
    """The strategy, what goes with it, what is not modelled, and how much says nothing about it."""
    lines = [f"{imported.source}: {SYSTEMS[imported.system].title}, read as `{imported.expression}`"]
    if imported.precision is not None:
        lines.append(f"  precision  {imported.precision}")
    if imported.numbers:
        lines.append("  numbers    " + ", ".join(f"{name} = {value}" for name, value in imported.numbers.items()))
    for name in imported.without:
        lines.append(f"  without    {name}")
    lines += _told(imported)
    left = imported.of(Role.NOT_MODELLED)
    if left:
        lines.append("not modelled: nothing below speaks of these")
        lines += _rows(left)
    rest = imported.of(Role.NO_MATTER)
    if rest:
        shown = ", ".join(r.name for r in rest[:_FEW]) + (", ..." if len(rest) > _FEW else "")
        lines.append(f"of no matter here: {len(rest)} setting{'' if len(rest) == 1 else 's'} ({shown})")
    return "\n".join(lines) + "\n\n"


def _told(imported: Imported) -> list[str]:
    """What the system passes over, and what is to be known of settings that were read."""
    lines = []
    unknown = imported.of(Role.UNKNOWN)
    if unknown:
        title = SYSTEMS[imported.system].title
        lines.append(f"unknown to {title}, which passes over them without a word: what they were to do is not done")
        lines += _rows(unknown[:_MOST])
        lines += [f"  and {len(unknown) - _MOST} more"] * (len(unknown) > _MOST)
    told = [r for r in imported.readings if r.told and r.role is not Role.NOT_MODELLED]
    return [*lines, "of what was read:", *_rows(told)] if told else lines


def _rows(readings: Iterable[Reading]) -> list[str]:
    return [f"  {r.name} = {_value(r.value)}: {r.note}" for r in readings]


def _value(value: object) -> str:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def data(imported: Imported) -> dict[str, Any]:
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
                "value": r.value if isinstance(r.value, bool | int | float | str | None) else str(r.value),
                "role": r.role.value,
                "note": r.note,
                "line": r.place.line if r.place is not None else None,
            }
            for r in imported.readings
        ],
    }
