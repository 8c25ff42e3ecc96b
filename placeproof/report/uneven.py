"""Uneven shards in numbers: a row for each device, or for neighbours that hold as much, and the one that holds the most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

from placeproof.cost.derive import Derivation, evaluate
from placeproof.cost.uneven import NOTES, Devices, Shards, following, fraction
from placeproof.cost.values import Numbers
from placeproof.report.document import Document, Notes, Section, Table, section
from placeproof.report.units import bytes_text, giga

if TYPE_CHECKING:
    import sympy

    from placeproof.cost.model import ModelDerivation, StageCost

#: What is shown of a device: the key of a closed form -> its heading.
_COLUMNS = {
    "memory.parameters": "parameters",
    "memory.gradients": "gradients",
    "memory.optimizer": "optimizer",
    "memory.activations": "activations",
    "memory.working": "computed again",
    "memory.transient": "transient",
    "memory.peak": "peak",
    "memory.host": "host",
    "traffic.host_link": "host link",
    "traffic.sent_per_device": "sent",
}
#: Columns that are left out where they are 0 everywhere.
_OPTIONAL = {"memory.activations", "memory.working", "memory.transient", "memory.host", "traffic.host_link"}
_STAGE_NOTE = "activations, and what is sent of them, are those of equal parts; the tables above are of equal parts alone"


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """What some devices have, by the key of a closed form; None where a symbol has no value. ``stage``: of a model, their stage."""

    devices: Devices
    values: Mapping[str, Fraction | None]
    stage: str = ""

    @property
    def where(self) -> tuple[str, ...]:
        """Their indices along each axis."""
        return tuple(f"{axis} {first}" if first == last else f"{axis} {first} to {last}" for axis, (first, last) in self.devices.at.items())


def rows_of(forms: Mapping[str, sympy.Expr], shards: Shards, values: Mapping[str, Fraction], stage: str = "") -> list[DeviceRow]:
    """A row for each of the devices; ``values`` are those of other symbols."""
    import sympy

    put = {n: sympy.Rational(v.numerator, v.denominator) for n, v in values.items()}
    known = {key: expr.xreplace({s: put[str(s)] for s in expr.free_symbols if str(s) in put}) for key, expr in forms.items()}
    return [DeviceRow(one, {key: evaluate(expr, one.values) for key, expr in known.items()}, stage) for one in shards.devices()]


def greatest(rows: Sequence[DeviceRow]) -> tuple[str, DeviceRow, Fraction] | None:
    """The row with the greatest peak, the first of several; of model states, where peaks are not known; None where neither is."""
    for key in ("memory.peak", "memory.model_states"):
        known = [(value, row) for row in rows if (value := row.values[key]) is not None]
        if len(known) == len(rows) and rows:
            value, row = max(known, key=lambda pair: pair[0])
            return key, row, value
    return None


def parts_text(parts: Iterable[Fraction]) -> str:
    """Parts in a row: ``2/5, 3 of 1/5``."""
    runs = [(str(part), len(list(run))) for part, run in groupby(parts)]
    return ", ".join(part if number == 1 else f"{number} of {part}" for part, number in runs)


def numbers(d: Derivation, shards: Shards, numbers: Numbers) -> Section:
    """The numbers of each device."""
    return section("each device, GB", *_table(rows_of(_forms(d), shards, numbers.values), shards))


def stages(stages: Sequence[StageCost], d: ModelDerivation, shards: Shards, numbers: Numbers) -> Document:
    """Each device of each stage: its formulas, which the stages of equal parts do not have, and its numbers where they were asked for.

    Its data stand in a field of the model's.
    """
    rows = _stage_rows(stages, d, shards, numbers) if numbers.asked else []
    parts = [f"{axis}: {parts_text(parts)}" for axis, parts in shards.parts.items()]
    shown = section("uneven parts", Notes(parts), *(_table(rows, shards) if rows else ()), Notes([*NOTES, _STAGE_NOTE], items=True))
    formulas = {cost.stage.name: _stage_forms(cost) for cost in stages}
    return Document(name=d.linked.name, sections=lambda: [shown], data=lambda: _data(rows, shards) | {"formulas": formulas})


def data(d: Derivation, shards: Shards, numbers: Numbers) -> dict[str, Any]:
    """The fractions, and the numbers of each device where numbers were asked for."""
    return _data(rows_of(_forms(d), shards, numbers.values) if numbers.asked else [], shards)


def _forms(d: Derivation) -> dict[str, sympy.Expr]:
    return {key: d.forms[key] for key in ("memory.model_states", *_COLUMNS) if key in d.forms}


def _stage_rows(stages: Sequence[StageCost], d: ModelDerivation, shards: Shards, numbers: Numbers) -> list[DeviceRow]:
    values = {**d.values, **numbers.values}
    return [row for cost in stages for row in rows_of(_stage_forms(cost), shards, values, cost.stage.name)]


def _stage_forms(cost: StageCost) -> dict[str, sympy.Expr]:
    import sympy

    forms = {f"memory.{state}": expr for state, expr in cost.states.items()}
    forms |= {f"memory.{key}": getattr(cost, key) for key in ("model_states", "activations", "working", "transient", "peak", "host")}
    return forms | {"traffic.sent_per_device": sympy.Add(*cost.traffic().values())}


def _table(rows: Sequence[DeviceRow], shards: Shards) -> tuple[Table, Notes]:
    """A row for each of the devices, and the one that has the most."""
    keys = [k for k in _COLUMNS if k in rows[0].values and (k not in _OPTIONAL or any(r.values[k] != 0 for r in rows))]
    named = any(r.stage for r in rows)
    fractions = [str(fraction(a)) for a in shards.axes]
    names = len(fractions) + named
    cells = [
        (*([r.stage] if named else []), *r.where, *(str(r.devices.values[f]) for f in fractions), *(giga(r.values[k]) for k in keys))
        for r in rows
    ]
    head = (*[""] * names, *fractions, *(_COLUMNS[k] for k in keys))
    return Table(cells, head, range(names, len(head))), Notes(_greatest(rows))


def _greatest(rows: Sequence[DeviceRow]) -> list[str]:
    most = greatest(rows)
    if most is None:
        return []
    key, row, value = most
    words = {"memory.peak": "greatest peak", "memory.model_states": "most model states"}
    return [f"{words[key]}: {bytes_text(value)}, {', '.join((*filter(None, [row.stage]), *row.where))}"]


def _data(rows: Sequence[DeviceRow], shards: Shards) -> dict[str, Any]:
    most = greatest(rows)
    return {
        "parts": {axis: [str(part) for part in parts] for axis, parts in shards.parts.items()},
        "symbols": {axis: {"own": fraction(axis), "next": following(axis)} for axis in shards.axes},
        "devices": [{**_at(r), "values": {k: v for k, v in r.values.items() if v is not None}} for r in rows],
        "greatest": None if most is None else {"key": most[0], **_at(most[1]), "value": most[2]},
    }


def _at(row: DeviceRow) -> dict[str, Any]:
    """Which devices a row is of: the first and the last index along each axis, and their fractions."""
    indices = {axis: list(ends) for axis, ends in row.devices.at.items()}
    return {**({"stage": row.stage} if row.stage else {}), "at": indices, "fractions": {n: str(v) for n, v in row.devices.values.items()}}
